"""Columnar decode of variable-size records.

The nodes of a schema are compiled to a short program: gather a run of fixed fields (one copy per record), take a byte
string, branch. Conditions that depend only on the leading run are evaluated first, so that records of one shape (the
usual case) are decoded by one program without a branch. Records of several shapes are decoded in groups, by a program
per shape, and the columns are merged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import construct as c
import numpy as np

from .. import kernel
from .columns import Columns, merge
from .dtype import run_dtype
from .layout import REST, Blob, Branch, Expression, Node, Number, PaddingBytes, is_fixed, nodes_of
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
    """A condition on fields behind the leading run; the programs of both outcomes follow from it."""

    branch: Branch
    rest: tuple[Node, ...]


class AbsentFields(NamedTuple):
    """Fields that only the other outcome of a condition has."""

    fields: tuple[Number | Blob, ...]


Step = FixedRun | TakeBytes | Fork | AbsentFields
Outcomes = frozenset[tuple[Branch, bool]]


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
    return _decode(nodes_of(schema), buffer, starts, bounds)


def decode_one(schema: c.Construct[Any, Any], data: bytes | bytearray | Bytes) -> Columns:
    """The record at the beginning of some bytes, as columns of one row."""
    return decode(schema, np.frombuffer(data, np.uint8), np.zeros(1, np.int64))


def _decode(nodes: tuple[Node, ...], buffer: Bytes, starts: Ints, bounds: Any) -> Columns:
    early = early_branches(nodes)
    if not early or not len(starts):
        return _run(nodes, frozenset(), buffer, Columns(starts), bounds)
    plain = _plain_outcomes(early)
    columns = Columns(starts)
    first, *rest = straight_steps(nodes, plain) or (None,)
    if isinstance(first, FixedRun):
        _gather(first, buffer, columns, bounds)
        if columns.ok.all() and not any(_holds_for_any(one.branch, columns) for one in early):
            return _steps(tuple(rest), buffer, columns, bounds)
    probe = Columns(starts)
    _load(probe, early, buffer)
    groups = group_by_shape(early, probe.__getitem__, len(starts))
    parts = []
    for index, outcomes in groups:
        part = _run(nodes, outcomes, buffer, Columns(starts[index]), _bounds_of(bounds, index))
        parts.append((index, part))
    return merge(len(starts), starts, parts)


@lru_cache(maxsize=256)
def _plain_outcomes(early: tuple[Early, ...]) -> Outcomes:
    """The outcomes if no condition holds: the usual shape, which is tried first."""
    return frozenset((one.branch, False) for one in early)


def _holds_for_any(branch: Branch, columns: Columns) -> bool:
    """Whether the condition holds for some record."""
    return bool(np.any(branch.condition(ExpressionScope(columns.__getitem__, branch.scope))))


def group_by_shape(early: tuple[Early, ...], look_up: Callable[[str], Any], count: int) -> list[tuple[Ints, Outcomes]]:
    """(index of the records, outcomes) for each combination of outcomes of the early conditions that occurs."""
    common, differing = 0, []
    for bit, one in enumerate(early):
        holds = np.asarray(one.branch.condition(ExpressionScope(look_up, one.branch.scope))) != 0
        if holds.all():
            common |= 1 << bit
        elif holds.any():
            differing.append((bit, holds))
    shape = np.full(count if differing else 1, common, np.int64)
    for bit, holds in differing:
        shape |= holds.astype(np.int64) << bit
    return [
        (
            np.flatnonzero(shape == kind) if differing else np.arange(count),
            frozenset((one.branch, bool(kind >> bit & 1)) for bit, one in enumerate(early)),
        )
        for kind in np.unique(shape).tolist()
    ]


def _run(nodes: tuple[Node, ...], outcomes: Outcomes, buffer: Bytes, columns: Columns, bounds: Any) -> Columns:
    """Decode `nodes` of records that have been decoded up to `columns.ends`."""
    return _steps(straight_steps(nodes, outcomes), buffer, columns, bounds)


def _steps(steps: tuple[Step, ...], buffer: Bytes, columns: Columns, bounds: Any) -> Columns:
    for step in steps:
        if isinstance(step, FixedRun):
            _gather(step, buffer, columns, bounds)
        elif isinstance(step, TakeBytes):
            _take(step, buffer, columns, bounds)
        elif isinstance(step, AbsentFields):
            _lack(step.fields, buffer, columns)
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
    assert not isinstance(blob.length, int)

    def look_up(path: str) -> Any:
        return bounds - columns.ends if path.endswith(REST) else columns[path]

    length = np.asarray(blob.length(ExpressionScope(look_up, blob.scope)), np.int64)
    if length.ndim == 0:
        length = np.full(len(columns), length, np.int64)
    at = _advance(columns, length, bounds, buffer)
    if not columns.ok.all():
        length = np.where(columns.ok, length, 0)
    columns.set(blob.path, Ragged(buffer, at, length))


def _lack(fields: tuple[Number | Blob, ...], buffer: Bytes, columns: Columns) -> None:
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
    value = np.asarray(branch.condition(ExpressionScope(columns.__getitem__, branch.scope))) != 0
    value = np.broadcast_to(value, len(columns))
    parts = []
    for wanted, nodes in ((True, branch.yes), (False, branch.no)):
        index = np.flatnonzero(value == wanted)
        whole = len(index) == len(columns)
        if not whole and not len(index):
            continue
        part = columns if whole else columns.take(index)
        _lack(branch.lacking(wanted), buffer, part)
        part = _run(nodes + step.rest, frozenset(), buffer, part, _bounds_of(bounds, index, whole))
        if whole:
            return part
        parts.append((index, part))
    return merge(len(columns), columns.starts, parts)


def _bounds_of(bounds: Any, index: Ints, whole: bool = False) -> Any:
    each = isinstance(bounds, np.ndarray) and bounds.ndim and not whole
    return bounds[index] if each else bounds


@lru_cache(maxsize=1024)
def straight_steps(nodes: tuple[Node, ...], outcomes: Outcomes) -> tuple[Step, ...]:
    """Compile nodes to steps; branches with a known outcome are inlined."""
    steps: list[Step] = []
    fixed: list[Node] = []
    known = dict(outcomes)

    def flush() -> None:
        if fixed:
            steps.append(_fixed_run(tuple(fixed)))
            fixed.clear()

    queue = list(nodes)
    while queue:
        node = queue.pop(0)
        if isinstance(node, Branch) and node in known:
            queue[:0] = node.yes if known[node] else node.no
            if lacking := node.lacking(known[node]):
                steps.append(AbsentFields(lacking))
        elif is_fixed(node):
            fixed.append(node)
        elif isinstance(node, Blob):
            flush()
            steps.append(TakeBytes(node, run_dtype((node.prefix,)) if node.prefix else None))
        else:
            assert isinstance(node, Branch)
            flush()
            steps.append(Fork(node, tuple(queue)))
            break
    flush()
    return tuple(steps)


def _fixed_run(nodes: tuple[Node, ...]) -> FixedRun:
    """A run of nodes. Strings of constant length are not gathered: they become holes of the dtype."""
    plain: list[Node] = []
    blobs = []
    position = 0
    for node in nodes:
        if isinstance(node, Blob):
            assert isinstance(node.length, int)
            blobs.append((node.path, position, node.length))
            plain.append(PaddingBytes(node.length))
            position += node.length
        else:
            assert isinstance(node, Number | PaddingBytes)
            plain.append(node)
            position += node.size
    return FixedRun(run_dtype(tuple(plain)), tuple(blobs))


class Early(NamedTuple):
    """A branch that can be decided before anything is gathered, and the numbers that its condition reads."""

    branch: Branch
    #: (number, offset from the start of the record)
    numbers: tuple[tuple[Number, int], ...]


@lru_cache(maxsize=256)
def early_branches(nodes: tuple[Node, ...]) -> tuple[Early, ...]:
    """Top-level branches whose condition reads only numbers of the leading run."""
    leading = _leading_numbers(nodes)
    found = []
    for node in nodes:
        if isinstance(node, Branch):
            read = _numbers_read(node.condition, node.scope, leading)
            if read is not None:
                found.append(Early(node, read))
    return tuple(found)


def _leading_numbers(nodes: tuple[Node, ...]) -> dict[str, tuple[Number, int]]:
    leading: dict[str, tuple[Number, int]] = {}
    position = 0
    for node in nodes:
        if isinstance(node, Number):
            if node.count is None:
                leading[node.path] = (node, position)
            position += node.size
        elif isinstance(node, PaddingBytes):
            position += node.size
        elif isinstance(node, Blob) and isinstance(node.length, int):
            position += node.length
        else:
            break
    return leading


def _numbers_read(
    condition: Expression, scope: str, leading: dict[str, tuple[Number, int]]
) -> tuple[tuple[Number, int], ...] | None:
    """The leading numbers that a condition reads; None if it reads anything else."""
    read: dict[str, tuple[Number, int]] = {}

    def look_up(path: str) -> Any:
        if path in leading:
            read[path] = leading[path]
            return np.zeros(1, leading[path][0].code)
        if any(known.startswith(f"{path}.") for known in leading):
            raise KeyError(path)  # a struct: the lookup continues inside it
        raise LookupError(path)

    try:
        condition(ExpressionScope(look_up, scope))
    except (LookupError, TypeError, AttributeError):
        return None
    return tuple(read.values())


def _load(columns: Columns, early: tuple[Early, ...], buffer: Bytes) -> None:
    """Load only the numbers that the early conditions read; 0 where the buffer ends before them."""
    for number, offset in {pair for branch in early for pair in branch.numbers}:
        at = columns.starts + offset
        view = overlapping(buffer, np.dtype(number.code))
        inside = at < len(view)
        if not inside.all():
            at = np.where(inside, at, 0)
        values = view[at] if len(view) else np.zeros(len(at), number.code)
        columns.set(number.path, values.astype(values.dtype.newbyteorder("=")))
