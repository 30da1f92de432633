"""A batch consume queue as a broker holds it during load, recovery and dispatch (spec 02, 2.7).

The frame is that of any queue; what differs is a unit, when it is valid, that a queue reaches to the
start of its last record, and that units are appended whatever offset they tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...formats import message_properties as names
from ...formats.batch_consume_queue import UNIT
from ...formats.derive import Columns, Ragged, dtype_of
from ...formats.derive.ragged import Flags, Ints
from ...formats.property_columns import find
from .start import QueueFile, QueueState
from .units import UNITS_AT_ONCE, Units

BATCH_UNIT_DTYPE = dtype_of(UNIT)
NOT_COMPACTED = -1
_NO_OFFSET = -1


@dataclass
class BatchQueueState(QueueState):
    """A queue of batches. Its offsets are those of messages, told by its first and last unit."""

    dtype: ClassVar[np.dtype[Any]] = BATCH_UNIT_DTYPE
    _min_offset: int = _NO_OFFSET
    _max_offset: int = 0

    @property
    def min_offset(self) -> int:
        """minOffsetInQueue."""
        return self._min_offset

    @property
    def max_offset(self) -> int:
        """maxOffsetInQueue."""
        return self._max_offset

    def _reach(self, unit: np.void) -> int:
        return int(unit["physical_offset"])

    def recover(self, valid: tuple[int, int] = (0, 0)) -> None:
        """Find the end, then the offsets."""
        super().recover()
        if self.files:
            self._revise()

    def cut(self, log_end: int, valid: tuple[int, int] = (0, 0)) -> None:
        """Give up units at or behind the log end; the offsets are found again."""
        super().cut(log_end)
        if not self.files:
            self.max_physical = log_end - 1
        self._revise()

    def clear(self) -> None:
        """Delete all files."""
        super().clear()
        self._min_offset, self._max_offset = _NO_OFFSET, 0

    def _revise(self) -> None:
        """Min and max offset by the first unit and the last one, whatever they hold."""
        if not self.files:
            self._min_offset, self._max_offset = _NO_OFFSET, 0
            return
        self._revise_min()
        last = next((file for file in self.files[:-3:-1] if self._count(file)), None)
        if last is None:
            self._max_offset = 0
            return
        unit = last.read(self._count(last) - 1, 1)[0]
        self._max_offset = int(unit["msg_base_offset"]) + int(unit["batch_size"])

    def _revise_min(self) -> None:
        first = self.files[0]
        self.min_logic = first.start
        self._min_offset = _NO_OFFSET
        if self._count(first):
            self._min_offset = int(first.read(0, 1)["msg_base_offset"][0])

    def _count(self, file: QueueFile) -> int:
        """Units up to the write position."""
        return file.wrote // self.dtype.itemsize

    def put(self, units: Units, offsets: Ints, ext_bytes: int = 0) -> None:
        """Append units behind the last one, but those of records that it has already."""
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
        """Units that begin at queue `offsets`; zeros where none does."""
        found = np.zeros(len(offsets), self.dtype)
        for file in self.files:
            for start in range(0, self._count(file), UNITS_AT_ONCE):
                units = file.read(start, min(UNITS_AT_ONCE, self._count(file) - start))
                order = np.argsort(units["msg_base_offset"], kind="stable")
                bases = units["msg_base_offset"][order].astype(np.int64)
                at = np.minimum(np.searchsorted(bases, offsets), len(bases) - 1)
                mine = np.flatnonzero(bases[at] == offsets)
                found[mine] = units[order[at[mine]]]
        return found

    def correct_min_offset(self, log_start: int) -> bool:
        """Find the min offset: behind the units of the first file that lie before the log."""
        if not self.files:
            return True
        self._revise_min()
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
    """Units of batches for n records: `rows` of the columns, `units` as simple queues have them."""
    found = np.zeros(len(rows), BATCH_UNIT_DTYPE)
    for name in units.dtype.names or ():
        found[name] = units[name]
    found["store_time"] = columns.ints("store_timestamp")[rows]
    found["compacted_offset"] = NOT_COMPACTED
    properties = columns.ragged("properties")[rows]
    base, number = (find(properties, name) for name in (names.INNER_BASE, names.INNER_NUM))
    inner = (base.length > 0) & (number.length > 0)
    own = columns.ints("queue_offset")[rows]
    found["msg_base_offset"] = np.where(inner, _numbers(base, inner), own)
    found["batch_size"] = np.where(inner, _numbers(number, inner), 1)
    return found


def _numbers(texts: Ragged, there: Flags) -> Ints:
    """The numbers that some texts are; -1 for what is none."""
    found = np.full(len(texts), -1, np.int64)
    for row in np.flatnonzero(there).tolist():
        text = texts[row]
        found[row] = int(text) if text.isdigit() and len(text) < 19 else -1
    return found
