"""What a batch queue on disk lacks compared with the log, and how to complete it.

Units contain their queue offsets, so their place does not matter: units up to the first that differs from the log stay,
those from there on are made again. Units of lost records stay between those of their neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ...formats.derive.ragged import Flags, Ints
from ..broker.dispatch import Dispatched
from ..broker.load_rules import LoadedFile
from ..broker.profiles import QueueRules
from ..broker.snapshot import DirectoryEntry, QueueId, Snapshot
from ..disk.files import Edit
from ..log.batch import Batch
from ..queues.batches import BATCH_UNIT_DTYPE, BatchQueueState, batch_units
from ..queues.edits import QueueFix, queue_edits
from ..queues.units import UNIT_DTYPE, UNITS_AT_ONCE, Units, is_valid, is_whole_file, reaches_beyond

UNIT_BYTES = BATCH_UNIT_DTYPE.itemsize


@dataclass
class BatchAudit:
    """One batch queue while the log is read.

    log_start, log_end: the range of the log that stays. next: number of the unit that the next record must have; units
    of records before the log are skipped. `min_offset`, `max_offset`: of the queue after it was completed.
    """

    queue: QueueId
    state: BatchQueueState
    log_start: int
    log_end: int
    next: int = 0
    min_offset: int = -1
    max_offset: int = 0
    #: The units to write, from the first one that the queue does not have.
    _made: list[Units] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        queue: QueueId,
        entries: tuple[DirectoryEntry, ...],
        file_bytes: int,
        rules: QueueRules,
        log: tuple[int, int],
    ) -> BatchAudit:
        """Return the audit of a queue with these files, for a log from `log[0]` to `log[1]`."""
        whole = [entry for entry in entries if is_whole_file(entry, file_bytes)]
        state = BatchQueueState(rules, file_bytes)
        state.load([LoadedFile(int(entry.name), file_bytes, entry) for entry in whole])
        state.recover()
        audit = cls(queue, state, *log)
        if whole:
            audit.next = audit._first
            audit._skip_expired()
        return audit

    @property
    def _first(self) -> int:
        """Number of the first unit."""
        return self.state.files[0].start // UNIT_BYTES if self.state.files else 0

    @property
    def _end(self) -> int:
        """Number of the unit behind the last one that the queue reaches on disk."""
        return self.state.end // UNIT_BYTES

    def _skip_expired(self) -> None:
        """Skip units of records before the log."""
        while self.next < self._end:
            units = self._read(UNITS_AT_ONCE)
            inside = (units["physical_offset"] >= self.log_start) | ~is_valid(units)
            self.next += int(inside.argmax()) if inside.any() else len(units)
            if inside.any():
                return

    def _read(self, count: int) -> Units:
        """Return up to `count` units from the next one on, as far as the queue goes."""
        count = min(count, self._end - self.next)
        return self.state.units_at(np.arange(self.next, self.next + count, dtype=np.int64))

    def add(self, units: Units, queue_offset: Ints) -> None:
        """Add units of records of this queue, in log order, that stay in the log. queue_offset: of the records."""
        for row in np.flatnonzero(units["msg_base_offset"] != queue_offset).tolist():
            # the record contradicts itself: the offset that continues the one before is right
            if queue_offset[row] == self._end_before(units, row):
                units["msg_base_offset"][row] = queue_offset[row]
        units = units[(units["msg_base_offset"] >= 0) & (units["batch_size"] >= 0)]
        if not len(units):
            return
        if not self._made:
            there = self._read(len(units))
            other = np.flatnonzero(there != units[: len(there)])
            same = int(other[0]) if len(other) else len(there)
            self.next += same
            units = units[same:]
        if len(units):
            self._made.append(units.copy())

    def finish(self) -> QueueFix:
        """Return what becomes of the queue, after the log has been read."""
        made = np.concatenate([np.zeros(0, BATCH_UNIT_DTYPE), *self._made]).astype(BATCH_UNIT_DTYPE)
        numbers = np.arange(self.next, self._end, dtype=np.int64)
        there = self.state.units_at(numbers)
        wanted = _merged(made, there[self._is_lost(there, made)])
        same = len(there) == len(wanted) and bool((there == wanted).all())
        end = self.next + len(wanted)
        self._note_offsets(wanted)
        offsets = np.arange(self.next, end, dtype=np.int64)
        if same:
            offsets, wanted = offsets[:0], wanted[:0]
        missing = np.isin(made["physical_offset"], there["physical_offset"], invert=True)
        return QueueFix(self.queue, offsets, wanted, end, int(made["batch_size"][missing].sum()), shifted=False)

    def _is_lost(self, there: Units, made: Units) -> Flags:
        """Return which units on disk are of lost records, and fit between their neighbours: bool[n]."""
        position = there["physical_offset"].astype(np.int64)
        lost = is_valid(there) & (position >= self.log_start)
        lost &= ~reaches_beyond(there, self.log_end)
        lost &= np.isin(position, made["physical_offset"], invert=True)
        lost &= position > np.maximum.accumulate(np.append(-1, position))[:-1]
        after = np.searchsorted(made["physical_offset"].astype(np.int64), position)
        ends = made["msg_base_offset"].astype(np.int64) + made["batch_size"]
        begins = np.append(made["msg_base_offset"].astype(np.int64), np.iinfo(np.int64).max)
        base = there["msg_base_offset"].astype(np.int64)
        lost &= base >= np.append(self._offset_before(), ends)[after]
        fits: Flags = lost & (base + there["batch_size"] <= begins[after])
        return fits

    def _end_before(self, units: Units, row: int) -> int:
        """Return the queue offset behind the unit before units[row]."""
        before = units[:row] if row else self._made[-1] if self._made else None
        if before is None:
            return self._offset_before()
        return int(before["msg_base_offset"][-1]) + int(before["batch_size"][-1])

    def _offset_before(self) -> int:
        """Return the queue offset behind the last unit that stays."""
        if self.next <= self._first:
            return 0
        unit = self.state.units_at(np.array([self.next - 1], np.int64))[0]
        return int(unit["msg_base_offset"]) + int(unit["batch_size"])

    def _note_offsets(self, wanted: Units) -> None:
        """Set min offset, behind units of records before the log, and max offset, behind the last unit."""
        self.state.correct_min_offset(self.log_start)
        self.min_offset, self.max_offset = self.state.min_offset, self.state.max_offset
        if len(wanted):
            last = wanted[-1]
            self.max_offset = int(last["msg_base_offset"]) + int(last["batch_size"])
            if self.next <= self._first:
                self.min_offset = int(wanted["msg_base_offset"][0])
        elif self.next > self._first:
            self.max_offset = self._offset_before()


def of_right_type(snapshot: Snapshot, rules: QueueRules) -> tuple[Snapshot, list[Edit]]:
    """Return the snapshot without queues in the directory of the other type, and the edits that move these away.

    Every broker that knows both types refuses such queues; their messages are in the log. A broker without batch queues
    reads none of them.
    """
    if not rules.batches:
        return (replace(snapshot, batch_queues={}) if snapshot.batch_queues else snapshot), []
    edits: list[Edit] = []
    kept: list[dict[QueueId, tuple[DirectoryEntry, ...]]] = []
    kinds = (
        (snapshot.queues, snapshot.layout.consume_queue, False),
        (snapshot.batch_queues, snapshot.layout.batch_consume_queue, True),
    )
    for queues, root, batches in kinds:
        kept.append({})
        for name, entries in sorted(queues.items()):
            if (name.topic in snapshot.batch_topics) is batches:
                kept[-1][name] = entries
            else:
                path = str(name.below(root))
                edits.append(Edit("move", path, "a queue of the other type", ("I-083",)))
    return (replace(snapshot, queues=kept[0], batch_queues=kept[1]) if edits else snapshot), edits


class BatchAudits:
    """All batch queues of a store while its log, which ends at `log[1]`, is read."""

    def __init__(self, snapshot: Snapshot, rules: QueueRules, log: tuple[int, int]) -> None:
        self.snapshot, self.rules, self.log = snapshot, rules, log
        self.queues: dict[QueueId, BatchAudit] = {}
        for name in snapshot.batch_queues if rules.batches else ():
            self._audit(name)

    def _audit(self, name: QueueId) -> BatchAudit:
        if name not in self.queues:
            entries = self.snapshot.batch_queues.get(name, ())
            size = self.snapshot.batch_file_bytes
            self.queues[name] = BatchAudit.of(name, entries, size, self.rules, self.log)
        return self.queues[name]

    def has(self, queue: QueueId) -> bool:
        """Return whether the messages of this queue have batch units."""
        return self.rules.batches and queue.topic in self.snapshot.batch_topics

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        """Make units of the records, and add them to their queues."""
        mine = [self.has(QueueId(topic, 0)) for topic in dispatched.topics]
        if not any(mine):
            return
        units = dispatched.units
        inside = batch.position[units.record] < self.log[1]
        units = units.take(inside & np.array(mine)[units.topic_id])
        keys = units.topic_id << 32 | (units.queue_id & 0xFFFFFFFF)
        for key in np.unique(keys).tolist():
            of_queue = units.take(keys == key)
            topic = dispatched.topics[int(of_queue.topic_id[0])]
            plain = np.zeros(len(of_queue), UNIT_DTYPE)
            for name in UNIT_DTYPE.names or ():
                plain[name] = getattr(of_queue, name)
            made = batch_units(batch.columns, of_queue.record, plain)
            self._audit(QueueId(topic, int(of_queue.queue_id[0]))).add(made, of_queue.queue_offset)

    def finish(self) -> Iterator[tuple[BatchAudit, QueueFix, list[Edit]]]:
        """Yield what becomes of each queue, with the edits that do it. Raise Unreadable."""
        snapshot = self.snapshot
        for name, audit in sorted(self.queues.items()):
            fix = audit.finish()
            directory = name.below(snapshot.layout.batch_consume_queue)
            entries = snapshot.batch_queues.get(name, ())
            size = snapshot.batch_file_bytes
            yield audit, fix, list(queue_edits(fix, entries, directory, size, UNIT_BYTES))


def _merged(made: Units, lost: Units) -> Units:
    """Return both in the order of their records, in the byte order of the disk."""
    both = np.concatenate([made, lost]).astype(BATCH_UNIT_DTYPE)
    ordered: Units = both[np.argsort(both["physical_offset"], kind="stable")]
    return ordered
