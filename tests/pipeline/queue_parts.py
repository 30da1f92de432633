"""Parts of a log with units of one queue, written into its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mqstore.formats.consume_queue import PRE_FILL, UNIT
from mqstore.formats.derive import dtype_of
from mqstore.pipeline.log_part import ROW, LogPart, PartRows, SavedPart, keys_of
from mqstore.pipeline.plan import StorePlan
from mqstore.pipeline.queue_files import AttemptFolder, QueueFile, make_queue_file
from mqstore.store.disk.files import Files

UNITS_PER_FILE = 10
STORE = StorePlan("s", "", 0, 1000, UNITS_PER_FILE, "5.5", {})
PRE_FILL_UNIT = tuple(PRE_FILL.values())
EMPTY_UNIT = (0, 0, 0)


def part(offsets: list[int], queue_id: int = 0, first: int = 0) -> LogPart:
    """Units of one queue; the physical offset tells which row, from `first` on, a unit came from."""
    count = len(offsets)
    rows = np.zeros(count, ROW)
    rows["queue_offset"] = offsets
    rows["physical_offset"] = 1000 + first + np.arange(count)
    rows["size"] = 100
    rows["tags_code"] = -np.arange(count)
    made = PartRows(UNITS_PER_FILE)
    made.add(["orders"], np.zeros(count, np.int64), np.full(count, queue_id), rows)
    return made.part()


def write(folder: Path, *parts: LogPart | SavedPart, files: Files | None = None) -> list[QueueFile]:
    place = AttemptFolder(STORE, 0, folder, "1", files or Files())
    return [make_queue_file(place, key, parts) for key in keys_of(parts)]


def units(path: Path) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = np.fromfile(path, dtype_of(UNIT)).tolist()
    assert len(found) == UNITS_PER_FILE, "a file has its full size"
    return found
