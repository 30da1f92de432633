"""Queues whose units are not at their queue offsets: batch queues, and queues of compaction topics (spec 02, 2.7, 2.8).

`batchconsumequeue/TOPIC/QUEUE_ID/` (5.x): units follow one another; each names the first queue offset of its batch and
the number of messages, so a queue offset is found by binary search. The last unit is the last valid one; zeros follow.
A broker loads, recovers and dispatches a batch queue like any queue (`BatchQueueState`). The differences: the unit, its
validity, that a queue's maximum physical offset is where its last record starts, and that units are appended whatever
queue offset they name.

Sparse queues (5.1+) say where the records of a compaction log lie. A file has the name of its log file, so names do not
follow from sizes. A file is read from its front. Queue offsets increase, with gaps where compaction dropped messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...formats import message_properties as names
from ...formats.batch_consume_queue import UNIT, UNIT_BYTES
from ...formats.derive import Columns, Ragged, dtype_of
from ...formats.derive.ragged import Flags, Ints, written
from ...formats.hashing import java_integer, java_string
from ...formats.property_columns import find
from ...formats.sparse_consume_queue import UNIT as SPARSE_UNIT
from ...formats.sparse_consume_queue import UNIT_BYTES as SPARSE_UNIT_BYTES
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..disk.layout import Layout, queue_directories
from ..disk.lock import stream_of
from .read import QueueInFiles, QueueSummary
from .start import LoadedQueueFile, QueueState
from .units import UNITS_AT_ONCE, FileUnits, Units, is_valid

WINDOW_UNITS = 1 << 14
BATCH_UNIT_DTYPE = dtype_of(UNIT)
NOT_COMPACTED = -1
_UNKNOWN_OFFSET = -1


class BatchUnit(NamedTuple):
    """One unit of a batch queue; names as in the schema."""

    number: int
    physical_offset: int
    size: int
    tags_code: int
    store_time: int
    msg_base_offset: int
    batch_size: int


class BatchConsumeQueue(QueueInFiles):
    """One batch queue, read-only; a context manager.

    files: the files of its units. Unit numbers count from the first unit of the first file.
    """

    @cached_property
    def stream(self) -> FileUnits:
        """The units as arrays."""
        return FileUnits(self.files, BATCH_UNIT_DTYPE)

    @property
    def first(self) -> int:
        """Number of the first unit that a file holds."""
        return self.stream.first

    @cached_property
    def stop(self) -> int:
        """Number behind the last valid unit; the file with that unit is read from its first whole unit on."""
        for file in reversed(self.files.files):
            stop = 0
            window = WINDOW_UNITS * UNIT_BYTES
            for at, data in self.files.windows(file, -file.start % UNIT_BYTES, file.size, window, UNIT_BYTES):
                found = np.flatnonzero(is_valid(np.frombuffer(data, BATCH_UNIT_DTYPE, len(data) // UNIT_BYTES)))
                if len(found):
                    stop = (file.start + at) // UNIT_BYTES + int(found[-1]) + 1
            if stop:
                return stop
        return self.first

    def units(self, first: int, stop: int) -> Iterator[tuple[int, Units]]:
        """Yield windows of units [first, stop): number of the first unit, structured array of UNIT.

        Leaves out units that no file holds, and units that cannot be read, which are noted. Raises Unreadable.
        """
        return self.stream.windows(first, stop, most=WINDOW_UNITS, holes=True)

    def unit(self, number: int) -> BatchUnit | None:
        """One unit; None if there is none or it names no record. Raises Unreadable."""
        file = self.files.file_at(number * UNIT_BYTES)
        if file is None:
            return None
        at = number * UNIT_BYTES - file.start
        data = self.files.readable(file, at, UNIT_BYTES, UNIT_BYTES)
        if len(data) < UNIT_BYTES:
            return None
        units = np.frombuffer(data, BATCH_UNIT_DTYPE)
        if not is_valid(units)[0]:
            return None
        return BatchUnit(number, *(int(units[name][0]) for name in BatchUnit._fields[1:]))

    def find(self, queue_offset: int) -> BatchUnit | None:
        """The batch with a queue offset: the last batch that begins at or before it.

        None if the offset is not in that batch. Raises Unreadable.
        """
        number = self._first_from("msg_base_offset", queue_offset + 1) - 1
        unit = self.unit(number) if number >= self.first else None
        if unit is None or queue_offset >= unit.msg_base_offset + unit.batch_size:
            return None
        return unit

    def position(self, queue_offset: int) -> int | None:
        """Where the record of a message begins, None without a valid unit for it. Raises Unreadable."""
        unit = self.find(queue_offset)
        return unit.physical_offset if unit is not None else None

    def may_be_cut_short(self) -> bool:
        """Whether the queue may have had more units: its files have no room behind the last one. Raises Unreadable."""
        return bool(self.files.files) and self.files.end < (self.stop + 1) * UNIT_BYTES

    def offset_at(self, time_ms: int, log_start: int = 0, log_end: int | None = None) -> int:
        """The queue offset that a broker answers for a time, always the first of a batch (spec 2.7); 0 for an empty
        queue.

        A broker looks at one file: the last one, or the one that begins last at or before the time. If the last batch
        of the file was stored by then, it is the answer, else the first batch of that time or later. Raises Unreadable.
        """
        ends, stop = self.summary(log_start, log_end), self._stop(log_end)
        files = [(-(-file.start // UNIT_BYTES), min(file.end // UNIT_BYTES, stop) - 1) for file in self.files.files]
        begins = [(unit.store_time, *file) for file in files if file[0] <= file[1] and (unit := self.unit(file[0]))]
        if not begins:
            return ends.min_offset
        before = [one for one in begins if one[0] <= time_ms] or begins[:1]
        _, first, last = begins[-1] if begins[-1][0] <= time_ms else max(before)
        end = self._nearest_valid(last, -1)
        if end is None or end.store_time > time_ms:
            end = self._nearest_valid(self._first_from("store_time", time_ms, first, last), 1)
        return ends.min_offset if end is None else min(max(end.msg_base_offset, ends.min_offset), ends.max_offset)

    def summary(self, log_start: int = 0, log_end: int | None = None) -> QueueSummary:
        """What the queue holds, for a log with the bytes log_start ≤ p < log_end."""
        last = self._nearest_valid(self._stop(log_end) - 1, -1)
        if last is None:
            return QueueSummary(self.topic, self.queue_id, 0, 0)
        first = self._nearest_valid(self._first_from("physical_offset", log_start), 1)
        stop = last.msg_base_offset + last.batch_size
        return QueueSummary(
            self.topic,
            self.queue_id,
            stop if first is None else min(first.msg_base_offset, stop),
            stop,
            last.physical_offset,
            last.physical_offset + last.size,
        )

    def _stop(self, log_end: int | None) -> int:
        """Number behind the last unit whose record begins before `log_end`."""
        return self.stop if log_end is None else self._first_from("physical_offset", log_end)

    def _nearest_valid(self, number: int, step: int) -> BatchUnit | None:
        """The first valid unit from `number` on, in steps of `step`; None if there is none."""
        while self.first <= number < self.stop:
            unit = self.unit(number)
            if unit is not None:
                return unit
            number += step
        return None

    def _first_from(self, name: str, value: int, low: int | None = None, high: int | None = None) -> int:
        """Number of the first unit of low ≤ k < high (default: all units) whose field `name` is at least `value`;
        `high` if there is none. The field must be ascending.
        """
        low, high = self.first if low is None else low, self.stop if high is None else high
        end = high
        while low < high:
            middle = (low + high) // 2
            unit = self._nearest_valid(middle, 1)
            if unit is not None and getattr(unit, name) < value:
                low = unit.number + 1
            else:
                high = middle
        return min(low, end)


class SparseUnits(NamedTuple):
    """Consecutive units. position: int64[n], the number in the file's name plus the byte in the file."""

    position: Ints
    units: Units


class SparseRange(NamedTuple):
    """Bytes that are no unit although units or other bytes follow; `reason` says why."""

    position: int
    size: int
    reason: str


class SparseSummary(NamedTuple):
    """What a queue holds. units: how many name a message. max_offset: behind the last queue offset."""

    units: int
    min_offset: int
    max_offset: int
    damaged_bytes: int


def sparse_units(files: MappedFileQueue, start: int | None = None) -> Iterator[SparseUnits | SparseRange]:
    """Yield all units in order from `position` start on, and ranges without units. Units may name no message.

    Zeros at the end of a file are left out. Raises Unreadable.
    """
    for file in files.files:
        if start is None or start < file.end:
            yield from _sparse_units_of(files, file, max(0, (start or 0) - file.start))


def _sparse_units_of(files: MappedFileQueue, file: MappedFile, start: int) -> Iterator[SparseUnits | SparseRange]:
    expected = -(-start // SPARSE_UNIT_BYTES)
    window = WINDOW_UNITS * SPARSE_UNIT_BYTES
    first = expected * SPARSE_UNIT_BYTES
    for offset, data in files.windows(file, first, file.size, window, SPARSE_UNIT_BYTES):
        whole = len(data) // SPARSE_UNIT_BYTES
        units = np.frombuffer(data, dtype_of(SPARSE_UNIT), whole)
        rows = np.flatnonzero(written(data, whole, SPARSE_UNIT_BYTES))
        for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else ():
            number = offset // SPARSE_UNIT_BYTES + run
            if int(number[0]) > expected:
                size = (int(number[0]) - expected) * SPARSE_UNIT_BYTES
                yield SparseRange(file.start + expected * SPARSE_UNIT_BYTES, size, "zeros between units")
            yield SparseUnits(file.start + number.astype(np.int64) * SPARSE_UNIT_BYTES, units[run])
            expected = int(number[-1]) + 1
        if any(rest := data[whole * SPARSE_UNIT_BYTES :]):
            begin = file.start + offset + whole * SPARSE_UNIT_BYTES
            yield SparseRange(begin, len(rest), "not a whole unit")


def summary_of(files: MappedFileQueue) -> SparseSummary:
    """Sum up the units of a sparse queue. Raises Unreadable."""
    count, damaged, first, last = 0, 0, 0, 0
    for part in sparse_units(files):
        if isinstance(part, SparseRange):
            damaged += part.size
            continue
        valid = part.units[is_valid(part.units)]
        if len(valid):
            first = first if count else int(valid["msg_base_offset"][0])
            last = int(valid["msg_base_offset"][-1]) + int(valid["batch_size"][-1])
            count += len(valid)
    return SparseSummary(count, first, last, damaged)


def batch_summaries(layout: Layout, log_start: int = 0, log_end: int | None = None) -> list[QueueSummary]:
    """What each batch queue of a store holds (5.x), sorted; see `BatchConsumeQueue.summary`. Raises Unreadable."""
    found = []
    for topic, queue_id, path in queue_directories(layout.batch_consume_queue):
        with BatchConsumeQueue(topic, queue_id, stream_of(layout, path)) as queue:
            found.append(queue.summary(log_start, log_end))
    return found


@dataclass
class BatchQueueState(QueueState):
    """A batch queue during a start. Its first and last unit give its offsets, which are those of messages."""

    dtype: ClassVar[np.dtype[Any]] = BATCH_UNIT_DTYPE
    _min_offset: int = _UNKNOWN_OFFSET
    _max_offset: int = 0

    @property
    def min_offset(self) -> int:
        return self._min_offset

    @property
    def max_offset(self) -> int:
        return self._max_offset

    def _max_physical_of(self, unit: np.void) -> int:
        return int(unit["physical_offset"])

    def recover(self, valid: tuple[int, int] = (0, 0)) -> None:
        """Find the end, then the min and max offset."""
        super().recover()
        if self.files:
            self._set_offsets()

    def cut(self, log_end: int, valid: tuple[int, int] = (0, 0)) -> None:
        """Give up units at or behind the log's end, then find the offsets once more."""
        super().cut(log_end)
        if not self.files:
            self.max_physical = log_end - 1
        self._set_offsets()

    def clear(self) -> None:
        super().clear()
        self._min_offset, self._max_offset = _UNKNOWN_OFFSET, 0

    def _set_offsets(self) -> None:
        """Set min and max offset by the first and the last unit, whatever these hold."""
        if not self.files:
            self._min_offset, self._max_offset = _UNKNOWN_OFFSET, 0
            return
        self._set_min_offset()
        last = next((file for file in self.files[:-3:-1] if self._count(file)), None)
        if last is None:
            self._max_offset = 0
            return
        unit = self._last_unit(last)
        self._max_offset = int(unit["msg_base_offset"]) + int(unit["batch_size"])

    def _last_unit(self, file: LoadedQueueFile) -> np.void:
        """The unit-sized bytes before the write position; where a file starts between units, parts of two units."""
        size = self.dtype.itemsize
        number, shift = divmod(file.wrote - size, size)
        data = file.read(number, 2 if shift else 1).tobytes()[shift : shift + size]
        unit: np.void = np.frombuffer(data, self.dtype)[0]
        return unit

    def _set_min_offset(self) -> None:
        first = self.files[0]
        self.min_logic = first.start
        self._min_offset = _UNKNOWN_OFFSET
        if self._count(first):
            self._min_offset = int(first.read(0, 1)["msg_base_offset"][0])

    def _count(self, file: LoadedQueueFile) -> int:
        """Number of units up to the write position."""
        return file.wrote // self.dtype.itemsize

    def put(self, units: Units, offsets: Ints, ext_bytes: int = 0) -> None:
        """Append units, except of records that the queue has already."""
        units = units[(units["msg_base_offset"] >= 0) & (units["batch_size"] >= 0)]
        reach = np.maximum.accumulate(np.append(self.max_physical, units["physical_offset"]))
        units = units[units["physical_offset"] > reach[:-1]]
        if not len(units):
            return
        if not self.files:
            self.files.append(self._new_file(0))
        if self.end == self.files[0].start:
            self._min_offset = int(units["msg_base_offset"][0])
        self._append(units)
        self.max_physical = int(units["physical_offset"][-1])
        self._max_offset = int(units["msg_base_offset"][-1]) + int(units["batch_size"][-1])

    def lookup(self, offsets: Ints) -> Units:
        """Units whose batches begin at queue `offsets`; zeros where none does, or behind the end, where a pull ends."""
        found = np.zeros(len(offsets), self.dtype)
        for file in self.files:
            for start in range(0, self._count(file), UNITS_AT_ONCE):
                units = file.read(start, min(UNITS_AT_ONCE, self._count(file) - start))
                order = np.argsort(units["msg_base_offset"], kind="stable")
                bases = units["msg_base_offset"][order].astype(np.int64)
                at = np.minimum(np.searchsorted(bases, offsets), len(bases) - 1)
                rows = np.flatnonzero(bases[at] == offsets)
                found[rows] = units[order[at[rows]]]
        found[offsets >= self._max_offset] = np.zeros(1, self.dtype)
        return found

    def correct_min_offset(self, log_start: int) -> bool:
        """Set the min offset behind those first units of the first file whose records lie before the log."""
        if not self.files:
            return True
        self._set_min_offset()
        first = self.files[0]
        for start in range(0, self._count(first), UNITS_AT_ONCE):
            units = first.read(start, min(UNITS_AT_ONCE, self._count(first) - start))
            kept = units["physical_offset"] >= log_start
            count = int(kept.argmax()) if kept.any() else len(units)
            if count:
                last = units[count - 1]
                self._min_offset = int(last["msg_base_offset"]) + int(last["batch_size"])
            if count < len(units):
                break
        return True


def batch_units(columns: Columns, rows: Ints, units: Units) -> Units:
    """Units of batches for n records: `rows` of `columns`. units: their units as of a simple queue."""
    found = np.zeros(len(rows), BATCH_UNIT_DTYPE)
    for name in units.dtype.names or ():
        found[name] = units[name]
    found["store_time"] = columns.ints("store_timestamp")[rows]
    found["compacted_offset"] = NOT_COMPACTED
    properties = columns.ragged("properties")[rows]
    base, number = (find(properties, name) for name in (names.INNER_BASE, names.INNER_NUM))
    inner = (base.length > 0) & (number.length > 0)
    own = columns.ints("queue_offset")[rows]
    found["msg_base_offset"] = np.where(inner, _numbers(base, inner, 64), own)
    found["batch_size"] = np.where(inner, _numbers(number, inner, 16), 1)
    return found


def _numbers(texts: Ragged, there: Flags, bits: int) -> Ints:
    """Parse n texts as integers of `bits` bits; -1 where `there` is false or the text is no number."""
    found = np.full(len(texts), -1, np.int64)
    for row in np.flatnonzero(there).tolist():
        value = java_integer(java_string(texts[row]), bits)
        found[row] = -1 if value is None else value
    return found
