"""The pass over the commit log: which parts a run reads, and how their items reach the checks.

A whole run reads from the first file to the end; in the store of a running broker to where the log ended when the run
began: what comes behind that is not damage, only later. What a run leaves out is noted with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import NotFound, UnreadableRange
from ..findings.catalogue import GROUPS
from ..log.batch import TailHistory, good_records, last_of
from ..log.commit_log import Batch, CommitLog, Extent, record_behind
from ..log.message import Mark
from ..log.window import NOTING, NOTING_HASHES
from ..settings.options import options_of
from .context import LogFacts, Records, RepeatedChecks, VerifyContext, covered_of
from .register import CHECKS, checks_of
from .start import GROUP, ProofOfLog, why_not

if TYPE_CHECKING:
    from ..audit.messages import Messages
    from ..broker.dispatch import Dispatched
    from ..broker.snapshot import QueueId


CUT_BYTES = 64 << 20
"""No batch has records on both sides of a multiple of this in a file, so parts of the log can begin there."""
SLICE_BYTES = 16 << 20
"""Size of the pieces of which a sample is drawn."""
_QUICK_FILES = 3
"""Number of files at the end of the log that a quick run reads, as older brokers do when they start."""


_IN_ONE_RUN = ("I-031", "I-051", "I-053", "I-128", "I-129", "I-133", "I-136")
"""Checks that need records which an earlier run may have read, and of which nothing is kept."""


class ReadRange(NamedTuple):
    """A range of the log to read; stop None: to the end."""

    start: int
    stop: int | None


def not_asked_for(groups: frozenset[str] | None) -> list[str]:
    """Return notes about the groups of checks that are not in `groups`; None: all are."""
    others = [] if groups is None else [group for group in GROUPS if group not in groups]
    return [f"{', '.join(others)}: --only"] if others else []


def parts_of(context: VerifyContext) -> list[ReadRange]:
    """Return the ranges to read, in log order; note in `context.unread` what is left out. Raise Unreadable."""
    files = context.store.log_files
    start, scope = files.start, context.scope
    context.unread += not_asked_for(scope.groups)
    if scope.topic is not None:
        context.unread.append("queues, index and configuration of other topics: --topic")
    stop = context.store.log_end.position if context.live else None
    if scope.start is not None and scope.start > start:
        start = scope.start
        context.unread.append(f"the log before {start}: an earlier run has read it")
        if scope.earlier is None:
            context.log.skipped = True
        else:
            context.unread.append(f"{', '.join(_IN_ONE_RUN)}: these checks need the whole log in one run")
    if scope.quick and len(files.files) > _QUICK_FILES and files.files[-_QUICK_FILES].start > start:
        start = files.files[-_QUICK_FILES].start
        _leave_out(context, f"the log before {start}: --quick reads the last {_QUICK_FILES} files")
    if scope.since_ms is not None and (later := _start_of_file(context, scope.since_ms)) > start:
        start = later
        _leave_out(context, f"the log before {start}: its messages are older than --since")
    if scope.quick:
        context.unread.append("CRCs of bodies, and queues against the log: --quick")
    if scope.sample_percent is not None and scope.sample_percent < 100:
        return _sample(context, start, stop, scope.sample_percent)
    return [ReadRange(start, stop)]


def items_of(context: VerifyContext, parts: list[ReadRange], *, crc: bool) -> Iterator[Batch | Extent]:
    """Yield the items of the parts, until the run has to end. Raise Unreadable."""
    log = context.store.log
    context.begin_reading()
    resumed_at = context.scope.start if context.scope.earlier is not None else None
    for part in parts:
        exact = part.start <= log.min_offset or part.start == resumed_at
        start = part.start if exact else _first_record(log, part)
        for item in scan(context, start, part.stop, crc=crc):
            if is_ended(context, item):
                return
            yield item


def scan(context: VerifyContext, start: int, stop: int | None, *, crc: bool) -> Iterator[Batch | Extent]:
    """Yield the log from a record on, in batches that are the same wherever reading begins."""
    log, recent = context.store.log, _tail_history(context.log)
    noting = NOTING_HASHES if asks_dispatch(context) else NOTING
    return log.scan(start, stop, crc=crc, recent=recent, cut_bytes=CUT_BYTES, reuse=True, noting=noting)


def is_ended(context: VerifyContext, item: Batch | Extent) -> bool:
    """Return whether the run has to end in front of this item, and note where and why."""
    reason = context.stopped()
    if reason:
        position = _resume_position(context, item)
        context.unread.append(f"the log from {position} on: {reason}")
        context.log.stopped_at = position
    return bool(reason)


def _tail_history(facts: LogFacts) -> TailHistory:
    """Return the last records in front of a run that continues: they show which records behind the end are dead."""
    recent = TailHistory()
    if facts.last:
        recent.remember(np.array(facts.last, np.int64), facts.last_timestamp)
    return recent


def _resume_position(context: VerifyContext, item: Batch | Extent) -> int:
    """Return where a run that ends at an item continues: it has to see again what ends the log."""
    if isinstance(item, Extent):
        return min(item.position, max(context.log.end, context.log.start))
    if item.mark > Mark.AFTER_DAMAGE:
        return context.log.end
    return int(item.position[0])


def _leave_out(context: VerifyContext, what: str) -> None:
    context.unread.append(what)
    context.log.skipped = True


def _start_of_file(context: VerifyContext, since_ms: int) -> int:
    """Return the start of the newest file whose first record is not younger than `since_ms`, else of the first file."""
    files, log = context.store.log_files, context.store.log
    for file in reversed(files.files):
        try:
            first = log.record(file.start + log.frame_of(file).payload)
        except NotFound:
            continue
        if 0 < int(first.columns.ints("store_timestamp")[0]) <= since_ms:
            return file.start
    return files.start


def _sample(context: VerifyContext, start: int, stop: int | None, percent: float) -> list[ReadRange]:
    """Return pieces drawn at random, others in each run; always with the last piece, which has the end of the log."""
    random = Random(time.time_ns())
    end = context.store.log_files.end if stop is None else stop
    cuts = list(range(start, end, SLICE_BYTES))
    wanted = max(1, round(len(cuts) * percent / 100))
    drawn = sorted(random.sample(range(len(cuts) - 1), wanted - 1)) if wanted > 1 else []
    parts: list[ReadRange] = []
    for number in [*drawn, len(cuts) - 1] if cuts else []:
        begin = cuts[number]
        behind = stop if number == len(cuts) - 1 else cuts[number + 1]
        if parts and parts[-1].stop == begin:
            parts[-1] = ReadRange(parts[-1].start, behind)
        else:
            parts.append(ReadRange(begin, behind))
    if wanted < len(cuts):
        text = f"{len(cuts) - wanted} of {len(cuts)} pieces of the log: --sample {percent:g}%"
        _leave_out(context, text)
    return parts


def _first_record(log: CommitLog, part: ReadRange) -> int:
    """Return the first record in a part that begins anywhere; without one the end of its file."""
    file = log.queue.file_at(part.start)
    if file is None or part.start == file.start:
        return part.start
    found = record_behind(log, part.start)
    return file.end if found is None else found


LOG_GROUPS = frozenset({"layout", "commit_log"})
"""Groups that check records without what these add to queues and index."""


def asks_dispatch(context: VerifyContext) -> bool:
    """Return whether some check needs what records add to queues and index."""
    return not context.groups <= LOG_GROUPS


def wants_crc(context: VerifyContext) -> bool:
    """Return whether bodies are compared with their checksums."""
    return "commit_log" in context.groups and not context.scope.quick


def wants_proof(context: VerifyContext) -> bool:
    """Return whether a start is predicted after the pass and can use what the pass finds in order.

    A run that continues has not seen the beginning of the log: then the prediction reads the log itself.
    """
    if context.scope.start is not None:
        return False
    asked = context.scope.proof or (GROUP in context.groups and not why_not(context))
    return asked and wants_crc(context) and not context.live


def read(
    context: VerifyContext,
    log_pass: LogPass,
    items: Iterable[Batch | Extent],
    progress: Callable[[int], None] | None = None,
) -> None:
    """Hand the items to the checks, until all messages have been handed out."""
    if log_pass.of_log_alone:
        log_pass.run(items, progress)
        return
    from ..audit.messages import scan_messages
    from ..broker.dispatch_record import Dispatching
    from ..queues.hybrid import selective_double_write
    from ..start.queue_stores import queue_begins, queue_stores

    layout, rules = context.store.layout, context.profile.dispatch
    lmq = options_of(layout).multi_dispatch
    how = Dispatching(
        rules.index_tags,
        multi_dispatch=rules.multi_dispatch and not (lmq.is_given and not lmq.value),
        delay_levels=options_of(layout).delay_waits(),
        lite_only=selective_double_write(layout),
        begins=queue_begins(layout),
    )
    how = queue_stores(layout, context.profile).making(how)
    scan_messages(context.store.log, [log_pass], how, progress=progress, items=items)


class LogPass:
    """Hands the items of the pass over the log to the checks of a run.

    of_log_alone: no check needs what records add to queues and index.
    """

    def __init__(self, context: VerifyContext) -> None:
        self.of_log_alone = not asks_dispatch(context)
        self._context = context
        self._covered = covered_of(context)
        self._proof = context.kept(ProofOfLog, partial(ProofOfLog.fresh, context)) if wants_proof(context) else None
        watch = context.scope.watch
        self._watcher = None if watch is None else context.kept(watch, partial(watch.fresh, context))
        moments = (CHECKS.records, CHECKS.stale, CHECKS.messages, CHECKS.extents)
        self._records, self._stale, self._messages, self._extents = (
            RepeatedChecks(context, checks_of(moment, context.groups)) for moment in moments
        )
        self._settled = checks_of(CHECKS.settled, context.groups)

    def run(self, items: Iterable[Batch | Extent], progress: Callable[[int], None] | None) -> None:
        """Take all items, without what records add to queues and index."""
        for batch in good_records(items, [self], progress):
            self.records(batch, None)

    def records(self, batch: Batch, dispatched: Dispatched | None) -> None:
        records, log = Records(batch, dispatched), self._context.log
        self._covered.add_records(batch)
        self._records(records)
        log.end = batch.end
        log.records += len(batch)
        log.bytes += batch.end - int(batch.position[0])
        times = records.ints("store_timestamp")
        log.newest = max(log.newest, int(times.max()))
        log.last = last_of(np.array(log.last, np.int64), batch.position).tolist()
        log.last_timestamp = int(times[-1])

        self._prove(batch, dispatched)
        if self._watcher is not None:
            self._watcher.records(records)

    def messages(self, messages: Messages) -> None:
        self._messages(messages)
        self._note_offsets(messages.queue, int(messages.offset[0]), int(messages.offset[-1]) + 1)

    def has_seen(self, messages: int) -> bool:
        """Return whether so many messages have their units, and all checks accept that without each message."""
        found = None if self._proof is None else self._proof.settled(messages)
        try:
            if found is None or not all(check(self._context, each) for check in self._settled for each in found):
                return False
        except UnreadableRange:  # of a queue: the checks of its messages skip these bytes
            return False
        for group in found:
            for queue, laid in group.items():
                self._note_offsets(queue, laid.messages.first, laid.messages.next)
        return True

    def _note_offsets(self, queue: QueueId, first: int, behind: int) -> None:
        log = self._context.log
        log.first_offset.setdefault(queue, first)
        log.next_offset[queue] = max(log.next_offset.get(queue, 0), behind)

    def extent(self, extent: Extent) -> None:
        self._context.log.bytes += extent.size
        if extent.unread:
            self._context.gone.add_range(extent.position, extent.end)
        self._covered.add(extent.position, extent.end)
        self._extents(extent)
        self._prove(extent)
        if self._watcher is not None:
            self._watcher.extent(extent)

    def stale(self, batch: Batch) -> None:
        self._context.log.bytes += batch.end - int(batch.position[0])
        self._covered.add(int(batch.position[0]), batch.end)
        records, log = Records(batch), self._context.log
        if batch.mark is Mark.DEAD_TAIL:
            log.newest_dead = max(log.newest_dead, int(records.ints("store_timestamp").max()))
        self._stale(records)
        self._prove(batch)
        if self._watcher is not None:
            self._watcher.stale(records)

    def _prove(self, item: Batch | Extent, dispatched: Dispatched | None = None) -> None:
        if self._proof is not None:
            self._proof.see(item, dispatched)
