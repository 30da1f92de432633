"""What a start does to the timed messages that wait: never fired, fired twice, stuck (spec 07, B31 … B36).

After load a broker follows the wheel: each slot leads to the newest entry of its tick, that to the one
before. An entry that no slot leads to fires only if its message is read from the timer topic's queue
again; one that a slot leads to and that is read again fires twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats.derive import dtype_of
from ...formats.derive.ragged import Flags, Ints
from ...formats.message_properties import TIMER_DEL_UNIQKEY, TIMER_OUT_MS, parse
from ...formats.timer_log import UNIT, UNIT_BYTES
from ..counted import counted
from ..queues.references import commit_log_of
from ..queues.start_rocksdb import StartedQueue
from ..queues.units import is_valid
from ..start.simulate import Outcome
from ..timer.read import NOWHERE, TimerEntries, follow, is_entry, is_in_place
from ..timer.start import QUEUE, TimerState

_UNIT = dtype_of(UNIT)
_AT_ONCE = 1 << 14
_READ_AGAIN_MAX = 10_000
"""Messages of the timer topic whose time is looked at: those that are read after the start."""


@dataclass(frozen=True)
class TimerLoss:
    """Timed messages after a start. pending: with a good entry in the timer log, not yet due when
    the broker read last. loops: ticks whose chain leads to itself once it is written on. stuck_at:
    queue offset in the timer topic behind which nothing is read, None: nothing is in the way.
    """

    pending: int = 0
    never_fired: int = 0
    fired_twice: int = 0
    loops: int = 0
    stuck_at: int | None = None
    bugs: list[str] = field(default_factory=list)

    @property
    def harmless(self) -> bool:
        """Every timed message fires once."""
        return not (self.never_fired or self.fired_twice or self.loops) and self.stuck_at is None

    @property
    def unfired(self) -> int:
        """Greater the more timed messages no consumer would see; 0: each fires at least once."""
        return self.never_fired + self.loops + (self.stuck_at is not None)

    @property
    def unfired_text(self) -> str:
        """What a broker would do to messages that no consumer would see; "" if each fires."""
        why = f" ({', '.join(self.bugs)})" if self.bugs else ""
        if self.never_fired:
            messages = counted(self.pending, "timed message", form=",")
            return f"leave {self.never_fired:,} of {messages} unfired{why}"
        if self.stuck_at is not None:
            return f"fire no timed message behind offset {self.stuck_at:,} of its queue{why}"
        if self.loops:
            ticks = counted(self.loops, "tick", form=",")
            return f"lead the timer into a loop at {ticks}{why}, and fire no more"
        return ""

    @property
    def twice_text(self) -> str:
        """How many messages would be delivered twice, "" for none."""
        why = f" ({', '.join(self.bugs)})" if self.bugs else ""
        count = counted(self.fired_twice, "timed message", form=",")
        return f"{count}{why}" if self.fired_twice else ""

    def to_json(self) -> dict[str, Any]:
        """The object `prediction.timers`."""
        return dict(vars(self))


def timer_loss(outcome: Outcome) -> TimerLoss | None:
    """None where the broker has no timer, or nobody used it. Raises Unreadable."""
    state, queue = outcome.timer, outcome.read_queues.get(QUEUE)
    if state is None or queue is None or outcome.hangs:
        return None
    entries = _entries(outcome, state)
    read_ms = state.read_time_ms or _oldest_ms(entries, state)
    used = state.wheel[state.used(read_ms)]
    heads = entries.rows(used["last_pos"].astype(np.int64))
    reached = follow(entries.before, heads[heads >= 0])[0] != NOWHERE
    offset = _queue_offsets(queue, entries.offset_py)
    due = entries.tick_ms >= read_ms
    own = ~entries.deletes & (entries.offset_py < outcome.log_end) & due
    # of several entries of one message the newest counts: it has been rolled
    own &= _is_newest(entries)
    again = offset >= state.queue_offset
    loops = int((used["last_pos"] >= state.log_end).sum())
    twice = int((own & reached & again).sum())
    forgotten = _forgotten(outcome, state, queue, entries, offset)
    never = int((own & ~reached & ~again).sum()) + forgotten
    stuck = _stuck_at(outcome, state, queue)
    bugs = ["B31"] if loops else []
    bugs += [bug] if never and (bug := _why_never(outcome, state, entries)) else []
    bugs += ["B34"] if twice else []
    bugs += ["B35"] if stuck is not None else []
    return TimerLoss(int(own.sum()) + forgotten, never, twice, loops, stuck, bugs)


def _oldest_ms(entries: TimerEntries, state: TimerState) -> int:
    """The oldest time that log or wheel have, 0 for none: of a timercheck that is lost nothing tells
    how far the broker had read.
    """
    if len(entries):
        return int(entries.tick_ms.min())
    time = state.wheel["time"]
    number = np.flatnonzero(time > 0)
    inside = time[number][is_in_place(number, time[number])]
    return int(inside.min()) * state.ticks.precision_ms if len(inside) else 0


def _why_never(outcome: Outcome, state: TimerState, entries: TimerEntries) -> str:
    """The bug that leaves messages behind, "" where the timer log itself is damaged."""
    wheel = outcome.snapshot.layout.timer_wheel
    if not wheel.exists() or not wheel.stat().st_size:
        return "B33"
    if not state.files:
        return ""
    if state.log_end % state.file_bytes == 0:
        return "B32"
    return "B36" if state.log_end - UNIT_BYTES not in entries.position[-1:] else ""


def _forgotten(
    outcome: Outcome, state: TimerState, queue: StartedQueue, entries: TimerEntries, offset: Ints
) -> int:
    """Messages that wait, have no entry, and are not read again; of those that are read before the
    place where the broker goes on the newest are looked at.
    """
    known = offset[offset >= 0]
    first = max(queue.min_offset, state.queue_offset - _READ_AGAIN_MAX)
    first = max(first, int(known.min())) if len(known) else first
    log, count = commit_log_of(outcome.snapshot.layout), 0
    for begin, units in _units(queue, first):
        rows = np.flatnonzero(is_valid(units))
        rows = rows[begin + rows < state.queue_offset]
        places = units["physical_offset"][rows].astype(np.int64)
        places = places[~np.isin(places, entries.offset_py) & (places < outcome.log_end)]
        for text in log.records(places).columns.ragged("properties").tolist():
            properties = parse(text)
            due = properties.get(TIMER_OUT_MS, "")
            waits = _is_number(due) and int(due) >= state.read_time_ms
            count += waits and TIMER_DEL_UNIQKEY not in properties
    return count


def _is_number(text: str) -> bool:
    return text.lstrip("+-").isdigit() and text.isascii()


def _entries(outcome: Outcome, state: TimerState) -> TimerEntries:
    """What the files of the timer log have, up to where a broker reads."""
    parts = []
    for file in state.files:
        if file.entry is None or file.start >= state.log_end:
            continue
        end = min(file.wrote, state.log_end - file.start)
        data = outcome.snapshot.bytes_of(file.entry)[: end // UNIT_BYTES * UNIT_BYTES]
        units = data.view(_UNIT)
        rows = np.flatnonzero(is_entry(units) & (units["size_py"] > 0))
        parts.append(TimerEntries.of(rows * UNIT_BYTES + file.start, units[rows]))
    return TimerEntries.concat(parts)


def _is_newest(entries: TimerEntries) -> Flags:
    """bool[n]: no later entry is for the same message."""
    newest = np.zeros(len(entries), np.bool_)
    _, first = np.unique(entries.offset_py[::-1], return_index=True)
    newest[len(entries) - 1 - first] = True
    return newest


def _queue_offsets(queue: StartedQueue, places: Ints) -> Ints:
    """Queue offsets of the units that name these places; -1 where none does."""
    found = np.full(len(places), -1, np.int64)
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    for first, units in _units(queue, queue.min_offset):
        used = np.flatnonzero(is_valid(units))
        position = units["physical_offset"][used].astype(np.int64)
        low = np.searchsorted(ordered, position, side="left")
        high = np.searchsorted(ordered, position, side="right")
        for row in np.flatnonzero(high > low).tolist():
            found[order[low[row] : high[row]]] = first + used[row]
    return found


def _units(queue: StartedQueue, begin: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
    """(queue offset, units) from `begin` on, in windows."""
    for first in range(begin, queue.max_offset, _AT_ONCE):
        count = min(_AT_ONCE, queue.max_offset - first)
        yield first, queue.lookup(np.arange(first, first + count, dtype=np.int64))


def _stuck_at(outcome: Outcome, state: TimerState, queue: StartedQueue) -> int | None:
    """The first message that is read and has no number for its time."""
    log = commit_log_of(outcome.snapshot.layout)
    end = min(queue.max_offset, state.queue_offset + _READ_AGAIN_MAX)
    for first, units in _units(queue, max(queue.min_offset, state.queue_offset)):
        rows = np.flatnonzero(is_valid(units))[: max(0, end - first)]
        records = log.records(units["physical_offset"][rows].astype(np.int64))
        texts = records.columns.ragged("properties").tolist()
        wrong = {
            position
            for position, text in zip(records.position.tolist(), texts, strict=True)
            if not _is_number(parse(text).get(TIMER_OUT_MS, ""))
        }
        for row in rows.tolist():
            if int(units["physical_offset"][row]) in wrong:
                return int(first + row)
        if first + len(units) >= end:
            break
    return None
