"""Keys and values of RocksDB consume queues: real bytes both ways."""

from __future__ import annotations

import pytest
from construct import ConstructError, Container
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import rocksdb_consume_queue as formats

from ..stores import NAMES, truth

STORES = [name for name in NAMES if "rocksdb" in truth(name)]
TOPICS = st.binary(min_size=1, max_size=80)
INTS = st.integers(-(2**31), 2**31 - 1)


def entries(family: str) -> list[tuple[bytes, bytes]]:
    """All entries of the queues' databases of the stores that are here."""
    found = [truth(name)["rocksdb"].get("consumequeue", {}).get(family, []) for name in STORES]
    return [(bytes.fromhex(key), bytes.fromhex(value)) for rows in found for key, value in rows]


def test_units_are_read_and_built() -> None:
    rows = entries(formats.UNITS)
    assert rows
    for key, value in rows:
        parsed = formats.UNIT_KEY.parse(key)
        assert formats.unit_key(parsed.topic, parsed.queue_id, parsed.queue_offset) == key
        prefix = formats.queue_prefix(parsed.topic, parsed.queue_id)
        assert formats.queue_offset(key, prefix) == parsed.queue_offset
        assert formats.UNIT.build(formats.UNIT.parse(value)) == value


def test_bounds_are_read_and_built() -> None:
    rows = entries(formats.BOUNDS)
    assert rows
    for key, value in rows:
        parsed = formats.BOUND_KEY.parse(key)
        assert parsed.bound in (formats.MIN, formats.MAX)
        assert formats.bound_key(parsed.topic, parsed.queue_id, parsed.bound) == key
        checkpoint = parsed.topic == formats.CHECKPOINT_TOPIC
        schema = formats.CHECKPOINT if checkpoint else formats.BOUND
        assert schema.build(schema.parse(value)) == value


def test_the_example_of_the_specification() -> None:
    expected = "0000000601546f706963410100000000010000000000000003"
    assert formats.unit_key(b"TopicA", 0, 3).hex() == expected


@given(TOPICS, INTS, TOPICS, INTS)
def test_a_key_of_another_queue_has_no_number(a: bytes, m: int, b: bytes, n: int) -> None:
    key = formats.unit_key(a, m, 7)
    number = formats.queue_offset(key, formats.queue_prefix(b, n))
    assert number == (7 if (a, m) == (b, n) else None)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_key_or_an_error(data: bytes) -> None:
    try:
        parsed: Container[object] = formats.UNIT_KEY.parse(data)
    except ConstructError:
        return
    assert data.startswith(formats.UNIT_KEY.build(parsed))


@pytest.mark.parametrize("number", [0, 1, 2**31, 2**62])
def test_keys_sort_by_number(number: int) -> None:
    assert formats.unit_key(b"t", 0, number) < formats.unit_key(b"t", 0, number + 1)
