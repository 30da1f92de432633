"""Plan the end of the commit log, and what happens to the bytes behind that end.

The end is where the broker's own recovery ends, with three differences that keep the store the same for every later
start (spec 7.11): behind the last good record a record that names another position is of an earlier life and no new
message (B14); a torn record is not taken for data (B26); and what the next clean start would cut off is cut off now,
and reported.

A dead tail (`DeadTail`) is old records right behind the last new one: whole, in place, with queue offsets that are
taken. A slave's cut, a restored file or a recycled one leaves them there. A broker takes them for messages at its next
start: it gives them no unit, or one at the end of a queue that belongs to another message (spec 2.2, step 4; 7.12,
B14). All three must hold: they are older than the record before them, messages before them have their offsets, and no
unit of their queues names one of them.

If the log is gone for good (`put_away`), the rest is moved away and a broker starts over. A broker that starts without
a log deletes the files of all queues. The plan does the same, and also moves index and timer: what they name would be
looked up in the new log. All of it is moved, so that it can be undone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.blank import BLANK, MAGIC_BLANK
from ...formats.message import TRANSACTION_MASK, SysFlag
from ...formats.timer_check import FILE as TIMER_CHECK
from ..audit.messages import LogObserver, Messages
from ..audit.queues import QueueAudit
from ..audit.verified import VerifiedRun
from ..broker.dispatch import Dispatched
from ..broker.load_rules import LoadedFile
from ..broker.profiles import NormalStart, Profile
from ..broker.snapshot import DirectoryEntry, QueueId, Snapshot, list_entries
from ..disk.file_queue import MappedFileQueue, file_name
from ..disk.files import Edit
from ..disk.layout import queue_directories
from ..errors import Refused
from ..log.batch import Batch
from ..log.commit_log import CommitLog
from ..queues.batches import BATCH_UNIT_DTYPE
from ..queues.edits import is_zero_from, last_byte
from ..queues.rocksdb_write import database_files
from ..queues.units import FileUnits, Units, is_used, is_valid
from ..start.log import KEPT_FILES, FileRecords, LogWalk
from ..start.outcome import Outcome
from .normalize import LARGEST_GAP, renamed, starting_over


class LogPlan(NamedTuple):
    """The end of the log, and the edits that make it so.

    stale: old records lay behind it. tail_bytes: bytes zeroed behind it. again: the good records behind it are no
    messages: their queue offsets are taken.
    """

    start: int
    end: int
    stale: bool
    edits: list[Edit]
    tail_bytes: int
    again: bool = False


def files_of(snapshot: Snapshot) -> MappedFileQueue:
    """Return the files of the log that the snapshot has, without those moved away."""
    queue = snapshot.layout.commit_log_files()
    paths = {entry.path for entry in snapshot.log}
    queue.files = [file for file in queue.files if os.fspath(file.path) in paths]
    return queue


def plan_log(snapshot: Snapshot, outcome: Outcome, most: int | None) -> LogPlan:
    """Plan the log of a store whose files all load. most: where it ends at the latest, if given. Raises Unreadable."""
    files = [LoadedFile(int(e.name), snapshot.log_file_bytes, e) for e in snapshot.log if not e.directory]
    number = outcome.start.number if outcome.start else 0
    end, stale = _walk_end(snapshot, files, outcome, number)
    end = end if most is None else min(end, most)
    while True:
        number = _clean_start(files, outcome.profile, end)
        again, more_stale = _walk_end(snapshot, files, outcome, number)
        if again >= end:
            break
        end, stale = again, stale or more_stale
    tail = list(tail_edits(snapshot, files, end, stale))
    edits = [*tail, *_missing_files(snapshot, files, end)]
    return LogPlan(files[0].start, end, stale, edits, written(tail))


def written(edits: Iterable[Edit]) -> int:
    """Return the number of bytes that edits overwrite."""
    return sum(edit.length for edit in edits if edit.kind == "write")


def _clean_start(files: list[LoadedFile], profile: Profile, end: int) -> int:
    """Return the number of the file at which the start after the recovery, a clean one, begins.

    It may lie before the file that the checkpoint led to. That start would reach damage in between, so the plan has to
    end before such damage, too.
    """
    if profile.start.normal is NormalStart.LAST_THREE:
        return max(0, sum(file.start <= end for file in files) - KEPT_FILES)
    # no unit reaches into a file that begins at the end: a start never begins at such a file
    return max(0, sum(file.start < end for file in files) - 1)


def _walk_end(snapshot: Snapshot, files: list[LoadedFile], outcome: Outcome, number: int) -> tuple[int, bool]:
    """Return the end of the walk from file `number` on, and whether records of an earlier life are left out."""
    while True:
        body = outcome.switches.body_check
        walk = LogWalk(snapshot, files, outcome.profile, crashed=False, body_check=body)
        own_end, foreign = -1, False
        for batch in walk.batches(number):
            assert isinstance(batch, FileRecords)
            columns = batch.columns
            own = columns.ints("physical_offset") == columns.starts + batch.file.start
            last = int(np.flatnonzero(own)[-1]) if own.any() else -1
            if last >= 0:
                size = int(columns.ints("total_size")[last])
                own_end = batch.file.start + int(columns.starts[last]) + size
            foreign = last < len(own) - 1
        if not foreign:
            return walk.end, False
        if own_end >= 0:
            return own_end, True
        if number == 0:
            raise renamed(snapshot)
        number -= 1


def tail_edits(snapshot: Snapshot, files: list[LoadedFile], end: int, stale: bool) -> Iterator[Edit]:
    """Yield edits that move away the files behind the end of the log, and zero the rest of its last file."""
    size = snapshot.log_file_bytes
    for file in files:
        assert file.entry is not None
        if file.start > end or (file.start == end and stale and file is not files[0]):
            yield _move(file.entry)
        elif end < file.start + size:
            begin = end - file.start
            head = snapshot.bytes_of(file.entry)[begin : begin + BLANK.sizeof()].tobytes()
            if len(head) == BLANK.sizeof() and BLANK.parse(head).magic_code == MAGIC_BLANK:
                begin += BLANK.sizeof()  # the log ends at a BLANK without a next file, which stays
            last = last_byte(file.entry, begin, size)  # a file that is too long is truncated, not written to
            if last > begin:
                reason = "zeros behind the log end, where the next start would look for records"
                codes = ("I-054",) if stale else ("I-043",)
                yield Edit("write", file.entry.path, reason, codes, begin, last - begin)


def _move(entry: DirectoryEntry) -> Edit:
    if is_zero_from(entry, 0):
        return Edit("remove", entry.path, "empty file behind the log end", ("I-007",))
    return Edit("move", entry.path, "behind the log end: a broker would delete it", ("I-042",))


def _missing_files(snapshot: Snapshot, files: list[LoadedFile], end: int) -> Iterator[Edit]:
    """Yield edits that replace each missing file in the middle with one BLANK, which every start walks over."""
    size = snapshot.log_file_bytes
    blank = BLANK.build({"total_size": size, "magic_code": MAGIC_BLANK})
    for before, after in pairwise(files):
        if after.start > end or before.entry is None:
            return
        gap = range(before.start + size, after.start, size)
        if len(gap) > LARGEST_GAP:
            raise Refused(f"{len(gap)} log files are missing", path=before.entry.path, hint="restore them")
        directory = snapshot.layout.commit_log_directories[0]
        for start in gap:
            reason = "in place of a missing log file, whose messages are lost"
            yield Edit.create(directory / file_name(start), blank, reason, ("I-002",), size)


@dataclass
class DeadTail(LogObserver):
    """Finds a dead tail of the log. audits: of its queues, which have seen the whole log."""

    audits: Mapping[QueueId, QueueAudit]
    #: Position of the last record that is not a message with a taken offset.
    last: int = -1
    _ends: dict[QueueId, int] = field(default_factory=dict)
    _taken: list[Messages] = field(default_factory=list)

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        """Take records without a queue offset of their own: they prove nothing, so no tail begins before them."""
        state = batch.columns.ints("sys_flag") & TRANSACTION_MASK
        silent = np.flatnonzero(np.isin(state, (SysFlag.PREPARED, SysFlag.ROLLBACK)))
        if len(silent):
            self.last = max(self.last, int(batch.position[silent[-1]]))

    def messages(self, messages: Messages) -> None:
        end, offsets = self._ends.get(messages.queue, 0), messages.offset
        reached = np.maximum.accumulate(np.concatenate([np.array([end]), offsets + 1]))
        self._ends[messages.queue] = int(reached[-1])
        taken = offsets < reached[:-1]
        if messages.queue not in self.audits:
            taken[:] = False
        if not taken.all():
            self.last = max(self.last, int(messages.position[~taken][-1]))
        if taken.any():
            self._taken.append(messages.take(taken))

    def can_skip(self, run: VerifiedRun) -> bool:
        """Whether queues name the records of a run themselves."""
        return not run.further_by

    def skip(self, run: VerifiedRun) -> None:
        """Take a run: its records are no tail."""
        self.last = max(self.last, run.last)
        for queue, queue_range in run.queues.items():
            self._ends[queue] = max(queue_range.next, self._ends.get(queue, 0))

    def begin(self, log: CommitLog) -> int | None:
        """Return where the log must end, None if it has no dead tail. Raises Unreadable."""
        tail = [m.take(m.position > self.last) for m in self._taken]
        tail = [messages for messages in tail if len(messages.position)]
        if not tail or self.last < 0:
            return None
        record = log.records(np.array([self.last], np.int64))
        if not len(record):
            return None
        newest = max(int(messages.store_timestamp.max()) for messages in tail)
        if newest >= int(record.columns.ints("store_timestamp")[0]):
            return None
        end = self.last + int(record.columns.ints("total_size")[0])
        return end if all(self._is_dead(messages, end) for messages in tail) else None

    def _is_dead(self, messages: Messages, end: int) -> bool:
        """Whether no unit of the messages' queue names a record from `end` on."""
        units = (units for _, units in self.audits[messages.queue].stream.windows())
        return not any((is_valid(some) & (some["physical_offset"] >= end)).any() for some in units)


_REASON = "its messages are gone with the log"
_CODES = ("I-002",)


def put_away(snapshot: Snapshot, database: Path | None) -> Iterator[Edit]:
    """Yield edits that leave a store without queues, index, timer, rocksdbstore and compacted messages. Raises Refused.

    database: the RocksDB of queues. Compacted messages go, too: a broker would serve them, and none of the new messages
    up to the last of them. So do timers, transactions and index items in rocksdbstore, which name places in the lost
    log, and with them how far the timers were read. The log directory has to exist: it holds the start barrier.
    """
    directory = snapshot.layout.commit_log_directories[0]
    if not directory.is_dir():
        hint = f"to start again with an empty log: {starting_over(snapshot.layout)}"
        raise Refused("there is no commit log directory", path=directory, hint=hint)
    for queues in (snapshot.queues, snapshot.batch_queues, snapshot.ext):
        for _, entries in sorted(queues.items()):
            # a queue of the database is a copy outside the store
            yield from _moves(each for each in entries if Path(each.path).is_relative_to(snapshot.layout.root))
    layout = snapshot.layout
    if layout.rocksdb_queues:  # without the database a broker would use queue files that were left behind
        for topic in sorted({Path(each.path).parent for each in queue_directories(layout.consume_queue)}):
            yield Edit("move", str(topic), _REASON, _CODES)
    for path in (*(database_files(database) if database is not None else ()), *database_files(layout.rocksdb_store)):
        yield Edit("move", str(path), _REASON, _CODES)
    yield from _moves(snapshot.index)
    yield from _moves(snapshot.timer_log)
    for kept in (layout.compaction_log, layout.compaction_queues):
        for queue in queue_directories(kept):
            yield from _moves(entry for entry in list_entries(queue.path) if not entry.directory)
    for path in (layout.timer_wheel, layout.config / TIMER_CHECK):
        if path.exists():
            yield Edit("move", str(path), _REASON, _CODES)


def _moves(entries: Iterable[DirectoryEntry]) -> Iterator[Edit]:
    for entry in entries:
        yield Edit("move", entry.path, _REASON, _CODES)


def named_messages(snapshot: Snapshot) -> Iterator[Messages]:
    """Yield the messages that units name, the only record of them. Raises Unreadable."""
    for queue, entries in sorted(snapshot.queues.items()):
        for first, units in FileUnits.of(entries, snapshot.queue_file_bytes).windows():
            yield from _named(queue, units, np.arange(first, first + len(units), dtype=np.int64))
    for queue, entries in sorted(snapshot.batch_queues.items()):
        for _, units in FileUnits.of(entries, snapshot.batch_file_bytes, BATCH_UNIT_DTYPE).windows():
            yield from _named(queue, units, units["msg_base_offset"], units["batch_size"])


def _named(queue: QueueId, units: Units, offset: npt.ArrayLike, number: npt.ArrayLike = 1) -> Iterator[Messages]:
    """Yield the messages of units that name a record. number: of each."""
    used = np.flatnonzero(is_used(units))
    columns = (offset, units["physical_offset"], units["size"], units["tags_code"])
    if len(used):
        nothing = np.zeros(len(used), np.int64)
        parts = (np.broadcast_to(column, len(units))[used].astype(np.int64) for column in (*columns, number))
        offsets, position, size, tags, numbers = parts
        yield Messages(queue, offsets, position, size, tags, nothing, nothing > 0, nothing > 0, numbers)
