"""Segments of the tiered index."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .chunks import Chunk, Range, Record, Single, Units

if TYPE_CHECKING:
    from ...store.inspect.recognise import Recognised
    from ..options import Common


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """Header and items of each segment; `at`: number of the first item."""
    from ...formats.tiered_index import HEADER, HEADER_BYTES, ITEM, ITEM_BYTES, items_offset
    from ...store.tiered.segments import Extent, items, open_segments, read_index, slot_of

    with open_segments(what.path) as files:
        for file in files.files:
            index, name = read_index(files, file), Path(file.path).name
            record = {"type": "tiered_index_header", "file": name, "slots": index.slots}
            yield Single({**record, **index.header}, HEADER.build(index.header), HEADER)
            if index.problem:
                place = {"position": file.start, "size": file.size}
                yield Range({"type": "damage", **place, "reason": f"{name}: {index.problem}"})
            extent = Extent(index)
            for part in items(files, index):
                extent.add(part)
                begin = int((part.number < (at or 0)).sum())
                numbers, found = part.number[begin:], part.items[begin:]
                yield Units(
                    "tiered_index_item",
                    ITEM,
                    found,
                    "number",
                    numbers.tolist(),
                    (items_offset(index.slots) + numbers * ITEM_BYTES).tolist(),
                    {"file": name},
                    {"slot": slot_of(found["hash_code"], index.slots).tolist()},
                    marks=partial(_item_state, set(part.number[~part.linked].tolist())),
                )
            if problem := extent.problem():
                place = {"position": file.start, "size": HEADER_BYTES}
                yield Range({"type": "damage", **place, "reason": f"{name}: {problem}"})


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """Segments, items and times of all."""
    from ...formats.tiered_index import HEADER_BYTES
    from ...store.tiered.segments import Extent, items, open_segments, read_index

    count = unlinked = 0
    damaged, times = 0, list[int]()
    with open_segments(what.path) as files:
        for file in files.files:
            index = read_index(files, file)
            damaged += file.size if index.problem else 0
            extent = Extent(index)
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


def _item_state(lost: set[int], record: dict[str, Any]) -> Record:
    return {"state": "unlinked"} if record["number"] in lost else {}
