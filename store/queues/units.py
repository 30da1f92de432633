"""The units of consume queues as arrays: the one reader of them, and which of them are valid.

Who looks at one unit or at the ends of a queue, without numpy, takes `read.ConsumeQueue`. Who looks at
many takes `ConsumeQueue.stream`, or a `FileUnits` of the files in hand: windows of bounded size, or
units by number. Bytes that the disk does not give are left out and noted by what goes through all of a
queue (`byte_reader.noting`), and an error where single units are asked for, unless `around` is wanted.

The queues that a store has on disk, numbered, so that columns can hold them.
"""

from __future__ import annotations

import os
import time
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
from ..disk.byte_reader import Unread, noted_of, rest
from ..disk.file_queue import NAME_DIGITS, MappedFile, MappedFileQueue, is_zero

Units = Structs
UNIT_DTYPE = dtype_of(UNIT)
UNITS_AT_ONCE = 4096
WINDOW_UNITS = 1 << 16
LARGEST_OFFSET = (1 << 63) // UNIT_BYTES - 1
"""A queue offset beyond it has no place in any file."""
_NEAR = 64
"""Units that lie so close together are read in one go."""
_BLOCK_BYTES = 1 << 16
"""Of smaller windows nobody asks whether they lie in a hole."""


def is_valid(units: Units) -> Flags:
    """bool[n]: units that a broker takes for valid; pre-fill counts (spec 2.1, 2.7)."""
    valid: Flags = units["size"] > 0
    if valid.any():  # most of a new file is zeros
        valid &= units["physical_offset"] >= 0
        if "batch_size" in (units.dtype.names or ()):
            valid &= (units["msg_base_offset"] >= 0) & (units["batch_size"] > 0)
    return valid


def is_pre_fill(units: Units) -> Flags:
    """bool[n]: units that fill the front of a queue, and are no messages."""
    filled: Flags = units["size"] == PRE_FILL["size"]
    if filled.any():
        for name, value in PRE_FILL.items():
            filled &= units[name] == value
    return filled


def is_used(units: Units) -> Flags:
    """bool[n]: units that name a record: valid, and no pre-fill."""
    return is_valid(units) & ~is_pre_fill(units)


def reaches_beyond(units: Units, log_end: int) -> Flags:
    """bool[n]: of valid units, those that name bytes behind the log's end, also where these lie behind 2^63."""
    ends = units["physical_offset"].astype(np.uint64) + units["size"].astype(np.uint64)
    beyond: Flags = ends > log_end
    return beyond


def record_bytes(units: Units) -> Ints:
    """int64[n]: bytes of the records that units name, 0 for those that name none."""
    return np.where(is_used(units), units["size"], 0).astype(np.int64)


def is_whole_file(entry: DirectoryEntry, size: int) -> bool:
    """A file as a broker makes it: whole, its name 20 digits and a multiple of the size."""
    name = entry.name
    digits = name.isascii() and name.isdigit() and len(name) == NAME_DIGITS
    return not entry.directory and entry.size == size and digits and int(name) % size == 0


class UnitStream(ABC):
    """The units of one queue by their numbers; those of a plain queue are its queue offsets.

    dtype: of a unit. Descriptors are given back after each call.
    """

    dtype: np.dtype[Any] = UNIT_DTYPE

    @abstractmethod
    def windows(
        self, first: int = 0, stop: int = LARGEST_OFFSET, *, reverse: bool = False, most: int | None = None
    ) -> Iterator[tuple[int, Units]]:
        """Units first ≤ k < stop as (number of the first, units), at most `most` at a time.

        What is not there, or cannot be read, which is noted, is left out. reverse: the last window
        first; inside a window the order stays. Raises Unreadable.
        """

    def written(self, rate_bytes: int | None = None, first: int = 0) -> Iterator[tuple[int, Units]]:
        """All units from number `first` on in windows, but for holes of files and windows of zeros.

        rate_bytes: most bytes per second that are read of files; what a library or the page cache gives has no rate.
        Raises Unreadable.
        """
        return self.windows(first)

    @abstractmethod
    def fill(self, first: int, units: Units, *, around: bool = False) -> None:
        """Units from number `first` on into an array of zeros, which stay where there is none.

        around: they stay also where units cannot be read, which is noted. Raises Unreadable.
        """

    def last(self, counts: Callable[[Units], Flags] = is_used) -> tuple[int, Units] | None:
        """Number of the last unit that counts, and it: one; None without any. Raises Unreadable."""
        for first, units in self.windows(reverse=True, most=UNITS_AT_ONCE):
            rows = np.flatnonzero(counts(units))
            if len(rows):
                return first + int(rows[-1]), units[rows[-1:]]
        return None

    def read(self, first: int, count: int, *, around: bool = False) -> Units:
        """The same as a new array."""
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
    """The units in files; unit k is at byte k · size of a unit in their stream."""

    def __init__(self, files: MappedFileQueue, dtype: np.dtype[Any] = UNIT_DTYPE) -> None:
        self.files = files
        self.dtype = dtype
        self._size = dtype.itemsize

    @classmethod
    def of(cls, entries: Iterable[DirectoryEntry], file_bytes: int, dtype: np.dtype[Any] = UNIT_DTYPE) -> FileUnits:
        """Those in the whole files among the entries of a queue's directory."""
        whole = [entry for entry in entries if is_whole_file(entry, file_bytes)]
        files = [MappedFile(entry.path, int(entry.name), entry.size) for entry in whole]
        files.sort(key=lambda file: file.start)
        queue = MappedFileQueue((), files, file_bytes, [])
        queue.stop = next((int(e.name) + e.stop for e in whole if e.stop is not None), None)
        return cls(queue, dtype)

    @property
    def first(self) -> int:
        """Number of the first unit there is room for."""
        return -(-self.files.start // self._size)

    @property
    def stop(self) -> int:
        """Number behind the last one."""
        return self.files.end // self._size

    def ranges(self, first: int, stop: int, most: int) -> list[tuple[int, int]]:
        """Numbers first ≤ k < stop that a file has room for: (first, count), `most` at a time.

        Any number can stand in a record or be the name of a file: between files there is nothing.
        """
        ranges = (self._room(file, first, stop) for file in self.files.files)
        return [(at, min(most, r.stop - at)) for r in ranges for at in range(r.start, r.stop, most)]

    def _room(self, file: MappedFile, first: int, stop: int) -> range:
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
        """As `UnitStream.windows`; a window ends at the end of a file.

        Windows that lie in a hole of a sparse file are left out, unless `holes` are wanted.
        """
        step = most or WINDOW_UNITS
        try:
            for file in reversed(self.files.files) if reverse else self.files.files:
                room = self._room(file, first, stop)
                begins = range(room.start, room.stop, step)
                for begin in reversed(begins) if reverse else begins:
                    count = min(step, room.stop - begin)
                    if holes or not self._in_hole(file, begin, count):
                        yield from self._parts(file, begin, count)
        finally:
            self.files.close()

    def _in_hole(self, file: MappedFile, first: int, count: int) -> bool:
        """All of a large window is a hole."""
        at, size = first * self._size - file.start, count * self._size
        if size <= _BLOCK_BYTES:
            return False
        data_at = self.files.next_data(file, at)
        return data_at is None or data_at >= at + size

    def _parts(self, file: MappedFile, first: int, count: int) -> Iterator[tuple[int, Units]]:
        """Units of one file: one array, but for those that cannot be read, which are noted."""
        at = first * self._size - file.start
        for byte, data in self.files.parts(file, at, count * self._size, self._size):
            if len(data) >= self._size:
                units = np.frombuffer(data, self.dtype, len(data) // self._size)
                yield (file.start + byte) // self._size, units

    def data(self, file: MappedFile, most: int, first: int = 0) -> Iterator[tuple[int, int]]:
        """Numbers, from `first` on, of the units of one file that are no holes: (first, count), `most` at a time."""
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

    def written(self, rate_bytes: int | None = None, first: int = 0) -> Iterator[tuple[int, Units]]:
        """As `UnitStream.written`."""
        try:
            for file in self.files.files:
                for begin, count in self.data(file, WINDOW_UNITS, first):
                    began = time.monotonic()
                    parts = list(self._parts(file, begin, count))
                    if rate_bytes:
                        rest(count * self._size / rate_bytes - (time.monotonic() - began))
                    for number, units in parts:
                        if not is_zero(units.view(np.uint8).data):  # as a copy fills holes
                            yield number, units
        finally:
            self.files.close()

    def fill(self, first: int, units: Units, *, around: bool = False) -> None:
        """As `UnitStream.fill`."""
        stop = first + len(units)
        try:
            for file in self.files.files_in(first * self._size, stop * self._size):
                room = self._room(file, first, stop)
                part = units[room.start - first : room.stop - first]
                if len(part):
                    self._fill(file, room.start * self._size - file.start, part, around=around)
        finally:
            self.files.close()

    def _fill(self, file: MappedFile, at: int, units: Units, *, around: bool) -> None:
        """Units of one file from its byte `at` on."""
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
        """bool[n]: units with these numbers were met and cannot be read."""
        found = np.zeros(len(numbers), np.bool_)
        for file in self.files.files:
            for first, behind in self._noted(file):
                found |= (numbers >= first) & (numbers < behind)
        return found

    def unwritten(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Ranges of numbers first ≤ k < stop, of which `written` told nothing, that lie in holes.

        Of units that cannot be read nothing is known.
        """
        for file in self.files.files_in(first * self._size, stop * self._size):
            room = self._room(file, first, stop)
            begin = room.start
            for low, behind in self._noted(file) if room else ():
                end = min(room.stop, low)
                if begin < end:
                    yield begin, end
                begin = max(begin, behind)
            if begin < room.stop:
                yield begin, room.stop

    def _noted(self, file: MappedFile) -> Iterator[tuple[int, int]]:
        """Numbers of units that were met and cannot be read: first, behind the last."""
        for each in noted_of(file.path):
            low, behind = file.start + each.offset, file.start + each.end
            yield low // self._size, -(-behind // self._size)


class RowUnits(UnitStream):
    """The units of a queue that somebody has as rows of bytes, as in a RocksDB.

    rows: of numbers first ≤ k < stop those that there are, as (number, bytes of units in a row). there: what such a
    unit is; what a unit in a file does not have is left out. first, stop: numbers of the first and behind the last.
    """

    def __init__(
        self, rows: Callable[[int, int], Iterator[tuple[int, bytes]]], there: np.dtype[Any], first: int, stop: int
    ) -> None:
        self._rows, self._there = rows, there
        self.first, self.stop = first, stop

    def windows(
        self, first: int = 0, stop: int = LARGEST_OFFSET, *, reverse: bool = False, most: int | None = None
    ) -> Iterator[tuple[int, Units]]:
        """As `UnitStream.windows`."""
        step, first, stop = most or WINDOW_UNITS, max(first, self.first), min(stop, self.stop)
        if reverse:
            yield from self._backwards(first, stop, step)
        else:  # one search: numbers can be far apart
            yield from self._units(first, stop, step)

    def _backwards(self, first: int, stop: int, most: int) -> Iterator[tuple[int, Units]]:
        """The same, the last first."""
        while first < stop:
            begin = max(first, stop - most)
            found = list(self._units(begin, stop, most))
            yield from reversed(found)
            stop = begin if found else self._last_part(first, begin, most)

    def _last_part(self, first: int, stop: int, most: int) -> int:
        """Behind the last `most` of these numbers that have units among them: they can be far apart."""
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
            units = np.frombuffer(values, self._there)
            units = units[list(UNIT_DTYPE.names or ())].astype(UNIT_DTYPE)
            for begin in range(0, len(units), most):
                yield number + begin, units[begin : begin + most]

    def fill(self, first: int, units: Units, *, around: bool = False) -> None:
        """As `UnitStream.fill`."""
        for number, some in self.windows(first, first + len(units)):
            units[number - first : number - first + len(some)] = some


def read_units(entry: DirectoryEntry | None, first: int, count: int, dtype: np.dtype[Any] = UNIT_DTYPE) -> Units:
    """Units of one file, from the `first` in it; zeros where there is no file, or behind its end.

    Raises Unreadable.
    """
    files = [MappedFile(entry.path, 0, entry.size)] if entry is not None else []
    queue = MappedFileQueue((), files, 0, [])
    queue.stop = entry.stop if entry is not None else None
    return FileUnits(queue, dtype).read(first, count)


def gather(read: Callable[[int, int], Units], numbers: Ints, dtype: np.dtype[Any] = UNIT_DTYPE) -> Units:
    """Units by their numbers, in few reads: those that lie close together are one."""
    found = np.zeros(len(numbers), dtype)
    if are_consecutive(numbers):
        for begin in range(0, len(numbers), UNITS_AT_ONCE):
            part = found[begin : begin + UNITS_AT_ONCE]
            part[:] = read(int(numbers[begin]), len(part))
        return found
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    breaks = np.flatnonzero(np.diff(ordered) > _NEAR) + 1
    for part in np.split(np.arange(len(order)), breaks):
        for begin in range(0, len(part), UNITS_AT_ONCE):
            index = part[begin : begin + UNITS_AT_ONCE]
            first = int(ordered[index[0]])
            units = read(first, int(ordered[index[-1]]) - first + 1)
            found[order[index]] = units[ordered[index] - first]
    return found


def are_consecutive(numbers: Ints) -> bool:
    """Each is one more than the one before."""
    return bool(len(numbers)) and bool((numbers[1:] == numbers[:-1] + 1).all())


def joined(parts: Sequence[Units]) -> Units:
    """Units one after the other, in the byte order of the disk (numpy's own join changes it): a single
    part as it is.
    """
    if len(parts) == 1 and parts[0].dtype == UNIT_DTYPE:
        return parts[0]
    together = np.zeros(sum(map(len, parts)), UNIT_DTYPE)
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
_LARGEST_TABLE = 1 << 24
_FEW = 1 << 16
_LOW = (1 << 32) - 1


class QueueMessages(NamedTuple):
    """Messages of a window: number of their queue, queue offset, and row of their record.

    named: some record names further queues.
    """

    queue: Numbers
    offset: Ints
    record: Ints | slice
    named: bool = False


class QueueNumbers:
    """names: of the queues; files: of each queue; its whole ones have `file_bytes`."""

    def __init__(self, files: Mapping[QueueId, tuple[DirectoryEntry, ...]], file_bytes: int) -> None:
        self.names = [n for n in sorted(files) if n.queue_id >= 0 and _is_text(n.topic)]
        self._files = [files[name] for name in self.names]
        self._file_bytes = file_bytes
        #: Asked again and again; a stream gives its descriptors back after each call.
        self._streams: dict[int, FileUnits] = {}
        own = [name for name in self.names if not name.topic.startswith(LMQ_PREFIX)]
        topics = {topic: n for n, topic in enumerate(dict.fromkeys(name.topic for name in own))}
        self._topics = {os.fsencode(topic): n for topic, n in topics.items()}
        #: Queue ids are below; a table has a row of as many for each topic.
        self._width = max((name.queue_id for name in own), default=-1) + 1
        small = len(self.names) < _FEW  # numpy sorts 16 bits in one pass
        self._numbers = np.zeros(0, np.int64)
        if len(topics) * self._width > _LARGEST_TABLE:
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
        """The simple queues of a store, with those of their files that stay."""
        size = snapshot.queue_file_bytes
        files = {name: entries for name, entries in snapshot.queues.items() if name.topic not in snapshot.batch_topics}
        return cls(files, size)

    def __len__(self) -> int:
        return len(self.names)

    def stream(self, number: int) -> FileUnits:
        """The units of a queue."""
        if number not in self._streams:
            self._streams[number] = FileUnits.of(self._files[number], self._file_bytes)
        return self._streams[number]

    def of_records(self, columns: Columns, topics: Dictionary | None = None) -> QueueMessages | None:
        """Each record as a message of its own queue; None if one has none among these.

        topics: those of the records, where somebody has numbered them.
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
        """Each unit that records would add as a message; None if one has no queue among these."""
        units = dispatched.units
        if len(dispatched.undispatchable) or not len(units):
            return None
        keys, key = np.unique(units.topic_id << 32 | units.queue_id, return_inverse=True)
        names = [QueueId(dispatched.topics[k >> 32], k & _LOW) for k in keys.tolist()]
        if not all(map(self._knows, names)) or (units.queue_id < 0).any():
            return None
        numbers = np.array([self._number[name] for name in names], self._dtype)
        return QueueMessages(numbers[key], units.queue_offset, units.record)

    def _knows(self, name: QueueId) -> bool:
        return name in self._number

    @cached_property
    def _number(self) -> dict[QueueId, int]:
        return {name: number for number, name in enumerate(self.names)}


class NewQueues(QueueNumbers):
    """Queues of which nothing is on disk: they are numbered as their messages come."""

    def __init__(self) -> None:
        super().__init__({}, 0)

    def _knows(self, name: QueueId) -> bool:
        if name not in self._number and len(self) < _FEW - 1 and can_have_files(name):
            self._number[name] = len(self)
            self.names.append(name)
        return name in self._number


def _is_text(topic: str) -> bool:
    """A record with these bytes names this directory, as Java reads them."""
    return java_string(os.fsencode(topic)) == topic
