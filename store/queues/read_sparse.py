"""Sparse consume queues: where the records of a compaction log lie, 5.1+ (spec 02, 2.8).

A file is named by the log file that it belongs to, so names do not follow from sizes; each file is
read from its front. Queue offsets increase, with gaps where compaction dropped messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...formats.derive import dtype_of
from ...formats.derive.ragged import Ints
from ...formats.sparse_consume_queue import UNIT, UNIT_BYTES
from ..disk.file_queue import MappedFile, MappedFileQueue
from .units import Units, is_valid

WINDOW_UNITS = 1 << 14


class SparseUnits(NamedTuple):
    """Units in a row. position: int64[n], the number in the file's name plus the byte in it."""

    position: Ints
    units: Units


class SparseRange(NamedTuple):
    """Bytes that are no unit although units or other bytes follow, and why."""

    position: int
    size: int
    reason: str


class SparseSummary(NamedTuple):
    """What a queue holds: units that name a message, the first queue offset, behind the last."""

    units: int
    min_offset: int
    max_offset: int
    damaged_bytes: int


def sparse_units(
    files: MappedFileQueue, start: int | None = None
) -> Iterator[SparseUnits | SparseRange]:
    """All units in order, from `position` start on, those that name no message too.

    Zeros at the end of a file are left out. Raises Unreadable.
    """
    for file in files.files:
        if start is None or start < file.end:
            yield from _file(files, file, max(0, (start or 0) - file.start))


def _file(
    files: MappedFileQueue, file: MappedFile, start: int
) -> Iterator[SparseUnits | SparseRange]:
    expected = -(-start // UNIT_BYTES)
    window = WINDOW_UNITS * UNIT_BYTES
    first = expected * UNIT_BYTES
    for offset, data in files.windows(file, first, file.size, window, UNIT_BYTES):
        whole = len(data) // UNIT_BYTES
        units = np.frombuffer(data, dtype_of(UNIT), whole)
        content = np.frombuffer(data, np.uint8, whole * UNIT_BYTES).reshape(whole, UNIT_BYTES)
        rows = np.flatnonzero(content.any(axis=1))
        for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else ():
            number = offset // UNIT_BYTES + run
            if int(number[0]) > expected:
                size = (int(number[0]) - expected) * UNIT_BYTES
                yield SparseRange(file.start + expected * UNIT_BYTES, size, "zeros between units")
            yield SparseUnits(file.start + number.astype(np.int64) * UNIT_BYTES, units[run])
            expected = int(number[-1]) + 1
        if any(rest := data[whole * UNIT_BYTES :]):
            begin = file.start + offset + whole * UNIT_BYTES
            yield SparseRange(begin, len(rest), "not a whole unit")


def summary_of(files: MappedFileQueue) -> SparseSummary:
    """What the units of a queue say. Raises Unreadable."""
    count, damaged, first, last = 0, 0, 0, 0
    for part in sparse_units(files):
        if isinstance(part, SparseRange):
            damaged += part.size
            continue
        valid = part.units[is_valid(part.units)]
        if len(valid):
            first = first if count else int(valid["msg_base_offset"][0])
            last = int(valid["msg_base_offset"][-1]) + int(valid["batch_size"][-1])
            count += len(valid)
    return SparseSummary(count, first, last, damaged)
