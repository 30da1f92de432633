"""Records that were torn inside their properties: body and header are good, keys and tags are not.

No broker checks properties (spec 01, 1.6; 7.12, B27): a page that never reached the disk leaves zero
bytes there, and the record counts as good. A writer never puts a zero byte into properties.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...formats.derive import Columns

_PAGE_BYTES = 4096
"""What is lost at once; a lost page in the middle needs properties longer than it."""


def torn_properties(columns: Columns) -> npt.NDArray[np.bool_]:
    """bool[n]: zero bytes end the properties, or stand in the middle of long ones."""
    text = columns.ragged("properties")
    torn = np.zeros(len(text), np.bool_)
    some = np.flatnonzero(text.length > 0)
    torn[some] = text.buffer[text.start[some] + text.length[some] - 1] == 0
    for row in np.flatnonzero((text.length > _PAGE_BYTES) & ~torn).tolist():
        torn[row] = 0 in text[row]
    return torn
