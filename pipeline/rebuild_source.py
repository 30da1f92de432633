"""The commit logs of a plan as PySpark data sources: units for queues, items for the index."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..store.split import Split, splits
from .plan import Plan
from .rebuild_rows import ITEMS_DDL, UNITS_DDL, item_rows, split_key, unit_rows


class LogUnits(DataSource):
    """Options: `plan`, the job's plan as JSON; `splitBytes`."""

    @classmethod
    def name(cls) -> str:
        return "mqstore-rebuild-units"

    def schema(self) -> str:
        return UNITS_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        return LogReader(Plan.from_json(self.options["plan"]), int(self.options["splitBytes"]))


class LogItems(DataSource):
    """Options: as `LogUnits`; `firsts`, the result of `first_items` as JSON."""

    @classmethod
    def name(cls) -> str:
        return "mqstore-rebuild-items"

    def schema(self) -> str:
        return ITEMS_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        plan = Plan.from_json(self.options["plan"])
        firsts = json.loads(self.options["firsts"])
        return ItemReader(plan, int(self.options["splitBytes"]), firsts)


class LogPartition(InputPartition):
    """A split of the log of the store with this number in the plan."""

    def __init__(self, store: int, split: Split) -> None:
        super().__init__((store, split))
        self.store = store
        self.split = split


class LogReader(DataSourceReader):
    """Reads the logs of a plan, split by split: rows of `rebuild_rows.UNITS`."""

    def __init__(self, plan: Plan, split_bytes: int) -> None:
        self._plan = plan
        self._split_bytes = split_bytes

    def partitions(self) -> list[InputPartition]:
        """All splits of all stores."""
        found = [
            LogPartition(number, split)
            for number, store in enumerate(self._plan.stores)
            for split in splits(store.start, store.stop, self._split_bytes)
        ]
        return [*found] or [LogPartition(0, Split(0, 0))]  # Spark would read None instead

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        assert isinstance(partition, LogPartition)
        return unit_rows(self._plan, partition.store, partition.split)


class ItemReader(LogReader):
    """The same logs: rows of `rebuild_rows.ITEMS`."""

    def __init__(self, plan: Plan, split_bytes: int, firsts: Mapping[str, int]) -> None:
        super().__init__(plan, split_bytes)
        self._firsts = firsts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        assert isinstance(partition, LogPartition)
        first = self._firsts.get(split_key(partition.store, partition.split.start), 0)
        return item_rows(self._plan, partition.store, partition.split, first)
