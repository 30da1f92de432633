"""Checks of the timer wheel: its slots, and the chains of entries that these lead to (I-120 … I-125, I-137).

How far the timer has come: timercheck, the queue, the counts (I-130 … I-136).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...formats import timer_metrics, transaction_metrics
from ...formats.derive.ragged import Flags, Ints
from ...formats.timer_wheel import FILE_BYTES, SLOT_BYTES, SLOTS
from ..broker.snapshot import QueueId
from ..broker.system_topics import TIMER_TOPIC
from ..counted import counted
from ..findings.catalogue import Severity
from ..search.store import silent
from ..settings.read import read_if_there
from ..settings.rocksdb import TimersKept
from ..timer.read import NO_NUMBER, NOWHERE, ByTick, follow, is_in_place
from .context import VerifyContext
from .queue_state import queue_bounds
from .register import after
from .timer_log import Slots, TimerColumns, TimerFiles, of_timer, timer_columns, timer_files

_FILED_TWICE = ": a start after a kill leaves it so, and so does a slave while it runs; nothing is damaged"
"""Why two entries name one message, if they are alike."""


@of_timer("I-120")
def the_wheel_has_its_length(context: VerifyContext) -> None:
    files = timer_files(context)
    size = files.wheel_bytes
    if size not in (0, FILE_BYTES):
        text = f"{counted(size, 'byte')}, not {FILE_BYTES}: a broker does not start"
        context.findings.add("I-120", files.wheel_path, text)


@of_timer("I-121")
def slots_lie_where_their_time_belongs(context: VerifyContext) -> None:
    slots = timer_files(context).slots
    wrong = ~is_in_place(slots.number, slots.time)

    def message(row: int) -> str:
        number, time = slots.number[row], slots.time[row]
        return f"slot {number} has the time {time}, which belongs to slot {time % SLOTS}"

    _report(context, "I-121", slots, wrong, message)


class Chains(NamedTuple):
    """The slots in use, and the entries that a broker reaches from them.

    slots: those that the timer has yet to read. good: both ends of the slot are entries, in order. reached: bool for
    each entry of the log. of_slot: by entry, the row of the slot that leads to it, NOWHERE for none. broken: by slot,
    code and text of what is wrong with its chain.
    """

    slots: Slots
    good: Flags
    reached: Flags
    of_slot: Ints
    broken: dict[int, tuple[str, str]]


def chains(context: VerifyContext) -> Chains:
    """Return the chains of the slots in use, followed once per run."""
    return context.kept("timer chains", lambda: _chains(timer_files(context)))


def _chains(files: TimerFiles) -> Chains:
    slots, entries, log = files.slots, files.log.entries, files.log
    to_come = slots.time >= files.ticks.of(files.check.last_read_time_ms)
    slots = slots.take(is_in_place(slots.number, slots.time) & to_come)
    good = (slots.first >= 0) & (slots.first <= slots.last) & (slots.last < log.end)
    good &= log.aligned(slots.first) & log.aligned(slots.last)
    of_slot = np.full(len(entries.position), NOWHERE, np.int64)
    regular = _regular(files, slots, good, of_slot)
    found = Chains(slots, good, of_slot != NOWHERE, of_slot, {})
    for row in np.flatnonzero(good & ~regular).tolist():
        _follow(found, files, row)
    return Chains(slots, good, of_slot != NOWHERE, of_slot, found.broken)


def _regular(files: TimerFiles, slots: Slots, good: Flags, of_slot: Ints) -> Flags:
    """Return which slots have as their chain all entries of the tick up to the last, each linked to the one before:
    bool[slots].

    Their entries get the row of their slot in `of_slot`. All chains are like that except damaged ones, which are
    followed entry by entry.
    """
    entries = files.log.entries
    regular = np.zeros(len(slots.time), np.bool_)
    if not len(entries.position) or not good.any():
        return regular
    by_time = np.argsort(slots.time, kind="stable")
    tick = entries.tick_ms // files.ticks.precision_ms
    at = np.minimum(np.searchsorted(slots.time[by_time], tick), len(by_time) - 1)
    row = by_time[at]
    mine = (slots.time[row] == tick) & good[row] & (entries.position <= slots.last[row])
    number = np.flatnonzero(mine)
    if not len(number):
        return regular
    rows, begins, before = ByTick.of(row[number], entries.position[number])
    number = number[rows]
    owner, position = row[number], entries.position[number]
    previous = entries.previous[number]
    linked = previous == before
    gone = begins & (previous >= 0) & (previous < files.log.start)
    linked |= gone
    first = np.flatnonzero(begins)
    owners = owner[first]
    ends = np.append(first[1:], len(number)) - 1
    all_linked = np.logical_and.reduceat(linked, first)
    starts_right = (position[first] == slots.first[owners]) | gone[first]
    regular[owners] = all_linked & starts_right & (position[ends] == slots.last[owners])
    keep = regular[owner]
    of_slot[number[keep]] = owner[keep]
    return regular


def _follow(found: Chains, files: TimerFiles, row: int) -> None:
    """Follow one chain as a broker does, up to what is wrong with it."""
    entries, slots = files.log.entries, found.slots
    tick, at = int(slots.time[row]), int(slots.last[row])
    first, start = int(slots.first[row]), files.log.start
    number = int(entries.rows(slots.last[row : row + 1])[0])
    while True:
        if number < 0:
            found.broken[row] = ("I-123", f"its chain leads to {at}, where no entry begins")
            return
        found.of_slot[number] = row
        due = int(entries.tick_ms[number]) // files.ticks.precision_ms
        if due != tick:
            found.broken.setdefault(row, ("I-124", f"its chain has the entry at {at}, which is due at tick {due}"))
        previous = int(entries.previous[number])
        if previous == NOWHERE:
            if at != first:
                found.broken.setdefault(row, ("I-123", f"its chain ends at {at}, not at its first entry {first}"))
            return
        if previous >= at:
            found.broken[row] = ("I-123", f"its chain goes from {at} to {previous} and never ends")
            return
        if previous < 0:
            text = f"its chain goes from {at} to {previous}, where there is no entry"
            found.broken.setdefault(row, ("I-123", text))
        if previous < start:
            return  # expired
        at, number = previous, int(entries.before[number])


@of_timer("I-122")
def slots_in_use_lead_into_the_log(context: VerifyContext) -> None:
    found, log = chains(context), timer_files(context).log
    slots = found.slots
    where = f"the timer log ends at {log.end}" if log.files else "the timer log is missing"

    def message(row: int) -> str:
        ends = f"slot {slots.number[row]} leads to entries {slots.first[row]} … {slots.last[row]}"
        return f"{ends}; {where} (B31)"

    _report(context, "I-122", slots, ~found.good, message)


@of_timer("I-123", "I-124")
def chains_are_whole(context: VerifyContext) -> None:
    found = chains(context)
    for code in ("I-123", "I-124"):
        wrong = np.zeros(len(found.slots.time), np.bool_)
        wrong[[row for row, (of, _) in found.broken.items() if of == code]] = True

        def message(row: int) -> str:
            return f"slot {found.slots.number[row]}: {found.broken[row][1]}"

        _report(context, code, found.slots, wrong, message)
    _check_outside(context, found)


def _check_outside(context: VerifyContext, found: Chains) -> None:
    """Report entries behind the flushed position that are not due yet and in no chain.

    Every start reads these entries again, after a clean shutdown as after a crash, and has the slot of each lead to it
    (spec 04, 4.9): so they come back, except those to which no later entry of their tick links.
    """
    files = timer_files(context)
    entries, ticks, check = files.log.entries, files.ticks, files.check
    due = entries.tick_ms // ticks.precision_ms >= ticks.of(check.last_read_time_ms)
    late = entries.position >= check.last_timer_log_flush_pos
    rows = due & ~found.reached & late
    if not rows.any() or not files.has_check or context.live:
        return
    linked = linked_by_a_start(files, rows)
    _report_outside(context, rows & linked, "a start links it", severity=Severity.WARNING, unclean=context.crashed)
    _report_outside(context, rows & ~linked, "no later entry of its tick links to it")


def linked_by_a_start(files: TimerFiles, rows: Flags) -> Flags:
    """Return which entries are in the chain of the last entry of a tick in which `rows` has an entry: bool[entries]."""
    entries = files.log.entries
    tick = entries.tick_ms // files.ticks.precision_ms
    number = np.flatnonzero(np.isin(tick, tick[rows]))
    _, from_behind = np.unique(tick[number][::-1], return_index=True)
    new = number[::-1][from_behind]
    older = np.where(entries.previous < entries.position, entries.before, NOWHERE)
    found: Flags = follow(older, new)[0] != NOWHERE
    return found


def _report_outside(context: VerifyContext, rows: Flags, why: str, **more: Any) -> None:
    """Report entries in no chain, as one finding."""
    if not rows.any():
        return
    log = timer_files(context).log
    first = int(log.entries.position[rows][0])
    path, place = log.place(first)
    text = f"the entry at {first} is in no chain; it lies behind the flushed position of timercheck: {why}"
    context.findings.add("I-123", path, text, count=int(rows.sum()), **place, **more)


class Counts(NamedTuple):
    """By slot in use: messages and cancels in its chain. wrong: `num` differs from them; usual: a start after a crash
    leaves it so.
    """

    adds: Ints
    deletes: Ints
    wrong: Flags
    usual: Flags


def counts(context: VerifyContext) -> Counts:
    """Compare the counts of slots with their chains; nothing is said of broken chains."""
    files, found = timer_files(context), chains(context)
    slots, entries = found.slots, files.log.entries
    count = np.zeros((2, len(slots.time)), np.int64)
    rows = found.of_slot[found.reached]
    for kind, mask in enumerate((~entries.deletes, entries.deletes)):
        count[kind] = np.bincount(rows[mask[found.reached]], minlength=len(slots.time))
    adds, deletes = count
    whole = found.good.copy()
    whole[list(found.broken)] = False
    whole &= slots.first >= files.log.start
    wrong = whole & (slots.num != adds - deletes)
    return Counts(adds, deletes, wrong, (slots.num >= -deletes) & (slots.num <= adds))


@of_timer("I-125")
def slots_count_their_entries(context: VerifyContext) -> None:
    slots = chains(context).slots
    adds, deletes, wrong, usual = counts(context)

    def message(row: int) -> str:
        messages = counted(int(adds[row]), "message")
        made = f"{messages} and {counted(int(deletes[row]), 'that cancels', 'that cancel')}"
        return f"slot {slots.number[row]} counts {slots.num[row]}, but its chain has {made}"

    _report(context, "I-125", slots, wrong & ~usual, message)
    text = ": a start after a crash leaves it so"
    _report(context, "I-125", slots, wrong & usual, lambda row: message(row) + text, severity=Severity.INFO, repair="")


@of_timer("I-137")
def no_message_waits_twice(context: VerifyContext) -> None:
    """Of entries that are alike none is damaged: brokers file messages again. One of others may name a wrong record."""
    files, found = timer_files(context), chains(context)
    entries = files.log.entries
    waits = entries.take(np.flatnonzero(found.reached & ~entries.deletes))
    order = np.lexsort((waits.position, waits.offset_py))
    waits = waits.take(order)
    again = np.append(False, waits.offset_py[1:] == waits.offset_py[:-1])[: len(order)]
    same = np.ones(len(order), np.bool_)
    for column in (waits.size_py, waits.topic_hash):
        same[1:] &= column[1:] == column[:-1]
    rolled, tick = waits.rolled, waits.tick_ms  # filed later, a message may be so near its time that it is not rolled
    same[1:] &= (tick[1:] == tick[:-1]) | rolled[1:] | rolled[:-1]
    for rows, why, severity, repair in (
        (again & same, _FILED_TWICE, Severity.WARNING, ""),
        (again & ~same, "; these entries differ: one of them may be damaged", None, None),
    ):
        if not rows.any():
            continue
        path, place = files.log.place(int(waits.position[rows][0]))
        text = f"the message at {waits.offset_py[rows][0]} waits in more than one entry and is delivered twice{why}"
        place["count"] = int(rows.sum())
        context.findings.add("I-137", path, text, severity=severity, repair=repair, **place)


def _report(
    context: VerifyContext, code: str, slots: Slots, wrong: Flags, message: Callable[[int], str], **more: Any
) -> None:
    """Add findings about slots, by the bytes of the wheel."""
    starts = slots.number * SLOT_BYTES
    path = timer_files(context).wheel_path
    context.findings.add_rows(code, path, wrong, starts, starts + SLOT_BYTES, message, **more)


_QUEUE = QueueId(TIMER_TOPIC, 0)


@of_timer("I-130")
def the_flushed_position_is_in_the_log(context: VerifyContext) -> None:
    files = timer_files(context)
    position = files.check.last_timer_log_flush_pos
    log = files.log
    ends = {log.end, *(file.end for file in log.files if file.start < log.end <= file.end)}
    path = files.check_path
    if position < 0 or (position > log.end and position not in ends):
        were = counted(position, "byte of the timer log was", "bytes of the timer log were")
        text = f"its flushed position says that {were} on the disk, but "
        text += f"the log ends at {log.end}" if log.files else "the timer log is missing"
        context.findings.add("I-130", path, text)
    elif position not in ends and not bool(log.aligned(np.array([position], np.int64))[0]):
        text = f"the flushed position {position} is in the middle of an entry"
        context.findings.add("I-130", path, text)


@of_timer("I-131")
def the_queue_is_not_overtaken(context: VerifyContext) -> None:
    files = timer_files(context)
    if (kept := _in_database(context)) is not None:
        _report_read_again(context, kept)
        return
    check, path = files.check, files.check_path
    if not files.there:
        count = len(timer_columns(context).position)
        if count:
            reads = counted(count, "message: a start reads it", "messages: a start reads them all")
            text = f"the timer has no files, but its topic has {reads}"
            text += " again, and delivers again the messages due since then, as far as the wheel reaches back"
            context.findings.add("I-131", path, text, severity=Severity.WARNING, repair="")
        return
    bounds = queue_bounds(context, _QUEUE)
    end = bounds[1] if bounds is not None else 0
    offsets = {
        "last_timer_queue_offset": check.last_timer_queue_offset,
        "master_timer_queue_offset": check.master_timer_queue_offset,
    }
    for name, offset in offsets.items():
        ahead = offset > end and not context.live  # a broker goes on: the end was read before timercheck
        if (offset < 0 or ahead) and context.log.complete:
            text = f"{name} is {offset}, but the queue of the timer topic ends at {end}"
            context.findings.add("I-131", path, text)
    count = int((~files.log.entries.deletes).sum())  # with timerRocksDBEnable there are no others
    lowest = min(offsets, key=lambda name: offsets[name])
    if offsets[lowest] == 0 and count:
        none = "timercheck is missing" if not files.check_path.exists() else f"{lowest} is 0"
        entries = counted(count, "entry", "entries")
        text = f"{none} and the timer log has {entries}: a start reads the whole"
        text += " queue again and delivers messages that wait twice (B34)"
        context.findings.add("I-131", path, text)


def _in_database(context: VerifyContext) -> TimersKept | None:
    """Return what `in_database` has, if there are timers; read once."""
    if not len(timer_columns(context).position):
        return None
    from ..inspect.timers import in_database  # only needed with timers

    return context.kept("timers in RocksDB", lambda: in_database(context.store, silent, context.profile.version))


def _report_read_again(context: VerifyContext, kept: TimersKept) -> None:
    """Report that a start reads the whole queue although a RocksDB has its timers. An offset behind the end of the
    queue is no fault: a broker sets it back to the end.
    """
    if len(kept.due_ms) and kept.queue_offset <= 0 and not context.live:
        rows = counted(len(kept.due_ms), "timer")
        text = f"it has {rows} but no offset in the queue of the timer topic: a start reads the whole queue again, and"
        text += " delivers again the messages that wait, were delivered or were cancelled"
        context.findings.add("I-131", context.store.layout.rocksdb_store, text, repair="")


@of_timer("I-132")
def the_time_read_is_past(context: VerifyContext) -> None:
    files = timer_files(context)
    read_ms, path = files.check.last_read_time_ms, files.check_path
    if read_ms > context.now_ms + files.ticks.precision_ms:
        ahead = read_ms - context.now_ms
        text = f"last_read_time_ms is {read_ms}, {ahead} ms in the future: messages due before that time are lost"
        context.findings.add("I-132", path, text)
    elif read_ms < 0 or read_ms % files.ticks.precision_ms:
        text = f"last_read_time_ms is {read_ms}, not a multiple of {files.ticks.precision_ms} ms"
        context.findings.add("I-132", path, text)
    elif len(files.log.entries) and read_ms < max(1, files.ticks.oldest_ms(files.log.entries.alive_ms(context.now_ms))):
        text = f"last_read_time_ms is {read_ms}: a start delivers again what the wheel has delivered"
        context.findings.add("I-132", path, text)


@of_timer("I-133")
def what_is_to_come_is_in_the_wheel(context: VerifyContext) -> None:
    """For timers in a RocksDB timercheck does not say what was read; I-183 reports timers without rows."""
    files, records = timer_files(context), timer_columns(context)
    if not len(records.position) or not context.read_at_once or _in_database(context) is not None:
        return
    check = files.check
    waits = (records.queue_offset < check.last_timer_queue_offset) & ~records.lost
    waits &= records.out_ms > check.last_read_time_ms
    waits &= records.out_ms > records.store_timestamp + files.ticks.precision_ms
    found, entries = chains(context), files.log.entries
    past = entries.rolled & (entries.tick_ms < check.last_read_time_ms)
    named = np.unique(entries.offset_py[found.reached | past])
    missing = waits & ~np.isin(records.position, named)
    if not missing.any():
        return
    linked = linked_by_a_start(files, _read_by_a_start(files))
    late = missing & np.isin(records.position, entries.offset_py[linked])
    _report_missing(context, records, missing & ~late, "")
    if not context.live:
        text = "; a start finds its entry in the timer log"
        unclean = context.crashed
        _report_missing(context, records, late, text, severity=Severity.WARNING, unclean=unclean)


def _read_by_a_start(files: TimerFiles) -> Flags:
    """Return which entries every start reads again, from the start of a file on (spec 04, 4.9): bool[entries]."""
    log_files = files.log.files
    begin = files.check.last_timer_log_flush_pos - (log_files[0].size if log_files else 0)
    start = max((file.start for file in log_files if file.start <= begin), default=0)
    found: Flags = files.log.entries.position >= start
    return found


def _report_missing(context: VerifyContext, records: TimerColumns, missing: Flags, why: str, **more: Any) -> None:
    rows = np.flatnonzero(missing)
    if not len(rows):
        return
    row = int(rows[0])
    gone = "" if timer_files(context).wheel_bytes else "the timer wheel is missing: "
    text = f"{gone}the message at {records.position[row]}, due at {records.out_ms[row]}, is in no chain"
    path, text = timer_files(context).wheel_path, text + (why or ": it is never delivered")
    context.findings.add("I-133", path, text, count=len(rows), **_QUEUE._asdict(), **more)


_METRICS = {
    timer_metrics.FILE: timer_metrics.TIMING_COUNT,
    transaction_metrics.FILE: transaction_metrics.TRANSACTION_COUNT,
}


@after("I-134")
def the_counts_can_be_read(context: VerifyContext) -> None:
    for name, member in _METRICS.items():
        path = context.store.layout.config / name
        for text in _wrong_counts(path, member, signed=name == transaction_metrics.FILE):
            context.findings.add("I-134", path, text)


def _wrong_counts(path: Path, member: str, *, signed: bool) -> list[str]:
    file = read_if_there(path, "timer-metrics" if not signed else "transaction-metrics")
    if file is None:
        return []
    if file.problem is not None:
        return [f"cannot be read: {file.problem.reason}"]
    table = file.value.get(member)
    counts = table.items() if isinstance(table, dict) else ()
    found = []
    for topic, entry in counts:
        count = entry.get("count") if isinstance(entry, dict) else None
        if not isinstance(count, int):
            found.append(f"{topic}: no count")
        elif count < 0 and not signed:
            found.append(f"{topic}: {counted(count, 'message waits', 'messages wait')}")
    return found


@of_timer("I-136")
def cancelling_names_a_message(context: VerifyContext) -> None:
    records = timer_columns(context)
    if not records.cancels.any() or not context.read_at_once:
        return
    ticks = timer_files(context).ticks
    due = records.out_ms // ticks.precision_ms
    names = np.stack([records.name, due], axis=1)[~records.cancels]
    wanted = np.stack([records.target, due], axis=1)[records.cancels]
    number = np.unique(np.concatenate([names, wanted]), axis=0, return_inverse=True)[1].reshape(-1)
    lost = ~np.isin(number[len(names) :], number[: len(names)])
    lost &= wanted[:, 1] != NO_NUMBER // ticks.precision_ms
    rows = np.flatnonzero(records.cancels)[lost]
    for row in rows.tolist():
        position = int(records.position[row])
        text = f"the cancel message at {position} has no effect: its target is not in its tick"
        context.log_finding("I-136", position, int(records.size[row]), text)
