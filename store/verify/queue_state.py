"""What is known of each queue while verify goes over the log, and which queues there are.

Waiting messages of a broker with delay levels of its own (spec 01, 1.11).

The tags code of a unit in the queue of a delay level is the time at which the message is due. The
store does not tell the levels: where several messages of a queue wait equally long, whole seconds,
that is what the broker's level is, though it is none of the usual ones. One message alone proves
nothing; whether it has company is known when the log has been read.

The units of one queue as verify reads them: by queue offset, and all that there are in windows.

Where queues begin and end, by their files and by the log: what offsets in files are held against.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from ...formats.consume_queue import UNIT_BYTES
from ...formats.derive.ragged import Flags, Ints
from ..audit.messages import Messages
from ..broker.snapshot import QueueId, list_entries
from ..broker.system_topics import LMQ_PREFIX
from ..broker.topics import BATCH_QUEUES, QUEUE_TYPE, Topics
from ..columns import Ranges, runs
from ..disk.file_queue import MappedFileQueue, file_name
from ..disk.layout import queue_directories
from ..disk.sizes import consume_queue_size
from ..errors import Missing as MissingFile
from ..errors import NoSpace, NotFound, StoreError
from ..findings.findings import Findings
from ..plan.observer import deleted_topics
from ..queues.batches import BatchConsumeQueue
from ..queues.hybrid import HybridConsumeQueues
from ..queues.read import ConsumeQueue
from ..queues.rocksdb import RocksdbConsumeQueues
from ..queues.rocksdb_copy import CopiedQueues
from ..queues.units import LARGEST_OFFSET, UNIT_DTYPE, FileUnits, Units, UnitStream
from ..settings.options import options_of
from ..start.config_load import config_rules
from .context import Mergeable, VerifyContext, note_gaps

_SECOND_MS = 1000
_GROUPS_WITH_UNITS = frozenset({"consume_queue", "start"})
_SINGLE_MAX = 64
"""Messages of a queue that are kept in mind: with more, all waiting differently, no level is at work."""


@dataclass
class Alone:
    """A message that waits as long as no other one: its queue offset, the tags code of its unit,
    where its record begins, and the code that this asks for.
    """

    offset: int
    code: int
    position: int
    asked: int


@dataclass
class Waits:
    """Of one queue. own_ms: what several messages wait. alone: the only message, by what it waits."""

    own_ms: set[int] = field(default_factory=set)
    alone: dict[int, Alone] = field(default_factory=dict)

    def wrong(self, messages: Messages, codes: Ints, rows: Ints) -> Ints:
        """Of `rows`, whose codes are none that the usual levels give, those that nothing explains."""
        wait = codes[rows] - messages.store_timestamp[rows]
        some = np.flatnonzero((wait > 0) & (wait % _SECOND_MS == 0))
        explained = np.zeros(len(rows), np.bool_)
        times, first, count = np.unique(wait[some], return_index=True, return_counts=True)
        for wait_ms, at, of_it in zip(times.tolist(), some[first], count.tolist(), strict=True):
            row = rows[at]
            message = Alone(
                int(messages.offset[row]), int(codes[row]), int(messages.position[row]), int(messages.tags_code[row])
            )
            if self._is_level(wait_ms, message, of_it):
                explained |= wait == wait_ms
        return rows[~explained]

    def _is_level(self, wait_ms: int, message: Alone, count: int) -> bool:
        """So many messages wait so long: a level, or one to keep in mind."""
        if count > 1 or wait_ms in self.own_ms or wait_ms in self.alone:
            self.own_ms.add(wait_ms)
            self.alone.pop(wait_ms, None)
            return True
        if len(self.alone) >= _SINGLE_MAX:
            return False
        self.alone[wait_ms] = message
        return True

    def merge(self, other: Waits) -> None:
        """Those of the part of the log right behind."""
        both = self.alone.keys() & other.alone.keys()
        self.own_ms |= other.own_ms | both
        self.alone = {
            wait_ms: message for wait_ms, message in (other.alone | self.alone).items() if wait_ms not in self.own_ms
        }


class QueueReader:
    """One queue on disk, in files or in a RocksDB, or one that is not there.

    directory: of the queue, there or not. vanished: a file was deleted while it was read, as a
    broker does with one whose records are all expired. rate_bytes: most bytes per second that
    `windows` reads; the page cache is then left as it was.
    """

    def __init__(
        self, queue: QueueId, directory: str, opened: ConsumeQueue | None, rate_bytes: int | None = None
    ) -> None:
        self.queue = queue
        self._rate_bytes = rate_bytes
        self.directory = directory
        self.vanished = False
        self.exists = opened is not None
        nothing = MappedFileQueue((directory,), [], 0, [])
        #: Its files; none of a queue in a RocksDB, or of one that is not there.
        self.files = opened.files if opened is not None else nothing
        self._in_files = FileUnits(self.files)
        self._opened = opened

    @cached_property
    def _stream(self) -> UnitStream:
        return self._opened.stream if self._opened is not None else self._in_files

    @property
    def first_offset(self) -> int:
        """Queue offset of the first unit there is room for."""
        return self._opened.first_offset if self._opened else 0

    def lookup(self, offsets: Ints) -> Units:
        """The units at queue offsets, int64[n]; zeros where there is none. Raises Unreadable."""
        try:
            return self._stream.lookup(offsets, around=True)
        except MissingFile:
            self.vanished = True
            return np.zeros(len(offsets), UNIT_DTYPE)

    def unread(self, offsets: Ints) -> Flags:
        """bool[n]: queue offsets, int64[n], whose units were met and cannot be read."""
        return self._in_files.unread(offsets)

    def unwritten(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Ranges of queue offsets that lie in holes, of some that `windows` has left out."""
        return self._in_files.unwritten(first, stop)

    def windows(self, first: int = 0) -> Iterator[tuple[int, Units]]:
        """All units from a queue offset on as (queue offset of the first, units), in order; holes of
        files, and what is zeros all over, left out.

        Raises Unreadable.
        """
        try:
            yield from self._stream.written(self._rate_bytes, first)
        except MissingFile:
            self.vanished = True

    def place(self, offset: int) -> tuple[str, int | None]:
        """File that holds, or should hold, a unit, and its byte there."""
        at = offset * UNIT_BYTES
        file = self.files.file_at(at)
        if file is not None:
            return file.path, at - file.start
        if self.files.file_size <= 0 or not 0 <= offset <= LARGEST_OFFSET:
            return self.directory, None
        start = at - at % self.files.file_size
        return os.path.join(self.directory, file_name(start)), at - start  # noqa: PTH118

    def report(self, findings: Findings, code: str, offsets: Ints, message: Callable[[int], str], **more: Any) -> None:
        """Findings about units at ascending queue offsets, int64[n]; those in a row are one.

        message: told of a row. more: as in `Findings.add`.
        """
        for begin, end in runs(offsets):
            first, last = int(offsets[begin]), int(offsets[end - 1])
            at = first
            while at <= last:
                stop = min(self._file_stop(at), last + 1)
                self._add(findings, code, at, stop, message(begin + at - first), more)
                at = stop

    def report_range(self, findings: Findings, code: str, first: int, end: int, text: str, **more: Any) -> None:
        """A finding about the units first ≤ k < end, one in each file."""
        while first < end:
            stop = min(self._file_stop(first), end)
            self._add(findings, code, first, stop, f"{self.queue} unit {first} {text}", more)
            first = stop

    def _file_stop(self, offset: int) -> int:
        """Queue offset behind the file that holds, or should hold, a unit."""
        at, size = offset * UNIT_BYTES, self.files.file_size
        file = self.files.file_at(at)
        if file is not None:
            return max(offset + 1, file.end // UNIT_BYTES)
        return max(offset + 1, (at // size + 1) * size // UNIT_BYTES) if size else sys.maxsize

    def _add(self, findings: Findings, code: str, first: int, stop: int, text: str, more: dict[str, Any]) -> None:
        path, offset = self.place(first)
        length = None if offset is None else (stop - first) * UNIT_BYTES
        topic, queue_id = self.queue
        place: dict[str, Any] = {"offset": offset, "length": length, "count": stop - first}
        findings.add(code, path, text, topic=topic, queue_id=queue_id, **place, **more)


@dataclass
class MissingUnits:
    """Messages in a row that have no unit: queue offsets from `first` on, in log order.

    position, end: where the first one begins in the log and where the last one ends.
    """

    first: int
    count: int
    position: int
    end: int


_RUN = len(fields(MissingUnits))


class InARow(NamedTuple):
    """Messages whose queue offsets first ≤ k < end follow one another, as their records do.

    begin, last: where the records of the first and the last one begin.
    """

    first: int
    end: int
    begin: int
    last: int

    def and_then(self, more: InARow) -> InARow:
        """With those of the log behind them, if they go on there."""
        if more.first != self.end or more.begin <= self.last:
            return self
        return InARow(self.first, more.end, self.begin, more.last)


@dataclass
class QueueCheck:
    """One queue.

    right: queue offsets whose unit is that of the message. elsewhere: those whose unit is that of another message of
    this queue. row: those of `right` that were met first, as long as each goes on behind the one before. shift: how far
    units lay from their place last time. waits: how long messages of a delay level wait.
    """

    reader: QueueReader
    #: As in `LogFacts`.
    gaps: array[int]
    right: Ranges = field(default_factory=Ranges)
    elsewhere: Ranges = field(default_factory=Ranges)
    row: InARow | None = None
    shift: int = 0
    waits: Waits = field(default_factory=Waits)
    #: Queue offset behind the last unit that counts, once all units have been seen.
    live_end: int = 0
    #: The first queue offset and that behind the last, where all units in files were seen to be of `row`.
    bounds: tuple[int, int] | None = None

    @property
    def queue(self) -> QueueId:
        """Which."""
        return self.reader.queue

    @property
    def missing(self) -> Iterator[MissingUnits]:
        """Messages of the log that have no unit."""
        values = iter(self.gaps)
        return (MissingUnits(*row) for row in zip(values, values, values, values, strict=True))

    @property
    def missing_counts(self) -> tuple[Ints, Ints]:
        """Of `missing`, which may be millions: counts and positions, int64[n] both."""
        names = [each.name for each in fields(MissingUnits)]
        rows = np.frombuffer(self.gaps, np.int64).reshape(-1, _RUN)
        return rows[:, names.index("count")].copy(), rows[:, names.index("position")].copy()

    def note_right(self, messages: Messages) -> None:
        """Messages that have their units."""
        if not messages.in_a_row:
            self.right.add_any(messages.offset)
            return
        offset, position = messages.offset, messages.position
        self.note_right_row(InARow(int(offset[0]), int(offset[-1]) + 1, int(position[0]), int(position[-1])))

    def note_right_row(self, row: InARow) -> None:
        """The same of messages in a row."""
        self.right.add_range(row.first, row.end)
        self.note_row(row)

    def note_row(self, row: InARow) -> None:
        """The next of them."""
        self.row = row if self.row is None else self.row.and_then(row)

    def note_missing(self, messages: Messages) -> None:
        """Messages, in log order, that have no unit."""
        offsets = messages.offset
        if not len(offsets):
            return
        ends = messages.position + messages.size
        breaks = (np.flatnonzero(np.diff(offsets) != 1) + 1).tolist()
        for begin, end in zip([0, *breaks], [*breaks, len(offsets)], strict=True):
            place = int(messages.position[begin]), int(ends[end - 1])
            self._note_run(int(offsets[begin]), end - begin, *place)

    def _note_run(self, first: int, count: int, position: int, end: int) -> None:
        note_gaps(self.gaps, (first, count, position, end))


@dataclass
class BatchCheck:
    """One queue of batches. next: number of the unit that the next message should have."""

    queue: QueueId
    directory: str
    units: BatchConsumeQueue
    next: int = 0
    #: Queue offset behind the last message of the log.
    end: int = 0
    missing: list[MissingUnits] = field(default_factory=list)


@dataclass
class QueuesResult:
    """What a part of the log leaves of all queues: see `QueueCheck`."""

    right: dict[QueueId, Ranges]
    rows: dict[QueueId, InARow]
    waits: dict[QueueId, Waits]


class QueueStates(Mergeable):
    """All queues of a store.

    unreadable: why there is nothing to compare with, or "".
    """

    def __init__(self, context: VerifyContext) -> None:
        layout = context.store.layout
        self._context = context
        self.checks: dict[QueueId, QueueCheck] = {}
        self.batch_checks: dict[QueueId, BatchCheck] = {}
        self.paths = {QueueId(d.topic, d.queue_id): d.path for d in context.store.queues}
        self.unreadable = context.store.queues_problem if layout.rocksdb_queues else ""
        self._database = os.fspath(layout.queue_database) if layout.queue_database else ""
        #: Brokers of this version read queues of batches, from files alone.
        self.batches = context.profile.queues.batches and not layout.queues_for_rocksdb
        found = queue_directories(layout.batch_consume_queue) if self.batches else ()
        self.batch_paths = {QueueId(d.topic, d.queue_id): d.path for d in found}

    @classmethod
    def fresh(cls, context: VerifyContext) -> Self:
        """Those of a run."""
        return cls(context)

    def export(self) -> QueuesResult | None:
        """The units that are right; batch queues are compared in one piece."""
        if self.batch_checks:
            return None
        checks = self.checks.items()
        waits = {queue: c.waits for queue, c in checks if c.waits != Waits()}
        rows = {queue: c.row for queue, c in checks if c.row is not None}
        return QueuesResult({queue: c.right for queue, c in checks}, rows, waits)

    def merge(self, context: VerifyContext, left: QueuesResult) -> None:
        """The units of the part are right, too."""
        for queue, right in left.right.items():
            self.check(queue).right.add_all(right)
        for queue, row in left.rows.items():
            self.check(queue).note_row(row)
        for queue, waits in left.waits.items():
            self.check(queue).waits.merge(waits)

    def in_database(self, queue: QueueId) -> bool:
        """The queue is one of the RocksDB, and has no files."""
        return bool(self._database) and self.paths.get(queue) == self._database

    def dispatched_to(self, queue: QueueId) -> int:
        """Position of the log before which a queue has its units: by the farthest unit of any queue in
        files, or by the row that a RocksDB has for all of its own (spec 2.10).
        """
        found = self._context.log.dispatched
        if self.database is None:
            return found
        row = self.database.dispatched
        return max(found, row) if self.counts_in_files(queue) else row

    def counts_in_files(self, queue: QueueId) -> bool:
        """Brokers go by the files of the queue, whatever a RocksDB says of it besides (spec 2.10)."""
        if self.database is None:
            return True
        hybrid = isinstance(self._context.store.queues, HybridConsumeQueues)
        return hybrid and not queue.topic.startswith(LMQ_PREFIX)

    @cached_property
    def database(self) -> RocksdbConsumeQueues | None:
        """The queues in a RocksDB, None where there is none that can be read."""
        found = self._context.store.queues
        if isinstance(found, HybridConsumeQueues):
            return found.in_database
        readable = isinstance(found, RocksdbConsumeQueues) and not self.unreadable
        return found if readable and isinstance(found, RocksdbConsumeQueues) else None

    def wanted(self, queue: QueueId) -> bool:
        """The queue is one that is asked for."""
        scope = self._context.scope
        if scope.topic is not None and queue.topic != scope.topic:
            return False
        return scope.queue_id is None or queue.queue_id == scope.queue_id

    def check(self, queue: QueueId) -> QueueCheck:
        """The state of one queue, on disk or not. Raises Unreadable."""
        found = self.checks.get(queue)
        if found is None:
            gaps = self._context.log.missing.setdefault(queue, array("q"))
            found = self.checks[queue] = QueueCheck(self.reader(queue), gaps)
        return found

    def reader(self, queue: QueueId) -> QueueReader:
        """A queue as it is now, there or not. Raises Unreadable."""
        root = self._context.store.layout.consume_queue
        path = self.paths.get(queue) or os.fspath(queue.below(root))
        try:
            opened = self._context.store.queues.open(queue.topic, queue.queue_id)
        except NotFound:
            return QueueReader(queue, path, None)
        return QueueReader(queue, path, opened, self._context.store.rate_bytes)

    def batch_check(self, queue: QueueId) -> BatchCheck:
        """The state of one queue of batches, on disk or not. Raises Unreadable."""
        found = self.batch_checks.get(queue)
        if found is None:
            units = self.batch_reader(queue)
            path = self.batch_paths.get(queue) or units.files.directories[0]
            found = self.batch_checks[queue] = BatchCheck(queue, path, units, next=units.first)
        return found

    def batch_reader(self, queue: QueueId) -> BatchConsumeQueue:
        """A queue of batches as it is now. Raises Unreadable."""
        root = self._context.store.layout.batch_consume_queue
        path = self.batch_paths.get(queue) or queue.below(root)
        size, origin = self._context.store.config.size("mapperFileSizeBatchConsumeQueue")
        files = MappedFileQueue.open(path, size if origin == "configuration" else None)
        return BatchConsumeQueue(queue.topic, queue.queue_id, files)

    def is_batch(self, queue: QueueId) -> bool:
        """The queue is one of batches."""
        if queue in self.batch_paths:
            return True
        return queue not in self.paths and queue.topic in self.batch_topics

    @cached_property
    def topics(self) -> Topics | None:
        """topics.json, None where it cannot be read or names no topic."""
        try:
            topics = Topics.read(self._context.store.layout.config)
        except StoreError:
            return None
        return topics if topics.known else None

    @cached_property
    def batch_topics(self) -> frozenset[str]:
        """Topics with batch queues, by topics.json."""
        topics = self.topics
        if topics is None or not self.batches:
            return frozenset(queue.topic for queue in self.batch_paths)
        return frozenset(t for t in topics.known if topics.attribute(t, QUEUE_TYPE) == BATCH_QUEUES)

    @property
    def any_there(self) -> bool:
        """Some queue has a file, whatever that holds, or there is a RocksDB of queues."""
        paths = (*self.paths.values(), *self.batch_paths.values())
        return bool(self._database) or any(any(list_entries(path)) for path in paths)

    @cached_property
    def deleted(self) -> Callable[[str], bool]:
        """Whether a topic was deleted: its messages need no queue."""
        there = {queue.topic for queue in (*self.paths, *self.batch_paths)}
        return deleted_topics(self._context.store.layout, config_rules(self._context.profile), there)


def copy_queues(context: VerifyContext, groups: frozenset[str]) -> None:
    """Read all units of a store that has them in a RocksDB alone: they are asked for again and again.

    Those of a database that cannot be read are looked for one by one, and told; so are all where there is
    no room for a copy.
    """
    scope, layout, queues = context.scope, context.store.layout, context.store.queues
    wanted = scope.proof or groups & _GROUPS_WITH_UNITS
    if not wanted or scope.quick or scope.topic is not None or context.store.queues_problem:
        return
    if not isinstance(queues, RocksdbConsumeQueues):
        return
    with suppress(NoSpace):
        copied = CopiedQueues.of(queues.database, consume_queue_size(layout).value)
        if copied.whole:
            context.copied, queues.copied = copied, copied.stream


def queues_of(context: VerifyContext) -> QueueStates:
    """The queues of a run."""
    return context.kept(QueueStates, lambda: QueueStates(context))


def may_have_none(context: VerifyContext, queue: QueueId) -> bool:
    """An LMQ of a store that has no such queue: perhaps its broker makes none."""
    lmq = queue.topic.startswith(LMQ_PREFIX)
    return lmq and options_of(context.store.layout).multi_dispatch.is_guess


class QueueBounds:
    """First and next queue offset of each queue; asked for after the pass over the log."""

    def __init__(self, context: VerifyContext) -> None:
        self._context = context
        self._found: dict[QueueId, tuple[int, int] | None] = {}

    @cached_property
    def _batches(self) -> dict[QueueId, str]:
        found = queue_directories(self._context.store.layout.batch_consume_queue)
        return {QueueId(queue.topic, queue.queue_id): queue.path for queue in found}

    def of(self, queue: QueueId) -> tuple[int, int] | None:
        """(first, next) queue offset, None for a queue of which there is no trace.

        Raises Unreadable.
        """
        if queue not in self._found:
            self._found[queue] = self._of(queue)
        return self._found[queue]

    def _of(self, queue: QueueId) -> tuple[int, int] | None:
        log = self._context.log
        bounds = self._in_files(queue)
        if queue in log.next_offset:
            first, end = log.first_offset[queue], log.next_offset[queue]
            bounds = (first, end) if bounds is None else (min(bounds[0], first), max(bounds[1], end))
        return bounds

    def _in_files(self, queue: QueueId) -> tuple[int, int] | None:
        if queue in self._batches:
            files = MappedFileQueue.open(self._batches[queue])
            with BatchConsumeQueue(queue.topic, queue.queue_id, files) as batches:
                ends = batches.summary(self._context.log.start)
                return ends.min_offset, ends.max_offset
        check = queues_of(self._context).checks.get(queue)
        if check is not None and check.bounds is not None:
            return check.bounds
        queues = self._context.store.queues
        if all(found.queue_id != queue.queue_id for found in queues.of_topic(queue.topic)):
            return None
        with queues.open(queue.topic, queue.queue_id) as opened:
            summary = opened.summary(self._context.log.start)
            return summary.min_offset, summary.max_offset


def queue_bounds(context: VerifyContext) -> QueueBounds:
    """Those of this run."""
    return context.kept("queue bounds", lambda: QueueBounds(context))
