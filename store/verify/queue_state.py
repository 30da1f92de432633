"""What verify knows of each queue during the pass over the log, and which queues there are.

`Waits`: waiting messages of a broker with its own delay levels (spec 01, 1.11). The tags code of a unit in the queue of
a delay level is the time at which the message is due. The store does not contain the levels: if several messages of a
queue wait equally long, whole seconds, that is a level of the broker, though not one of the usual levels. A single
message proves nothing; whether others wait as long is known only after the pass.

`QueueReader`: the units of one queue, by queue offset or in windows. `queue_bounds`: where queues begin and end, by
their files and the log, to check offsets in files.
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
from ..audit.verified import QueueRange
from ..broker.snapshot import QueueId, known_topics, list_entries, topics_with_batches
from ..broker.system_topics import LMQ_PREFIX
from ..broker.topics import Topics
from ..columns import Ranges, runs
from ..disk.file_queue import MappedFileQueue, file_name
from ..disk.layout import queue_directories
from ..disk.lock import stream_of
from ..disk.sizes import consume_queue_size
from ..errors import Missing as MissingFile
from ..errors import NoSpace, NotFound
from ..findings.catalogue import Severity
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
LEFT_OUT = (
    "is missing: it is for the record at 0, which a broker leaves out when it fills a new RocksDB of queues (B40)"
)
"""What is told of a unit that is only in the log, or in files."""
_SINGLE_MAX = 64
"""Number of single waits to keep per queue: with more, each different, there is no level."""


class SingleWait(NamedTuple):
    """The only message with its delay: queue offset, tags code of its unit, position, and tags code of its record."""

    offset: int
    code: int
    position: int
    asked: int


@dataclass
class Waits:
    """Delays in one queue. own_ms: delays of several messages. alone: by delay, its only message."""

    own_ms: set[int] = field(default_factory=set)
    alone: dict[int, SingleWait] = field(default_factory=dict)

    def wrong(self, messages: Messages, codes: Ints, rows: Ints) -> Ints:
        """Return those of `rows`, which have no usual delay, whose delay is not explained by a level of the broker."""
        wait = codes[rows] - messages.store_timestamp[rows]
        some = np.flatnonzero((wait > 0) & (wait % _SECOND_MS == 0))
        explained = np.zeros(len(rows), np.bool_)
        times, first, count = np.unique(wait[some], return_index=True, return_counts=True)
        for wait_ms, at, of_it in zip(times.tolist(), some[first], count.tolist(), strict=True):
            row = rows[at]
            message = SingleWait(
                int(messages.offset[row]), int(codes[row]), int(messages.position[row]), int(messages.tags_code[row])
            )
            if self._is_level(wait_ms, message, of_it):
                explained |= wait == wait_ms
        return rows[~explained]

    def _is_level(self, wait_ms: int, message: SingleWait, count: int) -> bool:
        """Return whether a delay of `count` messages is or may be a level; keep a first message as alone."""
        if count > 1 or wait_ms in self.own_ms or wait_ms in self.alone:
            self.own_ms.add(wait_ms)
            self.alone.pop(wait_ms, None)
            return True
        if len(self.alone) >= _SINGLE_MAX:
            return False
        self.alone[wait_ms] = message
        return True

    def merge(self, other: Waits) -> None:
        """Add the delays in the part of the log directly behind."""
        both = self.alone.keys() & other.alone.keys()
        self.own_ms |= other.own_ms | both
        self.alone = {
            wait_ms: message for wait_ms, message in (other.alone | self.alone).items() if wait_ms not in self.own_ms
        }


class QueueReader:
    """One queue on disk, in files or in a RocksDB, or one that does not exist.

    directory: of the queue, even if it does not exist. vanished: a file was deleted while it was read, as brokers do
    when all its records have expired.
    """

    def __init__(self, queue: QueueId, directory: str, opened: ConsumeQueue | None) -> None:
        self.queue = queue
        self.directory = directory
        self.vanished = False
        self.exists = opened is not None
        nothing = MappedFileQueue((directory,), [], 0, [])
        #: Files of the queue; none if it is in a RocksDB, or does not exist.
        self.files = opened.files if opened is not None else nothing
        self._in_files = FileUnits(self.files)
        self._opened = opened

    @cached_property
    def _stream(self) -> UnitStream:
        return self._opened.stream if self._opened is not None else self._in_files

    @property
    def first_offset(self) -> int:
        """Queue offset of the first unit for which there is room."""
        return self._opened.first_offset if self._opened else 0

    def lookup(self, offsets: Ints) -> Units:
        """Return the units at queue offsets, int64[n]; zeros for missing units. Raise Unreadable."""
        try:
            return self._stream.lookup(offsets, around=True)
        except MissingFile:
            self.vanished = True
            return np.zeros(len(offsets), UNIT_DTYPE)

    def unread(self, offsets: Ints) -> Flags:
        """Return for queue offsets, int64[n], whether the unit could not be read: bool[n]."""
        return self._in_files.unread(offsets)

    def unwritten(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of queue offsets in holes of files, among those that `windows` has left out."""
        return self._in_files.unwritten(first, stop)

    def windows(self, first: int = 0) -> Iterator[tuple[int, Units]]:
        """Yield (queue offset of the first, units) from an offset on, without holes and zeros. Raise Unreadable."""
        try:
            yield from self._stream.written(first)
        except MissingFile:
            self.vanished = True

    def place(self, offset: int) -> tuple[str, int | None]:
        at = offset * UNIT_BYTES
        file = self.files.file_at(at)
        if file is not None:
            return file.path, at - file.start
        if self.files.file_size <= 0 or not 0 <= offset <= LARGEST_OFFSET:
            return self.directory, None
        start = at - at % self.files.file_size
        return os.path.join(self.directory, file_name(start)), at - start  # noqa: PTH118

    def report(
        self, findings: Findings, code: str, offsets: Ints, text: str | Callable[[int], str], **more: Any
    ) -> None:
        """Add findings about units at ascending queue offsets, int64[n]; consecutive units are one finding.

        text: of the message behind the number of the first unit, or a function of its row. more: as in `Findings.add`.
        """
        for begin, end in runs(offsets):
            first, last = int(offsets[begin]), int(offsets[end - 1])
            at = first
            while at <= last:
                stop = min(self._file_stop(at), last + 1)
                told = text if isinstance(text, str) else text(begin + at - first)
                self._add(findings, code, at, stop, told, more)
                at = stop

    def report_range(self, findings: Findings, code: str, first: int, end: int, text: str, **more: Any) -> None:
        """Add a finding about the units first ≤ k < end, one for each file."""
        while first < end:
            stop = min(self._file_stop(first), end)
            self._add(findings, code, first, stop, f" {text}", more)
            first = stop

    def _file_stop(self, offset: int) -> int:
        """Return the queue offset behind the file that has, or should have, a unit."""
        at, size = offset * UNIT_BYTES, self.files.file_size
        file = self.files.file_at(at)
        if file is not None:
            return max(offset + 1, file.end // UNIT_BYTES)
        return max(offset + 1, (at // size + 1) * size // UNIT_BYTES) if size else sys.maxsize

    def _add(self, findings: Findings, code: str, first: int, stop: int, text: str, more: dict[str, Any]) -> None:
        path, offset = self.place(first)
        length = None if offset is None else (stop - first) * UNIT_BYTES
        place: dict[str, Any] = {"offset": offset, "length": length, "count": stop - first}
        findings.add(code, path, f"{self.queue} unit {first}{text}", **self.queue._asdict(), **place, **more)


@dataclass
class MissingUnits:
    """Consecutive messages without a unit: queue offsets from `first` on, in log order.

    position, end: log position of the first one, and behind the last one.
    """

    first: int
    count: int
    position: int
    end: int


@dataclass
class QueueCheck:
    """State of one queue.

    right: queue offsets whose unit is that of the message. elsewhere: those whose unit is that of another message of
    the queue. row: the first of `right`, as far as each continues the one before. shift: how far units lay from their
    place last time. again: two messages have the same queue offset. waits: delays in the queue of a delay level.
    """

    reader: QueueReader
    #: As in `LogFacts.missing`.
    gaps: array[int]
    right: Ranges = field(default_factory=Ranges)
    elsewhere: Ranges = field(default_factory=Ranges)
    row: QueueRange | None = None
    shift: int = 0
    again: bool = False
    waits: Waits = field(default_factory=Waits)
    #: Queue offset behind the last unit that counts, set when all units have been checked.
    live_end: int = 0
    #: First queue offset and that behind the last, if all units in files are of `row`.
    bounds: tuple[int, int] | None = None

    @property
    def queue(self) -> QueueId:
        return self.reader.queue

    def of_shift(self, distance: int) -> dict[str, Any]:
        """Return options for findings about units that lie `distance` behind their places.

        Behind its place, a message reaches the groups that wait for it. No repair renumbers a queue with two messages
        of one queue offset.
        """
        if distance <= 0:
            return {}
        return {"severity": Severity.WARNING, **({"repair": ""} if self.again else {})}

    @property
    def missing(self) -> Iterator[MissingUnits]:
        """The messages of the log that have no unit."""
        values = iter(self.gaps)
        return (MissingUnits(*row) for row in zip(values, values, values, values, strict=True))

    @property
    def missing_counts(self) -> tuple[Ints, Ints]:
        """Counts and positions of `missing`, of which there may be millions: int64[n] both."""
        names = [each.name for each in fields(MissingUnits)]
        rows = np.frombuffer(self.gaps, np.int64).reshape(-1, len(names))
        return rows[:, names.index("count")].copy(), rows[:, names.index("position")].copy()

    def note_right(self, messages: Messages) -> None:
        """Note messages that have their units."""
        if not messages.in_a_row:
            self.right.add_any(messages.offset)
            return
        offset, position, last_bytes = messages.offset, messages.position, int(messages.size[-1])
        ends = int(offset[0]), int(offset[-1]) + 1, int(position[0]), int(position[-1])
        self.note_right_row(QueueRange(*ends, last_bytes))

    def note_right_row(self, row: QueueRange) -> None:
        """Note consecutive messages that have their units."""
        self.right.add_range(row.first, row.next)
        self.note_row(row)

    def note_row(self, row: QueueRange) -> None:
        """Extend `row`, if this one continues it."""
        before = self.row
        if before is None or (row.first == before.next and row.first_position > before.last_position):
            self.row = row.after(before)

    def note_missing(self, messages: Messages) -> None:
        """Note messages, in log order, that have no unit."""
        ends = messages.position + messages.size
        for begin, end in runs(messages.offset):
            place = int(messages.position[begin]), int(ends[end - 1])
            note_gaps(self.gaps, (int(messages.offset[begin]), end - begin, *place))


@dataclass
class BatchCheck:
    """State of one queue of batches. next: number of the unit that the next message should have."""

    queue: QueueId
    directory: str
    units: BatchConsumeQueue
    next: int = 0
    #: Queue offset behind the last message of the log.
    end: int = 0
    missing: list[MissingUnits] = field(default_factory=list)


class QueueStates(Mergeable):
    """All queues of a store.

    unreadable: why there are no queues to compare with, or "".
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
        return cls(context)

    def export(self) -> dict[QueueId, tuple[Ranges, QueueRange | None, Waits]] | None:
        """Return the state; None with batch queues, which must be compared from their start."""
        return None if self.batch_checks else {q: (c.right, c.row, c.waits) for q, c in self.checks.items()}

    def merge(self, context: VerifyContext, exported: dict[QueueId, tuple[Ranges, QueueRange | None, Waits]]) -> None:
        for queue, (right, row, waits) in exported.items():
            check = self.check(queue)
            check.right.add_all(right)
            check.waits.merge(waits)
            if row is not None:
                check.note_row(row)

    def in_database(self, queue: QueueId) -> bool:
        """Return whether the queue is in the RocksDB, without files."""
        return bool(self._database) and self.paths.get(queue) == self._database

    def dispatched_to(self, queue: QueueId) -> int:
        """Return the log position up to which a queue has its units: by the farthest unit of any queue in files, or by
        the row that a RocksDB has for all of its queues (spec 2.10).
        """
        found = self._context.log.dispatched
        if self.database is None:
            return found
        row = self.database.dispatched
        return max(found, row) if self.counts_in_files(queue) else row

    def counts_in_files(self, queue: QueueId) -> bool:
        """Return whether brokers read the queue from files, whatever a RocksDB has of it (spec 2.10)."""
        if self.database is None:
            return True
        hybrid = isinstance(self._context.store.queues, HybridConsumeQueues)
        return hybrid and not queue.topic.startswith(LMQ_PREFIX)

    @cached_property
    def database(self) -> RocksdbConsumeQueues | None:
        """The queues in a RocksDB, None if there is none that can be read."""
        found = self._context.store.queues
        if isinstance(found, HybridConsumeQueues):
            return found.in_database
        return found if isinstance(found, RocksdbConsumeQueues) and not self.unreadable else None

    def check(self, queue: QueueId) -> QueueCheck:
        """Return the state of one queue, which need not exist. Raise Unreadable."""
        found = self.checks.get(queue)
        if found is None:
            gaps = self._context.log.missing.setdefault(queue, array("q"))
            found = self.checks[queue] = QueueCheck(self.reader(queue), gaps)
        return found

    def reader(self, queue: QueueId) -> QueueReader:
        """Open a queue as it is now, which need not exist. Raise Unreadable."""
        root = self._context.store.layout.consume_queue
        path = self.paths.get(queue) or os.fspath(queue.below(root))
        try:
            opened = self._context.store.queues.open(queue.topic, queue.queue_id)
        except NotFound:
            return QueueReader(queue, path, None)
        return QueueReader(queue, path, opened)

    def batch_check(self, queue: QueueId) -> BatchCheck:
        """Return the state of one queue of batches, which need not exist. Raise Unreadable."""
        found = self.batch_checks.get(queue)
        if found is None:
            units = self.batch_reader(queue)
            path = self.batch_paths.get(queue) or units.files.directories[0]
            found = self.batch_checks[queue] = BatchCheck(queue, path, units, next=units.first)
        return found

    def batch_reader(self, queue: QueueId) -> BatchConsumeQueue:
        """Open a queue of batches as it is now. Raise Unreadable."""
        root = self._context.store.layout.batch_consume_queue
        path = self.batch_paths.get(queue) or queue.below(root)
        size, origin = self._context.store.config.size("mapperFileSizeBatchConsumeQueue")
        files = stream_of(self._context.store.layout, path, size if origin == "configuration" else None)
        return BatchConsumeQueue(queue.topic, queue.queue_id, files)

    def is_batch(self, queue: QueueId) -> bool:
        if queue in self.batch_paths:
            return True
        return queue not in self.paths and queue.topic in self.batch_topics

    @cached_property
    def topics(self) -> Topics | None:
        """topics.json, None if it cannot be read or names no topic."""
        return known_topics(self._context.store.layout)

    @cached_property
    def batch_topics(self) -> frozenset[str]:
        """Topics with batch queues, by topics.json."""
        return topics_with_batches(self.topics if self.batches else None, self.batch_paths)

    @property
    def any_there(self) -> bool:
        """Whether some queue has a file, or there is a RocksDB of queues."""
        paths = (*self.paths.values(), *self.batch_paths.values())
        return bool(self._database) or any(any(list_entries(path)) for path in paths)

    @cached_property
    def deleted(self) -> Callable[[str], bool]:
        """Tells whether a topic was deleted, so that its messages need no queue."""
        there = {queue.topic for queue in (*self.paths, *self.batch_paths)}
        return deleted_topics(self._context.store.layout, config_rules(self._context.profile), there)


def copy_queues(context: VerifyContext) -> None:
    """Copy all units of a store that has them only in a RocksDB: checks look them up again and again.

    Without a copy, units are read from the database one by one: if it cannot be read whole, which is reported, or if
    there is no room for a copy.
    """
    scope, layout, queues = context.scope, context.store.layout, context.store.queues
    wanted = scope.proof or context.groups & _GROUPS_WITH_UNITS
    if not wanted or scope.quick or scope.topic is not None or context.store.queues_problem:
        return
    if not isinstance(queues, RocksdbConsumeQueues):
        return
    with suppress(NoSpace):
        copied = CopiedQueues.of(queues.database, consume_queue_size(layout).value)
        if copied.whole:
            context.copied, queues.copied = copied, copied.stream


def queues_of(context: VerifyContext) -> QueueStates:
    return context.kept(QueueStates, lambda: QueueStates(context))


def may_have_none(context: VerifyContext, queue: QueueId) -> bool:
    """Return whether an LMQ may have no queue, because nothing says whether its broker makes queues of LMQs."""
    lmq = queue.topic.startswith(LMQ_PREFIX)
    return lmq and options_of(context.store.layout).multi_dispatch.is_guess


def queue_bounds(context: VerifyContext, queue: QueueId) -> tuple[int, int] | None:
    """Return (first, next) offset of a queue after the pass, None without any trace; found once. Raise Unreadable."""
    return context.kept(("queue bounds", queue), lambda: _bounds_of(context, queue))


def _bounds_of(context: VerifyContext, queue: QueueId) -> tuple[int, int] | None:
    log, bounds = context.log, _bounds_in_files(context, queue)
    if queue in log.next_offset:
        first, end = log.first_offset[queue], log.next_offset[queue]
        bounds = (first, end) if bounds is None else (min(bounds[0], first), max(bounds[1], end))
    return bounds


def _bounds_in_files(context: VerifyContext, queue: QueueId) -> tuple[int, int] | None:
    layout, queues = context.store.layout, context.store.queues
    found = queue_directories(layout.batch_consume_queue)
    batches = context.kept("batch queues", lambda: {QueueId(d.topic, d.queue_id): d.path for d in found})
    if queue in batches:
        with BatchConsumeQueue(*queue, stream_of(layout, batches[queue])) as of_batches:
            ends = of_batches.summary(context.log.start)
            return ends.min_offset, ends.max_offset
    check = queues_of(context).checks.get(queue)
    if check is not None and check.bounds is not None:
        return check.bounds
    if all(found.queue_id != queue.queue_id for found in queues.of_topic(queue.topic)):
        return None
    with queues.open(*queue) as opened:
        summary = opened.summary(context.log.start)
        return summary.min_offset, summary.max_offset
