"""Consume queues: one, those of a topic, or all of a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .chunks import Chunk, Record, Units
from .one_file import single_file

if TYPE_CHECKING:
    from ...store.mapped_file_queue import MappedFileQueue
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


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """Units of all queues there are; of one queue also its offsets."""
    from ...store.consume_queue import ConsumeQueue

    found = []
    for topic, queue_id, files in queue_files(what):
        with ConsumeQueue(topic or "", queue_id or 0, files) as queue:
            found.append(queue.summary())
    if len(found) == 1:
        (one,) = found
        unit = {} if one.end_position is None else {"highest_position": one.end_position}
        return {
            "topic": one.topic or None,
            "queue_id": one.queue_id if one.topic else None,
            "min_offset": one.min_offset,
            "max_offset": one.max_offset,
            **unit,
        }
    return {
        "topics": len({queue.topic for queue in found}),
        "queues": len(found),
        "messages": sum(queue.max_offset - queue.min_offset for queue in found),
        "highest_position": max((q.end_position for q in found if q.end_position), default=0),
    }


def _unit_state(record: dict[str, Any]) -> Record:
    """What a unit is that points at no message."""
    from ...formats.consume_queue import PRE_FILL

    if record["size"] <= 0 or record["physical_offset"] < 0:
        return {"state": "invalid"}
    if all(record[name] == value for name, value in PRE_FILL.items()):
        return {"state": "pre_fill"}
    return {}


def queue_files(what: Recognised) -> Iterator[tuple[str | None, int | None, MappedFileQueue]]:
    """The queues at or below a path; topic and queue id are None where no place names them."""
    from ...store.mapped_file_queue import MappedFileQueue

    for topic, queue_id, path in _queues(what):
        yield topic, queue_id, single_file(path) if path.is_file() else MappedFileQueue.open(path)


def _queues(what: Recognised) -> Iterator[tuple[str | None, int | None, Path]]:
    """The queues at or below a path, with their directories, or the one of a single file."""
    from ...store.consume_queue import queue_directories
    from ...store.layout import CONSUME_QUEUE
    from ...store.recognise import Recognised

    if what.queue is not None or what.path.is_file():
        topic, queue_id = what.queue or (None, None)
        yield topic, queue_id, what.path
        return
    if what.path.absolute().name == CONSUME_QUEUE:
        for found in queue_directories(what.path):
            yield found.topic, found.queue_id, Path(found.path)
        return
    numbers = [child for child in what.path.iterdir() if child.is_dir() and child.name.isdecimal()]
    for path in sorted(numbers, key=lambda child: int(child.name)):
        topic, queue_id = Recognised(path, what.kind, "").queue or (what.path.name, int(path.name))
        yield topic, queue_id, path
    if not numbers:
        yield None, None, what.path
