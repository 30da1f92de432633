"""Where queues begin and end, by their files and by the log: what offsets in files are held against."""

from __future__ import annotations

from functools import cached_property

from ..broker.snapshot import QueueId
from ..disk.file_queue import MappedFileQueue
from ..disk.queue_directories import queue_directories
from ..queues.read_batches import BatchConsumeQueue
from .context import Scene


class QueueBounds:
    """First and next queue offset of each queue; asked for after the pass over the log."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._found: dict[QueueId, tuple[int, int] | None] = {}

    @cached_property
    def _batches(self) -> dict[QueueId, str]:
        found = queue_directories(self._scene.store.layout.batch_consume_queue)
        return {QueueId(queue.topic, queue.queue_id): queue.path for queue in found}

    def of(self, queue: QueueId) -> tuple[int, int] | None:
        """(first, next) queue offset, None for a queue of which there is no trace.

        Raises Unreadable.
        """
        if queue not in self._found:
            self._found[queue] = self._of(queue)
        return self._found[queue]

    def _of(self, queue: QueueId) -> tuple[int, int] | None:
        log = self._scene.log
        bounds = self._in_files(queue)
        if queue in log.next_offset:
            first, end = log.first_offset[queue], log.next_offset[queue]
            bounds = (
                (first, end) if bounds is None else (min(bounds[0], first), max(bounds[1], end))
            )
        return bounds

    def _in_files(self, queue: QueueId) -> tuple[int, int] | None:
        if queue in self._batches:
            files = MappedFileQueue.open(self._batches[queue])
            with BatchConsumeQueue(queue.topic, queue.queue_id, files) as batches:
                ends = batches.summary()
                return ends.min_offset, ends.max_offset
        queues = self._scene.store.queues
        if all(found.queue_id != queue.queue_id for found in queues.of_topic(queue.topic)):
            return None
        with queues.open(queue.topic, queue.queue_id) as opened:
            summary = opened.summary(self._scene.log.start)
            return summary.min_offset, summary.max_offset


def queue_bounds(scene: Scene) -> QueueBounds:
    """Those of this run."""
    return scene.kept("queue bounds", lambda: QueueBounds(scene))
