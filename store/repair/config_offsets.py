"""Offsets that the configuration keeps, brought inside their queues (I-077, I-144, I-146, I-152).

Of consumers, of light queues, of delay levels. A queue that the store proves never to have had a
message ends at 0. What names no queue at all is taken out: nobody can ask for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...formats.consumer_offset import OFFSET_TABLES
from ..broker.delay_level import SCHEDULE_TOPIC
from ..broker.dispatch import LMQ_PREFIX
from ..disk.snapshot import QueueId

Json = dict[Any, Any]
Ranges = Mapping[QueueId, tuple[int, int]]
_OFFSETS, _LIGHT_OFFSETS = "offsetTable", "lmqOffsetTable"
_DELAYS = "delayOffset.json"
_CONSUMERS = ("consumerOffset.json", "lmqConsumerOffset.json")
_DIGITS = 10
"""Of the number of a queue or of a delay level at most."""
_NEVER = (0, 0)
"""Range of a queue that never had a message."""


@dataclass(frozen=True)
class Clamped:
    """An offset that lay outside of its queue. group: "" for a delay level. after: None, taken out."""

    group: str
    queue: QueueId
    before: int
    after: int | None


@dataclass(frozen=True)
class Bounds:
    """What offsets are held against.

    ranges: (min, max) offset of each queue. topics: those that the broker knows. levels: how many
    delay levels there are, None where that is not known. from_zero: the log has every message that was
    ever stored.
    """

    ranges: Ranges
    topics: frozenset[str]
    levels: int | None
    from_zero: bool

    def of(self, queue: QueueId, *, known: bool) -> tuple[int, int] | None:
        """The range of a queue, None where nothing tells. known: the queue is one that can be."""
        found = self.ranges.get(queue)
        return _NEVER if found is None and known and self.from_zero else found


def clamp(name: str, content: Json, bounds: Bounds) -> Iterator[Clamped]:
    """Bring the offsets of the file of this name inside their queues."""
    light = content.get(_LIGHT_OFFSETS)
    if isinstance(light, dict):
        yield from _light(light, bounds)
    if name == _DELAYS and isinstance(table := content.get(_OFFSETS), dict):
        yield from _delays(table, bounds)
    for member in OFFSET_TABLES if name in _CONSUMERS else ():
        if isinstance(table := content.get(member), dict):
            yield from _groups(table, bounds)


def _groups(table: Json, bounds: Bounds) -> Iterator[Clamped]:
    """Positions of groups, by topic@group and queue."""
    for key, row in table.items():
        topic, _, group = str(key).rpartition("@")
        if isinstance(row, dict):
            for place in list(row):
                if (number := _number(place)) is None:
                    continue
                queue = QueueId(topic, number)
                ends = bounds.of(queue, known=topic in bounds.topics)
                yield from _inside(group, row, place, queue, ends)


def _light(table: Json, bounds: Bounds) -> Iterator[Clamped]:
    for key in list(table):
        topic, _, group = str(key).rpartition("@")
        queue, light = QueueId(topic, 0), topic.startswith(LMQ_PREFIX)
        if not light and queue not in bounds.ranges and _is_int(table[key]):
            yield Clamped(group, queue, table.pop(key), None)
            continue
        yield from _inside(group, table, key, queue, bounds.of(queue, known=light))


def _delays(table: Json, bounds: Bounds) -> Iterator[Clamped]:
    for key in list(table):
        if (level := _number(key)) is None or not _is_int(table[key]):
            continue
        queue = QueueId(SCHEDULE_TOPIC, level - 1)
        exists = bounds.levels is not None and 1 <= level <= bounds.levels
        cannot_be = level < 1 or (bounds.levels is not None and not exists)
        if cannot_be and queue not in bounds.ranges:
            yield Clamped("", queue, table.pop(key), None)
            continue
        yield from _inside("", table, key, queue, bounds.of(queue, known=exists))


def _inside(
    group: str, row: Json, key: Any, queue: QueueId, ends: tuple[int, int] | None
) -> Iterator[Clamped]:
    """One offset of a row. ends: None where nothing is known but that no queue begins before 0."""
    offset = row[key]
    if not _is_int(offset):
        return
    ends = ends or (0, max(0, offset))
    inside = min(max(offset, ends[0]), ends[1])
    if inside != offset:
        row[key] = inside
        yield Clamped(group, queue, offset, inside)


def _number(key: Any) -> int | None:
    """A key that is a number, with quotes or without, as a broker takes both."""
    if isinstance(key, str):
        return int(key) if len(key) <= _DIGITS and key.isascii() and key.isdecimal() else None
    return key if _is_int(key) else None


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
