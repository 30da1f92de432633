"""What is held of index files while the log is read does not grow with them."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats.derive import dtype_of
from mqstore.formats.index_file import ITEM
from mqstore.store.index.read import WINDOW_ITEMS, Header, IndexFile
from mqstore.store.verify.index_log import ItemCursor, Picked, key_of, surplus

from ...slices import examples

RECORD_BYTES = 64
BATCH_RECORDS = 1 << 14
WINDOW_BYTES = WINDOW_ITEMS * 6 * 8
"""What a window takes once it is picked."""


class MadeFile:
    """An index file with an item for each record, which holds nothing: windows are made when asked for.

    first, records: those it has. lives: so often a broker has put all of them into it.
    """

    def __init__(self, records: int, *, first: int = 0, lives: int = 1) -> None:
        self._first, self._records, self._items = first, records, records * lives
        self.header = Header(1, 1, first * RECORD_BYTES, 0, 0, self._items + 1)

    def columns(self, first: int = 1) -> Iterator[tuple[int, Any]]:
        """As of an index file."""
        for number in range(first, self._items + 1, WINDOW_ITEMS):
            count = min(WINDOW_ITEMS, self._items + 1 - number)
            items = np.zeros(count, dtype_of(ITEM))
            record = self._first + (number - 1 + np.arange(count)) % self._records
            items["physical_offset"] = record * RECORD_BYTES
            yield number, items

    def close(self) -> None:
        """Nothing is open."""


def opened(file: MadeFile) -> ItemCursor:
    """Its items, from the first on."""
    return ItemCursor(cast(IndexFile, file), 0, None)


def read(cursors: list[ItemCursor], records: int) -> tuple[int, int, int]:
    """Take the items of all records, batch by batch: how many were those of a batch, how many of records
    before it, and the most bytes that were held.
    """
    taken, stray = 0, 0

    def add(items: Picked) -> None:
        nonlocal stray
        stray += len(items)

    tracemalloc.start()
    try:
        for first in range(0, records, BATCH_RECORDS):
            stop = min(first + BATCH_RECORDS, records)
            begin, end = first * RECORD_BYTES, stop * RECORD_BYTES
            for cursor in cursors:
                idle = cursor.idle_until >= end
                items = cursor.take(begin, end, add)
                assert not (idle and len(items))
                assert ((items.position >= begin) & (items.position < end)).all()
                taken += len(items)
        taken += sum(len(items) for cursor in cursors for items in cursor.rest())
        return taken, stray, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("records", [4 * WINDOW_ITEMS + 5, 24 * WINDOW_ITEMS + 5])
def test_an_index_that_was_started_over_is_not_held(records: int) -> None:
    """Behind the items of the last record come those of the first one again, all of them."""
    taken, stray, peak = read([opened(MadeFile(records, lives=2))], records)
    assert taken + stray == 2 * records
    assert stray > records - 2 * WINDOW_ITEMS, "items of records long gone wait for the end"
    assert peak < 8 * WINDOW_BYTES, f"{peak >> 20} MiB held of {2 * records} items"


def test_of_many_files_those_that_come_later_are_not_held() -> None:
    of_each, number = WINDOW_ITEMS, 20
    files = [opened(MadeFile(of_each, first=n * of_each)) for n in range(number)]
    taken, stray, peak = read(files, of_each * number)
    assert (taken, stray) == (of_each * number, 0)
    assert peak < 8 * WINDOW_BYTES, f"{peak >> 20} MiB held of {number} files"


def test_of_many_files_few_have_something_for_a_batch() -> None:
    of_each, number = 1000, 100
    cursors = [opened(MadeFile(of_each, first=n * of_each)) for n in range(number)]
    asked = 0
    for end in range(of_each, number * of_each + 1, of_each):
        awake = [cursor for cursor in cursors if cursor.idle_until < end * RECORD_BYTES]
        asked += len(awake)
        taken = [cursor.take(0, end * RECORD_BYTES, lambda _: None) for cursor in awake]
        assert sum(map(len, taken)) == of_each
    assert asked < 4 * number


@settings(max_examples=examples(40))
@given(st.lists(st.integers(0, 6)), st.lists(st.integers(0, 6)))
def test_surplus_is_a_difference_of_multisets(one: list[int], other: list[int]) -> None:
    rows = surplus(np.array(one, np.int64), np.array(other, np.int64))
    left = Counter(np.array(one, np.int64)[rows].tolist())
    assert left == Counter(one) - Counter(other)


def test_keys_are_different_where_positions_or_hashes_are() -> None:
    pairs = [(0, 0), (0, 1), (1, 0), (1, (1 << 31) - 1), (1 << 31, 5)]
    position, key_hash = np.array(pairs, np.int64).T
    assert len(set(key_of(position, key_hash).tolist())) == len(pairs)
