"""Hashes of columns against the same one by one, wherever the strings lie in their buffer."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged
from mqstore.formats.hashing import crc31, index_hash, java_hash, java_string
from mqstore.formats.hashing_columns import crc31_column, index_hash_column, java_hash_column

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


def test_known_values() -> None:
    column = Ragged.of([b"TagA", b"polygenelubricants", "é😀".encode(), b"x" * 257])
    assert java_hash_column(column).tolist()[:2] == [2598919, -(1 << 31)]
    prefix = np.full(4, java_hash("TopicA#"), np.int32)
    keys = Ragged.of([b"k1", b"ck", b"T#TagB", b""])
    assert index_hash_column(prefix, keys).tolist()[:2] == [1903240649, 1903240839]
