"""Units of consumequeue_ext whose sizes contradict each other, made to follow one another again.

A queue names where its units begin, and the record which tags code and time each has. What is left is
the length: it leads to the next unit, as it did before. Spec 02, 2.6; I-079.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from ...formats.consume_queue_ext import END, END_MARK, HEAD, UNIT, UNIT_BYTES_MAX, UNIT_BYTES_MIN
from ..disk.edits import Edit
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..queues.read_ext import ExtRange, ext_units

_CODES = ("I-079",)


@dataclass(frozen=True)
class Wanted:
    """What the record of a unit says is in consumequeue_ext."""

    tags_code: int
    store_timestamp: int


def damaged_ranges(files: MappedFileQueue) -> list[ExtRange]:
    """What is no unit, and neither the end of a file nor unused. Raises Unreadable."""
    parts = (part for part in ext_units(files) if isinstance(part, ExtRange))
    return [part for part in parts if part.kind == "damage"]


def mend_range(
    files: MappedFileQueue, part: ExtRange, named: Mapping[int, Wanted]
) -> Iterator[tuple[int | None, Edit]]:
    """The edits of one range, each with the place of the unit that is named, None for all others.

    named: by place in the stream, the units that begin in the range. One without room for a unit,
    there or before it, gets none. Raises Unreadable.
    """
    file = files.file_at(part.position)
    if file is None:
        return
    begin = part.position - file.start
    data = files.read_file(file, begin, part.size)
    at_end, newest = begin + len(data) == file.size, file is files.files[-1]
    known = {place - part.position: wanted for place, wanted in named.items()}
    room = len(data) - END.sizeof() * at_end  # a broker looks for the mark behind the last unit
    starts = _apart(data, known, room)
    if not starts and at_end:
        yield from _close(file, begin, data, newest)
        return
    if starts[:1] != [0]:
        starts.insert(0, 0)  # a unit that no queue names any more
    tail = 0
    for start, end in pairwise([*starts, room]):
        for at, size in _lengths(data, start, end, last=at_end and end == room):
            wanted = known.get(at) if at == start else None
            place = part.position + at if wanted else None
            yield from ((place, edit) for edit in _head(file, begin, data, at, size, wanted))
            tail = at + size
    if at_end:
        yield from _close(file, begin + tail, data[tail:], newest)


def _apart(data: bytes, named: Mapping[int, Wanted], room: int) -> list[int]:
    """Starts of named units that have room, in order; of two that overlap the one that is there.

    room: bytes from the start of `data` on that units may take.
    """
    found: list[int] = []
    for start in sorted(named, key=lambda start: (not _is_there(data, start, named[start]), start)):
        if start + UNIT_BYTES_MIN > room or 0 < start < UNIT_BYTES_MIN:
            continue
        at = bisect_left(found, start)
        near = found[max(at - 1, 0) : at + 1]
        if all(abs(start - other) >= UNIT_BYTES_MIN for other in near):
            found.insert(at, start)
    return found


def _is_there(data: bytes, start: int, wanted: Wanted) -> bool:
    """The bytes at a named place are the unit's, but for its sizes."""
    head = data[start : start + UNIT_BYTES_MIN]
    if len(head) < UNIT_BYTES_MIN:
        return False
    fields = HEAD.parse(head)
    return Wanted(fields.tags_code, fields.msg_store_time) == wanted


def _lengths(data: bytes, start: int, end: int, *, last: bool) -> Iterator[tuple[int, int]]:
    """(start, size) of the units from `start` to the next one at `end`: one, or more to fill the room.

    last: nothing follows, what is left may stay. Nothing where there is no room for a unit.
    """
    at, used = start, _used(data) if last else len(data)
    while end - at >= UNIT_BYTES_MIN:
        if last and at > start and _is_end(data, at, used):
            return
        size = _size(data, at, end, used, last=last)
        if size is None and at > start and last:
            return
        if size is None:
            room = end - at
            size = room if room <= UNIT_BYTES_MAX else min(UNIT_BYTES_MAX, room - UNIT_BYTES_MIN)
            size = UNIT_BYTES_MIN if last and room > UNIT_BYTES_MAX else size
        yield at, size
        at += size


def _size(data: bytes, start: int, end: int, used: int, *, last: bool) -> int | None:
    """The size that one of its two fields gives a unit, if that leads to the next one.

    used: as `_is_end`.
    """
    fields = HEAD.parse(data[start : start + UNIT_BYTES_MIN])
    sizes = (UNIT_BYTES_MIN + fields.bit_map_size, fields.size)
    for size in sizes:
        room = end - start - size
        if not UNIT_BYTES_MIN <= size <= UNIT_BYTES_MAX or 0 < room < UNIT_BYTES_MIN * (not last):
            continue
        behind = start + size
        if room == 0 or (room > 0 and sizes[0] == sizes[1]):
            return int(size)
        if room > 0 and last and _is_end(data, behind, used):
            return int(size)
        if room > 0 and _is_unit(data, behind, min(end, behind + UNIT_BYTES_MAX)):
            return int(size)
    return None


def _used(data: bytes) -> int:
    """How many of the bytes are in front of the zeros at the end."""
    return len(data.rstrip(b"\0"))


def _is_end(data: bytes, at: int, used: int) -> bool:
    """What stands behind the last unit of a file: its mark, or nothing. used: as `_used(data)`."""
    return at >= used or data.startswith(END_MARK, at)


def _is_unit(data: bytes, at: int, end: int) -> bool:
    """Here is a unit whose sizes agree and that does not go on behind `end`."""
    if end - at < UNIT_BYTES_MIN:
        return False
    fields = HEAD.parse(data[at : at + UNIT_BYTES_MIN])
    whole = UNIT_BYTES_MIN + fields.bit_map_size
    return bool(UNIT_BYTES_MIN <= fields.size == whole <= end - at)


def _close(
    file: MappedFile, begin: int, rest: bytes, newest: bool
) -> Iterator[tuple[int | None, Edit]]:
    """Behind the last unit of a file is the mark of its end, or nothing where more are to come."""
    used = _used(rest)
    if _is_end(rest, 0, used):
        return
    mark = b"" if newest or len(rest) < len(END_MARK) else END_MARK
    length = len(mark) or used
    yield None, Edit("write", file.path, "no unit", _CODES, begin, length, mark or None)


def _head(
    file: MappedFile, begin: int, data: bytes, start: int, size: int, wanted: Wanted | None
) -> Iterator[Edit]:
    """The head of a unit where it is not as it has to be."""
    head = data[start : start + UNIT_BYTES_MIN]
    fields = HEAD.parse(head)
    fields |= {"bit_map": bytes(size - UNIT_BYTES_MIN)}  # from which follow both sizes
    if wanted is not None:
        fields |= {"tags_code": wanted.tags_code, "msg_store_time": wanted.store_timestamp}
    new: bytes = UNIT.build(fields)[:UNIT_BYTES_MIN]
    if new != head:
        reason = "a unit that leads to the next one"
        yield Edit("write", file.path, reason, _CODES, begin + start, len(new), new)
