"""The units of one queue as verify reads them: by queue offset, and all that there are in windows."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import PRE_FILL, UNIT_BYTES
from ..broker.snapshot import QueueId
from ..columns.ordered import runs
from ..disk.byte_reader import noted_of
from ..disk.file_queue import MappedFile, MappedFileQueue, file_name, is_zero
from ..errors import Missing
from ..findings.findings import Findings
from ..queues.read import ConsumeQueue
from ..queues.units import UNIT_DTYPE, Units, is_valid

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

WINDOW_UNITS = 1 << 16
_NEAR = 16
"""Units that lie so close together are read in one go."""
LARGEST_OFFSET = (1 << 63) // UNIT_BYTES - 1


class QueueReader:
    """One queue on disk, in files or in a RocksDB. Descriptors are given back after each call.

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
        self._opened = opened

    @property
    def exists(self) -> bool:
        """There is such a queue."""
        return self._opened is not None

    @cached_property
    def files(self) -> MappedFileQueue:
        """Its files; none of a queue in a RocksDB, or of one that is not there."""
        if self._opened is None:
            return MappedFileQueue((self.directory,), [], 0, [])
        return self._opened.files

    @property
    def first_offset(self) -> int:
        """Queue offset of the first unit there is room for."""
        return self._opened.first_offset if self._opened else 0

    def lookup(self, offsets: Ints) -> Units:
        """The units at queue offsets, int64[n]; zeros where there is none. Raises Unreadable."""
        if self._opened is None or not len(offsets):
            return np.zeros(len(offsets), UNIT_DTYPE)
        first, last = int(offsets[0]), int(offsets[-1])
        in_a_row = last - first == len(offsets) - 1 and bool((np.diff(offsets) == 1).all())
        if in_a_row and first >= 0 and last <= LARGEST_OFFSET:
            found = self._in_a_row(first, last + 1)
        else:
            found = self._scattered(offsets)
        self._opened.close()
        return found

    def _scattered(self, offsets: Ints) -> Units:
        """Units at any queue offsets; neighbours are read together."""
        found = np.zeros(len(offsets), UNIT_DTYPE)
        rows = np.flatnonzero((offsets >= 0) & (offsets <= LARGEST_OFFSET))
        rows = rows[np.argsort(offsets[rows], kind="stable")]
        for near in np.split(rows, np.flatnonzero(np.diff(offsets[rows]) > _NEAR) + 1):
            if len(near):
                first, last = int(offsets[near[0]]), int(offsets[near[-1]])
                found[near] = self._in_a_row(first, last + 1)[offsets[near] - first]
        return found

    def _in_a_row(self, first: int, stop: int) -> Units:
        """Units first ≤ k < stop."""
        if self._opened is None:
            return np.zeros(stop - first, UNIT_DTYPE)
        try:
            parts = list(self._opened.units(first, stop))
        except Missing:
            self.vanished, parts = True, []
        if len(parts) == 1 and len(parts[0][1]) == stop - first and self.files.files:
            return parts[0][1]
        units = np.zeros(stop - first, UNIT_DTYPE)
        for number, some in parts:
            units[number - first : number - first + len(some)] = some[_NAMES]
        return units

    def unread(self, offsets: Ints) -> Flags:
        """bool[n]: queue offsets, int64[n], whose units were met and cannot be read."""
        found = np.zeros(len(offsets), np.bool_)
        for file in self.files.files:
            for each in noted_of(file.path):
                first = (file.start + each.offset) // UNIT_BYTES
                behind = -(-(file.start + each.end) // UNIT_BYTES)
                found |= (offsets >= first) & (offsets < behind)
        return found

    def windows(self) -> Iterator[tuple[int, Units]]:
        """All units as (queue offset of the first, units), in order; holes of files, and what
        is zeros all over, left out.

        Raises Unreadable.
        """
        if self._opened is None:
            return
        try:
            if not self.files.files:
                for number, some in self._opened.units(0, LARGEST_OFFSET):
                    yield number, some[_NAMES].astype(UNIT_DTYPE)
            for file in self.files.files:
                yield from self._file_windows(file)
        except Missing:
            self.vanished = True
        finally:
            self._opened.close()

    def _file_windows(self, file: MappedFile) -> Iterator[tuple[int, Units]]:
        number = -(-file.start // UNIT_BYTES)
        while (offset := number * UNIT_BYTES - file.start) + UNIT_BYTES <= file.size:
            data_at = self.files.next_data(file, offset)
            if data_at is None:
                return
            number = max(number, (file.start + data_at) // UNIT_BYTES)
            offset = number * UNIT_BYTES - file.start
            hole = max(self.files.data_end(file, data_at), offset + UNIT_BYTES)
            size = min(WINDOW_UNITS, -(-(hole - offset) // UNIT_BYTES)) * UNIT_BYTES
            began = time.monotonic()
            parts = list(self.files.parts(file, offset, size, UNIT_BYTES))
            if self._rate_bytes:
                time.sleep(max(0.0, size / self._rate_bytes - (time.monotonic() - began)))
            for at, data in parts:
                if is_zero(data):  # as in a file whose holes a copy has filled
                    continue
                count = len(data) // UNIT_BYTES
                yield (file.start + at) // UNIT_BYTES, np.frombuffer(data, UNIT_DTYPE, count)
            number += size // UNIT_BYTES

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


_NAMES = list(UNIT_DTYPE.names or ())


def is_pre_fill(units: Units) -> Flags:
    """bool[n]: units that fill the front of a queue."""
    filled = np.ones(len(units), np.bool_)
    for name, value in PRE_FILL.items():
        filled &= units[name] == value
    return filled


def is_real(units: Units) -> Flags:
    """bool[n]: units that name a record."""
    return is_valid(units) & ~is_pre_fill(units)
