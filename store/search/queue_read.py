"""A few messages of one queue by queue offset, without numpy.

`queue_search` reads many, by other conditions too; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import NotFound
from ..log.message import Message
from ..queues.read import ConsumeQueue
from .found import Found, Note, Via
from .store import Store

MOST = 64
"""More messages than so are read faster in columns."""


def read_queue(
    store: Store, topic: str, queue_id: int, offset: int, count: int, note: Note
) -> Iterator[Found]:
    """Messages with queue offsets offset ≤ k < offset + count, those that there are.

    A unit that points at no record, or at another topic's, is noted and passed over; one that
    points behind the end of the log counts as not there. Raises NotFound where the queue, or its
    unit `offset`, does not exist.
    """
    with store.queues.open(topic, queue_id) as queue:
        messages = list(_messages(store, queue, offset, count, note))
        if any(store.may_be_dead(message) for message in messages[-1:]):
            end = store.log_end.position
            messages = [message for message in messages if message.position < end]
            if not messages:
                raise _no_message(store, queue, offset)
    for message in messages:
        store.searched.add(Via.QUEUE, 1, message.store_timestamp, message.store_timestamp)
        yield Found(message, Via.QUEUE)


def _messages(
    store: Store, queue: ConsumeQueue, offset: int, count: int, note: Note
) -> Iterator[Message]:
    name = f"{queue.topic}/{queue.queue_id}"
    for number in range(offset, offset + count):
        unit = queue.unit(number)
        if unit is None or not unit.valid or unit.pre_fill:
            if number == offset:
                raise _no_message(store, queue, offset)
            return
        try:
            message = store.message_at(unit.physical_offset)
        except NotFound as error:
            note(f"message {number} of {name} is not readable: {error}")
            continue
        if message.is_of(queue.topic):
            yield message
        else:
            other = f"{message.topic}/{message.queue_id}"
            note(f"unit {number} of {name} points at a message of {other}: left out")


def _no_message(store: Store, queue: ConsumeQueue, offset: int) -> NotFound:
    """The error for an offset that is not there, with those that are."""
    summary = store.queue_summary(queue)
    there = f"it has {summary.min_offset} to {summary.max_offset - 1}"
    return NotFound(
        f"{queue.topic}/{queue.queue_id} has no message {offset}",
        hint=there if summary.max_offset > summary.min_offset else "it is empty",
    )
