"""Messages found through the consume queues of a topic."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...formats import message_properties as names
from ...formats.hashing import tags_code
from ...formats.property_columns import find as find_property
from ..broker.delay_level import SCHEDULE_TOPIC
from ..counted import counted
from ..log.commit_log import Batch
from ..queues.offset_at import first_at
from ..queues.places import Places, batches, merged, of_queue
from ..queues.read import ConsumeQueue, no_topic
from .found import Found, Note, Via
from .log_search import CLOCK_SLACK_MS, found_in
from .selection import Selection, equal, utf8
from .store import Store


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


def of_topic(batch: Batch, topic: str) -> npt.NDArray[np.bool_]:
    """bool[n]: the record is of the topic, or was dispatched to it besides (spec 2.9)."""
    columns = batch.columns
    own = equal(columns.ragged("topic"), utf8(topic))
    others = np.flatnonzero(~own)
    if len(others):
        texts = find_property(columns.ragged("properties")[others], names.INNER_MULTI_DISPATCH)
        name = utf8(topic)
        own[others] = [name in text.split(b",") for text in texts.tolist()]
    return own
