"""How far the timer says it has come: timercheck, the queue, the counts (I-130 … I-136)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ...formats.derive.ragged import Flags
from ..broker.snapshot import QueueId
from ..broker.system_topics import TIMER_TOPIC
from ..counted import counted
from ..errors import Missing
from ..findings.catalogue import Severity
from ..settings.read import read_config_file
from ..timer.read import NO_NUMBER
from .context import VerifyContext
from .queue_state import queue_bounds
from .register import after
from .timer_log import TimerColumns, TimerFiles, of_timer, timer_columns, timer_files
from .timer_wheel import chains, linked_by_a_start

_QUEUE = QueueId(TIMER_TOPIC, 0)


@of_timer("I-130")
def the_flushed_position_is_in_the_log(context: VerifyContext) -> None:
    """timercheck's position of the timer log is at or before its end, between two entries."""
    files = timer_files(context)
    position = files.check.last_timer_log_flush_pos
    log = files.log
    ends = {log.end, *(file.end for file in log.files if file.start < log.end <= file.end)}
    path = os.fspath(files.check_path)
    if position < 0 or (position > log.end and position not in ends):
        were = counted(position, "byte of the timer log was", "bytes of the timer log were")
        text = f"{were} on the disk, it says; "
        text += f"the log ends at {log.end}" if log.files else "the timer log is missing"
        context.findings.add("I-130", path, text)
    elif position not in ends and not bool(log.aligned(np.array([position], np.int64))[0]):
        text = f"the flushed position {position} is in the middle of an entry"
        context.findings.add("I-130", path, text)


@of_timer("I-131")
def the_queue_is_not_overtaken(context: VerifyContext) -> None:
    """Neither offset of timercheck is behind the end of the queue, nor 0 with a filled wheel."""
    files = timer_files(context)
    check, path = files.check, os.fspath(files.check_path)
    if not files.there:
        count = len(timer_columns(context).position)
        if count:
            reads = counted(count, "message: a start reads it", "messages: a start reads them all")
            text = f"the timer has no file, its topic {reads}"
            text += " again, and delivers once more what was due"
            context.findings.add("I-131", path, text, severity=Severity.WARNING)
        return
    bounds = queue_bounds(context).of(_QUEUE)
    end = bounds[1] if bounds is not None else 0
    offsets = {
        "last_timer_queue_offset": check.last_timer_queue_offset,
        "master_timer_queue_offset": check.master_timer_queue_offset,
    }
    for name, offset in offsets.items():
        if (offset < 0 or offset > end) and context.log.complete:
            text = f"{name} is {offset}, the queue of the timer topic ends at {end}"
            context.findings.add("I-131", path, text)
    count = int((~files.log.entries.deletes).sum())  # with timerRocksDBEnable there are no others
    lowest = min(offsets, key=lambda name: offsets[name])
    if offsets[lowest] == 0 and count:
        none = "timercheck is missing" if not files.check_path.exists() else f"{lowest} is 0"
        entries = counted(count, "entry", "entries")
        text = f"{none} and the timer log has {entries}: a start reads the whole"
        text += " queue again and delivers twice what waits (B34)"
        context.findings.add("I-131", path, text)


@of_timer("I-132")
def the_time_read_is_past(context: VerifyContext) -> None:
    """The timer has not read into the future, and it reads whole ticks."""
    files = timer_files(context)
    read_ms, path = files.check.last_read_time_ms, os.fspath(files.check_path)
    if read_ms > context.now_ms + files.ticks.precision_ms:
        ahead = read_ms - context.now_ms
        text = f"last_read_time_ms is {read_ms}, {ahead} ms from now: messages due before are lost"
        context.findings.add("I-132", path, text)
    elif read_ms < 0 or read_ms % files.ticks.precision_ms:
        text = f"last_read_time_ms is {read_ms}, not a multiple of {files.ticks.precision_ms} ms"
        context.findings.add("I-132", path, text)
    elif read_ms == 0 and len(files.log.entries.position):
        text = "last_read_time_ms is 0: what the wheel has had delivered is delivered again"
        context.findings.add("I-132", path, text)


@of_timer("I-133")
def what_is_to_come_is_in_the_wheel(context: VerifyContext) -> None:
    """Every message that the timer has read and that is not due yet waits in a chain."""
    files, records = timer_files(context), timer_columns(context)
    if not len(records.position) or not context.read_at_once:
        return
    check = files.check
    waits = records.queue_offset < check.last_timer_queue_offset
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
    _tell_missing(context, records, missing & ~late, "")
    if not context.live:
        text = "; a start finds its entry in the timer log"
        unclean = context.crashed
        _tell_missing(context, records, late, text, severity=Severity.WARNING, unclean=unclean)


def _read_by_a_start(files: TimerFiles) -> Flags:
    """bool[entries]: read once more by every start, which begins at a file's start (spec 04, 4.9)."""
    log_files = files.log.files
    begin = files.check.last_timer_log_flush_pos - (log_files[0].size if log_files else 0)
    start = max((file.start for file in log_files if file.start <= begin), default=0)
    found: Flags = files.log.entries.position >= start
    return found


def _tell_missing(
    context: VerifyContext, records: TimerColumns, missing: Flags, why: str, **more: Any
) -> None:
    rows = np.flatnonzero(missing)
    if not len(rows):
        return
    row = int(rows[0])
    gone = "" if timer_files(context).wheel_bytes else "the timer wheel is missing: "
    text = f"{gone}the message at {records.position[row]}, due at {records.out_ms[row]},"
    text += " is in no chain"
    context.findings.add(
        "I-133",
        os.fspath(timer_files(context).wheel_path),
        text + (why or ": it is never delivered"),
        count=len(rows),
        topic=_QUEUE.topic,
        queue_id=_QUEUE.queue_id,
        **more,
    )


_METRICS = {"timermetrics": "timingCount", "transactionMetrics": "transactionCount"}


@after("I-134")
def the_counts_can_be_read(context: VerifyContext) -> None:
    """timermetrics and transactionMetrics parse; no message waits less than no time."""
    for name, member in _METRICS.items():
        path = context.store.layout.config / name
        for text in _wrong_counts(path, member, signed=name == "transactionMetrics"):
            context.findings.add("I-134", os.fspath(path), text)


def _wrong_counts(path: Path, member: str, *, signed: bool) -> list[str]:
    kind = "timer-metrics" if not signed else "transaction-metrics"
    try:
        file = read_config_file(path, kind)
    except Missing:
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
    """A cancel message names, as its broker reads names, a message of the same tick."""
    records = timer_columns(context)
    if not records.cancels.any() or not context.read_at_once:
        return
    ticks = timer_files(context).ticks
    due = records.out_ms // ticks.precision_ms
    names = np.stack([records.name, due], axis=1)[~records.cancels]
    wanted = np.stack([records.target, due], axis=1)[records.cancels]
    both, number = np.unique(np.concatenate([names, wanted]), axis=0, return_inverse=True)
    del both
    number = number.reshape(-1)
    lost = ~np.isin(number[len(names) :], number[: len(names)])
    lost &= wanted[:, 1] != NO_NUMBER // ticks.precision_ms
    rows = np.flatnonzero(records.cancels)[lost]
    for row in rows.tolist():
        position = int(records.position[row])
        text = f"the message at {position} cancels one that is not in its tick: it does nothing"
        context.log_finding("I-136", position, int(records.size[row]), text)
