"""Units that a start makes of records, until its queues are given theirs: with many queues a batch of
records has few of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...formats.derive.ragged import Ints
from ..broker.dispatch import Dispatched
from ..broker.snapshot import QueueId
from ..columns import kept, order_of_pairs
from ..queues.units import UNIT_DTYPE, Units, joined


class QueueUnits(NamedTuple):
    """Units of one queue, in log order. rows: which ones they are of all that were handed out."""

    queue: QueueId
    offsets: Ints
    units: Units
    rows: Ints


class DispatchedUnits:
    """Units of all queues, in log order."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}
        self._parts: list[tuple[Ints, Ints, Units]] = []
        self._count = 0

    def add(self, dispatched: Dispatched) -> None:
        """Take what records add to queues."""
        made = dispatched.units
        units = np.zeros(len(made), UNIT_DTYPE)
        for name in UNIT_DTYPE.names or ():
            units[name] = getattr(made, name)
        numbers = [self._topics.setdefault(topic, len(self._topics)) for topic in dispatched.topics]
        keys = np.array(numbers, np.int64)[made.topic_id] << 32 | (made.queue_id & 0xFFFFFFFF)
        self._parts.append((keys, kept(made.queue_offset), units))
        self._count += len(units)

    @property
    def enough(self) -> bool:
        """So many that they are to be handed out."""
        return self._count >= _AT_ONCE

    def hand_out(self) -> Iterator[QueueUnits]:
        """All of them, a queue after the other; none are left."""
        parts, topics = self._parts, list(self._topics)
        self._topics, self._parts, self._count = {}, [], 0
        if not parts:
            return
        keys, offsets = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        if not len(keys):
            return
        units = joined([part[2] for part in parts])
        order = order_of_pairs(keys >> 32, keys & 0xFFFFFFFF)
        cuts = np.flatnonzero(np.diff(keys[order])) + 1
        for rows in np.split(order, cuts):
            key = int(keys[rows[0]])
            queue_id = (key & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
            yield QueueUnits(QueueId(topics[key >> 32], queue_id), offsets[rows], units[rows], rows)


_AT_ONCE = 1 << 18
