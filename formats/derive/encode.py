"""Columnar encode of variable-size records: the inverse of `decode`, over the same nodes.

Linked fields (a length, the size of the record: construct's Rebuild) are computed, and their columns ignored. Records
of different shapes are written group by group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import construct as c
import numpy as np
import numpy.typing as npt

from .dtype import run_dtype
from .layout import Blob, Branch, Field, FixedBytes, Node, Number, fields_of, nodes_of
from .ragged import Bytes, Ints, Ragged, overlapping, ragged_copy
from .scope import ExpressionScope


class Encoded(NamedTuple):
    """Records in `buffer`: record i is `buffer[starts[i] : starts[i] + sizes[i]]`."""

    buffer: Bytes
    starts: Ints
    sizes: Ints


def sizes(schema: c.Construct[Any, Any], columns: Mapping[str, Any]) -> Ints:
    """Encoded size of each record, int64[n], without encoding."""
    table = _RecordColumns(columns)
    out = np.zeros(table.count, np.int64)
    for index, line in _groups(schema, table):
        out[index] = _sizes(line, table.take(index))
    return out


def encode(
    schema: c.Construct[Any, Any], columns: Mapping[str, Any], starts: Ints | None = None, out: Bytes | None = None
) -> Encoded:
    """Encode columns to records.

    columns: dotted path → integer array[n], `Ragged`, or one value for all records (int or bytes); at least one has to
    be a column. With `starts` (int64[n]) and `out` (uint8) records are written there, and bytes between them stay as
    they are; otherwise the records are back to back in a new buffer. Raises KeyError for a missing field, ValueError if
    a string does not have its fixed length or a number does not fit.
    """
    table = _RecordColumns(columns)
    groups = [(index, line, table.take(index)) for index, line in _groups(schema, table)]
    total = np.zeros(table.count, np.int64)
    for index, line, part in groups:
        total[index] = _sizes(line, part)
    if starts is None:
        starts = np.cumsum(total) - total
    if out is None:
        out = np.zeros(int((starts + total).max()) if len(total) else 0, np.uint8)
    if len(total) and int((starts + total).max()) > len(out):
        raise ValueError(f"records need {int((starts + total).max())} bytes, out has {len(out)}")
    for index, line, part in groups:
        _write(line, part, out, starts[index], total[index])
    return Encoded(out, starts, total)


class _RecordColumns:
    """Columns of one group of records; constants are expanded when needed."""

    def __init__(self, columns: Mapping[str, Any], index: Ints | None = None) -> None:
        self._columns = columns
        self._index = index
        if index is not None:
            self.count = len(index)
            return
        lengths = {
            len(column) for column in (columns[path] for path in columns) if isinstance(column, np.ndarray | Ragged)
        }
        if len(lengths) != 1:
            raise ValueError(f"columns of different length: {sorted(lengths)}")
        self.count = lengths.pop()

    def take(self, index: Ints) -> _RecordColumns:
        whole = len(index) == self.count
        return self if whole else _RecordColumns(self._columns, index)

    def __contains__(self, path: str) -> bool:
        return path in self._columns

    def constant(self, path: str) -> Any:
        """The value that is given for all records, None if there is a column."""
        value = self._columns.get(path)
        return None if isinstance(value, np.ndarray | Ragged) else value

    def __getitem__(self, path: str) -> Any:
        column = self._columns[path]
        if isinstance(column, np.ndarray | Ragged):
            return column if self._index is None else column[self._index]
        if isinstance(column, bytes):
            return Ragged.repeat(column, self.count)
        return np.full(self.count, column, np.int64)


def _groups(schema: c.Construct[Any, Any], table: _RecordColumns) -> list[tuple[Ints, tuple[Node, ...]]]:
    """(index of the records, their nodes without branches) for each shape."""
    nodes = nodes_of(schema)
    return list(_shapes(nodes, _given(nodes, table), np.arange(table.count))) if table.count else []


def _shapes(
    nodes: tuple[Node, ...], look_up: Callable[[str], Any], index: Ints
) -> Iterator[tuple[Ints, tuple[Node, ...]]]:
    """Yield the groups of some records, whose `nodes` may have branches."""
    for at, node in enumerate(nodes):
        if isinstance(node, Branch):
            holds = np.asarray(node.condition(ExpressionScope(look_up, node.scope))) != 0
            holds = holds[index] if holds.ndim else np.full(len(index), holds)
            for outcome, side in ((True, node.yes), (False, node.no)):
                if len(some := index[holds == outcome]):
                    yield from _shapes((*nodes[:at], *side, *nodes[at + 1 :]), look_up, some)
            return
    yield index, nodes


def _given(nodes: tuple[Node, ...], table: _RecordColumns) -> Callable[[str], Any]:
    """A function that looks up values for conditions: linked fields are computed, others are from the columns."""
    fields = {field.path: field for field in fields_of(nodes)}

    def look_up(path: str) -> Any:
        field = fields.get(path)
        if isinstance(field, Number) and field.rebuild is not None and not field.is_record_size:
            return field.rebuild(ExpressionScope(look_up, field.scope))
        # a column may be missing if no record fulfils the condition for it
        return 0 if field is not None and path not in table else table[path]

    return look_up


def _sizes(line: tuple[Node, ...], table: _RecordColumns) -> Ints:
    fixed, lengths = 0, []
    for node in line:
        assert not isinstance(node, Branch)
        if isinstance(node, Blob) or (node.path and isinstance(node, FixedBytes)):
            lengths.append(_lengths(node, table))
            fixed += node.prefix.size if isinstance(node, Blob) and node.prefix else 0
        else:
            fixed += node.size
    total = np.full(table.count, fixed, np.int64)
    for length in lengths:
        total += length
    return total


def _lengths(string: Field, table: _RecordColumns) -> int | Ints:
    constant = table.constant(string.path)
    lengths: int | Ints = table[string.path].length if constant is None else len(constant)
    if isinstance(string, FixedBytes) and np.any(lengths != string.size):
        raise ValueError(f"{string.path}: needs {string.size} bytes each")
    return lengths


def _write(line: tuple[Node, ...], table: _RecordColumns, out: Bytes, starts: Ints, total: Ints) -> None:
    """Write the records of one shape: runs of fixed nodes at once, strings by block copies."""
    at = starts
    run: list[Node] = []
    strings: list[tuple[Ints, Ragged]] = []
    ahead = 0

    def flush() -> None:
        nonlocal at, ahead
        if run:
            records = _records(tuple(run), table, total)
            overlapping(out, np.dtype((np.void, records.dtype.itemsize)))[at] = records.view(
                (np.void, records.dtype.itemsize)
            )
            for where, string in strings:
                ragged_copy(out, where, string)
        at = at + ahead
        run.clear()
        strings.clear()
        ahead = 0

    for node in line:
        assert not isinstance(node, Branch)
        if isinstance(node, Blob):
            if node.prefix is not None:
                run.append(node.prefix)
                ahead += node.prefix.size
            flush()
            string = table[node.path]
            ragged_copy(out, at, string)
            at = at + string.length
            continue
        if isinstance(node, FixedBytes) and node.path and table.constant(node.path) is None:
            strings.append((at + ahead, table[node.path]))
            node = FixedBytes("", node.size)
        run.append(node)
        ahead += node.size
    flush()


def _records(nodes: tuple[Node, ...], table: _RecordColumns, total: Ints) -> npt.NDArray[Any]:
    """Structured array of a run; constant fields are set once and copied."""
    common = np.zeros(1, run_dtype(nodes))
    varying = []
    for node in nodes:
        if isinstance(node, Number):
            if node.rebuild is None and table.constant(node.path) is not None:
                common[node.path] = _fitting(node, np.array([table.constant(node.path)]))
            else:
                varying.append(node)
        elif isinstance(node, FixedBytes) and node.path:
            common[node.path] = np.void(table.constant(node.path))
    records: npt.NDArray[Any] = np.empty(table.count, common.dtype)
    # copied as plain bytes, which is fast and lets other threads run meanwhile
    whole = np.dtype((np.void, common.dtype.itemsize))
    np.copyto(records.view(whole), common.view(whole))
    for node in varying:
        records[node.path] = _value(node, table, total)
    return records


def _value(number: Number, table: _RecordColumns, total: Ints) -> Any:
    if number.is_record_size:
        value: Any = total
    elif number.rebuild is not None:
        value = number.rebuild(ExpressionScope(table.__getitem__, number.scope))
    else:
        value = table[number.path]
    return _fitting(number, value)


def _fitting(number: Number, value: Any) -> Any:
    """The value, if the field can hold it. Raises ValueError."""
    array = np.asarray(value)
    if np.can_cast(array.dtype, number.code):
        return value
    limits = np.iinfo(number.code)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise ValueError(f"{number.path}: {int(array.max())} does not fit into {number.size} bytes")
    return value
