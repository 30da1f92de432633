"""Operators over property values, on their bytes, for all records at once.

That is exact for ASCII: Java takes such a byte for its character, whatever is malformed around it. What
bytes do not tell the operator is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from ...formats.derive import Ragged
from ...formats.derive.ragged import Flags, Ints, overlapping
from ...formats.hashing import java_string
from ...formats.message_properties import ITEM_SEPARATOR
from .filter_values import BITS, FAILED, InList, Operator, Ordering, TextTest, Value, equal

STATES: Final[tuple[Value, ...]] = (False, True, None, FAILED)
"""What a condition can be; its number here is its code."""
_FALSE, _TRUE, _UNKNOWN, _FAILED = range(len(STATES))
_CODE = {id(state): code for code, state in enumerate(STATES)}
_DIGITS_MAX = 18
"""So many fit into an int64, whatever they are."""
_ASKED = 16
"""The operator is asked for one value of so many; beyond, those that are alike are better found first."""
_OTHERS = frozenset(range(0x80, 0x100))
"""Bytes that only the decoded text tells."""
_SIGNS, _DIGITS = frozenset(b"+-"), frozenset(b"0123456789")
_LEADS = _SIGNS | _DIGITS | _OTHERS
_LEADS_OF_REALS = _SIGNS | _DIGITS | _OTHERS | frozenset(b".NI") | frozenset(range(0x21))


def texts_of(strings: Sequence[bytes]) -> list[Value]:
    """Property values as texts; None for an empty one."""
    # no value holds the separator: many are decoded as quickly as one
    texts = java_string(ITEM_SEPARATOR.join(strings)).split(ITEM_SEPARATOR.decode())
    return [text or None for text in texts[: len(strings)]]


def codes_of(operator: Operator, strings: Ragged, *more: Value) -> Ints | None:
    """The code of what a condition is for each property value; None where bytes do not tell it.

    more: the right side, where the operator has one.
    """
    if isinstance(operator, TextTest):
        return _tested(operator, strings)
    if isinstance(operator, InList):
        return _in_list(operator, strings)
    if operator is equal and isinstance(more[0], str):
        return _is_one_of(strings, [more[0]], _TRUE, _FALSE)
    if isinstance(operator, Ordering) and type(more[0]) in (*BITS, float):
        return _ordered(operator, strings, more[0])
    return None


def _there(strings: Ragged) -> Flags:
    return strings.length > 0


def _tested(operator: TextTest, strings: Ragged) -> Ints | None:
    text = operator.text.encode("utf-8", "surrogatepass")
    if not text.isascii():
        return None
    search = _SEARCHES[operator.test]
    found = search(strings, text) != operator.negated if text else np.zeros(len(strings), bool)
    return np.where(found & _there(strings), _TRUE, _FALSE)


def _in_list(operator: InList, strings: Ragged) -> Ints | None:
    yes, no = (_FALSE, _TRUE) if operator.negated else (_TRUE, _FALSE)
    return _is_one_of(strings, sorted(operator.texts), yes, no)


def _is_one_of(strings: Ragged, texts: Sequence[str], yes: int, no: int) -> Ints | None:
    if not all(text.isascii() for text in texts):
        return None
    found = np.zeros(len(strings), np.bool_)
    for text in texts:
        same = strings.length == len(text)
        found |= same & _starts(strings, text.encode()) if text else same
    return np.where(_there(strings), np.where(found, yes, no), _UNKNOWN)


def _starts(strings: Ragged, text: bytes) -> Flags:
    return _have(strings, strings.start, text)


def _ends(strings: Ragged, text: bytes) -> Flags:
    return _have(strings, strings.start + strings.length - len(text), text)


def _have(strings: Ragged, at: Ints, text: bytes) -> Flags:
    """bool[n]: which strings are long enough for a text, and have it at a place of their own."""
    found = strings.length >= len(text)
    rows = np.flatnonzero(found)
    item = np.dtype((np.void, len(text)))
    found[rows] = overlapping(strings.buffer, item)[at[rows]] == np.frombuffer(text, item)[0]
    return found


def _contain(strings: Ragged, text: bytes) -> Flags:
    """bool[n]: which strings have a text anywhere."""
    packed = strings.packed()
    ends = packed.start + np.maximum(packed.length, 0)
    blob = packed.buffer.tobytes()
    found = np.zeros(len(strings), np.bool_)
    at = blob.find(text)
    while at >= 0:
        row = int(np.searchsorted(ends, at, "right"))
        inside = at + len(text) <= ends[row]
        found[row] |= inside
        at = blob.find(text, int(ends[row]) if inside else at + 1)
    return found


_SEARCHES: dict[Callable[[str, str], bool], Callable[[Ragged, bytes], Flags]] = {
    str.startswith: _starts,
    str.endswith: _ends,
    str.__contains__: _contain,
}


def _ordered(operator: Ordering, strings: Ragged, than: Value) -> Ints | None:
    """A number on the right: what begins as none is none; plain digits are read at once."""
    whole = type(than) in BITS
    leads = np.zeros(1 << 8, np.bool_)
    leads[list(_LEADS if whole else _LEADS_OF_REALS)] = True
    there = _there(strings)
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
    if len(rows) > len(strings) // _ASKED:
        return None
    for row, value in zip(rows.tolist(), texts_of(strings[rows].tolist()), strict=True):
        codes[row] = _CODE[id(operator(value, than))]
    return codes


def _plain_numbers(strings: Ragged) -> tuple[Ints, Flags]:
    """What texts are that have a few digits alone, with a sign or without; and which these are."""
    first = strings.buffer[strings.start]
    signed = np.isin(first, list(_SIGNS))
    start, length = strings.start + signed, strings.length - signed
    plain = (length > 0) & (length <= _DIGITS_MAX)
    number = np.zeros(len(strings), np.int64)
    for place in range(int(length[plain].max()) if plain.any() else 0):
        some = np.flatnonzero(plain & (length > place))
        digit = strings.buffer[start[some] + place].astype(np.int64) - ord("0")
        number[some] = number[some] * 10 + digit
        plain[some] = (digit >= 0) & (digit <= 9)
    return np.where(first == ord("-"), -number, number), plain
