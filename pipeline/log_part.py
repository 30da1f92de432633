"""What a part of a log adds to queues and index, as arrays: in memory, or in files of a stage. No Spark.

Rows are units with their queue offsets. They are sorted by file of a queue; within a file they keep the order of the
log. Items of the index are in the order of the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from ..formats import log_part
from ..formats.derive import dtype_of
from ..formats.derive.ragged import Ints, Structs
from ..store.disk.byte_reader import fill, opened
from ..store.disk.files import Files, write_new
from ..store.errors import Unreadable, os_errors

ROW, ITEM = dtype_of(log_part.ROW), dtype_of(log_part.ITEM)

Rows = Structs
"""An array of ROW or ITEM."""


class FileKey(NamedTuple):
    """File number `file` of a queue, from 0 on."""

    topic: str
    queue_id: int
    file: int


@dataclass(frozen=True)
class LogPart:
    """What one part of a log adds. places: file of a queue → first row and end."""

    rows: Rows
    places: dict[FileKey, tuple[int, int]]
    items: Rows

    def of(self, key: FileKey) -> Rows:
        first, end = self.places[key]
        return self.rows[first:end]

    def items_from(self, first: int, end: int) -> Rows:
        return self.items[first:end]

    def save(self, files: Files, folder: Path) -> None:
        """Write the part to a new folder. Raises NoSpace, Unreadable."""
        files.make_directory(folder)
        for name, rows in (("rows", self.rows), ("items", self.items)):
            with files.create(folder / name) as file:
                file.pwrite(rows.view(np.uint8).data if len(rows) else b"", 0)
        places = [[*key, *place] for key, place in self.places.items()]
        write_new(files, folder / "places.json", json.dumps(places).encode())


@dataclass(frozen=True)
class SavedPart:
    """A part of a log in a folder; rows and items are read on demand, which may raise Unreadable."""

    folder: Path
    places: dict[FileKey, tuple[int, int]]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a part that `LogPart.save` wrote. Raises Unreadable."""
        path = folder / "places.json"
        with os_errors(path):
            places = json.loads(path.read_bytes())
        return cls(folder, {FileKey(*row[:3]): (row[3], row[4]) for row in places})

    def of(self, key: FileKey) -> Rows:
        return self._read("rows", ROW, *self.places[key])

    def items_from(self, first: int, end: int) -> Rows:
        return self._read("items", ITEM, first, end)

    def _read(self, name: str, dtype: np.dtype[Any], first: int, end: int) -> Rows:
        path = self.folder / name
        found: Rows = np.empty(end - first, dtype)
        if not len(found):
            return found
        with opened(path) as descriptor:
            room = found.view(np.uint8).data
            read = fill(descriptor, room, first * dtype.itemsize, str(path))
        if read < found.nbytes:
            raise Unreadable("shorter than it was written", path=path)
        return found


AnyPart = LogPart | SavedPart


class PartRows:
    """Collects rows and items in the order of the log. units_per_file: of the store's queues."""

    def __init__(self, units_per_file: int) -> None:
        self._units_per_file = units_per_file
        self._topics: dict[str, int] = {}
        self._queues: list[Ints] = []
        self._rows: list[Rows] = []
        self._items: list[Rows] = []

    def add(self, topics: list[str], topic_id: Any, queue_id: Any, rows: Rows) -> None:
        """Add units. topic_id (index in `topics`), queue_id: of each row, int64[n]."""
        numbers = [self._topics.setdefault(topic, len(self._topics)) for topic in topics]
        if len(rows):
            self._queues.append(np.stack([np.array(numbers, np.int64)[topic_id], queue_id]))
            self._rows.append(rows)

    def add_items(self, items: Rows) -> None:
        self._items.append(items)

    def part(self) -> LogPart:
        """Return all rows and items as a part, and start over."""
        items = np.concatenate(self._items or [np.empty(0, ITEM)])
        rows = np.concatenate(self._rows or [np.empty(0, ROW)])
        self._items, self._rows = [], []
        topic, queue_id = np.concatenate(self._queues or [np.empty((2, 0), np.int64)], axis=1)
        self._queues = []
        file = rows["queue_offset"] // self._units_per_file
        order = np.lexsort([_narrow(column) for column in (file, queue_id, topic)])
        # take copies a row as so many bytes; indexing copies it field by field
        rows, columns = rows.take(order), [column[order] for column in (topic, queue_id, file)]
        changed = np.logical_or.reduce([np.diff(column) != 0 for column in columns])
        first = np.append(0, np.flatnonzero(changed) + 1) if len(rows) else np.empty(0, np.int64)
        ends = np.append(first, len(rows))[1:]
        names = list(self._topics)
        keys = zip(*(column[first].tolist() for column in columns), strict=True)
        places = zip(first.tolist(), ends.tolist(), strict=True)
        found = {FileKey(names[number], *queue): place for (number, *queue), place in zip(keys, places, strict=True)}
        return LogPart(rows, found, items)


def rows_of(columns: Any, dtype: np.dtype[Any]) -> Rows:
    """Return rows of the attributes that have the names of the fields."""
    rows = np.empty(len(columns), dtype)
    for name in dtype.names or ():
        rows[name] = getattr(columns, name)
    return rows


def keys_of(parts: Iterable[AnyPart]) -> list[FileKey]:
    return sorted({key for part in parts for key in part.places})


def _narrow(column: Ints) -> npt.NDArray[np.integer[Any]]:
    """Return numbers in the same order, in 16 bits if these are enough: numpy sorts them in one pass."""
    if not len(column):
        return column
    lowest = int(column.min())
    return (column - lowest).astype(np.uint16) if int(column.max()) - lowest < 1 << 16 else column
