"""Describe the messages that a plan gives up, from everything that still names them.

A message that a start would cut is still whole: its record describes it. A damaged message is named by its queue unit
(`lost_units`), by the rest of its record, and by index items, which have the hashes of its keys and its store time to
the second. Good records around it limit its time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ...formats.batch_consume_queue import UNIT_BYTES as BATCH_UNIT_BYTES
from ...formats.consume_queue import PRE_FILL
from ...formats.derive import decode_one
from ...formats.derive.ragged import Flags, Ints
from ...formats.message import MESSAGE, SMALLEST, TRANSACTION_MASK, SysFlag
from ...formats.message_properties import KEYS, TAGS, UNIQ_KEY, parse
from ..audit.messages import Messages, messages_of
from ..audit.queues import QueueAudit
from ..audit.verified import QueueRange, VerifiedLog, VerifiedRun
from ..broker.snapshot import NO_QUEUE, DirectoryEntry, QueueId, Snapshot
from ..broker.system_topics import LMQ_PREFIX
from ..columns import Rows
from ..disk.file_queue import MappedFileQueue
from ..index.compare import stored_files
from ..index.read import sizes_of
from ..log.batch import Batch, Extent
from ..log.commit_log import CommitLog
from ..log.scan import PEEK_BYTES
from ..queues.batches import BATCH_UNIT_DTYPE
from ..queues.references import commit_log_of
from ..queues.units import FileUnits, is_pre_fill, is_used, is_valid, is_whole_file, read_units
from .gaps import Gap, TornRecord

_WINDOW_UNITS = 1 << 13
RECORD_BYTES_MAX = 64 << 20
"""Size limit of a record: a unit with a larger size is wrong, and its size may be that of a whole gap."""
MOST = 100_000
"""Most messages that are listed; the others are only counted."""
_AT_ONCE = 1000
_SECOND_MS = 1000
EVERYWHERE = (1 << 63) - 1


class LostUnits(Rows):
    """Lost records by position, int64[n] each; `queue` indexes `queues`.

    batch_size: messages in the record, for a queue of batches; None: no queue has batches.
    """

    queues: list[QueueId]
    position: Ints
    size: Ints
    queue: Ints
    queue_offset: Ints
    tags_code: Ints
    batch_size: Ints | None = None

    @property
    def end(self) -> Ints:
        return self.position + self.size

    @property
    def batch_sizes(self) -> Ints:
        return np.ones(len(self), np.int64) if self.batch_size is None else self.batch_size

    @property
    def messages(self) -> int:
        return int(self.batch_sizes.sum())


def lost_units(
    snapshot: Snapshot,
    gaps: Sequence[Gap],
    torn: Sequence[TornRecord],
    dead: Ints,
    ends: Mapping[QueueId, int],
    verified: VerifiedLog | None = None,
    audits: Mapping[QueueId, QueueAudit] | None = None,
    further: Container[QueueId] = (),
) -> LostUnits:
    """Return the units that name a record inside a gap: each record once, none over another.

    torn: damaged records that name their own queue, for records that no unit names. dead: positions of records that are
    no loss. ends: by queue, the offset behind its last message in the log. verified: the part of the log that is in
    order, whose units are not read. audits: of the queues, which have seen the log: a unit that they contradict names
    no record. further: queues that are never a record's own. Raises Unreadable.
    """
    audits = audits or {}
    proved = verified.offsets() if verified and gaps and verified.end <= gaps[0].begin else {}
    queues = sorted(snapshot.queues, key=lambda q: (q.topic.startswith(LMQ_PREFIX) or q in further, q))
    parts: list[Ints] = []
    limits = np.array([(gap.begin, gap.end) for gap in gaps], np.int64).reshape(-1, 2).T
    for number, name in enumerate(queues if gaps else ()):
        entries = snapshot.queues[name]
        if verified and name in proved and verified.queue_of(name, entries):
            continue  # all its units name records before the gaps
        if name in audits and audits[name].is_foreign():
            continue
        stream = FileUnits.of(entries, snapshot.queue_file_bytes)
        parts += _queue_units(stream, number, limits, ends.get(name, 0), proved.get(name, (0, 0)))
    for name in sorted(snapshot.batch_queues) if gaps else ():
        queues.append(name)
        size = snapshot.batch_file_bytes
        whole = [e for e in snapshot.batch_queues[name] if is_whole_file(e, size)]
        parts += _batch_units(whole, len(queues) - 1, limits)
    parts.append(_torn_places(torn, queues))
    position, size, queue, offset, tags, messages = np.concatenate(parts, axis=1)
    order = np.lexsort((queue, position))
    found = LostUnits(queues, position, size, queue, offset, tags, messages).take(order)
    found = found.take(_not_in_blanks(found, gaps, audits, snapshot.log_file_bytes))
    found = _own_queue_first(snapshot, found.take(~np.isin(found.position, dead)))
    first = np.ones(len(found), np.bool_)
    first[1:] = found.position[1:] != found.position[:-1]
    return _without_overlaps(found.take(first))


def _not_in_blanks(
    units: LostUnits, gaps: Sequence[Gap], audits: Mapping[QueueId, QueueAudit], file_bytes: int
) -> Flags:
    """bool[n]: the unit is not in a BLANK, as a broker writes nothing behind a BLANK in its file. A unit in a BLANK
    counts if the log lacks its message at that offset of the queue. A BLANK that fills its file stands for a lost file.
    """
    kept = np.ones(len(units), np.bool_)
    blanks = [gap for gap in gaps if gap.blank]
    if not blanks or not len(units):
        return kept
    limits = np.array([(gap.begin, gap.end) for gap in blanks], np.int64).T
    rows = np.flatnonzero(_inside(limits, units.position, units.size))
    for number in np.unique(units.queue[rows]).tolist():
        audit = audits.get(units.queues[number])
        mine = rows[units.queue[rows] == number]
        if audit is not None and audit.first < 0:
            kept[mine] = np.isin(units.position[mine] // file_bytes * file_bytes, limits[0])
        elif audit is not None:
            kept[mine] = audit.has_room(units.queue_offset[mine], units.position[mine])
    return kept


def _own_queue_first(snapshot: Snapshot, units: LostUnits) -> LostUnits:
    """Return the units with that of the record's own queue first: a message may name any queue as a further one (spec
    2.9). The topic in the record decides, if it can be read.
    """
    lmq = np.array([queue.topic.startswith(LMQ_PREFIX) for queue in units.queues], np.bool_)
    again = np.flatnonzero((units.position[1:] == units.position[:-1]) & ~lmq[units.queue[1:]]) + 1
    if not len(again):
        return units
    log = snapshot.layout.commit_log_files()
    further = np.zeros(len(units), np.bool_)
    for position in np.unique(units.position[again]).tolist():
        first, behind = np.searchsorted(units.position, [position, position + 1])
        rows = np.arange(first, behind)
        names = [units.queues[int(units.queue[row])] for row in rows]
        if len(set(names)) == 1:
            continue
        topic = _topic_at(log, position, int(units.size[first]))
        own = [name.topic == topic and name in snapshot.queues for name in names]
        further[rows] = ~np.array(own, np.bool_) & any(own)
    return units.take(np.lexsort((units.queue, further, units.position)))


def _topic_at(log: MappedFileQueue, position: int, size: int) -> str:
    """Return the topic in a record, whatever else is damaged in it; "" if the topic cannot be read."""
    file = log.file_at(position)
    if file is None or size > RECORD_BYTES_MAX:
        return ""
    columns = decode_one(MESSAGE, log.read_file(file, position - file.start, size))
    return columns.ragged("topic")[0].decode("utf-8", "surrogateescape")


def _queue_units(stream: FileUnits, number: int, gaps: Ints, known: int, proved: tuple[int, int]) -> Iterator[Ints]:
    """int64[6, n]: the units of one queue that lie in gaps, as long as positions rise.

    gaps: begins and ends, int64[2, n]. known: the offset behind all its messages in the log. proved: [first, behind)
    offsets of units that name good records before the gaps.
    """
    reach = -1
    for file in stream.files.files:
        for first, count in stream.data(file, _WINDOW_UNITS):
            left_out = min(count, proved[1] - first) if proved[0] <= first else 0
            begin = first + max(0, left_out)
            if begin == first + count:
                continue
            units = stream.read(begin, first + count - begin)
            valid = is_valid(units)
            most = int(units["physical_offset"][valid].max(initial=-1))
            if PRE_FILL["physical_offset"] < most < gaps[0, 0]:
                reach = max(reach, most)
                continue
            used = np.flatnonzero(valid & ~is_pre_fill(units))
            position = units["physical_offset"][used].astype(np.int64)
            if not len(position):
                if first >= known:
                    break  # behind all messages of the log, and no unit here
                continue
            highest = np.maximum.accumulate(np.concatenate([np.array([reach]), position]))
            rising = position > highest[:-1]
            reach = int(highest[-1])
            size = units["size"][used].astype(np.int64)
            rows = np.flatnonzero(rising & _inside(gaps, position, size))
            offset = begin + used[rows]
            tags = units["tags_code"][used[rows]].astype(np.int64)
            same = np.full(len(rows), number, np.int64)
            yield np.stack([position[rows], size[rows], same, offset, tags, np.ones_like(same)])


def _inside(gaps: Ints, position: Ints, size: Ints) -> Flags:
    """bool[n]: a record of this size at this position lies in a gap. gaps: begins and ends, at least one."""
    begins, ends = gaps
    gap = np.searchsorted(begins, position, side="right") - 1
    inside: Flags = (gap >= 0) & (size >= SMALLEST)
    inside &= size <= ends[np.maximum(gap, 0)] - position
    return inside


def _batch_units(entries: Sequence[DirectoryEntry], number: int, gaps: Ints) -> Iterator[Ints]:
    """int64[6, n]: as `_queue_units` for a queue of batches, whose units have their offsets."""
    names = ("physical_offset", "size", "msg_base_offset", "tags_code", "batch_size")
    offset = -1
    for entry in sorted(entries, key=lambda e: int(e.name)):
        for first in range(0, entry.size // BATCH_UNIT_BYTES, _WINDOW_UNITS):
            units = read_units(entry, first, _WINDOW_UNITS, BATCH_UNIT_DTYPE)
            used = is_valid(units)
            if not used.any():
                break
            columns = np.stack([units[used][name].astype(np.int64) for name in names])
            position, size, base, _, messages = columns
            behind = np.maximum.accumulate(np.append(offset, base + messages))
            offset = int(behind[-1])
            rows = np.flatnonzero(_inside(gaps, position, size) & (base >= behind[:-1]))
            yield np.insert(columns[:, rows], 2, number, axis=0)


def _torn_places(torn: Sequence[TornRecord], queues: list[QueueId]) -> Ints:
    """int64[6, n]: the places that damaged records name; their queues are added to `queues`.

    They come behind all units of queues, which show what was dispatched.
    """
    rows, numbers = [], dict[tuple[bytes, int], int]()
    for record in torn:
        if record.sys_flag & TRANSACTION_MASK & SysFlag.PREPARED:
            continue
        number = numbers.setdefault((record.topic, record.queue_id), len(queues))
        if number == len(queues):
            name = record.topic.decode("utf-8", "surrogateescape")
            queues.append(QueueId(name, record.queue_id))
        rows.append((record.position, record.size, number, record.queue_offset, 0, 1))
    return np.array(rows, np.int64).reshape(-1, 6).T


def _without_overlaps(units: LostUnits) -> LostUnits:
    """Return the units without those that begin inside the record before."""
    if not len(units) or (units.position[1:] >= units.end[:-1]).all():
        return units
    kept, reach = [], -1
    for row, (begin, end) in enumerate(zip(units.position, units.end, strict=True)):
        if begin >= reach:
            kept.append(row)
            reach = int(end)
    return units.take(np.array(kept, np.int64))


def units_at(snapshot: Snapshot, queue: QueueId, positions: Ints) -> LostUnits:
    """Return the units of one queue that name a record at one of `positions`. Raises Unreadable."""
    size = snapshot.queue_file_bytes
    parts = [np.zeros((5, 0), np.int64)]
    for first, units in FileUnits.of(snapshot.queues[queue], size).written():
        named = is_used(units) & np.isin(units["physical_offset"].astype(np.int64), positions)
        rows = np.flatnonzero(named)
        position, size_of, tags = (
            units[name][rows].astype(np.int64) for name in ("physical_offset", "size", "tags_code")
        )
        parts.append(np.stack([position, size_of, np.zeros_like(rows), first + rows, tags]))
    return LostUnits([queue], *np.concatenate(parts, axis=1))


class _Range(NamedTuple):
    """Lost messages of some queues between two log positions, at most `most`."""

    begin: int
    end: int
    queues: frozenset[QueueId]
    most: int

    def messages(self, log: CommitLog, most: int) -> Iterator[Messages]:
        """Yield the first `most` of them."""
        remaining = min(most, self.most)
        for item in log.scan(self.begin, self.end, crc=False, reuse=True):
            if isinstance(item, Extent) or remaining <= 0:
                break
            mine = (part for part in messages_of(item) if part.queue in self.queues)
            for messages in _first_by_position(mine, remaining)[0]:
                yield messages
                remaining -= len(messages.offset)


@dataclass
class LostMessages:
    """Lost messages. count: all of them. Kept are at least the first `MOST` by position; of a run only its limits."""

    count: int = 0
    _parts: list[Messages | _Range] = field(default_factory=list)
    _kept: int = 0
    #: Messages up to this position are kept.
    _reach: int = EVERYWHERE

    def add(self, messages: Messages) -> None:
        self.count += messages.count()
        within = messages.take(messages.position <= self._reach)
        if len(within.offset):
            self._parts.append(within)
            self._kept += len(within.offset)
        if self._kept >= 2 * MOST:
            runs = [part for part in self._parts if isinstance(part, _Range)]
            parts = (part for part in self._parts if isinstance(part, Messages))
            first, self._reach = _first_by_position(parts, MOST)
            self._kept = sum(len(part.offset) for part in first)
            self._parts = [*runs, *first]

    def add_run(self, run: VerifiedRun, queues: Mapping[QueueId, QueueRange]) -> None:
        """Add the messages of a run. queues: the queues that count."""
        size = sum(queue_range.messages for queue_range in queues.values())
        if size and self.count < MOST:
            self._parts.append(_Range(run.begin, run.end, frozenset(queues), MOST - self.count))
        self.count += size

    def messages(self, log: CommitLog, most: int) -> Iterator[Messages]:
        """Yield the kept messages, of each run the first `most`. Raises Unreadable."""
        for part in self._parts:
            if isinstance(part, Messages):
                yield part
            else:
                yield from part.messages(log, most)


def name_all(lost: LostMessages, snapshot: Snapshot, gaps: Sequence[Gap], most: int) -> list[dict[str, Any]]:
    """Return rows of up to `most` lost messages, by position, from the store as it is before any edit. Raises
    Unreadable.

    gaps: the damaged ranges. A message that only index items name has a position and no queue.
    """
    if not lost.count and not gaps:
        return []
    log = commit_log_of(snapshot.layout)
    parts, reach = _first_by_position(lost.messages(log, most), most)
    rows = [vars(_Row(part.queue, part, i)) for part in parts for i in range(len(part.offset))]
    rows.sort(key=_row_order)
    damaged = [row for row in rows if row["known_from"] == "queue_unit"]
    ordered = sorted(gaps, key=attrgetter("begin"))
    behind = _times_behind(ordered, log)
    if damaged:
        _add_times(damaged, ordered, behind)
        _mark_unreferenced(damaged, snapshot)
        alone = {(gap.begin, gap.end - gap.begin) for gap in gaps}  # then the item names the record
        damaged = [r for r in damaged if r["known_from"] == "queue_unit" or (r["position"], r["size"]) in alone]
    rows = [*rows, *_rows_of_index(snapshot, damaged, ordered, behind, reach)] if gaps else rows
    rows = sorted(rows, key=_row_order)[:most]
    _add_records(rows, log)
    for row in rows:
        if row["known_from"] == "queue_unit" and row["topic"] is None:
            row["known_from"] = "neighbours"
        elif row["known_from"] == "queue_unit":
            _add_head(row, log)
    return rows


def _first_by_position(messages: Iterable[Messages], most: int) -> tuple[list[Messages], int]:
    """Return the parts with the first `most` messages by position, and the last position that counts."""
    parts = list(messages)
    positions = np.concatenate([np.zeros(0, np.int64), *(part.position for part in parts)])
    if len(positions) <= most:
        return parts, EVERYWHERE
    last = int(np.partition(positions, most - 1)[most - 1])
    found = [part.take(part.position <= last) for part in parts]
    return [part for part in found if len(part.offset)], last


def messages_of_rows(rows: Iterable[dict[str, Any]]) -> int:
    """Return how many messages these rows of `name_all` are: the row of a batch record is all its messages."""
    return sum(row.get("batch_size", 1) for row in rows)


def _row_order(row: dict[str, Any]) -> tuple[int, str, int]:
    return row["position"], row["topic"] or "", row["queue_offset"] or 0


class _Row:
    """A lost message. A row is the `__dict__` of such an object: shared keys save two thirds of the memory."""

    def __init__(self, queue: QueueId, messages: Messages, i: int) -> None:
        whole, time = bool(messages.good[i]), int(messages.store_timestamp[i])
        known = queue != NO_QUEUE
        self.topic = queue.topic if known else None
        self.queue_id = queue.queue_id if known else None
        self.queue_offset = int(messages.offset[i]) if known else None
        self.position, self.size = int(messages.position[i]), int(messages.size[i])
        self.store_timestamp = time if whole else None
        self.not_before = time or None
        self.not_after = time if whole else None
        self.tags_code = int(messages.tags_code[i]) if known else None
        self.tags: str | None = None
        self.keys: list[str] = []
        self.unique_key: str | None = None
        self.key_hashes: list[int] = []
        self.known_from = "record" if whole else "queue_unit"
        number = messages.number
        if not isinstance(number, int) and number[i] > 1:
            self.batch_size = int(number[i])


def _add_times(rows: list[dict[str, Any]], gaps: Sequence[Gap], behind: Sequence[int | None]) -> None:
    """Set the limits of the store time: the times of the good records before and behind."""
    begins = [gap.begin for gap in gaps]
    for row in rows:
        at = bisect_right(begins, row["position"]) - 1
        if at >= 0 and row["position"] < gaps[at].end:
            row["not_before"] = gaps[at].store_timestamp or None
            row["not_after"] = behind[at]


def _mark_unreferenced(rows: list[dict[str, Any]], snapshot: Snapshot) -> None:
    """Mark messages that only the neighbouring offsets show: no unit names the place of their tombstone."""
    queues: dict[QueueId, list[dict[str, Any]]] = {}
    for row in rows:
        if row["topic"] is not None:
            queues.setdefault(QueueId(row["topic"], row["queue_id"]), []).append(row)
    for queue, mine in queues.items():
        if queue in snapshot.batch_queues:
            continue
        known = set[tuple[int, int]]()
        if queue in snapshot.queues:
            positions = np.array([row["position"] for row in mine], np.int64)
            found = units_at(snapshot, queue, positions)
            known |= set(zip(found.queue_offset.tolist(), found.position.tolist(), strict=True))
        for row in mine:
            if (row["queue_offset"], row["position"]) not in known:
                row["known_from"] = "neighbours"


def _times_behind(gaps: Sequence[Gap], log: CommitLog) -> list[int | None]:
    """Return the store time of the first good record behind each gap, None without one."""
    found: list[int | None] = [None] * len(gaps)
    ends = np.array([gap.end for gap in gaps], np.int64)
    for begin in range(0, len(gaps), _AT_ONCE):
        records = log.records(ends[begin : begin + _AT_ONCE])
        times = dict(zip(records.position.tolist(), records.columns.ints("store_timestamp").tolist(), strict=True))
        for i in range(begin, min(begin + _AT_ONCE, len(gaps))):
            found[i] = times.get(gaps[i].end)
    for i in reversed(range(len(gaps) - 1)):
        if found[i] is None and gaps[i + 1].begin == gaps[i].end:
            found[i] = found[i + 1]
    return found


def _add_records(rows: list[dict[str, Any]], log: CommitLog) -> None:
    """Add keys, unique key and tags from the records; a broken body does not spoil them."""
    for begin in range(0, len(rows), _AT_ONCE):
        part: dict[int, list[dict[str, Any]]] = {}
        for row in rows[begin : begin + _AT_ONCE]:
            part.setdefault(row["position"], []).append(row)
        records = log.records(np.array(sorted(part), np.int64))
        for i, position in enumerate(records.position.tolist()):
            _add_record(part[position], records, i, position)


def _add_record(rows: list[dict[str, Any]], records: Batch, i: int, position: int) -> None:
    columns = records.columns
    in_place = int(columns.ints("physical_offset")[i]) == position
    size = int(columns.ints("total_size")[i])
    properties = parse(columns.ragged("properties")[i])
    for row in rows:
        if not in_place or row["size"] not in (size, None):
            continue
        row["tags"] = properties.get(TAGS)
        row["keys"] = properties.get(KEYS, "").split()
        row["unique_key"] = properties.get(UNIQ_KEY)
        if row["known_from"] != "record":
            row["known_from"] = "torn_record"
            row["size"] = size
            row["topic"] = row["topic"] or columns.ragged("topic")[i].decode("utf-8", "replace")


def _add_head(row: dict[str, Any], log: CommitLog) -> None:
    """Add the store time from the beginning of the record, if that has survived."""
    data = log.read(row["position"], PEEK_BYTES)
    if len(data) < SMALLEST:
        return
    columns = decode_one(MESSAGE, data)
    names = {"size": "total_size", "position": "physical_offset", "queue_offset": "queue_offset"}
    time = int(columns.ints("store_timestamp")[0])
    same = all(int(columns.ints(field)[0]) == row[name] for name, field in names.items())
    if same and (row["not_before"] or 0) <= time <= (row["not_after"] or time):
        row["store_timestamp"] = row["not_before"] = row["not_after"] = time


def _rows_of_index(
    snapshot: Snapshot, damaged: list[dict[str, Any]], gaps: Sequence[Gap], behind: Sequence[int | None], reach: int
) -> list[dict[str, Any]]:
    """Add index items to damaged messages. Return rows of messages that only items name, up to position `reach`."""
    known: dict[int, list[dict[str, Any]]] = {}
    for row in damaged:
        known.setdefault(row["position"], []).append(row)
    units = (row for row in damaged if row["known_from"] == "queue_unit")
    inside = sorted((row["position"], row["position"] + row["size"]) for row in units)
    more: dict[int, dict[str, Any]] = {}
    for position, key_hash, time in items_in(snapshot, gaps):
        if position > reach:
            continue
        rows = known.get(position)
        if rows is None:
            at = bisect_right(inside, (position, 1 << 62)) - 1
            if at >= 0 and position < inside[at][1]:
                continue  # the item points into a record: the item is damaged
            if position not in more and len(more) < MOST:
                more[position] = _unreferenced(position, gaps, behind)
            rows = [more[position]] if position in more else []
        for row in rows:
            _add_item(row, key_hash, time)
    return list(more.values())


def _unreferenced(position: int, gaps: Sequence[Gap], behind: Sequence[int | None]) -> dict[str, Any]:
    """Return the row of a message that only index items name."""
    at = bisect_right([gap.begin for gap in gaps], position) - 1
    nothing = dict.fromkeys(("topic", "queue_id", "queue_offset", "size", "store_timestamp"))
    return {
        **nothing,
        "position": position,
        "not_before": gaps[at].store_timestamp or None,
        "not_after": behind[at],
        "tags_code": None,
        "tags": None,
        "keys": [],
        "unique_key": None,
        "key_hashes": [],
        "known_from": "index",
    }


def _add_item(row: dict[str, Any], key_hash: int, time: int) -> None:
    """Add the data of an item: the hash of a key, and the second of the store time."""
    if key_hash not in row["key_hashes"]:
        row["key_hashes"].append(key_hash)
    row["not_before"] = max(row["not_before"] or time, time)
    latest = time + _SECOND_MS - 1
    row["not_after"] = min(row["not_after"] or latest, latest)


def items_in(snapshot: Snapshot, gaps: Sequence[Gap]) -> Iterator[tuple[int, int, int]]:
    """Yield (position, key hash, time in ms) of index items that point into the gaps. gaps: sorted by begin."""
    begins = np.array([gap.begin for gap in gaps], np.int64)
    ends = np.array([gap.end for gap in gaps], np.int64)
    for stored in stored_files(snapshot.index):
        header = stored.header
        if header.end_physical_offset < begins[0] or header.begin_physical_offset > ends[-1]:
            continue
        with stored.open(sizes_of(snapshot.layout).of_index) as file:
            for _, items in file.columns():
                position = items["physical_offset"].astype(np.int64)
                at = np.searchsorted(begins, position, side="right") - 1
                rows = np.flatnonzero((at >= 0) & (position < ends[at]) & (items["key_hash"] > 0))
                times = items["time_diff"].astype(np.int64) * _SECOND_MS + header.begin_timestamp
                hashes = items["key_hash"].astype(np.int64)
                columns = (position[rows], hashes[rows], times[rows])
                yield from zip(*(column.tolist() for column in columns), strict=True)
