"""Index files: creating them, rolling over, writing items, slots and headers (spec 03, 3.3)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ...formats.fixed import tuple_of
from ...formats.index_file import (
    HEADER,
    HEADER_BYTES,
    ITEM_BYTES,
    SLOT_BYTES,
    file_size,
    items_offset,
    slots_offset,
)
from ..counted import counted
from ..disk.files import Files, OpenFile
from ..disk.layout import Layout
from ..errors import InvalidInput
from .files import Geometry, Header
from .image import IndexImage, SlotTable
from .sizes import sizes_of

if TYPE_CHECKING:
    from ..broker.dispatch import IndexItems

NAME_DIGITS = 17
_TIME = "%Y%m%d%H%M%S%f"
_MILLISECOND = timedelta(milliseconds=1)


def file_name(now: datetime, last: str = "") -> str:
    """Name of a file that is created `now` (local time): yyyyMMddHHmmssSSS, always above `last`.

    Brokers make two files of one name within a millisecond, and lose the first.
    """
    name = now.strftime(_TIME)[:NAME_DIGITS]
    if name > last:
        return name
    try:
        before = datetime.strptime(last, _TIME)
    except ValueError:
        return str(int(last) + 1).zfill(NAME_DIGITS)
    return (before + _MILLISECOND).strftime(_TIME)[:NAME_DIGITS]


class IndexWriter:
    """Appends items to the newest index file of a directory and begins new ones.

    Items are written at once, slots and header by `flush`: until then the file is the one it was.
    now: the clock for file names, local time. count_every_put: see `IndexImage`. before: the header
    of the full file before the first one, which lies elsewhere. behind: its name.
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
            raise InvalidInput(
                f"index of {counted(geometry.slots, 'slot')} and {counted(geometry.items, 'item')}"
            )
        self.directory = directory
        #: end time of the newest file that has become full, None if none has
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

    @classmethod
    def of(cls, files: Files, layout: Layout, *, count_every_put: bool) -> IndexWriter:
        """Of a store, with its sizes. Raises InvalidInput."""
        return cls(files, layout.index, sizes_of(layout).of_index, count_every_put=count_every_put)

    def _find_newest(self) -> str:
        """Name of the newest file, empty where there is none."""
        try:
            names = os.listdir(self.directory)  # noqa: PTH208
        except FileNotFoundError:
            return ""
        return max((n for n in names if n.isascii() and n.isdigit()), default="")

    @property
    def end_physical_offset(self) -> int:
        """Records before this position count as indexed."""
        image = self._image or self._open_newest()
        return image.header.end_physical_offset if image else 0

    def append(self, items: IndexItems, records: int) -> None:
        """Index a batch of `records` records, whose items these are, as columns.

        Items of records before `end_physical_offset` are left out, as a broker does.
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
        """Index one record: its items as (key_hash, physical_offset, store_timestamp)."""
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
            self._opened().pwrite(data, at)

    def _opened(self) -> OpenFile:
        """The newest file."""
        if self._file is None:
            self._file = self._files.open(self.directory / self._newest)
            self._unsynced.add(self._file.path)
        return self._file

    def _current(self) -> IndexImage:
        """The file that takes the next item; a new one if there is none or the last is full."""
        image = self._image or self._open_newest()
        if image is not None and not image.full:
            return image
        if image is not None:
            self.flush()
            self.full_end_timestamp = image.header.end_timestamp
        return self._begin_file(image.header if image else self._before)

    def _open_newest(self) -> IndexImage | None:
        if not self._newest:
            return None
        file = self._opened()
        whole = file_size(*self._geometry)
        if file.size < whole:
            file.truncate(whole)
        header = tuple_of(Header, HEADER, file.pread(HEADER_BYTES, 0))

        def read(first: int, count: int) -> bytes:
            return file.pread(count * SLOT_BYTES, slots_offset() + first * SLOT_BYTES)

        slots = SlotTable(self._geometry.slots, read)
        self._image = IndexImage(
            self._geometry, header, slots, count_every_put=self._count_every_put
        )
        return self._image

    def _begin_file(self, before: Header | None) -> IndexImage:
        self._close_file()
        if not self._newest:
            self._files.make_directory(self.directory)
        self._newest = file_name(self._now(), self._newest or self._behind)
        self._file = self._files.create(self.directory / self._newest)
        self._file.truncate(file_size(*self._geometry))
        self._created = True
        self._unsynced.add(self._file.path)
        self._image = IndexImage.new(self._geometry, before, count_every_put=self._count_every_put)
        self._file.pwrite(self._image.header_bytes, 0)
        return self._image

    def flush(self) -> None:
        """Write slots and header, in this order."""
        if self._image is None or self._file is None:
            return
        changed = False
        for first, data in self._image.slots.take_changes():
            self._file.pwrite(data, slots_offset() + first * SLOT_BYTES)
            changed = True
        if changed:
            self._file.pwrite(self._image.header_bytes, 0)
        if self._image.full:
            self.full_end_timestamp = self._image.header.end_timestamp

    def sync(self) -> None:
        """`flush`, and bring every file that was written to the disk."""
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
