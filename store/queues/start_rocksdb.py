"""A RocksDB of consume queues as a broker holds it in memory during load, recovery and dispatch (spec 7.14).

The database is not changed: what a broker would write lies in memory, on top of it. A broker goes by the rows of the
bounds (family `offset`); it never compares the units themselves with the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import NamedTuple

import numpy as np
from construct import ConstructError

from ...formats import rocksdb_consume_queue as formats
from ...formats.derive.ragged import Flags, Ints, Structs
from ...formats.fixed import numbers_of
from ...formats.hashing import utf8
from ...formats.rocksdb_consume_queue import BOUNDS, MAX, MIN, UNIT_BYTES, UNITS
from ..broker.snapshot import QueueId
from ..broker.system_topics import LMQ_PREFIX
from ..disk.temporary import Spill
from ..errors import Unreadable
from .rocksdb import QueueBound, RocksDb, RocksdbConsumeQueue
from .start import QueueState
from .units import LARGEST_OFFSET, UNIT_DTYPE, Units, gather, is_valid, joined

_UNIT = numbers_of(formats.UNIT)
_BOUND = numbers_of(formats.BOUND)
_CHECKPOINT = numbers_of(formats.CHECKPOINT)
_SHORTEST_KEY = len(formats.bound_key(b"", 0, MAX))
_NONE = -1
_AT_ONCE = 1 << 14
_BEHIND = 1 << 10
"""So many numbers behind those of messages their units are looked for at once."""
_MANY_UNITS = 1 << 12
"""So many units of a queue are joined at once."""
_BATCH_RECORDS = 256
"""A broker writes the units of at most so many records in one batch, those of the last record first."""
_MARKED = 64
"""The position of one dispatched record in so many is remembered."""
_BATCHES_MAX = 32
"""So many small batches of a queue are joined: with hundreds of queues each batch has few units of a queue."""


class Commit(Enum):
    """When the thread that writes units gets to those of a recovery, which does not wait for it (B42)."""

    BEFORE_CUT = "before the recovery cuts the rows"
    BEFORE_START = "behind that, before queues are compared"
    LAST = "when the queues have been compared"
    IN_PARTS = "before the cut, the last record alone at last"
    BACKWARDS = "before the cut, units of earlier records over those of later ones with the same number"


class RowDamage(Exception):
    """The exception that a broker throws at a row; `reason` in its words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class _AddedUnits:
    """Units on top of those of the database; small batches are joined."""

    spill: Spill
    offsets: list[Ints] = field(default_factory=list)
    units: list[Units] = field(default_factory=list)
    #: The latest batches, not joined yet.
    _unjoined: list[tuple[Ints, Units]] = field(default_factory=list)
    #: Sorted by number, of several with one number the latest; None: not computed yet.
    settled: tuple[Ints, Units] | None = None
    #: Whether numbers did not ascend; of those with several units the last but one, as `settled`.
    repeats: bool = False
    earlier: tuple[Ints, Units] | None = None
    highest: int = _NONE

    @property
    def last(self) -> QueueBound:
        offsets, units = self._unjoined[-1] if self._unjoined else (self.offsets[-1], self.units[-1])
        return QueueBound(int(units["physical_offset"][-1]), int(offsets[-1]))

    def put(self, offsets: Ints, units: Units) -> None:
        self.repeats |= bool((np.diff(offsets, prepend=self.highest) <= 0).any())
        self.highest = max(self.highest, int(offsets.max(initial=_NONE)))
        self._unjoined.append((offsets, units))
        self.settled = None
        if len(self._unjoined) >= _BATCHES_MAX or len(offsets) >= _MANY_UNITS:
            self._join()

    def _join(self) -> None:
        if self._unjoined:
            self.offsets.append(self.spill.keep(np.concatenate([few[0] for few in self._unjoined])))
            self.units.append(self.spill.keep(joined([few[1] for few in self._unjoined])))
            self._unjoined = []

    def put_all(self, later: _AddedUnits) -> None:
        """Add later units, at least one."""
        self._join()
        later._join()
        self.repeats, self.highest = True, max(self.highest, later.highest)
        self.offsets += later.offsets
        self.units += later.units
        self.settled = None

    def all(self) -> tuple[Ints, Units]:
        """Queue offsets, ascending, and their units."""
        if self.settled is None:
            self._join()
            offsets, units = np.concatenate(self.offsets), joined(self.units)
            latest = _latest(offsets)
            if self.repeats:
                others = np.delete(np.arange(len(offsets)), latest)
                rows = others[_latest(offsets[others])]
                self.earlier = offsets[rows], units[rows]
            self.settled = self.spill.keep(offsets[latest]), self.spill.keep(units[latest])
            self.offsets, self.units = [self.settled[0]], [self.settled[1]]
        return self.settled


def _latest(offsets: Ints) -> Ints:
    """The rows of the last unit of each number, by number."""
    return len(offsets) - 1 - np.unique(offsets[::-1], return_index=True)[1]


class Queued(NamedTuple):
    """Units of one queue to dispatch, in log order."""

    queue: QueueId
    offsets: Ints
    units: Units


@dataclass
class DatabaseState:
    """The database after load; `source` is None if it is newly made.

    row: log position up to which the database has units, by its CHECKPOINT_TOPIC row, 0 without one; dispatch_from: the
    same when the recovery began. Methods raise RowDamage where a broker throws.
    """

    source: RocksDb | None
    rows: dict[bytes, bytes] = field(default_factory=dict)
    row: int = 0
    dispatch_from: int = 0
    #: Log position where the log begins.
    log_start: int = 0
    #: Some units that were needed cannot be read.
    unreadable: bool = False
    #: A pull also fails at the unit before a hole.
    looks_ahead: bool = True
    #: Queues whose `max` row is too long: it counts only when it is looked up.
    _too_long: set[QueueId] = field(default_factory=set)
    #: Queues whose `min` row makes each lookup and each pull throw.
    throwing: set[QueueId] = field(default_factory=set)
    _first_asked: dict[QueueId, int] = field(default_factory=dict)
    _highest: dict[QueueId, int] = field(default_factory=dict)
    _lowest: dict[QueueId, QueueBound] = field(default_factory=dict)
    _added: dict[QueueId, _AddedUnits] = field(default_factory=dict)
    _waiting: dict[QueueId, _AddedUnits] = field(default_factory=dict)
    _spill: Spill = field(default_factory=Spill)
    _waiting_row: int = _NONE
    _waiting_last: int = _NONE
    #: The thread wrote units, at a moment that depends on a race. backwards: the last record lay before others.
    wrote: bool = False
    backwards: bool = False
    #: A row named a position behind the log's end.
    ahead: bool = False
    #: As with `Commit.BACKWARDS`.
    earlier_stay: bool = False
    _dispatched: int = 0
    _marks: list[int] = field(default_factory=list)
    _earlier: dict[QueueId, tuple[Ints, Units]] = field(default_factory=dict)

    @classmethod
    def load(cls, source: RocksDb | None) -> DatabaseState:
        """Read the rows of the family `offset`, and CHECKPOINT_TOPIC. Raises RowDamage."""
        state = cls(source)
        if source is None:
            return state
        try:
            for key, value in source.items(BOUNDS):
                state.rows[key] = value
        except Unreadable as error:
            raise RowDamage(f"RocksDBException ({error.message})") from error
        for key, value in state.rows.items():
            state._load_row(key, value)
        row = state.rows.get(formats.CHECKPOINT_KEY)
        if row is not None and len(row) < _CHECKPOINT.size:
            raise RowDamage("IndexOutOfBoundsException at the row of CHECKPOINT_TOPIC")
        state.row = int(_CHECKPOINT.unpack(row[: _CHECKPOINT.size])[0]) if row else 0
        state.dispatch_from = state.row
        return state

    def _load_row(self, key: bytes, value: bytes) -> None:
        """Load one row: highest queue offsets are kept in memory. Raises RowDamage."""
        if len(key) <= _SHORTEST_KEY:
            return
        try:
            found = formats.BOUND_KEY.parse(key)
        except ConstructError as error:
            raise RowDamage("BufferUnderflowException at a key of the family offset") from error
        if len(value) < _BOUND.size or found.bound != MAX:
            return
        queue = QueueId(found.topic.decode("utf-8", "surrogateescape"), found.queue_id)
        if len(value) == _BOUND.size:
            self._highest.setdefault(queue, int(_BOUND.unpack(value)[1]))
        else:
            self._too_long.add(queue)

    @property
    def queues(self) -> list[QueueId]:
        """Queues that have a row or get units, sorted."""
        found = set(self._highest) | set(self._added) | self._too_long
        return sorted(queue for queue in found if queue.topic.encode() != formats.CHECKPOINT_TOPIC)

    def view(self, queue: QueueId) -> DatabaseQueue:
        """A queue as consumers see it."""
        return DatabaseQueue(self, queue)

    # rows

    def _key(self, queue: QueueId, bound: bytes) -> bytes:
        return formats.bound_key(utf8(queue.topic), queue.queue_id, bound)

    def bound(self, queue: QueueId, bound: bytes) -> QueueBound | None:
        """The `min` or `max` row of a queue, None if there is none. Raises RowDamage if it is too short."""
        value = self.rows.get(self._key(queue, bound))
        if value is None:
            return None
        if len(value) < _BOUND.size:
            raise RowDamage(f"IndexOutOfBoundsException at the {bound.decode()} row of {queue}")
        return QueueBound(*map(int, _BOUND.unpack(value[: _BOUND.size])))

    def _put_bound(self, queue: QueueId, bound: bytes, row: QueueBound) -> None:
        self.rows[self._key(queue, bound)] = _BOUND.pack(*row)
        if bound == MAX:
            self._highest[queue] = row.queue_offset
        else:
            self._lowest[queue] = row

    def max_offset(self, queue: QueueId) -> int:
        """maxOffsetInQueue."""
        if queue not in self._highest:
            row = self.bound(queue, MAX)
            self._highest[queue] = row.queue_offset if row else _NONE
        return self._highest[queue] + 1

    def max_physical(self, queue: QueueId) -> int:
        """Log position where the record of the last unit begins, -1 without a unit."""
        row = self.bound(queue, MAX)
        return row.physical_offset if row else -1

    def min_offset(self, queue: QueueId) -> int:
        """minOffsetInQueue, which is corrected when it is asked for."""
        row = self._lowest.get(queue)
        if row is None:
            row = self.bound(queue, MIN)
            if row is not None and row.physical_offset >= self.log_start:
                self._lowest[queue] = row
        if row is not None and row.physical_offset >= self.log_start:
            return row.queue_offset
        low = row.queue_offset if row else 0
        try:
            corrected = self._correct_min(queue, low)
        except Unreadable:
            return -1
        found = self._lowest.get(queue) if corrected else None
        return found.queue_offset if found else low

    def first_min_offset(self, queue: QueueId) -> int:
        """minOffsetInQueue as first asked for; 0 if that throws."""
        if queue not in self._first_asked:
            try:
                self._first_asked[queue] = self.min_offset(queue)
            except RowDamage:
                self._first_asked[queue] = 0
                self.throwing.add(queue)
        return self._first_asked[queue]

    def _correct_min(self, queue: QueueId, low: int) -> bool:
        last = self.bound(queue, MAX)
        if last is None:
            self._put_bound(queue, MIN, QueueBound(self.log_start, 0))
            return True
        if last.physical_offset < self.log_start:
            self._put_bound(queue, MIN, QueueBound(self.log_start, last.queue_offset + 1))
            return True
        found = self._binary_search(queue, last.queue_offset, low, self.log_start, first=True)
        if found is None:
            if last.queue_offset != low:
                self._put_bound(queue, MIN, last)
            return False
        self._put_bound(queue, MIN, found)
        return True

    def _binary_search(self, queue: QueueId, high: int, low: int, position: int, *, first: bool) -> QueueBound | None:
        """Binary search as a broker does it; a queue offset without a unit counts as before `position`."""
        found = None
        while high >= low:
            middle = low + (high - low) // 2
            middle_position = self._position(queue, middle)
            if middle_position is None:
                low = middle + 1
            elif middle_position == position:
                return QueueBound(middle_position, middle) if first else found
            elif middle_position > position:
                high = middle - 1
                found = QueueBound(middle_position, middle) if first else found
            else:
                low = middle + 1
                found = found if first else QueueBound(middle_position, middle)
        return found

    def _position(self, queue: QueueId, offset: int) -> int | None:
        if queue in self._added:
            numbers, units = self._added[queue].all()
            at = int(np.searchsorted(numbers, offset))
            if at < len(numbers) and numbers[at] == offset:
                return int(units["physical_offset"][at])
        if self.source is None or not 0 <= offset <= LARGEST_OFFSET:
            return None
        value = self.source.get(UNITS, formats.unit_key(utf8(queue.topic), queue.queue_id, offset))
        if value is None or len(value) < UNIT_BYTES:
            return None
        return int(_UNIT.unpack(value[:UNIT_BYTES])[0])

    # what a start does

    def dispatch(self, queued: Iterable[Queued], end: int, last: int) -> None:
        """Take units of records up to log position `end`; the record dispatched last ends at `last`.

        They wait for `commit`.
        """
        for queue, offsets, units in queued:
            self._waiting.setdefault(queue, _AddedUnits(self._spill)).put(offsets, units)
        self._waiting_row = max(self._waiting_row, end)
        self._waiting_last = last

    def has_passed(self, queue: QueueId, number: int) -> bool:
        """Whether a unit with this number or a later one was dispatched."""
        return any(queue in units and units[queue].highest >= number for units in (self._waiting, self._added))

    def note(self, positions: Ints) -> None:
        """Count records that are dispatched next, by their log positions."""
        self._marks += positions[-self._dispatched % _MARKED :: _MARKED].tolist()
        self._dispatched += len(positions)

    def can_keep_earlier(self, counts: Callable[[QueueId], bool]) -> bool:
        """Whether one batch may write units of earlier records over those of later ones, in a queue that counts."""
        repeating = (queue for queue, added in self._added.items() if added.repeats and counts(queue))
        return any(len(self._earlier_of(queue)[0]) for queue in repeating)

    def _earlier_of(self, queue: QueueId) -> tuple[Ints, Units]:
        """The numbers of a queue, and the units of earlier records, that a batch may write over those of later ones."""
        if queue not in self._earlier:
            (numbers, latest), earlier = self._added[queue].all(), self._added[queue].earlier
            units = gather(partial(self.on_disk, queue), numbers, UNIT_DTYPE)
            if earlier is not None:
                units[np.searchsorted(numbers, earlier[0])] = earlier[1]
            first, last = (each["physical_offset"].astype(np.int64) for each in (units, latest))
            marks = np.array(self._marks, np.int64)
            between = np.searchsorted(marks, last, side="right") - np.searchsorted(marks, first, side="right")
            again = is_valid(units) & (first < last) & (first >= marks[:1].min(initial=LARGEST_OFFSET))
            rows = again & (between <= _BATCH_RECORDS // _MARKED)
            self._earlier[queue] = numbers[rows], units[rows]
        return self._earlier[queue]

    def commit(self, *, in_parts: bool = False) -> None:
        """Write what waits: units, the `max` row of each queue, and the CHECKPOINT_TOPIC row.

        in_parts: the last record is written on its own, so the row ends with it; otherwise all are written at once.
        """
        for queue, units in self._waiting.items():
            last = units.last
            if self._added.setdefault(queue, units) is not units:
                self._added[queue].put_all(units)
            self._put_bound(queue, MAX, last)
        if self._waiting_row != _NONE:
            self.wrote = True
            self.backwards |= self._waiting_last < self._waiting_row
            self.row = self._waiting_last if in_parts else self._waiting_row
        self._waiting, self._waiting_row = {}, _NONE

    def cut(self, log_end: int) -> None:
        """`truncateDirty`: move back rows that name records at or behind the log's end; units stay."""
        self.ahead |= log_end < max(self.row, self.dispatch_from)
        if log_end >= self.row:
            return
        self.row = log_end
        for key in sorted(self.rows):
            value = self.rows[key]
            if len(key) <= _SHORTEST_KEY or len(value) != _BOUND.size:
                continue
            found = formats.BOUND_KEY.parse(key)
            if found.bound == MAX and int(_BOUND.unpack(value)[0]) >= log_end:
                self._cut(QueueId(found.topic.decode("utf-8", "surrogateescape"), found.queue_id))

    def _cut(self, queue: QueueId) -> None:
        last = self.bound(queue, MAX)
        assert last is not None
        low = self.min_offset(queue)
        lowest = self._lowest.get(queue)
        if lowest is None or lowest.queue_offset != low or lowest.physical_offset > self.row:
            return  # a broker logs this as a bug, and leaves the row as it is
        try:
            found = self._binary_search(queue, last.queue_offset, low, self.row, first=False)
        except Unreadable:
            return
        if found is not None:
            self._put_bound(queue, MAX, found)
        elif last.queue_offset != low:
            self._put_bound(queue, MAX, QueueBound(lowest.physical_offset, low))

    def destroy(self) -> None:
        """Delete the directory and make it new; what is in memory stays."""
        self.source, self.row = None, 0
        self.rows.clear()
        self._added.clear()

    def compare(self, files: Mapping[QueueId, QueueState], *, lmq: bool, topics: Callable[[str], bool]) -> bool:
        """Move the rows of queues that end elsewhere than the same queues in files to the end of these.

        lmq: leave LMQs alone. topics: whether the database has the queues of a topic. False: one of both differed.
        """
        same = True
        for queue, file in files.items():
            if not topics(queue.topic):
                continue
            wanted, current = file.max_offset, self.max_offset(queue)
            if wanted == current or (wanted <= 0 and current <= 0):
                continue
            if current > 0:
                if lmq and queue.topic.startswith(LMQ_PREFIX):
                    continue
                same = False
            self._put_bound(queue, MAX, QueueBound(0, wanted - 1))
            self._put_bound(queue, MIN, QueueBound(0, wanted))
        return same

    # units

    def read(self, queue: QueueId, first: int, count: int) -> Units:
        """Units from queue offset `first` on; zeros where there is none, or none can be read."""
        found = self.on_disk(queue, first, count)
        if queue in self._added:
            layers = [self._added[queue].all()]
            if self.earlier_stay and self._added[queue].repeats:
                layers.append(self._earlier_of(queue))
            for numbers, units in layers:
                begin, end = np.searchsorted(numbers, [first, first + count])
                found[numbers[begin:end] - first] = units[begin:end]
        return found

    def shows_disk(self, queue: QueueId, first: int, behind: int) -> bool:
        """Whether the units first ≤ k < behind that are on top name what those of the database name."""
        if self.source is None or queue not in self._added:
            return self.source is not None
        if self.earlier_stay and self._added[queue].repeats:
            return False
        numbers, units = self._added[queue].all()
        begin, end = np.searchsorted(numbers, [first, behind])
        below = gather(partial(self.on_disk, queue), numbers[begin:end], UNIT_DTYPE)
        return all(bool((below[name] == units[name][begin:end]).all()) for name in ("physical_offset", "size"))

    def on_disk(self, queue: QueueId, first: int, count: int) -> Units:
        """Units of the database itself from queue offset `first` on; zeros as in `read`."""
        found = np.zeros(count, UNIT_DTYPE)
        if self.source is not None:
            self._fill(queue, first, found)
        return found

    def _fill(self, queue: QueueId, first: int, found: Units) -> None:
        assert self.source is not None
        source_queue = RocksdbConsumeQueue(self.source, *queue)
        try:
            source_queue.fill(first, found)
        except Unreadable:
            self.unreadable = True
            found[:] = 0
            if len(found) > 1:
                half = len(found) // 2
                self._fill(queue, first, found[:half])
                self._fill(queue, first + half, found[half:])
                return
            try:
                unit = source_queue.unit(first)
            except Unreadable:
                return
            if unit is not None:
                found[0] = unit.physical_offset, unit.size, unit.tags_code


@dataclass
class DatabaseQueue:
    """A queue of the database as consumers see it after a start."""

    state: DatabaseState
    queue: QueueId

    @property
    def max_offset(self) -> int:
        """maxOffsetInQueue; 0 if the queue's row makes each lookup throw."""
        try:
            return self.state.max_offset(self.queue)
        except RowDamage:
            return 0

    @property
    def min_offset(self) -> int:
        """minOffsetInQueue as first asked for."""
        return self.state.first_min_offset(self.queue)

    @property
    def max_physical(self) -> int:
        """Log position where the record of the last unit begins, -1 without a unit."""
        try:
            return self.state.max_physical(self.queue)
        except RowDamage:
            return -1

    def shows_disk(self, first: int, behind: int) -> bool:
        """Whether consumers get the units first ≤ k < behind as they are in the database; all of them must exist."""
        self.state.first_min_offset(self.queue)
        end = 0 if self.queue in self.state.throwing else self.max_offset
        if behind > end or (self.state.looks_ahead and behind < end and not self._has_unit(behind)):
            return False
        return self.state.shows_disk(self.queue, first, behind)

    def has_taken(self, first: int, parts: Sequence[Units]) -> bool:
        """Return False: nobody knows whether these very units were taken."""
        return False

    def _has_unit(self, number: int) -> bool:
        unit = self.units_at(np.array([number], np.int64))
        return bool(unit["size"][0] or unit["physical_offset"][0])

    def lookup(self, offsets: Ints) -> Units:
        """Units that a pull gets, zeros elsewhere: a pull may fail before a hole as well as at it (B4)."""
        self.state.first_min_offset(self.queue)
        end = 0 if self.queue in self.state.throwing else self.max_offset
        found = self.units_at(offsets)
        fails: Flags = (offsets < 0) | (offsets >= end)
        if self.state.looks_ahead:
            after = self.units_at(offsets + 1)
            fails |= (offsets + 1 < end) & (after["size"] == 0) & (after["physical_offset"] == 0)
        found[fails] = 0
        return found

    def hole_at(self, absent: Ints) -> int | None:
        """The first of these queue offsets that no pull passes: it throws, or begins at 0 again (B41)."""
        inside = absent[(absent >= self.min_offset) & (absent < self.max_offset)]
        return min(inside.tolist(), default=None)

    def units_at(self, numbers: Ints) -> Units:
        """Units by their queue offsets, zeros where there is none."""
        found = np.zeros(len(numbers), UNIT_DTYPE)
        possible = np.flatnonzero((numbers >= 0) & (numbers <= LARGEST_OFFSET))
        if len(possible):
            found[possible] = gather(partial(self.state.read, self.queue), numbers[possible], UNIT_DTYPE)
        return found


StartedQueue = QueueState | DatabaseQueue
"""A queue after a start, in files or in a RocksDB."""


def queue_offsets(queue: StartedQueue, places: Ints, near: Ints | None = None) -> Ints:
    """Return queue offsets of the units that name these positions; -1 without one. near: look from the least of these
    offsets on, up to units of later positions, or many numbers without a unit; None: in all units.
    """
    begin, size = queue.min_offset, _AT_ONCE
    if near is not None:
        begin, size = max(begin, int(near.min())), min(size, int(np.ptp(near)) + _BEHIND)
    found = np.full(len(places), -1, np.int64)
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    for first, units in queue_windows(queue, begin, size):
        used = np.flatnonzero(is_valid(units))
        position = units["physical_offset"][used].astype(np.int64)
        low = np.searchsorted(ordered, position, side="left")
        count = np.searchsorted(ordered, position, side="right") - low
        inside = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        found[order[np.repeat(low, count) + inside]] = np.repeat(first + used, count)
        if near is not None and not (len(position) and position.min() <= ordered[-1]):
            break  # also without any unit: a file may have a far name
    return found


def queue_windows(queue: StartedQueue, begin: int, size: int = _AT_ONCE) -> Iterator[tuple[int, Structs]]:
    """Yield (queue offset, units) from `begin` on, in windows of `size`."""
    for first in range(begin, queue.max_offset, size):
        count = min(size, queue.max_offset - first)
        yield first, queue.lookup(np.arange(first, first + count, dtype=np.int64))
