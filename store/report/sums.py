"""Sums by a pair of numbers, in a memory with a bound: what a pass over a log counts for pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...formats.derive.ragged import Ints

_PENDING = 1 << 16
"""Rows that wait to be added to the others."""
_CELL_BITS = 34
CELL_MAX = (1 << _CELL_BITS) - 1


class Rows(NamedTuple):
    """n sums, int64[n] each, by group and cell. first, last: the least and the greatest log position."""

    group: Ints
    cell: Ints
    records: Ints
    bytes: Ints
    first: Ints
    last: Ints


Fold = Callable[[Rows], tuple[Ints, Ints]]
"""Gives the groups and cells that sums are added to when there are too many; of any of them fewer."""


class Sums:
    """Sums by group (below 2^29) and cell (0 … CELL_MAX). most: so many are kept."""

    def __init__(self, most: int, fold: Fold) -> None:
        self._most = most
        self._fold = fold
        self._kept: list[Rows] = []
        self._new = 0

    def add(self, rows: Rows) -> None:
        """More of them; several may be of one group and cell."""
        self._kept.append(rows)
        self._new += len(rows.group)
        if self._new > _PENDING:
            self._join()

    def rows(self) -> Rows:
        """All of them, each group and cell once, in order."""
        self._join()
        return self._kept[0]

    def refold(self, fold: Fold) -> None:
        """Add what there is to other groups and cells."""
        rows = self.rows()
        group, cell = fold(rows)
        self._kept = [_added(rows._replace(group=group, cell=cell))]

    def _join(self) -> None:
        columns = zip(*self._kept, strict=True) if self._kept else [[np.zeros(0, np.int64)]] * 6
        rows = _added(Rows(*(np.concatenate(column) for column in columns)))
        while len(rows.group) > self._most:
            group, cell = self._fold(rows)
            if np.array_equal(group, rows.group) and np.array_equal(cell, rows.cell):
                break  # as few as they can be
            rows = _added(rows._replace(group=group, cell=cell))
        self._kept, self._new = [rows], 0


def _added(rows: Rows) -> Rows:
    """Rows of one group and cell as one row."""
    if not len(rows.group):
        return rows
    key = rows.group << _CELL_BITS | rows.cell
    order = np.argsort(key, kind="stable")
    key = key[order]
    begins = np.flatnonzero(np.diff(key, prepend=key[0] - 1))
    joins = (np.add, np.add, np.minimum, np.maximum)
    found = (j.reduceat(c[order], begins) for j, c in zip(joins, rows[2:], strict=True))
    return Rows(key[begins] >> _CELL_BITS, key[begins] & CELL_MAX, *found)


def summed(group: Ints, cell: Ints, size: Ints, position: Ints) -> Rows:
    """n records by group and cell: sizes in bytes, and places in the log in their order, int64[n] each.

    Without sorting where groups and cells are near each other, as those of a batch mostly are.
    """
    low = int(cell.min())
    width = int(cell.max()) - low + 1
    keys = (int(group.max()) + 1) * width
    if keys <= 4 * len(cell) + 4096:
        number = group * width + (cell - low)
        groups, cells = np.divmod(np.arange(keys, dtype=np.int64), width)
        cells += low
    else:
        several, number = np.unique(group << _CELL_BITS | cell, return_inverse=True)
        groups, cells = several >> _CELL_BITS, several & CELL_MAX
    count = np.bincount(number, minlength=len(groups))
    total = np.bincount(number, size, minlength=len(groups)).astype(np.int64)
    first, last = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
    first[number[::-1]] = position[::-1]
    last[number] = position
    some = np.flatnonzero(count)
    columns = (groups, cells, count, total, first, last)
    return Rows(*(column[some] for column in columns))
