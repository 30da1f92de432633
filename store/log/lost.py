"""Which records stand for lost messages (formats.tombstone): they are no messages of anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.tombstone import LOST, is_mark

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ...formats.derive import Columns


def tombstones(columns: Columns) -> npt.NDArray[np.bool_]:
    """bool[n]: which records of MESSAGE are tombstones. No broker has port 0, so it is quick."""
    import numpy as np

    from ...formats.property_columns import find

    found = np.asarray(columns.ints("store_host.port") == 0, np.bool_)
    for row in np.flatnonzero(found).tolist():
        (value,) = find(columns.ragged("properties")[row : row + 1], LOST).tolist()
        found[row] = is_mark(value.decode("utf-8", "replace"))
    return found
