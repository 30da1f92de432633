"""Timer log and timer wheel: delayed messages of 5.x brokers (spec 04, 4.4 to 4.6).

The timer log is a stream of units of one size, counted from the start of each file; behind the last
unit of a file stands a BLANK, behind the last unit of all there are zeros. The wheel is one array of
slots. Both are read in windows, and nothing in them is believed: links are not followed here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..formats.blank import MAGIC_BLANK
from ..formats.derive import dtype_of
from ..formats.timer_log import BLANK, BLANK_BYTES, MAGIC_MAX, UNIT, UNIT_BYTES
from ..formats.timer_wheel import SLOT, SLOT_BYTES
from .errors import from_os_error
from .mapped_file_queue import MappedFile, MappedFileQueue

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
    for offset in range(first, file.size, window):
        data = files.read_file(file, offset, window)
        yield from _window(data, file, offset)
        if len(data) < min(window, file.size - offset):
            return


def _window(data: bytes, file: MappedFile, offset: int) -> Iterator[TimerUnits | TimerRange]:
    """Runs of good units, of zeros and of anything else in one window."""
    import numpy as np

    whole = len(data) // UNIT_BYTES
    units = np.frombuffer(data, dtype_of(UNIT), whole)
    good = (units["size"] == UNIT_BYTES) & (units["magic"] >= 0) & (units["magic"] <= MAGIC_MAX)
    written = np.frombuffer(data, np.uint8, whole * UNIT_BYTES).reshape(whole, -1).any(axis=1)
    kind = np.where(good, 0, np.where(written, 1, 2))
    edges = [0, *(np.flatnonzero(np.diff(kind)) + 1).tolist(), whole] if whole else [0]
    for begin, end in pairwise(edges):
        at = begin * UNIT_BYTES
        position = file.start + offset + at
        if kind[begin] == 0:
            positions = position + np.arange(end - begin, dtype=np.int64) * UNIT_BYTES
            yield TimerUnits(positions, units[begin:end])
        elif kind[begin] == 2:
            yield TimerRange("zeros", position, (end - begin) * UNIT_BYTES)
        else:
            yield from _other(data[at : end * UNIT_BYTES], position, file)
    rest = data[whole * UNIT_BYTES :]
    if rest:
        yield from _other(rest, file.start + offset + whole * UNIT_BYTES, file)


def _other(data: bytes, position: int, file: MappedFile) -> Iterator[TimerRange]:
    """Bytes that are no unit: the BLANK of the file, zeros, or damage and a BLANK behind it."""
    for at in range(0, len(data), UNIT_BYTES):
        left = file.end - (position + at)
        if len(data) - at >= BLANK_BYTES:
            blank = BLANK.parse(data[at : at + BLANK_BYTES])
            if blank.magic == MAGIC_BLANK and blank.size == left:
                if at:
                    yield TimerRange("damage", position, at)
                yield TimerRange("blank", position + at, left)
                return
    yield TimerRange("damage" if any(data) else "zeros", position, len(data))


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


def timer_wheel(
    path: str | os.PathLike[str], start: int = 0, unused: bool = False
) -> Iterator[WheelSlots]:
    """The slots of a wheel from number `start` on, without those that are all zeros.

    unused: those, too. Raises Missing, Unreadable.
    """
    import numpy as np

    try:
        with Path(path).open("rb", buffering=0) as file:
            file.seek(start * SLOT_BYTES)
            while data := file.read(WINDOW_UNITS * SLOT_BYTES):
                count = len(data) // SLOT_BYTES
                slots = np.frombuffer(data, dtype_of(SLOT), count)
                numbers = start + np.arange(count, dtype=np.int64)
                if not unused:
                    used = np.frombuffer(data, np.uint8, count * SLOT_BYTES)
                    keep = used.reshape(count, -1).any(axis=1)
                    slots, numbers = slots[keep], numbers[keep]
                if len(slots):
                    yield WheelSlots(numbers, slots)
                start += count
    except OSError as error:
        raise from_os_error(error, path) from error
