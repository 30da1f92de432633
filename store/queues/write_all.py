"""All consume queues of a store that is written to: units are collected and written by queue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...formats.consume_queue import UNIT_BYTES
from ..disk.file_queue import file_name
from ..disk.files import Files
from ..disk.layout import Layout
from ..disk.sizes import consume_queue_size
from .write import QueueWriter, queue_directory

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from .write_ext import ExtWriter

Queue = tuple[str, int]
"""Topic and queue id."""
FLUSH_BYTES = 4 << 20
"""Units are written to their files when so much of them has come together."""


class QueuesWriter:
    """Appends units to any queue; they reach the files by `flush`, at the latest by `sync`.

    next_offsets: queue offset of the next unit by queue, counted on here; a queue that is not in
    it has no unit yet. ext: where units put their tags code, None where they keep it.
    """

    def __init__(
        self, files: Files, consume_queue: Path, file_size: int, next_offsets: dict[Queue, int]
    ) -> None:
        self.next_offsets = next_offsets
        self._files = files
        self._root = consume_queue
        self._file_size = file_size
        self._writers: dict[Queue, QueueWriter] = {}
        self._checked: set[Queue] = set()
        self._pending: dict[Queue, bytearray] = {}
        self._pending_bytes = 0
        self.ext: ExtWriter | None = None

    @classmethod
    def of(cls, files: Files, layout: Layout, next_offsets: dict[Queue, int]) -> QueuesWriter:
        """Of a store, as its configuration says. Raises Unsupported, InvalidInput for that."""
        size = consume_queue_size(layout).value
        queues = cls(files, layout.consume_queue, size, next_offsets)
        if layout.broker_config.get_bool("enableConsumeQueueExt"):
            from .write_ext import ExtWriter

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
