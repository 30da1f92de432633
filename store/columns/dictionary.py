"""Dictionary encoding of byte strings: few different values, many rows.

Finding out which of a store's topics a whole column of records names.

Unlike a `Dictionary`, what is looked for is known before: eight bytes at a time are compared with a
table, and one step of hashing tells which row of it to compare with.

Topics of batches of records, by the table of those that were met before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...formats.derive import Ragged
from ...formats.derive.ragged import Ints, overlapping, ragged_copy

_WORD = np.dtype(np.uint64)
_SLOT_BITS = 14
_SAMPLE = 64
"""Strings that are looked at first: often all of a batch are the same."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(29)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Dictionary:
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
    strings = _with_slack(strings)
    if _all_like_first(strings[:_SAMPLE]) and _all_like_first(strings):
        return Dictionary(np.zeros(count, np.int64), [strings[0]])
    slot = _slots(strings)
    first = np.full(1 << _SLOT_BITS, -1, np.int64)
    first[slot[::-1]] = np.arange(count - 1, -1, -1)
    leader = first[slot]
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


def _equal(strings: Ragged, leader: Ints) -> npt.NDArray[np.bool_]:
    """Whether each string is that of its leader."""
    equal: npt.NDArray[np.bool_] = strings.length == strings.length[leader]
    of_leader = strings[leader]
    for at in range(0, int(strings.length.max()), _WORD.itemsize):
        rows = _longer_than(strings, at)
        equal[rows] &= _word(strings, rows, at) == _word(of_leader, rows, at)
    return equal


def _longer_than(strings: Ragged, at: int) -> Ints | slice:
    longer = strings.length > at
    return slice(None) if longer.all() else np.flatnonzero(longer)


Words = npt.NDArray[np.uint64]
_LENGTHS = 256
"""A topic's length is one byte; what says more is of no known topic."""
_TOPIC_SLOT_BITS = 16
_TRIES = 64
_ODD = 0x9E3779B97F4A7C15


class KnownTopics:
    """names: the topics, as bytes. Memory: half a megabyte, and the names."""

    def __init__(self, names: Sequence[bytes]) -> None:
        names = [name for name in names if len(name) < _LENGTHS]
        self._numbers = {name: number for number, name in enumerate(names)}
        self._length = np.array([len(name) for name in names], np.int64)
        count = -(-int(self._length.max(initial=1)) // _WORD.itemsize)
        padded = b"".join(name.ljust(count * _WORD.itemsize, b"\0") for name in names)
        self._words: Words = np.frombuffer(padded, _WORD).reshape(-1, count).T.copy()
        self._masks = _masks(count)
        self._weights, self._slots = self._hashed(count)

    def _hashed(self, count: int) -> tuple[Words, npt.NDArray[np.int32] | None]:
        """A factor for each word, so that all names have slots of their own; None: none is found."""
        weights = np.zeros(count, np.uint64)
        for power in range(1, _TRIES * count, count):
            odd = [pow(_ODD, power + at, 1 << 64) for at in range(count)]
            weights = np.array(odd, np.uint64)
            slot = _slot(sum(self._words[at] * weights[at] for at in range(count)))
            if len(set(slot.tolist())) == len(slot):
                slots = np.zeros(1 << _TOPIC_SLOT_BITS, np.int32)
                slots[slot] = np.arange(len(slot))
                return weights, slots
        return weights, None

    def numbers(self, topics: Ragged | Dictionary) -> Ints | None:
        """Number of each topic among the names; None if one is none of them."""
        if isinstance(topics, Dictionary):
            known = [self._numbers.get(name, -1) for name in topics.values]
            rows: Ints = np.array(known, np.int64)[topics.ids]
            return None if (rows < 0).any() else rows
        length = topics.length
        if not len(self._length) or (length >= _LENGTHS).any() or (length < 0).any():
            return None
        count = len(self._words)
        inside = topics.start <= len(topics.buffer) - count * _WORD.itemsize
        if self._slots is None or not inside.any():
            return self._one_by_one(topics)
        if not inside.all():  # whole words are read: those at the end of the buffer are few
            rest = self._one_by_one(topics[~inside])
            found = np.zeros(len(topics), np.int64)
            most = self.numbers(topics[inside])
            if rest is None or most is None:
                return None
            found[inside], found[~inside] = most, rest
            return found
        view = overlapping(topics.buffer, _WORD)
        words = [
            view[topics.start + at * _WORD.itemsize] & self._masks[at][length]
            for at in range(count)
        ]
        total = words[0] * self._weights[0]
        for at in range(1, count):
            total += words[at] * self._weights[at]
        numbers = self._slots[_slot(total)].astype(np.int64)
        same = self._length[numbers] == length
        for at in range(count):
            same &= self._words[at][numbers] == words[at]
        return numbers if same.all() else None

    def _one_by_one(self, topics: Ragged) -> Ints | None:
        found = [self._numbers.get(topic, -1) for topic in topics.tolist()]
        return None if -1 in found else np.array(found, np.int64)


def _slot(mixed: Words) -> npt.NDArray[np.int64]:
    return (mixed >> np.uint64(64 - _TOPIC_SLOT_BITS)).astype(np.int64)


def _masks(count: int) -> list[Words]:
    """For each word: by the length of a string, which of its bytes belong to the string."""
    ones = np.tri(_LENGTHS, count * _WORD.itemsize, -1, dtype=np.uint8) * np.uint8(0xFF)
    words: Words = ones.view(_WORD)
    return list(words.T.copy())


_TOPICS_MAX = 1000
"""More are numbered batch by batch: what is made of each of them would be made too often."""


class TopicTable:
    """Numbers the topics of a log. A batch with one that is new takes longer."""

    def __init__(self) -> None:
        self._names: dict[bytes, None] = {}
        self._table: KnownTopics | None = None

    def of(self, topics: Ragged) -> Dictionary:
        """The topics as in `dictionary`; values may have some that none of these records has."""
        if self._table is not None:
            numbers = self._table.numbers(topics)
            if numbers is not None:
                return Dictionary(numbers, list(self._names))
        found = dictionary(topics)
        self._names |= dict.fromkeys(found.values)
        self._table = KnownTopics(list(self._names)) if len(self._names) <= _TOPICS_MAX else None
        return found
