"""Consume queues in a RocksDB: its bounds, and queues in files beside it (I-084; spec 2.10)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from construct import ConstructError

from ...formats import rocksdb_consume_queue as formats
from ...formats.rocksdb_consume_queue import BOUNDS, MAX
from ..broker.snapshot import QueueId
from ..disk.file_queue import MappedFileQueue
from ..disk.queue_directories import queue_directories
from ..queues.read import ConsumeQueue, QueueSummary
from ..queues.read_rocksdb import RocksdbConsumeQueues
from ..queues.rocksdb import RocksDb
from ..queues.units import is_used
from .context import Scene
from .queue_reader import QueueReader
from .queue_state import Queues


def check_database(scene: Scene, queues: Queues) -> None:
    """Both kinds of queues agree where both are kept; the bounds are those of the units."""
    store = scene.store
    if not isinstance(store.queues, RocksdbConsumeQueues):
        return
    bounds = dict(_bounds(store.queues.database))
    for queue in filter(queues.wanted, sorted(queues.paths)):
        with store.queues.open(*queue) as opened:
            summary = opened.summary()
        _check_bound(scene, queue, summary, bounds.get(queue))
    for directory in queue_directories(store.layout.consume_queue):
        queue = QueueId(directory.topic, directory.queue_id)
        if queues.wanted(queue):
            _compare(scene, queues, queue, directory.path)


def _check_bound(
    scene: Scene, queue: QueueId, summary: QueueSummary, bound: tuple[int, int] | None
) -> None:
    """The greatest offset of a queue that the database tells is that of its last unit."""
    last = summary.max_offset - 1
    if summary.last_position is None or scene.live:
        return
    if bound is None:
        _add(scene, queue, f"its last unit is {last}, but no greatest offset is told")
    elif bound != (last, summary.last_position):
        told = f"the greatest offset told is {bound[0]}, of the record at {bound[1]}"
        _add(scene, queue, f"{told}; its last unit is {last}, at {summary.last_position}")


def _add(scene: Scene, queue: QueueId, text: str, count: int = 1) -> None:
    path = os.fspath(scene.store.layout.consume_queue)
    scene.findings.add(
        "I-084",
        path,
        f"{queue}: {text}",
        count=count,
        topic=queue.topic,
        queue_id=queue.queue_id,
    )


def _bounds(database: RocksDb) -> Iterator[tuple[QueueId, tuple[int, int]]]:
    """The last queue offset that the database tells of each queue, and where its record is."""
    for key, value in database.items(BOUNDS):
        try:
            name, bound = formats.BOUND_KEY.parse(key), formats.BOUND.parse(value)
        except ConstructError:
            continue  # a row of another sort: how far the log was dispatched
        if name.bound == MAX and name.topic != formats.CHECKPOINT_TOPIC:
            topic = name.topic.decode("utf-8", "surrogateescape")
            yield QueueId(topic, name.queue_id), (bound.queue_offset, bound.physical_offset)


def _compare(scene: Scene, queues: Queues, queue: QueueId, path: str) -> None:
    """The units of a queue in files are those of the database."""
    opened = ConsumeQueue(queue.topic, queue.queue_id, MappedFileQueue.open(path))
    other = queues.check(queue).reader
    for first, units in QueueReader(queue, path, opened).windows():
        offsets = first + np.flatnonzero(is_used(units))
        differs = units[offsets - first] != other.lookup(offsets)
        if differs.any():
            at = int(offsets[differs][0])
            text = f"unit {at} in {path} is another one than in the database"
            _add(scene, queue, text, int(differs.sum()))
