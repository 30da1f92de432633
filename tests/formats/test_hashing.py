"""Hashes and checksums of columns against plain Python, and the hashes against what Java gives."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged
from mqstore.formats.hashing import crc31, index_hash, java_hash, java_string, tags_code
from mqstore.formats.hashing_columns import crc31_column, index_hash_column, java_hash_column
from tests.slices import examples, rng, share

#: Around the widths that are hashed as matrices, and far above.
LENGTHS = sorted({n + d for n in (0, 16, 32, 64, 128, 256, 512, 8192) for d in (-1, 0, 1)} - {-1})

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
STRINGS = st.one_of(
    st.none(),
    TEXTS.map(str.encode),
    st.binary(max_size=300),
    st.text("ab\x7f\x80é€😀", max_size=300).map(str.encode),
)


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


@given(st.lists(STRINGS, max_size=12))
@settings(max_examples=examples(150))
def test_java_hash_column(strings: list[bytes | None]) -> None:
    expected = [slow_hash(java_string(string or b"")) for string in strings]
    ragged = Ragged.of(strings)
    assert java_hash_column(ragged).tolist() == expected
    assert java_hash_column(ragged[::-1]).tolist() == expected[::-1]
    assert [tags_code(java_string(string or b"")) for string in strings] == expected


@pytest.mark.few(5)
@pytest.mark.parametrize("fill", ["a", "\x7f", "\0", "é", "€", "😀", "aé"])
def test_java_hash_column_at_every_width(fill: str) -> None:
    """Strings of all lengths together, at the start and at the end of their buffer."""
    strings = [(fill * n).encode()[:n].decode("utf-8", "ignore").encode() for n in LENGTHS]
    for order in (strings, strings[::-1]):
        expected = [slow_hash(string.decode()) for string in order]
        assert java_hash_column(Ragged.of(order)).tolist() == expected
        for string, value in zip(order, expected, strict=True):
            assert java_hash_column(Ragged.of([string])).tolist() == [value]


def test_java_hash_column_of_many() -> None:
    """More strings than one matrix holds."""
    generator = rng("java_hash_column")
    strings = [generator.randbytes(generator.randrange(20)).hex().encode() for _ in range(40_000)]
    assert java_hash_column(Ragged.of(strings)).tolist() == [slow_hash(s.decode()) for s in strings]


@given(st.lists(st.tuples(TEXTS, STRINGS), max_size=8))
@example([("TopicA", b"k1"), ("", b""), ("%RETRY%g", "ключ😀".encode())])
def test_index_hash_column(pairs: list[tuple[str, bytes | None]]) -> None:
    topics = Ragged.of([f"{topic}#".encode() for topic, _ in pairs])
    keys = Ragged.of([key for _, key in pairs])
    found = index_hash_column(java_hash_column(topics), keys)
    expected = [index_hash(topic, java_string(key or b"")) for topic, key in pairs]
    assert found.tolist() == expected
    assert all(value >= 0 for value in expected)


def test_index_hash_column_where_there_is_no_absolute_value() -> None:
    """|-2^31| becomes 0 (spec 3.2)."""
    text = "polygenelubricants"
    no_topic = java_hash_column(Ragged.of([b"", b""]))
    assert index_hash_column(no_topic, Ragged.of([text.encode(), b"k"])).tolist() == [0, 107]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=600)), max_size=10))
def test_crc31_column(strings: list[bytes | None]) -> None:
    expected = [zlib.crc32(string or b"") % (1 << 31) for string in strings]
    assert crc31_column(Ragged.of(strings)).tolist() == expected
    assert [crc31(string or b"") for string in strings] == expected


@pytest.mark.parametrize("length", [1, 255, 256, 257, 100_000])
def test_crc31_column_at_the_lengths_of_both_algorithms(length: int) -> None:
    strings = [bytes([i]) * length for i in range(5)]
    assert crc31_column(Ragged.of(strings)).tolist() == [zlib.crc32(s) % (1 << 31) for s in strings]


def test_columns_of_nothing() -> None:
    none = Ragged.of([])
    for column in (java_hash_column(none), crc31_column(none)):
        assert column.dtype == np.int32
        assert len(column) == 0
    assert len(index_hash_column(java_hash_column(none), none)) == 0


@pytest.mark.slow
def test_java_hash_column_at_length() -> None:
    @given(st.lists(STRINGS, max_size=60))
    @settings(max_examples=share(5_000), derandomize=False)
    def run(strings: list[bytes | None]) -> None:
        expected = [slow_hash(java_string(string or b"")) for string in strings]
        assert java_hash_column(Ragged.of(strings)).tolist() == expected

    run()
