"""Units of consume queues as arrays: reading them from a file, which are valid, putting them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import PRE_FILL, UNIT
from ...formats.derive import dtype_of
from ..broker.snapshot import Entry
from ..disk.byte_reader import fill, opened

Units = npt.NDArray[np.void]
UNIT_DTYPE = dtype_of(UNIT)
UNITS_AT_ONCE = 4096


def read_units(
    entry: Entry | None, first: int, count: int, dtype: np.dtype[Any] = UNIT_DTYPE
) -> Units:
    """Units of a file on disk; zeros where there is no file or where it ends. Raises Unreadable."""
    units = np.zeros(count, dtype)
    if entry is None:
        return units
    room = units.view(np.uint8)
    with opened(entry.path) as descriptor:
        read = fill(descriptor, room.data, first * dtype.itemsize, entry.path) if count else 0
    room[read - read % dtype.itemsize : read] = 0
    return units


def is_valid(units: Units) -> npt.NDArray[np.bool_]:
    """bool[n]: units that a broker takes for valid; pre-fill counts (spec 2.1)."""
    valid: npt.NDArray[np.bool_] = units["size"] > 0
    if valid.any():  # most of a new file is zeros
        valid &= units["physical_offset"] >= 0
    return valid


def gather(
    read: Callable[[int, int], Units],
    numbers: npt.NDArray[np.int64],
    dtype: np.dtype[Any] = UNIT_DTYPE,
) -> Units:
    """Units of one file by their numbers in it, in few reads: numbers that lie close together."""
    found = np.zeros(len(numbers), dtype)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    breaks = np.flatnonzero(np.diff(ordered) > UNITS_AT_ONCE) + 1
    for part in np.split(np.arange(len(order)), breaks):
        for begin in range(0, len(part), UNITS_AT_ONCE):
            index = part[begin : begin + UNITS_AT_ONCE]
            first = int(ordered[index[0]])
            units = read(first, int(ordered[index[-1]]) - first + 1)
            found[order[index]] = units[ordered[index] - first]
    return found


def joined(parts: Sequence[Units]) -> Units:
    """Units one after the other, in the byte order of the disk (numpy's own join changes it)."""
    together = np.zeros(sum(map(len, parts)), UNIT_DTYPE)
    begin = 0
    for part in parts:
        together[begin : begin + len(part)] = part
        begin += len(part)
    return together


def pre_fill(count: int) -> Units:
    """`count` pre-fill units."""
    units = np.zeros(count, UNIT_DTYPE)
    for name, value in PRE_FILL.items():
        units[name] = value
    return units


def used_rows(units: Units) -> npt.NDArray[np.int64]:
    """Rows of units that a broker takes for valid, but for pre-fill."""
    rows: npt.NDArray[np.int64] = np.flatnonzero(is_valid(units))
    used: npt.NDArray[np.int64] = rows[units[rows] != pre_fill(1)[0]]
    return used
