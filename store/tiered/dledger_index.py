"""The index of a DLedger log, read in windows (spec 01, 1.13).

Unit i lies at i times its size. A file is made at its full size, so the end of what is written is
found by its holes and zeros. Nothing is believed: a unit that does not name itself is invalid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.derive import dtype_of
from ...formats.derive.ragged import Flags, Ints
from ...formats.dledger import HEADER_BYTES, MAGIC_CONFIG_CHANGE, MAGIC_ENTRY
from ...formats.dledger_index import UNIT, UNIT_BYTES
from ..disk.file_queue import MappedFile, MappedFileQueue

WINDOW_UNITS = 1 << 14


class IndexUnits(NamedTuple):
    """Units that were written: their numbers int64[n] and a structured array of UNIT."""

    number: Ints
    units: npt.NDArray[np.void]


def index_units(files: MappedFileQueue, start: int = 0) -> Iterator[IndexUnits]:
    """Units from number `start` on, without those that are all zeros. Raises Unreadable."""
    for file in files.files:
        if start * UNIT_BYTES < file.end:
            yield from _file(files, file, max(0, start - file.start // UNIT_BYTES))


def _file(files: MappedFileQueue, file: MappedFile, first: int) -> Iterator[IndexUnits]:
    window = WINDOW_UNITS * UNIT_BYTES
    for offset, data in files.windows(file, first * UNIT_BYTES, file.size, window, UNIT_BYTES):
        count = len(data) // UNIT_BYTES
        written = np.frombuffer(data, np.uint8, count * UNIT_BYTES).reshape(count, -1).any(axis=1)
        if written.any():
            numbers = (file.start + offset) // UNIT_BYTES + np.flatnonzero(written)
            yield IndexUnits(numbers, np.frombuffer(data, dtype_of(UNIT), count)[written])


def is_valid(part: IndexUnits) -> Flags:
    """bool[n]: which units are of an entry and name their own number."""
    units = part.units
    valid: Flags = (units["magic"] >= MAGIC_ENTRY) & (units["pos"] >= 0)
    valid &= (units["magic"] <= MAGIC_CONFIG_CHANGE) & (units["size"] >= HEADER_BYTES)
    valid &= (units["index"] == part.number) & (units["term"] >= 0)
    return valid
