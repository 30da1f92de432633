"""Parts of the log that other processes look at, while this one comes to them from the start.

Each process has a part for itself, and looks at it as if it were alone: with queues, index and all.
What it leaves is taken on where nothing is wrong in the part; what is wrong is looked at once more by
the run that has seen everything in front of it. So findings do not depend on the number of processes.
"""

from __future__ import annotations

import signal
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, Self

from ..audit.messages import Messages
from ..broker.dispatch import Dispatched
from ..disk.byte_reader import noting
from ..disk.workers import Forked
from ..errors import UnreadableRange
from ..log.commit_log import Batch, CommitLog, Extent, ExtentKind, record_behind, used_bytes
from ..log.message import Mark
from ..search.store import StoreReader
from ..start.queue_stores import queue_begins
from . import log_pass
from .context import CACHES, LogFacts, Mergeable, VerifyContext
from .log_chain import chain_of
from .log_pass import LOG_GROUPS, LogPass, ReadRange, is_ended, read, scan, wants_crc
from .queue_state import queues_of

GROUPS_BESIDE = frozenset({"commit_log"})
"""Groups of checks that need nothing but the log: they may have a run of their own."""
_OTHER_SHARE = 0.08
"""So much of the work is none on the log: the process that comes from the start does it."""
_POLL_S = 0.1
_BREAKS_MAX = 4
"""With more that is wrong in it the rest of a part is left to the run in front."""


class _OutOfOrder(Exception):
    """What begins at a log position has to be looked at by somebody who knows what is before it."""

    def __init__(self, position: int, *, at_all: bool = False) -> None:
        super().__init__(position)
        self.position = position
        self.at_all = at_all


class PartResult(NamedTuple):
    """What a part leaves in which all is in order. begin: of its first record. end: behind its last item.

    last: nothing is asked for behind it. states: by key of `VerifyContext.kept`, whose state it is, and what
    its `export` gave.
    """

    begin: int
    end: int
    last: bool
    log: LogFacts
    states: dict[Any, tuple[type[Mergeable], Any]]


class _PartPass(LogPass):
    """The pass over a part: it ends at the first thing that is wrong."""

    def records(self, batch: Batch, dispatched: Dispatched | None) -> None:
        begin = int(batch.position[0])
        if batch.mark is not Mark.NONE:
            raise _OutOfOrder(begin, at_all=True)
        super().records(batch, dispatched)
        self._judge(begin)

    def messages(self, messages: Messages) -> None:
        super().messages(messages)
        queue = messages.queue  # where it has no files at all, what is missing needs nothing before it
        if self._context.log.missing.get(queue) and queue in queues_of(self._context).paths:
            raise _OutOfOrder(int(messages.position[0]))
        self._judge(int(messages.position[0]))

    def extent(self, extent: Extent) -> None:
        usual = extent.kind in (ExtentKind.BLANK, ExtentKind.ZEROS) and not (
            extent.kind is ExtentKind.BLANK and extent.reason
        )
        if not usual:
            raise _OutOfOrder(extent.position, at_all=True)
        super().extent(extent)
        self._judge(extent.position)

    def stale(self, batch: Batch) -> None:
        raise _OutOfOrder(int(batch.position[0]), at_all=True)

    def _judge(self, position: int) -> None:
        if self._context.findings:
            raise _OutOfOrder(position)


class _Work(NamedTuple):
    """What is asked of another process: the log from `begin` to `stop`, for the run of `context`.

    last: nothing is asked for behind that.
    """

    context: VerifyContext
    groups: frozenset[str]
    begin: int
    stop: int | None
    last: bool

    def run(self) -> list[PartResult]:
        """What there is in order, in the order of the log. Ctrl-C is for the process in front."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return self.look()

    def look(self) -> list[PartResult]:
        """The same in a process that has nobody in front. Raises Unreadable.

        A part with bytes that cannot be read is left to the run in front.
        """
        found = list[PartResult]()
        try:
            with noting(around=False):
                self._look(found)
        except UnreadableRange:
            return found
        return found

    def _look(self, found: list[PartResult]) -> None:
        """Look at the part in pieces, around what is wrong; adds to `found`."""
        log = self.context.store.log
        cuts, begin = _cuts(log), self.begin
        for _ in range(_BREAKS_MAX):
            try:
                found += self._left(begin, self.stop, last=self.last)
                break
            except _OutOfOrder as wrong:
                number = bisect_right(cuts, wrong.position)
                found += self._up_to(begin, _record_behind_cut(log, cuts, number - 1))
                behind = None if wrong.at_all else _record_behind_cut(log, cuts, number)
            if behind is None or (self.stop is not None and behind >= self.stop):
                break
            begin = behind

    def _up_to(self, begin: int, stop: int | None) -> list[PartResult]:
        """What is in front of the cut before something that is wrong."""
        try:
            return [] if stop is None or stop <= begin else self._left(begin, stop, last=False)
        except _OutOfOrder:
            return []

    def _left(self, begin: int, stop: int | None, *, last: bool) -> list[PartResult]:
        """Look at a part. Raises _Unsound, Unreadable."""
        told, states = self.context, dict[Any, tuple[type[Mergeable], Any]]()
        scope = told.scope._replace(max_duration_s=None)
        with StoreReader(told.store.layout) as store:
            context = VerifyContext(store, scope, told.now_ms, changing=told.live, behind=begin)
            crc = wants_crc(context, self.groups)
            read(context, _PartPass(context, self.groups), scan(context, begin, stop, crc=crc))
            for key, state in context.states().items():
                if isinstance(state, Mergeable):
                    states[key] = type(state), state.export()
                elif key not in CACHES:
                    return []
            end = chain_of(context).end
        if end is None or any(left is None for _, left in states.values()):
            return []
        return [PartResult(begin, end, last, context.log, states)]


class Beside:
    """The processes, as a context manager: behind the block they are gone.

    context: the run that comes from the start, over the only one of `parts`. looked_at: what others
    have left before this run began; then it starts none.
    """

    def __init__(
        self,
        context: VerifyContext,
        groups: frozenset[str],
        parts: list[ReadRange],
        jobs: int,
        looked_at: Sequence[PartResult] = (),
    ) -> None:
        self._context = context
        self._crc = wants_crc(context, groups)
        self._part = parts[0]
        self._left = {left.begin: left for left in looked_at}
        self._begins = sorted(self._left) or _begins(context, groups, parts, jobs)
        self._met: PartResult | None = None
        self._stack = ExitStack()
        self._children: list[tuple[int, Forked[list[PartResult]]]] = []
        if not looked_at:
            if self._begins and not groups <= LOG_GROUPS:
                queue_begins(context.store.layout)  # TTLs, which no child reads again
            for work in _works(context, groups, self._part, self._begins):
                forked = self._stack.enter_context(Forked(work.run))
                self._children.append((work.begin, forked))

    def __bool__(self) -> bool:
        """There are other processes."""
        return bool(self._begins)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, log_pass: LogPass, progress: Callable[[int], None] | None) -> None:
        """Read what no other process has found in order, and take on the rest."""
        context = self._context
        context.begin_reading()
        tell = progress and partial(self._tell, progress)
        at: int | None = self._part.start
        while at is not None:
            self._met = None
            read(context, log_pass, self._stretch(at), tell)
            at = None
            if self._met is not None:
                self._merge(self._met)
                at = None if self._met.last else self._met.end
                if tell:
                    tell(context.log.end)

    def _tell(self, progress: Callable[[int], None], reached: int) -> None:
        """How far all are: up to the first of the others they are as far as this one."""
        start, first = self._part.start, self._begins[0]
        if reached < first:
            end = self._part.stop or self._context.store.log_files.end
            reached = start + (reached - start) * (end - start) // (first - start)
        progress(reached)

    def _stretch(self, at: int) -> Iterator[Batch | Extent]:
        """Items from a log position on, up to where a part is taken on."""
        context = self._context
        for item in scan(context, at, self._part.stop, crc=self._crc):
            if isinstance(item, Batch) and item.mark is Mark.NONE:
                self._met = self._of_others(int(item.position[0]))
            if self._met is not None or is_ended(context, item):
                return
            yield item

    def _of_others(self, position: int) -> PartResult | None:
        """The part that begins at a log position, if it is to be taken on."""
        context = self._context
        if chain_of(context).lost:
            return None  # no part fits behind damage
        while self._children and self._children[0][0] <= position:
            while not self._children[0][1].ready(_POLL_S):
                if context.stopped():
                    return None
            _, child = self._children.pop(0)
            self._left |= {left.begin: left for left in child.result() or []}
        left = self._left.pop(position, None)
        if left is None or chain_of(context).end != position:
            return None
        return left if all(own.can_merge(state) for own, state in self._pairs(left)) else None

    def _pairs(self, left: PartResult) -> Iterator[tuple[Mergeable, Any]]:
        """The states of this run, and what the part leaves of the same."""
        for key, (kind, state) in left.states.items():
            yield self._context.kept(key, partial(kind.fresh, self._context)), state

    def _merge(self, left: PartResult) -> None:
        """Go on as if this run had read the part."""
        for own, state in self._pairs(left):
            own.merge(self._context, state)
        self._context.log.merge(left.log)


def look(
    context: VerifyContext, groups: frozenset[str], parts: list[ReadRange], number: int, jobs: int
) -> list[PartResult]:
    """What one of `jobs` runs, counted from 0, leaves of its part for another one behind them all.

    Nothing where there is no such part. Raises Unreadable.
    """
    begins = _begins(context, groups, parts, jobs + 1, log_pass.CUT_BYTES)
    works = _works(context, groups, parts[0], begins) if begins else []
    return works[number].look() if number < len(works) else []


def has_parts(store: StoreReader) -> bool:
    """Whether runs can look at parts of its log, each for itself. Raises Unreadable."""
    layout = store.layout
    compressed = any(file.compressed for file in store.log_files.files)
    return not (layout.dledger or layout.rocksdb_queues or compressed)


def _works(context: VerifyContext, groups: frozenset[str], part: ReadRange, begins: list[int]) -> list[_Work]:
    stops = [*begins[1:], part.stop]
    return [
        _Work(context, groups, begin, stop, number == len(begins))
        for number, (begin, stop) in enumerate(zip(begins, stops, strict=False), 1)
    ]


def _begins(
    context: VerifyContext, groups: frozenset[str], parts: list[ReadRange], jobs: int, own_bytes: int | None = None
) -> list[int]:
    """Where the parts of other processes begin: each at the first record behind a cut.

    own_bytes: of this one, None for what makes all of them end together.
    """
    store, scope = context.store, context.scope
    files = store.log_files.files
    odd = not has_parts(store) or store.rate_bytes is not None  # several would read more
    whole = len(parts) == 1 and scope.start is None and not scope.quick
    whole = whole and scope.sample_percent is None  # a sample may begin inside a record
    if jobs < 2 or odd or not whole or not files or "commit_log" not in groups:
        return []
    start, stop = parts[0]
    end = files[-1].start + used_bytes(store.log, files[-1])
    end = end if stop is None else min(stop, end)
    jobs = max(1, min(jobs, (end - start) // log_pass.CUT_BYTES))
    others = 0.0 if groups <= LOG_GROUPS else _OTHER_SHARE
    own = max((1 - others * (jobs - 1)) / jobs, 1 / (4 * jobs))
    own = own if own_bytes is None else min(1.0, own_bytes / max(1, end - start))
    cuts, found = _cuts(store.log), list[int]()
    for number in range(jobs - 1):
        share = own + (1 - own) * number / (jobs - 1)
        wanted = start + int((end - start) * share) + log_pass.CUT_BYTES // 2
        begin = _record_behind_cut(store.log, cuts, bisect_right(cuts, wanted) - 1)
        if begin is not None and max([start, *found[-1:]]) < begin < end:
            found.append(begin)
    return found


def _cuts(log: CommitLog) -> list[int]:
    """Log positions of all cuts that are inside of files."""
    cut = log_pass.CUT_BYTES
    return [at for f in log.files for at in range(f.start + cut, f.end, cut)]


def _record_behind_cut(log: CommitLog, cuts: list[int], number: int) -> int | None:
    """The first record behind a cut, in its file; None where there is none."""
    return record_behind(log, cuts[number]) if 0 <= number < len(cuts) else None
