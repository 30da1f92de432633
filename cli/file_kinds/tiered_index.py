"""Segments of the tiered index."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...formats.tiered_index import HEADER, HEADER_BYTES, ITEM, items_offset
from ...store.inspect.recognise import Recognised
from ...store.tiered.segments import SegmentItems, SegmentSpan, items, open_segments, read_index, slot_of
from ..options import Common
from .chunks import Chunk, NonRecordRange, RecordArray, single, state_of_numbers

if TYPE_CHECKING:
    from construct import Construct


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """Header and items of each segment. at: number of the first item."""
    with open_segments(what.path) as files:
        for file in files.files:
            index, name = read_index(files, file), Path(file.path).name
            record = {"type": "tiered_index_header", "file": name, "slots": index.slots}
            yield single({**record, **index.header}, HEADER.build(index.header), HEADER)
            if index.problem:
                yield NonRecordRange.damage(file.start, file.size, f"{name}: {index.problem}")
            extent = SegmentSpan(index)
            for part in items(files, index):
                extent.add(part)
                begin = items_offset(index.slots)
                yield item_units("tiered_index_item", ITEM, name, part, at or 0, begin, index.slots)
            if problem := extent.problem():
                yield NonRecordRange.damage(file.start, HEADER_BYTES, f"{name}: {problem}")


def item_units(
    record_type: str, schema: Construct[Any, Any], name: str, part: SegmentItems, at: int, begin: int, slots: int
) -> RecordArray:
    """Items of the file `name`, from number `at` on. begin: byte offset of item 0 in the file. slots: of the file."""
    first = int((part.number < at).sum())
    numbers, found = part.number[first:], part.items[first:]
    return RecordArray(
        record_type,
        schema,
        found,
        "number",
        numbers.tolist(),
        {"file": name},
        {"slot": slot_of(found["hash_code"], slots).tolist()},
        marks=partial(state_of_numbers, "unlinked", set(part.number[~part.linked].tolist())),
        begin=begin,
    )


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    count = unlinked = 0
    damaged, times = 0, list[int]()
    with open_segments(what.path) as files:
        for file in files.files:
            index = read_index(files, file)
            damaged += file.size if index.problem else 0
            extent = SegmentSpan(index)
            for part in items(files, index):
                extent.add(part)
                count += len(part.number)
                unlinked += int((~part.linked).sum())
            damaged += HEADER_BYTES if extent.problem() else 0
            if not index.problem:
                times.append(index.header["end_timestamp"])
        segments = len(files.files)
    return {
        "segments": segments,
        "index_items": count,
        "unlinked_items": unlinked,
        "damaged_bytes": damaged,
        "last_store_timestamp": max(times, default=None),
    }
