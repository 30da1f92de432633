"""Operators on the bytes of property values, against the same operator asked of each text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged
from mqstore.store.broker.filter import STATES, codes_of, texts_of
from mqstore.store.broker.filter_values import (
    InList,
    Long,
    Operator,
    TextTest,
    Value,
    equal,
    greater,
    greater_or_equal,
    less,
    less_or_equal,
)

from ...slices import examples

PIECES = (b"5", b"12", b"-", b"+", b".", b"x", b"none", b" ", b"\xc3", b"\xff", b"\xed\xa0\x80")
VALUES = st.one_of(
    st.just(None),
    st.lists(st.sampled_from((*PIECES, "订é".encode())), max_size=4).map(b"".join),
    st.integers(-(1 << 65), 1 << 65).map(lambda number: str(number).encode()),
    st.sampled_from((b"NaN", b"Infinity", b"0x1p3", b"\x01", b"00000000000000000007", b"1e3")),
).map(lambda value: value and value.replace(b"\x02", b""))
LITERALS = st.one_of(
    st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1).map(Long), st.floats(0.1, 1e9)
)
LOOKED_FOR = st.sampled_from(("", "5", "one", "x", "12", "n", "-", "é", "\ufffd", "5-"))
TESTS = st.builds(
    TextTest, st.sampled_from((str.startswith, str.endswith, str.__contains__)), LOOKED_FOR, st.booleans()
)
LISTS = st.builds(InList, st.frozensets(LOOKED_FOR, max_size=3), st.booleans())


def told(operator: Operator, values: list[bytes | None], *more: Value) -> list[Value] | None:
    codes = codes_of(operator, Ragged.of(values), *more)
    return None if codes is None else [STATES[code] for code in codes.tolist()]


def one_by_one(operator: Operator, values: list[bytes | None], *more: Value) -> list[Value]:
    return [operator(text, *more) for text in texts_of([value or b"" for value in values])]


@settings(max_examples=examples(300))
@given(st.lists(VALUES, min_size=1, max_size=40), st.one_of(TESTS, LISTS))
def test_texts(values: list[bytes | None], operator: Operator) -> None:
    found = told(operator, values)
    assert found is None or found == one_by_one(operator, values)


@settings(max_examples=examples(300))
@given(st.lists(VALUES, min_size=1, max_size=40), LOOKED_FOR)
def test_equal(values: list[bytes | None], text: str) -> None:
    found = told(equal, values, text)
    assert found is None or found == one_by_one(equal, values, text)


@settings(max_examples=examples(300))
@given(
    st.lists(VALUES, min_size=1, max_size=40),
    st.sampled_from((less, less_or_equal, greater, greater_or_equal)),
    LITERALS,
)
def test_order(values: list[bytes | None], operator: Operator, literal: Value) -> None:
    found = told(operator, values, literal)
    assert found is None or found == one_by_one(operator, values, literal)


@pytest.mark.parametrize("value", [b"2147483647", b"2147483648", b"-9223372036854775808", b"+7"])
def test_bounds(value: bytes) -> None:
    """Plain numbers are told by their bytes, whatever their size; others where they are few."""
    values: list[bytes | None] = [value] * 40
    for literal in (7, Long(7)):
        found = told(greater, values, literal)
        assert (found is None) is (len(value) > 19)
        assert found is None or found == one_by_one(greater, values, literal)
    assert told(greater, [b"x"] * 40, 7) == one_by_one(greater, [b"x"] * 40, 7)


def test_what_bytes_do_not_tell() -> None:
    values: list[bytes | None] = [b"a", b"\xff"]
    assert told(TextTest(str.endswith, "\ufffd", negated=False), values) is None
    assert told(equal, values, "é") is None and told(equal, values, 5) is None
    assert told(less, [b"1.5"] * 40, 2.5) is None, "many that only the operator can tell"


def test_no_text_is_found_across_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place where one is found costs as much as a look at a value: with values of one character there
    would be one at every byte.
    """
    found, operator = list[int](), TextTest(str.__contains__, "a" * 60, negated=False)
    searchsorted = np.searchsorted

    def noting(*args: Any) -> Any:
        found.append(int(args[1]))
        return searchsorted(*args)

    monkeypatch.setattr(np, "searchsorted", noting)
    values: list[bytes | None] = [b"a" * 50, None, b"", b"a" * 61, b"a" * 59] * 50
    assert told(operator, values) == one_by_one(operator, values)
    assert len(found) == 50
