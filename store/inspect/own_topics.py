"""Records of a broker's own topics, read in columns, and delay levels: what is pending in each, and when it fires (spec
01, 1.11; 05, 5.3).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...formats.delay_offset import FILE as DELAY_FILE
from ...formats.derive.ragged import Flags, Ints, Ragged
from ...formats.digest_columns import Digests, digest_column, mixed
from ...formats.hashing import utf8
from ...formats.message_properties import REAL_TOPIC, UNIQ_KEY
from ...formats.pop import KV_OPTION, REVIVE_TOPIC
from ...formats.property_columns import PropertyItems
from ..broker.dispatch import dispatch
from ..broker.dispatch_record import OWN_QUEUES
from ..broker.profiles import profile_of, writer_profile
from ..broker.system_topics import CHECKED_TOO_OFTEN, DEAD_LETTER_PREFIX, MEMBERS_PREFIX, SCHEDULE_TOPIC
from ..columns import rows_of
from ..counted import counted
from ..disk.layout import KV_STORE
from ..disk.lock import holder
from ..errors import StoreError
from ..log.batch import Batch
from ..log.commit_log import batches
from ..queues.ext import tags_codes
from ..queues.read import ConsumeQueue
from ..queues.references import of_queue
from ..queues.units import is_used, is_valid
from ..search.log_search import (
    LAST_OFFSET,
    behind_queues,
    gap_text,
    never_delivered,
    queue_gaps_of,
    time_bounds,
    units_lost_behind,
)
from ..search.queue_search import in_place, note_units
from ..search.selection import Selection, TimeRange
from ..search.store import Note, StoreReader, silent
from ..settings.options import options_of
from ..start.config import delay_progress
from ..start.config_load import config_rules


def topic_records(store: StoreReader, topic: str, note: Note, behind: int | None = None) -> Iterator[Batch]:
    """Yield the records of a topic: queue by queue, or in log order if the log has to be scanned.

    behind: position of a record; only that and later ones are wanted. A batch is valid until the next one is asked for.
    note: told once if the log is scanned, and how many units point at no record. Raises Unreadable.
    """
    why = unreliable(store) or lacking(store, topic, behind)
    if why:
        note(f"{topic}: {why}: scanning the log")
        yield from scanned(store, topic, behind)
        note_lost(store, topic, note)
    else:
        yield from queue_records(store, topic, note, behind)


def queue_records(
    store: StoreReader, topic: str, note: Note, behind: int | None = None, newest: int = LAST_OFFSET
) -> Iterator[Batch]:
    """Yield the records that the queues of a topic name. newest: limit of units, the last ones of each queue."""
    end, lost, moved = store.log_end.position, 0, 0
    for directory in store.queues.of_topic(topic):
        with store.queues.open(topic, directory.queue_id) as queue:
            start, stop = span(store, queue, behind)
            start = max(start, stop - newest)
            for window in of_queue(queue, start, stop, log_end=end):
                for places, batch in batches(store.log, window):
                    lost += len(places) - len(batch)
                    moved += int((~in_place(batch, topic, places)).sum())
                    yield batch.take(batch.columns.ragged("topic").equals(utf8(topic)))
    note_lost(store, topic, note, lost)
    note_units(moved, topic, "messages of other numbers", note)


def has_own_records(store: StoreReader, topic: str) -> bool:
    """Whether any of the 1,000 newest records that each of its queues names is of the topic itself: queues may name
    records of other topics (spec 2.9). Raises Unreadable.
    """
    return any(len(batch) for batch in queue_records(store, topic, silent, newest=1000))


def note_lost(store: StoreReader, topic: str, note: Note, lost: int = 0) -> None:
    """Note how many units of a topic point at no record: `lost`, and those behind the end of a log that lost them."""
    note_units(lost + units_lost_behind(store, topic), topic, "no record", note)


def unread_records(store: StoreReader, topic: str, behind: int | None, seen: Ints) -> int:
    """Return how many records that units of a topic name, from `behind` on, cannot be read. seen: positions of records
    that were, ascending. Raises Unreadable.
    """
    found = units_lost_behind(store, topic)
    for directory in store.queues.of_topic(topic):
        with store.queues.open(topic, directory.queue_id) as queue:
            for _, units in queue.units(*span(store, queue, behind)):
                named = np.unique(units["physical_offset"][is_valid(units)].astype(np.int64))
                doubtful = named[~rows_of(seen, named)[1]]
                found += len(doubtful) - len(store.log.records(doubtful))
    return found


def span(store: StoreReader, queue: ConsumeQueue, behind: int | None) -> tuple[int, int]:
    """Return the units start ≤ k < end of a queue, from the unit of the record at `behind` on."""
    ends = store.queue_summary(queue)
    start = max(ends.min_offset, queue.first_offset)
    return start if behind is None else queue.at_or_behind(behind, start, ends.max_offset), ends.max_offset


def goes_on_at(store: StoreReader, queue: ConsumeQueue, number: int, made: int) -> int | None:
    """Return the log position of a queue's message at offset `number`, or of one before it that is near; None for none.

    made: where the queue ends after a start, which may make units for messages that have none yet. Raises Unreadable.
    """
    start, end = span(store, queue, None)
    at = max(start, number)
    if made > end and at >= end:
        at = end - 1
    unit = queue.unit(at) if start <= at < end else None
    return unit.physical_offset if unit is not None and unit.valid else None


def lacking(store: StoreReader, topic: str, behind: int | None = None, *, reached_too: bool = True) -> str:
    """Return why the queues of a topic do not name all that the log has of it, "" if nothing says so.

    Looks at invalid units, where queues begin and end, what was consumed or delivered of them, and the end of the log.
    A missing queue stays unnoticed if nobody has read from it. reached_too: whether to look at what was consumed or
    delivered. Raises Unreadable.
    """
    reached, there = _offsets_reached(store, topic) if reached_too else {}, set[int]()
    if empty := store.empty_queues(topic):
        return f"queue {empty[0]} has no unit"
    for directory in store.queues.of_topic(topic):
        with store.queues.open(topic, directory.queue_id) as queue:
            start, stop = span(store, queue, behind)
            missing = stop - start - sum(int(is_valid(units).sum()) for _, units in queue.units(start, stop))
            lacks = queue_gaps_of(store, queue, reached)
        if missing > 0:
            units = counted(missing, "unit is", "units are")
            return f"{units} missing or damaged in queue {directory.queue_id}"
        for lack in lacks:
            if lack.places[1] > (behind or 0) and (told := gap_text(store, Selection(topic=topic), lack)):
                return told
        there.add(directory.queue_id)
    for queue_id, offset in sorted(reached.items()):
        if offset > 0 and queue_id not in there:
            return f"there is no queue {queue_id}, but offset {offset} was reached"
    on_demand = topic == CHECKED_TOO_OFTEN or topic.startswith(DEAD_LETTER_PREFIX)
    if on_demand and topic in store.configured and not there:
        return "there is no queue, but a broker made the topic for a message"
    if (at := behind_queues(store, Selection(topic=topic))) is not None:
        return f"queues are behind the log from {at} on"
    return ""


def _offsets_reached(store: StoreReader, topic: str) -> dict[int, int]:
    """Return queue → how far consumers, or the delivery of a delay level, have got in it."""
    found = dict(store.consumed.get(topic, {}))
    if topic == SCHEDULE_TOPIC:
        for level, offset in (delays_passed(store) or {}).items():
            found[level - 1] = max(offset, found.get(level - 1, 0))
    return found


def delays_passed(store: StoreReader) -> dict[int, int] | None:
    """Return `delay_progress` for a broker of the store's version."""
    return delay_progress(store.layout, config_rules(profile_of(store.version)))


def unreliable(store: StoreReader) -> str:
    """Return why queues may lack messages, "" if they have all."""
    if os.path.lexists(store.layout.abort) and holder(store.layout.lock) is None:
        return "the broker did not shut down, queues may be behind"
    return store.queues_unread


def is_next(store: StoreReader) -> bool:
    """Whether a start goes on by the positions on disk: a running broker has newer ones. A slave gives out nothing."""
    return holder(store.layout.lock) in (None, os.getpid()) and not store.config.is_slave


_CLUSTER, _IN_ROCKSDB = "brokerClusterName", "transRocksDBEnable"


def not_read(store: StoreReader, place: str) -> str:
    """Return why a broker never goes on with what waits in a place: kvStore, rocksdbstore (transactions), or a revive
    topic; "" if it does, if version and options leave that open, or for a slave, whose master goes on with it.
    """
    version, config = store.layout.version_named or store.generation.candidates[-1], store.config
    profile = profile_of(version)
    if config.is_slave:
        return ""
    if place.startswith(REVIVE_TOPIC):
        known, what, cluster = profile.timer is not None, "check points", config.get(_CLUSTER)
        read = cluster is None or REVIVE_TOPIC + cluster == place
        why = f"with {_CLUSTER}={cluster} a broker reads {REVIVE_TOPIC}{cluster}, not {place}"
    else:
        known, what, option = writer_profile(version).rocksdb_store, "transactions", _IN_ROCKSDB
        if place == KV_STORE:
            known, what, option = profile.database is not None, "messages", KV_OPTION
        read, why = config.get_bool(option, True), f"without {option} no broker reads {what} in {place}"
    if not known:
        why = f"{version} reads no {what} in {place}"
    if known and read:
        return ""
    return why if is_next(store) else f"{why}; the broker that runs may be another, or have other options"


def scanned(store: StoreReader, topic: str, behind: int | None = None) -> Iterator[Batch]:
    """Yield the records of a topic by a scan of the log, without stale ones. behind: see `topic_records`."""
    for batch in store.good_records(behind):
        own = batch.columns.ragged("topic").equals(utf8(topic))
        if own.any():
            yield batch.take(np.flatnonzero(own).astype(np.int64))


@dataclass
class Level:
    """One delay level; times in ms since 1970, None if nothing is pending, or no broker delivers it.

    delay_ms: None for a level that messageDelayLevel does not have. delivered: next queue offset to deliver, None if
    delayOffset.json lacks the level: then all messages count as pending. again: messages that were delivered after that
    file was written: if the broker was killed, its start delivers them again.
    """

    level: int
    delay_ms: int | None
    delivered: int | None
    messages: int = 0
    pending: int = 0
    again: int = 0
    overdue: int = 0
    first_deliver_timestamp: int | None = None
    last_deliver_timestamp: int | None = None

    def add(self, offsets: Ints, due: Ints | None, now_ms: int, again: Ints) -> None:
        """Count messages of the level by queue offset and deliver time; due: None if no broker delivers them. again:
        offsets of `delayed_again`.
        """
        pending = offsets >= (self.delivered or 0)
        repeated = pending & np.isin(offsets, again)
        pending &= ~repeated
        self.messages += len(offsets)
        self.again += int(repeated.sum())
        self.pending += int(pending.sum())
        if due is None or not pending.any():
            return
        due = due[pending]
        self.overdue += int((due <= now_ms).sum())
        known = (self.first_deliver_timestamp, self.last_deliver_timestamp)
        times = [int(due.min()), int(due.max()), *(time for time in known if time is not None)]
        self.first_deliver_timestamp, self.last_deliver_timestamp = min(times), max(times)


@dataclass
class Delays:
    """All levels that have messages, lowest first. live: a process uses the store: messages come again only if it is
    killed now.
    """

    now_ms: int
    live: bool = False
    levels: list[Level] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For `inspect --delays`."""
        return {
            "type": "delays",
            "now": self.now_ms,
            "pending": sum(level.pending for level in self.levels),
            "overdue": sum(level.overdue for level in self.levels),
            "again": sum(level.again for level in self.levels),
            "live": self.live,
            "levels": [vars(level) for level in self.levels],
        }


def delays(store: StoreReader, now_ms: int, note: Note) -> Delays:
    """Return what waits in the delay levels of a store at `now_ms`. Raises Unreadable.

    A message counts as delivered if its queue offset lies before that of delayOffset.json, and the log reaches beyond
    the time when it was due. What a killed broker had delivered without noting it is told by the log.
    """
    options = options_of(store.layout)
    waits = dict(enumerate(options.delay_levels.value, 1))
    progress = delays_passed(store)
    if progress is None:
        note(f"{DELAY_FILE} cannot be read: the delay levels are counted from their beginning")
        progress = {}
    if pending := {} if store.in_use else never_delivered(store, progress):
        late = f"due after the end of the log, of level {', '.join(map(str, pending))}"
        note(f"{DELAY_FILE} counts messages as delivered that are {late}: they are shown as pending")
        progress = {**progress, **pending}
    levels: dict[int, Level] = {}
    again = delayed_again(store, progress)
    for batch in topic_records(store, SCHEDULE_TOPIC, note):
        queue_ids = batch.columns.ints("queue_id")
        offsets = batch.columns.ints("queue_offset").astype(np.int64)
        due = due_times(store, batch, now_ms)
        for queue_id in np.unique(queue_ids).tolist():
            mine, number = queue_ids == queue_id, queue_id + 1
            level = levels.setdefault(number, Level(number, waits.get(number), progress.get(number)))
            fires = None if options.lacks_level(number) else due[mine]
            level.add(offsets[mine], fires, now_ms, again.get(number, np.empty(0, np.int64)))
    return Delays(now_ms, store.in_use, [levels[number] for number in sorted(levels)])


def messages_delayed_again(store: StoreReader) -> int:
    """Return how many messages of delay levels a start delivers again. Raises Unreadable."""
    return sum(map(len, delayed_again(store, delays_passed(store) or {}).values()))


def delayed_again(store: StoreReader, progress: Mapping[int, int]) -> dict[int, Ints]:
    """By delay level, the queue offsets of messages that `progress` does not count as delivered although the log has
    the delivered copy: brokers write delayOffset.json every ten seconds. A slave delivers nothing. Raises Unreadable.

    progress: by delay level, the next queue offset to deliver; a level that it does not have begins at 0.
    """
    newest_ms = store.log_end.store_timestamp if store.has_log else None
    if newest_ms is None or store.layout.broker_config.is_slave:
        return {}
    parts, first_ms = list[_Waiting](), newest_ms
    for batch, due in _undelivered(store, progress, newest_ms):
        rows, number, _ = _with_real_topic(batch)
        position, queue_id, offset = (
            column.astype(np.int64)[rows]
            for column in (batch.position, batch.columns.ints("queue_id"), batch.columns.ints("queue_offset"))
        )
        parts.append(_Waiting(number, position, queue_id + 1, offset))
        first_ms = min(first_ms, int(due.min()))
    if not sum(len(part.number) for part in parts):
        return {}
    waiting = _Waiting(*map(np.concatenate, zip(*parts, strict=True)))
    known = np.unique(waiting.number)
    first = max(int(waiting.position.min()), time_bounds(store, TimeRange(first_ms)).start)
    copies = [(np.empty(0, np.uint64), np.empty(0, np.int64))]
    for batch in store.good_records(first):
        rows, number, delivered = _with_real_topic(batch)
        delivered &= np.isin(number, known)
        copies.append((number[delivered], batch.position[rows[delivered]]))
    number, position = map(np.concatenate, zip(*copies, strict=True))
    _, mine, copy = np.intersect1d(
        _numbered(waiting.number, waiting.position), _numbered(number, position), return_indices=True
    )
    mine = mine[position[copy] > waiting.position[mine]]
    return {
        level: waiting.offset[mine[waiting.level[mine] == level]] for level in np.unique(waiting.level[mine]).tolist()
    }


class _Waiting(NamedTuple):
    """Messages of delay levels; number: of `_with_real_topic`."""

    number: Digests
    position: Ints
    level: Ints
    offset: Ints


def _undelivered(store: StoreReader, progress: Mapping[int, int], newest_ms: int) -> Iterator[tuple[Batch, Ints]]:
    """Yield the messages that are due by `newest_ms` and not delivered according to `progress`, and when each is due.

    The log is scanned if the queues do not name all of them.
    """
    found = scanned(store, SCHEDULE_TOPIC)
    if not lacking(store, SCHEDULE_TOPIC):
        found = _of_levels(store, progress, newest_ms)
    for batch in found:
        queue_ids, passed = batch.columns.ints("queue_id"), np.zeros(len(batch), np.int64)
        for queue_id in np.unique(queue_ids).tolist():
            passed[queue_ids == queue_id] = progress.get(queue_id + 1, 0)
        due = due_times(store, batch, newest_ms)
        rows = np.flatnonzero((batch.columns.ints("queue_offset").astype(np.int64) >= passed) & (due <= newest_ms))
        if len(rows):
            yield batch.take(rows), due[rows]


def _of_levels(store: StoreReader, progress: Mapping[int, int], newest_ms: int) -> Iterator[Batch]:
    """Yield the records that units of the delay levels name, from `progress` on, as long as they are due by then."""
    for directory in store.queues.of_topic(SCHEDULE_TOPIC):
        with store.queues.open(SCHEDULE_TOPIC, directory.queue_id) as queue:
            ends = store.queue_summary(queue)
            begin = stop = max(progress.get(directory.queue_id + 1, 0), ends.min_offset)
            for number, units in queue.units(begin, ends.max_offset):
                codes, known = tags_codes(units["tags_code"].astype(np.int64), store.layout, queue)
                due = np.flatnonzero(known & is_valid(units) & (codes <= newest_ms))
                if not len(due):
                    break  # units are nearly in the order of their times
                stop = number + int(due[-1]) + 1
            for window in of_queue(queue, begin, stop, log_end=store.log_end.position):
                for _, batch in batches(store.log, window):
                    yield batch.take(np.flatnonzero(batch.columns.ragged("topic").equals(utf8(SCHEDULE_TOPIC))))


def waiting_of_levels(store: StoreReader, now_ms: int) -> Iterator[tuple[int, Ints, Ints]]:
    """Yield, by units alone, delay levels with log positions of messages that wait and when they are due, in parts; not
    levels that nobody reads. Raises Unreadable.
    """
    options, progress = options_of(store.layout), delays_passed(store) or {}
    levels = options.delay_levels.value
    for directory in store.queues.of_topic(SCHEDULE_TOPIC):
        level = directory.queue_id + 1
        if not 0 < level <= len(levels):
            continue
        with store.queues.open(SCHEDULE_TOPIC, directory.queue_id) as queue:
            ends = store.queue_summary(queue)
            for _, units in queue.units(max(progress.get(level, 0), ends.min_offset), ends.max_offset):
                codes, known = tags_codes(units["tags_code"].astype(np.int64), store.layout, queue)
                known &= is_valid(units)
                due = np.where(codes > now_ms + levels[level - 1], now_ms, codes)  # as `due_times`
                yield level, units["physical_offset"].astype(np.int64)[known], due[known]


def _with_real_topic(batch: Batch) -> tuple[Ints, Digests, Flags]:
    """Return the rows of messages that wait for another topic, or have waited (a delivered copy keeps REAL_TOPIC); a
    number for each, of what both have in common: unique key, topic, number of retries; and which are delivered copies.
    """
    items = PropertyItems(batch.columns.ragged("properties"))
    real, key = items.find(REAL_TOPIC), items.find(UNIQ_KEY)
    rows = np.flatnonzero((real.length > 0) & (key.length > 0))
    topic = digest_column(real[rows])
    number = mixed([digest_column(key[rows]), topic, batch.columns.ints("reconsume_times")[rows]])
    return rows, number, digest_column(batch.columns.ragged("topic")[rows]) == topic


def _numbered(number: Digests, position: Ints) -> Digests:
    """Return a number for the first message of each number by position, another one for the second, and so on."""
    order = np.lexsort((position, number))
    begins = np.flatnonzero(np.append(True, number[order][1:] != number[order][:-1])[: len(order)])
    found = np.empty(len(order), np.uint64)
    found[order] = mixed([number[order], np.arange(len(order)) - np.repeat(begins, np.diff([*begins, len(order)]))])
    return found


def due_times(store: StoreReader, batch: Batch, now_ms: int) -> Ints:
    """Return when brokers deliver each message of a batch of delay levels, asked at `now_ms`: int64[n].

    The time is in the unit of the message, by the levels that the broker had; without a unit a dispatch makes it of the
    record. A message that would wait longer than its level does now is delivered at once, also if it was stored by a
    clock that was ahead, as is one without DELAY.
    """
    levels = options_of(store.layout).delay_levels.value
    made = dispatch(batch, OWN_QUEUES._replace(delay_levels=levels)).units
    queue_ids, offsets = (batch.columns.ints(name).astype(np.int64) for name in ("queue_id", "queue_offset"))
    stored = batch.columns.ints("store_timestamp").astype(np.int64)
    due = stored.copy()
    due[made.record] = made.tags_code
    for queue_id in np.unique(queue_ids).tolist():
        rows = np.flatnonzero(queue_ids == queue_id)
        with suppress(StoreError), store.queues.open(SCHEDULE_TOPIC, queue_id) as queue:
            units = queue.stream.lookup(offsets[rows], around=True)
            codes, known = tags_codes(units["tags_code"].astype(np.int64), store.layout, queue)
            known &= is_used(units) & (units["physical_offset"] == batch.position[rows])
            due[rows[known]] = codes[known]
        due[rows] = np.maximum(due[rows], stored[rows])
        if 0 <= queue_id < len(levels):
            due[rows] = np.where(due[rows] > now_ms + levels[queue_id], now_ms, due[rows])
    return due


def identity(batch: Batch, row: int, keys: Ragged) -> bytes:
    """Return what a message keeps on its way through retry topics: its unique key, else born time and body CRC."""
    if keys.length[row] > 0:
        return keys[row]
    columns = batch.columns
    return b"%d %d" % (columns.ints("born_timestamp")[row], columns.ints("body_crc")[row])


def own_name(store: StoreReader) -> str:
    """Return the broker's name from its options or its own topics; "" if they do not tell."""
    if told := store.config.broker_name:
        return told
    named = [topic.removeprefix(MEMBERS_PREFIX) for topic in store.configured if topic.startswith(MEMBERS_PREFIX)]
    return named[0] if len(named) == 1 else ""


def records_of(
    store: StoreReader, what: str, prefixes: tuple[str, ...], note: Note, behind: int | None = None
) -> Iterator[Batch]:
    """Yield the records of all topics with one of these prefixes; if the queues may lack some, of the whole log.

    what: begins the notes. behind: see `topic_records`.
    """
    topics = [topic for topic in store.named_topics if topic.startswith(prefixes)]
    if why := unreliable(store) or any_lacking(store, topics):
        note(f"{what}: {why}: scanning the log")
        yield from store.good_records(behind)
        for topic in topics:
            note_lost(store, topic, note)
        return
    for topic in topics:
        yield from queue_records(store, topic, note, behind)


def any_lacking(store: StoreReader, topics: Iterable[str], *, reached_too: bool = True) -> str:
    """Return `lacking` of the first topic that lacks something, after the name of the topic, else ""."""
    reasons = ((topic, lacking(store, topic, reached_too=reached_too)) for topic in topics)
    return next((f"{topic}: {why}" for topic, why in reasons if why), "")
