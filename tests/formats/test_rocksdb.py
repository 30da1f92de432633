"""Parts of a MANIFEST: the schema and the form that reads many of them say the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.fixed import numbers_of
from mqstore.formats.rocksdb import MANIFEST_PART


@given(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 16) - 1), st.integers(0, 255))
def test_a_part(crc: int, length: int, kind: int) -> None:
    data = MANIFEST_PART.build({"crc": crc, "length": length, "type": kind})
    assert numbers_of(MANIFEST_PART).unpack(data) == (crc, length, kind)
    assert data == crc.to_bytes(4, "little") + length.to_bytes(2, "little") + bytes([kind])
    assert MANIFEST_PART.parse(data).type == kind
