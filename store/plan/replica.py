"""Read a replica of the commit log (of a slave, its master, or a backup) and find what it can restore (spec 7.9).

A slave receives the bytes of its master's log and writes them at the same positions, so each can restore what the other
has lost, byte for byte, as long as neither has been cut since.

Holes are ranges without a good record, with the records on both sides. More counts as damage here than for a plan:
tombstones and fillers of an earlier recovery, records torn inside their properties, bodies that do not decompress. A
replica may have the originals. Runs are contiguous whole records of a replica that can replace such ranges.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...formats.derive import decode_one
from ...formats.derive.ragged import Flags, Ints
from ...formats.message import MESSAGE
from ...formats.message_properties import INNER_MULTI_DISPATCH
from ...formats.property_columns import PropertyItems
from ...formats.sys_flag import SysFlag
from ..audit.messages import Messages
from ..broker.dispatch import Dispatched
from ..broker.profiles import RecordRules
from ..broker.snapshot import DirectoryEntry, Snapshot, list_entries
from ..broker.system_topics import LMQ_PREFIX
from ..counted import counted
from ..disk.checkpoint import read_checkpoint
from ..disk.file_queue import MappedFileQueue, file_name, in_files
from ..disk.layout import Layout
from ..disk.lock import identity
from ..disk.temporary import mapped
from ..errors import InvalidInput, NotAStore, Refused, Unreadable, Unsupported
from ..findings.next_commands import NextCommand
from ..log.batch import Batch, Extent, ExtentKind, contradictory
from ..log.commit_log import CommitLog
from ..log.message import Mark, stand_ins, undecodable_bodies
from ..queues.units import is_whole_file
from .fill import Piece
from .gaps import GapFinder, has_usable_properties, undispatchable
from .lost_messages import LostUnits

_WINDOW_BYTES = 1 << 20


@dataclass
class Replica:
    """A replica opened for reading.

    name: as the user gave it. confirmed: nothing behind this position counts that the store itself does not know of,
    None: everything does. If a controller elects masters, records that not all in-sync replicas have confirmed may be
    cut again. record_rules: as of a `GapFinder`, those of the store to recover.
    """

    name: str
    log: CommitLog
    record_rules: RecordRules
    confirmed: int | None = None

    @classmethod
    def open(cls, name: str, own: Layout, file_bytes: int, *, record_rules: RecordRules) -> Replica:
        """Open a store, a directory of log files, or several (`a:b`) that hold one log.

        own: the store to recover, with log files of `file_bytes`. Raises Missing, NotAStore, Unreadable, Unsupported,
        InvalidInput for the store itself and for two copies of one log file, Refused for files of another size.
        """
        directories, confirmed = log_of(name)
        taken = {identity(path.stat()) for path in own.commit_log_directories if path.exists()}
        if any(identity(path.stat()) in taken for path in directories if path.exists()):
            raise InvalidInput("the replica is the store itself", path=name)
        queue = MappedFileQueue.open(directories, file_bytes)
        for file in queue.files:
            if file.size > file_bytes or file.start % file_bytes:
                raise Refused(
                    f"not a copy of this log: the files are not of {counted(file_bytes, 'byte')}",
                    path=file.path,
                    hint="give the log of this broker's slave or master",
                )
        return cls(name, CommitLog(queue), record_rules, confirmed)

    @property
    def end(self) -> int:
        """Position behind the last byte."""
        return self.log.max_file_end

    def bytes_at(self, begin: int, end: int) -> bytes:
        """Return the bytes of a range inside one file, fewer if the file has fewer."""
        return self.log.read(begin, end - begin)

    def kept(self, begin: int, end: int) -> memoryview:
        """Return a range as a mapped temporary file, as it may be larger than memory.

        The replica's own files are not mapped: a page that their disk cannot read would kill the process. Raises
        Unreadable, NoSpace.
        """
        return mapped(self._chunks(begin, end))

    def _chunks(self, begin: int, end: int) -> Iterator[bytes]:
        for at in range(begin, end, _WINDOW_BYTES):
            data = self.bytes_at(at, min(end, at + _WINDOW_BYTES))
            if len(data) < min(end, at + _WINDOW_BYTES) - at:
                raise Unreadable("the replica has changed while it was read", path=self.name)
            yield data


def log_of(name: str) -> tuple[list[Path], int | None]:
    """Return a replica's log directories and confirmed position. Raises Missing, NotAStore, Unsupported, Unreadable,
    InvalidInput if two places have a file of the same position: only one of them could be read.
    """
    directories: list[Path] = []
    confirmed: int | None = None
    seen: dict[int, str] = {}
    for place in _places(name):
        found, end = _log_of(Path(place))
        for file in MappedFileQueue.open(found).files:
            if (other := seen.setdefault(file.start, place)) is not place:
                raise InvalidInput(
                    f"{other} and {place} both have the log file of position {file.start}, and only one replica counts",
                    hint="carry out the recovery with one of them, then with the other; the second brings back what"
                    " the first one lacks",
                )
        directories += found
        confirmed = end if confirmed is None else confirmed
    if not MappedFileQueue.open(directories).files:
        raise NotAStore("no commit log to bring anything back from", path=name)
    return directories, confirmed


def _places(name: str) -> list[str]:
    """Return the paths in `name`: one, or several with colons between. A path may have colons itself, if it exists."""
    parts = [part for part in name.split(":") if part]
    if Path(name).exists() or not parts:
        return [name]
    found, rest = list[str](), ""
    for part in name.split(":"):
        rest = f"{rest}:{part}" if rest else part
        if rest and Path(rest).exists():
            found.append(rest)
            rest = ""
    return parts if rest else found


def _log_of(place: Path) -> tuple[tuple[Path, ...], int | None]:
    try:
        layout = Layout.open(place)
    except NotAStore:
        if place.is_dir() and MappedFileQueue.open(place).files:
            return (place,), None
        raise
    if layout.dledger is not None:
        raise Unsupported("a DLedger log cannot be a copy of this log", path=layout.dledger)
    if not layout.broker_config.has_controller(layout.root):
        return layout.commit_log_directories, None
    checkpoint = read_checkpoint(layout.checkpoint)
    confirmed = checkpoint.confirm_phy_offset if checkpoint else 0
    return layout.commit_log_directories, confirmed or None


def copy_command(snapshot: Snapshot, replica: str) -> str:
    """Return the command that copies a replica's log to the place of this store's."""
    sources = [f"{path}/." for path in log_of(replica)[0]]
    return str(NextCommand(("cp", "-a", *sources, os.fspath(snapshot.layout.commit_log_directories[0]))))


def copy_lost_command(
    snapshot: Snapshot, copies: Mapping[int, DirectoryEntry], parts: Iterable[range], target: Path
) -> tuple[str, str]:
    """Return the command that copies the lost files from a replica, "" if this log has files of all these names, of any
    length; and the name of the first file that the replica lacks, "" for none. Without that file there is no command:
    the copied files behind it would hide the loss.
    """
    own, paths = {entry.name for entry in snapshot.log}, list[str]()
    for start in (start for part in sorted(parts, key=attrgetter("start")) for start in part):
        if file_name(start) not in own and start not in copies:
            return "", file_name(start)
        if file_name(start) not in own:
            paths.append(copies[start].path)
    made = "" if target.is_dir() else f"{NextCommand(('mkdir', '-p', os.fspath(target)))} && "
    return f"{made}{NextCommand(('cp', '-a', *paths, os.fspath(target)))}" if paths else "", ""


def whole_files(replica: str, size: int) -> dict[int, DirectoryEntry]:
    """Return the files of a replica's log with this log's file size, by start. Raises as `log_of`."""
    directories, _ = log_of(replica)
    entries = sorted((entry for path in directories for entry in list_entries(path)), reverse=True)
    return {int(entry.name): entry for entry in entries if is_whole_file(entry, size)}  # of two, the first path


_SAMPLES = 64


class LogHole(NamedTuple):
    """Log positions [begin, end). before: begin and end of the good record in front, None without one. last: the log
    ends here, as far as the store knows.
    """

    begin: int
    end: int
    before: tuple[int, int] | None
    last: bool = False


@dataclass
class DamageFinder(GapFinder):
    """Finds damage that a replica may restore. samples: positions of some good records. doubtful: positions of records
    that do not continue their queue, or have a NUL byte in their properties. spoilt: see `is_spoilt`.
    """

    samples: list[int] = field(default_factory=list)
    doubtful: list[Ints] = field(default_factory=list)
    spoilt: list[Ints] = field(default_factory=list)
    #: Topics with batches in a record: their queue offsets do not go up by one.
    _batched: set[str] = field(default_factory=set)

    def good(self, batch: Batch, properties: PropertyItems) -> Flags:
        """bool[n]: the record is whole, and as the producer sent it."""
        return super().good(batch, properties) & is_original(batch)

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        """Take records; keep the position of one good record per batch as a sample, fewer in a large log."""
        super().records(batch, dispatched)
        inner = batch.columns.ints("sys_flag") & SysFlag.INNER_BATCH != 0
        if inner.any():
            units = dispatched.units
            ids = np.unique(units.topic_id[inner[units.record]]).tolist()
            self._batched.update(dispatched.topics[topic_id] for topic_id in ids)
        good, spoilt = self.good(batch, dispatched.properties), is_spoilt(batch, dispatched.properties)
        self.spoilt.append(batch.position[good & spoilt])
        self.doubtful.append(batch.position[good & dispatched.properties.has_nul()])
        sound = good & ~spoilt
        rows = np.flatnonzero(sound if sound.any() else good)
        if len(rows):
            self.samples.append(int(batch.position[rows[0]]))
        if len(self.samples) > _SAMPLES:
            del self.samples[1::2]

    def messages(self, messages: Messages) -> None:
        """Note messages that do not continue the one before."""
        queue = messages.queue
        if queue.topic not in self._batched and not queue.topic.startswith(LMQ_PREFIX):
            expected = np.append(self.queue_ends.get(queue, -1), messages.offset[:-1] + 1)
            self.doubtful.append(messages.position[messages.offset != expected])
        super().messages(messages)


def is_original(batch: Batch) -> Flags:
    """bool[n]: no tombstone or filler, not torn inside its properties, and the body matches its flags."""
    columns = batch.columns
    original: Flags = ~(stand_ins(columns) | PropertyItems(columns.ragged("properties")).torn())
    original[[body.row for body in undecodable_bodies(columns) if not (body.put_back or body.too_large)]] = False
    return original


def is_spoilt(batch: Batch, properties: PropertyItems) -> Flags:
    """bool[n]: the record itself shows damage beside the body, or no broker can dispatch the LMQs it names."""
    spoilt = contradictory(batch, properties)
    if properties.has_name(INNER_MULTI_DISPATCH):
        spoilt[undispatchable(properties, np.ones(len(batch), np.bool_))] = True
    return spoilt


def holes(finder: GapFinder, log: CommitLog, replica: Replica) -> list[LogHole]:
    """Return the holes that `finder` has seen, by position; the last one is the end of the log.

    A BLANK belongs to the hole beside it, and is a hole itself if the replica has a record there.
    """
    found: list[LogHole] = []
    blanks = {blank.begin for blank in finder.blanks}
    spans = sorted([*finder.gaps, *finder.blanks], key=attrgetter("begin"))
    end = max(finder.end, log.min_offset)
    last = finder.last if finder.last[0] >= 0 else None
    tail = LogHole(end, replica.end, last, last=True)
    while spans:
        group = [spans.pop(0)]
        while spans and spans[0].begin == group[-1].end:
            group.append(spans.pop(0))
        if not any(g.begin not in blanks or record_at(replica.log, g.begin) for g in group):
            continue
        begin, previous = group[0].begin, group[0].previous
        hole = LogHole(begin, group[-1].end, None if previous < 0 else (previous, begin))
        if hole.end < end:
            found.append(hole)
        elif hole.begin <= end:
            tail = LogHole(hole.begin, replica.end, last, last=True)
    return [*found, tail]


def record_at(log: CommitLog, position: int) -> bytes:
    """Return the bytes of the whole record at a position, b"" without one."""
    found = log.records(np.array([position], np.int64))
    return log.read(position, int(found.columns.ints("total_size")[0])) if len(found) else b""


def where_differing(log: CommitLog, replica: Replica, positions: Ints) -> Ints:
    """Return the positions after which, up to the next one, the logs differ, and the last position of each window."""
    kept, at, size = [np.zeros(0, np.int64)], 0, log.queue.file_size
    while at < len(positions):
        begin = int(positions[at])
        stop = int(np.searchsorted(positions, min(begin + _WINDOW_BYTES, (begin // size + 1) * size)))
        some, end = positions[at:stop], int(positions[stop - 1])
        own, other = (np.frombuffer(each.read(begin, end - begin), np.uint8) for each in (log, replica.log))
        both = min(len(own), len(other))
        differing = np.append(np.flatnonzero(own[:both] != other[:both]) + begin, np.arange(begin + both, end))
        found = np.searchsorted(differing, some)
        kept.append(some[np.append(np.diff(found) > 0, True)])
        at = stop
    return np.concatenate(kept)


def is_zeroed(own: bytes, other: bytes) -> bool:
    """Whether two records of one length differ only in the properties, and `own` has zeros there."""
    texts = [decode_one(MESSAGE, record).ragged("properties") for record in (own, other)]
    begin, own_text, other_text = (int(texts[0].start[0]), *(np.frombuffer(text[0], np.uint8) for text in texts))
    if len(own) != len(other) or own[:begin] != other[:begin]:
        return False
    changed = own_text != other_text
    return int(changed.sum()) > 1 and not own_text[changed].any()


def is_sound_at(log: CommitLog, position: int) -> bool:
    """Whether a whole record begins at `position` that is not spoilt."""
    found = log.records(np.array([position], np.int64))
    return bool(len(found)) and not is_spoilt(found, PropertyItems(found.columns.ragged("properties")))[0]


class ReplicaRun(NamedTuple):
    """Contiguous records, or a BLANK behind them: [begin, end)."""

    begin: int
    end: int
    records: int
    blank: bool = False


def find_runs(
    replica: Replica, begin: int, end: int, units: LostUnits, *, chained: bool = False
) -> Iterator[ReplicaRun]:
    """Yield the runs of the replica in [begin, end). chained: only the run that begins at `begin`, until a queue unit
    names another record.
    """
    run = ReplicaRun(begin, begin, 0)
    for item in replica.log.scan(begin, end, reuse=True):
        if isinstance(item, Extent):
            # a BLANK as a broker writes it, up to the end of its file
            closes = item.kind is ExtentKind.BLANK and not item.reason
            closes = closes and item.end % replica.log.queue.file_size == 0
            rows = [(item.position, item.end, 0)] if closes else []
        else:
            known = units if chained else None
            rows = list(_runs_in(item, min(end, replica.end), known, replica.record_rules))
        for first, behind, count in rows:
            if first != run.end:
                if run.end > run.begin:
                    yield run
                if chained:
                    return
                run = ReplicaRun(first, first, 0)
            run = ReplicaRun(run.begin, behind, run.records + count, blank=not count)
        if chained and not rows:
            break
    if run.end > run.begin:
        yield run


def _runs_in(batch: Batch, end: int, units: LostUnits | None, rules: RecordRules) -> Iterator[tuple[int, int, int]]:
    """Yield (begin, end, records) of contiguous good records in a batch."""
    if batch.mark > Mark.AFTER_DAMAGE:
        return
    columns = batch.columns
    behind = batch.position + columns.ints("total_size")
    good = is_original(batch) & (columns.ints("physical_offset") == batch.position)
    properties = PropertyItems(columns.ragged("properties"))
    good &= (behind <= end) & has_usable_properties(batch, properties, rules)
    if batch.body_crc_ok is not None:
        good &= batch.body_crc_ok
    if units is not None:
        good &= ~_contradicted(batch, behind, units)
    rows = np.flatnonzero(good)
    for part in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
        if len(part):
            yield int(batch.position[part[0]]), int(behind[part[-1]]), len(part)


def _contradicted(batch: Batch, behind: Ints, units: LostUnits) -> Flags:
    """bool[n]: a queue unit names a record that begins inside this one, or another one in its place."""
    denied = np.zeros(len(batch), np.bool_)
    first, last = np.searchsorted(units.position, [int(batch.position[0]), int(behind[-1])])
    mine = units.take(slice(int(first), int(last)))
    if not len(mine):
        return denied
    row = np.searchsorted(batch.position, mine.position, side="right") - 1
    offset = batch.columns.ints("queue_offset").astype(np.int64)[row]
    size = batch.columns.ints("total_size").astype(np.int64)[row]
    lmq = np.array([queue.topic.startswith(LMQ_PREFIX) for queue in mine.queues])[mine.queue]
    wrong = (batch.position[row] != mine.position) | (size != mine.size)
    wrong |= ~lmq & (offset != mine.queue_offset)
    denied[row[wrong]] = True
    return denied


def pieces_of(log: CommitLog, replica: Replica, run: ReplicaRun) -> Iterator[Piece]:
    """Yield the bytes of a run that differ in this log, in pieces of whole windows inside one file."""
    begin = -1
    for at, end in _windows(run, replica.log.queue.file_size):
        own = log.read(at, end - at).ljust(end - at, b"\0")
        if begin >= 0 and (own == replica.bytes_at(at, end) or at % replica.log.queue.file_size == 0):
            yield begin, replica.kept(begin, at)
            begin = -1
        if begin < 0 and own != replica.bytes_at(at, end):
            begin = at
    if begin >= 0:
        yield begin, replica.kept(begin, run.end)


def _windows(run: ReplicaRun, file_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield a run in windows that do not cross a file border."""
    for begin, end in in_files(run.begin, run.end, file_bytes):
        for at in range(begin, end, _WINDOW_BYTES):
            yield at, min(end, at + _WINDOW_BYTES)
