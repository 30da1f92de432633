"""Why a message is not in its topic, or why compaction removed it.

It waits for a transaction, a delay level or a timer; in a compaction topic a later message with its key replaces it.
The answers are the same for every group. An answer is None if the message waits for something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...formats import message_properties as names
from ...formats.delay_offset import FILE as DELAY_FILE
from ...formats.op_record import offsets_in
from ...formats.property_columns import PropertyItems
from ...formats.sys_flag import TRANSACTION_MASK, SysFlag
from ..broker.load_rules import undeliverable
from ..broker.profiles import profile_of, writer_profile
from ..broker.system_topics import HALF_TOPIC, HALTING_BROKERS, OP_TOPIC, ROCKSDB_HALF_TOPIC, TIMER_TOPIC
from ..counted import counted
from ..disk.lock import holder
from ..errors import NotFound, StoreError
from ..log.batch import messages
from ..log.commit_log import batches
from ..log.message import Message
from ..queues.references import of_queue
from ..search.key_search import search_key
from ..search.selection import Selection, Slice
from ..search.store import Note, StoreReader
from .answer import DeliveryVerdict, Event, EventKind, Evidence, Judgement
from .family import Family, RecordRole, due_of, named, places_of

if TYPE_CHECKING:
    from ..inspect.timer_records import Scanned, TimerRecords
    from ..inspect.timers import Timer
    from ..settings.options import BrokerOptions


_WHEEL_LOST = "B33"
_NO_DELIVERY = "no broker delivers a delayed message without a queue unit"
_DUE = "the message is due: a running broker delivers it"
_NO_LEVEL = "no broker delivers the message until the option has the level again"
_NO_TARGET = "no broker can deliver it: it has no valid REAL_TOPIC and REAL_QID"
_HALTS = f"{HALTING_BROKERS} deliver no message behind one without a valid REAL_TOPIC and REAL_QID"


class Waiting:
    """What a message waits for at a given time. Raises Unreadable."""

    def __init__(self, store: StoreReader, family: Family, now_ms: int, note: Note) -> None:
        self._store, self._family, self._now_ms, self._note = store, family, now_ms, note
        self.timer: Timer | None = None
        """The message as `inspect --timers` shows it."""

    @property
    def _options(self) -> BrokerOptions:
        from ..settings.options import options_of

        return options_of(self._store.layout)

    @cached_property
    def ops(self) -> dict[int, Message]:
        """Queue offset of a half message → first op record that decides it; of the first half message's queue."""
        halves = [m for m in self._family.by_role[RecordRole.HALF] if m.topic == HALF_TOPIC]
        if not halves:
            return {}
        from ..inspect.own_topics import topic_records

        first = min(halves, key=lambda half: half.position)
        open_ = {half.queue_offset for half in halves if half.queue_id == first.queue_id}
        found: dict[int, Message] = {}
        for batch in topic_records(self._store, OP_TOPIC, self._note, behind=first.position):
            for op in messages(batch.take(batch.columns.ints("queue_id") == first.queue_id)):
                decided = open_ & offsets_in(op.stored_body)
                found |= dict.fromkeys(decided, op)
                open_ -= decided
                if not open_:
                    return found
        return found

    def judgement(self) -> Judgement | None:
        """Return why the message is not in its topic; None if nothing tells."""
        family = self._family
        if (unread := self._unread()) is not None:
            return unread
        if family.of_message(RecordRole.TIMED):
            return self._timed(family.of_message(RecordRole.TIMED))
        if family.of_message(RecordRole.DELAYED):
            return self._delayed(family.of_message(RecordRole.DELAYED)[-1])
        if family.by_role[RecordRole.HALF]:
            return self._transaction(family.by_role[RecordRole.HALF])
        if (gone := self._expired()) is not None:
            return gone
        for cancel in family.by_role[RecordRole.CANCEL]:
            target = cancel.properties[names.TIMER_DEL_UNIQKEY]
            reason = f"it cancels the timer message {target}; no consumer gets it"
            return Judgement(DeliveryVerdict.NEVER_FIRES, reason, (_record("cancel message", cancel),))
        return None

    def _unread(self) -> Judgement | None:
        """The index names a record of the message in its topic, but no record can be read there."""
        topic, key, start = (self._family.place.topic, self._family.unique_key, self._store.log_files.start)
        for hit in self._store.index.query(topic, key).hits if key else ():
            try:
                self._store.message_at(hit.physical_offset)
            except NotFound as error:
                at = hit.physical_offset
                where = f"{self._store.layout.index.name}/{Path(hit.file.path).name} item {hit.number}"
                facts = (
                    Evidence(f"an index item with its key names {at}", where),
                    Evidence(error.message, f"commitlog at {at}"),
                )
                if at < start:
                    reason = f"it has expired: the log begins at {start}"
                    return Judgement(DeliveryVerdict.GONE, reason, facts)
                reason = "the message was stored in its topic, but its record cannot be read"
                return Judgement(DeliveryVerdict.UNREADABLE, reason, facts)
        return None

    def _expired(self) -> Judgement | None:
        """Only retries or dead letters are left: the log begins behind the position that the message had."""
        origin, start = self._family.origin, self._store.log_files.start
        if origin is None or origin >= start:
            return None
        fact = Evidence(f"its retries say that the message was at {origin}", "commitlog")
        reason = f"it has expired: the log begins at {start}"
        return Judgement(DeliveryVerdict.GONE, reason, (fact,))

    def _transaction(self, halves: list[Message]) -> Judgement:
        from ..inspect.transactions import give_up_ms

        last = halves[-1]
        evidence = [_record("its half message", halves[0])]
        if len(halves) > 1:
            evidence.append(_record(f"written again by a check {counted(len(halves) - 1, 'time')}, last", last))
        for given_up in self._family.by_role[RecordRole.GIVEN_UP]:
            evidence.append(_record("given up", given_up))
            reason = "its transaction was never decided: the broker gave up after its checks"
            return Judgement(DeliveryVerdict.TRANSACTION, reason, tuple(evidence))
        if last.topic == ROCKSDB_HALF_TOPIC:
            return self._in_rocksdb(last, evidence)
        op = self.ops.get(last.queue_offset)
        if op is None:
            reason = "its transaction is open: no op record commits it or rolls it back"
            if give_up_ms(self._store, last.born_timestamp) < self._now_ms:
                age = f"more than {counted(self._options.reserved_hours, 'hour')} (fileReservedTime) ago"
                reason += f"; the message was sent {age}, so the first check of a broker gives it up"
            return Judgement(DeliveryVerdict.TRANSACTION, reason, tuple(evidence))
        evidence.append(_record(f"an op record names half message {last.queue_offset}", op))
        reason = "its transaction was rolled back: it is decided, and there is no committed message"
        return Judgement(DeliveryVerdict.TRANSACTION, reason, tuple(evidence))

    def asked_again(self) -> str:
        """Return what a start does to a committed message if it asks for the decision again, else ""."""
        chosen, halves = self._family.chosen, self._family.by_role[RecordRole.HALF]
        halves = [half for half in halves if half.topic == HALF_TOPIC]
        if not halves or chosen is None or chosen.sys_flag & TRANSACTION_MASK != SysFlag.COMMIT:
            return ""
        from ..inspect.own_topics import is_next
        from ..inspect.transactions import stored_positions

        decided = {offset: op.queue_offset for offset, op in self.ops.items()}
        asks = stored_positions(self._store).ask([half.queue_offset for half in halves], decided)
        why = "; it reads no op record of the transaction, asks the producer, and if that says commit"
        return f"{why}, delivers the message again" if asks and is_next(self._store) else ""

    def _in_rocksdb(self, half: Message, evidence: list[Evidence]) -> Judgement:
        from ..inspect.own_topics import not_read
        from ..queues.rocksdb_copy import database_loss
        from ..settings.rocksdb import transaction_is_open

        where = self._store.layout.rocksdb_store.name
        try:
            open_ = transaction_is_open(self._store.layout.rocksdb_store, half.position)
        except StoreError as error:
            return Judgement(DeliveryVerdict.UNKNOWN, f"{where}: {error.message}", tuple(evidence))
        if open_ is None:
            reason = f"{where} is missing, so it is not known whether the transaction is open; no broker checks it"
            return Judgement(DeliveryVerdict.UNKNOWN, reason, tuple(evidence))
        written = holder(self._store.layout.lock) is not None  # tables that are merged look like lost ones
        loss = None if open_ or written else database_loss(self._store.layout.rocksdb_store)
        if loss is not None:
            return Judgement(DeliveryVerdict.UNKNOWN, f"{where}: {loss.sentence}", tuple(evidence))
        fact = "an open transaction" if open_ else "no open transaction"
        evidence.append(Evidence(f"{fact} at {half.position}", where))
        if open_ and (why := not_read(self._store, where)):
            reason = f"its transaction is open, and stays so: {why}"
            return Judgement(DeliveryVerdict.NEVER_DELIVERED, reason, tuple(evidence), code="I-190")
        if open_:
            reason = "its transaction is open: the broker will check it with the producer"
        else:
            reason = "its transaction is no longer open: rolled back or given up"
        return Judgement(DeliveryVerdict.TRANSACTION, reason, tuple(evidence))

    def _delayed(self, message: Message) -> Judgement:
        level = message.queue_id + 1
        due = self.due_ms(message)
        from ..inspect.own_topics import delays_passed

        progress = delays_passed(self._store)
        evidence = [_record(f"waits in delay level {level}", message)]
        if progress is None:
            reason = f"config/{DELAY_FILE} cannot be read: it is not known whether the message was delivered"
            return Judgement(DeliveryVerdict.UNKNOWN, reason, tuple(evidence), due)
        reached = progress.get(level)
        said = "has no offset for the level" if reached is None else f"has offset {reached} for the level"
        evidence.append(Evidence(f"{DELAY_FILE} {said}", f"config/{DELAY_FILE}"))
        if reached is not None and reached > message.queue_offset:
            reason = f"{DELAY_FILE} counts the message as delivered, but the delivered record is not in the log"
            return Judgement(DeliveryVerdict.UNKNOWN, reason, tuple(evidence), due)
        if self._options.lacks_level(level):
            option = self._options.delay_levels
            evidence.append(Evidence(f"{option.name}={option.text} has no level {level}", "broker configuration"))
            reason = f"{option.name} ends before delay level {level}: {_NO_LEVEL}"
            return Judgement(DeliveryVerdict.NEVER_DELIVERED, reason, tuple(evidence), code="I-146")
        missing = named(self._store, message, places_of(message)[0]).misses(_NO_DELIVERY)
        if missing is not None and missing.verdict is DeliveryVerdict.NOT_DISPATCHED:
            return missing.with_evidence(*evidence)
        if (bad := self._undeliverable(message, reached or 0)) is not None:
            place, position = bad
            evidence.append(Evidence(f"no valid REAL_TOPIC and REAL_QID: {place}", f"commitlog at {position}"))
            stands = f"delay level {level} stands still before the message: {_HALTS}"
            reason = _NO_TARGET if position == message.position else stands
            return Judgement(DeliveryVerdict.NEVER_DELIVERED, reason, tuple(evidence), code="I-045")
        late = due is not None and due <= self._now_ms
        reason = _DUE if late else "its delay level has not ended"
        return Judgement(DeliveryVerdict.NOT_DUE, reason, tuple(evidence), due)

    def _undeliverable(self, message: Message, reached: int) -> tuple[str, int] | None:
        """Return queue place and position of the first record that no broker can deliver: the message, or if a delay
        level halts there, one before it in its queue. reached: the queue offset that the level delivers next.
        """
        halts = profile_of(self._store.version).record.level_halts
        stop = message.queue_offset + 1
        with self._store.queues.open(message.topic, message.queue_id) as queue:
            first = max(reached, self._store.queue_summary(queue).min_offset) if halts else message.queue_offset
            for window in of_queue(queue, first, stop, log_end=self._store.log_end.position):
                for _, batch in batches(self._store.log, window):
                    topics, texts = (batch.columns.ragged(name) for name in ("topic", "properties"))
                    rows = undeliverable(topics, PropertyItems(texts))
                    if len(rows):
                        row = int(rows.min())
                        offset = int(batch.columns.ints("queue_offset")[row])
                        return f"{message.topic}/{message.queue_id}/{offset}", int(batch.position[row])
        return None

    def due_ms(self, message: Message) -> int | None:
        """Return when the record of a delay level fires (spec 01, 1.11); None if that is not known, or never."""
        if self._options.lacks_level(message.queue_id + 1):
            return None
        import numpy as np

        from ..inspect.own_topics import due_times

        batch = self._store.log.records(np.array([message.position], np.int64))
        return int(due_times(self._store, batch, self._now_ms)[0]) if len(batch) else None

    def fires_ms(self, out_ms: int | None) -> int | None:
        """Return when a broker delivers a timer message: one tick after the time in its record, or in its row."""
        return None if out_ms is None else out_ms + self._options.timer_precision.value

    def _timed(self, records: list[Message]) -> Judgement:
        from ..inspect.timers import NO_CHAIN, TimerMessageState

        last = records[-1]
        evidence = [_record("waits in the timer topic", last)]
        due = self.fires_ms(due_of(last))
        if profile_of(self._store.version).timer is None:
            reason = f"a broker {self._store.version} has no timer"
            return Judgement(DeliveryVerdict.NEVER_FIRES, reason, tuple(evidence), due, code="I-183")
        if (found := self._timed_in_rocksdb(last, due, evidence)) is not None:
            return found
        timer = self.timer = self._look(records)
        if timer is None:
            reason = "it is in the timer topic; what a broker does with it is not known"
            return Judgement(DeliveryVerdict.UNKNOWN, reason, tuple(evidence), due)
        due = timer.deliver_timestamp
        if timer.next_timestamp is not None:
            fact = f"next in the timer wheel at {timer.next_timestamp}"
            evidence.append(Evidence(fact, self._store.layout.timer_wheel.name))
        if timer.state in (TimerMessageState.PENDING, TimerMessageState.ROLLED):
            reason = timer.reason or (_DUE if timer.overdue else "its timer has not ended")
            return Judgement(DeliveryVerdict.NOT_DUE, reason, tuple(evidence), due)
        if timer.state is TimerMessageState.CANCELLED:
            return Judgement(DeliveryVerdict.NEVER_FIRES, "it was cancelled", tuple(evidence), due)
        if timer.state is TimerMessageState.NEVER:
            bug = timer.bug
            if timer.reason == NO_CHAIN and not self._store.layout.timer_wheel.exists():
                bug = _WHEEL_LOST
            return Judgement(DeliveryVerdict.NEVER_FIRES, timer.reason, tuple(evidence), due, bug)
        reason = timer.reason or "its timer has fired, but the delivered record is not in the log"
        return Judgement(DeliveryVerdict.UNKNOWN, reason, tuple(evidence), due, timer.bug)

    def _look(self, records: list[Message]) -> Timer | None:
        """Find the message among all timer messages; the log is scanned only before it is called lost or unknown."""
        from ..inspect.own_topics import topic_records
        from ..inspect.timer_records import Scanned, TimerRecords
        from ..inspect.timers import TimerMessageState, timers

        positions = {message.position for message in records}

        def mine(scanned: Scanned | None) -> Timer | None:
            every = timers(self._store, self._now_ms, self._note, scanned).rows
            return next((row for row in every if positions & {*row.positions}), None)

        parts = [TimerRecords.of(batch) for batch in topic_records(self._store, TIMER_TOPIC, self._note)]
        requested = TimerRecords.concat(parts) if parts else None
        found = mine(Scanned(requested, self._came_out())) if requested is not None else None
        sure = found is not None and found.state not in (TimerMessageState.NEVER, TimerMessageState.UNKNOWN)
        return found if sure else mine(None)

    def _came_out(self) -> TimerRecords | None:
        """Return the records of the message in its topic that were in the timer topic before."""
        timed = [m for m in self._family.own if names.TIMER_OUT_MS in m.properties]
        if not timed:
            return None
        import numpy as np

        from ..inspect.timer_records import TimerRecords

        batch = self._store.log.records(np.array([m.position for m in timed], np.int64))
        return TimerRecords.of(batch, batch.columns.ragged("topic"))

    def _timed_in_rocksdb(self, message: Message, due: int | None, evidence: list[Evidence]) -> Judgement | None:
        """Judge by the timers in the RocksDB; None if timers are not there."""
        from ..settings.rocksdb import timer_due

        named = self._store.layout.version_named
        if named and not writer_profile(named).rocksdb_store:
            return None
        where = self._store.layout.rocksdb_store.name
        try:
            when = self.fires_ms(timer_due(self._store.layout.rocksdb_store, message.unique_key or ""))
        except StoreError as error:
            return Judgement(DeliveryVerdict.UNKNOWN, f"{where}: {error.message}", tuple(evidence), due)
        if when is None:
            if not self._store.config.get_bool("timerRocksDBEnable"):
                return None
            reason = "timers are kept in a RocksDB, which has no entry for the message"
            return Judgement(DeliveryVerdict.UNKNOWN, reason, tuple(evidence), due)
        fact = Evidence("an entry for the timer of the message", where)
        reason = _DUE if when <= self._now_ms else "its timer has not ended"
        return Judgement(DeliveryVerdict.NOT_DUE, reason, (*evidence, fact), when)


def _record(what: str, message: Message) -> Evidence:
    place = f"{message.topic}/{message.queue_id}/{message.queue_offset}"
    return Evidence(f"{what}: {place}", f"commitlog at {message.position}")


class Compacted:
    """What compaction did to a message. events: of the story. judgement: why no consumer gets the message, or None.

    Raises Unreadable.
    """

    def __init__(self, store: StoreReader, message: Message, note: Note) -> None:
        from ..search.queue_search import compaction_end, compaction_queues, is_compaction_topic

        self.events: list[Event] = []
        self.judgement: Judgement | None = None
        if not is_compaction_topic(store, message.topic):
            return
        newer = list(_newer(store, message, note))
        if newer:
            text = "superseded by a newer message with the same key"
            self.events.append(Event.of(EventKind.SUPERSEDED, newer[-1], text))
        queues = compaction_queues(store, message.topic)
        path = f"compaction/compactionLog/{message.topic}/{message.queue_id}"
        if not any(queue.queue_id == message.queue_id for queue in queues):
            self.judgement = _not_compacted("there is no compaction log of its queue", path)
            return
        there = _in_compaction_log(store, message, note)
        if there is not None and there.store_timestamp != message.store_timestamp:
            self.judgement = _not_compacted("the compaction log has another message at this queue offset", path)
        elif there is not None:
            text = f"in the compaction log, at {there.position}"
            place = (message.topic, message.queue_id, message.queue_offset)
            self.events.append(Event(EventKind.COMPACTED, text, None, None, *place, path=path))
        else:
            end = compaction_end(store, message.topic, message.queue_id)
            self.judgement = left_out(message, newer, end)


def left_out(message: Message, newer: list[Message], end: int) -> Judgement | None:
    """Return why compaction has left a message out (spec 6.1); None if it has not seen the message, or if nothing
    tells. newer: messages with its key. end: queue offset behind the last message that compaction has seen.
    """
    seen = [each for each in newer if each.queue_offset < end]
    if message.queue_offset >= end:
        return None
    if not _compaction_key(message):
        reason, fact = "it has no KEYS", _record("no KEYS", message)
    elif seen:
        reason = "a newer message has its key"
        fact = Evidence("a newer message with its key", f"commitlog at {seen[-1].position}")
    elif not message.stored_body:
        reason, fact = "its body is empty: that deletes the key", _record("an empty body", message)
    else:
        return None
    return Judgement(DeliveryVerdict.GONE, f"compaction removed the message: {reason}", (fact,))


def _not_compacted(reason: str, path: str) -> Judgement:
    """Judge a message of a topic that is served from a compaction log alone."""
    text = f"consumers cannot pull the message: {reason}"
    return Judgement(DeliveryVerdict.NOT_SERVED, text, (Evidence(reason, path),), code="I-182")


def _compaction_key(message: Message) -> str:
    """Return the key of compaction: all of KEYS; "" for none."""
    text = message.properties.get(names.KEYS, "")
    return text if text.strip() else ""


def _newer(store: StoreReader, message: Message, note: Note) -> Iterator[Message]:
    """Yield later messages of the queue with the same key; the index has each word of the key."""
    key = _compaction_key(message)
    if not key:
        return
    wanted = Selection(topic=message.topic, queue_id=message.queue_id, key=message.keys[0])
    for found in search_key(store, wanted, note=note):
        if found.message.queue_offset > message.queue_offset and _compaction_key(found.message) == key:
            yield found.message


def _in_compaction_log(store: StoreReader, message: Message, note: Note) -> Message | None:
    from ..search.queue_search import search_compaction

    wanted = Selection(topic=message.topic, queue_id=message.queue_id)
    found = search_compaction(store, wanted, Slice(message.queue_offset, 1), note)
    try:
        one = next(found, None)
    except NotFound:
        return None
    same = one is not None and one.message.queue_offset == message.queue_offset
    return one.message if one is not None and same else None
