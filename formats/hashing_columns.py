"""Checksums and hashes of whole columns, by the rules of `hashing`."""

from __future__ import annotations

import zlib
from array import array

import numpy as np
import numpy.typing as npt

from . import kernel
from .derive.ragged import Ints, Ragged, overlapping
from .hashing import CRC_MASK, java_hash, java_string

Hashes = npt.NDArray[np.int32]

#: Up to this mean length zlib's CRC is faster, above it the other one.
_SHORT_BYTES = 256
try:  # the extra `fast`: a call takes half as long, at any length
    from zlib_ng.zlib_ng import crc32

    _SHORT_BYTES = 0
except ImportError:
    from isal.isal_zlib import crc32

#: Strings longer than this are hashed one by one.
_LONGEST_BYTES = 256
_WORD = np.dtype("<u8")
_WORD_BYTES = _WORD.itemsize
_ALL = np.uint64((1 << 64) - 1)
_NOT_ASCII = np.uint64(0x8080808080808080)


def crc31_column(strings: Ragged) -> Hashes:
    """crc31 of each string, int32[n]."""
    if kernel.is_wanted(len(strings)):
        out = np.empty(len(strings), np.int32)
        kernel.run(kernel.Operation.CHECKSUM, (*strings.arrays, out))
        return out
    view = strings.buffer.data
    begins = strings.start.tolist()
    length = np.maximum(strings.length, 0)
    ends = (strings.start + length).tolist()
    short = int(length.sum()) < _SHORT_BYTES * len(begins)
    crc = zlib.crc32 if short else crc32
    values = array("I", [crc(view[begin:end]) for begin, end in zip(begins, ends, strict=True)])
    return (np.frombuffer(values, np.uint32) & np.uint32(CRC_MASK)).view(np.int32)


def crc32c_column(strings: Ragged) -> npt.NDArray[np.uint32]:
    """CRC-32C (Castagnoli polynomial) of each string, uint32[n]; one numpy step per byte of the longest string."""
    order = np.argsort(-strings.length, kind="stable")
    start, shorter = strings.start[order], -strings.length[order]
    crc = np.full(len(order), _ALL_BITS, np.uint32)
    for step in range(max(0, -int(shorter.min(initial=0)))):
        rows = int(np.searchsorted(shorter, -step))
        crc[:rows] = _CASTAGNOLI[(crc[:rows] ^ strings.buffer[start[:rows] + step]) & 0xFF] ^ crc[:rows] >> 8
    out = np.empty(len(order), np.uint32)
    out[order] = crc ^ _ALL_BITS
    return out


_ALL_BITS = np.uint32(0xFFFFFFFF)
_CASTAGNOLI: npt.NDArray[np.uint32] = np.arange(1 << 8, dtype=np.uint32)
for _ in range(8):
    _CASTAGNOLI = (_CASTAGNOLI >> 1 ^ (_CASTAGNOLI & 1) * 0x82F63B78).astype(np.uint32)


def java_hash_column(strings: Ragged) -> Hashes:
    """`String.hashCode` of UTF-8 strings, int32[n]; 0 for a missing string."""
    if (noted := _noted_hashes(strings)) is not None:
        return noted.astype(np.uint32).view(np.int32)
    if kernel.is_wanted(len(strings)):
        return _native_hash(strings, np.zeros(0, np.int32))
    return _hash(strings)[0].view(np.int32)


def _noted_hashes(strings: Ragged) -> Ints | None:
    """The hashes noted for the strings, if there are notes for all of them."""
    noted = strings.noted.hashes
    return noted if noted is not None and noted.min(initial=0) >= 0 else None


def _native_hash(strings: Ragged, seeds: Hashes) -> Hashes:
    """Hashes of strings appended to texts whose hashes are `seeds` (int32[n], or empty for no such texts)."""
    found = np.empty(len(strings), np.int64)
    kernel.run(kernel.Operation.JAVA_HASH, (*strings.arrays, seeds, found))
    out = found.astype(np.uint32).view(np.int32)
    if found.min(initial=0) < 0:
        for row in np.flatnonzero(found < 0).tolist():  # malformed UTF-8: Java decodes it to U+FFFD
            seed = int(seeds[row]) if len(seeds) else 0
            text = java_string(strings[row])
            units = len(text.encode("utf-16-be", "surrogatepass")) // 2
            value = seed * pow(31, units, 1 << 32) + java_hash(text)
            out[row] = np.uint32(value & 0xFFFFFFFF).view(np.int32)
    return out


def _hash(strings: Ragged) -> tuple[npt.NDArray[np.uint32], Ints]:
    """Hashes modulo 2^32, and the number of UTF-16 units of each string.

    ASCII strings are hashed eight characters at a time, from their end to their beginning; long strings and those with
    other characters one by one.
    """
    units = np.maximum(strings.length, 0)
    longest = int(units.max(initial=0))
    if not longest:
        return np.zeros(len(units), np.uint32), units
    end = strings.start + units
    # the words of a string must not begin before the buffer
    slow = (units > _LONGEST_BYTES) | (end < -(-units // _WORD_BYTES) * _WORD_BYTES)
    words = overlapping(strings.buffer, _WORD)
    total = np.zeros(len(units), np.uint64)
    seen = np.zeros(len(units), np.uint64)
    for at in range(0, min(longest, _LONGEST_BYTES), _WORD_BYTES) if len(words) else ():
        longer = (units > at) & ~slow
        rows = slice(None) if longer.all() else np.flatnonzero(longer)
        word = words[end[rows] - (at + _WORD_BYTES)].astype(np.uint64, copy=False)
        remaining = units[rows] - at
        if int(remaining.min(initial=_WORD_BYTES)) < _WORD_BYTES:
            unused = np.maximum(_WORD_BYTES - remaining, 0) * 8
            word &= _ALL << unused.astype(np.uint64)
        if len(word) and word[0] == word[-1] and (word == word[0]).all():
            word = word[:1]  # keys of one producer begin with the same word
        seen[rows] |= word
        total[rows] += _hash_of_word(word) * np.uint64(pow(31, at, 1 << 32))
    hashes = total.astype(np.uint32)
    slow |= seen & _NOT_ASCII != 0
    for i in np.flatnonzero(slow).tolist():
        text = java_string(strings[i])
        hashes[i] = java_hash(text) & 0xFFFFFFFF
        units[i] = len(text.encode("utf-16-be", "surrogatepass")) // 2
    return hashes, units


def _hash_of_word(word: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Sum of c·31^(7-i) over the eight characters of each word, the first one in the lowest byte.

    Neighbours are added within the word: 8 characters to 4 pairs, to 2 groups of four, to the sum.
    """
    for bits, mask, weight in _FOLDS:
        word = (word & mask) * weight + (word >> bits & mask)
    return word


_FOLDS = tuple(
    (np.uint64(bits), np.uint64(mask), np.uint64(31 ** (bits // 8)))
    for bits, mask in ((8, 0x00FF00FF00FF00FF), (16, 0x0000FFFF0000FFFF), (32, 0x00000000FFFFFFFF))
)


def index_hash_column(topic_hashes: Hashes, keys: Ragged) -> Hashes:
    """key_hash of each key, int32[n]. topic_hashes: those of `topic#` (see `java_hash`).

    hash(topic# + key) = hash(topic#) · 31^units(key) + hash(key).
    """
    noted = _noted_hashes(keys)
    if noted is None and kernel.is_wanted(len(keys)):
        sums = _native_hash(keys, topic_hashes)
    else:
        hashes, units = _hash(keys) if noted is None else (noted, np.maximum(keys.length, 0))
        longest = int(units.max(initial=0))
        powers = np.ones(longest + 1, np.uint32)
        powers[1:] = np.cumprod(np.full(longest, 31, np.uint32), dtype=np.uint32)
        before = topic_hashes.view(np.uint32) * powers.take(units)
        sums = (before + hashes.astype(np.uint32)).view(np.int32)
    return np.maximum(np.abs(sums), 0)  # the smallest int32 has no absolute value: Java takes 0


WORD_FACTOR = 0x9E3779B97F4A7C15
"""Word number i of a text is multiplied by the power i + 1 of this number."""
WORDS = 8
"""Most words of a text that count: 64 characters. A unique key of a 5.x client has 34, with an IPv6 host 56."""
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
"""Masks of the first n bytes of a word."""


def word_sums(strings: Ragged) -> npt.NDArray[np.uint64]:
    """The sum of the words of each string, each word multiplied by another power of WORD_FACTOR, uint64[n].

    Input of hashes: with seed and length mixed in, equal for equal strings and hardly ever for others.
    """
    if strings.noted.sums is not None:
        return strings.noted.sums
    if kernel.is_wanted(len(strings)):
        out = np.empty(len(strings), np.uint64)
        how = (WORDS, WORD_FACTOR - (1 << 64))
        kernel.run(kernel.Operation.WORD_SUMS, (*strings.arrays, out), how)
        return out
    out = np.zeros(len(strings), np.uint64)
    short = max(0, _WORD_BYTES - len(strings.buffer))
    words = overlapping(np.pad(strings.buffer, (0, short)) if short else strings.buffer, _WORD)
    shortest, last = int(strings.length.min()), len(words) - 1
    for number in range(min(WORDS, -(-int(strings.length.max()) // _WORD_BYTES))):
        first = number * _WORD_BYTES
        at = strings.start + first
        if first + _WORD_BYTES <= shortest:
            part = words[at]
        else:  # near the end of the buffer, read a word from before it and shift it into place
            behind = np.clip(at - last, 0, _WORD_BYTES - 1)
            part = words[np.clip(at - behind, 0, last)] >> (8 * behind).astype(np.uint64)
            part &= _FIRST_BYTES[np.clip(strings.length - first, 0, _WORD_BYTES)]
        part *= np.uint64(pow(WORD_FACTOR, number + 1, 1 << 64))
        out += part
    return out
