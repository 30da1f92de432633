"""Message ids and unique keys, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.message_id import UNIQUE_KEY_V4, unique_key
from mqstore.formats.quick import message_id, parse_message_id

IPS = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))
PORTS = st.integers(-(2**31), 2**31 - 1)
OFFSETS = st.integers(-(2**63), 2**63 - 1)


@given(IPS, PORTS, OFFSETS)
def test_message_ids(ip: bytes, port: int, offset: int) -> None:
    text = message_id(ip, port, offset)
    expected = ip + port.to_bytes(4, "big", signed=True) + offset.to_bytes(8, "big", signed=True)
    assert text == expected.hex().upper()
    assert parse_message_id(text) == parse_message_id(text.lower()) == (ip, port, offset)


@pytest.mark.parametrize("text", ["", "00", "zz" * 16, "0" * 31, "00" * 17, "00" * 29, "é" * 32])
def test_what_is_no_message_id(text: str) -> None:
    with pytest.raises(ValueError):
        parse_message_id(text)


@given(st.binary(min_size=4, max_size=4), *[st.integers(0, 2**bits - 1) for bits in (16, 32, 32, 16)])
def test_unique_keys(ip: bytes, pid: int, loader: int, month_ms: int, counter: int) -> None:
    key = unique_key(ip, pid, loader, month_ms, counter)
    found = UNIQUE_KEY_V4.parse(bytes.fromhex(key))
    assert (found.ip, found.pid, found.class_loader_hash) == (ip, pid, loader)
    assert (found.month_ms, found.counter) == (month_ms, counter)
    assert unique_key(ip, pid + 2**16, loader - 2**32, month_ms, counter + 2**16) == key
    assert len(unique_key(bytes(16), pid, loader, month_ms, counter)) == 56
