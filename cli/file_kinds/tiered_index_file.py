"""Index files of the tiered store that are not compacted yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...formats.tiered_index import HEADER_BYTES
from ...formats.tiered_index_file import HEADER, ITEM, OPEN_ITEM_BYTES, items_offset
from ...store.counted import counted
from ...store.inspect.recognise import Recognised
from ...store.tiered.segments import index_items, odd_slots, open_index_files, read_index_file
from ..options import Common
from .chunks import Chunk, NonRecordRange, single
from .tiered_index import item_units


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """Header and items of each file, oldest first. at: number of the first item."""
    with open_index_files(what.path) as files:
        for file in files.files:
            index, name = read_index_file(files, file, common.config()), Path(file.path).name
            record = {"type": "tiered_index_file_header", "file": name, "slots": index.slots}
            yield single({**record, **index.header}, HEADER.build(index.header), HEADER)
            for problem in filter(None, (index.problem, odd_slots(files, index))):
                size = HEADER_BYTES if index.items else file.size
                yield NonRecordRange.damage(file.start, size, f"{name}: {problem}")
            there = 0
            for part in index_items(files, index):
                there += len(part.number)
                slots = index.slots or 1
                begin = items_offset(slots)
                yield item_units("tiered_index_file_item", ITEM, name, part, at or 0, begin, slots)
            if there < index.items:
                reason = f"{name}: of {counted(index.items, 'item')} {there} are written"
                yield NonRecordRange.damage(file.start, (index.items - there) * OPEN_ITEM_BYTES, reason)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """Files, and the items and times of all of them. full_files: files that take no more items."""
    count = unlinked = full = damaged = 0
    slots, times = set[int](), list[int]()
    with open_index_files(what.path) as files:
        for file in files.files:
            index = read_index_file(files, file, common.config())
            there = 0
            for part in index_items(files, index):
                there += len(part.number)
                unlinked += int((~part.linked).sum())
            count += there
            slots |= {index.slots} if index.slots is not None else set()
            damaged += bool(index.problem or odd_slots(files, index) or there < index.items)
            full += index.full
            if index.items:
                times.append(index.header["end_timestamp"])
        number = len(files.files)
    return {
        "files": number,
        "full_files": full,
        "slots": slots.pop() if len(slots) == 1 else None,
        "index_items": count,
        "unlinked_items": unlinked,
        "damaged_files": damaged,
        "last_store_timestamp": max(times, default=None),
    }
