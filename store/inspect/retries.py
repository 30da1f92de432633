"""Retries and dead letters: what each consumer group gave back, and of which topic (spec 01, 1.6).

Of a POP consumer the name of the retry topic tells both, and nothing in the record does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats import pop
from ...formats.property_columns import Items
from ..disk.snapshot import QueueId
from ..log.batch import Batch
from ..plan.groups import Progress, read_progress
from ..search.found import Note
from ..search.store import Store
from .topic_records import topic_records

RETRY, DEAD_LETTER = "%RETRY%", "%DLQ%"
_ORIGIN = "RETRY_TOPIC"
_DEAD_ORIGIN = "DLQ_ORIGIN_TOPIC"


class Key(NamedTuple):
    """Messages that are counted together. kind: `retry` or `dead_letter`."""

    kind: str
    group: str
    original_topic: str


@dataclass
class Returned:
    """Messages that a group gave back; times in ms since 1970.

    not_consumed: behind the group's progress in this topic, None where it has none.
    """

    messages: int = 0
    not_consumed: int | None = None
    most_reconsumed: int = 0
    first_store_timestamp: int = 0
    last_store_timestamp: int = 0

    def add(self, times: npt.NDArray[Any], reconsumed: npt.NDArray[Any]) -> None:
        """Count messages by store time and times of consumption."""
        first, last = int(times.min()), int(times.max())
        self.first_store_timestamp = (
            min(first, self.first_store_timestamp) if self.messages else first
        )
        self.last_store_timestamp = max(last, self.last_store_timestamp)
        self.most_reconsumed = max(self.most_reconsumed, int(reconsumed.max()))
        self.messages += len(times)


@dataclass
class Retries:
    """Counts by kind, group and original topic."""

    counts: dict[Key, Returned] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For `inspect --retries`."""
        rows = [
            {**key._asdict(), **vars(self.counts[key])}
            for key in sorted(self.counts, key=lambda key: (key.kind, key.group, key))
        ]
        kinds = ("retry", "dead_letter")
        sums = {kind: sum(r["messages"] for r in rows if r["kind"] == kind) for kind in kinds}
        return {"type": "retries", **sums, "groups": rows}


def retries(store: Store, note: Note) -> Retries:
    """What lies in the retry and dead letter topics of a store. Raises Unreadable."""
    progress = read_progress(store.layout.config)
    groups = {group for known in progress.values() for group in known}
    found = Retries()
    for topic in _topics(store):
        kind, prefix = ("retry", RETRY) if topic.startswith(RETRY) else ("dead_letter", DEAD_LETTER)
        group = topic.removeprefix(prefix)
        popped = _of_pop(topic, store.topics, groups) if kind == "retry" else None
        for batch in topic_records(store, topic, note):
            if popped is None:
                _count(found, Key(kind, group, ""), batch, topic, progress)
                continue
            times = Items(batch.columns.ragged("properties")).find(pop.FIRST_POP_TIME)
            again = times.length > 0
            _count(found, popped, batch.take(again), topic, progress)
            _count(found, Key(kind, group, ""), batch.take(~again), topic, progress)
    return found


def _count(found: Retries, key: Key, batch: Batch, topic: str, progress: Progress) -> None:
    """Count the records of a topic that one group gave back, by the origin that `key` or they tell."""
    columns = batch.columns
    times, reconsumed = columns.ints("store_timestamp"), columns.ints("reconsume_times")
    waiting = _waiting(batch, topic, key.group, progress)
    origins = np.array([key.original_topic or origin for origin in _origins(batch)], np.str_)
    for origin in np.unique(origins).tolist():
        mine = origins == origin
        row = found.counts.setdefault(key._replace(original_topic=origin), Returned())
        row.add(times[mine], reconsumed[mine])
        if waiting is not None:
            row.not_consumed = (row.not_consumed or 0) + int((waiting & mine).sum())


def _of_pop(retry_topic: str, topics: Collection[str], groups: Collection[str]) -> Key | None:
    """Group and topic whose POP retry topic this is; None where the names do not tell."""
    rest = retry_topic.removeprefix(RETRY)
    pairs = []
    for topic in topics:
        group = rest.removesuffix(topic)[:-1]
        if group and not topic.startswith(RETRY) and retry_topic in pop.retry_topics(topic, group):
            pairs.append(Key("retry", group, topic))
    known = [pair for pair in pairs if pair.group in groups] or pairs
    return known[0] if len(known) == 1 else None


def _topics(store: Store) -> Iterator[str]:
    for topic in store.topics:
        if topic.startswith((RETRY, DEAD_LETTER)):
            yield topic


def _waiting(
    batch: Batch, topic: str, group: str, progress: Progress
) -> npt.NDArray[np.bool_] | None:
    """bool[n]: the group has not consumed the message; None where it has no progress here."""
    offsets = batch.columns.ints("queue_offset")
    queue_ids = batch.columns.ints("queue_id")
    known = False
    waiting = np.zeros(len(batch), np.bool_)
    for queue_id in np.unique(queue_ids).tolist():
        reached = progress.get(QueueId(topic, queue_id), {}).get(group)
        if reached is not None:
            known = True
            waiting |= (queue_ids == queue_id) & (offsets >= reached)
    return waiting if known else None


def _origins(batch: Batch) -> list[str]:
    """The topic that each message had first; "" where it does not tell."""
    properties = Items(batch.columns.ragged("properties"))
    dead, retried = properties.find(_DEAD_ORIGIN).tolist(), properties.find(_ORIGIN).tolist()
    return [(b or a or b"").decode("utf-8", "replace") for a, b in zip(dead, retried, strict=True)]
