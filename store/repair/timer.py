"""The timer wheel and the chains of the timer log: slots that lead astray are made from the entries.

A slot that is in order stays, byte for byte, whatever other slots are like. Times that have passed
are nobody's concern: a broker does not read their slots again. Spec 04, 4.5 to 4.7; I-121 to I-125,
I-130, I-131.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...formats.derive import dtype_of
from ...formats.timer_log import UNIT, UNIT_BYTES
from ...formats.timer_wheel import FILE_BYTES, SLOT, SLOT_BYTES, SLOTS
from ..commit_log import CommitLog
from ..layout import Layout
from ..recovery.edits import Edit
from ..recovery.snapshot import QueueId, map_file
from ..recovery.timer_state import QUEUE
from ..store import Store
from ..timer_check import TimerCheck
from ..verify.scene import Scene, Scope
from ..verify.timer_entries import Entries, TimerFiles, timer_files
from ..verify.timer_wheel import Chains, chains

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_NONE = -1
_APART_BYTES = 1 << 16
"""Changes of a file that lie closer are one edit."""


def timer_repair(layout: Layout, ranges: Mapping[QueueId, tuple[int, int]]) -> Iterator[Edit]:
    """The edits. ranges: (min, max) offset of each queue once it is mended. Raises Unreadable."""
    with Store(layout.root, layout.broker_config) as store:
        scene = Scene(store, Scope())
        files = timer_files(scene)
        if files.wheel_bytes == FILE_BYTES:
            yield from _wheel(files, chains(scene))
        yield from _tail(files)
        if files.has_check:
            yield from _check(files, ranges, store.log)


def _wheel(files: TimerFiles, found: Chains) -> Iterator[Edit]:
    """Slots, and links of entries, of every tick that is to come and that is not in order."""
    slots, entries = files.slots, files.log.entries
    tick = entries.tick_ms // files.ticks.precision_ms
    read = files.ticks.of(files.check.last_read_time_ms)
    astray = slots.time % SLOTS != slots.number
    wrong = ~found.good
    wrong[list(found.broken)] = True
    unreached = ~found.reached & (tick >= read)
    ticks = np.unique(np.concatenate([found.slots.time[wrong], tick[unreached]]))
    cleared = np.concatenate([slots.number[astray], found.slots.number[wrong]])
    mine = np.flatnonzero(np.isin(tick, ticks))
    mine = mine[np.lexsort((entries.position[mine], tick[mine]))]
    new = _slots(tick[mine], entries, mine)
    numbers = np.concatenate([cleared, new["time"] % SLOTS]).astype(np.int64)
    values = np.zeros(len(numbers), dtype_of(SLOT))
    values[len(cleared) :] = new  # np.concatenate would turn the bytes round
    yield from _write(
        str(files.wheel_path), numbers * SLOT_BYTES, values, "slots made from the entries", "I-122"
    )
    yield from _links(files, entries, tick, mine)


def _slots(tick: Ints, entries: Entries, rows: Ints) -> npt.NDArray[np.void]:
    """A slot for each tick. tick, rows: of its entries, sorted by tick and position."""
    begins = np.flatnonzero(np.append(True, tick[1:] != tick[:-1])) if len(tick) else tick
    new = np.zeros(len(begins), dtype_of(SLOT))
    if not len(begins):
        return new
    ends = np.append(begins[1:], len(tick)) - 1
    counts = np.where(entries.deletes[rows], -1, 1)
    new["time"] = tick[begins]
    new["first_pos"] = entries.position[rows[begins]]
    new["last_pos"] = entries.position[rows[ends]]
    new["num"] = np.add.reduceat(counts, begins)
    return new


def _links(files: TimerFiles, entries: Entries, tick: Ints, rows: Ints) -> Iterator[Edit]:
    """Entries that do not name the one before them of their tick."""
    begins = np.append(True, tick[rows][1:] != tick[rows][:-1])[: len(rows)]
    before = np.where(begins, _NONE, np.append(_NONE, entries.position[rows][:-1])[: len(rows)])
    gone = begins & (entries.previous[rows] >= 0) & (entries.previous[rows] < files.log.start)
    wrong = (entries.previous[rows] != before) & ~gone
    rows, before = rows[wrong], before[wrong]
    for file in files.log.files:
        inside = (entries.position[rows] >= file.start) & (entries.position[rows] < file.end)
        if not inside.any():
            continue
        offsets = entries.position[rows[inside]] - file.start
        data = map_file(file.path)
        units = np.zeros(len(offsets), dtype_of(UNIT))
        for row, offset in enumerate(offsets.tolist()):
            units[row] = data[offset : offset + UNIT_BYTES].view(dtype_of(UNIT))[0]
        units["prev_pos"] = before[inside]
        yield from _write(file.path, offsets, units, "links to the entry before", "I-123")


def _write(
    path: str, offsets: Ints, values: npt.NDArray[np.void], reason: str, code: str
) -> Iterator[Edit]:
    """Items of a file written over: of one offset the last counts, neighbours are one edit."""
    if not len(offsets):
        return
    size = values.dtype.itemsize
    data = map_file(path)
    order = np.argsort(offsets, kind="stable")
    offsets, values = offsets[order], values[order]
    last = np.append(offsets[1:] != offsets[:-1], True)
    offsets, values = offsets[last], values[last]
    pairs = zip(offsets.tolist(), values, strict=True)
    there = np.array([data[at : at + size].tobytes() == v.tobytes() for at, v in pairs], np.bool_)
    offsets, values = offsets[~there], values[~there]
    cuts = np.flatnonzero(np.diff(offsets) > _APART_BYTES) + 1
    for part in np.split(np.arange(len(offsets)), cuts):
        if not len(part):
            continue
        begin, end = int(offsets[part[0]]), int(offsets[part[-1]]) + size
        piece = bytearray(data[begin:end].tobytes())
        for row in part.tolist():
            at = int(offsets[row]) - begin
            piece[at : at + size] = values[row].tobytes()
        yield Edit(
            "write", path, f"{len(part)} {reason}", (code,), begin, end - begin, bytes(piece)
        )


def _tail(files: TimerFiles) -> Iterator[Edit]:
    """What is neither entry nor zeros behind the last entry."""
    for part in files.log.ranges:
        file = files.log.file_of(part.position)
        if part.kind == "damage" and part.position >= files.log.end and file is not None:
            offset = part.position - file.start
            reason = "no entry, behind the last one"
            yield Edit("write", file.path, reason, ("I-126",), offset, part.size)


def _read_to(files: TimerFiles, log: CommitLog, high: int) -> int:
    """Queue offset behind the message of the newest entry: so far the timer has read."""
    places = files.log.entries.offset_py[-1:]
    record = log.records(places[places >= 0])
    if not len(record):
        return high
    return min(int(record.columns.ints("queue_offset")[0]) + 1, high)


def _check(
    files: TimerFiles, ranges: Mapping[QueueId, tuple[int, int]], commit_log: CommitLog
) -> Iterator[Edit]:
    """timercheck: nothing in it lies behind what there is."""
    check, log = files.check, files.log
    flushed = check.last_timer_log_flush_pos
    ends = {log.end, *(file.end for file in log.files if file.start < log.end <= file.end)}
    aligned = bool(log.aligned(np.array([flushed], np.int64))[0])
    if flushed not in ends and not (0 <= flushed <= log.end and aligned):
        flushed = log.end
    high = ranges.get(QUEUE, (0, 0))[1]
    read, master = check.last_timer_queue_offset, check.master_timer_queue_offset
    if not (0 <= read <= high and 0 <= master <= high):
        known = _read_to(files, commit_log, high)
        read, master = (n if 0 <= n <= high else known for n in (read, master))
    new: TimerCheck = check._replace(
        last_timer_log_flush_pos=flushed,
        last_timer_queue_offset=read,
        master_timer_queue_offset=master,
    )
    if new != check:
        path, data = os.fspath(files.check_path), new.to_bytes()
        reason = "positions behind what there is"
        codes = ("I-130", "I-131")
        if Path(path).stat().st_size >= len(data):
            yield Edit("write", path, reason, codes, 0, len(data), data)
