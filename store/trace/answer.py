"""The answer of `trace`, as fields of its JSON: events, verdicts with their evidence, what a start would do.

Times are ms since 1970, positions are those of the commit log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..log.message import Message


class By(StrEnum):
    """What the operator's text is."""

    KEY = "key"
    UNIQUE_KEY = "unique-key"
    MESSAGE_ID = "message-id"
    POSITION = "position"
    QUEUE = "queue"


class EventKind(StrEnum):
    """What happened to a message."""

    BORN = "born"
    HALF = "half"
    CHECKED = "checked"
    DECIDED = "decided"
    GIVEN_UP = "given_up"
    COMMITTED = "committed"
    DELAYED = "delayed"
    TIMED = "timed"
    ROLLED = "rolled"
    CANCELLED = "cancelled"
    DUE = "due"
    STORED = "stored"
    LOST = "lost"
    DELIVERED = "delivered"
    RESENT = "resent"
    NAMED = "named"
    NOT_NAMED = "not_named"
    INDEXED = "indexed"
    POPPED = "popped"
    RETRY_WAITS = "retry_waits"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    SUPERSEDED = "superseded"
    COMPACTED = "compacted"
    TIERED = "tiered"
    UNREADABLE = "unreadable"


class Event(NamedTuple):
    """One event. timestamp: when, None if nothing tells it. position: of the record that shows it.

    queue_offset: in topic/queue_id. group: of consumers. path: the file that shows the event, within the store, if that
    is not the commit log.
    """

    event: EventKind
    text: str
    timestamp: int | None = None
    position: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    group: str | None = None
    path: str | None = None

    @classmethod
    def of(cls, kind: EventKind, message: Message, text: str, group: str | None = None) -> Event:
        """Return the event that the record of a message shows, at its time and place."""
        place = (message.topic, message.queue_id, message.queue_offset)
        return cls(kind, text, message.store_timestamp, message.position, *place, group)


class DeliveryVerdict(StrEnum):
    """Why a group has a message or not: a closed list."""

    PASSED = "delivered_and_passed"
    WAITING = "waiting"
    FILTERED = "filtered"
    NOT_DISPATCHED = "not_dispatched"
    TRANSACTION = "half_or_rolled_back"
    NOT_DUE = "not_yet_due"
    NEVER_FIRES = "timer_never_fires"
    NEVER_DELIVERED = "never_delivered"
    RETRY = "in_retry_or_dlq"
    INVISIBLE = "pop_invisible"
    OFFSET_MOVED = "offset_moved"
    GONE = "expired_or_cut_off"
    UNREADABLE = "unreadable"
    NOT_SERVED = "not_served"
    UNKNOWN = "unknown"


class Evidence(NamedTuple):
    """A fact that a verdict rests on, and the file, or the place in the log, that shows it."""

    fact: str
    where: str


class Judgement(NamedTuple):
    """A verdict that is not tied to a group. bug: of brokers, such as B35, "" for none.

    until_timestamp: when the message comes, or comes back, if known. code: of the finding of `verify` that tells of the
    cause and its cure, "" for none.
    """

    verdict: DeliveryVerdict
    reason: str
    evidence: tuple[Evidence, ...] = ()
    until_timestamp: int | None = None
    bug: str = ""
    code: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the field `for_all`, and what a verdict on a group has of it."""
        return {
            "verdict": self.verdict.value,
            "reason": self.reason,
            "until_timestamp": self.until_timestamp,
            "bug": self.bug or None,
            "evidence": [one._asdict() for one in self.evidence],
        }

    def with_evidence(self, *more: Evidence) -> Judgement:
        """Return the judgement with more facts, each once."""
        return self._replace(evidence=tuple(dict.fromkeys((*self.evidence, *more))))


@dataclass(frozen=True)
class GroupVerdict:
    """The verdict on one group. next_command: shows or mends the cause, "" for none.

    topic, queue_id, queue_offset: the place that was judged, None while there is none.
    """

    group: str
    judgement: Judgement
    topic: str
    queue_id: int | None
    queue_offset: int | None
    next_command: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            **self.judgement.to_json(),
            "topic": self.topic,
            "queue_id": self.queue_id,
            "queue_offset": self.queue_offset,
            "next_command": self.next_command or None,
        }


class Fate(StrEnum):
    """What the next start of a broker does to a message."""

    KEPT = "kept"
    CUT_OFF = "cut_off"
    DISPATCHED = "dispatched"
    NOT_DISPATCHED = "not_dispatched"
    UNREADABLE = "unreadable"
    NO_START = "no_start"
    RUNNING = "running"
    NOT_PLAYED = "not_played"


class NextStart(NamedTuple):
    """What the next start does to the message. broker_version: of the simulated profile.

    broker_version_reason: why that version was guessed, None if it was given. broker_versions: all versions that fit.
    """

    fate: Fate
    reason: str
    broker_version: str | None = None
    broker_version_reason: str | None = None
    broker_versions: tuple[str, ...] = ()


@dataclass
class Trace:
    """The answer about one message. position: of its record in its topic, or of the record that stands for it; None
    without one. found_by: what was asked for; via: how it was found.

    for_all: why no group gets the message, None if nothing keeps it from all of them. other_groups: number of groups of
    config/ that nothing connects with the message.
    """

    asked: str
    found_by: str
    via: str
    topic: str = ""
    queue_id: int | None = None
    queue_offset: int | None = None
    position: int | None = None
    message_id: str | None = None
    unique_key: str | None = None
    keys: list[str] = field(default_factory=list)
    tags: str | None = None
    born_timestamp: int | None = None
    store_timestamp: int | None = None
    events: list[Event] = field(default_factory=list)
    groups: list[GroupVerdict] = field(default_factory=list)
    for_all: Judgement | None = None
    other_groups: int = 0
    next_start: NextStart | None = None
    next_commands: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        plain = {k: v for k, v in vars(self).items() if not isinstance(v, list) or k == "keys"}
        return {
            "type": "trace",
            **plain,
            "events": [event._asdict() for event in self.events],
            "groups": [group.to_json() for group in self.groups],
            "for_all": self.for_all.to_json() if self.for_all else None,
            "next_start": self.next_start._asdict() if self.next_start else None,
            "next_commands": self.next_commands,
        }
