"""What a plan gives up, message by message and byte by byte: who they were, as far as anything still tells (design, "Plans").

A message that a start would cut is still whole: its record tells all. One that is damaged already is named by the
queue unit that points at it, by what is left of its record, and by index items: they have the hashes of its
keys and its time to the second. Around it good records tell the time between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...formats.derive import decode
from ...formats.message import MESSAGE, SMALLEST
from ...formats.message_properties import KEYS, TAGS, UNIQ_KEY, parse
from ..audit.messages import Messages, messages_of
from ..audit.verified import QueueRange, VerifiedRun
from ..broker.snapshot import QueueId, Snapshot
from ..broker.system_topics import LMQ_PREFIX
from ..index.compare import stored_files
from ..index.read import sizes_of
from ..log.batch import Batch, Extent
from ..log.commit_log import CommitLog
from ..log.scan import PEEK_BYTES
from ..queues.references import commit_log_of
from .fill import Fill
from .gaps import Gap
from .lost_units import LostUnits, units_at

MOST = 100_000
"""Messages that are named at most; the others are counted."""
_AT_ONCE = 1000
_SECOND_MS = 1000
_EVERYWHERE = (1 << 63) - 1


class _Range(NamedTuple):
    """Lost messages of these queues between two log positions, at most so many."""

    begin: int
    end: int
    queues: frozenset[QueueId]
    most: int

    def messages(self, log: CommitLog, most: int) -> Iterator[Messages]:
        """The first `most` of them."""
        left = min(most, self.most)
        for item in log.scan(self.begin, self.end, crc=False, reuse=True):
            if isinstance(item, Extent) or not left:
                break
            for messages in messages_of(item.take(slice(0, left))):
                if messages.queue in self.queues and left:
                    yield messages.take(np.arange(min(left, len(messages.offset))))
                    left -= min(left, len(messages.offset))


@dataclass
class LostMessages:
    """Messages in the order in which they were met. count: all of them; `MOST` are kept.

    Of those in a run their place in the log is kept.
    """

    count: int = 0
    _parts: list[Messages | _Range] = field(default_factory=list)

    def add(self, messages: Messages) -> None:
        """Note messages of one queue."""
        size = len(messages.offset)
        room = max(0, MOST - self.count)
        if size and room:
            self._parts.append(messages.take(np.arange(min(size, room))))
        self.count += size

    def add_run(self, run: VerifiedRun, queues: Mapping[QueueId, QueueRange]) -> None:
        """Note the messages of a run; queues: those that count."""
        size = sum(queue_range.messages for queue_range in queues.values())
        if size and self.count < MOST:
            self._parts.append(_Range(run.begin, run.end, frozenset(queues), MOST - self.count))
        self.count += size

    def messages(self, log: CommitLog, most: int) -> Iterator[Messages]:
        """What is kept, of each run up to `most`, the first ones. Raises Unreadable."""
        for part in self._parts:
            if isinstance(part, Messages):
                yield part
            else:
                yield from part.messages(log, most)


def named(
    lost: LostMessages, snapshot: Snapshot, log: CommitLog, gaps: Sequence[Gap], most: int = MOST
) -> list[dict[str, Any]]:
    """Rows of up to `most` lost messages, by position. Raises Unreadable.

    log: as it lies there, before any edit. gaps: the damaged ranges. What only index items tell of
    has a position and no queue.
    """
    parts, reach = _first(lost.messages(log, most), most)
    rows = [_row(part.queue, part, i) for part in parts for i in range(len(part.offset))]
    rows.sort(key=_place)
    damaged = [row for row in rows if row["known_from"] == "queue_unit"]
    if damaged:
        _add_times(damaged, log, gaps)
        _mark_unnamed(damaged, snapshot)
        damaged = [row for row in damaged if row["known_from"] == "queue_unit"]
    rows = [*rows, *_of_index(snapshot, damaged, log, gaps, reach)] if gaps else rows
    rows = sorted(rows, key=_place)[:most]
    _add_records(rows, log)
    for row in rows:
        if row["known_from"] == "queue_unit":
            _add_head(row, log)
    return rows


def _first(messages: Iterable[Messages], most: int) -> tuple[list[Messages], int]:
    """Those among which the first `most` by position are, and the last position that counts."""
    parts = list(messages)
    positions = np.concatenate([np.zeros(0, np.int64), *(part.position for part in parts)])
    if len(positions) <= most:
        return parts, _EVERYWHERE
    last = int(np.partition(positions, most - 1)[most - 1])
    return [part.take(part.position <= last) for part in parts], last


def _place(row: dict[str, Any]) -> tuple[int, str, int]:
    return row["position"], row["topic"] or "", row["queue_offset"] or 0


def _row(queue: QueueId, messages: Messages, i: int) -> dict[str, Any]:
    whole = bool(messages.good[i])
    time = int(messages.store_timestamp[i])
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "queue_offset": int(messages.offset[i]),
        "position": int(messages.position[i]),
        "size": int(messages.size[i]),
        "store_timestamp": time if whole else None,
        "not_before": time or None,
        "not_after": time if whole else None,
        "tags_code": int(messages.tags_code[i]),
        "tags": None,
        "keys": [],
        "unique_key": None,
        "key_hashes": [],
        "known_from": "record" if whole else "queue_unit",
    }


def _add_times(rows: list[dict[str, Any]], log: CommitLog, gaps: Sequence[Gap]) -> None:
    """When the messages were stored at the latest: before the next good record was."""
    ordered = sorted(gaps, key=_begin)
    behind = _times_behind(ordered, log)
    begins = [gap.begin for gap in ordered]
    for row in rows:
        at = bisect_right(begins, row["position"]) - 1
        if at >= 0 and row["position"] < ordered[at].end:
            row["not_before"] = ordered[at].store_timestamp or None
            row["not_after"] = behind[at]


def _mark_unnamed(rows: list[dict[str, Any]], snapshot: Snapshot) -> None:
    """Of some only the offsets beside theirs tell: no unit names the place of their tombstone."""
    queues: dict[QueueId, list[dict[str, Any]]] = {}
    for row in rows:
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


def _begin(gap: Gap) -> int:
    return gap.begin


def _times_behind(gaps: Sequence[Gap], log: CommitLog) -> list[int | None]:
    """Store time of the first good record behind each gap, None without one."""
    found: list[int | None] = [None] * len(gaps)
    ends = np.array([gap.end for gap in gaps], np.int64)
    for begin in range(0, len(gaps), _AT_ONCE):
        records = log.records(ends[begin : begin + _AT_ONCE])
        times = dict(_times(records))
        for i in range(begin, min(begin + _AT_ONCE, len(gaps))):
            found[i] = times.get(gaps[i].end)
    for i in reversed(range(len(gaps) - 1)):
        if found[i] is None and gaps[i + 1].begin == gaps[i].end:
            found[i] = found[i + 1]
    return found


def _times(records: Batch) -> Iterator[tuple[int, int]]:
    times = records.columns.ints("store_timestamp").tolist()
    return zip(records.position.tolist(), times, strict=True)


def _add_records(rows: list[dict[str, Any]], log: CommitLog) -> None:
    """What the records themselves tell: keys, id, tags; of a broken body the rest is good."""
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
    """The beginning of the record may have survived: it has the time."""
    data = log.read(row["position"], PEEK_BYTES)
    if len(data) < SMALLEST:
        return
    columns = decode(MESSAGE, np.frombuffer(data, np.uint8), np.zeros(1, np.int64))
    names = {"size": "total_size", "position": "physical_offset", "queue_offset": "queue_offset"}
    time = int(columns.ints("store_timestamp")[0])
    same = all(int(columns.ints(field)[0]) == row[name] for name, field in names.items())
    if same and (row["not_before"] or 0) <= time <= (row["not_after"] or time):
        row["store_timestamp"] = row["not_before"] = row["not_after"] = time


def _of_index(
    snapshot: Snapshot,
    damaged: list[dict[str, Any]],
    log: CommitLog,
    gaps: Sequence[Gap],
    reach: int,
) -> list[dict[str, Any]]:
    """Give damaged messages what index items say of them; rows of those that nothing else names, up to the
    log position `reach`.
    """
    ordered = sorted(gaps, key=_begin)
    behind = _times_behind(ordered, log)
    known: dict[int, list[dict[str, Any]]] = {}
    for row in damaged:
        known.setdefault(row["position"], []).append(row)
    inside = sorted((row["position"], row["position"] + row["size"]) for row in damaged)
    more: dict[int, dict[str, Any]] = {}
    for position, key_hash, time in _items(snapshot, ordered):
        if position > reach:
            continue
        rows = known.get(position)
        if rows is None:
            at = bisect_right(inside, (position, 1 << 62)) - 1
            if at >= 0 and position < inside[at][1]:
                continue  # it points into a record: it is damaged itself
            if position not in more and len(more) < MOST:
                more[position] = _unnamed(position, ordered, behind)
            rows = [more[position]] if position in more else []
        for row in rows:
            _add_item(row, key_hash, time)
    return list(more.values())


def _unnamed(position: int, gaps: Sequence[Gap], behind: Sequence[int | None]) -> dict[str, Any]:
    """A message of which only index items tell."""
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
    """An item tells the hash of a key, and the second in which the message was stored."""
    if key_hash not in row["key_hashes"]:
        row["key_hashes"].append(key_hash)
    row["not_before"] = max(row["not_before"] or time, time)
    latest = time + _SECOND_MS - 1
    row["not_after"] = min(row["not_after"] or latest, latest)


def _items(snapshot: Snapshot, gaps: Sequence[Gap]) -> Iterator[tuple[int, int, int]]:
    """(position, key hash, time) of index items that point into the gaps, sorted by begin."""
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


def tombstoned(snapshot: Snapshot, fills: Sequence[Fill]) -> Iterator[Messages]:
    """The messages that get a tombstone, queue by queue: also those of light queues that name the
    same records. Raises Unreadable.
    """
    if not fills:
        return
    for fill in fills:
        for number in np.unique(fill.lost.queue).tolist():
            mine = fill.lost.take(fill.lost.queue == number)
            times = np.full(len(mine), fill.gap.store_timestamp, np.int64)
            yield _messages(mine.queues[number], mine, times)
    lost = [fill.lost.position for fill in fills]
    own = {fill.lost.queues[int(n)] for fill in fills for n in np.unique(fill.lost.queue)}
    positions = np.unique(np.concatenate([np.zeros(0, np.int64), *lost]))
    for queue in sorted(snapshot.queues) if len(positions) else ():
        if queue.topic.startswith(LMQ_PREFIX) and queue not in own:
            mine = units_at(snapshot, queue, positions)
            if len(mine):
                yield _messages(queue, mine, np.zeros(len(mine), np.int64))


def _messages(queue: QueueId, lost: LostUnits, times: np.ndarray) -> Messages:
    """Lost units of one queue as messages that are not good."""
    nobody = np.zeros(len(lost), np.bool_)
    columns = (lost.queue_offset, lost.position, lost.size, lost.tags_code, times)
    return Messages(queue, *columns, nobody, ~nobody)


class DamagedRange(NamedTuple):
    """A range of the log that has no good record. messages: how many lost ones are known in it."""

    position: int
    size: int
    messages: int


def damaged_ranges(fills: Sequence[Fill]) -> list[DamagedRange]:
    """The gaps that a plan closes."""
    return [
        DamagedRange(fill.gap.begin, fill.gap.end - fill.gap.begin, len(fill.lost))
        for fill in fills
    ]


def name_all(
    lost: LostMessages, snapshot: Snapshot, fills: Sequence[Fill], most: int = MOST
) -> list[dict[str, Any]]:
    """Rows of the lost messages, from what lies on disk before anything is done. Raises Unreadable."""
    if not lost.count and not fills:
        return []
    gaps = [fill.gap for fill in fills]
    return named(lost, snapshot, commit_log_of(snapshot.layout), gaps, most)
