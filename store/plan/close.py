"""Plan the commit log under the policy "keep": close every gap and set the end of the log.

The log ends behind the last good record, or behind lost records that units name right behind it. The log of a slave
ends behind the last good record that has all its properties, as its master sends the rest again. What lies farther on
(a torn tail, stale bytes, files that were never written) is treated as under the policy "broker".
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress, groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...formats.blank import BLANK, MAGIC_BLANK
from ...formats.dledger import HEADER_BYTES
from ...formats.hashing import utf8
from ..audit.queues import QueueAudit
from ..audit.verified import VerifiedLog
from ..broker.load_rules import LoadedFile
from ..broker.profiles import Profile
from ..broker.snapshot import DirectoryEntry, QueueId, Snapshot
from ..broker.system_topics import LMQ_PREFIX
from ..counted import counted
from ..disk.checkpoint import lost_end
from ..disk.file_queue import MappedFile, MappedFileQueue, file_name, in_files
from ..disk.files import Edit
from ..disk.layout import DLEDGER_PREFIX
from ..errors import Refused
from ..findings.next_commands import proposed
from ..log.batch import Batch
from ..log.commit_log import CommitLog
from ..log.message import Mark, tombstones
from ..queues.edits import last_byte
from ..queues.references import commit_log_of
from ..queues.units import is_pre_fill, is_valid
from ..settings.options import options_of
from ..start.config import delay_progress
from ..start.config_load import config_rules
from . import torn_records
from .fill import (
    Fill,
    PatchedQueue,
    Piece,
    encoded,
    fills,
    for_policy_broker,
    padded,
    rows_in,
    together,
    units_beside,
    unwritten,
)
from .gaps import Forms, Gap, GapFinder, TornRecord
from .log import LogPlan, tail_edits, written
from .lost_messages import EVERYWHERE, RECORD_BYTES_MAX, LostUnits, lost_units
from .normalize import renamed
from .unreferenced import (
    LostMessagePlace,
    Unplaced,
    further_topic,
    op_bodies,
    places,
    with_light_queues,
    with_own_queues,
    with_unreferenced,
)


class KeptLog(NamedTuple):
    """The log as it will be. queue: its files with the pieces to write over them.

    restored: number of records whose header, or a number in their properties, is corrected. written: [begin, end) of
    the bytes to write. unplaced: lost messages without a tombstone.
    """

    plan: LogPlan
    queue: MappedFileQueue
    fills: list[Fill]
    restored: int = 0
    cut: Sequence[torn_records.CutProperties] = ()
    written: Sequence[tuple[int, int]] = ()
    unplaced: Sequence[Unplaced] = ()
    #: Number of records whose LMQ offsets are corrected.
    numbered: int = 0
    #: Part of the plan may exist only because `RecoveryOptions.exact` was asked for.
    exact_alone: bool = False
    #: Lost messages without a tombstone whose places are known: nothing is written there.
    gone: Sequence[Fill] = ()
    #: Records in the log's gaps that are damaged, but whole in their lengths.
    torn: Sequence[TornRecord] = ()
    #: Messages behind the end of a slave's log that units name: the master sends them again.
    resent: int = 0
    #: What the log has lost at its end, by units and checkpoint, if a controller may make its broker the master.
    lost_end: range = range(0)
    #: Whole records of a DLedger log that only a new head brings back.
    by_head: Sequence[Fill] = ()


def gap_finder(snapshot: Snapshot, profile: Profile, *, verify: bool) -> GapFinder:
    """Return the observer that sees the whole log before `keep_log`. verify: as of a `GapFinder`."""
    starts = frozenset(int(entry.name) for entry in snapshot.log)
    delivered = delay_progress(snapshot.layout, config_rules(profile)) or {}
    return GapFinder(snapshot.log_file_bytes, starts, min(starts), verify, profile.record, delivered)


class SeenLog(NamedTuple):
    """A log that `finder` has seen, and so have the audits of the queues. verified: the part of it that is in order."""

    snapshot: Snapshot
    queue: MappedFileQueue
    finder: GapFinder
    audits: Mapping[QueueId, QueueAudit]
    verified: VerifiedLog | None


def keep_log(seen: SeenLog, forms: Forms, elsewhere: LostUnits, brought: Sequence[Piece]) -> KeptLog:
    """Plan the log. Raises Refused, Unreadable.

    elsewhere: units of good records whose header names another place. brought: pieces from a replica, which the files
    of the log have already.
    """
    snapshot, queue, finder, audits, _ = seen
    if finder.end < 0 <= finder.stale_end:
        raise renamed(snapshot)
    read = (ours for ours, _ in snapshot.files_of_one_name(queue))  # of two files with one name the one that is read
    entries = {int(entry.name): entry for entry in (*snapshot.log, *read)}
    size, start = snapshot.log_file_bytes, min(entries)
    end, gaps, lost, gone, topics, resent, at_end = _lost_records(seen)
    _refuse_lost_dledger(snapshot, gone)
    forms = forms._replace(append_crc=forms.append_crc or finder.crc_items)
    rules = torn_records.PutRightRules(options_of(snapshot.layout).delay_waits(), finder.verify, finder.record_rules)
    gaps, lost, saved, restored = _put_right(queue, gaps, lost, rules, forms.smallest_filler)
    headers = list(_right_headers(queue, elsewhere.take(elsewhere.position < end), rules))
    restored += [piece for piece, _ in headers]
    wanted = list(_missing_places(audits, topics, {position: own for (position, _), own in headers}))
    lost, given = with_own_queues(lost, wanted, (elsewhere, saved), topics)
    closed = [fill for fill in fills(gaps, lost, forms) if not _is_closed(fill, queue)]
    closed, unplaced = with_unreferenced(closed, wanted, (elsewhere, saved), given, forms)
    _refuse_twins(snapshot, queue, closed)
    bodies = op_bodies(commit_log_of(snapshot.layout, queue), lost, closed, forms)
    stale = finder.stale_end > end
    tombstones = together([fill.lost for fill in closed])
    further = with_light_queues(tombstones, _named_further(snapshot, tombstones, topics), wanted, topics, forms)
    pieces = list(encoded(closed, forms, bodies, torn_records.names_of(further)))
    pieces += _paddings(queue, closed)
    edits = [
        *lengths_of(snapshot, entries, end, stale=stale),
        *writes_of(snapshot, entries, [*brought, *pieces], closed, frozenset(at for at, _ in brought)),
    ]
    taken = {at for at, _ in restored} | {fill.gap.previous for fill in closed if fill.padding}
    whole = [r for r in finder.cut if r.position < end and r.position not in taken]
    cut = torn_records.cut_properties(
        queue, whole, torn_records.further_queues(snapshot, whole), with_crc=forms.append_crc
    )
    taken |= {record.position for record in cut}
    whole = [r for r in finder.undispatchable if r.position < end and r.position not in taken]
    restored, lmq = _with_numbers(restored, [(r.position, queue.read(r.position, r.size)) for r in whole], audits)
    without = [(c.position, c.data) for c in cut]
    for changed, why in ((restored, RESTORED), (without, CUT), (lmq, _NUMBERED)):
        edits += edits_of(entries, size, changed, why)
    twins = [e for e in snapshot.log if e is not entries[int(e.name)] and int(e.name) > end]
    files = [LoadedFile(int(e.name), size, e) for e in (*(entries[start] for start in sorted(entries)), *twins)]
    tail = list(tail_edits(snapshot, files, end, stale))
    over = [*brought, *pieces, *restored, *lmq, *without]
    patched = patched_queue(snapshot, queue, entries, over, end)
    plan = LogPlan(start, end, stale, [*edits, *tail], written(tail), finder.given_up)
    ranges = [(position, position + len(data)) for position, data in over]
    kept = KeptLog(plan, patched, closed, len(restored), cut, ranges, unplaced, len(lmq), gone=gone)
    return kept._replace(resent=resent, lost_end=at_end)


class _LostRecords(NamedTuple):
    """What a log has lost. end: where it ends if lost records right behind the last good one belong to it.

    units: lost records in gaps. behind: those of missing files at the end. topics: as of `_further_topics`. resent,
    lost_end: as of `KeptLog`.
    """

    end: int
    gaps: list[Gap]
    units: LostUnits
    behind: list[Fill]
    topics: dict[QueueId, str]
    resent: int
    lost_end: range


def _lost_records(seen: SeenLog) -> _LostRecords:
    """Return what the log has lost. Raises Unreadable."""
    snapshot, queue, finder, audits, verified = seen
    follows = snapshot.layout.follows_master
    for record in reversed(finder.cut if follows else ()):  # the master sends them again, whole
        if record.position + record.size == finder.end:
            finder.end = finder.covered = record.position
            finder.given_up = True
    dead = np.concatenate([np.zeros(0, np.int64), *finder.dead])
    end, filled = max(finder.end, min(finder.files)), finder.filled
    look = partial(lost_units, snapshot, dead=dead, ends=finder.queue_ends, verified=verified, audits=audits)
    size = snapshot.log_file_bytes
    # what is behind the end of a slave's log is not lost: it counts as `resent`
    if not follows and len(behind := units_behind(size, end, max(finder.files) + size, look)):
        finder.covered = max(end, finder.end)
        finder.gaps = [gap for gap in finder.gaps if gap.begin < finder.covered]
        end = int(behind.end[-1])
        finder.close(end)
    gaps = finder.all_gaps(end)
    heads = (0,) if snapshot.layout.dledger is not None else (0, HEADER_BYTES)
    gone = [] if finder.given_up or follows else _last_files(finder, max(end, filled), look, heads)
    topics = _further_topics(snapshot, audits, queue) if finder.gaps else {}  # reads two records of each queue
    units = look(gaps, finder.torn, further=topics)
    resent = look([Gap(end, EVERYWHERE, True, 0)] if follows else [], ())
    torn_end = commit_log_of(snapshot.layout, queue).torn_end(end)
    at_end = lost_end(snapshot.layout, snapshot.checkpoint, end, size, resent.end.tolist(), torn_end=torn_end)
    return _LostRecords(end, gaps, units, gone, topics, resent.messages, at_end)


def with_lost_anyway(kept: KeptLog, seen: SeenLog, forms: Forms, elsewhere: LostUnits) -> KeptLog:
    """Return a log in which nothing is written in the places of lost messages with those that no plan brings back, and
    with what it has lost at its end. elsewhere: as in `keep_log`. Raises Unreadable.
    """
    found = _lost_records(seen)
    there = commit_log_of(seen.snapshot.layout, seen.queue).records(found.units.position)
    whole = there.position if there.body_crc_ok is None else there.position[there.body_crc_ok]
    saved = np.isin(found.units.position, whole)
    known, wanted = (elsewhere, found.units.take(saved)), list(_missing_places(seen.audits, found.topics, {}))
    units, given = with_own_queues(found.units.take(~saved), wanted, known, found.topics)
    number, rows = rows_in(found.gaps, units.position)
    of_gaps = ((gap, units.take(rows[number == at])) for at, gap in enumerate(found.gaps))
    lost = [unwritten(gap, mine) for gap, mine in of_gaps if len(mine) or not gap.blank]
    lost, unplaced = with_unreferenced(lost, wanted, known, given, forms)
    gone = [*lost, *found.behind]
    kept = kept._replace(gone=gone, unplaced=unplaced, torn=seen.finder.torn)
    return kept._replace(resent=found.resent, lost_end=found.lost_end)


def _refuse_lost_dledger(snapshot: Snapshot, gone: Sequence[Fill]) -> None:
    """Check that no DLedger log is gone that continues this plain log: its records lie in entries. Raises Refused."""
    if gone and int(gone[0].lost.position[0]) == gone[0].gap.begin + HEADER_BYTES:
        messages = counted(sum(each.lost.messages for each in gone), "message")
        give_up = proposed(snapshot.layout, "recover", "--policy", "broker")
        raise Refused(
            "queues name the first record of a DLedger log behind this log, but it is not there",
            path=snapshot.layout.root / f"{DLEDGER_PREFIX}*",
            hint="mount its disk, or copy the directory back; if it is gone for good, give up the"
            f" {messages} that queues name: {give_up}",
        )


def _refuse_twins(snapshot: Snapshot, queue: MappedFileQueue, closed: Sequence[Fill]) -> None:
    """Check that no tombstone replaces a record that another file of the same name has. Raises Refused."""
    for ours, other in snapshot.files_of_one_name(queue):
        start = int(ours.name)
        gaps = [each.gap for each in closed if start <= each.gap.begin < start + ours.size and len(each.lost)]
        with MappedFileQueue.of_file(other.path, start) as file:
            log = commit_log_of(snapshot.layout, file)
            if any(_has_record(log, gap) for gap in gaps):
                raise Refused(
                    f"two files have this name: records are lost in this one and whole in {other.path}",
                    path=ours.path,
                    hint="look at both, and move the wrong one out of the store; its whole records"
                    " can be brought back with --replica DIRECTORY",
                )


def _has_record(log: CommitLog, gap: Gap) -> bool:
    """Whether a record with a matching body checksum begins in a gap."""
    batches = (item for item in log.scan(gap.begin, gap.end) if isinstance(item, Batch))
    looked_at = ((batch, batch.body_crc_ok) for batch in batches if batch.mark <= Mark.AFTER_DAMAGE)
    return any(good is not None and bool((good & ~tombstones(batch.columns)).any()) for batch, good in looked_at)


def _further_topics(
    snapshot: Snapshot, audits: Mapping[QueueId, QueueAudit], queue: MappedFileQueue
) -> dict[QueueId, str]:
    """Return the queues that are never a record's own, and the topic of their records (`further_topic`)."""
    light = any(name.topic.startswith(LMQ_PREFIX) for name in audits)
    if not light and not options_of(snapshot.layout).multi_dispatch.value:
        return {}
    log = commit_log_of(snapshot.layout, queue)
    topics = {name: further_topic(audit, log) for name, audit in audits.items()}
    return {name: topic for name, topic in topics.items() if topic is not None}


def _named_further(snapshot: Snapshot, lost: LostUnits, topics: Mapping[QueueId, str]) -> torn_records.FurtherQueues:
    """Return, by position of a tombstone, the further queues whose units name the lost record, and its offset in each.
    A broker that makes its queues anew adds the tombstone to these, and no client can acknowledge a message of a LITE
    topic that does not name its LMQ. topics: as of `_further_topics`. Raises Unreadable.
    """
    found = dict[int, dict[bytes, int]]()
    if not topics:
        return found
    ids = {
        position: lost.queues[number].queue_id
        for number, position in zip(lost.queue.tolist(), lost.position.tolist(), strict=True)
        if not lost.queues[number].topic.startswith(LMQ_PREFIX)  # else it becomes a filler
    }
    for queue, units in units_beside(snapshot, lost, sorted(topics.keys() & snapshot.queues.keys())):
        light = queue.topic.startswith(LMQ_PREFIX)
        for position, offset in zip(units.position.tolist(), units.queue_offset.tolist(), strict=True):
            if position in ids and queue.queue_id in (ids[position], 0 if light else ids[position]):
                found.setdefault(position, {}).setdefault(utf8(queue.topic), offset)
    return found


def _missing_places(
    audits: Mapping[QueueId, QueueAudit], further: Container[QueueId], own: Mapping[int, QueueId]
) -> Iterator[LostMessagePlace]:
    """Yield queue offsets without a message in the log. A valid unit of a further queue names a record of another
    queue: the unit stays, and nothing is missing. Nor is an offset missing next to a record that is corrected into
    another queue. own: the queues of such records, by position.
    """
    for queue, found in groupby(places(audits), key=attrgetter("queue")):
        mine = [at for at in found if all(own.get(beside, queue) == queue for beside in (at.low, at.high))]
        if mine and (mine[0].is_light or queue in further):
            units = audits[queue].stream.lookup(np.array([at.queue_offset for at in mine], np.int64))
            mine = list(compress(mine, ~is_valid(units) | is_pre_fill(units)))
        yield from mine


_BROUGHT = "brought back from the replica"
RESTORED = "corrects a record: its queue and its body prove what it was", "I-020"
CUT = "separators in place of properties that a torn write destroyed", "I-055"
_NUMBERED = "a number for each LMQ that a record names", "I-048"
OF_RECORDS = frozenset({RESTORED, CUT, _NUMBERED})
"""Reason and code of edits that write a record again in its place."""


def units_behind(
    size: int, end: int, files_end: int, look: Callable[..., LostUnits], head: int = 0, *, sure: bool = False
) -> LostUnits:
    """Return the records behind the last good one that units name: lost, but known. head: bytes before each record.
    sure: something else proves that there were such records.
    """
    found = look([Gap(begin, behind, True, 0) for begin, behind in in_files(end, files_end, size)], ())
    # a single unit that names a place far behind the end does not prove a record there
    next_file = -(-end // size) * size
    begins_there = len(found) and int(found.position[0]) - head in (end, next_file)
    return found if begins_there or sure else found.take(slice(0, 0))


def _last_files(finder: GapFinder, filled: int, look: Callable[..., LostUnits], heads: Container[int]) -> list[Fill]:
    """Return the records of missing log files at the end, which units name. Nothing is written for them: the log
    continues at its end. The first of them begins right behind the existing files, behind so many bytes as `heads` has,
    and had no room between `filled` and their end; otherwise the units are leftovers of a cut.
    """
    files_end = max(finder.files) + finder.file_bytes
    if files_end - filled > RECORD_BYTES_MAX:
        return []
    found = look([Gap(files_end, EVERYWHERE, True, 0)], ())
    if not len(found) or int(found.position[0]) - files_end not in heads:
        return []
    if filled + int(found.size[0]) + BLANK.sizeof() <= files_end:
        return []
    stray = np.flatnonzero(found.position[1:] - found.end[:-1] > finder.file_bytes)
    found = found.take(slice(0, int(stray[0]) + 1)) if len(stray) else found
    gap = Gap(files_end, int(found.end[-1]), True, finder.last_timestamp)
    return [Fill(gap, found, [], None)]


def _right_headers(
    queue: MappedFileQueue, elsewhere: LostUnits, rules: torn_records.PutRightRules
) -> Iterator[tuple[Piece, QueueId]]:
    """Yield good records with a corrected header, and the queue of each."""
    for row, number in enumerate(elsewhere.queue.tolist()):
        piece = torn_records.put_right(queue, elsewhere, row, 0, rules)
        # if the log has exactly this record, its unit is wrong, not its header
        if piece is not None and queue.read(piece[0], len(piece[1])) != piece[1]:
            yield piece, elsewhere.queues[number]


def _put_right(
    queue: MappedFileQueue, gaps: Sequence[Gap], lost: LostUnits, rules: torn_records.PutRightRules, smallest: int
) -> tuple[list[Gap], LostUnits, LostUnits, list[Piece]]:
    """Take records that are whole except for their header out of the gaps and the lost records.

    Return the remaining gaps, the lost records, the saved records, and the bytes of the latter. smallest: bytes of the
    smallest filler.
    """
    rest, pieces = list[Gap](), list[Piece]()
    number, rows = rows_in(gaps, lost.position)
    times = np.array([gap.store_timestamp for gap in gaps], np.int64)
    proved = torn_records.all_put_right(queue, lost.take(rows), number, times[number], rules)
    for at, gap in enumerate(gaps):
        found = proved.get(at, {})
        parts = _rest_of_gap(gap, found)
        if any(0 < part.end - part.begin < smallest for part in parts):
            rest.append(gap)  # the units of these records are not to be trusted
            continue
        rest += [part for part in parts if part.end > part.begin]
        pieces += found.items()
    saved = np.isin(lost.position, np.array([position for position, _ in pieces], np.int64))
    return rest, lost.take(~saved), lost.take(saved), pieces


def _with_numbers(
    restored: Sequence[Piece], others: Sequence[Piece], audits: Mapping[QueueId, QueueAudit]
) -> tuple[list[Piece], list[Piece]]:
    """Return the corrected records and the changed ones of `others`, with a number for each LMQ that a record names."""
    lacking = [piece for piece in restored if torn_records.lacks_numbers(bytes(piece[1]))]
    made = dict(torn_records.lmq_items([*lacking, *others], audits))
    return [(at, made.pop(at, data)) for at, data in restored], list(made.items())


def _rest_of_gap(gap: Gap, records: Mapping[int, bytes]) -> list[Gap]:
    begin, parts = gap.begin, []
    for position, record in sorted(records.items()):
        parts.append(gap._replace(begin=begin, end=position, to_file_end=False))
        begin = position + len(record)
    return [*parts, gap._replace(begin=begin)] if parts else [gap]


def edits_of(
    entries: dict[int, DirectoryEntry], size: int, pieces: Sequence[Piece], why: tuple[str, str]
) -> Iterator[Edit]:
    """Yield edits of records that keep their places. why: reason, and code of what is wrong with the records."""
    reason, code = why
    for position, data in sorted(pieces):
        start = position // size * size
        yield Edit("write", entries[start].path, reason, (code,), position - start, len(data), data)


def _paddings(queue: MappedFileQueue, closed: Sequence[Fill]) -> Iterator[Piece]:
    """Yield the records whose properties take up a gap too small for any record. Raises Refused."""
    for fill in closed:
        if not fill.padding:
            continue
        position = fill.gap.previous
        file = queue.file_at(position)
        assert file is not None
        record = queue.read_file(file, position - file.start, fill.gap.begin - position)
        try:
            yield position, padded(record, fill.padding)
        except ValueError as error:
            what = f"{counted(fill.padding, 'byte')} that no record owns, and {error}"
            raise for_policy_broker(what, fill.gap.begin, file.path) from error


def _is_closed(fill: Fill, queue: MappedFileQueue) -> bool:
    """Whether nothing is to do: the BLANK of the gap exists already."""
    if fill.blank is None or len(fill.lost) or fill.fillers:
        return False
    position, size = fill.blank
    data = BLANK.build({"total_size": size, "magic_code": MAGIC_BLANK})
    return queue.read(position, len(data)) == data


def lengths_of(snapshot: Snapshot, entries: dict[int, DirectoryEntry], end: int, *, stale: bool) -> Iterator[Edit]:
    """Yield edits that correct the length of the log files that stay (`plan.log.tail_edits`)."""
    size, first = snapshot.log_file_bytes, min(entries)
    for start in sorted(entries):
        entry = entries[start]
        stays = start < end or (start == end and (start == first or not stale))
        if entry.size != size and stays:
            reason = f"{counted(entry.size, 'byte')}, log files have {size}"
            yield Edit("truncate", entry.path, reason, ("I-003",), min(size, entry.size), size)


def writes_of(
    snapshot: Snapshot,
    entries: dict[int, DirectoryEntry],
    pieces: Sequence[Piece],
    closed: Sequence[Fill] = (),
    brought: frozenset[int] = frozenset(),
) -> Iterator[Edit]:
    """Yield edits that write the pieces, and zeros behind the BLANKs. brought: positions of pieces from a replica."""
    size = snapshot.log_file_bytes
    directory = snapshot.layout.commit_log_directories[0]
    new: dict[int, list[Piece]] = {}
    for position, data in sorted(pieces, key=itemgetter(0)):
        start = position // size * size
        entry = entries.get(start)
        if entry is None:
            new.setdefault(start, []).append((position - start, data))
            continue
        reason = _BROUGHT if position in brought else "tombstones and fillers in place of lost records"
        yield Edit("write", entry.path, reason, ("I-020",), position - start, len(data), data)
    for start, inside in sorted(new.items()):
        is_brought = any(start + at in brought for at, _ in inside)
        reason = _BROUGHT if is_brought else "in place of the missing log file"
        path = str(directory / file_name(start))
        yield Edit("create", path, reason, ("I-002",), length=size, pieces=tuple(inside))
    for fill in closed:
        if fill.blank is None:
            continue
        start = fill.gap.begin // size * size
        begin = fill.blank[0] - start + BLANK.sizeof()
        entry = entries.get(start)
        if entry is None:
            continue
        last = last_byte(entry, begin, size)  # a file that is too long is truncated, not written to
        if last > begin:
            reason = "zeros up to the end of the file, where there is no record"
            yield Edit("write", entry.path, reason, ("I-020",), begin, last - begin)


def patched_queue(
    snapshot: Snapshot, queue: MappedFileQueue, entries: dict[int, DirectoryEntry], pieces: Sequence[Piece], end: int
) -> PatchedQueue:
    """Return the files of the log up to its end, with the pieces over them."""
    size = snapshot.log_file_bytes
    directory = snapshot.layout.commit_log_directories[0]
    files, present = [], {}
    for start in range(min(entries), max(end, min(entries) + 1), size):
        entry = entries.get(start)
        path = entry.path if entry else str(Path(directory) / file_name(start))
        files.append(MappedFile(path, start, size))
        if entry is not None:
            present[path] = min(entry.size, size)
    queue.file_size = size
    return PatchedQueue(queue, files, present, pieces)
