"""Checks of group C: consume queues against the log in both directions (docs/invariants.md, I-060 … I-087).

consumequeue_ext: its units (I-079), and what the units of a queue address there (I-080).

Log to queue: each message has its unit, at its queue offset, with its tag (I-065, I-070). The pass gives the messages
of a queue in log order; the units at their offsets are read and compared as columns. A unit that is not at its offset
is searched for at the distance of its neighbours: a queue that a broker shifted (spec 7.12, B1) is shifted by the same
number for long stretches.

Batch queues (I-081, I-082; spec 2.7) have their units in log order, so they are compared with the messages unit by
unit; a message has no unit if the next units are not its either.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...formats import batch_consume_queue
from ...formats.consume_queue import UNIT_BYTES
from ...formats.consume_queue_ext import ADDRESS_BASE, HEAD, UNIT_BYTES_MIN
from ...formats.derive import dtype_of
from ...formats.derive.ragged import Flags, Ints
from ..audit.messages import DifferenceKind, Messages, compare, points_at
from ..broker.snapshot import QueueId
from ..broker.system_topics import SCHEDULE_TOPIC
from ..counted import counted
from ..disk.byte_reader import noted_of
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import QueueDirectory, queue_directories
from ..disk.lock import stream_of
from ..findings.catalogue import Severity
from ..queues.batches import BATCH_UNIT_DTYPE
from ..queues.ext import ExtRange, ext_units, ext_units_at
from ..queues.read import is_cut
from ..queues.units import Units, is_pre_fill, is_valid, reaches_beyond
from .context import VerifyContext, covered_of
from .queue_files import check_database
from .queue_state import LEFT_OUT, BatchCheck, MissingUnits, QueueCheck, QueueReader, QueueStates, queues_of
from .queue_units import KEEPS, QueuePass, is_late, report_ends, report_missing
from .register import after, of_messages, of_settled
from .start import ProofOfLog

if TYPE_CHECKING:
    from ..audit.prove import ComparedUnits

_HEAD = dtype_of(HEAD)
_SECOND_MS = 1000
_OTHER_LEVELS = "; brokers go by the unit, and messageDelayLevel may have had such a level (--set messageDelayLevel=…)"


@after("I-079")
def ext_files(context: VerifyContext) -> None:
    for directory in queue_directories(context.store.layout.consume_queue_ext):
        if context.scope.wants(directory):
            with stream_of(context.store.layout, directory.path) as files:
                _check_units(context, directory, files)


def _check_units(context: VerifyContext, directory: QueueDirectory, files: MappedFileQueue) -> None:
    for part in ext_units(files):
        if not isinstance(part, ExtRange) or part.kind != "damage":
            continue
        file = files.file_at(part.position)
        head = np.frombuffer(files.read(part.position, UNIT_BYTES_MIN), np.uint8)
        if file is None:
            continue
        offset = part.position - file.start
        size = int(head[: _HEAD.itemsize].view(_HEAD)["size"][0]) if len(head) >= _HEAD.itemsize else 0
        text, severity = "no unit of consumequeue_ext begins here", Severity.WARNING
        if size > file.size - offset:
            text += f", and its size {size} leads beyond the file: 4.9.7 and 5.3.3 do not start (B37)"
            severity = Severity.FATAL
        queue, size = QueueId(directory.topic, directory.queue_id), part.size
        context.queue_finding("I-079", queue, file.path, text, severity=severity, offset=offset, length=size)


def compare_entries(context: VerifyContext, check: QueueCheck, messages: Messages, codes: Ints) -> None:
    """Check that the addresses `codes`, which units of these messages have instead of tags, lead to their ext units."""
    queue = check.queue
    root = context.store.layout.consume_queue_ext
    path = os.fspath(queue.below(root))
    opened = context.kept("ext files", dict[QueueId, MappedFileQueue])
    if queue not in opened:
        opened[queue] = stream_of(context.store.layout, path)
    files = opened[queue]
    positions = codes.astype(np.int64) - np.int64(ADDRESS_BASE)
    found = ext_units_at(files, positions)
    files.close()
    rows, texts, guessed = [], [], []
    wanted = zip(positions.tolist(), messages.tags_code.tolist(), messages.store_timestamp.tolist(), strict=True)
    gone = [noted for file in files.files for noted in noted_of(file.path)]
    for row, (position, tags_code, stored_ms) in enumerate(wanted):
        unit, guess = found.get(position), False
        if unit is None and (gone or position < files.gone_before):
            continue  # the unit may be in bytes that cannot be read, or has expired
        if unit is None:
            text = "no unit begins there" if files.files else "its consumequeue_ext is missing"
        elif unit.tags_code != tags_code:
            text = f"its tags code is {unit.tags_code}, not {tags_code}"
            wait_ms = unit.tags_code - stored_ms
            guess = queue.topic == SCHEDULE_TOPIC and wait_ms > 0 and wait_ms % _SECOND_MS == 0
            text += _OTHER_LEVELS if guess else ""
        elif unit.msg_store_time != stored_ms:
            text = f"its time is {unit.msg_store_time}, not {stored_ms}"
        else:
            continue
        rows.append(row)
        guessed.append(guess)
        texts.append(f" has ext address {position}: {text}")
    for guess, severity in ((False, None), (True, Severity.WARNING)):
        mine = np.flatnonzero(np.array(guessed, np.bool_) == guess)
        offsets = messages.offset[np.array(rows, np.int64)[mine]]
        told = [texts[number] for number in mine[np.argsort(offsets, kind="stable")].tolist()]
        check.reader.report(context.findings, "I-080", np.sort(offsets), told.__getitem__, severity=severity)


_LARGEST_SHIFT = np.iinfo(np.int64).max // 2
_SAMPLES = 8
"""Number of messages to search for, of a batch of messages without a unit at their offsets."""


@of_messages("I-065", "I-080", "I-082")
def units_of_messages(context: VerifyContext, messages: Messages) -> None:
    """Check that each message has its unit at its queue offset, with the tags code that its record asks for."""
    queues = queues_of(context)
    if context.scope.quick or queues.unreadable or not context.scope.wants(messages.queue):
        return
    if queues.is_batch(messages.queue):
        compare_batches(context, queues, messages)
        return
    check = queues.check(messages.queue)
    if not check.reader.exists:
        check.note_missing(messages)
        return
    proof, units = context.states().get(ProofOfLog), None
    if isinstance(proof, ProofOfLog):
        units = proof.laid(messages, check.reader.files)
    if units is None:
        units = check.reader.lookup(messages.offset)
    kinds = compare(units, messages)
    if not kinds.any():
        _note_found(context, check, messages)
        return
    wrong = kinds > DifferenceKind.ADDRESS
    _note_found(context, check, messages.take(~wrong) if wrong.any() else messages)
    _compare_tags(context, check, messages, units["tags_code"], kinds)
    if wrong.any():
        unread = check.reader.unread(messages.offset) & wrong
        if unread.any():  # units in bytes that cannot be read may be right
            check.right.add_any(messages.offset[unread])
        _look_elsewhere(context, check, messages.take(wrong & ~unread))


@of_settled("I-065", "I-080", "I-082")
def units_of_settled(context: VerifyContext, settled: Mapping[QueueId, ComparedUnits]) -> bool:
    """Note that these queues are in order; False if the files that were read are not those of each queue here."""
    queues = queues_of(context)
    if context.scope.quick or queues.unreadable:
        return True
    wanted = {queue: laid for queue, laid in settled.items() if context.scope.wants(queue)}
    if any(queues.is_batch(queue) for queue in wanted):
        return False
    checks = {queue: queues.check(queue) for queue in wanted}
    if not all(check.reader.exists and wanted[queue].is_in(check.reader.files) for queue, check in checks.items()):
        return False
    for queue, check in checks.items():
        check.note_right_row(wanted[queue].messages)
    reach = max((laid.messages.reach(whole=True) for laid in wanted.values()), default=0)
    context.log.dispatched = max(context.log.dispatched, reach)
    return True


def _note_found(context: VerifyContext, check: QueueCheck, messages: Messages) -> None:
    if not len(messages.offset):
        return
    check.note_right(messages)
    reach = int(messages.position[-1]) + int(messages.size[-1])
    context.log.dispatched = max(context.log.dispatched, reach)


def _compare_tags(
    context: VerifyContext, check: QueueCheck, messages: Messages, codes: Ints, kinds: npt.NDArray[np.int8]
) -> None:
    """Check the tags codes of units that name the records of their messages."""
    addresses = np.flatnonzero((kinds == DifferenceKind.ADDRESS) & ~messages.lost)
    if len(addresses):
        compare_entries(context, check, messages.take(addresses), codes[addresses])
    rows = np.flatnonzero((kinds == DifferenceKind.TAGS) & ~messages.lost)
    if not len(rows):
        return
    if check.queue.topic == SCHEDULE_TOPIC:
        rows = check.waits.wrong(messages, codes.astype(np.int64), rows)
    rows = rows[np.argsort(messages.offset[rows], kind="stable")]
    offsets = messages.offset[rows]
    position, asked, codes = messages.position[rows], messages.tags_code[rows], codes[rows]
    check.reader.report(
        context.findings, "I-065", offsets, lambda row: _wrong_tags(codes[row], position[row], asked[row])
    )


def report_waits(context: VerifyContext, check: QueueCheck) -> None:
    """Report messages whose delay is that of no level and of no other message, after the pass over the log.

    Such a message may have waited alone in its level, by a messageDelayLevel that is not known or has changed since.
    """
    alone = sorted(check.waits.alone.values(), key=lambda message: message.offset)
    offsets = np.array([message.offset for message in alone], np.int64)
    texts = [_wrong_tags(*message[1:]) + _OTHER_LEVELS for message in alone]
    check.reader.report(context.findings, "I-065", offsets, texts.__getitem__, severity=Severity.WARNING, repair="")


def _wrong_tags(code: int, position: int, asked: int) -> str:
    return f": tags code {code}, the record at {position} asks for {asked}"


def _look_elsewhere(context: VerifyContext, check: QueueCheck, messages: Messages) -> None:
    """Find units of messages at other queue offsets; note messages without any unit as missing."""
    check.again |= bool(check.right.has(messages.offset).any())
    found = _report_shifted(context, check, messages, check.shift)
    messages = messages.take(~found)
    samples = np.linspace(0, max(0, len(messages.offset) - 1), _SAMPLES).astype(np.int64)
    distances: set[int] = set()
    for row in np.unique(samples).tolist() if len(messages.offset) else ():
        at = _offset_of_unit(check.reader, int(messages.position[row]))
        if at is not None:
            distances.add(at - int(messages.offset[row]))
    # a damaged record may have any queue offset: a shift that could overflow is none
    plausible = {distance for distance in distances if abs(distance) <= _LARGEST_SHIFT}
    for distance in plausible - {check.shift}:
        found = _report_shifted(context, check, messages, distance)
        if found.any():
            check.shift = distance
            messages = messages.take(~found)
    check.note_missing(_without_first(context, check, messages))


def _without_first(context: VerifyContext, check: QueueCheck, messages: Messages) -> Messages:
    """Return the messages without the record at position 0 in front of a queue in a RocksDB, and report that record:
    brokers leave it out when they fill a new database (B40).
    """
    layout = context.store.layout
    first = (messages.position == 0) & (messages.offset < check.reader.first_offset)
    if not layout.rocksdb_queues or not first.any():
        return messages
    text = f" {LEFT_OUT}: no consumer gets it"
    check.reader.report(context.findings, "I-070", messages.offset[first], text, severity=Severity.WARNING)
    return messages.take(~first)


def _offset_of_unit(reader: QueueReader, position: int) -> int | None:
    """Return the queue offset of the unit that names a log position, found by bisection: positions must rise."""
    low, end = reader.first_offset, reader.files.end // UNIT_BYTES
    high = end
    while low < high:
        middle = (low + high) // 2
        unit = reader.lookup(np.array([middle], np.int64))
        if is_valid(unit)[0] and (is_pre_fill(unit)[0] or unit["physical_offset"][0] < position):
            low = middle + 1
        else:
            high = middle
    unit = reader.lookup(np.array([low], np.int64))
    return low if low < end and unit["physical_offset"][0] == position else None


def _report_shifted(context: VerifyContext, check: QueueCheck, messages: Messages, distance: int) -> Flags:
    """Report messages whose unit lies `distance` behind its place; return which, bool[n]."""
    if not distance:
        return np.zeros(len(messages.offset), np.bool_)
    places = messages.offset + distance
    found = points_at(check.reader.lookup(places), messages)
    if not found.any():
        return found
    there = messages.take(found)
    order = np.argsort(places[found], kind="stable")
    offsets, wanted = places[found][order], there.offset[order]
    check.elsewhere.add(offsets)
    reach = int((there.position + there.size).max())
    context.log.dispatched = max(context.log.dispatched, reach)
    text = f"shifted by {distance}"
    check.reader.report(
        context.findings,
        "I-064",
        offsets,
        lambda row: f" is for message {wanted[row]}: {text}",
        **check.of_shift(distance),
    )
    return found


@after(
    *("I-061", "I-062", "I-063", "I-064", "I-065", "I-066", "I-067", "I-068", "I-069", "I-070"),
    *("I-071", "I-072", "I-075", "I-084", "I-085", "I-086", "I-087"),
)
def units_of_queues(context: VerifyContext) -> None:
    """Check all units of all queues, and report the messages that have none."""
    queues = queues_of(context)
    if queues.unreadable:
        check_database(context, queues)
        return
    for queue in sorted(queues.paths.keys() | queues.checks.keys() | context.log.missing.keys()):
        if not context.scope.wants(queue):
            continue
        check = queues.check(queue)
        seen = QueuePass(context, queues, check)
        seen.run()
        # a RocksDB knows the end of a queue without units, too
        check.live_end = max(seen.live_end, check.reader.first_offset if queues.in_database(queue) else 0)
        report_ends(context, queues, check, seen)
        report_missing(context, queues, check)
        report_waits(context, check)
    check_database(context, queues)


def compare_batches(context: VerifyContext, queues: QueueStates, messages: Messages) -> None:
    """Compare messages of a batch queue, in log order, with its next units."""
    check = queues.batch_check(messages.queue)
    check.end = max(check.end, int((messages.offset + messages.number).max()))
    begin, rows = 0, len(messages.offset)
    while begin < rows:
        units = _next_units(check, rows - begin)
        if not len(units):
            break
        wanted = messages.position[begin : begin + len(units)]
        at = units["physical_offset"][: len(wanted)]
        differs = np.flatnonzero(at != wanted)
        same = int(differs[0]) if len(differs) else len(wanted)
        part = slice(begin, begin + same)
        _compare_fields(context, check, messages.take(part), units[:same])
        if same:
            check.next += same
            begin += same
            reach = int(messages.position[begin - 1] + messages.size[begin - 1])
            context.log.dispatched = max(context.log.dispatched, reach)
        if same < len(wanted):
            begin = _skip(context, check, messages, begin, units[same])
    _note_missing_batches(check, messages, begin, rows)


def _next_units(check: BatchCheck, count: int) -> Units:
    """Return up to `count` units from the next one on that has not expired; none of the zeros behind the last unit."""
    check.next = max(check.next, check.units.first)
    number, units = next(check.units.units(check.next, check.next + count), (0, np.zeros(0, BATCH_UNIT_DTYPE)))
    check.units.close()
    if number != check.next:
        return units[:0]  # the next unit cannot be read
    written = np.flatnonzero(units != np.zeros(1, BATCH_UNIT_DTYPE))
    return units[: max(check.units.stop - number, int(written[-1]) + 1 if len(written) else 0)]


def _skip(context: VerifyContext, check: BatchCheck, messages: Messages, begin: int, unit: Any) -> int:
    """Skip the next unit, which is not that of message `begin`, or the messages in front of the unit's own one."""
    position = int(unit["physical_offset"])
    valid = bool(is_valid(np.array([unit], BATCH_UNIT_DTYPE))[0])
    later = begin + int(np.searchsorted(messages.position[begin:], position))
    if valid and later < len(messages.position) and messages.position[later] == position:
        _note_missing_batches(check, messages, begin, later)
        return later
    if valid and position > int(messages.position[-1]):
        _note_missing_batches(check, messages, begin, len(messages.position))
        return len(messages.position)
    read = position >= context.log.start and bool(covered_of(context).has(np.array([position], np.int64))[0])
    if read or not valid:
        what = f"names {position}, where no message of the queue begins" if valid else "is invalid"
        _report_batch_unit(context, check, "I-062" if valid else "I-061", check.next, what)
    check.next += 1
    return begin


def _note_missing_batches(check: BatchCheck, messages: Messages, begin: int, end: int) -> None:
    if begin < end:
        position = int(messages.position[begin])
        reach = int(messages.position[end - 1] + messages.size[end - 1])
        check.missing.append(MissingUnits(int(messages.offset[begin]), end - begin, position, reach))


def _report_missing_batches(context: VerifyContext, queues: QueueStates, check: BatchCheck) -> None:
    now = queues.batch_reader(check.queue) if context.live and check.missing else None
    begin = context.begin_now() if check.missing else 0
    for missing in check.missing:
        unit = now.find(missing.first) if now is not None else None
        if unit is not None and unit.physical_offset == missing.position:
            continue  # a running broker has made it since
        if missing.end <= begin:
            continue  # it has expired since
        text = f"{check.queue} has no unit for message {missing.first}, record at"
        text += f" {missing.position}"
        if not check.units.files.files:
            records = counted(missing.count, "record", form=",")
            text = f"the queue {check.queue} is missing: the log has {records} of it"
        more: dict[str, Any] = {}
        if is_late(context, missing, context.log.dispatched):
            more |= context.not_dispatched
            text += ": not dispatched yet"
        context.findings.add("I-070", check.directory, text, count=missing.count, **check.queue._asdict(), **more)


def _compare_fields(context: VerifyContext, check: BatchCheck, messages: Messages, units: Units) -> None:
    """Check the other fields of units that name the right records."""
    wanted: dict[str, tuple[str, Any]] = {
        "size": ("I-062", messages.size),
        "tags_code": ("I-065", messages.tags_code),
        "msg_base_offset": ("I-082", messages.offset),
        "batch_size": ("I-082", messages.number),
        "store_time": ("I-082", messages.store_timestamp),
        "compacted_offset": ("I-082", batch_consume_queue.NO_COMPACTED_OFFSET),
        "reserved": ("I-082", 0),
    }
    for name, (code, value) in wanted.items():
        right = np.broadcast_to(np.asarray(value, np.int64), len(units))
        for row in np.flatnonzero(units[name] != right).tolist():
            text = f"{name} is {units[name][row]}, the record at"
            text += f" {messages.position[row]} has {right[row]}"
            _report_batch_unit(context, check, code, check.next + row, text)


def _report_batch_unit(
    context: VerifyContext, check: BatchCheck, code: str, number: int, text: str, **more: Any
) -> None:
    file = check.units.files.file_at(number * batch_consume_queue.UNIT_BYTES)
    path, text = file.path if file else check.directory, f"{check.queue} batch unit {number}: {text}"
    place: dict[str, Any] = (
        {"offset": number * batch_consume_queue.UNIT_BYTES - file.start, "length": batch_consume_queue.UNIT_BYTES}
        if file
        else {}
    )
    context.findings.add(code, path, text, **check.queue._asdict(), **place, **more)


@after("I-081")
def batch_units(context: VerifyContext) -> None:
    queues = queues_of(context)
    for queue in sorted(queues.batch_paths.keys() | queues.batch_checks.keys()):
        if context.scope.wants(queue):
            check = queues.batch_check(queue)
            _BatchOrder(context, check).run()
            _report_missing_batches(context, queues, check)


class _BatchOrder:
    """Checks the order of units in one batch queue."""

    def __init__(self, context: VerifyContext, check: BatchCheck) -> None:
        self._context = context
        self._check = check
        self._end: int | None = None
        self._whole = context.log.complete and not context.scope.quick and not context.live

    def run(self) -> None:
        units = self._check.units
        for first, window in units.units(units.first, units.stop):
            self._check_window(first, window)
        units.close()
        self._check_end()

    def _check_window(self, first: int, units: Units) -> None:
        base = units["msg_base_offset"].astype(np.int64)
        count = units["batch_size"].astype(np.int64)
        position = units["physical_offset"].astype(np.int64)
        named = (position >= 0) & (units["size"] > 0)
        before = np.append(np.int64(base[0] if self._end is None else self._end), base + count)[:-1]
        wrong = (base < 0) | (count < 1) | (base != before)
        for row in np.flatnonzero(wrong & named).tolist():
            messages = counted(int(count[row]), "message")
            text = f"it begins at {base[row]} with {messages}, but the one before ends at"
            _report_batch_unit(self._context, self._check, "I-081", first + row, f"{text} {before[row]}")
        dead = named & reaches_beyond(units, self._context.log.end)
        if not self._whole or not dead.any():
            self._end = int(base[-1] + count[-1])
            return
        live = np.flatnonzero(named & ~dead)
        for row in np.flatnonzero(dead).tolist():
            at_end = not len(live) or row > live[-1]
            text = f"it ends behind the log's end {self._context.log.end}"
            cut = is_cut(int(position[row]), self._context.log.end)
            text += ", but units follow" if not at_end else ": dead, a broker cuts it" if cut else f": {KEEPS}"
            more = {"severity": Severity.INFO if cut else Severity.ERROR} if at_end else {}
            _report_batch_unit(self._context, self._check, "I-067", first + row, text, **more)
        if len(live):
            self._end = int(base[live[-1]] + count[live[-1]])

    def _check_end(self) -> None:
        context, check = self._context, self._check
        if not self._whole or not check.end or self._end == check.end:
            return
        text = f"{check.queue} ends at {self._end or 0}, but the log has messages up to {check.end - 1}"
        more: dict[str, Any] = {}
        if context.crashed and (self._end or 0) < check.end:
            more = {"severity": Severity.INFO, "unclean": True}
        context.findings.add("I-075", check.directory, text, **check.queue._asdict(), **more)
