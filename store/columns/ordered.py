"""Look-ups in a column that rises, for a whole column of numbers at once, and the order of columns.

Sets of numbers that lie mostly in a row: kept as ranges, normally one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...formats.derive.ragged import Flags, Ints


def rows_of(ordered: Ints, wanted: Ints) -> tuple[Ints, Flags]:
    """(row, found): int64[n], bool[n] for n wanted numbers; rows of those not found mean nothing.

    ordered: int64[m], ascending.
    """
    if not len(ordered):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    rows = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return rows, ordered[rows] == wanted


def order_of_pairs(major: Ints, minor: Ints) -> Ints:
    """int64[n]: rows in the order of their pairs of numbers, equal ones as they come. n ≥ 1.

    major, minor: int64[n], from 0 to 2^32 - 1. numpy sorts numbers of 16 bits by radix, much quicker
    than larger ones: topics and queues mostly fit.
    """
    width = int(minor.max()) + 1
    if (int(major.max()) + 1) * width <= 1 << 16:
        return np.argsort((major * width + minor).astype(np.uint16), kind="stable")
    return np.lexsort((minor, major))


def begins(*columns: npt.NDArray[np.integer]) -> Flags:
    """bool[n]: rows that differ from the one before in one of the columns; the first row does."""
    new: Flags = np.arange(len(columns[0])) == 0
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return new


def runs(numbers: Ints) -> Iterator[tuple[int, int]]:
    """Row ranges [begin, end) of ascending numbers without a gap, in order."""
    if not len(numbers):
        return
    breaks = (np.flatnonzero(np.diff(numbers) != 1) + 1).tolist()
    yield from zip([0, *breaks], [*breaks, len(numbers)], strict=True)


class Ranges:
    """A set of numbers. 16 bytes for each range, however long it is."""

    def __init__(self) -> None:
        self._first = array("q")
        self._end = array("q")
        self._sorted: tuple[Ints, Ints] | None = None

    def __bool__(self) -> bool:
        return bool(self._first)

    def add_any(self, numbers: Ints) -> None:
        """Add numbers in any order, int64[n]; those in a row quickly."""
        if len(numbers) and (np.diff(numbers) == 1).all():
            self.add_range(int(numbers[0]), int(numbers[-1]) + 1)
        else:
            self.add(np.sort(numbers))

    def add(self, numbers: Ints) -> None:
        """Add ascending numbers, int64[n]."""
        for begin, end in runs(numbers):
            self.add_range(int(numbers[begin]), int(numbers[end - 1]) + 1)

    def add_range(self, first: int, end: int) -> None:
        """Add first ≤ k < end."""
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

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges (first, end), sorted, none touching the next."""
        if not self:
            return []
        first, reach = self._in_order()
        begins = np.flatnonzero(np.append(True, first[1:] > reach[:-1]))
        ends = np.append(begins[1:], len(first)) - 1
        return list(zip(first[begins].tolist(), reach[ends].tolist(), strict=True))

    def _in_order(self) -> tuple[Ints, Ints]:
        """Starts, ascending, and how far the ranges reach that begin there or before."""
        if self._sorted is None:
            first = np.array(self._first, np.int64)
            order = np.argsort(first, kind="stable")
            end = np.array(self._end, np.int64)[order]
            self._sorted = first[order], np.maximum.accumulate(end)
        return self._sorted
