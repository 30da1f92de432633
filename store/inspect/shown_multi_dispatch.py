"""enableMultiDispatch: a queue of the store has a message of another topic, which names the queue."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from ..errors import NotFound, StoreError

if TYPE_CHECKING:
    from ..disk.layout import Layout

_TOPICS_ENOUGH = 512


def shown_multi_dispatch(layout: Layout) -> str:
    """The queue that shows it, "" where none does. What cannot be read shows nothing."""
    from ...formats.message_properties import INNER_MULTI_DISPATCH
    from ..broker.dispatch import LMQ_PREFIX
    from ..log.one_record import read_message
    from ..queues.read import ConsumeQueue, queue_directories

    if layout.rocksdb_queues:
        return ""
    first: dict[str, int] = {}
    try:
        for directory in queue_directories(layout.consume_queue):
            if directory.topic.startswith(LMQ_PREFIX):
                return f"queue {directory.topic}"
            first.setdefault(directory.topic, directory.queue_id)
        with layout.commit_log_files() as log:
            for topic, queue_id in islice(first.items(), _TOPICS_ENOUGH):
                with ConsumeQueue.open(layout, topic, queue_id) as queue:
                    unit = next(queue.newest(), None)
                try:
                    message = read_message(log, unit.physical_offset) if unit else None
                except NotFound:
                    continue
                if message is None or message.topic == topic:
                    continue
                if topic in message.properties.get(INNER_MULTI_DISPATCH, "").split(","):
                    return f"queue {topic}"
    except (StoreError, OSError):
        pass
    return ""
