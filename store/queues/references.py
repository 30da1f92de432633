"""Which records of the log the queues of a store name: the places they point at, and what stood where a hole begins.

Places are taken from queues in windows, merged, and read from the log in batches.

The records behind a hole may be dead: a broker has cut them off, and written its new records over
the first of them (`batch.py`). Then nothing names what it wrote over. A unit that names a record
which begins right where the hole does tells that the log went on there.

Holes may be many. So the queues are asked what they name of a whole region of the log, and of each
window of units is remembered which positions it names: however many holes there are, a window is
read once for each region that it has names of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...formats.consume_queue import EXT_ADDRESS_MAX
from ...formats.derive.ragged import Ints
from ...formats.message import SMALLEST
from ..columns import Rows
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import QueueDirectory, queue_directories
from ..errors import StoreError
from ..log.commit_log import Batch, CommitLog
from .batches import BatchConsumeQueue
from .read import ConsumeQueue, ConsumeQueues
from .units import Units, is_used, is_valid

if TYPE_CHECKING:
    from ..disk.layout import Layout


REGION_BYTES = 64 << 20
"""Bytes of the log whose names are known at a time."""
_TOGETHER = 1 << 20
"""Names that are put in order together; those that several units have are one afterwards."""
BATCH_BYTES = 16 << 20
BATCH_RECORDS = 1 << 12


def commit_log_of(layout: Layout, files: MappedFileQueue | None = None, *, rate_bytes: int | None = None) -> CommitLog:
    """The log of a store with the queues that name its records; `files`: as it is in these.

    rate_bytes: so many are read in a second at most. Raises Unreadable.
    """
    files = layout.commit_log_files() if files is None else files
    return CommitLog(files, layout.dledger, rate_bytes, naming=QueueReferences(layout))


class QueueReferences:
    """The units of a store's queues, read when somebody asks."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._region = range(0)
        self._named = _RecordNames()

    def names(self, begin: int, end: int, *, unknown: bool = True) -> bool:
        """A unit names a record that begins at log position `begin` and ends at or before `end`.

        unknown: what is said where no queue has a unit, and none can deny it. A queue that cannot be read
        names nothing.
        """
        if begin not in self._region:
            start = begin - begin % REGION_BYTES
            self._region = range(start, start + REGION_BYTES)
            self._named = _RecordNames()
            for queue in self._queues:
                for position, size in queue.names(self._region):
                    self._named.add(position, size)
        if all(queue.empty for queue in self._queues):
            return unknown
        size = self._named.sizes(begin)
        return bool(((size >= SMALLEST) & (size <= end - begin)).any())

    @cached_property
    def _queues(self) -> list[_QueueNames]:
        """The queues in files or in a RocksDB, none where that cannot be read; those of batches."""
        plain = self._readable
        batches = queue_directories(self._layout.batch_consume_queue)
        return [*(_Plain(plain, d) for d in plain), *map(_Batches, batches)]

    @property
    def _readable(self) -> ConsumeQueues:
        if self._layout.queue_database is None:
            return ConsumeQueues(self._layout)
        from .hybrid import open_queues  # few stores have one

        return open_queues(self._layout)[0]


class _RecordNames:
    """Names of records, int64[n] each, in any order."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, Ints]] = []
        self._more = 0

    def add(self, position: Ints, size: Ints) -> None:
        """Some more."""
        self._parts.append((position, size))
        self._more += len(position)
        if self._more > _TOGETHER:
            self._in_order()

    def sizes(self, position: int) -> Ints:
        """The sizes of all records that are named at a log position."""
        if not self._parts:
            return np.zeros(0, np.int64)
        positions, sizes = self._in_order()
        first, stop = np.searchsorted(positions, [position, position + 1])
        return sizes[first:stop]

    def _in_order(self) -> tuple[Ints, Ints]:
        """All by position, each once."""
        if self._more or len(self._parts) > 1:
            position, size = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
            order = np.lexsort((size, position))
            position, size = position[order], size[order]
            other = np.append(True, (np.diff(position) != 0) | (np.diff(size) != 0))[: len(order)]
            self._parts, self._more = [(position[other], size[other])], 0
        return self._parts[0]


class _UnitWindow(NamedTuple):
    """A window of units: numbers [first, stop), which name positions lowest ≤ p ≤ highest."""

    first: int
    stop: int
    lowest: int
    highest: int


class _QueueNames(ABC):
    """What one queue names. empty: it was read, and names nothing."""

    def __init__(self, directory: QueueDirectory) -> None:
        self._directory = directory
        self._windows: list[_UnitWindow] = []
        self._readable = True
        self._all_read = False

    @property
    def empty(self) -> bool:
        """Nothing is there that could name a record."""
        return self._readable and not self._windows

    def names(self, region: range) -> Iterator[tuple[Ints, Ints]]:
        """Position and size, int64[n] each, of the records of a region of the log that it names."""
        known = [w for w in self._windows if w.lowest < region.stop and w.highest >= region.start]
        try:
            if known or not self._all_read:
                yield from self._inside(region, known)
        except StoreError:  # who reads queues tells what keeps it from being read
            self._readable = False

    @abstractmethod
    def _inside(self, region: range, known: list[_UnitWindow]) -> Iterator[tuple[Ints, Ints]]:
        """As `names`, of the windows that are known and of those that nobody has read. Raises StoreError."""

    def _noted(self, first: int, count: int, units: Units) -> _UnitWindow | None:
        """Remember a window of so many units; `units` are those that name a record."""
        if not len(units):
            return None
        position = units["physical_offset"]
        window = _UnitWindow(first, first + count, int(position.min()), int(position.max()))
        self._windows.append(window)
        return window


class _Plain(_QueueNames):
    """A queue whose units rise: it is read from its end on as far as it has names of a region."""

    def __init__(self, queues: ConsumeQueues, directory: QueueDirectory) -> None:
        super().__init__(directory)
        self._queues = queues
        self._stop: int | None = None

    def _inside(self, region: range, known: list[_UnitWindow]) -> Iterator[tuple[Ints, Ints]]:
        more = not self._all_read and (not self._windows or self._windows[-1].highest >= region.start)
        if not known and not more:
            return
        with self._queues.open(self._directory.topic, self._directory.queue_id) as queue:
            for window in known:
                for _, units in queue.units(window.first, window.stop):
                    yield _places(units[is_used(units)], region)
            if not more:
                return
            stop = queue.summary().max_offset if self._stop is None else self._stop
            for first, units in queue.units(queue.first_offset, stop, reverse=True):
                named = units[is_used(units)]
                read = self._noted(first, len(units), named)
                self._stop = first
                yield _places(named, region)
                if read is not None and read.highest < region.start:
                    return
        self._all_read = True


class _Batches(_QueueNames):
    """A queue of batches."""

    def _inside(self, region: range, known: list[_UnitWindow]) -> Iterator[tuple[Ints, Ints]]:
        topic, queue_id, path = self._directory
        with MappedFileQueue.open(path) as files:
            queue = BatchConsumeQueue(topic, queue_id, files)
            for window in known:
                for _, units in queue.units(window.first, window.stop):
                    yield _places(units[is_valid(units)], region)
            if self._all_read:
                return
            self._windows.clear()  # of an attempt that has failed
            for first, units in queue.units(queue.first, queue.stop):
                named = units[is_valid(units)]
                self._noted(first, len(units), named)
                yield _places(named, region)
        self._all_read = True


def _places(units: Units, region: range) -> tuple[Ints, Ints]:
    """Position and size, int64[n] each, of the records that units name in a region."""
    position = units["physical_offset"]
    inside = (position >= region.start) & (position < region.stop)
    size = units["size"][inside]
    return position[inside].astype(np.int64), size.astype(np.int64)


class RecordPlaces(Rows):
    """n records: where they begin and how many bytes they have, as far as known (0: not)."""

    position: Ints
    size: Ints

    @classmethod
    def of(cls, positions: Iterable[int]) -> RecordPlaces:
        """Places of unknown size."""
        found = np.fromiter(positions, np.int64)
        return cls(found, np.zeros_like(found))

    def sorted(self, *, reverse: bool = False) -> RecordPlaces:
        """By position, each position once."""
        _, first = np.unique(self.position, return_index=True)
        return self.take(first[::-1] if reverse else first)


_SEVERAL = -2


class UnitPlaces(RecordPlaces):
    """The same of units, each with its queue and its number in it; -2 where several units name a record."""

    queue_id: Ints
    number: Ints

    def sorted(self, *, reverse: bool = False) -> UnitPlaces:
        """By position, each position once."""
        order = np.lexsort((self.number, self.queue_id, self.position))
        by = self.take(order)
        first = np.flatnonzero(np.append(True, np.diff(by.position) != 0)[: len(by)])
        last = np.append(first[1:], len(by)) - 1
        other = (by.number[first] != by.number[last]) | (by.queue_id[first] != by.queue_id[last])
        once = by.take(first)
        once = once.replace(number=np.where(other, _SEVERAL, once.number))
        return once.take(slice(None, None, -1)) if reverse else once


def of_queue(
    queue: ConsumeQueue,
    start: int,
    stop: int,
    *,
    log_end: int,
    tags_codes: Sequence[int] = (),
    reverse: bool = False,
    missing: Callable[[int], None] | None = None,
) -> Iterator[UnitPlaces]:
    """Where the units start ≤ k < stop of a queue point, in windows in queue order.

    Pre-fill, invalid units and those at or behind log_end are left out. tags_codes leave out units
    with another one; an address in consumequeue_ext may stand for any. missing: told at the end how
    many are invalid or not there.
    """
    left = stop - start
    for begin, units in queue.units(start, stop, reverse=reverse):
        left -= int(np.count_nonzero(is_valid(units)))
        position = units["physical_offset"].astype(np.int64)
        size = units["size"].astype(np.int64)
        wanted = is_used(units) & (position < log_end)
        if tags_codes:
            code = units["tags_code"]
            wanted &= np.isin(code, tags_codes) | (code <= EXT_ADDRESS_MAX)
        number = np.arange(begin, begin + len(units), dtype=np.int64)
        places = UnitPlaces(position, size, np.full(len(units), queue.queue_id, np.int64), number).take(wanted)
        queue.close()  # a topic may have more queues than a process may have open files
        if len(places):
            yield places.take(slice(None, None, -1)) if reverse else places
    if missing is not None and left > 0:
        missing(left)


def merged(streams: list[Iterator[RecordPlaces]], *, reverse: bool = False) -> Iterator[RecordPlaces]:
    """Several streams as one, by position; each must be in that order itself.

    Memory: one window of each stream.
    """
    heads: list[tuple[RecordPlaces, Iterator[RecordPlaces]]] = []
    for stream in streams:
        _advance(heads, stream)
    while heads:
        ends = [int(head.position[-1]) for head, _ in heads]
        bound = max(ends) if reverse else min(ends)
        ready: list[RecordPlaces] = []
        rest: list[tuple[RecordPlaces, Iterator[RecordPlaces]]] = []
        for head, stream in heads:
            inside = head.position >= bound if reverse else head.position <= bound
            ready.append(head.take(inside))
            if inside.all():
                _advance(rest, stream)
            else:
                rest.append((head.take(~inside), stream))
        heads = rest
        yield type(ready[0]).concat(ready).sorted(reverse=reverse)


def _advance(heads: list[tuple[RecordPlaces, Iterator[RecordPlaces]]], stream: Iterator[RecordPlaces]) -> None:
    """Add the next window of a stream, if there is one."""
    head = next(stream, None)
    if head is not None:
        heads.append((head, stream))


def batches(log: CommitLog, places: RecordPlaces) -> Iterator[tuple[RecordPlaces, Batch]]:
    """(places, records there) in this order, in batches of bounded size.

    A batch leaves out places where no record begins.
    """
    room = np.minimum(np.where(places.size > 0, places.size, BATCH_BYTES // 16), BATCH_BYTES)
    chunk = np.cumsum(room) // BATCH_BYTES
    begin = 0
    while begin < len(places):
        end = int(np.searchsorted(chunk, chunk[begin], side="right"))
        end = min(end, begin + BATCH_RECORDS)
        part = places.take(slice(begin, end))
        yield part, log.records(part.position)
        begin = end
