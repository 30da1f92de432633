"""How gzip and zstd files tell what they are (RFC 1952, RFC 8878).

No broker compresses a file of its store; people compress what they put aside.
"""

from __future__ import annotations

from construct import Int32ul

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE_MAGICS = tuple(bytes([0x50 + n]) + b"\x2a\x4d\x18" for n in range(16))
"""Frames that hold no data; a zstd file may begin with one."""
MAGIC_BYTES = 4
ZSTD_HEADER_BYTES_MAX = 18
"""Magic number and frame header, which holds the size of the content where the writer knew it."""
GZIP_SIZE = Int32ul
"""The last field of a member: the size of its content, modulo 2 ** 32."""
GZIP_SIZE_BYTES = GZIP_SIZE.sizeof()


def compression_of(head: bytes) -> str:
    """`gzip` or `zstd` for the first bytes of such a file, "" for any other."""
    if head.startswith(GZIP_MAGIC):
        return "gzip"
    return "zstd" if head.startswith((ZSTD_MAGIC, *SKIPPABLE_MAGICS)) else ""
