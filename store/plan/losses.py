"""What a plan gives up, message by message and byte by byte: from closed gaps to messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..audit.messages import Messages
from ..broker.dispatch import LMQ_PREFIX
from ..disk.snapshot import QueueId, Snapshot
from ..log.commit_log import CommitLog
from .fill import Fill
from .lost_messages import MOST, LostMessages, named
from .lost_units import LostUnits, units_at


def tombstoned(snapshot: Snapshot, fills: Sequence[Fill]) -> Iterator[Messages]:
    """The messages that get a tombstone, queue by queue: also those of light queues that name the
    same records. Raises Unreadable.
    """
    for fill in fills:
        for number in np.unique(fill.lost.queue).tolist():
            mine = fill.lost.take(fill.lost.queue == number)
            times = np.full(len(mine), fill.gap.store_timestamp, np.int64)
            yield _messages(mine.queues[number], mine, times)
    lost = [fill.lost.position for fill in fills]
    own = {fill.lost.queues[int(n)] for fill in fills for n in np.unique(fill.lost.queue)}
    positions = np.unique(np.concatenate([np.zeros(0, np.int64), *lost]))
    for queue in sorted(snapshot.queues) if len(positions) else ():
        if queue.topic.startswith(LMQ_PREFIX) and queue not in own:
            mine = units_at(snapshot, queue, positions)
            if len(mine):
                yield _messages(queue, mine, np.zeros(len(mine), np.int64))


def _messages(queue: QueueId, lost: LostUnits, times: np.ndarray) -> Messages:
    """Lost units of one queue as messages that are not good."""
    nobody = np.zeros(len(lost), np.bool_)
    columns = (lost.queue_offset, lost.position, lost.size, lost.tags_code, times)
    return Messages(queue, *columns, nobody, ~nobody)


class DamagedRange(NamedTuple):
    """A range of the log that has no good record. messages: how many lost ones are known in it."""

    position: int
    size: int
    messages: int


def damaged_ranges(fills: Sequence[Fill]) -> list[DamagedRange]:
    """The gaps that a plan closes."""
    return [
        DamagedRange(fill.gap.begin, fill.gap.end - fill.gap.begin, len(fill.lost))
        for fill in fills
    ]


def name_all(
    lost: LostMessages, snapshot: Snapshot, fills: Sequence[Fill], most: int = MOST
) -> list[dict[str, Any]]:
    """Rows of the lost messages, from what lies on disk before anything is done. Raises Unreadable."""
    if not lost.count and not fills:
        return []
    gaps = [fill.gap for fill in fills]
    return named(lost, snapshot, CommitLog.open(snapshot.layout), gaps, most)
