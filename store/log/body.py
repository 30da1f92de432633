"""Bodies that the producer compressed (spec/01-commitlog.md, 1.3).

The output is bounded: a small body may unpack to anything.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from ...formats.sys_flag import COMPRESSION_MASK, SysFlag
from ..counted import counted

MAX_BODY_BYTES = 64 << 20
_COMPRESSED = int(SysFlag.COMPRESSED)
_NAMES = {int(SysFlag.LZ4): "lz4", int(SysFlag.ZSTD): "zstd"}


class Body(NamedTuple):
    """A body as it is shown: `data`, how it was compressed ("" if not), why that failed ("")."""

    data: bytes
    compression: str = ""
    error: str = ""


def compression_of(sys_flag: int) -> str:
    """`zlib`, `lz4` or `zstd` by the flag, "" for a body that is not compressed."""
    if not sys_flag & _COMPRESSED:
        return ""
    return _NAMES.get(sys_flag & COMPRESSION_MASK, "zlib")


def unpack(stored: bytes, sys_flag: int, max_bytes: int = MAX_BODY_BYTES) -> Body:
    """The body as the producer gave it.

    What does not decompress as its flag says, or to more than `max_bytes`, comes as stored with an
    error. No exception.
    """
    compression = compression_of(sys_flag)
    if not compression:
        return Body(stored)
    try:
        return Body(unpack_whole(stored, sys_flag, max_bytes), compression)
    except ValueError as error:
        return Body(stored, "", str(error))


class TooLarge(ValueError):
    """A body that decompresses to more than is wanted."""


def unpack_whole(stored: bytes, sys_flag: int, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """A compressed body decompressed. Raises ValueError, `TooLarge` for more than `max_bytes`."""
    compression = compression_of(sys_flag)
    said = f"does not decompress with {compression}"
    try:
        return _UNPACKERS[compression](stored, max_bytes)
    except TooLarge as error:
        raise TooLarge(f"{said}: {error}") from None
    except (ValueError, RuntimeError, zlib.error, EOFError, MemoryError) as error:
        raise ValueError(f"{said}: {error}") from None


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"more than {counted(max_bytes, 'byte')} (--max-body)")


def _unzlib(stored: bytes, max_bytes: int) -> bytes:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(stored, max_bytes + 1)
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    if not unpacker.eof:
        raise EOFError("the stream is cut")
    return data


def _unlz4(stored: bytes, max_bytes: int) -> bytes:
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    data: bytes = unpacker.decompress(stored, max_length=max_bytes + 1)
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    if not unpacker.eof:
        raise EOFError("the stream is cut")
    return data


def _unzstd(stored: bytes, max_bytes: int) -> bytes:
    import zstandard

    # a stream reader would bound the output, but takes a cut stream for a whole one
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    parts, size = [], 0
    try:
        for at in range(0, len(stored), _ZSTD_BYTES):
            parts.append(unpacker.decompress(stored[at : at + _ZSTD_BYTES]))
            size += len(parts[-1])
            if size > max_bytes:
                raise _too_large(max_bytes)
            if unpacker.eof:
                return b"".join(parts)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    raise EOFError("the stream is cut")


#: Bytes that zstd is given at once: four of them can unpack to 128 KiB.
_ZSTD_BYTES = 512
_UNPACKERS = {"zlib": _unzlib, "lz4": _unlz4, "zstd": _unzstd}


def pack(data: bytes, sys_flag: int) -> bytes:
    """A body compressed as the flag says, as it is where that says nothing.

    The bytes need not be those of another writer: only what they unpack to is the same.
    """
    compression = compression_of(sys_flag)
    return _PACKERS[compression](data) if compression else data


_ZLIB_LEVEL = 5
"""The level of the Java client, which gives the same bytes in most cases."""


def _zlib(data: bytes) -> bytes:
    return zlib.compress(data, _ZLIB_LEVEL)


def _lz4(data: bytes) -> bytes:
    import lz4.frame

    packed: bytes = lz4.frame.compress(data)
    return packed


def _zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


_PACKERS = {"zlib": _zlib, "lz4": _lz4, "zstd": _zstd}
