"""Dictionary encoding of byte strings: few different values, many rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats import kernel
from ...formats.derive import Ragged
from ...formats.derive.ragged import Flags, Ints, overlapping, ragged_copy

_WORD = np.dtype(np.uint64)
_SLOT_BITS = 14
_SAMPLE = 64
"""Strings that are looked at first: often all of a batch are the same."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(29)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Dictionary(NamedTuple):
    """`values[ids[i]]` is string i. ids: int64[n]; values: different, by first appearance."""

    ids: Ints
    values: list[bytes]


def dictionary(strings: Ragged) -> Dictionary:
    """Number the different strings of a column. A missing string (length -1) counts as empty.

    Every row is compared with the one that stands for its value, so a hash that two strings share
    costs time and nothing else. About 40 ns a row for short strings, memory O(n).
    """
    count = len(strings)
    if not count:
        return Dictionary(np.zeros(0, np.int64), [])
    if strings.noted.numbers is not None:
        ids, first = strings.noted.numbers
        return Dictionary(ids, strings[first].tolist())
    if kernel.is_wanted(count):
        ids, first = np.empty(count, np.int64), np.empty(count, np.int64)
        found = kernel.run(kernel.Operation.DICTIONARY, (*strings.arrays, ids, first))
        return Dictionary(ids, strings[first[:found]].tolist())
    strings = _with_slack(strings)
    if _all_like_first(strings[:_SAMPLE]) and _all_like_first(strings):
        return Dictionary(np.zeros(count, np.int64), [strings[0]])
    slot = _slots(strings)
    at_slot = np.full(1 << _SLOT_BITS, -1, np.int64)
    at_slot[slot[::-1]] = np.arange(count - 1, -1, -1)
    leader = at_slot[slot]
    other = np.flatnonzero(~_equal(strings, leader))
    if len(other):
        leaders: dict[bytes, int] = {}
        for row, value in zip(other.tolist(), strings[other].tolist(), strict=True):
            leader[row] = leaders.setdefault(value, row)
    leads = np.flatnonzero(leader == np.arange(count))
    number = np.zeros(count, np.int64)
    number[leads] = np.arange(len(leads))
    return Dictionary(number[leader], strings[leads].tolist())


def _all_like_first(strings: Ragged) -> bool:
    return bool(_equal(strings, np.zeros(len(strings), np.int64)).all())


def _with_slack(strings: Ragged) -> Ragged:
    """The strings where whole words can be read from any of their bytes."""
    length = np.maximum(strings.length, 0)
    if int((strings.start + length).max()) + _WORD.itemsize <= len(strings.buffer):
        return Ragged(strings.buffer, strings.start, length)
    start = np.cumsum(length) - length
    out = np.zeros(int(length.sum()) + _WORD.itemsize, np.uint8)
    ragged_copy(out, start, Ragged(strings.buffer, strings.start, length))
    return Ragged(out, start, length)


def _word(strings: Ragged, rows: Ints | slice, at: int) -> npt.NDArray[np.uint64]:
    """Bytes `at` … `at` + 7 of strings that are longer than `at`, zero behind their end."""
    left = strings.length[rows] - at
    words = overlapping(strings.buffer, _WORD)[strings.start[rows] + at]
    unused = (8 * np.maximum(_WORD.itemsize - left, 0)).astype(np.uint64)
    return _keep_front(words, unused)


def _keep_front(
    words: npt.NDArray[np.uint64], unused_bits: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """Clear the last bytes in memory order, on machines of either byte order."""
    if np.little_endian:
        return words & (_ALL >> unused_bits)
    return words & (_ALL << unused_bits)


def _slots(strings: Ragged) -> Ints:
    """A number below 2^14 for each string, equal for equal strings."""
    mixed = strings.length.astype(np.uint64) * _MIX
    longest = int(strings.length.max())
    for at in range(0, longest, _WORD.itemsize):
        rows = _longer_than(strings, at)
        value = (mixed[rows] ^ _word(strings, rows, at)) * _MIX
        mixed[rows] = value ^ (value >> _FOLD)
    return (mixed >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)


def _equal(strings: Ragged, leader: Ints) -> Flags:
    """Whether each string is that of its leader."""
    equal: Flags = strings.length == strings.length[leader]
    of_leader = strings[leader]
    for at in range(0, int(strings.length.max()), _WORD.itemsize):
        rows = _longer_than(strings, at)
        equal[rows] &= _word(strings, rows, at) == _word(of_leader, rows, at)
    return equal


def _longer_than(strings: Ragged, at: int) -> Ints | slice:
    longer = strings.length > at
    return slice(None) if longer.all() else np.flatnonzero(longer)
