"""Plan a DLedger log: entries that follow one another, and their index (spec 1.13).

DLedger cuts the log at the first entry whose head does not follow, whatever its record. Under `keep` lost heads are
rebuilt from the units of the index, else from what queues and the message index name and from the missing numbers. A
lost record becomes a tombstone of the same size in its entry.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ...formats.derive import dtype_of
from ...formats.derive.ragged import Bytes, Flags, Ints, Structs
from ...formats.dledger import BLANK, HEAD, HEADER_BYTES, MAGIC_BLANK, MAGIC_ENTRY
from ...formats.dledger_index import FILE_BYTES, UNIT_BYTES
from ...formats.message import SMALLEST
from ...formats.tombstone import FILLER_TOPIC
from ..audit.messages import LogObserver, Messages
from ..broker.dispatch import Dispatched
from ..broker.load_rules import LoadedFile
from ..broker.profiles import RecordRules
from ..broker.snapshot import NO_QUEUE, DirectoryEntry, QueueId, Snapshot
from ..counted import counted
from ..disk.file_queue import MappedFile, MappedFileQueue, file_name, in_files
from ..disk.files import Edit
from ..errors import Refused
from ..log.batch import DAMAGED, Batch, Extent, ExtentKind
from ..log.commit_log import CommitLog
from ..settings.options import options_of
from ..start.dledger import (
    DledgerIndexFile,
    following_entries,
    heads_of,
    index_directory,
    member_fields,
    member_state,
    units_of,
)
from ..start.outcome import Outcome
from .close import CUT, RESTORED, KeptLog, edits_of, lengths_of, patched_queue, units_behind, writes_of
from .fill import Fill, Piece, encoded, for_policy_broker, of_nobody, together, unwritten
from .gaps import Forms, Gap, TornRecord, has_usable_properties, silent_records, torn_records
from .log import LogPlan, tail_edits, written
from .lost_messages import EVERYWHERE, LostUnits, items_in, lost_units
from .torn_records import PutRightRules, all_put_right, cut_properties, further_queues
from .unreferenced import LostMessagePlace, Unplaced, pairs_of

_HEAD = dtype_of(HEAD)
_SMALLEST_ENTRY = HEADER_BYTES + SMALLEST + len(FILLER_TOPIC)
_RIGHT_HEAD = "corrects the header of an entry: its record is whole", "I-052"


class NeighbourEntry(NamedTuple):
    """Number and term of the good entry beside a gap; -1 each without one."""

    number: int
    term: int


NOBODY = NeighbourEntry(-1, -1)


class EntryGap(NamedTuple):
    """Log positions [begin, end) without a good entry, between two good entries."""

    begin: int
    end: int
    before: NeighbourEntry
    after: NeighbourEntry
    store_timestamp: int


class Tile(NamedTuple):
    """An entry in a gap: its place and size, its number and term."""

    position: int
    size: int
    number: int
    term: int

    @property
    def record(self) -> int:
        return self.position + HEADER_BYTES

    def gap(self, store_timestamp: int) -> Gap:
        """Return the place of the record as a gap."""
        return Gap(self.record, self.position + self.size, False, store_timestamp)

    @property
    def head(self) -> bytes:
        """Bytes of the entry before its record."""
        head = np.zeros(1, _HEAD)
        head["magic"], head["size"], head["pos"] = MAGIC_ENTRY, self.size, self.position
        head["index"], head["term"] = self.number, self.term
        head["body_length"] = self.size - HEADER_BYTES
        return head.tobytes()


@dataclass
class EntryFinder(LogObserver):
    """Finds missing entries and damaged records in a pass over the whole log.

    record_rules, delivered: as of a `GapFinder`. end: behind the last good entry, or behind the BLANK after it.
    """

    record_rules: RecordRules
    delivered: Mapping[int, int]
    end: int = 0
    gaps: list[EntryGap] = field(default_factory=list)
    torn: list[TornRecord] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    #: Good records that have lost properties.
    cut: list[TornRecord] = field(default_factory=list)
    #: Positions of good records that get no unit.
    silent: list[Ints] = field(default_factory=list)
    #: Entries of good records with wrong heads, as the heads should be.
    heads: list[Tile] = field(default_factory=list)
    queue_ends: dict[QueueId, int] = field(default_factory=dict)
    #: The last good entry, and its store time.
    before: NeighbourEntry = NOBODY
    time: int = 0
    _damaged: int = -1

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        """Take entries with whole records, some of them with a wrong checksum."""
        columns = batch.columns
        times = columns.ints("store_timestamp")
        begin = int(batch.position[0]) - HEADER_BYTES
        expected = self.before.number + 1 if begin == self.end and self._damaged < 0 else -1
        numbers, terms = self._put_right(batch, heads_of(batch.columns), expected)
        self._close_gap(begin, NeighbourEntry(int(numbers[0]), int(terms[0])), int(times[0]))
        good = np.ones(len(batch), np.bool_) if batch.body_crc_ok is None else batch.body_crc_ok.copy()
        good &= has_usable_properties(batch, dispatched.properties, self.record_rules, self.delivered)
        self.torn += torn_records(batch, dispatched.properties, good, self.record_rules, self.delivered)
        self.times += times[~good].tolist()
        cut = dispatched.properties.torn() & good
        self.cut += [TornRecord.of(batch, row) for row in np.flatnonzero(cut).tolist()]
        self.silent.append(silent_records(batch, good))
        self.before, self.time = NeighbourEntry(int(numbers[-1]), int(terms[-1])), int(times[-1])
        self.end = batch.end

    def _put_right(self, batch: Batch, heads: Structs, expected: int) -> tuple[Ints, Ints]:
        """Return the right number and term of each entry, and note the entries with a wrong head.

        expected: the number of the first entry if the entry before it is known, else 0 or less.
        """
        index, term = heads["index"].astype(np.int64), heads["term"].astype(np.int64)
        rows = np.arange(len(heads))
        if expected <= 0:
            shifts, counts = np.unique(index - rows, return_counts=True)
            expected = int(shifts[counts.argmax()])
        numbers = expected + rows
        terms = _rising(term, self.before.term)
        wrong = (index != numbers) | (term != terms) | (heads["magic"] != MAGIC_ENTRY)
        sizes = batch.columns.ints("total_size") + HEADER_BYTES
        wrong |= heads["pos"] != batch.position - HEADER_BYTES
        wrong |= (heads["size"] != sizes) | (heads["body_length"] != sizes - HEADER_BYTES)
        for row in np.flatnonzero(wrong).tolist():
            place = int(batch.position[row]) - HEADER_BYTES
            self.heads.append(Tile(place, int(sizes[row]), int(numbers[row]), int(terms[row])))
        return numbers, terms

    def messages(self, messages: Messages) -> None:
        behind = int(messages.offset.max()) + 1
        self.queue_ends[messages.queue] = max(behind, self.queue_ends.get(messages.queue, 0))

    def extent(self, extent: Extent) -> None:
        """Take a BLANK, which ends its file, or damage, which is a gap if entries follow."""
        if extent.kind is ExtentKind.BLANK:
            if self._damaged < 0 and extent.position == self.end:
                self.end = extent.end
        elif extent.kind in DAMAGED and self._damaged < 0:
            self._damaged = extent.position

    def _close_gap(self, begin: int, after: NeighbourEntry, time: int) -> None:
        """Close the gap before a good entry, if there is damage or entry numbers are missing."""
        first = self.before is NOBODY  # there may be stale entries in front of the first one
        missing = self.end < begin if first else after.number != self.before.number + 1
        if self._damaged >= 0 or (missing and self.end < begin):
            self.gaps.append(EntryGap(self.end, begin, self.before, after, self.time or time))
        elif missing:
            raise for_policy_broker(f"entry {self.before.number} is followed by entry {after.number}", begin)
        self._damaged = -1


def _rising(term: Ints, before: int) -> Ints:
    """Return terms that never fall: a term that stands out is replaced by that of the entry before."""
    behind = np.minimum.accumulate(term[::-1])[::-1]
    ahead = np.maximum.accumulate(np.maximum(term, before))
    high, low = term > behind, term < ahead
    if not low.any():
        return term
    odd = high if high.sum() <= low.sum() and not (term < before).any() else low
    rows = np.where(odd, -1, np.arange(len(term)))
    last = np.maximum.accumulate(rows)
    found: Ints = np.where(last >= 0, term[np.maximum(last, 0)], max(before, 0))
    return found


def cut_log(snapshot: Snapshot, outcome: Outcome, look: Callable[[list[LogObserver]], None]) -> LogPlan:
    """Plan the log as DLedger's own recovery ends it, in a group of several nodes before the first damaged record: the
    leader sends it again, too; DLedger never looks at it. look: reads the log. Raises Refused if the recovery fails.
    """
    if outcome.refusal is not None or outcome.dledger is None:
        reason = outcome.refusal.reason if outcome.refusal else "no entry"
        raise Refused(reason, path=snapshot.layout.dledger, hint="recover with --policy keep")
    size = snapshot.log_file_bytes
    files = [LoadedFile(int(e.name), size, e) for e in snapshot.log if not e.directory]
    end, finder = outcome.dledger.end, EntryFinder(outcome.profile.record, {}, files[0].start)
    if snapshot.layout.follows_master:
        with suppress(Refused):
            look([finder])
        damaged = (record.position - HEADER_BYTES for record in [*finder.torn, *finder.cut])
        end = min([end, *damaged, *(gap.begin for gap in finder.gaps)])
    tail = list(tail_edits(snapshot, files, end, stale=False))
    return LogPlan(files[0].start, end, False, tail, written(tail))


def keep_entries(
    snapshot: Snapshot,
    queue: MappedFileQueue,
    forms: Forms,
    finder: EntryFinder,
    elsewhere: LostUnits,
    unreferenced: Iterator[LostMessagePlace],
) -> KeptLog:
    """Plan the log with all its good records, each entry following the one before. elsewhere: units of records whose
    header names another place. Raises Refused.
    """
    size, entries = snapshot.log_file_bytes, {int(entry.name): entry for entry in snapshot.log}
    nothing = np.zeros(0, np.int64)
    look = partial(lost_units, snapshot, dead=nothing, ends=finder.queue_ends)
    with DledgerIndexFile(snapshot) as index:
        parts = [_tiles_of(gap, snapshot, index) for gap in finder.gaps]
        behind, unplaced = _lost_behind(snapshot, finder, index, look)
    resent = 0
    if snapshot.layout.follows_master:  # the leader sends them again
        resent = sum(fill.lost.messages for fill in behind) + sum(place.messages for place in unplaced)
        behind, unplaced = [], []
    tiles = [tile for found, _ in parts for tile in found]
    blanks = [piece for _, found in parts for piece in found]
    saved = _good_records(queue, tiles)
    times = [gap.store_timestamp for gap, (found, _) in zip(finder.gaps, parts, strict=True) for _ in found]
    lost = [tile.gap(time) for tile, time in zip(tiles, times, strict=True) if tile.record not in saved]
    damaged = zip(finder.torn, finder.times, strict=True)
    lost += [Gap(torn.position, torn.position + torn.size, False, time) for torn, time in damaged]
    lost.sort(key=lambda gap: gap.begin)
    named = look(lost, finder.torn)
    of_gaps = named.take(np.isin(named.position, [gap.begin for gap in lost]))
    taken = set(pairs_of(together([of_gaps, elsewhere])))
    own = (place for place in unreferenced if not place.is_light)
    wanted = (place for place in own if (place.queue, place.queue_offset) not in taken)
    restored = _restored(snapshot, queue, finder, named, elsewhere)
    lost = [gap for gap in lost if gap.begin not in restored]
    named = named.take(~np.isin(named.position, list(restored)))
    fills = list(_fills(lost, named, wanted, forms))
    gone = [*(fill._replace(lost=of_nobody(fill.fillers), fillers=[]) for fill in fills if fill.fillers), *behind]
    heads = [(t.position, t.head) for t in [*finder.heads, *(t for t in tiles if t.record in saved)]]
    made = ((t.position, t.head) for t in tiles if t.record not in saved)
    pieces = [*encoded(fills, forms, {}), *made, *blanks]
    log = sorted(pieces, key=itemgetter(0))
    edits = [*lengths_of(snapshot, entries, finder.end, stale=False), *writes_of(snapshot, entries, log)]
    further = further_queues(snapshot, finder.cut)
    cut = cut_properties(queue, finder.cut, further, with_crc=False)
    whole = [(record.position, record.data) for record in cut]
    edits += edits_of(entries, size, heads, _RIGHT_HEAD)
    edits += edits_of(entries, size, whole, CUT)
    edits += edits_of(entries, size, list(restored.items()), RESTORED)
    pieces += [*heads, *whole, *restored.items()]
    files = [LoadedFile(start, size, entries[start]) for start in sorted(entries)]
    tail = list(tail_edits(snapshot, files, finder.end, stale=False))
    plan = LogPlan(min(entries), finder.end, False, [*edits, *tail], written(tail))
    patched = patched_queue(snapshot, queue, entries, pieces, finder.end)
    ranges = [(at, at + len(data)) for at, data in pieces]
    put_right = len(saved) + len(finder.heads) + len(restored)
    back = [tile.gap(0) for tile in tiles if tile.record in saved]
    units = look(back, ())
    by_head = [unwritten(gap, units.take(units.position == gap.begin)) for gap in back]
    return KeptLog(plan, patched, fills, put_right, cut, ranges, unplaced, gone=gone, resent=resent, by_head=by_head)


def _lost_behind(
    snapshot: Snapshot, finder: EntryFinder, index: DledgerIndexFile, look: Callable[..., LostUnits]
) -> tuple[list[Fill], list[Unplaced]]:
    """Return the records behind the last good entry that the index or queue units name, and how many more the member's
    checkpoint counts. They are lost, and nothing is written for them: the group can use their numbers again.
    """
    size, begin, last, state = snapshot.log_file_bytes, finder.end, finder.before.number, member_state(snapshot)
    units = index.following(last + 1, begin, size)
    positions, sizes = units["pos"].astype(np.int64) + HEADER_BYTES, units["size"].astype(np.int64) - HEADER_BYTES
    expected = max(len(units), min(-1 if number is None else number for number in state) - last)
    reach = int(positions[-1] + sizes[-1]) if len(units) else begin
    end = max(reach, (-(-begin // size) + 1) * size)
    named = units_behind(size, begin, end, look, HEADER_BYTES, sure=expected > 0)
    named = named.take(np.isin(named.position, positions) | (named.position > reach))
    nameless = ~np.isin(positions, named.position)
    unknown = of_nobody(list(zip(positions[nameless].tolist(), sizes[nameless].tolist(), strict=True)))
    lost, more = together([named, unknown]), expected - len(named) - len(unknown)
    unplaced = [Unplaced(NO_QUEUE, -1, finder.time, more)] if more > 0 else []
    gap = Gap(begin, end, True, finder.time)
    return [Fill(gap, lost, [], None)] if len(lost) or unplaced else [], unplaced


def _restored(
    snapshot: Snapshot, queue: MappedFileQueue, finder: EntryFinder, named: LostUnits, elsewhere: LostUnits
) -> dict[int, bytes]:
    """Return corrected records of whole entries, by position. Raises Unreadable."""
    rules = PutRightRules(options_of(snapshot.layout).delay_waits(), verify=False, record_rules=finder.record_rules)
    mine = together([named.take(np.isin(named.position, [torn.position for torn in finder.torn])), elsewhere])
    found = all_put_right(queue, mine, np.arange(len(mine)), np.zeros(len(mine), np.int64), rules)
    pieces = (piece for records in found.values() for piece in records.items())
    return {position: record for position, record in pieces if queue.read(position, len(record)) != record}


def _good_records(queue: MappedFileQueue, tiles: Sequence[Tile]) -> set[int]:
    """Return positions of whole records: only the heads of their entries are lost."""
    found = set[int]()
    log = CommitLog(queue)
    for tile in tiles:
        batch = log.records(np.array([tile.record], np.int64))
        if not len(batch) or batch.body_crc_ok is None or not batch.body_crc_ok[0]:
            continue
        own = int(batch.columns.ints("physical_offset")[0]) == tile.record
        if own and int(batch.columns.ints("total_size")[0]) == tile.size - HEADER_BYTES:
            found.add(tile.record)
    return found


def _fills(
    gaps: Sequence[Gap], named: LostUnits, unreferenced: Iterator[LostMessagePlace], forms: Forms
) -> Iterator[Fill]:
    """Yield one record for each entry: for the message that a unit names, for a missing message, or a filler."""
    queues = named.queues
    waiting = sorted(unreferenced, key=lambda place: (place.low, place.queue_offset))
    for gap in gaps:
        room = gap.end - gap.begin
        rows = np.flatnonzero(named.position == gap.begin)
        units = named.take(rows[:1]).replace(size=np.full(len(rows[:1]), room, np.int64))
        if not len(units):
            units = _missing_message(gap, waiting, queues, named)
        if len(units) and room < forms.smallest(queues[int(units.queue[0])].topic):
            units = units.take(slice(0, 0))
        if not len(units) and room < forms.smallest_filler:
            raise _no_room(gap.begin, room)
        yield Fill(gap, units, [] if len(units) else [(gap.begin, room)], None)


def _missing_message(gap: Gap, waiting: list[LostMessagePlace], queues: list[QueueId], named: LostUnits) -> LostUnits:
    """Return the first missing message that can have been in a gap."""
    for number, place in enumerate(waiting):
        if place.low <= gap.begin and gap.end <= place.high:
            del waiting[number]
            if place.queue not in queues:
                queues.append(place.queue)
            row = (gap.begin, gap.end - gap.begin, queues.index(place.queue), place.queue_offset, 0)
            return LostUnits(queues, *(np.array([value], np.int64) for value in row))
    return named.take(slice(0, 0))


def _no_room(position: int, room: int) -> Refused:
    return for_policy_broker(f"{counted(room, 'byte')} between entries, too few for an entry", position)


def _tiles_of(gap: EntryGap, snapshot: Snapshot, index: DledgerIndexFile) -> tuple[list[Tile], list[Piece]]:
    """Return the entries of a gap, and the BLANKs in it. Raises Refused."""
    first = gap.before.number + 1 if gap.before.number >= 0 else _first_number(gap, index)
    count = gap.after.number - first
    size = snapshot.log_file_bytes
    parts = [_Part(begin, end, end % size == 0) for begin, end in in_files(gap.begin, gap.end, size)]
    term = gap.before.term if gap.before.term >= 0 else gap.after.term
    of_index = _by_units(gap, index.units(first, count), first, count)
    for found in chain([of_index], (_spread(each, count) for each in _known_parts(parts, snapshot))):
        if found is not None and (blanks := _blanks_behind(found, parts)) is not None:
            return [Tile(p, s, n, term) for n, (p, s) in enumerate(found, first)], blanks
    raise _no_room(gap.begin, gap.end - gap.begin)


def _first_number(gap: EntryGap, index: DledgerIndexFile) -> int:
    """Return the number of the first entry of a log that has lost it: the index has the number by position."""
    low = max(0, gap.after.number - (gap.end - gap.begin) // HEADER_BYTES)
    units = index.units(low, gap.after.number - low)
    rows = np.flatnonzero((units["pos"] == gap.begin) & (units["index"] == low + np.arange(len(units))))
    if len(rows):
        return low + int(rows[0])
    if gap.begin == 0:
        return 0
    raise Refused("the number of the log's first entry is lost, also in the index", offset=gap.begin)


class _Part(NamedTuple):
    """Log positions [begin, end) in a gap. least, most: number of entries there, as far as known."""

    begin: int
    end: int
    to_file_end: bool
    least: int = 1
    most: int = EVERYWHERE


Places = list[tuple[int, int]]
"""Position and size of entries."""


def _by_units(gap: EntryGap, units: Structs, first: int, count: int) -> Places | None:
    """Return the entries of a gap by the index, None if the index lacks one."""
    if count < 0 or len(units) < count:
        return None
    good: Flags = units["index"] == first + np.arange(count)
    good &= (units["size"] > HEADER_BYTES) & (units["pos"] >= gap.begin)
    if not good.all():
        return None
    return list(zip(units["pos"].tolist(), units["size"].tolist(), strict=True))


def _known_parts(parts: Sequence[_Part], snapshot: Snapshot) -> Iterator[list[_Part]]:
    """Yield parts cut at records that units and items name; then that units name, as items may be wrong; then uncut."""
    gaps = [Gap(part.begin, part.end, part.to_file_end, 0) for part in parts]
    units = lost_units(snapshot, gaps, (), np.zeros(0, np.int64), {})
    items = np.unique(np.array([position for position, _, _ in items_in(snapshot, gaps)], np.int64))
    before = np.searchsorted(units.position, items, side="right") - 1
    items = items[(before < 0) | (items >= np.append(units.end, 0)[before])]
    yield list(_cut(parts, units, items))
    yield list(_cut(parts, units, items[:0]))
    yield list(parts)


def _cut(parts: Sequence[_Part], units: LostUnits, items: Ints) -> Iterator[_Part]:
    """Yield the parts cut at the limits of entries: a unit names a whole record, an item only its beginning."""
    begins, ends = (units.position - HEADER_BYTES).tolist(), units.end.tolist()
    whole = dict(zip(begins, ends, strict=True))
    marks = sorted({*begins, *ends, *(items - HEADER_BYTES).tolist()})
    for part in parts:
        inside = marks[bisect_right(marks, part.begin) : bisect_left(marks, part.end)]
        for begin, end in pairwise([part.begin, *inside, part.end]):
            most = 1 if whole.get(begin) == end else EVERYWHERE
            last = part.to_file_end and end == part.end
            yield _Part(begin, end, last, 0 if last and begin in ends else 1, most)


def _blanks_behind(entries: Places, parts: Sequence[_Part]) -> list[Piece] | None:
    """Return the BLANKs behind entries that fill the parts of a gap; None if the entries do not fill them."""
    blanks, remaining = list[Piece](), list(entries)
    for begin, end, to_file_end, *_ in parts:
        at = begin
        while remaining and remaining[0][0] == at and at + remaining[0][1] <= end:
            at += remaining.pop(0)[1]
        if to_file_end and end - at >= BLANK.sizeof():
            blanks.append((at, BLANK.build({"magic": MAGIC_BLANK, "size": end - at})))
        elif at != end or to_file_end:
            return None
    return None if remaining else blanks


def _spread(parts: Sequence[_Part], count: int) -> Places | None:
    """Spread `count` entries over the parts, of equal sizes where no size is known; None if they do not fit."""
    found: Places = []
    remaining, later = count, sum(part.least for part in parts)
    for part in parts:
        later -= part.least
        room = part.end - part.begin - (BLANK.sizeof() if part.to_file_end else 0)
        own = min(remaining - later, room // _SMALLEST_ENTRY, part.most)
        if own > 0:
            places = [*(part.begin + n * (room // own) for n in range(own)), part.begin + room]
            found += [(begin, end - begin) for begin, end in pairwise(places)]
            remaining -= own
    return None if remaining else found


class _FileOfLog:
    """A file of the planned log. `content[begin:end]` are its bytes, uint8[end - begin]. Raises Unreadable."""

    def __init__(self, queue: MappedFileQueue, file: MappedFile) -> None:
        self._queue, self._file = queue, file

    def __len__(self) -> int:
        return self._file.size

    def __getitem__(self, part: slice) -> Bytes:
        begin, end, _ = part.indices(self._file.size)
        data = np.empty(max(0, end - begin), np.uint8)
        return data[: self._queue.read_into(self._file, begin, data.data)]


def entry_index_edits(snapshot: Snapshot, queue: MappedFileQueue, end: int) -> list[Edit]:
    """Return edits of the index for the log up to `end` (units that differ, zeros behind them) and of the member's
    checkpoint. queue: the planned files of the log. As for DLedger an entry counts by its head: its record may be cut.
    """
    fixer = _IndexFixer(index_directory(snapshot))
    with DledgerIndexFile(snapshot) as index:
        fixer.moved(index.entries)
        for file in queue.files_in(0, end):
            for part in following_entries(_FileOfLog(queue, file), file.start):
                if isinstance(part, str):
                    break
                inside = part.positions + part.heads["size"] <= end
                if inside.any():
                    wanted = units_of(part.heads[inside], part.positions[inside])
                    fixer.compare(wanted, index.units(int(wanted["index"][0]), len(wanted)))
        fixer.behind(index)
        return [*fixer.edits, *state_edits(snapshot, fixer.last)]


def state_edits(snapshot: Snapshot, last: int) -> Iterator[Edit]:
    """Yield an edit so that the member's checkpoint names no entry behind the last one. Raises Unreadable."""
    assert snapshot.layout.dledger is not None
    directory = snapshot.layout.dledger.parent
    if not member_fields(directory):
        return
    state = member_state(snapshot)
    end = last if state.end is None else min(state.end, last)
    committed = end if state.committed is None else min(state.committed, end)
    if (committed, end) != state:
        data = f"committedIndex={committed}\nendIndex={end}\n".encode()
        reason = "no entry behind the last one may be named"
        yield Edit.create(directory / "checkpoint", data, reason, ("I-053",))


class _IndexFixer:
    def __init__(self, directory: str) -> None:
        self.edits: list[Edit] = []
        self._directory = directory
        self._there: set[str] = set()
        self._new: dict[int, list[tuple[int, bytes]]] = {}
        self._next = 0

    @property
    def last(self) -> int:
        """The number of the last entry, -1 without any."""
        return self._next - 1

    def moved(self, entries: Sequence[DirectoryEntry]) -> None:
        """Move files away that DLedger does not load."""
        for entry in entries:
            if entry.directory or entry.size != FILE_BYTES:
                reason = "no file of the DLedger index has this length: the process would end"
                self.edits.append(Edit("move", entry.path, reason, ("I-053",)))
            else:
                self._there.add(entry.name)

    def compare(self, wanted: Structs, there: Structs) -> None:
        same = np.zeros(len(wanted), np.bool_)
        same[: len(there)] = there == wanted[: len(there)]
        rows: Ints = np.flatnonzero(~same)
        number = int(wanted["index"][0])
        self._next = number + len(wanted)
        for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else ():
            begin, behind = int(run[0]), int(run[-1]) + 1
            self._write((number + begin) * UNIT_BYTES, wanted[begin:behind].tobytes())

    def _write(self, at: int, data: bytes) -> None:
        for begin, end in in_files(at, at + len(data), FILE_BYTES):
            start, part = begin // FILE_BYTES * FILE_BYTES, data[begin - at : end - at]
            if file_name(start) in self._there:
                path, reason = f"{self._directory}/{file_name(start)}", "units of the entries"
                self.edits.append(Edit("write", path, reason, ("I-053",), begin - start, len(part), part))
            else:
                self._new.setdefault(start, []).append((begin - start, part))

    def behind(self, index: DledgerIndexFile) -> None:
        """Create missing files, and write zeros behind the last unit."""
        for start, pieces in sorted(self._new.items()):
            path = f"{self._directory}/{file_name(start)}"
            reason = "the index of the DLedger log"
            made = Edit("create", path, reason, ("I-053",), length=FILE_BYTES, pieces=tuple(pieces))
            self.edits.append(made)
        for begin, end in in_files(self._next * UNIT_BYTES, index.last_byte(self._next), FILE_BYTES):
            start = begin // FILE_BYTES * FILE_BYTES
            path = f"{self._directory}/{file_name(start)}"
            self.edits.append(Edit("write", path, "behind the last entry", ("I-053",), begin - start, end - begin))
