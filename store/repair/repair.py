"""Make the plan of a repair: edits of exactly what is wrong in the chosen parts of a store.

Queues, index, timer and checkpoint come from the plan of `recover` that keeps everything, compared with every field of
a unit; the configuration is repaired in addition. A repair confined to some parts leaves the log alone, and the log
must need nothing.

`recover` ends with a sound store, too. A start checks little of it: `widened` adds, in the same session, what `verify`
finds besides, and what a plan itself leaves behind if it removes messages from queues or changes records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..audit.batches import of_right_type
from ..audit.prove import prove_log, units_by, with_verified_queues
from ..audit.verified import VerifiedLog
from ..broker.load_rules import load_files, truncate
from ..broker.profiles import Profile, profile_of, writer_profile
from ..broker.snapshot import QueueId, Snapshot
from ..disk.byte_reader import refusing
from ..disk.files import Edit
from ..disk.layout import Layout
from ..disk.workers import cores
from ..errors import InvalidInput, NotFound, Refused, Unreadable, Unsupported
from ..findings.catalogue import Severity
from ..findings.findings import Finding
from ..findings.next_commands import proposed
from ..index.compare import index_edits
from ..plan.normalize import normalize
from ..plan.observer import Policy, RecoveryOptions
from ..plan.plan import Plan, Reading, make_plan, ranges_of
from ..plan.unreferenced import pairs_of
from ..queues.references import commit_log_of
from ..queues.rocksdb import CURRENT, RocksDb
from ..queues.rocksdb_copy import database_loss
from ..recover.cases import Case, case_named
from ..recover.recovery import ProvedLog, Recovery
from ..recover.recovery import replan as replan_recovery
from ..search.selection import queue_text
from ..search.store import StoreReader
from ..session.journal import Fingerprint, Journal, barriers_left, carried_out, left_over, unfinished
from ..settings.generation import generation_of
from ..settings.rocksdb import in_force
from ..start.config_load import STATISTICS
from ..start.log import Switches, as_configured, proof_for_rebuild, switches_of
from ..start.outcome import Outcome
from ..start.queue_stores import compaction_topics, queue_stores, unserved_topics
from ..verify.layout import KEPT_THERE
from .database import (
    config_for_databases,
    config_in_files,
    database_gone,
    database_plan,
    queues_in_database,
    queues_of,
    with_database,
    with_expired,
)
from .ext import ext_repair
from .index import crc_item_edits, index_fix, stray_files, with_checkpoint
from .parts import Choice, QueueStoreKind, RepairPart, covers, part_of, part_of_code, refuse_kind
from .timer import planned_queue, timer_edits

if TYPE_CHECKING:
    from ..offsets.positions import Clamped
    from .config import ConfigRepair

_AFTER_ANY_KILL = frozenset({"I-007", "I-009", "I-043", "I-070", "I-101", "I-111", "I-113", "I-118"})
"""Codes of edits that change neither records nor the ends of queues, except to complete them."""
_OF_TIMER = frozenset({"I-183", "I-184"})
"""Codes of a start that delivers timed messages never or twice: warnings for those to come, and as after every kill."""
_BESIDE_THE_LOG = frozenset({RepairPart.CONFIG, RepairPart.CHECKPOINT, RepairPart.TIMER, RepairPart.COMPACTION})
"""Parts repaired without reading records: their edits are added to the existing plan."""


class Request(NamedTuple):
    """What is asked for. version: the generation of brokers. made_ms: time of the request. kind: where the queues are
    to be afterwards, None: where they are. The same request gives the same plan for the same store.
    """

    choice: Choice
    version: str
    made_ms: int
    kind: QueueStoreKind | None = None


@dataclass
class Repair:
    """A store before its repair. plan: the chosen edits. interrupted: an interrupted session. clamped: offsets outside
    of their queues, or behind a delayed message that was not delivered. seen: fingerprint of the store that was read;
    None: it may change unnoticed. barrier: a start barrier exists, of a session that may be over.
    """

    layout: Layout
    request: Request
    plan: Plan
    clamped: list[Clamped] = field(default_factory=list)
    interrupted: Journal | None = None
    crashed: bool = False
    seen: Fingerprint | None = None
    barrier: bool = False

    @property
    def nothing_to_do(self) -> bool:
        """Everything chosen is in order."""
        return not self.plan.edits and not self.interrupted

    def to_json(self) -> dict[str, Any]:
        root = f"{self.layout.root}/"
        return {
            "type": "repair",
            "store": str(self.layout.root),
            "broker_version": profile_of(self.request.version).version,
            "parts": sorted(self.request.choice.parts),
            "exit": "crashed" if self.crashed else "clean",
            "plan": {
                "edits": [
                    {**edit.to_json(), "path": edit.path.removeprefix(root)}
                    for edit in carried_out(self.interrupted, self.plan)
                ],
                "completed": self.plan.completed,
                "offsets": [
                    {
                        "group": row.group,
                        "topic": row.queue.topic,
                        "queue_id": row.queue.queue_id,
                        "from": row.before,
                        "to": row.after,
                    }
                    for row in self.clamped
                ],
                "lost": self.plan.lost.to_json(),
                "lost_by_plan": self.plan.lost_messages,
            },
            **({"interrupted_session": self.interrupted.session} if self.interrupted else {}),
        }


@refusing()
def analyze(
    layout: Layout,
    choice: Choice,
    version: str | None,
    made_ms: int,
    tell: Callable[[int], None] | None = None,
    jobs: int | None = None,
    kind: QueueStoreKind | None = None,
    proved: ProvedLog | None = None,
) -> Repair:
    """Plan a repair. Writes nothing. tell: called with the log position reached. jobs: processes. kind: where the
    queues are to be afterwards; layout: as of `as_kind`. proved: by a `verify` that has just read the log
    (`Scope.anew`). Raises Refused (the log must be recovered first), Unreadable, InvalidInput.
    """
    layout.version_named = version or ""
    refuse_kind(layout, kind, profile_of(version).version if version else None)
    version = version or profile_of(generation_of(layout).version).version
    request = Request(choice, version, made_ms, kind)
    if proved is not None and not (proved.files and proved.files.still_holds(layout)):
        proved = None
    seen = proved.seen if proved is not None else Fingerprint.of(layout)
    plan, config = _plan(layout, request, tell, jobs or cores(), proved)
    interrupted = unfinished(layout.root, layout.journal)
    crashed = layout.abort.exists()
    return Repair(layout, request, plan, config.clamped, interrupted, crashed, seen, bool(barriers_left(layout)))


@refusing()
def refuse_at_once(layout: Layout, version: str | None, kind: QueueStoreKind | None) -> None:
    """Raise what `analyze` raises before it reads the log: Refused, Unreadable, Unsupported, InvalidInput."""
    layout.version_named = version or ""
    refuse_kind(layout, kind, profile_of(version).version if version else None)
    _refuse_log(layout, profile_of(version or generation_of(layout).version))


def _refuse_log(layout: Layout, profile: Profile) -> None:
    """Refuse a log that is gone, or that no plan accepts. Raises Refused, Unreadable, Unsupported."""
    normalize(of_right_type(Snapshot.of(layout), profile.queues)[0], any_length=True)


@refusing()
def replan(layout: Layout, request: Request) -> Plan:
    """Make the same plan again from what is on disk now. Raises as `analyze`."""
    return _plan(layout, request, None, cores())[0]


def _plan(
    layout: Layout, request: Request, tell: Callable[[int], None] | None, jobs: int, proved: ProvedLog | None = None
) -> tuple[Plan, ConfigRepair]:
    from .config import ConfigRepair

    choice, profile = request.choice, profile_of(request.version)
    if choice.parts == {RepairPart.QUEUE} and queues_in_database(layout, request.kind):
        _refuse_log(layout, profile)  # the other plans do it themselves
        plan = database_plan(layout, profile, tell, request.kind, choice.topics)
        _check_named(layout, choice, plan)
        if request.kind is QueueStoreKind.ROCKSDB:
            settings = config_for_databases(layout, profile, request.made_ms)
            plan = replace(plan, edits=[*settings, *plan.edits])
        return plan, ConfigRepair()
    snapshot = Snapshot.of(layout)
    named = frozenset((t, q) for t, q in choice.queues if q is not None)
    options = RecoveryOptions(
        Policy.KEEP,
        request.made_ms,
        (profile.version,),
        exact=True,
        renumber=named,
        named=choice.topics,
        queues_in_database=False,
    )
    switches = switches_of(snapshot)
    verified = proved_for_rebuild(snapshot, profile, switches, jobs, tell, proved and proved.verified)
    outcome = _log_as_is(snapshot, profile, switches, verified)
    if verified is None and proved is not None and request.kind is None:
        verified = with_verified_queues(proved.verified, snapshot)
    planned = partial(make_plan, snapshot, profile, outcome, reading=Reading((), tell, verified))
    whole = planned(options=options)
    # nobody can read the changed log yet to compare a database with it, but a recovery plans both
    with_database_of_log = layout.uses_queue_database and layout.dledger is None
    with_log = choice.everything and with_database_of_log and bool(_of_log(layout, whole))
    if with_log:
        whole = planned(options=options._replace(queues_in_database=True))
    _check_named(layout, choice, whole)
    plan, config = repair_parts(snapshot, profile, switches, whole, request, proved and proved.findings)
    if request.kind is QueueStoreKind.FILES:
        plan = with_expired(snapshot, plan)
        settings = config_in_files(layout, request.made_ms)
        plan = replace(plan, edits=[*database_gone(layout), *settings, *plan.edits])
    elif with_database_of_log and RepairPart.QUEUE in choice.parts and not with_log:
        plan = with_database(layout, profile, plan, tell, choice.topics)
    return plan, config


def proved_for_rebuild(
    snapshot: Snapshot,
    profile: Profile,
    switches: Switches,
    jobs: int,
    tell: Callable[[int], None] | None = None,
    proved: VerifiedLog | None = None,
) -> VerifiedLog | None:
    """Return the part of the log that is in order, with its units and index items.

    proved: a result of the caller, used if the rules are the same. None if queues or index have files: these are
    compared with the log first. Raises Unreadable.
    """
    proof = proof_for_rebuild(snapshot, profile, switches)
    if proof is None:
        return None
    rules = units_by(proof.making)
    if proved is not None and proved.made_by == rules and all(run.items for run in proved.runs):
        return proved
    return prove_log(proof, jobs, tell)


def repair_parts(
    snapshot: Snapshot,
    profile: Profile,
    switches: Switches,
    whole: Plan,
    request: Request,
    findings: Iterable[Finding] | None = None,
) -> tuple[Plan, ConfigRepair]:
    """Return the chosen edits of a plan that keeps everything, and repairs of what such a plan does not check: index
    items, ext units, entries of timer and compaction, config/, the checkpoint.

    findings: of a `verify` of the store as it is. Raises Refused if the log must be recovered first, Unreadable.
    """
    from .compaction import compaction_repair  # imports much, and `recover` repairs few stores
    from .config import ConfigRepair, config_repair

    choice, layout = request.choice, snapshot.layout
    if RepairPart.INDEX in choice.parts and (whole.index is None or whole.index.last_kept is not None):
        whole = _with_index(snapshot, whole, request.version, findings)
    config = ConfigRepair()
    ranges = ranges_of(whole.queues)
    if whole.without_log:
        snapshot = replace(snapshot, log=())
        named = (queue for queue, _ in whole.lost.shares)  # also those in a RocksDB
        ranges = dict.fromkeys((*snapshot.queues, *snapshot.batch_queues, *named), (0, 0))
    if RepairPart.CONFIG in choice.parts:
        writer = writer_profile(request.version)
        config = config_repair(snapshot, ranges, profile, writer, as_queues=not choice.everything)
        config.edits.extend(_databases_named_again(layout, everything=choice.everything))
    if choice.everything:
        demanded = switches.demand_crc(profile.record)
        items = crc_item_edits(commit_log_of(layout)) if demanded else ()
        plan = replace(whole, edits=[*config.edits, *items, *whole.edits])
    else:
        plan = _confined(layout, choice, whole, config)
    edits = list(plan.edits)
    if RepairPart.INDEX in choice.parts:
        moved = {edit.path for edit in edits}
        edits = [*(e for e in stray_files(snapshot) if e.path not in moved), *edits]
    if RepairPart.EXT in choice.parts:
        lost = [fill.lost.position.astype(np.int64) for fill in whole.fills]
        tombs = np.sort(np.concatenate([np.zeros(0, np.int64), *lost]))
        gone = {edit.path for edit in edits if edit.kind in ("move", "remove")}
        units = list(ext_repair(snapshot, commit_log_of(layout, whole.files), tombs, gone))
        repaired = {edit.path for edit in units if edit.codes == ("I-079",)}
        # `recover` makes the file readable for a start; this repairs its units
        edits = [*units, *(e for e in edits if e.path not in repaired or e.kind != "write")]
    if RepairPart.TIMER in choice.parts and profile.timer:
        edits = _with_timer(layout, profile.version, whole, edits, ranges, request.made_ms)
    if RepairPart.COMPACTION in choice.parts:
        lost_of_log = [pair for fill in whole.fills for pair in pairs_of(fill.lost)]
        compacted, given_up = compaction_repair(layout, ranges, lost_of_log, _with_compaction_log(layout, profile))
        edits = [*compacted, *edits]
        plan = replace(plan, lost=plan.lost.with_those_of(given_up), lost_compacted=given_up.messages)
    plan = replace(plan, edits=edits)
    if choice.parts & {RepairPart.CHECKPOINT, RepairPart.INDEX}:
        plan = with_checkpoint(snapshot, plan, only_index=RepairPart.CHECKPOINT not in choice.parts)
    return plan, config


def _with_timer(
    layout: Layout,
    version: str,
    whole: Plan,
    edits: Iterable[Edit],
    ranges: Mapping[QueueId, tuple[int, int]],
    made_ms: int,
) -> list[Edit]:
    """Return the chosen edits of a plan and what the timer needs after them. ranges: as of `timer_edits`."""
    by_part = defaultdict[bool, list[Edit]](list)
    for edit in edits:
        by_part[part_of(layout, Path(edit.path)) is RepairPart.TIMER].append(edit)
    mine, rest = by_part[True], by_part[False]
    return [*timer_edits(layout, version, ranges, made_ms, mine, planned_queue(layout, rest, whole)), *rest]


def _with_compaction_log(layout: Layout, profile: Profile) -> frozenset[str]:
    """Return topics with compaction logs that a broker can load; those of other topics would keep it from starting."""
    topics = compaction_topics(layout, profile)
    alone = queue_stores(layout, profile).database is None
    return topics if alone else topics - unserved_topics(layout, profile)


def _databases_named_again(layout: Layout, *, everything: bool) -> Iterator[Edit]:
    """Yield CURRENT of each RocksDB of config/ that has lost it, or names another MANIFEST than that of its tables.
    everything: also of databases with messages. Raises Unsupported.
    """
    places = dict.fromkeys(in_force(layout.config, layout.broker_config).databases.values(), "I-155")
    if everything:
        places |= {layout.root / name: "I-014" for name in KEPT_THERE}
    for path, code in sorted(places.items()):
        loss = database_loss(path)
        if loss is None or not loss.manifest:
            continue
        with suppress(Unreadable):  # nothing more is known of a database that does not open
            RocksDb.open(path, every_file=True, manifest=loss.manifest).close()
            data = f"{loss.manifest}\n".encode()
            yield Edit.create(path / CURRENT, data, f"names {loss.manifest} again: {loss.text}", (code,))


def _check_named(layout: Layout, choice: Choice, whole: Plan) -> None:
    """Check that the chosen queues exist. Raises NotFound, Unsupported."""
    known = {row.queue for row in whole.queues} | (queues_of(layout) if choice.queues else set())
    for named in choice.queues:
        if any(covers(named, queue) for queue in known):
            continue
        text = queue_text(named)
        if "/" in named[0] and (layout.consume_queue / named[0]).is_dir():
            raise Unsupported(
                f"{text} has a / in its name: a broker forgets the queue at each start, and no repair changes that",
                path=layout.consume_queue / named[0],
                hint="mqstore explain I-078; its messages are in the queues of their topics, too",
            )
        raise NotFound(
            f"no queue {text}, neither on disk nor in the log",
            path=layout.root,
            hint=f"`{proposed(layout, 'inspect')}` lists them",
        )


def _log_as_is(snapshot: Snapshot, profile: Profile, switches: Switches, verified: VerifiedLog | None) -> Outcome:
    """Return the log as it is, without a start: a plan that keeps everything needs no more."""
    log, layout = load_files(snapshot.log, snapshot.log_file_bytes, profile.load), snapshot.layout
    if log.files:
        if verified is not None and verified.runs:
            end = commit_log_of(layout).end(verified.end, verified.recent)
        else:
            with StoreReader(layout) as store:
                end = store.log_end
        truncate(log.files, end.position, snapshot.log_file_bytes)
    return Outcome(profile, snapshot, switches, log)


def _with_index(snapshot: Snapshot, plan: Plan, version: str, findings: Iterable[Finding] | None) -> Plan:
    """Return a plan that also rebuilds index files from the first one with a wrong item on."""
    lost = [(fill.gap.begin, fill.gap.end) for fill in plan.fills]
    changed = [(record.position, record.position + len(record.data)) for record in plan.cut]
    found = index_fix(snapshot, version, [*lost, *changed], findings)
    if found is None or (plan.index is not None and len(plan.index.gone) >= len(found.gone)):
        return plan
    made = index_edits(snapshot, plan.index) if plan.index is not None else []
    rest = [edit for edit in plan.edits if edit not in made]
    return replace(plan, index=found, edits=[*index_edits(snapshot, found), *rest])


def _confined(layout: Layout, choice: Choice, whole: Plan, config: ConfigRepair) -> Plan:
    """Return the chosen part of the whole plan. Raises Refused if the log must be recovered first."""
    reads_log = choice.parts & {RepairPart.QUEUE, RepairPart.INDEX, RepairPart.CHECKPOINT, RepairPart.EXT}
    if reads_log and (of_log := _of_log(layout, whole)):
        pending = left_over(layout)
        first = f"run first: {proposed(layout, 'recover', '--apply')}, or use --all"
        if layout.has_peers and (whole.fills or whole.cut):
            first = f"run first what `{proposed(layout, 'recover')}` proposes: another node may have what is lost"
        raise Refused(
            f"the log must be recovered first: {of_log[0].reason}",
            path=of_log[0].path,
            offset=of_log[0].offset,
            hint=first if pending is None else f"{pending}; run: {pending.command(layout)}",
        )
    edits = [e for e in whole.edits if choice.takes(layout, e.path)]
    with_index = RepairPart.INDEX in choice.parts
    return replace(
        whole,
        edits=[*config.edits, *edits],
        index=whole.index if with_index else None,
        checkpoint=whole.checkpoint if RepairPart.CHECKPOINT in choice.parts else None,
    )


def _of_log(layout: Layout, whole: Plan) -> list[Edit]:
    """Return the edits of the log itself, without those that a start makes, too: it removes files made in advance."""
    return [e for e in whole.edits if e.kind != "remove" and part_of(layout, Path(e.path)) is RepairPart.LOG]


def widened(found: Recovery, findings: Sequence[Finding]) -> Recovery:
    """Return a recovery whose plan also repairs what no start checks, if that is needed. Under `broker` this is config/
    and the timer alone: positions behind the new ends of queues, entries that name places behind that of the log.

    findings: of `verify`. If all are in parts repaired without the log, the log is not read again. Raises as `analyze`.
    """
    played, exact_plan = found.played, found.exact_plan
    found = replace(found, played=None, exact_plan=None)
    plan = found.plan
    if plan is None or found.interrupted:
        return found
    by_kill = all(_AFTER_ANY_KILL.issuperset(edit.codes) for edit in plan.edits)
    if found.options.policy is Policy.BROKER:
        if by_kill or plan.without_log:
            return found
        options = found.options._replace(parts=(RepairPart.CONFIG, RepairPart.TIMER))
        return _with_plan(found, _with_parts(found.layout, found.main_version, options, plan), options)
    parts = _parts(found, findings)
    if not by_kill:
        parts = frozenset(RepairPart)
    if not parts:
        return found
    beside = parts <= _BESIDE_THE_LOG
    names = tuple(sorted(parts if beside else RepairPart))
    options = found.options._replace(exact=not beside, parts=names)
    if beside:
        again = _with_parts(found.layout, found.main_version, options, plan, findings)
    else:
        whole = exact_plan or replan_recovery(found.layout, found.main_version, options, played)
        again = _with_parts(found.layout, found.main_version, options, whole, findings)
    wide = _with_plan(found, again, options)
    if not again.edits or plan.edits:
        return wide
    predictions = [replace(each, case=_beside(each.case)) for each in found.predictions]
    return replace(wide, predictions=predictions, plan_case=_beside(found.plan_case))


def _with_plan(found: Recovery, plan: Plan, options: RecoveryOptions) -> Recovery:
    """The recovery with another plan, without the notes on what that plan mends."""
    done = tuple(f"({code})" for edit in plan.edits for code in edit.codes)
    notes = [note for note in found.notes if not note.endswith(done)]
    return replace(found, plan=plan, options=options, notes=notes)


def replan_with_parts(layout: Layout, version: str, options: RecoveryOptions) -> Plan:
    """Make the plan of a recovery, widened or not, again from what is on disk now. Raises as `analyze`."""
    return _with_parts(layout, version, options, replan_recovery(layout, version, options))


def _with_parts(
    layout: Layout, version: str, options: RecoveryOptions, plan: Plan, findings: Sequence[Finding] | None = None
) -> Plan:
    """Return the plan of a recovery with the repairs of the parts that the options name."""
    parts = frozenset(RepairPart(name) for name in options.parts)
    if plan.without_log:  # what names messages is moved away; what counts them stays, and begins at 0
        parts &= {RepairPart.CONFIG, RepairPart.COMPACTION}
    if not parts:
        return plan
    snapshot = Snapshot.of(layout)
    profile = as_configured(profile_of(version), layout.broker_config)
    if options.policy is Policy.BROKER:
        from .config import config_repair

        ranges = ranges_of(plan.queues)
        config = config_repair(snapshot, ranges, profile, writer_profile(profile.version))
        edits = [*config.edits, *plan.edits]
        if profile.timer:
            edits = _with_timer(snapshot.layout, profile.version, plan, edits, ranges, options.made_ms)
        return replace(plan, edits=edits)
    choice = Choice(parts | {RepairPart.LOG, RepairPart.ABORT})
    request = Request(choice, profile.version, options.made_ms)
    return repair_parts(snapshot, profile, switches_of(snapshot), plan, request, findings)[0]


def _parts(found: Recovery, findings: Iterable[Finding]) -> frozenset[RepairPart]:
    """Return the parts with an error; all parts if an error is in the log or in no part. If there are any, also parts
    with a warning. config/, if files of it load from a .bak. The timer, if a start would not deliver each message once.
    """
    findings = list(findings)
    parts, warned = _parts_with(findings)
    if not STATISTICS.issuperset(found.config.backups):
        parts.add(RepairPart.CONFIG)
    parts |= warned if parts else set()
    if (
        found.plan is not None
        and found.plan.edits
        and _with_compaction_log(found.layout, profile_of(found.main_version))
    ):
        parts.add(RepairPart.COMPACTION)  # no start will dispatch to the compaction logs afterwards
    if any(finding.code in _OF_TIMER for finding in findings):
        parts.add(RepairPart.TIMER)
    return frozenset(parts)


def needs_log(findings: Iterable[Finding]) -> bool:
    """Whether a plan will be widened by parts that need the log (`analyze` with `exact`), whatever else is found."""
    return not _parts_with(findings)[0] <= _BESIDE_THE_LOG


def _parts_with(findings: Iterable[Finding]) -> tuple[set[RepairPart], set[RepairPart]]:
    parts, warned = set[RepairPart](), set[RepairPart]()
    for finding in findings:
        part = _part_of(finding)
        if finding.severity >= Severity.ERROR:
            parts |= {part} if part is not None else set(RepairPart)
        elif finding.severity >= Severity.WARNING and not finding.unclean and part is not None:
            warned.add(part)
    return parts, warned


def _part_of(finding: Finding) -> RepairPart | None:
    """Return the part that repairs a finding, None without one."""
    try:
        return part_of_code(finding.code)
    except InvalidInput:
        return None


def _beside(case: Case) -> Case:
    """Return the case of a store that is in order for a start but not for a plan."""
    return case_named("beside-the-log") if case.label == "in-order" else case
