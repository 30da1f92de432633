"""What a tombstone has to hold so that the service that reads its topic passes over it.

A plain tombstone stops some of a broker's own services for ever: the timer of every version, a
delay level of 4.9, the op progress of 4.9, POP's revive service of 5.1. Measured with the real
services (spec 9.9).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...formats.message import SMALLEST, TOPIC_BYTES_MAX_V1
from ...formats.message_properties import (
    CRC_ITEM_BYTES,
    INNER_BASE,
    INNER_NUM,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    format_properties,
)
from ...formats.pop import REVIVE_TOPIC
from ...formats.tombstone import FILLER_TOPIC, LOST_ITEM
from ..broker.delay_level import SCHEDULE_TOPIC, TIMER_TOPIC

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
_SERVICE_TOPICS = (TIMER_TOPIC, SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, REVIVE_TOPIC)
_SERVICE_PREFIXES = tuple(topic.encode() for topic in _SERVICE_TOPICS)
_OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
_TIMER_DELETE = "TIMER_DEL_UNIQKEY"
_SECOND_MS = 1000
_PLAIN_GENERATION = "4.3"
"""The only generation whose delay service drops a message that names no topic."""


def is_for_service(topic: bytes) -> bool:
    """A service of the broker reads this topic, and may stop at a record without properties."""
    return topic.startswith(_SERVICE_PREFIXES)


@dataclass(frozen=True)
class Form:
    """Property text behind the mark; born_timestamp: ms, None takes the store time.

    small: the text where the lost record had no room for that beside the mark.
    """

    properties: bytes = b""
    small: bytes = b""
    born_timestamp: int | None = None

    def text(self, room: int) -> bytes:
        """The text that leaves place for the mark in `room` bytes; the smallest may not."""
        return self.properties if room >= len(LOST_ITEM) + len(self.properties) else self.small


def batch_text(queue_offset: int, messages: int) -> bytes:
    """Properties of a record that stands for several messages, "" for a single one.

    Without them the queue would have a hole, where a broker gives the batch before it again.
    """
    if messages < 2:
        return b""
    return format_properties({INNER_NUM: str(messages), INNER_BASE: str(queue_offset)})


NO_OFFSET = b"-1"
"""Body of an op record that names no half message."""


@dataclass(frozen=True)
class Forms:
    """How this store's tombstones look.

    made_ms: when the plan was made. generations: that may start on the store. lost_tag: tag of
    ordinary tombstones. append_crc: records carry a CRC over the whole of them.
    """

    made_ms: int
    generations: tuple[str, ...] = ()
    lost_tag: str = ""
    append_crc: bool = False

    def of(self, topic: str) -> Form:
        """The form for a topic."""
        if topic == TIMER_TOPIC:
            return _only(self._timer())
        if topic == SCHEDULE_TOPIC:
            return self._schedule()
        if topic == OP_TOPIC:
            return _only(format_properties({TAGS: "d"}))
        if topic.startswith(REVIVE_TOPIC):
            return _only(
                format_properties({TIMER_DELIVER_MS: "0"})
            )  # of no check point, so no time
        if topic == HALF_TOPIC:
            # older than any check waits for: written to TRANS_CHECK_MAX_TIME_TOPIC at once
            return Form(born_timestamp=1)
        text = format_properties({TAGS: self.lost_tag}) if self.lost_tag else b""
        return Form(text)

    def smallest(self, topic: str) -> int:
        """Bytes of the smallest tombstone of a topic; the mark is left out where it is too small."""
        size = len(topic.encode("utf-8", "surrogateescape"))
        around = SMALLEST + size + (size > TOPIC_BYTES_MAX_V1)
        around += CRC_ITEM_BYTES if self.append_crc else 0
        if topic == OP_TOPIC:
            around += len(LOST_ITEM) + len(NO_OFFSET)
        return around + len(self.of(topic).small)

    def whole(self, topic: str) -> int:
        """Bytes of the smallest tombstone of a topic that has room for mark and properties."""
        form = self.of(topic)
        return self.smallest(topic) + len(LOST_ITEM) + len(form.properties) - len(form.small)

    def _timer(self) -> bytes:
        """A request to delete a message that nobody has, due now."""
        due = self.made_ms // _SECOND_MS * _SECOND_MS
        target = {_TIMER_DELETE: "x", REAL_TOPIC: "x", REAL_QID: "0"}
        return format_properties({TIMER_OUT_MS: str(due), **target})

    def _schedule(self) -> Form:
        """For a topic that the delay service discards; what fits all, where the version is open.

        A record without a unique key may be too small for either. Every version passes a tombstone
        for the topic of fillers, and writes it there, where nobody reads: no delayed record has
        less than such properties.
        """
        if set(self.generations) == {_PLAIN_GENERATION}:
            return Form()
        open_question = not self.generations or _PLAIN_GENERATION in self.generations
        topic = _OFFSET_MOVED_TOPIC if open_question else HALF_TOPIC
        return Form(_for_topic(topic), small=_for_topic(FILLER_TOPIC.decode()))


def _only(properties: bytes) -> Form:
    """A form that has no smaller one."""
    return Form(properties, small=properties)


def _for_topic(topic: str) -> bytes:
    """The properties of a delayed message for queue 0 of a topic."""
    return format_properties({REAL_TOPIC: topic, REAL_QID: "0"})
