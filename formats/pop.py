"""POP: what a 5.x broker notes of messages that consumers have, but have not acknowledged.

Check points and acknowledgements are messages of the revive topic; their bodies are JSON with short
names. They wait in the timer topic first (spec/04-checkpoint-timer.md, 4.9). The names are those of
the real classes PopCheckPoint, AckMsg and BatchAckMsg of 5.1.4, 5.3.3 and 5.5.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from construct import GreedyBytes, Int64sb, Struct

from .json_table import GROUP, JsonField
from .message import TOPIC_NAME
from .message_properties import RETRY_PREFIX

#: The revive topic is this and the name of the cluster.
REVIVE_TOPIC: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
#: Column family of `kvStore/`, the state of POP where popConsumerKVServiceEnable is on (spec 05, 5.4).
KV_STATE: Final = "popState"
#: With it a broker has `kvStore/`, from its first start on.
KV_OPTION: Final = "popConsumerKVServiceInit"
KV_KEY = Struct(
    "visibility_timestamp" / Int64sb * "until then no other consumer gets the message, in ms",
    "name" / GreedyBytes * "group@topic@, queue id in 4 bytes, @, queue offset in 8 bytes",
)
#: Tags of the messages of the revive topic.
CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
#: Property of a message in a retry topic: when it was first given to a consumer.
FIRST_POP_TIME: Final = "1ST_POP_TIME"
#: What a broker may give to a consumer at once; the bits of `bit_map`.
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
"""What tells an acknowledgement's check point."""
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
"""What is asked of the JSON in `kvStore/`; more is there (spec 05, 5.4)."""
_OPTIONAL = {"bn": "", "bm": 0, "d": [], "rp": ""}
"""What a broker takes for a member that is missing or null."""


def parse(tag: str, body: bytes) -> dict[str, Any] | None:
    """The fields of a body by their names here; None for what is no body of that tag, in strict JSON."""
    return fields_of(tag, _value(body))


def fields_of(tag: str, value: Any) -> dict[str, Any] | None:
    """The same of what a body holds."""
    return _fields(BODIES[tag], value) if tag in BODIES else None


def parse_kept(value: bytes) -> dict[str, Any] | None:
    """The fields of a value in `kvStore/` by their names here; None for what is none."""
    return _fields(KV_VALUE, _value(value))


def _value(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_topic_name(topic: str) -> bool:
    """A broker accepts it of a client, or makes it itself: a cluster, after which it names its revive topic, may be
    called by other characters, too.
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
    """A number, and each number of a list, is one that a broker can have written: as bits one may be below 0."""
    numbers = value if isinstance(value, list) else [value]
    if isinstance(value, str):
        return True
    return all(type(number) is int and (number >= 0 or field is _BITS) and field.holds(number) for number in numbers)


def key_of(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a check point and its acknowledgements have in common."""
    return tuple(fields[field.column] for field in _KEY)


def given_with(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a check point has in common with those of its messages that a broker wrote again."""
    return tuple(fields[field.column] for field in _KEY if field is not _FIRST)


def offsets_of(check_point: Mapping[str, Any]) -> Iterator[tuple[int, bool]]:
    """(queue offset, acknowledged in the check point itself) of each message of a check point."""
    count = min(check_point["num"], MOST_MESSAGES)
    differences = check_point["offsets"][:MOST_MESSAGES] or range(count)
    for number, difference in enumerate(differences[:count]):
        acknowledged = bool(check_point["bit_map"] >> number & 1)
        yield check_point["start_offset"] + difference, acknowledged


def retry_topics(topic: str, group: str) -> tuple[str, ...]:
    """Where messages go that a group did not acknowledge in time; a broker writes to one of them."""
    if topic.startswith(RETRY_PREFIX):
        return (topic,)
    return f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"
