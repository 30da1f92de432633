"""`mqstore repair`: rebuild wrong parts of a store from the log, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .broker_version import BrokerVersion, warn_of_nearest_version
from .change_options import Change, agree, files_of
from .declared import Argument, Exit, Options, bad_parameter, flag, option
from .exit_codes import ExitCode, exit_code_of_status
from .options import Common, shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..store.disk.layout import Layout
    from ..store.findings.next_commands import Given
    from ..store.recover.recovery import ProvedLog
    from ..store.repair.parts import Choice, QueueStoreKind
    from ..store.repair.recheck import JudgedRepair
    from ..store.repair.repair import Repair
    from ..store.session.apply import Applied
    from .output import Output
    from .plan_text import CarriedOut


QueuesChoice = StrEnum("QueuesChoice", "ROCKSDB FILES")
"""Where `--as` moves the queues."""


class Parts(Options):
    queue: list[str] | None = option("--queue", metavar="TOPIC[/ID]", help="Queues of a topic, or one of them.")
    queues: bool = flag("--queues", help="All queues; queues in a RocksDB are rebuilt as a whole.")
    as_: QueuesChoice | None = option("--as", help="With --queues: move them into a RocksDB, or into files.")
    index: bool = flag("--index", help="The index files.")
    checkpoint: bool = flag("--checkpoint", help="The checkpoint.")
    config: bool = flag("--config", help="Broken files of config/, wrong consumer offsets, topics without an entry.")
    timer: bool = flag("--timer", help="Timer log and timer wheel.")
    ext: bool = flag("--ext", help="consumequeue_ext.")
    compaction: bool = flag("--compaction", help="Compaction topics.")
    all_: bool = flag("--all", help="All of these parts, and the log as `recover` does.")
    finding: list[str] | None = option(
        "--finding", metavar="CODE", help="The part that this finding is about, e.g. I-064."
    )

    def choice(self) -> Choice:
        """The parts that are asked for. Raises InvalidInput, BadParameter."""
        from ..store.repair.parts import CHOICES, Choice, RepairPart, chosen, part_of_code
        from ..store.search.selection import queue_of

        queues, codes = self.queue or [], self.finding or []
        parts: set[RepairPart] = {part for part in CHOICES if getattr(self, part.value) is True}
        parts |= {RepairPart.QUEUE} if self.queues else set()
        if self.all_:
            if queues or codes or parts or self.as_:
                raise bad_parameter("--all includes every part: name no other part")
            return Choice()
        parts |= {part_of_code(code) for code in codes}
        if self.as_ is not None and (parts != {RepairPart.QUEUE} or queues or codes):
            raise bad_parameter("--as needs --queues, and no other part")
        return chosen(parts, tuple(queue_of(text) for text in queues))


ConvertChoice = StrEnum("ConvertChoice", "PLAIN")
"""Kinds of store that `--convert` can make."""


class Conversion(Options):
    convert: ConvertChoice | None = option(
        "--convert", help="plain: make a plain store in --to DIR from a DLedger store."
    )
    to: Path | None = option("--to", metavar="DIR", help="With --convert: a new or an empty directory.")


@shared()
def repair(
    store: Annotated[Path, Argument(metavar="STORE", help="The store's root directory.")],
    *,
    parts: Parts,
    conversion: Conversion,
    broker_version: BrokerVersion = None,
    change: Change,
    common: Common,
) -> None:
    """Rebuild what is wrong in queues, index, checkpoint, timer and configuration, from the log.

    Only wrong parts are rewritten. Queue offsets of messages stay the same, except in a queue that an earlier
    broker had shifted, and only if you name that queue with its number (--queue TOPIC/ID). Use repair instead of
    "delete all consumequeues and restart". Without an option for a part the plan of --all is shown. Nothing is
    written without --apply. The original files are kept in STORE/.mqstore, or in --journal DIR; mqstore undo
    restores them. Repairing a part does not change the log or abort. If the log itself is damaged, run mqstore
    recover first. After a repair of the whole store, everything that is still wrong is named, with the reason and
    what you can do.

    A topic without an entry in topics.json may have been deleted, and one with more queues than its entry says may
    have got fewer. So --all, like recover, leaves this as it is, unless topics.json is damaged or lacks topics in use;
    --config adds the entries and raises readQueueNums.

    --queues rebuilds a RocksDB of queues as a whole if any of its units or rows differs from the log. --as rocksdb
    moves queues from files into a RocksDB, --as files back; every queue keeps its offsets. Change storeType in
    broker.conf before the broker starts. If such a move is interrupted, run the same command again.

    --convert plain makes a plain store of a DLedger store, in another directory. Every message keeps its queue
    offset; where two have the same one, the later one and those behind it get the next free ones. Positions change,
    because the DLedger entries around the records are dropped; so do message ids, which contain positions.
    rocksdbstore is not copied: transactions that are open there are unknown to the new broker, and timed messages
    that only it records as delivered are delivered again; both are counted. Exit code: 0 everything was converted;
    1 something was damaged or is left out, or such transactions are open.

    Exit code, without --apply: 0 nothing to do, or in use and in order; 1 the store is damaged, or the plan loses
    messages; 3 not shut down cleanly, or there is something to do. With --apply: 0 the store is in order now; 1
    something is still wrong, or messages or configuration are lost. Damage outside the chosen parts counts, too.
    Without --apply and with it: 5 no repair can be planned, for the reason named; recover may still say what a start
    would do.

    \b
    Examples:
      mqstore repair /data/store
      mqstore repair /data/store --queue orders/3 --apply
      mqstore repair /data/store --queue '%RETRY%billing' --index
      mqstore repair /data/store --finding I-101 --apply --yes
      mqstore repair /data/store --queues --as rocksdb --apply
      mqstore repair /data/store --config --format json
      mqstore repair /data/store --convert plain --to /data/plain
    """
    choice = parts.choice()
    if conversion.convert is not None:
        if parts != Parts() or change != type(change)():
            raise bad_parameter("--convert makes a new store: it cannot be combined with other parts")
        from .convert import convert

        convert(store, conversion.to, broker_version, common)
    if conversion.to is not None:
        raise bad_parameter("--to needs --convert")
    if change.apply and choice.everything and not parts.all_:
        raise bad_parameter("--apply: name a part, or --all")
    change.check()
    out = common.checked_output("repair")
    layout = change.open(store, common)
    warn_of_nearest_version(broker_version, common)
    if layout.log_stop is not None:
        common.warn("a process uses the store: the result below may change while it runs")
    kind, judged, opened = None, layout, layout
    if parts.as_ is not None:
        from ..store.repair.parts import QueueStoreKind, as_kind

        kind = QueueStoreKind(parts.as_.value)
        if change.apply and not change.wait:
            from ..store.session.apply import refuse_in_use

            refuse_in_use(layout)
        layout = as_kind(layout, kind)
        if kind is QueueStoreKind.FILES:
            from ..store.repair.database import files_kept

            for sentence in files_kept(layout):
                common.warn(sentence)
    before = _analyze(layout, judged, choice, broker_version, common, kind)
    if kind is not None and before.repair.nothing_to_do:  # already moved: judge it as a broker with this storeType
        judged = layout
        before = _analyze(layout, judged, choice, broker_version, common, kind)
    done = None
    given = change.given(broker_version, common).at(judged)
    if change.apply and (before.repair.barrier or not before.repair.nothing_to_do):
        from .plan_text import CarriedOut
        from .repair_text import config_left

        applied = _apply(layout, before, change, given, common)
        after = _reanalyze(before.repair, broker_version, common)
        done = CarriedOut(applied, after, config_left(before, after))
    if done is not None or judged is layout:  # the queues are moved: proposed commands need the new settings
        from ..store.findings.next_commands import settings

        changed = layout.broker_config.items() - opened.broker_config.items()
        given = given._replace(config=(*given.config, *settings(dict(sorted(changed)))))
    if done is not None and done.applied.session:
        out.note_done(f"the store was repaired, in session {done.applied.session}")
    _print(before, done, given, common, out)
    raise Exit(_code(before, done))


def _analyze(
    layout: Layout, judged: Layout, choice: Choice, version: str | None, common: Common, kind: QueueStoreKind | None
) -> JudgedRepair:
    """Plan the repair and judge the store. judged: its layout as it is now, before queues are moved."""
    from ..store.repair.repair import analyze, refuse_at_once
    from ..store.search.store import clock_ms

    now_ms = clock_ms()

    def look(tell: Callable[[int], None], proved: ProvedLog | None) -> Repair:
        if proved is not None and kind is not None:  # the findings are about the place where the queues are now
            proved = proved._replace(findings=None)
        return analyze(layout, choice, version, now_ms, tell, common.jobs, kind, proved)

    refuse_at_once(layout, version, kind)
    return _judged(judged, version, common, look)


def _reanalyze(found: Repair, version: str | None, common: Common) -> JudgedRepair:
    import gc

    from ..store.disk.layout import Layout
    from ..store.repair.recheck import reanalyze

    gc.collect()  # cycles that the plan has left would count in each process that verifies
    layout = Layout.open(found.layout.root, found.layout.broker_config)

    def look(tell: Callable[[int], None], proved: ProvedLog | None) -> Repair:
        return reanalyze(found, tell, common.jobs, proved)

    return _judged(layout, version, common, look)


def _judged(
    layout: Layout,
    version: str | None,
    common: Common,
    look: Callable[[Callable[[int], None], ProvedLog | None], Repair],
) -> JudgedRepair:
    """Verify the store, then plan with `look`, which need not read again what was read for the verdict."""
    from ..store.repair.recheck import JudgedRepair, with_open_repairs
    from ..store.verify.judged import verified_before

    with common.reading("reading the log", layout.commit_log_files()) as tell:
        judgement, proved = verified_before(layout, version, anew=True, jobs=common.jobs, tell=tell)
        found = look(tell, proved)
        seen = JudgedRepair(found, judgement)
        if not found.nothing_to_do:
            return seen
        if found.request.choice.everything:
            return seen._replace(verdict=replace(seen.verdict, to_renumber=tuple(map(str, found.plan.shifted))))
        # which other repair would mend something
        return seen._replace(verdict=with_open_repairs(seen.verdict, found.layout, version))


def _code(before: JudgedRepair, done: CarriedOut[JudgedRepair] | None) -> ExitCode:
    if before.repair.plan.lost_messages if done is None else done.applied.lost:
        return ExitCode.NO
    last = before if done is None else done.after
    code = exit_code_of_status(last.verdict.status)
    if done is not None and (code is not ExitCode.DONE or not last.repair.nothing_to_do or done.left is not None):
        return ExitCode.NO
    # parts that a running broker has not written yet are not wrong
    to_do = code is ExitCode.DONE and not last.verdict.live and not last.repair.nothing_to_do
    return ExitCode.UNCLEAN if to_do else code


def _apply(layout: Layout, before: JudgedRepair, change: Change, given: Given, common: Common) -> Applied:
    """Carry out the plan. Raises Refused, and what `apply` raises."""
    from ..store.counted import counted
    from ..store.disk.layout import Layout
    from ..store.repair.repair import replan
    from ..store.session.apply import apply
    from ..store.session.journal import MOVES

    found = before.repair
    if change.asks:
        what = f"{counted(len(found.plan.edits), 'change')}. Carry them out?"
        if not found.plan.edits:
            what = "Remove the start barrier?"
        if found.interrupted:
            what = "Continue the interrupted change?"
        from .repair_text import repair_text

        plan = repair_text(before, None, common, given, asking=True)
        agree(what, plan, common, _code(before, None))

    def again() -> Any:
        return replan(Layout.open(layout.root, layout.broker_config), found.request)

    shown = None if found.interrupted else found.plan
    command = MOVES.get(found.request.kind or "", "repair")
    files = files_of(layout, change.follow_links)
    return apply(layout, shown, again, files, seen=found.seen, wait_seconds=change.wait, command=command)


def _print(
    before: JudgedRepair, done: CarriedOut[JudgedRepair] | None, given: Given, common: Common, out: Output
) -> None:
    from .repair_text import next_steps, repair_text
    from .verdict_text import verdict_json

    found, last = before.repair, before if done is None else done.after
    record, root = found.to_json(), found.layout.root
    record["verdict"] = verdict_json(before.verdict, root)
    record["next"] = [] if last.verdict.live else [str(step) for step in next_steps(last, given, done and done.left)]
    if done is not None:
        record["applied"] = {
            "session": done.applied.session,
            "resumed": done.applied.resumed,
            "edits_left": len(last.repair.plan.edits),
            "lost_by_plan": done.applied.lost,
            "verdict": verdict_json(last.verdict, root),
            "config": done.left.to_json() if done.left is not None else None,
        }
    if beyond := last.beyond(given):
        record["beyond_repair"] = [row.to_json() for row in beyond]
    with out:
        out.record(record, text=lambda _: repair_text(before, done, common, given), verdict=_code(before, done))
