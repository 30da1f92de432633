"""The timer wheel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...formats.timer_wheel import SLOT
from ...store.inspect.recognise import Recognised
from ...store.timer.read import timer_wheel
from ..options import Common
from .chunks import Chunk, RecordArray
from .one_file import unreadable


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """Slots that were ever used, with `raw` all slots. at: number of the first slot."""
    for part in timer_wheel(what.path, at or 0, unused=raw):
        yield RecordArray("timer_wheel_slot", SLOT, part.slots, "slot", part.number.tolist())
    yield from unreadable(str(what.path))


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    used, messages, ticks = 0, 0, list[int]()
    for part in timer_wheel(what.path):
        used += len(part.number)
        messages += int(part.slots["num"].sum())
        ticks += [int(part.slots["time"].min()), int(part.slots["time"].max())]
    return {
        "slots_used": used,
        "messages": messages,
        "first_tick": min(ticks, default=None),
        "last_tick": max(ticks, default=None),
    }
