"""Finding out which of a store's topics a whole column of records names.

Unlike a `Dictionary`, what is looked for is known before: eight bytes at a time are compared with a
table, and one step of hashing tells which row of it to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...formats.derive import Ragged
from ...formats.derive.ragged import Ints, overlapping
from .dictionary import Dictionary

Words = npt.NDArray[np.uint64]
_WORD = np.dtype(np.uint64)
_LENGTHS = 256
"""A topic's length is one byte; what says more is of no known topic."""
_SLOT_BITS = 16
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
                slots = np.zeros(1 << _SLOT_BITS, np.int32)
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
    return (mixed >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)


def _masks(count: int) -> list[Words]:
    """For each word: by the length of a string, which of its bytes belong to the string."""
    ones = np.tri(_LENGTHS, count * _WORD.itemsize, -1, dtype=np.uint8) * np.uint8(0xFF)
    words: Words = ones.view(_WORD)
    return list(words.T.copy())
