"""Index files of the tiered store on the broker's disk, until they are compacted, 5.1+.

`tiered_index_file/TIMESTAMP` below storePathRootDir: header, hash slots, items. Items are numbered from
1, the room of number 0 stays empty; a slot leads to its newest item, and each item to the one before it.
5.1 has `0000`, and `1111` for a full one: items are numbered from 0, -1 is none, 16 bytes follow.
The file has its full size from the start, and nothing in it says how many slots there are
(tieredStoreIndexFileMaxHashSlotNum). The hash -2^31 has no slot: its item is never found, and lost when
the file is compacted. When it is compacted it becomes what `tiered-index` is, in
`tiered_index_file/compacting/`.
"""

from __future__ import annotations

from construct import Int32sb, Int32ub, Struct

from .tiered_index import HEADER as SEALED_HEADER
from .tiered_index import HEADER_BYTES, ITEM_BYTES, MAGIC_SEALED
from .tiered_index import ITEM as SEALED_ITEM

MAGIC_OPEN = 0xBCC50289
MAGIC_FULL = MAGIC_SEALED
"""Magic of a file with its last item; its slots and items are unchanged."""
DEFAULT_SLOTS = 5_000_000
"""Default of tieredStoreIndexFileMaxHashSlotNum."""

HEADER = Struct(
    "magic" / SEALED_HEADER.magic.subcon * "BCC50289 takes items, BCC50285 full", *SEALED_HEADER.subcons[1:]
)
SLOT = Struct("item" / Int32sb * "number of its newest item, 0 for none (5.1: -1)", "unused" / Int32sb * "zeros")
ITEM = Struct(
    *SEALED_ITEM.subcons, "previous" / Int32sb * "number of the item before it in its slot, 0 for none (5.1: -1)"
)
SLOT_BYTES = SLOT.sizeof()
OPEN_ITEM_BYTES = ITEM.sizeof()
END = Struct("mark" / Int32ub * "FFFFFFFF takes items, BCC50285 full")
"""The last bytes of a file of 5.1. The last ones of others are of an item, whose `previous` is never negative."""
END_MARKS = (0xFFFFFFFF, MAGIC_FULL)
END_BYTES = 16
"""Bytes behind the items of 5.1, with END."""
assert (HEADER.sizeof(), SLOT_BYTES, OPEN_ITEM_BYTES) == (HEADER_BYTES, 8, ITEM_BYTES + 4)


def items_offset(slots: int) -> int:
    """Byte where the room of item 0 begins."""
    return HEADER_BYTES + slots * SLOT_BYTES


def items_of(size: int, slots: int) -> int | None:
    """Number of items that fit into a file, the unused number 0 included; None for an impossible size."""
    room, rest = divmod(size - items_offset(slots), OPEN_ITEM_BYTES)
    return room if slots > 0 and room > 0 and rest == 0 else None


def slots_by_last_byte(size: int, count: int, last: int) -> int | None:
    """Number of slots of a file whose last byte that is not zero, at `last`, is in item `count`; None if none fits.

    That byte is in the item's size, which is never 0, or behind it. The size of the file leaves one number of slots.
    """
    least = last - (count + 1) * OPEN_ITEM_BYTES + 1
    if count < 0:
        return None
    for begin in range(max(least, HEADER_BYTES), last - count * OPEN_ITEM_BYTES - _SIZE_AT + 1):
        slots, rest = divmod(begin - HEADER_BYTES, SLOT_BYTES)
        if rest == 0 and items_of(size, slots) is not None:
            return slots
    return None


_SIZE_AT = sum(field.sizeof() for field in ITEM.subcons[: [*ITEM._subcons].index("size")])
