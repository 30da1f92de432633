"""Which log records the queues of a store name, and where queues begin that were deleted and made again.

The records behind a hole of the log may be dead: a broker has cut them off, and written new records over the first of
them (`batch.py`). No unit then names what was overwritten. A unit that names a record right at the start of the hole
shows that the log continued there.

There may be many holes. So the queues are asked for their names in a whole region of the log, and the range of
positions that each window of units names is remembered: however many holes there are, a window is read once for each
region that it has names in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from ...formats import message_properties as names
from ...formats.derive.ragged import Ints
from ...formats.hashing import java_string
from ...formats.message import SMALLEST
from ...formats.property_columns import PropertyItems
from ...formats.sys_flag import SysFlag
from ..broker.dispatch import java_split
from ..broker.snapshot import QueueId
from ..broker.system_topics import LITE_PREFIX, is_system_topic
from ..columns import dictionary
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import Layout, QueueDirectory, has_topic, queue_directories, queue_directory
from ..disk.lock import expiring
from ..errors import NotFound, StoreError, Unreadable, Unsupported
from ..log.batch import messages
from ..log.commit_log import Batch, CommitLog, RecordNames, RecordPlaces
from ..log.message import Mark
from .batches import BatchConsumeQueue
from .read import ConsumeQueue, ConsumeQueues
from .units import LARGEST_OFFSET, Units, is_used, is_valid

REGION_BYTES = 64 << 20
"""Size of the log region whose names are in memory at a time."""


def commit_log_of(layout: Layout, files: MappedFileQueue | None = None, *, rate_bytes: int | None = None) -> CommitLog:
    """The log of a store, with the queues that name its records. files: its files, if they are listed already; else
    those that a running broker deletes meanwhile hold nothing.

    rate_bytes: read at most so many bytes a second. Raises Unreadable.
    """
    if files is None:
        files = expiring(layout.commit_log_files(), layout.lock, told=True)
    return CommitLog(files, layout.dledger, rate_bytes, naming=QueueReferences(layout))


class QueueReferences:
    """The names that a store's queues have for log records; queues are read when needed."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._region = range(0)
        self._named = RecordNames()

    def names(self, begin: int, end: int, *, unknown: bool = True) -> bool:
        """Whether a unit names a record that begins at log position `begin` and ends at or before `end`.

        unknown: the answer if no queue has a unit, so that none can deny it. A queue that cannot be read names nothing.
        """
        if begin not in self._region:
            start = begin - begin % REGION_BYTES
            self._region = range(start, start + REGION_BYTES)
            self._named = RecordNames()
            for queue in self._queues:
                for position, size in queue.names(self._region):
                    self._named.add(position, size)
        if all(queue.empty for queue in self._queues):
            return unknown
        size = self._named.sizes(begin)
        return bool(((size >= SMALLEST) & (size <= end - begin)).any())

    @cached_property
    def known(self) -> bool:
        """Whether there are queues."""
        directories = chain(self._readable, queue_directories(self._layout.batch_consume_queue))
        return any(True for _ in directories)

    def has_unit(self, record: Batch) -> bool:
        """Whether the unit at the record's own queue and queue offset names the record's position; True if there is no
        such queue, which could deny it.

        No unit names a record inside the body of another. In a batch queue any unit with the position counts.
        """
        (one,) = messages(record)
        try:
            if queue_directory(self._layout.batch_consume_queue, one.topic, one.queue_id).is_dir():
                return self.names(one.position, one.position + one.total_size, unknown=False)
            with self._readable.open(one.topic, one.queue_id) as queue:
                unit = queue.unit(one.queue_offset)
        except NotFound:
            return True
        except StoreError:  # reported by whoever reads queues
            return False
        return unit is not None and unit.size > 0 and unit.physical_offset == one.position

    @cached_property
    def _queues(self) -> list[_QueueNames]:
        """The queues in files or in a RocksDB (none of one that cannot be read), and the batch queues."""
        plain = self._readable
        batches = queue_directories(self._layout.batch_consume_queue)
        return [*(_PlainNames(plain, d) for d in plain), *map(_BatchNames, batches)]

    @cached_property
    def _readable(self) -> ConsumeQueues:
        if self._layout.queue_database is None:
            return ConsumeQueues(self._layout)
        from .hybrid import open_queues  # few stores have a RocksDB

        return open_queues(self._layout)[0]


class _UnitWindow(NamedTuple):
    """A window of units: numbers [first, stop), which name log positions lowest ≤ p ≤ highest."""

    first: int
    stop: int
    lowest: int
    highest: int


class _QueueNames(ABC):
    """The log records that one queue names."""

    def __init__(self, directory: QueueDirectory) -> None:
        self._directory = directory
        self._windows: list[_UnitWindow] = []
        self._readable = True
        self._all_read = False

    @property
    def empty(self) -> bool:
        """Whether the queue could be read and names nothing, as far as it was read."""
        return self._readable and not self._windows

    def names(self, region: range) -> Iterator[tuple[Ints, Ints]]:
        """Yield position and size, int64[n] each, of the records that the queue names in a region of the log."""
        known = [w for w in self._windows if w.lowest < region.stop and w.highest >= region.start]
        try:
            if known or not self._all_read:
                yield from self._names_inside(region, known)
        except StoreError:  # reported by whoever reads queues
            self._readable = False

    @abstractmethod
    def _names_inside(self, region: range, known: list[_UnitWindow]) -> Iterator[tuple[Ints, Ints]]:
        """`names`, from the `known` windows and from windows that were not read yet. Raises StoreError."""

    def _remember(self, first: int, count: int, units: Units) -> _UnitWindow | None:
        """Remember a window of `count` units, if `units`, those that name a record, are not empty."""
        if not len(units):
            return None
        position = units["physical_offset"]
        window = _UnitWindow(first, first + count, int(position.min()), int(position.max()))
        self._windows.append(window)
        return window


class _PlainNames(_QueueNames):
    """The names of a queue with ascending units, read from its end only as far back as a region needs."""

    def __init__(self, queues: ConsumeQueues, directory: QueueDirectory) -> None:
        super().__init__(directory)
        self._queues = queues
        self._stop: int | None = None

    def _names_inside(self, region: range, known: list[_UnitWindow]) -> Iterator[tuple[Ints, Ints]]:
        more = not self._all_read and (not self._windows or self._windows[-1].highest >= region.start)
        if not known and not more:
            return
        with self._queues.open(self._directory.topic, self._directory.queue_id) as queue:
            for window in known:
                for _, units in queue.units(window.first, window.stop):
                    yield _places_inside(units[is_used(units)], region)
            if not more:
                return
            stop = queue.summary().max_offset if self._stop is None else self._stop
            for first, units in queue.units(queue.first_offset, stop, reverse=True):
                named = units[is_used(units)]
                read = self._remember(first, len(units), named)
                self._stop = first
                yield _places_inside(named, region)
                if read is not None and read.highest < region.start:
                    return
        self._all_read = True


class _BatchNames(_QueueNames):
    """The names of a batch queue."""

    def _names_inside(self, region: range, known: list[_UnitWindow]) -> Iterator[tuple[Ints, Ints]]:
        topic, queue_id, path = self._directory
        with MappedFileQueue.open(path) as files:
            queue = BatchConsumeQueue(topic, queue_id, files)
            for window in known:
                for _, units in queue.units(window.first, window.stop):
                    yield _places_inside(units[is_valid(units)], region)
            if self._all_read:
                return
            self._windows.clear()  # left by an attempt that failed
            for first, units in queue.units(queue.first, queue.stop):
                named = units[is_valid(units)]
                self._remember(first, len(units), named)
                yield _places_inside(named, region)
        self._all_read = True


def _places_inside(units: Units, region: range) -> tuple[Ints, Ints]:
    """Position and size, int64[n] each, of the records that units name inside a region."""
    position = units["physical_offset"]
    inside = (position >= region.start) & (position < region.stop)
    size = units["size"][inside]
    return position[inside].astype(np.int64), size.astype(np.int64)


_SEVERAL = -2


class UnitPlaces(RecordPlaces):
    """Places of records that units name, with queue id and unit number (-2 if several units name the record)."""

    queue_id: Ints
    number: Ints

    def sorted(self, *, reverse: bool = False) -> UnitPlaces:
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
    reverse: bool = False,
    missing: Callable[[int], None] | None = None,
) -> Iterator[UnitPlaces]:
    """Yield where the units start ≤ k < stop of a queue point, in windows in queue order.

    Leaves out pre-fill, invalid units, and units at or behind log_end. missing: called with the number of units that
    are invalid or not there, if there are any, before what follows them.
    """
    at = stop if reverse else start
    for begin, units in queue.units(start, stop, reverse=reverse):
        behind = begin + len(units)
        lacking = (at - behind if reverse else begin - at) + int(np.count_nonzero(~is_valid(units)))
        at = begin if reverse else behind
        if missing is not None and lacking > 0:
            missing(lacking)
        position = units["physical_offset"].astype(np.int64)
        size = units["size"].astype(np.int64)
        wanted = is_used(units) & (position < log_end)
        number = np.arange(begin, begin + len(units), dtype=np.int64)
        places = UnitPlaces(position, size, np.full(len(units), queue.queue_id, np.int64), number).take(wanted)
        queue.close()  # a topic may have more queues than a process may have open files
        if len(places):
            yield places.take(slice(None, None, -1)) if reverse else places
    lacking = at - start if reverse else stop - at
    if missing is not None and lacking > 0:
        missing(lacking)


class _LogBegins:
    """Where queues begin by the records of the log. firsts: first record named, by topic and queue id."""

    def __init__(self, firsts: Mapping[str, dict[int, int]]) -> None:
        self._firsts = firsts
        #: By topic: the last record that lies before the first record that its queue names; -1: none.
        self.older: dict[str, int] = {}
        self._counts: dict[QueueId, int] = {}
        #: How many records lie before a queue's first named record, else before its last one with queue offset 0.
        self._in_front: dict[QueueId, int] = {}
        self._zeros: dict[str, dict[int, int]] = {}
        #: By queue: the record before its last one with queue offset 0; -1: none.
        self._before: dict[QueueId, int] = {}
        self._lasts: dict[str, dict[int, int]] = {}
        self._times: dict[QueueId, int] = {}
        #: A queue's last record so far, if it has queue offset 0: its position, the record before, how many lie before.
        self._pending: dict[QueueId, tuple[int, int, int]] = {}
        #: By topic: queues that a start has made of what it had before it was deleted.
        self._brought_back: dict[str, set[int]] = {}

    def add(self, records: Batch) -> None:
        """Take the next records of the log."""
        topics = dictionary(records.columns.ragged("topic"))
        texts = [java_string(value) for value in topics.values]
        rows = np.flatnonzero(records.columns.ints("sys_flag") & SysFlag.PREPARED == 0)
        position, queue_id = records.position[rows], records.columns.ints("queue_id")[rows]
        key = topics.ids[rows] << 32 | (queue_id.astype(np.int64) & 0xFFFFFFFF)
        _, row, of_queue = np.unique(key, return_index=True, return_inverse=True)
        queues = [QueueId(texts[topics.ids[rows[k]]], int(queue_id[k])) for k in row.tolist()]
        first = np.array([self._firsts.get(topic, {}).get(number, 0) for topic, number in queues], np.int64)
        older, stored = np.full(len(queues), -1, np.int64), records.columns.ints("store_timestamp")[rows]
        np.maximum.at(older, of_queue, np.where(position < first[of_queue], position, -1))
        counts = np.bincount(of_queue, minlength=len(queues))
        order = np.argsort(of_queue, kind="stable")
        rank = np.argsort(order)
        earlier = rank - (np.cumsum(counts) - counts)[of_queue]  # records of the same queue before each, in this batch
        before, time = position[order][rank - 1], stored[order][rank - 1]
        ends = order[np.cumsum(counts) - 1]
        offsets = records.columns.ints("queue_offset")[rows]
        for queue, number in zip(queues, offsets[order[np.cumsum(counts) - counts]].tolist(), strict=True):
            self._settle(queue, number)
        after = np.where(order[rank] == ends[of_queue], -1, np.append(offsets[order], -1)[rank + 1])
        zeros = np.flatnonzero(offsets == 0)
        columns = tuple(column[zeros].tolist() for column in (of_queue, position, earlier, before, time, stored, after))
        for k, begin, count_before, previous, previous_ms, ms, follows in zip(*columns, strict=True):
            queue = queues[k]
            if ms < (previous_ms if count_before else self._times.get(queue, ms)) and begin != first[k]:
                continue  # a start has cut the record off: it is older than the records before it
            previous = previous if count_before else self._lasts.get(queue.topic, {}).get(queue.queue_id, -1)
            self._pending[queue] = begin, previous, self._counts.get(queue, 0) + count_before
            if follows >= 0:
                self._settle(queue, follows)
        self._times |= zip(queues, stored[ends].tolist(), strict=True)
        lasts = position[ends].tolist()
        for queue, one, last, count in zip(queues, older.tolist(), lasts, counts.tolist(), strict=True):
            self.older[queue.topic] = max(one, self.older.get(queue.topic, -1))
            self._lasts.setdefault(queue.topic, {})[queue.queue_id] = last
            self._counts[queue] = self._counts.get(queue, 0) + count

    def _settle(self, queue: QueueId, follows: int) -> None:
        """Accept a pending begin if queue offset 1 follows or a unit names it; else its queue offset is damaged."""
        begin, previous, in_front = self._pending.pop(queue, (-1, -1, 0))
        first = self._firsts.get(queue.topic, {}).get(queue.queue_id, 0)
        if begin >= 0 and (follows == 1 or begin == first):
            self._before[queue] = previous
            self._zeros.setdefault(queue.topic, {})[queue.queue_id] = begin
            if first in (0, begin):
                self._in_front[queue] = in_front

    def ended(self) -> _LogBegins:
        """Accept the pending begins at the end of the log."""
        for queue in list(self._pending):
            self._settle(queue, 1)
        return self

    def zeros(self) -> Iterator[tuple[QueueId, int]]:
        """Yield each queue that has records with queue offset 0, and the position of the last of them."""
        return ((QueueId(topic, n), zero) for topic, zeros in self._zeros.items() for n, zero in zeros.items())

    def begins(self, topic: str, oldest: int, in_use: int, *, partly: bool) -> dict[int, int]:
        """Where the queues of a topic that was made again begin, by queue id; empty if it was not (`QueueBegins`).

        in_use: how many queues get messages or are read. partly: some may still have units of their earlier records.
        """
        firsts, older = self._firsts.get(topic) or {}, self.older[topic]
        if not firsts:  # no unit is on disk yet: only the queue offsets in the records count
            zeros = self._zeros.get(topic, {})
            older = max((self._before[QueueId(topic, n)] for n in zeros), default=-1)
            firsts = {n: zero for n, zero in zeros.items() if zero > older and self._before[QueueId(topic, n)] >= 0}
        first = min((begin for n, begin in firsts.items() if n < in_use), default=-1)
        back = self._brought_back[topic] = {n for n in firsts if n >= in_use and self._lasts[topic].get(n, -1) < first}
        firsts = {n: begin for n, begin in firsts.items() if n not in back and (begin > older or not partly)}
        first = min(firsts.values(), default=-1)
        if not 0 <= older < first or oldest >= first or any(QueueId(topic, n) not in self._in_front for n in firsts):
            return {}
        if not (self._firsts or partly or self._others_go_on(topic, older, first)):
            return {}
        lasts, front = self._lasts[topic], self._in_front  # a queue that ended before the others began was deleted
        used = {n for n, last in lasts.items() if last > first or front.get(QueueId(topic, n), 1)}
        begins = {n: begin for n, begin in self._zeros[topic].items() if begin > older and n in used} | firsts
        return {} if any(lasts[n] > first for n in lasts.keys() - begins) else begins  # {}: a queue has just continued

    def _others_go_on(self, topic: str, low: int, high: int) -> bool:
        """Whether a queue of another topic is older than a position, and goes on behind a later one."""
        others = ((self._zeros.get(each, {}), self._lasts[each]) for each in self._lasts if each != topic)
        return any(zeros.get(n, -1) < low and high < last for zeros, lasts in others for n, last in lasts.items())

    def in_front(self, begins: Mapping[str, Mapping[int, int]]) -> dict[QueueId, int]:
        """How many records lie before the begin of each queue of these topics."""
        known = {QueueId(topic, n) for topic, numbers in begins.items() for n in numbers}
        asked = [q for q in self._counts if q.topic in begins and q.queue_id not in self._brought_back[q.topic]]
        return {q: (self._in_front if q in known else self._counts)[q] for q in asked}


def _first_of(queues: ConsumeQueues, queue: QueueId) -> int | None:
    """`QueueBegins.first` of an open store's queue."""
    try:
        with queues.open(*queue) as opened:
            unit = None if opened.first_offset else opened.unit(0)
    except NotFound:
        return None
    except (Unreadable, Unsupported):
        return 0
    if opened.first_offset or (unit and unit.pre_fill):
        return 0
    return unit.physical_offset if unit and unit.valid else -1


@dataclass(frozen=True)
class QueueBegins:
    """Where queues begin that a broker has deleted and made again, while the log keeps the records of the earlier ones:
    such a queue begins with a later record, and with queue offset 0.

    These are queues of a topic that was deleted and made again, and LMQs of LITE topics with a TTL: 5.5.1 deletes an
    LMQ that got no message for so long, as a whole. ttl_ms: the TTL of each of these topics. in_use: how many queues
    get messages or are read, of each topic that the broker knows; empty if unknown.
    """

    layout: Layout
    ttl_ms: Mapping[str, int]
    in_use: Mapping[str, int] = field(default_factory=dict)
    _firsts: dict[QueueId, int | None] = field(default_factory=dict, init=False, compare=False)
    _asked: dict[tuple[str, int], bool] = field(default_factory=dict, init=False, compare=False)

    def __call__(self, topic: str, queue_id: int, position: int) -> int:
        """Where a queue begins that has a message at log position `position`: the first record that it names;
        LARGEST_OFFSET if the queue is deleted; 0 if nothing of it was deleted, so that what it lacks is lost.
        """
        queue, ttl_ms = QueueId(topic, queue_id), self._ttl_of(topic)
        begin = self.first(queue)
        if begin is not None and 0 <= begin <= position:
            return 0
        if not ttl_ms:
            return self._in_topic(queue)
        if begin is not None and begin > 0 and self._is_number_0(topic, begin):
            return begin
        return self._young_zeros.get(topic, LARGEST_OFFSET) if begin is None else self._zeros.get(topic, 0)

    def _ttl_of(self, topic: str) -> int:
        parent = topic.removeprefix(LITE_PREFIX).partition("$")[0] if topic.startswith(LITE_PREFIX) else ""
        return self.ttl_ms.get(parent, 0)

    @property
    def left(self) -> dict[QueueId, int]:
        """By queue of a topic that was made again: how many messages, which no queue has, lie before its begin.

        Complete after a pass over the log that asks about each message; empty if no message needed the answer.
        """
        return self._made_again[1] if "_made_again" in self.__dict__ else {}

    def first(self, queue: QueueId) -> int | None:
        """The position that unit 0 of a queue names, -1 if that is not valid; 0 if the queue begins with a later unit
        or cannot be read; None if there is no queue.
        """
        if self.layout.queue_database is not None:
            return 0 if self._firsts_in_database is None else self._firsts_in_database.get(queue)
        if queue not in self._firsts:
            with self._queues() as queues:
                self._firsts[queue] = _first_of(queues, queue)
        return self._firsts[queue]

    @cached_property
    def _firsts_in_database(self) -> dict[QueueId, int | None] | None:
        """`first` of all queues of a store with a RocksDB, which is opened once; None if it cannot be read.

        A killed broker may have deleted a topic only in memory: the units are still there. A start writes other units
        over them, for records that were not dispatched and whose queue offsets begin with 0 again.
        """
        from .rocksdb import RocksdbConsumeQueues  # few stores have a RocksDB

        with suppress(Unreadable, Unsupported), self._queues() as queues:
            firsts = {QueueId(t, n): _first_of(queues, QueueId(t, n)) for t, n, _ in queues}
            if isinstance(queues, RocksdbConsumeQueues) and queues.dispatched:
                firsts |= {q: zero for q, zero in self._begins_in_log({}, queues.dispatched).zeros() if q in firsts}
            return firsts
        return None

    def _queues(self) -> closing[ConsumeQueues]:
        from .hybrid import all_queues  # imports this room's readers of a RocksDB

        return closing(all_queues(self.layout))

    @cached_property
    def _firsts_of_topics(self) -> dict[str, dict[int, int]]:
        """By topic and queue id: `first` of the queues that name a record."""
        found: dict[str, dict[int, int]] = {}
        with self._queues() as queues:
            names = [QueueId(topic, queue_id) for topic, queue_id, _ in queues]
        for queue in names:
            if (first := self.first(queue)) is not None and first >= 0:
                found.setdefault(queue.topic, {})[queue.queue_id] = first
        return found

    @cached_property
    def _oldest(self) -> int:
        return min((min(firsts.values()) for firsts in self._firsts_of_topics.values()), default=0)

    def _may_be_made_again(self, topic: str) -> bool:
        """Whether brokers delete such a topic, and other topics have older queues, or it has none yet."""
        if is_system_topic(topic):
            return False
        if firsts := self._firsts_of_topics.get(topic):
            mine = (first for n, first in firsts.items() if n < self.in_use.get(topic, LARGEST_OFFSET))
            return min(mine, default=0) > self._oldest
        known = not self.in_use or topic in self.in_use  # nobody reads the log for a deleted topic
        return known and not has_topic(self.layout.batch_consume_queue, topic)

    def _in_topic(self, queue: QueueId) -> int:
        """Where a queue of a topic that was made again begins; 0 if the topic was not, as far as its queues show."""
        found = self._made_again[0].get(queue.topic, {}) if self._may_be_made_again(queue.topic) else {}
        return found.get(queue.queue_id, min(found.values(), default=0))

    @cached_property
    def _made_again(self) -> tuple[dict[str, dict[int, int]], dict[QueueId, int]]:
        """Where queues of topics that were made again begin, by queue id, and how many messages lie before each.

        A topic was made again if each of its queues begins with queue offset 0, and all records before the first ones
        that queues name lie before all of these begins; otherwise the queues are not new, or a queue was cut. Queues
        that get no messages by topics.json, and have none behind these begins, do not count: a start after a kill makes
        them of what the topic had before. Queues of a topic without units begin with their last record of queue offset
        0, if other records lie before one of them. Queues of another topic that lack nothing must be older: otherwise
        all queues may have been lost, and made by a start. If no queue is left, one of another topic must go on in the
        log, except in a RocksDB: there a start puts units of later records over those of earlier ones. Reads the log.
        """
        seen = self._begins_in_log(self._firsts_of_topics)
        firsts = {topic: min(each.values()) for topic, each in self._firsts_of_topics.items()}
        whole = (first for topic, first in firsts.items() if not first or seen.older.get(topic, 0) < 0)
        oldest = min(whole, default=LARGEST_OFFSET if firsts else -1)
        partly = self.layout.rocksdb_queues  # a killed broker may have deleted queues only in memory
        may_be = filter(self._may_be_made_again, seen.older)
        asked = ((t, seen.begins(t, oldest, self.in_use.get(t, LARGEST_OFFSET), partly=partly)) for t in may_be)
        found = {topic: begins for topic, begins in asked if begins}
        return found, seen.in_front(found)

    def _begins_in_log(self, firsts: Mapping[str, dict[int, int]], start: int = 0) -> _LogBegins:
        """Read the log from a position on. After a start in its middle, `in_front` of the result is not valid."""
        seen = _LogBegins(firsts)
        with self._log() as log:
            for item in log.scan(max(start, log.min_offset), crc=False, reuse=True):
                if isinstance(item, Batch) and item.mark <= Mark.AFTER_DAMAGE:
                    seen.add(item)
        return seen.ended()

    def _is_number_0(self, lmq: str, position: int) -> bool:
        """Whether the record at a position has queue offset 0 in an LMQ with a TTL; each is read once."""
        if (lmq, position) not in self._asked:
            found: dict[str, tuple[int, int]] = {}
            with self._log() as log:
                if len(record := log.records(np.array([position], np.int64))):
                    self._note_lmq_records(found, record)
            self._asked[lmq, position] = found.get(lmq, (0, 0))[1] == position
        return self._asked[lmq, position]

    @contextmanager
    def _log(self) -> Iterator[CommitLog]:
        with closing(self.layout.commit_log_files()) as files:
            yield commit_log_of(self.layout, files)

    @cached_property
    def _zeros(self) -> dict[str, int]:
        """By LMQ with a TTL: the position of the last record with queue offset 0."""
        return {topic: begin for topic, (_, begin) in self._lmq_times(young=False)[0].items()}

    @cached_property
    def _young_zeros(self) -> dict[str, int]:
        """`_zeros` of LMQs with a message that is younger than their TTL, counted from the last record of the log.

        Reads only the log files that may have such messages.
        """
        found, last_ms = self._lmq_times(young=True)
        return {topic: begin for topic, (ms, begin) in found.items() if ms >= last_ms - self._ttl_of(topic)}

    def _lmq_times(self, *, young: bool) -> tuple[dict[str, tuple[int, int]], int]:
        """By LMQ with a TTL: newest store time, last position with queue offset 0. And the newest time of all (ms)."""
        found: dict[str, tuple[int, int]] = {}
        last_ms = 0
        with self._log() as log:
            for file in reversed(log.files):
                first_ms = newest_ms = 0
                for item in log.scan(file.start, file.end, crc=False, reuse=True):
                    if isinstance(item, Batch) and item.mark <= Mark.AFTER_DAMAGE:
                        stored = item.columns.ints("store_timestamp")
                        first_ms, newest_ms = first_ms or int(stored[0]), int(stored[-1])
                        self._note_lmq_records(found, item)
                last_ms = last_ms or newest_ms
                if young and 0 < first_ms < last_ms - max(self.ttl_ms.values()):
                    break
        return found, last_ms

    def _note_lmq_records(self, found: dict[str, tuple[int, int]], batch: Batch) -> None:
        """Add the records of a batch to `found`: by LMQ, newest store time and last position with queue offset 0."""
        stored, properties = batch.columns.ints("store_timestamp"), PropertyItems(batch.columns.ragged("properties"))
        named, numbers = (properties.find(n) for n in (names.INNER_MULTI_DISPATCH, names.INNER_MULTI_QUEUE_OFFSET))
        for row in np.flatnonzero(named.length > 0).tolist():
            for topic, number in zip(java_split(named[row]), java_split(numbers[row]), strict=False):
                if self._ttl_of(topic):
                    newest_ms, begin = found.get(topic, (0, 0))
                    begin = max(begin, int(batch.position[row])) if number == "0" else begin
                    found[topic] = max(newest_ms, int(stored[row])), begin
