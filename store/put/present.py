"""Which messages a store has already: what `put --resume` leaves out.

A message is known again by topic, queue and unique key. A store may well have it more than once
(retries, the life of a transaction), so they are counted: the first n of them are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...formats.derive import Ragged
from ...formats.derive.ragged import Flags, Ints
from ...formats.message_properties import UNIQ_KEY, parse
from ...formats.property_columns import Items, joined
from ..disk.layout import Layout
from ..log.commit_log import Batch, CommitLog
from ..log.message import Mark
from .new_message import NewMessage, NoKeys

_SEPARATOR = b"\0"
_GOOD = (Mark.NONE, Mark.AFTER_DAMAGE)


class PresentKeys:
    """Counts of messages by topic, queue and unique key. Memory: that of the keys."""

    def __init__(self) -> None:
        self._left: dict[bytes, int] = {}

    @classmethod
    def of(cls, layout: Layout) -> PresentKeys:
        """Those of a store, read from its log once."""
        present = cls()
        for item in CommitLog.open(layout).scan(crc=False, reuse=True):
            if isinstance(item, Batch) and item.mark in _GOOD:
                columns = item.columns
                keys = Items(columns.ragged("properties")).find(UNIQ_KEY)
                present._add(columns.ragged("topic"), columns.ints("queue_id"), keys)
        return present

    def _add(self, topics: Ragged, queue_ids: Ints, keys: Ragged) -> None:
        left = self._left
        rows = np.flatnonzero(keys.length > 0)
        for name in _names(topics[rows], queue_ids[rows], keys[rows]):
            left[name] = left.get(name, 0) + 1

    def lacks(self, columns: Mapping[str, Any]) -> Flags:
        """Which rows the store does not have; one without a unique key it never has."""
        keys = Items(columns["properties"]).find(UNIQ_KEY)
        queue_ids = np.zeros(len(keys), np.int64) + columns.get("queue_id", 0)
        names = _names(columns["topic"], queue_ids, keys)
        return np.array([not self._take(name) for name in names], np.bool_)

    def has(self, message: NewMessage) -> bool:
        """Whether the store has a message. Raises InvalidInput for one without a unique key."""
        key = parse(message.properties).get(UNIQ_KEY) or NoKeys().next()
        parts = (message.topic, key.encode("utf-8", "surrogatepass"), b"%d" % message.queue_id)
        return self._take(_SEPARATOR.join(parts))

    def _take(self, name: bytes) -> bool:
        left = self._left.get(name, 0)
        if left:
            self._left[name] = left - 1
        return left > 0


def _names(topics: Ragged, queue_ids: Ints, keys: Ragged) -> list[bytes]:
    separators = Ragged.repeat(_SEPARATOR, len(keys))
    queues = Ragged.of([b"%d" % queue_id for queue_id in queue_ids.tolist()])
    return joined([topics, separators, keys, separators, queues]).tolist()
