"""The RocksDB `rocksdbstore/`: timers, transactions and index items, 5.4+ (spec/04, 4.10).

Every start of a broker makes it; its column families stay empty unless timerRocksDBEnable,
transRocksDBEnable or indexRocksDBEnable is on. The index was seen as 5.4.0 and 5.5.0 write it, with two
rows besides that tell how far it goes.
"""

from __future__ import annotations

from typing import NamedTuple

from construct import GreedyBytes, Int32sb, Int64sb, Struct

INDEX, TIMER, TRANSACTION = "default", "timer", "trans"

TIMER_KEY = Struct(
    "delay_time" / Int64sb * "when the message is due, in ms", "unique_key" / GreedyBytes * "unique key of the message"
)
TIMER_VALUE = Struct(
    "size" / Int32sb * "total_size of the record",
    "physical_offset" / Int64sb * "position of the record in the commit log",
)
TRANSACTION_KEY = Struct(
    "physical_offset" / Int64sb * "position of the half message in the commit log",
    "name" / GreedyBytes * "@topic@uniqueKey",
)
TRANSACTION_VALUE = Struct(
    "check_times" / Int32sb * "how often the producer was asked", "size" / Int32sb * "total_size of the record"
)
INDEX_KEY = Struct(
    "store_hour" / Int64sb * "hour of the store time, in ms",
    "name" / GreedyBytes * "@topic@K@key@uniq@, @topic@T@tag@uniq@ or @topic@U@uniq@, "
    "then the position of the record in the commit log, 8 bytes",
)
INDEX_VALUE = Struct("store_timestamp" / Int64sb * "store time of the record in ms")
POSITION = Struct("value" / Int64sb * "position in the commit log, or store time in ms")
"""Value of the rows lastOffsetPy and lastStoreTimeStamp, and of those of timers, whose keys are these texts."""
TIMER_QUEUE_OFFSET, TIMER_DELIVERED = b"sys_topic_scan_offset_checkpoint", b"timeline_checkpoint"
"""Rows for timers: the next offset of rmq_sys_wheel_timer/0 to read, the last time delivered."""


class IndexName(NamedTuple):
    """The parts of the name in an index key. index_type: K key, T tag, U unique key."""

    topic: bytes
    index_type: bytes
    key: bytes
    unique_key: bytes
    physical_offset: int


def index_name(name: bytes) -> IndexName | None:
    """The parts of the name in an index key, None for any other name. A topic has no @, a key may have one."""
    text, tail = name[:-_OFFSET_BYTES], name[-_OFFSET_BYTES:]
    parts = text[1:-1].split(b"@", 2)
    if len(tail) < _OFFSET_BYTES or text[:1] + text[-1:] != b"@@" or len(parts) < 3:
        return None
    topic, index_type, rest = parts
    key, _, unique_key = rest.rpartition(b"@")
    if index_type not in (b"K", b"T", b"U"):
        return None
    return IndexName(topic, index_type, key, unique_key, int(_OFFSET.parse(tail)))


def is_text_key(key: bytes) -> bool:
    """Whether a key is the text name of a row; a time or a position begins with zeros."""
    return bool(key) and key.isascii() and key.replace(b"_", b"").isalpha()


_OFFSET = Int64sb
_OFFSET_BYTES = _OFFSET.sizeof()
