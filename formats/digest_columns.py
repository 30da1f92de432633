"""64-bit digests of whole columns, to find differences: fast, equal in all processes, not cryptographic.

Two different strings have equal digests once in 2^64 pairs, unless somebody constructs them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from .derive.ragged import Ints, Ragged, overlapping

Digests = npt.NDArray[np.uint64]

_WORD = np.dtype("<u8")
_WORD_BYTES = _WORD.itemsize
_LONGEST_BYTES = 512
"""Longer strings are digested one by one."""
_ALL = np.uint64((1 << 64) - 1)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_HIGH, _MIDDLE, _LOW = np.uint64(30), np.uint64(27), np.uint64(31)


def digest_column(strings: Ragged) -> Digests:
    """A digest of each string, uint64[n]; a missing string counts as empty."""
    length = np.maximum(strings.length, 0)
    end = strings.start + length
    found = length.astype(np.uint64)
    # the words of a string must not begin before the buffer
    early = (length <= _LONGEST_BYTES) & (end < -(-length // _WORD_BYTES) * _WORD_BYTES)
    slow = (length > _LONGEST_BYTES) | early
    words = overlapping(strings.buffer, _WORD)
    longest = int(length[~slow].max(initial=0))
    for at in range(0, longest, _WORD_BYTES) if len(words) else ():
        rows = np.flatnonzero((length > at) & ~slow)
        word = words[end[rows] - (at + _WORD_BYTES)].astype(np.uint64, copy=False)
        unused = np.maximum(_WORD_BYTES - (length[rows] - at), 0) * 8
        found[rows] = _mix(found[rows] ^ (word & (_ALL << unused.astype(np.uint64))))
    for row in np.flatnonzero(early).tolist():
        found[row] = digest_column(Ragged.of([bytes(_WORD_BYTES), strings[row]]))[1]
    for row in np.flatnonzero(length > _LONGEST_BYTES).tolist():
        data = hashlib.blake2b(strings[row], digest_size=_WORD_BYTES).digest()
        found[row] = int.from_bytes(data, "little")
    return found


def mixed(columns: Iterable[Ints | Digests]) -> Digests:
    """One digest for each row of some columns, uint64[n]; their order matters. Raises ValueError without columns."""
    found: Digests | None = None
    for column in columns:
        values: Digests = column.astype(np.int64).view(np.uint64)
        found = _mix(values + _STEP) if found is None else _mix((found + _STEP) ^ _mix(values))
    if found is None:
        raise ValueError("no columns")
    return found


def _mix(values: Digests) -> Digests:
    """The finalizer of SplitMix64: each bit of a value changes half of the bits of the result."""
    values = (values ^ (values >> _HIGH)) * _FIRST
    values = (values ^ (values >> _MIDDLE)) * _SECOND
    return values ^ (values >> _LOW)
