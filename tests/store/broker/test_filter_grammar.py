"""Expressions that a broker refuses, and how much of one it reads."""

from __future__ import annotations

import pytest

from mqstore.store.broker.filter import Where
from mqstore.store.broker.filter_values import DEPTH_MAX
from mqstore.store.errors import InvalidInput

from .batches import batch_of


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "at the end"),
        ("a =", "at the end"),
        ("a = = 5", "column 5"),
        ("a = 'x", "column 5"),
        ("a = 5 # b", "column 7"),
        ("a > 'x'", "numbers and properties"),
        ("a > NULL", "numbers and properties"),
        ("(a = 5) < 7", "numbers and properties"),
        ("a = NULL", "IS NULL"),
        ("TRUE = 5", "other literals"),
        ("5 OR a = 5", "condition"),
        ("NOT -a", "condition"),
        ("a IN (5)", "'5'"),
        ("'a' IN ('5')", "property"),
        ("a BETWEEN 7 AND 5", "wrong order"),
        ("a BETWEEN NULL AND 5", "NULL is no bound"),
        ("a = 9223372036854775808", "64 bits"),
        ("a = 0.0", "begins above 0.0"),
        ("a = 1e999", "out of a broker's range"),
        ("@nope = 5", "no field @nope; there are @position"),
        ("NOT " * (DEPTH_MAX + 1) + "(a = 5)", "nested deeper"),
        ("a" * (2 << 20), "longer than"),
    ],
)
def test_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Where(text)
    assert says in str(refused.value)


def test_what_a_broker_does_not_read() -> None:
    where = Where("a = 5 b = 6 #")
    assert (where.read, where.ignored) == ("a = 5", "b = 6 #")
    assert where.matches({"a": "5"})


def test_many_conditions_in_a_row() -> None:
    """Width costs no depth."""
    where = Where(" OR ".join(f"a = {number}" for number in range(5000)))
    assert where.matches({"a": "4999"}) and not where.matches({"a": "5000"})
    assert where.mask(batch_of([{"a": "4999"}, {"a": "5000"}, {}])).tolist() == [True, False, False]
