"""Finding messages by the cheapest way there is: queue, index or scan.

Heavy modules are imported on their way only: one message by queue offset is there before numpy
would be.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from .found import Found, Note
from .selection import Selection
from .store import Store


def silent(_: str) -> None:
    """A note that nobody wants to read."""


def find(
    store: Store,
    selection: Selection,
    *,
    offset: int | None = None,
    count: int | None = None,
    reverse: bool = False,
    note: Note = silent,
) -> Iterator[Found]:
    """The messages that a selection describes, in the order of the log, of one queue in its order.

    offset, count: queue offsets offset ≤ k < offset + count of the queue that the selection names;
    without offset, or with further conditions and a count above 1, the first `count` messages that
    are wanted. Of a compaction topic the first `count` that are left at or behind offset. reverse:
    the last one first. note: told in one line each what is worth knowing: damage met, another way
    taken.

    A key or unique key is looked up in the index, and scanned for where the index lacks it; a topic
    is read through its queues; all else, a pattern of topics too, is a scan of the log, of the files that the times leave.
    Raises NotFound for an unknown topic, queue or offset, Unreadable.

    >>> from mqstore.store.search.selection import Selection
    >>> [found.message.queue_offset for found in find(store, Selection(key="key28"))]
    [3]
    """
    if selection.key is not None or selection.unique_key is not None:
        from .key_search import search_key

        return search_key(store, selection, reverse=reverse, note=note)
    if selection.one_topic is None:
        from .log_search import search_log

        return search_log(store, selection, most=count, reverse=reverse, note=note)
    if count is None or (offset is not None and (count == 1 or not selection.asks_more)):
        return _in_queues(store, selection, offset, count, reverse, note)
    first = islice(_in_queues(store, selection, offset, None, False, note), count)
    return reversed([*first]) if reverse else first


def _in_queues(
    store: Store,
    selection: Selection,
    offset: int | None,
    count: int | None,
    reverse: bool,
    note: Note,
) -> Iterator[Found]:
    """The messages of one topic, by its queues, whatever they are, or by a scan."""
    topic = selection.one_topic
    assert topic is not None
    if store.has_compaction_queues(topic):
        from .compaction import is_compaction_topic, search_compaction

        if is_compaction_topic(store, topic):
            return search_compaction(
                store, selection, offset=offset, count=count, reverse=reverse, note=note
            )
        note(f"{topic} is no compaction topic any more: compaction/ is not read")
    if not store.queues_unread and store.has_batch_queues(topic):
        from .batch_search import search_batch_queues

        return search_batch_queues(
            store, selection, offset=offset, count=count, reverse=reverse, note=note
        )
    if why := store.topic_unread(topic):
        from .log_search import search_log_queue

        note(f"{why}: scanning the log")
        return search_log_queue(
            store, selection, offset=offset, count=count, reverse=reverse, note=note
        )
    from .queue_read import MOST

    if offset is not None and count is not None and count <= MOST:
        return _few(store, selection, offset, count, reverse, note)
    from .queue_search import search_queues

    return search_queues(store, selection, offset=offset, count=count, reverse=reverse, note=note)


def _few(
    store: Store, selection: Selection, offset: int, count: int, reverse: bool, note: Note
) -> Iterator[Found]:
    from .queue_read import read_queue

    if selection.topic is None or selection.queue_id is None:
        raise ValueError("an offset needs a topic and a queue")
    read = read_queue(store, selection.topic, selection.queue_id, offset, count, note)
    wanted = (found for found in read if selection.takes(found.message, in_queue=True))
    return iter([*wanted][::-1]) if reverse else wanted


def offset_at(store: Store, topic: str, queue_id: int, time_ms: int, *, note: Note = silent) -> int:
    """The queue offset that a broker answers for a time, by scanning where no queue can be read.

    Raises NotFound for an unknown topic or queue.

    >>> offset_at(store, "orders", 0, 0)
    0
    """
    if not store.queues_unread and store.has_batch_queues(topic):
        return store.offset_at(topic, queue_id, time_ms)
    if why := store.topic_unread(topic):
        from .log_search import log_offset_at

        note(f"{why}: scanning the log")
        return log_offset_at(store, topic, queue_id, time_ms, note)
    return store.offset_at(topic, queue_id, time_ms)
