"""The units of consume queues as arrays: the only reader of them, which also says which units are valid.

Code that needs one unit or the ends of a queue, without numpy, uses `read.ConsumeQueue`. Code that needs many uses
`ConsumeQueue.stream`, or `FileUnits` of open files: windows of bounded size, or units by number. Methods that go
through a queue leave out what the disk does not give, and note it (`byte_reader.noting`); methods for single units
raise an error, unless the caller passes `around`.

`QueueNumbers` numbers the queues that a store has on disk, so that columns can hold them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import PRE_FILL, UNIT, UNIT_BYTES
from ...formats.derive import Columns, dtype_of
from ...formats.derive.ragged import Flags, Ints, Structs
from ...formats.hashing import java_string
from ..broker.dispatch import Dispatched
from ..broker.snapshot import DirectoryEntry, QueueId, Snapshot, can_have_files
from ..broker.system_topics import LMQ_PREFIX
from ..columns import Dictionary, dictionary
from ..disk.byte_reader import Unread, noted_of
from ..disk.compressed import is_compressed_name
from ..disk.file_queue import NAME_DIGITS, MappedFile, MappedFileQueue, is_zero

Units = Structs
UNIT_DTYPE = dtype_of(UNIT)
UNITS_AT_ONCE = 4096
WINDOW_UNITS = 1 << 16
LARGEST_OFFSET = (1 << 63) // UNIT_BYTES - 1
"""A larger queue offset has no place in any file."""
_GAP_UNITS = 64
"""Units no further apart are read together."""
_BLOCK_BYTES = 1 << 16
"""Windows up to this size are read without asking whether they lie in a hole."""


def is_valid(units: Units) -> Flags:
    """bool[n]: units that a broker counts as valid, pre-fill included (spec 2.1, 2.7)."""
    valid: Flags = units["size"] > 0
    if valid.any():  # most of a new file is zeros
        valid &= units["physical_offset"] >= 0
        if "batch_size" in (units.dtype.names or ()):
            valid &= (units["msg_base_offset"] >= 0) & (units["batch_size"] > 0)
    return valid


def is_pre_fill(units: Units) -> Flags:
    """bool[n]: units that only fill the front of a queue."""
    filled: Flags = units["size"] == PRE_FILL["size"]
    if filled.any():
        for name, value in PRE_FILL.items():
            filled &= units[name] == value
    return filled


def is_used(units: Units) -> Flags:
    """bool[n]: units that name a record: valid and not pre-fill."""
    return is_valid(units) & ~is_pre_fill(units)


def reaches_beyond(units: Units, log_end: int) -> Flags:
    """bool[n]: which of these valid units name bytes behind the log's end; right also beyond 2^63."""
    ends = units["physical_offset"].astype(np.uint64) + units["size"].astype(np.uint64)
    beyond: Flags = ends > log_end
    return beyond


def record_bytes(units: Units) -> Ints:
    """int64[n]: size of the record that each unit names, 0 if it names none."""
    return np.where(is_used(units), units["size"], 0).astype(np.int64)


def is_whole_file(entry: DirectoryEntry, size: int) -> bool:
    """Whether this is a file as brokers make it: whole, its name 20 digits and a multiple of the size."""
    name = entry.name
    digits = name.isascii() and name.isdigit() and len(name) == NAME_DIGITS
    return not entry.directory and entry.size == size and digits and int(name) % size == 0


class UnitStream(ABC):
    """The units of one queue by number; in a plain queue the numbers are the queue offsets.

    dtype: of a unit. Each call closes the files that it has opened.
    """

    dtype: np.dtype[Any] = UNIT_DTYPE

    @abstractmethod
    def windows(
        self, first: int = 0, stop: int = LARGEST_OFFSET, *, reverse: bool = False, most: int | None = None
    ) -> Iterator[tuple[int, Units]]:
        """Yield units first ≤ k < stop as (number of the first, units), at most `most` at a time.

        Leaves out units that are missing, or cannot be read, which is noted. reverse: the last window first; the order
        inside a window stays. Raises Unreadable.
        """

    def written(self, first: int = 0) -> Iterator[tuple[int, Units]]:
        """Yield all units from number `first` on in windows, except for holes of files and windows of zeros.

        Raises Unreadable.
        """
        return self.windows(first)

    @abstractmethod
    def fill(self, first: int, units: Units, *, around: bool = False) -> None:
        """Read units from number `first` on into an array of zeros, which stay where there is no unit.

        around: zeros also stay where units cannot be read, which is noted. Raises Unreadable.
        """

    def last(self, counts: Callable[[Units], Flags] = is_used) -> tuple[int, Units] | None:
        """Number of the last unit that `counts`, and the unit as an array; None without one. Raises Unreadable."""
        for first, units in self.windows(reverse=True, most=UNITS_AT_ONCE):
            rows = np.flatnonzero(counts(units))
            if len(rows):
                return first + int(rows[-1]), units[rows[-1:]]
        return None

    def read(self, first: int, count: int, *, around: bool = False) -> Units:
        """`count` units from number `first` on, as `fill` reads them, in a new array."""
        units = np.zeros(count, self.dtype)
        if count:
            self.fill(first, units, around=around)
        return units

    def lookup(self, numbers: Ints, *, around: bool = False) -> Units:
        """The units with these numbers, in any order; zeros where there is none. Raises Unreadable."""
        first, last = (int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, -1)
        in_a_row = last - first == len(numbers) - 1 and bool((np.diff(numbers) == 1).all())
        if in_a_row and first >= 0 and last <= LARGEST_OFFSET:
            return self.read(first, len(numbers), around=around)
        found = np.zeros(len(numbers), self.dtype)
        rows = np.flatnonzero((numbers >= 0) & (numbers <= LARGEST_OFFSET))
        found[rows] = gather(lambda at, count: self.read(at, count, around=around), numbers[rows], self.dtype)
        return found


class FileUnits(UnitStream):
    """The units in files; unit k is at byte k · dtype.itemsize of the stream."""

    def __init__(self, files: MappedFileQueue, dtype: np.dtype[Any] = UNIT_DTYPE) -> None:
        self.files = files
        self.dtype = dtype
        self._size = dtype.itemsize

    @classmethod
    def of(cls, entries: Iterable[DirectoryEntry], file_bytes: int, dtype: np.dtype[Any] = UNIT_DTYPE) -> FileUnits:
        """The units in the whole files among the entries of a queue's directory."""
        whole = [entry for entry in entries if is_whole_file(entry, file_bytes)]
        files = [MappedFile(e.path, int(e.name), e.size, is_compressed_name(e.path)) for e in whole]
        files.sort(key=lambda file: file.start)
        queue = MappedFileQueue((), files, file_bytes, [])
        queue.stop = next((int(e.name) + e.stop for e in whole if e.stop is not None), None)
        return cls(queue, dtype)

    @property
    def first(self) -> int:
        """Number of the first unit that the files have room for."""
        return -(-self.files.start // self._size)

    @property
    def stop(self) -> int:
        """Number behind the last unit that the files have room for."""
        return self.files.end // self._size

    def ranges(self, first: int, stop: int, most: int) -> list[tuple[int, int]]:
        """Numbers first ≤ k < stop that files have room for, as (first, count), at most `most` at a time.

        Gaps between files are skipped: numbers from records or file names may be arbitrary.
        """
        ranges = (self._numbers_in(file, first, stop) for file in self.files.files)
        return [(at, min(most, r.stop - at)) for r in ranges for at in range(r.start, r.stop, most)]

    def _numbers_in(self, file: MappedFile, first: int, stop: int) -> range:
        """The numbers first ≤ k < stop that one file has room for."""
        begin = max(first, -(-file.start // self._size))
        return range(begin, max(begin, min(stop, file.end // self._size)))

    def windows(
        self,
        first: int = 0,
        stop: int = LARGEST_OFFSET,
        *,
        reverse: bool = False,
        most: int | None = None,
        holes: bool = False,
    ) -> Iterator[tuple[int, Units]]:
        """See `UnitStream.windows`; a window ends at the end of a file.

        holes: yield windows that lie in a hole of a sparse file, too.
        """
        step = most or WINDOW_UNITS
        try:
            for file in reversed(self.files.files) if reverse else self.files.files:
                room = self._numbers_in(file, first, stop)
                begins = range(room.start, room.stop, step)
                for begin in reversed(begins) if reverse else begins:
                    count = min(step, room.stop - begin)
                    if holes or not self._in_hole(file, begin, count):
                        yield from self._readable_parts(file, begin, count)
        finally:
            self.files.close()

    def _in_hole(self, file: MappedFile, first: int, count: int) -> bool:
        """Whether a window is large and all of it is a hole."""
        at, size = first * self._size - file.start, count * self._size
        if size <= _BLOCK_BYTES:
            return False
        data_at = self.files.next_data(file, at)
        return data_at is None or data_at >= at + size

    def _readable_parts(self, file: MappedFile, first: int, count: int) -> Iterator[tuple[int, Units]]:
        """Yield units of one file: one array, or several around units that cannot be read, which are noted."""
        at = first * self._size - file.start
        for byte, data in self.files.parts(file, at, count * self._size, self._size):
            if len(data) >= self._size:
                units = np.frombuffer(data, self.dtype, len(data) // self._size)
                yield (file.start + byte) // self._size, units

    def data(self, file: MappedFile, most: int, first: int = 0) -> Iterator[tuple[int, int]]:
        """Yield (first number, count) of units of one file that are not in holes, from `first` on, `most` at a time."""
        number, stop = max(first, -(-file.start // self._size)), file.end // self._size
        while number < stop:
            data_at = self.files.next_data(file, number * self._size - file.start)
            if data_at is None:
                return
            number = max(number, (file.start + data_at) // self._size)
            behind = -(-(file.start + self.files.data_end(file, data_at)) // self._size)
            count = min(most, max(1, behind - number))
            yield number, count
            number += count

    def written(self, first: int = 0) -> Iterator[tuple[int, Units]]:
        try:
            for file in self.files.files:
                for begin, count in self.data(file, WINDOW_UNITS, first):
                    for number, units in list(self._readable_parts(file, begin, count)):
                        if not is_zero(units.view(np.uint8).data):  # a copy may fill holes with zeros
                            yield number, units
        finally:
            self.files.close()

    def fill(self, first: int, units: Units, *, around: bool = False) -> None:
        stop = first + len(units)
        try:
            for file in self.files.files_in(first * self._size, stop * self._size):
                room = self._numbers_in(file, first, stop)
                part = units[room.start - first : room.stop - first]
                if len(part):
                    self._fill(file, room.start * self._size - file.start, part, around=around)
        finally:
            self.files.close()

    def _fill(self, file: MappedFile, at: int, units: Units, *, around: bool) -> None:
        """Read units of one file from its byte `at` on."""
        room, unread = units.view(np.uint8).data, list[Unread]()
        if around:
            got, unread = self.files.read_around(file, at, room)
        else:
            got = self.files.read_into(file, at, room)
        if got % self._size:
            units[got // self._size :][:1] = 0
        for each in unread:
            units[(each.offset - at) // self._size : -(-(each.end - at) // self._size)] = 0

    def unread(self, numbers: Ints) -> Flags:
        """bool[n]: units with these numbers could not be read by earlier calls."""
        found = np.zeros(len(numbers), np.bool_)
        for file in self.files.files:
            for first, behind in self._unread_numbers(file):
                found |= (numbers >= first) & (numbers < behind)
        return found

    def unwritten(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of numbers first ≤ k < stop in holes, if `written` has yielded none of these numbers.

        Leaves out units that cannot be read: nothing is known of them.
        """
        for file in self.files.files_in(first * self._size, stop * self._size):
            room = self._numbers_in(file, first, stop)
            begin = room.start
            for low, behind in self._unread_numbers(file) if room else ():
                end = min(room.stop, low)
                if begin < end:
                    yield begin, end
                begin = max(begin, behind)
            if begin < room.stop:
                yield begin, room.stop

    def _unread_numbers(self, file: MappedFile) -> Iterator[tuple[int, int]]:
        """Yield number ranges (first, behind the last) of units that earlier calls could not read."""
        for each in noted_of(file.path):
            low, behind = file.start + each.offset, file.start + each.end
            yield low // self._size, -(-behind // self._size)


class RowUnits(UnitStream):
    """The units of a queue that come as rows of bytes, as from a RocksDB.

    rows: yields the units first ≤ k < stop that exist, as (first number, bytes of consecutive units). row_dtype: of
    such a unit; fields that units in files do not have are dropped. first, stop: first number, and behind the last.
    """

    def __init__(
        self, rows: Callable[[int, int], Iterator[tuple[int, bytes]]], row_dtype: np.dtype[Any], first: int, stop: int
    ) -> None:
        self._rows, self._row_dtype = rows, row_dtype
        self.first, self.stop = first, stop

    def windows(
        self, first: int = 0, stop: int = LARGEST_OFFSET, *, reverse: bool = False, most: int | None = None
    ) -> Iterator[tuple[int, Units]]:
        step, first, stop = most or WINDOW_UNITS, max(first, self.first), min(stop, self.stop)
        if reverse:
            yield from self._backwards(first, stop, step)
        else:  # a single seek: numbers may be far apart
            yield from self._units(first, stop, step)

    def _backwards(self, first: int, stop: int, most: int) -> Iterator[tuple[int, Units]]:
        """Yield windows of units, the last window first."""
        while first < stop:
            begin = max(first, stop - most)
            found = list(self._units(begin, stop, most))
            yield from reversed(found)
            stop = begin if found else self._end_of_last_part(first, begin, most)

    def _end_of_last_part(self, first: int, stop: int, most: int) -> int:
        """Number behind the last range of `most` numbers that has units; bisects, since numbers may be far apart."""
        bottom = first
        while stop - first > most:
            middle = (first + stop) // 2
            if any(True for _ in self._rows(middle, stop)):
                first = middle
            else:
                stop = middle
        return stop if any(True for _ in self._rows(first, stop)) else bottom

    def _units(self, first: int, stop: int, most: int) -> Iterator[tuple[int, Units]]:
        for number, values in self._rows(first, stop) if first < stop else ():
            units = np.frombuffer(values, self._row_dtype)
            units = units[list(UNIT_DTYPE.names or ())].astype(UNIT_DTYPE)
            for begin in range(0, len(units), most):
                yield number + begin, units[begin : begin + most]

    def fill(self, first: int, units: Units, *, around: bool = False) -> None:
        for number, some in self.windows(first, first + len(units)):
            units[number - first : number - first + len(some)] = some


def read_units(entry: DirectoryEntry | None, first: int, count: int, dtype: np.dtype[Any] = UNIT_DTYPE) -> Units:
    """Units of one file from its number `first` on; zeros without a file, or behind its end.

    Raises Unreadable.
    """
    files = [MappedFile(entry.path, 0, entry.size)] if entry is not None else []
    queue = MappedFileQueue((), files, 0, [])
    queue.stop = entry.stop if entry is not None else None
    return FileUnits(queue, dtype).read(first, count)


def gather(read: Callable[[int, int], Units], numbers: Ints, dtype: np.dtype[Any] = UNIT_DTYPE) -> Units:
    """Units by number, in few reads: units close to one another are read together."""
    found = np.zeros(len(numbers), dtype)
    if len(numbers) and (numbers[1:] == numbers[:-1] + 1).all():
        for begin in range(0, len(numbers), UNITS_AT_ONCE):
            part = found[begin : begin + UNITS_AT_ONCE]
            part[:] = read(int(numbers[begin]), len(part))
        return found
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    breaks = np.flatnonzero(np.diff(ordered) > _GAP_UNITS) + 1
    for part in np.split(np.arange(len(order)), breaks):
        for begin in range(0, len(part), UNITS_AT_ONCE):
            index = part[begin : begin + UNITS_AT_ONCE]
            first = int(ordered[index[0]])
            units = read(first, int(ordered[index[-1]]) - first + 1)
            found[order[index]] = units[ordered[index] - first]
    return found


def joined(parts: Sequence[Units], dtype: np.dtype[Any] = UNIT_DTYPE) -> Units:
    """Concatenate units in the byte order of the disk, which numpy's own concatenation changes; a single part of that
    dtype is returned as it is.
    """
    if len(parts) == 1 and parts[0].dtype == dtype:
        return parts[0]
    together = np.zeros(sum(map(len, parts)), dtype)
    begin = 0
    for part in parts:
        together[begin : begin + len(part)] = part
        begin += len(part)
    return together


def pre_fill(count: int) -> Units:
    """`count` pre-fill units."""
    units = np.zeros(count, UNIT_DTYPE)
    for name, value in PRE_FILL.items():
        units[name] = value
    return units


Numbers = npt.NDArray[np.uint16 | np.int64]
_TABLE_MAX = 1 << 24
_FEW_QUEUES = 1 << 16
_LOW = (1 << 32) - 1


class QueueMessages(NamedTuple):
    """Messages of a window: number of their queue, queue offset, and row of their record."""

    queue: Numbers
    offset: Ints
    record: Ints | slice


class QueueNumbers:
    """Numbers for the queues in `files`. files: files of each queue, of which whole ones have `file_bytes`."""

    def __init__(self, files: Mapping[QueueId, tuple[DirectoryEntry, ...]], file_bytes: int) -> None:
        self.names = [n for n in sorted(files) if n.queue_id >= 0 and java_string(os.fsencode(n.topic)) == n.topic]
        self._files = [files[name] for name in self.names]
        self._file_bytes = file_bytes
        #: Kept, since streams are needed often; a stream has no file open between calls.
        self._streams: dict[int, FileUnits] = {}
        own = [name for name in self.names if not name.topic.startswith(LMQ_PREFIX)]
        topics = {topic: n for n, topic in enumerate(dict.fromkeys(name.topic for name in own))}
        self._topics = {os.fsencode(topic): n for topic, n in topics.items()}
        #: Above all queue ids: the table has a row of this width for each topic.
        self._width = max((name.queue_id for name in own), default=-1) + 1
        small = len(self.names) < _FEW_QUEUES  # numpy sorts 16 bits in one pass
        self._numbers = np.zeros(0, np.int64)
        if len(topics) * self._width > _TABLE_MAX:
            self.names, self._files, self._width = [], [], 0
        else:
            table = np.full((len(topics), self._width), -1, np.int64)
            for number, name in enumerate(self.names):
                if name.topic in topics:
                    table[topics[name.topic], name.queue_id] = number
            self._numbers = table.ravel()
        self._dtype = np.dtype(np.uint16 if small else np.int64)

    @classmethod
    def of(cls, snapshot: Snapshot) -> QueueNumbers:
        """The simple queues of a store, with those of their files that a load keeps."""
        size = snapshot.queue_file_bytes
        files = {name: entries for name, entries in snapshot.queues.items() if name.topic not in snapshot.batch_topics}
        return cls(files, size)

    def __len__(self) -> int:
        return len(self.names)

    def stream(self, number: int) -> FileUnits:
        if number not in self._streams:
            self._streams[number] = FileUnits.of(self._files[number], self._file_bytes)
        return self._streams[number]

    def of_records(self, columns: Columns, topics: Dictionary | None = None) -> QueueMessages | None:
        """Each record as a message of its own queue; None if a record's queue has no number.

        topics: of the records, if they are numbered already.
        """
        topics = topics or dictionary(columns.ragged("topic"))
        row = np.array([self._topics.get(name, -1) for name in topics.values], np.int64)[topics.ids]
        queue_id = columns.ints("queue_id")
        if (row < 0).any() or (queue_id < 0).any() or (queue_id >= self._width).any():
            return None
        numbers = self._numbers[row * self._width + queue_id]
        if (numbers < 0).any():
            return None
        found: Numbers = numbers.astype(self._dtype)
        return QueueMessages(found, columns.ints("queue_offset"), slice(None))

    def of_dispatched(self, dispatched: Dispatched) -> QueueMessages | None:
        """Each unit that the records would add, as a message; None if a unit's queue has no number."""
        units = dispatched.units
        if len(dispatched.undispatchable) or not len(units):
            return None
        keys, key = np.unique(units.topic_id << 32 | units.queue_id, return_inverse=True)
        names = [QueueId(dispatched.topics[k >> 32], k & _LOW) for k in keys.tolist()]
        if not all(map(self._knows, names)) or (units.queue_id < 0).any():
            return None
        numbers = np.array([self._number_of[name] for name in names], self._dtype)
        return QueueMessages(numbers[key], units.queue_offset, units.record)

    def _knows(self, name: QueueId) -> bool:
        return name in self._number_of

    @cached_property
    def _number_of(self) -> dict[QueueId, int]:
        return {name: number for number, name in enumerate(self.names)}


class NewQueues(QueueNumbers):
    """Numbers for queues that are not on disk, given as their messages come."""

    def __init__(self) -> None:
        super().__init__({}, 0)

    def _knows(self, name: QueueId) -> bool:
        if name not in self._number_of and len(self) < _FEW_QUEUES - 1 and can_have_files(name):
            self._number_of[name] = len(self)
            self.names.append(name)
        return name in self._number_of
