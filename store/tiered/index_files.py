"""Index files of the tiered store before they are compacted. Nothing in them is believed; see
`formats.tiered_index_file`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...formats.derive import dtype_of
from ...formats.derive.ragged import Flags
from ...formats.tiered_index import HEADER_BYTES
from ...formats.tiered_index_file import (
    DEFAULT_SLOTS,
    HEADER,
    ITEM,
    MAGIC_FULL,
    MAGIC_OPEN,
    OPEN_ITEM_BYTES,
    SLOT,
    SLOT_BYTES,
    items_of,
    items_offset,
    slots_by_last_byte,
)
from ..counted import counted
from ..disk.broker_conf import BrokerConfig
from ..disk.file_queue import MappedFile, MappedFileQueue
from .segments import WINDOW_ITEMS, Items, files_by_time, slot_of

_OPTION = "tieredStoreIndexFileMaxHashSlotNum"
_WINDOW_BYTES = 1 << 20
_LOOKED_AT = 16
"""Items at the end, of which one has a slot."""


class TieredIndexFile(NamedTuple):
    """One file. slots: how many, None where it has no item that could tell. items: those that it counts
    and has room for. problem: why they cannot be read, or are not all that it counts; "" for neither.
    """

    file: MappedFile
    header: dict[str, Any]
    slots: int | None
    items: int
    problem: str


def open_index_files(path: Path) -> MappedFileQueue:
    """The files of a directory, or one of them, wherever it lies. Raises Unreadable."""
    return files_by_time(path) if path.is_dir() else MappedFileQueue.of_file(path, 0)


def read_index_file(
    files: MappedFileQueue, file: MappedFile, config: BrokerConfig | None = None
) -> TieredIndexFile:
    """The header of a file, and how many slots it has: as configured, else as its last item tells.

    Raises Unreadable, InvalidInput.
    """
    head = files.read_file(file, 0, HEADER_BYTES)
    parsed = HEADER.parse(head.ljust(HEADER_BYTES, b"\0"))
    header = {name: parsed[name] for name in dtype_of(HEADER).names or ()}
    if len(head) < HEADER_BYTES:
        problem = f"shorter than a header: {counted(len(head), 'byte')}"
        return TieredIndexFile(file, header, None, 0, problem)
    if header["magic"] not in (MAGIC_OPEN, MAGIC_FULL):
        problem = "not an index of the tiered store: its magic code is another"
        return TieredIndexFile(file, header, None, 0, problem)
    slots = _slots(files, file, header["item_count"], config or BrokerConfig())
    if slots is None:
        told = f"nothing in it tells how many slots it has: --set {_OPTION}=N does"
        return TieredIndexFile(file, header, None, 0, told if _is_used(files, file) else "")
    room = (items_of(file.size, slots) or 1) - 1
    count = header["item_count"]
    problem = (
        "" if 0 <= count <= room else f"it counts {counted(count, 'item')}, room is for {room}"
    )
    return TieredIndexFile(file, header, slots, room if problem else count, problem)


def _slots(
    files: MappedFileQueue, file: MappedFile, count: int, config: BrokerConfig
) -> int | None:
    """As configured; else the number with which the last item is the newest of its slot."""
    configured = config.get_int(_OPTION)
    if configured is not None:
        return configured if items_of(file.size, configured) is not None else None
    if items_of(file.size, DEFAULT_SLOTS) is not None and _leads(files, file, DEFAULT_SLOTS, count):
        return DEFAULT_SLOTS
    last = _last_byte(files, file)
    slots = None if last is None else slots_by_last_byte(file.size, count, last)
    return slots if slots is not None and _leads(files, file, slots, count) else None


def _leads(files: MappedFileQueue, file: MappedFile, slots: int, count: int) -> bool:
    """The slot of the last item that has one leads to it."""
    for number in range(count, max(0, count - _LOOKED_AT), -1):
        at = items_offset(slots) + number * OPEN_ITEM_BYTES
        data = files.read_file(file, at, OPEN_ITEM_BYTES)
        if len(data) < OPEN_ITEM_BYTES:
            return False
        hash_code = ITEM.parse(data).hash_code
        if hash_code >= 0:
            at = HEADER_BYTES + hash_code % slots * SLOT_BYTES
            return bool(SLOT.parse(files.read_file(file, at, SLOT_BYTES)).item == number)
    return False


def _last_byte(files: MappedFileQueue, file: MappedFile) -> int | None:
    """The last byte behind the header that is not zero, None where all are. Raises Unreadable."""
    last = None
    for at, data in files.windows(file, HEADER_BYTES, file.size, _WINDOW_BYTES):
        if used := len(bytes(data).rstrip(b"\0")):
            last = at + used - 1
    return last


def _is_used(files: MappedFileQueue, file: MappedFile) -> bool:
    """Something stands behind the header."""
    return _last_byte(files, file) is not None


def index_items(files: MappedFileQueue, index: TieredIndexFile) -> Iterator[Items]:
    """The items that a file counts, in windows, without those that are all zeros. Raises Unreadable.

    Memory: a byte for each item, 8 for each slot.
    """
    if index.slots is None or not index.items:
        return
    slots, named = _slot_items(files, index), _named(files, index)
    for first, found in _windows(files, index):
        number = np.arange(first, first + len(found))
        used = np.frombuffer(found.tobytes(), np.uint8).reshape(len(found), -1).any(axis=1)
        before = found["previous"]
        newest = slots[slot_of(found["hash_code"], index.slots)]
        linked = named[number] & (before >= 0) & (before < number) & (newest >= number)
        linked &= found["hash_code"] >= 0
        if used.any():
            yield Items(number[used], found[used], linked[used])


def odd_slots(files: MappedFileQueue, index: TieredIndexFile) -> str:
    """What is wrong with the slots, "" where they name items that there are. Raises Unreadable."""
    if index.slots is None:
        return ""
    slots = _slot_items(files, index)
    odd = np.flatnonzero((slots < 0) | (slots > index.items))
    if not len(odd):
        return ""
    first = int(odd[0])
    some = counted(len(odd), "slot")
    return f"{some} without such an item, the first is slot {first}: item {int(slots[first])}"


def _slot_items(files: MappedFileQueue, index: TieredIndexFile) -> Any:
    """Of each slot the number of its newest item, int32[slots]."""
    size = items_offset(index.slots or 0) - HEADER_BYTES
    return np.frombuffer(files.read_file(index.file, HEADER_BYTES, size), dtype_of(SLOT))["item"]


def _named(files: MappedFileQueue, index: TieredIndexFile) -> Flags:
    """Which items, by number, a slot or another item leads to."""
    named = np.zeros(index.items + 1, np.bool_)
    slots = _slot_items(files, index)
    named[slots[(slots > 0) & (slots <= index.items)]] = True
    for _, found in _windows(files, index):
        before = found["previous"]
        named[before[(before > 0) & (before <= index.items)]] = True
    return named


def _windows(files: MappedFileQueue, index: TieredIndexFile) -> Iterator[tuple[int, Any]]:
    """Number of the first, ITEM[n]."""
    begin = items_offset(index.slots or 0)
    for first in range(1, index.items + 1, WINDOW_ITEMS):
        count = min(WINDOW_ITEMS, index.items + 1 - first)
        data = files.read_file(index.file, begin + first * OPEN_ITEM_BYTES, count * OPEN_ITEM_BYTES)
        yield first, np.frombuffer(data, dtype_of(ITEM), len(data) // OPEN_ITEM_BYTES)
