"""Look-ups in a column that rises, for a whole column of numbers at once."""

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
