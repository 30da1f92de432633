"""Keys of the RocksDB of timers, transactions and index: what a broker put together is taken apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.rocksdb_store import (
    INDEX_KEY,
    TIMER_DELIVERED,
    TIMER_KEY,
    TIMER_QUEUE_OFFSET,
    TIMER_VALUE,
    IndexName,
    index_name,
    is_text_key,
)

TOPICS = st.binary(min_size=1, max_size=20).filter(lambda topic: b"@" not in topic)
KEYS = st.binary(min_size=1, max_size=20)
UNIQUE = st.text("0123456789ABCDEF", max_size=34).map(str.encode)
OFFSETS = st.integers(0, 2**63 - 1)


@given(TOPICS, st.sampled_from([b"K", b"T"]), KEYS, UNIQUE, OFFSETS, st.integers(0, 2**40))
def test_keys_and_tags(topic: bytes, kind: bytes, key: bytes, unique: bytes, offset: int, hour: int) -> None:
    """A key may have an @ itself."""
    name = b"@" + b"@".join((topic, kind, key, unique)) + b"@" + offset.to_bytes(8, "big")
    assert index_name(name) == IndexName(topic, kind, key, unique, offset)
    stored = INDEX_KEY.build({"store_hour": hour, "name": name})
    assert stored == hour.to_bytes(8, "big") + name
    assert INDEX_KEY.parse(stored).name == name


@given(TOPICS, UNIQUE, OFFSETS)
def test_unique_keys(topic: bytes, unique: bytes, offset: int) -> None:
    name = b"@" + topic + b"@U@" + unique + b"@" + offset.to_bytes(8, "big")
    assert index_name(name) == IndexName(topic, b"U", b"", unique, offset)


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b"@",
        b"@t@K@k@u@",
        b"t@K@k@u@" + bytes(8),
        b"@t@K@k@u" + bytes(8),
        b"@t@X@k@u@" + bytes(8),
        b"@t@K@" + bytes(8),
    ],
)
def test_what_is_no_name(name: bytes) -> None:
    assert index_name(name) is None


@given(st.binary(max_size=40))
def test_noise_is_taken_for_no_error(noise: bytes) -> None:
    found = index_name(noise)
    assert found is None or found.index_type in (b"K", b"T", b"U")


def test_rows_with_a_name() -> None:
    for name in (TIMER_QUEUE_OFFSET, TIMER_DELIVERED, b"lastOffsetPy", b"lastStoreTimeStamp"):
        assert is_text_key(name)
    timer = TIMER_KEY.build({"delay_time": 1_795_000_000_000, "unique_key": b"C0A8"})
    for key in (b"", timer, (5).to_bytes(8, "big"), "é".encode(), b"a-b"):
        assert not is_text_key(key)
    assert TIMER_VALUE.build({"size": 300, "physical_offset": 77}).hex() == "0000012c" + "000000000000004d"
