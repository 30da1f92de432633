"""IndexFile: the hash index of keys (spec/03-index.md).

`index/yyyyMMddHHmmssSSS`: header, hash slots, items. Item 0 is never used; a slot holds the number
of its newest item, an item the number of the one before it in the same slot. All versions.
"""

from __future__ import annotations

from construct import Int32sb, Int64sb, Struct

NAME_DIGITS = 17
"""Digits of yyyyMMddHHmmssSSS."""
HEADER = Struct(
    "begin_timestamp" / Int64sb * "store time of the first indexed record",
    "end_timestamp" / Int64sb * "store time of the last indexed record",
    "begin_physical_offset" / Int64sb * "position of the first indexed record",
    "end_physical_offset" / Int64sb * "position of the last indexed record",
    "hash_slot_count" / Int32sb * "slots in use (up to 4.7.0: number of puts)",
    "index_count" / Int32sb * "next item number, starts at 1",
)
SLOT = Struct("item" / Int32sb * "number of the newest item of the slot, 0 = none")
ITEM = Struct(
    "key_hash" / Int32sb * "hash of topic#key, not negative",
    "physical_offset" / Int64sb * "position of the record",
    "time_diff" / Int32sb * "seconds since begin_timestamp",
    "previous" / Int32sb * "item before this one in the slot, 0 = none",
)
HEADER_BYTES = HEADER.sizeof()
SLOT_BYTES = SLOT.sizeof()
ITEM_BYTES = ITEM.sizeof()
assert (HEADER_BYTES, SLOT_BYTES, ITEM_BYTES) == (40, 4, 20)


def slots_offset() -> int:
    return HEADER_BYTES


def items_offset(slots: int) -> int:
    """Byte where item 0 would be; the first item is 1."""
    return HEADER_BYTES + slots * SLOT_BYTES


def file_size(slots: int, items: int) -> int:
    """Length in bytes of a file with so many slots and items."""
    return items_offset(slots) + items * ITEM_BYTES


def items_of(size: int, slots: int) -> int:
    """Number of items that fit into a file of `size` bytes with `slots` slots."""
    return max(0, (size - items_offset(slots)) // ITEM_BYTES)
