"""Retries and dead letters: what each consumer group gave back, and of which topic (spec 01, 1.6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.property_columns import Items
from ..batch import Batch
from ..found import Note
from ..recovery.groups import read_progress
from ..recovery.snapshot import QueueId
from ..store import Store
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
    found = Retries()
    for topic in _topics(store):
        kind, prefix = ("retry", RETRY) if topic.startswith(RETRY) else ("dead_letter", DEAD_LETTER)
        group = topic.removeprefix(prefix)
        for batch in topic_records(store, topic, note):
            columns = batch.columns
            times, reconsumed = columns.ints("store_timestamp"), columns.ints("reconsume_times")
            waiting = _waiting(batch, topic, group, progress)
            origins = np.array(_origins(batch))
            for origin in np.unique(origins).tolist():
                mine = origins == origin
                row = found.counts.setdefault(Key(kind, group, origin), Returned())
                row.add(times[mine], reconsumed[mine])
                if waiting is not None:
                    row.not_consumed = (row.not_consumed or 0) + int((waiting & mine).sum())
    return found


def _topics(store: Store) -> Iterator[str]:
    for topic in store.topics:
        if topic.startswith((RETRY, DEAD_LETTER)):
            yield topic


def _waiting(batch: Batch, topic: str, group: str, progress: Any) -> npt.NDArray[np.bool_] | None:
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
