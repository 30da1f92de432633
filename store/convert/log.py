"""The records of a log once more, one behind the other, as a plain log (spec 01, 1.13, 1.15).

Of a DLedger log the entry around each record goes, so all positions change. What lies between records
and is damaged keeps its room: the plan of `recover` closes it, with a tombstone for each message that
was there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...formats.blank import BLANK_BYTES
from ...formats.commit_log import PLAIN, POSITION_DTYPE
from ...formats.derive.ragged import Bytes, Ints, Ragged, overlapping
from ...formats.message import MESSAGE
from ...formats.message_properties import CRC_ITEM_BYTES, crc_item, ends_with_crc
from ..log.batch import Batch, Extent, ExtentKind
from ..log.commit_log import CommitLog
from ..log.message import Mark
from ..log.write import LogWriter, place_columns
from .moved import NOWHERE, Moved

#: From where a record names its half message to its body.
_TO_BODY: int = MESSAGE.prepared_transaction_offset.sizeof() + MESSAGE.body_length.sizeof()
#: A hole takes at least that: a tombstone with the longest topic that is usual.
_LEAST_ROOM = 512
_DAMAGED = (ExtentKind.DAMAGE, ExtentKind.MISSING)


@dataclass
class Copied:
    """What was written. damaged: ranges between good records. wrong: records with a wrong checksum.

    dead: records of an earlier life of the log, which are left out.
    """

    records: int = 0
    bytes: int = 0
    damaged: int = 0
    damaged_bytes: int = 0
    wrong: int = 0
    dead: int = 0


def copy_log(
    log: CommitLog, writer: LogWriter, moved: Moved, told: Callable[[int], None]
) -> Copied:
    """Write the good records of a log. told: hears of so many more bytes. Raises Unreadable, NoSpace."""
    done = Copied()
    hole = 0
    for item in log.scan(reuse=True):
        if isinstance(item, Extent):
            if item.kind in _DAMAGED:
                done.damaged += 1
                done.damaged_bytes += item.size
                hole += item.size
            continue
        if item.mark > Mark.AFTER_DAMAGE:
            done.dead += len(item)
            continue
        if hole and done.records:
            _leave_room(writer, hole)
        hole = 0
        _write(item, writer, moved)
        done.records += len(item)
        if item.body_crc_ok is not None:
            done.wrong += int((~item.body_crc_ok).sum())
        size = int(item.columns.ints("total_size").sum())
        done.bytes += size
        told(size)
    return done


def _leave_room(writer: LogWriter, size: int) -> None:
    """Zeros in place of what was damaged."""
    size = min(max(size, _LEAST_ROOM), writer.file_size - BLANK_BYTES)
    position = writer.append(size)
    writer.write(position, bytes(size))


def _write(batch: Batch, writer: LogWriter, moved: Moved) -> None:
    columns = batch.columns
    sizes = columns.ints("total_size").astype(np.int64)
    placed = place_columns(writer.position, sizes, writer.file_size)
    packed = Ragged(columns.ragged("body").buffer, columns.starts, sizes).packed()
    moved.add(batch.position, placed.positions)
    _put(packed.buffer, packed.start + PLAIN.position_offset, placed.positions)
    _follow_halves(batch, packed, moved)
    _check_again(packed, sizes)
    blanks = {blank.position + blank.size: blank for blank in placed.blanks}
    files = placed.positions // writer.file_size
    for rows in np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(files)) + 1):
        begin, behind = int(packed.start[rows[0]]), int(packed.start[rows[-1]] + sizes[rows[-1]])
        position = int(placed.positions[rows[0]])
        if position in blanks:
            writer.write_blank(blanks[position])
        writer.write(position, packed.buffer[begin:behind].data)


def _put(buffer: Bytes, at: Ints, positions: Ints) -> None:
    """Write positions into a buffer, at any bytes of it."""
    overlapping(buffer, POSITION_DTYPE)[at] = positions


def _follow_halves(batch: Batch, packed: Ragged, moved: Moved) -> None:
    """The end of a transaction names the half message by its position."""
    columns = batch.columns
    named = columns.ints("prepared_transaction_offset").astype(np.int64)
    rows = np.flatnonzero(named > 0)
    if not len(rows):
        return
    new = moved.places(named[rows])
    rows, new = rows[new != NOWHERE], new[new != NOWHERE]
    body = columns.ragged("body").start - columns.starts
    _put(packed.buffer, packed.start[rows] + body[rows] - _TO_BODY, new)


def _check_again(packed: Ragged, sizes: Ints) -> None:
    """A checksum over the whole record covers its position (spec 01, 1.7)."""
    view = packed.buffer.data
    ends = packed.start + sizes
    maybe = np.flatnonzero(
        overlapping(packed.buffer, np.dtype("S2"))[ends - CRC_ITEM_BYTES] == b"__"
    )
    for row in maybe.tolist():
        begin, end = int(packed.start[row]), int(ends[row])
        if ends_with_crc(bytes(view[begin:end])):
            item = crc_item(bytes(view[begin : end - CRC_ITEM_BYTES]))
            view[end - CRC_ITEM_BYTES : end] = item
