"""Hashes and checksums of columns against the same one by one, wherever the strings lie in their buffer."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged
from mqstore.formats.hashing import crc31, index_hash, java_hash, java_string, tags_code
from mqstore.formats.hashing_columns import crc31_column, crc32c_column, index_hash_column, java_hash_column
from tests.slices import examples, rng, share

from .test_hashing import slow_hash

strings = st.lists(
    st.one_of(
        st.none(),
        st.binary(max_size=20),
        st.text(st.characters(max_codepoint=127), max_size=300).map(str.encode),
        st.text(max_size=30).map(lambda text: text.encode("utf-8", "replace")),
    ),
    max_size=12,
)


@given(strings, st.binary(max_size=9), st.binary(max_size=9))
def test_as_one_by_one(found: list[bytes | None], before: bytes, behind: bytes) -> None:
    packed = Ragged.of(found)
    buffer = np.frombuffer(before + packed.buffer.tobytes() + behind, np.uint8)
    column = Ragged(buffer, packed.start + len(before), packed.length)
    texts = [java_string(string or b"") for string in found]
    assert java_hash_column(column).tolist() == [java_hash(text) for text in texts]
    prefixes = np.full(len(found), java_hash("T#"), np.int32)
    assert index_hash_column(prefixes, column).tolist() == [index_hash("T", t) for t in texts]
    assert crc31_column(column).tolist() == [crc31(string or b"") for string in found]


def test_known_values_of_crc32c() -> None:
    """Those of RFC 3720, B.4, and the usual check value."""
    column = Ragged.of([b"123456789", b"", bytes(32), b"\xff" * 32, bytes(range(32))])
    wanted = [0xE3069283, 0, 0x8A9136AA, 0x62A8AB43, 0x46DD794E]
    assert crc32c_column(column).tolist() == wanted
    assert crc32c_column(Ragged.of([])).tolist() == []


def test_known_values() -> None:
    column = Ragged.of([b"TagA", b"polygenelubricants", "é😀".encode(), b"x" * 257])
    assert java_hash_column(column).tolist()[:2] == [2598919, -(1 << 31)]
    prefix = np.full(4, java_hash("TopicA#"), np.int32)
    keys = Ragged.of([b"k1", b"ck", b"T#TagB", b""])
    assert index_hash_column(prefix, keys).tolist()[:2] == [1903240649, 1903240839]


#: Around the widths that are hashed as matrices, and far above.
LENGTHS = sorted({n + d for n in (0, 16, 32, 64, 128, 256, 512, 8192) for d in (-1, 0, 1)} - {-1})


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


STRINGS = st.one_of(
    st.none(), TEXTS.map(str.encode), st.binary(max_size=300), st.text("ab\x7f\x80é€😀", max_size=300).map(str.encode)
)


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
