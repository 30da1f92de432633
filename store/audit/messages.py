"""One pass over the log: which messages there are, and which of them consumers can read afterwards.

A message is a queue position: a record counts once in its own queue and once in each further queue that it names; a
batch record counts once for each of its messages. Only good records of this log count, not damaged ones or those of an
earlier life. Memory grows only with the messages that queues lack, not with the log.

`compare` is the only comparison of log and queue: what does a queue have in the place of a message's unit? Each caller
maps the kinds as its policy requires (spec 2.11): `verify` to codes, a plan to edits, a proof to what it leaves to
others, a prediction to what can be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import EXT_ADDRESS_MAX
from ...formats.derive.ragged import Flags, Ints
from ..broker.dispatch import Dispatched, dispatch, dispatch_columns
from ..broker.dispatch_record import OWN_QUEUES, Dispatching
from ..broker.snapshot import QueueId
from ..columns import Rows, begins, kept, order_of_pairs
from ..log.batch import DAMAGED, ItemObserver, TailHistory, dispatched_messages, good_records
from ..log.commit_log import Batch, CommitLog, Extent
from ..log.message import Mark, tombstones
from ..log.window import NOTING_HASHES
from ..queues.units import LARGEST_OFFSET, Units, is_pre_fill, is_valid

if TYPE_CHECKING:
    from ..queues.start_rocksdb import StartedQueue
    from .verified import QueueRange, VerifiedLog, VerifiedRun


class DifferenceKind(IntEnum):
    """Kinds of difference. Up to ADDRESS the unit names the record of the message, up to OTHER some record."""

    NONE = 0
    #: Another tags code.
    TAGS = 1
    #: An address in consumequeue_ext instead of the tags code.
    ADDRESS = 2
    #: The position of the record, and another size.
    SIZE = 3
    #: Another record.
    OTHER = 4
    PRE_FILL = 5
    INVALID = 6
    #: Zeros.
    NOTHING = 7


class Placed(Protocol):
    """Messages with the log position and size of their records, int64[n]."""

    @property
    def position(self) -> Ints: ...
    @property
    def size(self) -> Ints: ...


class Tagged(Placed, Protocol):
    """Messages as in `Placed`, also with the tags codes that their records ask for, int64[n]."""

    @property
    def tags_code(self) -> Ints: ...


def points_at(units: Units, messages: Placed) -> Flags:
    """Return whether unit i names the record of message i: bool[n]."""
    same: Flags = (units["physical_offset"] == messages.position) & (units["size"] == messages.size)
    return same


def compare(units: Units, messages: Tagged) -> npt.NDArray[np.int8]:
    """Return how unit i, at the queue offset of message i, differs from its unit: int8[n] of `DifferenceKind`."""
    same, codes = points_at(units, messages), units["tags_code"]
    kinds = np.zeros(len(units), np.int8)
    other = codes != messages.tags_code
    if same.all() and not other.any():  # nearly always
        return kinds
    tags = np.flatnonzero(same & other)
    kinds[tags] = np.where(codes[tags] <= EXT_ADDRESS_MAX, DifferenceKind.ADDRESS, DifferenceKind.TAGS)
    rows = np.flatnonzero(~same)
    if len(rows):
        wrong = units[rows]
        there = wrong["physical_offset"] == messages.position[rows]
        cases = (wrong["size"] == 0, ~is_valid(wrong), is_pre_fill(wrong), there)
        found = (DifferenceKind.NOTHING, DifferenceKind.INVALID, DifferenceKind.PRE_FILL, DifferenceKind.SIZE)
        kinds[rows] = np.select(cases, found, DifferenceKind.OTHER)
    return kinds


@dataclass
class Share:
    """Messages of one queue with the same fate, and the reason."""

    queue: QueueId
    reason: str = ""
    messages: int = 0
    bytes: int = 0
    first_store_timestamp: int = 0
    last_store_timestamp: int = 0
    #: Queue offsets of the first and the last message.
    first_offset: int = 0
    last_offset: int = 0

    def plus(self, other: Share) -> Share:
        return replace(
            self,
            messages=self.messages + other.messages,
            bytes=self.bytes + other.bytes,
            first_store_timestamp=min(self.first_store_timestamp, other.first_store_timestamp),
            last_store_timestamp=max(self.last_store_timestamp, other.last_store_timestamp),
            first_offset=min(self.first_offset, other.first_offset),
            last_offset=max(self.last_offset, other.last_offset),
        )

    def to_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            **self.queue._asdict(),
            "messages": self.messages,
            "bytes": self.bytes,
            "first_store_timestamp": self.first_store_timestamp,
            "last_store_timestamp": self.last_store_timestamp,
        }
        return {**row, "reason": self.reason} if self.reason else row


@dataclass
class Tally:
    """Shares per queue and reason."""

    shares: dict[tuple[QueueId, str], Share] = field(default_factory=dict)

    def add(self, messages: Messages, reason: str = "") -> None:
        if len(messages):
            times, offsets = messages.store_timestamp, messages.offset
            ends = (int(times.min()), int(times.max()), int(offsets.min()), int((offsets + messages.number).max()) - 1)
            self.take(Share(messages.queue, reason, messages.count(), int(messages.size.sum()), *ends))

    def add_stretch(self, queue: QueueId, stretch: QueueRange) -> None:
        """Count messages of a queue that are in order."""
        times = (stretch.first_timestamp, stretch.last_timestamp)
        self.take(Share(queue, "", stretch.messages, stretch.bytes, *times, stretch.first, stretch.next - 1))

    def add_without_record(self, queue: QueueId, messages: int, time: int, offset: int) -> None:
        self.take(Share(queue, "", messages, 0, time, time, offset, offset))

    def with_those_of(self, other: Tally) -> Tally:
        both = Tally(dict(self.shares))
        for share in other.shares.values():
            both.take(share)
        return both

    def take(self, share: Share) -> None:
        key = share.queue, share.reason
        self.shares[key] = self.shares[key].plus(share) if key in self.shares else share

    @property
    def messages(self) -> int:
        return sum(share.messages for share in self.shares.values())

    @property
    def topics(self) -> int:
        """Number of different topics."""
        return len({share.queue.topic for share in self.shares.values()})

    def by_topic(self) -> Counter[str]:
        """Return the number of messages of each topic."""
        found = Counter[str]()
        for share in self.shares.values():
            found[share.queue.topic] += share.messages
        return found

    def __iter__(self) -> Iterator[Share]:
        """Yield shares by topic, queue and reason."""
        return iter([self.shares[key] for key in sorted(self.shares)])

    def to_json(self) -> list[dict[str, Any]]:
        return [share.to_json() for share in self]


NO_UNIT = "no unit in the queue"
MISPLACED = "another message at its queue offset"
IN_FRONT = "only at a lower queue offset"
BEHIND_HOLE = "behind a queue offset without a unit, which no pull passes"
HIDDEN = "below the queue's min offset"
UNSERVED = "not in the log of the compaction topic"
UNUSABLE = "unusable properties"
AT_ONCE = 1 << 17
"""Number of messages to compare together: with hundreds of queues a batch has few of each."""


class Messages(Rows):
    """Messages of one queue in log order, int64[n] each. position: of the record; number: of messages in it."""

    queue: QueueId
    offset: Ints
    position: Ints
    size: Ints
    tags_code: Ints
    store_timestamp: Ints
    #: The body matches its checksum, and the record is not a tombstone.
    good: Flags
    #: The record is a tombstone.
    lost: Flags
    number: Ints | int = 1

    def count(self, rows: Flags | slice = slice(None)) -> int:
        """How many messages these rows are: each message of a batch record counts."""
        return int(np.broadcast_to(self.number, len(self))[rows].sum())

    @cached_property
    def in_a_row(self) -> bool:
        """Whether each message has the queue offset after the one before, and a later record."""
        return not len(_breaks(self.offset, self.position))


def _breaks(offset: Ints, position: Ints, new: Flags | None = None) -> Ints:
    """Return the rows that do not continue the row before, in queue offset and log. new: rows that need not."""
    breaks = (offset[1:] - offset[:-1] != 1) | (position[1:] <= position[:-1])
    if new is not None:
        breaks &= ~new[1:]
    return np.flatnonzero(breaks) + 1


@runtime_checkable
class KnowsUnits(Protocol):
    """An observer that may know without the messages whether they have their units."""

    def has_seen(self, messages: int) -> bool:
        """Return whether it knows all messages, this many, since the last call: then they are not handed out."""


class LogObserver(ItemObserver, Protocol):
    """An observer of the pass over the log."""

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        """Take good records of this log, in order."""
        return

    def messages(self, messages: Messages) -> None:
        """Take messages of these records, queue by queue."""
        return


def scan_messages(
    log: CommitLog,
    observers: list[LogObserver],
    how: Dispatching,
    *,
    start: int | None = None,
    crc: bool = True,
    progress: Callable[[int], None] | None = None,
    items: Iterable[Batch | Extent] | None = None,
    verified: VerifiedLog | None = None,
) -> None:
    """Scan the log once for all observers. Raise Unreadable.

    how: what is dispatched; messages in front of the begin of their queue are left out. start: position of a record to
    begin at. crc: check the bodies. progress: called with the position reached. items: a scan to take instead of one of
    the whole log. verified: what is in order; the scan skips runs whose records no observer needs.
    """
    pending = _PendingMessages()

    # a queue whose units were made for a proof may begin behind the run: then not all is in order
    begins = how.begins if verified is not None and verified.end < verified.reach else None

    def can_skip(run: VerifiedRun) -> bool:
        _hand_out(pending, observers, how)
        firsts = ((*queue, each.first_position) for queue, each in run.queues.items() if run.units)
        if begins is not None and any(begins(*first) > first[-1] for first in firsts):
            return False
        return _hand_out_run(run, observers)

    if items is None and verified is not None:
        items = _ScanBesideRuns(log, crc, verified, can_skip)
    elif items is None:
        items = log.scan(start, crc=crc, reuse=True, noting=NOTING_HASHES)

    for batch in good_records(items, observers, progress):
        dispatched = dispatch_columns(batch.columns, how)
        for observer in observers:
            observer.records(batch, dispatched)
        pending.add(batch, dispatched)
        del batch, dispatched  # free the columns while the next window is read
        if pending.count >= AT_ONCE:
            _hand_out(pending, observers, how)
    _hand_out(pending, observers, how)


class _ScanBesideRuns:
    """A scan of the log without the runs for which `can_skip` returns True.

    `can_skip` is called when the scan has come to a run, and found its records to be of this log.
    """

    def __init__(
        self, log: CommitLog, crc: bool, verified: VerifiedLog, can_skip: Callable[[VerifiedRun], bool]
    ) -> None:
        self._log, self._crc, self._can_skip = log, crc, can_skip
        self._runs = {run.begin: run for run in verified.runs}
        self._begins = np.array(sorted(self._runs), np.int64)
        self._blanks = {item.position: item for item in verified.items if isinstance(item, Extent)}
        self._at = log.min_offset
        self._recent = TailHistory()

    def __iter__(self) -> Iterator[Batch | Extent]:
        going = True
        while going:
            while self._skips(self._at):
                if self._at in self._blanks:
                    yield self._blanks[self._at]
                    self._at = self._blanks[self._at].end
            going = yield from self._scan()

    def _scan(self) -> Generator[Batch | Extent, None, bool]:
        """Yield everything up to the next run that is skipped; return whether there is one."""
        for item in self._log.scan(self._at, crc=self._crc, recent=self._recent, reuse=True):
            if isinstance(item, Extent) or item.mark > Mark.AFTER_DAMAGE:
                yield item
                continue
            done = 0
            for row in self._rows(item):
                if row > done:
                    yield item.take(slice(done, row))
                done = row
                if self._skips(int(item.position[row])):
                    return True
            yield item.take(slice(done, None)) if done else item
        return False

    def _rows(self, batch: Batch) -> list[int]:
        """Return the rows of a batch at which runs begin."""
        first, behind = np.searchsorted(self._begins, [batch.position[0], batch.end])
        if first == behind:
            return []
        rows: list[int] = np.flatnonzero(np.isin(batch.position, self._begins)).tolist()
        return rows

    def _skips(self, position: int) -> bool:
        """Skip the run at a position; return False if there is none, or if it cannot be skipped."""
        run = self._runs.pop(position, None)
        if run is None or not self._can_skip(run):
            return False
        self._at = run.end
        self._recent.remember(run.recent, run.store_timestamp)
        return True


def _hand_out_run(run: VerifiedRun, observers: list[LogObserver]) -> bool:
    """Give all observers a run without its records; False if some need the records."""
    from .verified import RunSkipper

    takers = [observer for observer in observers if isinstance(observer, RunSkipper)]
    if len(takers) < len(observers) or not all(taker.can_skip(run) for taker in takers):
        return False
    for taker in takers:
        taker.skip(run)
    return True


def _hand_out(pending: _PendingMessages, observers: list[LogObserver], how: Dispatching) -> None:
    if not pending.count:
        return
    others = [each for each in observers if not (isinstance(each, KnowsUnits) and each.has_seen(pending.count))]
    if not others:
        pending.drop()
    for messages in pending.take():
        begin = how.begins(*messages.queue, int(messages.position[0])) if how.begins is not None else 0
        behind = messages if begin <= messages.position[0] else messages.take(messages.position >= begin)
        for observer in others if len(behind) else ():
            observer.messages(behind)


def messages_of(batch: Batch) -> Iterator[Messages]:
    """Yield the messages of good records in their own queues."""
    pending = _PendingMessages()
    pending.add(batch, dispatch(batch, OWN_QUEUES))
    return pending.take()


class _PendingMessages:
    """Messages of several batches, until there are enough of each queue to compare together."""

    def __init__(self) -> None:
        self.count = 0
        self._topics: dict[str, int] = {}
        self._columns: list[tuple[Ints | Flags, ...]] = []

    def add(self, batch: Batch, dispatched: Dispatched) -> None:
        units = dispatched.units
        if not len(units):
            return
        ids = [self._topics.setdefault(topic, len(self._topics)) for topic in dispatched.topics]
        number = dispatched_messages(dispatched.properties, len(batch))
        lost = tombstones(batch.columns)
        good = ~lost if batch.body_crc_ok is None else batch.body_crc_ok & ~lost
        record = units.record
        key = np.array(ids, np.int64)[units.topic_id] << 32 | (units.queue_id & 0xFFFFFFFF)
        columns = (units.queue_offset, batch.position[record], units.size, units.tags_code, units.store_timestamp)
        waiting = (key, *columns, good[record], lost[record], number[record])
        self._columns.append(tuple(kept(column) for column in waiting))
        self.count += len(units)

    def drop(self) -> None:
        self.count, self._topics, self._columns = 0, {}, []

    def take(self) -> Iterator[Messages]:
        """Yield the messages queue by queue, in log order within each queue; remove all."""
        if not self._columns:
            return
        waiting = [list(parts) for parts in zip(*self._columns, strict=True)]
        topics = list(self._topics)
        self.drop()
        waiting.reverse()  # column by column, each freed before the next one is made
        key = np.concatenate(waiting.pop())
        order = order_of_pairs(key >> 32, key & 0xFFFFFFFF)
        ordered, columns = key.take(order), []
        del key
        while waiting:
            columns.append(np.concatenate(waiting.pop()).take(order))
        new = begins(ordered)
        broken = set((np.cumsum(new)[_breaks(columns[0], columns[1], new)] - 1).tolist())
        bounds = [*np.flatnonzero(new).tolist(), len(ordered)]
        for number, (begin, end) in enumerate(pairwise(bounds)):
            queue = int(ordered[begin])
            queue_id = (queue & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
            name = QueueId(topics[queue >> 32], queue_id)
            found = Messages(name, *(column[begin:end] for column in columns))
            vars(found)["in_a_row"] = number not in broken
            yield found


_IN_FRONT = 1 << 12
"""So many numbers in front of a message's queue offset its unit is looked for, if it is not behind."""


def _elsewhere(queue: StartedQueue, messages: Messages, wrong: Flags) -> Ints:
    """Return where `wrong` messages have their unit: 1 behind their queue offset, -1 in front, 0 nowhere: int64[n]."""
    found = np.zeros(len(wrong), np.int64)
    for near in (0, _IN_FRONT):
        if len(rows := np.flatnonzero(wrong & (found == 0))):
            from ..queues.start_rocksdb import queue_offsets

            rest = messages.take(rows)
            at = queue_offsets(queue, rest.position, rest.offset - near)
            found[rows] = np.sign(at - rest.offset) * points_at(queue.lookup(at), rest)
    return found


class CompactionLogs(Protocol):
    """Compaction logs, from which alone some topics are served."""

    topics: frozenset[str]

    def unserved(self, messages: Messages) -> Flags:
        """Return which messages no pull returns: bool[n]."""


@dataclass
class Readability(LogObserver):
    """Counts the messages that can be read in a store: by its log, and by its queues.

    ranges: (start, end) of the log's files as far as they are written. queues: the state of each. expected: returns
    whether messages of a queue count at all. compacted: None without compaction topics.
    """

    ranges: list[tuple[int, int]]
    queues: Mapping[QueueId, StartedQueue]
    expected: Callable[[QueueId], bool] = lambda _queue: True
    compacted: CompactionLogs | None = None
    readable: int = 0
    total: int = 0
    damaged: int = 0
    damaged_bytes: int = 0
    dead: int = 0
    tombstones: int = 0
    #: Messages of the record at the beginning of the log that have no unit.
    without_first: int = 0
    lost: Tally = field(default_factory=Tally)
    invisible: Tally = field(default_factory=Tally)
    #: The first queue offset of queues in a RocksDB that a pull cannot pass.
    _holes: dict[QueueId, int] = field(default_factory=dict)
    #: Both are called with messages that are lost.
    on_lost: Callable[[Messages], None] | None = None
    on_lost_run: Callable[[VerifiedRun, Mapping[QueueId, QueueRange]], None] | None = None

    def reset(self) -> None:
        """Count from the beginning again."""
        self.readable = self.total = self.damaged = self.damaged_bytes = self.dead = 0
        self.tombstones = self.without_first = 0
        self.lost, self.invisible, self._holes = Tally(), Tally(), {}

    def extent(self, extent: Extent) -> None:
        """Count damaged and missing bytes between records."""
        if extent.kind in DAMAGED:
            self.damaged_bytes += extent.size

    def stale(self, batch: Batch) -> None:
        """Count records that an earlier cut gave up."""
        self.dead += len(batch) if batch.mark is Mark.DEAD_TAIL else 0

    def can_skip(self, run: VerifiedRun) -> bool:
        """Return whether all messages of a run can be read from their queues as on disk, or all are gone."""
        if self._is_gone(run):
            return not run.further_by
        inside = self._in_log(np.array([run.begin], np.int64), np.array([run.end], np.int64))[0]
        return bool(inside) and all(self._shows(name, run) for name in run.queues)

    def _is_compacted(self, queue: QueueId) -> bool:
        return self.compacted is not None and queue.topic in self.compacted.topics

    def _is_gone(self, run: VerifiedRun) -> bool:
        return not any(run.begin < end and start < run.end for start, end in self.ranges)

    def _shows(self, name: QueueId, run: VerifiedRun) -> bool:
        """Return whether the queue has the units of a run's messages, those on disk or those that were made."""
        queue, queue_range = self.queues.get(name), run.queues[name]
        if queue is None or self._is_compacted(name) or queue_range.first < queue.min_offset or name in self._holes:
            return False
        if name not in run.units:
            return queue.shows_disk(queue_range.first, queue_range.next)
        if queue.has_taken(queue_range.first, run.units[name]):
            return True
        made = np.concatenate([units["physical_offset"] for units in run.units[name]])
        there = queue.lookup(np.arange(queue_range.first, queue_range.next, dtype=np.int64))
        return bool((there["physical_offset"] == made).all() and (there["size"] > 0).all())

    def skip(self, run: VerifiedRun) -> None:
        """Count the messages of a run: either all can be read, or none."""
        queues = {name: each for name, each in run.queues.items() if self.expected(name)}
        count = sum(queue_range.messages for queue_range in queues.values())
        self.total += count
        if not self._is_gone(run):
            self.readable += count
            return
        for name, queue_range in queues.items():
            self.lost.add_stretch(name, queue_range)
        if self.on_lost_run is not None:
            self.on_lost_run(run, queues)

    def messages(self, messages: Messages) -> None:
        if not messages.good.all():
            self.damaged += messages.count(~messages.good & ~messages.lost)
            self.tombstones += messages.count(messages.lost)
            messages = messages.take(messages.good)
        if not len(messages.offset) or not self.expected(messages.queue):
            return
        self.total += messages.count()
        kept = self._in_log(messages.position, messages.position + messages.size)
        if not kept.all():
            gone, messages = messages.take(~kept), messages.take(kept)
            self.lost.add(gone)
            if self.on_lost is not None:
                self.on_lost(gone)
        queue = self.queues.get(messages.queue)
        if queue is None or not len(messages):
            self.invisible.add(messages, NO_UNIT)
            return
        kinds = compare(queue.lookup(messages.offset), messages)
        right = kinds <= DifferenceKind.ADDRESS
        hidden = right & (messages.offset < queue.min_offset)
        elsewhere = _elsewhere(queue, messages, ~right)
        right |= elsewhere > 0
        readable = right & ~hidden
        if self.compacted is not None and self._is_compacted(messages.queue):
            unserved = readable & self.compacted.unserved(messages)
            self.invisible.add(messages.take(unserved), UNSERVED)
            readable &= ~unserved
        in_front = elsewhere < 0  # groups may be past it
        absent = ~right & ~in_front & (kinds == DifferenceKind.NOTHING)
        if (hole := queue.hole_at(messages.offset[absent])) is not None:
            self._holes.setdefault(messages.queue, hole)
        behind = readable & (messages.offset > self._holes.get(messages.queue, LARGEST_OFFSET))
        readable &= ~behind
        self.readable += messages.count(readable)
        if readable.all():
            return
        self.without_first += messages.count((absent | hidden) & (messages.position == 0))
        rest = ~right & ~in_front & ~absent
        apart = {HIDDEN: hidden, NO_UNIT: absent, IN_FRONT: in_front, MISPLACED: rest, BEHIND_HOLE: behind}
        for reason, rows in apart.items():
            self.invisible.add(messages.take(rows), reason)

    def _in_log(self, begins: Ints, ends: Ints) -> Flags:
        """Return which records lie whole in one of `ranges`: bool[n]."""
        if not self.ranges:
            return np.zeros(len(begins), np.bool_)
        starts, stops = np.array(sorted(self.ranges), np.int64).T
        at = np.searchsorted(starts, begins, side="right") - 1
        return np.asarray((at >= 0) & (ends <= stops[at]), np.bool_)
