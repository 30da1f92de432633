"""Write consume queues: turn units into file bytes, and append them (spec 02, 2.1 and 2.2).

The queue offset of a unit gives its place: byte 20·k of the endless stream. Files have their full size from the start,
and are sparse. If a queue's first file begins with a queue offset k inside the file, the units before k are pre-filled.
Units of batch queues (one per record, 5.x; spec 02, 2.7) follow one another whatever their queue offsets are.

`QueuesWriter` collects the units of all queues of a store, and writes them queue by queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...formats.batch_consume_queue import NO_COMPACTED_OFFSET
from ...formats.batch_consume_queue import UNIT as BATCH_UNIT
from ...formats.batch_consume_queue import UNIT_BYTES as BATCH_UNIT_BYTES
from ...formats.consume_queue import PRE_FILL, UNIT, UNIT_BYTES
from ...formats.fixed import numbers_of
from ..disk.file_queue import MappedFileQueue, file_name
from ..disk.files import Files
from ..disk.layout import Layout, queue_directory
from ..disk.sizes import consume_queue_size, size_of_queues
from ..errors import InvalidInput, Refused
from ..log.write import StreamFiles

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ...formats.derive.ragged import Ints
    from ..broker.dispatch import Units
    from .ext import ExtWriter


_PRE_FILL_BYTES = UNIT.build(PRE_FILL)


class QueueFilePiece(NamedTuple):
    """Bytes of one queue file: start of the file in the stream, and byte of the file where they go."""

    file_start: int
    offset: int
    data: Buffer


def unit_bytes(physical_offset: int, size: int, tags_code: int) -> bytes:
    return numbers_of(UNIT).pack(physical_offset, size, tags_code)


def pieces(first: int, units: Buffer, file_size: int, *, begins: bool) -> Iterator[QueueFilePiece]:
    """Lay units `first`, `first` + 1, … into files of `file_size` bytes (a multiple of 20).

    units: their bytes, back to back. begins: they are the first of their queue, so the front of their first file is
    pre-filled. Yields pieces in stream order, one per file.
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

    next_offset: queue offset of the next unit; None for a queue without a unit, which may begin with any offset.
    """

    def __init__(self, files: Files, directory: Path, file_size: int, next_offset: int | None) -> None:
        if file_size <= 0 or file_size % UNIT_BYTES:
            raise InvalidInput(f"consume queue file size {file_size} is no multiple of {UNIT_BYTES}")
        self.directory = directory
        self.next_offset = next_offset
        self._stream = StreamFiles(files, file_size)

    def append(self, first: int, units: Buffer) -> None:
        """Write the bytes of units `first`, `first` + 1, …

        Raises Refused if they are not the next units, NoSpace, Unreadable.
        """
        if self.next_offset is not None and first != self.next_offset:
            raise Refused(f"unit {first} does not follow: the queue's next is {self.next_offset}", path=self.directory)
        begins = self.next_offset is None
        for start, offset, data in pieces(first, units, self._stream.file_size, begins=begins):
            self._stream.write(self.directory, start, offset, data, UNIT_BYTES)
        self.next_offset = first + len(memoryview(units).cast("B")) // UNIT_BYTES

    def sync(self) -> None:
        """Flush what was written to the disk, names of new files included."""
        self._stream.sync()


Queue = tuple[str, int]
"""Topic and queue id."""
FLUSH_BYTES = 4 << 20
"""When so many bytes of units are collected, they are written to their files."""


class QueuesWriter:
    """Appends units to any queue; they reach the files by `flush`, at the latest by `sync`.

    next_offsets: by queue the queue offset of the next unit, which `add` updates; a queue that is not in it has no unit
    yet. ext: gives units their tags codes; None: units keep their own.
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
        """The writer for a store, as its configuration says. Raises Unsupported, InvalidInput for the configuration."""
        size = consume_queue_size(layout).value
        queues = cls(files, layout.consume_queue, size, next_offsets)
        if layout.broker_config.get_bool("enableConsumeQueueExt"):
            from .ext import ExtWriter

            queues.ext = ExtWriter(files, layout)
        return queues

    def check(self, queue: Queue) -> None:
        """Raise InvalidInput for a queue that cannot have a directory, Refused for a directory outside of the store."""
        directory = queue_directory(self._root, *queue)
        if queue not in self._checked:
            position = self.next_offsets.get(queue, 0) * UNIT_BYTES
            self._files.check_inside(directory / file_name(position - position % self._file_size))
            if self.ext is not None:
                self.ext.check(*queue)
            self._checked.add(queue)

    def add(self, queue: Queue, first: int, units: Buffer) -> None:
        """Append the bytes of units `first`, `first` + 1, … as a broker does (spec 2.2, step 4).

        Units that the queue has already are left out; after a gap of queue offsets, units are appended all the same.
        """
        data = memoryview(units).cast("B")
        pending = self._pending.get(queue)
        if pending is None:
            pending = self._pending[queue] = bytearray()
            self._open_writer(queue, first)
        next_offset = self.next_offsets[queue]
        if first < next_offset:
            data = data[(next_offset - first) * UNIT_BYTES :]
        pending += data
        self.next_offsets[queue] = next_offset + len(data) // UNIT_BYTES
        self._pending_bytes += len(data)
        if self._pending_bytes > FLUSH_BYTES:
            self.flush()

    def _open_writer(self, queue: Queue, first: int) -> None:
        if queue not in self._writers:
            directory = queue_directory(self._root, *queue)
            begin = self.next_offsets.get(queue)
            self._writers[queue] = QueueWriter(self._files, directory, self._file_size, begin)
            self.next_offsets.setdefault(queue, first)

    def flush(self) -> None:
        """Write the collected units to their files."""
        self.changed |= self._pending_bytes > 0
        for queue, units in self._pending.items():
            if units:
                first = self.next_offsets[queue] - len(units) // UNIT_BYTES
                self._writers[queue].append(first, units)
        self._pending.clear()
        self._pending_bytes = 0

    def sync(self) -> None:
        """`flush`, then bring all files to the disk."""
        if self.ext is not None:
            self.ext.sync()
        self.flush()
        for writer in self._writers.values():
            writer.sync()


class BatchQueuesWriter:
    """Appends units to the batch queues of a store; they are in the files at once, on disk after `sync`.

    next_offsets: by queue the queue offset of the next message, which `add` updates.
    """

    def __init__(self, files: Files, layout: Layout, next_offsets: dict[Queue, int]) -> None:
        self._files = files
        self._root = layout.batch_consume_queue
        self._next_offsets = next_offsets
        self._config = layout.broker_config
        self._ends: dict[Queue, int] = {}
        #: files have got units
        self.changed = False

    def check(self, queue: Queue) -> None:
        """Raise InvalidInput for a queue that cannot have a directory, Refused for a directory outside of the store."""
        if queue not in self._ends:
            directory = queue_directory(self._root, *queue)
            end = self._end(queue, directory)
            self._files.check_inside(directory / file_name(end - end % self._stream.file_size))
            self._ends[queue] = end

    def add(self, queue: Queue, units: Units, counts: Ints) -> None:
        """Append the units of records of one queue. counts: messages in each record, int64[n]."""
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

    def _end(self, queue: Queue, directory: Path) -> int:
        """Byte position behind the last unit of a queue."""
        from .batches import BatchConsumeQueue

        size = self._stream.file_size
        if size % BATCH_UNIT_BYTES:
            raise InvalidInput(f"batch consume queue file size {size} is no multiple of {BATCH_UNIT_BYTES}")
        with MappedFileQueue.open(directory) as files:
            return BatchConsumeQueue(*queue, files).stop * BATCH_UNIT_BYTES

    @cached_property
    def _stream(self) -> StreamFiles:
        """Its files have the configured size; without one the size of most queues of the store, or the default."""
        size, origin = self._config.size("mapperFileSizeBatchConsumeQueue")
        if origin != "configuration":
            size = size_of_queues(self._root) or size
        return StreamFiles(self._files, size)

    def _append(self, queue: Queue, data: memoryview) -> None:
        directory = queue_directory(self._root, *queue)
        position = self._ends[queue]
        self.changed = True
        while data:
            offset = position % self._stream.file_size
            part = data[: self._stream.file_size - offset]
            self._stream.write(directory, position - offset, offset, part, BATCH_UNIT_BYTES)
            position += len(part)
            data = data[len(part) :]
        self._ends[queue] = position

    def sync(self) -> None:
        """Flush what was written to the disk, names of new files included."""
        if self.changed:
            self._stream.sync()
