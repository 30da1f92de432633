"""Bits of sys_flag (spec/01-commitlog.md, 1.3)."""

from __future__ import annotations

from enum import IntFlag


class SysFlag(IntFlag):
    """Bits of sys_flag; ROLLBACK is both transaction bits, ZLIB both compression bits."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


TRANSACTION_MASK = 0xC
COMPRESSION_MASK = 0x700
