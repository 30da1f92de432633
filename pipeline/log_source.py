"""The commit log as a PySpark data source: the queue units that its records give.

A row is a unit, or a range of the log whose records are lost: then `damage` is set and everything
else but `store` is null. Units are made where the log is read, so that neither bodies nor
properties cross to the JVM.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..formats.consume_queue import UNIT, UNIT_BYTES
from ..formats.derive import columns_of
from ..store.commit_log import Batch, CommitLog, ExtentKind
from ..store.delay_level import DEFAULT_LEVELS, parse_levels
from ..store.dispatch import Dispatched, dispatch
from ..store.errors import InvalidInput
from ..store.mapped_file_queue import LARGEST_START
from ..store.mark import Mark
from ..store.recovery.profiles import profile_of
from ..store.split import Split, scan_split, splits
from ..store.write.consume_queue import queue_directory
from .plan import Plan, StorePlan, split_bytes_for

DAMAGE = "damage"

_ARROW_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}
_SQL_TYPES = {"i4": "int", "i8": "bigint"}
_KEYS = {"store": "int", "topic": "string", "queue_id": "int", "file": "bigint"}
_UNIT = {column.name: _SQL_TYPES[column.type] for column in columns_of(UNIT)}
_COLUMNS = _KEYS | {"queue_offset": "bigint"} | _UNIT
_DAMAGE_FIELDS = {"position": "bigint", "size": "bigint", "reason": "string"}
_DAMAGE_TYPE = pa.struct({name: _ARROW_TYPES[type] for name, type in _DAMAGE_FIELDS.items()})

DDL = ", ".join(
    [f"{name} {type}" for name, type in _COLUMNS.items()]
    + [f"{DAMAGE} struct<{', '.join(f'{name}: {type}' for name, type in _DAMAGE_FIELDS.items())}>"]
)
SCHEMA = pa.schema(
    {name: _ARROW_TYPES[type] for name, type in _COLUMNS.items()} | {DAMAGE: _DAMAGE_TYPE}
)


class LogUnits(DataSource):
    """Option: `plan`, the job's plan as JSON."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-log-units"

    def schema(self) -> str:
        return DDL

    def reader(self, schema: StructType) -> LogReader:
        return LogReader(Plan.from_json(self.options["plan"]))


class LogPartition(InputPartition):
    """A split of the log of the store with this number in the plan."""

    def __init__(self, store: int, split: Split) -> None:
        super().__init__((store, split))
        self.store = store
        self.split = split


class LogReader(DataSourceReader):
    """Reads the logs of a plan, split by split."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def partitions(self) -> list[InputPartition]:
        """All splits: large enough to pay, small enough to give every core work."""
        total_bytes = sum(store.stop - store.start for store in self._plan.stores)
        split_bytes = split_bytes_for(total_bytes, os.cpu_count() or 1)
        found = [
            LogPartition(number, split)
            for number, store in enumerate(self._plan.stores)
            for split in splits(store.start, store.stop, split_bytes)
        ]
        return [*found] or [LogPartition(0, Split(0, 0))]  # Spark would read None instead

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        assert isinstance(partition, LogPartition)
        return rows_of(self._plan, partition.store, partition.split)


def rows_of(plan: Plan, number: int, split: Split) -> Iterator[pa.RecordBatch]:
    """Rows of `SCHEMA`: what a split of the store with this number gives. Raises Unreadable."""
    store = plan.stores[number]
    rules = profile_of(store.broker_version).dispatch
    levels = parse_levels(store.config.get("messageDelayLevel", DEFAULT_LEVELS))
    log = CommitLog.open(store.layout)
    with log.queue:
        for item in scan_split(log, split):
            if isinstance(item, Batch):
                if item.mark > Mark.AFTER_DAMAGE:
                    continue
                made = dispatch(
                    item,
                    index_tags=False,
                    index=False,
                    multi_dispatch=rules.multi_dispatch,
                    slash_names=rules.slash_names,
                    light_closed=rules.light_closed,
                    delay_levels=levels,
                )
                yield from _unit_rows(number, store, made)
            elif item.kind in (ExtentKind.DAMAGE, ExtentKind.MISSING):
                yield _damage_rows(number, [(item.position, item.size, item.reason)])


def damage_of(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """The damaged ranges in some rows: store, position, size, reason."""
    damaged = rows.filter(rows.column(DAMAGE).is_valid())
    stores = damaged.column("store").to_pylist()
    ranges = damaged.column(DAMAGE).to_pylist()
    return [{"store": s, **found} for s, found in zip(stores, ranges, strict=True)]


def _unit_rows(number: int, store: StorePlan, made: Dispatched) -> Iterator[pa.RecordBatch]:
    """Units as rows; a unit that has no place in any queue file as damage."""
    units = made.units
    nameless = np.array([not _is_directory(topic) for topic in made.topics], np.bool_)
    placeless = nameless[units.topic_id] if len(units) else np.zeros(0, np.bool_)
    placeless |= (units.queue_id < 0) | (units.queue_offset < 0)
    placeless |= units.queue_offset > LARGEST_START // UNIT_BYTES
    if placeless.any():
        lost = units.take(placeless)
        reason = "its topic, queue or queue offset has no place in a file"
        at = zip(lost.physical_offset.tolist(), lost.size.tolist(), strict=True)
        yield _damage_rows(number, [(position, size, reason) for position, size in at])
        units = units.take(~placeless)
    topic_id = pa.array(units.topic_id, pa.int32())
    columns: dict[str, npt.NDArray[np.int64] | pa.Array] = {
        "store": np.full(len(units), number),
        "topic": pa.DictionaryArray.from_arrays(topic_id, made.topics).cast(pa.string()),
        "queue_id": units.queue_id,
        "file": units.queue_offset // store.units_per_file,
        "queue_offset": units.queue_offset,
        DAMAGE: pa.nulls(len(units), _DAMAGE_TYPE),
        **{name: getattr(units, name) for name in _UNIT},
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in SCHEMA]
    yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _is_directory(topic: str) -> bool:
    try:
        queue_directory(Path(), topic, 0)
    except InvalidInput:
        return False
    return True


def _damage_rows(number: int, ranges: Sequence[tuple[int, int, str]]) -> pa.RecordBatch:
    values = [
        {"store": number, DAMAGE: dict(zip(_DAMAGE_FIELDS, found, strict=True))} for found in ranges
    ]
    return pa.RecordBatch.from_pylist(values, schema=SCHEMA)
