"""How a broker puts timer messages into the timer log and the wheel (spec 04, 4.4 to 4.9).

A broker reads the queue of the timer topic in the background, and enqueues each message: it appends a unit to the log
and updates the slot of a tick (`doEnqueue`, here without I/O, on a dictionary of slots). When a writer is closed,
`TimerWriter` does the same, at the time of the clock. It ends at the first message that is due already: the broker
delivers that one and those behind it. If the timer files are not what a clean stop leaves, everything is left to the
broker.

A slot has the number of its tick, counted from 1970. The store shows how long a tick is (timerPrecisionMs): with it,
the ticks of the slots are times near the timer's clock. Without a wheel, all times of the timer are multiples of it:
those that its log and timercheck have from the clock, and TIMER_OUT_MS.

Order of writes: master offset of timercheck, log, wheel, timercheck. A broker's start takes the queue offset from the
last unit of the log, but never goes beyond the master offset: wherever the writes are cut off, no message is lost, and
none is in the wheel twice unless the cut has torn a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from ...formats.blank import MAGIC_BLANK
from ...formats.derive.ragged import Flags, Ints
from ...formats.fixed import numbers_of, tuple_of
from ...formats.hashing import java_hash
from ...formats.message_properties import REAL_TOPIC, TIMER_DEL_UNIQKEY, TIMER_OUT_MS
from ...formats.timer_check import FILE as TIMER_CHECK
from ...formats.timer_check import PAGE_BYTES
from ...formats.timer_log import BLANK, BLANK_BYTES, MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL, UNIT, UNIT_BYTES
from ...formats.timer_wheel import FILE_BYTES, SLOT, SLOT_BYTES, SLOTS
from ..broker.system_topics import TIMER_TOPIC
from ..counted import counted
from ..disk.broker_conf import BrokerConfig
from ..disk.byte_reader import read_at
from ..disk.checkpoint import TimerCheck, read_timer_check, write_parts
from ..disk.file_queue import MappedFileQueue
from ..disk.files import Files
from ..disk.layout import Layout
from ..errors import Missing, NotFound, StoreError
from ..index.read import sizes_of
from ..log.message import read_message
from ..log.write import Pieces, StreamFiles
from ..queues.read import ConsumeQueue
from .read import TimerUnits, due_ms, is_in_place, timer_log, timer_wheel, wheel_at_rest, wheel_bytes

DEFAULT_MS = 1_000
PRECISIONS_MS = (100, 200, 500, 1_000)
"""The precisions that a broker has: it turns any configured number into one of them."""
_SLOTS_ENOUGH = 4_096
_ENTRIES_ENOUGH = 4_096
_MESSAGES_ENOUGH = 64
_CLOCK_RATIO = 1.4
"""A time of the timer differs from its clock by less than this factor; precisions differ by more."""
_SHARE_OF_MULTIPLES = 0.8
"""Share of times that have to be multiples: a few times may be damaged."""
_TIMES_NEEDED = 8
"""So many different times have to be multiples of the default: fewer may be so by chance."""


_DIGITS_MAX = 15
"""Digits of a time in ms."""


class ShownPrecision(NamedTuple):
    """A precision, and what in the store shows it."""

    precision_ms: int
    by: str


def broker_precision(asked_ms: int) -> int:
    """The precision that a broker makes of a `timerPrecisionMs`: the next lower one that it has, at least 100.

    >>> [broker_precision(ms) for ms in (2000, 500, 250, 1)]
    [1000, 500, 200, 100]
    """
    return max((p for p in PRECISIONS_MS if p <= asked_ms), default=PRECISIONS_MS[0])


def precision_of(layout: Layout) -> int:
    """timerPrecisionMs as configured, else as the store shows it. Raises InvalidInput if it is no number."""
    asked = layout.broker_config.get_int("timerPrecisionMs")
    if asked is not None:
        return broker_precision(asked)
    shown = shown_precision(layout)
    return DEFAULT_MS if shown is None else shown.precision_ms


def shown_precision(layout: Layout) -> ShownPrecision | None:
    """The precision that a store shows, None if it shows none.

    A file that cannot be read shows nothing: whoever reads it for its own sake reports it.
    """
    return layout.once(_shown_by_files)


def _shown_by_files(layout: Layout) -> ShownPrecision | None:
    times = list(_clock_times(layout))
    return _by_slots(layout, times) or _by_multiples([*times, *_out_times(layout)])


def _by_slots(layout: Layout, times: list[int]) -> ShownPrecision | None:
    """The precision with which most slots whose number fits their tick are near the clock; None if none is."""
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
    agree = {p: sum(1 / _CLOCK_RATIO < tick * p / now_ms < _CLOCK_RATIO for tick in ticks) for p in PRECISIONS_MS}
    best = max(agree, key=lambda precision: agree[precision])
    if not agree[best]:
        return None
    count = agree[best]
    return ShownPrecision(best, f"{counted(count, 'slot')} of timerwheel")


def _by_multiples(times: list[int]) -> ShownPrecision | None:
    """The largest precision of which so many times are multiples that it is no chance; None without one.

    Below the default a single time is enough.
    """
    different = set(times)
    for precision_ms in reversed(PRECISIONS_MS):
        fits = sum(time % precision_ms == 0 for time in different)
        if different and fits >= _SHARE_OF_MULTIPLES * len(different):
            enough = precision_ms < DEFAULT_MS or fits >= _TIMES_NEEDED
            return ShownPrecision(precision_ms, f"{counted(fits, 'time')} of the timer") if enough else None
    return None


def _clock_times(layout: Layout) -> Iterator[int]:
    """Yield times (ms) that the timer has from its clock: when it wrote entries, how far it had read."""
    try:
        check = read_timer_check(layout.config / TIMER_CHECK)
        if check is not None and check.last_read_time_ms > 0:
            yield check.last_read_time_ms
        with MappedFileQueue.open(layout.timer_log) as files:
            yield from islice(_write_times(files), _ENTRIES_ENOUGH)
    except (StoreError, OSError):
        return


def _write_times(files: MappedFileQueue) -> Iterator[int]:
    """Yield write times of entries, the newest file first."""
    for file in reversed(files.files):
        for part in timer_log(files, file.start):
            if not isinstance(part, TimerUnits):
                continue
            if part.position[0] >= file.end:
                break
            yield from {int(time) for time in part.units["curr_write_time"].tolist() if time > 0}


def _out_times(layout: Layout) -> Iterator[int]:
    """Yield TIMER_OUT_MS of some of the newest messages of the timer topic."""
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
"""Position of an entry if there is none."""


class Slot(NamedTuple):
    """A slot of the wheel; names as in the schema."""

    time: int
    first_pos: int
    last_pos: int
    num: int
    magic: int

    @classmethod
    def from_bytes(cls, data: bytes) -> Slot:
        """The slot in the bytes of the file."""
        return tuple_of(cls, SLOT, data)

    def to_bytes(self) -> bytes:
        """The slot as bytes of the file."""
        return numbers_of(SLOT).pack(*self)


class TimerMessage(NamedTuple):
    """What the timer needs of a message: its place in the log, when it is due, and its purpose.

    out_ms: TIMER_OUT_MS. cancels: it has TIMER_DEL_UNIQKEY. topic_hash: hash of REAL_TOPIC.
    """

    offset_py: int
    size_py: int
    out_ms: int
    cancels: bool
    topic_hash: int


class Ticks(NamedTuple):
    """Length of a tick, and the number of slots after which a message goes round once more."""

    precision_ms: int = DEFAULT_MS
    roll_slots: int = DEFAULT_ROLL_SLOTS

    @classmethod
    def of_store(cls, layout: Layout) -> Ticks:
        """The ticks of a store: timerPrecisionMs as configured, else as the store shows it, and timerRollWindowSlot,
        for which a broker takes its limit if the value is out of range.
        """
        roll = layout.broker_config.get_int("timerRollWindowSlot", DEFAULT_ROLL_SLOTS)
        roll_max = SLOTS // 2 - _BLANK_SLOTS
        return cls(precision_of(layout), roll if 2 <= roll <= roll_max else roll_max)

    def of(self, time_ms: int) -> int:
        return time_ms // self.precision_ms

    def start_ms(self, time_ms: int) -> int:
        """The time at which the tick of a time begins."""
        return self.of(time_ms) * self.precision_ms

    def oldest_ms(self, now_ms: int) -> int:
        """The time of the earliest slot that a broker reads if it starts at `now_ms` (spec 04, 4.9)."""
        return self.start_ms(now_ms) - (SLOTS // 2 - _BLANK_SLOTS) * self.precision_ms

    def delay(self, out_ms: int, write_ms: int) -> tuple[int, bool]:
        """How long (ms) a message waits from the write tick on, and whether it is rolled."""
        wait, window = out_ms - write_ms, self.roll_slots * self.precision_ms
        if wait < window:
            return wait, False
        soon = wait - window < self.roll_slots // 3 * self.precision_ms  # half a round leaves time for the next one
        return (self.roll_slots // 2 * self.precision_ms if soon else window), True

    def delays(self, out_ms: Ints, write_ms: Ints) -> tuple[Ints, Flags]:
        """`delay` for n messages: columns are quick for many, slow for one."""
        wait, window = out_ms - write_ms, self.roll_slots * self.precision_ms
        soon = wait - window < self.roll_slots // 3 * self.precision_ms
        round_ms = np.where(soon, self.roll_slots // 2 * self.precision_ms, window)
        return np.where(wait < window, wait, round_ms), wait >= window


_HOUR_MS = 3_600_000


def waiting(layout: Layout) -> Iterator[tuple[Ints, Ints]]:
    """Yield (hours since 1970, numbers of messages) of the slots of the wheel that count some, int64[n] both, in
    windows, whether a broker still reads the slot or not. Raises as `timer_wheel`.
    """
    ticks_of_hour = _HOUR_MS // Ticks.of_store(layout).precision_ms
    for part in timer_wheel(layout.timer_wheel):
        slots = part.slots[(part.slots["num"] > 0) & (part.slots["time"] > 0)]
        yield slots["time"].astype(np.int64) // ticks_of_hour, slots["num"].astype(np.int64)


@dataclass
class Wheel:
    """Slots by number: changed ones, on top of those that `load` reads from the file."""

    ticks: Ticks
    load: Callable[[int], Slot]
    changed: dict[int, Slot] = field(default_factory=dict)

    def slot(self, tick: int) -> Slot:
        """The slot of a tick; an empty slot if it is in use for another tick."""
        found = self._slot_at(tick)
        return found if found.time == tick else Slot(tick, NONE, NONE, 0, 0)

    def put(self, slot: Slot) -> None:
        """Keep a changed slot."""
        self.changed[slot.time % SLOTS] = slot

    def revise(self, tick: int, position: int) -> None:
        """Make an entry the newest of its tick, as a broker's start does (spec 4.9, step 2)."""
        found = self._slot_at(tick)
        if found.time == tick:
            self.put(found._replace(last_pos=position))
        else:
            self.put(found._replace(time=tick, first_pos=position, last_pos=position))

    def add(self, message: TimerMessage, position: int, write_ms: int) -> bytes:
        """Put the entry at `position` of the log into its slot; return the entry's unit."""
        delay_ms, rolled = self.ticks.delay(message.out_ms, write_ms)
        slot = self.slot(self.ticks.of(write_ms + delay_ms))
        magic = MAGIC_DEFAULT | rolled * MAGIC_ROLL | message.cancels * MAGIC_DELETE
        place = message.offset_py, message.size_py
        unit = (UNIT_BYTES, slot.last_pos, magic, write_ms, delay_ms, *place)
        first = position if slot.first_pos == NONE else slot.first_pos
        count = slot.num - 1 if message.cancels else slot.num + 1
        self.put(Slot(slot.time, first, position, count, slot.magic))
        return numbers_of(UNIT).pack(*unit, message.topic_hash, 0)

    def _slot_at(self, tick: int) -> Slot:
        number = tick % SLOTS
        if number not in self.changed:
            return self.load(number)
        return self.changed[number]


def next_place(position: int, file_size: int) -> tuple[int, bytes]:
    """Position of the next unit of the log, and the BLANK that has to fill the file before it."""
    room = file_size - position % file_size
    if room >= UNIT_BYTES + BLANK_BYTES:
        return position, b""
    if room < BLANK_BYTES:
        return position + room, b""
    return position + room, BLANK.build({"size": room, "prev_pos": 0, "magic": MAGIC_BLANK})


_MESSAGES_AT_ONCE = 1 << 14
"""How many messages are written to the log together."""


def uses_wheel(config: BrokerConfig) -> bool:
    """Whether a broker with this configuration enqueues timed messages in the file of the wheel."""
    elsewhere = ("timerStopEnqueue", "timerRocksDBEnable", "timerWheelSnapshotFlush")
    return config.get_bool("timerWheelEnable", True) and not any(map(config.get_bool, elsewhere))


class TimerPosition(NamedTuple):
    """Where the timer is: its checkpoint, the end of its log, the next unit of its queue."""

    check: TimerCheck
    log_end: int
    queue_offset: int


class TimerWriter:
    """Enqueues the messages in the queue of the timer topic.

    next_offset: behind the queue's last unit. clock: ms since 1970.
    """

    def __init__(self, files: Files, layout: Layout, next_offset: int, clock: Callable[[], int]) -> None:
        self._files = files
        self._layout = layout
        self._next_offset = next_offset
        self._clock = clock
        self._ticks = Ticks.of_store(layout)
        self._file_size = sizes_of(layout).timer_log.value
        self._stream = StreamFiles(files, self._file_size)
        self._check = layout.config / TIMER_CHECK

    def enqueue(self) -> int:
        """Add the queue's messages to log and wheel; return how many were added.

        Raises NoSpace, Unreadable: a broker continues from whatever was written.
        """
        write_ms = self._ticks.start_ms(self._clock())
        wheel = Wheel(self._ticks, self._stored_slot)
        with self._layout.commit_log_files() as log:
            state = self._state(log, wheel)
            if state is None or state.check.last_read_time_ms > write_ms:
                return 0
            waiting = self._waiting(log, state.queue_offset, write_ms)
            count, end = 0, state.log_end
            while batch := list(islice(waiting, _MESSAGES_AT_ONCE)):
                if not count:
                    self._begin(state)
                end = self._append(batch, wheel, end, write_ms)
                count += len(batch)
        if count or wheel.changed:
            self._write_wheel(wheel.changed)
            self._finish(state, state.queue_offset + count, end, write_ms)
        return count

    def _state(self, log: MappedFileQueue, wheel: Wheel) -> TimerPosition | None:
        """The state that a broker's start finds; None if the files are better left to the broker.

        Puts units behind the flushed position into the wheel, as a broker does.
        """
        check = read_timer_check(self._check)
        wheel_size = wheel_bytes(self._layout.timer_wheel)
        with MappedFileQueue.open(self._layout.timer_log, self._file_size) as files:
            if (check is None and files.files) or wheel_size not in (0, FILE_BYTES):
                return None
            check = check or TimerCheck()
            begin = max(0, check.last_timer_log_flush_pos - self._file_size)
            begin = max(files.start, begin - begin % self._file_size)
            end, last = (begin if files.files else 0), None
            for part in timer_log(files, begin):
                if isinstance(part, TimerUnits):
                    if part.position[0] != next_place(end, self._file_size)[0]:
                        return None
                    end = int(part.position[-1]) + UNIT_BYTES
                    last = part.units[-1]
                    self._revise(part, check.last_timer_log_flush_pos, wheel)
                elif part.kind == "damage":
                    return None
            if end < check.last_timer_log_flush_pos or (last is not None and not wheel_size):
                return None
        offset = check.last_timer_queue_offset
        if last is not None:
            follows = _queue_offset(log, int(last["offset_py"])) + 1
            offset = max(offset, min(follows, check.master_timer_queue_offset))
        return TimerPosition(check, end, min(offset, self._next_offset))

    def _revise(self, part: TimerUnits, flushed: int, wheel: Wheel) -> None:
        """Put units that may be newer than the wheel file into the wheel."""
        for position, due in zip(part.position.tolist(), due_ms(part.units).tolist(), strict=True):
            if position >= flushed:
                wheel.revise(self._ticks.of(due), position)

    def _waiting(self, log: MappedFileQueue, first: int, write_ms: int) -> Iterator[TimerMessage]:
        """Yield messages of the queue from `first` on, up to the first that a broker would deliver now."""
        with ConsumeQueue.open(self._layout, TIMER_TOPIC, 0) as queue:
            for _, units in queue.units(first, self._next_offset):
                places = zip(units["physical_offset"].tolist(), units["size"].tolist(), strict=True)
                for position, size in places:
                    message = _timer_message(log, position, size)
                    if message is None or message.out_ms < write_ms:
                        return
                    yield message

    def _begin(self, state: TimerPosition) -> None:
        """Prepare a wheel, and a master offset with which a broker's start believes the new log entries."""
        self._write_wheel({})
        self._files.make_directory(self._check.parent)
        self._write_check(state.check._replace(master_timer_queue_offset=self._next_offset))

    def _append(self, batch: list[TimerMessage], wheel: Wheel, end: int, write_ms: int) -> int:
        """Write the units of a batch to the log and flush them; return the log's new end."""
        pieces = Pieces()
        for message in batch:
            position, blank = next_place(end, self._file_size)
            if blank:
                self._stream.piece(pieces, end).extend(blank)
            self._stream.piece(pieces, position).extend(wheel.add(message, position, write_ms))
            end = position + UNIT_BYTES
        for start, (offset, data) in pieces.items():
            self._stream.write(self._layout.timer_log, start, offset, data)
        self._stream.sync()
        return end

    def _stored_slot(self, number: int) -> Slot:
        """A slot as it is in the wheel file; an empty one without a file."""
        try:
            data = read_at(self._layout.timer_wheel, SLOT_BYTES, number * SLOT_BYTES)
            return Slot.from_bytes(data)
        except Missing:
            return Slot(0, 0, 0, 0, 0)

    def _write_wheel(self, slots: Mapping[int, Slot]) -> None:
        parts = ((number * SLOT_BYTES, slot.to_bytes()) for number, slot in sorted(slots.items()))
        write_parts(self._files, self._layout.timer_wheel, FILE_BYTES, parts)

    def _finish(self, state: TimerPosition, offset: int, log_end: int, write_ms: int) -> None:
        """Record in timercheck what is in the wheel; a timer that had nothing before starts to read the wheel now."""
        begins = not state.log_end and offset == self._next_offset
        self._write_check(
            state.check._replace(
                last_read_time_ms=write_ms if begins else state.check.last_read_time_ms or write_ms,
                last_timer_log_flush_pos=log_end,
                last_timer_queue_offset=offset,
                master_timer_queue_offset=offset,
                timestamp=self._clock(),
                counter=state.check.counter + 1,
            )
        )

    def _write_check(self, check: TimerCheck) -> None:
        write_parts(self._files, self._check, PAGE_BYTES, [(0, check.to_bytes())])


def _timer_message(log: MappedFileQueue, position: int, size: int) -> TimerMessage | None:
    """The message at a place; None if a broker finds none there, or no time in it."""
    try:
        message = read_message(log, position)
    except NotFound:
        return None
    properties = message.properties
    due = properties.get(TIMER_OUT_MS, "")
    if message.total_size != size or not due.isascii() or not due.isdigit():
        return None
    real_topic = properties.get(REAL_TOPIC)
    topic_hash = java_hash(real_topic) if real_topic is not None else 0
    return TimerMessage(position, size, int(due), TIMER_DEL_UNIQKEY in properties, topic_hash)


def _queue_offset(log: MappedFileQueue, position: int) -> int:
    """Queue offset of the message at a log position; -1 if there is none."""
    try:
        return read_message(log, position).queue_offset
    except NotFound:
        return -1
