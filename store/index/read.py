"""The index: records by key, in files of a header, slots and items (spec 03); and all file sizes of a store.

A query walks the chains as a broker does, from the newest file to the oldest, with one difference: the number of an
item must be smaller than that of the item before it in the walk. In a loop of two items a broker spins forever (spec
07, B17). Hits are candidates: different texts may have the same hash, so compare the records with topic and key.

A file does not say how many slots and items it has (spec 03, 3.1), and several numbers fit its length. The right ones
show in the content: the last item lies where the header's end position can be read, the first where its begin position
can, and the last item's slot names it. `Sizes` has the sizes of all files (`disk/sizes.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ...formats.fixed import tuple_of
from ...formats.hashing import java_integer
from ...formats.index_file import (
    HEADER,
    HEADER_BYTES,
    ITEM,
    ITEM_BYTES,
    SLOT,
    SLOT_BYTES,
    file_size,
    items_of,
    items_offset,
    slots_offset,
)
from ..disk.broker_conf import BrokerConfig
from ..disk.byte_reader import Closing, Unread, failed, fill_any, next_data, note, refusing, unread_of, whole_units
from ..disk.compressed import OpenFiles, open_any, plain_name
from ..disk.file_queue import OPEN_FILES, ForeignEntry, is_file, is_zero
from ..disk.layout import Layout
from ..disk.sizes import Size, commit_log_size, consume_queue_size, timer_log_size
from ..errors import UnreadableRange, from_os_error

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ...formats.derive.ragged import Flags, Ints, Structs


_NEWEST_ITEMS = 64
"""How many items are compared to find the right geometry."""
WINDOW_ITEMS = 1 << 16
"""Items in a window."""
WINDOW_SLOTS = 1 << 18
"""Slots in a window."""


class Header(NamedTuple):
    """The header of an index file; names as in the schema."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int


class Item(NamedTuple):
    """One item of an index file; names as in the schema."""

    key_hash: int
    physical_offset: int
    time_diff: int
    previous: int


class Geometry(NamedTuple):
    """Numbers of slots and items of an index file."""

    slots: int
    items: int


def cannot_follow(number: Ints, previous: npt.NDArray[np.integer]) -> Flags:
    """bool[n]: `previous` of an item is neither an older item nor 0."""
    found: Flags = (previous < 0) | (previous >= number)
    return found


def is_outside(position: Ints, header: Header) -> Flags:
    """bool[n]: the record lies before the first or behind the last record in the header of its file."""
    begin, end = header.begin_physical_offset, header.end_physical_offset
    found: Flags = (position < begin) | (position > end)
    return found


class IndexFile(Closing):
    """An index file opened for reading; a context manager.

    Uses the given numbers of slots and items; see `find_geometry`. What a short file lacks reads as zeros, as in a
    broker's memory map. opened: the open files of an index, which may have more than a process may open.
    """

    def __init__(self, path: str | os.PathLike[str], geometry: Geometry, opened: OpenFiles | None = None) -> None:
        self.path = os.fspath(path)
        self.slots, self.items = geometry
        self._opened = OpenFiles(1) if opened is None else opened

    @property
    def _descriptor(self) -> int:
        return self._opened.descriptor(self.path, lambda: open_any(self.path))

    def _read(self, offset: int, size: int) -> bytes:
        """Bytes of the file; zeros behind its end. Raises UnreadableRange, Unreadable."""
        data, unread = self._fill(offset, size)
        if unread:
            raise failed(unread[0])
        return bytes(data)

    def _fill(self, offset: int, size: int) -> tuple[bytearray, list[Unread]]:
        """Bytes as of `_read`, and the ranges that cannot be read."""
        data = bytearray(size)  # zeros behind the file's end
        _, unread = fill_any(self._descriptor, memoryview(data), offset, self.path)
        return data, unread

    def _fill_noting(self, offset: int, size: int) -> tuple[bytearray, list[Unread]]:
        """`_fill`; notes the ranges that cannot be read."""
        data, unread = self._fill(offset, size)
        for each in unread:
            note(each)
        return data, unread

    @cached_property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    @cached_property
    def header(self) -> Header:
        """The header; zeros if the file is too short, or if it cannot be read, which is noted.

        Raises Missing, Unreadable.
        """
        try:
            return self.read_header()
        except UnreadableRange as error:
            note(unread_of(error))
            return tuple_of(Header, HEADER, b"")

    def read_header(self) -> Header:
        """The header; zeros if the file is too short. Raises Missing, Unreadable, UnreadableRange."""
        return tuple_of(Header, HEADER, self._read(0, HEADER_BYTES))

    @property
    def full(self) -> bool:
        """Whether no further item fits."""
        return self.header.index_count >= self.items

    @property
    def last(self) -> int:
        """Number of the last item, 0 without items; at most the number that the file has bytes for."""
        room = min(self.items, items_of(self.size, self.slots)) - 1
        return max(0, min(self.header.index_count - 1, room))

    def slot(self, number: int) -> int:
        """Number of the newest item of slot `number`, 0 ≤ number < slots."""
        return tuple_of(int, SLOT, self._read(slots_offset() + number * SLOT_BYTES, SLOT_BYTES))

    def item(self, number: int) -> Item:
        """Item `number`; item 0 is never used."""
        at = items_offset(self.slots) + number * ITEM_BYTES
        return tuple_of(Item, ITEM, self._read(at, ITEM_BYTES))

    def columns(self, first: int = 1) -> Iterator[tuple[int, Structs]]:
        """Yield items `first` … last in windows, as (number of the first, structured array of ITEM).

        Leaves out and notes items that cannot be read. Raises UnreadableRange if nobody takes the notes.
        """
        import numpy as np

        from ...formats.derive import dtype_of

        dtype = dtype_of(ITEM)
        for number in range(first, self.last + 1, WINDOW_ITEMS):
            count = min(WINDOW_ITEMS, self.last + 1 - number)
            at = items_offset(self.slots) + number * ITEM_BYTES
            data, unread = self._fill_noting(at, count * ITEM_BYTES)
            for byte, part in whole_units(at, data, len(data), unread, ITEM_BYTES):
                yield number + (byte - at) // ITEM_BYTES, np.frombuffer(part, dtype)

    def slot_columns(self) -> Iterator[tuple[int, npt.NDArray[np.int32]]]:
        """Yield all slots in windows, as (number of the first, newest items int32[n]).

        Raises UnreadableRange.
        """
        import numpy as np

        from ...formats.derive import dtype_of

        for first in range(0, self.slots, WINDOW_SLOTS):
            size = min(WINDOW_SLOTS, self.slots - first) * SLOT_BYTES
            data, unread = self._fill_noting(slots_offset() + first * SLOT_BYTES, size)
            if unread:
                raise failed(unread[0])
            yield first, np.frombuffer(data, dtype_of(SLOT))["item"].astype(np.int32)

    @property
    def content_is_valid(self) -> bool:
        """Whether slots name items of the file, and items have hashes, lie in the header's range and point back.

        Raises UnreadableRange.
        """
        import numpy as np

        with refusing():
            for _, newest in self.slot_columns():
                if newest.min() < 0 or newest.max() >= self.header.index_count:
                    return False
            for first, items in self.columns():
                number = np.arange(first, first + len(items))
                wrong = cannot_follow(number, items["previous"]) | (items["key_hash"] < 0)
                wrong |= is_outside(items["physical_offset"].astype(np.int64), self.header)
                if wrong.any():
                    return False
        return True

    @property
    def is_untouched(self) -> bool:
        """Whether neither a slot nor the first item was ever written. Raises UnreadableRange."""
        used = items_offset(self.slots) + 2 * ITEM_BYTES - slots_offset()
        return is_zero(self._read(slots_offset(), used))

    def items_of_last(self) -> int:
        """How many items at the end are of the record at the header's end position. Raises UnreadableRange."""
        import numpy as np

        with refusing():
            for _, items in self.columns(max(1, self.last + 1 - WINDOW_ITEMS)):
                other = items["physical_offset"] != self.header.end_physical_offset
                return len(items) - int(np.append(np.flatnonzero(other) + 1, 0).max())
        return 0

    @property
    def consistent(self) -> bool:
        """Whether header, first and last item and the last item's slot agree; true for a file without items.

        False if they cannot be read, which is noted.
        """
        try:
            return self._ends_agree()
        except UnreadableRange as error:
            note(unread_of(error))
            return False

    def _ends_agree(self) -> bool:
        header = self.header
        if header.index_count <= 1:
            return True
        if self.slots <= 0 or header.index_count > self.items:
            return False
        first, last = self.item(1), self.item(self.last)
        return (
            first.physical_offset == header.begin_physical_offset
            and last.physical_offset == header.end_physical_offset
            and last.key_hash >= 0
            and self.slot(last.key_hash % self.slots) == self.last
        )

    def find_geometry(self) -> Geometry | None:
        """The numbers of slots and items that fit the content; None if it does not show them."""
        count = self.header.index_count - 1
        if count < 1:
            return None
        found = None
        for slots in self._likely_slots(count):
            geometry = Geometry(slots, items_of(self.size, slots))
            with IndexFile(self.path, geometry) as file:
                if file.consistent:
                    if file._newest_are_in_place():
                        return geometry
                    found = found or geometry
        return found

    def _newest_are_in_place(self) -> bool:
        """Whether the slots of the newest items name these or newer items, and their chains stay in these slots: a
        wrong geometry fits one item by chance, but hardly all.
        """
        for number in range(max(1, self.last + 1 - _NEWEST_ITEMS), self.last + 1):
            item = self.item(number)
            slot = item.key_hash % self.slots
            if item.key_hash < 0 or not number <= self.slot(slot) <= self.last:
                return False
            before = item.previous
            if not 0 <= before < number:
                return False
            if before and self.item(before).key_hash % self.slots != slot:
                return False
        return True

    def _likely_slots(self, count: int) -> Iterator[int]:
        """Yield numbers of slots with which items 1 and `count` lie where the header says.

        `step` slots take the room of one item, so adding `step` to the number of slots moves all items by one place.
        Whichever number is right, the file is one array of items to search.
        """
        import numpy as np

        from ...formats.derive import dtype_of

        dtype = dtype_of(ITEM)
        step = ITEM_BYTES // SLOT_BYTES
        least = (self.size - slots_offset()) // SLOT_BYTES % step
        places = (self.size - items_offset(least)) // ITEM_BYTES - count
        header = self.header
        place = 0
        while place < places:
            at = items_offset(least) + place * ITEM_BYTES
            behind = next_data(self._descriptor, at + count * ITEM_BYTES)
            if behind is None:
                return  # the last item does not lie in a hole
            place += (behind - at - count * ITEM_BYTES) // ITEM_BYTES
            at = items_offset(least) + place * ITEM_BYTES
            size = max(0, min(WINDOW_ITEMS, places - place)) * ITEM_BYTES
            first = np.frombuffer(self._read(at + ITEM_BYTES, size), dtype)
            last = np.frombuffer(self._read(at + count * ITEM_BYTES, size), dtype)
            fits = (
                (first["physical_offset"] == header.begin_physical_offset)
                & (last["physical_offset"] == header.end_physical_offset)
                & (last["key_hash"] >= 0)
                & ((last["key_hash"] > 0) | (last["physical_offset"] != 0))  # zeros are not an item
            )
            yield from (least + (place + i) * step for i in np.flatnonzero(fits).tolist())
            place += WINDOW_ITEMS

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        self._opened.close(self.path)


EVER_MS = -(1 << 64), 1 << 64
"""From before to after all times that an index file can have, also damaged ones."""


class Hit(NamedTuple):
    """One item found by a query."""

    physical_offset: int
    file: IndexFile
    number: int

    @property
    def is_outside(self) -> bool:
        """Whether it names a place before the first or behind the last record in the header of its file."""
        header = self.file.header
        return not header.begin_physical_offset <= self.physical_offset <= header.end_physical_offset


@dataclass
class Answer:
    """The result of a query, newest file first. damaged: files whose chain for the key is broken."""

    hits: list[Hit] = field(default_factory=list)
    damaged: list[IndexFile] = field(default_factory=list)


class Index(Closing):
    """All index files of a store, oldest first; a context manager.

    >>> [hit.physical_offset for hit in store.index.query("orders", "key28").hits]
    [12189]
    """

    def __init__(self, files: list[IndexFile], foreign: list[ForeignEntry]) -> None:
        self.files = files
        self.foreign = foreign

    @classmethod
    def open(cls, directory: str | os.PathLike[str], config: BrokerConfig | None = None) -> Index:
        """List the index files; none if the directory is missing. Raises Unreadable."""
        config = config or BrokerConfig()
        paths, foreign = _list_files(os.fspath(directory))
        slots, items = _geometry(paths, config)
        geometry = Geometry(slots.value, items.value)
        opened = OpenFiles(OPEN_FILES)
        return cls([_open_file(path, geometry, opened) for path in paths], foreign)

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = EVER_MS[0],
        end_ms: int = EVER_MS[1],
        limit: int | None = None,
        index_type: str = "",
    ) -> Answer:
        """Candidates for a key of a topic, stored within [begin_ms, end_ms] by the index; by default whatever it says.

        index_type: `T` to look for a tag. limit: most hits, None for all; a broker takes at most 64. Newest file first,
        newest item first in a file. Raises Unreadable.
        """
        from ...formats.hashing import index_hash

        key_hash = index_hash(topic, key if not index_type else f"{index_type}#{key}")
        answer = Answer()
        for file in reversed(self.files):
            header = file.header
            if header.begin_timestamp <= end_ms and header.end_timestamp >= begin_ms:
                try:
                    _follow_chain(file, key_hash, begin_ms, end_ms, limit, answer)
                except UnreadableRange as error:  # the chain counts as broken
                    note(unread_of(error))
                    answer.damaged.append(file)
            if header.begin_timestamp < begin_ms or len(answer.hits) == limit:
                break
        return answer

    def close(self) -> None:
        """Close the files."""
        for file in self.files:
            file.close()


def _follow_chain(
    file: IndexFile, key_hash: int, begin_ms: int, end_ms: int, limit: int | None, answer: Answer
) -> None:
    """Add the hits of one file. A broken chain ends the walk, and the file counts as damaged."""
    if not file.last or file.slots <= 0:
        return
    number = file.slot(key_hash % file.slots)
    bound = file.last + 1
    begin = file.header.begin_timestamp
    while number != 0:
        if not 0 < number < bound:
            answer.damaged.append(file)
            return
        item = file.item(number)
        same_slot = item.key_hash >= 0 and (item.key_hash - key_hash) % file.slots == 0
        if not same_slot or item.time_diff < 0:
            answer.damaged.append(file)
            return
        stored_ms = begin + item.time_diff * 1000
        if item.key_hash == key_hash and begin_ms <= stored_ms <= end_ms:
            answer.hits.append(Hit(item.physical_offset, file, number))
            if len(answer.hits) == limit:
                return
        if stored_ms < begin_ms:
            return
        number, bound = item.previous, number


def open_index_file(path: str | os.PathLike[str], config: BrokerConfig | None = None) -> IndexFile:
    """Open one index file, wherever it lies. If its content does not show its geometry, the files beside it do.

    Raises Missing, Unreadable.
    """
    config = config or BrokerConfig()
    slots, items = (config.size(name) for name in ("maxHashSlotNum", "maxIndexNum"))
    usual = Geometry(slots[0], items[0])
    if "default" in (slots[1], items[1]):
        usual = _own_geometry(os.fspath(path), usual) or _geometry_beside(path, config) or usual
    return IndexFile(path, usual)


def _geometry_beside(path: str | os.PathLike[str], config: BrokerConfig) -> Geometry | None:
    """The geometry of the index files in the same directory, if it fits the length of this file; else None."""
    paths, _ = _list_files(os.path.dirname(os.path.abspath(path)))  # noqa: PTH100, PTH120
    slots, items = _geometry(paths, config)
    found = Geometry(slots.value, items.value)
    with IndexFile(path, found) as file:
        return found if file.size == file_size(*found) else None


def _list_files(directory: str) -> tuple[list[str], list[ForeignEntry]]:
    """Paths of the index files by name, and entries that are no index files."""
    paths: dict[str, str] = {}
    foreign: list[ForeignEntry] = []
    try:
        with os.scandir(directory) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                name = plain_name(entry.name)
                if java_integer(name, 64) is None:
                    foreign.append(ForeignEntry(entry.path, "its name is not a time"))
                elif not is_file(entry):
                    foreign.append(ForeignEntry(entry.path, "not a file"))
                elif name in paths:
                    foreign.append(ForeignEntry(entry.path, f"the same time as {paths[name]}"))
                else:
                    paths[name] = entry.path
    except FileNotFoundError:
        pass
    except OSError as error:
        raise from_os_error(error, directory) from error
    return [paths[name] for name in sorted(paths)], foreign


def _geometry(paths: list[str], config: BrokerConfig) -> tuple[Size, Size]:
    """Numbers of slots and of items of a store's index files, with their origins."""
    slots, items = (Size(*config.size(name)) for name in ("maxHashSlotNum", "maxIndexNum"))
    named = [size.origin == "configuration" for size in (slots, items)]
    for path in [] if all(named) else reversed(paths):
        found = _own_geometry(path, Geometry(slots.value, items.value))
        if found is not None:
            own = (Size(found.slots, "files"), Size(found.items, "files"))
            return slots if named[0] else own[0], items if named[1] else own[1]
    return slots, items


def _own_geometry(path: str, usual: Geometry) -> Geometry | None:
    """The geometry that the content shows, None if it does not; tries the usual one before a search."""
    with IndexFile(path, usual) as file:
        if file.last and file.size == file_size(*usual) and file.consistent:
            return usual
        try:
            return file.find_geometry()
        except UnreadableRange as error:
            note(unread_of(error))
            return None


def _open_file(path: str, usual: Geometry, opened: OpenFiles) -> IndexFile:
    """A file with the store's geometry, or with its own if its length differs."""
    file = IndexFile(path, usual, opened)
    if file.size == file_size(*usual):
        return file
    return IndexFile(path, _own_geometry(path, usual) or usual, opened)


class Sizes(NamedTuple):
    """File sizes in bytes; for index files numbers of slots and items."""

    commit_log: Size
    consume_queue: Size
    index_slots: Size
    index_items: Size
    timer_log: Size

    @property
    def of_index(self) -> Geometry:
        """Numbers of slots and items of an index file."""
        return Geometry(self.index_slots.value, self.index_items.value)


def sizes_of(layout: Layout) -> Sizes:
    """All sizes of a store; looked up once for a layout. Raises Unreadable, InvalidInput."""
    return layout.once(_sizes)


def _sizes(layout: Layout) -> Sizes:
    slots, items = _geometry(_list_files(os.fspath(layout.index))[0], layout.broker_config)
    return Sizes(
        commit_log=commit_log_size(layout),
        consume_queue=consume_queue_size(layout),
        index_slots=slots,
        index_items=items,
        timer_log=timer_log_size(layout),
    )
