"""A few messages of one queue by queue offset, without numpy.

`queue_search` reads many, by other conditions too; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterator

from .errors import NotFound
from .found import Found, Note, Via
from .store import Store

MOST = 64
"""More messages than so are read faster in columns."""


def read_queue(
    store: Store, topic: str, queue_id: int, offset: int, count: int, note: Note
) -> Iterator[Found]:
    """Messages with queue offsets offset ≤ k < offset + count, those that there are.

    A unit that points at no record is noted and passed over. Raises NotFound where the queue, or
    its unit `offset`, does not exist.
    """
    with store.queues.open(topic, queue_id) as queue:
        for number in range(offset, offset + count):
            unit = queue.unit(number)
            if unit is None or not unit.valid or unit.pre_fill:
                if number == offset:
                    summary = queue.summary(store.log_files.start)
                    raise NotFound(
                        f"{topic}/{queue_id} has no message {offset}",
                        hint=f"it has {summary.min_offset} to {summary.max_offset - 1}"
                        if summary.max_offset > summary.min_offset
                        else "it is empty",
                    )
                return
            try:
                message = store.message_at(unit.physical_offset)
            except NotFound as error:
                note(f"message {number} of {topic}/{queue_id} is not readable: {error}")
                continue
            if not message.is_of(topic):
                note(
                    f"unit {number} of {topic}/{queue_id} points at a message of "
                    f"{message.topic}/{message.queue_id}: left out"
                )
                continue
            yield Found(message, Via.QUEUE)
