"""The commit log for reading: its records in log order, and what lies between them (spec 1.14).

A scan yields `Batch`es of records and an `Extent` for everything else. Damage never ends a scan: it reports the range
and continues at the next good record. `Mark` says what a record is worth.

Several readers can each read a part (`Split`) of the log. A part owns the records and extents that begin in it. A
record names its own position, so a reader that starts in the middle of a record finds the next one. It starts so far
before its part that it is in step when it reaches the part: all parts together give exactly what one walk over the log
gives. A body may hold records that name their positions, too, but no queue names these; without queues, a body of more
than LOOK_BACK_BYTES may deceive the reader.

A DLedger log has an index (spec 01, 1.13): unit i lies at i times its size. Index files are made at full size, so holes
and zeros show where the written part ends. A unit that does not name its own number is invalid.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from ...formats.commit_log import DLEDGER, HEAD_BYTES, PLAIN, POSITION_BYTES, SIZE_DTYPE, Frame
from ...formats.derive import Ragged, decode, dtype_of
from ...formats.derive.program import Noting
from ...formats.derive.ragged import Flags, Ints, Structs, overlapping, written
from ...formats.dledger import HEADER_BYTES, MAGIC_CONFIG_CHANGE, MAGIC_ENTRY
from ...formats.dledger_index import UNIT, UNIT_BYTES
from ...formats.message import MESSAGE
from ..columns import Rows
from ..counted import counted
from ..disk.byte_reader import Unread, at_rate, reading_rate
from ..disk.compressed import plain_name
from ..disk.file_queue import NAME_DIGITS, MappedFile, MappedFileQueue, start_of
from ..errors import NotFound
from .batch import DAMAGED, NO_FILE, Batch, Extent, ExtentKind, LogEnd, NamesRecords, TailHistory
from .message import Mark, mark_texts
from .scan import PEEK_BYTES, SMALL_BYTES, LogItems, LogScan, has_body
from .window import Window, number_at, verdict

_GROUP_GAP_BYTES = 8 << 10
"""Records that begin no further apart are read together: one read is quicker than many."""
_GROUP_BYTES = 4 << 20
_FEW = 16
"""Groups of so few records, or fewer, are read record by record."""
_BATCH_BYTES = 16 << 20
_BATCH_RECORDS = 1 << 12
_UNSORTED_MAX = 1 << 20
"""How many added names wait before they are sorted and duplicates are removed."""

__all__ = [
    "Batch",
    "CommitLog",
    "Extent",
    "ExtentKind",
    "LogEnd",
    "Mark",
    "RecordNames",
    "RecordPlaces",
    "batches",
    "merged",
]


class CommitLog:
    """The commit log of a store, or a single file of a log. Opens files only for reading.

    naming: the queues that name its records, None if unknown. rate_bytes: read at most so many bytes a second.
    """

    def __init__(
        self,
        files: MappedFileQueue,
        dledger: Path | None = None,
        rate_bytes: int | None = None,
        *,
        naming: NamesRecords | None = None,
    ) -> None:
        self.queue = files
        self.naming = naming
        self._dledger = os.fspath(dledger) if dledger else None
        self._rate_bytes = reading_rate() if rate_bytes is None else rate_bytes
        self.queue.aside |= self._rate_bytes is not None

    @classmethod
    def of_file(cls, path: Path, *, frame: Frame = PLAIN) -> CommitLog:
        """The log of a single file. The start position comes from the file's name, else from its first record.

        Raises Missing, Unreadable.
        """
        name = plain_name(path.name)
        start = start_of(name)
        if start is None or len(name) < NAME_DIGITS:
            with MappedFileQueue.of_file(path, 0) as queue:
                start = _own_position(queue.read(0, PEEK_BYTES), frame)
        queue = MappedFileQueue.of_file(path, start)
        return cls(queue, path.parent if frame is DLEDGER else None)

    def __repr__(self) -> str:
        return f"CommitLog({counted(len(self.files), 'file')}, {self.min_offset} to {self.max_file_end})"

    @property
    def files(self) -> list[MappedFile]:
        """Files in log order."""
        return self.queue.files

    @property
    def min_offset(self) -> int:
        """Log position of the first byte."""
        return self.queue.start

    @property
    def max_file_end(self) -> int:
        """Log position behind the last file."""
        return self.queue.end

    @property
    def misnamed(self) -> list[tuple[int, str]]:
        """Position and path of files outside of the log's range whose names only begin like those of log files."""
        names = ((one.path, os.path.basename(one.path).partition(".")[0]) for one in self.queue.foreign)  # noqa: PTH119
        found = ((position, path) for path, name in names if (position := start_of(name)) is not None)
        return sorted(one for one in found if not self.queue.start <= one[0] < self.queue.end)

    def frame_of(self, file: MappedFile) -> Frame:
        """How the items of a file are chained."""
        return DLEDGER if os.path.dirname(file.path) == self._dledger else PLAIN  # noqa: PTH120

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from log position `position`, of one file; fewer at the file's end."""
        return self.queue.read(position, size)

    def record(self, position: int) -> Batch:
        """The record at a log position. Raises NotFound if no whole record begins there."""
        found = self.records(np.array([position], np.int64))
        if not len(found):
            raise NotFound("no record begins here", offset=position)
        return found

    def records(self, positions: Ints) -> Batch:
        """The whole records that begin at `positions` (int64[n]), in that order; other positions are left out.

        All records are in memory at once: ask for a bounded number.
        """
        where = np.asarray(positions, np.int64)
        texts = self._record_texts(where)
        if (gone := texts.length < 0).any():
            where, texts = where[~gone], texts[~gone]
        columns = decode(MESSAGE, texts.buffer, texts.start, texts.start + texts.length)
        checked = verdict(columns, where)
        batch = Batch(columns, where, Mark.NONE, checked.body_crc_ok)
        return batch if checked.whole.all() else batch.take(checked.whole)

    def begins_at(self, position: int) -> bool:
        """Whether a record, or the BLANK at the end of a file, begins at a position. Raises Unreadable."""
        if len(self.records(np.array([position], np.int64))):
            return True
        return any(
            isinstance(item, Extent) and item.kind is ExtentKind.BLANK and item.position == position
            for item in self.scan(position, position + 1, crc=False)
        )

    def torn_end(self, position: int) -> int:
        """Where the record at a position, maybe torn, ends by its size; the position itself, if none begins there."""
        file = self.queue.file_at(position)
        head = self.read(position, PLAIN.position_offset + POSITION_BYTES)
        if file is None or head[PLAIN.position_offset :] != position.to_bytes(POSITION_BYTES, "big"):
            return position
        size = int(np.frombuffer(head, SIZE_DTYPE, 1, PLAIN.size_offset)[0])
        return position + size if 0 < size <= file.end - position else position

    def _record_texts(self, positions: Ints) -> Ragged:
        """The bytes of the record at each position, as many as its size field says; missing if that is impossible.

        Records near one another are read together; others, and groups that cannot be read, record by record.
        """
        order = np.argsort(positions, kind="stable")
        ascending = positions[order]
        parts, rows, alone = list[Ragged](), list[Ints](), list[int]()
        for begin, end, file in self._groups(ascending):
            own = order[begin:end]
            found = self._read_group(file, ascending[begin:end]) if file is not None else None
            if found is None:
                alone += own.tolist()
                continue
            texts, unread = found
            parts.append(texts[~unread].packed())  # drop the bytes between the records
            rows.append(own[~unread])
            alone += own[unread].tolist()
        parts.append(Ragged.of(map(self._record_bytes, positions[alone].tolist())))
        rows.append(np.array(alone, np.int64))
        back = np.empty(len(positions), np.int64)
        back[np.concatenate(rows)] = np.arange(len(positions))
        return Ragged.concat(parts)[back]

    def _groups(self, positions: Ints) -> Iterator[tuple[int, int, MappedFile | None]]:
        """Yield (begin, end, file) of ascending positions that one read can get; file None: read each on its own."""
        begin, gap_max = 0, _GROUP_GAP_BYTES if self._rate_bytes is None else min(_GROUP_GAP_BYTES, PEEK_BYTES)
        for stop in [*(np.flatnonzero(np.diff(positions) > gap_max) + 1).tolist(), len(positions)]:
            while begin < stop:
                file = self.queue.file_at(int(positions[begin])) if stop - begin > _FEW else None
                end = begin + 1
                if file is not None:
                    limit = min(int(positions[begin]) + _GROUP_BYTES, file.end)
                    end = min(stop, int(np.searchsorted(positions, limit)))
                yield begin, end, file
                begin = end

    def _read_group(self, file: MappedFile, positions: Ints) -> tuple[Ragged, Flags] | None:
        """Read the records at ascending positions at once. Returns their bytes, and which of them lie only partly in
        the bytes read; None if some bytes cannot be read.
        """
        first = int(positions[0])
        block = np.empty(min(int(positions[-1]) + PEEK_BYTES, file.end) - first, np.uint8)
        got, unread = self.queue.fill(file, first - file.start, block.data)
        if unread or got < len(block):
            return None
        at = positions - first
        with_head = at[at <= len(block) - HEAD_BYTES]
        size = np.zeros(len(at), np.int64)
        size[: len(with_head)] = overlapping(block[PLAIN.size_offset :], SIZE_DTYPE)[with_head]
        possible = (size >= PLAIN.smallest) & (size <= file.end - positions)
        not_read = possible & ((size > SMALL_BYTES) | (size > len(block) - at))
        return Ragged(block, at, np.where(possible, size, -1)), not_read

    def _record_bytes(self, position: int) -> bytes | None:
        """Bytes of the record at `position`, as many as its size field says; None if that is impossible."""
        file = self.queue.file_at(position) if position >= 0 else None
        if file is None:
            return None
        data = self.queue.readable(file, position - file.start, PEEK_BYTES, HEAD_BYTES)
        if len(data) < HEAD_BYTES:
            return None
        size = int.from_bytes(data[PLAIN.size_offset : PLAIN.size_offset + 4], "big", signed=True)
        if size < PLAIN.smallest or size > file.end - position:
            return None
        if size > SMALL_BYTES:
            head = self.queue.readable(file, position - file.start, PEEK_BYTES, PEEK_BYTES)
            if len(head) < PEEK_BYTES or not has_body(np.frombuffer(head, np.uint8), size):
                return None
        if size > len(data):
            data = self.queue.readable(file, position - file.start, size, size)
        return data[:size] if len(data) >= size else None

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        crc: bool = True,
        recent: TailHistory | None = None,
        cut_bytes: int | None = None,
        reuse: bool = False,
        noting: Noting | None = None,
    ) -> Iterator[Batch | Extent]:
        """Yield records and extents in log order, from log position `start` to before `stop`.

        `reuse`: all batches share one buffer, and each is valid until the next is asked for; the fastest way if no
        batch is kept. Otherwise each batch has its own bytes.

        `crc`: compute the CRC of bodies. `recent`: good records before `start`, if there were any. `cut_bytes`: no
        batch crosses a multiple of it within a file, so a scan that begins at a multiple yields the same batches.
        `noting`: for callers that need topics and properties of all records, which are noted while the bytes are in
        memory. Raises Unreadable for an I/O error.
        """
        begin = None if start is None else self._item_of(start)
        items = LogScan(self, begin, stop, crc, recent, cut_bytes, noting=noting).run()
        return items if reuse else (i.copy() if isinstance(i, Batch) else i for i in items)

    def _item_of(self, position: int) -> int:
        """Position of the item that holds the record at `position`: in a DLedger log the entry around the record."""
        file = self.queue.file_at(position)
        if file is None or (frame := self.frame_of(file)) is PLAIN:
            return position
        begin = position - frame.payload
        at = begin - file.start + frame.position_offset
        if begin < file.start:
            return position
        own = self.queue.readable(file, at, POSITION_BYTES, POSITION_BYTES)
        return begin if own == begin.to_bytes(POSITION_BYTES, "big") else position

    def end(self, start: int | None = None, recent: TailHistory | None = None) -> LogEnd:
        """Find where the last record ends, walking from `start` (a record's position); `recent` as for `scan`."""
        position = self.min_offset if start is None else start
        reason, stored_ms, damage, stale = "no record", None, list[Extent](), False
        behind: Extent | Mark | None = None
        torn: Extent | None = None
        for item in self.scan(start, crc=False, recent=recent, reuse=True):
            if isinstance(item, Batch):
                stale = item.mark > Mark.AFTER_DAMAGE
                if not stale:
                    position, reason, behind, torn = item.end, "the last file ends", None, None
                    stored_ms = int(item.columns.ints("store_timestamp")[-1])
                elif behind is None or (item.mark is Mark.DEAD_TAIL and _may_be_rest_of_cut_record(behind)):
                    behind = item.mark if item.mark is not Mark.EMBEDDED else None  # the extent around it comes next
            elif item.kind is ExtentKind.BLANK:
                if self.queue.file_at(item.end) and not stale:  # the BLANK of stale records is stale
                    position, behind, torn = item.end, None, None
            else:
                behind = behind or item
                if item.kind in DAMAGED:
                    damage.append(item)
                elif item.kind is ExtentKind.TORN_TAIL:
                    torn = torn or item
        before = [item for item in damage if item.position < position]
        size, first = sum(item.size for item in before), before[0] if before else None
        return LogEnd(
            position, _reason_of(behind) or reason, stored_ms, len(before), size, first, torn, len(damage) > len(before)
        )

    def read_around(self, buffer: memoryview, file: MappedFile, offset: int) -> tuple[int, list[Unread]]:
        """Fill `buffer` from byte `offset` of a file. Returns how many bytes there were, and the ranges that cannot be
        read. Keeps to the reading rate. Raises as `MappedFileQueue.read_around`.
        """
        with at_rate(self._rate_bytes):
            return self.queue.read_around(file, offset, buffer)


class RecordPlaces(Rows):
    """n records: log positions and sizes in bytes (0: unknown)."""

    position: Ints
    size: Ints

    @classmethod
    def of(cls, positions: Iterable[int]) -> RecordPlaces:
        """Places of records of unknown size."""
        found = np.fromiter(positions, np.int64)
        return cls(found, np.zeros_like(found))

    def sorted(self, *, reverse: bool = False) -> RecordPlaces:
        """By position, duplicates removed."""
        _, first = np.unique(self.position, return_index=True)
        return self.take(first[::-1] if reverse else first)


def merged(streams: list[Iterator[RecordPlaces]], *, reverse: bool = False) -> Iterator[RecordPlaces]:
    """Merge streams that are each sorted by position into one stream without duplicates.

    Memory: one window of each stream.
    """
    heads: list[_StreamWindow] = []
    for stream in streams:
        _advance(heads, stream, reverse)
    while heads:
        bound = min(int(head.keys[-1]) for head in heads)
        ready, rest = list[RecordPlaces](), list[_StreamWindow]()
        for head in heads:
            stop = int(head.keys.searchsorted(bound, "right"))
            if stop > head.begin:
                ready.append(head.window.take(slice(head.begin, stop)))
            if stop == len(head.keys):
                _advance(rest, head.stream, reverse)
            else:
                rest.append(head._replace(begin=stop) if stop > head.begin else head)
        heads = rest
        yield type(ready[0]).concat(ready).sorted(reverse=reverse)


class _StreamWindow(NamedTuple):
    """The current window of a stream; rows from `begin` on are still to come. keys: their sort keys, ascending."""

    window: RecordPlaces
    keys: Ints
    begin: int
    stream: Iterator[RecordPlaces]


def _advance(heads: list[_StreamWindow], stream: Iterator[RecordPlaces], reverse: bool) -> None:
    """Append the next window of a stream to `heads`, if there is one."""
    window = next(stream, None)
    if window is None:
        return
    keys = -window.position if reverse else window.position
    if (keys[1:] < keys[:-1]).any():  # damaged units name records out of order
        order = np.argsort(keys, kind="stable")
        window, keys = window.take(order), keys[order]
    heads.append(_StreamWindow(window, keys, 0, stream))


class RecordNames:
    """Records that queues name: positions and sizes, int64[n] each, added in any order."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, Ints]] = []
        self._unsorted = 0

    def add(self, position: Ints, size: Ints) -> None:
        self._parts.append((position, size))
        self._unsorted += len(position)
        if self._unsorted > _UNSORTED_MAX:
            self._sorted()

    def sizes(self, position: int) -> Ints:
        """All sizes that are named with a log position."""
        if not self._parts:
            return np.zeros(0, np.int64)
        positions, sizes = self._sorted()
        first, stop = np.searchsorted(positions, [position, position + 1])
        return sizes[first:stop]

    def _sorted(self) -> tuple[Ints, Ints]:
        """All names by position and size, duplicates removed."""
        if self._unsorted or len(self._parts) > 1:
            position, size = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
            order = np.lexsort((size, position))
            position, size = position[order], size[order]
            other = np.append(True, (np.diff(position) != 0) | (np.diff(size) != 0))[: len(order)]
            self._parts, self._unsorted = [(position[other], size[other])], 0
        return self._parts[0]


_Places = TypeVar("_Places", bound=RecordPlaces)


def batches(log: CommitLog, places: _Places) -> Iterator[tuple[_Places, Batch]]:
    """Yield (places, records there), in batches of bounded size and in the order of `places`.

    Places where no record begins have no record in the batch.
    """
    room = np.minimum(np.where(places.size > 0, places.size, _BATCH_BYTES // 16), _BATCH_BYTES)
    chunk = np.cumsum(room) // _BATCH_BYTES
    begin = 0
    while begin < len(places):
        end = int(np.searchsorted(chunk, chunk[begin], side="right"))
        end = min(end, begin + _BATCH_RECORDS)
        part = places.take(slice(begin, end))
        yield part, log.records(part.position)
        begin = end


def _may_be_rest_of_cut_record(behind: Extent | Mark) -> bool:
    """Whether dead records may follow: what lies behind is readable damage, as a start leaves of a cut record."""
    return isinstance(behind, Extent) and behind.kind is ExtentKind.DAMAGE and not behind.unread


def _reason_of(behind: Extent | Mark | None) -> str:
    """Text of what lies behind the last record, "" for nothing."""
    if isinstance(behind, Mark):
        return mark_texts()[behind.name.lower()].shown
    return "" if behind is None else behind.told


def _own_position(head: bytes, frame: Frame) -> int:
    """Log position that the first item of a file names, 0 if it makes no sense."""
    at = frame.position_offset
    if len(head) < at + 8 or number_at(Window(bytearray(head), len(head), 0), 0) == 0:
        return 0
    position = int.from_bytes(head[at : at + 8], "big", signed=True)
    return max(0, position)


LOOK_BACK_BYTES = (4 << 20) + (1 << 16)
"""Room for the largest record of a broker with default `maxMessageSize`. If this range has no record, because one is
larger or there is damage, a walk begins farther back.
"""


SPLIT_BYTES_MIN = 32 << 20
"""A smaller split costs more to start than to read."""
SPLIT_BYTES_MAX = 256 << 20
_STEP_BYTES = 1 << 16
_PROBES = 8
"""How many places of the look-back range are tried: the first record may have no unit any more, or not yet."""


class Split(NamedTuple):
    """Log positions p with start ≤ p < stop."""

    start: int
    stop: int


def splits(start: int, stop: int, split_bytes: int) -> Iterator[Split]:
    """Cut start ≤ p < stop at the multiples of `split_bytes`."""
    while start < stop:
        end = min(stop, start - start % split_bytes + split_bytes)
        yield Split(start, end)
        start = end


def split_bytes_for(total_bytes: int, cores: int) -> int:
    """The size of a split that gives work to every core, within SPLIT_BYTES_MIN and SPLIT_BYTES_MAX."""
    return max(SPLIT_BYTES_MIN, min(SPLIT_BYTES_MAX, -(-total_bytes // max(1, cores))))


def scan_split(
    log: CommitLog,
    split: Split,
    look_back_bytes: int = LOOK_BACK_BYTES,
    *,
    crc: bool = False,
    noting: Noting | None = None,
) -> Iterator[Batch | Extent]:
    """Yield what begins in a split: missing files first, the rest in log order. crc, noting: as of `CommitLog.scan`.

    Marks of records are not reliable: a reader of the middle of the log cannot know whether a record stands behind
    damage of another split, or behind the log's end (the last split should end there). A batch is valid until the next
    one is asked for. Memory is that of `CommitLog.scan`. Raises Unreadable.
    """
    for gap in log.queue.gaps:
        followed = gap.position + gap.size < log.max_file_end  # not only an empty file follows
        if followed and split.start <= gap.position < split.stop:
            yield Extent(ExtentKind.MISSING, gap.position, gap.size, NO_FILE)
    begin = in_step(log, split.start, look_back_bytes)
    for item in log.scan(begin, split.stop, crc=crc, reuse=True, noting=noting):
        if isinstance(item, Extent):
            if item.position >= split.start and item.kind is not ExtentKind.MISSING:
                yield item
        elif item.position[0] >= split.start:
            yield item
        elif item.position[-1] >= split.start:
            yield item.take(item.position >= split.start)


def in_step(log: CommitLog, position: int, look_back_bytes: int = LOOK_BACK_BYTES) -> int:
    """Where to begin a walk that has to be in step at `position`: at a good record before it, or at its file's start.

    From the middle of a record nobody can tell damage from the rest of the record, or a real record from one inside a
    body: a record is good if its unit names it, or if its queue does not exist. Raises Unreadable.
    """
    file = log.queue.file_at(position)
    if file is None:
        return position
    while (begin := position - look_back_bytes) > file.start:
        for probe in range(begin, position, max(1, look_back_bytes // _PROBES)):
            found = record_behind(log, probe, position)
            if found is None:
                break
            if log.naming is None or not log.naming.known:
                return found
            record = log.records(np.array([found + log.frame_of(file).payload], np.int64))
            if len(record) and log.naming.has_unit(record):
                return found
        position, look_back_bytes = begin, 2 * look_back_bytes
    return file.start


def record_behind(log: CommitLog, position: int, stop: int | None = None) -> int | None:
    """Log position of the first record from `position` on in the same file, and before `stop`; None without one.

    Raises Unreadable.
    """
    file = log.queue.file_at(position)
    if file is None:
        return None
    found = LogItems(log, file).search(position - file.start, None if stop is None else stop - file.start)
    return None if found is None else file.start + found


def used_bytes(log: CommitLog, file: MappedFile) -> int:
    """About how many bytes of a file are written; zeros follow them. Raises Unreadable."""
    low, high = 0, file.size
    while high - low > _STEP_BYTES:
        middle = (low + high) // 2
        room = bytearray(min(_STEP_BYTES, file.size - middle))
        _, unread = log.queue.fill(file, middle, memoryview(room))
        if unread or any(room):  # unreadable counts as written: the full read reports it
            low = middle
        else:
            high = middle
    return high


WINDOW_UNITS = 1 << 14


class IndexUnits(NamedTuple):
    """Units that were written: unit numbers int64[n], and a structured array of UNIT."""

    number: Ints
    units: Structs


def index_units(files: MappedFileQueue, start: int = 0) -> Iterator[IndexUnits]:
    """Yield units from number `start` on, except all-zero ones. Raises Unreadable."""
    for file in files.files:
        if start * UNIT_BYTES < file.end:
            yield from _index_units_of(files, file, max(0, start - file.start // UNIT_BYTES))


def _index_units_of(files: MappedFileQueue, file: MappedFile, first: int) -> Iterator[IndexUnits]:
    window = WINDOW_UNITS * UNIT_BYTES
    for offset, data in files.windows(file, first * UNIT_BYTES, file.size, window, UNIT_BYTES):
        count = len(data) // UNIT_BYTES
        used = written(data, count, UNIT_BYTES)
        if used.any():
            numbers = (file.start + offset) // UNIT_BYTES + np.flatnonzero(used)
            yield IndexUnits(numbers, np.frombuffer(data, dtype_of(UNIT), count)[used])


def is_valid(part: IndexUnits) -> Flags:
    """bool[n]: the unit is of an entry and names its own number."""
    units = part.units
    valid: Flags = (units["magic"] >= MAGIC_ENTRY) & (units["pos"] >= 0)
    valid &= (units["magic"] <= MAGIC_CONFIG_CHANGE) & (units["size"] >= HEADER_BYTES)
    valid &= (units["index"] == part.number) & (units["term"] >= 0)
    return valid
