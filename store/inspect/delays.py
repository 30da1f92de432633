"""Delay levels: what is pending in each, and when it fires (spec 01, 1.11; 05, 5.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats import message_properties as names
from ...formats.property_columns import Items
from ..broker.delay_level import SCHEDULE_TOPIC, delay_ms
from ..errors import Missing
from ..log.batch import Batch
from ..search.found import Note
from ..search.store import Store
from ..settings.read import read_config_file
from .topic_records import topic_records

Ints = npt.NDArray[np.int64]
_FILE = "delayOffset.json"
_KIND = "delay-offset"


@dataclass
class Level:
    """One delay level; times in ms since 1970, None where nothing is pending.

    delay_ms: None for a level that the broker does not have. delivered: next queue offset to be
    delivered, None where delayOffset.json does not know it: then all counts as pending.
    """

    level: int
    delay_ms: int | None
    delivered: int | None
    messages: int = 0
    pending: int = 0
    overdue: int = 0
    first_deliver_timestamp: int | None = None
    last_deliver_timestamp: int | None = None

    def add(self, offsets: Ints, due: Ints, now_ms: int) -> None:
        """Count messages of the level by queue offset and deliver time."""
        self.messages += len(offsets)
        waiting = due[offsets >= (self.delivered or 0)]
        if not len(waiting):
            return
        self.pending += len(waiting)
        self.overdue += int((waiting <= now_ms).sum())
        first, last = int(waiting.min()), int(waiting.max())
        if self.first_deliver_timestamp is not None and self.last_deliver_timestamp is not None:
            first = min(first, self.first_deliver_timestamp)
            last = max(last, self.last_deliver_timestamp)
        self.first_deliver_timestamp, self.last_deliver_timestamp = first, last


@dataclass
class Delays:
    """All levels that have messages, lowest first."""

    now_ms: int
    levels: list[Level] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For `inspect --delays`."""
        return {
            "type": "delays",
            "now": self.now_ms,
            "pending": sum(level.pending for level in self.levels),
            "overdue": sum(level.overdue for level in self.levels),
            "levels": [vars(level) for level in self.levels],
        }


def delays(store: Store, now_ms: int, note: Note) -> Delays:
    """What waits in the delay levels of a store at `now_ms`. Raises Unreadable.

    A message counts as delivered once its queue offset lies before that of delayOffset.json: a
    killed broker may have delivered more than it had noted.
    """
    known = store.layout.options.delay_levels.value
    progress = _progress(store)
    if progress is None:
        note(f"{_FILE} cannot be read: all messages of the delay levels count as pending")
        progress = {}
    levels: dict[int, Level] = {}
    for batch in topic_records(store, SCHEDULE_TOPIC, note):
        queue_ids = batch.columns.ints("queue_id")
        offsets = batch.columns.ints("queue_offset").astype(np.int64)
        due = _due(batch, known)
        for queue_id in np.unique(queue_ids).tolist():
            number = queue_id + 1
            if number not in levels:
                wait_ms = known[queue_id] if 0 <= queue_id < len(known) else None
                levels[number] = Level(number, wait_ms, progress.get(number))
            mine = queue_ids == queue_id
            levels[number].add(offsets[mine], due[mine], now_ms)
    return Delays(now_ms, [levels[number] for number in sorted(levels)])


def _due(batch: Batch, levels: tuple[int, ...]) -> Ints:
    """When each message of a batch fires; a broker delivers one without DELAY at once."""
    stored = batch.columns.ints("store_timestamp").astype(np.int64)
    texts = Items(batch.columns.ragged("properties")).find(names.DELAY)
    waits = {text: delay_ms(text.decode("utf-8", "replace"), levels) or 0 for text in {*texts}}
    return stored + np.array([waits[text] for text in texts], np.int64)


def _progress(store: Store) -> Mapping[int, int] | None:
    """Level → next queue offset to be delivered, of delayOffset.json, else of its .bak.

    Empty where there is neither: nothing was delivered. None where one is there, and damaged.
    """
    damaged = False
    for name in (_FILE, f"{_FILE}.bak"):
        try:
            file = read_config_file(store.layout.config / name, _KIND)
        except Missing:
            continue
        damaged = True
        if file.problem is None:
            return {
                row["delay_level"]: row["offset"]
                for row in file.records()
                if row["type"] == "delay_offset"
                and isinstance(row.get("delay_level"), int)
                and isinstance(row.get("offset"), int)
            }
    return None if damaged else {}
