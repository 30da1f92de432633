"""What the timer wheel leads to: entries by chain, as a broker follows them (spec 04, 4.5, 4.6).

The wheel is the one that a broker would have after its start (spec 4.9). Where a start cannot be
predicted the files are taken as they lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.derive import dtype_of
from ...formats.derive.ragged import Ints
from ...formats.timer_log import UNIT, UNIT_BYTES
from ...formats.timer_wheel import FILE_BYTES
from ..disk.checkpoint import TimerCheck, read_timer_check
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..errors import UnreadableRange, Unsupported
from ..search.store import Note, Store
from ..timer.read import CUT, NOWHERE, WINDOW_UNITS, TimerEntries, follow, is_in_place, timer_wheel
from ..timer.wheel import Ticks

if TYPE_CHECKING:
    from ..start.simulate import Outcome

_LAST_MS = 1 << 53
"""No slot is in use for a later time: what tells one is noise."""


@dataclass
class Wheel:
    """Where a broker goes on: times in ms, offsets in the timer topic's queue and in the log.

    last_read_ms: of timercheck. read_ms: from where slots are read; later than last_read_ms where
    the store stood still for longer than the wheel goes round. queue_end: behind the last unit of
    that queue, None if not known. log_end: what a broker keeps of the
    commit log, None if not known. time_ms, last_pos: slots in use from read_ms on.
    """

    ticks: Ticks
    last_read_ms: int = 0
    read_ms: int = 0
    queue_offset: int = 0
    queue_end: int | None = None
    timer_log_end: int | None = None
    log_end: int | None = None
    time_ms: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    last_pos: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, numbers: Ints, slots: npt.NDArray[np.void]) -> None:
        """Take the slots that are read from read_ms on, in this round of the wheel or a later one."""
        times = slots["time"].astype(np.int64)
        used = is_in_place(numbers, times) & (times >= self.ticks.of(self.read_ms))
        used &= times <= _LAST_MS // self.ticks.precision_ms
        self.time_ms = np.concatenate([self.time_ms, times[used] * self.ticks.precision_ms])
        last = slots["last_pos"][used].astype(np.int64)
        self.last_pos = np.concatenate([self.last_pos, last])


class Chained(NamedTuple):
    """The entries of the timer log, and when the wheel leads to each.

    Whatever stands where an entry may be: a broker that follows a chain looks neither at the size
    nor at the magic of what it meets. fires_ms: int64[n], time of the slot whose chain has it, NOWHERE if
    none has. stuck_ms: time of the first slot that a broker cannot get past,
    None for none. cut: slots whose chain ends at what is no entry.
    """

    entries: TimerEntries
    fires_ms: Ints
    stuck_ms: int | None
    cut: int


def wheel_of(store: Store, now_ms: int, note: Note) -> Wheel:
    """The wheel of a broker that starts at `now_ms`. Raises Unreadable."""
    from ..broker.profiles import profile_of
    from ..broker.snapshot import Snapshot
    from ..start.log import switches_of
    from ..start.simulate import simulate

    try:
        snapshot = Snapshot.of(store.layout)
        profile = profile_of(store.generation.version)
        outcome = simulate(snapshot, profile, switches_of(snapshot), now_ms)
    except (Unsupported, UnreadableRange) as error:
        why = error.message
    else:
        if outcome.refusal is None:
            return _after(outcome, store, now_ms)
        why = f"a broker does not start on this store ({outcome.refusal.reason})"
    note(f"timers: {why}: looking at the timer's files as they lie")
    return _as_it_lies(store, now_ms)


def _after(outcome: Outcome, store: Store, now_ms: int) -> Wheel:
    """The wheel after a start; an empty one where nobody used one before."""
    from ..timer.start import QUEUE

    ticks, queue, state = (
        Ticks.of_store(store.layout),
        outcome.read_queues.get(QUEUE),
        outcome.timer,
    )
    wheel = Wheel(ticks, read_ms=ticks.oldest_ms(now_ms), log_end=outcome.log_end)
    if state is not None:
        wheel.last_read_ms = state.check.last_read_time_ms
        wheel.read_ms = state.read_time_ms
        wheel.queue_offset = state.queue_offset
        wheel.timer_log_end = state.log_end
        wheel.add(np.arange(len(state.wheel), dtype=np.int64), state.wheel)
    wheel.queue_end = queue.max_offset if queue else 0
    if queue is not None:  # a broker goes on where the queue begins
        wheel.queue_offset = max(wheel.queue_offset, queue.min_offset)
    return wheel


def _as_it_lies(store: Store, now_ms: int) -> Wheel:
    layout = store.layout
    ticks = Ticks.of_store(store.layout)
    check = read_timer_check(layout.config / "timercheck") or TimerCheck()
    read_ms = max(check.last_read_time_ms, ticks.oldest_ms(now_ms))
    queue_offset = min(check.last_timer_queue_offset, check.master_timer_queue_offset)
    wheel = Wheel(ticks, check.last_read_time_ms, read_ms, queue_offset)
    if not layout.timer_wheel.exists():
        return wheel
    if layout.timer_wheel.stat().st_size != FILE_BYTES:
        return wheel  # a broker does not take one of another size
    for number, slots in timer_wheel(layout.timer_wheel):
        wheel.add(number, slots)
    return wheel


def entries_of(store: Store, wheel: Wheel) -> Chained:
    """All entries of the timer log, those in chains with their times. Raises Unreadable.

    Memory: some 100 bytes for each entry.
    """
    size, origin = store.config.size("mappedFileSizeTimerLog")
    parts: list[TimerEntries] = []
    file_bytes = size if origin != "default" else None
    with MappedFileQueue.open(store.layout.timer_log, file_bytes) as files:
        for file in files.files:
            parts += _windows(files, file, wheel.timer_log_end)
    return _chained(TimerEntries.concat(parts), wheel)


def _windows(files: MappedFileQueue, file: MappedFile, end: int | None) -> Iterator[TimerEntries]:
    """Windows of a file, up to the end of the log or to zeros."""
    stop = file.size if end is None else min(file.size, end - file.start)
    window = WINDOW_UNITS * UNIT_BYTES
    for begin, data in files.windows(file, 0, stop, window, UNIT_BYTES):
        units = np.frombuffer(data, dtype_of(UNIT), len(data) // UNIT_BYTES)
        position = file.start + begin + np.arange(len(units), dtype=np.int64) * UNIT_BYTES
        written = np.full(len(units), end is not None) | (units["size"] != 0)
        yield TimerEntries.of(position[written], units[written])


def _chained(entries: TimerEntries, wheel: Wheel) -> Chained:
    """Let each entry know the slot whose chain has it."""
    head = entries.rows(wheel.last_pos)
    # at or behind the end, where the next entry names itself as the one before
    behind = wheel.last_pos >= (entries.end if wheel.timer_log_end is None else wheel.timer_log_end)
    good = head >= 0
    times = wheel.time_ms[good]
    owner, end = follow(entries.before, head[good])
    cut = int((end == CUT).sum() + (~good & ~behind & (wheel.last_pos != NOWHERE)).sum())
    first = np.concatenate([times[end >= 0], wheel.time_ms[behind]])
    stuck_ms = int(first.min()) if len(first) else None
    return Chained(entries, np.append(times, NOWHERE)[owner], stuck_ms, cut)
