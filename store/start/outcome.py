"""The state of a broker after a simulated start, and the units on their way to its queues during the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from ...formats.derive import Columns
from ...formats.derive.ragged import Ints
from ..audit.verified import VerifiedRun
from ..broker.dispatch import dispatch_columns
from ..broker.load_rules import LoadedFile, LoadedFiles, Refusal
from ..broker.profiles import Profile
from ..broker.snapshot import DirectoryEntry, QueueId, Snapshot
from ..broker.system_topics import LMQ_PREFIX
from ..index.compare import IndexState
from ..queues.batches import BatchQueueState, batch_units
from ..queues.start import ExtRules, QueueState
from ..queues.start_rocksdb import Commit, DatabaseState, StartedQueue
from ..queues.units import UNIT_DTYPE, Units
from ..timer.start import TimerState
from .log import LogWalk, PhantomRecord, StartFile, Switches
from .queue_stores import CastFails, DispatchedUnits, LmqThrows, QueueStores, unserved_topics

#: Seconds that a dispatch waits for a unit that it cannot write: 30 tries, one second apart (spec 2.2, step 6).
RETRY_SECONDS = 30
#: The exception of Java for a queue offset that is not a number.
POISON = "NumberFormatException"


@dataclass
class DLedgerStart:
    """The result of DLedger's recovery.

    end: of the log; last_end: of the last entry. last: number of the last entry of the walk, -1 without any. rewritten:
    number of the first index unit that is written again, -1 for none. committed: log position behind the last committed
    entry, -1 if the checkpoint names none.
    """

    end: int = 0
    last_end: int = 0
    last: int = -1
    rewritten: int = -1
    committed: int = -1
    reason: str = ""


@dataclass
class Outcome:
    """The broker after load, recovery and dispatch.

    refusal: the load failed; then only what was loaded is set. hangs: start() never returns, and why. queues_end:
    highest log position that a queue reaches (D). log_removed: files cut off the log.
    """

    profile: Profile
    snapshot: Snapshot
    switches: Switches
    log: LoadedFiles
    queues: dict[QueueId, QueueState] = field(default_factory=dict)
    queue_deletions: list[DirectoryEntry] = field(default_factory=list)
    index: IndexState = field(default_factory=lambda: IndexState([], []))
    refusal: Refusal | None = None
    hangs: str = ""
    delay_seconds: int = 0
    start: StartFile | None = None
    start_path: str | None = None
    #: Log position where the recovery began; its file may be gone afterwards.
    scan_start: int = 0
    walk: LogWalk | None = None
    queues_end: int = -1
    log_removed: list[LoadedFile] = field(default_factory=list)
    #: None: the broker has no consumequeue_ext.
    ext: ExtRules | None = None
    #: None: the broker has no timer.
    timer: TimerState | None = None
    #: None: the log is not a DLedger log.
    dledger: DLedgerStart | None = None
    stores: QueueStores = field(default_factory=QueueStores)
    #: The queues in a RocksDB, None if the broker has none. commit: when its thread wrote the units.
    database: DatabaseState | None = None
    commit: Commit = Commit.BEFORE_CUT

    @property
    def dispatched(self) -> int:
        """Log position that queues of both kinds have reached; later records are dispatched even after a clean exit."""
        if self.database is None:
            return self.queues_end
        row = self.database.dispatch_from
        return min(self.queues_end, row) if self.stores.files else row

    @property
    def read_queues(self) -> dict[QueueId, StartedQueue]:
        """The queues that consumers read."""
        if self.database is None:
            return dict(self.queues)
        read = self.stores.reads
        found: dict[QueueId, StartedQueue] = {name: queue for name, queue in self.queues.items() if not read(name)}
        for name in self.database.queues:
            if read(name):
                found[name] = self.database.view(name)
        return found

    @property
    def unserved(self) -> frozenset[str]:
        """Topics of which consumers get nothing, whatever is in their queues."""
        return frozenset() if self.database is None else unserved_topics(self.snapshot.layout, self.profile)

    @property
    def served_queues(self) -> dict[QueueId, StartedQueue]:
        """The queues that consumers read, without those of `unserved` topics."""
        unserved = self.unserved
        return {name: queue for name, queue in self.read_queues.items() if name.topic not in unserved}

    @property
    def log_start(self) -> int:
        return self.log.files[0].start if self.log.files else 0

    @property
    def log_end(self) -> int:
        """Max offset of the log: the write position of the last file."""
        if not self.log.files:
            return 0
        last = self.log.files[-1]
        return last.start + last.wrote

    def has_all(self, run: VerifiedRun) -> bool:
        """Whether no queue takes anything from these records, since all reach beyond them already."""
        if self.ext is not None or run.further_by not in ("", self.profile.version):
            return False
        whole = self.profile.queues.reaches_end
        return all(
            name in self.queues and self.queues[name].max_physical >= queue_range.reach(whole)
            for name, queue_range in run.queues.items()
        )

    def queue(self, name: QueueId) -> QueueState:
        """The queue of that name; made if it does not exist."""
        if name not in self.queues:
            self.queues[name] = self.new_queue(name)
        return self.queues[name]

    def new_queue(self, name: QueueId) -> QueueState:
        """A queue without files, of the type that its topic has. Raises CastFails."""
        snapshot, rules = self.snapshot, self.profile.queues
        if rules.batches and name.topic in snapshot.batch_topics:
            if self.database is not None:
                raise CastFails(self.stores)
            return BatchQueueState(rules, snapshot.batch_file_bytes)
        queue = QueueState(rules, snapshot.queue_file_bytes)
        if self.ext is not None and not name.topic.startswith(LMQ_PREFIX):
            queue.ext = self.ext.new()
        return queue


class UndispatchableRecord(Exception):
    """Dispatch throws at this record, each time again (spec 2.9, B11)."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.reason = f"{POISON} in the dispatch of the record at {position}"


class PendingUnits:
    """Units on their way to a broker's queues, in log order; a context manager that hands out the rest at its end."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._how = outcome.switches.dispatching(outcome.profile.dispatch)
        self._units = DispatchedUnits()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hand_out()

    def add(self, columns: Columns, behind: int | None) -> None:
        """Add what is dispatched for records. behind: only for records at a greater position.

        Raises UndispatchableRecord, LmqThrows, CastFails.
        """
        if behind is not None:
            columns = columns.take(columns.ints("physical_offset") > behind)
        if not len(columns):
            return
        outcome, dispatched = self._outcome, dispatch_columns(columns, self._how)
        if len(dispatched.undispatchable) and not outcome.stores.lmq_in_database:
            row = int(dispatched.undispatchable[0])
            raise UndispatchableRecord(int(columns.ints("physical_offset")[row]))
        if outcome.stores.throws_at_lmq and any(topic.startswith(LMQ_PREFIX) for topic in dispatched.topics):
            raise LmqThrows
        self._units.add(dispatched)
        if outcome.profile.queues.batches and outcome.snapshot.batch_topics:
            record = dispatched.units.record
            self._hand_out(lambda rows, of_queue: batch_units(columns, record[rows], of_queue))
        elif self._units.enough:
            self._hand_out()

    def _hand_out(self, of_batches: Callable[[Ints, Units], Units] | None = None) -> None:
        """Put all waiting units into their queues. of_batches: makes the units of a batch queue for some rows."""
        outcome = self._outcome
        for (name, offsets, of_queue), rows in self._units.hand_out():
            if not outcome.stores.in_files(name.topic):
                continue
            if "\0" in name.topic:
                outcome.delay_seconds += RETRY_SECONDS * len(of_queue)
                outcome.queue(name)
                continue
            units = of_queue
            if of_batches is not None and name.topic in outcome.snapshot.batch_topics:
                units = of_batches(rows, of_queue)
            ext_bytes = outcome.ext.unit_bytes(name.topic) if outcome.ext else 0
            outcome.queue(name).put(units, offsets, ext_bytes)

    def takes(self, run: VerifiedRun, *, made: bool) -> bool:
        """Whether the records of a run can be skipped: no queue takes anything from them, or their units are `made` as
        this broker makes them; then they are put here.
        """
        self._hand_out()
        outcome = self._outcome
        if outcome.has_all(run):
            return True
        if not (made and run.units) or outcome.ext is not None:
            return False
        for name, parts in run.units.items():
            first = run.queues[name].first
            for units in parts:
                offsets = np.arange(first, first + len(units), dtype=np.int64)
                outcome.queue(name).put(units, offsets)
                first += len(units)
        return True

    def put_phantom(self, phantom: PhantomRecord) -> None:
        """Dispatch a record whose fields do not add up, as 4.3 does: as a message of topic ""."""
        self._hand_out()
        outcome, unit = self._outcome, np.zeros(1, UNIT_DTYPE)
        unit["size"] = phantom.size
        ext_bytes = outcome.ext.unit_bytes("") if outcome.ext else 0
        outcome.queue(QueueId("", 0)).put(unit, np.zeros(1, np.int64), ext_bytes)
