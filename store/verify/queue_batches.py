"""Checks of batch consume queues against the log (I-070, I-075, I-081, I-082; spec 2.7).

Units are in log order, so unit by unit they are compared with the messages; a message has no unit if the next units are
not its either.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...formats.batch_consume_queue import NO_COMPACTED_OFFSET, UNIT_BYTES
from ..audit.messages import Messages
from ..counted import counted
from ..findings.catalogue import Severity
from ..queues.batches import BATCH_UNIT_DTYPE
from ..queues.read import is_cut
from ..queues.units import Units, is_valid, reaches_beyond
from .context import VerifyContext, covered_of
from .queue_state import BatchCheck, MissingUnits, QueueStates, queues_of
from .queue_units import KEEPS, is_late
from .register import after


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
    _note_missing(check, messages, begin, rows)


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
        _note_missing(check, messages, begin, later)
        return later
    if valid and position > int(messages.position[-1]):
        _note_missing(check, messages, begin, len(messages.position))
        return len(messages.position)
    read = position >= context.log.start and bool(covered_of(context).has(np.array([position], np.int64))[0])
    if read or not valid:
        what = f"names {position}, where no message of the queue begins" if valid else "is invalid"
        _report(context, check, "I-062" if valid else "I-061", check.next, what)
    check.next += 1
    return begin


def _note_missing(check: BatchCheck, messages: Messages, begin: int, end: int) -> None:
    """Note that messages [begin, end) have no unit."""
    if begin < end:
        position = int(messages.position[begin])
        reach = int(messages.position[end - 1] + messages.size[end - 1])
        check.missing.append(MissingUnits(int(messages.offset[begin]), end - begin, position, reach))


def _report_missing(context: VerifyContext, queues: QueueStates, check: BatchCheck) -> None:
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
        "compacted_offset": ("I-082", NO_COMPACTED_OFFSET),
        "reserved": ("I-082", 0),
    }
    for name, (code, value) in wanted.items():
        right = np.broadcast_to(np.asarray(value, np.int64), len(units))
        for row in np.flatnonzero(units[name] != right).tolist():
            text = f"{name} is {units[name][row]}, the record at"
            text += f" {messages.position[row]} has {right[row]}"
            _report(context, check, code, check.next + row, text)


def _report(context: VerifyContext, check: BatchCheck, code: str, number: int, text: str, **more: Any) -> None:
    file = check.units.files.file_at(number * UNIT_BYTES)
    path, text = file.path if file else check.directory, f"{check.queue} batch unit {number}: {text}"
    place: dict[str, Any] = {"offset": number * UNIT_BYTES - file.start, "length": UNIT_BYTES} if file else {}
    context.findings.add(code, path, text, **check.queue._asdict(), **place, **more)


@after("I-081")
def batch_units(context: VerifyContext) -> None:
    queues = queues_of(context)
    for queue in sorted(queues.batch_paths.keys() | queues.batch_checks.keys()):
        if context.scope.wants(queue):
            check = queues.batch_check(queue)
            _Sequence(context, check).run()
            _report_missing(context, queues, check)


class _Sequence:
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
            _report(self._context, self._check, "I-081", first + row, f"{text} {before[row]}")
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
            _report(self._context, self._check, "I-067", first + row, text, **more)
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
