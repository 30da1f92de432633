"""Messages that are not there any more: queue offsets between those that are.

A consumer that reads a queue offset by offset must find something at each of them. What lay between two
messages of a queue lay between them in the log, too: the hole there takes a tombstone for each.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...formats.blank import BLANK
from ...formats.derive.ragged import Ints
from ...formats.message import SMALLEST, SysFlag
from ...formats.message_properties import ends_with_crc
from ..audit.messages import Messages
from ..broker.dispatch import LMQ_PREFIX, Dispatched
from ..disk.snapshot import QueueId
from ..log.batch import Batch, Extent
from ..plan.gaps import Gap
from ..plan.lost_units import LostUnits
from ..plan.tombstones import Forms


class Missing(NamedTuple):
    """`offsets` queue offsets from `first` on, somewhere in log positions [after, before)."""

    before: int
    after: int
    queue: QueueId
    first: int
    offsets: int


class Neighbour(NamedTuple):
    """The record before a hole."""

    position: int
    store_timestamp: int


@dataclass
class MissingOffsets:
    """Looks at a scan of the log (an auditor of `survey`).

    hole_begins: sorted, int64[n]. neighbours: by where a hole begins. highest_queue: of each topic.
    first_timestamp: when the first record was stored, 0 without records. light: records have a number
    in a light queue, which only a broker that keeps these gives.
    """

    hole_begins: Ints
    missing: list[Missing] = field(default_factory=list)
    neighbours: dict[int, Neighbour] = field(default_factory=dict)
    highest_queue: dict[str, int] = field(default_factory=dict)
    crc_items: bool = False
    first_timestamp: int = 0
    light: bool = False
    _last: dict[QueueId, tuple[int, int]] = field(default_factory=dict)
    _batches: set[bytes] = field(default_factory=set)
    _begin_lost: bool = field(init=False)

    def __post_init__(self) -> None:
        """Whether the log begins with a hole, which is asked for every queue of every batch."""
        self._begin_lost = bool((self.hole_begins[:1] == 0).any())

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        """Which of them stand before a hole; topics with batches, whose offsets go in steps."""
        columns = batch.columns
        self.first_timestamp = self.first_timestamp or int(columns.ints("store_timestamp")[0])
        ends = batch.position + columns.ints("total_size")
        for row in np.flatnonzero(np.isin(ends, self.hole_begins)).tolist():
            time = int(columns.ints("store_timestamp")[row])
            self.neighbours[int(ends[row])] = Neighbour(int(batch.position[row]), time)
        rows = np.flatnonzero(columns.ints("sys_flag") & SysFlag.INNER_BATCH)
        self._batches.update(columns.ragged("topic")[rows].tolist())
        self.crc_items |= ends_with_crc(columns.ragged("properties")[len(batch) - 1])

    def messages(self, messages: Messages) -> None:
        """The queue offsets between those of one queue."""
        queue = messages.queue
        self.highest_queue[queue.topic] = max(
            queue.queue_id, self.highest_queue.get(queue.topic, 0)
        )
        if queue.topic.startswith(LMQ_PREFIX):
            self.light = True
            return
        # a header has no checksum: an offset above one that follows is none
        later = np.minimum.accumulate(messages.offset[::-1])[::-1]
        messages = messages.take(messages.offset <= later)
        offset, position = messages.offset, messages.position
        end = position + messages.size
        # the first of a log that has lost its begin, and has not expired, began with offset 0
        begin = (-1, 0) if self._begin_lost else (int(offset[0]) - 1, int(position[0]))
        known = self._last.get(queue, begin)
        before = np.append(known[0], offset[:-1])
        after = np.append(known[1], end[:-1])
        jump = offset - before - 1
        # nor is one that leaves more messages out than there is room for
        for row in np.flatnonzero((jump > 0) & (jump <= (position - after) // SMALLEST)).tolist():
            first, count = int(before[row]) + 1, int(jump[row])
            self.missing.append(Missing(int(position[row]), int(after[row]), queue, first, count))
        self._last[queue] = (int(offset[-1]), int(end[-1]))

    def extent(self, extent: Extent) -> None:
        """What is no record says nothing."""

    def stale(self, batch: Batch) -> None:
        """What is none of this log neither."""

    def certain(self) -> list[Missing]:
        """The missing offsets of all topics without batches."""
        names = self.batch_topics
        return [each for each in self.missing if each.queue.topic not in names]

    @property
    def batch_topics(self) -> set[str]:
        """The topics with batches stored as one record: their queues are batch queues."""
        return {name.decode("utf-8", "surrogateescape") for name in self._batches}


def placed(gaps: Sequence[Gap], missing: list[Missing], forms: Forms) -> LostUnits:
    """A place in the gaps for each missing offset, as far as there is room, in log order.

    What has to be placed first comes first. Of a queue all places rise with the offsets.
    """
    waiting = sorted(missing, key=lambda each: each.after, reverse=True)
    open_: list[Missing] = []
    queues: dict[QueueId, int] = {}
    rows: list[tuple[int, int, int, int]] = []
    for gap in gaps:
        while waiting and waiting[-1].after <= gap.begin:
            heapq.heappush(open_, waiting.pop())
        at = gap.begin
        end = gap.end - (BLANK.sizeof() if gap.to_file_end else 0)
        while open_:
            if open_[0].before < gap.end:
                heapq.heappop(open_)  # no hole is left for it
                continue
            each = open_[0]
            size = forms.whole(each.queue.topic)
            count = min(each.offsets, (end - at) // size)
            if count <= 0:
                break
            number = queues.setdefault(each.queue, len(queues))
            rows += [(at + i * size, size, number, each.first + i) for i in range(count)]
            at += count * size
            heapq.heappop(open_)
            if count < each.offsets:
                left = each._replace(first=each.first + count, offsets=each.offsets - count)
                heapq.heappush(open_, left)
                break
    position, sizes, queue, offset = np.array(rows, np.int64).reshape(-1, 4).T
    tags = np.zeros(len(rows), np.int64)
    return LostUnits(list(queues), position, sizes, queue, offset, tags)
