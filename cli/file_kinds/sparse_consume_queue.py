"""Sparse consume queues of compaction: one, all of a topic, or all of a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...formats.sparse_consume_queue import END, UNIT
from ...store.inspect.recognise import Recognised
from ...store.queues.batches import SparseRange, sparse_units, summary_of
from ...store.queues.read import is_valid_batch
from ..options import Common
from .chunks import Chunk, NonRecordRange, Record, RecordArray
from .one_file import lacking
from .queues import queue_files


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """All units and damage, queue by queue. at: position of the first unit."""
    for topic, queue_id, files in queue_files(what):
        with files:
            for part in sparse_units(files, at):
                if isinstance(part, SparseRange):
                    yield NonRecordRange({"type": "damage", **part._asdict()})
                    continue
                yield RecordArray(
                    "sparse_consume_queue_unit",
                    UNIT,
                    part.units,
                    "position",
                    part.position.tolist(),
                    {"topic": topic, "queue_id": queue_id},
                    marks=_unit_state,
                )
            yield from lacking(files)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    found = []
    for topic, queue_id, files in queue_files(what):
        with files:
            found.append((topic, queue_id, summary_of(files)))
    sums = {
        "messages": sum(one.units for _, _, one in found),
        "damaged_bytes": sum(one.damaged_bytes for _, _, one in found),
    }
    if len(found) != 1:
        return {"topics": len({topic for topic, _, _ in found}), "queues": len(found), **sums}
    ((topic, queue_id, one),) = found
    ends = {"min_offset": one.min_offset, "max_offset": one.max_offset}
    return {"topic": topic, "queue_id": queue_id, **ends, **sums}


def _unit_state(record: dict[str, Any]) -> Record:
    """Mark a unit that names no message."""
    if all(record[name] == value for name, value in END.items()):
        return {"state": "end"}
    return {} if is_valid_batch(record) else {"state": "invalid"}
