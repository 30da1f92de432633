"""Which index files can stay, and from where on the log has to be indexed again (spec 3.4, 7.11).

An index can always be derived from the log. So the files stay up to the first one that is not
sound, or reaches beyond the log end, or leaves out a record before it; the rest is made anew. A file that is not full is not continued
but made anew, too: nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...formats.derive import dtype_of
from ...formats.index_file import ITEM, SLOT, SLOT_BYTES, items_offset, slots_offset
from ..broker.dispatch import dispatch
from ..disk.edits import Edit
from ..disk.file_queue import MappedFileQueue
from ..disk.snapshot import Entry, FileBytes, Snapshot
from ..log.batch import Batch
from ..log.commit_log import CommitLog
from .files import Geometry
from .start import IndexHeader, read_header

_ITEM_DTYPE = dtype_of(ITEM)
_SLOT_DTYPE = dtype_of(SLOT)
_WINDOW_ITEMS = 1 << 16
_NOTHING = (0, -1)
#: Content of older files above this size is taken on trust: their headers are checked.
_CHECKED_BYTES = 64 << 20


@dataclass(frozen=True)
class IndexFiles:
    """The index files of a store, oldest first. sound: how many of the first ones are sound."""

    headers: list[IndexHeader]
    geometry: Geometry
    sound: int

    @classmethod
    def of(cls, snapshot: Snapshot, geometry: Geometry) -> IndexFiles:
        """Look at the index files of a store. Raises Unreadable."""
        entries = snapshot.index
        named = [e for e in entries if not e.directory and e.name.isascii() and e.name.isdigit()]
        headers = [read_header(entry) for entry in named]
        sound = 0
        for i, header in enumerate(headers):
            checked = i == len(headers) - 1 or header.entry.size <= _CHECKED_BYTES
            if i == len(headers) - 1 and _waits(headers, geometry, snapshot):
                sound += 1
                break
            timed = _is_timed(header, snapshot)
            if not timed or not is_sound(header, geometry, content=checked):
                break
            sound += 1
        return cls(headers, geometry, sound)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """First and last log position in each sound file; one without items has none."""
        return [
            (header.begin_physical_offset, header.end_physical_offset)
            if header.index_count > 1
            else _NOTHING
            for header in self.headers[: self.sound]
        ]


def uncovered(ranges: Sequence[tuple[int, int]], batch: Batch, *, tagged: bool) -> int | None:
    """Position of the first record with keys that lies in none of the `ranges`."""
    positions = batch.position
    bare = np.ones(len(positions), np.bool_)
    for begin, end in ranges:
        bare &= (positions < begin) | (positions > end)
    rows = np.flatnonzero(bare)
    if not len(rows):
        return None
    items = dispatch(batch.take(rows), index_tags=tagged, multi_dispatch=False).items
    return int(items.physical_offset[0]) if len(items) else None


def index_files(snapshot: Snapshot) -> IndexFiles:
    """Those of a store. Raises Unreadable."""
    sizes = snapshot.layout.sizes
    return IndexFiles.of(snapshot, Geometry(sizes.index_slots.value, sizes.index_items.value))


@dataclass
class IndexAudit:
    """The index while the log is read.

    headers: all index files, oldest first. sound: how many of the first ones are sound and lie
    before the log end. tagged: tags are indexed, too.
    """

    headers: list[IndexHeader]
    geometry: Geometry
    sound: int
    log_end: int
    tagged: bool
    #: First record with keys that no sound file covers, None: all are covered.
    uncovered: int | None = None
    #: First and last position in each sound file.
    ranges: list[tuple[int, int]] = field(default_factory=list)
    #: The same of sound files that reach behind the log end.
    given_up: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, files: IndexFiles, log_end: int, *, tagged: bool) -> IndexAudit:
        """Take those index files that lie before the log end."""
        ends = [end for _, end in files.ranges]
        sound = next((i for i, end in enumerate(ends) if end >= log_end), files.sound)
        ranges, given_up = files.ranges[:sound], files.ranges[sound:]
        return cls(
            files.headers,
            files.geometry,
            sound,
            log_end,
            tagged,
            ranges=ranges,
            given_up=given_up,
        )

    def records(self, batch: Batch) -> None:
        """Records of the log, in order."""
        if self.uncovered is not None or int(batch.position[0]) >= self.log_end:
            return
        found = uncovered(self.ranges, batch, tagged=self.tagged)
        if found is not None and found < self.log_end:
            self.uncovered = found

    @property
    def takes_runs(self) -> bool:
        """What `note_run` is told is as good as a look at the records: index files that are given
        up cover none but those behind all that stay.
        """
        reached = max((end for _, end in self.ranges), default=-1)
        return all(begin > reached for begin, _ in self.given_up)

    def note_run(self, unindexed: int | None) -> None:
        """Records of the log, of which `unindexed` is the first that no sound file covers."""
        if self.uncovered is None:
            self.uncovered = unindexed

    def finish(self) -> IndexFix | None:
        """What is to be done, None: nothing."""
        kept = self.headers[: self.sound]
        if self.uncovered is not None:
            kept = [h for h in kept if h.end_physical_offset < self.uncovered]
        if self.uncovered is not None or len(kept) < len(self.headers):
            while kept and kept[-1].index_count < self.geometry.items:
                kept.pop()
        gone = self.headers[len(kept) :]
        if not gone and self.uncovered is None:
            return None
        return IndexFix(
            kept[-1].entry if kept else None,
            kept[-1].end_physical_offset if kept else -1,
            [header.entry for header in gone],
        )


@dataclass(frozen=True)
class IndexFix:
    """Index files to give up, and where indexing goes on: behind the items of `last_kept`.

    last_kept is a full file. indexed_to: position of the last record in it, -1 without one.
    """

    last_kept: Entry | None
    indexed_to: int
    gone: list[Entry]


def index_edits(snapshot: Snapshot, fix: IndexFix) -> list[Edit]:
    """What a plan does about it."""
    reason = "not sound, beyond the log end, or not complete"
    edits = [Edit("move", entry.path, reason, ("I-101", "I-118")) for entry in fix.gone]
    begin = max(0, fix.indexed_to)
    reason = f"the messages from position {begin} on are indexed"
    return [*edits, Edit("rebuild", str(snapshot.layout.index), reason, ("I-101",), begin)]


def is_sound(header: IndexHeader, geometry: Geometry, *, content: bool) -> bool:
    """The file has its length and a header that makes sense; with `content`, good items and slots."""
    whole = items_offset(geometry.slots) + geometry.items * _ITEM_DTYPE.itemsize
    if header.entry.size != whole or not 1 < header.index_count <= geometry.items:
        return False
    if header.begin_physical_offset > header.end_physical_offset:
        return False
    return not content or _content_is_sound(header, geometry)


def _waits(headers: Sequence[IndexHeader], geometry: Geometry, snapshot: Snapshot) -> bool:
    """The newest file has no item yet: a broker begins it at the first message behind a full one, and
    messages without a key put nothing into it (spec 3.3). Its header is preset with the end before it,
    of a file that may have expired with its part of the log.
    """
    newest, older = headers[-1], headers[-2:-1]
    whole = items_offset(geometry.slots) + geometry.items * _ITEM_DTYPE.itemsize
    if newest.entry.size != whole or newest.index_count not in (0, 1):
        return False
    begin = (newest.begin_timestamp, newest.begin_physical_offset)
    end = (newest.end_timestamp, newest.end_physical_offset)
    if older:
        before = (older[0].end_timestamp, older[0].end_physical_offset)
        preset = end == before and older[0].index_count == geometry.items
    else:
        starts = [int(entry.name) for entry in snapshot.log if entry.name.isdigit()]
        preset = end == (0, 0) or end[1] < min(starts, default=0)
    used = items_offset(geometry.slots) + 2 * _ITEM_DTYPE.itemsize
    data = FileBytes(newest.entry.path)
    return preset and begin == end and not data[slots_offset() : min(used, whole)].any()


def _is_timed(header: IndexHeader, snapshot: Snapshot) -> bool:
    """Its times rise, or are those of its first and its last record: the clock was set back."""
    if header.begin_timestamp <= header.end_timestamp:
        return True
    begin = _stored_at(snapshot, header.begin_physical_offset)
    end = _stored_at(snapshot, header.end_physical_offset)
    return (begin, end) == (header.begin_timestamp, header.end_timestamp)


def _stored_at(snapshot: Snapshot, position: int) -> int:
    """The store timestamp of the record at a log position, -1 without one."""
    for entry in snapshot.log:
        offset = position - int(entry.name) if entry.name.isdigit() else -1
        if entry.directory or not 0 <= offset < entry.size:
            continue
        with MappedFileQueue.of_file(entry.path, int(entry.name)) as queue:
            columns = CommitLog(queue).records(np.array([position], np.int64)).columns
        if len(columns) and int(columns.ints("physical_offset")[0]) == position:
            return int(columns.ints("store_timestamp")[0])
    return -1


def _content_is_sound(header: IndexHeader, geometry: Geometry) -> bool:
    data = FileBytes(header.entry.path)
    for begin in range(0, geometry.slots, _WINDOW_ITEMS):
        stop = min(geometry.slots, begin + _WINDOW_ITEMS)
        at, end = (slots_offset() + number * SLOT_BYTES for number in (begin, stop))
        part = data[at:end].view(_SLOT_DTYPE)["item"]
        if (part < 0).any() or (part >= header.index_count).any():
            return False
    return all(
        _items_are_sound(header, data, first, geometry)
        for first in range(1, header.index_count, _WINDOW_ITEMS)
    )


def _items_are_sound(header: IndexHeader, data: FileBytes, first: int, geometry: Geometry) -> bool:
    """Items have hashes, lie in the header's range, and point back."""
    count = min(_WINDOW_ITEMS, header.index_count - first)
    items = items_at(data, geometry, first, count)
    positions = items["physical_offset"].astype(np.int64)
    previous = items["previous"].astype(np.int64)
    if items["key_hash"].min() < 0 or previous.min() < 0:
        return False
    if (previous >= np.arange(first, first + count)).any():
        return False
    inside = header.begin_physical_offset <= int(positions.min())
    return inside and int(positions.max()) <= header.end_physical_offset


def items_at(data: FileBytes, geometry: Geometry, first: int, count: int) -> npt.NDArray[np.void]:
    """Items `first` … of an index file."""
    begin = items_offset(geometry.slots) + first * _ITEM_DTYPE.itemsize
    return data[begin : begin + count * _ITEM_DTYPE.itemsize].view(_ITEM_DTYPE)


def tail_items(entry: Entry, geometry: Geometry, position: int) -> int:
    """How many of the last items of a file belong to the record at `position`."""
    header = read_header(entry)
    first = max(1, header.index_count - _WINDOW_ITEMS)
    items = items_at(FileBytes(entry.path), geometry, first, header.index_count - first)
    other = np.flatnonzero(items["physical_offset"] != position)
    return len(items) - (int(other[-1]) + 1 if len(other) else 0)
