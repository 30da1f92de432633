"""What a scan of the commit log yields: batches of records, and the extents between them.

Records that were torn inside their properties: body and header are good, keys and tags are not.

No broker checks properties (spec 01, 1.6; 7.12, B27): a page that never reached the disk leaves zero
bytes there, and the record counts as good. A writer never puts a zero byte into properties.

The newest good records of a scan, to tell dead ones behind the log end (spec 7.4, step 4).

A broker that cuts the log leaves the bytes behind the cut as they are, then writes new records
over the first of them. What remains is whole and in place, but older than the records before it,
or of a queue offset that has been given again. A clock that was set back makes good records behind
damage look old, too: there a queue names the record that stood where the damage begins, while
nothing names what a broker has written over (`references.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import numpy as np

from ...formats.derive import Columns, Ragged, decode
from ...formats.derive.ragged import Flags, Ints
from ...formats.message import MESSAGE, TRANSACTION_MASK, SysFlag
from ..columns.rows import Key, Rows
from ..counted import counted
from .record_status import Mark

if TYPE_CHECKING:
    from ...formats.commit_log import Frame
    from ..disk.byte_reader import Unread
    from ..disk.file_queue import MappedFile, MappedFileQueue


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

    def __len__(self) -> int:
        return len(self.row)

    def take(self, key: Key) -> Self:
        """Some of the rows; the records are those of all."""
        return type(self)(self.records, self.row[key], self.number[key], self.count[key])


class Batch(Rows):
    """n records in log order; `columns` of MESSAGE point into a buffer.

    One of a scan that reuses its buffer is valid until the next one is asked for; `copy` makes one that stays.
    `position` int64[n]; `mark` is one for all; `body_crc_ok` bool[n], None if not computed.
    `inner`: None where each row is a record; else a row may be a message inside of one.
    """

    columns: Columns
    position: Ints
    mark: Mark
    body_crc_ok: Flags | None
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
        return self.replace(columns=columns, position=self.position.copy(), body_crc_ok=crc_ok)

    def __repr__(self) -> str:
        if not len(self):
            return "Batch(no record)"
        first, last = int(self.position[0]), int(self.position[-1])
        return f"Batch({counted(len(self), 'record')} at {first} to {last})"


class LogEnd(NamedTuple):
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


def torn_properties(columns: Columns) -> Flags:
    """bool[n]: zero bytes end the properties, or stand in the middle of long ones."""
    text = columns.ragged("properties")
    torn = np.zeros(len(text), np.bool_)
    some = np.flatnonzero(text.length > 0)
    torn[some] = text.buffer[text.start[some] + text.length[some] - 1] == 0
    for row in np.flatnonzero((text.length > _PAGE_BYTES) & ~torn).tolist():
        torn[row] = 0 in text[row]
    return torn


#: Records before a gap whose queue offsets are compared with those behind it.
LOOK_BACK = 512


class NamesRecords(Protocol):
    """The queues of a store, as far as they name records of its log."""

    def names(self, begin: int, end: int) -> bool:
        """A unit names a record at log position `begin` that ends at or before `end`."""


class ScannedLog(Protocol):
    """What a scan asks of a commit log."""

    queue: MappedFileQueue

    @property
    def naming(self) -> NamesRecords | None: ...
    @property
    def files(self) -> list[MappedFile]: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def max_file_end(self) -> int: ...
    def frame_of(self, file: MappedFile) -> Frame: ...
    def read_around(
        self, buffer: memoryview, file: MappedFile, offset: int
    ) -> tuple[int, list[Unread]]: ...
    def records(self, positions: Ints) -> Batch: ...


class TailHistory:
    """Time of the newest record and places of the last ones."""

    def __init__(self) -> None:
        self._store_timestamp = 0
        self._position: Ints = np.empty(0, np.int64)

    def note(self, position: Ints, columns: Columns) -> None:
        """Remember the last records of a batch."""
        self.remember(position, int(columns.ints("store_timestamp")[-1]))

    def remember(self, position: Ints, store_timestamp: int) -> None:
        """Remember the last of the records at `position`; when the very last one was stored."""
        self._store_timestamp = store_timestamp
        self._position = position[-LOOK_BACK:].copy()

    def is_dead(self, columns: Columns, log: ScannedLog, gap: tuple[int, int]) -> bool:
        """The records behind a gap were cut off by a broker before. gap: its log positions."""
        if not len(self._position):
            return False
        older = int(columns.ints("store_timestamp")[0]) < self._store_timestamp
        if older and not (log.naming and log.naming.names(*gap)):
            return True
        taken = _queue_offsets(log.records(self._position).columns)
        return any(
            offset <= taken.get(queue, -1) for queue, offset in _queue_offsets(columns).items()
        )


def _queue_offsets(columns: Columns) -> dict[tuple[bytes, int], int]:
    """Highest queue offset by (topic, queue id), of records that have one of their own."""
    state = columns.ints("sys_flag") & TRANSACTION_MASK
    counted = (state == 0) | (state == SysFlag.COMMIT)
    found: dict[tuple[bytes, int], int] = {}
    rows = zip(
        columns.ragged("topic")[counted].tolist(),
        columns.ints("queue_id")[counted].tolist(),
        columns.ints("queue_offset")[counted].tolist(),
        strict=True,
    )
    for topic, queue_id, offset in rows:
        found[topic, queue_id] = max(offset, found.get((topic, queue_id), -1))
    return found
