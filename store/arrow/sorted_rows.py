"""Files of rows as one stream in the order of their times, in bounded memory.

Files that are in order, one behind the other, are read as they are. Others are sorted in pieces,
which go to an unnamed temporary file, and merged from there: nothing is left of it, however this ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from ...formats.derive.ragged import Ints
from ..errors import InvalidInput, from_os_error
from ..put.bulk import STEP_ROWS
from .row_files import batches_of, form_of, schema_of

TIME, STORE, POSITION = "store_timestamp", "store", "position"
_KEYS = (TIME, STORE, POSITION)
_PIECE_BYTES = 96 << 20
_BLOCK_BYTES_MAX = 1 << 20
_HEADS_BYTES = 128 << 20
"""Blocks that are held while pieces are merged, one of each."""
_GROWTH = 6
"""How much larger rows are in memory than in their file, at most as a rule."""

Key = tuple[int, int, int]
Note = Callable[[int], None]


def sorted_batches(files: Sequence[Path], note: Note = lambda _: None) -> Iterator[pa.RecordBatch]:
    """The rows of all files in the order of `store_timestamp`, `store`, `position`.

    What is equal, or lacks these columns, keeps the order of the files. note: told how many bytes
    of the files were read. Raises Missing, Unreadable, NoSpace; InvalidInput for what is no such file,
    or columns whose types do not fit together.
    """
    order = _Order()
    schema = _schema_of(files)
    in_order = _in_order(files, order)
    rows = _aligned(in_order or files, schema, note)
    if in_order:
        yield from rows
        return
    total_bytes = sum(path.stat().st_size for path in files)
    heads = max(1, total_bytes * _GROWTH // _PIECE_BYTES)
    pieces = _Pieces(order, schema, min(_BLOCK_BYTES_MAX, _HEADS_BYTES // heads))
    try:
        yield from pieces.sorted(rows)
    except OSError as error:
        raise from_os_error(error, tempfile.gettempdir(), "cannot keep pieces") from error


class _Order:
    """Makes columns to sort by: time, number of the store, position."""

    def __init__(self) -> None:
        self._stores: dict[str | None, int] = {}

    def keys(self, rows: pa.RecordBatch | pa.Table) -> tuple[Ints, Ints, Ints]:
        """int64[n] each; stores are numbered as they are met."""
        return _numbers(rows, TIME), self._numbered(rows), _numbers(rows, POSITION)

    def _numbered(self, rows: pa.RecordBatch | pa.Table) -> Ints:
        if STORE not in rows.schema.names:
            return np.zeros(rows.num_rows, np.int64)
        column = rows.column(STORE)
        texts = column.unique().to_pylist()
        numbers = [self._stores.setdefault(text, len(self._stores)) for text in texts]
        if len(texts) == 1:
            return np.full(rows.num_rows, numbers[0], np.int64)
        places = pa.compute.index_in(column, value_set=pa.array(texts, column.type))
        found: Ints = np.array(numbers, np.int64)[places.to_numpy(zero_copy_only=False)]
        return found


def _numbers(rows: pa.RecordBatch | pa.Table, name: str) -> Ints:
    """A column of numbers or times (ms), 0 where there is none."""
    if name not in rows.schema.names:
        return np.zeros(rows.num_rows, np.int64)
    column = rows.column(name)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz))
    found: Ints = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _schema_of(files: Sequence[Path]) -> pa.Schema:
    """The columns of all files together. Raises InvalidInput."""
    schemas = [schema_of(path, form_of(path)) for path in files]
    plain = [pa.schema([_plain(f) for f in schema]) for schema in dict.fromkeys(schemas)]
    try:
        return pa.unify_schemas(plain, promote_options="permissive")
    except pa.ArrowException as error:
        raise InvalidInput(f"columns of the files do not fit together: {error}") from None


def _plain(column: pa.Field) -> pa.Field:
    """A dictionary as what it stands for: each file may have another one."""
    if pa.types.is_dictionary(column.type):
        return pa.field(column.name, column.type.value_type)
    return pa.field(column.name, column.type)


def _in_order(files: Sequence[Path], order: _Order) -> list[Path]:
    """The files one behind the other, if all rows are in order then; else none of them.

    Only the columns that rows are sorted by are read.
    """
    ranges: list[tuple[Key, Key, Path]] = []
    for path in files:
        first: Key | None = None
        last: Key | None = None
        for batch, _ in batches_of(path, form_of(path), _KEYS):
            if not batch.num_rows:
                continue
            keys = order.keys(batch)
            if not _is_sorted(keys) or (last is not None and _key(keys, 0) < last):
                return []
            first = _key(keys, 0) if first is None else first
            last = _key(keys, -1)
        if first is not None and last is not None:
            ranges.append((first, last, path))
    ranges.sort(key=lambda found: found[:2])
    in_order = all(before[1] <= after[0] for before, after in pairwise(ranges))
    return [path for _, _, path in ranges] if in_order else []


def _key(keys: tuple[Ints, Ints, Ints], row: int) -> Key:
    time, store, position = (int(column[row]) for column in keys)
    return time, store, position


def _is_sorted(keys: tuple[Ints, Ints, Ints]) -> bool:
    time, store, position = (np.diff(column) for column in keys)
    same = store == 0
    later = (store > 0) | (same & (position >= 0))
    return bool(((time > 0) | ((time == 0) & later)).all())


def _aligned(files: Sequence[Path], schema: pa.Schema, note: Note) -> Iterator[pa.RecordBatch]:
    """The rows of files, all with the same columns. Raises InvalidInput."""
    for path in files:
        size, seen = path.stat().st_size, 0
        for batch, share in batches_of(path, form_of(path)):
            try:
                yield _fitted(batch, schema)
            except pa.ArrowException as error:
                raise InvalidInput(f"a column does not fit: {error}", path=path) from None
            note(int(size * share) - seen)
            seen = int(size * share)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    names = set(batch.schema.names)
    arrays = [
        batch.column(column.name).cast(column.type)
        if column.name in names
        else pa.nulls(batch.num_rows, column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass
class _Head:
    """The block of a piece that is next, from row `at` on. blocks: where the ones behind it lie."""

    blocks: list[tuple[int, int]]
    rows: pa.RecordBatch
    keys: tuple[Ints, Ints, Ints]
    at: int = 0

    @property
    def last(self) -> Key:
        return _key(self.keys, -1)

    def taken(self, limit: Key, *, equal: bool) -> pa.RecordBatch:
        """The rows before a key, and those that are equal to it."""
        begin, end = self.at, len(self.keys[0])
        for column, value in zip(self.keys, limit, strict=True):
            first, behind = np.searchsorted(column[begin:end], [value, value + 1])
            begin, end = begin + int(first), begin + int(behind)
        end = end if equal else begin
        rows, self.at = self.rows.slice(self.at, end - self.at), end
        return rows


@dataclass
class _Pieces:
    """Sorted pieces in a temporary file, each as blocks of rows."""

    order: _Order
    schema: pa.Schema
    block_bytes: int
    file: IO[bytes] = field(default_factory=lambda: tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
    pieces: list[list[tuple[int, int]]] = field(default_factory=list)

    def sorted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows in order. Raises OSError."""
        with self.file:
            piece: list[pa.RecordBatch] = []
            size = 0
            for batch in batches:
                piece.append(batch)
                size += batch.nbytes
                if size >= _PIECE_BYTES:
                    self._keep(piece)
                    piece, size = [], 0
            if not self.pieces:
                yield from self._ordered(piece).to_batches()
                return
            if piece:
                self._keep(piece)
            del piece
            yield from self._merged()

    def _ordered(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        table = pa.Table.from_batches(batches, self.schema).combine_chunks()
        time, store, position = self.order.keys(table)
        return table.take(pa.array(np.lexsort((position, store, time))))

    def _keep(self, batches: Sequence[pa.RecordBatch]) -> None:
        table = self._ordered(batches)
        rows = max(1, self.block_bytes * table.num_rows // max(1, table.nbytes))
        blocks = []
        for batch in table.to_batches(max_chunksize=rows):
            data = batch.serialize()
            blocks.append((self.file.tell(), data.size))
            self.file.write(data)
        self.pieces.append(blocks)

    def _merged(self) -> Iterator[pa.RecordBatch]:
        heads = [self._next(blocks) for blocks in self.pieces if blocks]
        taken: list[pa.RecordBatch] = []
        while heads:
            limit, first = min((head.last, number) for number, head in enumerate(heads))
            # what is equal stays in the order of the pieces: this one may have more of it
            taken += [head.taken(limit, equal=n <= first) for n, head in enumerate(heads)]
            heads = [
                head if head.at < head.rows.num_rows else self._next(head.blocks)
                for head in heads
                if head.at < head.rows.num_rows or head.blocks
            ]
            if sum(rows.num_rows for rows in taken) >= STEP_ROWS:
                yield from self._ordered(taken).to_batches()
                taken = []
        yield from self._ordered(taken).to_batches()

    def _next(self, blocks: list[tuple[int, int]]) -> _Head:
        at, size = blocks[0]
        self.file.seek(at)
        rows = pa.ipc.read_record_batch(pa.py_buffer(self.file.read(size)), self.schema)
        return _Head(blocks[1:], rows, self.order.keys(rows))
