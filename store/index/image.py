"""One index file while it is being filled: header, slots, and the items to write. No I/O.

The rules are those of spec/03-index.md, 3.3. One item is put without numpy, many as columns; both
give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ...formats.fixed import numbers_of
from ...formats.index_file import HEADER, ITEM, SLOT, SLOT_BYTES
from .files import Geometry, Header

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..broker.dispatch import IndexItems

    Ints = npt.NDArray[np.int64]

_SECOND_MS = 1000
_LARGEST_SECONDS = (1 << 31) - 1
PAGE_SLOTS = 1024
"""Slots that are read and written together: 4 KiB."""


class SlotTable:
    """The slots of one file, read page by page when needed, with a note of what has changed.

    read: gives the bytes of `count` slots from slot `first`; None for a new file, all zeros.
    Memory: 4 bytes a slot, of which the system supplies only the pages in use.
    """

    def __init__(self, slots: int, read: Callable[[int, int], bytes] | None = None) -> None:
        self.data = bytearray(slots * SLOT_BYTES)
        self.slots = slots
        pages = -(-slots // PAGE_SLOTS)
        self._read = read
        self._loaded = bytearray(pages) if read else None
        self._dirty = bytearray(pages)

    def load(self, pages: Iterable[int]) -> None:
        """Make sure that some pages are there."""
        if self._loaded is None or self._read is None:
            return
        for page in pages:
            if not self._loaded[page]:
                first = page * PAGE_SLOTS
                data = self._read(first, min(PAGE_SLOTS, self.slots - first))
                self.data[first * SLOT_BYTES : first * SLOT_BYTES + len(data)] = data
                self._loaded[page] = 1

    def get(self, slot: int) -> int:
        """Number of the newest item of a slot."""
        self.load((slot // PAGE_SLOTS,))
        value: int = numbers_of(SLOT).unpack_from(self.data, slot * SLOT_BYTES)[0]
        return value

    def set(self, slot: int, number: int) -> None:
        """Note a new item in a slot."""
        numbers_of(SLOT).pack_into(self.data, slot * SLOT_BYTES, number)
        self._dirty[slot // PAGE_SLOTS] = 1

    def columns(self, slots: Ints) -> npt.NDArray[np.integer]:
        """All slots as an array to read and change; those of `slots` are there, and marked."""
        import numpy as np

        from ...formats.derive import dtype_of

        pages = np.zeros(len(self._dirty), np.bool_)
        pages[slots // PAGE_SLOTS] = True
        self.load(np.flatnonzero(pages).tolist())
        np.frombuffer(self._dirty, np.uint8)[pages] = 1
        field: npt.NDArray[np.integer] = np.frombuffer(self.data, dtype_of(SLOT))["item"]
        return field

    def take_changes(self) -> Iterator[tuple[int, memoryview]]:
        """Runs of changed pages: (number of the first slot, bytes). They count as written then."""
        page = self._dirty.find(1)
        while page >= 0:
            end = self._dirty.find(0, page)
            end = len(self._dirty) if end < 0 else end
            first, last = page * PAGE_SLOTS, min(end * PAGE_SLOTS, self.slots)
            yield first, memoryview(self.data)[first * SLOT_BYTES : last * SLOT_BYTES]
            self._dirty[page:end] = bytes(end - page)
            page = self._dirty.find(1, end)


class IndexImage:
    """Header and slots of one file that takes items.

    count_every_put: hash_slot_count counts puts, as up to 4.7.0, and not slots in use.
    """

    def __init__(
        self, geometry: Geometry, header: Header, slots: SlotTable, *, count_every_put: bool
    ) -> None:
        self.geometry = geometry
        self.header = header._replace(index_count=max(header.index_count, 1))
        self.slots = slots
        self._count_every_put = count_every_put

    @classmethod
    def new(cls, geometry: Geometry, before: Header | None, *, count_every_put: bool) -> IndexImage:
        """A file without items; its times and positions are preset with the end of `before`."""
        time = max(before.end_timestamp, 0) if before else 0
        position = max(before.end_physical_offset, 0) if before else 0
        header = Header(time, time, position, position, 0, 1)
        return cls(geometry, header, SlotTable(geometry.slots), count_every_put=count_every_put)

    @property
    def full(self) -> bool:
        """No further item fits."""
        return self.header.index_count >= self.geometry.items

    @property
    def header_bytes(self) -> bytes:
        """The header as it has to be written."""
        return numbers_of(HEADER).pack(*self.header)

    def put(self, key_hash: int, physical_offset: int, store_timestamp: int) -> bytes:
        """Take one item; its bytes belong at number `header.index_count` as it was before."""
        header = self.header
        number = header.index_count
        slot = key_hash % self.geometry.slots
        previous = self.slots.get(slot)
        if not 0 < previous < number:
            previous = 0
        seconds = _seconds(store_timestamp, header.begin_timestamp)
        self.slots.set(slot, number)
        if number <= 1:
            header = header._replace(
                begin_timestamp=store_timestamp, begin_physical_offset=physical_offset
            )
        self.header = header._replace(
            end_timestamp=store_timestamp,
            end_physical_offset=physical_offset,
            hash_slot_count=header.hash_slot_count + (self._count_every_put or not previous),
            index_count=number + 1,
        )
        return numbers_of(ITEM).pack(key_hash, physical_offset, seconds, previous)

    def put_columns(self, items: IndexItems) -> tuple[int, memoryview]:
        """Take as many items as fit: how many, and their bytes, which belong where `put` says."""
        import numpy as np

        from ...formats.derive import dtype_of

        first = self.header.index_count
        count = min(len(items), self.geometry.items - first)
        taken = items.take(slice(0, count))
        out = np.zeros(count, dtype_of(ITEM))
        if not count:
            return 0, out.view(np.uint8).data
        previous = self._link(taken.key_hash % self.geometry.slots, first)
        begin = np.full(count, self.header.begin_timestamp, np.int64)
        header = self.header
        if first <= 1:
            header = header._replace(
                begin_timestamp=int(taken.store_timestamp[0]),
                begin_physical_offset=int(taken.physical_offset[0]),
            )
            begin[1:] = header.begin_timestamp
        out["key_hash"] = taken.key_hash
        out["physical_offset"] = taken.physical_offset
        out["time_diff"] = _seconds_column(taken.store_timestamp, begin)
        out["previous"] = previous
        heads = count if self._count_every_put else int(np.count_nonzero(previous == 0))
        self.header = header._replace(
            end_timestamp=int(taken.store_timestamp[-1]),
            end_physical_offset=int(taken.physical_offset[-1]),
            hash_slot_count=header.hash_slot_count + heads,
            index_count=first + count,
        )
        return count, out.view(np.uint8).data

    def _link(self, slot: Ints, first: int) -> Ints:
        """Put items `first`, `first` + 1, … into their slots: the item before each."""
        import numpy as np

        # one sort brings the items of a slot together, in their order
        shift = np.uint64(32)
        keys = slot.astype(np.uint64) << shift | np.arange(len(slot), dtype=np.uint64)
        keys.sort()
        slot = (keys >> shift).astype(np.int64)
        row = (keys & np.uint64((1 << 32) - 1)).astype(np.int64)
        number = row + first
        repeats = np.empty(len(row), np.bool_)
        repeats[0] = False
        repeats[1:] = slot[1:] == slot[:-1]
        table = self.slots.columns(slot)
        before = np.empty(len(row), np.int64)
        before[1:] = number[:-1]
        heads = np.flatnonzero(~repeats)
        found = table[slot[heads]].astype(np.int64)
        before[heads] = np.where((found > 0) & (found < number[heads]), found, 0)
        last = np.append(heads[1:], len(row)) - 1
        table[slot[last]] = number[last]
        previous = np.empty(len(row), np.int64)
        previous[row] = before
        return previous


def _seconds(timestamp: int, begin: int) -> int:
    """time_diff of an item: whole seconds from the file's begin, 0 before it or without one."""
    if begin <= 0 or timestamp < begin:
        return 0
    return min((timestamp - begin) // _SECOND_MS, _LARGEST_SECONDS)


def _seconds_column(timestamp: Ints, begin: Ints) -> Ints:
    import numpy as np

    seconds = np.clip((timestamp - begin) // _SECOND_MS, 0, _LARGEST_SECONDS)
    return np.where(begin > 0, seconds, 0)
