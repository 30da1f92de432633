"""The units of one queue as verify reads them: by queue offset, and all that there are in windows."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import UNIT_BYTES
from ..broker.snapshot import QueueId
from ..columns.ordered import runs
from ..disk.file_queue import MappedFileQueue, file_name
from ..errors import Missing
from ..findings.findings import Findings
from ..queues.read import ConsumeQueue
from ..queues.units import LARGEST_OFFSET, UNIT_DTYPE, FileUnits, Units, UnitStream

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class QueueReader:
    """One queue on disk, in files or in a RocksDB, or one that is not there.

    directory: of the queue, there or not. vanished: a file was deleted while it was read, as a
    broker does with one whose records are all expired. rate_bytes: most bytes per second that
    `windows` reads; the page cache is then left as it was.
    """

    def __init__(
        self,
        queue: QueueId,
        directory: str,
        opened: ConsumeQueue | None,
        rate_bytes: int | None = None,
    ) -> None:
        self.queue = queue
        self._rate_bytes = rate_bytes
        self.directory = directory
        self.vanished = False
        self.exists = opened is not None
        nothing = MappedFileQueue((directory,), [], 0, [])
        #: Its files; none of a queue in a RocksDB, or of one that is not there.
        self.files = opened.files if opened is not None else nothing
        self._in_files = FileUnits(self.files)
        self._opened = opened

    @cached_property
    def _stream(self) -> UnitStream:
        return self._opened.stream if self._opened is not None else self._in_files

    @property
    def first_offset(self) -> int:
        """Queue offset of the first unit there is room for."""
        return self._opened.first_offset if self._opened else 0

    def lookup(self, offsets: Ints) -> Units:
        """The units at queue offsets, int64[n]; zeros where there is none. Raises Unreadable."""
        try:
            return self._stream.lookup(offsets, around=True)
        except Missing:
            self.vanished = True
            return np.zeros(len(offsets), UNIT_DTYPE)

    def unread(self, offsets: Ints) -> Flags:
        """bool[n]: queue offsets, int64[n], whose units were met and cannot be read."""
        return self._in_files.unread(offsets)

    def unwritten(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Ranges of queue offsets that lie in holes, of some that `windows` has left out."""
        return self._in_files.unwritten(first, stop)

    def windows(self) -> Iterator[tuple[int, Units]]:
        """All units as (queue offset of the first, units), in order; holes of files, and what
        is zeros all over, left out.

        Raises Unreadable.
        """
        try:
            yield from self._stream.written(self._rate_bytes)
        except Missing:
            self.vanished = True

    def place(self, offset: int) -> tuple[str, int | None]:
        """File that holds, or should hold, a unit, and its byte there."""
        at = offset * UNIT_BYTES
        file = self.files.file_at(at)
        if file is not None:
            return file.path, at - file.start
        if self.files.file_size <= 0 or not 0 <= offset <= LARGEST_OFFSET:
            return self.directory, None
        start = at - at % self.files.file_size
        return os.path.join(self.directory, file_name(start)), at - start  # noqa: PTH118

    def report(
        self,
        findings: Findings,
        code: str,
        offsets: Ints,
        message: Callable[[int], str],
        **more: Any,
    ) -> None:
        """Findings about units at ascending queue offsets, int64[n]; those in a row are one.

        message: told of a row. more: as in `Findings.add`.
        """
        for begin, end in runs(offsets):
            first, last = int(offsets[begin]), int(offsets[end - 1])
            at = first
            while at <= last:
                stop = min(self._file_stop(at), last + 1)
                self._add(findings, code, at, stop, message(begin + at - first), more)
                at = stop

    def report_range(
        self, findings: Findings, code: str, first: int, end: int, text: str, **more: Any
    ) -> None:
        """A finding about the units first ≤ k < end, one in each file."""
        while first < end:
            stop = min(self._file_stop(first), end)
            self._add(findings, code, first, stop, f"{self.queue} unit {first} {text}", more)
            first = stop

    def _file_stop(self, offset: int) -> int:
        """Queue offset behind the file that holds, or should hold, a unit."""
        at, size = offset * UNIT_BYTES, self.files.file_size
        file = self.files.file_at(at)
        if file is not None:
            return max(offset + 1, file.end // UNIT_BYTES)
        return max(offset + 1, (at // size + 1) * size // UNIT_BYTES) if size else sys.maxsize

    def _add(
        self, findings: Findings, code: str, first: int, stop: int, text: str, more: dict[str, Any]
    ) -> None:
        path, offset = self.place(first)
        length = None if offset is None else (stop - first) * UNIT_BYTES
        topic, queue_id = self.queue
        place: dict[str, Any] = {"offset": offset, "length": length, "count": stop - first}
        findings.add(code, path, text, topic=topic, queue_id=queue_id, **place, **more)
