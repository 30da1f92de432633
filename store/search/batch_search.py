"""Messages found through the batch consume queues of a topic, 5.x (spec 02, 2.7).

A unit names a record, which may hold several messages; each has a queue offset of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..disk.file_queue import MappedFileQueue
from ..errors import NotFound
from ..log.message import Message, messages
from ..queues.places import Places, merged
from ..queues.read import QueueDirectory, QueueSummary, no_topic, queue_directories
from ..queues.read_batches import BatchConsumeQueue, is_valid
from .found import Found, Note
from .inner_batch import unwrapped
from .log_search import CLOCK_SLACK_MS, wanted_offsets
from .queue_search import records_at
from .selection import Selection
from .store import Store


def batch_queues(store: Store, topic: str) -> list[QueueDirectory]:
    """The batch queues of a topic, by number. Raises Unreadable."""
    found = queue_directories(store.layout.batch_consume_queue)
    return [queue for queue in found if queue.topic == topic]


def open_batch_queue(store: Store, topic: str, queue_id: int) -> BatchConsumeQueue:
    """One of them. Raises NotFound, Unreadable."""
    for queue in batch_queues(store, topic):
        if queue.queue_id == queue_id:
            return BatchConsumeQueue(topic, queue_id, MappedFileQueue.open(queue.path))
    raise NotFound(f"{topic} has no queue {queue_id}", path=store.layout.batch_consume_queue)


def batch_summaries(store: Store) -> list[QueueSummary]:
    """What each batch queue holds. Raises Unreadable."""
    found = []
    for topic, queue_id, path in queue_directories(store.layout.batch_consume_queue):
        with BatchConsumeQueue(topic, queue_id, MappedFileQueue.open(path)) as queue:
            found.append(queue.summary())
    return found


def batch_message(store: Store, topic: str, queue_id: int, queue_offset: int) -> Message:
    """One message by its place in a batch queue. Raises NotFound, Unreadable."""
    with open_batch_queue(store, topic, queue_id) as queue:
        unit = queue.find(queue_offset)
    if unit is None:
        raise NotFound(f"{topic}/{queue_id} has no message {queue_offset}")
    record = store.message_at(unit.physical_offset)
    found = unwrapped(store.log.record(record.position))
    rows = np.flatnonzero(found.columns.ints("queue_offset") == queue_offset)
    if not len(rows) or not record.is_of(topic):
        raise NotFound(
            f"{topic}/{queue_id} has no message {queue_offset}: its unit points elsewhere"
        )
    return next(messages(found.take(rows[:1])))


def search_batch_queues(
    store: Store,
    selection: Selection,
    *,
    offset: int | None = None,
    count: int | None = None,
    reverse: bool = False,
    note: Note,
) -> Iterator[Found]:
    """Messages of the batch queue, or of all of the topic, that the selection names.

    offset, count: queue offsets offset ≤ k < offset + count. In one queue the order is that of the
    queue, else that of the log. Raises NotFound for an unknown topic or queue.
    """
    topic = selection.topic
    if topic is None:
        raise ValueError("a search in queues needs a topic")
    numbers = [queue.queue_id for queue in batch_queues(store, topic)]
    if not numbers:
        raise no_topic(store.layout.batch_consume_queue, topic)
    if selection.queue_id is not None:
        numbers = [selection.queue_id]
    streams = [
        batch_places(
            store,
            open_batch_queue(store, topic, number),
            selection,
            offset=offset,
            count=count,
            reverse=reverse,
        )
        for number in numbers
    ]
    places = streams[0] if selection.queue_id is not None else merged(streams, reverse=reverse)
    return records_at(
        store,
        topic,
        selection._replace(topic=None, queue_id=None),
        places,
        note,
        offsets=wanted_offsets(offset, count),
        last_first=reverse,
    )


def batch_places(
    store: Store,
    queue: BatchConsumeQueue,
    selection: Selection,
    *,
    offset: int | None = None,
    count: int | None = None,
    reverse: bool = False,
) -> Iterator[Places]:
    """Where the units of a queue point that may be of wanted messages. Raises NotFound."""
    if offset is not None and queue.find(offset) is None:
        ends = queue.summary()
        there = f"it has {ends.min_offset} to {ends.max_offset - 1}"
        raise NotFound(
            f"{queue.topic}/{queue.queue_id} has no message {offset}",
            hint=there if ends.max_offset > ends.min_offset else "it is empty",
        )
    windows = list(queue.units(queue.first, queue.stop)) if reverse else None
    times, end = selection.times, store.log_end.position
    for _, units in reversed(windows) if windows else queue.units(queue.first, queue.stop):
        first = units["msg_base_offset"]
        wanted = is_valid(units) & (units["physical_offset"] < end)
        wanted &= first + units["batch_size"] > (offset or 0)
        if offset is not None and count is not None:
            wanted &= first < offset + count
        if times.bounded:
            wanted &= units["store_time"] >= times.since_ms - CLOCK_SLACK_MS
            wanted &= units["store_time"] < times.until_ms + CLOCK_SLACK_MS
        rows = np.flatnonzero(wanted)[:: -1 if reverse else 1]
        if len(rows):
            position = units["physical_offset"][rows].astype(np.int64)
            yield Places(position, units["size"][rows].astype(np.int64))
    queue.close()
