"""How much of a record is proven: structure, body, all of it. Pure, over columns."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ...formats.derive import Columns, Ragged
from ...formats.derive.ragged import Ints, overlapping
from ...formats.message import SMALLEST
from ...formats.message_properties import CRC32, CRC_ITEM_BYTES, crc_ok
from ..log.window import body_crc_ok
from ..put.message_columns import rows_with_crc

Flags = npt.NDArray[np.bool_]

LARGEST_RECORD = 64 << 20
"""A broker's limit is 4 MiB by default; what says to be larger than this is no record."""
_LATEST_MS = 1 << 43
_LARGEST_POSITION = 1 << 62
_BLOCK_BYTES = 512
_WORD = np.dtype(np.uint64)
_CRC_WORD = np.frombuffer(CRC32.encode(), _WORD, 1)[0]
_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
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
    time = columns.ints("store_timestamp")
    found &= (time >= 0) & (time < _LATEST_MS)
    position = columns.ints("physical_offset")
    found &= (position >= 0) & (position < _LARGEST_POSITION)
    return found


def structural(columns: Columns) -> Flags:
    """bool[n]: plausible, and all lengths fit and add up to the size that the record says."""
    found = plausible(columns) & columns.ok
    found &= columns.ends - columns.starts == columns.ints("total_size")
    topic = columns.ragged("topic")
    found &= topic.length > 0
    found &= topic.buffer[np.where(found, topic.start, 0)] > _SPACE
    return found


def grades(columns: Columns) -> Ints:
    """`Grade` of each of the records, which are structural, int64[n]."""
    count = len(columns)
    body = body_crc_ok(columns, np.ones(count, np.bool_))
    # an empty body has no CRC, and a broker writes 0
    body &= (columns.ints("body_length") > 0) | (columns.ints("body_crc") == 0)
    torn = _torn(columns.ragged("properties"))
    for row in _with_crc(columns.ragged("properties")).tolist():
        torn[row] |= crc_ok(_bytes_of(columns, row)) is False
    found = np.where(torn, Grade.BODY, Grade.WHOLE)
    return np.where(body, found, Grade.STRUCTURE).astype(np.int64)


def _with_crc(properties: Ragged) -> Ints:
    """Rows whose properties end with a CRC of the record: most stores have none at all."""
    words = overlapping(properties.buffer, _WORD)
    at = properties.start + properties.length - CRC_ITEM_BYTES
    inside = (properties.length >= CRC_ITEM_BYTES) & (at < len(words))
    if inside.all():
        likely = np.flatnonzero(words[at] == _CRC_WORD)
    else:
        likely = np.flatnonzero(inside)
        likely = likely[words[at[likely]] == _CRC_WORD]
    found: Ints = likely[rows_with_crc(properties[likely])]
    return found


def _bytes_of(columns: Columns, row: int) -> bytes:
    data = columns.ragged("body").buffer
    return data[int(columns.starts[row]) : int(columns.ends[row])].tobytes()


def _torn(properties: Ragged) -> Flags:
    """bool[n]: no text of a broker: zeros where a block was not written, or what is no UTF-8.

    A disk loses whole blocks: what is shorter has lost its end, if anything but its length.
    """
    words = overlapping(properties.buffer, _WORD)
    length = properties.length
    if not len(words):
        odd = length > 0
    else:
        last = properties.start + (length - _WORD.itemsize)
        if int(last.min(initial=0)) < 0 or int(last.max(initial=0)) >= len(words):
            last = np.clip(last, 0, len(words) - 1)
        odd = _not_plain(words[last])
        odd |= length > _BLOCK_BYTES
        odd &= length > 0
    found = np.zeros(len(properties), np.bool_)
    for row in np.flatnonzero(odd).tolist():
        found[row] = not _is_text(properties[row])
    return found


def _not_plain(words: npt.NDArray[np.uint64]) -> Flags:
    """bool[n]: one of the eight bytes is 0 or no ASCII."""
    tops = words - _ONES
    tops |= words
    tops &= _TOPS
    found: Flags = tops != 0
    return found


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False
