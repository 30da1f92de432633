"""A schema as a table that the native kernel executes (kernel/src/table.rs): construct stays the only
declaration.

An expression of a schema (a length, a condition) is not read but called, with symbols instead of
numbers: what comes back says what it does. A schema that does more than the kernel knows has no
table, and numpy decodes it.
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
from .layout import REST, Blob, Branch, Node, Number, PaddingBytes, UnsupportedSchema, is_fixed, nodes_of
from .ragged import Bytes, Flags, Ints, Ragged, StringNotes
from .scope import ExpressionScope

_ROW = 6
_OWN = 3
"""Columns in front of those of a table, where a chain is followed: begin, end, checksum fits."""


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
    """What has to hold of a record that a chain goes on behind, by names of fields.

    checksum: bytes, and the field with their CRC; that it fits is only noted. size: its size. position:
    its own position. known: one of up to three numbers. later: fields that few ask for: they are decoded
    when somebody does.
    """

    checksum: tuple[str, str]
    size: str = ""
    position: str = ""
    known: tuple[str, tuple[int, ...]] = ("", ())
    later: frozenset[str] = frozenset()


class Noting(NamedTuple):
    """What is noted of two strings of each record while its bytes are at hand, see `StringNotes`.

    numbered: a field whose different values are numbered. itemized: one of items with names, of the first
    `values` of which the values are told; of that of the very first the sum is made. words, factor: of such
    a sum; without words there is none. apart: values are hashed, but for those that have this byte; -1: they
    are not. Each field may be left out.
    """

    numbered: str = ""
    itemized: str = ""
    names: tuple[bytes, ...] = ()
    values: int = 0
    words: int = 0
    factor: int = 0
    apart: int = -1


class Program(NamedTuple):
    """rows: int64[n, 6]. columns: path → number of its column, of bytes the first of two. later: fields
    without one.
    """

    schema: c.Construct[Any, Any]
    rows: Ints
    columns: dict[str, int]
    strings: frozenset[str]
    width: int
    later: tuple[str, ...]

    def decode(self, buffer: Bytes, starts: Ints, limits: Ints) -> Columns:
        """Columns of the records that begin at `starts`; limits: int64[n], as `starts`."""
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

        Up to `room` records, to the first that breaks a rule: their columns, which checksums fit
        (bool[n], None where nobody asks), and the byte behind the last. frame: see kernel/src/chain.rs.
        """
        out = np.empty(1 + (_OWN + self.width) * room, np.int64)
        notes = noting and _Notes(self, noting, room)
        count = kernel.run(
            kernel.Operation.CHAIN,
            (self.rows, frame, buffer, out, *(notes.arrays if notes else ())),
            (self.width, base, at, crc, room, *(notes.numbers if notes else ())),
        )
        table = out[1:].reshape(-1, room)[:, :count]
        starts, ends = table[0], table[1]
        columns = self._columns(starts, table[_OWN:], buffer)
        columns.ends = ends
        if notes:
            notes.tell(columns, count)
        rest = program_of(self.schema)
        if self.later and rest is not None:  # no cycle: the columns go when nobody has them
            columns.add_later(self.later, lambda: rest.decode(buffer, starts, ends))
        return columns, table[2] != 0 if crc else None, int(out[0])

    def _columns(self, starts: Ints, table: Ints, buffer: Bytes) -> Columns:
        columns = Columns(starts)
        for path, at in self.columns.items():
            text = path in self.strings
            columns.set(path, Ragged(buffer, table[at], table[at + 1]) if text else table[at])
        return columns


class _Notes:
    """The arrays in which the kernel notes something of up to `room` records, and what they hold."""

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
        """Give the strings of the records what was noted of them."""
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
    """The table of a schema; None: the kernel does not know some of it."""
    made = _Maker(frozenset() if rules is None else rules.later)
    try:
        nodes = nodes_of(schema)
        made.name(nodes)
        rows = made.rows(nodes)
    except (UnsupportedSchema, TypeError):  # a TypeError: of an operator that symbols have not
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
    """The value of a field, plus a constant."""

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
    """A condition: the value of a field and a number, by `==` or by `&`."""

    path: str
    equal: bool
    number: Any


class _Maker:
    """later: fields that get no column."""

    def __init__(self, later: frozenset[str]) -> None:
        self._skip = later
        self.columns: dict[str, int] = {}
        self.strings: set[str] = set()
        self.later: dict[str, None] = {}
        self.width = 0

    def name(self, nodes: Iterable[Node]) -> None:
        """Give each field its column, whichever outcome of a condition has it."""
        for node in nodes:
            if isinstance(node, Branch):
                self.name(node.yes)
                self.name(node.no)
            elif isinstance(node, Blob):
                if node.prefix is not None:
                    self._add(node.prefix.path, 1)
                self._add(node.path, 2)
                self.strings.add(node.path)
            elif isinstance(node, Number):
                if node.count is not None or node.code[1] not in "iu" or node.code[1:] == "u8":
                    raise UnsupportedSchema(f"{node.path}: {node.code}")
                self._add(node.path, 1)

    def _add(self, path: str, width: int) -> None:
        if path in self._skip:
            self.later[path] = None
        elif path not in self.columns:
            self.columns[path] = self.width
            self.width += width

    def rows(self, nodes: Iterable[Node]) -> list[list[int]]:
        """Steps over nodes; those of constant size are one run."""
        rows: list[list[int]] = []
        fixed: list[Node] = []
        for node in nodes:
            if is_fixed(node):
                fixed.append(node)
                continue
            rows += self._run(fixed)
            fixed = []
            if isinstance(node, Branch):
                rows += self._branch(node)
            else:
                assert isinstance(node, Blob)
                rows += self._blob(node)
        return rows + self._run(fixed)

    def _run(self, nodes: list[Node]) -> list[list[int]]:
        rows: list[list[int]] = []
        at = 0
        for node in nodes:
            if isinstance(node, Blob):
                assert isinstance(node.length, int)
                if node.path in self.columns:
                    rows.append([_Step.FIXED, self.columns[node.path], at, node.length])
                at += node.length
                continue
            assert isinstance(node, Number | PaddingBytes)
            if isinstance(node, Number) and node.path in self.columns:
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
        assert not isinstance(node.length, int)
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
            raise KeyError(path)  # a struct: the scope goes on inside
        raise UnsupportedSchema(f"an expression over {path}")
