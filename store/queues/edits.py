"""The edits of a plan that mend the files of a queue: its units, and its consumequeue_ext.

`QueueHole` and `QueueFix` hold what the log says of a queue: offsets without a message, and what becomes of its units.

consumequeue_ext is changed so that every broker can read it, with the fewest bytes. A unit whose size leads beyond its
file gets a size that leads to the next unit that the queue names; no unit moves. Without a later unit in that file, the
file ends there. A queue unit without an entry there costs no message: a broker then goes by the record (spec 2.6).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...formats.consume_queue import EXT_ADDRESS_MAX, UNIT_BYTES
from ...formats.consume_queue_ext import ADDRESS_BASE, END, END_MARK, HEAD, UNIT, UNIT_BYTES_MAX, UNIT_BYTES_MIN
from ...formats.derive.ragged import Bytes, Ints
from ..broker.snapshot import DirectoryEntry, QueueId, Snapshot
from ..columns import begins
from ..counted import counted
from ..disk.byte_reader import data_ranges, opened, read
from ..disk.file_queue import file_name
from ..disk.files import Content, Edit
from ..disk.temporary import Spill
from .start import ExtDamage, units_end
from .units import Units, is_whole_file, pre_fill, read_units


class QueueHole(NamedTuple):
    """Queue offsets begin ≤ k < end without a message; low, high: log positions of the neighbours."""

    begin: int
    end: int
    low: int
    high: int


class QueueFix(NamedTuple):
    """What becomes of a queue: `units` are written at queue `offsets` (sorted), the queue ends at `end`.

    missing: how many log messages get a unit. shifted: the queue keeps queue offsets that differ from those in the
    records, and only a repair that names the queue corrects them. beyond: units behind the queue's end that name
    records behind the log's end. spill: keeps the content of the edits; None: in memory.
    """

    queue: QueueId
    offsets: Ints
    units: Units
    end: int
    missing: int
    shifted: bool
    beyond: int = 0
    spill: Spill | None = None


_WINDOW_BYTES = 1 << 20
_UNIT_GAP_BYTES = 1 << 16
_ZEROS = bytes(_WINDOW_BYTES)
_MANY_RUNS = 1000
_RUN_GAP_UNITS = 256


def queue_edits(
    fix: QueueFix, entries: tuple[DirectoryEntry, ...], directory: Path, file_bytes: int, unit_bytes: int = UNIT_BYTES
) -> Iterator[Edit]:
    """Yield edits that give the queue's files the content of `fix`. unit_bytes: of this kind of queue.

    Units are overwritten, missing files made. What lies behind the end is zeroed or moved away, and so is what is no
    whole file.
    """
    end = fix.end * unit_bytes
    files: dict[int, DirectoryEntry] = {}
    for entry in entries:
        if not is_whole_file(entry, file_bytes):
            yield Edit("move", entry.path, "not a whole file of the queue", ("I-003",))
        else:
            files[int(entry.name)] = entry
    starts = fix.offsets * unit_bytes // file_bytes * file_bytes
    written = set(starts[np.flatnonzero(begins(starts))].tolist())
    for entry in _empty_front(files, written):
        yield Edit("move", entry.path, "neither this file nor any file before it has a unit", ("I-074",))
        del files[int(entry.name)]
    for start in sorted({*written, *files}):
        rows = slice(*np.searchsorted(starts, [start, start + 1]).tolist())
        existing = files.get(start)
        if start >= end:
            if existing is not None:
                yield Edit("move", existing.path, "behind the end of the queue", ("I-067",))
        elif existing is None:
            yield _new_file(fix, rows, directory, start, file_bytes, unit_bytes)
        else:
            yield from _changes(fix, rows, existing, start, unit_bytes)
            yield from _dead_tail(existing, end - start, file_bytes)


def _empty_front(files: dict[int, DirectoryEntry], written: set[int]) -> list[DirectoryEntry]:
    """The all-zero files before all others; none if there is no other file, nor one to be made."""
    found: list[DirectoryEntry] = []
    for start in sorted({*files, *written}):
        if start in written or not is_zero_from(files[start], 0):
            return found
        found.append(files[start])
    return []  # the queue has no unit at all


def is_zero_from(entry: DirectoryEntry, begin: int) -> bool:
    """Whether a file has only zeros from byte `begin` on. Ends at the first other byte. Raises Unreadable."""
    with opened(entry.path) as descriptor:
        for start, stop in data_ranges(descriptor, begin, entry.counting):
            for at in range(start, stop, _WINDOW_BYTES):
                data = read(descriptor, min(_WINDOW_BYTES, stop - at), at, entry.path)
                if data != _ZEROS[: len(data)]:
                    return False
    return True


def _new_file(fix: QueueFix, rows: slice, directory: Path, start: int, size: int, unit_bytes: int) -> Edit:
    """Make a missing file of the queue, pre-filled at its front where no unit is known."""
    units = fix.units[rows]
    at = fix.offsets[rows] - start // unit_bytes
    front = pre_fill(int(at[0]))
    pieces: list[tuple[int, Content]] = [(0, front.tobytes())] if len(front) else []
    for first, count, run in _runs(at):
        data = units[run]
        if len(data) < count:
            data = np.zeros(count, units.dtype)
            data[at[run] - first] = units[run]
        pieces.append((first * unit_bytes, _content(data, fix.spill)))
    path = str(directory / file_name(start))
    reason = f"{counted(len(units), 'unit')} of messages in the log"
    return Edit("create", path, reason, ("I-070",), length=size, pieces=tuple(pieces))


def _changes(fix: QueueFix, rows: slice, entry: DirectoryEntry, start: int, unit_bytes: int) -> Iterator[Edit]:
    """Write units over an existing file, run by run; a run keeps what stands between its units."""
    at = fix.offsets[rows] - start // unit_bytes
    units = fix.units[rows]
    for first, count, run in _runs(at):
        present = read_units(entry, first, count, units.dtype)
        present[at[run] - first] = units[run]
        data = _content(present, fix.spill)
        reason = f"{counted(run.stop - run.start, 'unit')} of messages in the log"
        yield Edit("write", entry.path, reason, ("I-070",), first * unit_bytes, len(data), data)


def _content(units: Units, spill: Spill | None) -> Content:
    """The bytes of an array without a copy in memory; nobody may change the array any more."""
    data = units.view(np.uint8)
    return (data if spill is None else spill.keep(data)).data


def _runs(numbers: Ints) -> Iterator[tuple[int, int, slice]]:
    """Yield runs of numbers: the first number, the count up to the last number, the rows.

    Runs end at gaps. If there are many gaps, only larger ones count: a run costs more than its units.
    """
    steps = np.diff(numbers)
    ends = np.flatnonzero(steps != 1)
    if len(ends) > _MANY_RUNS:
        ends = np.flatnonzero(steps > _RUN_GAP_UNITS)
    if not len(numbers):
        return
    ends = np.append(ends + 1, len(numbers))
    begins = np.append(0, ends[:-1])
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        first = int(numbers[begin])
        yield first, int(numbers[end - 1]) - first + 1, slice(begin, end)


def _dead_tail(entry: DirectoryEntry, end: int, size: int) -> Iterator[Edit]:
    """Zero what lies behind the end of the queue in its last file. end: byte of the file. size: of a file."""
    if end >= size:
        return
    last = last_unit_byte(entry, end)
    if last > end:
        reason = "dead units behind the end of the queue"
        yield Edit("write", entry.path, reason, ("I-067",), end, last - end)


def last_byte(entry: DirectoryEntry, begin: int, length: int | None = None) -> int:
    """Offset behind the last non-zero byte of a file, at least `begin`. length: count no bytes beyond it; for a file
    that may be too long.

    Searches from the end and does not read holes of a sparse file. Raises Unreadable.
    """
    end = entry.counting if length is None else min(length, entry.counting)
    with opened(entry.path) as descriptor:
        for start, stop in reversed([*data_ranges(descriptor, begin, end)]):
            for at in reversed(range(start, stop, _WINDOW_BYTES)):
                data = read(descriptor, min(_WINDOW_BYTES, stop - at), at, entry.path)
                if data != _ZEROS[: len(data)]:
                    return at + len(data.rstrip(b"\0"))
    return begin


def last_unit_byte(entry: DirectoryEntry, begin: int) -> int:
    """`last_byte` for a queue file, searched from `begin` to the first long run of zeros: what a broker or a crash
    leaves behind the queue's end lies close to it. Raises Unreadable.
    """
    last = begin
    with opened(entry.path) as descriptor:
        for start, stop in data_ranges(descriptor, begin, entry.counting):
            for at in range(start, stop, _UNIT_GAP_BYTES):
                if at - last >= _UNIT_GAP_BYTES:
                    return last
                data = read(descriptor, min(_UNIT_GAP_BYTES, stop - at), at, entry.path)
                if data != _ZEROS[: len(data)]:
                    last = at + len(data.rstrip(b"\0"))
    return last


_EXT_CODES = ("I-079",)
_EXT_REASON = "this unit's size leads beyond the file: a broker does not start"


def ext_edits(snapshot: Snapshot) -> Iterator[Edit]:
    """Yield the edits of consumequeue_ext for all queues. Raises Unreadable."""
    size = snapshot.ext_file_bytes
    for queue, entries in sorted(snapshot.ext.items()):
        files = [entry for entry in entries if is_whole_file(entry, size)]
        for entry in entries:
            if entry not in files:
                yield Edit("move", entry.path, "not a whole file of consumequeue_ext", ("I-003",))
        named = _named_positions(snapshot, queue)
        for entry in _empty_ext_files(files, named):
            files.remove(entry)
            yield Edit("remove", entry.path, "empty file behind the last unit of the queue", ())
        for entry in files:
            yield from _relink_units(snapshot.bytes_of(entry)[:], entry, named, last=entry is files[-1])


def _empty_ext_files(files: list[DirectoryEntry], named: Ints) -> list[DirectoryEntry]:
    """Files of zeros behind the file with the last unit that the queue names: a start deletes them."""
    if not len(named):
        return []
    end = int(named.max())
    return [entry for entry in files if int(entry.name) > end and is_zero_from(entry, 0)]


def _relink_units(data: Bytes, entry: DirectoryEntry, named: Ints, *, last: bool) -> Iterator[Edit]:
    """Let each unit of a file lead to the next, up to the last unit that the queue names."""
    start, normalized = int(entry.name), data
    while (offset := _damaged_unit(normalized, entry.path)) is not None:
        named_here = named[(named >= start + offset) & (named < start + len(data))] - start
        size = int(named_here[named_here > offset].min(initial=offset)) - offset
        if not size and offset in named_here:
            size = min(UNIT_BYTES_MIN, len(data) - offset)
        if UNIT_BYTES_MIN <= size <= UNIT_BYTES_MAX:
            new = _ext_unit(normalized[offset:], size)
            normalized = normalized.copy()
            normalized[offset : offset + len(new)] = np.frombuffer(new, np.uint8)
        elif last and not len(named_here):
            # no unit is named here, and new units begin here: replace the noise by zeros
            length = last_byte(entry, offset) - offset
            yield Edit("write", entry.path, _EXT_REASON, _EXT_CODES, offset, length)
            return
        else:
            yield Edit("write", entry.path, _EXT_REASON, _EXT_CODES, offset, len(END_MARK), END_MARK)
            return
        yield Edit("write", entry.path, _EXT_REASON, _EXT_CODES, offset, len(new), new)


def _damaged_unit(data: Bytes, path: str) -> int | None:
    """Byte of the unit whose size leads beyond its file, None if there is none."""
    try:
        units_end(data, path)
    except ExtDamage as damage:
        return damage.offset
    return None


def _ext_unit(data: Bytes, size: int) -> bytes:
    """The bytes to write at the head of a unit of `size` bytes; a bit map of another size is dropped."""
    head = HEAD.parse(data[: HEAD.sizeof()].tobytes())
    field: bytes = END.build({"size": size})
    if head.bit_map_size in (0, size - HEAD.sizeof()):
        return field
    plain: bytes = UNIT.build({**head, "bit_map": b""})
    return field + plain[len(field) :]


def _named_positions(snapshot: Snapshot, queue: QueueId) -> Ints:
    """The positions in consumequeue_ext that the queue's units name, int64[n]."""
    found = [np.zeros(0, np.int64)]
    for entry in snapshot.queues.get(queue, ()):
        if not entry.directory:
            codes = read_units(entry, 0, entry.size // UNIT_BYTES)["tags_code"].astype(np.int64)
            found.append(codes[codes <= EXT_ADDRESS_MAX] - ADDRESS_BASE)
    return np.concatenate(found)
