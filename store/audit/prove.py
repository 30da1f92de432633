"""The pass that proves what of the log is in order (see `verified`), a part on each core.

Columns of some hundred thousand messages are sorted by queue and compared with the units on disk, all at once. If a
window of such a group has a message that differs, the windows from the first to the last one of this kind are left to
others, who check one message after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...formats.consume_queue import UNIT_BYTES
from ...formats.derive.ragged import Ints
from ...formats.message import TRANSACTION_MASK, SysFlag
from ...formats.message_properties import INNER_MULTI_DISPATCH
from ...formats.property_columns import PropertyItems
from ..broker.dispatch import Dispatched, dispatch
from ..broker.dispatch_record import Dispatching
from ..broker.load_rules import undeliverable, unreadable_numbers
from ..broker.snapshot import DirectoryEntry, QueueId, Snapshot
from ..columns import Rows, begins
from ..disk.byte_reader import reading_rate
from ..disk.file_queue import MappedFile, MappedFileQueue, is_zero
from ..disk.workers import Forked
from ..errors import StoreError, Unreadable
from ..index.compare import IndexFiles, uncovered
from ..log.batch import Batch, Extent, ExtentKind
from ..log.commit_log import CommitLog, record_behind, used_bytes
from ..log.message import Mark
from ..log.window import NOTING, NOTING_HASHES
from ..queues.units import LARGEST_OFFSET, UNIT_DTYPE, WINDOW_UNITS, FileUnits, Numbers, QueueNumbers, Units
from .messages import AT_ONCE, points_at
from .verified import PackedItems, QueueRange, RecordFacts, VerifiedLog, VerifiedPieces, VerifiedQueue, is_long

if TYPE_CHECKING:
    from ..queues.rocksdb_copy import CopiedQueues
    from .messages import Messages

_FEW = 16
_AHEAD_UNITS = 3 << 16
"""Units of all queues together that are read before their messages are: a queue that gets few messages at a time is
read less often. Each process has them: 4 MiB; more save no time."""


class Lmq(NamedTuple):
    """Records that name further queues. version: of the broker whose rules count. further: None: they get no units."""

    version: str
    further: Dispatching | None


class _Messages(Rows):
    """Messages of a window: number of their queue, queue offset, log position, size, store time.

    tags_code: what their records ask for; None if that is not known.
    """

    queue: Numbers
    offset: Ints
    position: Ints
    size: Ints
    time: Ints
    tags_code: Ints | None


class _MessageWindow(NamedTuple):
    """Messages of a window, and facts about its records. items: index items that were made."""

    messages: _Messages
    facts: RecordFacts
    items: PackedItems | None


class ComparedUnits(NamedTuple):
    """Messages of a queue, their units as read, and the files with the units."""

    files: MappedFileQueue
    messages: QueueRange
    units: Units

    def is_in(self, files: MappedFileQueue) -> bool:
        """Return whether these are the same files of the queue."""
        return files.files == self.files.files and files.stop == self.files.stop

    def of(self, files: MappedFileQueue, messages: Messages) -> Units | None:
        """Return the units of messages of a queue with these files; None if they are others."""
        at, count = int(messages.offset[0]) - self.messages.first, len(messages.offset)
        if not self.is_in(files) or at < 0 or at + count > len(self.units):
            return None
        return self.units[at : at + count] if messages.in_a_row else None


class UnitsAhead:
    """Units of queues in files; those behind the ones that were asked for are read with them."""

    def __init__(self, queues: QueueNumbers) -> None:
        self._queues = queues
        self._most = min(WINDOW_UNITS, _AHEAD_UNITS // max(1, len(queues)))
        self._read: dict[int, tuple[int, Units]] = {}

    def fill(self, number: int, first: int, units: Units) -> None:
        """Fill `units` with those of queue `number` from unit `first` on; zeros where a file is missing or ends. What
        was read ahead may be older than what a running broker has written since: see `forget`. Raises Unreadable.
        """
        begin, known = self._read.pop(number, (first, units[:0]))
        at, stream = first - begin, self._queues.stream(number)
        if at < 0 or at + len(units) > len(known):
            if 2 * len(units) > self._most:
                stream.fill(first, units)
                return
            begin, at = first, 0
            try:
                known = stream.read(first, self._count(stream.files, first, len(units)))
            except Unreadable:  # it may lie behind what was asked for
                stream.fill(first, units)
                return
        units[:] = known[at : at + len(units)]
        if at + len(units) < len(known):
            self._read[number] = begin, known

    def forget(self) -> None:
        """Read again what comes next: some unit was not that of its message."""
        self._read.clear()

    def _count(self, files: MappedFileQueue, first: int, least: int) -> int:
        """How many units to read from unit `first` on: not into a hole of a sparse file, which is never written yet."""
        file = files.file_at(first * UNIT_BYTES)
        if file is None:
            return least
        at = first * UNIT_BYTES - file.start
        return max(least, min(self._most, (files.data_end(file, at) - at) // UNIT_BYTES))


@dataclass(frozen=True)
class Proof:
    """What is needed to prove any part of a log.

    queues: those to which a message may belong. tagged: the index has tags, too. lmq: None if no message is in several
    queues. making: if no queue has anything on disk, the rules to make units by, and items of an index that has nothing
    either. copied: the copy whose files the queues are, if they are in a RocksDB. first_apart: the record at position 0
    is a run of its own.
    """

    log: CommitLog
    queues: QueueNumbers
    index: IndexFiles
    tagged: bool
    lmq: Lmq | None = None
    making: Dispatching | None = None
    copied: CopiedQueues | None = None
    first_apart: bool = False

    def at(self, start: int) -> Prover:
        """Return a prover of the part that begins with the record at a log position."""
        return Prover(self, start)


class Prover:
    """Proves one part of a log, which the caller reads."""

    def __init__(self, proof: Proof, start: int) -> None:
        self._proof, self._making, self._covered = proof, proof.making, proof.index.ranges
        self._queues, self._ahead = proof.queues, UnitsAhead(proof.queues)
        self._next = np.full(len(proof.queues), -1, np.int64)
        self._unindexed: int | None = None
        self._found = VerifiedPieces(proof.log, start)
        self._windows: list[_MessageWindow] = []
        self._waiting = 0
        self._reach = 0
        #: By queue in files: the last messages compared with units, if all were in order.
        self.laid: dict[QueueId, ComparedUnits] = {}
        #: The same of all messages since `settled`; None if some are not in order, or tags are not known.
        self._settled: list[dict[QueueId, ComparedUnits]] | None = []

    def see(self, item: Batch | Extent, dispatched: Dispatched | None = None) -> None:
        """Take the next item of the log, with bodies compared with their checksums. Raise Unreadable.

        dispatched: what its records add to queues and index, if the caller knows it.
        """
        if isinstance(item, Extent):
            self._settle(at_gap=item.kind is not ExtentKind.BLANK)
            if not self._found.passes(item):
                self._next[:] = -1
            return
        if item.body_crc_ok is not None and not item.body_crc_ok.all():
            self._settled = None
        for batch in _without_damaged(item):
            rest = batch
            if item.mark <= Mark.AFTER_DAMAGE:
                self._reach = max(self._reach, batch.end)
            if self._proof.first_apart and int(batch.position[0]) == 0:
                self._add(batch.take(slice(1)), None)
                self._settle()
                self._found.end_run()
                rest = batch.take(slice(1, None))
            if len(rest):
                self._add(rest, dispatched if rest is item else None)

    def settled(self) -> list[dict[QueueId, ComparedUnits]] | None:
        """Return all messages since the last call, if each has its unit with its tags code, else None. Raise
        Unreadable.
        """
        if self._settled is not None:
            self._settle()
        found, self._settled = self._settled, []
        return found

    def done(self) -> VerifiedLog:
        """Return what is in order in the part that was seen. Raise Unreadable."""
        self._settle()
        found = VerifiedLog(*self._found.done(), self._proof.index, units_by(self._making), self._proof.copied)
        return replace(found.of_long_runs(), reach=self._reach)

    def _add(self, batch: Batch, dispatched: Dispatched | None) -> None:
        """Keep records until there are enough of each queue; records that are not in order end the group."""
        begin = int(batch.position[0])
        items = PropertyItems(batch.columns.ragged("properties")) if dispatched is None else dispatched.properties
        window = self._window(batch, items, dispatched) if is_in_order(batch, begin, items) else None
        reached = self._windows[-1].facts.end if self._windows else self._found.end
        if window is None or begin != reached:
            self._settle(at_gap=True)
            self._next[:] = -1
        if window is None:
            self._settled = None
            return
        self._windows.append(window)
        self._waiting += len(window.messages)
        if self._waiting >= AT_ONCE:
            self._settle()

    def _window(self, batch: Batch, properties: PropertyItems, dispatched: Dispatched | None) -> _MessageWindow | None:
        """Return the messages of a batch; None if some record is of a queue that does not exist, or names further
        queues in a store without any: some brokers fail at such a record all the same (spec 2.9, B11).
        """
        lmq, making = self._proof.lmq, self._making
        named = properties.has_name(INNER_MULTI_DISPATCH)
        if named and lmq is None:
            return None
        how = making or (lmq.further if named and lmq is not None else None)
        made = tags_code = items = None
        if how is not None:
            known = dispatched is not None and dispatched.is_as(how, named=named)
            made = dispatched if known else dispatch(batch, how)
        if made is None:
            topics = dispatched.stored_topics if dispatched is not None else None
            found = self._queues.of_records(batch.columns, topics)
        else:
            found = self._queues.of_dispatched(made)
        if found is None:
            return None
        if made is not None and making:
            tags_code = made.units.tags_code
            items = PackedItems.of(batch, made.items) if making.items else None
        elif made is None and dispatched is not None and np.array_equal(dispatched.units.record, np.arange(len(batch))):
            tags_code = dispatched.units.tags_code  # one unit per record, in order
        facts = RecordFacts.of(batch, self._unindexed_in(batch, made), lmq.version if named and lmq is not None else "")
        columns, record = batch.columns, found.record
        messages = _Messages(
            found.queue,
            found.offset.astype(np.int64),
            batch.position[record],
            columns.ints("total_size")[record].astype(np.int64),
            columns.ints("store_timestamp")[record].astype(np.int64),
            tags_code,
        )
        return _MessageWindow(messages, facts, items)

    def _unindexed_in(self, batch: Batch, made: Dispatched | None) -> int | None:
        """Return the first record without its index items, or that of an earlier batch."""
        if self._unindexed is None and made is not None and self._making and self._making.items:
            items = made.items
            self._unindexed = int(items.physical_offset[0]) if len(items) else None
        elif self._unindexed is None:
            self._unindexed = uncovered(self._covered, batch, tagged=self._proof.tagged)
        return self._unindexed

    def _settle(self, *, at_gap: bool = False) -> None:
        """Compare consecutive windows with their units, and note what is in order. at_gap: what follows does not
        continue them.
        """
        group, self._windows, self._waiting, self.laid = self._windows, [], 0, {}
        if at_gap and group and self._found.only_long and self._is_short(group):
            self._settled = None
            return
        wrong = self._compare(group)
        if wrong:
            self._settled = None
            self._ahead.forget()
            self._compare(group[: wrong[0]])
            self._next[:] = -1
            self._compare(group[wrong[-1] + 1 :])

    def _is_short(self, group: list[_MessageWindow]) -> bool:
        """Return whether windows that continue nothing make no long run."""
        begin, end = group[0].facts.begin, group[-1].facts.end
        if begin == self._found.end:
            return False
        queues = np.unique(np.concatenate([window.messages.queue for window in group]))
        messages = sum(len(window.messages) for window in group)
        return not is_long(len(queues), messages, end - begin)

    def _compare(self, group: list[_MessageWindow]) -> range:
        """Compare windows with their units. Return an empty range if all are in order, else the range of windows that
        are not.
        """
        if not group:
            return range(0)
        parts = [window.messages for window in group]
        if any(part.tags_code is None for part in parts):
            parts = [part.replace(tags_code=None) for part in parts]
        order = np.argsort(np.concatenate([part.queue for part in parts]), kind="stable")
        messages = _Messages.concat(parts, order)
        queue, offset = messages.queue, messages.offset
        new = np.flatnonzero(begins(queue))
        before = np.append(-1, offset[:-1]) + 1
        more = len(self._queues) - len(self._next)
        self._next = np.append(self._next, np.full(more, -1, np.int64))
        known = self._next[queue[new]]
        before[new] = np.where(known < 0, offset[new], known)
        bad = (offset != before) | (offset < 0) | (offset > LARGEST_OFFSET)
        ends = np.append(new[1:], len(queue))
        if not bad.any():
            units = self._units(messages, new, ends)
            bad = ~points_at(units, messages)
            tagged = messages.tags_code is not None and bool((units["tags_code"] == messages.tags_code).all())
        if bad.any():
            rows = [len(window.messages) for window in group]
            wrong = np.repeat(np.arange(len(group)), rows)[order[bad]]
            return range(int(wrong.min()), int(wrong.max()) + 1)
        self._next[queue[new]] = offset[ends - 1] + 1
        self._take(group, messages, units, new, ends)
        if self._settled is not None:
            self._settled = [*self._settled, self.laid] if tagged and self.laid else None
        return range(0)

    def _take(self, group: list[_MessageWindow], messages: _Messages, units: Units, new: Ints, ends: Ints) -> None:
        """Note that messages are in order, queue by queue, from rows `new` to `ends`; `units` name them."""
        last, position, size, time = ends - 1, messages.position, messages.size, messages.time
        offset = messages.offset
        rows = (offset[new], offset[last] + 1, position[new], position[last], size[last])
        ways = (np.add, size), (np.minimum, time), (np.maximum, time)
        totals = (way.reduceat(of, new) for way, of in ways)
        queues = [self._queues.names[number] for number in messages.queue[new].tolist()]
        columns = zip(*(row.tolist() for row in (*rows, *totals)), strict=True)
        queue_ranges = {name: QueueRange(*row) for name, row in zip(queues, columns, strict=True)}
        made: dict[QueueId, Units] = {}
        bounds = list(zip(queues, new.tolist(), ends.tolist(), strict=True))
        if self._making is not None:
            made = {name: units[first:end] for name, first, end in bounds}
        elif self._proof.copied is None:
            numbers = messages.queue[new].tolist()
            for number, (name, first, end) in zip(numbers, bounds, strict=True):
                files = self._queues.stream(number).files
                self.laid[name] = ComparedUnits(files, queue_ranges[name], units[first:end])
        items = [window.items for window in group if window.items is not None]
        facts = reduce(RecordFacts.and_then, (window.facts for window in group))
        self._found.take(facts, queue_ranges, made, items)

    def _units(self, messages: _Messages, new: Ints, ends: Ints) -> Units:
        """Return the units of messages queue by queue, made or from disk; zeros where a file is missing or ends."""
        units = np.zeros(len(messages), UNIT_DTYPE)
        if self._making is not None and messages.tags_code is not None:
            units["physical_offset"], units["size"] = messages.position, messages.size
            units["tags_code"] = messages.tags_code
            return units
        queues, firsts = messages.queue[new].tolist(), messages.offset[new].tolist()
        rows = zip(queues, firsts, new.tolist(), ends.tolist(), strict=True)
        for number, first, begin, end in rows:
            self._ahead.fill(number, first, units[begin:end])
        return units


def units_by(making: Dispatching | None) -> Dispatching | None:
    """Return the rules by which units are made, without index items."""
    return None if making is None else making._replace(items=False)


def _without_damaged(batch: Batch) -> Iterator[Batch]:
    """Yield the records before, between and behind those with a damaged body; between only if these are few: what is
    short is no run.
    """
    if batch.body_crc_ok is None or batch.body_crc_ok.all():
        yield batch
        return
    damaged = np.flatnonzero(~batch.body_crc_ok)
    done = 0
    if len(damaged) > _FEW:
        if damaged[0] > 0:
            yield batch.take(slice(0, int(damaged[0])))
        damaged, done = damaged[:0], int(damaged[-1]) + 1
    for row in [*damaged.tolist(), len(batch)]:
        if row > done:
            yield batch.take(slice(done, row))
        done = row + 1


def is_in_order(batch: Batch, reach: int, properties: PropertyItems) -> bool:
    """Return whether the records continue at `reach` and are as `VerifiedRun` says, apart from queues.

    properties: of the records.
    """
    columns = batch.columns
    if batch.mark > Mark.AFTER_DAMAGE or int(batch.position[0]) != reach:
        return False
    good = batch.body_crc_ok is not None and batch.body_crc_ok.all()
    if not good or (columns.ints("physical_offset") != batch.position).any():
        return False
    if (batch.position[1:] != batch.position[:-1] + columns.ints("total_size")[:-1]).any():
        return False
    if (columns.ints("sys_flag") & (TRANSACTION_MASK & SysFlag.PREPARED)).any():
        return False
    topics = columns.ragged("topic")
    if len(unreadable_numbers(topics, properties, np.ones(len(batch), np.bool_))):
        return False
    if len(undeliverable(topics, properties)):
        return False
    return bool(columns.ints("store_host.port").all()) and not properties.torn().any()


_TAIL_BYTES = 1 << 18
"""Most bytes to read behind the last unit of a queue."""


def with_verified_queues(verified: VerifiedLog, snapshot: Snapshot) -> VerifiedLog:
    """Return the log with the queues that have nothing else on disk, which need not be read again.

    A queue with much behind its last message, zeros or not, is left to others.
    """
    if verified.copied is not None:
        return verified
    found = {}
    for name, messages in verified.ranges().items():
        entries = snapshot.queues.get(name, ())
        if entries and _has_nothing_else(messages, entries, snapshot.queue_file_bytes):
            found[name] = VerifiedQueue(messages, entries)
    return replace(verified, queues=found)


def _has_nothing_else(messages: QueueRange, entries: tuple[DirectoryEntry, ...], file_bytes: int) -> bool:
    """Return whether the files of a queue are whole and consecutive, have exactly these messages from their first byte
    into their last file, and zeros behind them.
    """
    stream = FileUnits.of(entries, file_bytes)
    files, last = stream.files.files, stream.files.files[-1:]
    follow = all(file.end == later.start for file, later in pairwise(files))
    if len(files) != len(entries) or not follow or stream.first != messages.first:
        return False
    if not last[0].start < messages.next * UNIT_BYTES <= last[0].end:
        return False
    try:
        return _is_zero_behind(stream.files, last[0], messages.next * UNIT_BYTES - last[0].start)
    except StoreError:  # others report the error
        return False
    finally:
        stream.files.close()


def _is_zero_behind(files: MappedFileQueue, file: MappedFile, begin: int) -> bool:
    """Return whether the file has nothing, or a few zeros, from a byte on."""
    at = files.next_data(file, begin) if begin < file.size else None
    if at is None:
        return True
    end = files.data_end(file, at)
    if end - at > _TAIL_BYTES or (end < file.size and files.next_data(file, end) is not None):
        return False
    return is_zero(files.read_file(file, at, end - at))


_PART_BYTES = 32 << 20
"""A smaller part is not worth a process."""


def prove_log(proof: Proof, jobs: int = 1, tell: Callable[[int], None] | None = None) -> VerifiedLog:
    """Return what of the log is in order. Raise Unreadable.

    tell: called with the log position reached. jobs: number of processes.
    """
    noting = NOTING if proof.making is None else NOTING_HASHES

    def part(begin: int, end: int, tell: Callable[[int], None] | None = None) -> VerifiedLog:
        prover = proof.at(begin)
        for item in proof.log.scan(begin, end, reuse=True, noting=noting):
            if tell is not None and isinstance(item, Batch):
                tell(item.end)
            prover.see(item)
        return prover.done()

    # results of other processes name the files of `copied`, but do not keep them
    return replace(in_parts(proof.log, part, jobs, tell), copied=proof.copied)


def in_parts(
    log: CommitLog,
    part: Callable[[int, int, Callable[[int], None] | None], VerifiedLog],
    jobs: int,
    tell: Callable[[int], None] | None = None,
) -> VerifiedLog:
    """Give each of `jobs` processes a part of the log, and return what they find together. Raise Unreadable.

    part: reads the log between two positions.
    """
    bounds = _bounds(log, 1 if reading_rate() else jobs)  # several processes would read more
    with ExitStack() as stack:
        children = [stack.enter_context(Forked(partial(part, begin, end, None))) for begin, end in bounds[1:]]
        verified = part(*bounds[0], _for_all(bounds, tell))
        for child, (begin, end) in zip(children, bounds[1:], strict=True):
            found = child.result() or part(begin, end, tell)
            verified = found.after(verified)
            if tell is not None:
                tell(verified.items[-1].end if verified.items else end)
    return verified


def _for_all(bounds: list[tuple[int, int]], tell: Callable[[int], None] | None) -> Callable[[int], None] | None:
    """Return a function that tells how far all processes are, taken to be as far as the first one."""
    begin, end = bounds[0][0], bounds[-1][1]
    return tell and (lambda reached: tell(min(end, begin + (reached - begin) * len(bounds))))


def _bounds(log: CommitLog, jobs: int) -> list[tuple[int, int]]:
    """Return parts of about the same size, each from the start of a record on: (begin, end)."""
    begins, files = [log.min_offset], log.files
    end = files[-1].start + used_bytes(log, files[-1]) if files else log.min_offset
    if any(file.compressed for file in files):  # nothing can begin inside of one
        jobs = 1
    count = max(1, min(jobs, (end - begins[0]) // _PART_BYTES))
    for part in range(1, count):
        found = record_behind(log, begins[0] + (end - begins[0]) * part // count)
        if found is not None and found > begins[-1]:
            begins.append(found)
    return list(zip(begins, [*begins[1:], log.max_file_end], strict=True))
