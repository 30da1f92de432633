"""`rocketmq-log`: the messages in the commit logs of many stores as rows.

A row is a message that a broker would still find; records behind the end of a log are none. Where
something cannot be read there is a row with `damage` and nothing else but the store: a range of the
log, or a whole store. A log is cut anywhere into splits; all of them together give what one walk
over it gives.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from ...store.commit_log import Batch, CommitLog, Extent, ExtentKind
from ...store.errors import StoreError, Unreadable
from ...store.log_search import time_bounds
from ...store.mark import Mark
from ...store.selection import Selection
from ...store.split import Split, scan_split, splits
from ...store.store import Store
from ..plan import split_bytes_for
from .ask import NO_BODY, STORED_BODY, Ask
from .fleet import is_uri
from .log_columns import BODY, BODY_CRC_OK, COLUMNS, DAMAGE, USUAL, damage_row, rows_of_batch
from .pushed import Pushed, take_filters
from .remote import open_log

_DAMAGE_KINDS = (ExtentKind.DAMAGE, ExtentKind.MISSING)


class LogSource(DataSource):
    """Options: those of `Ask`; to write, those of `LogWriter`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-log"

    def schema(self) -> str:
        return ddl_of(Ask.of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        ask = Ask.of(self.options)
        asked = replace(ask, fields=tuple(schema.names))
        asked.columns(COLUMNS, USUAL)  # one that is not known is told here
        return PushingLogReader(asked) if ask.pushdown else LogReader(asked)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from .log_writer import LogWriter

        return LogWriter(self.options, schema.names, overwrite)


def fields_of(ask: Ask) -> tuple[str, ...]:
    """The columns asked for: those named, else the usual ones and a body if the option says so."""
    body = [] if ask.body == NO_BODY else [BODY]
    return ask.columns(COLUMNS, (*(name for name in USUAL if name != DAMAGE), *body, DAMAGE))


def ddl_of(ask: Ask) -> str:
    """The schema of the columns asked for, in SQL."""
    return ", ".join(f"{name} {COLUMNS[name].sql}" for name in fields_of(ask))


class LogPartition(InputPartition):
    """What one task reads: a split of the log of a store, or all of a small log (`split` None).

    problem: why the store cannot be read. behind: the log has ended; there may be damage, but no
    message.
    """

    def __init__(
        self, store: str, split: Split | None, problem: str = "", *, behind: bool = False
    ) -> None:
        super().__init__((store, split, problem, behind))
        self.store = store
        self.split = split
        self.problem = problem
        self.behind = behind


class LogReader(DataSourceReader):
    """Reads the logs of stores, split by split. `ask.fields`: the columns of the schema."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """All splits. Raises what a store raises that cannot be read, if the query is to fail."""
        return [*partitions_of(replace(self._ask, times=self._pushed.within(self._ask.times)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""
        assert isinstance(partition, LogPartition)
        return rows_of(self._ask, partition, self._pushed)


class PushingLogReader(LogReader):
    """The same where the session lets Spark hand filters down.

    Spark keeps what it handed down with the DataFrame, and asks no other reader for the next query
    over it (4.1 to 4.3): a DataFrame, or a view, that is asked more than once must not push.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes comparisons of topic, queue, tag, unique key and store time."""
        self._pushed, left = take_filters(filters)
        return left


def partitions_of(ask: Ask) -> list[LogPartition]:
    """What the tasks of a read are. Raises StoreError if the query is to fail."""
    found: list[LogPartition] = []
    sizes: dict[str, int] = {}
    for root in ask.stores:
        try:
            log = open_log(root, ask.broker_config)
            with log.queue:
                sizes[root] = sum(file.size for file in log.files)
        except StoreError as error:
            if ask.fails:
                raise
            found.append(LogPartition(root, None, str(error)))
    size = ask.split_bytes or split_bytes_for(sum(sizes.values()), os.cpu_count() or 1)
    for root, log_bytes in sizes.items():
        if log_bytes <= size:
            found.append(LogPartition(root, None))
            continue
        try:
            found += _splits(root, size, ask)
        except StoreError as error:
            if ask.fails:
                raise
            found.append(LogPartition(root, None, str(error)))
    return found or [LogPartition("", Split(0, 0))]  # Spark would read None instead


def _splits(root: str, size: int, ask: Ask) -> list[LogPartition]:
    if is_uri(root):
        return _remote_splits(root, size, ask)
    with Store(root, ask.broker_config) as store:
        start, stop = time_bounds(store, ask.times)
        end = store.log_end.position
        found = [LogPartition(root, split) for split in splits(start, min(stop, end), size)]
        if stop > end:
            found.append(LogPartition(root, Split(max(start, end), stop), behind=True))
        return found


def _remote_splits(root: str, size: int, ask: Ask) -> list[LogPartition]:
    """All files but the last one in parts; the end of the log lies in the last, or in none."""
    log = open_log(root, ask.broker_config)
    with log.queue:
        last = log.files[-1].start
        parts = [*splits(log.min_offset, last, size), Split(last, log.max_file_end)]
        return [LogPartition(root, part) for part in parts]


def rows_of(ask: Ask, partition: LogPartition, pushed: Pushed) -> Iterator[pa.RecordBatch]:
    """The rows of one split, of the columns `ask.fields`. Raises Unreadable if it is to fail."""
    fields, store = fields_of(ask), partition.store
    if partition.problem:
        yield from _report(ask, partition, None, None, partition.problem)
        return
    if partition.split is not None and partition.split.start >= partition.split.stop:
        return
    try:
        conditions = _conditions(ask, pushed)
        log = open_log(store, ask.broker_config)
        with log.queue:
            for item in _items(log, partition.split, crc=BODY_CRC_OK in fields):
                if not isinstance(item, Batch):
                    if item.kind in _DAMAGE_KINDS:
                        yield from _report(ask, partition, item.position, item.size, item.reason)
                    continue
                if partition.behind or item.mark > Mark.AFTER_DAMAGE:
                    continue
                if len(wanted := _wanted(item, conditions)):
                    yield from rows_of_batch(store, wanted, fields, raw=ask.body == STORED_BODY)
    except StoreError as error:
        if ask.fails:
            raise
        yield from _report(ask, partition, None, None, str(error))


def _items(log: CommitLog, split: Split | None, *, crc: bool) -> Iterator[Batch | Extent]:
    if split is None:
        return log.scan(crc=crc)
    return scan_split(log, split, crc=crc)


def _conditions(ask: Ask, pushed: Pushed) -> list[list[Selection]]:
    """Conditions that must hold together: of each list one is enough."""
    one = Selection(queue_id=ask.queue_id, times=ask.times)
    found = [[one]] if one.asks else []
    if ask.topics:
        found.append([Selection(topic=topic) for topic in ask.topics])
    return found + pushed.conditions


def _wanted(batch: Batch, conditions: Sequence[Sequence[Selection]]) -> Batch:
    """The records of a batch that all conditions take."""
    for either in conditions:
        if len(batch):
            mask = reduce(np.logical_or, [selection.mask(batch) for selection in either])
            batch = batch if mask.all() else batch.take(mask)
    return batch


def _report(
    ask: Ask, partition: LogPartition, position: int | None, size: int | None, reason: str
) -> Iterator[pa.RecordBatch]:
    """What cannot be read as a row, where the column is asked for. Raises Unreadable."""
    if ask.fails:
        raise Unreadable(reason, path=partition.store, offset=position)
    if DAMAGE in fields_of(ask):
        yield damage_row(partition.store, fields_of(ask), position, size, reason)
