"""Look-ups in a column that rises, for a whole column of numbers at once, and the order of columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


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
