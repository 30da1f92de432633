"""Timer messages to units of the timer log and slots of the wheel (spec 04, 4.5 and 4.6).

Pure: what a broker's `doEnqueue` does to its wheel in memory, here on a dictionary of slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ...formats.blank import MAGIC_BLANK
from ...formats.fixed import numbers_of, tuple_of
from ...formats.timer_log import (
    BLANK,
    BLANK_BYTES,
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    UNIT,
    UNIT_BYTES,
)
from ...formats.timer_wheel import SLOT, SLOTS
from .precision import DEFAULT_MS, precision_of

if TYPE_CHECKING:
    from ..disk.layout import Layout
    from .read import TimerUnits

DEFAULT_ROLL_SLOTS = 2 * 86_400
_BLANK_SLOTS = 60
"""Slots of the seven days that rolling never uses."""
NONE = -1
"""Position of an entry that is not there."""


class Slot(NamedTuple):
    """A slot of the wheel; names as in the schema."""

    time: int
    first_pos: int
    last_pos: int
    num: int
    magic: int

    @classmethod
    def from_bytes(cls, data: bytes) -> Slot:
        """One slot as it lies in the file."""
        return tuple_of(cls, SLOT, data)

    def to_bytes(self) -> bytes:
        """As it lies in the file."""
        return numbers_of(SLOT).pack(*self)


class TimerMessage(NamedTuple):
    """What the timer needs of a message: its place, when it is due, what it is for.

    out_ms: TIMER_OUT_MS. cancels: it has TIMER_DEL_UNIQKEY. topic_hash: hash of REAL_TOPIC.
    """

    offset_py: int
    size_py: int
    out_ms: int
    cancels: bool
    topic_hash: int


@dataclass(frozen=True)
class Ticks:
    """The wheel's unit of time, and after how long a message is taken round once more."""

    precision_ms: int = DEFAULT_MS
    roll_slots: int = DEFAULT_ROLL_SLOTS

    @classmethod
    def of_store(cls, layout: Layout) -> Ticks:
        """Those of a store: timerPrecisionMs as configured, else as the store shows it, and
        timerRollWindowSlot; what a broker does not take is the default.
        """
        roll = layout.broker_config.get_int("timerRollWindowSlot")
        most = SLOTS // 2 - _BLANK_SLOTS
        if roll is None:
            roll = DEFAULT_ROLL_SLOTS
        precision_ms = precision_of(layout)
        return cls(precision_ms, roll if 2 <= roll <= most else most)

    def of(self, time_ms: int) -> int:
        """The tick of a time."""
        return time_ms // self.precision_ms

    def start_ms(self, time_ms: int) -> int:
        """The time at which its tick begins."""
        return self.of(time_ms) * self.precision_ms

    def oldest_ms(self, now_ms: int) -> int:
        """The earliest slot that a broker reads which starts at `now_ms` (spec 04, 4.9)."""
        return self.start_ms(now_ms) - (SLOTS // 2 - _BLANK_SLOTS) * self.precision_ms

    def delay(self, out_ms: int, write_ms: int) -> tuple[int, bool]:
        """How long a message waits from the write tick on, in ms, and whether it is rolled."""
        wait, window = out_ms - write_ms, self.roll_slots * self.precision_ms
        if wait < window:
            return wait, False
        if wait - window < self.roll_slots // 3 * self.precision_ms:
            return self.roll_slots // 2 * self.precision_ms, True  # the next round has enough time
        return window, True


@dataclass
class Wheel:
    """Slots by number: those that changed, over those that `load` reads from the file."""

    ticks: Ticks
    load: Callable[[int], Slot]
    changed: dict[int, Slot] = field(default_factory=dict)

    def slot(self, tick: int) -> Slot:
        """The slot in use for a tick; an empty one where it is in use for another."""
        found = self._at(tick)
        return found if found.time == tick else Slot(tick, NONE, NONE, 0, 0)

    def put(self, slot: Slot) -> None:
        """Keep a slot."""
        self.changed[slot.time % SLOTS] = slot

    def revise(self, tick: int, position: int) -> None:
        """As a broker's start: this entry is the newest of its tick (spec 4.9, step 2)."""
        found = self._at(tick)
        if found.time == tick:
            self.put(found._replace(last_pos=position))
        else:
            self.put(found._replace(time=tick, first_pos=position, last_pos=position))

    def add(self, message: TimerMessage, position: int, write_ms: int) -> bytes:
        """Put an entry at `position` of the log into its slot; returns its unit."""
        delay_ms, rolled = self.ticks.delay(message.out_ms, write_ms)
        slot = self.slot(self.ticks.of(write_ms + delay_ms))
        magic = MAGIC_DEFAULT | rolled * MAGIC_ROLL | message.cancels * MAGIC_DELETE
        place = message.offset_py, message.size_py
        unit = (UNIT_BYTES, slot.last_pos, magic, write_ms, delay_ms, *place)
        first = position if slot.first_pos == NONE else slot.first_pos
        count = slot.num - 1 if message.cancels else slot.num + 1
        self.put(Slot(slot.time, first, position, count, slot.magic))
        return numbers_of(UNIT).pack(*unit, message.topic_hash, 0)

    def _at(self, tick: int) -> Slot:
        number = tick % SLOTS
        if number not in self.changed:
            return self.load(number)
        return self.changed[number]


def next_place(position: int, file_size: int) -> tuple[int, bytes]:
    """Where the next unit of the log goes, and the BLANK that has to fill the file before it."""
    room = file_size - position % file_size
    if room >= UNIT_BYTES + BLANK_BYTES:
        return position, b""
    if room < BLANK_BYTES:
        return position + room, b""
    return position + room, BLANK.build({"size": room, "prev_pos": 0, "magic": MAGIC_BLANK})


def rebuilt(log: Iterable[TimerUnits], ticks: Ticks) -> dict[int, Slot]:
    """The slots by number that the entries of a timer log make, in its order.

    A later tick takes a slot from an earlier one. For a wheel that is lost; num counts all entries,
    delivered ones, too.
    """
    empty = Slot(0, 0, 0, 0, 0)
    wheel = Wheel(ticks, lambda _: empty)
    for part in log:
        names = ("curr_write_time", "delayed_time", "magic")
        columns = (part.units[name].tolist() for name in names)
        for position, written, delay, magic in zip(part.position.tolist(), *columns, strict=True):
            slot = wheel.slot(ticks.of(written + delay))
            first = position if slot.first_pos == NONE else slot.first_pos
            step = -1 if magic & MAGIC_DELETE else 1
            wheel.put(Slot(slot.time, first, position, slot.num + step, slot.magic))
    return wheel.changed
