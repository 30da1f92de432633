"""Which groups lose messages that they have not consumed when files of the log expire, and how many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..disk.file_queue import MappedFileQueue
from ..inspect.expiry import Going
from ..queues.read import QueueSummary
from ..queues.read_batches import BatchConsumeQueue
from ..queues.units import is_used, is_valid
from ..search.store import Store
from ..settings.rocksdb import stand_ins
from ..start.config_rules import LIGHT_OFFSETS, OFFSETS
from .lag import Ends, Lag, behind_log, lags_of, queue_ends
from .positions import DELAYED, PULLED, Positions, groups_of, positions_of


class Losing(NamedTuple):
    """A group that loses messages of a topic. first_ms: when the first of them goes."""

    group: str
    topic: str
    queues: int
    messages: int
    unread: int
    first_ms: int

    def to_json(self) -> dict[str, Any]:
        """Fields of the JSON."""
        return {
            "group": self.group,
            "topic": self.topic,
            "queues": self.queues,
            "messages": self.messages,
            "unread": self.unread,
            "first_timestamp": self.first_ms,
        }


class Losses(NamedTuple):
    """Groups that lose messages. unknown: why there may be more. notes: what else is to be known."""

    rows: list[Losing]
    unknown: list[str]
    notes: list[str]


def losing(store: Store, going: Sequence[Going]) -> Losses:
    """Most messages first; a group that consumes on loses less. Raises Unreadable."""
    layout, version = store.layout, store.generation.version
    if not going:
        return Losses([], [], [])
    if not layout.config.is_dir():
        return Losses([], ["no config/ here: nothing says how far groups have come"], [])
    found = positions_of(layout, version)
    ends, boundary = queue_ends(store), max(one.file.start + one.file.size for one in going)
    rows: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    groups = groups_of(layout, version)
    for lag in lags_of(found.rows, ends, groups):
        if lag.committed and lag.position.table not in (DELAYED, PULLED):
            lost = _of_queue(store, lag, boundary, going)
            if lost is not None:
                key = lag.position.group, lag.position.topic
                rows.setdefault(key, []).append(lost)
    made = []
    for (group, topic), queues in rows.items():
        messages, unread, times = zip(*queues, strict=True)
        made.append(Losing(group, topic, len(queues), sum(messages), sum(unread), min(times)))
    made.sort(key=lambda one: (-one.messages, one.group, one.topic))
    unknown = list(_unknown(store, found, ends))
    if found.lacking:
        return Losses(made, [*found.notes, *unknown], [])
    return Losses(made, unknown, found.notes)


def _unknown(store: Store, found: Positions, ends: Ends) -> Iterator[str]:
    """Why somebody may lose messages who is not told."""
    if store.queues_unread and not ends:
        yield store.queues_unread
    elif (behind := behind_log(store, ends)) is not None:
        yield f"the queues are behind the log, from {behind} on"
    config = store.layout.config
    there = OFFSETS in stand_ins(config, store.layout.broker_config)
    there |= any((config / name).exists() for name in (OFFSETS, LIGHT_OFFSETS))
    told = any(one.table not in (DELAYED, PULLED) for one in found.rows)
    if not told and not there:
        yield "config/ has no positions of groups"


def _of_queue(
    store: Store, lag: Lag, boundary: int, going: Sequence[Going]
) -> tuple[int, int, int] | None:
    """Messages that go unread, all that are unread, and when the first goes; None for none."""
    first = lag.first_unread
    if first is None or lag.queue is None:
        return None
    batched = store.has_batch_queues(lag.position.topic)
    behind, place = (_batches if batched else _units)(store, lag.queue, first, boundary)
    if behind <= first or place is None:
        return None
    times = (one.goes_ms for one in going if place < one.file.start + one.file.size)
    goes_ms = next(times, going[-1].goes_ms)
    return min(behind, lag.queue.max_offset) - first, lag.queue.max_offset - first, goes_ms


def _units(store: Store, queue: QueueSummary, first: int, boundary: int) -> tuple[int, int | None]:
    """The first offset whose record lies behind `boundary`, and where that of `first` is, or of the next
    one whose unit is sound: a damaged one is passed over.
    """
    behind, place = first, None
    start, end = store.log_files.start, store.log_end.position
    with store.queues.open(queue.topic, queue.queue_id) as opened:
        for number, units in opened.units(first, queue.max_offset):
            at = units["physical_offset"]
            sound = is_used(units) & (at >= start) & (at < end)
            if place is None and sound.any():
                place = int(at[sound.argmax()])
            gone = np.flatnonzero(sound & (at < boundary))
            if len(gone):
                behind = number + int(gone[-1]) + 1
            if sound.any() and not len(gone):
                break  # units are in the order of the log
    return behind, place


def _batches(
    store: Store, queue: QueueSummary, first: int, boundary: int
) -> tuple[int, int | None]:
    """The same of a batch queue."""
    path = store.layout.batch_consume_queue / queue.topic / str(queue.queue_id)
    behind = queue.min_offset
    with BatchConsumeQueue(queue.topic, queue.queue_id, MappedFileQueue.open(path)) as batches:
        for _, units in batches.units(batches.first, batches.stop):
            gone = units[is_valid(units) & (units["physical_offset"] < boundary)]
            if len(gone):
                ends = gone["msg_base_offset"].astype(np.int64) + gone["batch_size"]
                behind = max(behind, int(ends.max()))
        batch = batches.find(first)
    return behind, None if batch is None else batch.physical_offset
