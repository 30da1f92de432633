"""Tables as numpy columns, and dictionaries, lookups and sets of numbers over such columns.

`Rows` is the base of classes whose fields are columns of one length. `dictionary` encodes byte strings of which few
differ. Others look up many numbers at once in an ascending column, look up the new number of an old one, or keep a set
of numbers as ranges.

Nothing here knows a file or a broker. It may use `formats` and `errors`.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform

import numpy as np
import numpy.typing as npt

from ..formats import kernel
from ..formats.derive import Ragged
from ..formats.derive.columns import Columns
from ..formats.derive.ragged import Flags, Ints, overlapping, ragged_copy

Key = slice | Flags | Ints
_TYPES = {"Ints": np.int64, "Flags": np.bool_}
_ARRAYS = (np.ndarray, Ragged)
T = TypeVar("T", bound=npt.NDArray[Any])


@dataclass_transform(frozen_default=True, eq_default=False)
class Rows:
    """Base of classes whose annotations are their fields, passed by position in this order or by name. Fields that are
    arrays, `Ragged`, `Columns` or `Rows` have an item for each of n rows; other fields belong to all rows.

    Not a dataclass: creating one takes as long as looking at a thousand records, and columns have no `==`.
    """

    FIELDS: ClassVar[dict[str, str]] = {}
    """Name → annotation."""

    def __init_subclass__(cls) -> None:
        cls.FIELDS = cls.FIELDS | cls.__annotations__

    def __init__(self, *fields: Any, **named: Any) -> None:
        """Raise TypeError for an unknown field, and for a missing field that has no default."""
        own = vars(self)
        own.update(zip(self.FIELDS, fields, strict=False), **named)
        wrong = len(fields) > len(self.FIELDS) or not named.keys() <= self.FIELDS.keys()
        if wrong or (len(own) < len(self.FIELDS) and not all(hasattr(self, n) for n in self.FIELDS)):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(self.FIELDS)}")

    def __len__(self) -> int:
        columns = (*_ARRAYS, Columns, Rows)
        return next(len(column) for column in vars(self).values() if isinstance(column, columns))

    def replace(self, **named: Any) -> Self:
        """Return a copy in which the named fields have other values."""
        return type(self)(**{name: getattr(self, name) for name in self.FIELDS} | named)

    def take(self, key: Key) -> Self:
        """Return some of the rows, selected by slice, mask or index."""
        return type(self)(*(_taken(getattr(self, name), key) for name in self.FIELDS))

    @classmethod
    def concat(cls, parts: Iterable[Self], order: Key | None = None) -> Self:
        """Join parts in their order. No parts give no rows; that works only for a class of `Ints` and `Flags`.

        order: the rows to take of the joined ones, None for all; applied column by column to keep memory small. Raise
        TypeError if a field is a `Columns`.
        """
        found = list(parts)
        if not found:
            return cls(*(np.zeros(0, _TYPES[name]) for name in cls.FIELDS.values()))
        if len(found) == 1:
            return found[0] if order is None else found[0].take(order)
        key = slice(None) if order is None else order
        columns = ([getattr(part, name) for part in found] for name in cls.FIELDS)
        return cls(*(_taken(_joined(column), key) for column in columns))


def kept(column: T) -> T:
    """Return the column for a holder that outlives the batch. A view is copied: it would keep its whole batch."""
    return column if column.base is None else column.copy()


def _taken(value: Any, key: Key) -> Any:
    if isinstance(value, np.ndarray) and isinstance(key, np.ndarray) and key.dtype == np.int64:
        return value.take(key, axis=0)  # same result, quicker
    if isinstance(value, _ARRAYS):
        return value[key]
    return value.take(key) if isinstance(value, (Columns, Rows)) else value


def _joined(values: list[Any]) -> Any:
    if isinstance(values[0], np.ndarray):
        return np.concatenate(values)
    if isinstance(values[0], Columns):
        raise TypeError("columns of a schema are not put together here")
    if isinstance(values[0], Rows):
        return type(values[0]).concat(values)
    return Ragged.concat(values) if isinstance(values[0], Ragged) else values[0]


def rows_of(ordered: Ints, wanted: Ints) -> tuple[Ints, Flags]:
    """Look up n wanted numbers: (row, found), int64[n] and bool[n]. The row of a number not found means nothing.

    ordered: int64[m], ascending.
    """
    if not len(ordered):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    rows = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return rows, ordered[rows] == wanted


def decimals(strings: Ragged) -> tuple[Ints, Flags]:
    """Numbers of texts that are 1 to 18 digits, int64[n], and which texts are, bool[n]."""
    plain = (strings.length > 0) & (strings.length <= _DIGITS)
    number = np.zeros(len(strings), np.int64)
    for place in range(int(strings.length[plain].max()) if plain.any() else 0):
        some = np.flatnonzero(plain & (strings.length > place))
        digit = strings.buffer[strings.start[some] + place].astype(np.int64) - ord("0")
        number[some] = number[some] * 10 + digit
        plain[some] = (digit >= 0) & (digit <= 9)
    return number, plain


_DIGITS = 18
"""Any number of so many digits fits int64."""


def distinct(values: npt.NDArray[Any]) -> tuple[Ints, list[int]]:
    """For each number its index among the distinct numbers, and these, which are to be few."""
    wide = np.ascontiguousarray(values, np.int64)
    size = wide.itemsize
    starts = np.arange(len(wide), dtype=np.int64) * size
    found = dictionary(Ragged(wide.view(np.uint8), starts, np.full(len(wide), size, np.int64)))
    return found.ids, np.frombuffer(b"".join(found.values), np.int64).tolist()


class Renumbered:
    """Maps old numbers of several origins to new ones; the last entry for an old number wins. 16 bytes for each."""

    def __init__(self) -> None:
        #: by origin: (old numbers, ascending; new numbers); each pair is at least twice as long as the next one
        self._parts = defaultdict[int, list[tuple[Ints, Ints]]](list)

    def add(self, origin: Ints, old: Ints, new: Ints) -> None:
        """Add n numbers, int64[n] each; the new ones are not negative."""
        for number in np.unique(origin).tolist():
            rows, parts = np.flatnonzero(origin == number), self._parts[number]
            before, after = old[rows], new[rows]
            while parts and len(parts[-1][0]) < 2 * len(before):
                known = parts.pop()
                before, after = np.concatenate([known[0], before]), np.concatenate([known[1], after])
            order = np.argsort(before, kind="stable")
            parts.append((before[order], after[order]))

    def of(self, origin: Ints, old: Ints) -> Ints:
        """int64[n]: the new numbers of n old ones, -1 for unknown ones."""
        found = np.full(len(old), -1, np.int64)
        for number in np.unique(origin).tolist():
            rows = np.flatnonzero(origin == number)
            for known, new in self._parts.get(number, ()):
                at = np.searchsorted(known, old[rows], side="right") - 1
                same = (at >= 0) & (known[at] == old[rows])
                found[rows[same]] = new[at[same]]
        return found


def order_of_pairs(major: Ints, minor: Ints) -> Ints:
    """int64[n]: the row numbers, sorted by (major, minor); a stable sort. n ≥ 1.

    major, minor: int64[n], from 0 to 2^32 - 1. numpy sorts 16-bit numbers by radix, much faster than larger ones;
    topics and queues mostly fit.
    """
    width = int(minor.max()) + 1
    if (int(major.max()) + 1) * width <= 1 << 16:
        return np.argsort((major * width + minor).astype(np.uint16), kind="stable")
    return np.lexsort((minor, major))


def begins(*columns: npt.NDArray[np.integer]) -> Flags:
    """bool[n]: the rows that differ from the row before in at least one column; the first row counts as different."""
    new: Flags = np.arange(len(columns[0])) == 0
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return new


def runs(numbers: Ints) -> Iterator[tuple[int, int]]:
    """Row ranges [begin, end) of consecutive numbers, in order."""
    if not len(numbers):
        return
    breaks = (np.flatnonzero(np.diff(numbers) != 1) + 1).tolist()
    yield from zip([0, *breaks], [*breaks, len(numbers)], strict=True)


class Ranges:
    """A set of numbers, kept as ranges of 16 bytes each, however long a range is."""

    def __init__(self) -> None:
        self._first = array("q")
        self._end = array("q")
        self._sorted: tuple[Ints, Ints] | None = None

    def __bool__(self) -> bool:
        return bool(self._first)

    def add_any(self, numbers: Ints) -> None:
        """Add numbers in any order, int64[n]; fast if they are consecutive."""
        if len(numbers) and (np.diff(numbers) == 1).all():
            self.add_range(int(numbers[0]), int(numbers[-1]) + 1)
        else:
            self.add(np.sort(numbers))

    def add(self, numbers: Ints) -> None:
        """Add ascending numbers, int64[n]."""
        for begin, end in runs(numbers):
            self.add_range(int(numbers[begin]), int(numbers[end - 1]) + 1)

    def add_range(self, first: int, end: int) -> None:
        """Add all k with first ≤ k < end."""
        self._sorted = None
        if self._end and self._end[-1] == first:
            self._end[-1] = end
        elif first < end:
            self._first.append(first)
            self._end.append(end)

    def add_all(self, other: Ranges) -> None:
        """Add the numbers of another set."""
        for first, end in zip(other._first, other._end, strict=True):
            self.add_range(first, end)

    def has(self, numbers: Ints) -> Flags:
        """bool[n]: which of the numbers, int64[n], are in the set."""
        if not self:
            return np.zeros(len(numbers), np.bool_)
        first, reach = self._in_order()
        if len(first) == 1:
            inside: Flags = (numbers >= first[0]) & (numbers < reach[0])
            return inside
        at = np.searchsorted(first, numbers, side="right") - 1
        found: Flags = (at >= 0) & (numbers < reach[at])
        return found

    def covers(self, first: int, end: int) -> bool:
        """Whether all k with first ≤ k < end are in the set."""
        while first < end:
            if not self:
                return False
            begins, reach = self._in_order()
            at = int(np.searchsorted(begins, first, side="right")) - 1
            if at < 0 or reach[at] <= first:
                return False
            first = int(reach[at])
        return True

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges (first, end), sorted; no two overlap or touch."""
        if not self:
            return []
        first, reach = self._in_order()
        begins = np.flatnonzero(np.append(True, first[1:] > reach[:-1]))
        ends = np.append(begins[1:], len(first)) - 1
        return list(zip(first[begins].tolist(), reach[ends].tolist(), strict=True))

    def _in_order(self) -> tuple[Ints, Ints]:
        """(starts, ends): starts ascending; each end is the highest one of the ranges that start there or before."""
        if self._sorted is None:
            first = np.array(self._first, np.int64)
            order = np.argsort(first, kind="stable")
            end = np.array(self._end, np.int64)[order]
            self._sorted = first[order], np.maximum.accumulate(end)
        return self._sorted


_WORD = np.dtype(np.uint64)
_SLOT_BITS = 14
_SAMPLE = 64
"""How many strings are compared first: often all strings of a batch are equal."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(29)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Dictionary(NamedTuple):
    """A dictionary-encoded column: `values[ids[i]]` is string i. ids: int64[n]; values: distinct, by first use."""

    ids: Ints
    values: list[bytes]


def dictionary(strings: Ragged) -> Dictionary:
    """Dictionary-encode a column. A missing string (length -1) counts as empty.

    Every row is compared with the row that represents its value, so a hash collision only costs time. About 40 ns a row
    for short strings, memory O(n).
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
    """The same strings in a buffer in which a whole word can be read from any of their bytes."""
    length = np.maximum(strings.length, 0)
    if int((strings.start + length).max()) + _WORD.itemsize <= len(strings.buffer):
        return Ragged(strings.buffer, strings.start, length)
    start = np.cumsum(length) - length
    out = np.zeros(int(length.sum()) + _WORD.itemsize, np.uint8)
    ragged_copy(out, start, Ragged(strings.buffer, strings.start, length))
    return Ragged(out, start, length)


def _word(strings: Ragged, rows: Ints | slice, at: int) -> npt.NDArray[np.uint64]:
    """Bytes `at` to `at` + 7 of strings longer than `at`, with zeros after the end of a string."""
    remaining = strings.length[rows] - at
    words: npt.NDArray[np.uint64] = overlapping(strings.buffer, _WORD)[strings.start[rows] + at]
    unused = (8 * np.maximum(_WORD.itemsize - remaining, 0)).astype(np.uint64)
    return words & (_ALL >> unused if np.little_endian else _ALL << unused)


def _slots(strings: Ragged) -> Ints:
    """A hash below 2^14 for each string."""
    mixed = strings.length.astype(np.uint64) * _MIX
    longest = int(strings.length.max())
    for at in range(0, longest, _WORD.itemsize):
        rows = _longer_than(strings, at)
        value = (mixed[rows] ^ _word(strings, rows, at)) * _MIX
        mixed[rows] = value ^ (value >> _FOLD)
    return (mixed >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)


def _equal(strings: Ragged, leader: Ints) -> Flags:
    """bool[n]: whether each string equals the string in its leader row."""
    equal: Flags = strings.length == strings.length[leader]
    of_leader = strings[leader]
    for at in range(0, int(strings.length.max()), _WORD.itemsize):
        rows = _longer_than(strings, at)
        equal[rows] &= _word(strings, rows, at) == _word(of_leader, rows, at)
    return equal


def _longer_than(strings: Ragged, at: int) -> Ints | slice:
    longer = strings.length > at
    return slice(None) if longer.all() else np.flatnonzero(longer)
