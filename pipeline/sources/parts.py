"""What all sources have in common: something is read part by part, a part a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition


class Part(InputPartition):
    """What one task reads; None: nothing."""

    def __init__(self, part: Any) -> None:
        super().__init__(part)
        self.part = part


class PartsReader(DataSourceReader):
    """parts: what there is to read; rows: those of one part. Both run in processes of Spark."""

    def __init__(
        self,
        parts: Callable[[], Sequence[Any]],
        rows: Callable[[Any], Iterator[pa.RecordBatch]],
    ) -> None:
        self._parts = parts
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        """All parts; never none, since Spark would read None instead."""
        return [Part(part) for part in self._parts() or [None]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        assert isinstance(partition, Part)
        return iter(()) if partition.part is None else self._rows(partition.part)
