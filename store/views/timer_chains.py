"""What the timer wheel leads to: entries by chain, as a broker follows them (spec 04, 4.5, 4.6).

The wheel is the one that a broker would have after its start (spec 4.9). Where a start cannot be
predicted the files are taken as they lie.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...formats.derive.ragged import Ints
from ...formats.timer_log import UNIT_BYTES
from ...formats.timer_wheel import FILE_BYTES, SLOTS
from ..errors import Unsupported
from ..found import Note
from ..mapped_file_queue import MappedFileQueue
from ..recovery.profiles import profile_of
from ..recovery.recovery import switches_of
from ..recovery.simulate import simulate
from ..recovery.snapshot import Snapshot
from ..store import Store
from ..timer import TimerUnits, timer_log, timer_wheel
from ..timer_check import TimerCheck, read_timer_check
from ..write.timer_entries import Ticks

NOWHERE = -1
_CUT = -2


@dataclass
class Wheel:
    """Where a broker goes on: times in ms, offsets in the timer topic's queue and in the log.

    last_read_ms: of timercheck. read_ms: from where slots are read; later than last_read_ms where
    the store stood still for longer than the wheel goes round. log_end: what a broker keeps of the
    commit log, None if not known. time_ms, last_pos: slots in use from read_ms on.
    """

    ticks: Ticks
    last_read_ms: int = 0
    read_ms: int = 0
    queue_offset: int = 0
    timer_log_end: int | None = None
    log_end: int | None = None
    time_ms: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    last_pos: Ints = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass
class Entries:
    """n entries of the timer log, by position, and when the wheel leads to each.

    position: in the timer log. offset_py: of the message. fires_ms: time of the slot whose chain
    has it, NOWHERE if none has. stuck_ms: time of the first slot that a broker cannot get past,
    None for none. cut: slots whose chain ends at what is no entry.
    """

    position: Ints
    offset_py: Ints
    magic: Ints
    tick_ms: Ints
    fires_ms: Ints
    stuck_ms: int | None = None
    cut: int = 0


def wheel_of(store: Store, now_ms: int, note: Note) -> Wheel:
    """The wheel of a broker that starts at `now_ms`. Raises Unreadable."""
    why = "this generation of brokers has no timer"
    try:
        snapshot = Snapshot.of(store.layout)
        profile = profile_of(store.generation.version)
        outcome = simulate(snapshot, profile, switches_of(snapshot), now_ms)
    except Unsupported as error:
        why = error.message
    else:
        if outcome.refusal is not None:
            why = f"a broker does not start on this store ({outcome.refusal.reason})"
        elif (state := outcome.timer) is not None:
            slots = state.wheel[state.used(state.read_time_ms)]
            return Wheel(
                state.ticks,
                state.check.last_read_time_ms,
                state.read_time_ms,
                state.queue_offset,
                state.log_end,
                outcome.log_end,
                slots["time"].astype(np.int64) * state.ticks.precision_ms,
                slots["last_pos"].astype(np.int64),
            )
    note(f"timers: {why}: looking at the timer's files as they lie")
    return _as_it_lies(store, now_ms)


def _as_it_lies(store: Store, now_ms: int) -> Wheel:
    layout = store.layout
    ticks = Ticks.from_config(store.config)
    check = read_timer_check(layout.config / "timercheck") or TimerCheck()
    read_ms = max(check.last_read_time_ms, ticks.oldest_ms(now_ms))
    queue_offset = min(check.last_timer_queue_offset, check.master_timer_queue_offset)
    wheel = Wheel(ticks, check.last_read_time_ms, read_ms, queue_offset)
    if not layout.timer_wheel.exists():
        return wheel
    if layout.timer_wheel.stat().st_size != FILE_BYTES:
        return wheel  # a broker does not take one of another size
    times, last = [wheel.time_ms], [wheel.last_pos]
    for number, slots in timer_wheel(layout.timer_wheel):
        used = slots["time"] % SLOTS == number
        used &= (slots["time"] >= ticks.of(read_ms)) & (slots["time"] < ticks.of(read_ms) + SLOTS)
        times.append(slots["time"][used].astype(np.int64) * ticks.precision_ms)
        last.append(slots["last_pos"][used].astype(np.int64))
    wheel.time_ms, wheel.last_pos = np.concatenate(times), np.concatenate(last)
    return wheel


def entries_of(store: Store, wheel: Wheel) -> Entries:
    """All entries of the timer log, those in chains with their times. Raises Unreadable.

    Memory: some 80 bytes for each entry.
    """
    columns: list[list[Ints]] = [[np.empty(0, np.int64)] for _ in range(5)]
    position, offset, magic, tick, previous = columns
    size = store.config.size("mappedFileSizeTimerLog")
    file_bytes = size[0] if size[1] != "default" else None
    with MappedFileQueue.open(store.layout.timer_log, file_bytes) as files:
        for part in timer_log(files):
            if isinstance(part, TimerUnits):
                position.append(part.position.astype(np.int64))
                units = part.units
                offset.append(units["offset_py"].astype(np.int64))
                magic.append(units["magic"].astype(np.int64))
                tick.append(units["curr_write_time"].astype(np.int64) + units["delayed_time"])
                previous.append(units["prev_pos"].astype(np.int64))
    places, offsets, magics, ticks, before = (np.concatenate(column) for column in columns)
    if wheel.timer_log_end is not None:
        kept = places < wheel.timer_log_end
        places, offsets, magics, ticks, before = (
            column[kept] for column in (places, offsets, magics, ticks, before)
        )
    found = Entries(places, offsets, magics, ticks, np.full(len(places), NOWHERE, np.int64))
    _follow(found, before, wheel)
    return found


def _follow(entries: Entries, previous: Ints, wheel: Wheel) -> None:
    """Let each entry know the slot whose chain has it.

    All chains are followed at once, in steps of one, two, four … entries: long chains cost little,
    and loops end.
    """
    count = len(entries.position)
    jump = np.where(previous == NOWHERE, NOWHERE, _numbers(entries.position, previous))
    head = _numbers(entries.position, wheel.last_pos)
    behind = _behind(entries, wheel)
    good = head >= 0
    heads, times = head[good], wheel.time_ms[good]
    entries.fires_ms[heads] = times
    end = heads.copy()
    for _ in range(max(count, 1).bit_length()):
        source = np.flatnonzero((entries.fires_ms != NOWHERE) & (jump >= 0))
        target = jump[source]
        new = entries.fires_ms[target] == NOWHERE
        entries.fires_ms[target[new]] = entries.fires_ms[source[new]]
        end = np.where(end >= 0, jump[end], end)
        jump = np.where(jump >= 0, jump[jump], jump)
    entries.cut = int((end == _CUT).sum() + (~good & ~behind).sum())
    first = np.concatenate([times[end >= 0], wheel.time_ms[behind]])
    entries.stuck_ms = int(first.min()) if len(first) else None


def _behind(entries: Entries, wheel: Wheel) -> npt.NDArray[np.bool_]:
    """bool[slots]: at or behind the end, where the next entry names itself as the one before."""
    end = wheel.timer_log_end
    if end is None:
        end = int(entries.position[-1]) + UNIT_BYTES if len(entries.position) else 0
    return wheel.last_pos >= end


def _numbers(positions: Ints, wanted: Ints) -> npt.NDArray[np.int64]:
    """Which entries begin at the positions wanted, _CUT where none does."""
    if not len(positions):
        return np.full(len(wanted), _CUT, np.int64)
    at = np.minimum(np.searchsorted(positions, wanted), len(positions) - 1)
    return np.where(positions[at] == wanted, at, _CUT).astype(np.int64)
