"""Turn a simulated start into a `Prediction`: what a broker's start would do, as data and fields of the JSON.

It counts index items that a start deletes and does not make again (spec 3.4; 07, B19), and messages that a start leaves
out of the logs of compaction topics, from which alone these are served (spec 6.1).

`slave_cut` predicts what a slave cuts off its log by the epochs of a new master (spec 06, 6.2;
AutoSwitchHAClient.doTruncate). A broker with a controller compares its epochs with its master's, the newest first: the
first epoch that both have, with the same begin, shows how far the logs agree. Everything behind is cut off before
anything is copied. The rule was checked against the real EpochFileCache, the cut is by source only.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ...formats.derive.ragged import Flags, Ints
from ...formats.dledger_index import FILE_BYTES, UNIT_BYTES
from ...formats.position_checkpoint import FILE as POSITION_CHECKPOINT
from ..audit.messages import LogObserver, Messages, Readability, Tally, scan_messages
from ..broker.dispatch_record import Dispatching
from ..broker.load_rules import LoadedFile, Refusal, size_at
from ..broker.snapshot import QueueId, Snapshot
from ..broker.system_topics import LMQ_PREFIX
from ..columns import rows_of
from ..disk.byte_reader import refusing
from ..disk.file_queue import MappedFileQueue, file_name
from ..disk.layout import Layout
from ..errors import InvalidInput, NotFound
from ..index.read import sizes_of
from ..inspect.timer_records import DeliveredTimers
from ..log.batch import Extent, ExtentKind
from ..log.commit_log import Batch
from ..plan.observer import GroupLoss
from ..plan.plan import Plan, QueueEnds, ranges_of
from ..queues.batches import SparseUnits, sparse_units
from ..queues.edits import is_zero_from, last_byte, last_unit_byte
from ..queues.references import commit_log_of
from ..queues.start import ExtFile, ExtState, QueueState
from ..queues.start_rocksdb import StartedQueue, queue_windows
from ..queues.units import LARGEST_OFFSET, Units, is_valid
from ..search.queue_search import is_usual, open_log
from ..settings.read import EPOCH_FILE, ConfigFile, read_config_file, read_epochs, read_in_force
from ..start.config import ConfigStart
from ..start.dledger import index_directory
from ..start.outcome import Outcome
from ..start.queue_stores import compaction_topics
from .broker_bugs import TimerLoss, timer_loss, with_bugs
from .cases import Case


def index_items_lost(outcome: Outcome) -> int:
    """Count items of deleted files of records that the recovery does not read: no key finds them. Raises Unreadable."""
    geometry, lost = sizes_of(outcome.snapshot.layout).of_index, 0
    for stored in outcome.index.deleted:
        header = stored.header
        if header.begin_physical_offset >= outcome.scan_start:
            continue
        if header.end_physical_offset < outcome.scan_start:
            lost += max(0, header.index_count - 1)
            continue
        with stored.open(geometry) as file:
            for _, items in file.columns():
                lost += int((items["physical_offset"] < outcome.scan_start).sum())
    return lost


_UNKNOWN = np.iinfo(np.int64).max
FEWEST_OTHERS = 2
"""A single one may be a damaged time."""


class CompactedMessages:
    """The messages in the compaction log of a queue: by units, or if these are not enough, by records."""

    def __init__(self, layout: Layout, queue: QueueId) -> None:
        self._layout, self._queue = layout, queue
        self._own = False

    @cached_property
    def upto(self) -> int:
        """The queue offset up to which the table that a broker reads says the queue is compacted. Raises Unreadable."""
        file = read_in_force(self._layout.compaction_log.parent / POSITION_CHECKPOINT, POSITION_CHECKPOINT)
        if file is None:
            return _UNKNOWN
        rows = ((row.get("topic"), row.get("queue_id"), row.get("offset", -1)) for row in file.records())
        return next((int(row[-1]) for row in rows if row[:-1] == self._queue), -1)

    @cached_property
    def named(self) -> Ints:
        """(queue offset, store time, 1: the log has the file) of units, int64[3, n], by offset. Raises Unreadable."""
        with MappedFileQueue.open(self._queue.below(self._layout.compaction_queues)) as files:
            parts = [part.units for part in sparse_units(files) if isinstance(part, SparseUnits)]
        with MappedFileQueue.open(self._queue.below(self._layout.compaction_log)) as files:
            starts, ends = np.array([(0, 0), *((file.start, file.end) for file in files.files)], np.int64).T

        def columns(units: Units) -> Ints:
            at = units["physical_offset"].astype(np.int64)
            held = at < ends[np.searchsorted(starts, at, side="right") - 1]
            return np.stack([units["msg_base_offset"], units["store_time"], held])

        return _by_offset(3, (columns(units[is_valid(units)]) for units in parts))

    @cached_property
    def kept(self) -> tuple[Ints, int]:
        """(queue offset, store time) of records, int64[2, n], by offset; `upto`, or what the log says if it has later
        records that are compacted: a broker writes the table behind the files, and does not force it to the disk.

        The first file that ends in zeros is the last one that compaction wrote; in a later file zeros are damage.
        """
        log, parts = open_log(self._layout, *self._queue), list[Ints]()
        highest, border, behind_zeros = -1, _UNKNOWN, False
        with log.queue:
            for item in log.scan(crc=False, reuse=True):
                if isinstance(item, Batch):
                    parts.append(np.stack([item.columns.ints(name) for name in ("queue_offset", "store_timestamp")]))
                    if behind_zeros and border == _UNKNOWN:
                        border = int(parts[-1][0][0]) - 1 if highest > self.upto else self.upto
                    highest = max(highest, int(parts[-1][0].max()))
                missing = isinstance(item, Extent) and item.kind is ExtentKind.MISSING
                behind_zeros = behind_zeros if missing else isinstance(item, Extent) and is_usual(log, item)
        return _by_offset(2, parts), self.upto if border == _UNKNOWN else border

    @property
    def last(self) -> int:
        """The log only takes messages with a higher queue offset; -1: all of them."""
        return max(int(part[0].max(initial=-1)) for part in (self.named, self.kept[0]))

    def lacks(self, offset: Ints, store_time: Ints) -> Flags:
        """bool[n]: no pull returns the message, and compaction has not left it out. To be called with the messages of
        the queue by offset. Damaged messages do not count.
        """
        row, named = rows_of(self.named[0], offset)
        free = (offset <= self.upto) & ~named if self.named.size else named
        bare = named.copy()
        bare[named] = self.named[2][row[named]] == 0
        if (free | named & ~bare).all() and (self.named[1][row] == store_time)[named].all():
            return np.zeros(len(offset), np.bool_)
        (kept_offset, kept_time), upto = self.kept
        row, kept = rows_of(kept_offset, offset)
        never = ~kept & (bare | ~named & ((offset > upto) | (self.last < 0)))
        both = np.flatnonzero(kept)
        same = kept_time[row[both]] == store_time[both]
        others = both[: 0 if self._own else np.append(np.flatnonzero(same), len(both))[0]]
        self._own |= bool(same.any())
        if len(others) >= min(FEWEST_OTHERS, len(both)):  # of a deleted topic: those come first
            never[others] = True
        return never


def _by_offset(columns: int, parts: Iterable[Ints]) -> Ints:
    found = np.concatenate([np.zeros((columns, 0), np.int64), *(part.astype(np.int64) for part in parts)], axis=1)
    return found[:, np.argsort(found[0], kind="stable")]


class StartedCompaction:
    """The logs of compaction topics after a start, which appends the messages that it dispatches."""

    def __init__(self, outcome: Outcome) -> None:
        self._layout = outcome.snapshot.layout
        self.topics = compaction_topics(self._layout, outcome.profile)
        self._dispatched = outcome.scan_start if outcome.snapshot.abort else outcome.dispatched + 1
        self._known = dict[QueueId, CompactedMessages]()

    def unserved(self, messages: Messages) -> Flags:
        """bool[n]: no pull returns the message of a compaction topic. Raises Unreadable."""
        known = self._known.setdefault(messages.queue, CompactedMessages(self._layout, messages.queue))
        lacks = known.lacks(messages.offset, messages.store_timestamp)
        if lacks.any():
            lacks &= ~((messages.position >= self._dispatched) & (messages.offset > known.last))
        return lacks


_DOES_NOT_PASS = "the record there does not pass the broker's check"
_LARGE_RECORD_BYTES = 64 << 20
"""Up to 5.3.1 a broker allocates a damaged size before it checks it (B29)."""

Change = Literal["removed", "truncated", "extended", "rewritten", "created"]


class FileChange(NamedTuple):
    """A file that a start changes; begin, end: the bytes that it gives up or adds."""

    path: str
    change: Change
    begin: int
    end: int

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "change": self.change, "from": self.begin, "to": self.end}


class DeliveredAgain(NamedTuple):
    """How many messages a start delivers again, since brokers write their progress every few seconds.

    delayed_again: of delay levels, delivered after delayOffset.json was written. popped_again: POP consumers get them
    although they came back. asked_again: committed, but the broker asks their producers again.
    """

    delayed_again: int = 0
    popped_again: int = 0
    asked_again: int = 0


NOTHING_AGAIN = DeliveredAgain()


class DatabaseEnds(NamedTuple):
    """The queues in a RocksDB after a start. row: the dispatch progress in the database."""

    row: int
    queues: list[QueueEnds]

    @classmethod
    def of(cls, outcome: Outcome) -> DatabaseEnds | None:
        """Return those of a simulated start; None if the broker has no RocksDB."""
        database = outcome.database
        if database is None:
            return None
        return cls(database.row, _ends({name: database.view(name) for name in database.queues}))

    def to_json(self) -> dict[str, Any]:
        return {"row": self.row, "queues": _json_of(self.queues)}


def _ends(queues: Mapping[QueueId, StartedQueue]) -> list[QueueEnds]:
    return [QueueEnds(*name, queue.min_offset, queue.max_offset) for name, queue in sorted(queues.items())]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A broker's start on a store.

    outcome: `starts`, `refuses` or `hangs`; reason: why it does not start. log_start, log_end: None if it does not
    load. delay_seconds: additional time of the start.
    """

    broker_version: str
    outcome: Literal["starts", "refuses", "hangs"]
    reason: str | None = None
    delay_seconds: int = 0
    case: Case
    start_file: str | None = None
    start_reason: str = ""
    log_start: int | None = None
    log_end: int | None = None
    log_end_reason: str = ""
    #: As consumers get them.
    queues: list[QueueEnds] = field(default_factory=list)
    #: None if the broker has no queues in a RocksDB.
    database: DatabaseEnds | None = None
    #: Number of invisible messages that a start left out of a new RocksDB of queues: the record at 0 (B40).
    left_out: int = 0
    #: By topic: messages of deleted topics whose queues a start makes again.
    made_again: Counter[str] = field(default_factory=Counter)
    #: When units of the RocksDB are written, if one start can have several outcomes (B41).
    race: str = ""
    files: list[FileChange] = field(default_factory=list)
    readable: int = 0
    lost: Tally = field(default_factory=Tally)
    invisible: Tally = field(default_factory=Tally)
    groups: GroupLoss = field(default_factory=lambda: GroupLoss({}))
    #: None without a timer.
    timers: TimerLoss | None = None
    #: Nothing if no recovery was asked for.
    again: DeliveredAgain = NOTHING_AGAIN
    #: Of files that are deleted and rebuilt only in part.
    index_items_lost: int = 0
    #: The effect on config/; None if it was not looked at.
    config: ConfigStart | None = None

    @property
    def starts(self) -> bool:
        return self.outcome == "starts"

    @property
    def hidden(self) -> int:
        """Messages that stay and cannot be read, without the one that each such broker leaves out."""
        return self.invisible.messages - self.left_out

    @property
    def unfired(self) -> int:
        """Rises with the number of timed messages that no consumer would see, 0 for none."""
        return self.timers.unfired if self.timers else 0

    @property
    def forgets(self) -> bool:
        """The configuration keeps the broker from starting, or loses entries."""
        return self.config is not None and self.config.harmful

    @property
    def badness(self) -> tuple[bool, int, int, int, bool]:
        """Sort key of predictions: a worse one is greater."""
        lost = (self.lost.messages, self.invisible.messages, self.unfired)
        return (not self.starts, *lost, self.forgets)

    def with_config(self, config: ConfigStart, again: DeliveredAgain) -> Prediction:
        """Return the prediction with the effect on config/: a broker that cannot load it does not start."""
        if not self.starts or not config.refuses:
            return replace(self, config=config, again=again if self.starts else self.again)
        return replace(self, config=config, outcome="refuses", reason=config.refuses)

    def to_json(self) -> dict[str, Any]:
        apart = ("left_out", "made_again", "again")
        row = {name: _json_of(value) for name, value in vars(self).items() if name not in apart}
        return {**row, **self.again._asdict(), "case": self.case.label}


def _json_of(value: Any) -> Any:
    if isinstance(value, list):
        return [_json_of(each) for each in value]
    shown = getattr(value, "to_json", None) or getattr(value, "_asdict", None)
    return shown() if shown else value


def queue_ends(found: Prediction, plan: Plan | None, snapshot: Snapshot) -> Mapping[QueueId, tuple[int, int]]:
    """Return the (min, max) offset of all queues: as planned, else after a start, else of existing queues."""
    if plan is not None or found.queues:
        return ranges_of(found.queues if plan is None else plan.queues)
    return {queue: (0, 1) for queue, entries in snapshot.queues.items() if entries}


def prediction(
    outcome: Outcome, after: Readability, groups: GroupLoss, case: Case, now_ms: int, delivered: DeliveredTimers
) -> Prediction:
    """Describe a simulated start. now_ms, delivered: as of `timer_loss`. Raises Unreadable."""
    if outcome.refusal is not None:
        return _refused(outcome, case)
    root = os.fspath(outcome.snapshot.layout.root)
    database = outcome.database
    if database is not None and database.unreadable and outcome.snapshot.abort:
        # the rows that a recovery after a crash writes are merged with unreadable ones, and that fails
        place = str(outcome.stores.database)
        outcome.refusal = Refusal("queue-database", "RocksDBException: Corruption: block checksum mismatch", place)
        return _refused(outcome, case)
    hangs, made_again = bool(outcome.hangs), _made_again(outcome, after.expected)
    return Prediction(
        broker_version=outcome.profile.version,
        outcome="hangs" if hangs else "starts",
        case=case,
        reason=outcome.hangs or None,
        delay_seconds=outcome.delay_seconds,
        start_file=outcome.start_path and _relative(outcome.start_path, root),
        start_reason=outcome.start.reason if outcome.start else "",
        log_start=outcome.log_start,
        log_end=outcome.log_end,
        log_end_reason=_end_reason(outcome),
        queues=_ends(outcome.read_queues),
        database=DatabaseEnds.of(outcome),
        left_out=after.without_first if database is not None and not outcome.stores.files else 0,
        files=[each._replace(path=_relative(each.path, root)) for each in _changes(outcome)],
        made_again=made_again,
        readable=0 if hangs else after.readable + made_again.total(),
        lost=after.lost,
        invisible=Tally() if hangs else with_bugs(outcome, after.invisible),
        groups=groups,
        timers=timer_loss(outcome, now_ms, delivered),
        index_items_lost=index_items_lost(outcome),
    )


def _made_again(outcome: Outcome, expected: Callable[[QueueId], bool]) -> Counter[str]:
    """Count, by topic, messages in queues that a start makes although a broker has deleted them: in those of deleted
    topics all, in one of a topic that was created again the messages before its begin. expected: as of `Readability`.
    """
    begins, counts = outcome.switches.begins, Counter[str]()
    if begins is None:
        return counts
    for queue, state in outcome.read_queues.items():
        deleted = not expected(queue) and not queue.topic.startswith(LMQ_PREFIX)
        if (deleted or queue in begins.left) and begins.first(queue) is None:
            begin = LARGEST_OFFSET if deleted else begins(*queue, 0)
            for _, units in queue_windows(state, state.min_offset):
                counts[queue.topic] += int((is_valid(units) & (units["physical_offset"] < begin)).sum())
    return +counts


def _refused(outcome: Outcome, case: Case) -> Prediction:
    assert outcome.refusal is not None
    reason = outcome.refusal.text(os.fspath(outcome.snapshot.layout.root))
    return Prediction(broker_version=outcome.profile.version, outcome="refuses", case=case, reason=reason)


def _end_reason(outcome: Outcome) -> str:
    walk = outcome.walk
    if outcome.dledger is not None:
        return outcome.dledger.reason
    if walk is None or walk.failure is None:
        return "there is no log file"
    if walk.reason == "blank":
        return "a BLANK closes the file, and there is no next one"
    entry = walk.files[walk.end_file].entry if walk.end_file < len(walk.files) else None
    offset = walk.failure.offset
    if entry is None or offset >= entry.size:
        return "the file ends without a BLANK"
    if is_zero_from(entry, offset):
        return "nothing but zeros follows"
    wanted = 0 if outcome.profile.record.bounded else size_at(outcome.snapshot, entry, offset)
    if wanted > _LARGE_RECORD_BYTES:
        return f"{_DOES_NOT_PASS}: the check allocates {wanted:,} bytes of heap, and the broker dies if it has less"
    return _DOES_NOT_PASS


def _changes(outcome: Outcome) -> Iterator[FileChange]:
    snapshot = outcome.snapshot
    for entry in [*outcome.log.deleted, *outcome.queue_deletions]:
        yield FileChange(entry.path, "removed", 0, entry.size)
    for file in outcome.log_removed:
        if file.entry is not None:
            yield FileChange(file.entry.path, "removed", 0, file.entry.size)
    yield from _cut(outcome.log.files, snapshot.log_file_bytes)
    if (ledger := outcome.dledger) is not None and ledger.rewritten >= 0:
        begin, end = (number * UNIT_BYTES for number in (ledger.rewritten, ledger.last + 1))
        place = Path(index_directory(snapshot)) / file_name(begin // FILE_BYTES * FILE_BYTES)
        yield FileChange(os.fspath(place), "rewritten", begin % FILE_BYTES, end % FILE_BYTES)
    directory = snapshot.layout.consume_queue
    for name, queue in sorted(outcome.queues.items()):
        yield from _queue_changes(queue, name.below(directory))
        if queue.ext is not None:
            yield from _queue_changes(queue.ext, name.below(snapshot.layout.consume_queue_ext))
    for entry, _ in outcome.index.deleted:
        yield FileChange(entry.path, "removed", 0, entry.size)


def _cut(files: Sequence[LoadedFile], file_bytes: int, *, units: bool = False) -> Iterator[FileChange]:
    """Yield what a start gives up behind the end of the last file."""
    for file in files[-1:]:
        if file.entry is not None and file.wrote < file_bytes:
            end = last_unit_byte(file.entry, file.wrote) if units else last_byte(file.entry, file.wrote)
            if end > file.wrote:
                yield FileChange(file.entry.path, "truncated", file.wrote, end)


def _queue_changes(queue: QueueState | ExtState, directory: Path) -> Iterator[FileChange]:
    """Yield the changes of a queue's files, or of those of its consumequeue_ext."""
    made = {file.start for file in queue.files if file.entry is None}
    removed = {file.start: file.entry for file in queue.removed if file.entry is not None}
    for start, entry in removed.items():
        if start not in made:
            yield FileChange(entry.path, "removed", 0, entry.size)
    for file in queue.files:
        if file.entry is None:
            change: Change = "rewritten" if file.start in removed else "created"
            yield FileChange(str(directory / file_name(file.start)), change, 0, file.wrote)
        elif file.added_at is not None and (isinstance(file, ExtFile) or file.added):
            yield FileChange(file.entry.path, "extended", file.added_at, file.wrote)
    if isinstance(queue, QueueState):
        yield from _cut(queue.files, queue.file_bytes, units=True)


def _relative(path: str, root: str) -> str:
    """Return a path relative to the store, or as it is if it is not inside."""
    return path.removeprefix(root + os.sep)


_OPEN_END = (1 << 63) - 1


class Epoch(NamedTuple):
    """An epoch of a log: the positions [begin, end) were written in it."""

    number: int
    begin: int
    end: int


def epochs_of(found: ConfigFile | None, end: int) -> list[Epoch]:
    """Return the epochs of a file, the last one up to `end`; none without a file. Raises InvalidInput."""
    if found is None:
        return []
    if found.problem is not None:
        raise InvalidInput(f"no epoch file: {found.problem.reason}", path=found.path)
    begins = {int(r["epoch"]): int(r["start_offset"]) for r in found.records() if "epoch" in r}
    rows = sorted(begins.items())
    epochs = [Epoch(number, begin, behind) for (number, begin), (_, behind) in pairwise(rows)]
    # if the log ends before its last epoch begins, that epoch stays open
    epochs += [Epoch(n, begin, end if begin <= end else _OPEN_END) for n, begin in rows[-1:]]
    return epochs


def consistent_point(own: Sequence[Epoch], master: Sequence[Epoch]) -> int:
    """Return the position up to which both logs agree, -1 if no epoch shows one."""
    others = {epoch.number: epoch for epoch in master}
    for epoch in reversed(own):
        other = others.get(epoch.number)
        if other is not None and other.begin == epoch.begin:
            return min(epoch.end, other.end)
    return -1


@dataclass
class _CountBehind(LogObserver):
    position: int
    lost: Tally = field(default_factory=Tally)

    def messages(self, messages: Messages) -> None:
        self.lost.add(messages.take((messages.position >= self.position) & ~messages.lost))


@dataclass(frozen=True)
class SlaveCut:
    """outcome: `same`: nothing is cut; `cuts`: from `position` on, the whole log if that expired; `refuses`: no epoch
    is common, no record begins at `position`, or the log ends before it, and the slave retries for ever; `copies`: its
    log is empty; `unchecked`: it has no epochs, and goes on behind its log's end whatever the master's log has before.
    compared: that what stays is compared with the master's log, byte by byte; differs_at: where it first differs.
    """

    layout: Layout
    outcome: Literal["same", "cuts", "refuses", "copies", "unchecked"]
    position: int
    log_end: int
    own: Sequence[Epoch]
    master: Sequence[Epoch]
    lost: Tally = field(default_factory=Tally)
    compared: bool = False
    differs_at: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "slave_cut",
            "store": str(self.layout.root),
            "outcome": self.outcome,
            "position": self.position,
            "log_end": self.log_end,
            "last_epoch": self.own[-1].number if self.own else None,
            "master_epoch": self.master[-1].number if self.master else None,
            "lost": self.lost.to_json(),
            "compared": self.compared,
            "differs_at": self.differs_at,
            "by_source": "AutoSwitchHAClient.doTruncate",
        }


@refusing()
def slave_cut(layout: Layout, master: Path, tell: Callable[[int], None] | None = None) -> SlaveCut:
    """Return what a slave with this store cuts off to follow a master. master: its epoch file, or its store, whose log
    end counts then. tell: called with the log position reached. Raises InvalidInput, NotFound, Missing, NotAStore,
    Unreadable.
    """
    log = commit_log_of(layout)
    end = log.end().position if log.files else 0
    if master.is_dir():
        other = Layout.open(master)
        others = commit_log_of(other)
        its_end = others.end().position if others.files else 0
        master = other.broker_config.epoch_file(master)
        _, its_file = read_epochs(master)
    else:
        its_file, its_end = read_config_file(master, EPOCH_FILE), _OPEN_END
    masters = epochs_of(its_file, its_end)
    if not masters:
        raise NotFound("the master's epoch file has no epoch", path=master)
    own = epochs_of(read_epochs(layout.broker_config.epoch_file(layout.root))[1], end)
    if not log.files:
        return SlaveCut(layout, "copies", 0, end, own, masters)
    if not own:
        return SlaveCut(layout, "unchecked", end, end, own, masters)
    position = consistent_point(own, masters)
    if position >= end:
        return SlaveCut(layout, "same" if position == end else "refuses", position, end, own, masters)
    behind = _CountBehind(max(position, 0))
    scan_messages(log, [behind], Dispatching(), crc=False, progress=tell)
    aligned = position >= 0 and (position <= log.min_offset or log.begins_at(position))
    outcome: Literal["cuts", "refuses"] = "cuts" if aligned else "refuses"
    return SlaveCut(layout, outcome, position, end, own, masters, behind.lost)
