"""Index files of the tiered store while they are open: nothing in them says how many slots they have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import tiered_index
from mqstore.formats.tiered_index_file import (
    DEFAULT_SLOTS,
    HEADER,
    ITEM,
    OPEN_ITEM_BYTES,
    SLOT_BYTES,
    items_of,
    items_offset,
    slots_by_last_byte,
)

FIELDS = ("hash_code", "topic_id", "queue_id", "offset", "time_diff", "previous")


def test_they_differ_from_sealed_ones_in_one_field() -> None:
    assert [*ITEM._subcons][:-1] == [*tiered_index.ITEM._subcons]
    assert [*HEADER._subcons] == [*tiered_index.HEADER._subcons]
    assert HEADER.sizeof() == tiered_index.HEADER_BYTES
    assert items_offset(DEFAULT_SLOTS) == 28 + 8 * 5_000_000


@given(st.integers(1, 4000), st.integers(1, 300), st.integers(1, 31))
def test_items_of_a_file(slots: int, items: int, more: int) -> None:
    size = items_offset(slots) + items * OPEN_ITEM_BYTES
    assert items_of(size, slots) == items
    assert items_of(size + more, slots) is None
    assert items_of(size, 0) is None
    assert items_of(items_offset(slots), slots) is None


@given(
    st.integers(1, 60),
    st.integers(2, 40),
    st.data(),
    st.fixed_dictionaries({name: st.integers(0, 3) for name in FIELDS} | {"size": st.integers(1, 1 << 20)}),
)
def test_slots_are_found_by_the_last_byte_that_is_not_zero(
    slots: int, room: int, data: st.DataObject, item: dict[str, int]
) -> None:
    """Or others that fit as well: the size of the file and the last item leave one number or a few."""
    count = data.draw(st.integers(0, room - 1))
    size = items_offset(slots) + room * OPEN_ITEM_BYTES
    begin = items_offset(slots) + count * OPEN_ITEM_BYTES
    last = begin + len(ITEM.build(item).rstrip(b"\0")) - 1
    found = slots_by_last_byte(size, count, last)
    assert found is not None
    assert found == slots or items_of(size, found) is not None
    one_before = items_offset(found) + count * OPEN_ITEM_BYTES
    assert one_before <= last < one_before + OPEN_ITEM_BYTES, "the last byte is one of that item"
    assert abs(found - slots) * SLOT_BYTES < OPEN_ITEM_BYTES


@pytest.mark.parametrize(("size", "count", "last"), [(10_000, -1, 500), (100, 9, 90), (28, 1, 27)])
def test_where_none_fits(size: int, count: int, last: int) -> None:
    assert slots_by_last_byte(size, count, last) is None
