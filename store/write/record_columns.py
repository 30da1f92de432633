"""Encoding placed records buffer by buffer, and writing each buffer with one call.

While one buffer is on its way to the file the next is filled: the system copies it without
holding Python up.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ...formats.derive import Ragged, encode
from ...formats.derive.ragged import Bytes, Ints
from ...formats.message import MESSAGE
from ...formats.message_properties import CRC_ITEM_BYTES, crc_item
from .commit_log import LogWriter, Placement
from .message_columns import rows_with_crc

BUFFER_BYTES = 4 << 20
"""Size of each of two buffers; one grows to the size of the largest record."""


class RecordWriter:
    """Writes columns of records to a log; reuses its buffers."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._buffers = [np.empty(0, np.uint8), np.empty(0, np.uint8)]
        self._worker: ThreadPoolExecutor | None = None
        self._on_the_way: Future[None] | None = None

    def write(self, columns: dict[str, Any], placement: Placement) -> None:
        """Encode complete columns of MESSAGE and write them; `drain` waits for the last of them.

        Raises NoSpace, Unreadable.
        """
        positions = placement.positions
        ends = positions + columns["total_size"]
        blanks = {blank.position: blank for blank in placement.blanks}
        crc_rows = rows_with_crc(columns["properties"])
        first = 0
        while first < len(positions):
            begin = int(positions[first])
            if self._log.position in blanks and begin != self._log.position:
                self.drain()
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

    def _next_buffer(self, least_bytes: int) -> Bytes:
        """The buffer that is not on its way."""
        self._buffers.reverse()
        if len(self._buffers[0]) < max(least_bytes, BUFFER_BYTES):
            self._buffers[0] = np.empty(max(least_bytes, BUFFER_BYTES), np.uint8)
        return self._buffers[0]

    def _send(self, position: int, data: Bytes, *, more: bool) -> None:
        """Write a buffer: at once if it is the only one, else while the next is filled."""
        self.drain()
        if self._worker is None and not more:
            self._log.write(position, data.data)
            return
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "log")
        self._on_the_way = self._worker.submit(self._log.write, position, data.data)
        self._log.position = position + len(data)

    def drain(self) -> None:
        """Wait until everything is written. Raises what went wrong: NoSpace, Unreadable."""
        future, self._on_the_way = self._on_the_way, None
        if future is not None:
            future.result()

    def close(self) -> None:
        """Let the worker go, whatever became of its last write."""
        if self._worker is not None:
            self._worker.shutdown()
            self._worker = None


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
