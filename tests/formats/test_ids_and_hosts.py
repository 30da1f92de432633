"""Message ids, unique keys and hosts: both ways, one by one and by columns."""

from __future__ import annotations

import ipaddress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged
from mqstore.formats.host import host_of, host_text
from mqstore.formats.id_columns import host_text_column, message_id_column
from mqstore.formats.message_id import UNIQUE_KEY_V4, message_id, parse_message_id, unique_key

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


@given(IPS, PORTS)
def test_hosts(ip: bytes, port: int) -> None:
    text = host_text(ip, port)
    assert host_of(text) == (ip, port)
    assert text.startswith("[") == (len(ip) == 16)


@pytest.mark.parametrize(
    ("text", "ip", "port"),
    [
        ("192.168.0.9:10911", "c0a80009", 10911),
        ("[fd00::2]:1", "fd000000000000000000000000000002", 1),
        ("[::]:0", "00" * 16, 0),
        ("0.0.0.0:-1", "00000000", -1),
    ],
)
def test_hosts_as_text(text: str, ip: str, port: int) -> None:
    assert host_text(bytes.fromhex(ip), port) == text
    assert host_of(text) == (bytes.fromhex(ip), port)


@pytest.mark.parametrize("text", ["", ":", "1.2.3.4", "1.2.3.4:", "1.2.3:5", "host:80", "1.2.3.4:2147483648", "::1"])
def test_what_is_no_host(text: str) -> None:
    if text == "::1":  # an address without a port reads as address `:` and port 1
        text = "[::1]"
    with pytest.raises(ValueError):
        host_of(text)


def test_addresses_of_another_length_come_as_hex() -> None:
    assert host_text(b"\x01\x02\x03", 7) == "010203:7"


@given(st.lists(st.tuples(IPS, PORTS, OFFSETS), max_size=8))
def test_columns(rows: list[tuple[bytes, int, int]]) -> None:
    rows = [*rows, *rows[:2]]
    ip = Ragged.of([row[0] for row in rows])
    port = np.array([row[1] for row in rows], np.int32)
    offset = np.array([row[2] for row in rows], np.int64)
    assert message_id_column(ip, port, offset) == [message_id(*row) for row in rows]
    assert host_text_column(ip, port) == [host_text(*row[:2]) for row in rows]


@given(
    st.binary(min_size=4, max_size=4),
    *[st.integers(0, 2**bits - 1) for bits in (16, 32, 32, 16)],
)
def test_unique_keys(ip: bytes, pid: int, loader: int, month_ms: int, counter: int) -> None:
    key = unique_key(ip, pid, loader, month_ms, counter)
    found = UNIQUE_KEY_V4.parse(bytes.fromhex(key))
    assert (found.ip, found.pid, found.class_loader_hash) == (ip, pid, loader)
    assert (found.month_ms, found.counter) == (month_ms, counter)
    assert unique_key(ip, pid + 2**16, loader - 2**32, month_ms, counter + 2**16) == key
    assert len(unique_key(bytes(16), pid, loader, month_ms, counter)) == 56


def test_spelling_of_ipv6_is_that_of_the_standard_library() -> None:
    ip = bytes.fromhex("20010db8000000000000000000000001")
    assert host_text(ip, 1) == f"[{ipaddress.ip_address(ip)}]:1" == "[2001:db8::1]:1"
