"""Batch consume queues: one, all of a topic, or all of a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...formats.batch_consume_queue import UNIT
from ...store.inspect.recognise import Recognised
from ...store.queues.batches import BatchConsumeQueue
from ...store.queues.read import is_valid_batch
from ..options import Common
from .chunks import Chunk, Record, RecordArray
from .one_file import lacking
from .queues import ends, queue_files


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """All units up to the last valid one, queue by queue. at: number of the first unit."""
    for topic, queue_id, files in queue_files(what):
        with BatchConsumeQueue(topic or "", queue_id or 0, files) as queue:
            for first, units in queue.units(max(queue.first, at or 0), queue.stop):
                yield RecordArray(
                    "batch_consume_queue_unit",
                    UNIT,
                    units,
                    "number",
                    range(first, first + len(units)),
                    {"topic": topic, "queue_id": queue_id},
                    marks=_unit_state,
                )
            yield from lacking(files, silent=True)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    found, batches = [], 0
    for topic, queue_id, files in queue_files(what):
        with BatchConsumeQueue(topic or "", queue_id or 0, files) as queue:
            found.append(queue.summary())
            batches += queue.stop - queue.first
    return {"batches": batches, **ends(found)}


def _unit_state(record: dict[str, Any]) -> Record:
    """Mark a unit that names no batch."""
    return {} if is_valid_batch(record) else {"state": "invalid"}
