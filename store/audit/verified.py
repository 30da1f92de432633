"""What of the log is in order, told in few numbers, so that nobody looks twice.

Most of a log is whole, and most queues name it rightly, also after a crash. One pass proves that
(`prove`), on several cores; the start of a broker, the plan and the counting then take the runs of
records as they are and look one by one only at what lies between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..broker.snapshot import QueueId
from ..index.compare import IndexFiles
from ..log.batch import Extent
from ..log.tail_history import Recent
from ..queues.units import Units
from .packed_items import PackedItems


class Stretch(NamedTuple):
    """Messages of one queue in a run: queue offsets `first` ≤ k < `next`, all there, and in order.

    first_position, last_position: log positions of the first and the last; last_bytes: of its
    record. bytes: of all their records. first_timestamp, last_timestamp: store times (ms), the
    least and the greatest. These are left out where units are made: there no message is lost.
    """

    first: int
    next: int
    first_position: int
    last_position: int
    last_bytes: int
    bytes: int = 0
    first_timestamp: int = 0
    last_timestamp: int = 0

    @property
    def messages(self) -> int:
        """Number of messages."""
        return self.next - self.first

    def reach(self, whole: bool) -> int:
        """How far it goes in the log: to the end of its last record (`whole`), or to its begin."""
        return self.last_position + (self.last_bytes if whole else 0)

    def after(self, before: Stretch | None) -> Stretch:
        """Both together; `before` ends where this one begins."""
        if before is None:
            return self
        return self._replace(
            first=before.first,
            first_position=before.first_position,
            bytes=before.bytes + self.bytes,
            first_timestamp=min(before.first_timestamp, self.first_timestamp),
            last_timestamp=max(before.last_timestamp, self.last_timestamp),
        )


@dataclass(frozen=True)
class SoundRun:
    """Records of one file, one behind the other, from log position `begin` to `end`.

    Each is whole, names its own position, has the checksum of its body, is a message of its own queue
    and of the light queues that it names, and no tombstone; the units there name it. last: position
    of the last one; store_timestamp, first_timestamp: when the last and the first one were stored
    (ms). with_crc: some last record of a window ends with a checksum of the whole. plain: of version
    1, with 4-byte hosts. unindexed: position of the first record with keys that no sound index file
    covers, None: all are covered. recent: positions of the last ones. units: those of queues that had
    none on disk, made from the records. items: of an index that had none. further_by: some record
    names further queues: the generation whose rules tell which; "" without.
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
    further_by: str = ""
    first_timestamp: int = 0

    def remembered(self) -> Recent:
        """What a scan that goes on behind it has to know of the records before."""
        recent = Recent()
        recent.remember(self.recent, self.store_timestamp)
        return recent


@dataclass(frozen=True)
class SoundLog:
    """Runs in log order, and the BLANKs between files, with whatever lies between them.

    From the log's first byte up to `end` there is nothing else. index: the index files, which tell
    what `unindexed` is.
    """

    items: list[SoundRun | Extent]
    end: int
    index: IndexFiles

    @property
    def runs(self) -> list[SoundRun]:
        """Without the BLANKs."""
        return [item for item in self.items if isinstance(item, SoundRun)]

    @property
    def recent(self) -> Recent:
        """What a scan that begins at `end` has to know of the records before."""
        before = [run for run in self.runs if run.end <= self.end]
        return before[-1].remembered() if before else Recent()

    def offsets(self) -> dict[QueueId, tuple[int, int]]:
        """Of each queue, up to `end`: the first offset, and the one behind the last."""
        found: dict[QueueId, tuple[int, int]] = {}
        for run in self.runs:
            if run.end > self.end:
                break
            for queue, stretch in run.queues.items():
                first = found[queue][0] if queue in found else stretch.first
                found[queue] = first, stretch.next
        return found

    def after(self, before: SoundLog) -> SoundLog:
        """Both together."""
        goes_on = bool(self.runs) and self.items[0] is self.runs[0]
        goes_on = goes_on and self.runs[0].begin == before.end
        reached = {queue: behind for queue, (_, behind) in before.offsets().items()}
        for queue, (first, _) in self.offsets().items() if goes_on else ():
            goes_on = goes_on and reached.get(queue, first) == first
        end = self.end if goes_on else before.end
        return replace(before, items=[*before.items, *self.items], end=end)

    def beside(self, ranges: Iterable[tuple[int, int]]) -> SoundLog:
        """Without the runs that one of these ranges of the log touches."""
        found: list[SoundRun | Extent] = []
        changed, end = list(ranges), self.end
        for item in self.items:
            begin = item.begin if isinstance(item, SoundRun) else item.position
            if any(low < item.end and begin < high for low, high in changed):
                end = min(end, begin)
            else:
                found.append(item)
        return replace(self, items=found, end=end)


@runtime_checkable
class TakesRuns(Protocol):
    """An auditor that need not see the records of a run."""

    def takes(self, run: SoundRun) -> bool:
        """Whether it can do without them, here and now."""

    def sound(self, run: SoundRun) -> None:
        """The records of a run, instead of `records` and `messages`."""
