"""Whether a store has the topic or queue that a run is confined to: a mistyped one is never clean."""

from __future__ import annotations

import os
from difflib import get_close_matches

from ..broker.topics import Topics
from ..errors import InvalidInput, NotFound, StoreError
from ..queues.read import has_topic, queue_directories
from ..search.find import find
from ..search.selection import Selection, is_pattern
from ..search.store import Store


def check_topic(store: Store, topic: str, queue_id: int | None = None) -> None:
    """Raise InvalidInput for a topic that nothing in a store names, and for a queue that it has not.

    Directories of queues name a topic, topics.json, and where there are no queues the log.
    """
    layout = store.layout
    parts = (
        *(layout.consume_queue, layout.batch_consume_queue),
        *(layout.consume_queue_ext, layout.compaction_queues),
    )
    try:
        configured = Topics.read(layout.config)
    except StoreError:
        configured = None
    served = None if configured is None else configured.queues(topic)
    if served is None and not any(has_topic(part, topic) for part in parts):
        if _in_log(store, topic):
            return
        names = {each.name for part in parts if part.is_dir() for each in os.scandir(part)}
        near = get_close_matches(
            topic[:256], names.union(configured.known if configured else ()), 1
        )
        hint = f"did you mean {near[0]}?" if near else "mqstore inspect lists the topics"
        raise InvalidInput(f"no such topic: {topic}", path=layout.root, hint=hint)
    if queue_id is not None:
        there = {q.queue_id for part in parts for q in queue_directories(part) if q.topic == topic}
        there.update(range(served or 0))
        if queue_id not in there:
            queues = ", ".join(map(str, sorted(there)[:_SHOWN])) or "none"
            more = ", …" if len(there) > _SHOWN else ""
            raise InvalidInput(
                f"{topic} has no queue {queue_id}", path=layout.root, hint=f"it has {queues}{more}"
            )


_SHOWN = 16


def _in_log(store: Store, topic: str) -> bool:
    """Whether the log has a message of it; only asked where no queues tell."""
    if is_pattern(topic) or not store.queues_unread:
        return False
    try:
        return any(True for _ in find(store, Selection(topic=topic), count=1))
    except NotFound:
        return False
