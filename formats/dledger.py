"""DLedger entry: wraps one record of the commit log (spec/01-commitlog.md, 1.13).

`dledger-SELF/data/%020d`. The body of an entry is a MESSAGE whose physical_offset is the position
of the entry + 48. A file ends with the magic -1 and the remaining size.
"""

from __future__ import annotations

from construct import Bytes, Int32sb, Int64sb, Rebuild, Struct
from construct import this as _entry

from .primitives import record_size_field, size_

MAGIC_ENTRY = 1
MAGIC_NOOP = 2
MAGIC_CONFIG_CHANGE = 3
MAGIC_BLANK = -1

ENTRY = Struct(
    "magic" / Int32sb * "1 entry, 2 no-op, 3 configuration change, -1 end of file",
    "size" / record_size_field(Int32sb) * "whole entry",
    "index" / Int64sb * "number of the entry",
    "term" / Int64sb * "term of the leader",
    "pos" / Int64sb * "own position",
    "channel" / Int32sb * "0",
    "chain_crc" / Int32sb * "0",
    "body_crc" / Int32sb * "0",
    "body_length" / Rebuild(Int32sb, size_(_entry.body)) * "bytes of the body",
    "body" / Bytes(_entry.body_length) * "one MESSAGE",
)
#: The fields before the body.
HEAD = Struct(*ENTRY.subcons[:-1])
HEADER_BYTES = HEAD.sizeof()

BLANK = Struct("magic" / Int32sb * "-1", "size" / Int32sb * "bytes from here to the end of the file")
assert BLANK.sizeof() == 8
