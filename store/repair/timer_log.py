"""Rebuild entries of the timer log that are damaged, or do not match their messages.

A broker writes an entry for each message of the timer topic's queue that is not due yet, in queue order. So the entries
on both sides of a damaged one show which messages were between them, if there were as many as there are places; size,
topic, time and kind follow from the record. Spec 04, 4.6; I-126 to I-129, I-137.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from ...formats.blank import MAGIC_BLANK
from ...formats.derive import dtype_of
from ...formats.derive.ragged import Flags, Ints, Structs
from ...formats.timer_log import BLANK, BLANK_BYTES, MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL, UNIT, UNIT_BYTES
from ..broker.system_topics import TIMER_TOPIC
from ..columns import begins, rows_of
from ..disk.file_queue import file_name
from ..disk.files import Edit
from ..errors import NotFound
from ..queues.units import is_valid
from ..search.store import StoreReader
from ..timer.read import ByTick, TimerEntries, due_ms, is_entry, is_filed_again, is_kind
from ..timer.wheel import next_place
from ..verify.context import Records, VerifyContext
from ..verify.timer_log import TimerColumns, TimerFiles, TimerLog, note_timer_records, timer_columns

_NONE = -1
_UNIT = dtype_of(UNIT)
_AT_ONCE = 1 << 10
"""Records read at once."""
_ALL_FIELDS = 4
"""Size, topic, time and kind of an entry agree with a record."""
_ENOUGH_FIELDS = 3
"""One of the four may be damaged."""


class RepairedEntries(NamedTuple):
    """n entries as they should be, in log order. units: their bytes. changed: bool[n]. torn: positions of the entries
    behind them that are cut off.
    """

    position: Ints
    units: Structs
    changed: Flags
    torn: Ints

    @property
    def entries(self) -> TimerEntries:
        return TimerEntries.of(self.position, self.units)


def timer_messages(store: StoreReader, scene: VerifyContext, entries: TimerEntries, planned: Ints) -> TimerColumns:
    """Return the records that the timer topic's queue and entries of the timer log name, without tombstones, which say
    nothing about an entry. planned: further positions that the queue will name. Raises Unreadable.
    """
    places = [entries.offset_py, planned]
    try:
        with store.queues.open(TIMER_TOPIC, 0) as queue:
            ends = queue.summary(store.log_files.start)
            parts = queue.units(ends.min_offset, ends.max_offset)
            places += [u["physical_offset"][is_valid(u)].astype(np.int64) for _, u in parts]
    except NotFound:
        pass  # without a queue, only the log's own entries name records
    found = np.unique(np.concatenate(places))
    for first in range(0, len(found), _AT_ONCE):
        batch = store.log.records(found[first : first + _AT_ONCE])
        if len(batch):
            note_timer_records(scene, Records(batch))
    records = timer_columns(scene)
    return records.take(~records.lost)


def repaired_entries(files: TimerFiles, records: TimerColumns) -> RepairedEntries:
    """Return all entries, damaged ones rebuilt from records and neighbours. Raises Unreadable."""
    position, units = _places(files)
    whole = is_entry(units)
    row = _rows(units, whole, records, files.log.start == 0)
    fresh = units.copy()
    _put_right(fresh, whole, row, files, records)
    torn = _torn_at_end(units, whole, row, records)
    keep = (whole | (row >= 0)) & ~torn
    cut = position[torn]
    fresh["reserved"] = 0
    fresh["size"] = UNIT_BYTES
    position, units, fresh = position[keep], units[keep], fresh[keep]
    changed = _bytes_differ(units, fresh)
    _link(position, fresh, changed, files)
    changed |= _bytes_differ(units, fresh)
    return RepairedEntries(position, fresh, changed, cut)


def _torn_at_end(units: Structs, whole: Flags, row: Ints, records: TimerColumns) -> Flags:
    """bool[n]: entries behind all good ones that were partly written: with no size, or another size than their record.
    A broker takes them for good ones, and loses their message (B36).
    """
    torn = units["size_py"] <= 0
    if len(records.position):
        there, known = records.at(units["offset_py"].astype(np.int64))
        torn |= known & (records.size[there] != units["size_py"])
    torn &= whole & (row < 0)
    good = np.flatnonzero((whole | (row >= 0)) & ~torn)
    torn[: good[-1] if len(good) else 0] = False
    return torn


def _places(files: TimerFiles) -> tuple[Ints, Structs]:
    """Return (position, unit)[n] of entries, and of damaged places for entries."""
    log = files.log
    places = [log.entries.position]
    for part in log.ranges:
        file = log.file_of(part.position)
        behind = part.position >= log.end and part.kind != "damage"
        if part.kind == "blank" or behind or file is None:
            continue
        inside = np.arange(part.position, part.position + part.size - UNIT_BYTES + 1, UNIT_BYTES)
        places.append(inside[inside + UNIT_BYTES + BLANK_BYTES <= file.end].astype(np.int64))
    position = np.unique(np.concatenate(places))
    units = [np.zeros(0, _UNIT)]
    for file in log.files:
        begin, end = np.searchsorted(position, [file.start, file.end])
        if begin == end:
            continue
        data = files.content(file.path)[:]
        known = np.frombuffer(data, _UNIT, len(data) // UNIT_BYTES)
        units.append(known[(position[begin:end] - file.start) // UNIT_BYTES])
    found = np.zeros(len(position), _UNIT)
    found[:] = np.concatenate(units)
    return position, found


def _rows(units: Structs, whole: Flags, records: TimerColumns, complete: bool) -> Ints:
    """Return the record row of each entry, _NONE if unknown. An entry stays if another record has taken the place of
    its own. complete: nothing was ever before the first entry.
    """
    row = _named(units, records)
    if not len(records.position):
        return row
    there = records.at(units["offset_py"].astype(np.int64))[0]
    own = np.where(row >= 0, records.queue_offset[row], _NONE)
    offset, sure = _filled_offsets(own, complete)
    by_offset = np.argsort(records.queue_offset, kind="stable")
    at, known = rows_of(records.queue_offset[by_offset], offset)
    candidate = np.where(known, by_offset[at], _NONE)
    guessed = whole & (_agreement(units, records, candidate) == _ALL_FIELDS)
    other = (candidate == there) & (records.position[there] == units["offset_py"])
    use = (candidate >= 0) & (offset != own) & (sure | guessed) & ~(other & whole)
    found: Ints = np.where(use, candidate, row)
    return found


def _named(units: Structs, records: TimerColumns) -> Ints:
    """Return the record at the position that an entry names, if enough of the entry agrees with it."""
    row, known = records.at(units["offset_py"].astype(np.int64))
    row = np.where(known & (units["size"] == UNIT_BYTES), row, _NONE)
    found: Ints = np.where(_agreement(units, records, row) >= _ENOUGH_FIELDS, row, _NONE)
    return found


def _agreement(units: Structs, records: TimerColumns, row: Ints) -> Ints:
    """Return how many of size, topic, time and kind of an entry agree with a record."""
    if not len(records.position):
        return np.zeros(len(row), np.int64)
    due, out_ms = due_ms(units), records.out_ms[row]
    rolled, kind = _kinds(units, records, row)
    count = (units["size_py"] == records.size[row]).astype(np.int64)
    count += units["hash_code_of_real_topic"] == records.topic_hash[row]
    count += np.where(rolled, due < out_ms, due == out_ms) | is_filed_again(units["delayed_time"], due, out_ms)
    count += kind | ~is_kind(units["magic"])
    found: Ints = np.where(row >= 0, count, 0)
    return found


def _kinds(units: Structs, records: TimerColumns, row: Ints) -> tuple[Flags, Flags]:
    """Return (rolled, same kind as the record): bool[n] each. Of another kind the magic is damaged, or the entry is of
    another record: then the time shows whether it is rolled, not the magic.
    """
    magic = units["magic"]
    kind = magic & ~np.int32(MAGIC_ROLL) == np.where(records.cancels[row], MAGIC_DEFAULT | MAGIC_DELETE, MAGIC_DEFAULT)
    return np.where(kind, (magic & MAGIC_ROLL) != 0, due_ms(units) < records.out_ms[row]), kind


def _filled_offsets(offset: Ints, complete: bool) -> tuple[Ints, Flags]:
    """Return queue offsets with gaps filled from their neighbours, and which are certain. Messages that were due when
    they were read have no entry: only a gap of the right width is certain.
    """
    offset, sure = offset.copy(), offset >= 0
    if len(offset) > 2:  # an offset that breaks a continuing row is wrong
        jumps = (offset[2:] - offset[:-2] == 2) & (offset[:-2] >= 0)
        offset[1:-1][jumps] = offset[:-2][jumps] + 1
        sure[1:-1] |= jumps
    bad = np.flatnonzero(offset < 0)
    if not len(bad):
        return offset, sure
    first = np.append(True, np.diff(bad) > 1)
    begin = bad[first]
    end = bad[np.append(np.flatnonzero(first)[1:], len(bad)) - 1] + 1
    width = end - begin
    left = np.where(begin > 0, offset[begin - 1], _NONE)
    right = offset[np.minimum(end, len(offset) - 1)]
    at_end, at_start = end == len(offset), begin == 0
    fits = ~at_end & (right - left - 1 == width) & (~at_start | complete)
    from_left = fits | (at_end & ~at_start)
    base = np.where(from_left, left + 1, right - width)
    use = from_left | (at_start & ~at_end & (right >= width))
    run = np.cumsum(first) - 1
    candidate = base[run] + bad - begin[run]
    offset[bad] = np.where(use[run], candidate, _NONE)
    sure[bad] = fits[run]
    return offset, sure


def _put_right(units: Structs, whole: Flags, row: Ints, files: TimerFiles, records: TimerColumns) -> None:
    """Correct entries by their records; times of writing stay if possible. `row` becomes _NONE if none fits."""
    if not len(records.position):
        return
    out_ms, due = records.out_ms[row], due_ms(units)
    named = (row >= 0) & (row == _named(units, records))
    rolled = np.where(named, _kinds(units, records, row)[0], whole & ((units["magic"] & MAGIC_ROLL) != 0))
    rolled &= due != out_ms
    low, high = _written_between(units, whole & named & (rolled | (due == out_ms)))
    began = records.store_timestamp[row] // files.ticks.precision_ms * files.ticks.precision_ms
    low = np.where(low < 0, np.minimum(began, np.where(high < 0, began, high)), low)
    high = np.where(high < 0, np.maximum(low, out_ms), high)
    written = units["curr_write_time"].astype(np.int64)
    fits = (written >= low) & (written <= high)
    timed = (whole | named) & ((due == out_ms) | (rolled & (due < out_ms) & (named & whole | fits)))
    timed |= whole & named & is_filed_again(units["delayed_time"], due, out_ms)
    written = np.where(fits, written, low)
    possible = timed | ((out_ms >= 0) & (out_ms - written >= np.iinfo(np.int32).min))
    row[(row >= 0) & ~possible] = _NONE
    known = row >= 0
    for number in np.flatnonzero(known & ~timed).tolist():
        delay_ms, rolled[number] = files.ticks.delay(int(out_ms[number]), int(written[number]))
        units["curr_write_time"][number] = written[number]
        units["delayed_time"][number] = delay_ms
    cancels = records.cancels[row]
    magic = MAGIC_DEFAULT | rolled * MAGIC_ROLL | cancels * MAGIC_DELETE
    units["magic"][known] = magic[known]
    units["offset_py"][known] = records.position[row[known]]
    units["size_py"][known] = records.size[row[known]]
    units["hash_code_of_real_topic"][known] = records.topic_hash[row[known]]


def _written_between(units: Structs, trusted: Flags) -> tuple[Ints, Ints]:
    """Return the times (ms) at which the nearest trusted entries before and behind were written; _NONE without one."""
    written = np.concatenate([[_NONE], units["curr_write_time"].astype(np.int64), [_NONE]])
    count = len(units)
    number = np.arange(1, count + 1)
    before = np.maximum.accumulate(np.where(trusted, number, 0))
    behind = np.minimum.accumulate(np.where(trusted, number, count + 1)[::-1])[::-1]
    return written[before], written[behind]


def _link(position: Ints, units: Structs, changed: Flags, files: TimerFiles) -> None:
    """Link changed entries, and those that name no older entry, to the entry before in their tick."""
    order = ByTick.of(due_ms(units) // files.ticks.precision_ms, position)
    before = np.empty(len(position), np.int64)
    before[order.rows] = order.before
    previous = units["prev_pos"].astype(np.int64)
    inside = (previous >= files.log.start) & ~np.isin(previous, position)
    wrong = changed | (previous >= position) | (previous < _NONE) | inside
    units["prev_pos"][wrong] = before[wrong]


def _bytes_differ(one: Structs, other: Structs) -> Flags:
    found: Flags = (
        one.view(np.uint8).reshape(len(one), UNIT_BYTES) != other.view(np.uint8).reshape(len(one), UNIT_BYTES)
    ).any(axis=1)
    return found


def made_entries(files: TimerFiles, records: TimerColumns, file_bytes: int) -> RepairedEntries:
    """Return entries for a timer log without any, as if the messages were read again: from the first waiting one on,
    and all later ones that had to wait. A start continues behind the last one, and reads slots from the time in
    timercheck on: entries of messages that were delivered have no effect.
    """
    precision_ms, read_ms = files.ticks.precision_ms, max(files.check.last_read_time_ms, 0)
    late = records.out_ms > records.store_timestamp // precision_ms * precision_ms
    late &= records.queue_offset < files.check.last_timer_queue_offset
    waits = late & (records.out_ms > read_ms)
    first = int(records.queue_offset[waits].min()) if waits.any() else np.iinfo(np.int64).max
    records = records.take(np.flatnonzero(late & (records.queue_offset >= first)))
    records = records.take(np.argsort(records.queue_offset, kind="stable"))
    count, room = len(records), (file_bytes - BLANK_BYTES) // UNIT_BYTES
    number = np.arange(count, dtype=np.int64)
    position = files.log.start + number // room * file_bytes + number % room * UNIT_BYTES
    written = records.store_timestamp // precision_ms * precision_ms
    wait_ms, rolled = files.ticks.delays(records.out_ms, written)
    # was due to roll, but is not in the queue again: its turn is still to come
    missed = rolled & (written + wait_ms < read_ms) & _newest(records) & (records.out_ms > read_ms)
    written = np.where(missed, read_ms // precision_ms * precision_ms, written)
    wait_ms, rolled = files.ticks.delays(records.out_ms, written)
    units = np.zeros(count, _UNIT)
    units["size"] = UNIT_BYTES
    units["magic"] = MAGIC_DEFAULT | rolled * MAGIC_ROLL | records.cancels * MAGIC_DELETE
    units["curr_write_time"], units["delayed_time"] = written, wait_ms
    units["offset_py"], units["size_py"] = records.position, records.size
    units["hash_code_of_real_topic"] = records.topic_hash
    changed = np.ones(count, np.bool_)
    _link(position, units, changed, files)
    return RepairedEntries(position, units, changed, np.zeros(0, np.int64))


def entries_to_add(files: TimerFiles, records: TimerColumns, waits: Flags, rolled: Flags, now_ms: int) -> Structs:
    """Return entries for messages that a start at `now_ms` reads from the queue, and of which it would file some in
    ticks that it never reads: due ones get no wait. waits: neither delivered nor cancelled. rolled: a later record
    exists, and only that may fire: the entry gets a tick that no start reads any more.
    """
    out_ms, write_ms = records.out_ms, np.int64(files.ticks.start_ms(now_ms))
    passed_ms = np.minimum(out_ms, files.ticks.oldest_ms(now_ms) - files.ticks.precision_ms)
    to_come = (out_ms > write_ms) & ~rolled
    wait_ms, again = files.ticks.delays(out_ms, np.full(len(records), write_ms))
    again = np.where(rolled, passed_ms < out_ms, again & to_come)
    units = np.zeros(len(records), _UNIT)
    units["size"], units["prev_pos"] = UNIT_BYTES, _NONE
    units["magic"] = MAGIC_DEFAULT | again * MAGIC_ROLL | records.cancels * MAGIC_DELETE
    units["curr_write_time"] = np.where(to_come | waits, write_ms, np.where(rolled, passed_ms, out_ms))
    units["delayed_time"] = np.where(to_come, wait_ms, 0)
    units["offset_py"], units["size_py"] = records.position, records.size
    units["hash_code_of_real_topic"] = records.topic_hash
    return units


def added_to(log: TimerLog, units: Structs, file_bytes: int, folder: str) -> Iterator[Edit]:
    """Yield edits that append units behind the last entry, in further files if the last one has no room."""
    pieces: dict[int, bytearray] = {}
    position, begins_at = log.end, dict[int, int]()
    while len(units):
        place, blank = next_place(position, file_bytes)
        fit = max(1, (file_bytes - place % file_bytes - BLANK_BYTES) // UNIT_BYTES)
        many, units = units[:fit].tobytes(), units[fit:]
        for at, piece in ((position, blank), (place, many)):
            start = at // file_bytes * file_bytes
            if piece:
                begins_at.setdefault(start, at - start)
                pieces.setdefault(start, bytearray()).extend(piece)
        position = place + len(many)
    paths = {file.start: file.path for file in log.files}
    for start, data in pieces.items():
        offset, reason = begins_at[start], "new entries for messages that a start would read too late"
        if start in paths:
            yield Edit("write", paths[start], reason, ("I-183",), offset, len(data), bytes(data))
        else:
            path = f"{folder}/{file_name(start)}"
            yield Edit("create", path, reason, ("I-183",), length=file_bytes, pieces=((offset, bytes(data)),))


def entries_complete_to(entries: TimerEntries, records: TimerColumns, begin: int) -> int:
    """Return the queue offset, from `begin` on, up to which all messages have entries and need no reading again."""
    mine = np.flatnonzero((records.queue_offset >= begin) & np.isin(records.position, entries.offset_py))
    offsets = np.unique(records.queue_offset[mine])
    return begin + int((offsets == begin + np.arange(len(offsets))).sum())


def moved_to_tick(found: RepairedEntries, late: Ints, records: TimerColumns, tick_ms: int) -> RepairedEntries:
    """Return the entries with the rows `late` moved to the tick of `tick_ms` without a wait: to fire or roll again."""
    units, changed = found.units.copy(), found.changed.copy()
    row, known = records.at(units["offset_py"][late].astype(np.int64))
    to_come = known & (records.out_ms[row] > tick_ms)
    units["curr_write_time"][late] = tick_ms
    units["delayed_time"][late] = 0
    units["magic"][late] = MAGIC_DEFAULT | to_come * MAGIC_ROLL
    changed[late] = True
    return found._replace(units=units, changed=changed)


def _newest(records: TimerColumns) -> Flags:
    """bool[n]: no later record is of the same message, by queue offset."""
    order = np.lexsort((records.queue_offset, records.out_ms, records.cancels, records.name))
    first = begins(records.name[order], records.cancels[order].astype(np.int64), records.out_ms[order])
    found = np.zeros(len(order), np.bool_)
    found[order] = np.append(first[1:], True)[: len(order)]
    return found


def cut_behind(log: TimerLog, position: int) -> Iterator[Edit]:
    """Yield edits that take away all entries from a position on. The next messages stand in the places that they name;
    a start that finds none there tries again and again.
    """
    for file in log.files:
        if file.start >= position and file is not log.files[0]:
            yield Edit("move", file.path, "its entries are of messages that were cut off", ("I-128",))
        elif file.start <= position < min(log.end, file.end):
            size, reason = min(log.end, file.end) - position, "zeros for entries of messages that were cut off"
            yield Edit("write", file.path, reason, ("I-128",), position - file.start, size)


def closing_blanks(log: TimerLog) -> Iterator[Edit]:
    """Yield missing BLANKs at the end of full files of the timer log that have files behind them."""
    for file in log.files[:-1]:
        mine = [part for part in log.ranges if file.start <= part.position < file.end]
        if any(part.kind == "blank" for part in mine) or file.size < UNIT_BYTES + BLANK_BYTES:
            continue
        offset = (file.size - BLANK_BYTES) // UNIT_BYTES * UNIT_BYTES
        last = np.array([file.start + offset - UNIT_BYTES], np.int64)
        if log.entries.at(last)[1][0]:  # the file is full
            rest = file.size - offset
            data = BLANK.build({"size": rest, "prev_pos": 0, "magic": MAGIC_BLANK})
            reason = "a BLANK: the log continues in the next file"
            yield Edit("write", file.path, reason, ("I-126",), offset, len(data), data)


def unknown_beginning(log: TimerLog) -> Iterator[Edit]:
    """Yield moves of first files of which no entry is known: a start that reads them cuts the log there, with
    everything behind, and expiry never removes them. The log then begins with the next file, as after expiry.
    """
    for file in log.files[:-1]:
        inside = (log.entries.position >= file.start) & (log.entries.position < file.end)
        mine = [part for part in log.ranges if file.start <= part.position < file.end]
        closed = all(part.kind == "blank" for part in mine)
        if inside.any() or closed or not (log.entries.position >= file.end).any():
            return
        yield Edit("move", file.path, "nothing shows which entries it had", ("I-126",))


def missing_files(log: TimerLog, messages: int) -> Iterator[Edit]:
    """Yield missing files between others, without entries yet, which their neighbours show. Nothing if a file has
    another length, or if so many files are missing that the timer topic has too few messages for their entries.
    """
    size = log.files[0].size if log.files else 0
    gaps = [range(file.end, behind.start, size or 1) for file, behind in pairwise(log.files)]
    missing_bytes = sum(max(0, gap.stop - gap.start) for gap in gaps)
    entries = missing_bytes // (size or 1) * ((size - BLANK_BYTES) // UNIT_BYTES)
    if any(file.size != size for file in log.files[:-1]) or not 0 < entries <= messages:
        return
    folder = os.path.dirname(log.files[0].path)  # noqa: PTH120
    for start in chain.from_iterable(gaps):
        path = f"{folder}/{file_name(start)}"
        yield Edit("create", path, "a missing file of the timer log", ("I-002",), length=size)


def are_full(log: TimerLog, made: Iterable[Edit]) -> bool:
    """Whether each place of the created files has an entry: a start cuts the timer log at a place without one."""
    mine = {file.path: file for file in log.files}
    return all(
        log.entries.at(np.arange(file.start, file.end - UNIT_BYTES - BLANK_BYTES + 1, UNIT_BYTES))[1].all()
        for file in (mine[edit.path] for edit in made)
    )
