"""Messages found through the consume queues of a topic.

Messages found through the batch consume queues of a topic, 5.x (spec 02, 2.7).

A unit names a record, which may hold several messages; each has a queue offset of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...formats import message_properties as names
from ...formats.derive.ragged import Flags
from ...formats.hashing import tags_code
from ...formats.property_columns import find as find_property
from ..broker.system_topics import SCHEDULE_TOPIC
from ..counted import counted
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import QueueDirectory, no_topic, queue_directories
from ..errors import NotFound
from ..log.batch import messages, unwrapped
from ..log.commit_log import Batch
from ..log.message import Message
from ..queues.read import ConsumeQueue, first_at, offset_at
from ..queues.read_batches import BatchConsumeQueue
from ..queues.references import Places, batches, merged, of_queue
from ..queues.units import is_valid
from .log_search import CLOCK_SLACK_MS, found_in, wanted_offsets
from .selection import Selection, equal, utf8
from .store import Found, Note, Store, Via


def search_queues(
    store: Store,
    selection: Selection,
    *,
    offset: int | None = None,
    count: int | None = None,
    reverse: bool = False,
    note: Note,
) -> Iterator[Found]:
    """Messages of the queue, or of all queues of the topic, that the selection names.

    offset, count: queue offsets offset ≤ k < offset + count of each queue, all by default. In one
    queue the order is that of the queue, else that of the log. Raises NotFound for an unknown topic
    or queue.
    """
    topic = selection.topic
    if topic is None:
        raise ValueError("a search in queues needs a topic")
    numbers = [selection.queue_id] if selection.queue_id is not None else _queues(store, topic)
    streams = [
        _places(store, store.queues.open(topic, number), selection, offset, count, reverse)
        for number in numbers
    ]
    places = streams[0] if selection.queue_id is not None else merged(streams, reverse=reverse)
    selection = selection._replace(topic=None, queue_id=None)
    return records_at(store, topic, selection, places, note, last_first=reverse)


def _queues(store: Store, topic: str) -> list[int]:
    found = [queue.queue_id for queue in store.queues.of_topic(topic)]
    if not found:
        raise no_topic(store.layout.consume_queue, topic)
    return found


def _places(
    store: Store,
    queue: ConsumeQueue,
    selection: Selection,
    offset: int | None,
    count: int | None,
    reverse: bool,
) -> Iterator[Places]:
    """Where the units of a queue point that may be of wanted messages."""
    summary = store.queue_summary(queue)
    start = summary.min_offset if offset is None else max(offset, queue.first_offset)
    stop = summary.max_offset if count is None else min(summary.max_offset, start + count)
    times = selection.times
    if times.bounded:
        since_ms, until_ms = times.since_ms - CLOCK_SLACK_MS, times.until_ms + CLOCK_SLACK_MS
        start = max(start, first_at(queue, summary, since_ms, store.store_time))
        stop = min(stop, first_at(queue, summary, until_ms, store.store_time))
    codes = [tags_code(tag) for tag in selection.tags if queue.topic != SCHEDULE_TOPIC]
    end = store.log_end.position
    store.searched.units += max(0, stop - start)
    return of_queue(queue, start, stop, log_end=end, tags_codes=codes, reverse=reverse)


def records_at(
    store: Store,
    topic: str,
    selection: Selection,
    stream: Iterator[Places],
    note: Note,
    *,
    offsets: tuple[int, int] | None = None,
    last_first: bool = False,
) -> Iterator[Found]:
    """The wanted ones of the records at the places that queues of `topic` name, in that order.

    offsets, last_first: as for `Selection.wanted`.
    """
    lost = foreign = 0
    first_lost = None
    for window in stream:
        for places, batch in batches(store.log, window):
            if len(batch) < len(places):
                lost += len(places) - len(batch)
                missing = np.setdiff1d(places.position, batch.position)
                first_lost = int(missing[0]) if first_lost is None else first_lost
            own = of_topic(batch, topic)
            foreign += int(np.count_nonzero(~own))
            kept = batch.take(own)
            store.searched.add_batch(Via.QUEUE, kept)
            wanted = selection.wanted(kept, offsets=offsets, last_first=last_first)
            yield from found_in(wanted, Via.QUEUE)
    if lost:
        points = counted(lost, f"unit of {topic} points", f"units of {topic} point")
        note(f"{points} at no record, the first at {first_lost}: left out")
    if foreign:
        points = counted(foreign, f"unit of {topic} points", f"units of {topic} point")
        note(f"{points} at messages of other topics: left out")


def of_topic(batch: Batch, topic: str) -> Flags:
    """bool[n]: the record is of the topic, or was dispatched to it besides (spec 2.9)."""
    columns = batch.columns
    own = equal(columns.ragged("topic"), utf8(topic))
    others = np.flatnonzero(~own)
    if len(others):
        texts = find_property(columns.ragged("properties")[others], names.INNER_MULTI_DISPATCH)
        name = utf8(topic)
        own[others] = [name in text.split(b",") for text in texts.tolist()]
    return own


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


def queue_offset_at(store: Store, topic: str, queue_id: int, time_ms: int) -> int:
    """The queue offset that a broker answers for a time. Raises NotFound for no such queue."""
    if store.has_batch_queues(topic):
        with open_batch_queue(store, topic, queue_id) as batches:
            return batches.offset_at(time_ms)
    with store.queues.open(topic, queue_id) as queue:
        return offset_at(
            queue,
            store.queue_summary(queue),
            time_ms,
            store.store_time,
            log_start=store.log_files.start,
            broker_4=store.broker_4,
        )
