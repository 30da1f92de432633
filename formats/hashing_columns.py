"""Checksums and hashes of whole columns; the rules are those of `hashing`."""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

from .derive.ragged import Bytes, Ints, Ragged, overlapping
from .hashing import CRC_MASK, java_hash, java_string

Hashes = npt.NDArray[np.int32]

#: Below this mean length zlib's CRC is the quicker one, above it isal's.
_SHORT_BYTES = 256
#: Strings longer than this are hashed one by one: the exact float64 sums end far above it.
_WIDE = 256
#: Rows of one matrix product: about 2 MiB of float64.
_CELLS = 1 << 18


def crc31_column(strings: Ragged) -> Hashes:
    """crc31 of each string, int32[n]."""
    view = strings.buffer.data
    begins = strings.start.tolist()
    length = np.maximum(strings.length, 0)
    ends = (strings.start + length).tolist()
    short = int(length.sum()) < _SHORT_BYTES * len(begins)
    crc = zlib.crc32 if short else crc32
    values = [crc(view[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    return (np.array(values, np.uint32) & np.uint32(CRC_MASK)).view(np.int32)


def java_hash_column(strings: Ragged) -> Hashes:
    """`String.hashCode` of UTF-8 strings, int32[n]; 0 where there is no string.

    ASCII strings are hashed as a matrix product with powers of 31, exact in float64; longer ones
    and those with other characters one by one.
    """
    out = np.zeros(len(strings), np.uint32)
    length = strings.length
    if not len(out) or int(length.max()) <= 0:
        return out.view(np.int32)
    slow = length > _WIDE
    fast = np.flatnonzero((length > 0) & ~slow)
    for width in (16, 32, 64, 128, _WIDE):
        group = fast[(length[fast] <= width) & (length[fast] > (width // 2 if width > 16 else 0))]
        for begin in range(0, len(group), _CELLS // width):
            index = group[begin : begin + _CELLS // width]
            values, ascii_only = _ascii_hashes(strings[index], width)
            out[index] = values
            slow[index] = ~ascii_only
    for i in np.flatnonzero(slow).tolist():
        out[i] = java_hash(java_string(strings[i])) & 0xFFFFFFFF
    return out.view(np.int32)


@lru_cache(maxsize=16)
def _weights(width: int) -> npt.NDArray[np.float64]:
    """31^(width-1) … 31^0 modulo 2^32."""
    return np.array([pow(31, k, 1 << 32) for k in range(width - 1, -1, -1)], np.float64)


def _ascii_hashes(
    strings: Ragged, width: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """Hashes of strings of at most `width` bytes, and which of them are pure ASCII."""
    cells = _right_aligned(strings, width)
    ascii_only = cells.max(axis=1) < 0x80
    sums = cells.astype(np.float64) @ _weights(width)
    # each term is below 2^7 · 2^32 and there are at most 2^8 of them: exact below 2^53
    return sums.astype(np.uint64).astype(np.uint32), ascii_only


def _right_aligned(strings: Ragged, width: int) -> Bytes:
    """uint8[n, width]: each string at the right end of its row, zeros before it."""
    buffer, end = strings.buffer, strings.start + strings.length
    if len(buffer) < width:
        buffer = np.concatenate([np.zeros(width, np.uint8), buffer])
        end = end + width
    at = end - width
    short = at < 0
    if short.any():
        front = np.concatenate([np.zeros(width, np.uint8), buffer[: 2 * width]])
        cells = overlapping(buffer, np.dtype((np.void, width)))[np.maximum(at, 0)]
        cells[short] = overlapping(front, np.dtype((np.void, width)))[at[short] + width]
    else:
        cells = overlapping(buffer, np.dtype((np.void, width)))[at]
    rows = cells.view(np.uint8).reshape(-1, width)
    distance = np.arange(width, 0, -1)
    return np.where(distance <= strings.length[:, None], rows, 0).astype(np.uint8)


def index_hash_column(topic_hashes: Hashes, keys: Ragged) -> Hashes:
    """key_hash of each key, int32[n]; `topic_hashes` are those of `topic#` (see `java_hash`).

    hash(topic# + key) = hash(topic#) · 31^units(key) + hash(key).
    """
    units = _utf16_units(keys)
    longest = int(units.max()) if len(units) else 0
    powers = np.ones(longest + 1, np.uint32)
    powers[1:] = np.cumprod(np.full(longest, 31, np.uint32), dtype=np.uint32)
    sums = topic_hashes.view(np.uint32) * powers[units] + java_hash_column(keys).view(np.uint32)
    value = np.abs(sums.view(np.int32).astype(np.int64))
    return np.where(value == 1 << 31, 0, value).astype(np.int32)


def _utf16_units(strings: Ragged) -> Ints:
    """Number of UTF-16 code units of each string, int64[n]."""
    units = np.maximum(strings.length, 0)
    if not len(units):
        return units
    packed = strings.packed()
    if not (packed.buffer >= 0x80).any():
        return units
    marks = np.concatenate([[0], np.cumsum(packed.buffer >= 0x80)])
    other = marks[packed.start + units] != marks[packed.start]
    for i in np.flatnonzero(other).tolist():
        units[i] = len(java_string(strings[i]).encode("utf-16-be", "surrogatepass")) // 2
    return units
