"""RocksDB consume queues: 5.2+ with storeType=defaultRocksDB (spec/02-consumequeue.md, 2.10).

A RocksDB directly in `consumequeue/`. Column family `default` has one entry for each message of
a topic-queue, sorted by queue offset; `offset` has the first and the last entry of each queue, and
under the topic CHECKPOINT_TOPIC how far the log was dispatched.
"""

from __future__ import annotations

from functools import lru_cache

from construct import Bytes, ConstructError, Int8ub, Int32sb, Int64sb, Rebuild, Struct, this

from .fixed import numbers_of
from .primitives import size_

UNITS = "default"
BOUNDS = "offset"
SEPARATOR = 1
CHECKPOINT_TOPIC = b"CHECKPOINT_TOPIC"
MIN, MAX = b"min", b"max"

QUEUE = Struct(
    "topic_length" / Rebuild(Int32sb, size_(this.topic)) * "bytes of topic",
    "before_topic" / Int8ub * "1",
    "topic" / Bytes(this.topic_length) * "topic",
    "before_queue" / Int8ub * "1",
    "queue_id" / Int32sb * "queue id",
    "before_offset" / Int8ub * "1",
)
"""The beginning of the keys of a queue's units."""
UNIT_OFFSET = Struct("queue_offset" / Int64sb * "number of the message in its queue")
"""The end of a unit's key."""
UNIT_KEY = Struct(*QUEUE.subcons, *UNIT_OFFSET.subcons)
UNIT = Struct(
    "physical_offset" / Int64sb * "position of the record in the commit log",
    "size" / Int32sb * "total_size of the record",
    "tags_code" / Int64sb * "hash of TAGS, or deliver time of a delayed message",
    "store_timestamp" / Int64sb * "store time of the record in ms",
)
NUMBERED_UNIT = Struct(*UNIT_OFFSET.subcons, *UNIT.subcons)
"""A unit with its queue offset in front: a row of the temporary file from which a database is built."""
UNIT_BYTES = UNIT.sizeof()
BOUND_KEY = Struct(
    *QUEUE.subcons[:3],
    "before_bound" / Int8ub * "1",
    "bound" / Bytes(len(MAX)) * "min or max: the first or the last entry of the queue",
    *QUEUE.subcons[3:5],
)
BOUND = Struct(
    "physical_offset" / Int64sb * "position of that entry's record in the commit log",
    "queue_offset" / Int64sb * "queue offset of that entry",
)
CHECKPOINT = Struct("physical_offset" / Int64sb * "position behind the last record dispatched")
assert (UNIT_BYTES, BOUND.sizeof(), CHECKPOINT.sizeof()) == (28, 16, 8)


_KEYS = 1 << 12
"""Keys of each kind that are kept: each is asked for several times."""


@lru_cache(_KEYS)
def queue_prefix(topic: bytes, queue_id: int) -> bytes:
    """The beginning of the keys of a queue's units."""
    fields = {"topic": topic, "queue_id": queue_id}
    return bytes(QUEUE.build({**dict.fromkeys(_SEPARATORS, SEPARATOR), **fields}))


def unit_key(topic: bytes, queue_id: int, queue_offset: int) -> bytes:
    return queue_prefix(topic, queue_id) + numbers_of(UNIT_OFFSET).pack(queue_offset)


def queue_offset(key: bytes, prefix: bytes) -> int | None:
    """The queue offset in the key of a unit; None if it is not of the queue with this `prefix`."""
    if not key.startswith(prefix) or len(key) != len(prefix) + _OFFSET_BYTES:
        return None
    return int(UNIT_KEY.queue_offset.parse(key[len(prefix) :]))


@lru_cache(_KEYS)
def bound_key(topic: bytes, queue_id: int, bound: bytes) -> bytes:
    fields = {"topic": topic, "queue_id": queue_id, "bound": bound}
    return bytes(BOUND_KEY.build({**dict.fromkeys(_SEPARATORS, SEPARATOR), **fields}))


@lru_cache(_KEYS)
def queue_of(key: bytes) -> tuple[bytes, int] | None:
    """Topic and queue id in a unit's key; None for any other key."""
    try:
        found = UNIT_KEY.parse(key)
        whole = unit_key(found.topic, found.queue_id, found.queue_offset) == key
    except ConstructError:
        return None
    return (found.topic, found.queue_id) if whole else None


@lru_cache(_KEYS)
def bound_of(key: bytes) -> tuple[bytes, int] | None:
    """Topic and queue id in the key of a `max` row; None for any other key."""
    try:
        found = BOUND_KEY.parse(key)
    except ConstructError:
        return None
    if found.bound != MAX or found.topic == CHECKPOINT_TOPIC:
        return None
    return found.topic, found.queue_id


_OFFSET_BYTES = UNIT_KEY.queue_offset.sizeof()
_SEPARATORS = ("before_topic", "before_queue", "before_offset", "before_bound")
CHECKPOINT_KEY = bound_key(CHECKPOINT_TOPIC, 0, MAX)
"""Key of the row that tells how far the log is dispatched."""
