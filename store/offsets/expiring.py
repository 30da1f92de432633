"""Which groups lose messages that they have not consumed when files of the log expire, and how many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..inspect.expiry import Going
from ..search.store import Store
from .groups import groups_of
from .lag import Lag, lags_of, queue_ends
from .positions import DELAYED, PULLED, positions_of


class Losing(NamedTuple):
    """A group that loses messages of a topic. first_ms: when the first of them goes."""

    group: str
    topic: str
    queues: int
    messages: int
    unread: int
    first_ms: int

    def to_json(self) -> dict[str, Any]:
        """Fields of the JSON."""
        return {
            "group": self.group,
            "topic": self.topic,
            "queues": self.queues,
            "messages": self.messages,
            "unread": self.unread,
            "first_timestamp": self.first_ms,
        }


def losing(store: Store, going: Sequence[Going]) -> list[Losing]:
    """Most messages first; a group that consumes on loses less. Raises Unreadable."""
    layout, version = store.layout, store.generation.version
    if not going or not layout.config.is_dir():
        return []
    ends, boundary = queue_ends(store), max(one.file.start + one.file.size for one in going)
    rows: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    groups = groups_of(layout, version)
    for lag in lags_of(positions_of(layout, version).rows, ends, groups):
        if lag.committed and lag.position.table not in (DELAYED, PULLED):
            found = _of_queue(store, lag, boundary, going)
            if found is not None:
                key = lag.position.group, lag.position.topic
                rows.setdefault(key, []).append(found)
    made = []
    for (group, topic), queues in rows.items():
        messages, unread, times = zip(*queues, strict=True)
        made.append(Losing(group, topic, len(queues), sum(messages), sum(unread), min(times)))
    return sorted(made, key=lambda one: (-one.messages, one.group, one.topic))


def _of_queue(
    store: Store, lag: Lag, boundary: int, going: Sequence[Going]
) -> tuple[int, int, int] | None:
    """Messages that go unread, all that are unread, and when the first goes; None for none."""
    first = lag.first_unread
    if first is None or lag.queue is None or store.has_batch_queues(lag.position.topic):
        return None
    with store.queues.open(lag.position.topic, lag.position.queue_id) as queue:
        behind = queue.summary(boundary, store.log_end.position).min_offset
        unit = queue.unit(first)
    if behind <= first or unit is None:
        return None
    times = (one.goes_ms for one in going if unit.physical_offset < one.file.start + one.file.size)
    return min(behind, lag.queue.max_offset) - first, lag.queue.max_offset - first, next(times)
