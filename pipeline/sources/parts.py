"""What all sources have in common: something is read part by part, a part a task, and damage passed over."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...store.arrow.log_rows import Damage
from ...store.counted import counted
from ...store.search.log_search import DamageWarning


class StorePartition(InputPartition):
    """What one task reads; None: nothing."""

    def __init__(self, part: Any) -> None:
        super().__init__(part)
        self.part = part


class PartsReader(DataSourceReader):
    """parts: what there is to read; rows: those of one part. Both run in processes of Spark."""

    def __init__(self, parts: Callable[[], Sequence[Any]], rows: Callable[[Any], Iterator[pa.RecordBatch]]) -> None:
        self._parts = parts
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        """All parts; never none, since Spark would read None instead."""
        return [StorePartition(part) for part in self._parts() or [None]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        assert isinstance(partition, StorePartition)
        return iter(()) if partition.part is None else self._rows(partition.part)


class PassedOver:
    """What one task has not read of a log. first: what it met first."""

    def __init__(self) -> None:
        self.places = 0
        self.bytes = 0
        self.first: Damage | None = None

    def add(self, damage: Damage) -> None:
        """One more range."""
        self.first = self.first or damage
        self.places += 1
        self.bytes += damage.size or 0

    def tell(self) -> None:
        """A warning, which Spark prints on the stderr of the task."""
        if self.first is None:
            return
        much = f"{counted(self.bytes, 'byte')} in {counted(self.places, 'place')} passed over"
        at, why = self.first.position, self.first.reason
        told = f"{self.first.store}: {much}, from {at} on ({why}); rocketmq-damage has all of them"
        warnings.warn(told, DamageWarning, stacklevel=1)
