"""Timer messages to units of the timer log and slots of the wheel (spec 04, 4.5 and 4.6).

Pure: what a broker's `doEnqueue` does to its wheel in memory, here on a dictionary of slots.

timerPrecisionMs, the length of a slot of the timer wheel, as the store shows it (spec 04, 4.6).

A slot of the wheel has the number of its tick, counted from 1970: how long a tick is, is what makes
the time of the timer of it. Without a wheel all times of the timer are multiples: those that its log and
timercheck have from the clock, and TIMER_OUT_MS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ...formats.blank import MAGIC_BLANK
from ...formats.fixed import numbers_of, tuple_of
from ...formats.message_properties import TIMER_OUT_MS
from ...formats.timer_log import (
    BLANK,
    BLANK_BYTES,
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    UNIT,
    UNIT_BYTES,
)
from ...formats.timer_wheel import FILE_BYTES, SLOT, SLOTS
from ..broker.system_topics import TIMER_TOPIC
from ..counted import counted
from ..disk.checkpoint import read_timer_check
from ..disk.file_queue import MappedFileQueue
from ..errors import NotFound, StoreError
from .read import TimerUnits, timer_log, wheel_at_rest

if TYPE_CHECKING:
    from ..disk.layout import Layout


DEFAULT_MS = 1_000
PRECISIONS_MS = (100, 200, 500, 1_000)
"""Those that a broker has: whatever its configuration says becomes one of them."""
_SLOTS_ENOUGH = 4_096
_ENTRIES_ENOUGH = 4_096
_MESSAGES_ENOUGH = 64
_NEAR = 1.4
"""Times of a timer are that near to its clock, by quotient: precisions lie farther apart."""
_MOST = 0.8
"""Share of the times that are multiples: a few of them may be damaged."""
_BY_CHANCE = {1_000: 8, 500: 3, 200: 3, 100: 1}
"""With fewer different times they may be multiples of it by chance."""


_DIGITS_MAX = 15
"""Of a time in ms."""


class Shown(NamedTuple):
    """A precision, and what in the store shows it."""

    precision_ms: int
    by: str


def taken_by_a_broker(asked_ms: int) -> int:
    """What a broker makes of a `timerPrecisionMs`: the next lower one that it has, 100 at least.

    >>> [taken_by_a_broker(ms) for ms in (2000, 500, 250, 1)]
    [1000, 500, 200, 100]
    """
    return max((p for p in PRECISIONS_MS if p <= asked_ms), default=PRECISIONS_MS[0])


def precision_of(layout: Layout) -> int:
    """timerPrecisionMs as configured, else as the store shows it. Raises InvalidInput for no number."""
    asked = layout.broker_config.get_int("timerPrecisionMs")
    if asked is not None:
        return taken_by_a_broker(asked)
    shown = shown_precision(layout)
    return DEFAULT_MS if shown is None else shown.precision_ms


def shown_precision(layout: Layout) -> Shown | None:
    """The precision that a store shows; None where it does not.

    A file that cannot be read shows nothing: whoever reads it for its own sake says so.
    """
    return layout.once(_shown)


def _shown(layout: Layout) -> Shown | None:
    times = list(_clock_times(layout))
    return _by_slots(layout, times) or _by_multiples([*times, *_out_times(layout)])


def _by_slots(layout: Layout, times: list[int]) -> Shown | None:
    """By the slots of the wheel that lie where their tick belongs."""
    import numpy as np

    from .read import is_in_place

    ticks: list[int] = []
    try:
        status = layout.timer_wheel.stat()
        if status.st_size != FILE_BYTES:
            return None
        for numbers, slots in wheel_at_rest(layout):
            time = slots["time"].astype(np.int64)
            ticks += time[(time > 0) & is_in_place(numbers, time)].tolist()
            if len(ticks) >= _SLOTS_ENOUGH:
                break
    except (StoreError, OSError):
        return None
    now_ms = sorted(times)[len(times) // 2] if times else status.st_mtime * 1000
    agree = {p: sum(1 / _NEAR < tick * p / now_ms < _NEAR for tick in ticks) for p in PRECISIONS_MS}
    best = max(agree, key=lambda precision: agree[precision])
    if not agree[best]:
        return None
    count = agree[best]
    return Shown(best, f"{counted(count, 'slot')} of timerwheel")


def _by_multiples(times: list[int]) -> Shown | None:
    """The largest of which the times are multiples, so many that it is no chance.

    Of few times that are no multiples of the default the largest is taken all the same.
    """
    different = set(times)
    for precision_ms in reversed(PRECISIONS_MS):
        fits = sum(time % precision_ms == 0 for time in different)
        if different and fits >= _MOST * len(different):
            enough = fits >= _BY_CHANCE[precision_ms] or precision_ms < DEFAULT_MS
            return Shown(precision_ms, f"{counted(fits, 'time')} of the timer") if enough else None
    return None


def _clock_times(layout: Layout) -> Iterator[int]:
    """Times in ms that the timer has from its clock: when it wrote entries, how far it had read."""
    try:
        check = read_timer_check(layout.config / "timercheck")
        if check is not None and check.last_read_time_ms > 0:
            yield check.last_read_time_ms
        with MappedFileQueue.open(layout.timer_log) as files:
            yield from islice(_written(files), _ENTRIES_ENOUGH)
    except (StoreError, OSError):
        return


def _written(files: MappedFileQueue) -> Iterator[int]:
    """Write times of entries, those of the newest file first."""
    for file in reversed(files.files):
        for part in timer_log(files, file.start):
            if not isinstance(part, TimerUnits):
                continue
            if part.position[0] >= file.end:
                break
            yield from {int(time) for time in part.units["curr_write_time"].tolist() if time > 0}


def _out_times(layout: Layout) -> Iterator[int]:
    """TIMER_OUT_MS of some of the newest messages of the timer topic."""
    from ..log.message import read_message
    from ..queues.read import ConsumeQueue

    if layout.rocksdb_queues or not (layout.consume_queue / TIMER_TOPIC).is_dir():
        return
    try:
        with layout.commit_log_files() as log, ConsumeQueue.open(layout, TIMER_TOPIC, 0) as queue:
            for unit in islice(queue.newest(), _MESSAGES_ENOUGH):
                try:
                    text = read_message(log, unit.physical_offset).properties.get(TIMER_OUT_MS, "")
                except NotFound:
                    continue
                if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
                    yield int(text)
    except (StoreError, OSError):
        return


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


class Ticks(NamedTuple):
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
