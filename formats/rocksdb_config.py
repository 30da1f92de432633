"""Configuration in one RocksDB (spec/05-config.md, 5.4): `config/rdb/` of configManagerVersion=v2, 5.4+.

All tables are in the column family `default`; a key begins with the number of its table. Names are
those of the real classes TableId, TablePrefix, RecordPrefix and SerializationType.
"""

from __future__ import annotations

from enum import IntEnum

from construct import Bytes, GreedyBytes, Int8ub, Int16ub, Int32sb, Int64sb, Rebuild, Struct, this

from .primitives import size_


class TableId(IntEnum):
    """Tables of the database."""

    CONSUMER_OFFSET = 1
    PULL_OFFSET = 2
    TOPIC = 3
    SUBSCRIPTION_GROUP = 4


class RecordPrefix(IntEnum):
    """Kind of an entry of a table."""

    DATA_VERSION = 1
    DATA = 2


KV_DATA_VERSION, FORBIDDEN = "kvDataVersion", "forbidden"
"""Column families of a database for one table: its version; for groups, topics that they may not consume."""
VERSION_ROW = b"kvDataVersionKey"
"""Key of a table's version, in its own column family; not with configManagerVersion=v2."""
HEAD = Struct(
    "table_prefix" / Int8ub * "1",
    "table_id" / Int16ub * "1 consumer offset, 2 pull offset, 3 topic, 4 subscription group",
    "record_prefix" / Int8ub * "1 data version, 2 entry",
)
"""The beginning of every key."""
VERSION_KEY = Struct(*HEAD.subcons, "name" / GreedyBytes * "data_version")
VERSION = Struct(
    "state_version" / Int64sb * "version of the controller's state",
    "timestamp" / Int64sb * "when the table was changed, in ms",
    "counter" / Int64sb * "how often it was changed",
)
OFFSET_KEY = Struct(
    *HEAD.subcons,
    "group_length" / Rebuild(Int16ub, size_(this.group)) * "bytes of group",
    "group" / Bytes(this.group_length) * "consumer group",
    "before_topic" / Int8ub * "1",
    "topic_length" / Rebuild(Int16ub, size_(this.topic)) * "bytes of topic",
    "topic" / Bytes(this.topic_length) * "topic",
    "before_queue" / Int8ub * "1",
    "queue_id" / Int32sb * "queue id",
)
OFFSET = Struct("offset" / Int64sb * "queue offset of the next message to consume")
ENTRY_KEY = Struct(
    *HEAD.subcons,
    "name_length" / Rebuild(Int16ub, size_(this.name)) * "bytes of name",
    "name" / Bytes(this.name_length) * "topic or group",
)
ENTRY = Struct(
    "serialization_type" / Int8ub * "1 JSON",
    "content" / GreedyBytes * "what topics.json or subscriptionGroup.json has of it",
)
JSON = 1
"""The only serialization_type known."""
assert (HEAD.sizeof(), VERSION.sizeof(), OFFSET.sizeof()) == (4, 24, 8)


def position_key(group: bytes, topic: bytes, queue_id: int, table: TableId = TableId.CONSUMER_OFFSET) -> bytes:
    fields = {
        "table_prefix": 1,
        "table_id": int(table),
        "record_prefix": int(RecordPrefix.DATA),
        "group": group,
        "before_topic": 1,
        "topic": topic,
        "before_queue": 1,
        "queue_id": queue_id,
    }
    return bytes(OFFSET_KEY.build(fields))


def position_value(offset: int) -> bytes:
    return bytes(OFFSET.build({"offset": offset}))
