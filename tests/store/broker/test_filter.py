"""The filter language without a broker: what is refused, what is read, columns against one by one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.broker.filter import Where
from mqstore.store.broker.filter_values import DEPTH_MAX, FAILED, Value
from mqstore.store.errors import InvalidInput
from mqstore.store.log.batch import messages

from .batches import batch_of

PROPERTIES = {
    "a": "5",
    "price": "34.19",
    "region": "eu",
    "quote": "it's",
    "TAGS": "Aa",
    "odd": "0x1p3",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # a number beside a text: the text is read as that kind of number, or the broker throws
        ("price > 30", FAILED),
        ("price > 30.0", True),
        ("a = 5 AND a = 5.0 AND 5 = a", True),
        ("a = '5'", True),
        ("a = '5.0'", False),
        ("a > price", False),
        ("a > region", FAILED),
        ("odd = 8.0", True),
        ("a = 3000000000", False),
        # unknown
        ("none > 1", None),
        ("NOT (none > 1)", None),
        ("none = a", None),
        ("a = none", False),
        ("none = other", True),
        ("none IS NULL AND a IS NOT NULL", True),
        ("none > 1 OR a = 5", True),
        ("none > 1 AND region = 'us'", False),
        # failures: what was decided before stays
        ("region = 'us' AND price > 30", False),
        ("region = 'eu' OR price > 30", True),
        ("price > 30 OR region = 'eu'", FAILED),
        # texts
        ("region IN ('us', 'eu')", True),
        ("none NOT IN ('us')", None),
        ("quote = 'it''s'", True),
        ("none NOT CONTAINS 'x'", False),
        ("region NOT CONTAINS 'x'", True),
        ("region CONTAINS '' OR region NOT CONTAINS ''", False),
        ("region STARTSWITH 'e' AND region ENDSWITH 'u'", True),
        # conditions
        ("a", False),
        ("a = 5 = TRUE", True),
        ("NOT a = 5", False),
        ("a BETWEEN 5 AND 5 AND a NOT BETWEEN 7 AND 6", True),
        ("a BETWEEN -9 AND - -5", True),
        ("notes IS NULL AND INa IS NULL", True),
        ("/* a * b */ a /**/ = -- five\n 5", True),
    ],
)
def test_values(text: str, value: Value) -> None:
    assert Where(text).value(PROPERTIES) is value
    [message] = messages(batch_of([PROPERTIES]))
    assert Where(text).takes(message) is (value is True)


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


FIELDS = {
    "@topic = 'orders' AND @topic STARTSWITH 'ord'": True,
    "@queue_id = 3 AND @queue_id IN ('3') AND @queue_offset BETWEEN 1 AND 7.5": True,
    "@store_timestamp > @born_timestamp AND @store_timestamp > 1.5e12": True,
    "@position = @physical_offset AND @reconsume_times = 0": True,
    "@body_length = 4 AND @total_size > 91": True,
    "@born_host = '127.0.0.1:10911' AND @store_host ENDSWITH ':10911'": True,
    "@magic_code = 'daa320a7' AND @sys_flag = 0": True,
    "@message_id CONTAINS '7F000001'": True,
    "@tags = 'Aa' AND @keys = 'k1 k2' AND @unique_key IS NULL": True,
    "NOT @body_crc_ok": False,
    "@queue_id = a": False,
    "@queue_id > b": True,
    "a = @queue_id": False,
    "@queue_id = x": False,
}


@pytest.mark.parametrize(("text", "wanted"), FIELDS.items())
def test_fields(text: str, wanted: bool) -> None:
    batch = batch_of([{"TAGS": "Aa", "KEYS": "k1 k2", "a": "5", "b": "-9", "x": "x"}])
    assert Where(text).mask(batch).tolist() == [wanted]
    [message] = messages(batch)
    assert Where(text).takes(message) is wanted


NAMES = ("a", "b", "c")
LEAVES = (
    *("a = 5", "b > 1.5", "a > b", "c IN ('5', 'x')", "c NOT IN ('y')", "a IS NULL", "a = b"),
    *(
        "b <> c",
        "c CONTAINS 'x'",
        "c NOT ENDSWITH '5'",
        "a BETWEEN 0 AND 6",
        "a NOT BETWEEN b AND c",
    ),
    *("-@queue_id < a", "@body_crc_ok = TRUE", "(a = 5) = (b = 5)", "c", "NULL", "-a IS NULL"),
)
TEXTS = st.sampled_from((b"5", b"5.5", b"-1", b"x", b"", b"\xff", "订单".encode(), b"7 ", b"NaN"))
ITEMS = st.lists(st.tuples(st.sampled_from((b"a", b"b", b"c", b"")), TEXTS), max_size=5)


@given(st.lists(ITEMS, min_size=1, max_size=12), st.integers(0, 2**32))
def test_columns_are_as_one_by_one(rows: list[list[tuple[bytes, bytes]]], seed: int) -> None:
    """Of stored texts in any state: names twice, without value, invalid UTF-8."""
    chance = random.Random(seed)
    text = chance.choice(LEAVES)
    for _ in range(chance.randrange(5)):
        text = f"{text} {chance.choice(('AND', 'OR'))} {chance.choice(LEAVES)}"
        text = chance.choice((text, f"({text})", f"NOT ({text})"))
    batch = batch_of([b"".join(b"%b\x01%b\x02" % item for item in row) for row in rows])
    where = Where(text)
    assert where.mask(batch).tolist() == [where.takes(m) for m in messages(batch)], text
