"""What is in order from the beginning of the log on: told in few numbers, so that nobody looks twice.

Most of a log is whole, and most queues name it rightly, also after a crash. One pass proves that
(`prove`), on several cores; the start of a broker, the plan and the counting then take the runs of
records as they are and look one by one only at what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..batch import Extent
from ..recent import Recent
from .index_audit import IndexFiles
from .packed_items import PackedItems
from .queue_units import Units
from .snapshot import QueueId


class Stretch(NamedTuple):
    """Messages of one queue in a run: queue offsets `first` ≤ k < `next`, all there, and in order.

    first_position, last_position: log positions of the first and the last; last_bytes: of its
    record.
    """

    first: int
    next: int
    first_position: int
    last_position: int
    last_bytes: int

    @property
    def messages(self) -> int:
        """Number of messages."""
        return self.next - self.first

    def reach(self, whole: bool) -> int:
        """How far it goes in the log: to the end of its last record (`whole`), or to its begin."""
        return self.last_position + (self.last_bytes if whole else 0)


@dataclass(frozen=True)
class SoundRun:
    """Records of one file, one behind the other, from log position `begin` to `end`.

    Each is whole, names its own position, has the checksum of its body, is a message of exactly one
    queue, its own, and no tombstone; the unit there names it. last: position of the last one;
    store_timestamp: its time (ms). with_crc: some last record of a window ends with a checksum of
    the whole. plain: of version 1, with 4-byte hosts. unindexed: position of the first record with
    keys that no sound index file covers, None: all are covered. recent: positions of the last ones.
    units: those of queues that had none on disk, made from the records. items: of an index that had
    none.
    """

    path: str
    begin: int
    end: int
    last: int
    store_timestamp: int
    with_crc: bool
    plain: bool
    unindexed: int | None
    recent: npt.NDArray[np.int64]
    queues: dict[QueueId, Stretch]
    units: dict[QueueId, Units] = field(default_factory=dict)
    items: list[PackedItems] = field(default_factory=list)


@dataclass(frozen=True)
class SoundLog:
    """The log from its first byte to `end`: runs, and the BLANKs between files, in log order.

    index: the index files, which tell what `unindexed` is. exact: units are right in every field.
    """

    items: list[SoundRun | Extent]
    end: int
    index: IndexFiles
    exact: bool = False

    @property
    def runs(self) -> list[SoundRun]:
        """Without the BLANKs."""
        return [item for item in self.items if isinstance(item, SoundRun)]

    @property
    def recent(self) -> Recent:
        """What a scan that goes on at `end` has to know of the records before."""
        recent = Recent()
        for run in self.runs[-1:]:
            recent.remember(run.recent, run.store_timestamp)
        return recent

    def offsets(self) -> dict[QueueId, tuple[int, int]]:
        """Of each queue: the first offset that is in order, and the one behind the last."""
        firsts = dict(self._first_stretches())
        return {queue: (firsts[queue].first, end) for queue, end in _reached(self.runs).items()}

    def after(self, before: SoundLog) -> SoundLog | None:
        """Both together; None unless this one goes on exactly where `before` stops."""
        if not self.runs:
            return before
        if self.items[0] is not self.runs[0] or self.runs[0].begin != before.end:
            return None
        reached = _reached(before.runs)
        for queue, stretch in self._first_stretches():
            if queue in reached and reached[queue] != stretch.first:
                return None
        return replace(before, items=[*before.items, *self.items], end=self.end)

    def _first_stretches(self) -> list[tuple[QueueId, Stretch]]:
        found: dict[QueueId, Stretch] = {}
        for run in self.runs:
            found = {**run.queues, **found}
        return list(found.items())


def _reached(runs: Sequence[SoundRun]) -> dict[QueueId, int]:
    """The queue offset behind the last message of each queue."""
    return {queue: stretch.next for run in runs for queue, stretch in run.queues.items()}


@runtime_checkable
class TakesRuns(Protocol):
    """An auditor that need not see the records of a run."""

    def takes(self, sound: SoundLog) -> bool:
        """Whether it can do without them, for all runs."""

    def sound(self, run: SoundRun) -> None:
        """The records of a run, instead of `records` and `messages`."""
