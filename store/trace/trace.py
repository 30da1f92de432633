"""One answer a message: its story, a verdict for each group, the next start, the next command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ...formats.pop import KV_STORE, REVIVE_TOPIC
from ..broker.system_topics import TIMER_TOPIC
from ..disk.lock import holder
from ..findings.next_commands import NOTHING_GIVEN, Given
from ..log.message import Message
from ..queues.rocksdb import is_rocksdb, readable
from ..search.found import Note
from ..search.store import Store
from .answer import Event, Evidence, Fate, GroupVerdict, Kind, NextStart, Trace, Verdict
from .family import Family, Place
from .filtering import Subscription
from .gone import judgement_of
from .groups import Groups, read_groups
from .locate import Asked, By, Gone, locate
from .named import Named, named, naming, places_of
from .next_commands import command_for, commands_of
from .story import story
from .tiered_copies import tiered_copies
from .verdicts import Scene, for_all, judge
from .waiting import Waiting

if TYPE_CHECKING:
    from ..inspect.pop import Popped
    from ..start.simulate import Outcome


_HARMED = (Verdict.NOT_DISPATCHED, Verdict.UNREADABLE, Verdict.NEVER_FIRES)
"""Verdicts that a start may change, or never will."""
_OF_POP = (REVIVE_TOPIC, TIMER_TOPIC)


class Question(NamedTuple):
    """What is to be told. group: of this one only. now_ms: what is due then. subscription: of the
    group, as the operator knows it. start: play the next start in any case. given: options that a proposed command repeats.
    """

    asked: Asked
    now_ms: int
    group: str | None = None
    subscription: Subscription | None = None
    start: bool = False
    given: Given = NOTHING_GIVEN


def trace(store: Store, question: Question, note: Note) -> Iterator[Trace]:
    """The messages that are meant, in log order, one by one. Raises InvalidInput, Unreadable.

    None where nothing is found. note: told in one line each what is worth knowing.
    """
    located = locate(store, question.asked, note)
    about = _About(store, question, note)
    for family in located.families:
        yield about.family(family)
    for gone in located.gone:
        found = about.gone(gone)
        if found is not None:
            yield found


class _About:
    """What is read once for all messages."""

    def __init__(self, store: Store, question: Question, note: Note) -> None:
        self._store, self._question, self._note = store, question, note

    @cached_property
    def _groups(self) -> Groups:
        return read_groups(self._store.layout, self._store.generation.version, self._note)

    @cached_property
    def _played(self) -> Outcome | NextStart:
        from .next_start import next_start

        return next_start(self._store, self._question.now_ms)

    def _start(self, found: Trace) -> Outcome | NextStart:
        """The next start, played where it may change what is said of the message."""
        layout = self._store.layout
        harmed = found.for_all is not None and found.for_all.verdict in _HARMED
        unclean = os.path.lexists(layout.abort) or holder(layout.lock) is not None
        if self._question.start or harmed or unclean:
            return self._played
        why = "the broker was shut down; --next-start plays the next start"
        return NextStart(Fate.NOT_PLAYED, why)

    @cached_property
    def _settled(self) -> bool:
        """The queues are as far as the log: nothing waits for dispatch."""
        layout = self._store.layout
        return not os.path.lexists(layout.abort) and not self._store.queues_unread

    @cached_property
    def _not_read(self) -> tuple[Evidence, ...]:
        path = self._store.layout.root / KV_STORE
        if not path.exists() or (is_rocksdb(path) and readable()):
            return ()
        fact = "a POP consumer may have it still: popConsumerKVServiceEnable keeps that elsewhere"
        return (Evidence(f"{fact}, not looked at", KV_STORE),)

    def family(self, family: Family) -> Trace:
        """The answer about a message that has records."""
        store, note = self._store, self._note
        chosen = family.chosen
        units = [named(store, chosen, place) for place in places_of(chosen)] if chosen else []
        waiting = Waiting(store, family, self._question.now_ms, note)
        why = waiting.judgement() if chosen is None else None
        pops = self._pops(chosen)
        events = story(store, family, units, waiting, pops)
        superseded = None
        if chosen is not None and store.has_compaction_queues(chosen.topic):
            from .compacted import Compacted

            compacted = Compacted(store, chosen, note)
            events += compacted.events
            superseded = compacted.judgement
        if chosen is not None:
            events += tiered_copies(store, chosen)
        of_group: dict[str, list[Popped]] = {}
        for popped in pops:
            of_group.setdefault(popped.group, []).append(popped)
        scene = Scene(
            family,
            family.place,
            self._groups,
            units[0] if units else None,
            why,
            None,
            superseded,
            of_group,
            self._settled,
            self._question.subscription,
            self._not_read,
        )
        found = self._of(family, chosen or family.records[-1])
        found.events = events
        found.topic, found.queue_id, found.queue_offset = family.place
        found.for_all = for_all(scene)
        self._judge(found, scene, units)
        self._ends(found, scene, chosen or family.records[-1])
        return found

    def _of(self, family: Family, message: Message) -> Trace:
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

    def _pops(self, message: Message | None) -> list[Popped]:
        """Each time that a consumer was given it by POP: a check point waits in the timer topic first."""
        store = self._store
        if message is None:
            return []
        kept = is_rocksdb(store.layout.root / KV_STORE)
        if not kept and not any(t.startswith(_OF_POP) for t in store.topics):
            return []
        from ..inspect.pop import Place as PopPlace
        from ..inspect.pop import given_out

        place = PopPlace(message.topic, message.queue_id, message.queue_offset, message.position)
        return given_out(store, place, self._question.now_ms, self._note)

    def _judge(self, found: Trace, scene: Scene, units: list[Named]) -> None:
        """A verdict for each group that something connects with the message, or for the one asked."""
        groups, family = self._groups, scene.family
        connected = groups.of_topic(scene.place.topic) | set(scene.pops)
        if family is not None:
            every = (*family.retries, *family.dead_letters, *family.waiting_retries)
            connected |= {group for group, _ in every}
        light = {unit.place: unit for unit in units[1:]}
        for place in light:
            connected |= groups.of_topic(place.topic)
        wanted = self._question.group
        names = sorted(connected) if wanted is None else [wanted]
        found.other_groups = len(groups.known - connected) if wanted is None else 0
        for group in names:
            mine = self._at(scene, group, light)
            judgement = judge(mine, group)
            given = self._question.given
            next_ = command_for(judgement, mine.place, self._store.layout, given, group)
            found.groups.append(GroupVerdict(group, judgement, *mine.place, next_))

    def _at(self, scene: Scene, group: str, light: dict[Place, Named]) -> Scene:
        """The scene of the queue that the group reads: a light queue, if only that."""
        from dataclasses import replace

        groups = self._groups
        if group in groups.of_topic(scene.place.topic):
            return scene
        for place, unit in light.items():
            if group in groups.of_topic(place.topic):
                return replace(scene, place=place, unit=unit)
        return scene

    def _ends(self, found: Trace, scene: Scene, message: Message) -> None:
        """The next start, and the commands that help."""
        found.next_start = self._fate(found, message.position, scene.place, scene.unit)
        found.next_commands = commands_of(found, self._store.layout, self._question.given)

    def _fate(self, found: Trace, position: int, place: Place, unit: Named | None) -> NextStart:
        start = self._start(found)
        if isinstance(start, NextStart):
            return start
        from .next_start import fate_of

        return fate_of(start, position, place, unit)

    def gone(self, gone: Gone) -> Trace | None:
        """The answer about a place without a record; None where it never was a place."""
        store, question = self._store, self._question
        address = gone.address
        place = Place(address.topic or "" if address is not None else "")
        events = []
        if address is not None and address.queue_offset is not None:
            place = Place(address.topic or "", address.queue_id, address.queue_offset)
        elif gone.position is not None:
            for place, path in naming(store, gone.position, question.asked.topic):
                text = (
                    f"unit {place.queue_offset} of {place.topic}/{place.queue_id} names the place"
                )
                events.append(Event(Kind.NAMED, text, None, gone.position, *place, path=path))
                gone = gone._replace(named_by=(*gone.named_by, path))
        judged = judgement_of(store, gone)
        if judged is None:
            return None
        events.insert(0, Event(Kind.UNREADABLE, judged.reason, None, gone.position))
        in_queue = address is not None and address.queue_offset is not None
        by = By.QUEUE if in_queue else By.POSITION
        by = question.asked.by or by
        found = Trace(question.asked.text, by.value, "address", *place, position=gone.position)
        if gone.by_key:
            found.found_by, found.via = "key", "index"
        found.events = events
        found.for_all = judged
        scene = Scene(None, place, self._groups, gone=judged)
        if place.topic:
            self._judge(found, scene, [])
        elif question.group is not None:
            found.groups.append(GroupVerdict(question.group, judged, *place))
        if gone.position is not None:
            found.next_start = self._fate(found, gone.position, place, None)
        found.next_commands = commands_of(found, store.layout, question.given)
        return found
