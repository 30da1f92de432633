"""Rows kept as columns: some of them, and several one after the other."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.checkpoint import FIELDS
from mqstore.formats.derive import Columns, Ragged, decode
from mqstore.formats.derive.ragged import Flags, Ints
from mqstore.store.columns import Renumbered, Rows, begins


class Pairs(Rows):
    """Numbers, and whether they are odd."""

    number: Ints
    odd: Flags


class Named(Rows):
    """Texts of one owner."""

    owner: str
    text: Ragged
    pairs: Pairs
    missing: Ints | None = None

    @cached_property
    def lengths(self) -> list[int]:
        """Of the texts."""
        return list(map(len, self.text.tolist()))


def named(numbers: list[int]) -> Named:
    column = np.array(numbers, np.int64)
    texts = Ragged.of([b"%d" % number for number in numbers])
    return Named("it", texts, Pairs(column, column % 2 == 1))


NUMBERS = st.lists(st.integers(-9, 99), max_size=9)


@given(NUMBERS, st.integers(0, 9), st.integers(0, 9))
def test_some_of_the_rows(numbers: list[int], begin: int, end: int) -> None:
    part = named(numbers).take(slice(begin, end))
    assert (part.owner, part.missing, len(part)) == ("it", None, len(numbers[begin:end]))
    assert part.text.tolist() == [b"%d" % number for number in numbers[begin:end]]
    odd = named(numbers).pairs
    assert odd.take(odd.odd).number.tolist() == [number for number in numbers if number % 2]


class Few(Pairs):
    """The same fields."""


def test_fields_are_inherited() -> None:
    few = Few(np.array([1, 2]), odd=np.array([True, False]))
    assert (list(Few.FIELDS), len(few), few.take(few.odd).number.tolist()) == (["number", "odd"], 2, [1])


def test_other_fields() -> None:
    three, two = named([1, 22, 333]), named([4, 55])
    assert three.lengths == [1, 2, 3]
    other = three.replace(text=two.text, pairs=two.pairs)
    assert (other.owner, other.lengths, len(other)) == ("it", [1, 2], 2)
    assert (len(three), other.pairs is two.pairs, other != three) == (3, True, True)


@given(st.lists(NUMBERS, max_size=4))
def test_one_part_after_the_other(parts: list[list[int]]) -> None:
    whole = Pairs.concat(named(part).pairs for part in parts)
    flat = [number for part in parts for number in part]
    assert whole.number.tolist() == flat
    assert whole.odd.tolist() == [number % 2 == 1 for number in flat]
    assert (whole.number.dtype.kind, whole.odd.dtype.kind) == ("i", "b")
    if parts:
        joined = Named.concat([named(part) for part in parts if part] or [named([])])
        assert joined.text.tolist() == [b"%d" % number for number in flat]
        assert joined.pairs.number.tolist() == flat


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_rows_that_differ_from_the_one_before(one: list[int], other: list[int]) -> None:
    pairs = list(zip(one, other, strict=False))
    columns = (np.array([pair[n] for pair in pairs], np.int64) for n in range(2))
    expected = [not row or pairs[row] != pairs[row - 1] for row in range(len(pairs))]
    assert begins(*columns).tolist() == expected


def test_columns_of_a_schema_are_not_put_together() -> None:
    """Their buffers are those of windows: the first part would stand for all."""

    class Records(Rows):
        columns: Columns

    part = Records(decode(FIELDS, np.zeros(FIELDS.sizeof(), np.uint8), np.zeros(1, np.int64)))
    with pytest.raises(TypeError):
        Records.concat([part, part])


def test_fields_that_are_none() -> None:
    """Too many, too few, or of another name."""
    column = np.zeros(1, np.int64)
    wrong: list[tuple[list[Any], dict[str, Any]]] = [
        ([column] * (len(Pairs.FIELDS) + 1), {}),
        ([], {}),
        ([column] * len(Pairs.FIELDS), {"other": column}),
    ]
    for fields, named in wrong:
        with pytest.raises(TypeError, match="Pairs has the fields"):
            Pairs(*fields, **named)


@given(st.lists(st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=9), max_size=9))
def test_numbers_that_have_become_others(parts: list[list[tuple[int, int, int]]]) -> None:
    """Of each origin the last that was told."""
    numbers, wanted = Renumbered(), dict[tuple[int, int], int]()
    origin, old = np.divmod(np.arange(16), 4)
    for part in parts:
        numbers.add(*np.array(part, np.int64).reshape(-1, 3).T)
        wanted |= {(row[0], row[1]): row[2] for row in part}
        pairs = zip(origin.tolist(), old.tolist(), strict=True)
        assert numbers.of(origin, old).tolist() == [wanted.get(pair, -1) for pair in pairs]
