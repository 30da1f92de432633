"""consumequeue_ext: of one queue, of all of a topic, or of all of a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...formats.consume_queue_ext import ADDRESS_BASE, UNIT
from ...store.inspect.recognise import Recognised
from ...store.queues.ext import ExtUnits, ext_units
from ..options import Common
from .chunks import Chunk, NonRecordRange, Record, RecordPiece
from .one_file import lacking
from .queues import queue_files


class _Units(NamedTuple):
    """Consecutive units. before: topic and queue."""

    units: ExtUnits
    before: Record

    def records(self) -> Iterator[Record]:
        columns = self.units.columns
        rows = zip(
            self.units.position.tolist(),
            columns.ints("size").tolist(),
            columns.ints("tags_code").tolist(),
            columns.ints("msg_store_time").tolist(),
            columns.ragged("bit_map").tolist(),
            strict=True,
        )
        for position, size, tags_code, time, bit_map in rows:
            yield {
                "type": "consume_queue_ext_unit",
                **self.before,
                "position": position,
                "address": position + ADDRESS_BASE,
                "size": size,
                "tags_code": tags_code,
                "msg_store_time": time,
                "bit_map_size": len(bit_map),
                "bit_map": bit_map.hex(),
            }

    def pieces(self) -> Iterator[RecordPiece]:
        columns = self.units.columns
        buffer = columns.ragged("bit_map").buffer
        ends = zip(columns.starts.tolist(), columns.ints("size").tolist(), strict=True)
        for position, (start, size) in zip(self.units.position.tolist(), ends, strict=True):
            data = buffer[start : start + size].tobytes()
            yield RecordPiece(f"consume queue ext unit at {position}", position, data, UNIT)


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """All units and damage, queue by queue. at: position of the first unit."""
    for topic, queue_id, files in queue_files(what):
        with files:
            for part in ext_units(files, at):
                if isinstance(part, ExtUnits):
                    yield _Units(part, {"topic": topic, "queue_id": queue_id})
                elif part.kind == "damage":
                    yield NonRecordRange.damage(part.position, part.size, "not a unit")
            yield from lacking(files)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    queues = units = mapped = damaged = 0
    times: list[int] = []
    for _, _, files in queue_files(what):
        queues += 1
        with files:
            for part in ext_units(files):
                if isinstance(part, ExtUnits):
                    units += len(part.position)
                    mapped += int((part.columns.ints("bit_map_size") > 0).sum())
                    time = part.columns.ints("msg_store_time")
                    times += [int(time.min()), int(time.max())]
                else:
                    damaged += part.size if part.kind == "damage" else 0
    return {
        "queues": queues,
        "units": units,
        "with_bit_map": mapped,
        "damaged_bytes": damaged,
        "first_store_timestamp": min(times, default=None),
        "last_store_timestamp": max(times, default=None),
    }
