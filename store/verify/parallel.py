"""Parts of the log that other processes check while this process reads from the start.

Each process checks its part as if it were alone, with queues, index and all. If a part is in order, this process merges
the state at its end; otherwise it reads the part itself, with the state of all that is in front. So findings do not
depend on the number of processes.
"""

from __future__ import annotations

import signal
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

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
from .log_pass import LogPass, ReadRange, asks_dispatch, is_ended, read, scan, wants_crc
from .queue_state import queues_of

GROUPS_BESIDE = frozenset({"commit_log"})
"""Groups of checks that need nothing but the log, so that they may have a run of their own."""
_OTHER_SHARE = 0.08
"""Share of the work that is not on the log; the process that reads from the start does it."""
_POLL_S = 0.1
_BREAKS_MAX = 4
"""Breaks in a part after which the rest of it is left to the run in front."""


class _OutOfOrder(Exception):
    """Only a run with the state in front can judge what begins here. at_all: nor the rest of the part."""

    def __init__(self, position: int, *, at_all: bool = False) -> None:
        super().__init__(position)
        self.position = position
        self.at_all = at_all


class PartResult(NamedTuple):
    """State at the end of a part in which all is in order. begin: of its first record. end: behind its last item.

    last: nothing has to be read behind it. states: by key of `VerifyContext.kept`, the class of the state, and what its
    `export` returned.
    """

    begin: int
    end: int
    last: bool
    log: LogFacts
    states: dict[Any, tuple[type[Mergeable], Any]]


class _PartPass(LogPass):
    """The pass over a part; it ends at the first thing that is wrong."""

    def records(self, batch: Batch, dispatched: Dispatched | None) -> None:
        begin = int(batch.position[0])
        if batch.mark is not Mark.NONE:
            raise _OutOfOrder(begin, at_all=True)
        super().records(batch, dispatched)
        self._judge(begin)

    def messages(self, messages: Messages) -> None:
        super().messages(messages)
        queue = messages.queue  # if it has no files at all, its missing units need no state in front
        if self._context.log.missing.get(queue) and queue in queues_of(self._context).paths:
            raise _OutOfOrder(int(messages.position[0]))
        self._judge(int(messages.position[0]))

    def extent(self, extent: Extent) -> None:
        is_blank = extent.kind is ExtentKind.BLANK and not extent.reason
        if not is_blank and extent.kind is not ExtentKind.ZEROS:
            raise _OutOfOrder(extent.position, at_all=True)
        super().extent(extent)
        self._judge(extent.position)

    def stale(self, batch: Batch) -> None:
        raise _OutOfOrder(int(batch.position[0]), at_all=True)

    def _judge(self, position: int) -> None:
        if self._context.findings:
            raise _OutOfOrder(position)


class _Work(NamedTuple):
    """Work for another process: the log from `begin` to `stop`, for the run of `context`.

    last: nothing has to be read behind `stop`.
    """

    context: VerifyContext
    begin: int
    stop: int | None
    last: bool

    def run(self) -> list[PartResult]:
        """Return the results of `look` in a process that leaves Ctrl-C to the process in front."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return self.look()

    def look(self) -> list[PartResult]:
        """Return results for what is in order, in log order. Raise Unreadable.

        Bytes that cannot be read are left to the run in front.
        """
        found = list[PartResult]()
        try:
            with noting(around=False):
                self._look(found)
        except UnreadableRange:
            return found
        return found

    def _look(self, found: list[PartResult]) -> None:
        """Check the part in pieces, around what is wrong; append to `found`."""
        log = self.context.store.log
        cuts, begin = _cuts(log), self.begin
        for _ in range(_BREAKS_MAX):
            try:
                found += self._result_of(begin, self.stop, last=self.last)
                break
            except _OutOfOrder as wrong:
                number = bisect_right(cuts, wrong.position)
                found += self._up_to(begin, _record_behind_cut(log, cuts, number - 1))
                behind = None if wrong.at_all else _record_behind_cut(log, cuts, number)
            if behind is None or (self.stop is not None and behind >= self.stop):
                break
            begin = behind

    def _up_to(self, begin: int, stop: int | None) -> list[PartResult]:
        """Return the result for what is in front of the cut before something that is wrong."""
        try:
            return [] if stop is None or stop <= begin else self._result_of(begin, stop, last=False)
        except _OutOfOrder:
            return []

    def _result_of(self, begin: int, stop: int | None, *, last: bool) -> list[PartResult]:
        """Check a part; return its result, or none if the states cannot be exported. Raise _OutOfOrder, Unreadable."""
        parent, states = self.context, dict[Any, tuple[type[Mergeable], Any]]()
        scope = parent.scope._replace(max_duration_s=None)
        with StoreReader(parent.store.layout) as store:
            context = VerifyContext(store, scope, parent.now_ms, changing=parent.live, behind=begin)
            crc = wants_crc(context)
            read(context, _PartPass(context), scan(context, begin, stop, crc=crc))
            for key, state in context.states().items():
                if isinstance(state, Mergeable):
                    states[key] = type(state), state.export()
                elif key not in CACHES:
                    return []
            end = chain_of(context).end
        if end is None or any(exported is None for _, exported in states.values()):
            return []
        return [PartResult(begin, end, last, context.log, states)]


class Beside(ExitStack):
    """The other processes, as a context manager that ends them.

    context: the run that reads from the start, over the only one of `parts`. looked_at: results that other runs
    returned before; then this one starts no process.
    """

    def __init__(
        self, context: VerifyContext, parts: list[ReadRange], jobs: int, looked_at: Sequence[PartResult] = ()
    ) -> None:
        super().__init__()
        self._context = context
        self._crc = wants_crc(context)
        self._part = parts[0]
        self._results = {result.begin: result for result in looked_at}
        self._begins = sorted(self._results) or _begins(context, parts, jobs)
        self._met: PartResult | None = None
        self._children: list[tuple[int, Forked[list[PartResult]]]] = []
        if not looked_at:
            if self._begins and asks_dispatch(context):
                queue_begins(context.store.layout)  # read TTLs once, not in each child
            for work in _works(context, self._part, self._begins):
                self._children.append((work.begin, self.enter_context(Forked(work.run))))

    def __bool__(self) -> bool:
        return bool(self._begins)

    def run(self, log_pass: LogPass, progress: Callable[[int], None] | None) -> None:
        """Read what no other process has found in order, and merge the other parts."""
        context = self._context
        context.begin_reading()
        tell = progress and partial(self._report_progress, progress)
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

    def _report_progress(self, progress: Callable[[int], None], reached: int) -> None:
        """Report how far all processes are; up to the first part of the others they count as far as this one."""
        start, first = self._part.start, self._begins[0]
        if reached < first:
            end = self._part.stop or self._context.store.log_files.end
            reached = start + (reached - start) * (end - start) // (first - start)
        progress(reached)

    def _stretch(self, at: int) -> Iterator[Batch | Extent]:
        """Yield items from a log position on, up to a part that can be merged."""
        context = self._context
        for item in scan(context, at, self._part.stop, crc=self._crc):
            if isinstance(item, Batch) and item.mark is Mark.NONE:
                self._met = self._of_others(int(item.position[0]))
            if self._met is not None or is_ended(context, item):
                return
            yield item

    def _of_others(self, position: int) -> PartResult | None:
        """Return the part that begins at a log position, if it can be merged."""
        context = self._context
        if chain_of(context).lost:
            return None  # no part can be merged behind damage
        while self._children and self._children[0][0] <= position:
            while not self._children[0][1].ready(_POLL_S):
                if context.stopped():
                    return None
            _, child = self._children.pop(0)
            self._results |= {result.begin: result for result in child.result() or []}
        result = self._results.pop(position, None)
        if result is None or chain_of(context).end != position:
            return None
        return result if all(own.can_merge(state) for own, state in self._pairs(result)) else None

    def _pairs(self, result: PartResult) -> Iterator[tuple[Mergeable, Any]]:
        """Yield each state of this run with the exported state of the part."""
        for key, (kind, state) in result.states.items():
            yield self._context.kept(key, partial(kind.fresh, self._context)), state

    def _merge(self, result: PartResult) -> None:
        """Continue as if this run had read the part."""
        for own, state in self._pairs(result):
            own.merge(self._context, state)
        self._context.log.merge(result.log)


def look(context: VerifyContext, parts: list[ReadRange], number: int, jobs: int) -> list[PartResult]:
    """Return the results of one of `jobs` runs, `number` counted from 0, for a later run that merges all of them.

    Empty if there is no such part. Raise Unreadable.
    """
    begins = _begins(context, parts, jobs + 1, log_pass.CUT_BYTES)
    works = _works(context, parts[0], begins) if begins else []
    return works[number].look() if number < len(works) else []


def has_parts(store: StoreReader) -> bool:
    """Return whether runs can check parts of the log separately. Raise Unreadable."""
    layout = store.layout
    compressed = any(file.compressed for file in store.log_files.files)
    return not (layout.dledger or layout.rocksdb_queues or compressed)


def _works(context: VerifyContext, part: ReadRange, begins: list[int]) -> list[_Work]:
    stops = [*begins[1:], part.stop]
    return [
        _Work(context, begin, stop, number == len(begins))
        for number, (begin, stop) in enumerate(zip(begins, stops, strict=False), 1)
    ]


def _begins(context: VerifyContext, parts: list[ReadRange], jobs: int, own_bytes: int | None = None) -> list[int]:
    """Return where the parts of other processes begin: each at the first record behind a cut.

    own_bytes: size of this process's part, None for a size at which all processes end together.
    """
    store, scope = context.store, context.scope
    files = store.log_files.files
    odd = not has_parts(store) or store.rate_bytes is not None  # several processes would read more
    whole = len(parts) == 1 and scope.start is None and not scope.quick
    whole = whole and scope.sample_percent is None  # a sample may begin inside a record
    if jobs < 2 or odd or not whole or not files or "commit_log" not in context.groups:
        return []
    start, stop = parts[0]
    end = files[-1].start + used_bytes(store.log, files[-1])
    end = end if stop is None else min(stop, end)
    jobs = max(1, min(jobs, (end - start) // log_pass.CUT_BYTES))
    others = _OTHER_SHARE if asks_dispatch(context) else 0.0
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
    cut = log_pass.CUT_BYTES
    return [at for f in log.files for at in range(f.start + cut, f.end, cut)]


def _record_behind_cut(log: CommitLog, cuts: list[int], number: int) -> int | None:
    """Return the first record behind a cut, in its file; None if there is none."""
    return record_behind(log, cuts[number]) if 0 <= number < len(cuts) else None
