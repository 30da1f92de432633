"""The life of a message as events in order, each with the record or the file that shows it.

Events only say what a record shows; `waiting` and `verdicts` draw conclusions. Copies in a tiered store (POSIX
provider, 5.1 and later) are in segments of each queue, `CLUSTER/BROKER/TOPIC/QUEUE/KIND/`, below tieredStoreFilePath or
below the store: units by queue offset, and the records that they name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ...formats import message_properties as names
from ...formats.host import host_text
from ...formats.sys_flag import TRANSACTION_MASK, SysFlag
from ..counted import counted
from ..errors import StoreError
from ..log.message import Message, read_message
from ..queues.read import ConsumeQueue
from ..search.store import StoreReader
from ..tiered.segments import open_segments, tiered_roots
from .answer import Event, EventKind
from .family import Family, FoundUnit, Naming, RecordRole, due_of, named, places_of, role_of
from .waiting import Waiting

if TYPE_CHECKING:
    from ..inspect.pop import Popped


_ORDER = {kind: number for number, kind in enumerate(EventKind)}
MOST_NAMED = 64
"""Units and index items are shown for the first records of a message, at most this many."""
_LAST_MS = 1 << 62


def story(
    store: StoreReader, family: Family, units: list[FoundUnit], waiting: Waiting, pops: list[Popped]
) -> list[Event]:
    """Return all events, by time, then by position. units: of the judged record. Raises Unreadable."""
    first = family.records[0]
    text = f"sent by {host_text(*first.born_host)}, unique key {first.unique_key or 'none'}"
    events = [] if first.stand_in else [Event(EventKind.BORN, text, first.born_timestamp, first.position)]
    for message in family.records:
        events += _of_record(family, message, waiting)
    for offset, op in waiting.ops.items():
        events.append(Event.of(EventKind.DECIDED, op, f"an op record decides half message {offset}"))
    events += _timer(waiting)
    events += _named(store, family, units)
    events += _indexed(store, family)
    for popped in pops:
        events += _of_pop(popped)
    return sorted(events, key=_when)


def _when(event: Event) -> tuple[int, int, int]:
    at = _LAST_MS if event.timestamp is None else event.timestamp
    place = -1 if event.event is EventKind.BORN else event.position or 0
    return at, place, _ORDER[event.event]


def _of_record(family: Family, message: Message, waiting: Waiting) -> Iterator[Event]:
    role, properties = role_of(message), message.properties
    goes_to = properties.get(names.REAL_TOPIC, "")
    retry = next((g for g, m in family.waiting_retries if m is message), None)
    if role is RecordRole.OWN:
        yield _own(family, message)
    elif role is RecordRole.HALF:
        first = message is family.by_role[RecordRole.HALF][0]
        if first:
            yield Event.of(EventKind.HALF, message, f"half message for {goes_to}")
        else:
            times = properties.get(names.TRANSACTION_CHECK_TIMES, "")
            text = f"written again by check {times}" if times else "written again by a check"
            yield Event.of(EventKind.CHECKED, message, text)
    elif role is RecordRole.GIVEN_UP:
        yield Event.of(EventKind.GIVEN_UP, message, "the transaction was given up")
    elif role is RecordRole.DELAYED:
        due = waiting.due_ms(message)
        level = message.queue_id + 1
        kind = EventKind.RETRY_WAITS if retry is not None else EventKind.DELAYED
        yield Event.of(kind, message, f"waits in delay level {level} for {goes_to}", retry)
        if due is not None:
            yield Event(EventKind.DUE, f"due (level {level})", due, message.position, group=retry)
    elif role is RecordRole.TIMED:
        yield from _timed(message, goes_to, retry, waiting)
    elif role is RecordRole.CANCEL:
        target = properties.get(names.TIMER_DEL_UNIQKEY, "")
        yield Event.of(EventKind.CANCELLED, message, f"cancels the timer message {target}")
    elif role is RecordRole.RETRY:
        group = next((g for g, m in family.retries if m is message), None)
        text = f"the group gets the message again (retry {message.reconsume_times})"
        yield Event.of(EventKind.RETRY, message, text, group)
    else:
        group = next((g for g, m in family.dead_letters if m is message), None)
        yield Event.of(EventKind.DEAD_LETTER, message, "a dead letter of the group", group)


def _own(family: Family, message: Message) -> Event:
    """Return the event of a record in the topic itself: sent, delivered from where it waited, sent again, or lost."""
    if message.stand_in:
        return Event.of(EventKind.LOST, message, f"recover wrote a {message.stand_in} in its place")
    earlier = [m for m in family.records if m.position < message.position]
    if message.sys_flag & TRANSACTION_MASK == SysFlag.COMMIT:
        half = message.prepared_transaction_offset
        return Event.of(EventKind.COMMITTED, message, f"committed: the half message was at {half}")
    came_from = {role_of(m) for m in earlier if m.properties.get(names.REAL_TOPIC) == message.topic}
    if RecordRole.TIMED in came_from:
        return Event.of(EventKind.DELIVERED, message, "its timer has fired")
    if RecordRole.DELAYED in came_from:
        return Event.of(EventKind.DELIVERED, message, "its delay level has ended")
    before = [m for m in earlier if role_of(m) is RecordRole.OWN]
    if before:
        first = before[0].position
        return Event.of(EventKind.RESENT, message, f"stored again with the same unique key, first at {first}")
    how = f"by the broker {host_text(*message.store_host)}"
    if message.inner is not None:
        _, number, count = message.inner
        how += f", message {number + 1} of {count} of a batch"
    if names.TIMER_OUT_MS in message.properties:
        how += ", delivered by a timer whose record is gone"
    return Event.of(EventKind.STORED, message, how)


def _timed(message: Message, goes_to: str, retry: str | None, waiting: Waiting) -> Iterator[Event]:
    due = waiting.fires_ms(due_of(message))
    rolls = message.properties.get(names.TIMER_ROLL_TIMES, "")
    kind = EventKind.RETRY_WAITS if retry is not None else (EventKind.ROLLED if rolls else EventKind.TIMED)
    round_ = f", rolled (roll {rolls})" if rolls else ""
    yield Event.of(kind, message, f"waits in the timer topic for {goes_to}{round_}", retry)
    if due is not None:
        yield Event(EventKind.DUE, "due (timer)", due, message.position, group=retry)


def _timer(waiting: Waiting) -> Iterator[Event]:
    """Yield when the wheel has a message that waits and was rolled."""
    timer = waiting.timer
    if timer is not None and timer.next_timestamp is not None and timer.rolls:
        text = f"next in the timer wheel, rolled {counted(timer.rolls, 'time')}"
        yield Event(EventKind.DUE, text, timer.next_timestamp, timer.positions[-1])


def _named(store: StoreReader, family: Family, units: list[FoundUnit]) -> Iterator[Event]:
    """Yield every queue that names a record of the message, or should."""
    chosen = family.chosen.position if family.chosen is not None else None
    for message in family.records[:MOST_NAMED]:
        places = places_of(message)
        found = units if message.position == chosen else [named(store, message, place) for place in places]
        for place, unit in zip(places, found, strict=True):
            kind = EventKind.NAMED if unit.state is Naming.NAMES else EventKind.NOT_NAMED
            yield Event(
                kind, unit.evidence.fact, message.store_timestamp, message.position, *place, path=unit.path or None
            )


def _indexed(store: StoreReader, family: Family) -> Iterator[Event]:
    """Yield the index items of the records."""
    for message in family.records[:MOST_NAMED]:
        keys = dict.fromkeys(k for k in (message.unique_key, *message.keys) if k)
        for key in keys:
            try:
                hits = store.index.query(message.topic, key).hits
            except StoreError:
                continue
            for hit in hits:
                if hit.physical_offset == message.position:
                    path = f"{store.layout.index.name}/{Path(hit.file.path).name}"
                    text = f"item {hit.number} of the index has the key {key}"
                    at = message.store_timestamp
                    yield Event(EventKind.INDEXED, text, at, message.position, path=path)


def _of_pop(popped: Popped) -> Iterator[Event]:
    """Yield one time that a consumer was given the message."""
    from ..inspect.pop import PopState

    outcomes = {
        PopState.ACKED: "acknowledged",
        PopState.RETURNED: f"not acknowledged in time, stored again at {popped.returned}",
        PopState.INVISIBLE: "not acknowledged yet",
        PopState.DUE: "not acknowledged in time",
        PopState.NEVER: popped.reason,
        PopState.UNKNOWN: popped.reason,
    }
    text = f"given to a consumer by POP: {outcomes[popped.state]}"
    place = (popped.topic, popped.queue_id, popped.queue_offset)
    yield Event(EventKind.POPPED, text, popped.pop_timestamp, popped.check_point, *place, group=popped.group)


_LOG, _QUEUE = "COMMIT_LOG", "CONSUME_QUEUE"


def tiered_copies(store: StoreReader, message: Message) -> Iterator[Event]:
    """Yield an event for each copy that can be read. Raises Unreadable."""
    for queue in _directories(store, message):
        log = queue.with_name(_LOG)
        copy = _copy(queue, log, message)
        if copy is not None:
            path = os.path.relpath(log, store.layout.root)
            text = f"a copy in the tiered store, at {copy.position} of its segments"
            place = (message.topic, message.queue_id, message.queue_offset)
            yield Event(EventKind.TIERED, text, None, None, *place, path=path)


def _directories(store: StoreReader, message: Message) -> list[Path]:
    """Return the directories of unit segments of the message's queue, of all clusters and brokers."""
    roots = tiered_roots(store.layout.root, store.config)
    place = f"*_*/*/{escape(message.topic)}/{message.queue_id}/{_QUEUE}"
    return [path for root in roots for path in sorted(root.glob(place)) if path.is_dir()]


def _copy(queue: Path, log: Path, message: Message) -> Message | None:
    """Return the record that the tiered queue has at the message's offset, if it is the same message."""
    try:
        with open_segments(queue) as units, open_segments(log) as records:
            unit = ConsumeQueue(message.topic, message.queue_id, units).unit(message.queue_offset)
            found = read_message(records, unit.physical_offset) if unit is not None else None
    except StoreError:
        return None
    if found is None or found.queue_offset != message.queue_offset:
        return None
    same = (found.unique_key, found.body_crc) == (message.unique_key, message.body_crc)
    return found if same else None
