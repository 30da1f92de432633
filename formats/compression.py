"""How to recognize gzip and zstd files (RFC 1952, RFC 8878).

No broker compresses a file of its store; people compress files to archive them.
"""

from __future__ import annotations

from construct import Int32ul

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE_MAGICS = tuple(bytes([0x50 + n]) + b"\x2a\x4d\x18" for n in range(16))
"""Magic numbers of frames without data, with which a zstd file may begin."""
MAGIC_BYTES = 4
ZSTD_HEADER_BYTES_MAX = 18
"""Bytes of magic number and frame header, which has the size of the content if the writer knew it."""
GZIP_SIZE = Int32ul
"""The last field of a member: the size of its content modulo 2^32."""
GZIP_SIZE_BYTES = GZIP_SIZE.sizeof()


def compression_of(head: bytes) -> str:
    """`gzip` or `zstd` for the first bytes of such a file, "" for other files."""
    if head.startswith(GZIP_MAGIC):
        return "gzip"
    return "zstd" if head.startswith((ZSTD_MAGIC, *SKIPPABLE_MAGICS)) else ""
