"""Evaluation of a filter expression for one message or for a batch of columns.

For a batch, an operator is called once per distinct value, not per record. A column of values is coded: `values` holds
the distinct values (some may occur twice), `ids` int64[n] is the index of each record's value. Operators work on
`values`; conditions have one of the four values of STATES, coded by their index.

Property values are compared as bytes, for all records at once, where that is exact: for ASCII texts, because Java
decodes an ASCII byte to its character whatever malformed bytes surround it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.derive import Ragged
from ...formats.derive.ragged import Flags, Ints, overlapping, ragged_copy
from ...formats.hashing import java_string
from ...formats.host import host_text
from ...formats.id_columns import message_id_column
from ...formats.message_properties import ITEM_SEPARATOR
from ...formats.property_columns import PropertyItems
from ..columns import decimals, dictionary
from ..errors import InvalidInput
from .filter_values import (
    BITS,
    CRC_OK,
    FAILED,
    NUMBERS,
    Apply,
    Constant,
    InList,
    Name,
    Node,
    Operator,
    Ordering,
    TextTest,
    Value,
    Whole,
    equal,
    magic_text,
    value_of,
)

if TYPE_CHECKING:
    from ..log.batch import Batch
    from ..log.message import Message


STATES: Final[tuple[Value, ...]] = (False, True, None, FAILED)
"""The values of a condition; the index here is the code."""
_FALSE, _TRUE, _UNKNOWN, _FAILED = range(len(STATES))
_CODE = {id(state): code for code, state in enumerate(STATES)}
_ONE_BY_ONE = 16
"""If more than one value in so many needs the operator, grouping equal values first is faster."""
_NON_ASCII = frozenset(range(0x80, 0x100))
"""Bytes whose meaning only the decoded text tells."""
_SIGNS, _DIGITS = frozenset(b"+-"), frozenset(b"0123456789")
_LEADS = _SIGNS | _DIGITS | _NON_ASCII
_LEADS_OF_REALS = _SIGNS | _DIGITS | _NON_ASCII | frozenset(b".NI") | frozenset(range(0x21))


def texts_of(strings: Sequence[bytes]) -> list[Value]:
    """Decode property values; None for an empty value."""
    # no value contains the separator, so all are joined and decoded at once
    texts = java_string(ITEM_SEPARATOR.join(strings)).split(ITEM_SEPARATOR.decode())
    return [text or None for text in texts[: len(strings)]]


def codes_of(operator: Operator, strings: Ragged, *more: Value) -> Ints | None:
    """The code of a condition for each property value; None if the bytes cannot tell.

    more: the right operand, if the operator has one.
    """
    if isinstance(operator, TextTest):
        return _text_test_codes(operator, strings)
    if isinstance(operator, InList):
        yes, no = (_FALSE, _TRUE) if operator.negated else (_TRUE, _FALSE)
        return _is_one_of(strings, sorted(operator.texts), yes, no)
    if operator is equal and isinstance(more[0], str):
        return _is_one_of(strings, [more[0]], _TRUE, _FALSE)
    if isinstance(operator, Ordering) and type(more[0]) in (*BITS, float):
        return _ordering_codes(operator, strings, more[0])
    return None


def _not_empty(strings: Ragged) -> Flags:
    return strings.length > 0


def _text_test_codes(operator: TextTest, strings: Ragged) -> Ints | None:
    text = operator.text.encode("utf-8", "surrogatepass")
    if not text.isascii():
        return None
    search = _SEARCHES[operator.test]
    found = search(strings, text) != operator.negated if text else np.zeros(len(strings), bool)
    return np.where(found & _not_empty(strings), _TRUE, _FALSE)


def _is_one_of(strings: Ragged, texts: Sequence[str], yes: int, no: int) -> Ints | None:
    if not all(text.isascii() for text in texts):
        return None
    found = np.zeros(len(strings), np.bool_)
    for text in texts:
        rows = np.flatnonzero(strings.length == len(text))
        found[_rows_with(strings, rows, strings.start, text.encode())] = True
    return np.where(_not_empty(strings), np.where(found, yes, no), _UNKNOWN)


def _starts(strings: Ragged, text: bytes) -> Flags:
    return _have_at(strings, strings.start, text)


def _ends(strings: Ragged, text: bytes) -> Flags:
    return _have_at(strings, strings.start + strings.length - len(text), text)


def _have_at(strings: Ragged, at: Ints, text: bytes) -> Flags:
    """bool[n]: which strings contain `text` at their position in `at` (and are long enough)."""
    found = np.zeros(len(strings), np.bool_)
    found[_rows_with(strings, np.flatnonzero(strings.length >= len(text)), at, text)] = True
    return found


def _rows_with(strings: Ragged, rows: Ints, at: Ints, text: bytes) -> Ints:
    """Those of `rows` whose string contains `text` at its position in `at`; all strings are long enough. Compared word
    by word, as the first word rules out most rows.
    """
    width = next((width for width in (8, 4, 2) if width <= len(text)), 1)
    words = overlapping(strings.buffer, np.dtype(f"u{width}"))
    for place in (*range(0, len(text) - width, width), len(text) - width) if text else ():
        word = np.frombuffer(text, words.dtype, 1, place)[0]
        rows = rows[words[at[rows] + place] == word]
    return rows


def _contain(strings: Ragged, text: bytes) -> Flags:
    """bool[n]: which strings contain `text`. All are searched at once, joined by a separator, so that no match spans
    two strings.
    """
    found = np.zeros(len(strings), np.bool_)
    if ITEM_SEPARATOR in text:
        return found
    length = np.maximum(strings.length, 0)
    ends = np.cumsum(length + 1)
    joined = np.full(int(ends[-1]) if len(ends) else 0, ITEM_SEPARATOR[0], np.uint8)
    ragged_copy(joined, ends - length - 1, strings)
    blob = joined.tobytes()
    at = blob.find(text)
    while at >= 0:
        row = int(np.searchsorted(ends, at, "right"))
        found[row] = True
        at = blob.find(text, int(ends[row]))
    return found


_SEARCHES: dict[Callable[[str, str], bool], Callable[[Ragged, bytes], Flags]] = {
    str.startswith: _starts,
    str.endswith: _ends,
    str.__contains__: _contain,
}


def _ordering_codes(operator: Ordering, strings: Ragged, than: Value) -> Ints | None:
    """Codes of a comparison with a number. A wrong first byte rules out numbers; plain digits are parsed at once."""
    whole = type(than) in BITS
    leads = np.zeros(1 << 8, np.bool_)
    leads[list(_LEADS if whole else _LEADS_OF_REALS)] = True
    there = _not_empty(strings)
    codes = np.where(there, _FAILED, _UNKNOWN)
    rows = np.flatnonzero(there)
    rows = rows[leads[strings.buffer[strings.start[rows]]]]
    if whole and len(rows):
        number, plain = _plain_numbers(strings[rows])
        order = np.sign((number > than).astype(np.int64) - (number < than))  # type: ignore[operator]
        tests = np.array([operator.test(one) for one in (-1, 0, 1)], np.int64)
        bound = 1 << BITS[type(than)] - 1  # type: ignore[index]
        fits = (number >= -bound) & (number < bound)
        codes[rows] = np.where(fits, tests[order + 1], _FAILED)
        rows = rows[~plain]
    if len(rows) > len(strings) // _ONE_BY_ONE:
        return None
    for row, value in zip(rows.tolist(), texts_of(strings[rows].tolist()), strict=True):
        codes[row] = _CODE[id(operator(value, than))]
    return codes


def _plain_numbers(strings: Ragged) -> tuple[Ints, Flags]:
    """Numbers of texts that are up to 18 digits with an optional sign, and which texts are."""
    first = strings.buffer[strings.start]
    signed = np.isin(first, list(_SIGNS))
    number, plain = decimals(Ragged(strings.buffer, strings.start + signed, strings.length - signed))
    return np.where(first == ord("-"), -number, number), plain


class Where:
    """A filter expression that a broker accepts, such as `price > 50.0 AND region IS NOT NULL`.

    text: RocketMQ's SQL92 over properties, and over `@fields` of the record. Raises InvalidInput for a text that a
    broker refuses.

    >>> where = Where("TAGS = 'Aa' OR @queue_id BETWEEN 2 AND 3")
    >>> where.matches({"TAGS": "Aa"})
    True
    """

    def __init__(self, text: str) -> None:
        self.text = text
        from .filter_grammar import parse  # importing lark takes time, and few commands have a filter

        self._node, self.ignored = parse(text)
        """ignored: text behind the first complete expression, which a broker does not read."""
        asked = _names(self._node)
        self.properties = tuple(sorted(name.name for name in asked if not name.field))
        """Names of the properties in the expression."""
        self.asks_crc = Name(CRC_OK, field=True) in asked
        """Whether the expression contains the field for the CRC of bodies."""

    @property
    def read(self) -> str:
        """The part of the text that a broker reads."""
        return self.text.removesuffix(self.ignored).rstrip()

    def to_the_end(self, name: str = "where") -> Where:
        """This filter. Raises InvalidInput if there is text behind its end: brokers do not read that."""
        if self.ignored:
            rest = self.ignored if len(self.ignored) < 40 else self.ignored[:40] + "…"
            hint = f"a broker rejects this filter: write {self.read!r}, or join the parts"
            raise InvalidInput(f"{name} has text after its end: {rest!r}", hint=hint)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Where) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Where({self.text!r})"

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a broker delivers a message with these properties. Fields are unknown."""
        return self.value(properties) is True

    def value(self, properties: Mapping[str, str]) -> Value:
        """The result for these properties: True, False, None (unknown) or FAILED."""

        def named(name: Name) -> Value:
            return None if name.field else properties.get(name.name)

        return _value(self._node, named)

    def takes(self, message: Message) -> bool:

        def named(name: Name) -> Value:
            if name.field:
                return value_of(message, name.name)
            return message.properties.get(name.name)

        return _value(self._node, named) is True

    def mask(self, batch: Batch) -> Flags:
        """bool[n]: which records of a batch match, as `takes` for each."""

        return states(self._node, CodedColumns(batch, self.properties))


def _names(node: Node) -> set[Name]:
    if isinstance(node, Apply):
        return set[Name]().union(*map(_names, node.operands))
    return {node} if isinstance(node, Name) else set()


def _value(node: Node, named: Callable[[Name], Value]) -> Value:
    """The value of an expression for one message."""
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, Name):
        return named(node)
    first, *more = node.operands
    found = _value(first, named)
    if not more:
        return node.operator(found)
    return reduce(lambda left, right: node.operator(left, _value(right, named)), more, found)


_SAMPLE = 256
"""Values that are examined to decide whether grouping equal values pays off."""
_TABLE_MAX = 64
"""Pairs of values up to which the operator is applied to all pairs, whether they occur or not."""


class Coded(NamedTuple):
    """`values[ids[i]]` is the value of record i."""

    ids: Ints
    values: Sequence[Value]


class CodedColumns:
    """The properties and fields of a batch as coded columns, each made once. properties: those that will be needed."""

    def __init__(self, batch: Batch, properties: Sequence[str] = ()) -> None:
        self._batch, self._properties = batch, properties
        self._items: PropertyItems | None = None
        self._made: dict[Name, Coded] = {}

    def __len__(self) -> int:
        return len(self._batch)

    def column(self, name: Name) -> Coded:
        """The values of a property or field."""
        made = self._made.get(name)
        if made is None:
            field = name.field
            made = _field(self._batch, name.name) if field else _property_column(self.strings(name.name))
            self._made[name] = made
        return made

    def strings(self, name: str) -> Ragged:
        """The values of a property as stored."""
        if self._items is None:
            self._items = PropertyItems(self._batch.columns.ragged("properties"), self._properties)
        return self._items.find(name)


def _property_column(strings: Ragged) -> Coded:
    """Property values as a coded column; equal values are not grouped if nearly all differ, as keys do."""
    sample = strings[:_SAMPLE].tolist()
    if 2 * len(set(sample)) > len(sample):
        return Coded(np.arange(len(strings)), texts_of(strings.tolist()))
    found = dictionary(strings)
    return Coded(found.ids, texts_of(found.values))


def _texts(strings: Ragged) -> Coded:
    found = dictionary(strings)
    return Coded(found.ids, [java_string(value) for value in found.values])


def _field(batch: Batch, name: str) -> Coded:
    columns = batch.columns
    if name == "position":
        return _numbers(batch.position)
    if name in NUMBERS:
        return _numbers(columns.ints(name))
    if name == CRC_OK:
        ok = batch.body_crc_ok
        if ok is None:
            return _constant(None, len(batch))
        return Coded(ok.astype(np.int64), STATES)
    if name == "topic":
        return _texts(columns.ragged(name))
    if name == "magic_code":
        codes = _numbers(columns.ints(name))
        return Coded(codes.ids, [magic_text(code) for code in codes.values])  # type: ignore[arg-type]
    if name == "message_id":
        ip, port = columns.ragged("store_host.ip"), columns.ints("store_host.port")
        texts = message_id_column(ip, port, columns.ints("physical_offset"))
        return Coded(np.arange(len(texts)), [text.decode() for text in texts])
    ids, hosts = batch.hosts(name)
    return Coded(ids, [host_text(*host) for host in hosts])


def _numbers(column: npt.NDArray[np.integer]) -> Coded:
    found, ids = np.unique(column, return_inverse=True)
    return Coded(ids, [Whole(number) for number in found.tolist()])


def _constant(value: Value, count: int) -> Coded:
    return Coded(np.zeros(count, np.int64), [value])


def states(node: Node, source: CodedColumns) -> Flags:
    """bool[n]: for which records a condition is true."""
    found = _evaluate(node, source)
    true = np.array([value is True for value in found.values], np.bool_)
    return true[found.ids]


def _evaluate(node: Node, source: CodedColumns) -> Coded:
    if isinstance(node, Constant):
        return _constant(node.value, len(source))
    if isinstance(node, Name):
        return source.column(node)
    codes = _by_bytes(node, source)
    if codes is not None:
        return Coded(codes, STATES)
    first, *more = node.operands
    found = _evaluate(first, source)
    if not more:
        return _coded(found.ids, [node.operator(value) for value in found.values], node)
    return reduce(lambda left, right: _pairs(left, _evaluate(right, source), node), more, found)


def _by_bytes(node: Apply, source: CodedColumns) -> Ints | None:
    """The codes of a condition over a property and literals if the property's bytes tell them, else None."""
    name, *more = node.operands
    if not isinstance(name, Name) or name.field or not all(isinstance(n, Constant) for n in more):
        return None
    literals = [n.value for n in more if isinstance(n, Constant)]
    return codes_of(node.operator, source.strings(name.name), *literals)


def _pairs(left: Coded, right: Coded, node: Apply) -> Coded:
    """Apply the operator of a node to the pairs of values that occur."""
    operator, width = node.operator, len(right.values)
    if width == 1:
        [value] = right.values
        return _coded(left.ids, [operator(one, value) for one in left.values], node)
    pair = left.ids * width + right.ids
    if len(left.values) * width <= _TABLE_MAX:
        return _coded(pair, [operator(one, other) for one in left.values for other in right.values], node)
    different, ids = np.unique(pair, return_inverse=True)
    found = [
        operator(left.values[one], right.values[other])
        for one, other in zip((different // width).tolist(), (different % width).tolist(), strict=True)
    ]
    return _coded(ids, found, node)


def _coded(ids: Ints, values: list[Value], node: Apply) -> Coded:
    """The result of a node as a coded column; conditions use the codes of STATES."""
    if not node.boolean or len(values) == 1:
        return Coded(ids, values)
    codes = np.fromiter(map(_CODE.__getitem__, map(id, values)), np.int64, len(values))
    return Coded(codes[ids], STATES)
