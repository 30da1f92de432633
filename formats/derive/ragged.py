"""Byte strings of different lengths in one buffer, and copying them in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from math import gcd
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from .. import kernel

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
#: A structured array: rows of a fixed-size schema.
Structs = npt.NDArray[np.void]

#: Largest block of the two-block copy; strings of twice this size are copied one by one, which is faster.
_BLOCK_MAX = 1024
#: Bytes that one numpy operation of a copy moves, so that its temporary copy stays in the cache.
_STEP_BYTES = 128 << 10
#: Fewest strings that one operation moves: below 500 numpy does not let other threads run meanwhile.
_STEP_ROWS = 512


def overlapping(buffer: Bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """View of `buffer` whose element i is the item that begins at byte i."""
    count = max(0, len(buffer) - dtype.itemsize + 1)
    return np.ndarray((count,), dtype, buffer, 0, (1,))


def written(data: bytes | bytearray, count: int, size: int) -> Flags:
    """bool[count]: which pieces of `size` bytes, an even number, are not all zeros."""
    word = np.dtype(f"u{gcd(size, 8)}")
    words = np.frombuffer(data, word, count * size // word.itemsize).reshape(count, size // word.itemsize)
    return np.asarray(reduce(np.bitwise_or, words.T) != 0, np.bool_)


class StringNotes(NamedTuple):
    """Notes on n strings that were made while their bytes were in the cache; None: not made.

    numbers: (number of each string's distinct value, int64[n]; first string of each number). items: (values of names,
    int64[names, 3, n]; oddities of each text; names present as bits; all names that were looked for), see
    `property_columns`. sums: word sums, uint64[n]; hashes: `String.hashCode`, int64[n], -1 for a string that has to be
    hashed from its bytes (`hashing_columns`); for texts with items, of the first name's values and of each name's.
    """

    numbers: tuple[Ints, Ints] | None = None
    items: tuple[Ints, Bytes, int, tuple[bytes, ...]] | None = None
    sums: npt.NDArray[np.uint64] | None = None
    hashes: Ints | None = None


_NOTHING = StringNotes()


class Ragged:
    """n byte strings: string i is `buffer[start[i] : start[i] + length[i]]`.

    `start` and `length` are int64[n]. A negative length means that there is no string.
    """

    __slots__ = ("buffer", "length", "noted", "start")

    def __init__(self, buffer: Bytes, start: Ints, length: Ints, noted: StringNotes = _NOTHING) -> None:
        self.buffer = buffer
        self.start = start
        self.length = length
        self.noted = noted

    @classmethod
    def of(cls, strings: Iterable[bytes | None]) -> Ragged:
        """From Python strings; None becomes length -1."""
        items = list(strings)
        data = b"".join(item for item in items if item)
        length = np.fromiter((-1 if item is None else len(item) for item in items), np.int64, len(items))
        taken = np.maximum(length, 0)
        return cls(np.frombuffer(data, np.uint8), np.cumsum(taken) - taken, length)

    @classmethod
    def repeat(cls, string: bytes, count: int) -> Ragged:
        """The same string `count` times, stored once."""
        return cls(np.frombuffer(string, np.uint8), np.zeros(count, np.int64), np.full(count, len(string), np.int64))

    @classmethod
    def concat(cls, parts: Iterable[Ragged]) -> Ragged:
        """The strings of all parts in order, copied to a new buffer."""
        packed = [part.packed() for part in parts]
        if not packed:
            return cls.of([])
        sizes = np.array([0, *(len(part.buffer) for part in packed[:-1])], np.int64).cumsum()
        return cls(
            np.concatenate([part.buffer for part in packed]),
            np.concatenate([p.start + shift for p, shift in zip(packed, sizes, strict=True)]),
            np.concatenate([part.length for part in packed]),
        )

    def __len__(self) -> int:
        return len(self.start)

    @overload
    def __getitem__(self, key: int) -> bytes: ...
    @overload
    def __getitem__(self, key: slice | npt.NDArray[Any]) -> Ragged: ...
    def __getitem__(self, key: Any) -> bytes | Ragged:
        if isinstance(key, int | np.integer):
            begin = int(self.start[key])
            return self.buffer[begin : begin + max(0, int(self.length[key]))].tobytes()
        return Ragged(self.buffer, self.start[key], self.length[key])

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.tolist())

    def tolist(self) -> list[bytes]:
        """All strings as bytes; b'' for a missing one."""
        view = self.buffer.data
        ends = self.start + np.maximum(self.length, 0)
        pairs = zip(self.start.tolist(), ends.tolist(), strict=True)
        return [bytes(view[begin:end]) for begin, end in pairs]

    def begins(self, text: bytes) -> Flags:
        """bool[n]: the string begins with `text`."""
        return Ragged(self.buffer, self.start, np.minimum(self.length, len(text))).equals(text)

    def equals(self, text: bytes) -> Flags:
        """bool[n]: the string is `text`. A missing string equals no text."""
        rows = np.flatnonzero(self.length == len(text))
        for k, byte in enumerate(text):
            rows = rows[self.buffer[self.start[rows] + k] == byte]
        mask: Flags = np.zeros(len(self), np.bool_)
        mask[rows] = True
        return mask

    @property
    def arrays(self) -> tuple[Bytes, Ints, Ints]:
        """Buffer, starts and lengths, as the native kernel takes them."""
        return self.buffer, self.start, self.length

    def packed(self) -> Ragged:
        """A copy whose strings are back to back in a new buffer."""
        taken = np.maximum(self.length, 0)
        ends = np.cumsum(taken)
        out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        start = ends - taken
        ragged_copy(out, start, self)
        return Ragged(out, start, self.length.copy())


def ragged_copy(target: Bytes, at: Ints, source: Ragged) -> None:
    """Copy string i of `source` to `target[at[i]:]`; the target must be large enough.

    A string of 2^k to 2^(k+1) - 1 bytes is copied as its first and its last 2^k bytes, with two numpy operations for
    all strings of such a class: no loop over strings, and no overrun.
    """
    start, length = source.start, source.length
    if not len(length):
        return
    if kernel.is_wanted(len(length)):
        kernel.run(kernel.Operation.COPY, (*source.arrays, target, at))
        return
    longest = int(length.max())
    if longest >= 2 * _BLOCK_MAX:
        long = np.flatnonzero(length >= 2 * _BLOCK_MAX)
        _copy_one_by_one(target, at[long], source.buffer, start[long], length[long])
    shortest = int(length.min())
    if 0 < shortest == longest <= _BLOCK_MAX:
        _copy_blocks(target, at, source.buffer, start, longest)
        return
    block = min(_BLOCK_MAX, 1 << max(0, longest.bit_length() - 1))
    while block >= 1:
        if block * 2 <= shortest:
            break
        chosen = (length >= block) & (length < 2 * block)
        if chosen.all():
            _copy_class(target, at, source.buffer, start, length, block)
            break
        index = np.flatnonzero(chosen)
        if len(index):
            _copy_class(target, at[index], source.buffer, start[index], length[index], block)
        block //= 2


def _copy_one_by_one(target: Bytes, at: Ints, source: Bytes, start: Ints, length: Ints) -> None:
    into, of = target.data, source.data
    ends, stops = (at + length).tolist(), (start + length).tolist()
    for to, end, begin, stop in zip(at.tolist(), ends, start.tolist(), stops, strict=True):
        into[to:end] = of[begin:stop]


def _copy_blocks(target: Bytes, at: Ints, source: Bytes, start: Ints, block: int) -> None:
    """Copy `block` bytes of every string, as many strings at a time as fit into the cache."""
    void = np.dtype((np.void, block))
    into, of = overlapping(target, void), overlapping(source, void)
    step = max(_STEP_ROWS, _STEP_BYTES // block)
    for begin in range(0, len(at), step):
        some = slice(begin, begin + step)
        into[at[some]] = of[start[some]]


def _copy_class(target: Bytes, at: Ints, source: Bytes, start: Ints, length: Ints, block: int) -> None:
    void = np.dtype((np.void, block))
    into, of = overlapping(target, void), overlapping(source, void)
    rest = length - block
    last_at, last_start = at + rest, start + rest
    step = max(_STEP_ROWS, _STEP_BYTES // block)
    for begin in range(0, len(at), step):
        some = slice(begin, begin + step)
        into[at[some]] = of[start[some]]
        into[last_at[some]] = of[last_start[some]]
