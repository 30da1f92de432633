"""Encoding placed records buffer by buffer, and writing each buffer with one call.

With many records three threads are at work: numpy and the system copy without holding Python up.
One fills a buffer while another one is on its way to the file; and whoever gave the records finds
out meanwhile what they add to queues and index.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ...formats.derive import Ragged, encode
from ...formats.derive.ragged import Bytes, Ints
from ...formats.message import MESSAGE
from ...formats.message_properties import CRC_ITEM_BYTES, crc_item
from ..log.write import LogWriter, Placement
from .message_columns import rows_with_crc

BUFFER_BYTES = 4 << 20
"""Size of each of two buffers; one grows to the size of the largest record."""


class RecordWriter:
    """Writes columns of records to a log; reuses its buffers."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._buffers = [np.empty(0, np.uint8), np.empty(0, np.uint8)]
        self._encoder = _Aside("records")
        self._writer = _Aside("log")

    def write_aside(self, columns: dict[str, Any], placement: Placement) -> None:
        """`write` by another thread; `drain` waits for it. Log and columns are not to be changed."""
        self._encoder.wait()
        self._encoder.begin(self.write, columns, placement)

    def drain(self) -> None:
        """Wait until everything is written. Raises what went wrong: NoSpace, Unreadable."""
        self._encoder.wait()

    def write(self, columns: dict[str, Any], placement: Placement) -> None:
        """Encode complete columns of MESSAGE and write them. Raises NoSpace, Unreadable."""
        positions = placement.positions
        ends = positions + columns["total_size"]
        blanks = {blank.position: blank for blank in placement.blanks}
        crc_rows = rows_with_crc(columns["properties"])
        first = 0
        while first < len(positions):
            begin = int(positions[first])
            if self._log.position in blanks and begin != self._log.position:
                self._writer.wait()
                self._log.write_blank(blanks[self._log.position])
                self._log.position = begin
            file_end = begin - begin % self._log.file_size + self._log.file_size
            buffer = self._next_buffer(int(columns["total_size"][first]))
            limit = min(file_end, begin + len(buffer))
            last = int(np.searchsorted(ends, limit, side="right"))
            rows = slice(first, last)
            part = {name: _some(column, rows) for name, column in columns.items()}
            at = positions[rows] - begin
            encode(MESSAGE, part, at, buffer)
            for row in crc_rows[(crc_rows >= first) & (crc_rows < last)].tolist():
                _set_crc(buffer, int(positions[row]) - begin, int(columns["total_size"][row]))
            data = buffer[: int(ends[last - 1]) - begin]
            self._send(begin, data, more=last < len(positions))
            if self._log.remembers:
                _remember(self._log, data, at, columns["total_size"][rows])
            first = last
        self._writer.wait()

    def _next_buffer(self, least_bytes: int) -> Bytes:
        """The buffer that is not on its way."""
        self._buffers.reverse()
        if len(self._buffers[0]) < max(least_bytes, BUFFER_BYTES):
            self._buffers[0] = np.empty(max(least_bytes, BUFFER_BYTES), np.uint8)
        return self._buffers[0]

    def _send(self, position: int, data: Bytes, *, more: bool) -> None:
        """Write a buffer: while the next is filled, or at once where there is none."""
        self._writer.wait()
        if more:
            self._writer.begin(self._log.write, position, data.data)
            self._log.position = position + len(data)
        else:
            self._log.write(position, data.data)

    def close(self) -> None:
        """Let the threads go, whatever became of their work."""
        self._encoder.close()
        self._writer.close()


class _Aside:
    """A thread, made when it is needed, that does one thing at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._work: Future[None] | None = None

    def begin(self, work: Callable[..., None], *arguments: Any) -> None:
        """Let it do something."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, self._name)
        self._work = self._pool.submit(work, *arguments)

    def wait(self) -> None:
        """Wait until it is done. Raises what the work has raised."""
        work, self._work = self._work, None
        if work is not None:
            work.result()

    def close(self) -> None:
        """Wait for the work without asking what became of it, and end the thread."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _some(column: Any, rows: slice) -> Any:
    return column[rows] if isinstance(column, np.ndarray | Ragged) else column


def _remember(log: LogWriter, data: Bytes, at: Ints, size: Ints) -> None:
    """What an old broker's memory holds after these records: of each byte the last writer."""
    covered = np.maximum.accumulate(size[::-1])[::-1]
    visible = np.append(size[:-1] > covered[1:], True)
    for begin, length in zip(at[visible].tolist(), size[visible].tolist(), strict=True):
        log.remember(data[begin : begin + length].tobytes())


def _set_crc(buffer: Bytes, at: int, size: int) -> None:
    """Compute the `__CRC32#` of a record that is complete but for it."""
    split = at + size - CRC_ITEM_BYTES
    item = crc_item(buffer[at:split].tobytes())
    buffer[split : at + size] = np.frombuffer(item, np.uint8)
