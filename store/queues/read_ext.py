"""consumequeue_ext: what does not fit into the units of a queue (spec 02, 2.6).

Units of different lengths follow one another from the start of each file; a file that has no room
for the next one ends with -1. A queue names a unit by its place in the stream. Nothing here believes a
length: a size that its own bit map contradicts is damage, and reading goes on at the next chain
of units.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np

from ...formats.consume_queue_ext import END, END_MARK, HEAD, UNIT, UNIT_BYTES_MAX, UNIT_BYTES_MIN
from ...formats.derive import Columns, decode, dtype_of
from ...formats.derive.ragged import Bytes, Ints, overlapping
from ..disk.byte_reader import Unread, note
from ..disk.file_queue import MappedFile, MappedFileQueue

WINDOW_BYTES = 1 << 18
_LATEST_MS = 1 << 43
"""A time behind the year 2248 is no time of a broker."""
_CHAIN = 3
"""Units in a row that are taken for units again behind damage."""


class ExtUnits(NamedTuple):
    """Units in a row: stream positions int64[n] and columns of `consume_queue_ext.UNIT`."""

    position: Ints
    columns: Columns


class ExtRange(NamedTuple):
    """What is no unit. kind: `end` (of the units of a file), `zeros` (never written), `damage`, `unread`
    (what the disk does not give, with the units that reach into it).
    """

    kind: str
    position: int
    size: int


class ExtUnit(NamedTuple):
    """One unit; times in ms since 1970."""

    tags_code: int
    msg_store_time: int
    bit_map: bytes


def ext_units(files: MappedFileQueue, start: int | None = None) -> Iterator[ExtUnits | ExtRange]:
    """All units in order, from the one at stream position `start` on.

    What cannot be read is noted. Raises Unreadable, UnreadableRange where nobody notes it.
    """
    for file in files.files:
        if start is None or start < file.end:
            yield from _file(files, file, max(0, (start or 0) - file.start))


def ext_unit(files: MappedFileQueue, position: int) -> ExtUnit | None:
    """The unit at a stream position, None where there is none. Raises Unreadable."""
    file = files.file_at(position)
    if file is None:
        return None
    at = position - file.start
    head = files.readable(file, at, UNIT_BYTES_MAX, UNIT_BYTES_MIN)
    starts, _ = _walk(np.frombuffer(head, np.uint8), most=1)
    if not len(starts):
        if len(head) < min(UNIT_BYTES_MAX, file.size - at):  # it may reach into what is unreadable
            files.readable(file, at, UNIT_BYTES_MAX, UNIT_BYTES_MAX)
        return None
    unit = UNIT.parse(head)
    return ExtUnit(unit.tags_code, unit.msg_store_time, unit.bit_map)


def ext_units_at(files: MappedFileQueue, positions: Ints) -> dict[int, ExtUnit]:
    """The units at stream positions (int64[n], any order), by position; those that there are.

    Neighbours are read together. Memory: that of the units; ask for a bounded number. Raises
    Unreadable.
    """
    wanted = np.unique(positions[(positions >= files.start) & (positions < files.end)])
    found: dict[int, ExtUnit] = {}
    breaks = np.flatnonzero(np.diff(wanted) > WINDOW_BYTES) + 1
    for near in np.split(wanted, breaks) if len(wanted) else ():
        for part in ext_units(files, int(near[0])):
            if isinstance(part, ExtUnits):
                found |= _some(part, near)
                last = int(part.position[-1])
            else:
                last = part.position
            if last >= near[-1]:
                break
    for position in wanted.tolist():  # behind damage the next one may have been passed over
        if position not in found and (one := ext_unit(files, position)) is not None:
            found[position] = one
    return found


def _some(part: ExtUnits, wanted: Ints) -> dict[int, ExtUnit]:
    """Those of some units in a row that are wanted."""
    rows = np.flatnonzero(np.isin(part.position, wanted))
    some = part.columns.take(rows)
    fields = zip(
        part.position[rows].tolist(),
        some.ints("tags_code").tolist(),
        some.ints("msg_store_time").tolist(),
        some.ragged("bit_map").tolist(),
        strict=True,
    )
    return {position: ExtUnit(*values) for position, *values in fields}


def _file(files: MappedFileQueue, file: MappedFile, at: int) -> Iterator[ExtUnits | ExtRange]:
    while at < file.size:
        room = bytearray(min(WINDOW_BYTES, file.size - at))
        got, unread = files.fill(file, at, memoryview(room))
        if not got:
            return
        known = unread[0].offset - at if unread else got
        data = np.frombuffer(room, np.uint8, known)
        starts, stop = _walk(data)
        if len(starts):
            yield ExtUnits(file.start + at + starts, decode(UNIT, data, starts))
            at += stop
        elif unread and known < UNIT_BYTES_MAX and data[: len(END_MARK)].tobytes() != END_MARK:
            note(unread[0])
            end = _next_chain(files, file, unread[0].end)
            yield ExtRange("unread", file.start + at, end - at)
            at = end
        else:
            at = yield from _between(files, file, at, data)


def _between(
    files: MappedFileQueue, file: MappedFile, at: int, data: Bytes
) -> Generator[ExtRange, None, int]:
    """No unit begins at byte `at`: say why; returns where the next one may."""
    rest = file.size - at
    if data[: END.sizeof()].tobytes() == END_MARK:
        yield ExtRange("end", file.start + at, rest)
        return file.size
    if not data.any() and not _has_data(files, file, at + len(data)):
        yield ExtRange("zeros", file.start + at, rest)
        return file.size
    end = _next_chain(files, file, at + 1)
    yield ExtRange("damage", file.start + at, end - at)
    return end


def _has_data(files: MappedFileQueue, file: MappedFile, at: int) -> bool:
    """Some byte from `at` on is not zero."""
    for begin in range(at, file.size, WINDOW_BYTES):
        data, unread = _around(files, file, begin, WINDOW_BYTES)
        if unread or any(data):
            return True
    return False


def _around(
    files: MappedFileQueue, file: MappedFile, at: int, size: int
) -> tuple[bytearray, list[Unread]]:
    """Up to `size` bytes from byte `at` on, zeros for what cannot be read, and those ranges."""
    room = bytearray(max(0, min(size, file.size - at)))
    got, unread = files.read_around(file, at, memoryview(room))
    return room[:got], unread


def _next_chain(files: MappedFileQueue, file: MappedFile, at: int) -> int:
    """First byte from `at` on where several units follow one another, else the end of the file."""
    while at < file.size:
        data = np.frombuffer(_around(files, file, at, WINDOW_BYTES + UNIT_BYTES_MAX)[0], np.uint8)
        for start in _candidates(data[: WINDOW_BYTES + UNIT_BYTES_MIN]).tolist():
            found, _ = _walk(data[start : start + _CHAIN * UNIT_BYTES_MAX], most=_CHAIN)
            if len(found) == _CHAIN:
                return int(at + start)
        at += WINDOW_BYTES
    return file.size


def _candidates(data: Bytes) -> Ints:
    """Bytes where a size and the size of a bit map say the same, around a time of a broker."""
    heads = overlapping(data, _HEAD)
    bit_maps = heads["bit_map_size"].astype(np.int64)
    alike = np.flatnonzero((bit_maps >= 0) & (heads["size"] == UNIT_BYTES_MIN + bit_maps))
    times = heads["msg_store_time"][alike]
    return alike[(times > 0) & (times < _LATEST_MS)]


def _walk(data: Bytes, most: int | None = None) -> tuple[Ints, int]:
    """Starts of the whole units in a row at the front of `data`, and where they stop.

    most: more are not looked for. Neighbours of one size are taken at once: most units are alike.
    """
    heads = overlapping(data, _HEAD)
    bit_maps = heads["bit_map_size"].astype(np.int64)
    size = heads["size"].astype(np.int64)
    whole = (bit_maps >= 0) & (size == UNIT_BYTES_MIN + bit_maps)
    whole &= np.arange(len(heads)) + size <= len(data)
    step = np.where(whole, size, 0)
    if not len(step) or not step[0]:
        return np.zeros(0, np.int64), 0
    same = step[:: step[0]] == step[0]
    alike = len(same) if same.all() else int(np.argmin(same))
    starts = (step[0] * np.arange(alike, dtype=np.int64)).tolist()
    at = int(step[0]) * alike
    steps = step.tolist() if at < len(step) and step[at] else []
    while at < len(steps) and steps[at] and (most is None or len(starts) < most):
        starts.append(at)
        at += steps[at]
    return np.array(starts[:most], np.int64), at


_HEAD = dtype_of(HEAD)
