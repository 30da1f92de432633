"""Bring the RocksDB of queues in line with the log that a plan leaves (spec 7.14).

Units that are missing or wrong are put, units behind the end of a queue are deleted, and bound rows corrected. A
database that cannot be read is built anew from the log, which has every message that a consumer can get. Changes are
made in a copy and journaled as whole files: tables are never changed in place, so an interrupted repair leaves the old
database or the new one.

While the log is planned the queues are temporary files: their units show what a damaged record was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ...formats import rocksdb_consume_queue as formats
from ...formats.derive.ragged import Ints
from ...formats.fixed import numbers_of
from ...formats.hashing import utf8
from ...formats.rocksdb_consume_queue import BOUNDS, CHECKPOINT_KEY, MAX, MIN, UNITS
from ..audit.messages import DifferenceKind, LogObserver, Messages, compare, scan_messages
from ..audit.verified import VerifiedLog, VerifiedRun
from ..broker.dispatch_record import Dispatching
from ..broker.snapshot import QueueId, Snapshot
from ..disk.files import Edit
from ..errors import Unreadable
from ..log.commit_log import CommitLog
from ..queues.rocksdb import (
    QueueBound,
    RocksDb,
    RocksdbConsumeQueue,
    RocksdbConsumeQueues,
    bound_in,
    is_rocksdb,
    odd_rows,
)
from ..queues.rocksdb_copy import CopiedQueues
from ..queues.rocksdb_write import (
    UNIT,
    DatabaseFix,
    Holes,
    UnitChanges,
    UnitSpool,
    changed,
    expired_ends,
    in_order,
    last_units,
    library,
)
from ..queues.units import UNIT_DTYPE, Units
from ..start.queue_stores import QueueStores

_BOUND, _CHECKPOINT = numbers_of(formats.BOUND), numbers_of(formats.CHECKPOINT)
_REASON = "the queues in the RocksDB as the log has them"
_CODES = ("I-070", "I-084")
MOST_GONE = 1 << 18
"""Units; if more have to be deleted, the database is built anew, which needs no memory for each of them."""


def opened_database(stores: QueueStores) -> RocksDb | None:
    """Return the database of queues, None if there is none or it cannot be opened. Raises Unsupported."""
    if stores.database is None or not is_rocksdb(stores.database):
        return None
    try:
        return RocksDb.open(stores.database, every_file=True)
    except Unreadable:
        return None


@contextmanager
def queues_as_files(
    snapshot: Snapshot, stores: QueueStores, copied: CopiedQueues | None
) -> Iterator[tuple[Snapshot, RocksDb | None]]:
    """Yield the snapshot with the queues that only the database has as temporary files, and the database, None if it
    cannot be opened. Both are closed with the block. copied: those files, if the database has all queues. Raises
    Unsupported, NoSpace.
    """
    database = opened_database(stores)
    if database is None:
        yield snapshot, None
        return
    with database:
        if copied is None:
            copied = CopiedQueues.of(database, snapshot.queue_file_bytes, lambda topic: not stores.in_files(topic))
        yield replace(snapshot, queues={**snapshot.queues, **copied.entries}), database


def _queues(database: RocksDb) -> list[QueueId]:
    try:
        found = RocksdbConsumeQueues.of(database)
        return [QueueId(each.topic, each.queue_id) for each in found]
    except Unreadable:
        return []


@dataclass
class _MessageRange:
    """The first and the last message that a queue has in the log."""

    first: QueueBound
    last: QueueBound


@dataclass
class DatabaseAudit(LogObserver):
    """Compares the database with the messages of a log.

    missing: units that the database lacks or has wrong. dispatched: position behind the last record with a unit.
    """

    database: RocksDb | None
    stores: QueueStores
    log_end: int
    missing: UnitSpool = field(default_factory=UnitSpool)
    reach: dict[QueueId, _MessageRange] = field(default_factory=dict)
    holes: Holes = field(default_factory=Holes)
    dispatched: int = 0
    #: Where the log begins; None: some queues of its messages are unknown.
    log_start: int | None = None
    #: Positions of records that the plan writes: their units get the new tags code.
    rewritten: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    #: The database has units that cannot be read.
    broken: bool = False

    def messages(self, messages: Messages) -> None:
        """Note the units that differ in the database, and the range of the queue."""
        messages = messages.take(messages.position < self.log_end)
        ends_at = messages.position + messages.size
        self.dispatched = max(self.dispatched, int(ends_at.max(initial=0)))
        reach = self.reach.get(messages.queue)
        offsets = messages.offset
        later = offsets >= 0
        if reach is not None:  # of two messages with one offset the first has the unit
            later &= offsets > reach.last.queue_offset
        later &= offsets >= np.maximum.accumulate(offsets) if len(offsets) else later
        messages = messages.take(later)
        topic = messages.queue.topic
        if not len(messages.offset) or not self.stores.in_database(topic) or self.stores.deleted(topic):
            return
        if topic not in self.stores.batches:
            self.holes.note(messages.queue, _columns(messages), messages.lost)
        kinds = compare(self._units_there(messages.queue, messages.offset), messages)
        wrong = kinds > DifferenceKind.ADDRESS
        if len(self.rewritten):
            wrong |= (kinds == DifferenceKind.TAGS) & np.isin(messages.position, self.rewritten)
        for at in np.flatnonzero(messages.lost & ~wrong).tolist():
            wrong[at] = self._is_other(messages, at)
        ends = [QueueBound(int(messages.position[at]), int(messages.offset[at])) for at in (0, -1)]
        first = reach.first if reach is not None else ends[0]
        self.reach[messages.queue] = _MessageRange(first, ends[1])
        if wrong.any():
            self.missing.add(messages.queue, *_columns(messages.take(wrong)))

    def _is_other(self, messages: Messages, at: int) -> bool:
        """Whether a tombstone's unit still has tags and time of the lost message: tag filters must pass over it."""
        assert self.database is not None
        topic, queue_id = utf8(messages.queue.topic), messages.queue.queue_id
        offset, *values = (int(column[at]) for column in _columns(messages))
        unit = dict(zip(UNIT.names or (), values, strict=True))
        try:
            there = self.database.get(UNITS, formats.unit_key(topic, queue_id, offset))
        except Unreadable:
            self.broken = True
            return True
        return there != formats.UNIT.build(unit)

    def fill_holes(self) -> None:
        """Fill the holes behind the last message, where neither log nor database has a unit."""
        database = None if self.broken else self.database
        try:
            self.holes.fill(self.missing, database, lambda position: position < self.log_end)
        except Unreadable:
            self.broken = True

    def can_skip(self, run: VerifiedRun) -> bool:
        """Whether the units of a run were compared with this database and continue the queues without a hole."""
        if self.database is None or self.broken or self.stores.files or run.units:
            return False
        if run.end > self.log_end:
            return False
        ends = ((self.reach.get(queue), each.first) for queue, each in run.queues.items())
        return all(reach is None or reach.last.queue_offset + 1 == first for reach, first in ends)

    def skip(self, run: VerifiedRun) -> None:
        """Count the messages of a run: all have their units."""
        assert self.database is not None
        self.dispatched = max(self.dispatched, run.end)
        for queue, each in run.queues.items():
            try:
                self.holes.passed(queue, each.next - 1, self.database)
            except Unreadable:
                self.broken = True
            begin = QueueBound(each.first_position, each.first)
            first = self.reach[queue].first if queue in self.reach else begin
            self.reach[queue] = _MessageRange(first, QueueBound(each.last_position, each.next - 1))

    def _units_there(self, queue: QueueId, offsets: Ints) -> Units:
        if self.database is None or self.broken:
            return np.zeros(len(offsets), UNIT_DTYPE)
        first, last = int(offsets.min()), int(offsets.max())
        found, there = np.zeros(len(offsets), UNIT_DTYPE), RocksdbConsumeQueue(self.database, *queue)
        try:
            if last - first < _SPARSE * len(offsets):
                room = np.zeros(last - first + 1, UNIT_DTYPE)
                there.fill(first, room)
                return room[offsets - first]
            for at, offset in enumerate(offsets.tolist()):
                there.fill(offset, found[at : at + 1])
        except Unreadable:
            self.broken = True
            return np.zeros(len(offsets), UNIT_DTYPE)
        return found

    def changes(self) -> tuple[UnitChanges, dict[bytes, bytes | None]] | None:
        """Return units to change and rows by key (None: delete); None if too many are to be deleted, or if units cannot
        be read. Raises Unreadable.
        """
        database = self.database
        assert database is not None
        if self.broken:
            return None
        units = UnitChanges(self.missing)
        rows: dict[bytes, bytes | None] = dict.fromkeys(odd_rows(database))
        for queue in sorted({*_queues(database), *self.reach}):
            if self.stores.in_database(queue.topic):
                self._add_queue_changes(database, queue, units.gone, rows)
                if len(units.gone) > MOST_GONE:
                    return None
        row = database.get(BOUNDS, CHECKPOINT_KEY)
        want = _CHECKPOINT.pack(self.log_end)
        reached = 0 if row is None else -1  # a start reads a missing row as 0, and throws at a short one
        if row is not None and len(row) >= _CHECKPOINT.size:
            reached = int(_CHECKPOINT.unpack(row[: _CHECKPOINT.size])[0])
        lags = self.stores.selected is None and reached < self.dispatched
        if lags or reached > self.log_end or (reached < self.log_end and (units or rows)):
            rows[CHECKPOINT_KEY] = want
        return units, rows

    def _add_queue_changes(
        self, database: RocksDb, queue: QueueId, gone: dict[bytes, None], rows: dict[bytes, bytes | None]
    ) -> None:
        topic, reach = utf8(queue.topic), self.reach.get(queue)
        there = RocksdbConsumeQueue(database, *queue)
        last = None if reach is None else reach.last
        # units of a queue without a message in the log are all wrong
        wrong_from = self.log_end if self.log_start is None else self.log_start
        emptied = -1
        for unit in there.newest_first():
            if last is not None and unit.queue_offset <= last.queue_offset:
                break
            if last is None and unit.physical_offset < wrong_from:
                last = QueueBound(unit.physical_offset, unit.queue_offset)
                break
            if reach is None and unit.physical_offset < self.log_end:
                emptied = max(emptied, unit.queue_offset)
            gone[formats.unit_key(topic, queue.queue_id, unit.queue_offset)] = None
            if len(gone) > MOST_GONE:
                return
        high, low = (formats.bound_key(topic, queue.queue_id, each) for each in (MAX, MIN))
        row = bound_in(database, topic, queue.queue_id, MAX)
        beyond = row is None or row.physical_offset >= self.log_end
        if emptied >= 0:  # the queue continues behind its last offset, as brokers begin queues late
            emptied = emptied if row is None else max(emptied, row.queue_offset)
            rows[high], rows[low] = _BOUND.pack(0, emptied), _BOUND.pack(0, emptied + 1)
            return
        if last is not None and row != last and (reach is not None or beyond):
            rows[high] = _BOUND.pack(*last)
        if reach is None:
            return
        lowest = database.get(BOUNDS, low)
        if lowest is None:
            return
        if len(lowest) != _BOUND.size or QueueBound(*_BOUND.unpack(lowest)).hides(reach.first):
            rows[low] = _BOUND.pack(*reach.first)


def _columns(messages: Messages) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    m = messages
    return m.offset, m.position, m.size, m.tags_code, m.store_timestamp


_SPARSE = 8
"""If offsets lie farther apart than this, units are looked up one by one."""


class QueueDatabase(NamedTuple):
    """Where a broker has its queues, and its RocksDB of queues, None if it has none that can be opened.

    verified: the part of the log that is in order. rewritten: positions of records that the plan writes.
    """

    stores: QueueStores
    source: RocksDb | None
    verified: VerifiedLog | None = None
    rewritten: Sequence[int] = ()

    def end_without_units(self, queue: QueueId) -> int:
        """Return the end of a queue without a unit that only the database has (all messages expired), 0 for others."""
        if self.source is None or self.stores.in_files(queue.topic):
            return 0
        with suppress(Unreadable):  # an unreadable database is built anew
            summary = RocksdbConsumeQueue(self.source, *queue).summary()
            return summary.max_offset if summary.min_offset == summary.max_offset else 0
        return 0

    def edits(
        self, log: CommitLog, log_end: int, how: Dispatching, *, applicable: bool
    ) -> tuple[list[Edit], DatabaseFix | None]:
        """Return the edits that bring the database in line with the messages of a log that ends at `log_end`, none if
        it is already, and the database to build, if it is lost or too much has to be deleted. Raises Unsupported,
        Unreadable.

        applicable: as in `RecoveryOptions`; if not, one edit is in place of all. Then nothing is built, and the log is
        not read for a lost database.
        """
        place, how = self.stores.database, how._replace(slash_names=True)
        if place is None:
            return [], None
        if not applicable:
            library("make" if self.source is None else "change", place)
            if self.source is not None:
                with suppress(Unreadable):
                    changes = self._audited(log, log_end, how).changes()
                    if changes is not None and not any(changes):
                        return [], None
            return [Edit("rebuild", str(place), _REASON, _CODES)], None
        audit = self._audited(log, log_end, how)
        if self.source is not None:
            changes = after = None
            with suppress(Unreadable):
                if (changes := audit.changes()) is not None:
                    after = changed(place, {UNITS: changes[0], BOUNDS: changes[1]})
            if changes is not None and after is not None:
                units, rows = changes
                digest = units.put.digest + _digest(units.gone) + _digest(rows) + after.digest.encode()
                made = (Edit.create(place / name, after.made[name], _REASON, _CODES) for name in in_order(after.made))
                gone = (Edit("move", str(place / name), _REASON, _CODES) for name in after.gone)
                return [*(edit._replace(content_id=digest) for edit in made), *gone], None
            audit = QueueDatabase(self.stores, None)._audited(log, log_end, how)
        ends = () if self.source is None else _max_rows(self.source)
        kept = expired_ends(ends, audit.missing, log.min_offset)
        fix = DatabaseFix(place, audit.missing, log_end, kept)
        return fix.edits(_REASON, _CODES), fix

    def _audited(self, log: CommitLog, log_end: int, how: Dispatching) -> DatabaseAudit:
        audit = DatabaseAudit(self.source, self.stores, log_end, rewritten=np.array(self.rewritten, np.int64))
        audit.log_start = log.min_offset if how.multi_dispatch else None
        scan_messages(log, [audit], how, crc=False, verified=self.verified)
        audit.fill_holes()
        return audit


def _digest(entries: Mapping[bytes, bytes | None]) -> bytes:
    total = hashlib.sha256()
    for key, value in sorted(entries.items()):
        total.update(b"%d:%b%b" % (len(key), key, b"-" if value is None else value))
    return total.digest()


def _max_rows(database: RocksDb) -> Iterator[tuple[QueueId, QueueBound]]:
    """Yield the max rows that can be read."""
    with suppress(Unreadable):
        yield from last_units(database)
