"""Lost messages that no unit names: their tombstones, and those of lost op records.

Messages between others of a queue are known by their queue offsets. Their records lay somewhere between those of their
neighbours. A tombstone anywhere in the bytes lost there keeps the queue as it is when a broker rebuilds it: without one
all later messages would move. Those of LMQs get no tombstones of their own: tombstones there name the LMQs, too.
Messages that only index items name are known by their number, without a queue. Records
that only an LMQ, or another queue that is never a record's own, names (spec 2.9) are known by place and size; they
belong to a queue that lacks messages there.

Lost op records of transactions are rewritten as far as the log proves their content (spec 9.9.3). A committed half
message has a record with its position in `prepared_transaction_offset`. If no surviving op record names the half
message, a lost one did, and its tombstone names it again. Otherwise the broker would check that transaction again and
deliver the message twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ...formats.blank import BLANK
from ...formats.derive import Columns
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import utf8
from ...formats.message import PROPERTIES_BYTES_MAX, SMALLEST, TRANSACTION_MASK, SysFlag
from ...formats.op_record import OFFSET_BYTES, OFFSET_END, offset_text, offsets_in
from ...formats.tombstone import LOST_ITEM
from ..audit.queues import QueueAudit
from ..broker.snapshot import QueueId, Snapshot
from ..broker.system_topics import HALF_TOPIC, LITE_PREFIX, LMQ_PREFIX, OP_TOPIC
from ..log.batch import Batch, good_records
from ..log.commit_log import CommitLog
from .fill import Fill
from .gaps import NO_OFFSET, Forms, Gap, is_for_service
from .lost_messages import LostUnits, items_in
from .torn_records import FurtherQueues, NamedQueues, with_further

Row = tuple[int, int, int, int]
"""A tombstone: position, size, number of the queue, queue offset."""
_Pair = tuple[QueueId, int]
"""A queue and a queue offset in it."""
_NAMES_MAX = 8
"""Most LMQs for whose names a tombstone without a unit gets room."""
_TRIES = 6
"""How often room for names is taken back from fills that have none for places, before no fill has any."""
_OP_BODY_BYTES = 512
"""Most bytes of the body of an op record."""


class Unplaced(NamedTuple):
    """Lost messages without a tombstone of their own: how many. store_timestamp: of the record before the gap."""

    queue: QueueId
    queue_offset: int
    store_timestamp: int
    messages: int = 1


class LostMessagePlace(NamedTuple):
    """A lost message. low, high: log positions between which its record lay."""

    queue: QueueId
    queue_offset: int
    low: int
    high: int

    @property
    def is_light(self) -> bool:
        """The queue is an LMQ: its records belong to other topics."""
        return self.queue.topic.startswith(LMQ_PREFIX)


def places(audits: Mapping[QueueId, QueueAudit]) -> Iterator[LostMessagePlace]:
    """Yield queue offsets without a message in the log, by queue and offset."""
    for queue, audit in sorted(audits.items()):
        for hole in audit.missing():
            # more offsets than records fit there: a neighbour's offset is damaged
            if hole.end - hole.begin > (hole.high - hole.low) // SMALLEST:
                continue
            for offset in range(hole.begin, hole.end):
                yield LostMessagePlace(queue, offset, hole.low, hole.high)


def further_topic(audit: QueueAudit, log: CommitLog) -> str | None:
    """Return the topic of the records that name a queue as a further one, "" if unknown; None if the queue is the own
    one of records, judged by its first and last message in the log. Raises Unreadable.
    """
    ends = [audit.first_position, audit.last_position] if audit.first >= 0 else []
    found = log.records(np.array(ends, np.int64)).columns.ragged("topic").tolist()
    topics = {topic.decode("utf-8", "surrogateescape") for topic in found}
    light = audit.queue.topic.startswith(LMQ_PREFIX)
    if not light and (not topics or audit.queue.topic in topics):
        return None
    return topics.pop() if len(topics) == 1 else ""


def with_own_queues(
    lost: LostUnits, wanted: Iterable[LostMessagePlace], known: Sequence[LostUnits], topics: Mapping[QueueId, str]
) -> tuple[LostUnits, set[_Pair]]:
    """Give lost records to queues that can be their own and lack messages there; return the records, and the (queue,
    offset) pairs given. A record that fits no such queue stays with the queue that names it.

    known: other places that units name. topics: of the queues that are never a record's own (`further_topic`).
    """
    owners = {number: _OwnQueue.of(queue, topics[queue]) for number, queue in enumerate(lost.queues) if queue in topics}
    waiting = {row: owners[number] for row, number in enumerate(lost.queue.tolist()) if number in owners}
    given = set[_Pair]()
    if not waiting:
        return lost, given
    wanted = [place for place in wanted if place.queue not in topics]
    queues = list(lost.queues)
    found = lost.replace(queues=queues, queue=lost.queue.copy(), queue_offset=lost.queue_offset.copy())
    for own in sorted(set(waiting.values()), reverse=True):  # the least known come last
        there = found.take(np.setdiff1d(np.arange(len(lost)), list(waiting)))
        free = (place for place in narrowed(wanted, (*known, there)) if own.can_be(place.queue))
        for row, place in _assigned(lost, [row for row in waiting if waiting[row] == own], free):
            if place.queue not in queues:
                queues.append(place.queue)
            found.queue[row], found.queue_offset[row] = queues.index(place.queue), place.queue_offset
            given.add((place.queue, place.queue_offset))
            del waiting[row]
    return found.replace(tags_code=np.where(found.queue == lost.queue, lost.tags_code, 0)), given


class _OwnQueue(NamedTuple):
    """What is known of the own queue of a record that a further queue names; "" and -1 for unknown."""

    queue_id: int
    topic: str

    @classmethod
    def of(cls, further: QueueId, topic: str) -> _OwnQueue:
        return cls(-1 if further.topic.startswith(LMQ_PREFIX) else further.queue_id, topic)

    def can_be(self, queue: QueueId) -> bool:
        return self.topic in ("", queue.topic) and self.queue_id in (-1, queue.queue_id)


def _assigned(
    lost: LostUnits, rows: Sequence[int], places: Iterable[LostMessagePlace]
) -> Iterator[tuple[int, LostMessagePlace]]:
    """Yield rows in log order, each with a place that fits: the place with the lowest `high` first."""
    coming = sorted(places, key=lambda place: place.low, reverse=True)
    open_now: list[tuple[int, LostMessagePlace]] = []
    for row in rows:
        while coming and coming[-1].low <= lost.position[row]:
            heappush(open_now, (coming[-1].high, coming.pop()))
        while open_now and open_now[0][0] < lost.end[row]:
            heappop(open_now)
        if open_now:
            yield row, heappop(open_now)[1]


def narrowed(wanted: Iterable[LostMessagePlace], known: Iterable[LostUnits]) -> Iterator[LostMessagePlace]:
    """Yield places that no unit names, narrowed to the positions that units of the same queue name."""
    named: dict[QueueId, list[tuple[int, int]]] = {}
    for units in known:
        rows = zip(units.queue.tolist(), units.queue_offset.tolist(), units.position.tolist(), strict=True)
        for number, offset, position in rows:
            named.setdefault(units.queues[number], []).append((offset, position))
    for row in named.values():
        row.sort()
    for place in wanted:
        mine = named.get(place.queue, [])
        at = bisect_left(mine, (place.queue_offset, -1))
        if at < len(mine) and mine[at][0] == place.queue_offset:
            continue
        low = max([place.low, *(position for _, position in mine[at - 1 : at])])
        high = min([place.high, *(position for _, position in mine[at : at + 1])])
        yield place._replace(low=low, high=high)


@dataclass
class _Room:
    """Bytes of a fill without a tombstone. rest: the fewest bytes that may be left, unless none are."""

    fill: int
    begin: int
    end: int
    rest: int
    to_file_end: bool

    def take(self, least: int, most: int) -> int:
        """Return the size of a record at `begin`, 0 if none fits: all bytes, if `most` would leave too few."""
        free = self.end - self.begin
        size = min(most, free - self.rest)
        if size < most and not self.to_file_end:
            size = free
        return size if size >= least else 0

    def more(self, most: int) -> int:
        """Return the bytes that the record before `begin` can take in addition."""
        free = self.end - self.begin
        if free <= most and not self.to_file_end:
            return free
        return max(0, min(most, free - self.rest))


def with_unreferenced(
    closed: Sequence[Fill],
    wanted: Iterable[LostMessagePlace],
    known: Sequence[LostUnits],
    given: set[_Pair],
    forms: Forms,
) -> tuple[list[Fill], list[Unplaced]]:
    """Return the fills with tombstones in place of fillers, and the messages without room, or in LMQs: these have no
    tombstones of their own.

    known: other places that units name. given: pairs among the tombstones that no unit names (`with_own_queues`).
    """
    wanted = list(wanted)
    sizes = _names_bytes(wanted, sum(len(fill.lost) for fill in closed))
    more = [sizes[0]] * len(closed)
    for _ in range(_TRIES):
        changed, unplaced, tight = _with_unreferenced(closed, wanted, known, given, forms, more)
        if not any(more[number] for number in tight):
            return changed, unplaced
        for number in tight:  # places come before the names of LMQs
            more[number] = max((size for size in sizes if size < more[number]), default=0)
    return _with_unreferenced(closed, wanted, known, given, forms, [0] * len(closed))[:2]


def _with_unreferenced(
    closed: Sequence[Fill],
    wanted: Sequence[LostMessagePlace],
    known: Sequence[LostUnits],
    given: set[_Pair],
    forms: Forms,
    more: Sequence[int],
) -> tuple[list[Fill], list[Unplaced], set[int]]:
    """As `with_unreferenced`, and the numbers of fills without room. more: bytes for names of LMQs, by fill."""
    unplaced, tight = list[Unplaced](), set[int]()
    if not closed:
        return [], unplaced, tight
    queues = closed[0].lost.queues
    numbers = {queue: number for number, queue in reversed(list(enumerate(queues)))}
    begins = sorted((fill.gap.begin, fill.gap.store_timestamp) for fill in closed)
    rooms = sorted(_rooms(closed, forms.smallest_filler), key=lambda room: room.begin)
    ends = [room.end for room in rooms]
    rows: list[list[Row]] = [[] for _ in closed]
    reach: dict[QueueId, int] = {}
    given = given & {pair for fill in closed for pair in pairs_of(fill.lost)}  # some are too small for a tombstone
    named = (fill.lost.take(~_among(fill.lost, given)) for fill in closed)
    for place in narrowed((p for p in wanted if (p.queue, p.queue_offset) not in given), (*known, *named)):
        topic = place.queue.topic
        if place.is_light:
            inside = begins[bisect_left(begins, (place.low,)) : bisect_left(begins, (place.high,))]
            unplaced += [Unplaced(place.queue, place.queue_offset, time) for _, time in inside[:1]]
            continue
        least = forms.smallest(topic)
        op = topic == OP_TOPIC
        most = least + OFFSET_BYTES if op else forms.whole(topic)  # with the body of an op record
        low = max(place.low, reach.get(place.queue, 0))
        between = rooms[bisect_right(ends, low) : bisect_right(ends, place.high)]
        for room in between:
            names = 0 if op else more[room.fill]
            if room.begin < low or not (size := room.take(least, most + names)):
                continue
            if place.queue not in numbers:
                numbers[place.queue] = len(queues)
                queues.append(place.queue)
            rows[room.fill].append((room.begin, size, numbers[place.queue], place.queue_offset))
            room.begin += size
            reach[place.queue] = room.begin - 1
            break
        else:
            tight.update(room.fill for room in between)
            times = [closed[room.fill].gap.store_timestamp for room in between[:1]]
            unplaced += [Unplaced(place.queue, place.queue_offset, time) for time in times]
    changed = list(closed)
    for number in [number for number, mine in enumerate(rows) if mine]:
        mine = [room for room in rooms if room.fill == number]
        _grow_last(rows[number], mine, queues)
        changed[number] = _with_rows(closed[number], rows[number], mine)
    placed = {(queues[row[2]], row[3]) for mine in rows for row in mine}
    return _in_order(changed, given | placed) if given else changed, unplaced, tight


def _names_bytes(wanted: Sequence[LostMessagePlace], named: int) -> tuple[int, int]:
    """Return the bytes for the names of as many LMQs as each lost record was in: of the longest name, and of one of
    usual length. named: number of records with a unit.
    """
    light = [place for place in wanted if place.is_light]
    each = min(_NAMES_MAX, -(-len(light) // max(1, named + len(wanted) - len(light))))
    names = sorted((utf8(place.queue.topic) for place in light), key=len) or [b""]
    offset = max((place.queue_offset for place in light), default=0)
    longest, usual = (len(_names([(name, offset)] * each)) for name in (names[-1], names[len(names) // 2]))
    return longest, usual


def _names(further: NamedQueues) -> bytes:
    return with_further(b"", further, PROPERTIES_BYTES_MAX, ended=True)


def with_light_queues(
    lost: LostUnits,
    named: FurtherQueues,
    wanted: Sequence[LostMessagePlace],
    topics: Mapping[QueueId, str],
    forms: Forms,
) -> FurtherQueues:
    """Return `named` with the LMQs that lack a message there: a record in the bytes between their neighbours was in
    them. A message of a LITE topic is in one LMQ, others may be in several.

    lost: all tombstones. named: the further queues of each, by position. topics: as in `with_own_queues`.
    """
    free = list(narrowed((place for place in wanted if place.is_light), [_as_units(named)]))
    if not free:
        return named
    names = _LightNames(lost.take(np.argsort(lost.position)), named, forms)
    for topic in sorted({topics.get(place.queue, "") for place in free}, reverse=True):  # the least known come last
        rows = [row for row, queue in enumerate(names.own) if _can_be_in_light(queue, topic)]
        mine = [place for place in free if topics.get(place.queue, "") == topic]
        lite = [place for place in mine if place.queue.topic.startswith(LITE_PREFIX)]
        for row, place in _assigned(names.lost, [row for row in rows if not names.of(row)], lite):
            names.give(row, place)
        begins, ends = names.lost.position[rows], names.lost.end[rows]
        others = (place for place in mine if not place.queue.topic.startswith(LITE_PREFIX))
        for number, ((_, low, high), run) in enumerate(groupby(others, lambda at: (at.queue, at.low, at.high))):
            first, behind = int(np.searchsorted(begins, low)), int(np.searchsorted(ends, high, side="right"))
            places, count = list(run)[: max(0, behind - first)], behind - first
            # spread over the tombstones there, each queue a little farther on
            picks = [first + (at * count + number % count) // len(places) for at in range(len(places))]
            for place, pick, until in zip(places, picks, [*picks, behind][1:], strict=True):
                any(names.give(row, place) for row in rows[pick:until])  # the first that has room
    return names.found


class _LightNames:
    """Tombstones by position, and the further queues of each, by position."""

    def __init__(self, lost: LostUnits, named: FurtherQueues, forms: Forms) -> None:
        self.lost, self._forms = lost, forms
        self.own = [lost.queues[number] for number in lost.queue.tolist()]
        self.found = {at: dict(names) for at, names in named.items()}

    def of(self, row: int) -> dict[bytes, int]:
        return self.found.get(int(self.lost.position[row]), {})

    def give(self, row: int, place: LostMessagePlace) -> bool:
        """Name an LMQ in a tombstone, if there is room for that."""
        names = {utf8(place.queue.topic): place.queue_offset, **self.of(row)}
        room = int(self.lost.size[row]) - self._forms.smallest(self.own[row].topic) - len(LOST_ITEM)
        if len(names) == len(self.of(row)) or not 0 < len(_names(list(names.items()))) <= room:
            return False
        self.found[int(self.lost.position[row])] = names
        return True


def _can_be_in_light(queue: QueueId, topic: str) -> bool:
    """Whether a record of this queue can be in an LMQ whose records have this topic, "" for unknown."""
    return topic in ("", queue.topic) and not (queue.topic.startswith(LMQ_PREFIX) or is_for_service(utf8(queue.topic)))


def _as_units(further: FurtherQueues) -> LostUnits:
    rows = [(at, name, offset) for at, names in further.items() for name, offset in names.items()]
    queues = [QueueId(name.decode("utf-8", "surrogateescape"), 0) for name in dict.fromkeys(row[1] for row in rows)]
    numbers = {utf8(queue.topic): number for number, queue in enumerate(queues)}
    columns = [(at, 0, numbers[name], offset, 0) for at, name, offset in rows]
    return LostUnits(queues, *np.array(columns, np.int64).reshape(-1, 5).T)


def _among(units: LostUnits, pairs: set[_Pair]) -> Flags:
    """bool[n]: queue and offset are among `pairs`."""
    return np.array([pair in pairs for pair in pairs_of(units)], np.bool_)


def pairs_of(units: LostUnits) -> Iterator[_Pair]:
    for number, offset in zip(units.queue.tolist(), units.queue_offset.tolist(), strict=True):
        yield units.queues[number], offset


def _in_order(fills: Sequence[Fill], pairs: set[_Pair]) -> list[Fill]:
    """Return the fills with the offsets of `pairs` ascending by position in each queue: no unit orders them."""
    offsets: dict[QueueId, list[int]] = {}
    for queue, offset in sorted(pairs, reverse=True):
        offsets.setdefault(queue, []).append(offset)
    changed = list[Fill]()
    for fill in sorted(fills, key=lambda fill: fill.gap.begin):
        own = fill.lost.queue_offset.copy()
        for row in np.flatnonzero(_among(fill.lost, pairs)).tolist():
            own[row] = offsets[fill.lost.queues[int(fill.lost.queue[row])]].pop()
        changed.append(fill._replace(lost=fill.lost.replace(queue_offset=own)))
    return changed


def _grow_last(rows: list[Row], rooms: Sequence[_Room], queues: Sequence[QueueId]) -> None:
    """Let op records take the rest of their room: they may have to name several half messages."""
    for number, (position, size, queue, offset) in enumerate(rows):
        if queues[queue].topic != OP_TOPIC:
            continue
        room = next((each for each in rooms if each.begin == position + size), None)
        if room is not None:
            more = room.more(_OP_BODY_BYTES)
            rows[number] = (position, size + more, queue, offset)
            room.begin += more


def _rooms(closed: Sequence[Fill], smallest: int) -> Iterator[_Room]:
    for number, fill in enumerate(closed):
        for begin, size in fill.fillers:
            yield _Room(number, begin, begin + size, smallest, False)
        if fill.blank is not None:
            begin, size = fill.blank
            yield _Room(number, begin, begin + size, BLANK.sizeof(), True)


def _with_rows(fill: Fill, rows: list[Row], rooms: list[_Room]) -> Fill:
    """Return a fill with more tombstones, and the rest of its fillers and its BLANK."""
    position, size, queue, offset = np.array(rows, np.int64).T
    old = fill.lost
    zeros, ones = np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64)
    more = LostUnits(old.queues, position, size, queue, offset, zeros, ones)
    both = LostUnits.concat([old.replace(batch_size=old.batch_sizes), more])
    fillers = [(r.begin, r.end - r.begin) for r in rooms if r.end > r.begin and not r.to_file_end]
    blank = next(((r.begin, r.end - r.begin) for r in rooms if r.to_file_end), None)
    lost = both.take(np.argsort(both.position, kind="stable"))
    return fill._replace(lost=lost, fillers=fillers, blank=blank, guessed=len(rows))


_SECOND_MS = 1000
"""Index items have whole seconds."""


def index_alone(
    snapshot: Snapshot,
    closed: Sequence[Fill],
    unplaced: Sequence[Unplaced],
    behind: tuple[int, int] | None,
    gone: Sequence[Fill] = (),
) -> int:
    """Return the least number of lost messages that only index items name: those in gaps with more named positions than
    tombstones, and those stored behind the log's end, later than its last record.

    behind: the log's end and the time of that record; None: do not count items behind the end. gone: lost records
    behind the end that units name. Raises Unreadable.
    """
    fills = sorted(closed, key=lambda fill: fill.gap.begin)
    gaps = [fill.gap for fill in fills]
    begins, found = [gap.begin for gap in gaps], [set[int]() for _ in gaps]
    for position, _, time in items_in(snapshot, gaps) if gaps else ():
        number = bisect_right(begins, position) - 1
        gap = gaps[number]
        if gap.previous < 0 or time + _SECOND_MS > gap.store_timestamp:  # else an earlier start has cut it off
            found[number].add(position)
    more = [(len(places) - len(fill.lost), fill.guessed) for places, fill in zip(found, fills, strict=True)]
    # a tombstone at a guessed place may stand for the message of an item in another gap
    guessed = sum(min(most, -items) for items, most in more if items < 0)
    without_room = sum(not place.queue.topic.startswith(LMQ_PREFIX) for place in unplaced)
    count = max(0, sum(items for items, _ in more if items > 0) - guessed - without_room)
    if behind is None:
        return count
    end, newest = behind
    tail = items_in(snapshot, [Gap(end, np.iinfo(np.int64).max, False, newest)])
    known = {position for fill in gone for position in fill.lost.position.tolist()}
    late = {at: time for at, _, time in tail if time + _SECOND_MS > newest and at not in known}
    return count + (len(late) if any(time > newest for time in late.values()) else 0)


_LIST_SINCE = "5"
"""Brokers write several offsets in one op record since 5.0."""


def op_bodies(log: CommitLog, lost: LostUnits, closed: Sequence[Fill], forms: Forms) -> dict[int, bytes]:
    """Return the bodies of the tombstones of op records, by position. Reads the log again if there are any.

    lost: the lost records in their own places; closed: the tombstones. Raises Unreadable.
    """
    topics = np.array([queue.topic == OP_TOPIC for queue in lost.queues] or [False])
    own = [fill.lost.take(topics[fill.lost.queue]) for fill in closed] if topics.any() else []
    places = [place for mine in own for place in zip(mine.position.tolist(), mine.size.tolist(), strict=True)]
    if not places:
        return {}
    found = _Transactions()
    found.read(log)
    halves = np.array([queue.topic == HALF_TOPIC for queue in lost.queues])
    gone = lost.take(halves[lost.queue])
    waiting = found.waiting(gone.position, gone.queue_offset)
    new = bool(forms.generations) and all(g >= _LIST_SINCE for g in forms.generations)
    as_list = new or found.lists
    base = forms.smallest(OP_TOPIC) - len(NO_OFFSET)
    bodies = {}
    for position, size in places:
        room = size - base
        body = b""
        while waiting and len(text := offset_text(waiting[0], ended=as_list)) <= room - len(body):
            body += text
            waiting.pop(0)
            if not as_list:
                break
        bodies[position] = body or NO_OFFSET
    return bodies


class _Transactions:
    """Half messages in the log: int64[n] each, in log order.

    committed: positions of committed ones. halves, offsets: positions and queue offsets. named: queue offsets that op
    records name. lists: an op record names several.
    """

    def __init__(self) -> None:
        nothing = np.zeros(0, np.int64)
        self.committed, self.named = [nothing], [nothing]
        self.halves, self.offsets = [nothing], [nothing]
        self.lists = False

    def read(self, log: CommitLog) -> None:
        """Read the whole log. Raises Unreadable."""
        for batch in good_records(log.scan(reuse=True)):
            good = np.ones(len(batch), np.bool_)
            self._take(batch.take(good if batch.body_crc_ok is None else batch.body_crc_ok))

    def _take(self, batch: Batch) -> None:
        columns = batch.columns
        state = columns.ints("sys_flag") & TRANSACTION_MASK
        positions = columns.ints("prepared_transaction_offset")[state == SysFlag.COMMIT]
        self.committed.append(positions.astype(np.int64))
        half = _has_topic(columns, HALF_TOPIC)
        self.halves.append(batch.position[half])
        self.offsets.append(columns.ints("queue_offset")[half].astype(np.int64))
        for row in _has_topic(columns, OP_TOPIC).tolist():
            body = columns.ragged("body")[row]
            self.lists |= OFFSET_END in body
            self.named.append(np.array(list(offsets_in(body)), np.int64))

    def waiting(self, gone: Ints, gone_offsets: Ints) -> list[int]:
        """Return queue offsets of committed half messages, `gone` ones too, that no op record names, ascending."""
        positions = np.concatenate([*self.halves, gone])
        offsets = np.concatenate([*self.offsets, gone_offsets])
        decided = offsets[np.isin(positions, np.concatenate(self.committed))]
        unnamed: list[int] = np.setdiff1d(decided, np.concatenate(self.named)).tolist()
        return unnamed


def _has_topic(columns: Columns, topic: str) -> Ints:
    return np.flatnonzero(columns.ragged("topic").equals(topic.encode()))
