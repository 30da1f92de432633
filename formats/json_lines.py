"""Rows of columns as lines of JSON, each line composed of the same pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise, repeat
from typing import NamedTuple

import numpy as np

from . import kernel
from .derive.ragged import Bytes, Ints, Ragged

_PART_BYTES = 1 << 20
"""Lines of up to so many bytes in total are made at once; a longer line alone."""
_NUMBER_BYTES = 20
_escaped = json.JSONEncoder(ensure_ascii=False).encode
_LAST_ASCII = "\x7f"


class PieceKind(IntEnum):
    """Kind of a piece, as in kernel/src/lines.rs."""

    CONSTANT = 0
    NUMBER = 1
    HEX = 2
    CHOSEN = 3
    STRING = 4
    STRING_OR_NULL = 5
    LIST = 6
    OBJECT = 7


class LineBytes(NamedTuple):
    """Lines of rows `first` to `end` - 1. data: their bytes. ends: where the line of each row ends; -1: no line.

    A row has no line if a text is not UTF-8 or has an avoided character, or if items are not all names with values.
    """

    first: int
    data: Bytes
    ends: Ints

    @property
    def end(self) -> int:
        """The row behind the last one."""
        return self.first + len(self.ends)


def in_order(data: Bytes, ends: Ints) -> Iterator[tuple[memoryview, int] | None]:
    """Yield (bytes of consecutive lines, their number), and None for each row without a line, in row order."""
    view, first, begin = data.data, 0, 0
    for stop in [*np.flatnonzero(ends < 0).tolist(), len(ends)]:
        if first < stop:
            end = int(ends[stop - 1])
            yield view[begin:end], stop - first
            begin = end
        if stop < len(ends):
            yield None
        first = stop + 1


class JsonLines:
    """JSON lines composed piece by piece: call a method for each piece of a line, then `parts`."""

    def __init__(self, rows: int, avoided: Sequence[tuple[str, str]]) -> None:
        """avoided: (first, last) of ranges of characters; a row that contains one gets no line."""
        self._buffers: dict[int, Bytes] = {}
        self._rows = rows
        self._pieces: list[tuple[int, int, int, int]] = []
        self._columns: list[Ints] = []
        self._constants: list[bytes] = []
        self._size = 0
        self._most = np.zeros(rows, np.int64)
        self._avoided = avoided

    def constant(self, text: str) -> None:
        """The same text in each row."""
        self._pieces.append((PieceKind.CONSTANT, self._keep(text), len(self._constants[-1]), 0))
        self._most += len(self._constants[-1])

    def number(self, values: Ints) -> None:
        """A whole number."""
        self._add(PieceKind.NUMBER, values)
        self._most += _NUMBER_BYTES

    def hexadecimal(self, values: Ints, digits: int) -> None:
        """The lowest digits of a number, in upper case."""
        self._add(PieceKind.HEX, values, more=(digits, 0))
        self._most += digits

    def chosen(self, which: Ints, texts: Sequence[str]) -> None:
        """One of a few texts. which: index of each row's text."""
        start = np.array([self._keep(text) for text in texts], np.int64)
        length = np.array([len(kept) for kept in self._constants[-len(texts) :]], np.int64)
        self._add(PieceKind.CHOSEN, start[which], length[which])
        self._most += length[which]

    def string(self, texts: Ragged, *, or_null: bool = False) -> None:
        """A text as a string; or_null: null for an empty one."""
        self._text(PieceKind.STRING_OR_NULL if or_null else PieceKind.STRING, texts)

    def list(self, texts: Ragged, separator: bytes) -> None:
        """A list of the strings between separators, without empty ones."""
        self._text(PieceKind.LIST, texts, (separator[0], 0))

    def object(self, texts: Ragged, middle: bytes, end: bytes) -> None:
        """An object from items: each ends with the byte `end` and has `middle` between name and value."""
        self._text(PieceKind.OBJECT, texts, (middle[0], end[0]))

    def _text(self, kind: PieceKind, texts: Ragged, more: tuple[int, int] = (0, 0)) -> None:
        self._buffers[len(self._columns)] = texts.buffer
        self._add(kind, texts.start, texts.length, more=more)
        self._most += np.maximum(texts.length, 0) * 2 + 8

    def _add(self, kind: PieceKind, *columns: Ints, more: tuple[int, int] = (0, 0)) -> None:
        self._pieces.append((kind, len(self._columns), *more))
        self._columns += columns

    def _keep(self, text: str) -> int:
        """Keep a constant; return where it is among all constants."""
        self._constants.append(text.encode())
        self._size += len(self._constants[-1])
        return self._size - len(self._constants[-1])

    def parts(self) -> Iterator[LineBytes]:
        """Yield all rows in order, in parts of bounded size."""
        behind = np.cumsum(self._most)
        first = 0
        while first < self._rows:
            before = int(behind[first - 1]) if first else 0
            end = max(first + 1, int(np.searchsorted(behind, before + _PART_BYTES, "right")))
            some, room = slice(first, end), int(behind[end - 1]) - before
            native = self._buffer if kernel.is_wanted(end - first) else None
            part = self._plain(some) if native is None else self._native(some, room, native)
            yield part
            first = part.end

    @property
    def _buffer(self) -> Bytes | None:
        """The buffer that holds the texts of all columns; None if there are several."""
        first, *others = self._buffers.values()
        return first if all(other is first for other in others) else None

    def _native(self, some: slice, room: int, buffer: Bytes) -> LineBytes:
        columns = np.array([column[some] for column in self._columns], np.int64)
        ends, out = np.empty(some.stop - some.start, np.int64), np.empty(room, np.uint8)
        constants = np.frombuffer(b"".join(self._constants), np.uint8)
        pieces, bounds = np.array(self._pieces, np.int64), _bounds(tuple(self._avoided))
        arrays = (pieces, constants, buffer, bounds, columns, ends, out)
        written = kernel.run(kernel.Operation.LINES, arrays, (0,))
        if not written:  # more escapes than there is room for
            written, ends[0] = 1, -1
        return LineBytes(some.start, out, ends[:written])

    def _plain(self, some: slice) -> LineBytes:
        constants = b"".join(self._constants)
        pieces = [self._piece(piece, some, constants) for piece in self._pieces]
        avoided = (f"{first}-{last}" for first, last in self._avoided if last > _LAST_ASCII)
        odd = re.compile(f"[{_LAST_ASCII}{''.join(avoided)}]").search
        lines = [
            None if None in parts or odd(line := "".join(parts)) else line.encode()
            for parts in zip(*pieces, strict=True)
        ]
        sizes = np.array([-1 if line is None else len(line) for line in lines], np.int64)
        ends = np.where(sizes < 0, -1, np.cumsum(np.maximum(sizes, 0)))
        data = b"".join(line for line in lines if line is not None)
        return LineBytes(some.start, np.frombuffer(data, np.uint8), ends)

    def _piece(self, piece: tuple[int, int, int, int], some: slice, constants: bytes) -> Iterable[str | None]:
        """The text of a piece in each of some rows; None for a row without a line."""
        kind, column, a, b = piece
        if kind == PieceKind.CONSTANT:
            return repeat(constants[column : column + a].decode(), some.stop - some.start)
        numbers = self._columns[column][some]
        if kind == PieceKind.NUMBER:
            return map(str, numbers.tolist())
        if kind == PieceKind.HEX:
            return [f"{number & (1 << 4 * a) - 1:0{a}X}" for number in numbers.tolist()]
        buffer = self._buffers.get(column, np.frombuffer(constants, np.uint8))
        texts = Ragged(buffer, numbers, self._columns[column + 1][some]).tolist()
        if kind == PieceKind.CHOSEN:
            return map(bytes.decode, texts)
        return [_json_text(kind, text, chr(a), chr(b)) for text in texts]


def _json_text(kind: int, data: bytes, a: str, b: str) -> str | None:
    """The JSON of a text; None for a text that is not UTF-8, and for items that are not all names with values."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if kind == PieceKind.STRING_OR_NULL and not text:
        return "null"
    if kind == PieceKind.LIST:
        return f"[{','.join(_escaped(part) for part in text.split(a) if part)}]"
    if kind != PieceKind.OBJECT:
        return _escaped(text)
    items = [item.split(a) for item in text.removesuffix(b).split(b)] if text else []
    if not all(len(item) == 2 and all(item) for item in items):
        return None
    return f"{{{','.join([f'{_escaped(name)}:{_escaped(value)}' for name, value in items])}}}"


@lru_cache(maxsize=4)
def _bounds(avoided: tuple[tuple[str, str], ...]) -> Ints:
    """Begin and end, alternating, of the avoided ranges of characters that JSON does not escape."""
    ranges = [(first, last) for first, last in sorted(avoided) if last > _LAST_ASCII]
    bounds = [bound for first, last in ranges for bound in (ord(first), ord(last) + 1)]
    assert all(one < other for one, other in pairwise(bounds))
    return np.array(bounds, np.int64)
