"""The index of a DLedger log: where each entry lies, all versions (spec/01-commitlog.md, 1.13).

`dledger-SELF/index/%020d`. The unit of entry i is at byte i * 32 of the stream; a file has room for
5 x 2^20 units, however many it holds.
"""

from __future__ import annotations

from construct import Int32sb, Int64sb, Struct

UNIT = Struct(
    "magic" / Int32sb * "that of the entry: 1 entry, 2 no-op, 3 configuration change",
    "pos" / Int64sb * "position of the entry",
    "size" / Int32sb * "bytes of the entry",
    "index" / Int64sb * "number of the entry",
    "term" / Int64sb * "term of the leader",
)
UNIT_BYTES = UNIT.sizeof()
FILE_BYTES = 5 * (1 << 20) * UNIT_BYTES
assert (UNIT_BYTES, FILE_BYTES) == (32, 167_772_160)
