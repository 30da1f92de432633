"""All records of one message: its own, and those that stand for it in a broker's own topics.

They have one unique key, whatever became of the message: half message, delay level, timer, retries and dead letters are
copies of it with the same properties (spec 01, 1.6, 1.10, 1.11; 04, 4.4). Records without a unique key belong together
by time of birth, producer's address and body CRC.

`named` finds the unit of a record in its own queue, an LMQ or a batch queue. `naming` finds the units that name a place
in the log where no record can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ...formats import message_properties as names
from ...formats.hashing import tags_code
from ...formats.pop import FIRST_POP_TIME
from ...formats.quick import parse_message_id
from ..broker.system_topics import (
    CHECKED_TOO_OFTEN,
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    LMQ_PREFIX,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from ..counted import counted
from ..disk.file_queue import MappedFileQueue
from ..errors import NotFound, StoreError
from ..log.message import Message
from ..queues.batches import BatchUnit
from ..queues.ext import ExtUnit, ext_unit
from ..queues.read import ConsumeQueue, QueueSummary, Unit
from ..search.queue_search import open_batch_queue
from ..search.selection import Selection, matches
from ..search.store import StoreReader
from .answer import DeliveryVerdict, Evidence, Judgement


class RecordRole(StrEnum):
    """What a record is of its message."""

    OWN = "own"
    HALF = "half"
    GIVEN_UP = "given_up"
    DELAYED = "delayed"
    TIMED = "timed"
    CANCEL = "cancel"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"


_OF_TOPIC = {
    HALF_TOPIC: RecordRole.HALF,
    ROCKSDB_HALF_TOPIC: RecordRole.HALF,
    CHECKED_TOO_OFTEN: RecordRole.GIVEN_UP,
    SCHEDULE_TOPIC: RecordRole.DELAYED,
    TIMER_TOPIC: RecordRole.TIMED,
}


def role_of(message: Message) -> RecordRole:
    """Return what a record is, by its topic; one that `recover` wrote in place of a lost one is its own in all."""
    if message.stand_in:
        return RecordRole.OWN
    topic = message.topic
    role = _OF_TOPIC.get(topic)
    if role is RecordRole.TIMED and names.TIMER_DEL_UNIQKEY in message.properties:
        return RecordRole.CANCEL
    if role is not None:
        return role
    if topic.startswith(names.RETRY_PREFIX):
        return RecordRole.RETRY
    return RecordRole.DEAD_LETTER if topic.startswith(DEAD_LETTER_PREFIX) else RecordRole.OWN


class QueuePlace(NamedTuple):
    """A place in a queue; None for what is not known."""

    topic: str
    queue_id: int | None = None
    queue_offset: int | None = None


@dataclass
class Family:
    """The records of one message in log order. given: the record that was asked for by its place."""

    records: list[Message]
    found_by: str
    via: str
    given: Message | None = None
    by_role: dict[RecordRole, list[Message]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_role = {role: [] for role in RecordRole}
        for message in self.records:
            self.by_role[role_of(message)].append(message)

    @property
    def unique_key(self) -> str | None:
        """The id that the client gave."""
        return next((m.unique_key for m in self.records if m.unique_key), None)

    @property
    def own(self) -> list[Message]:
        """Records in the topic itself: more than one if the message was sent or delivered again."""
        return self.by_role[RecordRole.OWN]

    @property
    def chosen(self) -> Message | None:
        """The judged record in its topic: the one asked for, else the first."""
        given = self.given
        if given is not None and role_of(given) is RecordRole.OWN:
            return given
        return next(iter(self.own), None)

    @property
    def place(self) -> QueuePlace:
        """Where the message is, or where it is to go."""
        chosen = self.chosen
        if chosen is not None:
            return QueuePlace(chosen.topic, chosen.queue_id, chosen.queue_offset)
        for role in (RecordRole.HALF, RecordRole.DELAYED, RecordRole.TIMED, RecordRole.GIVEN_UP):
            for message in self.by_role[role]:
                topic = message.properties.get(names.REAL_TOPIC, "")
                if topic and not topic.startswith(names.RETRY_PREFIX):
                    return QueuePlace(topic, number_of(message, names.REAL_QID))
        for message in self.records:
            for name in (names.RETRY_TOPIC, names.DLQ_ORIGIN_TOPIC):
                if topic := message.properties.get(name, ""):
                    return QueuePlace(topic)
        first = self.records[0]
        return QueuePlace(first.topic, first.queue_id, first.queue_offset)

    @property
    def origin(self) -> int | None:
        """Where the message was before a group sent it back, as a retry or dead letter of it says."""
        for message in self.records:
            try:
                _, _, position = parse_message_id(message.properties[names.ORIGIN_MESSAGE_ID])
            except (KeyError, ValueError):
                continue
            return position
        return None

    @property
    def waiting_retries(self) -> list[tuple[str, Message]]:
        """(group, record) of retries that wait in a delay level or the timer topic."""
        found = []
        for message in (*self.by_role[RecordRole.DELAYED], *self.by_role[RecordRole.TIMED]):
            topic = message.properties.get(names.REAL_TOPIC, "")
            if topic.startswith(names.RETRY_PREFIX):
                found.append((self._group(topic, message), message))
        return found

    @property
    def retries(self) -> list[tuple[str, Message]]:
        """(group, record) of retries that the group can have."""
        return [(self._group(m.topic, m), m) for m in self.by_role[RecordRole.RETRY]]

    @property
    def dead_letters(self) -> list[tuple[str, Message]]:
        """(group, record) of dead letters."""
        dead = self.by_role[RecordRole.DEAD_LETTER]
        return [(m.topic.removeprefix(DEAD_LETTER_PREFIX), m) for m in dead]

    def of_message(self, role: RecordRole) -> list[Message]:
        """Return the records of a role that stand for the message, not for a retry of it."""
        return [
            m for m in self.by_role[role] if not m.properties.get(names.REAL_TOPIC, "").startswith(names.RETRY_PREFIX)
        ]

    def _group(self, retry_topic: str, message: Message) -> str:
        """Return the group of a retry topic: the name of a POP retry topic ends with the original topic."""
        rest = retry_topic.removeprefix(names.RETRY_PREFIX)
        origin = message.properties.get(names.ORIGIN_GROUP, "")
        if origin and rest.startswith(origin):
            return origin
        if FIRST_POP_TIME in message.properties and self.own:
            for separator in "_+":
                ending = separator + self.own[0].topic
                if rest.endswith(ending) and rest != ending:
                    return rest.removesuffix(ending)
        return rest


def number_of(message: Message, name: str) -> int | None:
    """Return a property that is a decimal number, else None."""
    return _decimal(message.properties.get(name, ""))


def due_of(message: Message) -> int | None:
    """Return when a timer is due by its message, ms; None if that does not say."""
    return _decimal(message.properties.get(names.TIMER_OUT_MS, ""), 18)


def _decimal(text: str, digits: int = 19) -> int | None:
    """Return a decimal number of at most `digits` digits, else None; the default fits a Java long."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None


def families(found: Iterable[tuple[Message, str]], found_by: str, given: Message | None = None) -> list[Family]:
    """Group records by message, in the order of their first records.

    found: records, and how each was found. given: only the message of this record is wanted.
    """
    groups: dict[object, list[tuple[Message, str]]] = {}
    for message, via in found:
        groups.setdefault(identity(message), []).append((message, via))
    every = [_family(rows, found_by, given) for rows in groups.values()]
    if given is not None:
        wanted = identity(given)
        every = [one for one in every if identity(one.records[0]) == wanted]
    return sorted(every, key=lambda one: one.records[0].position)


def identity(message: Message) -> object:
    """Return what the records of one message have in common."""
    return message.unique_key or (message.born_timestamp, message.born_host, message.body_crc)


def _family(rows: list[tuple[Message, str]], found_by: str, given: Message | None) -> Family:
    rows.sort(key=lambda row: (row[0].position, inner_number(row[0])))
    return Family([message for message, _ in rows], found_by, rows[0][1], given)


def inner_number(message: Message) -> int:
    """Return the number of a message in its batch record, -1 for a record of its own."""
    return -1 if message.inner is None else message.inner.number


def only(every: list[Family], topic: Selection) -> list[Family]:
    """Keep families whose message is of the wanted topic, or also in a queue of it; all if no topic is given."""
    name = topic.topic
    return [
        one
        for one in every
        if name is None
        or matches(one.place.topic, name)
        or (one.chosen is not None and topic.place_of(one.chosen) is not None)
    ]


TAGS_CODE_MASK = (1 << 32) - 1
"""Brokers filter by these bits of a tags code."""
WRONG_TAG = "I-065"
"""The finding of `verify` for a unit with another tags code than its record asks for."""


class Naming(StrEnum):
    """What the unit of a message is."""

    NAMES = "names"
    NOT_YET = "not_yet"
    HOLE = "hole"
    ELSEWHERE = "elsewhere"
    TAKEN = "taken"
    OTHER_SIZE = "other_size"
    NO_QUEUE = "no_queue"
    MADE_AGAIN = "made_again"
    UNREAD = "unread"


class FoundUnit(NamedTuple):
    """The unit for a message in one queue. path: of the queue, within the store.

    min_offset, max_offset: of the queue. tags_code: what brokers filter by, in consumequeue_ext if the unit points
    there; None if unknown. asked_code: what the record asks for, None for nothing. ext: what the unit has in
    consumequeue_ext. why: the queue cannot be read, or how the sizes differ. begin: where a queue that was created
    again begins in the log. hidden_by: number of an earlier unit; a pull that meets that passes over this one.
    """

    place: QueuePlace
    state: Naming
    path: str = ""
    min_offset: int = 0
    max_offset: int = 0
    tags_code: int | None = None
    asked_code: int | None = None
    ext: ExtUnit | None = None
    why: str = ""
    begin: int = 0
    hidden_by: int | None = None

    @property
    def other_tag(self) -> bool:
        """Whether the code that brokers filter by, of 32 bits, differs from that of the record."""
        code, asked = self.tags_code, self.asked_code
        return code is not None and asked is not None and (code ^ asked) & TAGS_CODE_MASK != 0

    @property
    def evidence(self) -> Evidence:
        topic, queue_id, offset = self.place
        name = f"{topic}/{queue_id}"
        facts = {
            Naming.NAMES: f"unit {offset} of {name} names the record{self._code_text}{self._hidden_text}",
            Naming.NOT_YET: f"{name} ends at {self.max_offset}: there is no unit {offset} yet",
            Naming.HOLE: f"unit {offset} of {name} names no record; the queue ends at {self.max_offset}",
            Naming.ELSEWHERE: f"unit {offset} of {name} names another place of the log",
            Naming.TAKEN: f"unit {offset} of {name} names another message, which has this queue offset, too",
            Naming.OTHER_SIZE: f"unit {offset} of {name} names the place of the record, {self.why}",
            Naming.NO_QUEUE: f"there is no queue {name}",
            Naming.MADE_AGAIN: f"the record lies before {self.begin}, where {name} begins again",
            Naming.UNREAD: f"queue {name} cannot be read: {self.why}",
        }
        return Evidence(facts[self.state], self.path)

    @property
    def _code_text(self) -> str:
        if not self.other_tag:
            return ""
        return f" with tags code {self.tags_code}, but the record asks for {self.asked_code} ({WRONG_TAG})"

    @property
    def _hidden_text(self) -> str:
        if self.hidden_by is None:
            return ""
        return f", but unit {self.hidden_by} in front leads to nothing that a broker can read"

    @property
    def hides(self) -> str:
        """What an earlier unit does to a pull."""
        return f"a pull that meets unit {self.hidden_by} passes over the message"

    @property
    def lack(self) -> str:
        """What keeps consumers from being led to the record."""
        if self.state is Naming.OTHER_SIZE:
            return "the queue unit of the message has a wrong size (I-062)"
        return "no queue unit names the message"

    def misses(self, effect: str = "no consumer gets the message") -> Judgement | None:
        """Return the verdict if no unit leads to the record, or if that is not known; None if one does."""
        if self.state is Naming.NAMES:
            return None
        if self.state is Naming.UNREAD:
            reason = "it is not known whether a queue unit names the message"
            return Judgement(DeliveryVerdict.UNKNOWN, reason, (self.evidence,))
        effect = "brokers read other bytes than its record" if self.state is Naming.OTHER_SIZE else effect
        reason, code = f"{self.lack}: {effect}", ""
        if self.state is Naming.TAKEN:
            code = "I-031"
            reason = f"another message has its queue offset ({code}): {effect}"
        elif self.state is Naming.MADE_AGAIN:
            code = "I-031"
            reason = f"its queue was deleted and created again, or lost before a start ({code}): {effect}"
        return Judgement(DeliveryVerdict.NOT_DISPATCHED, reason, (self.evidence,), code=code)


def places_of(message: Message) -> list[QueuePlace]:
    """Return the places in queues that a broker dispatches a record to, its own queue first (spec 2.9)."""
    found = [QueuePlace(message.topic, message.queue_id, message.queue_offset)]
    further = message.properties.get(names.INNER_MULTI_DISPATCH, "")
    offsets = message.properties.get(names.INNER_MULTI_QUEUE_OFFSET, "")
    if not further:
        return found
    for topic, offset in zip(further.split(","), offsets.split(","), strict=False):
        if topic and (number := _decimal(offset)) is not None:
            queue_id = 0 if topic.startswith(LMQ_PREFIX) else message.queue_id
            found.append(QueuePlace(topic, queue_id, number))
    return found


def named(store: StoreReader, message: Message, place: QueuePlace) -> FoundUnit:
    """Return the unit for a message at a place of a queue, or what names the message in that queue. Raises
    Unreadable.
    """
    topic, queue_id, offset = place
    if queue_id is None or offset is None:
        return FoundUnit(place, Naming.NO_QUEUE)
    if store.layout.rocksdb_queues and (problem := store.queues_unread):
        return FoundUnit(place, Naming.UNREAD, store.layout.consume_queue.name, why=problem)
    if store.has_batch_queues(topic):
        return _in_batch_queue(store, message, place)
    path = f"{store.layout.consume_queue.name}/{topic}/{queue_id}"
    try:
        queue = store.queues.open(topic, queue_id)
    except NotFound:
        found = FoundUnit(place, Naming.NO_QUEUE, path)
    else:
        with queue:
            ends = store.queue_summary(queue)
            found = _unit(store, queue, message, FoundUnit(place, Naming.NAMES, path), ends)
    if found.state in (Naming.NOT_YET, Naming.NO_QUEUE) and (why := store.units_in_memory):
        return found._replace(state=Naming.UNREAD, why=why)
    if found.state is not Naming.NAMES and topic == message.topic:
        from ..start.queue_stores import queue_begins  # hardly any message needs it

        begin = queue_begins(store.layout)(topic, queue_id, message.position)
        return found._replace(state=Naming.MADE_AGAIN, begin=begin) if message.position < begin else found
    return found


def _unit(store: StoreReader, queue: ConsumeQueue, message: Message, found: FoundUnit, ends: QueueSummary) -> FoundUnit:
    offset = found.place.queue_offset or 0
    found = found._replace(min_offset=ends.min_offset, max_offset=ends.max_offset)
    unit = queue.unit(offset)
    if unit is None or offset >= ends.max_offset or unit.physical_offset != message.position:
        elsewhere = _naming(queue, message.position, ends.max_offset)  # of a queue that a start shifted
        if elsewhere is not None:
            unit, offset = elsewhere, elsewhere.queue_offset
            found = found._replace(place=found.place._replace(queue_offset=offset))
    if offset >= ends.max_offset:
        return found._replace(state=Naming.NOT_YET)
    if unit is None or not unit.valid or unit.pre_fill:
        return found._replace(state=Naming.HOLE)
    found = _compared(found, unit, message)
    if found.state is Naming.ELSEWHERE and _has_offset(store, unit.physical_offset, found.place):
        return found._replace(state=Naming.TAKEN)
    if found.state is not Naming.NAMES:
        return found
    code, ext = found.tags_code, None
    if unit.ext_address is not None:
        directory = store.layout.consume_queue_ext / queue.topic / str(queue.queue_id)
        with MappedFileQueue.open(directory) as files:
            ext = ext_unit(files, unit.ext_address)
        code = ext.tags_code if ext is not None else None
    hidden_by = queue.hiding(unit, ends.min_offset, store.log_end.position, store.log_files.file_size)
    return found._replace(tags_code=code, ext=ext, hidden_by=hidden_by)


def _has_offset(store: StoreReader, position: int, place: QueuePlace) -> bool:
    """Whether the record at a place of the log has this queue offset."""
    with suppress(StoreError):
        record = store.message_at(position)
        return (record.topic, record.queue_id, record.queue_offset) == place
    return False


def _compared(found: FoundUnit, unit: Unit | BatchUnit, message: Message) -> FoundUnit:
    """A broker reads as many bytes as the unit says, and never compares them with the record."""
    if unit.physical_offset != message.position:
        return found._replace(state=Naming.ELSEWHERE)
    if unit.size != message.total_size:
        why = f"with {counted(unit.size, 'byte')}, but the record has {message.total_size}"
        return found._replace(state=Naming.OTHER_SIZE, why=why)
    return found._replace(tags_code=unit.tags_code, asked_code=_asked_code(message))


def _asked_code(message: Message) -> int | None:
    """Return the tags code that a record asks for. None for a record in a delay level, whose unit has a time instead,
    and for a tombstone, whose unit may keep the code of the lost record.
    """
    record = message if message.inner is None else message.inner.record
    if record.topic == SCHEDULE_TOPIC or record.stand_in:
        return None
    return tags_code(record.tags)


def _in_batch_queue(store: StoreReader, message: Message, place: QueuePlace) -> FoundUnit:
    topic, queue_id, offset = place
    assert queue_id is not None and offset is not None
    path = f"{store.layout.batch_consume_queue.name}/{topic}/{queue_id}"
    try:
        queue = open_batch_queue(store, topic, queue_id)
    except NotFound:
        return FoundUnit(place, Naming.NO_QUEUE, path)
    with queue:
        ends = store.queue_summary(queue)
        found = FoundUnit(place, Naming.NAMES, path, ends.min_offset, ends.max_offset)
        unit = queue.find(offset)
        if unit is None:
            ahead = offset >= ends.max_offset
            return found._replace(state=Naming.NOT_YET if ahead else Naming.HOLE)
        return _compared(found, unit, message)


def led_to(store: StoreReader, place: QueuePlace) -> tuple[int, str] | None:
    """Return the log position that a unit names, and the path of its queue; None without a unit. Raises Unreadable."""
    topic, queue_id, offset = place
    if queue_id is None or offset is None:
        return None
    with suppress(NotFound), store.queues.open(topic, queue_id) as queue:
        unit = queue.unit(offset)
        if unit is not None and unit.valid and not unit.pre_fill:
            return unit.physical_offset, f"{store.layout.consume_queue.name}/{topic}/{queue_id}"
    return None


def naming(store: StoreReader, position: int, topic: str | None = None) -> Iterator[tuple[QueuePlace, str]]:
    """Yield the units that name a place of the log, each with the path of its queue. Raises Unreadable.

    topic: only queues of this topic. A few units of each queue are read.
    """
    if store.queues_unread:
        return
    queues = store.queues if topic is None else store.queues.of_topic(topic)
    for directory in queues:
        with store.queues.open(directory.topic, directory.queue_id) as queue:
            unit = _naming(queue, position, queue.summary().max_offset)
            if unit is not None:
                path = f"{store.layout.consume_queue.name}/{directory.topic}/{directory.queue_id}"
                yield QueuePlace(directory.topic, directory.queue_id, unit.queue_offset), path


def _naming(queue: ConsumeQueue, position: int, end: int) -> Unit | None:
    """Return the unit before queue offset `end` that names a place of the log, found by bisection; None without one."""
    at = queue.at_or_behind(position, queue.first_offset, end)
    unit = queue.unit(at) if at < end else None
    return unit if unit is not None and unit.valid and unit.physical_offset == position else None
