"""What a scan of the commit log yields: batches of records, and the extents between them.

Records that were torn inside their properties: body and header are good, keys and tags are not.

No broker checks properties (spec 01, 1.6; 7.12, B27): a page that never reached the disk leaves zero
bytes there, and the record counts as good. A writer never puts a zero byte into properties.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

import numpy as np
import numpy.typing as npt

from ...formats.derive import Columns, Ragged, decode
from ...formats.derive.ragged import Ints
from ...formats.message import MESSAGE
from ..columns.rows import Key, Rows
from ..counted import counted
from .record_status import Mark


class ExtentKind(StrEnum):
    """What lies between records."""

    BLANK = "blank"
    DAMAGE = "damage"
    MISSING = "missing"
    TORN_TAIL = "torn_tail"
    ZEROS = "zeros"
    STALE_BYTES = "stale_bytes"


NO_FILE = "no file holds this range"
"""The reason of what is MISSING."""


@dataclass(frozen=True)
class Extent:
    """`size` bytes from log position `position` that are no records, and why.

    unread: so many of them the disk does not give.
    """

    kind: ExtentKind
    position: int
    size: int
    reason: str = ""
    unread: int = 0

    @property
    def end(self) -> int:
        """Log position behind the last byte."""
        return self.position + self.size


@dataclass(frozen=True)
class Inner(Rows):
    """Which rows of a batch are messages inside of records (`inner_batch.unwrapped`).

    records: the records as they are stored; row int64[n]: which of them each row is, or is inside
    of. number int64[n]: which message of its record, from 0 on; -1: the row is the record itself.
    count int64[n]: messages in its record.
    """

    records: Batch
    row: Ints
    number: Ints
    count: Ints

    def take(self, key: Key) -> Self:
        """Some of the rows; the records are those of all."""
        return type(self)(self.records, self.row[key], self.number[key], self.count[key])


@dataclass(frozen=True)
class Batch(Rows):
    """n records in log order; `columns` of MESSAGE point into a buffer.

    One of a scan that reuses its buffer is valid until the next one is asked for; `copy` makes one that stays.
    `position` int64[n]; `mark` is one for all; `body_crc_ok` bool[n], None if not computed.
    `inner`: None where each row is a record; else a row may be a message inside of one.
    """

    columns: Columns
    position: Ints
    mark: Mark
    body_crc_ok: npt.NDArray[np.bool_] | None
    inner: Inner | None = None

    @property
    def end(self) -> int:
        """Log position behind the last record."""
        return int(self.position[-1]) + int(self.columns.ints("total_size")[-1])

    def copy(self) -> Batch:
        """The same records in a buffer of their own."""
        total = self.columns.ints("total_size").astype(np.int64)
        source = self.columns.ragged("body").buffer
        packed = Ragged(source, self.columns.starts, total).packed()
        crc_ok = None if self.body_crc_ok is None else self.body_crc_ok.copy()
        columns = decode(MESSAGE, packed.buffer, packed.start)
        return replace(self, columns=columns, position=self.position.copy(), body_crc_ok=crc_ok)

    def __repr__(self) -> str:
        if not len(self):
            return "Batch(no record)"
        first, last = int(self.position[0]), int(self.position[-1])
        return f"Batch({counted(len(self), 'record')} at {first} to {last})"


@dataclass(frozen=True)
class LogEnd:
    """Where the log ends and what lies behind it.

    store_timestamp: when its last record was stored (ms). damaged_ranges, damaged_bytes: what was
    met on the way, missing files included.
    """

    position: int
    reason: str
    store_timestamp: int | None = None
    damaged_ranges: int = 0
    damaged_bytes: int = 0


_PAGE_BYTES = 4096
"""What is lost at once; a lost page in the middle needs properties longer than it."""


def torn_properties(columns: Columns) -> npt.NDArray[np.bool_]:
    """bool[n]: zero bytes end the properties, or stand in the middle of long ones."""
    text = columns.ragged("properties")
    torn = np.zeros(len(text), np.bool_)
    some = np.flatnonzero(text.length > 0)
    torn[some] = text.buffer[text.start[some] + text.length[some] - 1] == 0
    for row in np.flatnonzero((text.length > _PAGE_BYTES) & ~torn).tolist():
        torn[row] = 0 in text[row]
    return torn
