"""Sources of files other than the log: units, items, timers, offsets and findings as rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from ...store.arrow import tables
from ...store.arrow.log_rows import Damage
from ...store.arrow.stores import ReadOptions
from ...store.search.log_search import DamageWarning
from .parts import PartsReader


class TableSource(DataSource):
    """Options: those of `ReadOptions`; `since`, `body` and the like have no effect here."""

    table: ClassVar[tables.Table]
    format: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        return cls.format

    def schema(self) -> str:
        asked = tables.columns_asked(self.table, ReadOptions.of(self.options))
        return ", ".join(f"{name} {sql}" for name, sql in asked.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        return reader_of(self.table, ReadOptions.of(self.options), tuple(schema.names))


def reader_of(table: tables.Table, ask: ReadOptions, names: tuple[str, ...]) -> PartsReader:
    """Return a reader of a table of stores. names: the wanted columns, in order."""
    return PartsReader(ask, partial(tables.parts_of, table, ask), partial(_rows, table, ask, names))


def _rows(
    table: tables.Table, ask: ReadOptions, names: tuple[str, ...], part: tables.TablePart
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one part; warn of what cannot be read."""
    unread: list[Damage] = []
    yield from tables.table_rows(table, ask, names, part, unread.append)
    if unread:
        more = "" if len(unread) == 1 else f", and {len(unread) - 1} more"
        message = f"{unread[0].store}: not read: {unread[0].reason}{more}"
        hint = f"rocketmq-damage has all of them with of={table.of}"
        warnings.warn(f"{message}; {hint}", DamageWarning, stacklevel=1)


class QueueSource(TableSource):
    """Options `path`, `topics`, `queue_id`, `fields`, `on_damage`."""

    table, format = tables.QueueTable(), "rocketmq-queue"


class IndexSource(TableSource):
    """Options `path`, `fields`, `on_damage`."""

    table, format = tables.IndexTable(), "rocketmq-index"


class TimerSource(TableSource):
    """Options `path`, `fields`, `on_damage`."""

    table, format = tables.TimerTable(), "rocketmq-timer"


class OffsetSource(TableSource):
    """Options `path`, `fields`, `tables`, `on_damage`."""

    table, format = tables.OffsetTable(), "rocketmq-offsets"


class LagSource(TableSource):
    """Options `path`, `fields`, `tables`, `on_damage`."""

    table, format = tables.LagTable(), "rocketmq-lag"


class FindingSource(TableSource):
    """Options `path`, `fields`, `quick`, `on_damage`."""

    table, format = tables.FindingTable(), "rocketmq-findings"
