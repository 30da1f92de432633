"""Files of queues from units, written by `put`'s writer. No Spark.

One file of a queue is in memory at a time, however large the queue is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import numpy as np

from ..formats.consume_queue import UNIT_BYTES
from ..formats.message import SMALLEST
from ..store.disk.file_queue import file_name
from ..store.disk.files import Files
from ..store.disk.layout import CONSUME_QUEUE, queue_directory
from ..store.queues.units import UNIT_DTYPE
from ..store.queues.write import QueueWriter
from .log_part import AnyPart, FileKey, Rows
from .plan import StorePlan


@dataclass
class QueueFile:
    """One file that a task writes, or all of a batch queue: then `path` is empty, and `start` 0.

    path: below the target. start: position of its first byte in the queue's stream. first, end: queue offset of the
    first unit, and behind the last. units: number of records in it. missing: number of offsets between first and end
    without a record. duplicates: number of records whose offset another one had already; they got no unit.
    without_unit: those of `missing` that are in files before this one that are not made.
    """

    attempt: str
    path: str
    store: int
    topic: str
    queue_id: int
    start: int
    first: int
    end: int
    units: int = 0
    missing: int = 0
    duplicates: int = 0
    without_unit: int = 0

    @property
    def queue(self) -> tuple[int, str, int]:
        return self.store, self.topic, self.queue_id


@dataclass(frozen=True)
class AttemptFolder:
    """Where one attempt at a task puts the files of a store. number: of the store in its plan."""

    store: StorePlan
    number: int
    folder: Path
    attempt: str
    files: Files

    def write_units(self, topic: str, queue_id: int, start: int, first: int, units: bytes | memoryview) -> str:
        """Write units from queue offset `first` on to the file of a queue that begins at `start`; return its path.

        Raises InvalidInput for an impossible size of files.
        """
        directory = queue_directory(self.folder / self.store.folder / CONSUME_QUEUE, topic, queue_id)
        writer = QueueWriter(self.files, directory, self.store.file_bytes, None)
        writer.append(first, units)
        writer.sync()
        return (directory / file_name(start)).relative_to(self.folder).as_posix()


def make_queue_file(place: AttemptFolder, key: FileKey, parts: Sequence[AnyPart]) -> QueueFile:
    """Write one file of a queue from the units that the parts of the log have for it, in their order.

    A unit lies at its queue offset. The front of the file has the broker's pre-fill. Of several records with one offset
    the first counts, as in a broker (spec 2.1, 2.2). Behind a unit no broker leaves an offset out: an offset without a
    record gets the unit before it, as in a repair. Pre-fill would hide the messages before it (spec 9.4). Raises
    NoSpace, Unreadable.
    """
    rows = np.concatenate([part.of(key) for part in parts if key in part.places])
    offset, units, duplicates = _in_order(rows)
    first, end, start = int(offset[0]), int(offset[-1]) + 1, key.file * place.store.file_bytes
    path = place.write_units(key.topic, key.queue_id, start, first, units.view(np.uint8).data)
    count = len(rows) - duplicates
    counts = (count, end - first - count, duplicates)
    return QueueFile(place.attempt, path, place.number, key.topic, key.queue_id, start, first, end, *counts)


def _in_order(rows: Rows) -> tuple[Rows, Rows, int]:
    """Return queue offsets in order, units without a gap between them, and how many rows repeat an offset."""
    offset = rows["queue_offset"]
    steps = np.diff(offset)
    duplicates = 0
    if (steps <= 0).any():
        rows = rows[np.argsort(offset, kind="stable")]
        new = np.diff(rows["queue_offset"], prepend=-1) > 0
        duplicates = int((~new).sum())
        rows = rows[new]
        offset = rows["queue_offset"]
    place = offset - offset[0]
    count = int(place[-1]) + 1
    if count > len(rows):
        rows = np.repeat(rows, np.diff(place, append=count))
    units = np.empty(count, UNIT_DTYPE)
    for name in UNIT_DTYPE.names or ():
        units[name] = rows[name]
    return offset, units, duplicates


def close_gaps(files: Iterable[QueueFile], place_of: Callable[[QueueFile], AttemptFolder]) -> list[QueueFile]:
    """Close gaps between files of a queue and return all files in order. The unit before a gap is repeated in both
    files, and in files between them if these are made: a broker takes an empty unit for the end of the queue. place_of:
    folder of a file. Raises NoSpace, Unreadable."""
    found = sorted(files, key=attrgetter("queue", "start"))
    made: list[QueueFile] = []
    for before, after in pairwise(found):
        if before.path and before.queue == after.queue and before.end < after.first:
            made += _close_gap(before, after, place_of(before), place_of(after))
    return sorted([*found, *made], key=attrgetter("queue", "start")) if made else found


def _close_gap(before: QueueFile, after: QueueFile, place: AttemptFolder, behind: AttemptFolder) -> list[QueueFile]:
    """Close a gap between two files of a queue; return new files between them, made beside the first one.

    They are made only if the log has room, between the records on both sides, for all that is missing: the offset in a
    damaged record may be any number.
    """
    missing = after.first - before.end
    after.missing += missing
    with place.files.open(place.folder / before.path) as file:
        end = before.end * UNIT_BYTES - before.start
        last = file.pread(UNIT_BYTES, end - UNIT_BYTES)
        file.pwrite(last * ((place.store.file_bytes - end) // UNIT_BYTES), end)
        file.sync()
    with behind.files.open(behind.folder / after.path) as file:
        front = after.first * UNIT_BYTES - after.start
        around = np.frombuffer(last + file.pread(UNIT_BYTES, front), UNIT_DTYPE)["physical_offset"]
        file.pwrite(last * (front // UNIT_BYTES), 0)
        file.sync()
    starts = range(before.start + place.store.file_bytes, after.start, place.store.file_bytes)
    if missing > (int(around[1]) - int(around[0])) // SMALLEST:
        after.without_unit += len(starts) * place.store.units_per_file
        return []
    return [_repeat(before, place, last, start) for start in starts]


def _repeat(before: QueueFile, place: AttemptFolder, unit: bytes, start: int) -> QueueFile:
    """Write a file of the same queue, full of one unit; the caller counts what is missing."""
    count, first = place.store.units_per_file, start // UNIT_BYTES
    path = place.write_units(before.topic, before.queue_id, start, first, unit * count)
    return QueueFile(before.attempt, path, before.store, before.topic, before.queue_id, start, first, first + count)
