"""The log as it was: every record at its own position, holes closed so that brokers load it.

Holes are closed as `recover` closes them (`store/plan`): a filler where nothing is known, a tombstone for each queue
offset that is lost, a BLANK to the end of a file. Queues, index and checkpoint are then made from the log by the plan
that `recover` makes.

Lost messages are the queue offsets between those that exist. A consumer that reads a queue offset by offset must find
something at each. A message between two others of a queue lay between them in the log, too: the hole there takes its
tombstone.
"""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from math import gcd
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ...formats.blank import BLANK
from ...formats.commit_log import DLEDGER
from ...formats.derive.ragged import Ints
from ...formats.message import SMALLEST, SysFlag
from ...formats.message_properties import ends_with_crc
from ...formats.timer_check import FILE as TIMER_CHECK
from ...formats.timer_log import UNIT_BYTES
from ...formats.topics import FILE as TOPICS_FILE
from ..audit.messages import LogObserver, Messages, scan_messages
from ..broker.dispatch import Dispatched
from ..broker.dispatch_record import Dispatching
from ..broker.profiles import LMQ_OPTIONS, profile_of, writer_profile
from ..broker.snapshot import QueueId, Snapshot
from ..broker.system_topics import LMQ_PREFIX
from ..broker.topics import Topics, now_ms
from ..counted import counted
from ..damage.scenario import apply_edit, copy_if, copy_store
from ..disk.broker_conf import BrokerConfig
from ..disk.checkpoint import read_timer_check
from ..disk.file_queue import MappedFileQueue, file_name, in_files
from ..disk.files import Files, OpenFile, confine, remove_tree
from ..disk.layout import COMMIT_LOG, COMPACTION, Layout, queue_directories, queue_directory, refuse_compressed
from ..disk.lock import stream_of
from ..errors import InvalidInput, NoSpace, Refused, Unreadable, Unsupported
from ..findings.next_commands import Given, command
from ..index.read import sizes_of
from ..log.batch import Batch
from ..log.commit_log import CommitLog
from ..plan.close import OF_RECORDS
from ..plan.fill import Fill, Piece, encoded, fills, padded
from ..plan.gaps import Forms, Gap
from ..plan.lost_messages import LostUnits
from ..plan.observer import Policy, RecoveryOptions
from ..plan.plan import Plan
from ..queues.batches import batch_summaries
from ..queues.read import ConsumeQueues, QueueSummary
from ..recover.recovery import analyze
from ..session.apply import apply, put_barrier, remove_barriers
from ..session.journal import Journal
from ..session.undo import purge
from ..settings.generation import generation_of
from ..settings.read import databases
from ..timer.read import TimerEntries, TimerUnits, timer_log
from ..timer.start import QUEUE, new_wheel
from .runs import Layer, SalvageRun, Sources


class MissingRange(NamedTuple):
    """`offsets` queue offsets from `first` on, somewhere in log positions [after, before)."""

    before: int
    after: int
    queue: QueueId
    first: int
    offsets: int


class Neighbour(NamedTuple):
    """The record before a hole."""

    position: int
    store_timestamp: int


@dataclass
class MissingOffsets(LogObserver):
    """Watches a scan of the log (an observer of `scan_messages`).

    hole_begins: sorted, int64[n]. log_start: where the first file begins. neighbours: begin of a hole → record before
    it. highest_queue: topic → highest queue id. crc_items: records end with a CRC. first_timestamp: when the first
    record was stored, 0 without records. lmq: records have a number in an LMQ, which only a broker with LMQs gives.
    """

    hole_begins: Ints
    log_start: int = 0
    missing: list[MissingRange] = field(default_factory=list)
    neighbours: dict[int, Neighbour] = field(default_factory=dict)
    highest_queue: dict[str, int] = field(default_factory=dict)
    crc_items: bool = False
    first_timestamp: int = 0
    lmq: bool = False
    _last: dict[QueueId, tuple[int, int]] = field(default_factory=dict)
    _batches: set[bytes] = field(default_factory=set)

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        """Note records before a hole, and topics with batches, whose offsets go in steps."""
        columns = batch.columns
        self.first_timestamp = self.first_timestamp or int(columns.ints("store_timestamp")[0])
        ends = batch.position + columns.ints("total_size")
        for row in np.flatnonzero(np.isin(ends, self.hole_begins)).tolist():
            time = int(columns.ints("store_timestamp")[row])
            self.neighbours[int(ends[row])] = Neighbour(int(batch.position[row]), time)
        rows = np.flatnonzero(columns.ints("sys_flag") & SysFlag.INNER_BATCH)
        self._batches.update(columns.ragged("topic")[rows].tolist())
        self.crc_items |= ends_with_crc(columns.ragged("properties")[len(batch) - 1])

    def messages(self, messages: Messages) -> None:
        """Note queue offsets that are missing between the messages of one queue."""
        queue = messages.queue
        self.highest_queue[queue.topic] = max(queue.queue_id, self.highest_queue.get(queue.topic, 0))
        if queue.topic.startswith(LMQ_PREFIX):
            self.lmq = True
            return
        # a header has no checksum: an offset above one that follows is wrong
        later = np.minimum.accumulate(messages.offset[::-1])[::-1]
        messages = messages.take(messages.offset <= later)
        offset, position = messages.offset, messages.position
        end = position + messages.size
        # every queue of a log that has not expired began with offset 0
        begin = (int(offset[0]) - 1, int(position[0])) if self.log_start else (-1, 0)
        known = self._last.get(queue, begin)
        before = np.append(known[0], offset[:-1])
        after = np.append(known[1], end[:-1])
        jump = offset - before - 1
        # an offset is also wrong if it leaves out more messages than there is room for
        for row in np.flatnonzero((jump > 0) & (jump <= (position - after) // SMALLEST)).tolist():
            first, count = int(before[row]) + 1, int(jump[row])
            self.missing.append(MissingRange(int(position[row]), int(after[row]), queue, first, count))
        self._last[queue] = (int(offset[-1]), int(end[-1]))

    def certain(self) -> list[MissingRange]:
        """Return the missing offsets of all topics without batches."""
        names = self.batch_topics
        return [each for each in self.missing if each.queue.topic not in names]

    def end(self, queue: QueueId) -> int:
        """Return the queue offset behind the last message of a queue, 0 without one."""
        return self._last.get(queue, (-1, 0))[0] + 1

    @property
    def batch_topics(self) -> set[str]:
        """The topics with batches stored as one record: their queues are batch queues."""
        return {name.decode("utf-8", "surrogateescape") for name in self._batches}


def placed(gaps: Sequence[Gap], missing: list[MissingRange], forms: Forms) -> LostUnits:
    """Place each missing offset in the gaps, as far as there is room, in log order.

    What has to be placed first comes first. In a queue, positions rise with the offsets.
    """
    waiting = sorted(missing, key=lambda each: each.after, reverse=True)
    open_: list[MissingRange] = []
    queues: dict[QueueId, int] = {}
    rows: list[tuple[int, int, int, int]] = []
    for gap in gaps:
        while waiting and waiting[-1].after <= gap.begin:
            heapq.heappush(open_, waiting.pop())
        at = gap.begin
        end = gap.end - (BLANK.sizeof() if gap.to_file_end else 0)
        while open_:
            if open_[0].before < gap.end:
                heapq.heappop(open_)  # its last hole is behind us
                continue
            each = open_[0]
            size = forms.whole(each.queue.topic)
            count = min(each.offsets, (end - at) // size)
            if count <= 0:
                break
            number = queues.setdefault(each.queue, len(queues))
            rows += [(at + i * size, size, number, each.first + i) for i in range(count)]
            at += count * size
            heapq.heappop(open_)
            if count < each.offsets:
                rest = each._replace(first=each.first + count, offsets=each.offsets - count)
                heapq.heappush(open_, rest)
                break
    position, sizes, queue, offset = np.array(rows, np.int64).reshape(-1, 4).T
    tags = np.zeros(len(rows), np.int64)
    return LostUnits(list(queues), position, sizes, queue, offset, tags)


_CHUNK_BYTES = 4 << 20
_INDEX_OPTION = "messageIndexEnable"
BEYOND, MORE = "no repair can fix what is wrong", "more repairs are needed"
_SHOWN_BY = {BEYOND: "verify", MORE: "recover"}


def left_at(root: Path, left: str, config: BrokerConfig, version: str | None) -> str:
    """Return what is left to do with the new store at `root`, with the command that shows more. version: that was asked
    for.
    """
    if left not in _SHOWN_BY:
        return left
    return f"{left}; see `{command(_SHOWN_BY[left], root, given=Given(config.words, version or ''))}`"


class Restored(NamedTuple):
    """What was made: files of `file_bytes`, numbers of tombstones and fillers.

    unplaced: number of missing queue offsets without a tombstone. left: why queues and index were not made, or what is
    left to do, "" for nothing. version: of the brokers that the store was made for. changed: how records differ from
    those that were found, by position.
    """

    files: int
    file_bytes: int
    tombstones: int = 0
    fillers: int = 0
    unplaced: int = 0
    left: str = ""
    version: str = ""
    changed: Mapping[int, str] = MappingProxyType({})


def check_layer(layer: Layer, file_bytes: int) -> None:
    """Raise InvalidInput if a run would cross the end of a file of that size.

    Raise Refused for records of a DLedger log: what stands between them is no hole.
    """
    between = [end - begin for begin, end in gaps_of(layer, file_bytes)]
    if between and between.count(DLEDGER.payload) * 2 > len(between):
        hint = "take --layout compact"
        raise Refused("records in entries of a DLedger log", offset=layer.runs[0].position, hint=hint)
    for run in layer.runs:
        if not _fits(run, file_bytes):
            raise InvalidInput(
                f"log files of {counted(file_bytes, 'byte')} would cut a record in two",
                offset=run.position // file_bytes * file_bytes + file_bytes,
                hint="name the size that the broker had with --set mappedFileSizeCommitLog=BYTES",
            )


def write_log(
    layer: Layer,
    sources: Sources,
    directory: Path,
    file_bytes: int,
    files: Files,
    told: Callable[[int], None] = lambda _: None,
) -> int:
    """Write the runs of a layer to log files in a new directory, holes as holes. A start barrier stays there until
    `complete` has done the rest.

    Returns the number of files. Raises InvalidInput and Refused as `check_layer`, NoSpace, Unreadable.
    """
    check_layer(layer, file_bytes)
    files.make_directory(directory)
    put_barrier(directory, file_bytes, files)
    with _log_files(directory, file_bytes, files) as file_at:
        for run in layer.runs:
            file, start = file_at(run.position)
            for at in range(0, run.length, _CHUNK_BYTES):
                size = min(_CHUNK_BYTES, run.length - at)
                file.pwrite(sources[run.source].bytes_at(run.at + at, size), run.position + at - start)
                told(size)
    return len({run.position // file_bytes for run in layer.runs})


@contextmanager
def _log_files(directory: Path, file_bytes: int, files: Files) -> Iterator[Callable[[int], tuple[OpenFile, int]]]:
    """Yield what opens the log file of a position, or makes it, and returns it and its start. The file is flushed when
    another one is opened; positions ascend.
    """
    there: list[tuple[OpenFile, int]] = []
    with ExitStack() as opened:

        def file_at(position: int) -> tuple[OpenFile, int]:
            start = position // file_bytes * file_bytes
            if not there or there[-1][1] != start:
                opened.close()
                file = opened.enter_context(files.open_or_create(directory / file_name(start)))
                if file.size != file_bytes:
                    file.truncate(file_bytes)
                opened.callback(file.sync)
                there[:] = [(file, start)]
            return there[0]

        yield file_at
    files.sync_directory(directory)


def gaps_of(layer: Layer, file_bytes: int) -> list[tuple[int, int]]:
    """Return the holes before and between the runs, from the begin of the first file on, cut at the ends of files."""
    reach = layer.runs[0].position // file_bytes * file_bytes
    found = list[tuple[int, int]]()
    for run in layer.runs:
        found += in_files(reach, run.position, file_bytes)
        reach = run.end
    return found


def write_aside(parts: list[list[SalvageRun]], sources: Sources, folder: Path, files: Files) -> None:
    """Write a file for each part: its runs one behind the other, named by the position of the first."""
    files.make_directory(folder)
    for runs in parts:
        with files.create(folder / file_name(runs[0].position)) as file:
            end = 0
            for run in runs:
                for at in range(0, run.length, _CHUNK_BYTES):
                    file.pwrite(sources[run.source].bytes_at(run.at + at, min(_CHUNK_BYTES, run.length - at)), end + at)
                end += run.length
            file.sync()
    files.sync_directory(folder)


def close_holes(
    layer: Layer, blanks: Mapping[int, int], root: Path, file_bytes: int, files: Files
) -> tuple[Restored, MissingOffsets]:
    """Close the holes of a log that `write_log` has written below `root`.

    Raises Refused for a hole that is too small for a record, if the record before it cannot be padded.
    """
    holes = gaps_of(layer, file_bytes)
    begins = np.array([begin for begin, _ in holes], np.int64)
    layout = Layout.open(root)
    with layout.commit_log_files() as queue:
        log = CommitLog(queue)
        offsets = MissingOffsets(begins, log.min_offset)
        scan_messages(log, [offsets], Dispatching(index_tags=True), crc=False)
        forms = Forms(now_ms(), (), "", offsets.crc_items)
        gaps = list(_gaps(holes, offsets, file_bytes))
        missing = offsets.certain()
        # a BLANK found in a source is no hole: only what has no room elsewhere goes there
        holed = [gap for gap in gaps if blanks.get(gap.begin) != gap.end]
        units = placed(holed, missing, forms)
        closed = fills(gaps, units, forms)
        _write_fills(closed, forms, queue, layout.commit_log_directories[0], file_bytes, files)
    tombstones = sum(len(fill.lost) for fill in closed)
    fillers = sum(len(fill.fillers) for fill in closed)
    wanted = sum(each.offsets for each in missing)
    count = len({begin // file_bytes for begin, _ in holes} | {run.position // file_bytes for run in layer.runs})
    return Restored(count, file_bytes, tombstones, fillers, wanted - tombstones), offsets


def _gaps(holes: list[tuple[int, int]], offsets: MissingOffsets, file_bytes: int) -> Iterator[Gap]:
    time = offsets.first_timestamp
    for begin, end in holes:
        before = offsets.neighbours.get(begin)
        time = before.store_timestamp if before else time
        previous = before.position if before else -1
        yield Gap(begin, end, end % file_bytes == 0, time, previous)


def _pieces(fill: Fill, forms: Forms, queue: MappedFileQueue) -> Iterator[Piece]:
    yield from encoded([fill], forms, {})
    if fill.padding:
        position = fill.gap.previous
        record = queue.read(position, fill.gap.begin - position)
        try:
            yield position, padded(record, fill.padding)
        except ValueError as error:
            hint = "take --layout compact"
            raise Refused(f"no room: {error}", offset=fill.gap.begin, hint=hint) from error


def _write_fills(
    closed: list[Fill], forms: Forms, queue: MappedFileQueue, directory: Path, file_bytes: int, files: Files
) -> None:
    """Write what closes the holes, piece by piece; missing files are created."""
    with _log_files(directory, file_bytes, files) as file_at:
        for fill in closed:
            for position, data in _pieces(fill, forms, queue):
                file, start = file_at(position)
                file.pwrite(data, position - start)


def complete(
    root: Path,
    restored: Restored,
    offsets: MissingOffsets,
    config: BrokerConfig,
    version: str | None,
    files: Files,
    *,
    damaged: bool = False,
    by: str = "salvage",
) -> Restored:
    """Make queues, index, checkpoint and topics from the log, as a recovery does.

    Torn properties and wrong headers are repaired as there. Only the topics are written if the plan would give up a
    record, unless the caller knows that some are `damaged`. by: the command that makes the store. Raises as `recover`
    does.
    """
    settings = [f"mappedFileSizeCommitLog={restored.file_bytes}"]
    if offsets.lmq:
        settings += [f"{name}=true" for name in LMQ_OPTIONS if config.get(name) is None]
    if config.get(_INDEX_OPTION) is None:  # no file here says whether there was one
        settings.append(f"{_INDEX_OPTION}=true")
    layout = Layout.open(root, config.with_set(settings))
    version = version or generation_of(layout).version
    # a plan goes by the topics: one with batches has other queues
    topics = Topics.read(layout.config)
    profile = writer_profile(version)
    topics.add(offsets.highest_queue, profile, offsets.batch_topics)
    topics.write(files, profile, now_ms)
    layout = Layout.open(root, layout.broker_config)
    found = analyze(layout, version, options=RecoveryOptions(Policy.KEEP))
    restored, plan = restored._replace(version=profile_of(found.main_version).version), found.plan
    left = str(found.refusal) if plan is None else ""
    if plan is not None and not damaged and gives_up(plan):
        left = MORE
    if plan is None or left:
        remove_barriers(layout, files)
        return restored._replace(left=left)
    confine(files, layout)
    del found  # it may be large
    changed = [edit for edit in plan.edits if (edit.reason, *edit.codes) in OF_RECORDS]
    restored = restored._replace(changed={int(Path(e.path).name) + e.offset: e.reason for e in changed})
    # nobody else writes into a store that is being made: the plan still fits
    try:
        applied = apply(layout, plan, lambda: plan, files, command=by)
    except NoSpace as error:
        error.hint = "free disk space"  # a store that is being made keeps its journal in it
        raise
    if applied.session:
        purge(layout, Journal.load(layout.root, layout.journal / applied.session), files)
    found = analyze(Layout.open(root, layout.broker_config), restored.version, options=RecoveryOptions(Policy.KEEP))
    if not found.nothing_to_do:
        return restored._replace(left=MORE)
    return restored._replace(left=BEYOND if found.harmful else "")


def config_of_new(layout: Layout) -> BrokerConfig:
    """Return the configuration of a store that is made of another one: with its file sizes. Raises Unreadable."""
    sizes, config = sizes_of(layout), layout.broker_config.for_new_store()
    options = (
        ("mappedFileSizeConsumeQueue", sizes.consume_queue),
        ("maxHashSlotNum", sizes.index_slots),
        ("maxIndexNum", sizes.index_items),
    )
    return config.with_set([f"{name}={size.value}" for name, size in options if config.get(name) is None])


def copy_rest(layout: Layout, target: Path, files: Files, *, readable: bool = False) -> list[str]:
    """Copy what the log of a new store does not give: `config/`, compaction topics, timer wheel and timer log.

    Returns the names of what was left out. readable, and raises: as `copy_store`.
    """
    left_out: list[str] = []
    # a broker may be at work: the wheel goes before the entries that it leads to
    for path in (layout.config, layout.root / COMPACTION, layout.timer_wheel, layout.timer_log):
        if path.is_dir():
            left = copy_store(path, target / path.name, files, lambda _: None, readable=readable)
            left_out += (f"{path.name}/{name}" for name in left)
        elif path.is_file() and not copy_if(readable, path, target / path.name, files, lambda _: None):
            left_out.append(path.name)
    return left_out


def _set_timer_back(new: Layout, log_end: int, queue_end: int, files: Files) -> None:
    """Cut the last entries off the timer log if their messages lie behind the end of the new log, and set wheel and
    timercheck back to what is left. A running broker has filed them after the log was read; no start could use them.

    queue_end: of the timer topic in the new log, 0 if it has no message of that. Raises NoSpace, Unreadable.
    """
    with stream_of(new, new.timer_log) as stream:
        units = [part for part in timer_log(stream) if isinstance(part, TimerUnits)]
        entries = TimerEntries.concat([TimerEntries.of(part.position, part.units) for part in units])
        kept = np.flatnonzero(entries.offset_py < log_end)
        end = int(entries.position[kept[-1]]) + UNIT_BYTES if len(kept) else stream.start
        check_path = new.config / TIMER_CHECK
        check = before = read_timer_check(check_path)
        if end < entries.end:
            for part in stream.files:
                if part.start >= max(end, stream.start + 1):
                    files.unlink(Path(part.path))
                elif part.end > end:
                    with files.open(Path(part.path)) as file:
                        file.truncate(end - part.start)
                        file.truncate(part.size)  # zeros again, none of them on the disk
                        file.sync()
            if new.timer_wheel.is_file():  # it is to name the entries that the timer log has
                snapshot = Snapshot.of(new)
                edit = new_wheel(snapshot, list(snapshot.timer_log))
                files.unlink(new.timer_wheel)
                apply_edit(edit, files)
            if check is not None:
                check = check._replace(last_timer_log_flush_pos=min(check.last_timer_log_flush_pos, end))
    if check is not None and queue_end:
        ends = (check.last_timer_queue_offset, check.master_timer_queue_offset)
        read, master = (min(end, queue_end) for end in ends)
        check = check._replace(last_timer_queue_offset=read, master_timer_queue_offset=master)
    if check is not None and check != before:
        with files.open(check_path) as file:
            file.pwrite(check.to_bytes(), 0)
            file.sync()


def copy_expired_queues(layout: Layout, target: Path, start: int, files: Files, *, readable: bool = False) -> None:
    """Copy queues without a record from `start` on: their next message gets the right offset, as units precede the new
    log. readable, and raises: as `copy_store`.
    """
    expired = {name for name, row in queue_summaries(layout, start).items() if (row.last_position or 0) < start}
    for folder in (layout.consume_queue, layout.batch_consume_queue):
        for topic, queue_id, path in queue_directories(folder):
            if (topic, queue_id) in expired:
                place = queue_directory(target / folder.name, topic, queue_id)
                copy_store(Path(path), place, files, lambda _: None, readable=readable)


def bring_along(
    old: Layout, target: Path, log_end: int, offsets: MissingOffsets, files: Files
) -> tuple[list[str], list[str]]:
    """Copy what the new log does not give from an old store with the same positions and queue offsets, as far as it can
    be read. log_end: of the new log.

    Returns the names of the files that came along, without those of queues, and of what was left out. Raises NoSpace.
    """
    left_out = copy_rest(old, target, files, readable=True)
    new = Layout.open(target)
    try:
        Topics.read(new.config)
    except Refused:  # no topic could be added to them
        torn = [path for path in new.config.glob(f"{TOPICS_FILE}*") if path.is_file()]
        left_out += (os.fspath(path.relative_to(target)) for path in torn)
        for path in torn:
            files.unlink(path)
    if old.queue_database is not None and new.config.is_dir():  # brokers with queues in files do not read them
        for database in databases(new.config):
            left_out.append(os.fspath(database.relative_to(target)))
            remove_tree(database, files)
    _set_timer_back(new, log_end, offsets.end(QUEUE), files)
    parts = (new.config, target / COMPACTION, new.timer_log)
    brought = [path for part in parts for path in part.rglob("*") if path.is_file()]
    brought += [new.timer_wheel] if new.timer_wheel.is_file() else []
    with suppress(Unreadable, Unsupported):  # their messages have expired: only the next offsets are lost
        refuse_compressed(old)
        copy_expired_queues(old, target, log_start(new), files, readable=True)
    return sorted(os.fspath(path.relative_to(target)) for path in brought), sorted(left_out)


def queue_summaries(layout: Layout, start: int) -> dict[tuple[str, int], QueueSummary]:
    """Return all queues of a store by topic and queue id. start: where its log begins."""
    rows: list[QueueSummary] = ConsumeQueues(layout).summaries(start) + batch_summaries(layout, start)
    return {(row.topic, row.queue_id): row for row in rows}


def log_start(layout: Layout) -> int:
    """Return the position at which the first file of the log begins."""
    with layout.commit_log_files() as queue:
        return queue.start


def gives_up(plan: Plan) -> bool:
    """Whether the plan loses messages, or cuts the log."""
    of_log = (edit for edit in plan.edits if COMMIT_LOG in Path(edit.path).parts)
    return plan.lost.messages > 0 or any(edit.kind != "write" for edit in of_log)


def file_bytes_of(runs: list[SalvageRun], sources: Sources, blanks: Mapping[int, int], config: BrokerConfig) -> int:
    """Return the size of the log's files: configured, or as names and sizes of sources tell, or as BLANKs tell, or 1
    GiB.

    blanks: as in `Carved`. Raises InvalidInput.
    """
    common = gcd(*(blanks[run.end] for run in runs if run.end in blanks))
    size, origin = config.size("mappedFileSizeCommitLog")
    if origin == "configuration":
        return size
    lengths = Counter(
        sources[run.source].size
        for run in runs
        if run.at == 0 and sources.paths[run.source].name == file_name(run.position)
    )
    for length, _ in lengths.most_common():
        if length and common % length == 0 and all(_fits(run, length) for run in runs):
            return length
    return size if common % size == 0 else common


def _fits(run: SalvageRun, file_bytes: int) -> bool:
    """Whether the run lies in one file."""
    return run.position // file_bytes == (run.end - 1) // file_bytes
