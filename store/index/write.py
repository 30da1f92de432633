"""Write index files: create them, roll over, write items, slots and headers (spec 03, 3.3).

`IndexImage` is an index file in memory while it is being filled: header, slots, and the items to write. A single item
is put without numpy, many as columns; both ways give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ...formats.fixed import numbers_of, tuple_of
from ...formats.index_file import (
    HEADER,
    HEADER_BYTES,
    ITEM,
    ITEM_BYTES,
    NAME_DIGITS,
    SLOT,
    SLOT_BYTES,
    file_size,
    items_offset,
    slots_offset,
)
from ..counted import counted
from ..disk.byte_reader import zeros
from ..disk.files import Files, OpenFile
from ..disk.layout import Layout
from ..errors import InvalidInput
from .read import Geometry, Header, sizes_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ...formats.derive.ragged import Ints
    from ..broker.dispatch import IndexItems


_SECOND_MS = 1000
_SECONDS_MAX = (1 << 31) - 1
PAGE_SLOTS = 1024
"""Slots of one page, 4 KiB, which is read and written as a whole."""


class SlotTable:
    """The slots of one file, read page by page when needed; tracks changed pages.

    read: gives the bytes of `count` slots from slot `first` on; None for a new file, all zeros. Memory: 4 bytes a slot,
    of which the system supplies only the pages in use.
    """

    def __init__(self, slots: int, read: Callable[[int, int], bytes] | None = None) -> None:
        self.data = zeros(max(1, slots) * SLOT_BYTES)
        self.slots = slots
        pages = -(-slots // PAGE_SLOTS)
        self._read = read
        self._loaded = bytearray(pages) if read else None
        self._dirty = bytearray(pages)

    def load(self, pages: Iterable[int]) -> None:
        """Read the pages that are not in memory yet."""
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
        """Set the newest item of a slot, whose page must be loaded."""
        numbers_of(SLOT).pack_into(self.data, slot * SLOT_BYTES, number)
        self._dirty[slot // PAGE_SLOTS] = 1

    def columns(self, slots: Ints) -> npt.NDArray[np.integer]:
        """All slots as an array to read and change; the pages of `slots` are loaded, and marked as changed."""
        import numpy as np

        from ...formats.derive import dtype_of

        pages = np.zeros(len(self._dirty), np.bool_)
        pages[slots // PAGE_SLOTS] = True
        self.load(np.flatnonzero(pages).tolist())
        np.frombuffer(self._dirty, np.uint8)[pages] = 1
        field: npt.NDArray[np.integer] = np.frombuffer(self.data, dtype_of(SLOT))["item"]
        return field

    def take_changes(self) -> Iterator[tuple[int, memoryview]]:
        """Yield runs of changed pages as (number of the first slot, bytes), and mark them as written."""
        page = self._dirty.find(1)
        while page >= 0:
            end = self._dirty.find(0, page)
            end = len(self._dirty) if end < 0 else end
            first, last = page * PAGE_SLOTS, min(end * PAGE_SLOTS, self.slots)
            yield first, memoryview(self.data)[first * SLOT_BYTES : last * SLOT_BYTES]
            self._dirty[page:end] = bytes(end - page)
            page = self._dirty.find(1, end)


class IndexImage:
    """Header and slots of a file that takes items.

    count_every_put: hash_slot_count counts puts, as up to 4.7.0, instead of slots in use.
    """

    def __init__(self, geometry: Geometry, header: Header, slots: SlotTable, *, count_every_put: bool) -> None:
        self.geometry = geometry
        self.header = header._replace(index_count=max(header.index_count, 1))
        self.slots = slots
        self._count_every_put = count_every_put

    @classmethod
    def new(cls, geometry: Geometry, before: Header | None, *, count_every_put: bool) -> IndexImage:
        """A file without items, its times and positions preset with the end of `before`."""
        time = max(before.end_timestamp, 0) if before else 0
        position = max(before.end_physical_offset, 0) if before else 0
        header = Header(time, time, position, position, 0, 1)
        return cls(geometry, header, SlotTable(geometry.slots), count_every_put=count_every_put)

    @property
    def full(self) -> bool:
        """Whether no further item fits."""
        return self.header.index_count >= self.geometry.items

    @property
    def header_bytes(self) -> bytes:
        return numbers_of(HEADER).pack(*self.header)

    def put(self, key_hash: int, physical_offset: int, store_timestamp: int) -> bytes:
        """Add one item and return its bytes, which belong at the `header.index_count` from before the call."""
        header = self.header
        number = header.index_count
        slot = key_hash % self.geometry.slots
        previous = self.slots.get(slot)
        if not 0 < previous < number:
            previous = 0
        seconds = _seconds(store_timestamp, header.begin_timestamp)
        self.slots.set(slot, number)
        if number <= 1:
            header = header._replace(begin_timestamp=store_timestamp, begin_physical_offset=physical_offset)
        self.header = header._replace(
            end_timestamp=store_timestamp,
            end_physical_offset=physical_offset,
            hash_slot_count=header.hash_slot_count + (self._count_every_put or not previous),
            index_count=number + 1,
        )
        return numbers_of(ITEM).pack(key_hash, physical_offset, seconds, previous)

    def put_columns(self, items: IndexItems) -> tuple[int, memoryview]:
        """Add as many items as fit. Returns how many, and their bytes, which belong where `put` says."""
        import numpy as np

        from ...formats.derive import dtype_of

        first = self.header.index_count
        count = min(len(items), self.geometry.items - first)
        fitting = items.take(slice(0, count))
        out = np.zeros(count, dtype_of(ITEM))
        if not count:
            return 0, out.view(np.uint8).data
        previous = self._link(fitting.key_hash % self.geometry.slots, first)
        begin = np.full(count, self.header.begin_timestamp, np.int64)
        header = self.header
        if first <= 1:
            header = header._replace(
                begin_timestamp=int(fitting.store_timestamp[0]), begin_physical_offset=int(fitting.physical_offset[0])
            )
            begin[1:] = header.begin_timestamp
        out["key_hash"] = fitting.key_hash
        out["physical_offset"] = fitting.physical_offset
        seconds = np.clip((fitting.store_timestamp - begin) // _SECOND_MS, 0, _SECONDS_MAX)
        out["time_diff"] = np.where(begin > 0, seconds, 0)
        out["previous"] = previous
        heads = count if self._count_every_put else int(np.count_nonzero(previous == 0))
        self.header = header._replace(
            end_timestamp=int(fitting.store_timestamp[-1]),
            end_physical_offset=int(fitting.physical_offset[-1]),
            hash_slot_count=header.hash_slot_count + heads,
            index_count=first + count,
        )
        return count, out.view(np.uint8).data

    def _link(self, slot: Ints, first: int) -> Ints:
        """Put items `first`, `first` + 1, … into slots `slot`; return the previous item in the slot of each."""
        import numpy as np

        # one sort groups the items by slot and keeps their order
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
    """time_diff of an item: whole seconds since the file's begin; 0 if it is earlier, or the file has no begin."""
    if begin <= 0 or timestamp < begin:
        return 0
    return min((timestamp - begin) // _SECOND_MS, _SECONDS_MAX)


_NAME_FORMAT = "%Y%m%d%H%M%S%f"
_MILLISECOND = timedelta(milliseconds=1)


def file_name(now: datetime, last: str = "") -> str:
    """Name of a file created `now` (local time): yyyyMMddHHmmssSSS, always above `last`.

    Brokers give the same name to two files made within a millisecond, and lose the first.
    """
    name = now.strftime(_NAME_FORMAT)[:NAME_DIGITS]
    if name > last:
        return name
    try:
        before = datetime.strptime(last, _NAME_FORMAT)
    except ValueError:
        return str(int(last) + 1).zfill(NAME_DIGITS)
    return (before + _MILLISECOND).strftime(_NAME_FORMAT)[:NAME_DIGITS]


class IndexWriter:
    """Appends items to the newest index file of a directory, and begins new files.

    Items are written at once, slots and header only by `flush`, which makes the items count. now: the clock for file
    names, local time. count_every_put: see `IndexImage`. before, behind: header and name of the full file before the
    first one, if that file lies elsewhere.
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        geometry: Geometry,
        *,
        count_every_put: bool = False,
        now: Callable[[], datetime] = datetime.now,
        before: Header | None = None,
        behind: str = "",
    ) -> None:
        if geometry.slots <= 0 or geometry.items <= 1:
            raise InvalidInput(f"index of {counted(geometry.slots, 'slot')} and {counted(geometry.items, 'item')}")
        self.directory = directory
        #: end time of the newest file that has become full, None without one
        self.full_end_timestamp: int | None = None
        self._files = files
        self._geometry = geometry
        self._count_every_put = count_every_put
        self._now = now
        self._before, self._behind = before, behind
        self._newest = self._find_newest()
        self._file: OpenFile | None = None
        self._image: IndexImage | None = None
        self._unsynced: set[Path] = set()
        self._created = False
        #: a file was made, or has items that count now
        self.changed = False

    @classmethod
    def of(cls, files: Files, layout: Layout, *, count_every_put: bool) -> IndexWriter:
        """The writer for a store, with its sizes. Raises InvalidInput."""
        return cls(files, layout.index, sizes_of(layout).of_index, count_every_put=count_every_put)

    def _find_newest(self) -> str:
        """Name of the newest file, "" without files."""
        try:
            names = os.listdir(self.directory)  # noqa: PTH208
        except FileNotFoundError:
            return ""
        return max((n for n in names if n.isascii() and n.isdigit()), default="")

    @property
    def end_physical_offset(self) -> int:
        """Records before this log position count as indexed."""
        image = self._image or self._open_newest()
        return image.header.end_physical_offset if image else 0

    def append(self, items: IndexItems, records: int) -> None:
        """Index a batch of `records` records by their items, as columns.

        Leaves out items of records before `end_physical_offset`, as a broker does.
        """
        if not records:
            return
        done = self.end_physical_offset
        if len(items) and int(items.physical_offset.min()) < done:
            items = items.take(items.physical_offset >= done)
        last_record = int(items.record[-1]) if len(items) else -1
        while True:
            image = self._current()
            count, rows = image.put_columns(items)
            self._write_items(image, image.header.index_count - count, rows)
            items = items.take(slice(count, None))
            if not len(items):
                break
        if image.full and last_record < records - 1:
            self._current()

    def append_record(self, items: Iterable[tuple[int, int, int]]) -> None:
        """Index one record by its items (key_hash, physical_offset, store_timestamp)."""
        image = self._current()
        done = image.header.end_physical_offset
        for key_hash, physical_offset, store_timestamp in items:
            if physical_offset < done:
                return
            image = self._current()
            number = image.header.index_count
            data = image.put(key_hash, physical_offset, store_timestamp)
            self._write_items(image, number, memoryview(data))

    def _write_items(self, image: IndexImage, number: int, data: memoryview) -> None:
        if len(data):
            at = items_offset(image.geometry.slots) + number * ITEM_BYTES
            self._newest_file().pwrite(data, at)

    def _newest_file(self) -> OpenFile:
        """The newest file, opened."""
        if self._file is None:
            self._file = self._files.open(self.directory / self._newest)
            self._unsynced.add(self._file.path)
        return self._file

    def _current(self) -> IndexImage:
        """The image of the file that takes the next item; of a new file if there is none, or the last is full."""
        image = self._image or self._open_newest()
        if image is not None and not image.full:
            return image
        if image is not None:
            self.flush()
            self._newest_file().start_writing()
            self.full_end_timestamp = image.header.end_timestamp
        return self._begin_file(image.header if image else self._before)

    def _open_newest(self) -> IndexImage | None:
        if not self._newest:
            return None
        file = self._newest_file()
        whole = file_size(*self._geometry)
        if file.size < whole:
            file.truncate(whole)
        header = tuple_of(Header, HEADER, file.pread(HEADER_BYTES, 0))

        def read(first: int, count: int) -> bytes:
            return file.pread(count * SLOT_BYTES, slots_offset() + first * SLOT_BYTES)

        slots = SlotTable(self._geometry.slots, read)
        self._image = IndexImage(self._geometry, header, slots, count_every_put=self._count_every_put)
        return self._image

    def _begin_file(self, before: Header | None) -> IndexImage:
        self._close_file()
        if not self._newest:
            self._files.make_directory(self.directory)
        self.changed = True
        self._newest = file_name(self._now(), self._newest or self._behind)
        self._file = self._files.create(self.directory / self._newest)
        self._file.truncate(file_size(*self._geometry))
        self._created = True
        self._unsynced.add(self._file.path)
        self._image = IndexImage.new(self._geometry, before, count_every_put=self._count_every_put)
        self._file.pwrite(self._image.header_bytes, 0)
        return self._image

    def flush(self) -> None:
        """Write slots, then the header."""
        if self._image is None or self._file is None:
            return
        changed = False
        for first, data in self._image.slots.take_changes():
            self.changed = changed = True
            self._file.pwrite(data, slots_offset() + first * SLOT_BYTES)
        if changed:
            self._file.pwrite(self._image.header_bytes, 0)
        if self._image.full:
            self.full_end_timestamp = self._image.header.end_timestamp

    def sync(self) -> None:
        """`flush`, then bring every written file to the disk."""
        self.flush()
        for path in sorted(self._unsynced):
            with self._files.open(path) as file:
                file.sync()
        if self._created:
            self._files.sync_directory(self.directory)
        self._unsynced.clear()
        self._created = False
        if self._file is not None:
            self._unsynced.add(self._file.path)

    def close(self) -> None:
        """Close the file without flushing."""
        self._close_file()
        self._image = None

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
