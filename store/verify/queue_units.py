"""Checks of queues against the log: all units of a queue in order, above all those that no message of the log has.

First the end of a queue is decided: behind its last unit that counts. Units behind it are dead, whatever they name
(docs/invariants.md, I-062): a broker that cut its log leaves them there. The next broker drops those behind the log's
end, and no others (`is_cut`).

A unit that is not the unit of its message: the record that it names is read (I-062 … I-064, I-069). After all units of
a queue: its end, its front, its dead tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from ...formats import message_properties as names
from ...formats.consume_queue import UNIT_BYTES
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import java_string
from ...formats.message import SMALLEST, TRANSACTION_MASK, SysFlag
from ...formats.property_columns import find
from ..broker.dispatch import java_split
from ..broker.snapshot import QueueId, directories_without_files
from ..broker.system_topics import LMQ_PREFIX
from ..columns import Ranges
from ..counted import counted
from ..errors import NotFound
from ..findings.catalogue import Severity
from ..log.commit_log import Batch
from ..log.message import tombstones
from ..queues.read import is_cut
from ..queues.units import Units, is_pre_fill, is_valid, reaches_beyond
from ..start.queue_stores import queue_begins
from .context import VerifyContext, covered_of
from .queue_state import MissingUnits, QueueCheck, QueueReader, QueueStates, may_have_none

_RECORDS_AT_ONCE = 256
_BYTES_AT_ONCE = 8 << 20
"""Records are read whole, at most so many and so large at a time."""
_AS_PLAIN = "mqstore repair {store} --convert plain --to {plain}"
"""There each message has a unit: queues are counted anew."""


def resolve(context: VerifyContext, reader: QueueReader, offsets: Ints, units: Units) -> None:
    """Report why units, at ascending queue offsets, are not those of their messages."""
    for part in _batches(units["size"].astype(np.int64)):
        _resolve_batch(context, reader, offsets[part], units[part])


def are_of_changed_records(
    context: VerifyContext, queues: QueueStates, queue: QueueId, offsets: Ints, units: Units
) -> Flags:
    """Return which units, at queue offsets, name a record of their size that was of this queue: a half message or a
    rollback of it, or a message of the same topic and offset in a queue that has no unit for it: bool[n].
    """
    positions = units["physical_offset"].astype(np.int64)
    records = context.store.log.records(positions)
    columns = records.columns
    state = columns.ints("sys_flag") & TRANSACTION_MASK
    rolled_back = (state == SysFlag.PREPARED) | (state == SysFlag.ROLLBACK)
    found = np.zeros(len(units), np.bool_)
    there = np.isin(positions, records.position)
    same = columns.ints("physical_offset") == records.position
    same &= columns.ints("total_size") == units["size"][there]
    topics = [java_string(value) == queue.topic for value in columns.ragged("topic").tolist()]
    same &= np.array(topics, np.bool_)
    mine = columns.ints("queue_id") == queue.queue_id
    moved = same & ~mine & (columns.ints("queue_offset") == offsets[there])
    for row in np.flatnonzero(moved).tolist():
        other = QueueId(queue.topic, int(columns.ints("queue_id")[row]))
        own = queues.reader(other).lookup(offsets[there][row : row + 1])
        moved[row] = own["physical_offset"][0] != records.position[row] or not own["size"][0]
    found[there] = same & mine & rolled_back | moved
    return found


def _batches(sizes: Ints) -> Iterator[slice]:
    """Yield slices whose records fit into memory, if the sizes are right."""
    begin, total = 0, 0
    for at, size in enumerate(sizes.tolist()):
        if at > begin and (total + size > _BYTES_AT_ONCE or at - begin >= _RECORDS_AT_ONCE):
            yield slice(begin, at)
            begin, total = at, 0
        total += size
    yield slice(begin, len(sizes))


def _resolve_batch(context: VerifyContext, reader: QueueReader, offsets: Ints, units: Units) -> None:
    positions = units["physical_offset"].astype(np.int64)
    records = context.store.log.records(positions)
    there = np.isin(positions, records.position)
    wrong: dict[str, dict[int, str]] = {}

    def note(code: str, row: int, text: str) -> None:
        wrong.setdefault(code, {})[row] = f": {text}"

    for row in np.flatnonzero(~there & ~context.gone.has(positions)).tolist():
        note("I-062", row, f"no record begins at {positions[row]}")
    named = _UnitRecords(records, reader)
    for at, row in enumerate(np.flatnonzero(there).tolist()):
        for code, text in named.problems(at, int(offsets[row]), int(units["size"][row])):
            note(code, row, text)
    for code, texts in wrong.items():
        rows = np.array(sorted(texts), np.int64)
        reader.report(context.findings, code, offsets[rows], [texts[row] for row in rows.tolist()].__getitem__)


class _UnitRecords:
    """Records that units of one queue name."""

    def __init__(self, records: Batch, reader: QueueReader) -> None:
        columns = records.columns
        self._queue = reader.queue
        self._topics = [java_string(value) for value in columns.ragged("topic").tolist()]
        self._numbers = {
            name: columns.ints(name).tolist()
            for name in ("queue_id", "queue_offset", "total_size", "sys_flag", "physical_offset")
        }
        self._position = records.position.tolist()
        self._lost = tombstones(columns)
        properties = columns.ragged("properties")
        self._queues = find(properties, names.INNER_MULTI_DISPATCH).tolist()
        self._offsets = find(properties, names.INNER_MULTI_QUEUE_OFFSET).tolist()

    def problems(self, at: int, offset: int, size: int) -> Iterator[tuple[str, str]]:
        """Yield (code, text): what is wrong with a unit that names record `at`."""
        number = {name: values[at] for name, values in self._numbers.items()}
        position = self._position[at]
        if number["physical_offset"] != position:
            yield "I-062", f"the record at {position} is left over from an earlier use of the file"
            return
        if number["total_size"] != size:
            yield "I-062", f"the record at {position} has {number['total_size']} bytes, not {size}"
        if (self._topics[at], number["queue_id"]) != self._queue:
            if not self._lost[at]:  # a tombstone names its further queues only if they were known
                yield from self._problems_of_other_queue(at, offset)
            return
        if number["sys_flag"] & TRANSACTION_MASK in (SysFlag.PREPARED, SysFlag.ROLLBACK):
            yield "I-069", f"the record at {position} is a half message or a rollback"
        elif number["queue_offset"] != offset:
            yield "I-064", f"the record at {position} is message {number['queue_offset']}"
        elif number["total_size"] == size:
            yield "I-062", f"the record at {position} does not belong to the log"

    def _problems_of_other_queue(self, at: int, offset: int) -> Iterator[tuple[str, str]]:
        """Yield problems of a record of another queue: the unit is right only if the record also names this queue."""
        topic, queue_id = self._topics[at], self._numbers["queue_id"][at]
        of = f"the record at {self._position[at]} is of {topic}/{queue_id}"
        lmq = self._queue.topic.startswith(LMQ_PREFIX)
        mine = 0 if lmq else queue_id
        queues, offsets = java_split(self._queues[at]), java_split(self._offsets[at])
        if self._queue.topic not in queues or mine != self._queue.queue_id:
            yield "I-063", of
            if lmq:
                yield "I-078", f"{of} and goes to no LMQ of that name"
            return
        if len(queues) == len(offsets):
            wanted = offsets[queues.index(self._queue.topic)]
            if wanted != str(offset):
                yield "I-064", f"{of} and is message {wanted or '(none)'} here"


_BEHIND_AT_ONCE = 256
"""Number of units behind the end to check, in each window."""
_NO_END = np.iinfo(np.int64).max


class QueuePass:
    """The pass over one queue from its first unit to its last.

    live_end: queue offset behind the last unit that counts, -1 without any. real: number of units that name a record.
    ends_pre_filled: the last valid unit names none. beyond, behind: units at the end that reach beyond the log's end,
    and that lie behind the last message of the queue. wrong: those of both whose position is in a good record of
    another message. first_file_gone: all records of the first file have expired.
    """

    def __init__(self, context: VerifyContext, queues: QueueStates, check: QueueCheck) -> None:
        self._context = context
        self._check = check
        self._queues = queues
        self._reader = check.reader
        log = context.log
        self._whole = log.complete and not context.scope.quick and not context.live
        self._log_start, self._log_end = context.begin_now(), log.end
        self._next = log.next_offset.get(check.queue) if self._whole else None
        # units behind the last message that was read may be dead, or name messages that were not read yet
        seen = log.next_offset.get(check.queue, 0)
        self._known_end = _NO_END if log.complete else seen
        self.live_end = -1
        self.real = 0
        self.ends_pre_filled = False
        self.first_file_gone = False
        self.beyond = Ranges()
        self.behind = Ranges()
        self.wrong = Ranges()
        self._cut = Ranges()
        self._invalid = Ranges()
        self._last_position = -1
        self._in_log = False
        self._expected = check.reader.first_offset

    @property
    def dead(self) -> list[tuple[int, int]]:
        return sorted(self.beyond.ranges() + self.behind.ranges())

    @property
    def kept_end(self) -> int:
        """Queue offset behind the dead units that a start keeps; 0 in a RocksDB, where a row names the end."""
        if self._queues.in_database(self._check.queue):
            return 0
        ends = [first for first, _ in self._cut.ranges() + self._invalid.ranges()]
        return min([*ends, *(end for _, end in self.dead[-1:])], default=0)

    def run(self) -> None:
        """Check all units except those of consecutive messages, which were compared with these already."""
        row = self._check.row
        if row is not None and row.first == self._expected and not self._context.live:
            self._expected = self.live_end = row.next
            self.real, self._in_log, self._last_position = row.messages, True, row.last_position
            if not self._queues.in_database(self._check.queue):
                self._check.bounds = row.first, row.next
        for first, units in self._reader.windows(self._expected):
            self._check.bounds = None
            for hole in self._reader.unwritten(self._expected, first):
                self._invalid.add_range(*hole)  # as invalid as written zeros
            self._check_window(first, units)
            self._expected = first + len(units)

    def _check_window(self, first: int, units: Units) -> None:
        offsets = np.arange(first, first + len(units), dtype=np.int64)
        positions = units["physical_offset"].astype(np.int64)
        valid = is_valid(units)
        filled = is_pre_fill(units)
        real = valid & ~filled
        self._note_first_file(offsets, valid, positions)
        matched = self._check.right.has(offsets) | self._check.elsewhere.has(offsets)
        matched &= real
        beyond = real & ~matched & reaches_beyond(units, self._log_end) if self._whole else np.zeros_like(real)
        behind = np.zeros_like(real)
        if self._next is not None:
            behind = real & ~matched & ~beyond & (offsets >= self._next)
        live = real & ~beyond & ~behind
        changed = self._are_changed(offsets, behind, units)
        self._check_pre_fill(offsets, positions, filled, real)
        if valid.any():
            self.ends_pre_filled = bool(filled[np.flatnonzero(valid)[-1]])
        self.real += int(real.sum())
        unknown = self._settle(offsets, live, ~valid, beyond, behind)
        dead = (beyond | behind) & (offsets >= self.live_end)
        if dead.any():
            self._cut.add(offsets[dead & is_cut(positions, self._log_end)])
            self.wrong.add(offsets[dead & ~changed & covered_of(self._context).in_records(positions)])
        self._check_order(offsets, positions, live)
        if self._context.scope.quick:
            return
        unknown |= live & ~matched
        unknown &= offsets < self._known_end
        unknown &= (positions >= self._log_start) & self._was_read(offsets, positions)
        unknown |= changed
        if unknown.any() and self._queues.in_database(self._check.queue):
            # a start replaces units of a deleted topic with those of the topic that was created again
            begins = queue_begins(self._context.store.layout)
            unknown &= positions >= begins(*self._check.queue, int(positions[unknown].min()))
        if unknown.any():
            resolve(self._context, self._reader, offsets[unknown], units[unknown])

    def _was_read(self, offsets: Ints, positions: Ints) -> Flags:
        """Return which positions the pass has read, or an earlier run that could not judge the unit yet: bool[n]."""
        read = covered_of(self._context).has(positions)
        scope = self._context.scope
        if scope.earlier is not None and scope.start is not None:
            judged = scope.earlier.next_offset.get(self._check.queue, 0)
            read |= (offsets >= judged) & (positions < scope.start)
        return read

    def _are_changed(self, offsets: Ints, behind: Flags, units: Units) -> Flags:
        """Return which units behind the end name a record that is there, and was of this queue: bool[n].

        No cut left such units: the header of a record was changed, that of the queue's last one.
        """
        found = np.zeros(len(units), np.bool_)
        rows = np.flatnonzero(behind)[:_BEHIND_AT_ONCE]
        if len(rows):
            found[rows] = are_of_changed_records(
                self._context, self._queues, self._check.queue, offsets[rows], units[rows]
            )
        return found

    def _settle(self, offsets: Ints, live: Flags, invalid: Flags, beyond: Flags, behind: Flags) -> Flags:
        """Report what does not count in front of the last live unit; keep what lies behind it.

        Return which units behind the messages of the queue are not at its end: bool[n].
        """
        last = int(np.flatnonzero(live)[-1]) if live.any() else -1
        before = np.arange(len(offsets)) <= last
        if last >= 0:
            self._invalid.add(offsets[invalid & before])
            self.beyond.add(offsets[beyond & before])
            self._report_inside("I-061", self._invalid, "names no record, but units follow")
            text = f"reaches beyond the log's end {self._log_end}, but units follow"
            self._report_inside("I-067", self.beyond, text)
            self._invalid, self.beyond, self.behind, self.wrong, self._cut = (Ranges() for _ in range(5))
            self.live_end = int(offsets[last]) + 1
        self._invalid.add(offsets[invalid & ~before])
        self.beyond.add(offsets[beyond & ~before])
        self.behind.add(offsets[behind & ~before])
        return behind & before

    def _report_inside(self, code: str, wrong: Ranges, text: str) -> None:
        for first, end in wrong.ranges():
            self._reader.report_range(self._context.findings, code, first, end, text)

    def _check_pre_fill(self, offsets: Ints, positions: Ints, filled: Flags, real: Flags) -> None:
        """Check that pre-fill units are only before the first real one, and only in the first file (I-071).

        Behind units whose records are before the log they hide nothing: all are before the queue's first message.
        """
        if not filled.any():
            return
        files = self._reader.files.files
        in_log = real & (positions >= self._log_start)
        wrong = filled & (np.cumsum(in_log) + self._in_log > 0)
        if files:
            wrong |= filled & (np.cumsum(real) + self.real == 0) & (offsets * UNIT_BYTES >= files[0].end)
        text = " is a pre-fill unit, but not at the front of the queue"
        self._reader.report(self._context.findings, "I-071", offsets[wrong], text)

    def _check_order(self, offsets: Ints, positions: Ints, live: Flags) -> None:
        """Check that positions rise (I-066); a unit before the log behind one in the log hides others (I-068)."""
        rows = np.flatnonzero(live)
        if not len(rows):
            return
        where = positions[rows]
        before = np.append(np.int64(self._last_position), where[:-1])
        wrong = where <= before
        names, last = where[wrong], before[wrong]
        self._reader.report(
            self._context.findings,
            "I-066",
            offsets[rows[wrong]],
            lambda row: f" names {names[row]}, the one before it {last[row]}: units must rise",
        )
        inside = where >= self._log_start
        seen = np.append(np.bool_(self._in_log), inside[:-1])
        hiding = offsets[rows[~inside & np.logical_or.accumulate(seen)]]
        text = f" names a place before the log's start {self._log_start}, units before it do not"
        self._reader.report(self._context.findings, "I-068", hiding, text)
        self._in_log = self._in_log or bool(inside.any())
        self._last_position = int(where[-1])

    def _note_first_file(self, offsets: Ints, valid: Flags, positions: Ints) -> None:
        """Note whether the last unit of the first file names a record that has expired."""
        files = self._reader.files.files
        if not files:
            return
        at = files[0].end // UNIT_BYTES - 1 - int(offsets[0])
        if 0 <= at < len(offsets) and valid[at]:
            self.first_file_gone = int(positions[at]) < self._log_start


def report_missing(context: VerifyContext, queues: QueueStates, check: QueueCheck) -> None:
    """Report messages that no unit names (I-070)."""
    queue, deleted = check.queue, queues.deleted(check.queue.topic)
    there = check.reader.exists and (queues.in_database(queue) or bool(check.reader.files.files))
    if not there and not deleted and not context.live:
        _report_no_queue(context, queues, check)
        return
    dispatched = queues.dispatched_to(queue)
    begin = context.begin_now() if check.missing else 0
    for missing in check.missing:
        if missing.end <= begin or (context.live and _made_since(queues, missing, queue)):
            continue
        end = missing.first + missing.count
        text = f"is missing: it is for message {missing.first}, record at {missing.position}"
        more: dict[str, Any] = {}
        if deleted:
            more |= {"severity": Severity.WARNING} | ({} if context.crashed else {"repair": ""})
            text += ": the topic was deleted (it is not in topics.json)"
        elif is_late(context, missing, dispatched):
            more |= context.not_dispatched
            text += ": not dispatched yet"
        elif check.right.covers(missing.first, end):
            more["repair"] = _AS_PLAIN if context.store.layout.dledger else ""
            text += ": another message has this queue offset"
        check.reader.report_range(context.findings, "I-070", missing.first, end, text, **more)


def _report_no_queue(context: VerifyContext, queues: QueueStates, check: QueueCheck) -> None:
    """Report a queue without files (I-070), with all messages that the log has of it."""
    counts, positions = check.missing_counts
    if not len(counts):
        return
    count = int(counts.sum())
    many = counted(count, "message", form=",")
    alone = "" if queues.any_there else ", like all other queues"
    text = f"the queue {check.queue} is missing{alone}: the log has {many} of it"
    more: dict[str, Any] = {}
    late = context.crashed and bool((positions >= queues.dispatched_to(check.queue)).all())
    if late or context.waits(int(positions.min())):
        more |= context.not_dispatched
        text += ", not dispatched yet"
    if not check.reader.exists and may_have_none(context, check.queue):
        if _was_numbered(context, check.queue, int(positions[0])):
            text += f"; these options of the broker say where the queue is: {_WHERE_LMQS_ARE}"
            more = more or {"repair": _WITH_OPTIONS}
        else:
            more = {"severity": Severity.WARNING}
            text += "; if the broker has enableMultiDispatch=false, say so with --set"
    context.findings.add("I-070", check.reader.directory, text, count=count, **check.queue._asdict(), **more)


_WHERE_LMQS_ARE = (
    "storeType, rocksdbCQDoubleWriteEnable, combineCQUseRocksdbForLmq,"
    " useSeparateStorePathForRocksdbCQ, enableMultiDispatch"
)
_WITH_OPTIONS = "mqstore recover {store} --broker-config broker.conf"


def _was_numbered(context: VerifyContext, queue: QueueId, position: int) -> bool:
    """Return whether the record at a position has an offset in this LMQ: a broker with enableMultiDispatch gave it, and
    made a unit, perhaps in a RocksDB that is lost. If there is a RocksDB, it has the units, or leaves out topics that
    are not LITE (spec 2.10).
    """
    if context.store.layout.queue_database is not None:
        return False
    try:
        properties = context.store.message_at(position).properties
    except NotFound:
        return False
    named = properties.get(names.INNER_MULTI_DISPATCH, "").split(",")
    numbers = properties.get(names.INNER_MULTI_QUEUE_OFFSET, "").split(",")
    return len(named) == len(numbers) and queue.topic in named


def is_late(context: VerifyContext, missing: MissingUnits, dispatched: int) -> bool:
    """Return whether messages without units lie behind what was dispatched, in a store that was not shut down, or
    behind what a DLedger group has committed.
    """
    behind = missing.position >= dispatched
    return behind and (context.crashed or context.live or context.waits(missing.position))


def _made_since(queues: QueueStates, missing: MissingUnits, queue: QueueId) -> bool:
    """Return whether a running broker has made the units meanwhile, perhaps in a new file."""
    ends = np.array([missing.first, missing.first + missing.count - 1], np.int64)
    units = queues.reader(queue).lookup(ends)
    return bool((units["size"] > 0).all()) and int(units["physical_offset"][0]) == missing.position


def report_ends(context: VerifyContext, queues: QueueStates, check: QueueCheck, seen: QueuePass) -> None:
    """Report how the queue begins and ends."""
    if check.reader.vanished or not check.reader.exists:
        return
    _report_dead_units(context, check, seen)
    _report_no_message(context, check, seen)
    _check_max_offset(context, queues, check, seen)
    if seen.first_file_gone and check.reader.files.files:
        file = check.reader.files.files[0]
        only = len(check.reader.files.files) == 1
        why = "the queue keeps its last file" if only else "a broker deletes it at its next cleaning"
        known = only and not directories_without_files(context.store.layout)
        gone = "are expired" if known else "lie before the log"
        context.queue_finding("I-085", check.queue, file.path, f"all records of this file {gone}: {why}")


def _report_dead_units(context: VerifyContext, check: QueueCheck, seen: QueuePass) -> None:
    """Report units behind the end of the queue as dead (I-062, I-067), but as damage if their records are lost, or if
    they name none and a start keeps them.
    """
    come_back = context.profile.dispatch.counts_puts
    severity = Severity.WARNING if come_back else Severity.INFO
    why = "a broker of this version counts it again (B21)" if come_back else "a broker cuts it"
    report, findings, kept_end = check.reader.report_range, context.findings, seen.kept_end
    for first, end in _pieces(seen.behind, seen):
        more: dict[str, Any] = {"severity": severity}
        text = f"is dead: it lies behind the queue's end, {why}"
        if first < kept_end and seen.wrong.has(np.array([first]))[0]:
            text, more = f"names no message of the queue, but {KEEPS}", {}
        elif first < kept_end:
            text = f"lies behind the queue's end and its record is lost or changed, but {KEEPS}"
        report(findings, "I-062", first, end, text, **more)
    behind = f"it lies behind the log's end {context.log.end}"
    for first, end in _pieces(seen.beyond, seen):
        if first < kept_end:
            text = f"begins before the log's end {context.log.end} and ends behind it, but {KEEPS}"
            more = {} if context.profile.queues.reaches_end else {"severity": Severity.ERROR}
            text += "" if more else "; new messages up to the place where the unit ends may get no unit"
            report(findings, "I-067", first, end, text, **more)
        elif _is_lost(context, check, first):
            report(findings, "I-067", first, end, f"names a lost record, {behind}")
        else:
            report(findings, "I-067", first, end, f"is dead: {behind}, {why}", severity=severity)


KEEPS = "a broker keeps it and counts on from it"


def _pieces(ranges: Ranges, seen: QueuePass) -> Iterator[tuple[int, int]]:
    """Yield the ranges in pieces: a start keeps all or none of a piece, and all or none of it are wrong."""
    edges = {seen.kept_end, *(edge for piece in seen.wrong.ranges() for edge in piece)}
    for first, end in ranges.ranges():
        yield from pairwise([first, *sorted(edge for edge in edges if first < edge < end), end])


def _is_lost(context: VerifyContext, check: QueueCheck, offset: int) -> bool:
    """Return whether the record of a unit behind the log's end was not cut off, but is lost.

    What a broker cuts stays where it was, or goes with the last files. So a record that lies before the end of the
    files, but in none of them, is lost; so is a record in a file that is zero there, unless a broker has started and
    stopped since. Without any record the whole log is lost.
    """
    if not context.log.records:
        return True
    position = int(check.reader.lookup(np.array([offset], np.int64))["physical_offset"][0])
    files = context.store.log_files
    if files.file_at(position) is None:
        return position < files.end
    return context.crashed and not files.read(position, SMALLEST).strip(b"\0")


def _report_no_message(context: VerifyContext, check: QueueCheck, seen: QueuePass) -> None:
    """Report a queue whose units name no record, or whose last unit names none (I-072, I-086, I-087)."""
    files = check.reader.files.files
    if not files:
        return
    if seen.ends_pre_filled:
        path = files[-1 if seen.real else 0].path
        if not seen.real:
            context.queue_finding("I-072", check.queue, path, "it has only pre-fill units")
        context.queue_finding("I-087", check.queue, path, "its last unit is a pre-fill unit, not a message")
    elif not seen.real:
        text, more = "its files hold no valid unit", {}
        rules = context.profile.queues
        refuses = rules.empty_last_refuses and not context.profile.dispatch.when_clean
        if refuses and not context.crashed and context.log.dispatched < context.log.end:
            text += "; queues are behind the log, so a 5.1 broker does not start (B16)"
            more["severity"] = Severity.FATAL
        context.queue_finding("I-086", check.queue, check.reader.directory, text, **more)
    elif seen.live_end < 0 and (seen.beyond or seen.behind):
        text = "all its units are dead, as after a cut of the log"
        context.queue_finding("I-086", check.queue, check.reader.directory, text, severity=Severity.INFO)


def _check_max_offset(context: VerifyContext, queues: QueueStates, check: QueueCheck, seen: QueuePass) -> None:
    """Check that the queue ends with the last message that the log has of it (I-075)."""
    wanted = context.log.next_offset.get(check.queue)
    if wanted is None or context.scope.quick or context.live or not context.log.complete:
        return
    end = max(seen.live_end, 0)
    ahead = max((stop for _, stop in seen.dead), default=0)
    path, offset = check.reader.place(max(end - 1, 0))
    if end > wanted:
        text = f"it ends at {end}, but its last message in the log is {wanted - 1}"
        more = check.of_shift(check.shift) if end - wanted == check.shift else {}
        context.queue_finding("I-075", check.queue, path, text, offset=offset, **more)
    elif end < wanted:
        text = f"it ends at {end}, but the log has messages up to {wanted - 1}"
        behind = [m for m in check.missing if m.first + m.count > end]
        dispatched, more = queues.dispatched_to(check.queue), {}
        if behind and all(is_late(context, m, dispatched) for m in behind):
            more |= context.not_dispatched
            text += ": not dispatched yet"
        context.queue_finding("I-075", check.queue, path, text, offset=offset, **more)
    elif ahead > wanted:
        text = f"dead units follow its end {wanted}, up to {ahead - 1}"
        context.queue_finding("I-075", check.queue, path, text, offset=offset, severity=Severity.INFO)
