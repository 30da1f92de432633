"""Queue files of every kind from sorted units. Arrow and numpy only; Spark calls it in `queue_writer`.

One batch of rows is in memory and one file is open at a time, however large a queue is. Units for
batch queues and for consumequeue_ext go to the writers that `put` has for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..formats.consume_queue import PRE_FILL, UNIT, UNIT_BYTES
from ..formats.derive import dtype_of
from ..store.dispatch import Units
from ..store.layout import CONSUME_QUEUE, Layout
from ..store.mapped_file_queue import file_name
from ..store.write.batch_consume_queue import BatchQueuesWriter
from ..store.write.consume_queue import pieces, queue_directory
from ..store.write.consume_queue_ext import ExtWriter
from ..store.write.files import Files, OpenFile
from .plan import Plan
from .rebuild_rows import IN_ORDER, MORE

PARTITIONED_BY = ("store", "topic", "queue_id", "file")
"""Columns that say which file a row belongs to. All rows of a file come to one `QueueFiles`."""
SORTED_BY = (*PARTITIONED_BY, "queue_offset", "physical_offset")

_UNIT_DTYPE = dtype_of(UNIT)
_PRE_FILL_BYTES = UNIT.build(PRE_FILL)


@dataclass
class QueueFile:
    """One file that a task writes, or all of a batch queue: then `path` is empty, and `start` 0.

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
        self._ext: dict[int, ExtWriter] = {}
        self._batches: dict[int, BatchQueuesWriter] = {}

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
            part = rows.slice(begin, end - begin)
            if file != IN_ORDER:
                self._add_to_file(store, name, queue_id, file, part)
            elif name in self._plan.stores[store].batch_topics:
                self._add_batches(store, name, queue_id, part)
            else:
                self._add_with_ext(store, name, queue_id, part)

    def close(self) -> None:
        """Bring everything to the disk."""
        self._close_file()
        for ext in self._ext.values():
            ext.sync()
        for batches in self._batches.values():
            batches.sync()

    @property
    def others(self) -> list[str]:
        """Paths below the target of the files that `written` does not name."""
        folders = [self._output(store).consume_queue_ext for store in self._ext]
        folders += [self._output(store).batch_consume_queue for store in self._batches]
        found = (path for folder in folders for path in sorted(folder.rglob("*")))
        return [path.relative_to(self._folder).as_posix() for path in found if path.is_file()]

    def _close_file(self) -> None:
        if self._open is not None:
            with self._open as file:
                file.sync()
            self._open = None

    def _output(self, store: int) -> Layout:
        return self._plan.stores[store].output(self._folder)

    def _add_batches(self, store: int, topic: str, queue_id: int, rows: pa.RecordBatch) -> None:
        """Units of a batch queue, in the order of their records."""
        if store not in self._batches:
            self._batches[store] = BatchQueuesWriter(self._files, self._output(store), {})
        self._close_file()
        units, more = _units(rows), rows.column(MORE)
        base, sizes = (more.field(name).to_numpy() for name in ("msg_base_offset", "batch_size"))
        self._batches[store].add((topic, queue_id), replace(units, queue_offset=base), sizes)
        now = self.written[-1] if self.written else None
        if now is None or now.path or now.queue != (store, topic, queue_id):
            first = int(base[0])
            now = QueueFile(self._attempt, "", store, topic, queue_id, 0, first, first)
            self.written.append(now)
        now.units += len(units)
        now.end = int(base[-1] + sizes[-1])

    def _add_with_ext(self, store: int, topic: str, queue_id: int, rows: pa.RecordBatch) -> None:
        """Units of a plain queue whose tags codes lie in consumequeue_ext, but those of LMQ."""
        if store not in self._ext:
            self._ext[store] = ExtWriter(self._files, self._output(store))
        more, codes = rows.column(MORE), rows.column("tags_code")
        if not more.null_count:
            ext = self._ext[store]
            ext.take_maps(more.field("bit_map").to_pylist())
            codes = pa.array(ext.add(topic, queue_id, _units(rows)), codes.type)
        place = rows.schema.get_field_index("tags_code")
        rows = rows.set_column(place, "tags_code", codes)
        file = rows.column("queue_offset").to_numpy() // self._plan.stores[store].units_per_file
        cuts = [0, *(np.flatnonzero(np.diff(file)) + 1).tolist(), len(file)]
        for begin, end in pairwise(cuts):
            part = rows.slice(begin, end - begin)
            self._add_to_file(store, topic, queue_id, int(file[begin]), part)

    def _add_to_file(
        self, store: int, topic: str, queue_id: int, file: int, rows: pa.RecordBatch
    ) -> None:
        file_bytes = self._plan.stores[store].file_bytes
        offset = rows.column("queue_offset").to_numpy()
        now = self.written[-1] if self._open else None
        if now is None or (*now.queue, now.start) != (store, topic, queue_id, file * file_bytes):
            self._close_file()
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


def _units(rows: pa.RecordBatch) -> Units:
    """The columns that the writers of `put` take; record: the row. Times where they are known."""
    columns = {
        name: rows.column(name).to_numpy().astype(np.int64)
        for name in ("queue_id", "queue_offset", *(_UNIT_DTYPE.names or ()))
    }
    return Units(
        record=np.arange(rows.num_rows),
        topic_id=np.zeros(rows.num_rows, np.int64),
        store_timestamp=rows.column(MORE).field("store_time").to_numpy(zero_copy_only=False),
        **columns,
    )


def _runs(offset: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(begin, end) of the ranges in which ascending numbers follow each other without a gap."""
    cuts = (np.flatnonzero(np.diff(offset) != 1) + 1).tolist()
    return pairwise([0, *cuts, len(offset)]) if len(offset) else iter(())
