"""Columnar decode of variable-size records.

The nodes of a schema are compiled to a short program: gather a run of fixed fields (one copy per record), take a byte
string, branch. Records for which a condition has different outcomes are decoded in groups from there on, and the
columns are merged; mostly all have the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import construct as c
import numpy as np

from .. import kernel
from .columns import Columns, merge
from .dtype import run_dtype
from .layout import REST, Blob, Branch, Field, Fixed, FixedBytes, Node, Number, nodes_of
from .program import program_of
from .ragged import Bytes, Ints, Ragged, overlapping
from .scope import ExpressionScope


class FixedRun(NamedTuple):
    """Adjacent nodes of constant size, which are gathered together."""

    dtype: np.dtype[Any]
    #: (path, offset in the run, length) of byte strings of constant length
    blobs: tuple[tuple[str, int, int], ...]


class TakeBytes(NamedTuple):
    """A byte string whose length is in another field or in its prefix."""

    blob: Blob
    prefix: np.dtype[Any] | None


class Fork(NamedTuple):
    """A condition on earlier fields; the programs of both outcomes follow from it."""

    branch: Branch
    rest: tuple[Node, ...]


Step = FixedRun | TakeBytes | Fork


def decode(schema: c.Construct[Any, Any], buffer: Bytes, starts: Ints, limit: int | Ints | None = None) -> Columns:
    """Decode the records that begin at `starts` (int64[n]) in `buffer` (uint8[m]) to columns.

    limit: first byte that may not be read, one for all or one per record; by default the end of the buffer. No length
    is trusted: see `Columns.ok`. Strings are views into `buffer`.
    """
    starts = np.ascontiguousarray(starts, np.int64)
    bounds = np.minimum(len(buffer) if limit is None else limit, len(buffer))
    program = program_of(schema) if kernel.is_wanted(len(starts)) else None
    if program is not None:
        limits = np.ascontiguousarray(np.broadcast_to(bounds, len(starts)), np.int64)
        return program.decode(buffer, starts, limits)
    return _run(nodes_of(schema), buffer, Columns(starts), bounds)


def decode_one(schema: c.Construct[Any, Any], data: bytes | bytearray | Bytes) -> Columns:
    return decode(schema, np.frombuffer(data, np.uint8), np.zeros(1, np.int64))


def _run(nodes: tuple[Node, ...], buffer: Bytes, columns: Columns, bounds: Any) -> Columns:
    """Decode `nodes` of records that have been decoded up to `columns.ends`."""
    for step in _steps(nodes):
        if isinstance(step, FixedRun):
            _gather(step, buffer, columns, bounds)
        elif isinstance(step, TakeBytes):
            _take(step, buffer, columns, bounds)
        else:
            return _fork(step, buffer, columns, bounds)
    return columns


def _advance(columns: Columns, size: Any, bounds: Any, buffer: Bytes) -> Ints:
    """Positions at which `size` bytes are read, 0 for records that are not ok. Advances `ends`."""
    at = columns.ends
    ends = at + size
    fits = size <= bounds - at  # not ends <= bounds: a size may be as large as an int64
    if isinstance(size, np.ndarray):
        fits &= size >= 0
    if not fits.all() or not columns.ok.all():
        columns.ok = columns.ok & fits
        at = np.where(columns.ok, at, 0)
        ends = np.where(columns.ok, ends, columns.ends)
    columns.ends = ends
    return at


def _gather(run: FixedRun, buffer: Bytes, columns: Columns, bounds: Any) -> None:
    size = run.dtype.itemsize
    at = _advance(columns, size, bounds, buffer)
    fits = size <= len(buffer)
    if fits and size:
        records = overlapping(buffer, np.dtype((np.void, size)))[at].view(run.dtype)
        if not columns.ok.all():  # as the native kernel reads them
            records[~columns.ok] = np.zeros(1, run.dtype)
    else:
        records = np.zeros(len(at), run.dtype)
    columns.add_run(records)
    for path, offset, length in run.blobs:
        lengths = np.full(len(at), length if fits else 0, np.int64)
        columns.set(path, Ragged(buffer, at + offset if fits else at, lengths))


def _take(step: TakeBytes, buffer: Bytes, columns: Columns, bounds: Any) -> None:
    blob = step.blob
    if step.prefix is not None:
        _gather(FixedRun(step.prefix, ()), buffer, columns, bounds)

    def look_up(path: str) -> Any:
        return bounds - columns.ends if path.endswith(REST) else columns[path]

    length = np.asarray(blob.length(ExpressionScope(look_up, blob.scope)), np.int64)
    if length.ndim == 0:
        length = np.full(len(columns), length, np.int64)
    at = _advance(columns, length, bounds, buffer)
    if not columns.ok.all():
        length = np.where(columns.ok, length, 0)
    columns.set(blob.path, Ragged(buffer, at, length))


def _lack(fields: tuple[Field, ...], buffer: Bytes, columns: Columns) -> None:
    count = len(columns)
    for field in fields:
        if isinstance(field, Number):
            shape = (count,) if field.count is None else (count, field.count)
            column = np.zeros(shape, np.dtype(field.code).newbyteorder("="))
            columns.lack(field.path, column)
        else:
            none = Ragged(buffer, np.zeros(count, np.int64), np.full(count, -1, np.int64))
            columns.lack(field.path, none)


def _fork(step: Fork, buffer: Bytes, columns: Columns, bounds: Any) -> Columns:
    branch = step.branch
    holds = np.asarray(branch.condition(ExpressionScope(columns.__getitem__, branch.scope))) != 0

    def go_on(part: Columns, outcome: bool, bounds: Any) -> Columns:
        _lack(branch.lacking(outcome), buffer, part)
        return _run((branch.yes if outcome else branch.no) + step.rest, buffer, part, bounds)

    if holds.all() or not holds.any():
        return go_on(columns, bool(holds.all()), bounds)
    parts = []
    for outcome in (True, False):
        index = np.flatnonzero(holds == outcome)
        part = go_on(columns.take(index), outcome, bounds[index] if np.ndim(bounds) else bounds)
        parts.append((index, part))
    return merge(len(columns), columns.starts, parts)


@lru_cache(maxsize=1024)
def _steps(nodes: tuple[Node, ...]) -> tuple[Step, ...]:
    """Compile nodes to steps; a condition is the last one, since the others depend on its outcome."""
    steps: list[Step] = []
    fixed: list[Fixed] = []
    for number, node in enumerate(nodes, 1):
        if isinstance(node, Fixed):
            fixed.append(node)
            continue
        if fixed:
            steps.append(_fixed_run(tuple(fixed)))
            fixed = []
        if isinstance(node, Branch):
            return (*steps, Fork(node, nodes[number:]))
        steps.append(TakeBytes(node, run_dtype((node.prefix,)) if node.prefix else None))
    return (*steps, _fixed_run(tuple(fixed))) if fixed else tuple(steps)


def _fixed_run(nodes: tuple[Fixed, ...]) -> FixedRun:
    """A run of nodes. Strings of constant length are not gathered: they become holes of the dtype."""
    blobs = []
    position = 0
    for node in nodes:
        if isinstance(node, FixedBytes) and node.path:
            blobs.append((node.path, position, node.size))
        position += node.size
    plain = (FixedBytes("", node.size) if isinstance(node, FixedBytes) else node for node in nodes)
    return FixedRun(run_dtype(tuple(plain)), tuple(blobs))
