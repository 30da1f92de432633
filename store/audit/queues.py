"""What a queue on disk lacks compared with the log, and how to complete it.

The log says which unit belongs at which queue offset. Units on disk stay, also those that name lost records; missing
units are filled in, dead units behind the end are given up. A queue that an earlier broker shifted (spec 7.12, B1)
keeps its offsets, which consumers know: it only gets the messages behind its last unit, appended as by a broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...formats.consume_queue import UNIT_BYTES as PLAIN_UNIT_BYTES
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import utf8
from ...formats.message import EARLIEST_MS, LATEST_MS, SMALLEST
from ..broker.snapshot import QueueId
from ..broker.system_topics import SCHEDULE_TOPIC
from ..columns import Ranges, runs
from ..disk.temporary import Spill
from ..log.commit_log import Batch, CommitLog
from ..queues.edits import QueueFix, QueueHole
from ..queues.units import (
    LARGEST_OFFSET,
    UNIT_DTYPE,
    UNITS_AT_ONCE,
    FileUnits,
    Units,
    is_pre_fill,
    is_used,
    is_valid,
    joined,
    pre_fill,
    reaches_beyond,
)
from .messages import DifferenceKind, Messages, compare
from .verified import QueueRange, VerifiedQueue

_LOOKED_UP_AT_ONCE = 1000
_WINDOW = 4096
_FEW = 64
_NONE, _OUT = -1, -2
"""In place of a position: the unit names none, or one behind the log's end."""


def _is_time(tags_codes: Ints) -> Flags:
    """Return which tags codes of delayed messages may be the time when they are due: bool[n]."""
    return (tags_codes >= EARLIEST_MS) & (tags_codes < LATEST_MS)


_FOREIGN_UNITS = 2


@dataclass
class QueueAudit:
    """One queue while the log is read.

    stream: units on disk, in whole files. log_start, log_end: the range of the log that stays. spill: keeps units to
    write. known: all that is on disk, if it is in order. records: ranges of good records in the log (`Batch.taken`),
    when all of it has been read.
    """

    queue: QueueId
    stream: FileUnits
    log_start: int
    log_end: int
    #: Units of tombstones get the tags code of the tombstone.
    retag: bool = False
    #: Units with a wrong tags code count as wrong, too.
    exact: bool = False
    #: A shifted queue gets the queue offsets of its records.
    renumber: bool = False
    spill: Spill = field(default_factory=Spill)
    known: VerifiedQueue | None = None
    records: Ranges = field(default_factory=Ranges)
    #: Some unit is wrong only because of `exact`.
    exact_alone: bool = False
    first: int = -1
    first_position: int = -1
    next: int = -1
    last_position: int = -1
    irregular: bool = False
    holes: list[QueueHole] = field(default_factory=list)
    _fill_offsets: list[Ints] = field(default_factory=list)
    _fill_units: list[Units] = field(default_factory=list)
    _conflicts: int = 0
    #: Some message has its unit at its queue offset. _strays: messages whose offset has a unit of another position.
    _fits: bool = False
    _strays: int = 0
    #: Units on disk behind the last message: queue offset of the first, and the units.
    _tail: tuple[int, Units] = field(default_factory=lambda: (0, pre_fill(0)))

    def _read(self, first: int, count: int) -> Units:
        """Return units on disk from queue offset `first` on; zeros for missing units."""
        known, units = self._tail
        if known <= first and first + count <= known + len(units):
            return units[first - known : first - known + count]
        return self.stream.read(first, count)

    def can_skip(self, queue_range: QueueRange) -> bool:
        """Return whether the messages can follow those before: the log has room for the offsets between."""
        room = (queue_range.first_position - self.last_position) // SMALLEST
        return self.first < 0 or 0 <= queue_range.first - self.next <= room

    def add_verified(self, queue_range: QueueRange, made: Sequence[Units]) -> None:
        """Add messages in order that stay in the log; their units are on disk, or `made`."""
        if self.first < 0:
            self.first, self.first_position = queue_range.first, queue_range.first_position
        elif self.next < queue_range.first:
            self.holes.append(QueueHole(self.next, queue_range.first, self.last_position, queue_range.first_position))
        self.next, self.last_position = queue_range.next, queue_range.last_position
        first = queue_range.first
        self._fits |= not made
        for units in made:
            offsets = np.arange(first, first + len(units), dtype=np.int64)
            self._fill_offsets.append(self.spill.keep(offsets))
            self._fill_units.append(units)
            first += len(units)

    def add(self, messages: Messages) -> None:
        """Add messages of this queue, in log order, that stay in the log."""
        offsets, positions = messages.offset, messages.position
        if self.first < 0:
            self.first = self.next = int(offsets[0])
            self.first_position = self.last_position = int(positions[0])
        if self._continues(messages):
            there = self.stream.read(self.next, len(offsets))
        else:
            self._note_breaks(offsets, positions)
            there = self.stream.lookup(np.maximum(offsets, 0))
        self.last_position = int(positions[-1])
        self.next = max(self.next, int(offsets[-1]) + 1)
        kinds = compare(there, messages)
        wrong = kinds > DifferenceKind.ADDRESS
        self._fits |= not wrong.all()
        if self.retag:
            wrong |= messages.lost & (kinds != DifferenceKind.NONE)
        if self.exact:
            tags = ~wrong & (kinds == DifferenceKind.TAGS)
            if self.queue.topic == SCHEDULE_TOPIC:  # the codes depend on configured delays, if both are times
                tags &= ~_is_time(there["tags_code"]) & _is_time(messages.tags_code)
            self.exact_alone |= bool(tags.any())
            wrong |= tags
        if not wrong.any():
            return
        disputed = wrong & (kinds < DifferenceKind.PRE_FILL) & (there["physical_offset"] < self.log_end)
        self._conflicts += int(disputed.sum())
        self._strays += int((disputed & (there["physical_offset"] >= self.log_start)).sum())
        units = np.zeros(int(wrong.sum()), UNIT_DTYPE)
        units["physical_offset"] = messages.position[wrong]
        units["size"] = messages.size[wrong]
        units["tags_code"] = messages.tags_code[wrong]
        self._fill_offsets.append(self.spill.keep(offsets[wrong]))
        self._fill_units.append(self.spill.keep(units))

    def _continues(self, messages: Messages) -> bool:
        """Return whether the messages follow one another, and those before."""
        offset, behind = int(messages.offset[0]), int(messages.offset[-1]) + 1
        begins = offset == self.next and int(messages.position[0]) >= self.last_position
        return begins and offset >= 0 and behind <= LARGEST_OFFSET + 1 and messages.in_a_row

    def _note_breaks(self, offsets: Ints, positions: Ints) -> None:
        """Note queue offsets that are left out, or impossible."""
        expected = np.concatenate([np.array([self.next], np.int64), offsets[:-1] + 1])
        before = np.concatenate([np.array([self.last_position], np.int64), positions[:-1]])
        impossible = (offsets < expected) | (offsets < 0) | (offsets > LARGEST_OFFSET)
        impossible |= offsets - expected > (positions - before) // SMALLEST
        if impossible.any():
            self.irregular = True
        for at in np.flatnonzero((offsets > expected) & ~impossible).tolist():
            around = int(before[at]), int(positions[at])
            self.holes.append(QueueHole(int(expected[at]), int(offsets[at]), *around))

    @property
    def is_sound(self) -> bool:
        """Whether all that is on disk is in order, and is the units of the messages that were seen."""
        if self.known is None or self._fill_units or self.holes or self.irregular:
            return False
        messages = self.known.messages
        return (self.first, self.next) == (messages.first, messages.next)

    def is_foreign(self) -> bool:
        """Return whether the units are those of another store: several name other places in the log, and none a message
        of this queue. A single one may be a flipped bit. Raise Unreadable.
        """
        if self._fits or self._strays < _FOREIGN_UNITS:
            return False
        own = self.unreferenced()
        named = (units[is_used(units)]["physical_offset"] for _, units in self.stream.written())
        return not any(np.isin(positions, own).any() for positions in named)

    def has_room(self, offsets: Ints, positions: Ints) -> Flags:
        """Return for which offsets a message could lie at that position, between those of the log, or be one of these
        with another offset: bool[n].
        """
        if self.irregular:
            return np.ones(len(offsets), np.bool_)
        room: Flags = (offsets >= self.next) & (positions >= self.last_position)
        room |= (offsets < self.first) & (positions <= self.first_position)
        if self.holes:
            begin, end, low, high = np.array(self.holes, np.int64).T
            hole = np.searchsorted(begin, offsets, side="right") - 1
            inside = (hole >= 0) & (offsets < end[hole])
            room |= inside & (positions >= low[hole]) & (positions <= high[hole])
        return room

    def missing(self) -> list[QueueHole]:
        """Return queue offsets without a message in the log; in a log from 0 also those before the first."""
        front = 0 < self.first <= self.first_position // SMALLEST and not self.log_start
        return [*([QueueHole(0, self.first, 0, self.first_position)] if front else []), *self.holes]

    def unreferenced(self) -> Ints:
        """Return the positions of messages that their unit does not name."""
        return np.concatenate([np.zeros(0, np.int64), *(u["physical_offset"] for u in self._fill_units)])

    def is_odd(self) -> bool:
        """Return whether the log does not have the messages that the units name, in their order."""
        if self.is_sound:
            return False
        if self.holes or self.irregular or self._conflicts:
            return True
        beside = [self.next, self.first - 1] if self.first >= 0 else [self.stream.first]
        units = joined([self._read(offset, 1) for offset in beside if offset >= 0])
        return bool(((units["physical_offset"] >= self.log_start) & is_used(units)).any())

    def has_wrong_offset_at(self, log: CommitLog, offset: int) -> bool:
        """Return whether a unit names a record with its size, and the queue is not shifted: the units beside it name
        the records of their own offsets.

        Behind a record of another size the log would not continue: then the unit is wrong.
        """
        unit = self._read(offset, 1)
        record = log.records(unit["physical_offset"].astype(np.int64))
        if not len(record) or int(record.columns.ints("total_size")[0]) != int(unit["size"][0]):
            return False
        beside = np.array([offset - 1, offset + 1], np.int64)
        units = self.stream.lookup(np.maximum(beside, 0))
        valid = is_valid(units) & (beside >= 0)
        claims = [
            (self._claimed(log, int(unit["physical_offset"])), own)
            for unit, own in zip(units[valid], beside[valid].tolist(), strict=True)
        ]
        known = [(claim, own) for claim, own in claims if claim is not None]
        return bool(known) and all(claim == own for claim, own in known)

    def finish(self, log: CommitLog) -> QueueFix:
        """Return what becomes of the queue, after the log has been read."""
        if self.is_sound:
            nothing = np.zeros(0, np.int64), pre_fill(0)
            return QueueFix(self.queue, *nothing, self.next, missing=0, shifted=False)
        if self.is_foreign():
            self.stream = FileUnits.of((), self.stream.files.file_size)  # only the log counts
        self._tail = self.next, self._read(self.next, _WINDOW)
        fix = self._decide(log)
        self._tail = 0, pre_fill(0)
        return fix

    def _decide(self, log: CommitLog) -> QueueFix:
        offsets = np.concatenate([np.zeros(0, np.int64), *self._fill_offsets])
        units = joined(self._fill_units)
        shifted = self.irregular or (not self.renumber and self._is_shifted(log))
        if shifted:
            end, last = self._tail_end(log, self.stream.first, checked=False)
            units = units[units["physical_offset"] > last]
            missing = len(units)
            units = joined([units, *self._behind_gap(log, end, last)])
            units = units[np.unique(units["physical_offset"], return_index=True)[1]]
            offsets = end + np.arange(len(units), dtype=np.int64)
            renumbers = not self.irregular  # no unit can be made if two records have the same offset
            return self._fix(offsets, units, end + len(units), missing, shifted=renumbers)
        begin = self.next if self.first >= 0 else self.stream.first
        end, _ = self._tail_end(log, begin, checked=True)
        if self.first < 0 and end == begin:
            end = 0  # no unit: no file stays, and a broker begins a new queue
        missing = len(units)
        patched, patches = self._patch_holes(offsets, units)
        if self.first >= 0:
            before, filled = self._fill_front(patched, patches)
            patched = np.concatenate([before, patched])
            patches = joined([filled, patches])
        return self._fix(patched, patches, end, missing, shifted=False)

    def _behind_gap(self, log: CommitLog, end: int, last: int) -> Iterator[Units]:
        """Yield units from queue offset `end` on that name messages of this queue behind the position `last`."""
        for first, most in self.stream.ranges(end, self.stream.stop, _LOOKED_UP_AT_ONCE):
            units = self._read(first, most)
            positions = units["physical_offset"].astype(np.int64)
            units = units[is_valid(units) & (positions > last) & (positions < self.log_end)]
            own = self._own_records(log, units["physical_offset"].astype(np.int64))
            yield units[np.isin(units["physical_offset"], own.position)]

    def _fix(self, offsets: Ints, units: Units, end: int, missing: int, *, shifted: bool) -> QueueFix:
        rows, beyond = (offsets, units), self._beyond(end)
        if (offsets[1:] < offsets[:-1]).any():
            order = np.argsort(offsets, kind="stable")
            rows = offsets[order], units[order]
        return QueueFix(self.queue, *rows, end, missing, shifted, beyond, self.spill)

    def _beyond(self, end: int) -> int:
        """Count the units from queue offset `end` on that name records behind the log's end."""
        count = 0
        for first, most in self.stream.ranges(end, self.stream.stop, _WINDOW):
            units = self._read(first, most)
            used = is_used(units)
            if not used.any():
                break
            count += int((units["physical_offset"][used] >= self.log_end).sum())
        return count

    def first_in_log(self, fix: QueueFix) -> int | None:
        """Return the queue offset of the first unit that lies in the log after `fix`, None if there is none."""
        if self.is_sound:
            return self.first
        filled = fix.offsets[fix.units["physical_offset"] >= self.log_start]
        first = int(filled[0]) if len(filled) else None
        for window, most in self.stream.ranges(self.stream.first, fix.end, _WINDOW):
            for begin, count in ((window, min(most, _FEW)), (window + _FEW, most - _FEW)):
                if first is not None and begin > first:
                    return first
                units = self._read(begin, max(0, count))
                inside = is_valid(units) & (units["physical_offset"] >= self.log_start)
                if inside.any():
                    found = begin + int(inside.argmax())
                    return found if first is None else min(found, first)
        return first

    def _is_shifted(self, log: CommitLog) -> bool:
        """Return whether the last unit names another good message of this queue, as all units since a shift do.

        A single wrong unit before good ones is damage, and so are units in another order.
        """
        if not self._conflicts:
            return False
        before = self.stream.ranges(self.stream.first, self.next, _LOOKED_UP_AT_ONCE)
        for first, count in reversed(before):
            units = self._read(first, count)
            used = is_used(units) & (units["physical_offset"] < self.log_end)
            if used.any():
                positions = units["physical_offset"]
                at, largest = int(np.flatnonzero(used)[-1]), int(positions[used].max())
                last = int(positions[at])
                if largest > last and self._claimed(log, largest) is not None:
                    return False
                return self._claimed(log, last) not in {None, first + at}
        return False

    def _claimed(self, log: CommitLog, position: int) -> int | None:
        """Return the queue offset in the record at a position, None if the record is not of this queue."""
        record = self._own_records(log, np.array([position], np.int64))
        return int(record.columns.ints("queue_offset")[0]) if len(record) else None

    def _own_records(self, log: CommitLog, positions: Ints) -> Batch:
        """Return the records of this queue that begin at the positions, in that order."""
        found, topic = log.records(positions), utf8(self.queue.topic)
        mine = found.columns.ints("physical_offset") == found.position
        mine &= found.columns.ints("queue_id") == self.queue.queue_id
        mine &= np.array([name == topic for name in found.columns.ragged("topic").tolist()], np.bool_)
        return found.take(mine)

    def _tail_end(self, log: CommitLog, begin: int, *, checked: bool) -> tuple[int, int]:
        """Return the queue offset behind the last unit to keep, at or behind `begin`, and the highest position that the
        units from `begin` to there name, -1 without any.

        Units behind the last message of the log stay while they rise, lie before the log's end and name no good record:
        they are of lost records. checked False: whatever they name, and one that does not rise, too, if it names a
        record of just this queue offset. Units at the end that name a place inside of a good record go: a start would
        keep them, and count on behind them.
        """
        reach = self.last_position if begin == self.next else -1
        end, highest = begin, -1
        while end < self.stream.stop:
            units = self._read(end, _LOOKED_UP_AT_ONCE)
            if not is_valid(units[:1])[0]:
                break
            positions = units["physical_offset"].astype(np.int64)
            filled = is_pre_fill(units)
            before = np.concatenate([np.array([reach], np.int64), positions[:-1]])
            stop = ~is_valid(units) | (~filled & reaches_beyond(units, self.log_end))
            falls = is_used(units) & (before >= 0) & (positions <= before)
            if falls.any() and not checked:
                falls[falls] = ~self._names_own(log, end + np.flatnonzero(falls), positions[falls])
            stop |= falls
            if checked:
                good = log.records(positions[(positions >= self.log_start) & ~stop & ~filled])
                stop |= np.isin(positions, good.position) & ~filled
            count = int(stop.argmax()) if stop.any() else len(units)
            if count:
                reach, highest = int(positions[count - 1]), max(highest, int(positions[:count].max()))
            end += count
            if count < len(units):
                break
        if (kept := self._behind_unit(log, begin, end)) < end:
            stay = self.stream.ranges(begin, kept, UNITS_AT_ONCE)
            highest = max((int(self._read(*each)["physical_offset"].max()) for each in stay), default=-1)
        return kept, highest

    def _names_own(self, log: CommitLog, offsets: Ints, positions: Ints) -> Flags:
        """Return which of the positions have a record of this queue with that queue offset: bool[n]."""
        own = self._own_records(log, positions)
        claimed = dict(zip(own.position.tolist(), own.columns.ints("queue_offset").tolist(), strict=True))
        pairs = zip(positions.tolist(), offsets.tolist(), strict=True)
        return np.array([claimed.get(position) == offset for position, offset in pairs], np.bool_)

    def _behind_unit(self, log: CommitLog, begin: int, end: int) -> int:
        """Return the queue offset behind the last unit of a range that is not pre-fill and names no place inside of a
        record, `begin` if there is none.

        A queue that ends with pre-fill gets no units of messages stored later (spec 7.12, B22).
        """
        for first, count in reversed(self.stream.ranges(begin, end, _LOOKED_UP_AT_ONCE)):
            units = self._read(first, count)
            positions = units["physical_offset"].astype(np.int64)
            filled = is_pre_fill(units)
            inside = self.records.has(positions) & ~filled
            inside &= ~np.isin(positions, log.records(positions[inside]).position)
            rows = np.flatnonzero(~filled & ~inside)
            if len(rows):
                return first + int(rows[-1]) + 1
        return begin

    def _patch_holes(self, offsets: Ints, units: Units) -> tuple[Ints, Units]:
        """Repeat the unit before a lost record that has no unit either: a gap ends a queue."""
        more_offsets, more_units = [offsets], [units]
        for hole in self.holes:
            for begin in range(hole.begin, hole.end, UNITS_AT_ONCE):
                there = self._read(begin, min(UNITS_AT_ONCE, hole.end - begin))
                bad = ~is_valid(there) | self._reaches_out(there)
                numbers = np.flatnonzero(bad).astype(np.int64) + begin
                for first, last in runs(numbers):
                    before = self._unit_at(int(numbers[first]) - 1, more_offsets, more_units)
                    more_units.append(np.repeat(before, last - first))
                    more_offsets.append(numbers[first:last])
        return np.concatenate(more_offsets), joined(more_units)

    def _unit_at(self, offset: int, offsets: list[Ints], units: list[Units]) -> Units:
        """Return the unit that will be at `offset`: one filled in, else the one on disk."""
        # the first are in any order; of the others, which follow one another, only the last can reach so far
        for known, made in ((offsets[-1], units[-1]), (offsets[0], units[0])):
            at = np.flatnonzero(known == offset)
            if len(at):
                return made[at[:1]]
        return self._read(offset, 1)

    def _fill_front(self, offsets: Ints, units: Units) -> tuple[Ints, Units]:
        """Add pre-fill units before the first message, in its file, where there is no unit.

        In a log that begins at 0 a broker takes these for units of the queue, and leads consumers from there to the
        next file: then the first message is repeated instead.
        """
        first_of_file = self.first - self.first % (self.stream.files.file_size // PLAIN_UNIT_BYTES)
        there = self._read(first_of_file, self.first - first_of_file)
        wrong = ~is_valid(there)
        if not self.log_start:
            wrong |= self._reaches_out(there)
        if self.exact and not self.log_start:
            filling = ~wrong & is_pre_fill(there)
            self.exact_alone |= bool(filling.any())
            wrong |= filling
        bad = np.flatnonzero(wrong).astype(np.int64)
        filled = pre_fill(len(bad))
        if not self.log_start and len(bad):
            filled[:] = self._unit_at(self.first, [offsets], [units])
        bad += first_of_file
        if self.log_start:
            dead, expired = self._expired_front()
            rest = ~np.isin(bad, dead)
            return np.concatenate([bad[rest], dead]), joined([filled[rest], expired])
        return bad, filled

    def _reaches_out(self, units: Units) -> Flags:
        """Return which units name bytes behind the log's end: bool[n]."""
        return is_used(units) & reaches_beyond(units, self.log_end)

    def _expired_front(self) -> tuple[Ints, Units]:
        """Make units of expired messages for those before the first message that name nothing: a start ends the queue
        before a unit that is invalid, or that reaches beyond the log's end.

        They lie below the next unit, or the log's start, and above the one before: there was room for their records.
        Invalid units before all others are left out.
        """
        offset, position = self._around_dead()
        row, good = np.arange(len(offset)), position >= 0
        before = np.maximum.accumulate(np.where(good, row, _NONE))
        behind = np.minimum.accumulate(np.where(good, row, len(row))[::-1])[::-1]
        place = position[behind] - (offset[behind] - offset) * SMALLEST
        fits = (position < 0) & (place > np.where(before < 0, _NONE, position[before]))
        fits &= (before >= 0) | np.logical_or.accumulate(position == _OUT)
        units = np.zeros(int(fits.sum()), UNIT_DTYPE)
        units["physical_offset"], units["size"] = place[fits], SMALLEST
        return offset[fits], units

    def _around_dead(self) -> tuple[Ints, Ints]:
        """Return queue offsets before the first message whose unit names nothing, and those beside them.

        With the positions in the units, _NONE for invalid ones, _OUT for those that reach beyond the log's end; the
        last row is the log's start.
        """
        offsets: list[Ints] = []
        positions: list[Ints] = []
        for first, count in self.stream.ranges(self.stream.first, self.first, UNITS_AT_ONCE):
            units = self._read(first, count)
            valid, out = is_valid(units), self._reaches_out(units)
            place = units["physical_offset"].astype(np.int64)
            place = np.where(out, _OUT, np.where(valid, place, _NONE))
            row = np.flatnonzero(~valid | out | (is_used(units) & (place < self.log_start)))
            dead = place[row] < 0
            beside = dead.copy()
            beside[1:] |= dead[:-1]
            beside[:-1] |= dead[1:]
            beside[:1] = beside[-1:] = True
            offsets.append(first + row[beside])
            positions.append(place[row[beside]])
        offsets.append(np.array([self.first], np.int64))
        positions.append(np.array([self.log_start], np.int64))
        return np.concatenate(offsets), np.concatenate(positions)
