"""The timer log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...formats.timer_log import UNIT
from ...store.inspect.recognise import Recognised
from ...store.timer.read import TimerUnits
from ...store.timer.read import timer_log as scan
from ..options import Common
from .chunks import Chunk, NonRecordRange, RecordArray
from .one_file import files_at, lacking


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """Units, BLANKs and damage. at: position in the timer log."""
    with files_at(what.path) as files:
        for part in scan(files, at):
            if isinstance(part, TimerUnits):
                yield RecordArray("timer_log_unit", UNIT, part.units, "position", part.position.tolist())
            else:
                reason = {"reason": "not a unit"} if part.kind == "damage" else {}
                place = {"type": part.kind, "position": part.position, "size": part.size}
                yield NonRecordRange(place | reason)
        yield from lacking(files)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for chunk in chunks(what, None, False, common):
        for record in chunk.records():
            counts[record["type"]] = counts.get(record["type"], 0) + 1
    return {
        "timer_log_units": counts.get("timer_log_unit", 0),
        "blanks": counts.get("blank", 0),
        "damaged_ranges": counts.get("damage", 0),
    }
