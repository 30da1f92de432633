"""A RocksDB of a broker: consume queues, rocksdbstore/, topics, groups, offsets, 5.2+ (spec 02, 05).

With storeType=defaultRocksDB. `dump` shows the entries of all column families; those that it knows as
what they are, all others as the bytes of key and value.
"""

from __future__ import annotations

from construct import Int8ul, Int16ul, Int32ul, Struct

MANIFEST_BLOCK_BYTES = 1 << 15
"""A MANIFEST is a row of blocks; what is left of one and has no room for the head of a part is padding."""
MANIFEST_PART = Struct(
    "crc" / Int32ul * "masked CRC-32C of type and data",
    "length" / Int16ul * "bytes of data that follow",
    "type" / Int8ul * "1: a whole record; 2, 3, 4: its first, an inner, its last part; 0: padding",
)
"""What a part of a record begins with."""
RECYCLED_TYPES = frozenset({5, 6, 7, 8, 11})
"""Types of parts in log files that are used again. No MANIFEST is."""
