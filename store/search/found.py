"""Messages that a search found, and how."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from ..disk.file_queue import MappedFileQueue
from ..log.message import Message

if TYPE_CHECKING:
    from ..log.batch import Batch

Note = Callable[[str], None]
"""Told in one line what is worth knowing about an answer: damage met, another way taken."""


class Via(StrEnum):
    """How a message was found."""

    ADDRESS = "address"
    QUEUE = "queue"
    INDEX = "index"
    SCAN = "scan"


class Searched:
    """What was looked at for an answer, for those who get none.

    records: how many, by each way there. first_ms, last_ms: when the first and the last of them
    were stored. units: of queues, which tell time and tag of a record that was not read. index_files,
    index_items: what was asked for a key.
    """

    def __init__(self) -> None:
        self.records: dict[Via, int] = {}
        self.units = self.index_files = self.index_items = 0
        self.first_ms: int | None = None
        self.last_ms: int | None = None

    def add(self, via: Via, count: int, first_ms: int, last_ms: int) -> None:
        """So many records more, stored between these times."""
        self.records[via] = self.records.get(via, 0) + count
        self.first_ms = first_ms if self.first_ms is None else min(self.first_ms, first_ms)
        self.last_ms = last_ms if self.last_ms is None else max(self.last_ms, last_ms)

    def add_batch(self, via: Via, batch: Batch) -> None:
        """The records of a batch more."""
        if len(batch):
            stored = batch.columns.ints("store_timestamp")
            self.add(via, len(batch), int(stored.min()), int(stored.max()))


class Found(NamedTuple):
    """A message, and how it was found. log: where its position is one, if not in the commit log."""

    message: Message
    via: Via
    log: MappedFileQueue | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Where the message is: position in the log, and number inside of a batch record, else -1."""
        inner = self.message.inner
        return self.message.position, -1 if inner is None else inner.number
