"""MESSAGE: one record of the commit log, versions 1 and 2 (spec/01-commitlog.md, 1.2).

Written by `CommitLog.DefaultAppendMessageCallback` (4.x) and `MessageExtEncoder` (5.x).
Version 2 (since 5.1.0) has a two-byte topic length; the bits BORN_V6 and STORE_V6 of sys_flag
(since 4.6.0) say that a host has a 16-byte address. 4.3.1 knows neither.

With IPv4 on both sides a version 1 record has 91 bytes + body + topic + properties.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from construct import Bytes, IfThenElse, Int8sb, Int16sb, Int32sb, Int32ub, Int64sb, Rebuild, Struct
from construct import this as _record

from . import quick
from .primitives import HOST_V4, HOST_V6, record_size_field, size_
from .sys_flag import COMPRESSION_MASK, TRANSACTION_MASK, SysFlag

__all__ = ["COMPRESSION_MASK", "TRANSACTION_MASK", "SysFlag"]

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
_BORN_V6 = int(SysFlag.BORN_V6)
_STORE_V6 = int(SysFlag.STORE_V6)

MESSAGE = Struct(
    "total_size" / record_size_field(Int32sb) * "whole record, this field included",
    "magic_code" / Int32ub * "DAA320A7 version 1, DAA320AB version 2",
    "body_crc" / Int32sb * "CRC-32 of the stored body, top bit cleared; 0 for an empty body",
    "queue_id" / Int32sb * "queue of the topic",
    "flag" / Int32sb * "free for the producer",
    "queue_offset" / Int64sb * "number of the message in its queue",
    "physical_offset" / Int64sb * "own position in the commit log",
    "sys_flag" / Int32sb * "compression, transaction state, host widths, batches",
    "born_timestamp" / Int64sb * "producer clock, ms since 1970",
    "born_host" / IfThenElse(_record.sys_flag & _BORN_V6, HOST_V6, HOST_V4) * "producer",
    "store_timestamp" / Int64sb * "broker clock, ms since 1970",
    "store_host" / IfThenElse(_record.sys_flag & _STORE_V6, HOST_V6, HOST_V4) * "broker",
    "reconsume_times" / Int32sb * "how often the message was consumed in vain",
    "prepared_transaction_offset" / Int64sb * "of a commit: position of the half message",
    "body_length" / Rebuild(Int32sb, size_(_record.body)) * "bytes of the body",
    "body" / Bytes(_record.body_length) * "body as stored",
    "topic_length"
    / Rebuild(IfThenElse(_record.magic_code == MAGIC_V2, Int16sb, Int8sb), size_(_record.topic))
    * "bytes of the topic",
    "topic" / Bytes(_record.topic_length) * "topic, UTF-8",
    "properties_length" / Rebuild(Int16sb, size_(_record.properties)) * "bytes of the properties",
    "properties" / Bytes(_record.properties_length) * "name 01 value 02, repeated",
)


#: The smallest record that a broker accepts: empty topic, body and properties (spec 1.14).
SMALLEST: int = quick.SMALLEST
#: Longest topic of version 1; like the longest property text below, by the width of its length field.
TOPIC_BYTES_MAX_V1 = 127
TOPIC_NAME = re.compile(r"[%|a-zA-Z0-9_+-]+")
"""What brokers accept as a topic; `+` is in the names of POP's retry topics."""
EARLIEST_MS, LATEST_MS = 1 << 40, 1 << 43
"""A store time before the first (in 2004) or after the second (in 2248) is not from a broker."""
PROPERTIES_BYTES_MAX = 32767
#: Most bytes of a record around its body: two IPv6 hosts, the longest topic of version 2.
BYTES_AROUND_BODY_MAX = (
    SMALLEST + 2 * (HOST_V6.sizeof() - HOST_V4.sizeof()) + Int16sb.sizeof() - Int8sb.sizeof() + 2 * PROPERTIES_BYTES_MAX
)


def ends_of_body(record: bytes, topic: bytes) -> Iterator[tuple[int, int]]:
    """Yield (end of the body, bytes of properties) for each place where the body of a record may end, whatever its
    length field says: the topic follows with its length, then the properties with theirs (spec 1.2).

    >>> list(ends_of_body(b"body" b"\\x01t" b"\\x00\\x03a\\x01b", b"t"))
    [(4, 3)]
    """
    of_topic = (Int16sb if len(topic) > TOPIC_BYTES_MAX_V1 else Int8sb).build(len(topic)) + topic
    least = max(0, len(record) - len(of_topic) - Int16sb.sizeof() - PROPERTIES_BYTES_MAX)
    at = record.find(of_topic, least)
    while at >= 0:
        behind = at + len(of_topic)
        size = len(record) - behind - Int16sb.sizeof()
        if size >= 0 and record.startswith(size.to_bytes(Int16sb.sizeof(), "big"), behind):
            yield at, size
        at = record.find(of_topic, at + 1)
