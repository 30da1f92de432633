"""Slots of a sealed segment of the tiered index, found by its first one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.tiered_index import (
    HEAD,
    HEADER_BYTES,
    ITEM,
    ITEM_BYTES,
    MAGIC_SEALED,
    SLOT_BYTES,
    items_offset,
    slots_of,
)


@given(st.integers(1, 5000), st.integers(0, 100))
def test_slots_of_a_whole_segment(slots: int, items: int) -> None:
    """As many as lie in front of the items of the first one; no other size fits but by whole items."""
    begin = items_offset(slots)
    assert begin == HEADER_BYTES + slots * SLOT_BYTES
    size = begin + items * ITEM_BYTES
    assert slots_of(size, begin) == slots
    assert slots_of(size + 1, begin) is None
    for wrong in (begin + 1, begin - 1, begin + SLOT_BYTES // 2):
        assert slots_of(size, wrong) is None


def test_what_cannot_be() -> None:
    assert slots_of(HEADER_BYTES, HEADER_BYTES) is None, "no slot at all"
    assert slots_of(items_offset(3) - 1, items_offset(3)) is None, "items behind the end"
    assert slots_of(10_000, -28) is None and slots_of(10_000, 0) is None


def test_bytes() -> None:
    """Numbers at their places, big-endian (spec 04)."""
    head = HEAD.parse(bytes.fromhex("bcc50285" + "00000000000003e8" * 2 + "0000000100000002" + "0000002400000038"))
    assert head.header.magic == MAGIC_SEALED
    assert (head.header.slot_count, head.header.item_count) == (1, 2)
    assert (head.first_slot.position, head.first_slot.length) == (items_offset(1), 2 * ITEM_BYTES)
    item = ITEM.parse(bytes.fromhex("00000001000000020000000300000000000000040000000500000006"))
    assert [item[name] for name in ("hash_code", "topic_id", "queue_id", "offset", "size", "time_diff")] == [
        *range(1, 7)
    ]
