"""A client's batch: messages back to back, the body of a record with an inner batch (spec/01-commitlog.md, 1.9).

Written by `MessageDecoder.encodeMessages` of the clients. Brokers since 5.0 store it unchanged in topics with
queue.type=BatchCQ; otherwise they make a record of each message.
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
"""Most messages of a batch: a unit of a batch consume queue has a 16-bit count."""
_PROPERTIES_LENGTH_BYTES = Int16sb.sizeof()


@cache
def _body_places() -> tuple[int, int]:
    """Offsets of the body's length and of the body in a message."""
    from .derive import offset_of  # imports numpy, which reading one message does not need

    return offset_of(MESSAGE, "body_length"), offset_of(MESSAGE, "body")


def count_of(body: bytes) -> int | None:
    """Number of messages in a batch; None if the body is not a batch or its sizes do not fit."""
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
    """Where the messages of a batch begin in its body, which has to end with the last message.

    Only the lengths of bodies and properties count, as for a client; total_size is ignored. Raises ValueError for a
    body that is not a batch.
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
