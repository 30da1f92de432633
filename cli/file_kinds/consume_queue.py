"""Consume queues, tiered ones too: one, all of a topic, or all of a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from ...formats.consume_queue import EXT_ADDRESS_MAX, UNIT
from ...formats.consume_queue_ext import ADDRESS_BASE
from ...formats.derive.ragged import Structs
from ...store.disk.file_queue import MappedFileQueue
from ...store.disk.layout import CONSUME_QUEUE_EXT
from ...store.inspect.recognise import Recognised
from ...store.queues.ext import ExtUnit, ext_units_at
from ...store.queues.read import ConsumeQueue, Unit
from ..options import Common
from .chunks import Chunk, Record, RecordArray
from .one_file import files_at, lacking
from .queues import beside, ends, queue_files

_AT_ONCE = 1 << 10
"""Units whose units in consumequeue_ext are in memory together."""


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """All units up to the last one written, queue by queue. at: queue offset.

    For a unit with an address in consumequeue_ext, the unit there is looked up.
    """
    for topic, queue_id, files in queue_files(what):
        with ExitStack() as opened:
            queue = opened.enter_context(ConsumeQueue(topic or "", queue_id or 0, files))
            folder = beside(what, CONSUME_QUEUE_EXT, topic, queue_id)
            ext = opened.enter_context(files_at(folder)) if folder else None
            stop = queue.summary().max_offset
            for window, all_units in queue.units(at or 0, stop):
                for first, units, marks in _parts(window, all_units, ext):
                    yield RecordArray(
                        "consume_queue_unit",
                        UNIT,
                        units,
                        "queue_offset",
                        range(first, first + len(units)),
                        {"topic": topic, "queue_id": queue_id},
                        marks=partial(_unit_state, marks),
                    )
            yield from lacking(files, silent=True)


def _parts(
    first: int, units: Structs, ext: MappedFileQueue | None
) -> Iterator[tuple[int, Structs, Mapping[int, ExtUnit] | None]]:
    """Yield (first number, units, ext units by address): the whole window, or small parts if it has ext addresses."""
    import numpy as np

    if ext is None or not (units["tags_code"] <= EXT_ADDRESS_MAX).any():
        yield first, units, None
        return
    for begin in range(0, len(units), _AT_ONCE):
        part = units[begin : begin + _AT_ONCE]
        code = part["tags_code"].astype(np.int64)
        found = ext_units_at(ext, code[code <= EXT_ADDRESS_MAX] - ADDRESS_BASE)
        by_address = {position + ADDRESS_BASE: unit for position, unit in found.items()}
        yield first + begin, part, by_address


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    found = []
    for topic, queue_id, files in queue_files(what):
        with ConsumeQueue(topic or "", queue_id or 0, files) as queue:
            found.append(queue.summary())
    return ends(found)


def _unit_state(ext: Mapping[int, ExtUnit] | None, record: dict[str, Any]) -> Record:
    """Mark a unit that points at no message; add what consumequeue_ext has for it.

    ext: units by address, None if consumequeue_ext has no directory of the queue or no unit of the window needs it.
    """
    address = record["tags_code"]
    unit = Unit(0, record["physical_offset"], record["size"], address)
    if not unit.valid or unit.pre_fill:
        return {"state": "pre_fill" if unit.valid else "invalid"}
    if unit.ext_address is None:
        return {}
    if ext is None:
        return {"ext_address": address, "ext_problem": "no consumequeue_ext of this queue"}
    there = ext.get(address)
    if there is None:
        return {"ext_address": address, "ext_problem": "no unit there"}
    return {"ext_address": address, "ext_tags_code": there.tags_code, "ext_bit_map": there.bit_map.hex()}
