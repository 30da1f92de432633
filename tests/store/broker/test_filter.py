"""The filter language without a broker: fields, columns against one by one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.broker.filter import Where
from mqstore.store.log.batch import messages

from .batches import batch_of

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
    *("b <> c", "c CONTAINS 'x'", "c NOT ENDSWITH '5'", "a BETWEEN 0 AND 6", "a NOT BETWEEN b AND c"),
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
