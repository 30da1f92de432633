"""The views that SQL queries over stores can use: their names, columns, types and rows, with and without Spark.

The rows of several stores come one store after the other. What cannot be read is reported: ranges of logs, whole
stores, parts of other files. A filter of a query is an Arrow expression, evaluated on rows and on batches of messages.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from ...formats.derive.ragged import Flags
from ..disk.byte_reader import noting
from ..disk.layout import Layout, is_uri
from ..errors import StoreError
from ..log.batch import Batch
from ..search.log_search import TimeBounds
from . import log_columns, log_rows, tables
from .log_columns import CHECKED, STORE, path_text, rows_of_batch
from .log_rows import Bounds, Damage, LogSplit, damage_of
from .log_rows import parts_of as log_parts_of
from .stores import BODY, BODY_CRC_OK, LOG, ReadOptions, open_log
from .tables import (
    SQL_TYPES,
    FindingTable,
    IndexTable,
    LagTable,
    OffsetTable,
    QueueTable,
    Table,
    TablePart,
    TimerTable,
    parts_of,
    table_rows,
)

COLUMNS: Mapping[str, str] = {STORE: "string", "position": "bigint", "size": "bigint", "reason": "string"}
"""Names and SQL types. position, size: null for a whole store."""


_TABLES: Mapping[str, Table] = {
    one.of: one for one in (QueueTable(), IndexTable(), TimerTable(), OffsetTable(), LagTable())
}


class DamagePart(NamedTuple):
    """A unit of reading; `part` is None for a store that cannot be read, see reason.

    of: one of `DAMAGE_OF`.
    """

    store: str
    part: LogSplit | TablePart | None
    reason: str = ""
    of: str = LOG


def damage_parts(ask: ReadOptions, bounds: Bounds = lambda store, found: None) -> list[DamagePart]:
    """The parts to read, one per task. bounds: as for logs. Raises StoreError for a store if the query is to fail."""
    found: list[DamagePart] = []
    for store in ask.stores:
        for of in ask.of_what:
            try:
                one = replace(ask, stores=(store,))
                parts = log_parts_of(one, bounds=bounds) if of == LOG else tables.parts_of(_TABLES[of], one)
                found += [DamagePart(store, part, of=of) for part in parts]
            except StoreError as error:
                if ask.fails:
                    raise
                unread = DamagePart(store, None, str(error))
                found += [unread] if unread not in found else []
    return found


def damage_rows(ask: ReadOptions, names: Sequence[str], task: DamagePart) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one part with the columns `names`. Raises StoreError if the query is to fail."""
    schema = pa.schema([(name, SQL_TYPES[COLUMNS[name]]) for name in names])
    for damage in _damage(ask, task):
        row = asdict(damage) | {STORE: path_text(damage.store), "reason": path_text(damage.reason)}
        yield pa.RecordBatch.from_pylist([{name: row[name] for name in names}], schema=schema)


def _damage(ask: ReadOptions, task: DamagePart) -> Iterator[Damage]:
    if task.part is None:
        yield Damage(task.store, None, None, task.reason)
        return
    try:
        if isinstance(task.part, LogSplit):
            yield from damage_of(ask, task.part)
        else:
            unread: list[Damage] = []
            for _ in tables.table_rows(_TABLES[task.of], ask, (STORE,), task.part, unread.append):
                yield from unread
                unread.clear()
            yield from unread
    except StoreError as error:
        if ask.fails_at(error):
            raise
        yield Damage(task.store, None, None, str(error))


MESSAGES = "messages"
DAMAGE = "damage"
OF_LOG = (MESSAGES, DAMAGE)
"""Views that read commit logs."""
FINDINGS = "findings"


@dataclass(frozen=True)
class View:
    """A view. source: its data source on Spark. columns: names and SQL types, in order.

    table: the table it is read from, None for a view that is not read from one.
    """

    name: str
    source: str
    columns: Mapping[str, str]
    schema: pa.Schema
    table: Table | None = None

    @property
    def ddl(self) -> str:
        """The schema as SQL DDL."""
        return ", ".join(f"{name} {sql}" for name, sql in self.columns.items())

    @property
    def tells(self) -> bool:
        """Whether what cannot be read is among its rows."""
        return self.name in (DAMAGE, FINDINGS)


def _of_table(name: str, source: str, table: Table) -> View:
    columns = table.all_columns()
    return View(name, source, columns, _schema(columns), table)


def _schema(columns: Mapping[str, str]) -> pa.Schema:
    return pa.schema([(name, SQL_TYPES[sql]) for name, sql in columns.items()])


_LOG = {name: column.sql for name, column in log_columns.COLUMNS.items()}

VIEWS: Mapping[str, View] = {
    view.name: view
    for view in (
        View(MESSAGES, "rocketmq-log", _LOG, log_columns.SCHEMA),
        View(DAMAGE, "rocketmq-damage", COLUMNS, _schema(COLUMNS)),
        _of_table("queues", "rocketmq-queue", QueueTable()),
        _of_table("index_items", "rocketmq-index", IndexTable()),
        _of_table("timers", "rocketmq-timer", TimerTable()),
        _of_table(FINDINGS, "rocketmq-findings", FindingTable()),
        _of_table("offsets", "rocketmq-offsets", OffsetTable()),
        _of_table("lag", "rocketmq-lag", LagTable()),
    )
}


def unique_names(columns: Iterable[tuple[str, bool]]) -> dict[str, bool]:
    """The columns of an answer, and whether they are binary; a repeated name gets a number.

    >>> unique_names([("topic", False), ("body", True), ("body", True)])
    {'topic': False, 'body': True, 'body_2': True}
    """
    found: dict[str, bool] = {}
    for name, raw in columns:
        more = (f"{name}_{number}" for number in count(2))
        found[name if name not in found else next(m for m in more if m not in found)] = raw
    return found


_KEPT = "kept"


def columns_of(expression: pc.Expression, schema: pa.Schema) -> list[str]:
    """The columns of `schema` that a filter needs; pyarrow does not tell them, so each is left out once."""
    empty = schema.empty_table()
    return [name for name in schema.names if not _is_evaluable(expression, empty.drop_columns([name]))]


def _is_evaluable(expression: pc.Expression, rows: pa.Table) -> bool:
    try:
        _mask(expression, rows)
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return False
    return True


def mask_of(expression: pc.Expression, rows: pa.RecordBatch) -> Flags:
    """bool[n]: the rows that a filter accepts; null counts as no."""
    return _mask(expression, pa.Table.from_batches([rows]))


def _mask(expression: pc.Expression, rows: pa.Table) -> Flags:
    from pyarrow import acero  # acero imports pandas

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], [_KEPT]), inputs=[source])
    kept = project.to_table(use_threads=False).column(_KEPT)
    found: Flags = pc.fill_null(kept, False).to_numpy()
    return found


@dataclass(frozen=True)
class BatchFilter:
    """A filter over the messages of a store, applied before the other columns are made.

    fields: the columns it needs.
    """

    store: str
    expression: pc.Expression
    fields: Sequence[str]

    def mask(self, batch: Batch) -> Flags:
        """bool[n]: the records that pass."""
        parts = rows_of_batch(self.store, batch, self.fields)
        return np.concatenate([mask_of(self.expression, rows) for rows in parts])


@dataclass
class AnswerGaps:
    """What an answer lacks, and how many unsound bodies it has.

    damage: ranges and stores that were skipped, as keys in the order they were found. bodies: how many of the bodies in
    the answer failed their checksum, if the query does not ask for that. bounds: which log files were read, by store.
    """

    damage: dict[Damage, None] = field(default_factory=dict)
    bodies: int = 0
    bounds: dict[str, TimeBounds] = field(default_factory=dict)

    def add(self, damage: Damage) -> None:
        """Add a skipped range; a query that reads it twice counts it once."""
        self.damage.setdefault(damage)

    def __bool__(self) -> bool:
        return bool(self.damage or self.bodies)


def readable(ask: ReadOptions, views: Iterable[View]) -> tuple[ReadOptions, dict[str, StoreError]]:
    """Limit a read to the stores that can be opened for these views, and return the errors of the others."""
    of_log = any(view.name in OF_LOG for view in views)
    found: list[str] = []
    unread: dict[str, StoreError] = {}
    with noting():  # the bytes are read again, and reported then
        for root in ask.stores:
            try:
                if of_log or is_uri(root):
                    open_log(root, ask.broker_config).queue.close()
                else:
                    Layout.open(root, ask.broker_config)
                found.append(root)
            except StoreError as error:
                unread[root] = error
    return replace(ask, stores=tuple(found)), unread


def rows_of_view(
    view: View, ask: ReadOptions, columns: Sequence[str], lacking: AnswerGaps, wanted: pc.Expression | None = None
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of `columns` that pass a filter; `lacking` gets what cannot be read.

    ask: stores that can be read. Memory: a batch, some MiB; with bodies some 64 MiB. Raises StoreError.
    """
    filter_columns = [] if wanted is None else columns_of(wanted, view.schema)
    names = tuple(dict.fromkeys((*columns, *filter_columns)))
    if view.name == MESSAGES:
        yield from _messages(ask, columns, lacking, wanted, filter_columns)
    elif view.table is None:
        for part in damage_parts(ask, lacking.bounds.__setitem__):
            for rows in damage_rows(ask, names, part):
                yield _filtered(rows, wanted).select(columns)
    else:
        for one in parts_of(view.table, ask):
            for rows in table_rows(view.table, ask, names, one, lacking.add):
                yield _filtered(rows, wanted).select(columns)


def _messages(
    ask: ReadOptions,
    columns: Sequence[str],
    lacking: AnswerGaps,
    wanted: pc.Expression | None,
    filter_columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield messages. Bodies are read with their check; failed ones are counted unless the query itself asks for it."""
    checked = BODY in columns or not CHECKED.isdisjoint(filter_columns)
    fields = tuple(dict.fromkeys((*columns, *((BODY_CRC_OK,) if checked else ()))))
    ask = replace(ask, fields=fields)
    for part in log_rows.parts_of(ask, bounds=lacking.bounds.__setitem__):
        pushed = log_rows.Pushed()
        if wanted is not None:
            pushed = log_rows.Pushed([[BatchFilter(part.store, wanted, filter_columns)]])
        for rows in log_rows.rows_of(ask, part, lacking.add, pushed):
            if BODY in columns and BODY_CRC_OK not in (*columns, *filter_columns):
                lacking.bodies += rows.column(BODY_CRC_OK).false_count
            yield rows.select(columns)


def _filtered(rows: pa.RecordBatch, wanted: pc.Expression | None) -> pa.RecordBatch:
    return rows if wanted is None else rows.filter(pa.array(mask_of(wanted, rows)))
