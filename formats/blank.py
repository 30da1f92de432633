"""BLANK: closes a commit log file (spec/01-commitlog.md, 1.5).

Only the first eight bytes mean anything. total_size is the number of bytes from the start of the
BLANK to the end of the file; what follows is zeros since 4.9.1 and stale bytes before.
"""

from __future__ import annotations

from construct import Int32sb, Int32ub, Struct

MAGIC_BLANK = 0xCBD43194

BLANK = Struct(
    "total_size" / Int32sb * "bytes from here to the end of the file, at least 8", "magic_code" / Int32ub * "CBD43194"
)

#: Bytes that a writer always keeps free behind a record for a BLANK.
BLANK_BYTES = BLANK.sizeof()
assert BLANK_BYTES == 8
