"""Consume queues written: units to file bytes, and appending them (spec 02, 2.1 and 2.2).

A unit's place follows from its queue offset: byte 20·k of the endless stream. Files have their full
size from the start, sparse. Where the first file of a queue begins with a queue offset k that is
not its first, the units before k are pre-filled. Units of batch queues (one per record, 5.x; spec 02, 2.7)
follow one another whatever their queue offsets are.

Of a store that is written to the units of all queues are collected and written by queue (`QueuesWriter`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...formats.batch_consume_queue import NO_COMPACTED_OFFSET
from ...formats.batch_consume_queue import UNIT as BATCH_UNIT
from ...formats.batch_consume_queue import UNIT_BYTES as BATCH_UNIT_BYTES
from ...formats.consume_queue import PRE_FILL, UNIT, UNIT_BYTES
from ...formats.fixed import numbers_of
from ..disk.file_queue import MappedFileQueue, file_name, size_of
from ..disk.files import Files
from ..disk.layout import Layout, queue_directories, queue_directory
from ..disk.sizes import QUEUES_LOOKED_AT, consume_queue_size
from ..errors import InvalidInput, Refused

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ...formats.derive.ragged import Ints
    from ..broker.dispatch import Units
    from .ext import ExtWriter


_PRE_FILL_BYTES = UNIT.build(PRE_FILL)


class QueueFilePiece(NamedTuple):
    """Bytes of one queue file: where the file begins in the stream, and where the bytes go."""

    file_start: int
    offset: int
    data: Buffer


def unit_bytes(physical_offset: int, size: int, tags_code: int) -> bytes:
    """One unit."""
    return numbers_of(UNIT).pack(physical_offset, size, tags_code)


def pieces(first: int, units: Buffer, file_size: int, *, begins: bool) -> Iterator[QueueFilePiece]:
    """Lay units `first`, `first` + 1, … into files of `file_size` bytes (a multiple of 20).

    units: their bytes, back to back. begins: they are the first of their queue; then the front of
    the first file is pre-filled. Pieces come in stream order, one per file.
    """
    rest = memoryview(units).cast("B")
    position = first * UNIT_BYTES
    while rest:
        offset = position % file_size
        room = file_size - offset
        data: Buffer = rest[:room]
        written = min(room, len(rest))
        if begins and offset:
            data = _PRE_FILL_BYTES * (offset // UNIT_BYTES) + bytes(rest[:room])
            yield QueueFilePiece(position - offset, 0, data)
        else:
            yield QueueFilePiece(position - offset, offset, data)
        begins = False
        position += written
        rest = rest[written:]


class QueueWriter:
    """Appends units to the files of one topic-queue, and leaves zeros behind them.

    next_offset: queue offset of the next unit; None for a queue without a unit, which then may begin with any.
    """

    def __init__(self, files: Files, directory: Path, file_size: int, next_offset: int | None) -> None:
        if file_size <= 0 or file_size % UNIT_BYTES:
            raise InvalidInput(f"consume queue file size {file_size} is no multiple of {UNIT_BYTES}")
        self.directory = directory
        self.next_offset = next_offset
        self._files = files
        self._file_size = file_size
        self._touched: set[Path] = set()
        self._created: bool = False

    def append(self, first: int, units: Buffer) -> None:
        """Write the bytes of units `first`, `first` + 1, …

        Raises Refused if they are not the next ones, NoSpace, Unreadable.
        """
        if self.next_offset is not None and first != self.next_offset:
            raise Refused(f"unit {first} does not follow: the queue's next is {self.next_offset}", path=self.directory)
        begins = self.next_offset is None
        for piece in pieces(first, units, self._file_size, begins=begins):
            self._write(piece)
        self.next_offset = first + len(memoryview(units).cast("B")) // UNIT_BYTES

    def _write(self, piece: QueueFilePiece) -> None:
        path = self.directory / file_name(piece.file_start)
        end = piece.offset + len(memoryview(piece.data).cast("B"))
        if path.exists():
            file = self._files.open(path)
        else:
            self._files.make_directory(self.directory)
            file = self._files.create(path)
            self._created = True
        self._touched.add(path)
        with file:
            if file.size < self._file_size:
                file.truncate(self._file_size)
            file.pwrite(piece.data, piece.offset)
            if any(file.pread(UNIT_BYTES, end)):
                # units of an earlier life: they would count as soon as the log reaches them (B21)
                stale = file.pread(self._file_size - end, end).rstrip(b"\0")
                file.pwrite(bytes(len(stale)), end)

    def sync(self) -> None:
        """Bring what was written to the disk, names included."""
        for path in sorted(self._touched):
            with self._files.open(path) as file:
                file.sync()
        if self._created:
            self._files.sync_directory(self.directory)
        self._touched.clear()
        self._created = False


Queue = tuple[str, int]
"""Topic and queue id."""
FLUSH_BYTES = 4 << 20
"""Units are written to their files when so much of them has come together."""


class QueuesWriter:
    """Appends units to any queue; they reach the files by `flush`, at the latest by `sync`.

    next_offsets: queue offset of the next unit by queue, counted on here; a queue that is not in
    it has no unit yet. ext: where units put their tags code, None where they keep it.
    """

    def __init__(self, files: Files, consume_queue: Path, file_size: int, next_offsets: dict[Queue, int]) -> None:
        self.next_offsets = next_offsets
        self._files = files
        self._root = consume_queue
        self._file_size = file_size
        self._writers: dict[Queue, QueueWriter] = {}
        self._checked: set[Queue] = set()
        self._pending: dict[Queue, bytearray] = {}
        self._pending_bytes = 0
        #: files of queues have got units
        self.changed = False
        self.ext: ExtWriter | None = None

    @classmethod
    def of(cls, files: Files, layout: Layout, next_offsets: dict[Queue, int]) -> QueuesWriter:
        """Of a store, as its configuration says. Raises Unsupported, InvalidInput for that."""
        size = consume_queue_size(layout).value
        queues = cls(files, layout.consume_queue, size, next_offsets)
        if layout.broker_config.get_bool("enableConsumeQueueExt"):
            from .ext import ExtWriter

            queues.ext = ExtWriter(files, layout)
        return queues

    def check(self, queue: Queue) -> None:
        """Raises InvalidInput for a queue that cannot have a directory, Refused for one elsewhere."""
        directory = queue_directory(self._root, *queue)
        if queue not in self._checked:
            position = self.next_offsets.get(queue, 0) * UNIT_BYTES
            self._files.check_inside(directory / file_name(position - position % self._file_size))
            if self.ext is not None:
                self.ext.check(*queue)
            self._checked.add(queue)

    def add(self, queue: Queue, first: int, units: Buffer) -> None:
        """Append the bytes of units `first`, `first` + 1, … as a broker does (spec 2.2, step 4).

        Units before the queue's next are left out; units behind it are appended all the same.
        """
        data = memoryview(units).cast("B")
        pending = self._pending.get(queue)
        if pending is None:
            pending = self._pending[queue] = bytearray()
            self._open(queue, first)
        have = self.next_offsets[queue]
        if first < have:
            data = data[(have - first) * UNIT_BYTES :]
        pending += data
        self.next_offsets[queue] = have + len(data) // UNIT_BYTES
        self._pending_bytes += len(data)
        if self._pending_bytes > FLUSH_BYTES:
            self.flush()

    def _open(self, queue: Queue, first: int) -> None:
        if queue not in self._writers:
            directory = queue_directory(self._root, *queue)
            begin = self.next_offsets.get(queue)
            self._writers[queue] = QueueWriter(self._files, directory, self._file_size, begin)
            self.next_offsets.setdefault(queue, first)

    def flush(self) -> None:
        """Write what has been collected."""
        self.changed |= self._pending_bytes > 0
        for queue, units in self._pending.items():
            if units:
                first = self.next_offsets[queue] - len(units) // UNIT_BYTES
                self._writers[queue].append(first, units)
        self._pending.clear()
        self._pending_bytes = 0

    def sync(self) -> None:
        """`flush`, and bring everything to the disk."""
        if self.ext is not None:
            self.ext.sync()
        self.flush()
        for writer in self._writers.values():
            writer.sync()


class BatchQueuesWriter:
    """Appends units to the batch queues of a store; in the files at once, on disk by `sync`.

    next_offsets: queue offset of the next message by queue, counted on here.
    """

    def __init__(self, files: Files, layout: Layout, next_offsets: dict[Queue, int]) -> None:
        self._files = files
        self._root = layout.batch_consume_queue
        self._next_offsets = next_offsets
        self._config = layout.broker_config
        self._ends: dict[Queue, tuple[int, int]] = {}
        #: files have got units
        self.changed = False
        self._touched: set[Path] = set()
        self._new_names: set[Path] = set()

    def check(self, queue: Queue) -> None:
        """Raises InvalidInput for a queue that cannot have a directory, Refused for one elsewhere."""
        if queue not in self._ends:
            directory = queue_directory(self._root, *queue)
            end, file_size = self._end(queue, directory)
            self._files.check_inside(directory / file_name(end - end % file_size))
            self._ends[queue] = end, file_size

    def add(self, queue: Queue, units: Units, counts: Ints) -> None:
        """Append the units of records of one queue. counts: messages in each, int64[n]."""
        import numpy as np

        from ...formats.derive import dtype_of

        self.check(queue)
        rows = np.zeros(len(units), dtype_of(BATCH_UNIT))
        for name in ("physical_offset", "size", "tags_code"):
            rows[name] = getattr(units, name)
        rows["store_time"] = units.store_timestamp
        rows["msg_base_offset"] = units.queue_offset
        rows["batch_size"] = counts
        rows["compacted_offset"] = NO_COMPACTED_OFFSET
        self._append(queue, memoryview(rows.tobytes()))
        self._next_offsets[queue] = int(units.queue_offset[-1] + counts[-1])

    def _end(self, queue: Queue, directory: Path) -> tuple[int, int]:
        """Position behind the last unit of a queue, and the size of its files."""
        from .batches import BatchConsumeQueue

        size = self._file_size
        if size % BATCH_UNIT_BYTES:
            raise InvalidInput(f"batch consume queue file size {size} is no multiple of {BATCH_UNIT_BYTES}")
        with MappedFileQueue.open(directory) as files:
            return BatchConsumeQueue(*queue, files).stop * BATCH_UNIT_BYTES, size

    @cached_property
    def _file_size(self) -> int:
        """The configured size; without one what most queues of the store have, or the default."""
        size, origin = self._config.size("mapperFileSizeBatchConsumeQueue")
        if origin == "configuration":
            return size
        queues = islice(queue_directories(self._root), QUEUES_LOOKED_AT)
        found = Counter(size_of(MappedFileQueue.open(queue.path).files) for queue in queues)
        found.pop(0, None)
        return max(found, key=lambda size: (found[size], size), default=size)

    def _append(self, queue: Queue, data: memoryview) -> None:
        directory = queue_directory(self._root, *queue)
        position, file_size = self._ends[queue]
        self.changed = True
        while data:
            offset = position % file_size
            part = data[: file_size - offset]
            path = directory / file_name(position - offset)
            if not path.exists():
                self._files.make_directory(directory)
                self._new_names.add(directory)
            self._touched.add(path)
            with self._files.open_or_create(path) as file:
                if file.size < file_size:
                    file.truncate(file_size)
                file.pwrite(part, offset)
                behind = offset + len(part)
                if any(file.pread(BATCH_UNIT_BYTES, behind)):
                    # units of an earlier life would count as soon as the log reaches them
                    stale = file.pread(file_size - behind, behind).rstrip(b"\0")
                    file.pwrite(bytes(len(stale)), behind)
            position += len(part)
            data = data[len(part) :]
        self._ends[queue] = position, file_size

    def sync(self) -> None:
        """Bring what was written to the disk, names included."""
        for path in sorted(self._touched):
            with self._files.open(path) as file:
                file.sync()
        for directory in sorted(self._new_names):
            self._files.sync_directory(directory)
        self._touched.clear()
        self._new_names.clear()
