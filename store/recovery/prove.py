"""The pass that proves what is in order: see `sound`.

Columns of some hundred thousand messages are sorted by queue and laid beside the units that the
queues have on disk, all at once. Where a message differs in any way the proof ends before its
group; what follows is looked at message by message, by others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import UNIT_BYTES
from ...formats.message import MAGIC_V1, TRANSACTION_MASK, SysFlag
from ...formats.message_properties import ends_with_crc
from ..batch import Batch, Extent, ExtentKind
from ..commit_log import CommitLog
from ..errors import from_os_error
from ..mapped_file_queue import MappedFile
from ..mark import Mark
from ..recent import LOOK_BACK
from ..regular_file import open_regular
from .index_audit import IndexFiles, uncovered
from .queue_numbers import Numbers, QueueNumbers
from .queue_units import UNIT_DTYPE, Units
from .snapshot import QueueId, Snapshot
from .sound import SoundLog, SoundRun, Stretch

Ints = npt.NDArray[np.int64]
_AT_ONCE = 1 << 18
"""Messages that are laid beside their units together: with many queues a window has few of each."""
_LONG_PROPERTIES = 4096
"""A torn page hides in the middle of longer ones: those are looked at one by one, by others."""
_LONG_HOSTS = int(SysFlag.BORN_V6 | SysFlag.STORE_V6)


@dataclass
class _Group:
    """Messages that wait to be laid beside their units: columns, one array per window."""

    count: int = 0
    queue: list[Numbers] = field(default_factory=list)
    offset: list[Ints] = field(default_factory=list)
    position: list[Ints] = field(default_factory=list)
    size: list[Ints] = field(default_factory=list)

    def add(self, queue: Numbers, batch: Batch) -> None:
        """Take the messages of a window."""
        columns = batch.columns
        self.queue.append(queue)
        self.offset.append(columns.ints("queue_offset").astype(np.int64))
        self.position.append(batch.position)
        self.size.append(columns.ints("total_size").astype(np.int64))
        self.count += len(batch)


class Prover:
    """Proves one part of a log.

    queues: those that a message may belong to. tagged: tags are indexed, too.
    """

    def __init__(
        self, snapshot: Snapshot, queues: QueueNumbers, index: IndexFiles, *, tagged: bool
    ) -> None:
        self._snapshot = snapshot
        self._queues = queues
        self._index, self._covered, self._tagged = index, index.ranges, tagged
        self._next = np.full(len(queues), -1, np.int64)
        self._unindexed: int | None = None

    def prove(
        self,
        log: CommitLog,
        start: int,
        stop: int,
        tell: Callable[[int], None] | None = None,
    ) -> SoundLog:
        """What is in order from the record at `start` on, up to `stop`. Raises Unreadable.

        tell: called with the position reached.
        """
        items: list[SoundRun | Extent] = []
        run = _Run(start, log.queue.file_at(start))
        for item in log.scan(start, stop):
            if isinstance(item, Extent):
                if not self._settle(run) or not goes_on(log, item, run.end):
                    break
                items += [*run.done(), item]
                run = _Run(item.end, log.queue.file_at(item.end))
                continue
            if tell is not None:
                tell(item.end)
            queue = self._queues_of(item, run)
            if queue is None:
                break
            run.add(item, queue, self._unindexed_in(item))
            if run.group.count >= _AT_ONCE and not self._settle(run):
                break
        self._settle(run)
        items += run.done()
        drop_full_end(log, items)
        return SoundLog(items, items[-1].end if items else start, self._index)

    def _unindexed_in(self, batch: Batch) -> int | None:
        """The first record without its index items, unless there was one before."""
        if self._unindexed is None:
            self._unindexed = uncovered(self._covered, batch, tagged=self._tagged)
        return self._unindexed

    def _queues_of(self, batch: Batch, run: _Run) -> Numbers | None:
        """Number of each record's queue; None if some record is not as a run has them."""
        return self._queues.of_records(batch.columns) if is_in_order(batch, run.reach) else None

    def _settle(self, run: _Run) -> bool:
        """Lay the group beside its units; False: something differs, and the run ends before it."""
        group, run.group = run.group, _Group()
        if not group.count:
            return True
        queue = np.concatenate(group.queue)
        order = np.argsort(queue, kind="stable")
        columns = (group.offset, group.position, group.size)
        offset, position, size = (np.concatenate(column)[order] for column in columns)
        queue = queue[order]
        new = np.flatnonzero(np.append(True, queue[1:] != queue[:-1]))
        before = np.append(-1, offset[:-1]) + 1
        known = self._next[queue[new]]
        before[new] = np.where(known < 0, offset[new], known)
        if (offset != before).any() or (offset[new] < 0).any():
            return False
        ends = np.append(new[1:], len(queue)) - 1
        units = self._units(queue[new].tolist(), offset[new].tolist(), (ends - new + 1).tolist())
        if units is None or (units["physical_offset"] != position).any():
            return False
        if (units["size"] != size).any():
            return False
        self._next[queue[new]] = offset[ends] + 1
        rows = (offset[new], offset[ends] + 1, position[new], position[ends], size[ends])
        stretches = zip(queue[new].tolist(), *(row.tolist() for row in rows), strict=True)
        run.settle((self._queues.names[number], Stretch(*rest)) for number, *rest in stretches)
        return True

    def _units(self, queues: list[int], firsts: list[int], counts: list[int]) -> Units | None:
        """Units on disk, one stretch behind the other; None where a file ends before."""
        units = np.empty(sum(counts), UNIT_DTYPE)
        room = units.view(np.uint8).data
        at = 0
        for number, first, count in zip(queues, firsts, counts, strict=True):
            begin, end = first * UNIT_BYTES, (first + count) * UNIT_BYTES
            while begin < end:
                start = begin - begin % self._snapshot.queue_file_bytes
                path = self._queues.files[number].get(start)
                part = min(end, start + self._snapshot.queue_file_bytes) - begin
                if path is None or not _read(path, begin - start, room[at : at + part]):
                    return None
                begin, at = begin + part, at + part
        return units


@dataclass(frozen=True)
class _Facts:
    """What is known of the records of a run. recent: positions of the last ones."""

    recent: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    store_timestamp: int = 0
    with_crc: bool = False
    plain: bool = True
    unindexed: int | None = None

    def plus(self, batch: Batch, unindexed: int | None) -> _Facts:
        """With a window more."""
        columns = batch.columns
        plain = bool((columns.ints("magic_code") == MAGIC_V1).all())
        plain &= not (columns.ints("sys_flag") & _LONG_HOSTS).any()
        return _Facts(
            batch.position[-LOOK_BACK:].copy(),
            int(columns.ints("store_timestamp")[-1]),
            self.with_crc or ends_with_crc(columns.ragged("properties")[len(batch) - 1]),
            self.plain and plain,
            unindexed,
        )


class _Run:
    """A run that grows. `end`: of the groups that are settled; `reach`: of all that was added."""

    def __init__(self, begin: int, file: MappedFile | None) -> None:
        self.begin = self.end = self.reach = begin
        self.file = file
        self.group = _Group()
        self.queues: dict[QueueId, Stretch] = {}
        self._settled = _Facts()
        self._facts = _Facts()

    def add(self, batch: Batch, queue: Numbers, unindexed: int | None) -> None:
        """A window of records behind the last one."""
        self.group.add(queue, batch)
        self.reach = batch.end
        self._facts = self._facts.plus(batch, unindexed)

    def settle(self, stretches: Iterator[tuple[QueueId, Stretch]]) -> None:
        """The group is in order."""
        for queue, stretch in stretches:
            before = self.queues.get(queue)
            if before is not None:
                stretch = stretch._replace(first=before.first, first_position=before.first_position)
            self.queues[queue] = stretch
        self.end, self._settled = self.reach, self._facts

    def done(self) -> list[SoundRun]:
        """The run as far as it is settled, if it is at all."""
        if self.file is None or not self.queues:
            return []
        facts = self._settled
        run = SoundRun(
            self.file.path,
            self.begin,
            self.end,
            int(facts.recent[-1]),
            facts.store_timestamp,
            facts.with_crc,
            facts.plain,
            facts.unindexed,
            facts.recent,
            self.queues,
        )
        return [run]


def is_in_order(batch: Batch, reach: int) -> bool:
    """The records go on at `reach` and are what a `SoundRun` tells of them, but for the queues."""
    columns = batch.columns
    if batch.mark is not Mark.NONE or int(batch.position[0]) != reach:
        return False
    good = batch.body_crc_ok is not None and batch.body_crc_ok.all()
    if not good or (columns.ints("physical_offset") != batch.position).any():
        return False
    if (batch.position[1:] != batch.position[:-1] + columns.ints("total_size")[:-1]).any():
        return False
    if (columns.ints("sys_flag") & (TRANSACTION_MASK & SysFlag.PREPARED)).any():
        return False
    return bool(columns.ints("store_host.port").all()) and not _may_be_torn(batch)


def drop_full_end(log: CommitLog, items: list[SoundRun | Extent]) -> None:
    """Leave the last run to others where it fills its file: they have to see how that ends."""
    while items and (isinstance(items[-1], Extent) or _fills_its_file(log, items[-1])):
        items.pop()


def _fills_its_file(log: CommitLog, run: SoundRun) -> bool:
    file = log.queue.file_at(run.begin)
    return file is None or file.end == run.end


def goes_on(log: CommitLog, extent: Extent, end: int) -> bool:
    """It is the BLANK that closes a file, and there is a next one."""
    closes = extent.kind is ExtentKind.BLANK and not extent.reason and extent.position == end
    return closes and any(file.start == extent.end for file in log.files)


def _may_be_torn(batch: Batch) -> bool:
    """Some record's properties may have lost a page."""
    text = batch.columns.ragged("properties")
    some = text.length > 0
    last = text.buffer[(text.start + text.length - 1)[some]]
    return bool((last == 0).any() or (text.length > _LONG_PROPERTIES).any())


def _read(path: str, offset: int, room: memoryview) -> bool:
    """Fill `room` from byte `offset` of a file; False where the file ends before. Raises Unreadable."""
    try:
        descriptor = open_regular(path)
        try:
            return os.preadv(descriptor, [room], offset) == len(room)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise from_os_error(error, path) from error
