"""What of the log is in order, in few numbers, so that nothing is read twice.

Most of a log is whole, and most queues name its records rightly, also after a crash. One pass proves that (`prove`), on
several cores; the start of a broker, the plan and the counts then take the runs of records as they are and read only
what lies between them one by one.

`PackedItems` keeps index items of many records in little memory until the index is written. `VerifiedPieces` puts the
results of the proof together: facts of windows to runs, runs and BLANKs to pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ...formats.derive.ragged import Ints
from ...formats.message import MAGIC_V1, SysFlag
from ...formats.message_properties import ends_with_crc
from ..broker.dispatch import IndexItems
from ..broker.dispatch_record import Dispatching
from ..broker.snapshot import DirectoryEntry, QueueId
from ..disk.temporary import Spill
from ..index.compare import IndexFiles
from ..log.batch import Batch, Extent, ExtentKind, TailHistory, last_of
from ..log.commit_log import CommitLog
from ..queues.units import UNIT_DTYPE, Units

if TYPE_CHECKING:
    from ..queues.rocksdb_copy import CopiedQueues


@dataclass(frozen=True)
class PackedItems:
    """Index items of n consecutive records: 16 bytes per record, 4 per item.

    begin: position of the first record. size, count: bytes and number of items of each record, int32[n].
    store_timestamp: int64[n], ms. key_hash: of all items, int32.
    """

    begin: int
    size: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    store_timestamp: Ints
    key_hash: npt.NDArray[np.int32]

    @classmethod
    def of(cls, batch: Batch, items: IndexItems) -> PackedItems:
        """Return the items of a batch whose records are consecutive."""
        return cls(
            int(batch.position[0]),
            batch.columns.ints("total_size").astype(np.int32),
            np.bincount(items.record, minlength=len(batch)).astype(np.int32),
            batch.columns.ints("store_timestamp").astype(np.int64),
            items.key_hash.astype(np.int32),
        )

    def kept_in(self, spill: Spill) -> PackedItems:
        """Return the same items, kept in `spill`, which has room for those of a whole log."""
        columns = ("size", "count", "store_timestamp", "key_hash")
        return replace(self, **{name: spill.keep(getattr(self, name)) for name in columns})

    def unpacked(self) -> IndexItems:
        """Return the items as `dispatch` gave them."""
        record = np.repeat(np.arange(len(self.size), dtype=np.int64), self.count)
        ends = self.begin + np.cumsum(self.size, dtype=np.int64)
        position = ends - self.size
        times = self.store_timestamp[record]
        return IndexItems(record, self.key_hash.astype(np.int64), position[record], times)


_FEW_RUNS = 64
_LONG_RUN_MESSAGES = 64
_LONG_RUN_BYTES = 64 << 10
"""Messages, or bytes, per queue that make a run long."""


class QueueRange(NamedTuple):
    """Messages of one queue in a run: queue offsets `first` ≤ k < `next`, all there, and in order.

    first_position, last_position: log positions of the first and last record; last_bytes: size of the last one. bytes:
    of all records. first_timestamp, last_timestamp: least and greatest store time (ms).
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
        return self.next - self.first

    def reach(self, whole: bool) -> int:
        """Return how far it goes in the log: to the end of its last record (`whole`), or to its start."""
        return self.last_position + (self.last_bytes if whole else 0)

    def after(self, before: QueueRange | None) -> QueueRange:
        """Return both as one range; `before` ends where this one begins."""
        if before is None:
            return self
        return self._replace(
            first=before.first,
            first_position=before.first_position,
            bytes=before.bytes + self.bytes,
            first_timestamp=min(before.first_timestamp, self.first_timestamp),
            last_timestamp=max(before.last_timestamp, self.last_timestamp),
        )


class VerifiedQueue(NamedTuple):
    """A queue whose files have the units of these messages, from the first unit of the first file on, and zeros behind
    them. entries: its files.
    """

    messages: QueueRange
    entries: tuple[DirectoryEntry, ...]

    def units(self, first: int, count: int) -> Units | None:
        """Return position and size of the units from `first` on: of the last one, then zeros. None if earlier units are
        wanted, which must be read.
        """
        last = self.messages.next - 1
        if first < last:
            return None
        units = np.zeros(count, UNIT_DTYPE)
        if first == last:
            units[:1]["physical_offset"] = self.messages.last_position
            units[:1]["size"] = self.messages.last_bytes
        return units


def is_long(queues: int, messages: int, size: int) -> bool:
    """Return whether a run of so many queues, messages and bytes costs less than its records."""
    return messages >= _LONG_RUN_MESSAGES * queues or size >= _LONG_RUN_BYTES * queues


class VerifiedRun(NamedTuple):
    """Consecutive records of one file, from log position `begin` to `end`.

    Each is whole, names its own position, matches the checksum of its body, has properties that every broker can use,
    is a message of its own queue and of the LMQs that it names, and no tombstone; the units there name it. recent:
    positions of the last records. store_timestamp, first_timestamp: store times of the last and the first one (ms).
    with_crc: some last record of a window ends with a checksum of the whole. plain: all are of version 1, with 4-byte
    hosts. unindexed: position of the first record with keys that no sound index file covers, None if all are covered.
    further_by: some record names further queues: the broker version whose rules say which; "" without. units: those
    made for queues that had none on disk. items: those of an index that had none.
    """

    path: str
    begin: int
    end: int
    recent: Ints
    store_timestamp: int
    with_crc: bool
    plain: bool
    unindexed: int | None
    further_by: str
    first_timestamp: int
    queues: dict[QueueId, QueueRange]
    units: dict[QueueId, list[Units]]
    items: list[PackedItems]

    @property
    def last(self) -> int:
        return int(self.recent[-1])

    @property
    def is_long(self) -> bool:
        """Whether it costs less than its records, because it has many bytes, or messages, for each of its queues."""
        messages = sum(queue_range.messages for queue_range in self.queues.values())
        return is_long(len(self.queues), messages, self.end - self.begin)


@dataclass(frozen=True)
class VerifiedLog:
    """Runs in log order, and the BLANKs between files, with holes between them.

    There is no hole from the log's first byte up to `end`. index: the index files to which `unindexed` refers. made_by:
    the rules by which units of queues without any were made. copied: the queues of a RocksDB, if the log was compared
    with them. tagged: units have the tags codes of their records, too. queues: those in files that have nothing else in
    them. reach: the end of the last good record that was seen, also behind what is in order.
    """

    items: list[VerifiedRun | Extent]
    end: int
    index: IndexFiles
    made_by: Dispatching | None = None
    copied: CopiedQueues | None = None
    tagged: bool = False
    queues: Mapping[QueueId, VerifiedQueue] = field(default_factory=dict)
    reach: int = 0

    def is_exact(self, run: VerifiedRun) -> bool:
        """Return whether all fields of the units of a run are those that its records ask for."""
        return bool(run.units) or (self.tagged and not run.further_by)

    @property
    def runs(self) -> list[VerifiedRun]:
        """The runs without BLANKs."""
        return [item for item in self.items if isinstance(item, VerifiedRun)]

    @property
    def recent(self) -> TailHistory:
        """What a scan that begins at `end` must know of the records before."""
        recent = TailHistory()
        for run in self.runs:
            if run.end <= self.end:
                recent.remember(run.recent, run.store_timestamp)
        return recent

    def ranges(self) -> dict[QueueId, QueueRange]:
        """Return the messages of each queue up to `end`."""
        found: dict[QueueId, QueueRange] = {}
        for run in self.runs:
            if run.end > self.end:
                break
            for queue, queue_range in run.queues.items():
                found[queue] = queue_range.after(found.get(queue))
        return found

    def offsets(self) -> dict[QueueId, tuple[int, int]]:
        """Return for each queue, up to `end`, the first offset and the one behind the last."""
        return {queue: (found.first, found.next) for queue, found in self.ranges().items()}

    def queue_of(self, name: QueueId, entries: tuple[DirectoryEntry, ...]) -> VerifiedQueue | None:
        """Return the queue if it has these files, and nothing in them but what is in order."""
        found = self.queues.get(name)
        return found if found is not None and found.entries == entries else None

    def after(self, before: VerifiedLog) -> VerifiedLog:
        """Return both together; `before` is the part in front."""
        continues = bool(self.runs) and self.items[0] is self.runs[0]
        continues = continues and self.runs[0].begin == before.end
        reached = {queue: behind for queue, (_, behind) in before.offsets().items()}
        for queue, (first, _) in self.offsets().items() if continues else ():
            continues = continues and reached.get(queue, first) == first
        end = self.end if continues else before.end
        reach = max(before.reach, self.reach)
        return replace(before, items=[*before.items, *self.items], end=end, reach=reach)

    def of_long_runs(self) -> VerifiedLog:
        """If there are many runs, leave out the short ones except the first: their records cost less to read than what
        every user does for each run and each of its queues.
        """
        if len(self.runs) <= _FEW_RUNS:
            return self
        first = self.items[0]
        return self._keeping(lambda item: isinstance(item, Extent) or item.is_long or item is first)

    def beside(self, ranges: Iterable[tuple[int, int]]) -> VerifiedLog:
        """Return the log without the runs that touch one of these ranges."""
        changed = list(ranges)
        return self._keeping(lambda item: not any(low < item.end and _begin(item) < high for low, high in changed))

    def _keeping(self, keeps: Callable[[VerifiedRun | Extent], bool]) -> VerifiedLog:
        """Return the log with some of its runs and BLANKs."""
        found, end = list[VerifiedRun | Extent](), self.end
        for item in self.items:
            if keeps(item):
                found.append(item)
            else:
                end = min(end, _begin(item))
        return replace(self, items=found, end=end)


def _begin(item: VerifiedRun | Extent) -> int:
    return item.begin if isinstance(item, VerifiedRun) else item.position


@runtime_checkable
class RunSkipper(Protocol):
    """An observer that may not need the records of a run."""

    def can_skip(self, run: VerifiedRun) -> bool:
        """Return whether it does not need them, at this moment."""

    def skip(self, run: VerifiedRun) -> None:
        """Take a run, instead of its `records` and `messages`."""


_LONG_HOSTS = int(SysFlag.BORN_V6 | SysFlag.STORE_V6)


class RecordFacts(NamedTuple):
    """Facts about the records of a window, or of several consecutive ones: those of `VerifiedRun`, in its order."""

    begin: int
    end: int
    recent: Ints
    store_timestamp: int
    with_crc: bool
    plain: bool
    unindexed: int | None
    further_by: str
    first_timestamp: int

    @classmethod
    def of(cls, batch: Batch, unindexed: int | None, further_by: str) -> RecordFacts:
        columns = batch.columns
        plain = bool((columns.ints("magic_code") == MAGIC_V1).all())
        return cls(
            int(batch.position[0]),
            batch.end,
            last_of(batch.position[:0], batch.position),
            int(columns.ints("store_timestamp")[-1]),
            ends_with_crc(columns.ragged("properties")[len(batch) - 1]),
            plain and not (columns.ints("sys_flag") & _LONG_HOSTS).any(),
            unindexed,
            further_by,
            int(columns.ints("store_timestamp")[0]),
        )

    def and_then(self, later: RecordFacts) -> RecordFacts:
        return later._replace(
            begin=self.begin,
            recent=last_of(self.recent, later.recent),
            first_timestamp=self.first_timestamp,
            with_crc=self.with_crc or later.with_crc,
            plain=self.plain and later.plain,
            further_by=self.further_by or later.further_by,
        )


class VerifiedPieces:
    """Runs and BLANKs of one part of a log, in pieces without a hole.

    end: where the last piece ends, -1 if no more can be added to it.
    """

    def __init__(self, log: CommitLog, start: int) -> None:
        self._log, self._start = log, start
        self._pieces: list[list[VerifiedRun | Extent]] = [[]]
        self.end = start
        self._facts: RecordFacts | None = None
        self._queues: dict[QueueId, QueueRange] = {}
        self._units: dict[QueueId, list[Units]] = {}
        self._items: list[PackedItems] = []
        self._spill = Spill()
        self._runs = 0

    @property
    def only_long(self) -> bool:
        """Whether there are so many runs that no short one counts (`of_long_runs`)."""
        return self._runs > _FEW_RUNS

    def take(
        self,
        facts: RecordFacts,
        queue_ranges: Mapping[QueueId, QueueRange],
        units: Mapping[QueueId, Units],
        items: Iterable[PackedItems],
    ) -> None:
        """Add records that are in order, behind all before. units, items: those that were made."""
        if self.end != facts.begin or self._is_elsewhere(facts.begin):
            self._break()
        for queue, queue_range in queue_ranges.items():
            self._queues[queue] = queue_range.after(self._queues.get(queue))
        for queue, made in units.items():
            self._units.setdefault(queue, []).append(self._spill.keep(made))
        self._items += (each.kept_in(self._spill) for each in items)
        self._facts = facts if self._facts is None else self._facts.and_then(facts)
        self.end = facts.end

    def passes(self, extent: Extent) -> bool:
        """Add the BLANK of a file whose last record is in order; return False for others, which end the piece."""
        if not goes_on(self._log, extent, self.end):
            self._break()
            return False
        self.end_run()
        self._pieces[-1].append(extent)
        self.end = extent.end
        return True

    def done(self) -> tuple[list[VerifiedRun | Extent], int]:
        """Return everything, and how far it goes from the start without a hole."""
        self._break()
        for piece in self._pieces:
            drop_full_end(self._log, piece)
        first = self._pieces[0]
        return list(chain(*self._pieces)), first[-1].end if first else self._start

    def _is_elsewhere(self, position: int) -> bool:
        """Return whether a position lies in another file than the run that grows."""
        at = self._log.queue.file_at
        return self._facts is not None and at(self._facts.begin) != at(position)

    def _break(self) -> None:
        self.end_run()
        self._pieces.append([])
        self.end = -1

    def end_run(self) -> None:
        """Complete the run: what follows begins another one."""
        facts, queues, self._facts, self._queues = self._facts, self._queues, None, {}
        units, items, self._units, self._items = self._units, self._items, {}, []
        file = self._log.queue.file_at(facts.begin) if facts else None
        if facts is None or file is None:
            return
        self._runs += 1
        self._pieces[-1].append(VerifiedRun(file.path, *facts, queues, units, items))


def drop_full_end(log: CommitLog, items: list[VerifiedRun | Extent]) -> None:
    """Remove the last run if it fills its file: others must see how the file ends."""
    while items and (isinstance(items[-1], Extent) or _fills_its_file(log, items[-1])):
        items.pop()


def _fills_its_file(log: CommitLog, run: VerifiedRun) -> bool:
    file = log.queue.file_at(run.begin)
    return file is None or file.end == run.end


def goes_on(log: CommitLog, extent: Extent, end: int) -> bool:
    """Return whether it is the BLANK that closes a file, and there is a next file."""
    closes = extent.kind is ExtentKind.BLANK and not extent.reason and extent.position == end
    return closes and any(file.start == extent.end for file in log.queue.files_in(extent.end, extent.end + 1))
