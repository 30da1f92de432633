"""StoreCheckpoint: how far the store had been flushed (spec/04-checkpoint-timer.md, 4.1).

`checkpoint`, one page, the rest zero. A missing or short file counts as zeros. The first three
fields are in all versions, master_flushed_offset since 5.0.0, confirm_phy_offset since 5.1.1,
logics_physical_offset since 5.5.0; older brokers leave the later ones zero.
"""

from __future__ import annotations

from construct import Int64sb, Padded, Struct

PAGE_BYTES = 4096

FIELDS = Struct(
    "physic_msg_timestamp" / Int64sb * "store time of the last flushed record",
    "logics_msg_timestamp" / Int64sb * "store time of the last queue unit",
    "index_msg_timestamp" / Int64sb * "end time of the newest full index file",
    "master_flushed_offset" / Int64sb * "flushed offset of the master (5.0.0)",
    "confirm_phy_offset" / Int64sb * "confirmed offset, or start of the last record (5.1.1)",
    "logics_physical_offset" / Int64sb * "last record whose unit was flushed (5.5.0)",
)
CHECKPOINT = Padded(PAGE_BYTES, FIELDS)
assert FIELDS.sizeof() == 48
assert CHECKPOINT.sizeof() == PAGE_BYTES
