"""MESSAGE: one record of the commit log, versions 1 and 2 (spec/01-commitlog.md, 1.2).

Written by `CommitLog.DefaultAppendMessageCallback` (4.x) and `MessageExtEncoder` (5.x).
Version 2 (since 5.1.0) has a two-byte topic length; the bits BORN_V6 and STORE_V6 of sys_flag
(since 4.6.0) say that a host has a 16-byte address. 4.3.1 knows neither.

With IPv4 on both sides a version 1 record has 91 bytes + body + topic + properties.
"""

from __future__ import annotations

import ipaddress
from enum import IntFlag
from functools import lru_cache

from construct import Bytes, IfThenElse, Int8sb, Int16sb, Int32sb, Int32ub, Int64sb, Rebuild, Struct
from construct import this as _record

from .primitives import HOST_V4, HOST_V6, record_size_field, size_

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB


class SysFlag(IntFlag):
    """Bits of sys_flag (spec 1.3)."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


TRANSACTION_MASK = 0xC
COMPRESSION_MASK = 0x700
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
    / Rebuild(
        IfThenElse(_record.magic_code == MAGIC_V2, Int16sb, Int8sb),
        size_(_record.topic),
    )
    * "bytes of the topic",
    "topic" / Bytes(_record.topic_length) * "topic, UTF-8",
    "properties_length" / Rebuild(Int16sb, size_(_record.properties)) * "bytes of the properties",
    "properties" / Bytes(_record.properties_length) * "name 01 value 02, repeated",
)


#: The smallest record a broker passes: empty topic, body and properties (spec 1.14).
SMALLEST = 91
#: Longest topic of version 1 and longest property text, by the width of their length fields.
TOPIC_BYTES_MAX_V1 = 127
PROPERTIES_BYTES_MAX = 32767


@lru_cache(maxsize=4096)
def host_text(ip: bytes, port: int) -> str:
    """`ip:port`, `[ip]:port` for IPv6; addresses of another length come as hex."""
    if len(ip) not in (4, 16):
        return f"{ip.hex()}:{port}"
    address = ipaddress.ip_address(ip)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def host_of(text: str) -> tuple[bytes, int]:
    """Inverse of `host_text`. Raises ValueError for anything that is not `ip:port`."""
    address, separator, port = text.rpartition(":")
    if not separator:
        raise ValueError(f"not ip:port: {text!r}")
    number = int(port)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"port out of range: {text!r}")
    return ipaddress.ip_address(address.strip("[]")).packed, number
