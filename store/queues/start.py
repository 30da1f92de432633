"""A consume queue and its consumequeue_ext as a broker holds them in memory during load, recovery and dispatch.

The files on disk are read, never written: what the broker would append lies in memory, on top of them. Bytes behind a
write position stay visible, as in the broker's mapped files; so a cut of the queues can take up stale units again (spec
2.5).

Of consumequeue_ext (spec 02, 2.6) only sizes count: those that a start reads of the units to find their end, and those
of the units that its dispatch adds. A broker trusts each size; if a size leads beyond its file, the broker throws, and
the load fails (B37).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...formats.consume_queue import EXT_ADDRESS_MAX
from ...formats.consume_queue_ext import ADDRESS_BASE, END, HEAD, SPARE_BYTES, UNIT_BYTES_MAX, UNIT_BYTES_MIN
from ...formats.derive import dtype_of
from ...formats.derive.ragged import Bytes, Ints, overlapping
from ..broker.load_rules import LoadedFile, truncate
from ..broker.profiles import MinOffset, QueueRules
from ..broker.snapshot import DirectoryEntry, FileBytes, Snapshot
from .filter_bits import BloomFilter, consumer_filters, read_filters
from .read import is_cut
from .units import UNIT_DTYPE, UNITS_AT_ONCE, Units, gather, is_valid, pre_fill, read_units

_SIZE = dtype_of(END)
_HEAD = dtype_of(HEAD)
_SIZES_AT_ONCE = 4096


class ExtDamage(Exception):
    """The exception that a broker throws when it reads the units; `reason` in its words.

    offset: byte in the file of the unit whose size leads beyond the file.
    """

    def __init__(self, reason: str, path: str, offset: int) -> None:
        super().__init__(reason, path, offset)
        self.reason, self.path, self.offset = reason, path, offset


def units_end(data: Bytes, path: str) -> int:
    """Byte behind the last unit of a file, by the sizes of the units alone. Raises ExtDamage."""
    sizes = overlapping(data, _SIZE)["size"]
    at = before = 0
    while at < len(sizes):
        step = int(sizes[at])
        if step <= 0:
            return at
        alike = sizes[at : at + step * _SIZES_AT_ONCE : step] == step
        count = len(alike) if alike.all() else int(alike.argmin())
        before = at + (count - 1) * step
        at += count * step
    if at > len(data):
        reason = f"IllegalArgumentException: newPosition > limit: ({at} > {len(data)})"
        raise ExtDamage(reason, path, before)
    raise ExtDamage("BufferUnderflowException", path, before)


@dataclass
class ExtFile(LoadedFile):
    """A file of consumequeue_ext. added_at: byte where the units begin that this run adds, None without any."""

    added_at: int | None = None


@dataclass
class ExtState:
    """consumequeue_ext of a queue after load. read: gives the bytes of a file. Only sizes are tracked."""

    file_bytes: int
    read: Callable[[DirectoryEntry], FileBytes]
    files: list[ExtFile] = field(default_factory=list)
    removed: list[ExtFile] = field(default_factory=list)

    def load(self, loaded: Sequence[LoadedFile]) -> None:
        """Take these files, each as full."""
        self.files = [ExtFile(f.start, f.wrote, f.entry) for f in loaded]

    def recover(self, last_address: int) -> None:
        """Find the end of the units, then cut behind the unit that the queue names last.

        last_address: tags_code of the queue's last unit that has an address. Raises ExtDamage.
        """
        if not self.files:
            return
        end = 0
        for file in self.files:
            assert file.entry is not None
            end = file.start + units_end(self.read(file.entry)[:], file.entry.path)
        self._truncate(end)
        if last_address <= EXT_ADDRESS_MAX:
            self._cut_behind_unit(last_address - ADDRESS_BASE)

    def _cut_behind_unit(self, position: int) -> None:
        """Drop what lies behind the unit at a position; keep all if there is no unit. Raises ExtDamage."""
        file = next((f for f in self.files if 0 <= position - f.start < self.file_bytes), None)
        if file is None and not position and self.files:
            file = self.files[0]
        offset = position % self.file_bytes
        if file is None or file.entry is None or not 0 <= offset < file.wrote - 1:
            return
        available = file.wrote - offset
        data = self.read(file.entry)[offset : file.wrote]
        size = int(overlapping(data, _SIZE)["size"][0])
        if size < 1:
            return
        heads = overlapping(data, _HEAD)
        if not len(heads) or max(0, int(heads["bit_map_size"][0])) > available - UNIT_BYTES_MIN:
            raise ExtDamage("BufferUnderflowException", file.entry.path, offset)
        self._truncate(position + size)

    def _truncate(self, end: int) -> None:
        files: list[LoadedFile] = list(self.files)
        removed = truncate(files, end, self.file_bytes)
        self.removed += [file for file in self.files if file in removed]
        self.files = [file for file in self.files if file not in removed]

    def drop_before(self, address: int) -> None:
        """Delete the files before the one with the queue's first unit. address: tags_code of that unit."""
        if address > EXT_ADDRESS_MAX:
            return
        position = address - ADDRESS_BASE
        self.removed += [f for f in self.files if f.start + self.file_bytes < position]
        self.files = [f for f in self.files if f.start + self.file_bytes >= position]

    def clear(self) -> None:
        self.removed += self.files
        self.files = []

    def append(self, count: int, size: int) -> Ints | None:
        """Add `count` units of one size. Returns their addresses, int64[count]; None if the size is too large."""
        if size > min(UNIT_BYTES_MAX, self.file_bytes - SPARE_BYTES):
            return None
        addresses = np.zeros(count, np.int64)
        done = 0
        while done < count:
            file = self._file_for(size)
            fitting = min(count - done, (self.file_bytes - file.wrote - SPARE_BYTES) // size)
            first = ADDRESS_BASE + file.start + file.wrote
            addresses[done : done + fitting] = first + size * np.arange(fitting, dtype=np.int64)
            file.added_at = file.wrote if file.added_at is None else file.added_at
            file.wrote += fitting * size
            done += fitting
        return addresses

    def _file_for(self, size: int) -> ExtFile:
        """The last file, if it has room for a unit, else a new file behind it."""
        if self.files and size > self.file_bytes - self.files[-1].wrote - SPARE_BYTES:
            self.files[-1].wrote = self.file_bytes
        if not self.files or self.files[-1].wrote == self.file_bytes:
            start = self.files[-1].start + self.file_bytes if self.files else 0
            self.files.append(ExtFile(start, 0, None))
        return self.files[-1]


class ExtRules(NamedTuple):
    """How a broker writes consumequeue_ext: size of its files, and of the bit maps in its units.

    filtered: topics whose messages get a bit map of `bit_map_bytes`.
    """

    snapshot: Snapshot
    filtered: frozenset[str] = frozenset()
    bit_map_bytes: int = 0

    @classmethod
    def of(cls, snapshot: Snapshot) -> ExtRules:
        """The rules by the store's configuration. Raises Unsupported, InvalidInput."""
        layout = snapshot.layout
        if not layout.broker_config.get_bool("enableCalcFilterBitMap"):
            return cls(snapshot)
        bloom = BloomFilter.from_config(layout.broker_config)
        filters = consumer_filters(read_filters(layout), bloom)
        return cls(snapshot, frozenset(filters), bloom.bytes)

    def new(self) -> ExtState:
        """The state of a queue without files."""
        return ExtState(self.snapshot.ext_file_bytes, self.snapshot.bytes_of)

    def unit_bytes(self, topic: str) -> int:
        """Size of the units of a topic's messages."""
        return UNIT_BYTES_MIN + (self.bit_map_bytes if topic in self.filtered else 0)


_RECOVERED_FILES = 3
_FEW_UNITS = 64
_JAVA_LONG_END = 1 << 63
_NO_ADDRESS = 1


@dataclass
class LoadedQueueFile(LoadedFile):
    """A queue file. added: units that only this run has written, from byte `added_at` on. dtype: of a unit."""

    dtype: np.dtype[Any] = UNIT_DTYPE
    added_at: int = 0
    added: list[Units] = field(default_factory=list)

    def read(self, first: int, count: int) -> Units:
        """Units from number `first` of the file on: those on disk, overlaid by added ones."""
        units = read_units(self.entry, first, count, self.dtype)
        position = self.added_at // self.dtype.itemsize
        for part in self.added:
            begin, end = max(first, position), min(first + count, position + len(part))
            if begin < end:
                units[begin - first : end - first] = part[begin - position : end - position]
            position += len(part)
        return units

    def append(self, units: Units) -> None:
        """Write units at the write position, and move it."""
        if not self.added:
            self.added_at = self.wrote
        elif self.added_at + sum(map(len, self.added)) * self.dtype.itemsize != self.wrote:
            self.added_at, size = min(self.added_at, self.wrote), self.dtype.itemsize
            self.added = [self.read(self.added_at // size, (self.wrote - self.added_at) // size)]
        self.added.append(units)
        self.wrote += len(units) * self.dtype.itemsize


@dataclass
class QueueState:
    """A queue after load. `max_physical`: how far it reaches in the log, -1 if it is empty.

    ext: its consumequeue_ext, None if the broker has none. known: gives units of its files, with position and size, by
    first number and count, as far as they were read before; None: units are read.
    """

    dtype: ClassVar[np.dtype[Any]] = UNIT_DTYPE

    rules: QueueRules
    file_bytes: int
    files: list[LoadedQueueFile] = field(default_factory=list)
    removed: list[LoadedQueueFile] = field(default_factory=list)
    max_physical: int = -1
    min_logic: int = 0
    ext: ExtState | None = None
    known: Callable[[int, int], Units | None] | None = None

    def load(self, loaded: Sequence[LoadedFile]) -> None:
        """Take these files, each as full."""
        self.files = [LoadedQueueFile(f.start, f.wrote, f.entry, self.dtype) for f in loaded]

    @property
    def end(self) -> int:
        """Append position as a byte of the stream."""
        return self.files[-1].start + self.files[-1].wrote if self.files else 0

    @property
    def max_offset(self) -> int:
        """maxOffsetInQueue."""
        return self.end // self.dtype.itemsize

    @property
    def min_offset(self) -> int:
        """minOffsetInQueue."""
        return self.min_logic // self.dtype.itemsize

    def hole_at(self, _absent: Ints) -> int | None:
        """None: a pull goes on behind a hole."""
        return None

    def _max_physical_of(self, unit: np.void) -> int:
        reach = int(unit["physical_offset"]) + (int(unit["size"]) if self.rules.reaches_end else 0)
        return reach if reach < _JAVA_LONG_END else reach - 2 * _JAVA_LONG_END

    def _windows(self, file: LoadedQueueFile, first: int = 0) -> Iterator[tuple[int, Units]]:
        """Yield (number of the first unit in the file, units) up to the end of the file.

        first: not 0 if earlier units are known; the first window is then small, since the end is near.
        """
        total = self.file_bytes // self.dtype.itemsize
        start, count = first, _FEW_UNITS if first else UNITS_AT_ONCE
        while start < total:
            yield start, self._read(file, start, min(count, total - start))
            start, count = start + count, UNITS_AT_ONCE

    def _read(self, file: LoadedQueueFile, first: int, count: int) -> Units:
        """Units from number `first` of a file on; their tags codes may be wrong."""
        units = None
        if self.known is not None and self.ext is None and not file.added:
            units = self.known(file.start // self.dtype.itemsize + first, count)
        return file.read(first, count) if units is None else units

    def recover(self, valid: tuple[int, int] = (0, 0)) -> None:
        """Find the end: the first invalid unit, from the third last file on (2.5).

        valid: first queue offset, and offset behind the last, of units that are known to be valid. Raises ExtDamage.
        """
        if not self.files:
            return
        index = max(0, len(self.files) - _RECOVERED_FILES)
        last_address = _NO_ADDRESS
        while True:
            file = self.files[index]
            valid_units = 0
            for start, units in self._windows(file, self._skippable_units(file, valid)):
                bad = np.flatnonzero(~is_valid(units))
                count = int(bad[0]) if len(bad) else len(units)
                if count:
                    self.max_physical = self._max_physical_of(units[count - 1])
                    if self.ext is not None:
                        last_address = _last_address(units[:count], last_address)
                valid_units = start + count
                if len(bad):
                    break
            position = file.start + valid_units * self.dtype.itemsize
            if valid_units * self.dtype.itemsize < self.file_bytes or index + 1 >= len(self.files):
                break
            index += 1
        self._truncate(position)
        if self.ext is not None:
            self.ext.recover(last_address)

    def _skippable_units(self, file: LoadedQueueFile, valid: tuple[int, int]) -> int:
        """How many of a file's first units may be skipped; the last valid unit is always read."""
        begin = file.start // self.dtype.itemsize
        if valid[0] > begin or file.start % self.file_bytes or self.ext is not None:
            return 0
        return max(0, min(valid[1] - begin, self.file_bytes // self.dtype.itemsize) - 1)

    def _new_file(self, start: int) -> LoadedQueueFile:
        return LoadedQueueFile(start, 0, None, self.dtype)

    def _truncate(self, end: int) -> None:
        files: list[LoadedFile] = list(self.files)
        removed = truncate(files, end, self.file_bytes)
        self.removed += [f for f in removed if isinstance(f, LoadedQueueFile)]
        self.files = [f for f in files if isinstance(f, LoadedQueueFile)]

    def cut(self, log_end: int, valid: tuple[int, int] = (0, 0)) -> None:
        """`truncateDirtyLogicFiles`: drop units at or behind the log's end (2.5).

        The first unit of a file is not tested for validity (B4). valid: first queue offset, and offset behind the last,
        of units that are known to be valid and to lie before the log's end.
        """
        self.max_physical = log_end if self.rules.reaches_end else log_end - 1
        while self.files:
            file = self.files[-1]
            file.wrote = 0
            for start, units in self._windows(file, self._skippable_units(file, valid)):
                cut = is_cut(units["physical_offset"], log_end)
                stop = ~is_valid(units) | cut
                if start == 0:
                    stop[0] = cut[0]
                count = int(stop.argmax()) if stop.any() else len(units)
                if count:
                    file.wrote = (start + count) * self.dtype.itemsize
                    self.max_physical = self._max_physical_of(units[count - 1])
                if count < len(units):
                    break
            if file.wrote:
                return
            self.removed.append(self.files.pop())

    def clear(self) -> None:
        """Delete all files (no commit log file, spec 7.4 step 5)."""
        self.removed += self.files
        self.files = []
        self.max_physical = -1
        if self.ext is not None:
            self.ext.clear()

    def put(self, units: Units, offsets: Ints, ext_bytes: int = 0) -> None:
        """Dispatch units, in log order, with the queue offsets of their records (spec 2.2).

        ext_bytes: size of their units in consumequeue_ext. Those are written first, and stay even if the queue has a
        unit already.
        """
        position, count = 0, len(units)
        if self.ext is not None and (addresses := self.ext.append(count, ext_bytes)) is not None:
            units = units.copy()
            units["tags_code"] = addresses
        reach = units["physical_offset"].astype(np.int64)
        if self.rules.reaches_end:
            reach = reach + units["size"]
        while position < count:
            new = reach[position:] > self.max_physical
            if not new.any():
                return
            position += int(new.argmax())  # the queue has the units before already
            run = self._regular_run(reach[position:], offsets[position:])
            if run:
                self._append(units[position : position + run])
                self.max_physical = int(reach[position + run - 1])
                position += run
            else:
                self._put_one(units[position : position + 1], int(offsets[position]))
                position += 1

    def _regular_run(self, reach: Ints, offsets: Ints) -> int:
        """How many of the first units are appended one after the other.

        Queue offsets behind a gap lie ahead of the queue's end; a broker does not look by how much (B1).
        """
        if not self.files or self.files[-1].wrote == 0:
            return 0
        before = np.concatenate([np.array([self.max_physical], np.int64), reach[:-1]])
        expected = self.end // self.dtype.itemsize + np.arange(len(reach))
        odd = np.flatnonzero((reach <= before) | (offsets < expected))
        return int(odd[0]) if len(odd) else len(reach)

    def _put_one(self, unit: Units, queue_offset: int) -> None:
        if self._max_physical_of(unit[0]) <= self.max_physical:
            return
        position = queue_offset * self.dtype.itemsize
        file = self._file_for(position)
        if queue_offset and file.start + file.wrote > position:
            return
        self.max_physical = self._max_physical_of(unit[0])
        self._append(unit)

    def _file_for(self, position: int) -> LoadedQueueFile:
        """The file to append to; a queue's very first file is pre-filled up to `position` (2.1)."""
        if not self.files:
            file = self._new_file(position - position % self.file_bytes)
            self.files.append(file)
            filled = position % self.file_bytes // self.dtype.itemsize
            if filled:
                file.append(pre_fill(filled))
            if position:
                self.min_logic = position
        elif self.files[-1].wrote == self.file_bytes:
            self.files.append(self._new_file(self.files[-1].start + self.file_bytes))
        return self.files[-1]

    def _append(self, units: Units) -> None:
        """Append at the end, to as many files as needed."""
        while len(units):
            if self.files[-1].wrote == self.file_bytes:
                self.files.append(self._new_file(self.files[-1].start + self.file_bytes))
            file = self.files[-1]
            room = (self.file_bytes - file.wrote) // self.dtype.itemsize
            file.append(units[:room])
            units = units[room:]

    def correct_min_offset(self, log_start: int) -> bool:
        """Find the min offset (spec 2.4). Returns False if the broker throws (B16)."""
        if self.rules.min_offset is MinOffset.LINEAR:
            self._min_linear(log_start)
            return True
        return self._min_binary(log_start)

    def _min_linear(self, log_start: int) -> None:
        if not self.files:
            return
        file = self.files[0]
        for start, units in self._windows(file):
            inside = units[: max(0, file.wrote // self.dtype.itemsize - start)]
            good = np.flatnonzero(inside["physical_offset"] >= log_start)
            if len(good):
                self._set_min(file, start + int(good[0]), inside[good[0]])
                return
            if len(inside) < len(units):
                return

    def _min_binary(self, log_start: int) -> bool:
        if not self.files and self.rules.fileless_reaches_nowhere:
            self.min_logic, self.max_physical = 0, -1
        if self.min_logic >= self.end or not self.files:
            return True
        last = self.files[-1]
        if last.wrote < self.dtype.itemsize:
            return not self.rules.empty_last_refuses
        if self._physical_offset(last, last.wrote // self.dtype.itemsize - 1) < log_start:
            self.min_logic = last.start + last.wrote
            return True
        first = self.files[0]
        begin, intact = self.min_logic - first.start, True
        if begin < 0:
            begin, intact = 0, False
        if begin >= first.wrote:
            return True
        low, high = begin // self.dtype.itemsize, first.wrote // self.dtype.itemsize - 1
        if intact and self._physical_offset(first, low) >= log_start:
            return True
        self._binary_search(first, low, high, log_start)
        return True

    def _binary_search(self, file: LoadedQueueFile, low: int, high: int, log_start: int) -> None:
        """Binary search as the broker does it, which trusts the order of the units (B23)."""
        while high - low > 1:
            middle = (low + high) // 2
            physical = self._physical_offset(file, middle)
            if physical == log_start:
                low = high = middle
            elif physical > log_start:
                high = middle
            else:
                low = middle
        for number in range(low, high + 1):
            if self._physical_offset(file, number) >= log_start:
                self._set_min(file, number, file.read(number, 1)[0])
                return

    def _set_min(self, file: LoadedQueueFile, number: int, unit: np.void) -> None:
        self.min_logic = file.start + number * self.dtype.itemsize
        if self.ext is not None:
            self.ext.drop_before(int(unit["tags_code"]))

    def _physical_offset(self, file: LoadedQueueFile, number: int) -> int:
        return int(self._read(file, number, 1)["physical_offset"][0])

    def lookup(self, offsets: Ints) -> Units:
        """Units at queue `offsets`, if they are written; zeros elsewhere."""
        return self.units_at(offsets)

    def shows_disk(self, first: int, behind: int) -> bool:
        """Whether units `first` ≤ k < `behind` are written, and come from the disk."""
        begin, end = first * self.dtype.itemsize, behind * self.dtype.itemsize
        shown = 0
        for file in self.files:
            reach = file.start + (min(file.added_at, file.wrote) if file.added else file.wrote)
            if file.entry is None or file.start % self.file_bytes:
                return False
            shown += max(0, min(end, reach) - max(begin, file.start))
        return shown == end - begin

    def has_taken(self, first: int, parts: Sequence[Units]) -> bool:
        """Whether units from number `first` on are these very arrays, because they were appended."""
        appended = dict[int, Units]()
        for file in self.files:
            number = (file.start + file.added_at) // self.dtype.itemsize
            for units in file.added:
                appended[number] = units
                number += len(units)
        for part in parts:
            done = 0
            while done < len(part):
                units = appended.get(first, part[:0])
                same = part[done : done + len(units)]
                if not len(units) or units.__array_interface__ != same.__array_interface__:
                    return False
                done, first = done + len(units), first + len(units)
        return True

    def units_at(self, numbers: Ints) -> Units:
        """Units by their `numbers` in the stream, if they are written; zeros elsewhere."""
        found = np.zeros(len(numbers), self.dtype)
        size = self.dtype.itemsize
        positions = numbers * size
        for file in self.files:
            rows = np.flatnonzero((positions >= file.start) & (positions < file.start + file.wrote))
            if len(rows):
                at = (positions[rows] - file.start) // size
                found[rows] = gather(file.read, at, self.dtype)
        return found


def _last_address(units: Units, before: int) -> int:
    """tags_code of the last unit that names a unit in consumequeue_ext, else `before`."""
    named = np.flatnonzero(units["tags_code"] <= EXT_ADDRESS_MAX)
    return int(units["tags_code"][named[-1]]) if len(named) else before
