"""Hashes against what Java gives."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqstore.formats.hashing import java_hash, java_integer, java_string


def slow_hash(text: str) -> int:
    """String.hashCode by its definition, one UTF-16 unit after the other."""
    value = 0
    for character in text:
        code = ord(character)
        units = [code]
        if code > 0xFFFF:
            units = [0xD800 + (code - 0x10000 >> 10), 0xDC00 + (code - 0x10000 & 0x3FF)]
        for unit in units:
            value = value * 31 + unit
    value %= 1 << 32
    return value - (1 << 32) if value >= 1 << 31 else value


@given(st.text(max_size=60))
@example("\ud800")
@example("😀" * 20)
def test_java_hash(text: str) -> None:
    assert java_hash(text) == slow_hash(text)


#: Bytes, and (hash, length) of new String(bytes, UTF_8) in Java 17 and 25.
OF_JAVA = [
    ("eda080", 65533, 1),
    ("eda0", 65533, 1),
    ("ed9fbf", 55295, 1),
    ("eda041", 2031588, 2),
    ("edbfbfedbfbf", 2097056, 2),
    ("e0f0eda090", 65074269, 3),
    ("7f9f8fdfedbf", 2134655039, 5),
    ("f49ff3f57fedbf", 1660343966, 6),
    ("c080", 2097056, 2),
    ("f4908080", 2017367872, 4),
    ("f09f98", 65533, 1),
    ("e28241", 2031588, 2),
]


@pytest.mark.parametrize(("data", "value", "length"), OF_JAVA, ids=lambda x: str(x))
def test_malformed_utf_8_as_java_reads_it(data: str, value: int, length: int) -> None:
    """One U+FFFD for each malformed sequence; where a sequence ends, Java and Python differ."""
    text = java_string(bytes.fromhex(data))
    assert (java_hash(text), len(text)) == (value, length)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("7", 7), ("+7", 7), ("-7", -7), ("-0", 0), ("0" * 5000 + "7", 7), ("\u0663", 3), ("\uff17", 7)),
        *((text, None) for text in ("", "+", "-", "7 ", " 7", "7_0", "0x7", "7.0", "--7", "\U0001d7d7", "9" * 5000)),
    ],
)
def test_an_integer_as_java_reads_it(text: str, value: int | None) -> None:
    assert [java_integer(text, bits) for bits in (16, 32, 64)] == [value] * 3


@given(st.integers(-(1 << 64), 1 << 64), st.sampled_from([16, 32, 64]))
def test_an_integer_has_its_bounds(value: int, bits: int) -> None:
    fits = -(1 << bits - 1) <= value < 1 << bits - 1
    assert java_integer(str(value), bits) == (value if fits else None)
    assert java_integer(str(1 << bits - 1), bits) is None and java_integer(str(-(1 << bits - 1)), bits) is not None
