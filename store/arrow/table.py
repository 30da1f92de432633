"""What the tables of files other than the log have in common: columns, parts, unread stores.

What of a store cannot be read is told beside the rows, as it is of logs (`Damage`); of findings
alone it is a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from ...formats.derive import columns_of
from ..disk.byte_reader import Noted, each_noting
from ..disk.layout import Layout, is_uri
from ..errors import StoreError, Unreadable
from .arrays import constant, numbers, path_text
from .ask import Ask
from .fetched import in_directory
from .log_rows import Damage, Tell

STORE = "store"
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
"""Columns by name: an array, or a value that is that of every row. One that lacks is null."""


def fields_of_schema(schema: Any) -> dict[str, str]:
    """The columns of a fixed-size schema of `formats`, with their types in SQL."""
    return {column.name: _WIDTHS[column.type] for column in columns_of(schema)}


class Table(ABC):
    """One kind of rows. columns: names and SQL types, without `store`.

    A table may have rows of `problem` alone: what of its files cannot be read.

    of: what `Ask.of_what` calls it. needs: what of a store's directory is read, None for all; of a store in object storage that is
    copied. tells_unread: what the disk does not give is among its rows already, and so is a store that
    cannot be read, which is an error of all others.
    """

    of: ClassVar[str] = ""
    columns: ClassVar[Mapping[str, str]]
    tells_unread: ClassVar[bool] = False
    needs: ClassVar[Collection[str] | None] = None

    @abstractmethod
    def parts(self, layout: Layout, ask: Ask) -> list[Any]:
        """What tasks can do apart from each other, small objects. Raises StoreError."""

    @abstractmethod
    def rows(self, layout: Layout, ask: Ask, part: Any) -> Iterator[tuple[int, Values]]:
        """Numbers of rows and their columns. Raises StoreError."""

    def unread(self, root: str, error: StoreError) -> Values:
        """The row for a store, or a part of it, that cannot be read."""
        return {PROBLEM: str(error)}

    def all_columns(self) -> dict[str, str]:
        """Of a row."""
        problem = {PROBLEM: "string"} if self.tells_unread else {}
        return {STORE: "string", **self.columns, **problem}


class TablePart(NamedTuple):
    """A part of a store that is read apart, `part` None for nothing. problem: why it cannot be read."""

    root: str
    part: Any
    problem: StoreError | None = None


def columns_asked(table: Table, ask: Ask) -> dict[str, str]:
    """The columns asked for with their types in SQL. Raises InvalidInput for one that is not known."""
    known = table.all_columns()
    return {name: known[name] for name in ask.columns(known, known)}


def parts_of(table: Table, ask: Ask) -> list[TablePart]:
    """All parts of all stores; object storage is one. Raises StoreError for a store that is none."""
    found: list[TablePart] = []
    for root in ask.stores:
        if is_uri(root):
            found.append(TablePart(root, _ALL))
            continue
        try:
            layout = Layout.open(root, ask.broker_config)
        except StoreError as error:
            if ask.fails_at(error) or not table.tells_unread:
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
    table: Table, ask: Ask, names: tuple[str, ...], mine: TablePart, tell: Tell
) -> Iterator[pa.RecordBatch]:
    """The rows of one part. Raises StoreError if the query is to fail."""
    if table.tells_unread:
        yield from _with_problems(table, ask, names, mine)
        return
    for rows in _with_problems(table, ask, tuple(dict.fromkeys((*names, STORE, PROBLEM))), mine):
        problem = rows.column(PROBLEM)
        if problem.null_count < len(rows):
            for row in rows.filter(problem.is_valid()).select([STORE, PROBLEM]).to_pylist():
                tell(Damage(row[STORE], None, None, row[PROBLEM]))
            rows = rows.filter(problem.is_null())
        if rows.num_rows:
            yield rows.select(names)


def _with_problems(
    table: Table, ask: Ask, names: tuple[str, ...], mine: TablePart
) -> Iterator[pa.RecordBatch]:
    """The same, where a row may say in `problem` what cannot be read."""
    root = mine.root
    if mine.problem is not None:
        yield _batch(table, names, 1, root, table.unread(root, mine.problem))
    elif mine.part is not None:
        opened = False
        noted = Noted(around=True)
        try:
            with in_directory(root, table.needs) as place:
                opened = True
                for count, values in each_noting(_rows(table, ask, mine.part, place.folder), noted):
                    if count:
                        yield _batch(table, names, count, root, place.named(values))
        except StoreError as error:
            if not opened and not table.tells_unread:
                raise
            yield from _lacking(table, ask, names, root, error)
        else:
            for unread in () if table.tells_unread else noted:
                yield from _lacking(table, ask, names, root, unread.error())


def _rows(table: Table, ask: Ask, part: Any, folder: Path) -> Iterator[tuple[int, Values]]:
    layout = Layout.open(folder, ask.broker_config)
    for one in table.parts(layout, ask) if part == _ALL else [part]:
        yield from table.rows(layout, ask, one)


def _lacking(
    table: Table, ask: Ask, names: tuple[str, ...], root: str, error: StoreError
) -> Iterator[pa.RecordBatch]:
    """What cannot be read as a row. Raises Unreadable if the query is to fail."""
    if ask.fails_at(error):
        raise Unreadable(str(error)) from error
    yield _batch(table, names, 1, root, table.unread(root, error))


def _batch(
    table: Table, names: tuple[str, ...], count: int, root: str, values: Values
) -> pa.RecordBatch:
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
