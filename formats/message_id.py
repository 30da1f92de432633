"""Offset message ids and unique keys (spec/01-commitlog.md, 1.8)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from construct import Bytes, Construct, Int16ub, Int32sb, Int32ub, Int64sb, Struct

from .primitives import IPV4_BYTES, IPV6_BYTES


def _message_id(address_bytes: int) -> Construct[Any, Any]:
    return Struct(
        "ip" / Bytes(address_bytes) * "address of the broker (store_host)",
        "port" / Int32sb * "port of the broker",
        "physical_offset" / Int64sb * "position of the record",
    )


MESSAGE_ID_V4 = _message_id(IPV4_BYTES)
MESSAGE_ID_V6 = _message_id(IPV6_BYTES)


def _unique_key(address_bytes: int) -> Construct[Any, Any]:
    return Struct(
        "ip" / Bytes(address_bytes) * "address of the client",
        "pid" / Int16ub * "process id, low 16 bits",
        "class_loader_hash" / Int32ub * "tells processes of one address apart",
        "month_ms" / Int32ub * "ms since the start of the month in the client's local time",
        "counter" / Int16ub * "wraps",
    )


UNIQUE_KEY_V4 = _unique_key(IPV4_BYTES)
UNIQUE_KEY_V6 = _unique_key(IPV6_BYTES)
_COUNTER_DIGITS = 2 * Int16ub.sizeof()
#: Distinct keys that one client can make within a millisecond.
UNIQUE_KEY_COUNTERS = 1 << 4 * _COUNTER_DIGITS


def unique_key(ip: bytes, pid: int, loader_hash: int, month_ms: int, counter: int) -> str:
    """UNIQ_KEY as the Java client makes it: upper-case hex, 32 or 56 digits."""
    head = _client_digits(ip, pid & 0xFFFF, loader_hash & 0xFFFFFFFF, month_ms & 0xFFFFFFFF)
    return f"{head}{counter % UNIQUE_KEY_COUNTERS:0{_COUNTER_DIGITS}X}"


@lru_cache(maxsize=16)
def _client_digits(ip: bytes, pid: int, loader_hash: int, month_ms: int) -> str:
    """The digits before the counter, equal in all keys that a client makes in one ms."""
    schema = UNIQUE_KEY_V6 if len(ip) == IPV6_BYTES else UNIQUE_KEY_V4
    fields = {"ip": ip, "pid": pid, "class_loader_hash": loader_hash, "month_ms": month_ms}
    data = schema.build(fields | {"counter": 0})
    return str(data.hex().upper()[:-_COUNTER_DIGITS])
