"""The files of a store other than the log as tables: queue units, index items, timer units, offsets, lag, findings.

What cannot be read is reported beside the rows, as for logs (`Damage`); in the findings it is a row. Rows are units of
consume queues (spec 02, 2.1), items of index files (spec 03, 3.1), units of the timer log (spec 04, 4.4), offsets of
consumer groups from the files in `config/`, the messages of a queue that a group still has to consume, and findings of
`verify`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from ...formats.consume_queue import UNIT
from ...formats.derive import columns_of
from ...formats.derive.ragged import Structs
from ...formats.index_file import ITEM
from ...formats.timer_log import UNIT as TIMER_UNIT
from ..counted import counted
from ..disk.byte_reader import UnreadRanges, each_noting
from ..disk.layout import (
    BATCH_CONSUME_QUEUE,
    CONFIG,
    CONSUME_QUEUE,
    INDEX,
    ROCKSDB_CONSUME_QUEUE,
    TIMER_LOG,
    Layout,
    is_uri,
)
from ..disk.lock import stream_of
from ..errors import StoreError, Unreadable
from ..findings.catalogue import Severity
from ..findings.next_commands import Given, settings
from ..index.read import Index, open_index_file
from ..offsets.lag import dispatched_ends, lags_of
from ..offsets.positions import Position, StoredPositions, every_file
from ..queues.hybrid import open_queues
from ..queues.read import ConsumeQueues
from ..queues.units import is_used, is_valid
from ..search.selection import matches
from ..search.store import StoreReader
from ..timer.read import TimerUnits, timer_log
from ..verify.context import Scope
from ..verify.run import verify
from ..verify.verdict import findings_json
from .log_columns import STORE, constant, numbers, path_text
from .log_rows import Damage, Tell
from .stores import ReadOptions, in_directory

PROBLEM = "problem"
_ALL = "all"
SQL_TYPES: Mapping[str, pa.DataType] = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}
_WIDTHS = {"i4": "int", "i8": "bigint"}

Values = Mapping[str, Any]
"""Columns by name: an array, or one value for every row. A missing one is null."""


def _columns_of(units: Structs) -> dict[str, Any]:
    """The columns of rows that are laid out as a schema."""
    return {name: units[name] for name in units.dtype.names or ()}


def fields_of_schema(schema: Any) -> dict[str, str]:
    """The columns of a fixed-size schema of `formats`, with their SQL types."""
    return {column.name: _WIDTHS[column.type] for column in columns_of(schema)}


class Table(ABC):
    """A kind of rows. columns: names and SQL types, without `store`.

    A table may have rows with only `problem`: what of its files cannot be read.

    of: its name in `ReadOptions.of_what`. needs: the parts of a store's directory that are read, None for all; only
    they are copied from object storage. place: the directory of a store without which it has no rows. reports_unread:
    unread ranges are already among its rows, and so is a store that cannot be read, which is an error for the other
    tables.
    """

    of: ClassVar[str] = ""
    columns: ClassVar[Mapping[str, str]]
    reports_unread: ClassVar[bool] = False
    needs: ClassVar[Collection[str] | None] = None
    place: ClassVar[str] = ""

    def parts(self, layout: Layout, ask: ReadOptions) -> list[Any]:
        """Parts that tasks can read independently, small objects; one if the table has no own. Raises StoreError."""
        return [True] if (layout.root / self.place).is_dir() else []

    @abstractmethod
    def rows(self, layout: Layout, ask: ReadOptions, part: Any) -> Iterator[tuple[int, Values]]:
        """Yield numbers of rows and their columns. Raises StoreError."""

    def unread(self, root: str, error: StoreError) -> Values:
        """The row for a store, or a part of it, that cannot be read."""
        return {PROBLEM: str(error)}

    def all_columns(self) -> dict[str, str]:
        """The columns of a row, with `store`, and `problem` if the table has it."""
        problem = {PROBLEM: "string"} if self.reports_unread else {}
        return {STORE: "string", **self.columns, **problem}


class TablePart(NamedTuple):
    """A part of a store that a task reads, `part` None for none. problem: why the store cannot be read."""

    root: str
    part: Any
    problem: StoreError | None = None


def columns_asked(table: Table, ask: ReadOptions) -> dict[str, str]:
    """The columns asked for, with their SQL types. Raises InvalidInput for an unknown one."""
    known = table.all_columns()
    return {name: known[name] for name in ask.columns(known, known)}


def parts_of(table: Table, ask: ReadOptions) -> list[TablePart]:
    """The parts of all stores; object storage is one part. Raises StoreError for a path that is not a store."""
    found: list[TablePart] = []
    for root in ask.stores:
        if is_uri(root):
            found.append(TablePart(root, _ALL))
            continue
        try:
            layout = Layout.open(root, ask.broker_config)
        except StoreError as error:
            if ask.fails_at(error) or not table.reports_unread:
                raise
            found.append(TablePart(root, None, error))
            continue
        try:
            found += [TablePart(root, part) for part in table.parts(layout, ask)]
        except StoreError as error:
            if ask.fails_at(error):
                raise
            found.append(TablePart(root, None, error))
    return found


def table_rows(
    table: Table, ask: ReadOptions, names: tuple[str, ...], task: TablePart, tell: Tell
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one part; `tell` gets the problems. Raises StoreError if the query is to fail."""
    if table.reports_unread:
        yield from _with_problems(table, ask, names, task)
        return
    for rows in _with_problems(table, ask, tuple(dict.fromkeys((*names, STORE, PROBLEM))), task):
        problem = rows.column(PROBLEM)
        if problem.null_count < len(rows):
            for row in rows.filter(problem.is_valid()).select([STORE, PROBLEM]).to_pylist():
                tell(Damage(row[STORE], None, None, row[PROBLEM]))
            rows = rows.filter(problem.is_null())
        if rows.num_rows:
            yield rows.select(names)


def _with_problems(table: Table, ask: ReadOptions, names: tuple[str, ...], task: TablePart) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one part, with problems as rows."""
    root = task.root
    if task.problem is not None:
        yield _batch(table, names, 1, root, table.unread(root, task.problem))
    elif task.part is not None:
        opened = False
        noted = UnreadRanges(around=True)
        try:
            with in_directory(root, table.needs) as place:
                opened = True
                for count, values in each_noting(_rows(table, ask, task.part, place.folder), noted):
                    if count:
                        yield _batch(table, names, count, root, place.named(values))
        except StoreError as error:
            if not opened and not table.reports_unread:
                error.store = root
                raise
            yield from _unread_row(table, ask, names, root, error)
        else:
            for unread in () if table.reports_unread else noted:
                yield from _unread_row(table, ask, names, root, unread.error())


def _rows(table: Table, ask: ReadOptions, part: Any, folder: Path) -> Iterator[tuple[int, Values]]:
    layout = Layout.open(folder, ask.broker_config)
    for one in table.parts(layout, ask) if part == _ALL else [part]:
        yield from table.rows(layout, ask, one)


def _unread_row(
    table: Table, ask: ReadOptions, names: tuple[str, ...], root: str, error: StoreError
) -> Iterator[pa.RecordBatch]:
    """Yield a row for what cannot be read. Raises Unreadable if the query is to fail."""
    if ask.fails_at(error):
        raise Unreadable(str(error)) from error
    yield _batch(table, names, 1, root, table.unread(root, error))


def _batch(table: Table, names: tuple[str, ...], count: int, root: str, values: Values) -> pa.RecordBatch:
    values = {STORE: root, **values}
    types = {name: SQL_TYPES[sql] for name, sql in table.all_columns().items()}
    types |= {PROBLEM: pa.string()}
    schema = pa.schema([(name, types[name]) for name in names])
    arrays = [_array(values.get(name), count, types[name]) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(value: Any, count: int, arrow_type: pa.DataType) -> pa.Array:
    if isinstance(value, np.ndarray):
        return numbers(value, arrow_type)
    if isinstance(value, list):
        texts = (path_text(one) if isinstance(one, str) else one for one in value)
        return pa.array(texts, arrow_type)
    if isinstance(value, pa.Array):
        return value.cast(arrow_type)
    return constant(value, count, arrow_type)


_PART_UNITS = 8 << 20
"""Units of one queue per task."""
_PART_QUEUES = 64
"""Queues per task."""
_PARTS_MAX = 128
"""Parts of a store; a larger store gets larger parts, because each task lists the directories of all topics."""
_BATCH_UNITS = 1 << 16
"""Units of small queues that become one batch of rows."""
_INVALID, _PRE_FILL = 0, 1
_STATES = ["invalid", "pre_fill"]
"""Not an Arrow array: making one imports pandas, and every session imports this module."""


class QueuePart(NamedTuple):
    """Units start ≤ k < stop of a queue."""

    topic: str
    queue_id: int
    start: int
    stop: int


class QueueTable(Table):
    """A row is a unit. state: `invalid` or `pre_fill` if the unit points at no message, else null."""

    of = "queue"
    columns: ClassVar = {
        "topic": "string",
        "queue_id": "int",
        "queue_offset": "bigint",
        **fields_of_schema(UNIT),
        "state": "string",
    }

    needs: ClassVar = {CONSUME_QUEUE, ROCKSDB_CONSUME_QUEUE}

    def parts(self, layout: Layout, ask: ReadOptions) -> list[list[QueuePart]]:
        found = list(_queue_parts(layout, ask))
        size = max(_PART_QUEUES, -(-len(found) // _PARTS_MAX))
        return [found[first : first + size] for first in range(0, len(found), size)]

    def rows(self, layout: Layout, ask: ReadOptions, part: list[QueuePart]) -> Iterator[tuple[int, Values]]:
        waiting, count = list[_Window](), 0
        try:
            for window in _windows(layout, part):
                waiting.append(window)
                count += len(window.units)
                if count >= _BATCH_UNITS:
                    yield count, _unit_columns(waiting)
                    waiting, count = [], 0
        except StoreError:
            if waiting:  # what was read before the error
                yield count, _unit_columns(waiting)
            raise
        if waiting:
            yield count, _unit_columns(waiting)


def _queue_parts(layout: Layout, ask: ReadOptions) -> Iterator[QueuePart]:
    with _queues(layout) as queues:
        for topic, queue_id, start, stop, *_ in queues.summaries():
            if ask.queue_id not in (None, queue_id):
                continue
            if not ask.topics or any(matches(topic, wanted) for wanted in ask.topics):
                with queues.open(topic, queue_id) as queue:
                    start = min(start, queue.first_offset)
                for begin in range(start, stop, _PART_UNITS):
                    yield QueuePart(topic, queue_id, begin, min(stop, begin + _PART_UNITS))


@contextmanager
def _queues(layout: Layout) -> Iterator[ConsumeQueues]:
    """The active queues, in files or in RocksDB. Raises Unsupported, Unreadable."""
    queues, problem = open_queues(layout)
    if problem:
        raise Unreadable(problem, path=layout.queue_database)
    with closing(queues):
        yield queues


class _Window(NamedTuple):
    """Consecutive units of a queue. first: the queue offset of the first one."""

    topic: str
    queue_id: int
    first: int
    units: Structs


def _windows(layout: Layout, part: list[QueuePart]) -> Iterator[_Window]:
    with _queues(layout) as queues:
        for topic, queue_id, start, stop in part:
            with queues.open(topic, queue_id) as queue:
                for first, units in queue.units(start, stop):
                    yield _Window(topic, queue_id, first, units)


def _unit_columns(windows: list[_Window]) -> Values:
    """The columns of units of several queues; many queues have only a few units."""
    units = windows[0].units if len(windows) == 1 else np.concatenate([window.units for window in windows])
    counts = [len(window.units) for window in windows]
    state = np.where(is_valid(units), _PRE_FILL, _INVALID)
    ids = pa.array(state, pa.int64(), mask=is_used(units))
    topics = pa.array([path_text(window.topic) for window in windows], pa.string())
    return {
        "topic": topics.take(pa.array(np.repeat(np.arange(len(windows)), counts))),
        "queue_id": np.repeat([window.queue_id for window in windows], counts),
        "queue_offset": np.concatenate([np.arange(first, first + len(units)) for _, _, first, units in windows]),
        **_columns_of(units),
        "state": pa.array(_STATES, pa.string()).take(ids),
    }


class IndexTable(Table):
    """A row is an item. begin_timestamp: of its file, in ms; time_diff counts seconds from there."""

    of = "index"
    columns: ClassVar = {
        "file": "string",
        "number": "bigint",
        "slot": "bigint",
        **fields_of_schema(ITEM),
        "begin_timestamp": "bigint",
    }

    needs: ClassVar = {INDEX}

    def parts(self, layout: Layout, ask: ReadOptions) -> list[str]:
        with Index.open(layout.index, ask.broker_config) as index:
            return [file.path for file in index.files]

    def rows(self, layout: Layout, ask: ReadOptions, part: str) -> Iterator[tuple[int, Values]]:
        with open_index_file(part, ask.broker_config) as file:
            for first, items in file.columns():
                hashes = items["key_hash"].astype(np.int64)
                slots = hashes % file.slots if file.slots > 0 else np.zeros_like(hashes)
                yield (
                    len(items),
                    {
                        "file": Path(part).name,
                        "number": np.arange(first, first + len(items)),
                        "slot": slots,
                        **_columns_of(items),
                        "begin_timestamp": file.header.begin_timestamp,
                    },
                )


class TimerTable(Table):
    """A row is a unit of the timer log; a range without units is damage."""

    of = "timer"
    columns: ClassVar = {"position": "bigint", **fields_of_schema(TIMER_UNIT)}

    needs: ClassVar = {TIMER_LOG}
    place = TIMER_LOG

    def rows(self, layout: Layout, ask: ReadOptions, part: bool) -> Iterator[tuple[int, Values]]:
        with stream_of(layout, layout.timer_log, told=True) as files:
            for item in timer_log(files):
                if isinstance(item, TimerUnits):
                    yield len(item.units), {"position": item.position, **_columns_of(item.units)}
                elif item.kind == "damage":
                    of = f"of the timer log at {item.position}"
                    bytes_are = counted(item.size, f"byte {of} is", f"bytes {of} are")
                    reason = f"{bytes_are} no units"
                    yield 1, {"position": item.position, PROBLEM: reason}


class OffsetTable(Table):
    """A row is an entry: the offset from which a group continues in a queue.

    table: the kind of offsets, one of `OFFSET_TABLES`; only those in `ReadOptions.tables` are read. A delay level has
    no group and its own queue. A group that has never committed (-1, or nothing) has no row.
    """

    of = "offsets"
    columns: ClassVar = {
        "file": "string",
        "table": "string",
        "topic": "string",
        "group": "string",
        "queue_id": "int",
        "offset": "bigint",
    }

    needs: ClassVar = {CONFIG}
    place = CONFIG

    def rows(self, layout: Layout, ask: ReadOptions, part: bool) -> Iterator[tuple[int, Values]]:
        names = ("file", "table", "topic", "offset")
        for file in every_file(layout.config, ask.tables):
            if rows := file.positions:
                yield len(rows), {**_fields(rows, names), **_group_and_queue(rows)}
            for problem in _problems(file):
                yield 1, {"file": file.path.name, **problem}


def _fields(rows: list[Position], names: tuple[str, ...]) -> dict[str, list[Any]]:
    return {name: [getattr(row, name) for row in rows] for name in names}


def _group_and_queue(rows: list[Position]) -> dict[str, list[Any]]:
    """Both columns; a delay level has no group."""
    return {"group": [row.group or None for row in rows], "queue_id": [r.queue_id for r in rows]}


def _problems(file: StoredPositions) -> list[dict[str, str]]:
    return [{PROBLEM: f"{file.path}: {problem}"} for problem in file.problems]


class LagTable(Table):
    """A row is a group in a queue: its offset, the end of the queue, and the number of messages between.

    lag is 0 for a group ahead of its queue, so that sums count missing messages; it is null if the queues are behind
    the log. max_offset and lag are null if the store has nothing of the queue. A group that has never committed has no
    row. Only the tables in `ReadOptions.tables` are read.
    """

    of = "lag"
    columns: ClassVar = {
        "topic": "string",
        "group": "string",
        "queue_id": "int",
        "offset": "bigint",
        "max_offset": "bigint",
        "lag": "bigint",
    }

    needs: ClassVar = {CONFIG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE}
    place = CONFIG

    def rows(self, layout: Layout, ask: ReadOptions, part: bool) -> Iterator[tuple[int, Values]]:
        with StoreReader(layout.root, ask.broker_config) as store:
            ends, behind = dispatched_ends(store)
        for file in every_file(layout.config, ask.tables):
            if rows := file.positions:
                lags = list(lags_of(rows, ends))
                for lag in lags:
                    lag.ends_known = behind.tell_end(lag.position)
                yield (
                    len(rows),
                    {
                        **_fields(rows, ("topic", "offset")),
                        **_group_and_queue(rows),
                        "max_offset": [lag.queue.max_offset if lag.queue else None for lag in lags],
                        "lag": [lag.lacked for lag in lags],
                    },
                )
            yield from ((1, problem) for problem in _problems(file))


class FindingTable(Table):
    """A row is a finding as in `verify --format json`.

    A store that cannot be read is a fatal finding without a code.
    """

    reports_unread = True
    columns: ClassVar = {
        "code": "string",
        "severity": "string",
        "path": "string",
        "offset": "bigint",
        "length": "bigint",
        "count": "bigint",
        "message": "string",
        "broker": "string",
        "repair": "string",
        "topic": "string",
        "queue_id": "int",
        "unclean": "boolean",
    }

    def rows(self, layout: Layout, ask: ReadOptions, part: bool) -> Iterator[tuple[int, Values]]:
        with StoreReader(layout.root, ask.broker_config) as store:
            verdict = verify(store, Scope(quick=ask.quick))
        given = Given(settings(ask.config))
        rows = list(findings_json(verdict, Path(layout.root), given))
        yield len(rows), {name: [row.get(name) for row in rows] for name in self.columns}

    def unread(self, root: str, error: StoreError) -> Values:
        return {"severity": Severity.FATAL.label, "path": root, "count": 1, "message": str(error), PROBLEM: str(error)}
