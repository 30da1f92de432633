"""Consume queue files from sorted units. Arrow and numpy only; Spark calls it in `queue_writer`.

One batch of rows is in memory and one file is open at a time, however large a queue is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..formats.consume_queue import PRE_FILL, UNIT, UNIT_BYTES
from ..formats.derive import dtype_of
from ..store.layout import CONSUME_QUEUE
from ..store.mapped_file_queue import file_name
from ..store.write.consume_queue import pieces, queue_directory
from ..store.write.files import Files, OpenFile
from .plan import Plan

PARTITIONED_BY = ("store", "topic", "queue_id", "file")
"""Columns that say which file a row belongs to. All rows of a file come to one `QueueFiles`."""
SORTED_BY = (*PARTITIONED_BY, "queue_offset", "physical_offset")

_UNIT_DTYPE = dtype_of(UNIT)
_PRE_FILL_BYTES = UNIT.build(PRE_FILL)


@dataclass
class QueueFile:
    """One file that a task writes.

    attempt: whose. path: below the target. start: position of its first byte in the queue's stream.
    first, end: queue offset of the first unit and the one behind the last. units: how many records
    are in. missing: offsets between first and end that no record had. duplicates: records whose
    offset another one had already; they got no unit.
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

    @property
    def queue(self) -> tuple[int, str, int]:
        """Store, topic and queue id."""
        return self.store, self.topic, self.queue_id


class QueueFiles:
    """Writes rows, sorted by `SORTED_BY`, as the files of one attempt below `folder`.

    A unit lies at its queue offset. Where no record has an offset, in the front of a file too,
    there is the broker's pre-fill; of several records with one offset the first counts, as in a
    broker (spec 2.1, 2.2). Raises NoSpace, Unreadable.
    """

    def __init__(self, folder: Path, attempt: str, plan: Plan, files: Files) -> None:
        self.written: list[QueueFile] = []
        self._folder = folder
        self._attempt = attempt
        self._plan = plan
        self._files = files
        self._open: OpenFile | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows that sort behind all rows before."""
        topics = rows.column("topic").dictionary_encode()
        keys = [rows.column("store"), topics.indices, rows.column("queue_id"), rows.column("file")]
        columns = [key.to_numpy() for key in keys]
        changed = np.logical_or.reduce([np.diff(column) != 0 for column in columns])
        cuts = [0, *(np.flatnonzero(changed) + 1).tolist(), rows.num_rows]
        for begin, end in pairwise(cuts) if rows.num_rows else ():
            store, topic, queue_id, file = (int(column[begin]) for column in columns)
            name = topics.dictionary[topic].as_py()
            self._add_to_file(store, name, queue_id, file, rows.slice(begin, end - begin))

    def close(self) -> None:
        """Bring the last file to the disk."""
        if self._open is not None:
            with self._open as file:
                file.sync()
            self._open = None

    def _add_to_file(
        self, store: int, topic: str, queue_id: int, file: int, rows: pa.RecordBatch
    ) -> None:
        file_bytes = self._plan.stores[store].file_bytes
        offset = rows.column("queue_offset").to_numpy()
        now = self.written[-1] if self._open else None
        if now is None or (*now.queue, now.start) != (store, topic, queue_id, file * file_bytes):
            self.close()
            first = int(offset[0])
            now = QueueFile(
                self._attempt, "", store, topic, queue_id, file * file_bytes, first, first
            )
            self._begin(now, file_bytes)
        new = np.diff(offset, prepend=now.end - 1) > 0
        units = np.empty(len(offset), _UNIT_DTYPE)
        for name in _UNIT_DTYPE.names or ():
            units[name] = rows.column(name).to_numpy()
        now.duplicates += int((~new).sum())
        now.units += int(new.sum())
        offset, units = offset[new], units[new]
        for begin, end in _runs(offset):
            self._write(now, int(offset[begin]), units[begin:end].tobytes(), file_bytes)

    def _begin(self, file: QueueFile, file_bytes: int) -> None:
        """Create a file of its full size, sparse."""
        parent = Path(self._plan.stores[file.store].folder, CONSUME_QUEUE)
        queue = queue_directory(parent, file.topic, file.queue_id)
        file.path = (queue / file_name(file.start)).as_posix()
        self._files.make_directory(self._folder / queue)
        self._open = self._files.create(self._folder / file.path)
        self._open.truncate(file_bytes)
        self.written.append(file)

    def _write(self, file: QueueFile, first: int, data: bytes, file_bytes: int) -> None:
        """Write units from queue offset `first` on, behind pre-fill for what is missing."""
        assert self._open is not None
        gap = first - file.end
        file.missing += gap
        begins = file.end == file.first
        for piece in pieces(file.end, _PRE_FILL_BYTES * gap + data, file_bytes, begins=begins):
            self._open.pwrite(piece.data, piece.offset)
        file.end = first + len(data) // UNIT_BYTES


def fill_up(files: Files, folder: Path, file: QueueFile, file_bytes: int) -> None:
    """Pre-fill the rest of a file that is not the last of its queue."""
    rest = file.start + file_bytes - file.end * UNIT_BYTES
    with files.open(folder / file.path) as target:
        target.pwrite(_PRE_FILL_BYTES * (rest // UNIT_BYTES), file_bytes - rest)
        target.sync()


def _runs(offset: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(begin, end) of the ranges in which ascending numbers follow each other without a gap."""
    cuts = (np.flatnonzero(np.diff(offset) != 1) + 1).tolist()
    return pairwise([0, *cuts, len(offset)]) if len(offset) else iter(())
