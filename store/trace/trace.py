"""The answers of `trace`: for each message its story, a verdict for each group, the next start, the next command.

What the next start does to a message is read off the simulated start (spec 7.1 to 7.5). Only the part of the log that a
start reads is read. The rest of `recover`'s prediction, which counts all messages, is left to that command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...formats.message_properties import REAL_TOPIC
from ...formats.pop import REVIVE_TOPIC, retry_topics
from ..broker.snapshot import QueueId
from ..broker.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from ..disk.layout import KV_STORE, Layout
from ..disk.lock import holder
from ..errors import StoreError
from ..findings.next_commands import NOTHING_GIVEN, Given, command
from ..log.message import Message
from ..search.store import Note, StoreReader
from ..start.config_load import DELAYS, TOPICS
from .answer import By, DeliveryVerdict, Event, EventKind, Evidence, Fate, GroupVerdict, Judgement, NextStart, Trace
from .family import (
    WRONG_TAG,
    Family,
    FoundUnit,
    Naming,
    QueuePlace,
    RecordRole,
    led_to,
    named,
    naming,
    places_of,
    role_of,
)
from .groups import GroupTables, Subscription, read_groups
from .locate import PlaceWithoutRecord, TraceTarget, judgement_of, locate
from .story import story, tiered_copies
from .verdicts import LOST_FACT, Known, awaited, for_all, judge
from .waiting import Compacted, Waiting

if TYPE_CHECKING:
    from ..inspect.pop import KvStore, Popped
    from ..queues.start_rocksdb import StartedQueue
    from ..start.outcome import Outcome


_HARMED = (
    DeliveryVerdict.NOT_DISPATCHED,
    DeliveryVerdict.UNREADABLE,
    DeliveryVerdict.NEVER_FIRES,
    DeliveryVerdict.NEVER_DELIVERED,
)
"""Verdicts that the next start may change, or that show that it never will."""
_OF_POP = (REVIVE_TOPIC, TIMER_TOPIC)
_MAY_HAVE_IT = "a POP consumer may still have it: popConsumerKVServiceEnable keeps this in kvStore"


class TraceQuestion(NamedTuple):
    """What to answer. group: judge this one only. now_ms: time by which messages are due. subscription: of the group,
    as the operator knows it. start: simulate the next start in any case. given: options that a proposed command
    repeats, with the version of the broker if known.
    """

    asked: TraceTarget
    now_ms: int
    group: str | None = None
    subscription: Subscription | None = None
    start: bool = False
    given: Given = NOTHING_GIVEN


def trace(store: StoreReader, question: TraceQuestion, note: Note) -> Iterator[Trace]:
    """Yield an answer for each message that is meant, in log order; none if nothing is found.

    note: called with a line for each thing worth knowing. Raises InvalidInput, Unreadable.
    """
    located = locate(store, question.asked, note)
    tracer = _Tracer(store, question, note)
    for family in located.families:
        yield tracer.family(family)
    for gone in located.gone:
        found = tracer.gone(gone)
        if found is not None:
            yield found


class _Tracer:
    """What is read once for all messages, and the answers made of it."""

    def __init__(self, store: StoreReader, question: TraceQuestion, note: Note) -> None:
        self._store, self._question, self._note = store, question, note

    @cached_property
    def _groups(self) -> GroupTables:
        return read_groups(self._store.layout, self._store.version, self._note)

    @cached_property
    def _played(self) -> Outcome | NextStart:
        return next_start(self._store, self._question.now_ms)

    def _start(self, found: Trace, *, may_change: bool) -> Outcome | NextStart:
        """Return the next start, simulated if it may change what is said of the message."""
        layout = self._store.layout
        missed = any(row.judgement.verdict is DeliveryVerdict.NOT_DISPATCHED for row in found.groups)
        harmed = missed or (found.for_all is not None and found.for_all.verdict in _HARMED)
        unclean = os.path.lexists(layout.abort) or holder(layout.lock) is not None
        if self._question.start or harmed or unclean or may_change:
            return self._played
        why = "the broker was shut down; --next-start predicts the next start"
        return NextStart(Fate.NOT_PLAYED, why)

    @cached_property
    def _settled(self) -> bool:
        """The queues are as far as the log: nothing waits for dispatch."""
        layout = self._store.layout
        return not os.path.lexists(layout.abort) and not self._store.queues_unread

    @cached_property
    def _uncommitted(self) -> int | None:
        """Log position from which on nothing tells that the group of a DLedger node has committed a record."""
        if not self._store.layout.has_peers:
            return None
        from ..plan.observer import uncommitted_from  # few stores need it

        return uncommitted_from(self._store)

    def _waits_for_group(self, message: Message) -> bool:
        return self._uncommitted is not None and message.position >= self._uncommitted

    @cached_property
    def _kv_store(self) -> KvStore:
        from ..inspect.pop import kv_store

        return kv_store(self._store, self._note)

    @cached_property
    def _not_read(self) -> tuple[Evidence, ...]:
        why = self._kv_store.lacks
        return (Evidence(f"{_MAY_HAVE_IT}, {why}", KV_STORE),) if why else ()

    @cached_property
    def _nothing_kept(self) -> tuple[Evidence, ...]:
        """That kvStore is empty: that is a loss only if a group consumes by POP, since brokers make it in any case."""
        elsewhere = any(topic.startswith(_OF_POP) for topic in self._store.topics)
        empty = self._kv_store.empty and not elsewhere
        return (Evidence(f"{_MAY_HAVE_IT}, which is empty", KV_STORE),) if empty else ()

    def family(self, family: Family) -> Trace:
        """Return the answer about a message that has records."""
        store, note = self._store, self._note
        chosen = family.chosen
        units = [named(store, chosen, place) for place in places_of(chosen)] if chosen else []
        waiting = Waiting(store, family, self._question.now_ms, note)
        why = waiting.judgement() if chosen is None else None
        pops, owners, lost = self._pops(
            [chosen, *(message for _, message in family.retries)] if chosen is not None else []
        )
        events = story(store, family, units, waiting, pops)
        superseded = None
        if chosen is not None:
            compacted = Compacted(store, chosen, note)
            events += compacted.events
            superseded = compacted.judgement
            events += tiered_copies(store, chosen)
        of_group: dict[str, list[Popped]] = {group: [] for group in owners}
        for popped in pops:
            of_group.setdefault(popped.group, []).append(popped)
        known = Known(
            family,
            units[0].place if units else family.place,
            self._groups,
            units[0] if units else None,
            why,
            None,
            superseded,
            of_group,
            self._settled,
            self._question.subscription,
            self._not_read,
            (*self._nothing_kept, *lost),
            chosen is not None and self._waits_for_group(chosen),
        )
        found = self._answer(family, chosen or family.records[-1])
        found.events = events
        found.topic, found.queue_id, found.queue_offset = family.place
        found.for_all = for_all(known)
        self._judge(found, known, units)
        self._add_next(found, family, chosen or family.records[-1], waiting)
        return found

    def _answer(self, family: Family, message: Message) -> Trace:
        return Trace(
            self._question.asked.text,
            family.found_by,
            family.via,
            position=message.position,
            message_id=message.message_id,
            unique_key=family.unique_key,
            keys=message.keys,
            tags=message.tags,
            born_timestamp=message.born_timestamp,
            store_timestamp=message.store_timestamp,
        )

    def _pops(self, messages: list[Message]) -> tuple[list[Popped], set[str], tuple[Evidence, ...]]:
        """Return each time that POP gave a consumer a message, the groups that are known to consume its topic by POP,
        and what may have been a further time: a check point waits in the timer topic first.
        """
        store = self._store
        if not messages:
            return [], set(), ()
        kept = self._kv_store.rows
        if not kept and not any(t.startswith(_OF_POP) for t in store.topics):
            return [], set(), ()
        from ..inspect.pop import PoppedMessage, given_out

        places = [PoppedMessage(m.topic, m.queue_id, m.queue_offset, m.position) for m in messages]
        rows, found = given_out(store, places, kept, self._question.now_ms, self._note)
        topic, named = messages[0].topic, found.groups | {(row.group, row.topic) for row in kept}
        owners = {group for group, of in named if of in (topic, *retry_topics(topic, group))}
        return rows, owners, (Evidence(found.doubt, "commitlog"),) if found.doubt else ()

    def _judge(self, found: Trace, known: Known, units: list[FoundUnit]) -> None:
        """Add a verdict for each group that something connects with the message, or for the one asked for."""
        groups, family = self._groups, known.family
        topic, lmq = known.place.topic, units[1:]
        of_topic = {name: groups.of_topic(name) for name in {topic, *(unit.place.topic for unit in lmq)}}
        connected = set(known.pops).union(*of_topic.values())
        if family is not None:
            every = (*family.retries, *family.dead_letters, *family.waiting_retries)
            connected |= {group for group, _ in every}
        wanted = self._question.group
        names = sorted(connected) if wanted is None else [wanted]
        found.other_groups = len(groups.known - connected) if wanted is None else 0
        for group in names:
            instead = next((unit for unit in lmq if group in of_topic[unit.place.topic]), None)
            mine = self._known_for(known, group, None if group in of_topic[topic] else instead)
            judgement = judge(mine, group)
            given = self._question.given
            next_ = command_for(judgement, mine.place, self._store.layout, given, group)
            found.groups.append(GroupVerdict(group, judgement, *mine.place, next_))

    def _known_for(self, known: Known, group: str, lmq: FoundUnit | None) -> Known:
        """Return what is known in the group's queue: that of a retry, if it does not name that, or `lmq`, which the
        group reads instead of the topic.
        """
        from dataclasses import replace

        again = None if known.family is None else awaited(known.family, group)
        if again is not None and role_of(again) is not RecordRole.TIMED:  # a timer in the wheel needs no queue
            unit = self._unit_of(again)
            if unit.state is not Naming.NAMES:
                return replace(known, place=unit.place, unit=unit)
        return known if lmq is None else replace(known, place=lmq.place, unit=lmq)

    def _unit_of(self, message: Message) -> FoundUnit:
        return named(self._store, message, places_of(message)[0])

    def _add_next(self, found: Trace, family: Family, message: Message, waiting: Waiting) -> None:
        """Add the next start, and the commands that help. message: the one in its topic, or what stands for it.

        A start that keeps the record that was asked for may still lose `message`, or a retry that a group waits for.
        """
        retries = [awaited(family, row.group) for row in found.groups if row.judgement.verdict in _AGAIN]
        records = {one.position: one for one in (family.given or message, message, *retries) if one is not None}
        again = self._comes_again(family) or waiting.asked_again()
        start, harms = self._start(found, may_change=bool(again)), False
        if isinstance(start, NextStart):
            found.next_start = self._with_guess(start)
        else:
            units = [self._unit_of(one) for one in records.values()]
            fates = [self._fate(start, unit, one) for one, unit in zip(records.values(), units, strict=True)]
            fate = next((fate for fate in fates if fate.fate in _LOST), fates[0])
            found.next_start = self._with_guess(fate._replace(reason=f"{fate.reason}{again}"))
            harms = any(
                unit.hidden_by is not None or (fate.fate in _LOST and unit.state is Naming.NAMES)
                for fate, unit in zip(fates, units, strict=True)
            )
        place, given = places_of(message)[0], self._question.given
        found.next_commands = commands_of(found, place, self._store.layout, given, harms=harms)

    def _fate(self, start: Outcome, unit: FoundUnit, message: Message) -> NextStart:
        fate = fate_of(start, message.position, unit, message)
        if fate.fate is not Fate.DISPATCHED or not self._waits_for_group(message):
            return fate
        return fate._replace(fate=Fate.NOT_DISPATCHED, reason="its queue gets a unit if the group commits the record")

    def _comes_again(self, family: Family) -> str:
        """Whether the start delivers the message, or a retry of it, from its delay level although that was done."""
        delayed = [m for m in family.records if m.topic == SCHEDULE_TOPIC]
        if not delayed or self._store.layout.broker_config.is_slave:
            return ""
        from ..inspect.own_topics import delays_passed  # hardly any message needs it

        progress = delays_passed(self._store) or {}
        for m in delayed:
            copies = (one for one in family.records if one.topic == m.properties.get(REAL_TOPIC))
            done = any(one.position > m.position and one.reconsume_times == m.reconsume_times for one in copies)
            if done and m.queue_offset >= progress.get(m.queue_id + 1, 0):
                return f"; its delay level delivers it again: {DELAYS} does not have that it was delivered"
        return ""

    def _with_guess(self, start: NextStart) -> NextStart:
        """Add why that version was simulated, unless it was given."""
        if self._store.layout.version_named or start.broker_version is None:
            return start
        guess = self._store.generation
        return start._replace(broker_version_reason=guess.reason, broker_versions=guess.candidates)

    def gone(self, gone: PlaceWithoutRecord) -> Trace | None:
        """Return the answer about a place without a record; None if there never was a record."""
        store, question = self._store, self._question
        address = gone.address
        place = QueuePlace(address.topic or "" if address is not None else "")
        events = []
        if address is not None and address.queue_offset is not None:
            place = QueuePlace(address.topic or "", address.queue_id, address.queue_offset)
            if (led := led_to(store, place)) is not None:
                gone = gone._replace(position=led[0], named_by=(led[1],))
        elif gone.position is not None:
            for place, path in naming(store, gone.position, question.asked.topic):
                text = f"unit {place.queue_offset} of {place.topic}/{place.queue_id} names the place"
                events.append(Event(EventKind.NAMED, text, None, gone.position, *place, path=path))
                gone = gone._replace(named_by=(*gone.named_by, path))
        judged = judgement_of(store, gone) or judgement_of(store, gone._replace(position=address and address.position))
        if judged is None:
            return None
        events.insert(0, Event(EventKind.UNREADABLE, judged.reason, None, gone.position))
        in_queue = address is not None and address.queue_offset is not None
        by = question.asked.by or (By.QUEUE if in_queue else By.POSITION)
        found = Trace(question.asked.text, by.value, "address", *place, position=gone.position)
        if gone.by_key:
            found.found_by, found.via = "key", "index"
        found.events = events
        found.for_all = judged
        known = Known(None, place, self._groups, gone=judged)
        if place.topic:
            self._judge(found, known, [])
        elif question.group is not None:
            found.groups.append(GroupVerdict(question.group, judged, *place))
        start = self._start(found, may_change=False)
        found.next_start = self._with_guess(start if isinstance(start, NextStart) else fate_of(start, gone.position))
        found.next_commands = commands_of(found, place, store.layout, question.given)
        return found


def next_start(store: StoreReader, now_ms: int) -> Outcome | NextStart:
    """Simulate the next start, or return why that is not possible. Raises Unreadable."""
    from ..broker.profiles import profile_of
    from ..broker.snapshot import Snapshot
    from ..start.log import as_configured, switches_of
    from ..start.simulate import simulate

    pid = holder(store.layout.lock)
    if pid is not None:
        who = f"process {pid}" if pid else "somebody"
        return NextStart(Fate.RUNNING, f"{who} holds the lock: a broker is running on this store")
    try:
        snapshot = Snapshot.of(store.layout)
        profile = as_configured(profile_of(store.version), store.config)
        outcome = simulate(snapshot, profile, switches_of(snapshot), now_ms)
    except StoreError as error:
        return NextStart(Fate.NOT_PLAYED, f"the start cannot be predicted: {error.message}")
    version = profile.version
    if outcome.refusal is not None:
        return NextStart(Fate.NO_START, f"the broker does not start: {outcome.refusal.reason}", version)
    if outcome.hangs:
        return NextStart(Fate.NO_START, f"the start hangs: {outcome.hangs}", version)
    return outcome


def fate_of(
    outcome: Outcome, position: int | None, unit: FoundUnit | None = None, message: Message | None = None
) -> NextStart:
    """Return what the simulated start does to the record at a position. unit: of its queue. unit and message are None,
    and position may be None, if no record can be read.
    """
    version = outcome.profile.version
    if position is not None and position < outcome.log_start:
        reason = f"the start gives up the log before {outcome.log_start}"
        return NextStart(Fate.CUT_OFF, reason, version)
    if position is not None and position >= outcome.log_end:
        what = "the record" if unit is None else "/".join(map(str, unit.place))
        reason = f"the start cuts the log at {outcome.log_end}, and {what} with it"
        return NextStart(Fate.CUT_OFF, reason, version)
    if unit is None or message is None:
        return NextStart(Fate.UNREADABLE, "no record can be read there after the start, either", version)
    if role_of(message) is RecordRole.TIMED:  # a timer in the wheel needs no queue
        return NextStart(Fate.KEPT, "its record stays in the log", version)
    topic, queue_id, offset = unit.place
    assert queue_id is not None and offset is not None
    queue = outcome.read_queues.get(QueueId(topic, queue_id))
    if queue is not None and _leads_to(queue, offset, message):
        if unit.state is Naming.NAMES:
            but = f", but {unit.hides}" if unit.hidden_by is not None else ""
            return NextStart(Fate.KEPT, f"the record and its queue unit stay{but}", version)
        return NextStart(Fate.DISPATCHED, "the start dispatches the record: its queue gets a unit for it", version)
    reason = f"after the start queue {topic}/{queue_id} still has no unit for the message"
    if unit.state is Naming.NAMES:
        reason = f"after the start queue {topic}/{queue_id} has no unit for the message any more"
    elif unit.state is Naming.OTHER_SIZE:
        reason = "after the start the queue unit of the message still has a wrong size"
    return NextStart(Fate.NOT_DISPATCHED, reason, version)


def _leads_to(queue: StartedQueue, offset: int, message: Message) -> bool:
    """Whether a pull at a queue offset gets the record of the message."""
    if not queue.min_offset <= offset < queue.max_offset:
        return False
    first = offset if message.inner is None else message.inner.record.queue_offset
    unit = queue.lookup(np.array([first], np.int64))[0]
    return (int(unit["physical_offset"]), int(unit["size"])) == (message.position, message.total_size)


_VIEWS = {
    DeliveryVerdict.TRANSACTION: "--transactions",
    DeliveryVerdict.NEVER_FIRES: "--timers",
    DeliveryVerdict.INVISIBLE: "--pop",
    DeliveryVerdict.RETRY: "--retries",
}
_HARMFUL = (Fate.CUT_OFF, Fate.NO_START)
_LOST = (Fate.CUT_OFF, Fate.NOT_DISPATCHED)
_AGAIN = (DeliveryVerdict.RETRY, DeliveryVerdict.NOT_DISPATCHED)
"""Verdicts of a group that waits for a retry, or would wait if a unit named the retry."""


def command_for(judgement: Judgement, place: QueuePlace, layout: Layout, given: Given, group: str = "") -> str:
    """Return the command to run next about one verdict, "" if there is nothing to look at or to mend."""
    verdict, root = judgement.verdict, layout.root
    if judgement.code not in ("", WRONG_TAG):
        return str(command("verify", root, given=given))
    if verdict in _VIEWS:
        return str(command("inspect", root, _VIEWS[verdict], given=given))
    if verdict is DeliveryVerdict.NOT_DUE:
        timed = any("timer" in one.fact for one in judgement.evidence)
        return str(command("inspect", root, "--timers" if timed else "--delays", given=given))
    of_unit = verdict is DeliveryVerdict.NOT_DISPATCHED or judgement.code == WRONG_TAG
    if of_unit and not os.path.lexists(layout.abort):
        queue = f"{place.topic}/{place.queue_id}"
        return str(command("repair", root, "--queue", queue, given=given))
    lost = any(one.fact == LOST_FACT for one in judgement.evidence)
    if of_unit or (verdict is DeliveryVerdict.UNREADABLE and not lost):
        return str(command("recover", root, given=given))
    if verdict is DeliveryVerdict.OFFSET_MOVED and place.queue_offset is not None:
        wanted = f"{place.topic}/{place.queue_id}@{group}={place.queue_offset}"
        return str(command("offsets", root, "--reset", wanted, given=given))
    if verdict in (DeliveryVerdict.FILTERED, DeliveryVerdict.NOT_SERVED):
        where = root / next((one.where for one in judgement.evidence), f"config/{TOPICS}")
        return str(command("dump", where, given=given)) if where.is_file() else ""  # it may be an option
    return ""


def commands_of(found: Trace, place: QueuePlace, layout: Layout, given: Given, *, harms: bool = False) -> list[str]:
    """Return all commands, each once; first what keeps a start from doing harm.

    place: of the record that stands for the message. harms: the start takes a record or its unit away.
    """
    commands = []
    if harms or (found.next_start is not None and found.next_start.fate in _HARMFUL):
        commands.append(str(command("recover", layout.root, given=given)))
    if found.for_all is not None:
        commands.append(command_for(found.for_all, place, layout, given))
    commands += [group.next_command for group in found.groups]
    return list(dict.fromkeys(command for command in commands if command))
