"""Segments of the tiered index: keys of the messages in the tiered store, 5.1+.

`HASH_CLUSTER/CLUSTER/BROKER/rmq_sys_INDEX/0/INDEX/`, names as of the tiered commit log. Each segment is
one sealed index file: header, hash slots, items; the items of one slot lie together. The first slot
tells where the slots end: its items are the first. Not every item that the header counts is
there: 5.3.3 cuts the file, 5.5.0 leaves zeros at its end. An index that is still written to lies
in `tiered_index_file/` and looks otherwise. Sealed ones of 5.1 differ (empty slots of zeros, time_diff in ms, 4 bytes
behind the items; by source): they are not read.
"""

from __future__ import annotations

from construct import Int32sb, Int32ub, Int64sb, Struct

MAGIC_SEALED = 0xBCC50285

HEADER = Struct(
    "magic" / Int32ub * "BCC50285 sealed",
    "begin_timestamp" / Int64sb * "when the file was begun, ms since 1970",
    "end_timestamp" / Int64sb * "latest store time of its messages, ms since 1970",
    "slot_count" / Int32sb * "slots in use",
    "item_count" / Int32sb * "items that were put",
)
SLOT = Struct(
    "position" / Int32sb * "byte of the segment where its items begin", "length" / Int32sb * "bytes of its items"
)
ITEM = Struct(
    "hash_code" / Int32sb * "hash of topic#key, not negative",
    "topic_id" / Int32sb * "number of the topic in tieredStoreMetadata.json",
    "queue_id" / Int32sb * "queue of the topic",
    "offset" / Int64sb * "position of the record in the tiered commit log of the queue",
    "size" / Int32sb * "total_size of the record",
    "time_diff" / Int32sb * "store time less begin_timestamp in seconds (5.1, not sealed: ms)",
)
HEADER_BYTES = HEADER.sizeof()
SLOT_BYTES = SLOT.sizeof()
ITEM_BYTES = ITEM.sizeof()
assert (HEADER_BYTES, SLOT_BYTES, ITEM_BYTES) == (28, 8, 28)


#: The header and the first slot.
HEAD = Struct("header" / HEADER, "first_slot" / SLOT)


def slots_of(size: int, first_position: int) -> int | None:
    """Number of slots in a segment of `size` bytes whose first slot has this position; None if impossible."""
    slots, rest = divmod(first_position - HEADER_BYTES, SLOT_BYTES)
    whole = rest == 0 and (size - first_position) % ITEM_BYTES == 0
    return slots if whole and slots > 0 and first_position <= size else None


def items_offset(slots: int) -> int:
    """Byte where the first item begins."""
    return HEADER_BYTES + slots * SLOT_BYTES
