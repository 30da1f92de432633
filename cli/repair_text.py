"""The page of `mqstore repair`: the verdict, the changes, the next steps."""

from __future__ import annotations

from collections.abc import Iterator

from ..store.broker.profiles import LMQ_OPTIONS
from ..store.counted import counted
from ..store.disk.broker_conf import CONFIG_V2, CONFIG_VERSION
from ..store.findings.next_commands import Given, NextCommand, cutting, going_on, next_commands, repair_command
from ..store.repair.parts import QueueStoreKind, RepairPart
from ..store.repair.recheck import JudgedRepair
from ..store.repair.repair import Repair
from ..store.search.selection import queue_text
from ..store.session.journal import carried_out
from ..store.start.config import ConfigStart
from ..store.verify.verdict import first_sentence
from .config_text import config_lines, not_back, still_lost_config
from .options import Common
from .plan_text import ROWS, CarriedOut, section, steps_text
from .terminal import page_of
from .verdict_text import NEXT_IN_USE, alone_text, beyond_lines, cut_text, error_lines, next_lines, started_text

_STORE_TYPES = {"rocksdb": "storeType=defaultRocksDB", "files": "storeType=default"}


def repair_text(
    before: JudgedRepair, done: CarriedOut[JudgedRepair] | None, common: Common, given: Given, *, asking: bool = False
) -> str:
    """The whole page. given: options that a proposed command repeats. asking: the page is shown before the question
    whether to carry out the plan.
    """
    found, rows = before.repair, None if common.verbose else ROWS
    last, left = (before, None) if done is None else (done.after, done.left)
    lines = [
        _verdict(before, done, given, asking=asking),
        *_lost(found, rows),
        *(config_lines(before.verdict.config, rows) if before.verdict.config and left else ()),
        *_edits(found, done is not None, rows),
        *_offsets(found, rows),
    ]
    notes = list[str]()
    if done is not None and done.applied.session:
        notes.append(f"The original bytes are kept in {found.layout.journal / done.applied.session}")
    if found.request.kind and (done is not None or found.nothing_to_do):
        notes += _after_the_move(found)
    lines += ["", *notes] if notes else []
    beyond = last.beyond(given)
    lines += beyond_lines(beyond)
    if not beyond:
        title = "What is wrong:" if done is None else "What is still wrong:"
        lines += section(title, error_lines(last.verdict, found.layout.root), rows)
    if not asking and (steps := next_steps(last, given, left)):
        lines += ["", *([NEXT_IN_USE] if last.verdict.live else next_lines(steps))]
        lines += [alone_text(_command(last.repair, given))] if last.better_cut else []
    return page_of(lines)


def _writes_config(before: JudgedRepair) -> bool:
    """Whether config/ is to be mended, or moved out of a RocksDB: of a half moved one nobody knows what it had lost."""
    found = before.repair
    moved = found.request.kind is QueueStoreKind.FILES and not found.interrupted
    return moved or RepairPart.CONFIG in found.request.choice.parts


def config_left(before: JudgedRepair, after: JudgedRepair) -> ConfigStart | None:
    """Configuration that is still lost after a repair that was to mend or move it, None for nothing."""
    return still_lost_config(before.verdict.config, after.repair.layout) if _writes_config(before) else None


def _after_the_move(found: Repair) -> Iterator[str]:
    """The sentence on what to set in broker.conf before a broker starts on the moved queues."""
    kind = found.request.kind or ""
    config = found.layout.broker_config
    second = config.get(CONFIG_VERSION, "").lower() == CONFIG_V2
    options = [_STORE_TYPES[kind], *([f"{CONFIG_VERSION}={CONFIG_V2}"] if second else ())]
    if kind == "rocksdb" and not config.get_bool("enableCompaction", default=True):
        options.append("enableCompaction=false")  # needed for compaction topics to be in the RocksDB
    lmq = [f"{name}=true" for name in LMQ_OPTIONS if config.get_bool(name)]
    also = f"; for LMQs {', '.join(lmq)}" if kind == "files" and lmq else ""
    yield f"In broker.conf, before its start: {', '.join(options)}, no rocksdbCQDoubleWriteEnable{also}"


def _verdict(before: JudgedRepair, done: CarriedOut[JudgedRepair] | None, given: Given, *, asking: bool) -> str:
    """The sentence of `verify`, and what a repair does or did about it."""
    found = before.repair
    lost = found.plan.lost_messages if done is None else done.applied.lost
    gone = counted(lost, "message is", "messages are", form=",")
    loses = f" {gone} lost." if lost else ""
    if done is not None:
        ended = "finished the interrupted change" if done.applied.resumed else "repaired"
        besides = not_back(before.verdict.config, done.left) if _writes_config(before) else ""
        return f"Done: {ended}.{loses}{besides} {_now(done.after)}"
    sentence = first_sentence(before.verdict, found.layout.root)
    resuming = going_on(before.verdict.findings, found.layout.root, given)
    if resuming is not None and not resuming.ends:
        return f"{sentence}."
    if found.interrupted or resuming is not None:
        what = f"run {resuming}" if resuming is not None else "run this again with --apply"
        return f"{sentence}. A change was interrupted: {what} before you start a broker."
    if found.nothing_to_do:
        return f"{sentence}. Nothing to repair in {_parts(found)}."
    files = len({edit.path for edit in found.plan.edits})
    unasked = "" if asking else " Nothing is written without --apply."
    cut = f" {cut_text(cutting(found.layout.root, given))}" if before.better_cut else ""
    return f"{sentence}. {counted(files, 'file')} to repair.{loses}{unasked}{cut}"


def _now(after: JudgedRepair) -> str:
    if edits := len(after.repair.plan.edits):
        return f"{counted(edits, 'change follows', 'changes follow')} from these: run this command again."
    return started_text(after.verdict, after.repair.layout.root)


def _parts(found: Repair) -> str:
    choice = found.request.choice
    if choice.everything:
        return "the whole store"
    queues = [f"queue {queue_text(queue)}" for queue in choice.queues]
    return ", ".join([*queues, *sorted(choice.parts - ({"queue"} if queues else set()))])


def _lost(found: Repair, rows: int | None) -> list[str]:
    lines = [
        f"  {share.messages:>9,}  {share.queue} at {share.first_offset}"
        f"{f' to {share.last_offset}' if share.messages > 1 else ''}"
        f"{f'  {share.reason}' if share.reason else ''}"
        for share in found.plan.lost
    ]
    if found.plan.index_alone:
        lines.append(f"  {found.plan.index_alone:>9,}  known from the index only")
    return section("Messages that are lost:", lines, rows)


def _edits(found: Repair, done: bool, rows: int | None) -> list[str]:
    title = "What was done:" if done else "The plan:"
    edits = carried_out(found.interrupted, found.plan)
    return section(title, steps_text(edits, found.layout, rows is None), rows)


def _offsets(found: Repair, rows: int | None) -> list[str]:
    lines = (
        f"  {row.before:>12,} -> {'removed' if row.after is None else f'{row.after:,}':<12}"
        f" {row.group or 'delay level'} in {row.queue}"
        for row in found.clamped
    )
    return section("Wrong offsets:", lines, rows)


def next_steps(seen: JudgedRepair, given: Given, left: ConfigStart | None = None) -> list[NextCommand]:
    """The commands that mend the store, in order; the command of the plan first, if there is a plan, or the better one
    in place of it. left: as of `config_left`.
    """
    found = seen.repair
    if (resuming := going_on(seen.verdict.findings, found.layout.root, given)) is not None:
        return [resuming]
    if not found.nothing_to_do:
        return [cutting(found.layout.root, given) if seen.better_cut else _command(found, given)]
    steps = next_commands(
        seen.left(),
        found.layout.root,
        given,
        recovered=seen.verdict.recovered or None,
        to_renumber=seen.verdict.to_renumber,
    )
    again = repair_command(found.layout.root, ("config",), (), given)
    if found.request.kind and left is not None and left.lost_topics and str(again) not in map(str, steps):
        steps.append(again)  # the moved files get entries of what the log has
    return steps


def _command(found: Repair, given: Given) -> NextCommand:
    """The command that carries out the plan."""
    choice = found.request.choice
    parts = () if choice.everything else choice.parts
    queues = [queue_text(queue) for queue in choice.queues]
    return repair_command(found.layout.root, parts, queues, given, found.request.kind or "")
