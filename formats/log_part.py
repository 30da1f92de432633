"""What a part of a log adds to queues and index: temporary files of `pipeline rebuild`, not of a broker.

One machine writes and reads them, so they are little-endian, as most machines are.
"""

from __future__ import annotations

from construct import Int32sl, Int64sl, Struct

ROW = Struct(
    "queue_offset" / Int64sl * "where in its queue",
    "physical_offset" / Int64sl * "log position of the record",
    "size" / Int32sl * "bytes of the record",
    "tags_code" / Int64sl * "hash of the tags, or what else a unit has there",
)
ITEM = Struct(
    "key_hash" / Int32sl * "hash of topic and key",
    "physical_offset" / Int64sl * "log position of the record",
    "store_timestamp" / Int64sl * "when it was stored, ms",
)
assert (ROW.sizeof(), ITEM.sizeof()) == (28, 20)
