"""Repair consumequeue_ext, and queue units whose address leads nowhere or to another message's ext unit.

Ext units are corrected in place. A queue names where its ext units begin, and the record gives the tags code and time
of each. The length follows from the next unit, as before. Spec 02, 2.6; I-079. A queue unit with a wrong address gets
the hash of its message's tags, as in a store without consumequeue_ext: a broker filters by the hash, and if that is not
enough by the record. Spec 02, 2.3 and 2.6; I-080.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
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
    """The content of an ext unit, by the record of its queue unit."""

    tags_code: int
    store_timestamp: int


def damaged_ranges(files: MappedFileQueue) -> list[ExtRange]:
    """Return ranges that are neither units nor the end of a file nor unused. Raises Unreadable."""
    parts = (part for part in ext_units(files) if isinstance(part, ExtRange))
    return [part for part in parts if part.kind == "damage"]


def repair_range(
    files: MappedFileQueue, part: ExtRange, named: Mapping[int, ExpectedExt]
) -> Iterator[tuple[int | None, Edit]]:
    """Yield the edits of one range, each with the place of the named unit that it corrects, or None.

    named: by place in the stream, the units that begin in the range. One without room gets none. Raises Unreadable.
    """
    file = files.file_at(part.position)
    if file is None:
        return
    begin = part.position - file.start
    data = files.read_file(file, begin, part.size)
    at_end, newest = begin + len(data) == file.size, file is files.files[-1]
    known = {place - part.position: wanted for place, wanted in named.items()}
    room = len(data) - END.sizeof() * at_end  # a broker looks for the mark behind the last unit
    starts = _starts_with_room(data, known, room)
    if not starts and at_end:
        yield from _end_edit(file, begin, data, newest)
        return
    if starts[:1] != [0]:
        starts.insert(0, 0)  # a unit that no queue names any more
    tail = 0
    for start, end in pairwise([*starts, room]):
        for at, size in _lengths(data, start, end, last=at_end and end == room):
            wanted = known.get(at) if at == start else None
            place = part.position + at if wanted else None
            yield from ((place, edit) for edit in _head_edit(file, begin, data, at, size, wanted))
            tail = at + size
    if at_end:
        yield from _end_edit(file, begin + tail, data[tail:], newest)


def _starts_with_room(data: bytes, named: Mapping[int, ExpectedExt], room: int) -> list[int]:
    """Return the starts of named units that have room, in order; of two that overlap the one whose bytes exist. room:
    bytes of `data` that units may use.
    """
    found: list[int] = []
    for start in sorted(named, key=lambda start: (not _has_unit_at(data, start, named[start]), start)):
        if start + UNIT_BYTES_MIN > room or 0 < start < UNIT_BYTES_MIN:
            continue
        at = bisect_left(found, start)
        neighbours = found[max(at - 1, 0) : at + 1]
        if all(abs(start - other) >= UNIT_BYTES_MIN for other in neighbours):
            found.insert(at, start)
    return found


def _has_unit_at(data: bytes, start: int, wanted: ExpectedExt) -> bool:
    """Whether the bytes at a named place are the unit's, except for its sizes."""
    head = data[start : start + UNIT_BYTES_MIN]
    if len(head) < UNIT_BYTES_MIN:
        return False
    fields = HEAD.parse(head)
    return ExpectedExt(fields.tags_code, fields.msg_store_time) == wanted


def _lengths(data: bytes, start: int, end: int, *, last: bool) -> Iterator[tuple[int, int]]:
    """Yield (start, size) of the units from `start` to the next one at `end`: one, or more to fill the room. last:
    nothing follows, and a rest may stay. Yields nothing without room for a unit.
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
    """Return the size of a unit by one of its two fields, if it leads to the next unit. used: as `_is_end`."""
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
    """Return the number of bytes before the zeros at the end."""
    return len(data.rstrip(b"\0"))


def _is_end(data: bytes, at: int, used: int) -> bool:
    """Whether the bytes at `at` end a file: its mark, or nothing. used: as `_used(data)`."""
    return at >= used or data.startswith(END_MARK, at)


def _is_unit(data: bytes, at: int, end: int) -> bool:
    """Whether a unit begins at `at` whose sizes agree and that ends before `end`."""
    if end - at < UNIT_BYTES_MIN:
        return False
    fields = HEAD.parse(data[at : at + UNIT_BYTES_MIN])
    whole = UNIT_BYTES_MIN + fields.bit_map_size
    return bool(UNIT_BYTES_MIN <= fields.size == whole <= end - at)


def _end_edit(file: MappedFile, begin: int, rest: bytes, newest: bool) -> Iterator[tuple[int | None, Edit]]:
    """Yield the mark behind the last unit of a file, or zeros if more units will follow."""
    used = _used(rest)
    if _is_end(rest, 0, used):
        return
    mark = b"" if newest or len(rest) < len(END_MARK) else END_MARK
    length = len(mark) or used
    yield None, Edit("write", file.path, "bytes that are not a unit", _CODES, begin, length, mark or None)


def _head_edit(
    file: MappedFile, begin: int, data: bytes, start: int, size: int, wanted: ExpectedExt | None
) -> Iterator[Edit]:
    head = data[start : start + UNIT_BYTES_MIN]
    fields = HEAD.parse(head)
    fields |= {"bit_map": bytes(size - UNIT_BYTES_MIN)}  # both sizes follow from it
    if wanted is not None:
        fields |= {"tags_code": wanted.tags_code, "msg_store_time": wanted.store_timestamp}
    new: bytes = UNIT.build(fields)[:UNIT_BYTES_MIN]
    if new != head:
        reason = "corrects the header of a unit"
        yield Edit("write", file.path, reason, _CODES, begin + start, len(new), new)


Expected = Callable[[Units], dict[int, ExpectedExt]]
"""As `_expected`."""
_WINDOW_UNITS = 1 << 14
_APART_UNITS = 1 << 10
"""Units of a queue closer than this are written in one edit."""
_NO_TAGS = 0
"""Tags code of a tombstone."""


def ext_repair(snapshot: Snapshot, log: CommitLog, lost: Ints, gone: Container[str]) -> Iterator[Edit]:
    """Yield the edits, queue by queue. Raises Unreadable.

    lost: int64[n], ascending, positions that get a tombstone. gone: files that are moved away, also of queues: a file
    must not be changed before it is moved, or the undo fails.
    """
    expected = partial(_expected, log=log, levels=options_of(snapshot.layout).delay_waits())
    for queue, entries in sorted(snapshot.queues.items()):
        path = queue.below(snapshot.layout.consume_queue_ext)
        whole = [e for e in entries if e.path not in gone and is_whole_file(e, snapshot.queue_file_bytes)]
        with MappedFileQueue.open(os.fspath(path)) as ext:
            ext.files[:] = [file for file in ext.files if file.path not in gone]
            damaged, repaired = damaged_ranges(ext), set[int]()
            named = _named_units(whole, damaged, lost, expected) if damaged else {}
            places, emptied = sorted(named), dict[str, Edit]()
            for part in damaged:
                first = bisect_left(places, part.position)
                end = bisect_left(places, part.position + part.size, first)
                inside = {place: named[place] for place in places[first:end]}
                for place, edit in repair_range(ext, part, inside):
                    if place is not None:
                        repaired.add(place)
                    if edit.data is None and not edit.offset:
                        emptied[edit.path] = edit  # removed as a whole if no unit names a place in or behind it
                        continue
                    yield edit
            named_places = [-1]
            for entry in whole:
                yield from _queue_edits(entry, ext, expected, repaired, lost, named_places)
            behind = [file for file in ext.files if file.start > max(named_places) >= 0]
            there = {entry.path: entry for entry in snapshot.ext.get(queue, ())}
            for file in behind:  # `recover` checks for places that units name before the units are corrected
                if emptied.pop(file.path, None) or (file.path in there and is_zero_from(there[file.path], 0)):
                    yield Edit("remove", file.path, "empty file behind the last unit of the queue", _CODES)
            yield from emptied.values()


def _named_units(
    entries: list[DirectoryEntry], damaged: list[ExtRange], lost: Ints, expected: Expected
) -> dict[int, ExpectedExt]:
    """Return the places of ext units in some ranges, ascending, and the content by their records."""
    found: dict[int, ExpectedExt] = {}
    begins = np.array([part.position for part in damaged], np.int64)
    ends = np.array([part.position + part.size for part in damaged], np.int64)
    for entry in entries:
        for _, units in _addresses(entry):
            places = _places(units)
            part = np.searchsorted(begins, places, side="right") - 1
            inside = (part >= 0) & (places < ends[part])
            inside &= ~rows_of(lost, units["physical_offset"].astype(np.int64))[1]
            known = expected(units[inside])
            at = units["physical_offset"][inside].astype(np.int64).tolist()
            pairs = zip(places[inside].tolist(), at, strict=True)
            found |= {place: known[position] for place, position in pairs if position in known}
    return found


def _addresses(entry: DirectoryEntry) -> Iterator[tuple[Ints, Units]]:
    """Yield (numbers, units) of a queue file that name a place in consumequeue_ext, in windows without holes."""
    file = MappedFile(entry.path, 0, entry.size)
    with MappedFileQueue((), [file], 0, []) as files:
        stretches = list(FileUnits(files).data(file, _WINDOW_UNITS))
    for first, most in stretches:
        units = read_units(entry, first, min(most, entry.size // UNIT_BYTES - first))
        rows = np.flatnonzero(is_valid(units) & (units["tags_code"] <= EXT_ADDRESS_MAX))
        if len(rows):
            yield first + rows, units[rows]


def _places(units: Units) -> Ints:
    return units["tags_code"].astype(np.int64) - np.int64(ADDRESS_BASE)


def _expected(units: Units, log: CommitLog, levels: tuple[int, ...] | None) -> dict[int, ExpectedExt]:
    """Return the ext content of the records of these units, by position; a lost message has none."""
    batch = log.records(np.unique(units["physical_offset"].astype(np.int64)))
    if not len(batch):
        return {}
    made = dispatch(batch, OWN_QUEUES._replace(delay_levels=levels)).units
    codes = dict(zip(batch.position[made.record].tolist(), made.tags_code.tolist(), strict=True))
    times = zip(batch.position.tolist(), batch.columns.ints("store_timestamp").tolist(), strict=True)
    return {at: ExpectedExt(codes[at], time) for at, time in times if at in codes}


def _queue_edits(
    entry: DirectoryEntry, ext: MappedFileQueue, expected: Expected, repaired: set[int], lost: Ints, named: list[int]
) -> Iterator[Edit]:
    """Yield edits of units of a queue file with a wrong address. repaired: addresses that will be right. named: gets
    the highest place that is still named.
    """
    for numbers, units in _addresses(entry):
        gone = rows_of(lost, units["physical_offset"].astype(np.int64))[1]
        codes = dict.fromkeys(numbers[gone].tolist(), _NO_TAGS)
        numbers = numbers[~gone]
        places = _places(units)[~gone]
        wrong = dict(_wrong_addresses(units[~gone], ext, expected, repaired))
        named += [int(np.delete(places, list(wrong)).max(initial=-1))]
        codes |= {int(numbers[row]): code for row, code in wrong.items()}
        if codes:
            rows = np.array(sorted(codes), np.int64)
            cuts = np.flatnonzero(np.diff(rows) > _APART_UNITS) + 1
            yield from (_tags_edit(entry, part, codes) for part in np.split(rows, cuts))


def _tags_edit(entry: DirectoryEntry, numbers: Ints, codes: Mapping[int, int]) -> Edit:
    """Return one edit with the tags codes of some units of a queue file, by number."""
    first, last = int(numbers[0]), int(numbers[-1])
    units = read_units(entry, first, last + 1 - first).copy()
    units["tags_code"][numbers - first] = [codes[number] for number in numbers.tolist()]
    data = units.tobytes()
    reason = f"{counted(len(numbers), 'unit')} with an address that consumequeue_ext does not have"
    return Edit("write", entry.path, reason, ("I-080",), first * UNIT_BYTES, len(data), data)


def _wrong_addresses(
    units: Units, ext: MappedFileQueue, expected: Expected, repaired: set[int]
) -> Iterator[tuple[int, int]]:
    """Yield rows of units whose ext unit is not their message's, and the hash to write."""
    known, places = expected(units), _places(units)
    found = ext_units_at(ext, places)
    position = units["physical_offset"].astype(np.int64)
    for row, (at, place) in enumerate(zip(position.tolist(), places.tolist(), strict=True)):
        unit, wanted = found.get(place), known.get(at)
        if wanted is None or place in repaired:
            continue
        there = None if unit is None else ExpectedExt(unit.tags_code, unit.msg_store_time)
        if there != wanted:
            yield row, wanted.tags_code
