"""Counting messages per queue: how many, how many bytes, from when to when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..broker.snapshot import QueueId

if TYPE_CHECKING:
    from .verified import Stretch

Ints = npt.NDArray[np.int64]


@dataclass
class Share:
    """Messages of one queue that share a fate, and why."""

    queue: QueueId
    reason: str = ""
    messages: int = 0
    bytes: int = 0
    first_store_timestamp: int = 0
    last_store_timestamp: int = 0
    #: Queue offsets of the first and the last of them.
    first_offset: int = 0
    last_offset: int = 0

    def add(self, sizes: Ints, times: Ints, offsets: Ints) -> None:
        """Count messages with these record sizes, store times (ms) and queue offsets."""
        ends = (int(times.min()), int(times.max()), int(offsets.min()), int(offsets.max()))
        self.add_all(len(sizes), int(sizes.sum()), *ends)

    def add_all(self, messages: int, size: int, first: int, last: int, low: int, high: int) -> None:
        """The same: their number and bytes, the first and last time, the ends of the offsets."""
        if self.messages:
            first, last = (
                min(first, self.first_store_timestamp),
                max(last, self.last_store_timestamp),
            )
            low, high = min(low, self.first_offset), max(high, self.last_offset)
        self.first_store_timestamp, self.last_store_timestamp = first, last
        self.first_offset, self.last_offset = low, high
        self.messages += messages
        self.bytes += size

    def to_json(self) -> dict[str, Any]:
        """Fields of the JSON."""
        row: dict[str, Any] = {
            "topic": self.queue.topic,
            "queue_id": self.queue.queue_id,
            "messages": self.messages,
            "bytes": self.bytes,
            "first_store_timestamp": self.first_store_timestamp,
            "last_store_timestamp": self.last_store_timestamp,
        }
        return {**row, "reason": self.reason} if self.reason else row


@dataclass
class Tally:
    """Shares per queue and reason."""

    shares: dict[tuple[QueueId, str], Share] = field(default_factory=dict)

    def add(self, queue: QueueId, reason: str, sizes: Ints, times: Ints, offsets: Ints) -> None:
        """Count messages of a queue."""
        if len(sizes):
            self._share(queue, reason).add(sizes, times, offsets)

    def add_stretch(self, queue: QueueId, reason: str, stretch: Stretch) -> None:
        """Count messages of a queue that are in order."""
        times = (stretch.first_timestamp, stretch.last_timestamp)
        offsets = (stretch.first, stretch.next - 1)
        self._share(queue, reason).add_all(stretch.messages, stretch.bytes, *times, *offsets)

    def _share(self, queue: QueueId, reason: str) -> Share:
        return self.shares.setdefault((queue, reason), Share(queue, reason))

    @property
    def messages(self) -> int:
        """All messages counted."""
        return sum(share.messages for share in self.shares.values())

    @property
    def bytes(self) -> int:
        """Bytes of their records."""
        return sum(share.bytes for share in self.shares.values())

    @property
    def topics(self) -> int:
        """Number of different topics."""
        return len({share.queue.topic for share in self.shares.values()})

    def by_topic(self) -> Counter[str]:
        """Messages of each topic."""
        found = Counter[str]()
        for share in self.shares.values():
            found[share.queue.topic] += share.messages
        return found

    def __iter__(self) -> Iterator[Share]:
        """Shares by topic, queue and reason."""
        return iter([self.shares[key] for key in sorted(self.shares)])

    def to_json(self) -> list[dict[str, Any]]:
        """Rows of the JSON."""
        return [share.to_json() for share in self]
