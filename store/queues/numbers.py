"""The queues that a store has on disk, numbered, so that columns can hold them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.derive import Columns
from ...formats.hashing import java_string
from ..broker.dispatch import LMQ_PREFIX, Dispatched
from ..broker.snapshot import Entry, QueueId, Snapshot
from ..columns.dictionary import Dictionary, KnownTopics
from .units import FileUnits

Numbers = npt.NDArray[np.uint16 | np.int64]
_LARGEST_TABLE = 1 << 24
_FEW = 1 << 16
_LOW = (1 << 32) - 1


class QueueMessages(NamedTuple):
    """Messages of a window: number of their queue, queue offset, and row of their record.

    named: some record names further queues.
    """

    queue: Numbers
    offset: npt.NDArray[np.int64]
    record: npt.NDArray[np.int64] | slice
    named: bool = False


class QueueNumbers:
    """names: of the queues; files: of each queue; its whole ones have `file_bytes`."""

    def __init__(self, files: Mapping[QueueId, tuple[Entry, ...]], file_bytes: int) -> None:
        self.names = [n for n in sorted(files) if n.queue_id >= 0 and _is_text(n.topic)]
        self._files = [files[name] for name in self.names]
        self._file_bytes = file_bytes
        own = [name for name in self.names if not name.topic.startswith(LMQ_PREFIX)]
        topics = {topic: n for n, topic in enumerate(dict.fromkeys(name.topic for name in own))}
        self._topics = KnownTopics([os.fsencode(topic) for topic in topics])
        #: Queue ids are below; a table has a row of as many for each topic.
        self._width = max((name.queue_id for name in own), default=-1) + 1
        small = len(self.names) < _FEW  # numpy sorts 16 bits in one pass
        self._numbers = np.zeros(0, np.int64)
        if len(topics) * self._width > _LARGEST_TABLE:
            self.names, self._files, self._width = [], [], 0
        else:
            table = np.full((len(topics), self._width), -1, np.int64)
            for number, name in enumerate(self.names):
                if name.topic in topics:
                    table[topics[name.topic], name.queue_id] = number
            self._numbers = table.ravel()
        self._dtype = np.dtype(np.uint16 if small else np.int64)

    @classmethod
    def of(cls, snapshot: Snapshot) -> QueueNumbers:
        """The simple queues of a store, with those of their files that stay."""
        size = snapshot.queue_file_bytes
        files = {
            name: entries
            for name, entries in snapshot.queues.items()
            if name.topic not in snapshot.batch_topics
        }
        return cls(files, size)

    def __len__(self) -> int:
        return len(self.names)

    def stream(self, number: int) -> FileUnits:
        """The units of a queue."""
        return FileUnits.of(self._files[number], self._file_bytes)

    def of_records(
        self, columns: Columns, topics: Dictionary | None = None
    ) -> QueueMessages | None:
        """Each record as a message of its own queue; None if one has none among these.

        topics: those of the records, where somebody has numbered them.
        """
        row = self._topics.numbers(columns.ragged("topic") if topics is None else topics)
        queue_id = columns.ints("queue_id")
        if row is None or (queue_id < 0).any() or (queue_id >= self._width).any():
            return None
        numbers = self._numbers[row * self._width + queue_id]
        if (numbers < 0).any():
            return None
        found: Numbers = numbers.astype(self._dtype)
        return QueueMessages(found, columns.ints("queue_offset"), slice(None))

    def of_dispatched(self, dispatched: Dispatched) -> QueueMessages | None:
        """Each unit that records would add as a message; None if one has no queue among these."""
        units = dispatched.units
        if len(dispatched.poisoned) or not len(units):
            return None
        keys, key = np.unique(units.topic_id << 32 | units.queue_id, return_inverse=True)
        names = [QueueId(dispatched.topics[k >> 32], k & _LOW) for k in keys.tolist()]
        if any(name not in self._number for name in names) or (units.queue_id < 0).any():
            return None
        numbers = np.array([self._number[name] for name in names], self._dtype)
        return QueueMessages(numbers[key], units.queue_offset, units.record, named=True)

    @cached_property
    def _number(self) -> dict[QueueId, int]:
        return {name: number for number, name in enumerate(self.names)}


def _is_text(topic: str) -> bool:
    """A record with these bytes names this directory, as Java reads them."""
    return java_string(os.fsencode(topic)) == topic
