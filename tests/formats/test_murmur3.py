"""MurmurHash3 against values that others have published, and that every byte counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.murmur3 import murmur3_low


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("hello", 0xCBD8A7B341BD9B02),
        ("hello, world", 0x342FAC623A5EBC8E),
        ("19 Jan 2038 at 3:14:07 AM", 0xB89E5988B737AFFC),
        ("The quick brown fox jumps over the lazy dog.", 0xCD99481F9EE902C9),
        ("The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_published_values(text: str, value: int) -> None:
    """Short blocks, whole ones, and both: of 0, 5, 12, 25, 44 and 43 bytes, with seed 0."""
    assert murmur3_low(text.encode()) == value


@given(st.binary(min_size=1, max_size=70), st.data())
def test_each_byte_and_the_length_count(data: bytes, draw: st.DataObject) -> None:
    found = murmur3_low(data)
    assert 0 <= found < 1 << 64
    at = draw.draw(st.integers(0, len(data) - 1))
    other = bytearray(data)
    other[at] ^= draw.draw(st.integers(1, 255))
    assert murmur3_low(bytes(other)) != found
    assert murmur3_low(data + b"\0") != found, "zeros at the end are no padding"
