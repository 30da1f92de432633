"""How much of a record is proven: structure, body, all of it. Pure, over columns."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ...formats.derive import Columns, Ragged
from ...formats.derive.ragged import Ints
from ...formats.message import SMALLEST
from ...formats.message_properties import crc_ok
from ..scan import body_crc_ok
from ..write.message_columns import rows_with_crc

Flags = npt.NDArray[np.bool_]

LARGEST_RECORD = 64 << 20
"""A broker's limit is 4 MiB by default; what says to be larger than this is no record."""
_LATEST_MS = 1 << 43
_LARGEST_POSITION = 1 << 62
_FLAGS_END = 1 << 16
_NOT_ASCII = 0x80
_SPACE = 0x20


class Grade(IntEnum):
    """What is proven of a record, the best first."""

    WHOLE = 0
    """Lengths, body CRC, and the CRC of the whole record where it has one."""
    BODY = 1
    """The body has its CRC, the properties are torn or contradict theirs."""
    STRUCTURE = 2
    """All lengths fit, the body has not its CRC."""

    @property
    def label(self) -> str:
        """The name in JSON."""
        return self.name.lower()


def plausible(columns: Columns) -> Flags:
    """bool[n]: the fields before the body are such as a broker writes."""
    size, body = columns.ints("total_size"), columns.ints("body_length")
    found: Flags = (size >= SMALLEST) & (size <= LARGEST_RECORD)
    found &= (body >= 0) & (body <= size - SMALLEST)
    found &= (columns.ints("queue_id") >= 0) & (columns.ints("queue_offset") >= 0)
    for name in ("born_timestamp", "store_timestamp"):
        time = columns.ints(name)
        found &= (time >= 0) & (time < _LATEST_MS)
    position = columns.ints("physical_offset")
    found &= (position >= 0) & (position < _LARGEST_POSITION)
    flags = columns.ints("sys_flag")
    found &= (flags >= 0) & (flags < _FLAGS_END)
    return found


def structural(columns: Columns) -> Flags:
    """bool[n]: plausible, and all lengths fit and add up to the size that the record says."""
    found = plausible(columns) & columns.ok
    found &= columns.ends - columns.starts == columns.ints("total_size")
    topic = columns.ragged("topic")
    rows = np.flatnonzero(found & (topic.length > 0))
    named = np.zeros(len(columns), np.bool_)
    ends = topic.start[rows] + topic.length[rows] - 1
    named[rows] = (topic.buffer[topic.start[rows]] > _SPACE) & (topic.buffer[ends] > _SPACE)
    return found & named


def grades(columns: Columns) -> Ints:
    """`Grade` of each of the records, which are structural, int64[n]."""
    count = len(columns)
    body = body_crc_ok(columns, np.ones(count, np.bool_))
    # an empty body has no CRC, and a broker writes 0
    body &= (columns.ints("body_length") > 0) | (columns.ints("body_crc") == 0)
    torn = _torn(columns.ragged("properties"))
    for row in rows_with_crc(columns.ragged("properties")).tolist():
        torn[row] |= crc_ok(_bytes_of(columns, row)) is False
    found = np.where(torn, Grade.BODY, Grade.WHOLE)
    return np.where(body, found, Grade.STRUCTURE).astype(np.int64)


def _bytes_of(columns: Columns, row: int) -> bytes:
    data = columns.ragged("body").buffer
    return data[int(columns.starts[row]) : int(columns.ends[row])].tobytes()


def _torn(properties: Ragged) -> Flags:
    """bool[n]: no text of a broker: zeros where a page was not written, or what is no UTF-8."""
    found = np.zeros(len(properties), np.bool_)
    packed = properties.packed()
    data = packed.buffer
    if not len(data) or (data.min() > 0 and data.max() < _NOT_ASCII):
        return found
    odd = np.flatnonzero((data == 0) | (data >= _NOT_ASCII))
    # where the text begins that such a byte is in; empty ones lie before the next one's begin
    for row in np.unique(np.searchsorted(packed.start, odd, side="right") - 1).tolist():
        found[row] = not _is_text(packed[row])
    return found


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False
