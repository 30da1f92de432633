"""What a broker's load does to index files, which of them can stay, and from where the log is indexed again.

Load (spec 3.4): a file whose name is no number is skipped. After a crash every file with an end time behind the
checkpoint's is deleted; later messages are indexed in files behind the newest one that is kept.

A plan (spec 3.4, 7.11): an index can always be derived from the log. So files stay up to the first that is not sound,
reaches beyond the log's end, or leaves out a record before that end; the rest is rebuilt. A file that is not full is
rebuilt, too, instead of being continued: nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...formats.derive.ragged import Ints
from ...formats.hashing import java_integer
from ...formats.index_file import file_size
from ..broker.dispatch import dispatch
from ..broker.dispatch_record import Dispatching
from ..broker.snapshot import DirectoryEntry, Snapshot
from ..disk.files import Edit
from ..errors import Unreadable, broken_link
from ..log.batch import Batch, good_records
from ..log.commit_log import CommitLog
from .read import Geometry, Header, IndexFile, sizes_of


class StoredIndex(NamedTuple):
    """One index file: its directory entry and its header."""

    entry: DirectoryEntry
    header: Header

    def open(self, geometry: Geometry) -> IndexFile:
        """Open the file for reading."""
        return IndexFile(self.entry.path, geometry)


class IndexState(NamedTuple):
    """The index files after a load."""

    kept: list[StoredIndex]
    deleted: list[StoredIndex]


def stored_files(entries: Sequence[DirectoryEntry]) -> Iterator[StoredIndex]:
    """Yield the files whose name is a number, in the order of the entries; links to nothing are left out. Raises
    Unreadable.
    """
    for entry in entries:
        named = java_integer(entry.name, 64) is not None
        if named and not entry.directory and (entry.size or broken_link(entry.path) is None):
            with IndexFile(entry.path, Geometry(0, 0)) as file:
                yield StoredIndex(entry, file.read_header())


def load_index(entries: Sequence[DirectoryEntry], crashed: bool, index_time: int) -> IndexState:
    """Load index files as a broker does; `index_time` is the checkpoint's indexMsgTimestamp."""
    found = IndexState([], [])
    for file in stored_files(entries):
        gone = crashed and file.header.end_timestamp > index_time
        (found.deleted if gone else found.kept).append(file)
    return found


_NO_RANGE = (0, -1)
#: Of older files above this size only the headers are checked.
_CHECKED_BYTES = 64 << 20


class IndexFiles(NamedTuple):
    """The index files of a store, oldest first. good: how many files at the front are sound."""

    files: list[StoredIndex]
    geometry: Geometry
    good: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> IndexFiles:
        """Check the index files of a store. Raises Unreadable."""
        geometry = sizes_of(snapshot.layout).of_index
        files = list(stored_files(snapshot.index))
        good = 0
        for file in files:
            newest = file is files[-1]
            if not (newest and _waits_for_items(files, geometry, snapshot)):
                checked = newest or file.entry.size <= _CHECKED_BYTES
                if not is_good(file, geometry, snapshot, content=checked):
                    break
            good += 1
        return cls(files, geometry, good)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """First and last log position in each sound file; a file without items has (0, -1)."""
        return [
            (header.begin_physical_offset, header.end_physical_offset) if header.index_count > 1 else _NO_RANGE
            for _, header in self.files[: self.good]
        ]

    def fix(self, kept: list[StoredIndex]) -> IndexFix:
        """Plan to continue behind the last full file of `kept`, which are the first of the files.

        In an index that was put together from parts, a file that goes may hold older records than one that would stay:
        then all files go.
        """
        while kept and kept[-1].header.index_count < self.geometry.items:
            kept.pop()
        stay, go = self.ranges[: len(kept)], self.ranges[len(kept) :]
        reached = max((end for _, end in stay), default=-1)
        older = (range_ for range_ in go if range_ != _NO_RANGE and range_[0] < reached)
        if not all(any(begin <= b and e <= end for begin, end in stay) for b, e in older):
            kept.clear()
        gone = [file.entry for file in self.files[len(kept) :]]
        return IndexFix(kept[-1] if kept else None, gone)


def uncovered(ranges: Sequence[tuple[int, int]], batch: Batch, *, tagged: bool) -> int | None:
    """Log position of the first record with keys that lies in none of the `ranges`; None if there is none."""
    positions = batch.position
    bare = np.ones(len(positions), np.bool_)
    first, last = int(positions[0]), int(positions[-1])
    for begin, end in ranges:
        if begin <= last and end >= first:  # there may be very many
            bare &= (positions < begin) | (positions > end)
    rows = np.flatnonzero(bare)
    if not len(rows):
        return None
    items = dispatch(batch.take(rows), Dispatching(tagged, multi_dispatch=False)).items
    return int(items.physical_offset[0]) if len(items) else None


@dataclass
class IndexAudit:
    """Checks the index against the records of the log.

    good: how many files at the front are sound and lie before the log's end. tagged: tags are indexed, too.
    """

    files: IndexFiles
    good: int
    log_end: int
    tagged: bool
    #: Position of the first record with keys that no sound file covers, None if all are covered.
    uncovered: int | None = None
    #: First and last log position in each of the first `good` files.
    ranges: list[tuple[int, int]] = field(default_factory=list)
    #: The same of the other sound files: from the first that reaches behind the log's end.
    given_up: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, files: IndexFiles, log_end: int, *, tagged: bool) -> IndexAudit:
        """Take the index files that lie before the log's end."""
        ends = [end for _, end in files.ranges]
        good = next((i for i, end in enumerate(ends) if end >= log_end), files.good)
        ranges, given_up = files.ranges[:good], files.ranges[good:]
        return cls(files, good, log_end, tagged, ranges=ranges, given_up=given_up)

    def records(self, batch: Batch) -> None:
        """Take the next records of the log."""
        if self.uncovered is not None or int(batch.position[0]) >= self.log_end:
            return
        found = uncovered(self.ranges, batch, tagged=self.tagged)
        if found is not None and found < self.log_end:
            self.uncovered = found

    @property
    def can_take_runs(self) -> bool:
        """Whether `note_run` is as good as `records`: the files that are given up cover only records behind those of
        all files that stay.
        """
        reached = max((end for _, end in self.ranges), default=-1)
        return all(begin > reached for begin, _ in self.given_up)

    def note_run(self, unindexed: int | None) -> None:
        """Take a run of records; `unindexed` is the position of the first that no sound file covers, None if none."""
        if self.uncovered is None:
            self.uncovered = unindexed

    def note_blanks(self, blanks: Sequence[tuple[int, int]]) -> None:
        """Give up files from the first with an item in one of these log ranges (begin, end), which a plan closes with
        BLANKs: a query would read bytes that are no record. Also give up files that cannot be read.
        """
        for number, file in enumerate(self.files.files[: self.good]):
            if _names_any(file, self.files.geometry, blanks):
                self.good, self.ranges = number, self.ranges[:number]
                return

    def note_brought(self, parts: Sequence[tuple[int, int]], log: CommitLog) -> None:
        """Give up files from the first that lacks an item of a record in these ranges (begin, end), which a plan brings
        back: the file may have been built when a tombstone, which has no keys, was there.
        """
        for number, (file, reach) in enumerate(zip(self.files.files, self.ranges, strict=False)):
            wanted = [
                _inner_items(log, begin, end, reach) for begin, end in parts if begin < reach[1] and reach[0] < end
            ]
            if wanted and _lacks_any(file, self.files.geometry, np.concatenate(wanted)):
                self.good, self.ranges = number, self.ranges[:number]
                return

    def finish(self) -> IndexFix | None:
        """What to do about the index; None if nothing."""
        kept, all_files = self.files.files[: self.good], self.files.files
        if self.uncovered is not None:
            kept = [file for file in kept if file.header.end_physical_offset < self.uncovered]
        elif len(kept) == len(all_files):
            return None
        return self.files.fix(kept)


def _names_any(file: StoredIndex, geometry: Geometry, stretches: Sequence[tuple[int, int]]) -> bool:
    header = file.header
    reach = (header.begin_physical_offset, header.end_physical_offset)
    inside = [(begin, end) for begin, end in stretches if begin <= reach[1] and reach[0] < end]
    if not inside:
        return False
    try:
        with file.open(geometry) as opened:
            positions = (items["physical_offset"] for _, items in opened.columns())
            return any(bool(((at >= begin) & (at < end)).any()) for at in positions for begin, end in inside)
    except Unreadable:
        return True


def _inner_items(log: CommitLog, begin: int, end: int, reach: tuple[int, int]) -> Ints:
    """Return `_item_numbers` of the good records in a range of the log that lie between the first and the last record
    of an index file: items of those two may be in the files beside it.
    """
    found = [np.zeros(0, np.int64)]
    for batch in good_records(log.scan(max(begin, reach[0]), min(end, reach[1]), crc=False)):
        items = dispatch(batch, Dispatching(multi_dispatch=False)).items
        inner = (items.physical_offset > reach[0]) & (items.physical_offset < reach[1])
        found.append(_item_numbers(items.physical_offset[inner], items.key_hash[inner], reach[0]))
    return np.concatenate(found)


def _item_numbers(position: Ints, key_hash: Ints, begin: int) -> Ints:
    """Return position behind `begin` and hash of items as one number, int64[n]."""
    return (position.astype(np.int64) - begin) << 31 | key_hash


def _lacks_any(file: StoredIndex, geometry: Geometry, wanted: Ints) -> bool:
    """Whether an index file lacks one of these `_item_numbers`, or cannot be read."""
    begin = file.header.begin_physical_offset
    try:
        with file.open(geometry) as opened:
            for _, items in opened.columns():
                if not len(wanted):
                    break
                known = _item_numbers(items["physical_offset"], items["key_hash"], begin)
                wanted = wanted[~np.isin(wanted, known)]
    except Unreadable:
        return True
    return bool(len(wanted))


class IndexFix(NamedTuple):
    """Index files to give up. Indexing continues behind the items of `last_kept`, a full file."""

    last_kept: StoredIndex | None
    gone: list[DirectoryEntry]

    @property
    def indexed_to(self) -> int:
        """Log position of the last record in the last file kept, -1 without one."""
        return self.last_kept.header.end_physical_offset if self.last_kept else -1


def index_edits(snapshot: Snapshot, fix: IndexFix) -> list[Edit]:
    """The edits of a plan for the index."""
    reason = "damaged, beyond the log end, or not complete"
    edits = [Edit("move", entry.path, reason, ("I-101", "I-118")) for entry in fix.gone]
    begin = max(0, fix.indexed_to)
    reason = f"the messages from position {begin} on are indexed"
    return [*edits, Edit("rebuild", str(snapshot.layout.index), reason, ("I-101",), begin)]


def is_good(file: StoredIndex, geometry: Geometry, snapshot: Snapshot, *, content: bool) -> bool:
    """Whether a file has its length and a plausible header; with `content`, also good items and slots."""
    header = file.header
    if file.entry.size != file_size(*geometry) or not 1 < header.index_count <= geometry.items:
        return False
    if header.begin_physical_offset > header.end_physical_offset:
        return False
    layout = snapshot.layout
    timed = header.begin_timestamp <= header.end_timestamp
    if not (timed or times_match_records(header, CommitLog(layout.commit_log_files(), layout.dledger))):
        return False
    if not content:
        return True
    with file.open(geometry) as opened:
        return opened.content_is_valid


def _waits_for_items(files: Sequence[StoredIndex], geometry: Geometry, snapshot: Snapshot) -> bool:
    """Whether the newest file has no item yet. A broker begins it at the first message behind a full file, and messages
    without a key add nothing to it (spec 3.3). Its header is preset with the end of the file before, which may have
    expired with its part of the log.
    """
    header, older = files[-1].header, files[-2:-1]
    if files[-1].entry.size != file_size(*geometry) or header.index_count not in (0, 1):
        return False
    begin = (header.begin_timestamp, header.begin_physical_offset)
    end = (header.end_timestamp, header.end_physical_offset)
    if older:
        last = older[0].header
        before = (last.end_timestamp, last.end_physical_offset)
        preset = end == before and last.index_count == geometry.items
    else:
        starts = [int(entry.name) for entry in snapshot.log if entry.name.isdigit()]
        preset = end == (0, 0) or end[1] < min(starts, default=0)
    if not preset or begin != end:
        return False
    with files[-1].open(geometry) as opened:
        return opened.is_untouched


def times_match_records(header: Header, log: CommitLog) -> bool:
    """Whether the first and the last record of a file were stored at the times in its header: if these times go back,
    the clock was set back.
    """
    ends = np.array([header.begin_physical_offset, header.end_physical_offset], np.int64)
    found = log.records(ends)
    times = [header.begin_timestamp, header.end_timestamp]
    return bool(
        len(found) == len(ends)
        and (found.columns.ints("physical_offset") == ends).all()
        and found.columns.ints("store_timestamp").tolist() == times
    )
