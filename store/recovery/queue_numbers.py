"""The queues that a store has on disk, numbered, so that columns can hold them."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ...formats.derive import Columns
from ...formats.hashing import java_string
from .known_topics import KnownTopics
from .snapshot import QueueId, Snapshot

Numbers = npt.NDArray[np.uint16 | np.int64]
_LARGEST_TABLE = 1 << 24
_FEW = 1 << 16


class QueueNumbers:
    """names: of the queues; files: path of each queue's files by their first byte in the stream."""

    def __init__(self, names: Iterable[QueueId], files: dict[QueueId, dict[int, str]]) -> None:
        self.names = [name for name in names if name.queue_id >= 0 and _is_text(name.topic)]
        self.files = [files[name] for name in self.names]
        topics = {topic: n for n, topic in enumerate(dict.fromkeys(n.topic for n in self.names))}
        self._topics = KnownTopics([os.fsencode(topic) for topic in topics])
        #: Queue ids are below; a table has a row of as many for each topic.
        self._width = max((name.queue_id for name in self.names), default=-1) + 1
        small = len(self.names) < _FEW  # numpy sorts 16 bits in one pass
        self._numbers = np.zeros(0, np.int64)
        if len(topics) * self._width > _LARGEST_TABLE:
            self.names, self.files, self._width = [], [], 0
        else:
            table = np.full((len(topics), self._width), -1, np.int64)
            for number, name in enumerate(self.names):
                table[topics[name.topic], name.queue_id] = number
            self._numbers = table.ravel()
        self._dtype = np.dtype(np.uint16 if small else np.int64)

    @classmethod
    def of(cls, snapshot: Snapshot) -> QueueNumbers:
        """The simple queues of a store."""
        files = {
            name: {int(e.name): e.path for e in entries if _is_named(e.name)}
            for name, entries in snapshot.queues.items()
            if name.topic not in snapshot.batch_topics
        }
        return cls(sorted(files), files)

    def __len__(self) -> int:
        return len(self.names)

    def of_records(self, columns: Columns) -> Numbers | None:
        """Number of each record's own queue; None if a record has none among these."""
        row = self._topics.numbers(columns.ragged("topic"))
        queue_id = columns.ints("queue_id")
        if row is None or (queue_id < 0).any() or (queue_id >= self._width).any():
            return None
        numbers = self._numbers[row * self._width + queue_id]
        if (numbers < 0).any():
            return None
        found: Numbers = numbers.astype(self._dtype)
        return found


def _is_text(topic: str) -> bool:
    """A record with these bytes names this directory, as Java reads them."""
    return java_string(os.fsencode(topic)) == topic


def _is_named(name: str) -> bool:
    return name.isascii() and name.isdigit()
