"""consumequeue_ext, and queue units whose address there leads nowhere, or to another message's entry.

Units there are mended where they lie. A queue's unit with an address of none gets the hash of its
message's tags, as it has in a store without consumequeue_ext: a broker filters by it, and by the record
itself where that is not enough. Spec 02, 2.3 and 2.6; I-079, I-080.

Units of consumequeue_ext whose sizes contradict each other, made to follow one another again.

A queue names where its units begin, and the record which tags code and time each has. What is left is
the length: it leads to the next unit, as it did before. Spec 02, 2.6; I-079.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...formats.consume_queue import EXT_ADDRESS_MAX, UNIT_BYTES
from ...formats.consume_queue_ext import ADDRESS_BASE, END, END_MARK, HEAD, UNIT, UNIT_BYTES_MAX, UNIT_BYTES_MIN
from ...formats.derive.ragged import Ints
from ..broker.dispatch import dispatch
from ..broker.dispatch_record import OWN_QUEUES
from ..broker.snapshot import DirectoryEntry, Snapshot
from ..columns import rows_of
from ..counted import counted
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..disk.files import Edit
from ..log.commit_log import CommitLog
from ..queues.edits import is_zero_from
from ..queues.ext import ExtRange, ext_units, ext_units_at
from ..queues.units import FileUnits, Units, is_valid, is_whole_file, read_units
from ..settings.options import options_of

_CODES = ("I-079",)


class ExpectedExt(NamedTuple):
    """What the record of a unit says is in consumequeue_ext."""

    tags_code: int
    store_timestamp: int


def damaged_ranges(files: MappedFileQueue) -> list[ExtRange]:
    """What is no unit, and neither the end of a file nor unused. Raises Unreadable."""
    parts = (part for part in ext_units(files) if isinstance(part, ExtRange))
    return [part for part in parts if part.kind == "damage"]


def repair_range(
    files: MappedFileQueue, part: ExtRange, named: Mapping[int, ExpectedExt]
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


def _apart(data: bytes, named: Mapping[int, ExpectedExt], room: int) -> list[int]:
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


def _is_there(data: bytes, start: int, wanted: ExpectedExt) -> bool:
    """The bytes at a named place are the unit's, but for its sizes."""
    head = data[start : start + UNIT_BYTES_MIN]
    if len(head) < UNIT_BYTES_MIN:
        return False
    fields = HEAD.parse(head)
    return ExpectedExt(fields.tags_code, fields.msg_store_time) == wanted


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


def _close(file: MappedFile, begin: int, rest: bytes, newest: bool) -> Iterator[tuple[int | None, Edit]]:
    """Behind the last unit of a file is the mark of its end, or nothing where more are to come."""
    used = _used(rest)
    if _is_end(rest, 0, used):
        return
    mark = b"" if newest or len(rest) < len(END_MARK) else END_MARK
    length = len(mark) or used
    yield None, Edit("write", file.path, "bytes that are not a unit", _CODES, begin, length, mark or None)


def _head(
    file: MappedFile, begin: int, data: bytes, start: int, size: int, wanted: ExpectedExt | None
) -> Iterator[Edit]:
    """The head of a unit where it is not as it has to be."""
    head = data[start : start + UNIT_BYTES_MIN]
    fields = HEAD.parse(head)
    fields |= {"bit_map": bytes(size - UNIT_BYTES_MIN)}  # from which follow both sizes
    if wanted is not None:
        fields |= {"tags_code": wanted.tags_code, "msg_store_time": wanted.store_timestamp}
    new: bytes = UNIT.build(fields)[:UNIT_BYTES_MIN]
    if new != head:
        reason = "corrects the header of a unit"
        yield Edit("write", file.path, reason, _CODES, begin + start, len(new), new)


Levels = tuple[int, ...] | None
"""ms of delay levels 1, 2, …; None for the usual ones."""
_WINDOW_UNITS = 1 << 14
_APART_UNITS = 1 << 10
"""Units of a queue that lie closer are written at once."""
_NO_TAGS = 0
"""Tags code of a tombstone."""


def ext_repair(snapshot: Snapshot, log: CommitLog, lost: Ints, gone: Container[str]) -> Iterator[Edit]:
    """The edits, queue by queue. Raises Unreadable.

    lost: int64[n], ascending, positions that get a tombstone. gone: files that are moved away, of queues, too:
    what is changed first could not be taken back.
    """
    levels = options_of(snapshot.layout).delay_waits()
    for queue, entries in sorted(snapshot.queues.items()):
        path = queue.below(snapshot.layout.consume_queue_ext)
        whole = [e for e in entries if e.path not in gone and is_whole_file(e, snapshot.queue_file_bytes)]
        with MappedFileQueue.open(os.fspath(path)) as ext:
            ext.files[:] = [file for file in ext.files if file.path not in gone]
            damaged, repaired = damaged_ranges(ext), set[int]()
            named = _named(whole, damaged, log, lost, levels) if damaged else {}
            places, emptied = sorted(named), dict[str, Edit]()
            for part in damaged:
                first = bisect_left(places, part.position)
                end = bisect_left(places, part.position + part.size, first)
                inside = {place: named[place] for place in places[first:end]}
                for place, edit in repair_range(ext, part, inside):
                    if place is not None:
                        repaired.add(place)
                    if edit.data is None and not edit.offset:
                        emptied[edit.path] = edit  # it goes as a whole where no unit names a place in it or behind it
                        continue
                    yield edit
            left = [-1]
            for entry in whole:
                yield from _file(entry, ext, log, repaired, lost, left, levels)
            behind = [file for file in ext.files if file.start > max(left) >= 0]
            there = {entry.path: entry for entry in snapshot.ext.get(queue, ())}
            for file in behind:  # `recover` looks at what the queue names before it is mended
                if emptied.pop(file.path, None) or (file.path in there and is_zero_from(there[file.path], 0)):
                    yield Edit("remove", file.path, "empty file behind the last unit of the queue", _CODES)
            yield from emptied.values()


def _named(
    entries: list[DirectoryEntry], damaged: list[ExtRange], log: CommitLog, lost: Ints, levels: Levels
) -> dict[int, ExpectedExt]:
    """The places in some ranges, in order, where units begin, and what their records say."""
    found: dict[int, ExpectedExt] = {}
    begins = np.array([part.position for part in damaged], np.int64)
    ends = np.array([part.position + part.size for part in damaged], np.int64)
    for entry in entries:
        for _, units in _addresses(entry):
            places = _places(units)
            part = np.searchsorted(begins, places, side="right") - 1
            inside = (part >= 0) & (places < ends[part])
            inside &= ~rows_of(lost, units["physical_offset"].astype(np.int64))[1]
            known = _records(units[inside], log, levels)
            at = units["physical_offset"][inside].astype(np.int64).tolist()
            pairs = zip(places[inside].tolist(), at, strict=True)
            found |= {place: known[position] for place, position in pairs if position in known}
    return found


def _addresses(entry: DirectoryEntry) -> Iterator[tuple[Ints, Units]]:
    """(numbers, units) of a queue file that name a place in consumequeue_ext, in windows without holes."""
    file = MappedFile(entry.path, 0, entry.size)
    with MappedFileQueue((), [file], 0, []) as files:
        stretches = list(FileUnits(files).data(file, _WINDOW_UNITS))
    for first, most in stretches:
        units = read_units(entry, first, min(most, entry.size // UNIT_BYTES - first))
        rows = np.flatnonzero(is_valid(units) & (units["tags_code"] <= EXT_ADDRESS_MAX))
        if len(rows):
            yield first + rows, units[rows]


def _places(units: Units) -> Ints:
    """Where in the stream of consumequeue_ext these units have their entries."""
    return units["tags_code"].astype(np.int64) - np.int64(ADDRESS_BASE)


def _records(units: Units, log: CommitLog, levels: Levels) -> dict[int, ExpectedExt]:
    """By position, what the records of these units have there; a lost message has none."""
    batch = log.records(np.unique(units["physical_offset"].astype(np.int64)))
    if not len(batch):
        return {}
    made = dispatch(batch, OWN_QUEUES._replace(delay_levels=levels)).units
    codes = dict(zip(batch.position[made.record].tolist(), made.tags_code.tolist(), strict=True))
    times = zip(batch.position.tolist(), batch.columns.ints("store_timestamp").tolist(), strict=True)
    return {at: ExpectedExt(codes[at], time) for at, time in times if at in codes}


def _file(
    entry: DirectoryEntry,
    ext: MappedFileQueue,
    log: CommitLog,
    repaired: set[int],
    lost: Ints,
    left: list[int],
    levels: Levels,
) -> Iterator[Edit]:
    """Units of a queue file with an address of none. repaired: addresses that will be right.

    left: gets the highest place that is named still.
    """
    for numbers, units in _addresses(entry):
        gone = rows_of(lost, units["physical_offset"].astype(np.int64))[1]
        codes = dict.fromkeys(numbers[gone].tolist(), _NO_TAGS)
        numbers = numbers[~gone]
        places = _places(units)[~gone]
        wrong = dict(_wrong(units[~gone], ext, log, repaired, levels))
        left += [int(np.delete(places, list(wrong)).max(initial=-1))]
        codes |= {int(numbers[row]): code for row, code in wrong.items()}
        if codes:
            rows = np.array(sorted(codes), np.int64)
            cuts = np.flatnonzero(np.diff(rows) > _APART_UNITS) + 1
            yield from (_tags_edit(entry, part, codes) for part in np.split(rows, cuts))


def _tags_edit(entry: DirectoryEntry, numbers: Ints, codes: Mapping[int, int]) -> Edit:
    """The tags codes of some units of a queue file, by number, as one edit."""
    first, last = int(numbers[0]), int(numbers[-1])
    units = read_units(entry, first, last + 1 - first).copy()
    units["tags_code"][numbers - first] = [codes[number] for number in numbers.tolist()]
    data = units.tobytes()
    reason = f"{counted(len(numbers), 'unit')} with an address that consumequeue_ext does not have"
    return Edit("write", entry.path, reason, ("I-080",), first * UNIT_BYTES, len(data), data)


def _wrong(
    units: Units, ext: MappedFileQueue, log: CommitLog, repaired: set[int], levels: Levels
) -> Iterator[tuple[int, int]]:
    """Rows whose entry is none of their message's, and the hash to write."""
    known, places = _records(units, log, levels), _places(units)
    found = ext_units_at(ext, places)
    position = units["physical_offset"].astype(np.int64)
    for row, (at, place) in enumerate(zip(position.tolist(), places.tolist(), strict=True)):
        unit, wanted = found.get(place), known.get(at)
        if wanted is None or place in repaired:
            continue
        there = None if unit is None else ExpectedExt(unit.tags_code, unit.msg_store_time)
        if there != wanted:
            yield row, wanted.tags_code
