"""A client's batch: where its messages begin, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.client_batch import MESSAGE, MESSAGES_MAX, starts_of

GOLDEN = bytes.fromhex("0000001d" + "00" * 8 + "00000007" + "00000003" + b"abc".hex() + "0004" + b"a\x01b\x02".hex())


def built(flag: int, body: bytes, properties: bytes) -> bytes:
    return MESSAGE.build({"flag": flag, "body": body, "properties": properties})


def test_the_bytes_of_a_message() -> None:
    """Its size, two numbers nobody looks at, its flag; then body and properties behind their lengths."""
    assert len(GOLDEN) == 0x1D
    assert built(7, b"abc", b"a\x01b\x02") == GOLDEN
    parsed = MESSAGE.parse(GOLDEN)
    assert (parsed.total_size, parsed.flag, parsed.body, parsed.properties) == (29, 7, b"abc", b"a\x01b\x02")


MESSAGES = st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=30)), min_size=1, max_size=6)


@given(MESSAGES, st.integers(-(2**31), 2**31 - 1))
def test_starts(messages: list[tuple[bytes, bytes]], size: int) -> None:
    """The size that a message tells of itself is not looked at, as no client does."""
    parts = [size.to_bytes(4, "big", signed=True) + built(1, *message)[4:] for message in messages]
    wanted = [sum(map(len, parts[:number])) for number in range(len(parts))]
    assert starts_of(b"".join(parts)) == wanted


@given(MESSAGES, st.data())
def test_a_batch_that_is_cut_is_none(messages: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    """But at the boundary of a message, where nobody can tell."""
    parts = [built(0, *message) for message in messages]
    whole = b"".join(parts)
    ends = {sum(map(len, parts[:number])) for number in range(1, len(parts) + 1)}
    cut = data.draw(st.integers(0, len(whole)).filter(lambda end: end not in ends))
    with pytest.raises(ValueError, match="message"):
        starts_of(whole[:cut])


@pytest.mark.parametrize("field", ["body_length", "properties_length"])
def test_lengths_below_zero(field: str) -> None:
    at = {"body_length": 16, "properties_length": 20}[field]
    size = {"body_length": 4, "properties_length": 2}[field]
    spoiled = built(0, b"", b"")[:at] + b"\xff" * size + bytes(40)
    with pytest.raises(ValueError, match="no whole message at byte 0"):
        starts_of(spoiled)


def test_no_more_messages_than_a_unit_counts() -> None:
    one = built(0, b"", b"")
    assert len(starts_of(one * MESSAGES_MAX)) == MESSAGES_MAX == 32767
    with pytest.raises(ValueError, match="32768 messages"):
        starts_of(one * (MESSAGES_MAX + 1))
