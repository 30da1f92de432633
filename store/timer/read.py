"""Timer log and timer wheel: delayed messages of 5.x brokers (spec 04, 4.4 to 4.6).

The timer log is a stream of units of one size, counted from the start of each file; behind the last
unit of a file stands a BLANK, behind the last unit of all there are zeros. The wheel is one array of
slots. Both are read in windows, and nothing in them is believed: links are not followed here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ...formats.blank import MAGIC_BLANK
from ...formats.derive import dtype_of
from ...formats.timer_log import BLANK, BLANK_BYTES, MAGIC_BLANK_SIGNED, UNIT, UNIT_BYTES
from ...formats.timer_wheel import SLOT, SLOT_BYTES
from ..disk.byte_reader import next_data, noted_of
from ..disk.compressed import open_any
from ..disk.file_queue import MappedFile, MappedFileQueue, parts_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

WINDOW_UNITS = 1 << 14
"""Units or slots that are read at once."""


class TimerUnits(NamedTuple):
    """Units in a row: stream positions int64[n] and a structured array of `timer_log.UNIT`."""

    position: npt.NDArray[np.int64]
    units: npt.NDArray[np.void]


class TimerRange(NamedTuple):
    """What is no unit. kind: `blank`, `damage`, or `zeros` (never written)."""

    kind: str
    position: int
    size: int


def timer_log(
    files: MappedFileQueue, start: int | None = None
) -> Iterator[TimerUnits | TimerRange]:
    """The timer log in order, from stream position `start` on. Raises Unreadable.

    Damage ends at the next unit: units lie at multiples of their size in each file.
    """
    for file in files.files:
        if start is None or start < file.end:
            yield from _joined(_file(files, file, max(0, (start or 0) - file.start)))


def _file(
    files: MappedFileQueue, file: MappedFile, start: int
) -> Iterator[TimerUnits | TimerRange]:
    first = -(-start // UNIT_BYTES) * UNIT_BYTES
    window = WINDOW_UNITS * UNIT_BYTES
    reached = first
    for offset, data in files.windows(file, first, file.size, window, UNIT_BYTES):
        yield from _hole(file, reached, offset)
        yield from _window(data, file, offset)
        reached = offset + len(data)
    yield from _hole(file, reached, file.size)


def _hole(file: MappedFile, begin: int, end: int) -> Iterator[TimerRange]:
    """Zeros that no disk has, unless they are bytes that it does not give."""
    if begin < end and not any(u.offset < end and u.end > begin for u in noted_of(file.path)):
        yield TimerRange("zeros", file.start + begin, end - begin)


def _window(
    data: bytes | bytearray, file: MappedFile, offset: int
) -> Iterator[TimerUnits | TimerRange]:
    """Runs of units, of zeros and of anything else in one window, up to the BLANK of the file."""
    import numpy as np

    from .entries import is_entry

    whole = len(data) // UNIT_BYTES
    units = np.frombuffer(data, dtype_of(UNIT), whole)
    position = file.start + offset + np.arange(whole, dtype=np.int64) * UNIT_BYTES
    kind = np.where(_written(data, whole, UNIT_BYTES), _DAMAGE, _ZEROS)
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
        yield _rest(rest, file.start + offset + whole * UNIT_BYTES, file)


_UNIT, _DAMAGE, _ZEROS = range(3)


def _written(data: bytes | bytearray, count: int, size: int) -> npt.NDArray[np.bool_]:
    """bool[count]: which of the pieces of `size` bytes are not all zeros."""
    import numpy as np

    pieces = np.frombuffer(data, np.uint8, count * size).reshape(count, size)
    return np.asarray(pieces.any(axis=1), np.bool_)


def _rest(data: bytes | bytearray, position: int, file: MappedFile) -> TimerRange:
    """The bytes behind the last place for a unit: the BLANK of the file, zeros or damage."""
    if len(data) >= BLANK_BYTES and position + len(data) == file.end:
        blank = BLANK.parse(data)
        if blank.magic == MAGIC_BLANK and blank.size == len(data):
            return TimerRange("blank", position, len(data))
    return TimerRange("damage" if any(data) else "zeros", position, len(data))


def _joined(parts: Iterator[TimerUnits | TimerRange]) -> Iterator[TimerUnits | TimerRange]:
    """Ranges of one kind that touch, as one; what a BLANK covers is part of it."""
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
    """Slots that were used: their numbers int64[n] and a structured array of `timer_wheel.SLOT`."""

    number: npt.NDArray[np.int64]
    slots: npt.NDArray[np.void]


def _next_used(descriptor: int, slot: int) -> int:
    """The first slot from `slot` on that is not in a hole of a sparse file, or one behind its end."""
    found = next_data(descriptor, slot * SLOT_BYTES)
    end = os.fstat(descriptor).st_size if found is None else found
    return max(slot, end // SLOT_BYTES)


def timer_wheel(
    path: str | os.PathLike[str], start: int = 0, unused: bool = False
) -> Iterator[WheelSlots]:
    """The slots of a wheel from number `start` on, without those that are all zeros.

    unused: those, too. Without it holes of a sparse file are not read. Slots that cannot be read are
    left out and noted. Raises Missing, Unreadable, UnreadableRange where nobody notes them.
    """
    descriptor = open_any(path)
    try:
        end = os.fstat(descriptor).st_size // SLOT_BYTES
        while True:
            if not unused:
                start = _next_used(descriptor, start)
            count = min(WINDOW_UNITS, end - start)
            if count <= 0:
                break
            at, size = start * SLOT_BYTES, count * SLOT_BYTES
            for offset, data in parts_of(descriptor, size, at, os.fspath(path), SLOT_BYTES):
                found = _slots(data, offset // SLOT_BYTES, unused)
                if len(found.slots):
                    yield found
            start += count
    finally:
        os.close(descriptor)


def _slots(data: bytes | bytearray, first: int, unused: bool) -> WheelSlots:
    """The slots in a piece of a wheel that begins with number `first`."""
    import numpy as np

    count = len(data) // SLOT_BYTES
    slots = np.frombuffer(data, dtype_of(SLOT), count)
    numbers = first + np.arange(count, dtype=np.int64)
    if unused:
        return WheelSlots(numbers, slots)
    keep = _written(data, count, SLOT_BYTES)
    return WheelSlots(numbers[keep], slots[keep])
