"""Consume queues: one, those of a topic, or all of a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .chunks import Chunk, Record, Units
from .one_file import not_unpacked
from .queues import ends, queue_files

if TYPE_CHECKING:
    from ...store.recognise import Recognised
    from ..options import Common


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """All units up to the last one that was written, queue by queue; `at`: queue offset."""
    from ...formats.consume_queue import UNIT, UNIT_BYTES
    from ...store.consume_queue import ConsumeQueue

    for topic, queue_id, files in queue_files(what):
        with ConsumeQueue(topic or "", queue_id or 0, files) as queue:
            stop = queue.summary().max_offset
            for first, units in queue.units(at or 0, stop):
                numbers = list(range(first, first + len(units)))
                yield Units(
                    "consume_queue_unit",
                    UNIT,
                    units,
                    "queue_offset",
                    numbers,
                    range(first * UNIT_BYTES, (first + len(units)) * UNIT_BYTES, UNIT_BYTES),
                    {"topic": topic, "queue_id": queue_id},
                    marks=_unit_state,
                )
            yield from not_unpacked(files, silent=True)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """Units of all queues there are; of one queue also its offsets."""
    from ...store.consume_queue import ConsumeQueue

    found = []
    for topic, queue_id, files in queue_files(what):
        with ConsumeQueue(topic or "", queue_id or 0, files) as queue:
            found.append(queue.summary())
    return ends(found)


def _unit_state(record: dict[str, Any]) -> Record:
    """What a unit is that points at no message."""
    from ...formats.consume_queue import PRE_FILL

    if record["size"] <= 0 or record["physical_offset"] < 0:
        return {"state": "invalid"}
    if all(record[name] == value for name, value in PRE_FILL.items()):
        return {"state": "pre_fill"}
    return {}
