"""POP: what a 5.x broker stores about messages that consumers have, but have not acknowledged.

Check points and acknowledgements are messages of the revive topic; their bodies are JSON with short names. They wait in
the timer topic first (spec/04-checkpoint-timer.md, 4.9). The names are those of the real classes PopCheckPoint, AckMsg
and BatchAckMsg of 5.1.4, 5.3.3 and 5.5.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from construct import GreedyBytes, Int64sb, Struct

from .json_table import GROUP, JsonField
from .message import TOPIC_NAME
from .message_properties import RETRY_PREFIX

#: Prefix of the revive topic; the name of the cluster follows.
REVIVE_TOPIC: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
#: Column family of `kvStore/`, the state of POP with popConsumerKVServiceEnable (spec 05, 5.4).
KV_STATE: Final = "popState"
#: Option with which a broker has `kvStore/`, from its first start on.
KV_OPTION: Final = "popConsumerKVServiceInit"
KV_KEY = Struct(
    "visibility_timestamp" / Int64sb * "until then no other consumer gets the message, in ms",
    "name" / GreedyBytes * "group@topic@, queue id in 4 bytes, @, queue offset in 8 bytes",
)
#: Tags of the messages of the revive topic.
CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
#: Property of a message in a retry topic: when a consumer got it first.
FIRST_POP_TIME: Final = "1ST_POP_TIME"
#: Most messages that a broker gives to a consumer at once; the bits of `bit_map`.
MOST_MESSAGES: Final = 32

_FIRST = JsonField("so", "integer", "queue offset of the first message", "start_offset")
_KEY = (
    JsonField("t", "string", "topic", "topic"),
    JsonField("c", "string", GROUP.doc, GROUP.name),
    JsonField("q", "integer", "queue id", "queue_id", bits=32),
    _FIRST,
    JsonField("pt", "integer", "when the messages were given out, ms", "pop_time"),
    JsonField("bn", "string", "broker name", "broker_name"),
)
"""The fields by which an acknowledgement refers to its check point."""
_OFFSETS = JsonField("d", "array", "offsets less the first one; empty: in a row", "offsets", bits=32)
_BITS = JsonField("bm", "integer", "bit i: message i is acknowledged", "bit_map", bits=MOST_MESSAGES)
_REST = (
    JsonField("it", "integer", "for how long they are invisible, ms", "invisible_time"),
    JsonField("n", "integer", "number of messages", "num", bits=32),
    _BITS,
)
_AGAIN = JsonField("rp", "string", "how often a broker wrote it again, of one message alone", "re_put_times")
CHECK_POINT = (*_KEY, *_REST, _OFFSETS, _AGAIN)
ACK = (*_KEY, JsonField("ao", "integer", "queue offset of the message", "ack_offset"))
BATCH_ACK = (*_KEY, JsonField("aol", "array", "queue offsets of the messages", "ack_offsets"))
BODIES: Final[Mapping[str, tuple[JsonField, ...]]] = {
    CHECK_POINT_TAG: CHECK_POINT,
    ACK_TAG: ACK,
    BATCH_ACK_TAG: BATCH_ACK,
}
KV_VALUE = (
    JsonField("groupId", "string", GROUP.doc, "group"),
    JsonField("topicId", "string", "topic", "topic"),
    JsonField("queueId", "integer", "queue id", "queue_id"),
    JsonField("offset", "integer", "queue offset of the message", "queue_offset"),
    JsonField("popTime", "integer", "when it was given out, ms", "pop_time"),
    JsonField("invisibleTime", "integer", "for how long it is invisible, ms", "invisible_time"),
)
"""The members of the JSON in `kvStore/` that are used here; it has more (spec 05, 5.4)."""
_OPTIONAL = {"bn": "", "bm": 0, "d": [], "rp": ""}
"""Defaults that a broker takes for a member that is missing or null."""


def parse(tag: str, body: bytes) -> dict[str, Any] | None:
    """The fields of a body by their names here; None if it is not a body of this tag in strict JSON."""
    return fields_of(tag, _value(body))


def fields_of(tag: str, value: Any) -> dict[str, Any] | None:
    """`parse` for a body that is already parsed JSON."""
    return _fields(BODIES[tag], value) if tag in BODIES else None


def parse_kept(value: bytes) -> dict[str, Any] | None:
    """The fields of a value in `kvStore/` by their names here; None for any other value."""
    return _fields(KV_VALUE, _value(value))


def _value(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_topic_name(topic: str) -> bool:
    """Whether a broker accepts a topic from a client or makes it itself: the revive topic ends with the name of the
    cluster, which may have other characters, too.
    """
    return TOPIC_NAME.fullmatch(topic) is not None or (topic.startswith(REVIVE_TOPIC) and not {"/", "\0"} & set(topic))


def _fields(fields: tuple[JsonField, ...], found: Any) -> dict[str, Any] | None:
    if not isinstance(found, dict):
        return None
    values = {}
    for field in fields:
        value = found.get(field.name)
        if value is None:
            value = _OPTIONAL.get(field.name)
        if not field.fits(value) or not _in_range(field, value):
            return None
        values[field.column] = value
    return values


def _in_range(field: JsonField, value: Any) -> bool:
    """Whether numbers are in the range that a broker writes; only the bit map may be negative."""
    numbers = value if isinstance(value, list) else [value]
    if isinstance(value, str):
        return True
    return all(type(number) is int and (number >= 0 or field is _BITS) and field.holds(number) for number in numbers)


def key_of(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """The fields that a check point shares with its acknowledgements."""
    return tuple(fields[field.column] for field in _KEY)


def given_with(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """The fields that a check point shares with those that a broker rewrote for some of its messages."""
    return tuple(fields[field.column] for field in _KEY if field is not _FIRST)


def offsets_of(check_point: Mapping[str, Any]) -> Iterator[tuple[int, bool]]:
    """Yield (queue offset, whether the check point itself says acknowledged) for each message of a check point."""
    count = min(check_point["num"], MOST_MESSAGES)
    differences = check_point["offsets"][:MOST_MESSAGES] or range(count)
    for number, difference in enumerate(differences[:count]):
        acknowledged = bool(check_point["bit_map"] >> number & 1)
        yield check_point["start_offset"] + difference, acknowledged


def named_offsets(fields: Mapping[str, Any]) -> list[int]:
    """The queue offsets of the messages that a check point or an acknowledgement is about."""
    if "num" in fields:
        return [offset for offset, _ in offsets_of(fields)]
    return list(fields.get("ack_offsets", [fields.get("ack_offset")]))


def retry_topics(topic: str, group: str) -> tuple[str, ...]:
    """Topics for messages that a group did not acknowledge in time; a broker writes to one of them."""
    if topic.startswith(RETRY_PREFIX):
        return (topic,)
    return f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"
