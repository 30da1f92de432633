"""Choose the bytes of a replica that close holes of a log, and lay them over the log before the plan (spec 7.9).

A part is taken if the records on both sides of the hole are the same in both logs, and the replica's records between
them are whole: right body checksums and physical offsets, no bytes between records. Behind the end of the log there is
only one side. There the replica's records are taken as long as they are contiguous and queue units name no other ones:
a store that crashed may have lost pages that its slave has. A store that was shut down in order ends where it ends, and
a slave gets the rest from its master. Nothing is taken in front of the first file: an expired log looks the same, and a
log that has lost its first files gets them by copying them with their times.

The log of a slave whose messages differ from the replica's from some place on (`parted_at`) never becomes a copy of
it: only a cut at that place lets the slave follow. Nothing is brought back then.

A record with a good body is exchanged for the replica's if its header does not continue its queue, or gives it no
queue, and if the queue has the offset right before or after that of the replica's record: then the replica's header is
right. A record that shows itself that its header or properties are wrong is exchanged for a record that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...formats.derive import decode_one
from ...formats.message import LATEST_MS, MESSAGE
from ..audit.messages import LogObserver, Messages
from ..broker.profiles import RecordRules
from ..broker.snapshot import QueueId, Snapshot
from ..disk.checkpoint import lost_end
from ..disk.file_queue import MappedFile, MappedFileQueue, file_name
from ..errors import Refused
from ..findings.next_commands import proposed
from ..log.batch import Batch, Extent, ExtentKind
from ..log.commit_log import CommitLog, in_step
from ..log.message import Mark
from ..queues.edits import is_zero_from
from ..queues.references import commit_log_of
from .fill import PatchedQueue, Piece
from .gaps import Gap
from .lost_messages import LostUnits, lost_units
from .observer import never_cuts
from .replica import (
    DamageFinder,
    LogHole,
    Replica,
    ReplicaRun,
    find_runs,
    holes,
    is_original,
    is_sound_at,
    is_zeroed,
    pieces_of,
    record_at,
    where_differing,
)

_PEEK_BYTES = 4096
_RECORD_FIELDS = ("total_size", "queue_id", "queue_offset", "sys_flag", "born_timestamp", "store_timestamp", "body_crc")
"""Fields that identify a record; in most records none of them is 0."""
_MESSAGE_FIELDS = ("total_size", "born_timestamp", "store_timestamp", "body_crc")
"""Those that identify the message, whatever its queue."""
_TIMES = ("born_timestamp", "store_timestamp")


class ReplicaPart(NamedTuple):
    """A part taken from the replica: `records` whole records in `size` bytes from `position` on."""

    position: int
    size: int
    records: int

    @property
    def end(self) -> int:
        return self.position + self.size


class NotInReplica(NamedTuple):
    """A range of the log that the replica does not restore, and why."""

    position: int
    size: int
    reason: str


@dataclass
class Brought:
    """What a replica gives. goes_on: the replica has more records behind the end of the log. confirmed: its confirmed
    position, if these are left out as they are behind that.

    earlier_bytes: bytes of the replica in front of this log, whose files may have expired. pieces: bytes to write,
    without those that are the same already. exchanged: parts that replace a whole record. parted_at: the logs have
    different messages from there on, None if no message that was compared shows that. ends_at: the replica's log ends
    there, and this one, of a slave, goes on.
    """

    replica: str
    parts: list[ReplicaPart] = field(default_factory=list)
    lacks: list[NotInReplica] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    exchanged: set[ReplicaPart] = field(default_factory=set)
    goes_on: bool = False
    confirmed: int | None = None
    earlier_bytes: int = 0
    parted_at: int | None = None
    ends_at: int | None = None

    @property
    def records(self) -> int:
        """Records that come back in place of damage, or of what closed it."""
        return sum(part.records for part in self.parts if part not in self.exchanged)

    @property
    def never_follows(self) -> str:
        """What `parted_at` means for a slave that cuts nothing off."""
        at = f"{self.parted_at:,}" if self.parted_at is not None else "nowhere"
        return f"from {at} on this log {self.has_other}, so as its slave a broker never follows"

    @property
    def has_other(self) -> str:
        """What this log has from `parted_at` on."""
        if self.parted_at == self.ends_at:
            return f"goes on, and {self.replica} ends there"
        return f"has other messages than {self.replica}"

    def to_json(self) -> dict[str, Any]:
        """The object `plan.replica`."""
        return {
            "replica": self.replica,
            "ranges": [part._asdict() for part in self.parts],
            "lacking": [lack._asdict() for lack in self.lacks],
            "goes_on": self.goes_on,
            "earlier_bytes": self.earlier_bytes,
            "parted_at": self.parted_at,
            "ends_at": self.ends_at,
        }


def bring_back(
    snapshot: Snapshot, log: CommitLog, finder: DamageFinder, replica: Replica, *, compared_only: bool
) -> Brought:
    """Compare two logs around the damage that `finder` has seen. compared_only: bring nothing back. Raises Unreadable,
    Refused (no copy of this log, or a slave's that never becomes one).
    """
    found = Brought(replica.name)
    found.earlier_bytes = max(0, log.min_offset - replica.log.min_offset)
    _check_copy(finder.samples, log, replica)
    spans = holes(finder, log, replica)
    beside = [finder.last[0], *(hole.before[0] for hole in spans if hole.before)]
    places, never_follows = [*finder.samples, *beside], never_cuts(snapshot.layout)
    found.parted_at = _parted_at(log, replica, places, min(finder.end, replica.end))
    if never_follows and found.parted_at is None:
        found.ends_at = _end_before(log, replica, places, finder.end)
    if compared_only:
        if found.ends_at is not None:
            found.parted_at = found.ends_at  # a master that has less sends what begins inside a record
        return found
    if found.parted_at is not None and never_follows:
        cut = proposed(snapshot.layout, "recover", "--policy", "broker", "--replica", replica.name)
        raise Refused(found.never_follows, hint=f"to cut this log there, and get the rest from the master: {cut}")
    dead = np.concatenate([np.zeros(0, np.int64), *finder.dead])
    gaps = [Gap(hole.begin, hole.end, False, 0) for hole in spans if hole.begin < hole.end]
    units = lost_units(snapshot, gaps, (), dead, finder.queue_ends)
    for hole in (_widened(hole, log, replica) for hole in spans):
        first, behind = np.searchsorted(units.position, [hole.begin, hole.end])
        mine = units.take(slice(int(first), int(behind)))
        if found.parted_at is not None and hole.begin >= found.parted_at and not hole.last:
            found.lacks.append(NotInReplica(hole.begin, hole.end - hole.begin, "the logs have other messages there"))
        elif hole.last:
            _take_behind_end(found, snapshot, log, hole, replica, mine)
        else:
            _take_between(found, log, hole, replica, mine)
    _exchange(found, snapshot, log, finder, replica, units)
    return found


def _exchange(
    found: Brought, snapshot: Snapshot, own: CommitLog, finder: DamageFinder, replica: Replica, units: LostUnits
) -> None:
    """Take records that differ in the replica, if the logs are the same around them."""
    for run, is_proved in _differing(own, finder, replica):
        log = commit_log_of(snapshot.layout, _patched(snapshot, own.queue, found)) if found.pieces else own
        begin = max(run.begin - _PEEK_BYTES, run.begin // log.queue.file_size * log.queue.file_size)
        sides = LogHole(run.begin, run.end, (begin, run.begin))
        is_there = _is_same(log, replica, run.begin, run.end)
        if is_there or _why_unfit(log, sides, replica) or [*find_runs(replica, run.begin, run.end, units)] != [run]:
            continue
        _take(found, log, sides, replica, [run])
        if not is_proved:
            found.exchanged.add(found.parts[-1])
    found.parts.sort()


def _differing(log: CommitLog, finder: DamageFinder, replica: Replica) -> Iterator[tuple[ReplicaRun, bool]]:
    """Yield records that may be wrong and differ in the replica, and whether they are certainly wrong; neighbours that
    certainly are come as one run. Of the others the messages are the same in both logs: `QueueChain` tells which header
    is right.
    """
    spoilt = {position for part in finder.spoilt for position in part.tolist()}
    wanted = np.concatenate([np.zeros(0, np.int64), *finder.doubtful, *finder.silent, *finder.spoilt])
    run, is_proved = ReplicaRun(-1, -1, 0), False
    for position in where_differing(log, replica, np.unique(wanted)).tolist():
        own, other = record_at(log, position), record_at(replica.log, position)
        heads = [_head(data.ljust(_PEEK_BYTES, b"\0")) or {} for data in (own, other)]
        differs = any(heads[0].get(name, 0) != heads[1].get(name, 1) for name in _MESSAGE_FIELDS)
        if own == other or (differs and position not in spoilt) or not is_sound_at(replica.log, position):
            continue
        is_wrong = position in spoilt or is_zeroed(own, other)
        joins = run.end == position and is_proved and is_wrong
        if run.records and not joins:
            yield run, is_proved
        begin, records = (run.begin, run.records) if joins else (position, 0)
        run, is_proved = ReplicaRun(begin, position + len(own), records + 1), is_wrong
    if run.records:
        yield run, is_proved


def _check_copy(samples: Sequence[int], log: CommitLog, replica: Replica) -> None:
    """Check that some good record has the same place and bytes in both logs. Raises Refused."""
    differs: int | None = None
    for position in samples:
        own = record_at(log, position)
        other = record_at(replica.log, position)
        if own and own == other:
            return
        if own and replica.log.min_offset <= position < replica.log.max_file_end and differs is None:
            differs = position
    if differs is not None:
        raise Refused(
            "not a copy of this log: it has another record there, or none",
            path=replica.name,
            offset=differs,
            hint="give the log of this broker's slave or master",
        )
    if samples:
        raise Refused(
            "not a copy of this log, or a copy of another part: the two have no record in common",
            path=replica.name,
            hint=f"the copy has {replica.log.min_offset} to {replica.log.max_file_end},"
            f" this log {log.min_offset} to {log.max_file_end}",
        )


def _parted_at(log: CommitLog, replica: Replica, places: Sequence[int], end: int) -> int | None:
    """Return the end of the last record before the first one in whose place the replica has another message; None if
    none has before `end`. places: of records. Between two places where both logs have the same record, nothing is read.

    A BLANK in the place of a record says so, too, if no later record is the same: else it closes a hole.
    """
    begin = reached = max(log.min_offset, replica.log.min_offset)
    doubt: int | None = None
    for place in [*sorted(at for at in {*places, in_step(log, end)} if begin <= at < end), end]:
        is_same = place < end and record_at(log, place) == record_at(replica.log, place)
        doubt = None if is_same else doubt
        for item in () if is_same else log.scan(begin, place + 1):
            if isinstance(item, Extent):
                if item.kind is ExtentKind.BLANK and 0 <= _stored_ms(log, item.end) < _stored_ms(
                    replica.log, item.position
                ):
                    return item.position if doubt is None else doubt
                continue
            original = item.take(is_original(item) & (item.mark <= Mark.AFTER_DAMAGE))
            ends = original.position + original.columns.ints("total_size")
            for position in where_differing(log, replica, original.position).tolist():
                before = max([reached, *ends[original.position < position][-1:].tolist()])
                if _has_other_message(log, replica, position):
                    return before if doubt is None else doubt
                if doubt is None and not record_at(replica.log, position) and replica.log.begins_at(position):
                    doubt = before
            reached = item.end
        begin = place
    return doubt


def _end_before(log: CommitLog, replica: Replica, places: Iterable[int], end: int) -> int | None:
    """Return where the replica's log ends, None if not before `end`. places: of records of this log, one of which it
    has, too.
    """
    for at in sorted(places, reverse=True):
        if (own := record_at(log, at)) and own == record_at(replica.log, at):
            found = replica.log.end(at).position
            return found if found < end else None
    return None


def _stored_ms(log: CommitLog, position: int) -> int:
    """Return the store time of the record at a position, -1 without one."""
    found = log.records(np.array([position], np.int64))
    return int(found.columns.ints("store_timestamp")[0]) if len(found) else -1


def _has_other_message(log: CommitLog, replica: Replica, position: int) -> bool:
    """Whether the replica has a whole record at `position`, as its producer sent it, of another message."""
    other = replica.log.records(np.array([position], np.int64))
    return len(other) == 1 and bool(is_original(other)[0]) and _has_other_record(log, replica, position)


def _widened(hole: LogHole, log: CommitLog, replica: Replica) -> LogHole:
    """Return the hole with the record before it, if that is the same message in both logs but not the same bytes:
    beside damage a record may be damaged in its properties, which no checksum covers.
    """
    if hole.before is None or _is_same(log, replica, *hole.before):
        return hole
    begin, end = hole.before
    own, other = record_at(log, begin), record_at(replica.log, begin)
    if not other or len(own) != len(other) or end != hole.begin:
        return hole
    heads = [_head(data.ljust(_PEEK_BYTES, b"\0")) for data in (own, other)]
    return hole._replace(begin=begin, before=(begin, begin)) if heads[0] == heads[1] else hole


def _is_same(log: CommitLog, replica: Replica, begin: int, end: int) -> bool:
    return log.read(begin, end - begin) == replica.bytes_at(begin, end)


def _take_between(found: Brought, log: CommitLog, hole: LogHole, replica: Replica, units: LostUnits) -> None:
    """Close a hole between good records. If the replica ends inside, only the front side is compared."""
    reason = _why_unfit(log, hole, replica)
    if reason:
        found.lacks.append(NotInReplica(hole.begin, hole.end - hole.begin, reason))
        return
    ends = not record_at(replica.log, hole.end)
    if ends and hole.before is None:
        _take(found, log, hole, replica, ())
        return
    runs = list(find_runs(replica, hole.begin, hole.end, units, chained=ends))
    whole = len(runs) == 1 and (runs[0].begin, runs[0].end) == (hole.begin, hole.end)
    if not whole and hole.before is None:  # then a queue unit has to name one of the records
        named = (((units.position >= run.begin) & (units.position < run.end)).any() for run in runs)
        runs = runs if any(named) else []
    _take(found, log, hole, replica, runs)


def _why_unfit(log: CommitLog, hole: LogHole, replica: Replica) -> str:
    """Return why the sides of a hole do not fit the replica, "" if they do."""
    if hole.begin >= replica.end:
        return "the replica ends before this place"
    if hole.end <= replica.log.min_offset:
        return "the replica begins after this place"
    if hole.before is not None and not _is_same(log, replica, *hole.before):
        return f"the records before this place differ, at {hole.before[0]}"
    other = record_at(replica.log, hole.end)
    if other and other != record_at(log, hole.end):
        return f"the records after this place differ, at {hole.end}"
    return ""


def _take(found: Brought, log: CommitLog, hole: LogHole, replica: Replica, runs: Sequence[ReplicaRun]) -> None:
    """Add runs to the parts brought back, and the ranges between them to what the replica lacks."""
    at = hole.begin
    for run in [*runs, ReplicaRun(hole.end, hole.end, 0)]:
        if at < run.begin:
            found.lacks.append(NotInReplica(at, run.begin - at, "the replica has no good record there"))
        at = run.end
    for run in runs:
        found.parts.append(ReplicaPart(run.begin, run.end - run.begin, run.records))
        found.pieces += pieces_of(log, replica, run)


def _take_behind_end(
    found: Brought, snapshot: Snapshot, log: CommitLog, hole: LogHole, replica: Replica, units: LostUnits
) -> None:
    torn_end = log.torn_end(hole.begin)
    gone = lost_end(snapshot.layout, snapshot.checkpoint, hole.begin, snapshot.log_file_bytes, torn_end=torn_end)
    known = max(torn_end, gone.stop, int(units.end.max(initial=0)))
    runs: list[ReplicaRun] = []
    reason = "the replica has no good record there"
    if hole.before is None:
        reason = "this log has no good record to compare with"
    elif not _is_same(log, replica, *hole.before):
        reason = "the logs differ before the end of this one"
    elif _has_other_record(log, replica, hole.begin):
        reason = "the replica has another record at the end of this log"
    elif snapshot.abort or known > hole.begin or _has_data_behind(snapshot, hole.begin):
        found.confirmed = None if snapshot.layout.follows_master else replica.confirmed
        most = known if snapshot.layout.follows_master else max(known, found.confirmed or hole.end)
        end = min(most, hole.end)
        runs = list(find_runs(replica, hole.begin, end, units, chained=True))
    starts = (int(entry.name) for entry in snapshot.log if entry.name.isdigit())
    if runs and runs[-1].blank and runs[-1].end not in starts:
        runs = _without_blank(runs[-1], replica)
    reached = runs[-1].end if runs else hole.begin
    if known > reached:
        found.lacks.append(NotInReplica(reached, known - reached, reason))
    _take(found, log, LogHole(hole.begin, reached, hole.before), replica, runs)
    found.goes_on = bool(there := record_at(replica.log, reached))
    if not there or reached + len(there) <= (found.confirmed or hole.end):
        found.confirmed = None


def _without_blank(run: ReplicaRun, replica: Replica) -> list[ReplicaRun]:
    """Return the run up to its last record: a BLANK leads to the next file, and there is none."""
    size = replica.log.queue.file_size
    start = (run.end - 1) // size * size
    begin = max(run.begin, start)
    for item in replica.log.scan(begin, run.end, reuse=True):
        if isinstance(item, Batch):
            begin = item.end
    return [run._replace(end=begin, blank=False)] if begin > run.begin else []


def _has_data_behind(snapshot: Snapshot, begin: int) -> bool:
    """Whether the last log file has data behind the end of the log."""
    for entry in snapshot.log:
        offset = begin - int(entry.name)
        if 0 <= offset < snapshot.log_file_bytes and not is_zero_from(entry, offset):
            return True
    return False


def _has_other_record(log: CommitLog, replica: Replica, position: int) -> bool:
    """Whether the record at a position, which may be torn, is another one than the replica's record there.

    Fields that are 0 were never written; a single different field is damage. So are several, as noise over a header
    makes them, if the times are equal or impossible: another message has other times.
    """
    texts = log.read(position, _PEEK_BYTES), replica.bytes_at(position, position + _PEEK_BYTES)
    own, other = (_head(data and data.ljust(_PEEK_BYTES, b"\0")) for data in texts)  # a file may end before
    if own is None or other is None or own["physical_offset"] != position:
        return False
    differing = {name for name in _RECORD_FIELDS if own[name] and own[name] != other[name]}
    times = [name for name in _TIMES if own[name]]
    others = [name for name in times if name in differing and 0 < own[name] < LATEST_MS]
    return len(differing) > 1 and bool(others or not times)


def _head(data: bytes) -> dict[str, int] | None:
    """Return the fields of the record at the start of these bytes."""
    if len(data) < _PEEK_BYTES:
        return None
    columns = decode_one(MESSAGE, data)
    return {name: int(columns.ints(name)[0]) for name in (*_RECORD_FIELDS, "physical_offset")}


def with_replica(
    snapshot: Snapshot,
    queue: MappedFileQueue,
    name: str,
    *,
    verify: bool,
    record_rules: RecordRules,
    look: Callable[[CommitLog, list[LogObserver]], None],
    observers: tuple[LogObserver, ...],
    compared_only: bool = False,
) -> tuple[Brought, MappedFileQueue]:
    """Return what the replica `name` gives, and the log's files with the pieces laid over them.

    verify, record_rules: as of a `GapFinder`. look: makes a pass over a log; `observers` see the log as it is on disk.
    compared_only: as of `bring_back`.
    Raises Refused, Missing, NotAStore, Unreadable, Unsupported, InvalidInput.
    """
    replica = Replica.open(name, snapshot.layout, snapshot.log_file_bytes, record_rules=record_rules)
    starts = frozenset(int(entry.name) for entry in snapshot.log)
    finder = DamageFinder(snapshot.log_file_bytes, starts, min(starts), verify, record_rules)
    look(commit_log_of(snapshot.layout, queue), [finder, *observers])
    log = commit_log_of(snapshot.layout, queue)
    brought = bring_back(snapshot, log, finder, replica, compared_only=compared_only)
    while brought.parts:
        chain = QueueChain(brought.parts, brought.exchanged)
        patched = _patched(snapshot, queue, brought)
        look(commit_log_of(snapshot.layout, patched), [chain])
        broken = chain.broken | (brought.exchanged - chain.proved)
        if not broken:
            return brought, patched
        _drop(brought, broken)
    return brought, queue


def _drop(brought: Brought, broken: set[ReplicaPart]) -> None:
    reason = "the replica's queue offsets do not fit between those of this log"
    for part in broken:
        brought.parts.remove(part)
        if part not in brought.exchanged:
            brought.lacks.append(NotInReplica(part.position, part.size, reason))
        brought.pieces = [p for p in brought.pieces if not part.position <= p[0] < part.end]
    brought.exchanged -= broken
    brought.lacks.sort()


def _patched(snapshot: Snapshot, queue: MappedFileQueue, brought: Brought) -> PatchedQueue:
    """Return the log's files with the pieces over them: changed files at full length, new files where none exists."""
    size = snapshot.log_file_bytes
    touched = {position // size * size for position, _ in brought.pieces}
    files, present = [], {}
    for entry in snapshot.log:
        start = int(entry.name)
        files.append(MappedFile(entry.path, start, size if start in touched else entry.size))
        present[entry.path] = min(entry.size, size)
        touched.discard(start)
    directory = Path(snapshot.layout.commit_log_directories[0])
    files += [MappedFile(str(directory / file_name(start)), start, size) for start in touched]
    files.sort(key=lambda file: file.start)
    return PatchedQueue(queue, files, present, brought.pieces)


@dataclass
class QueueChain(LogObserver):
    """Checks that queue offsets rise from this log's own records into the parts brought, and back.

    broken: parts where they do not. proved: those of `exchanged` whose neighbour in the queue has the next offset
    before or after theirs.
    """

    parts: list[ReplicaPart]
    exchanged: set[ReplicaPart] = field(default_factory=set)
    proved: set[ReplicaPart] = field(default_factory=set)
    broken: set[ReplicaPart] = field(default_factory=set)
    #: Highest queue offset of each queue so far, and the position of that message.
    _last: dict[QueueId, tuple[int, int]] = field(default_factory=dict)

    def messages(self, messages: Messages) -> None:
        if not len(messages.offset):
            return
        last, place = self._last.get(messages.queue, (-1, -1))
        offsets = np.concatenate([np.array([last], np.int64), messages.offset])
        places = np.concatenate([np.array([place], np.int64), messages.position])
        highest = np.maximum.accumulate(offsets)
        at = int(offsets.argmax())
        self._last[messages.queue] = int(offsets[at]), int(places[at])
        for row in np.flatnonzero(offsets[1:] <= highest[:-1]).tolist():
            before = int(np.flatnonzero(offsets[: row + 1] == highest[row])[0])
            sides = self._part_of(int(places[row + 1])), self._part_of(int(places[before]))
            if sides[0] != sides[1]:
                self.broken |= {part for part in sides if part is not None}
        goes_on = (offsets[1:] == offsets[:-1] + 1) & (offsets[:-1] >= 0)
        self.proved |= {
            part
            for part in self.exchanged
            if goes_on[(places[1:] == part.position) | (places[:-1] == part.position)].any()
        }

    def _part_of(self, position: int) -> ReplicaPart | None:
        at = int(np.searchsorted([part.position for part in self.parts], position, side="right"))
        part = self.parts[at - 1] if at else None
        return part if part and position < part.end else None
