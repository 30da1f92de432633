"""Sources of files other than the log: units, items, timers, offsets and findings as rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from ...store.arrow.ask import Ask
from ...store.arrow.finding_table import FindingTable
from ...store.arrow.index_table import IndexTable
from ...store.arrow.lag_table import LagTable
from ...store.arrow.offset_table import OffsetTable
from ...store.arrow.queue_table import QueueTable
from ...store.arrow.table import Table, TablePart, columns_asked, parts_of, table_rows
from ...store.arrow.timer_table import TimerTable


class TableSource(DataSource):
    """Options: those of `Ask`, of which `since`, `body` and the like mean nothing here."""

    table: ClassVar[Table]

    def schema(self) -> str:
        asked = columns_asked(self.table, Ask.of(self.options))
        return ", ".join(f"{name} {sql}" for name, sql in asked.items())

    def reader(self, schema: StructType) -> TableReader:
        return TableReader(self.table, Ask.of(self.options), tuple(schema.names))


class TablePartition(InputPartition):
    """One part of one store."""

    def __init__(self, part: TablePart) -> None:
        super().__init__((part.root, part.part))
        self.part = part


class TableReader(DataSourceReader):
    """Reads a table of stores, part by part. names: the columns wanted, in order."""

    def __init__(self, table: Table, ask: Ask, names: tuple[str, ...]) -> None:
        self._table = table
        self._ask = ask
        self._names = names

    def partitions(self) -> list[InputPartition]:
        """All parts of all stores; never none, since Spark would read None instead."""
        found = parts_of(self._table, self._ask) or [TablePart("", None)]
        return [TablePartition(part) for part in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        assert isinstance(partition, TablePartition)
        return table_rows(self._table, self._ask, self._names, partition.part)


class QueueSource(TableSource):
    """Options `path`, `topics`, `queue_id`, `fields`, `on_damage`."""

    table = QueueTable()

    @classmethod
    def name(cls) -> str:
        return "rocketmq-queue"


class IndexSource(TableSource):
    """Options `path`, `fields`, `on_damage`."""

    table = IndexTable()

    @classmethod
    def name(cls) -> str:
        return "rocketmq-index"


class TimerSource(TableSource):
    """Options `path`, `fields`, `on_damage`."""

    table = TimerTable()

    @classmethod
    def name(cls) -> str:
        return "rocketmq-timer"


class OffsetSource(TableSource):
    """Options `path`, `fields`, `tables`, `on_damage`."""

    table = OffsetTable()

    @classmethod
    def name(cls) -> str:
        return "rocketmq-offsets"


class LagSource(TableSource):
    """Options `path`, `fields`, `tables`, `on_damage`."""

    table = LagTable()

    @classmethod
    def name(cls) -> str:
        return "rocketmq-lag"


class FindingSource(TableSource):
    """Options `path`, `fields`, `quick`, `on_damage`."""

    table = FindingTable()

    @classmethod
    def name(cls) -> str:
        return "rocketmq-findings"
