"""All records of one message: its own, and those that stand for it in a broker's own topics.

They have one unique key, whatever became of the message: half message, delay level, timer, retries
and dead letters of groups are copies of it with the same properties (spec 01, 1.6, 1.10, 1.11; 04,
4.4). Of a message without a unique key the records with its key, time of birth and body CRC count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ...formats import message_properties as names
from ...formats.pop import FIRST_POP_TIME
from ...formats.quick import parse_message_id
from ..broker.system_topics import (
    CHECKED_TOO_OFTEN,
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from ..log.message import Message


class Role(StrEnum):
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
    HALF_TOPIC: Role.HALF,
    ROCKSDB_HALF_TOPIC: Role.HALF,
    CHECKED_TOO_OFTEN: Role.GIVEN_UP,
    SCHEDULE_TOPIC: Role.DELAYED,
    TIMER_TOPIC: Role.TIMED,
}


def role_of(message: Message) -> Role:
    """What a record is, by its topic."""
    topic = message.topic
    role = _OF_TOPIC.get(topic)
    if role is Role.TIMED and names.TIMER_DEL_UNIQKEY in message.properties:
        return Role.CANCEL
    if role is not None:
        return role
    if topic.startswith(names.RETRY_PREFIX):
        return Role.RETRY
    return Role.DEAD_LETTER if topic.startswith(DEAD_LETTER_PREFIX) else Role.OWN


class Place(NamedTuple):
    """A place in a queue; what is not known is None."""

    topic: str
    queue_id: int | None = None
    queue_offset: int | None = None


@dataclass
class Family:
    """The records of one message in log order. given: the one that was asked for by its place."""

    records: list[Message]
    found_by: str
    via: str
    given: Message | None = None
    by_role: dict[Role, list[Message]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_role = {role: [] for role in Role}
        for message in self.records:
            self.by_role[role_of(message)].append(message)

    @property
    def unique_key(self) -> str | None:
        """The id that the client gave."""
        return next((m.unique_key for m in self.records if m.unique_key), None)

    @property
    def own(self) -> list[Message]:
        """Records in the topic itself: more than one where the message was sent or delivered again."""
        return self.by_role[Role.OWN]

    @property
    def chosen(self) -> Message | None:
        """The record in its topic that is judged: the one asked for, else the first."""
        given = self.given
        if given is not None and role_of(given) is Role.OWN:
            return given
        return next(iter(self.own), None)

    @property
    def place(self) -> Place:
        """Where the message is, or where it is to go."""
        chosen = self.chosen
        if chosen is not None:
            return Place(chosen.topic, chosen.queue_id, chosen.queue_offset)
        for role in (Role.HALF, Role.DELAYED, Role.TIMED, Role.GIVEN_UP):
            for message in self.by_role[role]:
                topic = message.properties.get(names.REAL_TOPIC, "")
                if topic and not topic.startswith(names.RETRY_PREFIX):
                    return Place(topic, number_of(message, names.REAL_QID))
        for message in self.records:
            for name in (names.RETRY_TOPIC, names.DLQ_ORIGIN_TOPIC):
                if topic := message.properties.get(name, ""):
                    return Place(topic)
        first = self.records[0]
        return Place(first.topic, first.queue_id, first.queue_offset)

    @property
    def origin(self) -> int | None:
        """Where the message was before a group gave it back, as a retry or dead letter of it says."""
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
        for message in (*self.by_role[Role.DELAYED], *self.by_role[Role.TIMED]):
            topic = message.properties.get(names.REAL_TOPIC, "")
            if topic.startswith(names.RETRY_PREFIX):
                found.append((self._group(topic, message), message))
        return found

    @property
    def retries(self) -> list[tuple[str, Message]]:
        """(group, record) of retries that the group can have."""
        return [(self._group(m.topic, m), m) for m in self.by_role[Role.RETRY]]

    @property
    def dead_letters(self) -> list[tuple[str, Message]]:
        """(group, record) of dead letters."""
        dead = self.by_role[Role.DEAD_LETTER]
        return [(m.topic.removeprefix(DEAD_LETTER_PREFIX), m) for m in dead]

    def of_message(self, role: Role) -> list[Message]:
        """The records of a role that stand for the message, not for a retry of it."""
        return [
            m
            for m in self.by_role[role]
            if not m.properties.get(names.REAL_TOPIC, "").startswith(names.RETRY_PREFIX)
        ]

    def _group(self, retry_topic: str, message: Message) -> str:
        """Whose retry topic it is: of POP its name has the topic, too."""
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
    """A property that is a decimal number, None without."""
    text = message.properties.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def families(
    found: Iterable[tuple[Message, str]], found_by: str, given: Message | None = None
) -> list[Family]:
    """The messages that some records are of, by their first record.

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
    """What the records of one message have in common."""
    return message.unique_key or (message.born_timestamp, message.born_host, message.body_crc)


def _family(rows: list[tuple[Message, str]], found_by: str, given: Message | None) -> Family:
    rows.sort(key=lambda row: _order(row[0]))
    return Family([message for message, _ in rows], found_by, rows[0][1], given)


def _order(message: Message) -> tuple[int, int]:
    return message.position, -1 if message.inner is None else message.inner.number


def only(
    every: list[Family], topic: str | None, matches: Callable[[str, str], bool]
) -> Iterator[Family]:
    """Those whose message is of a topic, or of one that a pattern names; all without one."""
    for one in every:
        if topic is None or matches(one.place.topic, topic):
            yield one
