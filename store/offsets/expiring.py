"""Which groups lose messages that they have not consumed when files of the log expire, and how many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..disk.file_queue import MappedFileQueue
from ..inspect.expiry import Going
from ..queues.read import QueueSummary
from ..queues.read_batches import BatchConsumeQueue
from ..queues.units import is_valid
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
    if first is None or lag.queue is None:
        return None
    batched = store.has_batch_queues(lag.position.topic)
    behind, place = (_batches if batched else _units)(store, lag.queue, first, boundary)
    if behind <= first or place is None:
        return None
    times = (one.goes_ms for one in going if place < one.file.start + one.file.size)
    return min(behind, lag.queue.max_offset) - first, lag.queue.max_offset - first, next(times)


def _units(store: Store, queue: QueueSummary, first: int, boundary: int) -> tuple[int, int | None]:
    """The first offset whose record lies behind `boundary`, and where that of `first` is."""
    with store.queues.open(queue.topic, queue.queue_id) as opened:
        behind = opened.summary(boundary, store.log_end.position).min_offset
        unit = opened.unit(first)
    return behind, None if unit is None else unit.physical_offset


def _batches(
    store: Store, queue: QueueSummary, first: int, boundary: int
) -> tuple[int, int | None]:
    """The same of a batch queue."""
    path = store.layout.batch_consume_queue / queue.topic / str(queue.queue_id)
    behind = queue.min_offset
    with BatchConsumeQueue(queue.topic, queue.queue_id, MappedFileQueue.open(path)) as batches:
        for _, units in batches.units(batches.first, batches.stop):
            gone = units[is_valid(units) & (units["physical_offset"] < boundary)]
            if len(gone):
                ends = gone["msg_base_offset"].astype(np.int64) + gone["batch_size"]
                behind = max(behind, int(ends.max()))
        batch = batches.find(first)
    return behind, None if batch is None else batch.physical_offset
