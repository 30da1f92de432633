"""Messages that POP consumers were given, read from a broker's own topics.

Tells which messages consumers have and have not acknowledged, until when, and which came back. A check point lists
messages that a group was given. What was acknowledged by the time it ends is done; a broker writes the rest to the
group's retry topic.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ...formats import message_properties as names
from ...formats import pop as pop_format
from ...formats.consumer_order_info import FILE as ORDER_FILE
from ...formats.hashing import utf8
from ...formats.message_properties import RETRY_PREFIX
from ...formats.property_columns import PropertyItems
from ..broker.profiles import profile_of
from ..broker.snapshot import QueueId, list_entries
from ..broker.system_topics import TIMER_TOPIC, is_system_group
from ..counted import counted
from ..disk.layout import KV_STORE
from ..disk.lock import holder
from ..errors import Missing, StoreError
from ..log.batch import Batch
from ..log.commit_log import RecordPlaces, batches
from ..log.message import tombstones
from ..queues.rocksdb import RocksDb, is_rocksdb
from ..queues.rocksdb_copy import CutShort, DatabaseLoss, emptiness, loss_or_cut
from ..queues.units import LARGEST_OFFSET
from ..search.store import Note, StoreReader, silent
from ..settings.read import Progress, read_config_file, read_pop, read_progress
from ..settings.rocksdb import read_entries
from ..start.config_load import config_rules
from .own_topics import goes_on_at, identity, is_next, not_read, own_name, records_of, unread_records
from .timer_records import Scanned, TimerRecords
from .timers import TimerMessageState, timers

_place: Callable[[Any], tuple[str, str, int, int]] = itemgetter("topic", "group", "queue_id", "queue_offset")
Key = tuple[Any, ...]
Place = tuple[str, int, int]
"""A place in a revive topic: topic, queue, offset."""


@dataclass
class CheckPoint:
    """A check point. position: of its newest record. revived: its place in a revive topic, None while only the timer
    topic has it. again: queue offset of a message → newest record for it alone, which a broker wrote when it could not
    bring the message back. topic: the revive topic, also of a timer.
    """

    fields: dict[str, Any]
    position: int
    revived: Place | None = None
    again: dict[int, CheckPoint] = field(default_factory=dict)
    topic: str = pop_format.REVIVE_TOPIC

    def of(self, offset: int) -> CheckPoint:
        """Return the check point that counts for a message."""
        return self.again.get(offset, self)


class PoppedMessage(NamedTuple):
    """A message that consumers may have been given: its place in a queue, and in the log."""

    topic: str
    queue_id: int
    queue_offset: int
    position: int

    def is_in(self, fields: Mapping[str, Any]) -> bool:
        """Whether a check point or an acknowledgement is about the message."""
        its_queue = (fields["topic"], fields["queue_id"]) == (self.topic, self.queue_id)
        return its_queue and self.queue_offset in pop_format.named_offsets(fields)


@dataclass
class PopRecords:
    """What the topics of POP hold.

    acks: check point → acknowledged queue offset → revive queue → newest place of the acknowledgement there; None: in
    the timer topic. broker_name: of the broker, taken for acknowledgements without a name; None if unknown. came_back:
    retry topic → unique key → positions. newest: revive queue → offset of its newest record. wrong: number of invalid
    bodies. lost: number of tombstones, and if only some messages are asked about, of other records that cannot be read.
    again: check points for one message alone. given: places of messages that check points and acknowledgements of this
    broker name. groups: (group, topic) that any of them names. stops: revive queue → offset → position of records that
    no broker gets past. waiting: records of the timer topic.
    """

    check_points: dict[Key, CheckPoint] = field(default_factory=dict)
    acks: dict[Key, dict[int, dict[tuple[str, int] | None, Place | None]]] = field(default_factory=dict)
    came_back: dict[str, dict[bytes, list[int]]] = field(default_factory=dict)
    newest: dict[tuple[str, int], int] = field(default_factory=dict)
    wrong: int = 0
    lost: int = 0
    again: list[CheckPoint] = field(default_factory=list)
    given: set[Key] = field(default_factory=set)
    groups: set[tuple[str, str]] = field(default_factory=set)
    stops: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)
    waiting: list[TimerRecords] = field(default_factory=list)
    broker_name: str | None = None

    def acked(self, key: Key) -> set[int]:
        """Return the acknowledged queue offsets of a check point. What a broker reads before it does not count."""
        at = self.check_points[key].revived
        named = key if self.broker_name not in (None, key[-1]) else _unnamed(key)
        both = [*self.acks.get(key, {}).items(), *self.acks.get(named, {}).items()]
        if at is None:
            return {offset for offset, _ in both}
        mine = ((offset, places.get(at[:2])) for offset, places in both)
        waiting = {offset for offset, places in both if places.keys() == {None}}  # only in the timer so far
        return waiting | {offset for offset, place in mine if place is not None and at < place}

    @property
    def every(self) -> Iterator[CheckPoint]:
        """All check points, also those that were written again."""
        return (each for point in self.check_points.values() for each in (point, *point.again.values()))

    @property
    def doubt(self) -> str:
        """What may have told more, "" for nothing."""
        records = counted(self.lost, "record")
        return f"{records} of the log, where POP notes what consumers have, cannot be read" if self.lost else ""

    @property
    def stray_acks(self) -> int:
        """Number of acknowledged offsets whose check points are missing."""
        known = {*self.check_points, *map(_unnamed, self.check_points)}
        return sum(len(offsets) for key, offsets in self.acks.items() if key not in known)


def _unnamed(key: Key) -> Key:
    """Return the key of an acknowledgement that names no broker."""
    return *key[:-1], ""


def pop_records(
    store: StoreReader, note: Note, about: Sequence[PoppedMessage] = (), behind: int | None = None
) -> PopRecords:
    """Read the records of the topics of POP. about: only those about these messages. Memory: what is kept.

    behind: see `topic_records`. Raises Unreadable.
    """
    found = PopRecords(broker_name=own_name(store) or None)
    grammar = config_rules(profile_of(store.generation.version)).grammar
    own = (TIMER_TOPIC, pop_format.REVIVE_TOPIC)
    seen = [np.empty(0, np.int64)]
    for batch in records_of(store, "pop", (*own, RETRY_PREFIX), note, behind):
        topics, items = batch.columns.ragged("topic"), PropertyItems(batch.columns.ragged("properties"))
        revive = topics.begins(utf8(pop_format.REVIVE_TOPIC))
        timed = topics.equals(utf8(TIMER_TOPIC))
        waits = timed & items.find(names.REAL_TOPIC).begins(utf8(pop_format.REVIVE_TOPIC))
        found.waiting += [TimerRecords.of(batch.take(waits))] if waits.any() else []
        found.lost += int(((revive | timed) & tombstones(batch.columns)).sum())
        seen += [batch.position[revive | timed].astype(np.int64)] if about else []
        tags, real = items.find(names.TAGS), items.find(names.REAL_TOPIC)
        for row in np.flatnonzero(revive | waits).tolist():
            tag = tags[row].decode("utf-8", "replace")
            fields, why = read_pop(tag, batch.columns.ragged("body")[row], grammar)
            place = _note_place(found, batch, row, stops=bool(why)) if revive[row] else None
            if fields is None:
                found.wrong += tag in pop_format.BODIES  # a broker skips any other record, as it skips a tombstone
            else:
                found.groups.add((fields["group"], fields["topic"]))
                if not about or any(one.is_in(fields) for one in about):
                    name = place[0] if place else real[row].decode("utf-8", "replace")
                    _add(found, tag, CheckPoint(fields, int(batch.position[row]), place, topic=name))
        again = topics.begins(utf8(RETRY_PREFIX)) & (items.find(pop_format.FIRST_POP_TIME).length > 0)
        keys = items.find(names.UNIQ_KEY)
        for row in np.flatnonzero(again).tolist():
            mine = found.came_back.setdefault(topics[row].decode("utf-8", "replace"), {})
            mine.setdefault(identity(batch, row, keys), []).append(int(batch.position[row]))
    _join_again(found)
    read, topics_of_pop = np.sort(np.concatenate(seen)), [topic for topic in store.topics if topic.startswith(own)]
    found.lost += sum(unread_records(store, topic, behind, read) for topic in topics_of_pop) if about else 0
    return found


def _join_again(found: PopRecords) -> None:
    """Give what was written again for one message to its check point; if that is gone, it is a check point itself."""
    points: dict[Key, list[CheckPoint]] = {}
    for point in found.check_points.values():
        points.setdefault(pop_format.given_with(point.fields), []).append(point)
    for newest in sorted(found.again, key=lambda point: point.position):
        fields = newest.fields
        offset = fields["start_offset"]
        named = points.get(pop_format.given_with(fields), [])
        mine = [point for point in named if offset in dict(pop_format.offsets_of(point.fields))]
        for point in mine:
            point.again[offset] = newest
        if not mine:
            found.check_points[pop_format.key_of(fields)] = newest


def _note_place(found: PopRecords, batch: Batch, row: int, *, stops: bool) -> Place:
    """Note a record of a revive topic, and return its place."""
    topic = batch.columns.ragged("topic")[row].decode("utf-8", "replace")
    queue = (topic, int(batch.columns.ints("queue_id")[row]))
    offset = int(batch.columns.ints("queue_offset")[row])
    found.newest[queue] = max(offset, found.newest.get(queue, 0))
    if stops:
        found.stops.setdefault(queue, {})[offset] = int(batch.position[row])
    return *queue, offset


def _add(found: PopRecords, tag: str, new: CheckPoint) -> None:
    """Add a check point or an acknowledgement; of several records of one, the newest counts."""
    fields = new.fields
    key = pop_format.key_of(fields)
    offsets = pop_format.named_offsets(fields)
    if found.broker_name in (None, key[-1]) or not key[-1].strip():
        found.given |= {(fields["topic"], fields["group"], fields["queue_id"], offset) for offset in offsets}
    if tag in (pop_format.ACK_TAG, pop_format.BATCH_ACK_TAG):
        mine = found.acks.setdefault(key if key[-1].strip() else _unnamed(key), {})
        for offset in offsets:
            places, place = mine.setdefault(offset, {}), new.revived
            queue = None if place is None else place[:2]
            places[queue] = max(filter(None, (places.get(queue), place)), default=None)
    elif fields["re_put_times"]:
        found.again.append(new)
    else:
        old = found.check_points.get(key)
        if old is None or old.position < new.position:
            found.check_points[key] = new


STAYS = "its check point stays in the timer"
AGAIN = "again"
"""Beside states: the messages that `_given_again` returns."""


class PopState(StrEnum):
    """What became of a message that a consumer was given."""

    ACKED = "acked"
    RETURNED = "returned"
    INVISIBLE = "invisible"
    DUE = "due"
    NEVER = "never"
    UNKNOWN = "unknown"


@dataclass
class Popped:
    """A message of a check point that was not acknowledged; times in ms since 1970.

    visible_timestamp: until then no other consumer gets it. check_point: position of the check point, None if
    `kvStore/` has the message instead. position: of the message, None if it cannot be found. returned: its position in
    the retry topic. broker_name: of another broker that has the message, for which this one acted as master; else "".
    again: see `_given_again`.
    """

    topic: str
    group: str
    queue_id: int
    queue_offset: int
    state: PopState
    pop_timestamp: int
    visible_timestamp: int
    check_point: int | None
    position: int | None = None
    returned: int | None = None
    reason: str = ""
    broker_name: str = ""
    again: bool = False

    @property
    def place(self) -> Key:
        """Topic, group, queue id, queue offset."""
        return self.topic, self.group, self.queue_id, self.queue_offset


@dataclass
class ReviveQueue:
    """A queue of a revive topic. reached: next offset that a broker reads, None if not known.

    newest: offset of its last record. stopped_at, stopping: queue offset and position in the log of the first record
    that no broker gets past, or None.
    """

    topic: str
    queue_id: int
    reached: int | None
    newest: int
    stopped_at: int | None = None
    stopping: int | None = None


@dataclass
class Pop:
    """What POP left in a store. groups: (group, topic) → state, or `AGAIN` → number of messages."""

    now_ms: int
    check_points: int = 0
    stray_acks: int = 0
    wrong: int = 0
    groups: dict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    rows: list[Popped] = field(default_factory=list)
    revive: list[ReviveQueue] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For `inspect --pop`."""
        states = (*map(str, PopState), AGAIN)
        counts = {state: sum(group[state] for group in self.groups.values()) for state in states}
        return {
            "type": "pop",
            "now": self.now_ms,
            "check_points": self.check_points,
            **counts,
            "stray_acks": self.stray_acks,
            "wrong_bodies": self.wrong,
            "groups": [
                {"group": group, "topic": topic, **{state: counts[state] for state in states}}
                for (group, topic), counts in sorted(self.groups.items())
            ],
            "messages": [vars(row) for row in self.rows],
            "revive_queues": [vars(queue) for queue in self.revive],
        }


def pop(store: StoreReader, now_ms: int, note: Note) -> Pop:
    """Return what consumers have of a store at `now_ms`. Raises Unreadable."""
    _note_order_info(store, note)
    records, kept = pop_records(store, note), kv_store(store, note).rows
    if records.doubt:
        note(f"pop: {records.doubt}")
    found = Pop(now_ms, len(records.check_points), records.stray_acks, records.wrong)
    progress = read_progress(store.layout.config, store.layout.broker_config)
    found.revive = [
        ReviveQueue(*queue, _reached(progress, *queue), newest, *(_blocker(records, progress, queue) or ()))
        for queue, newest in sorted(records.newest.items())
    ]
    for key, point in records.check_points.items():
        rows, fields = _not_acked(records, key), point.fields
        acked = len(pop_format.named_offsets(fields)) - len(rows)
        found.groups[fields["group"], fields["topic"]][PopState.ACKED] += acked
        found.rows += rows
    found.rows += kept
    for topic, group, *_ in _tell(store, found.rows, records, progress, now_ms):
        found.groups[group, topic][AGAIN] += 1
    for row in found.rows:
        found.groups[row.group, row.topic][row.state] += 1
    found.rows.sort(key=lambda row: (row.visible_timestamp, row.check_point or 0, row.queue_offset))
    return found


def popped_again(store: StoreReader, made: Mapping[QueueId, int]) -> int:
    """Return how many messages a start gives POP consumers again, as brokers write positions every five seconds: of
    check points that it reads again in the revive topic, and all that a group is not past. made: ends of queues
    after the start. Raises Unreadable.
    """
    if not is_next(store):
        return 0
    kept, progress = kv_store(store, silent).rows, read_progress(store.layout.config, store.config)
    topics = store.topics or [place.topic for place, at in progress.items() if any(at.values())]
    of_pop = any(topic.startswith(pop_format.REVIVE_TOPIC) for topic in topics)
    begins = [*_unread(store, progress, made)] if of_pop else []
    whole = of_pop and store.queues_unread  # nothing shows where in the log to begin
    records = pop_records(store, silent, behind=min(begins, default=None)) if begins or whole else PopRecords()
    points = ((k, p) for k, p in records.check_points.items() if p.revived is not None and not _is_read(p, progress))
    reached = (k for k, p in points if not (not_read(store, p.topic) or _why_blocked(store, p, records, progress)))
    _locate(store, rows := [row for key in reached for row in _not_acked(records, key)], records)
    back = {row.place for row in rows if row.returned is not None}
    return len(back | _given_again(store, records, progress, kept))


def _given_again(store: StoreReader, records: PopRecords, progress: Progress, rows: Iterable[Popped]) -> set[Key]:
    """Return the places of messages, of `records` and `rows`, that a start gives out again, acknowledged or not: the
    group's position in the queue is not past them. Where a group has none, nothing tells where a start goes on.
    """
    given = records.given | {row.place for row in rows if not row.broker_name} if is_next(store) else set()
    at = {one[:3]: progress.get(QueueId(one[0], one[2]), {}).get(one[1], LARGEST_OFFSET) for one in given}
    return {place for place in given if place[3] >= at[place[:3]]}


def given_out(
    store: StoreReader, about: Sequence[PoppedMessage], kept: Sequence[Popped], now_ms: int, note: Note
) -> tuple[list[Popped], PopRecords]:
    """Return each time that a consumer was given one of the messages, with its state at `now_ms`, the newest last; and
    what the topics of POP hold about them. kept: what kvStore has. Raises Unreadable.
    """
    _note_order_info(store, note)
    progress = read_progress(store.layout.config, store.layout.broker_config)
    begins = [one.position for one in about] + list(_unread(store, progress))  # no broker may get to the messages
    records = pop_records(store, note, about, min(begins, default=None))
    places = {one[:3] for one in about}
    found = [row for row in kept if (row.topic, row.queue_id, row.queue_offset) in places]
    given = ((key, p, one) for key, p in records.check_points.items() for one in about if one.is_in(p.fields))
    for key, point, one in given:
        row = _row(point, one.queue_offset)
        done = (row.queue_offset, True) in pop_format.offsets_of(point.fields)
        row.state = PopState.ACKED if done or row.queue_offset in records.acked(key) else PopState.UNKNOWN
        found.append(row)
    _tell(store, found, records, progress, now_ms)
    mine = (row for row in found if not row.broker_name)
    return sorted(mine, key=lambda row: (row.pop_timestamp, row.check_point or 0)), records


def _tell(store: StoreReader, rows: list[Popped], records: PopRecords, progress: Progress, now_ms: int) -> set[Key]:
    """Set places, and states of messages that are not acknowledged. Returns `_given_again`. Raises Unreadable."""
    again = _given_again(store, records, progress, rows)
    _locate(store, rows, records)
    for row in rows:
        row.again = not row.broker_name and row.place in again
    points: dict[int | None, CheckPoint] = {point.position: point for point in records.every}
    stays, unread = _stay_in_the_timer(store, records, now_ms), cache(partial(not_read, store))
    for row in (row for row in rows if row.state is not PopState.ACKED):
        point, read, blocked = points.get(row.check_point), False, ""
        if point is not None:
            read, blocked = _is_read(point, progress), _why_blocked(store, point, records, progress)
        place, never = KV_STORE if point is None else point.topic, stays.get(row.check_point, "")
        if not read and row.position is not None:
            never = unread(place) or never
        row.state, row.reason = _state(row, now_ms, read, blocked, never)
    return again


def _note_order_info(store: StoreReader, note: Note) -> None:
    """Note where POP keeps data that `pop` does not read."""
    with suppress(Missing):
        file = read_config_file(store.layout.config / ORDER_FILE, "consumer-order-info")
        if any(row["type"] == "consumer_order_info" for row in file.records()):
            note(f"pop: config/{ORDER_FILE} holds what groups consume in order: `mqstore dump` shows that file")


class KvStore(NamedTuple):
    """What consumers have by `kvStore/`, where popConsumerKVServiceEnable keeps it (spec 05, 5.4). lacks: why it may
    have held more, "" if nothing shows that. empty: whether it is there and keeps nothing.
    """

    rows: list[Popped]
    lacks: str = ""
    empty: bool = False


def kv_store(store: StoreReader, note: Note) -> KvStore:
    """Read `kvStore/`. note: told what is lost of it."""
    path = store.layout.root / KV_STORE
    written = holder(store.layout.lock) is not None  # the files of a running broker come and go
    loss = None if written else loss_or_cut(path)
    if isinstance(loss, DatabaseLoss):
        note(f"pop: {path.name}: {loss.sentence}")
    if not is_rocksdb(path):
        missing = not list_entries(path)
        if wanted := missing and store.config.get_bool(pop_format.KV_OPTION):
            note(f"pop: {path.name} is missing: with {pop_format.KV_OPTION} it holds what consumers have")
        return KvStore([], "which is missing" if wanted else "" if missing else "which was not read")
    gone = isinstance(loss, CutShort) and loss.all
    lacks = f"which is not whole: {loss.text}" if loss is not None and not gone else ""
    try:
        with RocksDb.open(path) as database:
            rows = [row for entry in read_entries(database) for row in entry.records]
    except StoreError as error:
        note(f"pop: {path.name} cannot be read ({error}): what it holds is not shown")
        return KvStore([], lacks or f"which cannot be read: {error.message}")
    popped = [
        Popped(t, group, number, offset, PopState.UNKNOWN, row["pop_time"], row["visibility_timestamp"], None)
        for row in rows
        if row["type"] == "rocksdb_pop"
        for t, group, number, offset in (_place(row),)
    ]
    return KvStore(popped, lacks, not lacks and bool(emptiness(path, loss)))


def _not_acked(records: PopRecords, key: Key) -> list[Popped]:
    """Return the messages of a check point that are not acknowledged."""
    point, acked = records.check_points[key], records.acked(key)
    offsets = pop_format.offsets_of(point.fields)
    return [_row(point, offset) for offset, done in offsets if not done and offset not in acked]


def _row(point: CheckPoint, offset: int) -> Popped:
    """Return one message of a check point, its state not known yet."""
    point = point.of(offset)
    fields = point.fields
    place, pop_ms = (fields["topic"], fields["group"], fields["queue_id"], offset), fields["pop_time"]
    until = pop_ms + fields["invisible_time"]
    return Popped(*place, PopState.UNKNOWN, pop_ms, until, point.position, broker_name=fields["broker_name"])


def _reached(progress: Progress, topic: str, queue_id: int) -> int | None:
    """Return the next offset of a revive queue that a broker reads, as far as it has noted this."""
    return progress.get(QueueId(topic, queue_id), {}).get(pop_format.REVIVE_GROUP)


def _unread(store: StoreReader, progress: Progress, made: Mapping[QueueId, int] | None = None) -> Iterator[int]:
    """Yield the position of the next record that a broker reads in each revive queue. made: ends of queues after a
    start; then also that of the next message of each queue that some group has not passed. Raises Unreadable.
    """
    for directory in store.queues:
        place = QueueId(directory.topic, directory.queue_id)
        every = progress.get(place, {}) if made is not None else {}
        reached = [offset for group, offset in every.items() if not is_system_group(group)]
        if place.topic.startswith(pop_format.REVIVE_TOPIC):
            reached = [_reached(progress, *place) or 0]
        if reached:
            with store.queues.open(*place) as queue:
                at = goes_on_at(store, queue, min(reached), (made or {}).get(place, 0))
            if at is not None:
                yield at


def _is_read(point: CheckPoint, progress: Progress) -> bool:
    """Whether a broker has dealt with the check point."""
    return point.revived is not None and point.revived[2] < (_reached(progress, *point.revived[:2]) or 0)


def _blocker(records: PopRecords, progress: Progress, queue: tuple[str, int]) -> tuple[int, int] | None:
    """Return offset and position of the first record of a revive queue that no broker gets past, or None."""
    reached = _reached(progress, *queue) or 0
    return min((item for item in records.stops.get(queue, {}).items() if item[0] >= reached), default=None)


def _why_blocked(store: StoreReader, point: CheckPoint, records: PopRecords, progress: Progress) -> str:
    """Return why no broker gets to a check point that it has not read; "" if one does."""
    if not store.config.get_bool("timerWheelEnable", True):
        return "it does not come back: with timerWheelEnable=false no broker reads the revive topic"
    blocker = None if point.revived is None else _blocker(records, progress, point.revived[:2])
    if blocker is None or point.revived is None:
        return ""
    place = "/".join(map(str, point.revived[:2]))
    return f"it does not come back: a broker cannot read the body of record {blocker[0]} of {place}, and stops there"


def _stay_in_the_timer(store: StoreReader, records: PopRecords, now_ms: int) -> dict[int | None, str]:
    """Return position → reason for check points that never leave the timer topic (spec 04, 4.9). Raises Unreadable."""
    waiting = {point.position for point in records.every if point.revived is None}
    if not waiting:
        return {}
    scanned = Scanned(TimerRecords.concat(records.waiting))
    never = (row for row in timers(store, now_ms, silent, scanned).rows if row.state is TimerMessageState.NEVER)
    return {position: f"{STAYS}: {row.reason}" for row in never for position in row.positions if position in waiting}


def _locate(store: StoreReader, rows: list[Popped], records: PopRecords) -> None:
    """Find the positions of the messages, and of their copies in the retry topics."""
    topics, own = set(store.topics), own_name(store)
    queues: dict[tuple[str, int], list[Popped]] = {}
    for row in rows:
        row.broker_name = row.broker_name if own and row.broker_name != own else ""
        if row.topic in topics and not row.broker_name:
            queues.setdefault((row.topic, row.queue_id), []).append(row)
    for (topic, queue_id), mine in queues.items():
        if any(directory.queue_id == queue_id for directory in store.queues.of_topic(topic)):
            with store.queues.open(topic, queue_id) as queue:
                for row in mine:
                    unit = queue.unit(row.queue_offset)
                    if unit is not None and unit.valid and not unit.pre_fill:
                        row.position = unit.physical_offset
    found = {row.position for row in rows if row.position is not None}
    identities: dict[int, bytes] = {}
    places = np.array(sorted(found), np.int64)
    for _, batch in batches(store.log, RecordPlaces(places, np.zeros_like(places))):
        keys = PropertyItems(batch.columns.ragged("properties")).find(names.UNIQ_KEY)
        for number, position in enumerate(batch.position.tolist()):
            identities[position] = identity(batch, number, keys)
    for row in rows:
        if row.position is not None and (known := identities.get(row.position)) is not None:
            row.returned = _returned_at(row, known, records)
        else:
            row.position = None


def _returned_at(row: Popped, known: bytes, records: PopRecords) -> int | None:
    """Return the position where the message was written again, behind its check point; None if it was not."""
    places = [
        position
        for topic in pop_format.retry_topics(row.topic, row.group)
        for position in records.came_back.get(topic, {}).get(known, ())
        if position > (row.position or 0 if row.check_point is None else row.check_point)
    ]
    return min(places, default=None)


def _state(row: Popped, now_ms: int, read: bool, stopped: str = "", never: str = "") -> tuple[PopState, str]:
    """Return a state and its reason. stopped, never: why no broker gets to the check point, or "" if one does."""
    if row.returned is not None:
        return PopState.RETURNED, ""
    if never:
        return PopState.NEVER, never
    if now_ms < row.visible_timestamp:
        return PopState.INVISIBLE, ""
    if row.broker_name and not read:
        return PopState.DUE, stopped or "a broker asks that broker for the message"
    if row.position is None:
        return PopState.UNKNOWN, "its record cannot be found"
    if read:
        return PopState.UNKNOWN, "a broker has read past its check point, but it did not come back"
    if row.check_point is None:
        return PopState.DUE, "it comes back as soon as a broker reads kvStore"
    return PopState.DUE, stopped or "it comes back as soon as a broker reads its check point"
