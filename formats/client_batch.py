"""A client's batch: what the body of an inner batch holds, back to back (spec/01-commitlog.md, 1.9).

Written by `MessageDecoder.encodeMessages` of the clients. Brokers since 5.0 store it as it came in
topics with queue.type=BatchCQ; otherwise they make one record of each message.
"""

from __future__ import annotations

from functools import cache

from construct import Bytes, Default, Int16sb, Int32sb, Rebuild, Struct
from construct import this as _message

from .primitives import record_size_field, size_

MESSAGE = Struct(
    "total_size" / record_size_field(Int32sb) * "whole message, this field included",
    "magic_code" / Default(Int32sb, 0) * "0, which no reader looks at",
    "body_crc" / Default(Int32sb, 0) * "0, which no reader looks at",
    "flag" / Int32sb * "free for the producer",
    "body_length" / Rebuild(Int32sb, size_(_message.body)) * "bytes of the body",
    "body" / Bytes(_message.body_length) * "body",
    "properties_length" / Rebuild(Int16sb, size_(_message.properties)) * "bytes of the properties",
    "properties" / Bytes(_message.properties_length) * "name 01 value 02, repeated",
)

MESSAGES_MAX = (1 << 15) - 1
"""Most messages of a batch: a unit of a batch consume queue counts them with 16 bits."""
_PROPERTIES_LENGTH_BYTES = Int16sb.sizeof()


@cache
def _body_places() -> tuple[int, int]:
    """Where the length of a body is, and the body."""
    from .derive import offset_of  # numpy, which a message alone can do without

    return offset_of(MESSAGE, "body_length"), offset_of(MESSAGE, "body")


def count_of(body: bytes) -> int | None:
    """How many messages a batch holds, None where it is none or its sizes do not fit."""
    import numpy as np

    from .derive import decode

    try:
        starts = np.array(starts_of(body), np.int64)
    except ValueError:
        return None
    found = decode(MESSAGE, np.frombuffer(body, np.uint8), starts)
    fits = found.ints("total_size") == found.ends - starts
    fits &= (found.ints("magic_code") == 0) & (found.ints("body_crc") == 0)
    return len(starts) if fits.all() else None


def starts_of(body: bytes) -> list[int]:
    """Where the messages of a batch begin in its body, which must be theirs to the last byte.

    Goes by the lengths of bodies and properties, as a client does; total_size is not looked at.
    Raises ValueError where that does not come out.
    """
    found: list[int] = []
    at, (length_at, body_at) = 0, _body_places()
    while at < len(body):
        found.append(at)
        length = int.from_bytes(body[at + length_at : at + body_at], "big", signed=True)
        tail = at + body_at + length
        behind = tail + _PROPERTIES_LENGTH_BYTES
        more = int.from_bytes(body[tail:behind], "big", signed=True)
        if length < 0 or more < 0 or behind + more > len(body):
            raise ValueError(f"no whole message at byte {at} of {len(body)}")
        at = behind + more
    if not 0 < len(found) <= MESSAGES_MAX:
        raise ValueError(f"{len(found)} messages, not 1 to {MESSAGES_MAX}")
    return found
