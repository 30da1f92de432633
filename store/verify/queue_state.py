"""What is known of each queue while verify goes over the log, and which queues there are."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from ..audit.messages import Messages
from ..broker.dispatch import LMQ_PREFIX
from ..broker.snapshot import QueueId, list_entries
from ..broker.topics import BATCH_QUEUES, QUEUE_TYPE, Topics
from ..columns.ordered import Ranges
from ..disk.file_queue import MappedFileQueue
from ..disk.queue_directories import queue_directories
from ..errors import NotFound, StoreError
from ..queues.read_batches import BatchConsumeQueue
from ..settings.options import options_of
from .context import Carried, Scene
from .queue_delays import Waits
from .queue_reader import QueueReader

Ints = npt.NDArray[np.int64]


@dataclass
class Missing:
    """Messages in a row that have no unit: queue offsets from `first` on, in log order.

    position, end: where the first one begins in the log and where the last one ends.
    """

    first: int
    count: int
    position: int
    end: int


_RUN = len(fields(Missing))


@dataclass
class QueueCheck:
    """One queue.

    right: queue offsets whose unit is that of the message. elsewhere: those whose unit is that of
    another message of this queue. shift: how far units lay from their place last time. waits: how
    long messages of a delay level wait.
    """

    reader: QueueReader
    #: As in `LogFacts`.
    gaps: array[int]
    right: Ranges = field(default_factory=Ranges)
    elsewhere: Ranges = field(default_factory=Ranges)
    shift: int = 0
    waits: Waits = field(default_factory=Waits)
    #: Queue offset behind the last unit that counts, once all units have been seen.
    live_end: int = 0

    @property
    def queue(self) -> QueueId:
        """Which."""
        return self.reader.queue

    @property
    def missing(self) -> Iterator[Missing]:
        """Messages of the log that have no unit."""
        values = iter(self.gaps)
        return (Missing(*row) for row in zip(values, values, values, values, strict=True))

    @property
    def missing_counts(self) -> tuple[Ints, Ints]:
        """Of `missing`, which may be millions: counts and positions, int64[n] both."""
        names = [each.name for each in fields(Missing)]
        rows = np.frombuffer(self.gaps, np.int64).reshape(-1, _RUN)
        return rows[:, names.index("count")].copy(), rows[:, names.index("position")].copy()

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
        """One that goes on from the batch before is no other one."""
        if self.gaps:
            before = Missing(*self.gaps[-_RUN:])
            if before.first + before.count == first:
                del self.gaps[-_RUN:]
                first, count, position = before.first, before.count + count, before.position
        self.gaps.extend((first, count, position, end))


@dataclass
class BatchCheck:
    """One queue of batches. next: number of the unit that the next message should have."""

    queue: QueueId
    directory: str
    units: BatchConsumeQueue
    next: int = 0
    #: Queue offset behind the last message of the log.
    end: int = 0
    missing: list[Missing] = field(default_factory=list)


@dataclass
class LeftQueues:
    """What a part of the log leaves of all queues: see `QueueCheck`."""

    right: dict[QueueId, Ranges]
    waits: dict[QueueId, Waits]


class Queues(Carried):
    """All queues of a store.

    unreadable: why there is nothing to compare with, or "".
    """

    def __init__(self, scene: Scene) -> None:
        layout = scene.store.layout
        self._scene = scene
        self.checks: dict[QueueId, QueueCheck] = {}
        self.batch_checks: dict[QueueId, BatchCheck] = {}
        self.paths = {QueueId(d.topic, d.queue_id): d.path for d in scene.store.queues}
        self.in_database = layout.rocksdb_queues
        self.unreadable = scene.store.queues_unread if self.in_database else ""
        #: Brokers of this version read queues of batches.
        self.batches = scene.profile.queues.batches
        found = queue_directories(layout.batch_consume_queue) if self.batches else ()
        self.batch_paths = {QueueId(d.topic, d.queue_id): d.path for d in found}

    @classmethod
    def fresh(cls, scene: Scene) -> Self:
        """Those of a run."""
        return cls(scene)

    def leave(self) -> LeftQueues | None:
        """The units that are right; batch queues are compared in one piece."""
        if self.batch_checks:
            return None
        checks = self.checks.items()
        waits = {queue: c.waits for queue, c in checks if c.waits != Waits()}
        return LeftQueues({queue: c.right for queue, c in checks}, waits)

    def take_on(self, scene: Scene, left: LeftQueues) -> None:
        """The units of the part are right, too."""
        del scene
        for queue, right in left.right.items():
            self.check(queue).right.add_all(right)
        for queue, waits in left.waits.items():
            self.check(queue).waits.take_on(waits)

    def wanted(self, queue: QueueId) -> bool:
        """The queue is one that is asked for."""
        scope = self._scene.scope
        if scope.topic is not None and queue.topic != scope.topic:
            return False
        return scope.queue_id is None or queue.queue_id == scope.queue_id

    def check(self, queue: QueueId) -> QueueCheck:
        """The state of one queue, on disk or not. Raises Unreadable."""
        found = self.checks.get(queue)
        if found is None:
            gaps = self._scene.log.missing.setdefault(queue, array("q"))
            found = self.checks[queue] = QueueCheck(self.reader(queue), gaps)
        return found

    def reader(self, queue: QueueId) -> QueueReader:
        """A queue as it is now, there or not. Raises Unreadable."""
        root = self._scene.store.layout.consume_queue
        path = self.paths.get(queue) or os.fspath(root / queue.topic / str(queue.queue_id))
        try:
            opened = self._scene.store.queues.open(queue.topic, queue.queue_id)
        except NotFound:
            return QueueReader(queue, path, None)
        return QueueReader(queue, path, opened, self._scene.store.rate_bytes)

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
        root = self._scene.store.layout.batch_consume_queue
        path = self.batch_paths.get(queue) or root / queue.topic / str(queue.queue_id)
        size, origin = self._scene.store.config.size("mapperFileSizeBatchConsumeQueue")
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
            topics = Topics.read(self._scene.store.layout.config)
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
        """Some queue has a file, whatever that holds."""
        paths = (*self.paths.values(), *self.batch_paths.values())
        return bool(self.in_database) or any(any(list_entries(path)) for path in paths)

    def has_directory(self, topic: str) -> bool:
        """The topic has some queue on disk."""
        return topic in self._topics_on_disk

    @cached_property
    def _topics_on_disk(self) -> frozenset[str]:
        return frozenset(queue.topic for queue in (*self.paths, *self.batch_paths))


def queues_of(scene: Scene) -> Queues:
    """The queues of a run."""
    return scene.kept(Queues, lambda: Queues(scene))


def may_have_none(scene: Scene, queue: QueueId) -> bool:
    """A light queue of a store that has no such queue: perhaps its broker makes none."""
    light = queue.topic.startswith(LMQ_PREFIX)
    return light and options_of(scene.store.layout).multi_dispatch.is_guess
