"""How compressed files tell what they are, by what real tools write."""

from __future__ import annotations

import gzip

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.compression import GZIP_SIZE, GZIP_SIZE_BYTES, MAGIC_BYTES, ZSTD_HEADER_BYTES_MAX, compression_of


@given(st.binary(max_size=200))
def test_what_tools_write(data: bytes) -> None:
    packed = gzip.compress(data)
    assert compression_of(packed[:MAGIC_BYTES]) == "gzip"
    assert GZIP_SIZE.parse(packed[-GZIP_SIZE_BYTES:]) == len(data)
    for known in (True, False):
        frame = zstandard.ZstdCompressor(write_content_size=known).compress(data)
        assert compression_of(frame[:MAGIC_BYTES]) == "zstd"
        found = zstandard.get_frame_parameters(frame[:ZSTD_HEADER_BYTES_MAX])
        if known and data:
            assert found.content_size == len(data)


@pytest.mark.parametrize("first", range(0x50, 0x60))
def test_a_zstd_file_may_begin_with_a_frame_without_data(first: int) -> None:
    assert compression_of(bytes([first, 0x2A, 0x4D, 0x18])) == "zstd"


@pytest.mark.parametrize(
    "head", [b"", b"\x1f", b"\x28\xb5\x2f", b"\x5f\x2a\x4d", b"\x60\x2a\x4d\x18", b"PK\3\4", bytes(18)]
)
def test_others(head: bytes) -> None:
    assert compression_of(head) == ""
