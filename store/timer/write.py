"""Putting timer messages into the timer log and the wheel (spec 04, 4.4 … 4.9).

A broker reads the queue of the timer topic behind its own back and enqueues what it finds; at the
close of a writer this module does the same, at the time of the clock. A message that is due already
ends it: that one and those behind it are left to the broker, which delivers them. So is everything
where the timer files are not what a clean stop leaves.

Order of effects: master offset of timercheck, log, wheel, timercheck. A broker's start finds the
queue offset from the last unit of the log, but never goes beyond the master offset: cut off
anywhere, no message is lost, and none is in the wheel twice unless the cut tore a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ...formats.hashing import java_hash
from ...formats.message_properties import REAL_TOPIC, TIMER_DEL_UNIQKEY, TIMER_OUT_MS
from ...formats.timer_check import PAGE_BYTES
from ...formats.timer_log import UNIT_BYTES
from ...formats.timer_wheel import FILE_BYTES, SLOT_BYTES
from ..broker.system_topics import TIMER_TOPIC
from ..disk.byte_reader import read_at
from ..disk.checkpoint import TimerCheck, read_timer_check
from ..disk.file_queue import MappedFileQueue, file_name
from ..disk.files import Files
from ..disk.layout import Layout
from ..errors import Missing, NotFound
from ..index.read import sizes_of
from ..log.message import read_message
from ..queues.read import ConsumeQueue
from .read import TimerUnits, due_ms, timer_log
from .wheel import Slot, Ticks, TimerMessage, Wheel, next_place

_BATCH = 1 << 14
"""Messages that are written to the log together."""


def enqueue_timers(
    files: Files,
    layout: Layout,
    next_offsets: Mapping[tuple[str, int], int],
    clock: Callable[[], int],
) -> int:
    """`TimerWriter.enqueue`, where the store's configuration leaves the wheel to it."""
    config = layout.broker_config
    elsewhere = ("timerStopEnqueue", "timerRocksDBEnable", "timerWheelSnapshotFlush")
    if not config.get_bool("timerWheelEnable", True) or any(map(config.get_bool, elsewhere)):
        return 0
    return TimerWriter(files, layout, next_offsets.get((TIMER_TOPIC, 0), 0), clock).enqueue()


class TimerState(NamedTuple):
    """Where the timer stands: its checkpoint, the end of its log, the next unit of its queue."""

    check: TimerCheck
    log_end: int
    queue_offset: int


class TimerWriter:
    """Enqueues what the queue of the timer topic holds.

    next_offset: behind the queue's last unit. clock: ms since 1970.
    """

    def __init__(
        self, files: Files, layout: Layout, next_offset: int, clock: Callable[[], int]
    ) -> None:
        self._files = files
        self._layout = layout
        self._next_offset = next_offset
        self._clock = clock
        self._ticks = Ticks.of_store(layout)
        self._file_size = sizes_of(layout).timer_log.value
        self._check = layout.config / "timercheck"

    def enqueue(self) -> int:
        """Bring log and wheel up to the queue; returns how many messages they got.

        Raises NoSpace, Unreadable: a broker goes on from whatever was written.
        """
        write_ms = self._ticks.start_ms(self._clock())
        wheel = Wheel(self._ticks, self._stored_slot)
        with self._layout.commit_log_files() as log:
            state = self._state(log, wheel)
            if state is None or state.check.last_read_time_ms > write_ms:
                return 0
            waiting = self._waiting(log, state.queue_offset, write_ms)
            count, end = 0, state.log_end
            while batch := list(islice(waiting, _BATCH)):
                if not count:
                    self._begin(state)
                end = self._append(batch, wheel, end, write_ms)
                count += len(batch)
        if count or wheel.changed:
            self._write_wheel(wheel.changed)
            self._finish(state, state.queue_offset + count, end, write_ms)
        return count

    def _state(self, log: MappedFileQueue, wheel: Wheel) -> TimerState | None:
        """As a broker's start finds it; None for files that are better left to the broker.

        Units behind the flushed position are put into the wheel, as a broker does.
        """
        check = read_timer_check(self._check)
        wheel_bytes = _size(self._layout.timer_wheel)
        with MappedFileQueue.open(self._layout.timer_log, self._file_size) as files:
            if (check is None and files.files) or wheel_bytes not in (0, FILE_BYTES):
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
            if end < check.last_timer_log_flush_pos or (last is not None and not wheel_bytes):
                return None
        offset = check.last_timer_queue_offset
        if last is not None:
            follows = _queue_offset(log, int(last["offset_py"])) + 1
            offset = max(offset, min(follows, check.master_timer_queue_offset))
        return TimerState(check, end, min(offset, self._next_offset))

    def _revise(self, part: TimerUnits, flushed: int, wheel: Wheel) -> None:
        """Units that may be newer than the wheel file."""
        for position, due in zip(part.position.tolist(), due_ms(part.units).tolist(), strict=True):
            if position >= flushed:
                wheel.revise(self._ticks.of(due), position)

    def _waiting(self, log: MappedFileQueue, first: int, write_ms: int) -> Iterator[TimerMessage]:
        """Messages of the queue from `first` on, up to one that a broker would deliver now."""
        with ConsumeQueue.open(self._layout, TIMER_TOPIC, 0) as queue:
            for _, units in queue.units(first, self._next_offset):
                places = zip(units["physical_offset"].tolist(), units["size"].tolist(), strict=True)
                for position, size in places:
                    message = _timer_message(log, position, size)
                    if message is None or message.out_ms < write_ms:
                        return
                    yield message

    def _begin(self, state: TimerState) -> None:
        """Let a broker's start believe what the log will say, and have a wheel to put it into."""
        self._write_wheel({})
        self._files.make_directory(self._check.parent)
        self._write_check(state.check._replace(master_timer_queue_offset=self._next_offset))

    def _append(self, batch: list[TimerMessage], wheel: Wheel, end: int, write_ms: int) -> int:
        """Write the units of a batch and flush them; returns the log's new end."""
        pieces: dict[int, tuple[int, bytearray]] = {}
        for message in batch:
            position, blank = next_place(end, self._file_size)
            if blank:
                self._piece(pieces, end).extend(blank)
            self._piece(pieces, position).extend(wheel.add(message, position, write_ms))
            end = position + UNIT_BYTES
        directory = self._layout.timer_log
        self._files.make_directory(directory)
        for start, (offset, data) in pieces.items():
            path = directory / file_name(start)
            with self._files.open_or_create(path) as file:
                if file.size < self._file_size:
                    file.truncate(self._file_size)
                file.pwrite(data, offset)
                file.sync()
        self._files.sync_directory(directory)
        return end

    def _piece(self, pieces: dict[int, tuple[int, bytearray]], position: int) -> bytearray:
        """The bytes for the file that holds a position; they go on where they end."""
        offset = position % self._file_size
        return pieces.setdefault(position - offset, (offset, bytearray()))[1]

    def _stored_slot(self, number: int) -> Slot:
        """A slot as the wheel file has it."""
        try:
            data = read_at(self._layout.timer_wheel, SLOT_BYTES, number * SLOT_BYTES)
            return Slot.from_bytes(data)
        except Missing:
            return Slot(0, 0, 0, 0, 0)

    def _write_wheel(self, slots: Mapping[int, Slot]) -> None:
        path = self._layout.timer_wheel
        with self._files.open_or_create(path) as file:
            if file.size < FILE_BYTES:
                file.truncate(FILE_BYTES)
            for number, slot in sorted(slots.items()):
                file.pwrite(slot.to_bytes(), number * SLOT_BYTES)
            file.sync()
        self._files.sync_directory(path.parent)

    def _finish(self, state: TimerState, offset: int, log_end: int, write_ms: int) -> None:
        """What was read from the queue is in the wheel; a new timer begins to read it now."""
        self._write_check(
            state.check._replace(
                last_read_time_ms=state.check.last_read_time_ms or write_ms,
                last_timer_log_flush_pos=log_end,
                last_timer_queue_offset=offset,
                master_timer_queue_offset=offset,
                timestamp=self._clock(),
                counter=state.check.counter + 1,
            )
        )

    def _write_check(self, check: TimerCheck) -> None:
        with self._files.open_or_create(self._check) as file:
            if file.size < PAGE_BYTES:
                file.truncate(PAGE_BYTES)
            file.pwrite(check.to_bytes(), 0)
            file.sync()
        self._files.sync_directory(self._check.parent)


def _timer_message(log: MappedFileQueue, position: int, size: int) -> TimerMessage | None:
    """The message at a place; None where a broker finds none, or no time."""
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
    """Queue offset of the message at a position; -1 where there is none."""
    try:
        return read_message(log, position).queue_offset
    except NotFound:
        return -1


def _size(path: Path) -> int:
    """Bytes of a file, 0 where there is none."""
    return path.stat().st_size if path.exists() else 0
