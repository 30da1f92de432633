"""A batch of the log as checks see it: what several of them need is made once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...formats.derive import Columns
from ...formats.hashing import java_string
from ...formats.message import TRANSACTION_MASK
from ...formats.property_columns import Items
from ..columns.dictionary import Dictionary, dictionary
from ..columns.ordered import Flags, Ints
from .catalogue import Severity
from .context import Scene

if TYPE_CHECKING:
    from ..broker.dispatch import Dispatched
    from ..columns.topic_table import TopicTable
    from ..log.commit_log import Batch


LOOK = "mqstore get {store} --at {position} --format json"
"""The next command where none mends a record: who knows the message can judge it."""


class Records:
    """n records in log order. dispatched: what they add to queues and index, None for stale ones."""

    def __init__(
        self,
        batch: Batch,
        dispatched: Dispatched | None = None,
        topic_table: TopicTable | None = None,
    ) -> None:
        self.batch = batch
        self.dispatched = dispatched
        self._topic_table = topic_table

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def columns(self) -> Columns:
        """Of MESSAGE."""
        return self.batch.columns

    @property
    def position(self) -> Ints:
        """int64[n]: where each record begins in the log."""
        return self.batch.position

    @cached_property
    def ends(self) -> Ints:
        """int64[n]: log position behind each record."""
        return self.position + self.ints("total_size")

    def ints(self, name: str) -> Ints:
        """int64[n]: a number of MESSAGE."""
        return self.columns.ints(name).astype(np.int64, copy=False)

    @cached_property
    def properties(self) -> Items:
        """The items of all properties."""
        if self.dispatched is not None:
            return self.dispatched.properties
        return Items(self.columns.ragged("properties"))

    @cached_property
    def topics(self) -> Dictionary:
        """Topics as stored, each once, and which one each record has."""
        if self.dispatched is not None:
            return self.dispatched.stored_topics
        if self._topic_table is not None:
            return self._topic_table.of(self.columns.ragged("topic"))
        return dictionary(self.columns.ragged("topic"))

    @cached_property
    def topic_texts(self) -> list[str]:
        """The topics as Java reads them, in the order of `topics.values`."""
        return [java_string(value) for value in self.topics.values]

    def of_topic(self, topic: str) -> Ints:
        """Rows of one topic."""
        if topic not in self.topic_texts:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.topics.ids == self.topic_texts.index(topic))

    @cached_property
    def transaction(self) -> Ints:
        """int64[n]: the transaction bits of sys_flag."""
        bits: Ints = self.ints("sys_flag") & TRANSACTION_MASK
        return bits


def add_rows(
    scene: Scene,
    records: Records,
    code: str,
    wrong: Flags,
    text: str,
    values: Ints | None = None,
    *,
    severity: Severity | None = None,
    repair: str | None = None,
) -> None:
    """A finding of each run of wrong records; values: a number of each, told behind the text."""
    if not wrong.any():
        return

    def told(row: int) -> str:
        value = "" if values is None else f" {values[row]}"
        return f"record at {records.position[row]}: {text}{value}"

    scene.log_rows(
        code, wrong, records.position, records.ends, told, severity=severity, repair=repair
    )
