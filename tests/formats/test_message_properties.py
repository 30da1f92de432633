"""Property texts, and the whole-record CRC."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqstore.formats.hashing import java_string
from mqstore.formats.message_properties import CRC32, crc_item, crc_ok, format_properties, parse
from tests.slices import examples

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1)
#: Texts made of the pieces that matter, in any disorder.
PIECES = st.sampled_from([b"\x01", b"\x02", b"a", b"ab", b"KEYS", b"TAGS", b"UNIQ_KEY", b"1234567", b"8", b"\xc3\xa9"])
TEXTS = st.lists(PIECES, max_size=12).map(b"".join)


def parse_as_java(text: bytes) -> dict[str, str]:
    """MessageDecoder.string2messageProperties of 4.9.1 and later, step by step."""
    found: dict[str, str] = {}
    whole, index = java_string(text), 0
    while index < len(whole):
        end = whole.find("\x02", index)
        end = len(whole) if end < 0 else end
        if end - index >= 3:
            separator = whole.find("\x01", index)
            if index < separator < end - 1:
                found[whole[index:separator]] = whole[separator + 1 : end]
        index = end + 1
    return found


@given(st.one_of(TEXTS, st.binary(max_size=30)))
@settings(max_examples=examples(400))
@example(b"")
@example(b"KEYS\x01a\x01b\x02")
@example(b"a\x01\x02b\x01x")
@example(b"\x01x\x02a\x01b\x02\x02a\x01c")
@example(b"a\x01\xed\xa0\x80\x02")
def test_parse(text: bytes) -> None:
    assert parse(text) == parse_as_java(text)


@given(st.dictionaries(WORDS, WORDS, max_size=6), st.booleans())
def test_format_is_the_inverse(properties: dict[str, str], final: bool) -> None:
    text = format_properties(properties, final_separator=final)
    assert parse(text) == properties
    assert list(parse(text)) == list(properties)
    assert text.endswith(b"\x02") == (final and bool(properties))


@pytest.mark.parametrize("properties", [{"": "x"}, {"x": ""}, {"a\x01": "b"}, {"a": "b\x02"}, {"a\x02": "b"}])
def test_what_cannot_be_written_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="property"):
        format_properties(properties)


@given(st.binary(max_size=60))
def test_crc_of_a_whole_record(before: bytes) -> None:
    record = before + crc_item(before)
    assert crc_ok(record) is True
    for at in range(len(record)):
        spoiled = bytearray(record)
        spoiled[at] ^= 0x10
        assert crc_ok(bytes(spoiled)) is not True
    assert crc_ok(before) is (None if CRC32.encode() not in before[-20:] else crc_ok(before))
