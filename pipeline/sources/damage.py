"""`rocketmq-damage`: what of the commit logs of many stores cannot be read, a range a row."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ...store.arrow.ask import Ask
from ...store.arrow.damage_rows import COLUMNS, DamagePart, damage_parts, damage_rows


class DamageSource(DataSource):
    """Options `path`, `fields`, `since`, `until`, `split_bytes`, `on_damage`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-damage"

    def schema(self) -> str:
        asked = Ask.of(self.options).columns(COLUMNS, COLUMNS)
        return ", ".join(f"{name} {COLUMNS[name]}" for name in asked)

    def reader(self, schema: StructType) -> DataSourceReader:
        return DamageReader(Ask.of(self.options), tuple(schema.names))


class DamagePartition(InputPartition):
    """What one task reads."""

    def __init__(self, part: DamagePart) -> None:
        super().__init__(part)
        self.part = part


class DamageReader(DataSourceReader):
    """Reads logs for what is wrong with them. names: the columns wanted, in order."""

    def __init__(self, ask: Ask, names: tuple[str, ...]) -> None:
        self._ask = ask
        self._names = names

    def partitions(self) -> list[InputPartition]:
        """Those of a read of the log, and one for each store that cannot be read."""
        return [DamagePartition(part) for part in damage_parts(self._ask)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        assert isinstance(partition, DamagePartition)
        return damage_rows(self._ask, self._names, partition.part)
