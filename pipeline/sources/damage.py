"""`rocketmq-damage`: what cannot be read of many stores; for commit logs a row for each range."""

from __future__ import annotations

from functools import partial

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from ...store.arrow.stores import ReadOptions
from ...store.arrow.views import COLUMNS, damage_parts, damage_rows
from .parts import PartsReader, parts_told


class DamageSource(DataSource):
    """Options `path`, `of`, `tails`, `fields`, `since`, `until`, `split_bytes`, `on_damage`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-damage"

    def schema(self) -> str:
        asked = ReadOptions.of(self.options).columns(COLUMNS, COLUMNS)
        return ", ".join(f"{name} {COLUMNS[name]}" for name in asked)

    def reader(self, schema: StructType) -> DataSourceReader:
        ask = ReadOptions.of(self.options)
        rows = partial(damage_rows, ask, tuple(schema.names))
        return PartsReader(ask, partial(parts_told, damage_parts, ask), rows)
