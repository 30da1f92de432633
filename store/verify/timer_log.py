"""Checks of the timer log: its entries, by themselves and against the records that they name (I-126 … I-129, I-135).

For all timer checks the entries of the timer log, the slots of the wheel and the records of the timer topic are columns
here (spec 04, 4.4 to 4.6).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any

import numpy as np

from ...formats import message_properties as names
from ...formats.derive.ragged import Bytes, Flags, Ints, Ragged, Structs
from ...formats.hashing_columns import java_hash_column
from ...formats.property_columns import PropertyItems
from ...formats.timer_check import FILE as TIMER_CHECK
from ...formats.timer_log import MAGIC_MAX, UNIT, UNIT_BYTES
from ...formats.timer_wheel import FILE_BYTES
from ..broker.snapshot import FileBytes
from ..broker.system_topics import TIMER_TOPIC
from ..columns import Rows, rows_of
from ..counted import counted
from ..disk.checkpoint import TimerCheck, read_timer_check
from ..disk.compressed import read_regular
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..findings.catalogue import Severity
from ..log.message import tombstones
from ..timer.read import (
    NO_NUMBER,
    NOWHERE,
    TimerEntries,
    TimerRange,
    TimerUnits,
    is_filed_again,
    is_kind,
    open_timer_log,
    timer_log,
    timer_wheel,
    wheel_at_rest,
    wheel_bytes,
)
from ..timer.wheel import Ticks
from .context import Records, VerifyContext, collected, need_whole
from .register import Once, after, of_records

_KEY = "timer records"
_HASH_BASE = np.uint32(31)
_BETWEEN = np.uint32(ord("+"))


class TimerColumns(Rows):
    """n records of the timer topic in log order.

    out_ms: TIMER_OUT_MS, NO_NUMBER without one. topic_hash: of REAL_TOPIC, 0 without one. cancels: the record has
    TIMER_DEL_UNIQKEY. name: hash of the name by which a cancel message names this one; target: hash of the name that a
    cancel message cancels. lost: the record is the tombstone of a lost message.
    """

    position: Ints
    size: Ints
    queue_offset: Ints
    store_timestamp: Ints
    out_ms: Ints
    topic_hash: Ints
    cancels: Flags
    name: Ints
    target: Ints
    lost: Flags

    def at(self, positions: Ints) -> tuple[Ints, Flags]:
        """Return (row, known) of the record that begins at each position."""
        return rows_of(self.position, positions)


@of_records("I-133")
def note_timer_records(context: VerifyContext, records: Records) -> None:
    rows = records.of_topic(TIMER_TOPIC)
    if not len(rows):
        return
    from ..inspect.timer_records import BY_TOPIC, compared_by, numbers  # only needed with timers

    batch = records.batch.take(rows)
    items = PropertyItems(batch.columns.ragged("properties"))
    topic, key = items.find(names.REAL_TOPIC), items.find(names.UNIQ_KEY)
    cancels = items.find(names.TIMER_DEL_UNIQKEY)
    topic_hash, name = java_hash_column(topic), java_hash_column(key).view(np.uint32)
    if compared_by(context.store) == BY_TOPIC:
        shift = np.power(_HASH_BASE, np.maximum(key.length, 0).astype(np.uint32))
        name = (topic_hash.view(np.uint32) * _HASH_BASE + _BETWEEN) * shift + name
    size, queue_offset, time = (batch.columns.ints(n).astype(np.int64) for n in _STORED)
    collected(context, _KEY).append(
        TimerColumns(
            batch.position.copy(),
            size,
            queue_offset,
            time,
            numbers(items.find(names.TIMER_OUT_MS)),
            topic_hash.astype(np.int64),
            cancels.length >= 0,
            name.astype(np.int64),
            java_hash_column(cancels).view(np.uint32).astype(np.int64),
            tombstones(batch.columns) | _cancels_nothing(topic, cancels),
        )
    )


def _cancels_nothing(topic: Ragged, cancels: Ragged) -> Flags:
    """Return which records cancel the name of their own topic: tombstones without room for their mark: bool[n]."""
    found: Flags = (cancels.length >= 0) & (cancels.length == topic.length)
    found &= java_hash_column(cancels) == java_hash_column(topic)
    return found


_STORED = ("total_size", "queue_offset", "store_timestamp")


def timer_columns(context: VerifyContext) -> TimerColumns:
    """Return the columns of all records, after the log has been read."""
    parts = collected(context, _KEY)
    parts[:] = [TimerColumns.concat(parts)]
    joined: TimerColumns = parts[0]
    return joined


@dataclass
class TimerLog:
    """The timer log on disk. ranges: what is not an entry. end: behind the last entry."""

    files: list[MappedFile]
    entries: TimerEntries = field(init=False)
    ranges: list[TimerRange] = field(default_factory=list)
    end: int = 0

    @property
    def start(self) -> int:
        """Position of the first file."""
        return self.files[0].start if self.files else 0

    def file_of(self, position: int) -> MappedFile | None:
        return next((file for file in self.files if file.start <= position < file.end), None)

    def place(self, position: int) -> tuple[str, dict[str, Any]]:
        """Return the file of an entry, and the bytes of it."""
        file = self.file_of(position)
        assert file is not None
        return file.path, {"offset": position - file.start, "length": UNIT_BYTES}

    def aligned(self, positions: Ints) -> Flags:
        """Return which positions are on a unit boundary of their file, or in no file: bool[n]."""
        starts = np.array([file.start for file in self.files], np.int64)
        at = np.searchsorted(starts, positions, side="right") - 1
        inside = (at >= 0) & (len(starts) > 0)
        begin = starts[np.maximum(at, 0)] if len(starts) else np.zeros(len(positions), np.int64)
        found: Flags = ~inside | ((positions - begin) % UNIT_BYTES == 0)
        return found


class Slots(Rows):
    """n slots of the wheel that were used at some time."""

    number: Ints
    time: Ints
    first: Ints
    last: Ints
    num: Ints


class TimerFiles:
    """The files of the timer, each read when it is first used."""

    def __init__(self, context: VerifyContext) -> None:
        self._layout, self._live = context.store.layout, context.live
        self.check_path = self._layout.config / TIMER_CHECK
        self.wheel_path = self._layout.timer_wheel

    @cached_property
    def there(self) -> bool:
        return self.wheel_path.exists() or self.has_check or bool(self.log.files)

    @property
    def has_check(self) -> bool:
        """Whether `timercheck` exists."""
        return self.check_path.exists()

    @cached_property
    def check(self) -> TimerCheck:
        """The values of timercheck; zeros without the file."""
        return read_timer_check(self.check_path) or TimerCheck()

    @cached_property
    def wheel_bytes(self) -> int:
        """Length of the wheel, 0 without the file."""
        return wheel_bytes(self.wheel_path)

    @cached_property
    def slots(self) -> Slots:
        """The slots with a time; none if the file is not a wheel.

        timercheck is read before the wheel, and the wheel before the log: while a broker writes, what is read later is
        at least as new.
        """
        _ = self.check
        parts: list[Slots] = []
        if self.wheel_bytes == FILE_BYTES:
            for number, slots in self.read_wheel():
                used = np.flatnonzero(slots["time"])  # most of a wheel is empty
                names = ("time", "first_pos", "last_pos", "num")
                columns = [number[used], *(slots[name][used].astype(np.int64) for name in names)]
                parts.append(Slots(*columns))
            need_whole([os.fspath(self.wheel_path)])
        return Slots.concat(parts)

    def read_wheel(self) -> Iterable[tuple[Ints, Structs]]:
        """Yield (numbers, slots) of the wheel, in windows. Raise Unreadable."""
        return timer_wheel(self.wheel_path) if self._live else wheel_at_rest(self._layout)

    def open_log(self) -> MappedFileQueue:
        """Open the files of the timer log. Raise Unreadable."""
        return open_timer_log(self._layout)

    def content(self, path: str) -> Bytes | FileBytes:
        """Return the bytes of a file, to be read by slices. Raise Unreadable."""
        return FileBytes(path)

    @cached_property
    def ticks(self) -> Ticks:
        return Ticks.of_store(self._layout)

    @cached_property
    def log(self) -> TimerLog:
        """All entries. Memory: 72 bytes each. Raise Unreadable, UnreadableRange."""
        parts: list[TimerEntries] = []
        with self.open_log() as files:
            log = TimerLog(list(files.files))
            for item in timer_log(files):
                if isinstance(item, TimerUnits):
                    parts.append(TimerEntries.of(*item))
                else:
                    log.ranges.append(item)
        log.files = [file for file in log.files if file.start >= files.gone_before]
        need_whole(file.path for file in log.files)
        log.entries = TimerEntries.concat(parts)
        log.entries = log.entries.take(log.entries.position >= files.gone_before)
        log.end = log.entries.end
        return log


def timer_files(context: VerifyContext) -> TimerFiles:
    return context.kept("timer files", lambda: TimerFiles(context))


def of_timer(*codes: str) -> Callable[[Once], Once]:
    """As `after`, but the check is skipped if the run is limited to another topic."""

    def register(check: Once) -> Once:
        @wraps(check)
        def limited(context: VerifyContext) -> None:
            if context.scope.topic in (None, TIMER_TOPIC):
                check(context)

        return after(*codes)(limited)

    return register


_LOOK = "mqstore dump {path}"
"""Next command about entries that a repair does not change."""


@of_timer("I-126")
def entries_fill_the_log(context: VerifyContext) -> None:
    log = timer_files(context).log
    for number, file in enumerate(log.files):
        last = number == len(log.files) - 1
        mine = [item for item in log.ranges if file.start <= item.position < file.end]
        for item in mine:
            _report_odd_range(context, log, file, item, last)
        if not last and not mine:
            text = "the file is full but has no BLANK: a start reads no later file"
            context.findings.add("I-126", file.path, text, offset=file.size, length=0)


def _report_odd_range(context: VerifyContext, log: TimerLog, file: MappedFile, item: TimerRange, last: bool) -> None:
    offset = item.position - file.start
    if item.kind == "blank":
        return
    entries = log.entries.position
    behind = bool((entries >= item.position).any())
    if item.kind == "zeros":
        if last and not behind:
            if offset == 0 and file.start > 0:
                _report_empty_last_file(context, file)
            return
        text = "zeros in place of entries, with entries behind them"
    elif _has_wrong_magic(file, item):
        return  # an entry except for its magic: I-127 reports it
    else:
        text = "neither an entry nor a BLANK"
    text += ": a start that reads from an older file cuts the timer log here"
    context.findings.add("I-126", file.path, text, offset=offset, length=item.size)


def _report_empty_last_file(context: VerifyContext, file: MappedFile) -> None:
    rules = context.profile.timer
    refuses = rules is not None and not rules.any_size
    what = "the broker does not start" if refuses else "a start takes the queue offset of timercheck"
    text = f"the last file has no entry: {what} (B32)"
    level = Severity.FATAL if refuses else Severity.WARNING
    context.findings.add("I-126", file.path, text, offset=0, length=file.size, severity=level, repair=_LOOK)


def _has_wrong_magic(file: MappedFile, item: TimerRange) -> bool:
    """Return whether the range begins with an entry of which only the magic is wrong."""
    data = read_regular(file.path, item.position - file.start + UNIT_BYTES)
    unit = data[item.position - file.start :]
    if len(unit) < UNIT_BYTES:
        return False
    return bool(UNIT.parse(unit).size == UNIT_BYTES)


@of_timer("I-127")
def entries_are_well_formed(context: VerifyContext) -> None:
    log = timer_files(context).log
    entries = log.entries
    link = (entries.previous >= entries.position) | (entries.previous < NOWHERE)
    reserved = (entries.reserved != 0) & ~link

    def of_link(row: int) -> str:
        place, previous = entries.position[row], entries.previous[row]
        return f"entry at {place}: its link leads to {previous}, which is not before it"

    def of_reserved(row: int) -> str:
        return f"entry at {entries.position[row]}: {entries.reserved[row]} in a field that is always 0"

    def of_magic(row: int) -> str:
        text = "which no broker writes: brokers use only its bits for roll and cancel"
        return f"entry at {entries.position[row]}: its magic is {entries.magic[row]}, {text}"

    _report(context, log, "I-127", link, of_link)
    _report(context, log, "I-127", reserved, of_reserved)
    _report(context, log, "I-127", ~is_kind(entries.magic) & ~reserved & ~link, of_magic, Severity.WARNING)
    for item in log.ranges:
        found = log.file_of(item.position)
        if item.kind == "damage" and found is not None and _has_wrong_magic(found, item):
            offset = item.position - found.start
            text = f"entry at {item.position}: its magic is not between 0 and {MAGIC_MAX}"
            text += "; a start that reads it cuts the timer log there"
            context.findings.add("I-127", found.path, text, offset=offset, length=item.size)


@of_timer("I-128", "I-129")
def entries_name_their_records(context: VerifyContext) -> None:
    files = timer_files(context)
    log, records = files.log, timer_columns(context)
    entries = log.entries
    if not len(entries.position) or not context.read_at_once:
        return
    row, known = records.at(entries.offset_py)
    expired = (entries.offset_py >= 0) & (entries.offset_py < context.log.start)
    if len(records.position):
        same = (records.size[row] == entries.size_py) & (records.topic_hash[row] == entries.topic_hash)
        out_ms = records.out_ms[row]
        due = np.where(entries.rolled, entries.tick_ms < out_ms, entries.tick_ms == out_ms)
        due |= is_filed_again(entries.tick_ms - entries.written_ms, entries.tick_ms, out_ms)
        due &= records.cancels[row] == entries.deletes
        due |= out_ms == NO_NUMBER  # nothing to compare: I-049 reports it
        lost = known & records.lost[row] & (records.size[row] == entries.size_py)
    else:
        same = due = lost = np.zeros(len(row), np.bool_)
    # no broker reads the tick again; a torn entry (B36) may name any tick
    done = (entries.tick_ms < files.check.last_read_time_ms) & (entries.size_py > 0)
    wrong = ~(known & same) & ~lost
    if context.live:
        wrong &= entries.offset_py < context.log.end  # the log was read before later records came

    def of_record(number: int) -> str:
        place = f"entry at {entries.position[number]}"
        if not known[number]:
            return f"{place}: no record of the timer topic begins at {entries.offset_py[number]}"
        size = counted(int(records.size[row[number]]), "byte")
        return (
            f"{place}: the record at {entries.offset_py[number]} has {size}"
            f" and topic hash {records.topic_hash[row[number]]}, not"
            f" {entries.size_py[number]} and {entries.topic_hash[number]}"
        )

    def of_lost(number: int) -> str:
        place = entries.offset_py[number]
        return f"entry at {entries.position[number]}: its message at {place} is lost (marked as lost)"

    def of_time(number: int) -> str:
        at, due_ms = entries.position[number], records.out_ms[row[number]]
        if records.cancels[row[number]] != entries.deletes[number]:
            return f"entry at {at}: either the entry cancels a message or its record does, not both"
        if entries.tick_ms[number] == due_ms:
            return f"entry at {at}: due at {due_ms}, as its record says, but marked to be rolled again"
        return f"entry at {at}: due at {entries.tick_ms[number]}, but its record says {due_ms}"

    _report(context, log, "I-128", wrong & ~expired & ~done, of_record)
    _report(context, log, "I-128", wrong & expired, lambda n: f"{of_record(n)}: expired", Severity.INFO)
    _report(context, log, "I-128", wrong & done & ~expired, lambda n: f"{of_record(n)}: long due", Severity.INFO)
    _report(context, log, "I-128", lost, of_lost, Severity.INFO)
    _report(context, log, "I-129", known & same & ~due & ~lost, of_time)


def _report(
    context: VerifyContext,
    log: TimerLog,
    code: str,
    wrong: Flags,
    message: Callable[[int], str],
    severity: Severity | None = None,
) -> None:
    begins, repair = log.entries.position, _LOOK if severity is Severity.INFO else None
    ends = begins + UNIT_BYTES
    context.file_rows(code, log.files, wrong, begins, ends, message, severity=severity, repair=repair)


@of_timer("I-135")
def the_log_is_expired_with_its_records(context: VerifyContext) -> None:
    log = timer_files(context).log
    if len(log.files) < 2:
        return
    file = log.files[0]
    named = log.entries.offset_py[log.entries.position < file.end]
    if len(named) and 0 <= (last := int(named[-1])) < context.log.start:
        text = f"its last entry names {last}, but the log begins at {context.log.start}"
        context.findings.add("I-135", file.path, text)
