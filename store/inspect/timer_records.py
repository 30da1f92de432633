"""Messages of the timer topic and what was delivered of them, as columns (spec 04, 4.4).

A message that is rolled is written to the timer topic again, a delivered one to its real topic; both
keep what it was made with. Records that agree in all of that are of one message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...formats import message_properties as names
from ...formats.derive.ragged import Ints, Ragged
from ...formats.hashing_columns import java_hash_column
from ...formats.property_columns import Items
from ..broker.delay_level import TIMER_TOPIC
from ..log.batch import Batch, Extent, ExtentKind
from ..log.record_status import Mark
from ..search.selection import equal, utf8
from ..search.store import Store

Mask = npt.NDArray[np.bool_]
NO_NUMBER = -1
"""A property that is absent or no number of at most 18 digits."""
_DIGITS = 18


@dataclass
class TimerRecords:
    """n records in the order in which they were read.

    out_ms: TIMER_OUT_MS, deliver_ms: TIMER_DELIVER_MS, rolls: TIMER_ROLL_TIMES, queue_id: REAL_QID;
    NO_NUMBER without one.
    topic: the real one. cancels: TIMER_DEL_UNIQKEY; length -1 where the message cancels nothing.
    """

    position: Ints
    total_size: Ints
    queue_offset: Ints
    store_timestamp: Ints
    born_timestamp: Ints
    body_crc: Ints
    out_ms: Ints
    deliver_ms: Ints
    rolls: Ints
    queue_id: Ints
    topic: Ragged
    unique_key: Ragged
    cancels: Ragged

    def __len__(self) -> int:
        return len(self.position)

    @classmethod
    def of(cls, batch: Batch, topic: Ragged | None = None) -> Self:
        """Of a batch, in memory of their own.

        topic: of records in their real topics; None: REAL_TOPIC and REAL_QID tell.
        """
        columns = batch.columns
        items = Items(columns.ragged("properties"))

        def stored(name: str) -> Ints:
            return columns.ints(name).astype(np.int64)

        return cls(
            batch.position.copy(),
            stored("total_size"),
            stored("queue_offset"),
            stored("store_timestamp"),
            stored("born_timestamp"),
            stored("body_crc"),
            numbers(items.find(names.TIMER_OUT_MS)),
            numbers(items.find(names.TIMER_DELIVER_MS)),
            numbers(items.find(names.TIMER_ROLL_TIMES)),
            numbers(items.find(names.REAL_QID)) if topic is None else stored("queue_id"),
            (items.find(names.REAL_TOPIC) if topic is None else topic).packed(),
            items.find(names.UNIQ_KEY).packed(),
            items.find(names.TIMER_DEL_UNIQKEY).packed(),
        )

    @classmethod
    def concat(cls, parts: Iterable[Self]) -> Self:
        """One behind the other."""
        found = list(parts)
        return cls(**{field.name: _joined(found, field.name) for field in fields(cls)})

    def identity(self) -> Ints:
        """What all records of one message have in common, int64[n, 6]."""
        columns = (
            java_hash_column(self.topic),
            java_hash_column(self.unique_key),
            java_hash_column(self.cancels),
            self.out_ms,
            self.born_timestamp,
            self.body_crc,
        )
        return np.stack([column.astype(np.int64) for column in columns], axis=1)


def _joined(parts: list[Any], name: str) -> Any:
    columns = [getattr(part, name) for part in parts]
    if isinstance(columns[0], Ragged):
        return Ragged.concat(columns)
    return np.concatenate(columns)


def numbers(texts: Ragged) -> Ints:
    """Decimal numbers, int64[n]; NO_NUMBER for what is none or has too many digits."""
    length = texts.length
    found: Ints = np.zeros(len(texts), np.int64)
    good = (length > 0) & (length <= _DIGITS)
    last = max(len(texts.buffer) - 1, 0)
    for place in range(int(length[good].max()) if good.any() else 0):
        inside = good & (place < length)
        digit = texts.buffer[np.minimum(texts.start + place, last)].astype(np.int64) - ord("0")
        good &= ~inside | ((digit >= 0) & (digit <= 9))
        found = np.where(inside, found * 10 + digit, found)
    return np.where(good, found, NO_NUMBER)


@dataclass
class Scanned:
    """What the log has of timer messages.

    requested: records of the timer topic. came_out: those in real topics that were in it. at_once:
    those that were due when they came in, which a broker puts into their topic as they are. damage:
    position of the last damage met, -1 for none.
    """

    requested: TimerRecords | None = None
    came_out: TimerRecords | None = None
    at_once: TimerRecords | None = None
    damage: int = -1


def timer_records(store: Store) -> Scanned:
    """Scan the log for timer messages; no queue is needed. Raises Unreadable."""
    found = Scanned()
    parts: tuple[list[TimerRecords], ...] = ([], [], [])
    for item in store.log.scan(crc=False, reuse=True):
        if isinstance(item, Extent):
            if item.kind in (ExtentKind.DAMAGE, ExtentKind.MISSING):
                found.damage = item.position
        elif item.mark <= Mark.AFTER_DAMAGE:
            for part, mask in zip(parts, _timed(item), strict=True):
                if mask.any():
                    rows = item.take(mask)
                    topic = None if part is parts[0] else rows.columns.ragged("topic")
                    part.append(TimerRecords.of(rows, topic))
    found.requested, found.came_out, found.at_once = (
        TimerRecords.concat(part) if part else None for part in parts
    )
    return found


def _timed(batch: Batch) -> tuple[Mask, Mask, Mask]:
    """bool[n]: a message in the timer topic; one that was in it; one whose producer asked for it.

    What a consumer sent back is neither of the last: it keeps the properties of what it got.
    """
    items = Items(batch.columns.ragged("properties"))
    inside = equal(batch.columns.ragged("topic"), utf8(TIMER_TOPIC))
    timed = items.find(names.TIMER_OUT_MS).length > 0
    asked = np.zeros(len(batch), np.bool_)
    for name in (names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS):
        asked |= items.find(name).length > 0
    outside = ~inside & (batch.columns.ints("reconsume_times") == 0)
    return inside, timed & outside, asked & ~timed & outside
