"""Timer log and timer wheel for reading: delayed messages of 5.x brokers (spec 04, 4.4 to 4.6).

The timer log is a stream of units of one size, counted from the start of each file; behind the last unit of a file
stands a BLANK, behind the last unit of all there are zeros. The wheel is an array of slots. Both are read in windows,
without trusting links. `TimerEntries` has entries as columns, says which are valid, and `follow` walks their chains.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from ...formats.blank import MAGIC_BLANK
from ...formats.derive import dtype_of
from ...formats.derive.ragged import Flags, Ints, Structs, written
from ...formats.timer_log import (
    BLANK,
    BLANK_BYTES,
    MAGIC_BLANK_SIGNED,
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_MAX,
    MAGIC_ROLL,
    UNIT,
    UNIT_BYTES,
)
from ...formats.timer_wheel import SLOT, SLOT_BYTES, SLOTS
from ..columns import Rows, begins, rows_of
from ..disk.byte_reader import next_data, noted_of, parts_of
from ..disk.compressed import open_any
from ..disk.file_queue import MappedFile, MappedFileQueue, is_zero
from ..disk.layout import Layout
from ..disk.lock import stream_of

WINDOW_UNITS = 1 << 14
"""Units or slots in a window."""


class TimerUnits(NamedTuple):
    """Consecutive units: stream positions int64[n] and a structured array of `timer_log.UNIT`."""

    position: Ints
    units: Structs


class TimerRange(NamedTuple):
    """Bytes that are no unit. kind: `blank`, `damage`, or `zeros` (never written)."""

    kind: str
    position: int
    size: int


def open_timer_log(layout: Layout) -> MappedFileQueue:
    """Open the files of a store's timer log. Raises Unreadable."""
    size, origin = layout.broker_config.size("mappedFileSizeTimerLog")
    return stream_of(layout, layout.timer_log, size if origin != "default" else None, told=True)


def timer_log(files: MappedFileQueue, start: int | None = None) -> Iterator[TimerUnits | TimerRange]:
    """Yield units and ranges in order, from stream position `start` on. Raises Unreadable.

    Damage ends at the next unit: units lie at multiples of their size in each file.
    """
    for file in files.files:
        if start is None or start < file.end:
            yield from _merge_ranges(_units_and_ranges(files, file, max(0, (start or 0) - file.start)))


def _units_and_ranges(files: MappedFileQueue, file: MappedFile, start: int) -> Iterator[TimerUnits | TimerRange]:
    first = -(-start // UNIT_BYTES) * UNIT_BYTES
    window = WINDOW_UNITS * UNIT_BYTES
    reached = first
    for offset, data in files.windows(file, first, file.size, window, UNIT_BYTES):
        yield from _hole(file, reached, offset)
        yield from _window(data, file, offset)
        reached = offset + len(data)
    if file.start >= files.gone_before:
        yield from _hole(file, reached, file.size)


def _hole(file: MappedFile, begin: int, end: int) -> Iterator[TimerRange]:
    """Yield a hole of the file as zeros, unless some of its bytes are known to be unreadable."""
    if begin < end and not any(u.offset < end and u.end > begin for u in noted_of(file.path)):
        yield TimerRange("zeros", file.start + begin, end - begin)


def _window(data: bytes | bytearray, file: MappedFile, offset: int) -> Iterator[TimerUnits | TimerRange]:
    """Yield runs of units, zeros and anything else in one window, up to the BLANK of the file."""
    whole = len(data) // UNIT_BYTES
    units = np.frombuffer(data, dtype_of(UNIT), whole)
    position = file.start + offset + np.arange(whole, dtype=np.int64) * UNIT_BYTES
    kind = np.where(written(data, whole, UNIT_BYTES), _DAMAGE, _ZEROS)
    kind[is_entry(units)] = _UNIT
    blank = (units["magic"] == MAGIC_BLANK_SIGNED) & (units["size"] == file.end - position)
    end = int(np.argmax(blank)) if blank.any() else whole
    edges = [0, *(np.flatnonzero(np.diff(kind[:end])) + 1).tolist(), end]
    for first, behind in pairwise(edges if end else []):
        if kind[first] == _UNIT:
            yield TimerUnits(position[first:behind], units[first:behind])
        else:
            name = "zeros" if kind[first] == _ZEROS else "damage"
            yield TimerRange(name, int(position[first]), (behind - first) * UNIT_BYTES)
    if end < whole:
        yield TimerRange("blank", int(position[end]), file.end - int(position[end]))
    elif rest := data[whole * UNIT_BYTES :]:
        yield _range_behind_units(rest, file.start + offset + whole * UNIT_BYTES, file)


_UNIT, _DAMAGE, _ZEROS = range(3)


def _range_behind_units(data: bytes | bytearray, position: int, file: MappedFile) -> TimerRange:
    """The bytes behind the last whole unit: the BLANK of the file, zeros or damage."""
    if len(data) >= BLANK_BYTES and position + len(data) == file.end:
        blank = BLANK.parse(data)
        if blank.magic == MAGIC_BLANK and blank.size == len(data):
            return TimerRange("blank", position, len(data))
    return TimerRange("zeros" if is_zero(data) else "damage", position, len(data))


def _merge_ranges(parts: Iterator[TimerUnits | TimerRange]) -> Iterator[TimerUnits | TimerRange]:
    """Merge adjacent ranges of one kind; drop ranges that a BLANK covers."""
    last: TimerRange | None = None
    for part in parts:
        if isinstance(part, TimerUnits):
            if last is not None:
                yield last
                last = None
            yield part
        elif last is not None and part.position < last.position + last.size:
            continue
        elif last is not None and part.kind == last.kind:
            last = last._replace(size=part.position + part.size - last.position)
        else:
            if last is not None:
                yield last
            last = part
    if last is not None:
        yield last


class WheelSlots(NamedTuple):
    """Slots: their numbers int64[n] and a structured array of `timer_wheel.SLOT`."""

    number: Ints
    slots: Structs


def _first_outside_hole(descriptor: int, slot: int) -> int:
    """The first slot from `slot` on that is not in a hole of a sparse file; behind the last slot if there is none."""
    found = next_data(descriptor, slot * SLOT_BYTES)
    end = os.fstat(descriptor).st_size if found is None else found
    return max(slot, end // SLOT_BYTES)


def timer_wheel(path: str | os.PathLike[str], start: int = 0, unused: bool = False) -> Iterator[WheelSlots]:
    """Yield the slots of a wheel from number `start` on, without all-zero ones.

    unused: yield all-zero slots, too; without it holes of a sparse file are not read. Slots that cannot be read are
    left out and noted. Raises Missing, Unreadable; UnreadableRange if nobody takes the notes.
    """
    descriptor = open_any(path)
    try:
        end = os.fstat(descriptor).st_size // SLOT_BYTES
        while True:
            if not unused:
                start = _first_outside_hole(descriptor, start)
            count = min(WINDOW_UNITS, end - start)
            if count <= 0:
                break
            at, size = start * SLOT_BYTES, count * SLOT_BYTES
            for offset, data in parts_of(descriptor, size, at, os.fspath(path), SLOT_BYTES):
                if unused or not is_zero(data):
                    yield _slots(data, offset // SLOT_BYTES, unused)
            start += count
    finally:
        os.close(descriptor)


_KEPT_SLOTS = 1 << 16


class _KeptWheel:
    """The slots of a store's wheel, kept in memory if few of them were ever used."""

    def __init__(self, layout: Layout) -> None:
        self._path = layout.timer_wheel
        self._read_status: tuple[int, int, int] | None = None
        self._parts: list[WheelSlots] = []

    def parts(self) -> Iterable[WheelSlots]:
        """The slots; reads the file again if it has changed."""
        status = self._path.stat()
        now = status.st_ino, status.st_mtime_ns, status.st_size
        if now == self._read_status:
            return self._parts
        parts = list(timer_wheel(self._path))
        few = sum(len(part.number) for part in parts) <= _KEPT_SLOTS
        if few and not noted_of(os.fspath(self._path)):
            self._read_status, self._parts = now, parts
        return parts


def wheel_bytes(wheel: Path) -> int:
    """Length of a wheel file, 0 without the file."""
    return wheel.stat().st_size if wheel.exists() else 0


def wheel_at_rest(layout: Layout) -> Iterable[WheelSlots]:
    """`timer_wheel` of a store, read once for a layout as long as the file stays the same.

    Only for a store that nobody writes: a broker's memory map changes the file without changing its times. Raises as
    `timer_wheel`, and OSError.
    """
    return layout.once(_KeptWheel).parts()


def _slots(data: bytes | bytearray, first: int, unused: bool) -> WheelSlots:
    """The slots in some bytes of a wheel; first: number of the first slot. unused: keep all-zero slots."""
    count = len(data) // SLOT_BYTES
    slots = np.frombuffer(data, dtype_of(SLOT), count)
    numbers = first + np.arange(count, dtype=np.int64)
    if unused:
        return WheelSlots(numbers, slots)
    keep = written(data, count, SLOT_BYTES)
    return WheelSlots(numbers[keep], slots[keep])


NO_NUMBER = -1
"""Value for a property that is absent, or no number of at most 18 digits."""
NOWHERE = -1
"""Target of the link of an entry that is the first of its chain."""
CUT = -2
"""Target of a link to a position at which no entry begins."""


def is_entry(units: Structs) -> Flags:
    """bool[n]: a broker takes the unit for an entry."""
    found: Flags = (units["size"] == UNIT_BYTES) & (units["magic"] >= 0)
    found &= units["magic"] <= MAGIC_MAX
    return found


def is_kind(magic: Ints) -> Flags:
    """bool[n]: a magic that brokers write; they read others up to `MAGIC_MAX` by their bits."""
    found: Flags = magic & ~np.int64(MAGIC_ROLL | MAGIC_DELETE) == MAGIC_DEFAULT
    return found


def due_ms(units: Structs) -> Ints:
    """int64[n]: time (ms) at which the tick of each entry is due."""
    found: Ints = units["curr_write_time"].astype(np.int64) + units["delayed_time"]
    return found


def is_filed_again(delay_ms: Ints, tick_ms: Ints, out_ms: Ints) -> Flags:
    """bool[n]: a repair has put the entry behind the time of its message, where no start would have read it any more.
    No broker writes such an entry: if it has no time to wait, its message is due in its tick.
    """
    found: Flags = (delay_ms == 0) & (tick_ms > out_ms) & (out_ms >= 0)
    return found


def is_in_place(numbers: Ints, time: Ints) -> Flags:
    """bool[n]: the slot of the wheel has the number that its tick belongs to."""
    found: Flags = time % SLOTS == numbers
    return found


class TimerEntries(Rows):
    """n entries in log order; names as in the schema. tick_ms: when each is due. written_ms: time of the write tick."""

    position: Ints
    previous: Ints
    tick_ms: Ints
    offset_py: Ints
    size_py: Ints
    magic: Ints
    topic_hash: Ints
    reserved: Ints
    written_ms: Ints

    @classmethod
    def of(cls, position: Ints, units: Structs) -> Self:
        """The entries of units at these stream positions."""
        rest = ("offset_py", "size_py", "magic", "hash_code_of_real_topic", "reserved", "curr_write_time")
        columns = (units["prev_pos"], due_ms(units), *(units[name] for name in rest))
        return cls(position, *(column.astype(np.int64) for column in columns))

    @property
    def rolled(self) -> Flags:
        """bool[n]: the entry has to go round once more."""
        found: Flags = (self.magic & MAGIC_ROLL) != 0
        return found

    @property
    def deletes(self) -> Flags:
        """bool[n]: the entry is of a cancel message."""
        found: Flags = (self.magic & MAGIC_DELETE) != 0
        return found

    @property
    def end(self) -> int:
        """Stream position behind the last entry, 0 without entries."""
        return int(self.position[-1]) + UNIT_BYTES if len(self) else 0

    def alive_ms(self, now_ms: int) -> int:
        """A time (ms) at which a broker wrote, up to `now_ms`, as its clock may have been ahead; 0 without entries: the
        second newest, as the newest may be damaged.
        """
        return min(int(np.sort(self.written_ms)[-2:][0]), now_ms) if len(self) else 0

    def at(self, positions: Ints) -> tuple[Ints, Flags]:
        """Row of the entry that begins at each position, and whether there is one."""
        return rows_of(self.position, positions)

    def rows(self, positions: Ints) -> Ints:
        """Row of the entry that begins at each position, CUT if there is none."""
        row, known = self.at(positions)
        return np.where(known, row, CUT)

    @cached_property
    def before(self) -> Ints:
        """Row of the entry that each names as the one before it; NOWHERE or CUT without one."""
        return np.where(self.previous == NOWHERE, NOWHERE, self.rows(self.previous))


def follow(before: Ints, heads: Ints) -> tuple[Ints, Ints]:
    """Walk chains back from their newest entries. Returns by entry the head that leads to it, or NOWHERE; and by head
    where its chain ends: NOWHERE, CUT, or a row if it is a loop.

    before: as of `TimerEntries`. heads: rows. Follows all chains at once, in steps of one, two, four … entries: long
    chains take little time, and loops end.
    """
    owner = np.full(len(before), NOWHERE, np.int64)
    owner[heads] = np.arange(len(heads))
    end, jump = heads, before
    for _ in range(max(len(before), 1).bit_length()):
        source = np.flatnonzero((owner != NOWHERE) & (jump >= 0))
        target = jump[source]
        new = owner[target] == NOWHERE
        owner[target[new]] = owner[source[new]]
        end, jump = _jump_along(end, jump), _jump_along(jump, jump)
    return owner, end


def _jump_along(at: Ints, jump: Ints) -> Ints:
    """Where the jumps lead; what is no row stays as it is."""
    return np.where(at >= 0, jump[np.maximum(at, 0)], at) if len(jump) else at


class ByTick(NamedTuple):
    """Entries sorted by tick, then by position. rows: of the entries. first: bool[n], the entry is the first of its
    tick. before: int64[n], position of the entry before it in its tick, NOWHERE without one.
    """

    rows: Ints
    first: Flags
    before: Ints

    @classmethod
    def of(cls, tick: Ints, position: Ints) -> Self:
        """Sort entries of these ticks at these positions."""
        rows = np.lexsort((position, tick))
        first = begins(tick[rows])
        before = np.append(NOWHERE, position[rows][:-1])[: len(rows)]
        return cls(rows, first, np.where(first, NOWHERE, before))
