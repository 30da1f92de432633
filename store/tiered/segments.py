"""Segments of a tiered store: where they lie, their names (POSIX provider, 5.1+), and their indexes.

A flat file is a row of segments without gaps, one directory for each kind of file. Sizes differ: a segment is closed
when the next one begins.

A sealed segment of the index: see `formats.tiered_index`; index files before compaction: see
`formats.tiered_index_file`. Nothing in them is believed. The last functions keep what is left of damaged metadata.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import md5
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...formats.derive import dtype_of
from ...formats.derive.ragged import Flags, Ints, Structs, written
from ...formats.tiered_index import (
    HEAD,
    HEADER,
    HEADER_BYTES,
    ITEM,
    ITEM_BYTES,
    MAGIC_SEALED,
    SLOT,
    items_offset,
    slots_of,
)
from ...formats.tiered_index_file import (
    DEFAULT_SLOTS,
    END,
    END_BYTES,
    END_MARKS,
    MAGIC_FULL,
    MAGIC_OPEN,
    OPEN_ITEM_BYTES,
    SLOT_BYTES,
    items_of,
    slots_by_last_byte,
)
from ...formats.tiered_index_file import HEADER as OPEN_HEADER
from ...formats.tiered_index_file import ITEM as OPEN_ITEM
from ...formats.tiered_index_file import SLOT as OPEN_SLOT
from ...formats.tiered_index_file import items_offset as open_items_offset
from ...formats.tiered_store_metadata import SEGMENT_TABLES, SERIAL, TOPIC_ID, TOPIC_TABLE
from ..counted import counted
from ..disk.broker_conf import BrokerConfig
from ..disk.file_queue import NAME_DIGITS, MappedFile, MappedFileQueue, start_of
from ..disk.layout import TIERED_INDEX_FILES
from ..errors import os_errors

SEGMENTS = {"COMMIT_LOG": "tiered-commit-log", "CONSUME_QUEUE": "tiered-consume-queue", "INDEX": "tiered-index"}
"""Directories of segments, and the kind of the files in them."""
MEMBERS = dict(zip((table.member for table in SEGMENT_TABLES), SEGMENTS, strict=True))
"""Tables of tieredStoreMetadata.json, and the directories of their segments: both in the order of their types."""
COMPACTING = "compacting"
"""Directory inside that of index files: compacted files that wait to become segments, named by times."""
_OPTION, _DIRECTORY = "tieredStoreFilePath", "tieredStore"
_HASH_DIGITS = 8


def tiered_roots(store: Path, config: BrokerConfig) -> list[Path]:
    """Return directories that may have clusters of segments: the configured one, else the usual ones of a store."""
    given = config.get(_OPTION)
    return [Path(given)] if given else [store, store / _DIRECTORY]


def is_of_tier(name: str) -> bool:
    """Whether a directory of a store may have segments: by the name of their root, or of a cluster (spec 05, 5.3)."""
    digits, separator, cluster = name.partition("_")
    return name == _DIRECTORY or bool(separator and cluster and digits == _hash(cluster))


def segment_name(start: int) -> str:
    """Return the name of the segment whose first byte has the position `start`."""
    return _hash(str(start)) + f"{start:0{NAME_DIGITS}d}"


def segment_start(name: str) -> int | None:
    """Return the position that a segment's name stands for; None for other names."""
    start = start_of(name[_HASH_DIGITS:]) if len(name) == _HASH_DIGITS + NAME_DIGITS else None
    return start if start is not None and segment_name(start) == name else None


def _hash(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]


def kind_of_place(path: Path) -> str | None:
    """Return the kind of a segment, or of a directory of segments, by place and name; None for other paths."""
    place = path if path.is_dir() else path.parent
    if place.name == COMPACTING and place.parent.name == TIERED_INDEX_FILES:
        return SEGMENTS["INDEX"]
    if path.is_dir():
        kind = SEGMENTS.get(path.name)
        names = os.listdir(path) if kind else []  # noqa: PTH208
        return kind if any(segment_start(name) is not None for name in names) else None
    return SEGMENTS.get(path.parent.name) if segment_start(path.name) is not None else None


def queue_of_place(path: Path) -> tuple[str, int] | None:
    """Return topic and queue id by the place of segments, or None."""
    above = path if path.name in SEGMENTS else path.parent
    if above.name not in SEGMENTS or start_of(above.parent.name) is None:
        return None
    return above.parent.parent.name, int(above.parent.name)


def open_segments(path: Path) -> MappedFileQueue:
    """Open the segments of a directory, or a single one at any place. Raises Unreadable."""
    if path.is_dir() and path.name == COMPACTING:
        return files_by_time(path)
    if path.is_dir():
        return MappedFileQueue.open(path, start_of=segment_start)
    return MappedFileQueue.of_file(path, segment_start(path.name) or 0)


def files_by_time(directory: Path) -> MappedFileQueue:
    """Open files that are named by times: each is a stream of its own, `start` is its time. Raises Unreadable."""
    with os_errors(directory), os.scandir(directory) as entries:
        found = [
            MappedFile(entry.path, start, entry.stat().st_size)
            for entry in entries
            if (start := start_of(entry.name)) is not None and entry.is_file()
        ]
    found.sort(key=lambda file: file.start)
    return MappedFileQueue((os.fspath(directory),), found, 0, [])


WINDOW_ITEMS = 1 << 14
_MS_PER_S = 1000


OF_5_1 = "sealed by 5.1: not read"


class TieredIndex(NamedTuple):
    """A segment. slots: their number. room: number of items that fit. problem: why the items cannot be read, or ""."""

    file: MappedFile
    header: dict[str, Any]
    slots: int
    room: int
    problem: str


def read_index(files: MappedFileQueue, file: MappedFile) -> TieredIndex:
    """Read the header of a segment. Raises Unreadable."""
    size = HEAD.sizeof()
    parsed = HEAD.parse(files.read_file(file, 0, size).ljust(size, b"\0"))
    header = {name: parsed.header[name] for name in dtype_of(HEADER).names or ()}
    slots = slots_of(file.size, parsed.first_slot.position)
    problem = ""
    if header["magic"] != MAGIC_SEALED:
        problem = "not a sealed index: its magic code is different"
    elif END.parse(files.read_file(file, file.size - END.sizeof(), END.sizeof())).mark == MAGIC_OPEN:
        problem = OF_5_1
    elif slots is None:
        problem = f"its items cannot begin at byte {parsed.first_slot.position}"
    if problem or slots is None:
        return TieredIndex(file, header, 0, 0, problem)
    return TieredIndex(file, header, slots, (file.size - items_offset(slots)) // ITEM_BYTES, "")


class SegmentItems(NamedTuple):
    """Items that were written: their numbers int64[n], ITEM[n], whether their slots lead to them."""

    number: Ints
    items: Structs
    linked: Flags


def items(files: MappedFileQueue, index: TieredIndex) -> Iterator[SegmentItems]:
    """Yield the items of a segment in windows, without those that are all zeros. Raises Unreadable."""
    begin = items_offset(index.slots)
    table = files.read_file(index.file, HEADER_BYTES, begin - HEADER_BYTES) if index.room else b""
    slots = np.frombuffer(table, dtype_of(SLOT))
    for first in range(0, index.room, WINDOW_ITEMS):
        at = begin + first * ITEM_BYTES
        data = files.read_file(index.file, at, min(WINDOW_ITEMS, index.room - first) * ITEM_BYTES)
        count = len(data) // ITEM_BYTES
        rows = np.flatnonzero(written(data, count, ITEM_BYTES))
        found = np.frombuffer(data, dtype_of(ITEM), count)[rows]
        place = at + rows * ITEM_BYTES
        slot = slots[slot_of(found["hash_code"], index.slots)]
        start = slot["position"].astype(np.int64)
        if len(rows):
            yield SegmentItems(first + rows, found, (place >= start) & (place < start + slot["length"]))


class SegmentSpan:
    """What the items of a segment say about its header, gathered window by window."""

    def __init__(self, index: TieredIndex) -> None:
        self._header = index.header
        self._count = 0
        self._latest_s: int | None = None

    def add(self, part: SegmentItems) -> None:
        """Add a window."""
        latest_s = int(part.items["time_diff"].max())
        self._latest_s = latest_s if self._latest_s is None else max(latest_s, self._latest_s)
        self._count += len(part.number)

    def problem(self) -> str:
        """Return why the end in the header is wrong, "" if it can be right.

        A search by time leaves out a segment that ends too early (#10656: a broker that loads a segment takes its begin
        for its end). Missing items may be later than all others.
        """
        if self._latest_s is None:
            return ""
        length_ms = self._header["end_timestamp"] - self._header["begin_timestamp"]
        late_ms = length_ms - self._latest_s * _MS_PER_S
        if late_ms <= -_MS_PER_S:
            return f"its end_timestamp is {-late_ms} ms before its latest item"
        if late_ms >= _MS_PER_S and self._count >= self._header["item_count"]:
            return f"its end_timestamp is {late_ms} ms behind its latest item"
        return ""


def slot_of(hash_code: Ints, slots: int) -> Ints:
    return hash_code.astype(np.int64) % slots


_SLOTS_OPTION = "tieredStoreIndexFileMaxHashSlotNum"
_WINDOW_BYTES = 1 << 20
_LOOKED_AT = 16
"""At least one of this many items at the end must have a slot."""


class TieredIndexFile(NamedTuple):
    """One file. slots: their number, None if no item shows it. items: number of items that it counts and has room for.
    problem: why they cannot be read, or are fewer than it counts; "" for neither. full: it takes no more items. first:
    number of the first item; the one before it stands for none.
    """

    file: MappedFile
    header: dict[str, Any]
    slots: int | None
    items: int
    problem: str
    full: bool = False
    first: int = 1

    @property
    def last(self) -> int:
        """Number of the last item."""
        return self.first + self.items - 1


def open_index_files(path: Path) -> MappedFileQueue:
    """Open the files of a directory, or a single one at any place. Raises Unreadable."""
    return files_by_time(path) if path.is_dir() else MappedFileQueue.of_file(path, 0)


def read_index_file(files: MappedFileQueue, file: MappedFile, config: BrokerConfig | None = None) -> TieredIndexFile:
    """Read the header of a file, and find the number of its slots: configured, else by its last item.

    Raises Unreadable, InvalidInput.
    """
    head = files.read_file(file, 0, HEADER_BYTES)
    parsed = OPEN_HEADER.parse(head.ljust(HEADER_BYTES, b"\0"))
    header = {name: parsed[name] for name in dtype_of(OPEN_HEADER).names or ()}
    if len(head) < HEADER_BYTES:
        problem = f"shorter than a header: {counted(len(head), 'byte')}"
        return TieredIndexFile(file, header, None, 0, problem)
    if header["magic"] not in (MAGIC_OPEN, MAGIC_FULL):
        problem = "not an index of the tiered store: its magic code is different"
        return TieredIndexFile(file, header, None, 0, problem)
    mark = END.parse(files.read_file(file, file.size - END.sizeof(), END.sizeof()).rjust(END.sizeof(), b"\0")).mark
    first, size = (0, file.size - END_BYTES) if mark in END_MARKS else (1, file.size)
    full, count = MAGIC_FULL in (header["magic"], mark), header["item_count"]
    slots = _slots(files, file._replace(size=size), range(first, first + count), config or BrokerConfig())
    if slots is None:
        empty = count == first == 0 or _last_byte(files, file) is None
        problem = "" if empty else f"the number of its slots is not known: name it with --set {_SLOTS_OPTION}=N"
        return TieredIndexFile(file, header, None, 0, problem, full, first)
    room = (items_of(size, slots) or first) - first
    problem = "" if 0 <= count <= room else f"it counts {counted(count, 'item')}, but has room for {room}"
    return TieredIndexFile(file, header, slots, room if problem else count, problem, full, first)


def _slots(files: MappedFileQueue, file: MappedFile, numbers: range, config: BrokerConfig) -> int | None:
    """Return the configured number of slots, else that with which the last item is the newest of its slot, or None.

    file: up to the end of its items. numbers: those of the items that it counts.
    """
    configured = config.get_int(_SLOTS_OPTION)
    if configured is not None:
        return configured if items_of(file.size, configured) is not None else None
    if items_of(file.size, DEFAULT_SLOTS) is not None and _leads(files, file, DEFAULT_SLOTS, numbers):
        return DEFAULT_SLOTS
    last = _last_byte(files, file)
    slots = None if last is None else slots_by_last_byte(file.size, numbers.stop - 1, last)
    return slots if slots is not None and _leads(files, file, slots, numbers) else None


def _leads(files: MappedFileQueue, file: MappedFile, slots: int, numbers: range) -> bool:
    """Whether the last item that has a slot is the one its slot leads to."""
    for number in reversed(numbers[-_LOOKED_AT:]):
        at = open_items_offset(slots) + number * OPEN_ITEM_BYTES
        data = files.read_file(file, at, OPEN_ITEM_BYTES)
        if len(data) < OPEN_ITEM_BYTES:
            return False
        hash_code = OPEN_ITEM.parse(data).hash_code
        if hash_code >= 0:
            at = HEADER_BYTES + hash_code % slots * SLOT_BYTES
            return bool(OPEN_SLOT.parse(files.read_file(file, at, SLOT_BYTES)).item == number)
    return False


def _last_byte(files: MappedFileQueue, file: MappedFile) -> int | None:
    """Return the place of the last byte behind the header that is not zero, or None. Raises Unreadable."""
    last = None
    for at, data in files.windows(file, HEADER_BYTES, file.size, _WINDOW_BYTES):
        if used := len(bytes(data).rstrip(b"\0")):
            last = at + used - 1
    return last


def index_items(files: MappedFileQueue, index: TieredIndexFile) -> Iterator[SegmentItems]:
    """Yield the items that a file counts, in windows, without those that are all zeros. Raises Unreadable.

    Memory: a byte for each item, 8 for each slot.
    """
    if index.slots is None or not index.items:
        return
    slots, named = _slot_items(files, index), _named(files, index)
    for first, found in _windows(files, index):
        number = np.arange(first, first + len(found))
        used = written(found.tobytes(), len(found), OPEN_ITEM_BYTES)
        before = found["previous"]
        newest = slots[slot_of(found["hash_code"], index.slots)]
        linked = named[number] & (before >= index.first - 1) & (before < number) & (newest >= number)
        linked &= found["hash_code"] >= 0
        if used.any():
            yield SegmentItems(number[used], found[used], linked[used])


def odd_slots(files: MappedFileQueue, index: TieredIndexFile) -> str:
    """Return what is wrong with the slots, "" if all name items that exist. Raises Unreadable.

    A broker that is killed may have put one more item than it counts; the next item takes the place of that one.
    """
    if index.slots is None:
        return ""
    slots = _slot_items(files, index)
    odd = np.flatnonzero((slots < index.first - 1) | (slots > index.last + (not index.full)))
    if not len(odd):
        return ""
    first = int(odd[0])
    some = counted(len(odd), "slot")
    return f"{some} without such an item, the first is slot {first}: item {int(slots[first])}"


def _slot_items(files: MappedFileQueue, index: TieredIndexFile) -> Any:
    """Return the number of the newest item of each slot, int32[slots]."""
    size = open_items_offset(index.slots or 0) - HEADER_BYTES
    return np.frombuffer(files.read_file(index.file, HEADER_BYTES, size), dtype_of(OPEN_SLOT))["item"]


def _named(files: MappedFileQueue, index: TieredIndexFile) -> Flags:
    """Return by item number whether a slot or another item leads to the item."""
    named = np.zeros(index.items + 1, np.bool_)
    slots = _slot_items(files, index)
    named[slots[(slots >= index.first) & (slots <= index.last)]] = True
    for _, found in _windows(files, index):
        before = found["previous"]
        named[before[(before >= index.first) & (before <= index.last)]] = True
    return named


def _windows(files: MappedFileQueue, index: TieredIndexFile) -> Iterator[tuple[int, Any]]:
    """Yield windows of items: number of the first, ITEM[n]."""
    begin = open_items_offset(index.slots or 0)
    for first in range(index.first, index.last + 1, WINDOW_ITEMS):
        count = min(WINDOW_ITEMS, index.last + 1 - first)
        data = files.read_file(index.file, begin + first * OPEN_ITEM_BYTES, count * OPEN_ITEM_BYTES)
        yield first, np.frombuffer(data, dtype_of(OPEN_ITEM), len(data) // OPEN_ITEM_BYTES)


def index_faults(
    sealed: Sequence[tuple[Path, int]], store: Path, config: BrokerConfig, unread: list[str], stopped: Callable[[], str]
) -> Iterator[tuple[str, str]]:
    """Yield (path, why queries by key miss messages) for segments and index files. Raises Unreadable, InvalidInput.

    sealed: directories of segments, and where each of them ends. unread: takes what cannot be checked. stopped: why to
    end before the next file, "" to go on.
    """
    for directory, end in sealed:
        with open_segments(directory) as files:
            for file in (file for file in files.files if file.start < end):
                if reason := stopped():
                    unread.append(f"index of the tier from {_short(file)} on: {reason}")
                    return
                segment, missed = read_index(files, file), 0
                span = SegmentSpan(segment)
                for part in items(files, segment):
                    span.add(part)
                    missed += int((~part.linked).sum())
                if segment.problem == OF_5_1:
                    unread.append(f"{_short(file)}: {OF_5_1}")
                    continue
                yield from _texts(file, segment.problem, missed, span.problem())
    if not (store / TIERED_INDEX_FILES).is_dir():
        return
    with open_index_files(store / TIERED_INDEX_FILES) as files:
        for file in files.files:
            if reason := stopped():
                unread.append(f"index of the tier from {_short(file)} on: {reason}")
                return
            index = read_index_file(files, file, config)
            lost = (~part.linked & (part.items["hash_code"] >= 0) for part in index_items(files, index))
            missed = sum(int(rows.sum()) for rows in lost)
            if index.slots is None and index.problem and index.header["magic"] in (MAGIC_OPEN, MAGIC_FULL):
                unread.append(f"{_short(file)}: {index.problem}")
                continue
            yield from _texts(file, index.problem, missed, odd_slots(files, index))


def _short(file: MappedFile) -> str:
    return "/".join(Path(file.path).parts[-2:])


def _texts(file: MappedFile, problem: str, missed: int, odd: str) -> Iterator[tuple[str, str]]:
    lost = f"{counted(missed, 'item is', 'items are')} in no slot, and found by no query" if missed else ""
    yield from ((os.fspath(file.path), text) for text in (problem, lost, odd) if text)


def with_serial(content: dict[str, Any]) -> dict[str, Any] | None:
    """Return metadata with the last topic number raised to those that topics have, so that no topic gets the number of
    another. None if the last number is lost.
    """
    topics, serial = content.get(TOPIC_TABLE.member), content.get(SERIAL.name)
    if type(serial) is not int:
        return None
    rows = topics.values() if isinstance(topics, dict) else ()
    given = (row.get(TOPIC_ID.name) for row in rows if isinstance(row, dict))
    return {**content, SERIAL.name: max([serial, *(number for number in given if type(number) is int)])}
