"""Consume queues in files: the records of a topic-queue, by queue offset and by time (spec 02, 2.1 to 2.5).

`consumequeue/TOPIC/QUEUE_ID/`: unit k of the stream has queue offset k. No file says where a queue ends; offline it
ends at the first invalid unit behind the last valid one. Units that point at or behind the log's end are dead: a broker
cuts them off when it starts. This module reads single units with a few system calls and without numpy; `units.py` reads
arrays.

For a time (`getOffsetInQueueByTime`) a 5.x broker picks a queue file (the first whose last message was stored then or
later, else the last) and searches only that file. It answers the file's first message stored then or later, or the end
of the queue behind the last message. A 4.x broker picks a queue file by modification time (the first changed at the
time or later, else the last), searches only that file, and answers the message stored nearest to the time; of several
with the same time, the first that its bisection meets. Seen with brokers 4.3.1, 4.9.7, 5.1.4, 5.3.3, 5.5.1.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ...formats.quick import EXT_ADDRESS_MAX, PRE_FILL, UNIT, UNIT_BYTES
from ..disk.byte_reader import Closing, data_ranges
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..disk.layout import Layout, QueueDirectory, has_topic, no_topic, queue_directories, queues_of_topic
from ..disk.lock import stream_of
from ..errors import NotFound, os_errors

if TYPE_CHECKING:
    from ...formats.derive.ragged import Flags, Ints
    from .units import Units, UnitStream

_TAIL_UNITS = 256
_PULLED_UNITS = 768
"""A pull looks at least at so many units: 16,000 bytes, less the 32 messages that it may have by then."""
_BLOCK_BYTES = 1 << 16
"""Files up to this size are read whole to find their last unit; also the size of a read in larger ones."""
_EXTENTS_MAX = 16
"""Data extents of a sparse file that are followed to find its last byte; with more, the search gives up."""


class Unit(NamedTuple):
    """One unit: where in the commit log the message with number `queue_offset` lies."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int

    @property
    def valid(self) -> bool:
        """Whether the unit points at a record: a broker counts it."""
        return self.physical_offset >= 0 and self.size > 0

    @property
    def pre_fill(self) -> bool:
        """Whether the unit only fills the front of a queue that does not begin at 0."""
        return self[1:] == PRE_FILL

    @property
    def ext_address(self) -> int | None:
        """Offset of the unit's entry in consumequeue_ext, None if it has none."""
        if self.tags_code > EXT_ADDRESS_MAX:
            return None
        return self.tags_code + (1 << 63)


@overload
def is_cut(position: int, log_end: int) -> bool: ...
@overload
def is_cut(position: Ints, log_end: int) -> Flags: ...
def is_cut(position: Any, log_end: int) -> Any:
    """Whether a start that cuts the queues drops the unit of a record at this position, and all units behind it. The
    end of the record does not count: a unit that begins before the log's end is kept and handed out (spec 2.5).
    """
    return position >= log_end


def is_valid_batch(unit: Mapping[str, Any]) -> bool:
    """Whether a unit of a batch queue or sparse queue points at a record; unit: the fields of its schema (spec 2.7)."""
    batch = unit["msg_base_offset"] >= 0 and unit["batch_size"] > 0
    return bool(batch and unit["physical_offset"] >= 0 and unit["size"] > 0)


class QueueSummary(NamedTuple):
    """What a queue holds.

    min_offset: first queue offset whose record the log still has, max_offset if there is none. max_offset: behind the
    last unit. last_position, end_position: log positions where the record of the last unit begins and ends, if any.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_position: int | None = None
    end_position: int | None = None


class QueueInFiles(Closing):
    """One topic-queue of any kind, and the files of its units."""

    def __init__(self, topic: str, queue_id: int, files: MappedFileQueue) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = files

    def close(self) -> None:
        self.files.close()


class ConsumeQueue(QueueInFiles):
    """One topic-queue; a context manager. `ConsumeQueue.open` opens it."""

    @classmethod
    def open(cls, layout: Layout, topic: str, queue_id: int, file_size: int | None = None) -> ConsumeQueue:
        """Open a queue's files. Raises NotFound if there is no such queue, Unreadable."""
        path = os.fspath(layout.consume_queue)
        if not has_topic(path, topic):
            raise no_topic(path, topic)
        directory = os.path.join(path, topic, str(queue_id))  # noqa: PTH118
        if not os.path.isdir(directory):  # noqa: PTH112
            raise NotFound(f"no queue {queue_id} of topic {topic}", path=path)
        return cls(topic, queue_id, stream_of(layout, directory, file_size))

    @cached_property
    def first_offset(self) -> int:
        """Queue offset of the first unit that the files have room for."""
        return -(-self.files.start // UNIT_BYTES)

    def unit(self, queue_offset: int) -> Unit | None:
        """The unit with this offset, valid or not; None if it is in no file or unreadable (`byte_reader.noting`)."""
        position = queue_offset * UNIT_BYTES
        file = self.files.file_at(position)
        if file is None:
            return None
        data = self.files.readable(file, position - file.start, UNIT_BYTES, UNIT_BYTES)
        if len(data) < UNIT_BYTES:
            return None
        return Unit(queue_offset, *UNIT.unpack(data))

    @cached_property
    def stream(self) -> UnitStream:
        """The units as arrays."""
        from .units import FileUnits

        return FileUnits(self.files)

    def units(self, start: int, stop: int, *, reverse: bool = False) -> Iterator[tuple[int, Units]]:
        """Yield units start ≤ k < stop in windows, as `UnitStream.windows` does. Raises Unreadable."""
        return self.stream.windows(start, stop, reverse=reverse)

    def summary(self, log_start: int = 0, log_end: int | None = None, *, broker_4: bool = False) -> QueueSummary:
        """What the queue holds, for a log with the bytes log_start ≤ p < log_end.

        A queue with only expired records begins at its end, as 5.x answers; with broker_4 at 0, as 4.x does (spec 2.4).
        """
        last = self._last_unit(log_end)
        if last is None:
            first = self.first_offset
            return QueueSummary(self.topic, self.queue_id, first, first)
        stop = last.queue_offset + 1
        first = self._first_unit(stop, log_start)
        if first == stop and broker_4:
            first = 0
        if last.pre_fill:
            return QueueSummary(self.topic, self.queue_id, first, stop)
        place = last.physical_offset, last.physical_offset + last.size
        return QueueSummary(self.topic, self.queue_id, first, stop, *place)

    def behind(self, log_start: int, log_end: int) -> int:
        """Log position that the unit behind the queue's last message names, if at or behind the log's end; else -1.
        Units that a cut of the log has left begin right behind the last message (spec 2.5). Raises Unreadable.
        """
        unit = self.unit(self.summary(log_start, log_end).max_offset)
        return unit.physical_offset if unit is not None and unit.valid and is_cut(unit.physical_offset, log_end) else -1

    def _first_unit(self, stop: int, log_start: int) -> int:
        """Queue offset of the first unit whose record the log still has; `stop` if there is none."""

        def gone(unit: Unit | None) -> bool:
            return unit is None or unit.physical_offset < log_start or unit.pre_fill

        if not gone(self.unit(self.first_offset)):
            return self.first_offset
        return _first_false(self.first_offset, stop, lambda number: gone(self.unit(number)))

    def _last_unit(self, log_end: int | None) -> Unit | None:
        """The last valid unit that points into the log, None if there is none."""
        for file in reversed(self.files.files):
            begin = -(-file.start // UNIT_BYTES)
            last = self._last_valid(begin, self._end_of_content(file) // UNIT_BYTES)
            if last is None:
                continue
            if log_end is None or not is_cut(last.physical_offset, log_end):
                return last
            first_dead = _first_false(begin, last.queue_offset, partial(self._lies_before, log_end))
            if first_dead > begin:
                return self.unit(first_dead - 1)
        return None

    def position(self, queue_offset: int) -> int | None:
        """Where the record of a message begins, None without a valid unit for it. Raises Unreadable."""
        unit = self.unit(queue_offset)
        return unit.physical_offset if unit is not None and unit.valid else None

    def may_be_cut_short(self) -> bool:
        """Whether the queue may have had more units: its files have no room behind the last unit, or bytes other than
        zeros there. Raises Unreadable.

        A broker makes the next file when the next unit comes, so few sound queues end without room.
        """
        if not self.files.files:
            return False
        last, end = self.files.files[-1], self.summary().max_offset * UNIT_BYTES
        return last.end < end + UNIT_BYTES or self._end_of_content(last) > end

    def at_or_behind(self, position: int, begin: int, stop: int) -> int:
        """Number of the first unit begin ≤ k < stop of the record at `position` or of a later record; `stop` if there
        is none. Units must be in the order of the log. Raises Unreadable.
        """

        def before(number: int) -> bool:
            unit = self.unit(number)
            return unit is None or unit.pre_fill or unit.physical_offset < position

        return _first_false(begin, stop, before)

    def hiding(self, unit: Unit, begin: int, log_end: int, log_file_bytes: int) -> int | None:
        """Number of the last unit from `begin` on that makes a pull pass over the later `unit`, None if none (spec
        9.4).

        A unit may lead to nothing that a broker can read. A pull that meets such a unit continues at the next file of
        the log: it passes over each unit of the queue file that names an earlier position. Raises Unreadable.
        """
        file = self.files.file_at(unit.queue_offset * UNIT_BYTES)
        if file is None:  # in a RocksDB a pull reads no more units than it wants
            return None
        first, found = max(-(-file.start // UNIT_BYTES), unit.queue_offset - _PULLED_UNITS, begin), None
        data = self._block(first * UNIT_BYTES, (unit.queue_offset - first) * UNIT_BYTES)
        for number, (position, size, _) in enumerate(UNIT.iter_unpack(data), first):
            next_file = position - position % log_file_bytes + log_file_bytes
            if position >= 0 < size and unit.physical_offset < next_file and position + size > min(next_file, log_end):
                found = number
        return found

    def newest(self) -> Iterator[Unit]:
        """Yield valid units, the newest first, without pre-filled ones. Raises Unreadable."""
        for file in reversed(self.files.files):
            begin = -(-file.start // UNIT_BYTES)
            stop = self._end_of_content(file) // UNIT_BYTES
            while (unit := self._last_valid(begin, stop)) is not None:
                if not unit.pre_fill:
                    yield unit
                stop = unit.queue_offset

    def _lies_before(self, log_end: int, number: int) -> bool:
        unit = self.unit(number)
        return unit is not None and unit.valid and not is_cut(unit.physical_offset, log_end)

    def _last_valid(self, begin: int, stop: int) -> Unit | None:
        """The last valid unit of begin ≤ k < stop, all in one file; searched from the end."""
        while stop > begin:
            start = max(begin, stop - _TAIL_UNITS)
            data = self._block(start * UNIT_BYTES, (stop - start) * UNIT_BYTES)
            whole = len(data) - len(data) % UNIT_BYTES
            for at in range(whole - UNIT_BYTES, -1, -UNIT_BYTES):
                unit = Unit(start + at // UNIT_BYTES, *UNIT.unpack_from(data, at))
                if unit.valid:
                    return unit
            stop = start
        return None

    def _end_of_content(self, file: MappedFile) -> int:
        """Stream position behind the last unit of a file that is not all zeros.

        A small file is read. In a large file the zeros at the end are a hole, as brokers make them; in a copy without
        holes bisection finds the end, and takes the first block of zeros for it.
        """
        size = file.size
        if size > _BLOCK_BYTES:
            size = _end_of_data(self.files.descriptor(file), size)
        used = self._without_zeros(file, size)
        if used == size - _BLOCK_BYTES:

            def has_content(block: int) -> bool:
                return self._without_zeros(file, (block + 1) * _BLOCK_BYTES) > block * _BLOCK_BYTES

            used = self._without_zeros(file, _first_false(0, size // _BLOCK_BYTES, has_content) * _BLOCK_BYTES)
        return -(-(file.start + used) // UNIT_BYTES) * UNIT_BYTES

    def _without_zeros(self, file: MappedFile, size: int) -> int:
        """Length of the first `size` bytes of a file without the zeros at their end; strips one block at most."""
        start = max(0, size - _BLOCK_BYTES)
        return start + len(self._block(file.start + start, size - start).rstrip(b"\0"))

    def _block(self, position: int, size: int) -> bytes:
        """Up to `size` bytes of one file; unreadable bytes are zeros, which are no units."""
        file = self.files.file_at(position)
        data = bytearray(0 if file is None else max(0, min(size, file.end - position)))
        if file is not None:
            self.files.read_around(file, position - file.start, memoryview(data))
        return bytes(data)


class ConsumeQueues:
    """All consume queues of a store.

    >>> [queue.queue_id for queue in store.queues.of_topic("orders")]
    [0, 1, 2, 3]
    >>> with store.queues.open("orders", 0) as queue:
    ...     queue.unit(3)
    Unit(queue_offset=3, physical_offset=12189, size=521, tags_code=...)
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def __iter__(self) -> Iterator[QueueDirectory]:
        return queue_directories(self.layout.consume_queue)

    def open(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Open one queue. Raises NotFound, Unreadable."""
        return ConsumeQueue.open(self.layout, topic, queue_id, self._file_size)

    def has_topic(self, topic: str) -> bool:
        """Whether the topic has queues, or a directory for them."""
        return has_topic(self.layout.consume_queue, topic)

    def of_topic(self, topic: str) -> list[QueueDirectory]:
        """The queues of one topic, by queue id; empty if the topic has none."""
        root = self.layout.consume_queue
        if not has_topic(root, topic):
            return []
        return list(queues_of_topic(topic, os.path.join(root, topic)))  # noqa: PTH118

    def summaries(self, log_start: int = 0, log_end: int | None = None) -> list[QueueSummary]:
        """What each queue holds, sorted by topic and queue id; see `ConsumeQueue.summary`.

        Takes a few system calls per queue and reads no large file whole.
        """
        found = []
        for each in self:
            with self._listed(each) as queue:
                found.append(queue.summary(log_start, log_end))
        return found

    def _listed(self, each: QueueDirectory) -> ConsumeQueue:
        """A queue as iterating gives it, which need not be looked for as `open` does."""
        return ConsumeQueue(each.topic, each.queue_id, stream_of(self.layout, each.path, self._file_size))

    def lost_at_end(
        self, found: Iterable[QueueSummary], log: MappedFileQueue, end: int, payload: int = 0
    ) -> tuple[int, QueueSummary] | None:
        """Find the record that was lost right at the log's end, or at the next file if a BLANK fills the last one: the
        first record behind the end that queues name. Returns its position and the queue; None if the first record named
        is elsewhere: such units are what a cut of the log has left (spec 2.5).

        found: summaries with the units behind the log's end. payload: bytes of an entry before the record. Raises
        Unreadable.
        """
        first: tuple[int, QueueSummary] | None = None
        for each in found if log.file_size else ():  # if all files are empty, the log has no end
            if (each.end_position or 0) > end:
                with self.open(each.topic, each.queue_id) as queue:
                    named = queue.behind(log.start, end)
                if named >= 0 and (first is None or named < first[0]):
                    first = named, each
        if first is None:
            return None
        from ...formats.blank import BLANK_BYTES  # imports construct

        file = log.file_at(end)
        filled = file is None or any(log.read_file(file, end - file.start, BLANK_BYTES))
        next_file = -(-end // log.file_size) * log.file_size
        return first if first[0] - payload in (end, next_file if filled else end) else None

    def close(self) -> None:
        """Close nothing: each queue has its own files."""

    @cached_property
    def _file_size(self) -> int | None:
        """The configured file size; None without: then each queue's files show theirs."""
        size, origin = self.layout.broker_config.size("mappedFileSizeConsumeQueue")
        return -(-size // UNIT_BYTES) * UNIT_BYTES if origin == "configuration" else None


def _first_false(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """First number of low ≤ k < high for which `holds` is false; `holds` must be true for all before it."""
    return low + bisect_left(range(low, high), True, key=lambda number: not holds(number))


def _end_of_data(descriptor: int, size: int) -> int:
    """Byte behind the last data of a sparse file; `size` if there are too many data extents."""
    ranges = list(islice(data_ranges(descriptor, 0, size), _EXTENTS_MAX + 1))
    if len(ranges) > _EXTENTS_MAX:
        return size
    return ranges[-1][1] if ranges else 0


StoreTime = Callable[[int], int | None]
"""Store timestamp (ms) of the record at a log position, None if there is no record."""


def offset_at(
    queue: ConsumeQueue,
    summary: QueueSummary,
    time_ms: int,
    store_time: StoreTime,
    *,
    log_start: int = 0,
    broker_4: bool = False,
) -> int:
    """Queue offset for a time, as a 5.x broker answers, or with broker_4 a 4.x broker. Raises Unreadable."""
    if broker_4:
        return _offset_at_4x(queue, summary, time_ms, store_time, log_start)
    return _offset_at_5x(queue, summary, time_ms, store_time)


def first_at(queue: ConsumeQueue, summary: QueueSummary, time_ms: int, store_time: StoreTime) -> tuple[int, int]:
    """Least and greatest queue offset that the first message stored at `time_ms` or later can have, or the queue's end.

    They are equal, unless the units between them have no record with a store time.
    """
    low, high = summary.min_offset, summary.max_offset
    while low < high:
        found = _timed_near((low + high) // 2, low, high, lambda offset: stored_at(queue, offset, store_time))
        if found is None:
            break
        offset, stored_ms = found
        if stored_ms < time_ms:
            low = offset + 1
        else:
            high = offset
    return low, high


def _timed_near(middle: int, low: int, high: int, stored: Callable[[int], int | None]) -> tuple[int, int] | None:
    """An offset of low ≤ k < high whose record has a store time, and that time; searched from `middle` outwards."""
    away = 0
    while middle - away >= low or middle + away < high:
        for offset in (middle - away, middle + away):
            if low <= offset < high and (stored_ms := stored(offset)) is not None:
                return offset, stored_ms
        away = 2 * away or 1
    return None


def stored_at(queue: ConsumeQueue, offset: int, store_time: StoreTime) -> int | None:
    """Store timestamp (ms) of a unit's record, None if there is no record."""
    unit = queue.unit(offset)
    return store_time(unit.physical_offset) if unit is not None and unit.valid else None


def _offset_at_5x(queue: ConsumeQueue, summary: QueueSummary, time_ms: int, store_time: StoreTime) -> int:
    """Bisect like a 5.x broker in the one file that it searches; in all of a queue in a RocksDB.

    Where times go back, several answers are possible: the steps of the broker's bisection decide.
    """

    def stored_ms(offset: int) -> int:
        found = stored_at(queue, offset, store_time)
        return -1 if found is None else found

    first, last = _file_units(queue, summary, lambda file: stored_ms(file.end // UNIT_BYTES - 1) >= time_ms)
    floor = low = max(summary.min_offset, first)
    if stored_ms(last) < time_ms:
        return max(last + 1, summary.min_offset)
    found = high = last
    if stored_ms(low) > time_ms:
        return low
    while low <= high:
        found_ms = stored_ms(middle := (low + high) // 2)
        if found_ms < time_ms:
            low = middle + 1
            continue
        found, high = middle, middle - 1
        if found_ms == time_ms:
            while found > floor and stored_ms(found - 1) == time_ms:
                found -= 1
            break
    return found


def _offset_at_4x(
    queue: ConsumeQueue, summary: QueueSummary, time_ms: int, store_time: StoreTime, log_start: int
) -> int:
    """Bisect like a 4.x broker in the one file that it searches."""
    first, last = _file_units(queue, summary, lambda file: _changed_ms(file.path) >= time_ms)
    low, high = max(summary.min_offset, first), last
    before = after = before_ms = after_ms = None
    while low <= high:
        middle = first + (low - first + high - first) // 2
        unit = queue.unit(middle)
        if unit is not None and unit.physical_offset < log_start:
            low = middle + 1
            continue
        stored_ms = stored_at(queue, middle, store_time)
        if stored_ms is None:
            return 0
        if stored_ms == time_ms:
            return middle
        if stored_ms > time_ms:
            after, after_ms, high = middle, stored_ms, middle - 1
        else:
            before, before_ms, low = middle, stored_ms, middle + 1
    if before is None or before_ms is None:
        return after if after is not None else max(first - 1, 0)
    if after is None or after_ms is None:
        return before
    return after if time_ms - before_ms > after_ms - time_ms else before


def _file_units(queue: ConsumeQueue, summary: QueueSummary, ends: Callable[[MappedFile], bool]) -> tuple[int, int]:
    """First and last unit of the file that a broker searches: the first for which `ends` is true, else the last."""
    files = [file for file in queue.files.files if file.start < summary.max_offset * UNIT_BYTES]
    if not files:
        return summary.min_offset, summary.max_offset - 1
    file = next((file for file in files[:-1] if ends(file)), files[-1])
    first = -(-file.start // UNIT_BYTES)
    return first, min(file.end // UNIT_BYTES, summary.max_offset) - 1


def _changed_ms(path: str) -> int:
    with os_errors(path):
        return Path(path).stat().st_mtime_ns // 1_000_000
