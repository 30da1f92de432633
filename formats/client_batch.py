"""A client's batch: what the body of an inner batch holds, back to back (spec/01-commitlog.md, 1.9).

Written by `MessageDecoder.encodeMessages` of the clients. Brokers since 5.0 store it as it came in
topics with queue.type=BatchCQ; otherwise they make one record of each message.
"""

from __future__ import annotations

from construct import Bytes, Const, Int16sb, Int32sb, Rebuild, Struct
from construct import this as _message

from .primitives import record_size_field, size_

MESSAGE = Struct(
    "total_size" / record_size_field(Int32sb) * "whole message, this field included",
    "magic_code" / Const(0, Int32sb) * "0",
    "body_crc" / Const(0, Int32sb) * "0",
    "flag" / Int32sb * "free for the producer",
    "body_length" / Rebuild(Int32sb, size_(_message.body)) * "bytes of the body",
    "body" / Bytes(_message.body_length) * "body",
    "properties_length" / Rebuild(Int16sb, size_(_message.properties)) * "bytes of the properties",
    "properties" / Bytes(_message.properties_length) * "name 01 value 02, repeated",
)
