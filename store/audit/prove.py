"""The pass that proves what is in order: see `verified`.

Columns of some hundred thousand messages are sorted by queue and laid beside the units on disk, all
at once. Windows with a message that differs, and all between two of them in such a group, are left to
others, who look at one message after the other.

Proving a whole log, a part on each core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.message import TRANSACTION_MASK, SysFlag
from ...formats.message_properties import INNER_MULTI_DISPATCH
from ..broker.dispatch import dispatch
from ..broker.dispatch_record import Dispatching
from ..columns.dictionary import Dictionary
from ..columns.ordered import begins
from ..disk.byte_reader import reading_rate
from ..disk.workers import Forked
from ..index.compare import IndexFiles, uncovered
from ..log.batch import Batch, Extent
from ..log.commit_log import CommitLog
from ..log.record_status import Mark
from ..log.splits import record_behind, used_bytes
from ..queues.units import UNIT_DTYPE, Numbers, QueueMessages, QueueNumbers, Units
from .verified import Facts, Found, QueueRange, VerifiedLog

Ints = npt.NDArray[np.int64]
_AT_ONCE = 1 << 18
"""Messages that are laid beside their units together: with many queues a window has few of each."""
_FEW = 16
_LONG_PROPERTIES = 4096
"""A torn page hides in the middle of longer ones: those are looked at one by one, by others."""
_NAMES_QUEUES = INNER_MULTI_DISPATCH.encode()


@dataclass(frozen=True)
class Light:
    """Records that name further queues. version: whose rules count. further: None: they get no units."""

    version: str
    further: Dispatching | None


class _Window(NamedTuple):
    """Messages of a window: number of their queue, queue offset, position, size, store time."""

    queue: Numbers
    offset: Ints
    position: Ints
    size: Ints
    time: Ints
    facts: Facts

    @classmethod
    def of(cls, messages: QueueMessages, batch: Batch, facts: Facts) -> _Window:
        """Those of a batch."""
        columns, record = batch.columns, messages.record
        return cls(
            messages.queue,
            messages.offset.astype(np.int64),
            batch.position[record],
            columns.ints("total_size")[record].astype(np.int64),
            columns.ints("store_timestamp")[record].astype(np.int64),
            facts,
        )


@dataclass(frozen=True)
class Proof:
    """What it takes to prove any part of a log.

    queues: those that a message may belong to. tagged: tags are indexed, too. light: None where no
    message is of several queues.
    """

    log: CommitLog
    queues: QueueNumbers
    index: IndexFiles
    tagged: bool
    light: Light | None = None

    def at(self, start: int) -> Prover:
        """Proves the part that begins with the record at a log position."""
        return Prover(self, start)


class Prover:
    """Proves one part of a log, which somebody reads for it."""

    def __init__(self, proof: Proof, start: int) -> None:
        self._queues, self._index = proof.queues, proof.index
        self._covered, self._tagged = proof.index.ranges, proof.tagged
        self._light = proof.light
        self._next = np.full(len(proof.queues), -1, np.int64)
        self._unindexed: int | None = None
        self._found = Found(proof.log, start, proof.light.version if proof.light else "")
        self._windows: list[_Window] = []

    def see(self, item: Batch | Extent, topics: Dictionary | None = None) -> None:
        """The next thing in the log, bodies compared with their checksums. Raises Unreadable.

        topics: of its records, where somebody has numbered them.
        """
        if isinstance(item, Extent):
            self._settle()
            if not self._found.passes(item):
                self._next[:] = -1
            return
        for batch in _without_damaged(item):
            self._add(batch, topics if batch is item else None)

    def done(self) -> VerifiedLog:
        """What is in order in the part that was seen. Raises Unreadable."""
        self._settle()
        return VerifiedLog(*self._found.done(), self._index)

    def _add(self, batch: Batch, topics: Dictionary | None) -> None:
        """Let records wait until there are enough of each queue; others end what waits."""
        begin = int(batch.position[0])
        messages = self._messages_of(batch, topics) if is_in_order(batch, begin) else None
        reached = self._windows[-1].facts.end if self._windows else self._found.end
        if messages is None or begin != reached:
            self._settle()
            self._next[:] = -1
        if messages is None:
            return
        facts = Facts.of(batch, self._unindexed_in(batch), named=messages.named)
        self._windows.append(_Window.of(messages, batch, facts))
        if sum(len(window.queue) for window in self._windows) >= _AT_ONCE:
            self._settle()

    def _unindexed_in(self, batch: Batch) -> int | None:
        """The first record without its index items, unless there was one before."""
        if self._unindexed is None:
            self._unindexed = uncovered(self._covered, batch, tagged=self._tagged)
        return self._unindexed

    def _messages_of(self, batch: Batch, topics: Dictionary | None) -> QueueMessages | None:
        """The messages of a window; None if some record is of a queue that is not there."""
        if self._light is not None:
            named = _NAMES_QUEUES in batch.columns.ragged("properties").buffer.tobytes()
            if named and self._light.further is not None:
                return self._queues.of_dispatched(dispatch(batch, self._light.further))
            own = self._queues.of_records(batch.columns, topics)
            return None if own is None else own._replace(named=named)
        return self._queues.of_records(batch.columns, topics)

    def _settle(self) -> None:
        """Lay windows that follow one another beside their units; what is in order is found."""
        group, self._windows = self._windows, []
        wrong = self._lay(group)
        if wrong:
            self._lay(group[: wrong[0]])
            self._next[:] = -1
            self._lay(group[wrong[-1] + 1 :])

    def _lay(self, group: list[_Window]) -> range:
        """The same if all of them are in order, else: from which one to which they are not."""
        if not group:
            return range(0)
        queue = np.concatenate([window.queue for window in group])
        order = np.argsort(queue, kind="stable")
        names = ("offset", "position", "size", "time")
        offset, position, size, time = (
            np.concatenate([getattr(window, name) for window in group])[order] for name in names
        )
        queue = queue[order]
        new = np.flatnonzero(begins(queue))
        before = np.append(-1, offset[:-1]) + 1
        known = self._next[queue[new]]
        before[new] = np.where(known < 0, offset[new], known)
        bad = (offset != before) | (offset < 0)
        ends = np.append(new[1:], len(queue)) - 1
        if not bad.any():
            counts = (ends - new + 1).tolist()
            units = self._units(queue[new].tolist(), offset[new].tolist(), counts)
            bad = (units["physical_offset"] != position) | (units["size"] != size)
        if bad.any():
            window = np.repeat(np.arange(len(group)), [len(w.queue) for w in group])[order[bad]]
            return range(int(window.min()), int(window.max()) + 1)
        self._next[queue[new]] = offset[ends] + 1
        rows = (offset[new], offset[ends] + 1, position[new], position[ends], size[ends])
        totals = [
            way.reduceat(of, new)
            for way, of in ((np.add, size), (np.minimum, time), (np.maximum, time))
        ]
        queue_ranges = zip(
            queue[new].tolist(), *(row.tolist() for row in (*rows, *totals)), strict=True
        )
        facts = reduce(Facts.and_then, (window.facts for window in group))
        names_of = self._queues.names
        self._found.take(
            facts, ((names_of[number], QueueRange(*rest)) for number, *rest in queue_ranges)
        )
        return range(0)

    def _units(self, queues: list[int], firsts: list[int], counts: list[int]) -> Units:
        """Units on disk, one stretch behind the other; zeros where a file is missing or ends."""
        units = np.zeros(sum(counts), UNIT_DTYPE)
        at = 0
        for number, first, count in zip(queues, firsts, counts, strict=True):
            self._queues.stream(number).fill(first, units[at : at + count])
            at += count
        return units


def _without_damaged(batch: Batch) -> Iterator[Batch]:
    """What stands before, between and behind records with a damaged body, if these are few."""
    if batch.body_crc_ok is None or batch.body_crc_ok.all():
        yield batch
        return
    damaged = np.flatnonzero(~batch.body_crc_ok)
    done = 0
    for row in [*damaged.tolist()[:_FEW], len(batch)]:
        if row > done:
            yield batch.take(slice(done, row))
        done = row + 1


def is_in_order(batch: Batch, reach: int) -> bool:
    """The records go on at `reach` and are what a `VerifiedRun` tells of them, but for the queues."""
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
    return bool(columns.ints("store_host.port").all()) and not _may_be_torn(batch)


def _may_be_torn(batch: Batch) -> bool:
    """Some record's properties may have lost a page."""
    text = batch.columns.ragged("properties")
    some = text.length > 0
    last = text.buffer[(text.start + text.length - 1)[some]]
    return bool((last == 0).any() or (text.length > _LONG_PROPERTIES).any())


_PART_BYTES = 32 << 20
"""A smaller part is not worth a process."""


def prove_log(
    proof: Proof, jobs: int = 1, tell: Callable[[int], None] | None = None
) -> VerifiedLog:
    """What of the log is in order. Raises Unreadable.

    tell: called with the log position reached. jobs: processes that work at the same time.
    """

    def part(begin: int, end: int, tell: Callable[[int], None] | None = None) -> VerifiedLog:
        prover = proof.at(begin)
        for item in proof.log.scan(begin, end, reuse=True):
            if tell is not None and isinstance(item, Batch):
                tell(item.end)
            prover.see(item)
        return prover.done()

    return in_parts(proof.log, part, jobs, tell)


def in_parts(
    log: CommitLog,
    part: Callable[[int, int, Callable[[int], None] | None], VerifiedLog],
    jobs: int,
    tell: Callable[[int], None] | None = None,
) -> VerifiedLog:
    """Give each of `jobs` processes a part of the log; what they find together.

    part: looks at the log between two positions. Raises Unreadable.
    """
    bounds = _bounds(log, 1 if reading_rate() else jobs)  # several would read more
    with ExitStack() as stack:
        children = [
            stack.enter_context(Forked(partial(part, begin, end, None)))
            for begin, end in bounds[1:]
        ]
        sound = part(*bounds[0], _of_all(bounds, tell))
        for child, (begin, end) in zip(children, bounds[1:], strict=True):
            found = child.result() or part(begin, end, tell)
            sound = found.after(sound)
            if tell is not None:
                tell(sound.items[-1].end if sound.items else end)
    return sound


def _of_all(
    bounds: list[tuple[int, int]], tell: Callable[[int], None] | None
) -> Callable[[int], None] | None:
    """Tells how far all are, who got as far as the first one of them."""
    begin, end = bounds[0][0], bounds[-1][1]
    return tell and (lambda reached: tell(min(end, begin + (reached - begin) * len(bounds))))


def _bounds(log: CommitLog, jobs: int) -> list[tuple[int, int]]:
    """Parts of about the same size, each from the beginning of a record on: (begin, end)."""
    begins, files = [log.min_offset], log.files
    end = files[-1].start + used_bytes(log, files[-1]) if files else log.min_offset
    if any(file.compressed for file in files):  # in the middle of one nobody begins
        jobs = 1
    count = max(1, min(jobs, (end - begins[0]) // _PART_BYTES))
    for part in range(1, count):
        found = record_behind(log, begins[0] + (end - begins[0]) * part // count)
        if found is not None and found > begins[-1]:
            begins.append(found)
    return list(zip(begins, [*begins[1:], log.max_file_end], strict=True))
