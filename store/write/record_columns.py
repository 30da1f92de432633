"""Encoding placed records buffer by buffer, and writing each buffer with one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...formats.derive import Ragged, encode
from ...formats.derive.ragged import Bytes, Ints
from ...formats.message import MESSAGE
from ...formats.message_properties import CRC_ITEM_BYTES, crc_item
from .commit_log import LogWriter, Placement
from .message_columns import rows_with_crc

BUFFER_BYTES = 4 << 20
"""Size of the buffer, or of the largest record."""


def write_records(log: LogWriter, columns: dict[str, Any], placement: Placement) -> None:
    """Encode the records buffer by buffer and write each with one call."""
    positions = placement.positions
    ends = positions + columns["total_size"]
    blanks = {blank.position: blank for blank in placement.blanks}
    largest = int(columns["total_size"].max(initial=0))
    buffer = np.empty(max(BUFFER_BYTES, largest), np.uint8)
    crc_rows = rows_with_crc(columns["properties"])
    first = 0
    while first < len(positions):
        begin = int(positions[first])
        if log.position in blanks and begin != log.position:
            log.write_blank(blanks[log.position])
        file_end = begin - begin % log.file_size + log.file_size
        limit = min(file_end, begin + len(buffer))
        last = int(np.searchsorted(ends, limit, side="right"))
        rows = slice(first, last)
        part = {
            name: column[rows] if isinstance(column, np.ndarray | Ragged) else column
            for name, column in columns.items()
        }
        at = positions[rows] - begin
        encode(MESSAGE, part, at, buffer)
        for row in crc_rows[(crc_rows >= first) & (crc_rows < last)].tolist():
            _set_crc(buffer, int(positions[row]) - begin, int(columns["total_size"][row]))
        data = buffer[: int(ends[last - 1]) - begin]
        log.write(begin, data.data)
        if log.remembers:
            _remember(log, data, at, columns["total_size"][rows])
        first = last


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
