"""Records of the timer topic put together with the wheel: which records are of one message, which
entries lead to them, what was delivered (spec 04, 4.4 to 4.6).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...formats.derive.ragged import Ints
from ...formats.timer_log import MAGIC_DELETE, MAGIC_ROLL
from .timer_chains import NOWHERE, Entries, Wheel
from .timer_records import NO_NUMBER, Scanned, TimerRecords

Mask = npt.NDArray[np.bool_]


@dataclass
class Facts:
    """What is known of n records of the timer topic, by column.

    group: number of the message that a record is of. delivered: of each message, the positions of
    its records in real topics. fires_ms: when the wheel has the record next, NOWHERE for never;
    rolled: only to be taken round again then; cancelling: as a cancel message. tick_ms: when its
    newest entry says, NOWHERE without one. unread: its entry names too few bytes, or some behind
    the end: a broker finds no message there. in_queue: a broker has still to read it from the timer
    topic's queue. cut_off: a broker that starts cuts the log before it. damage: as `Scanned`.
    poison: the queue offset at which a broker's reading gets stuck, since TIMER_OUT_MS is no number
    there (B35); None for nowhere.
    """

    records: TimerRecords
    wheel: Wheel
    stuck_ms: int | None
    group: Ints
    delivered: dict[int, list[int]]
    fires_ms: Ints
    rolled: Mask
    tick_ms: Ints
    cancelling: Mask
    unread: Mask
    in_queue: Mask
    cut_off: Mask
    damage: int
    poison: int | None

    def messages(self, wanted: Mask) -> Iterator[Ints]:
        """The rows of each message that has any of the rows wanted, by position; in that order."""
        rows = np.flatnonzero(wanted)
        rows = rows[np.lexsort((self.records.position[rows], self.group[rows]))]
        edges = np.flatnonzero(np.diff(self.group[rows])) + 1
        parts = np.split(rows, edges) if len(rows) else []
        yield from sorted(parts, key=lambda part: int(self.records.position[part[0]]))

    def slot(self, row: int) -> int:
        """The tick at which the wheel lets a record's message go."""
        return self.wheel.ticks.of(int(self.records.out_ms[row]))

    def text(self, name: str, row: int) -> str:
        """`topic`, `unique_key` or `cancels` of a record."""
        stored: bytes = getattr(self.records, name)[int(row)]
        return stored.decode("utf-8", "replace")


def facts_of(records: TimerRecords, scanned: Scanned, entries: Entries, wheel: Wheel) -> Facts:
    """Join the columns."""
    count = len(records)
    done = scanned.came_out
    known = [records.identity()] + ([done.identity()] if done is not None else [])
    _, group = np.unique(np.concatenate(known), axis=0, return_inverse=True)
    group = group.astype(np.int64).reshape(-1)
    out: dict[int, list[int]] = {}
    if done is not None:
        for number, position in zip(group[count:].tolist(), done.position.tolist(), strict=True):
            out.setdefault(number, []).append(position)
    chained = entries.fires_ms != NOWHERE
    waits = chained & _readable(entries, records, wheel)
    newest, of_any = _newest(entries.offset_py, records.position)
    next_, of_waiting = _newest(entries.offset_py[waits], records.position)
    magic = _at(entries.magic[waits], next_, of_waiting, empty=0)
    _, of_chained = _newest(entries.offset_py[chained], records.position)
    in_queue = records.queue_offset >= wheel.queue_offset
    if wheel.queue_end is not None:
        in_queue &= records.queue_offset < wheel.queue_end
    bad = records.queue_offset[in_queue & (records.out_ms == NO_NUMBER)]
    return Facts(
        records,
        wheel,
        entries.stuck_ms,
        group[:count],
        out,
        _at(entries.fires_ms[waits], next_, of_waiting),
        (magic & MAGIC_ROLL) != 0,
        _at(entries.tick_ms, newest, of_any),
        (magic & (MAGIC_ROLL | MAGIC_DELETE)) == MAGIC_DELETE,
        of_chained & ~of_waiting,
        in_queue,
        np.zeros(count, np.bool_) if wheel.log_end is None else records.position >= wheel.log_end,
        scanned.damage,
        int(bad.min()) if len(bad) else None,
    )


def _readable(entries: Entries, records: TimerRecords, wheel: Wheel) -> Mask:
    """bool[entries]: a broker finds the record there; it reads as many bytes as the entry says."""
    rows, known = _newest(records.position, entries.offset_py)
    ends = entries.offset_py + entries.size_py
    inside = known & (entries.size_py >= records.total_size[rows])
    return inside if wheel.log_end is None else inside & (ends <= wheel.log_end)


def _newest(offsets: Ints, positions: Ints) -> tuple[Ints, Mask]:
    """Row of the last of the offsets that equals each position, and whether any does."""
    if not len(offsets):
        return np.zeros(len(positions), np.int64), np.zeros(len(positions), np.bool_)
    order = np.argsort(offsets, kind="stable")
    at = np.searchsorted(offsets[order], positions, side="right") - 1
    rows = order[np.maximum(at, 0)]
    return rows.astype(np.int64), (at >= 0) & (offsets[rows] == positions)


def _at(values: Ints, rows: Ints, found: Mask, empty: int = NOWHERE) -> Ints:
    if not len(values):
        return np.full(len(rows), empty, np.int64)
    return np.where(found, values[rows], empty).astype(np.int64)
