"""A schema as a table that the native kernel executes (kernel/src/table.rs); construct stays the only declaration.

An expression of a schema (a length, a condition) is not parsed but called with symbols in place of numbers; the result
tells what it does. A schema that does more than the kernel can has no table, and numpy decodes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import construct as c
import numpy as np

from .. import kernel
from .columns import Columns
from .layout import REST, Blob, Branch, Fixed, FixedBytes, Node, Number, UnsupportedSchema, nodes_of
from .ragged import Bytes, Flags, Ints, Ragged, StringNotes
from .scope import ExpressionScope

_ROW = 6
_CHAIN_COLUMNS = 3
"""Columns before those of a table when a chain is followed: begin, end, whether the checksum matches."""


class _Step(IntEnum):
    NUMBER = 0
    RUN = 1
    FIXED = 2
    TAKE = 3
    REST = 4
    IF = 5
    SIZE = 10
    POSITION = 11
    KNOWN = 12
    CHECKSUM = 13


class ChainRules(NamedTuple):
    """Rules for a record with which a chain continues, by names of fields.

    checksum: a field of bytes and the field with their CRC; a mismatch is only noted. size: field with the record's
    size. position: field with its own position. known: a field and up to three values that it may have. later: rarely
    needed fields, which are decoded when needed.
    """

    checksum: tuple[str, str]
    size: str = ""
    position: str = ""
    known: tuple[str, tuple[int, ...]] = ("", ())
    later: frozenset[str] = frozenset()


class Noting(NamedTuple):
    """What to note about two strings of each record while their bytes are in the cache, see `StringNotes`.

    numbered: field whose distinct values are numbered. itemized: field of items with names. names: names to find in it;
    the values of the first `values` names are located. words, factor: of the word sums of the first name's values; no
    sums if words is 0. apart: values are hashed unless they contain this byte; -1: no hashes. later: fields that are
    decoded when needed, besides those of `ChainRules`. All are optional.
    """

    numbered: str = ""
    itemized: str = ""
    names: tuple[bytes, ...] = ()
    values: int = 0
    words: int = 0
    factor: int = 0
    apart: int = -1
    later: frozenset[str] = frozenset()


class Program(NamedTuple):
    """rows: int64[n, 6]. columns: path → number of its column; for bytes the first of two. later: fields without a
    column.
    """

    schema: c.Construct[Any, Any]
    rows: Ints
    columns: dict[str, int]
    strings: frozenset[str]
    width: int
    later: tuple[str, ...]

    def decode(self, buffer: Bytes, starts: Ints, limits: Ints) -> Columns:
        """Columns of the records that begin at `starts`; limits: int64[n], first byte that may not be read."""
        count = len(starts)
        out = np.empty((2 + self.width, count), np.int64)
        arrays = (self.rows, buffer, starts, limits, out.reshape(-1))
        kernel.run(kernel.Operation.DECODE, arrays, (self.width,))
        columns = self._columns(starts, out[2:], buffer)
        columns.ends, columns.ok = out[0], out[1] != 0
        return columns

    def follow(
        self, frame: Ints, buffer: Bytes, base: int, at: int, *, crc: bool, room: int, noting: Noting | None = None
    ) -> tuple[Columns, Flags | None, int]:
        """Follow the chain from byte `at` of a buffer that begins at log position `base`.

        Returns up to `room` records, ending at the first that breaks a rule: (columns, bool[n] whether checksums match
        or None without `crc`, byte behind the last record). frame: see kernel/src/chain.rs.
        """
        out = np.empty(1 + (_CHAIN_COLUMNS + self.width) * room, np.int64)
        notes = noting and _Notes(self, noting, room)
        count = kernel.run(
            kernel.Operation.CHAIN,
            (self.rows, frame, buffer, out, *(notes.arrays if notes else ())),
            (self.width, base, at, crc, room, *(notes.numbers if notes else ())),
        )
        table = out[1:].reshape(-1, room)[:, :count]
        starts, ends = table[0], table[1]
        columns = self._columns(starts, table[_CHAIN_COLUMNS:], buffer)
        columns.ends = ends
        if notes:
            notes.tell(columns, count)
        rest = program_of(self.schema)
        if self.later and rest is not None:  # no reference cycle, so the columns are freed when unused
            columns.add_later(self.later, lambda: rest.decode(buffer, starts, ends))
        return columns, table[2] != 0 if crc else None, int(out[0])

    def _columns(self, starts: Ints, table: Ints, buffer: Bytes) -> Columns:
        columns = Columns(starts)
        for path, at in self.columns.items():
            text = path in self.strings
            columns.set(path, Ragged(buffer, table[at], table[at + 1]) if text else table[at])
        return columns


class _Notes:
    """The arrays in which the kernel stores notes on up to `room` records."""

    def __init__(self, program: Program, noting: Noting, room: int) -> None:
        self._noting, self._room = noting, room
        names = np.frombuffer(b"".join(noting.names), np.uint8)
        lengths = np.array([len(name) for name in noting.names], np.int64)
        self._parts = (
            2 if noting.numbered else 0,
            1 if noting.words else 0,
            3 * noting.values,
            noting.values if noting.apart >= 0 else 0,
        )
        self._out = np.empty(2 + sum(self._parts) * room, np.int64)
        self._odd = np.empty(room, np.uint8)
        self.arrays = (names, lengths, self._out, self._odd)
        fields = (noting.numbered, noting.itemized)
        places = (program.columns[field] if field else -1 for field in fields)
        self.numbers = (*places, noting.values, noting.words, noting.factor, noting.apart)

    def tell(self, columns: Columns, count: int) -> None:
        noting, (found, names) = self._noting, self._out[:2].tolist()
        table = self._out[2:].reshape(-1, self._room)
        numbers, sums, values, hashes = np.split(table[:, :count], np.cumsum(self._parts)[:-1])
        if noting.numbered:
            text = columns.ragged(noting.numbered)
            text.noted = StringNotes(numbers=(numbers[0], numbers[1][:found]))
        if noting.itemized:
            columns.ragged(noting.itemized).noted = StringNotes(
                items=(values.reshape(noting.values, 3, count), self._odd[:count], names, noting.names),
                sums=sums[0].view(np.uint64) if noting.words else None,
                hashes=hashes if len(hashes) else None,
            )


@lru_cache(maxsize=64)
def program_of(schema: c.Construct[Any, Any], rules: ChainRules | None = None) -> Program | None:
    """The table of a schema; None if the kernel cannot execute it."""
    made = _TableMaker(frozenset() if rules is None else rules.later)
    try:
        nodes = nodes_of(schema)
        made.name(nodes)
        rows = made.rows(nodes)
    except (UnsupportedSchema, TypeError):  # TypeError: an operator that symbols do not have
        return None
    if rules is not None:
        rows += _rule_rows(rules, made.columns)
    padded = np.array([[*row, *[0] * (_ROW - len(row))] for row in rows], np.int64)
    return Program(schema, padded, made.columns, frozenset(made.strings), made.width, tuple(made.later))


def _rule_rows(rules: ChainRules, columns: dict[str, int]) -> list[list[int]]:
    text, stored = rules.checksum
    rows = [[_Step.CHECKSUM, columns[text], columns[stored]]]
    if rules.size:
        rows.append([_Step.SIZE, columns[rules.size]])
    if rules.position:
        rows.append([_Step.POSITION, columns[rules.position]])
    field, known = rules.known
    if field:
        rows.append([_Step.KNOWN, columns[field], *(known * 3)[:3]])
    return rows


class _Symbol:
    """The value of a field plus a constant, as the result of an expression."""

    def __init__(self, path: str, add: int = 0) -> None:
        self.path, self.add = path, add

    def __add__(self, number: int) -> _Symbol:
        return _Symbol(self.path, self.add + number)

    def __sub__(self, number: int) -> _Symbol:
        return _Symbol(self.path, self.add - number)

    def __and__(self, number: int) -> _Test:
        return _Test(self.path, equal=False, number=number)

    def __eq__(self, number: object) -> Any:
        return _Test(self.path, equal=True, number=number)

    __hash__ = None  # type: ignore[assignment]


class _Test(NamedTuple):
    """A condition: the value of a field compared with a number by `==` or `&`."""

    path: str
    equal: bool
    number: Any


class _TableMaker:
    """Makes the rows of a table. later: fields that get no column."""

    def __init__(self, later: frozenset[str]) -> None:
        self._skip = later
        self.columns: dict[str, int] = {}
        self.strings: set[str] = set()
        self.later: dict[str, None] = {}
        self.width = 0

    def name(self, nodes: Iterable[Node]) -> None:
        """Assign a column to each field of both outcomes of conditions. Raises UnsupportedSchema."""
        for node in nodes:
            if isinstance(node, Branch):
                self.name(node.yes)
                self.name(node.no)
            elif isinstance(node, Number):
                if node.count is not None or node.code[1] not in "iu" or node.code[1:] == "u8":
                    raise UnsupportedSchema(f"{node.path}: {node.code}")
                self._add(node.path, 1)
            elif node.path:
                if isinstance(node, Blob) and node.prefix is not None:
                    self._add(node.prefix.path, 1)
                self._add(node.path, 2)
                self.strings.add(node.path)

    def _add(self, path: str, width: int) -> None:
        if path in self._skip:
            self.later[path] = None
        elif path not in self.columns:
            self.columns[path] = self.width
            self.width += width

    def rows(self, nodes: Iterable[Node]) -> list[list[int]]:
        """The rows of nodes; adjacent nodes of constant size become one run."""
        rows: list[list[int]] = []
        fixed: list[Fixed] = []
        for node in nodes:
            if isinstance(node, Fixed):
                fixed.append(node)
                continue
            rows += self._run(fixed)
            fixed = []
            if isinstance(node, Branch):
                rows += self._branch(node)
            else:
                rows += self._blob(node)
        return rows + self._run(fixed)

    def _run(self, nodes: list[Fixed]) -> list[list[int]]:
        rows: list[list[int]] = []
        at = 0
        for node in nodes:
            if node.path not in self.columns:
                pass
            elif isinstance(node, FixedBytes):
                rows.append([_Step.FIXED, self.columns[node.path], at, node.size])
            else:
                signed, little = node.code[1] == "i", node.code[0] == "<"
                rows.append([_Step.NUMBER, self.columns[node.path], at, node.size, signed, little])
            at += node.size
        return [[_Step.RUN, at], *rows] if nodes else []

    def _branch(self, node: Branch) -> list[list[int]]:
        test = self._test(node)
        sides = [self.rows(node.yes), self.rows(node.no)]
        head = [_Step.IF, self.columns[test.path], test.equal, test.number, *map(len, sides)]
        return [head, *sides[0], *sides[1]]

    def _test(self, node: Branch) -> _Test:
        test = node.condition(ExpressionScope(self._symbol, node.scope))
        if not isinstance(test, _Test) or not isinstance(test.number, int):
            raise UnsupportedSchema(f"not a plain condition: {node.condition!r}")
        if node.lacking(True) or node.lacking(False):
            raise UnsupportedSchema(f"fields that not all records have: {node.condition!r}")
        return test

    def _blob(self, node: Blob) -> list[list[int]]:
        rows = self._run([node.prefix]) if node.prefix is not None else []
        length = node.length(ExpressionScope(self._symbol, node.scope))
        if not isinstance(length, _Symbol):
            raise UnsupportedSchema(f"not a plain length: {node.length!r}")
        if length.path.endswith(REST):
            return [*rows, [_Step.REST, self.columns[node.path]]]
        column = self.columns[length.path]
        return [*rows, [_Step.TAKE, self.columns[node.path], column, length.add]]

    def _symbol(self, path: str) -> _Symbol:
        if path in self.columns or path.endswith(REST):
            return _Symbol(path)
        if any(known.startswith(f"{path}.") for known in self.columns):
            raise KeyError(path)  # a struct: the lookup continues inside it
        raise UnsupportedSchema(f"an expression over {path}")
