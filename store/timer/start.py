"""The timer of a 5.x broker after load, and the edits that let a broker load it (spec 04, 4.9).

`recover_timer` gives what a broker has after load: its log, its wheel, and where it continues to read. The wheel is an
array over its file, changed only in memory. A broker checks size and magic of an entry and nothing else, and so does
this.

`timer_edits` plans the changes of the log, and of a wheel that has a wrong length or is lost. A lost wheel costs a
broker all messages but those of the last log files (B33). So it is rebuilt from the whole log, unless the broker reads
the whole queue again anyway: then each message would fire twice (B34). A broker itself reads lost entries again from
the timer topic's queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ...formats.blank import MAGIC_BLANK
from ...formats.derive import decode_one, dtype_of
from ...formats.derive.ragged import Bytes, Ints, Structs
from ...formats.timer_check import FILE as TIMER_CHECK
from ...formats.timer_log import BLANK, BLANK_BYTES, MAGIC_BLANK_SIGNED, UNIT, UNIT_BYTES
from ...formats.timer_wheel import FILE_BYTES, SLOT, SLOT_BYTES, SLOTS
from ..broker.load_rules import LoadedFile, LoadedFiles, Refusal, knows, load_files, schema_of, truncate
from ..broker.profiles import Profile, RecordRules, TimerRules
from ..broker.snapshot import DirectoryEntry, QueueId, Snapshot
from ..broker.system_topics import TIMER_TOPIC
from ..columns import begins
from ..counted import counted
from ..disk.byte_reader import refusing
from ..disk.checkpoint import TimerCheck, read_timer_check
from ..disk.files import Edit
from ..disk.layout import Layout
from ..queues.edits import is_zero_from
from ..queues.references import commit_log_of
from ..queues.start_rocksdb import StartedQueue
from ..queues.units import LARGEST_OFFSET, is_valid, is_whole_file
from .read import due_ms, is_entry, wheel_at_rest, wheel_bytes
from .wheel import Ticks

QUEUE = QueueId(TIMER_TOPIC, 0)
_UNIT = dtype_of(UNIT)
_SLOT = dtype_of(SLOT)
assert _UNIT.fields is not None
_PLACE_AT, _PLACE_END = (_UNIT.fields[n][1] for n in ("offset_py", "hash_code_of_real_topic"))
_UNITS_COMPARED = 20_000
"""So many units of the queue, at most, are compared with the last entry of the log."""
_BUFFER_BYTES = (4 << 20) + 100
"""A broker's room for one message, up to 5.3: a little more than `maxMessageSize`."""


@dataclass
class TimerState:
    """The timer after load. queue_offset: of the next unit of the timer topic's queue to read; elected_offset: of the
    first one that is read once more if the broker becomes the master after its start (B45). removed: files behind the
    end of the log; deleted: empty files.
    """

    files: list[LoadedFile]
    file_bytes: int
    check: TimerCheck
    wheel: Structs
    ticks: Ticks
    log_end: int = 0
    queue_offset: int = 0
    elected_offset: int = LARGEST_OFFSET
    read_time_ms: int = 0
    removed: list[LoadedFile] = field(default_factory=list)
    deleted: list[DirectoryEntry] = field(default_factory=list)

    @classmethod
    def without_files(cls, layout: Layout) -> TimerState:
        """The state that timercheck alone gives."""
        check = read_timer_check(layout.config / TIMER_CHECK) or TimerCheck()
        found = cls([], 0, check, np.zeros(SLOTS, _SLOT), Ticks.of_store(layout))
        found.read_time_ms = check.last_read_time_ms
        return found

    def used(self, read_time_ms: int) -> Ints:
        """Numbers of the slots in use from a time (ms) on, in the order in which they are due."""
        first = max(1, self.ticks.of(read_time_ms))  # a slot that was never used has the time 0
        numbers = np.flatnonzero(self.wheel["time"] >= first)  # most of a wheel is empty
        round_ = (numbers - first) % SLOTS
        in_time = self.wheel["time"][numbers] == first + round_
        used: Ints = numbers[in_time][np.argsort(round_[in_time], kind="stable")]
        return used


def recover_timer(
    snapshot: Snapshot, profile: Profile, log: tuple[int, int], queue: StartedQueue | None, now_ms: int
) -> TimerState | Refusal | None:
    """Load the timer after the rest of the store; None if the store never had one.

    log: begin and end of the log after load. queue: of the timer topic. Raises Unreadable.
    """
    layout = snapshot.layout
    rules = profile.timer
    if rules is None or (queue is None and not snapshot.has_timer):
        return None
    loaded = load_timer(snapshot, profile)
    if isinstance(loaded, Refusal):
        return loaded
    state = TimerState(
        loaded.files,
        snapshot.timer_file_bytes,
        read_timer_check(layout.config / TIMER_CHECK) or TimerCheck(),
        _wheel(layout),
        Ticks.of_store(layout),
        deleted=loaded.deleted,
    )
    return _recover(snapshot, profile, rules, state, log, queue, now_ms)


def load_timer(snapshot: Snapshot, profile: Profile) -> LoadedFiles | Refusal:
    """The files of the timer log; a Refusal if lengths or names make the load of them or of the wheel fail."""
    wheel = snapshot.layout.timer_wheel
    if (size := wheel_bytes(wheel)) not in (0, FILE_BYTES):
        reason = f"RuntimeException: Timer wheel length:{size} != expected:{FILE_BYTES}"
        return Refusal("timer-wheel-length", reason, str(wheel))
    loaded = load_files(snapshot.timer_log, snapshot.timer_file_bytes, profile.load)
    if loaded.refusal:
        return Refusal(f"timer-{loaded.refusal.case}", loaded.refusal.reason, loaded.refusal.path)
    return loaded


def entries_end(data: Bytes) -> int:
    """Byte of a timer log file at which a broker ends to read entries."""
    return _entries(data, check=True).end


def rebuilt_wheel(snapshot: Snapshot) -> Structs:
    """A wheel that names all entries of the log; `num` stays 0. Raises Unreadable."""
    size = snapshot.timer_file_bytes
    files = [LoadedFile(int(entry.name), size, entry) for entry in snapshot.timer_log]
    ticks = Ticks.of_store(snapshot.layout)
    state = TimerState(files, size, TimerCheck(), np.zeros(SLOTS, _SLOT), ticks)
    _revise(snapshot, state, 0, check=False)
    return state.wheel


def _wheel(layout: Layout) -> Structs:
    """The slots of a store's wheel; changes of them stay in memory. Raises Unreadable."""
    wheel = np.zeros(SLOTS, _SLOT)
    with refusing():
        for part in wheel_at_rest(layout) if wheel_bytes(layout.timer_wheel) else ():
            wheel[part.number] = part.slots
    return wheel


def _recover(
    snapshot: Snapshot,
    profile: Profile,
    rules: TimerRules,
    state: TimerState,
    log: tuple[int, int],
    queue: StartedQueue | None,
    now_ms: int,
) -> TimerState | Refusal:
    begin = state.check.last_timer_log_flush_pos - (state.file_bytes if state.files else 0)
    state.log_end = _revise(snapshot, state, max(0, begin), check=True)
    place = _last_place(snapshot, state)
    if place is not None and not 0 <= place[1] <= _BUFFER_BYTES and not rules.any_size:
        wrong = f"< 0: ({place[1]} < 0)" if place[1] < 0 else f"> capacity: ({place[1]} > {_BUFFER_BYTES})"
        reason = f"IllegalArgumentException: newLimit {wrong}"
        return Refusal("timer-log-end", reason, str(snapshot.layout.timer_log))
    state.queue_offset = _queue_offset(snapshot, profile, state, place, log, queue)
    if _is_elected_later(snapshot.layout):
        state.elected_offset = state.check.master_timer_queue_offset
    ticks = state.ticks
    state.read_time_ms = max(state.check.last_read_time_ms, ticks.oldest_ms(now_ms))
    used = state.wheel[state.used(state.read_time_ms)]
    beyond = used[used["last_pos"] > state.log_end]
    if len(beyond) and (first := int(beyond["first_pos"].min())) < state.log_end:
        _revise(snapshot, state, first, check=False)
    return state


def _is_elected_later(layout: Layout) -> bool:
    """The broker starts as if it were a master, and a DLedger group or a controller makes it one later (B45)."""
    return (layout.dledger is not None or layout.may_be_master) and not layout.broker_config.is_slave


def _revise(snapshot: Snapshot, state: TimerState, begin: int, *, check: bool) -> int:
    """`recoverAndRevise`: let the slots name the entries from `begin` on; return where these end.

    check: a unit that is no entry ends the log.
    """
    if not state.files:
        return 0
    index = max((i for i, f in enumerate(state.files) if begin >= f.start), default=0)
    end = state.files[index].start
    for file in state.files[index:]:
        assert file.entry is not None
        size = state.file_bytes if check else file.wrote
        data = snapshot.bytes_of(file.entry)[:size]
        found = _entries(data, check=check)
        _name_in_slots(state, found.offset + file.start, found.tick_ms)
        end = file.start + found.end
        if found.stopped:
            break
    if check:
        state.removed += truncate(state.files, end, state.file_bytes)
    return end


class _ReadEntries(NamedTuple):
    """Good entries of a file: their bytes in the file, and when they are due. end: byte where reading ends. stopped: no
    later file is read either.
    """

    offset: Ints
    tick_ms: Ints
    end: int
    stopped: bool


def _entries(data: Bytes, *, check: bool) -> _ReadEntries:
    """The entries of a file. check: a unit that is no entry ends them."""
    whole = len(data) // UNIT_BYTES
    units = data[: whole * UNIT_BYTES].view(_UNIT)
    blank = units["magic"] == MAGIC_BLANK_SIGNED
    good = is_entry(units)
    stop = blank | ~good if check else blank
    count = int(stop.argmax()) if stop.any() else whole
    end, stopped = count * UNIT_BYTES, False
    if count < whole:
        stopped = not blank[count]
    elif rest := len(data) - end:
        tail = data[end:].tobytes()
        stopped = rest < BLANK_BYTES or BLANK.parse(tail).magic != MAGIC_BLANK
    numbers = np.flatnonzero(good[:count])
    return _ReadEntries(numbers * UNIT_BYTES, due_ms(units[numbers]), end, stopped)


def _name_in_slots(state: TimerState, position: Ints, tick_ms: Ints) -> None:
    """Make each entry, in order, the newest of its slot; an entry of another tick takes over the slot."""
    if not len(position):
        return
    time = tick_ms // state.ticks.precision_ms
    number = time % SLOTS
    order = np.argsort(number, kind="stable")
    number, time, position = number[order], time[order], position[order]
    new_slot = begins(number)
    new_tick = begins(number, time)
    last = np.flatnonzero(np.concatenate([new_slot[1:], [True]]))
    run = np.maximum.accumulate(np.where(new_tick, np.arange(len(order)), 0))[last]
    slots = number[last]
    kept = new_slot[run] & (state.wheel["time"][slots] == time[last])
    first = np.where(kept, state.wheel["first_pos"][slots], position[run])
    for name, values in (("time", time[last]), ("first_pos", first), ("last_pos", position[last])):
        state.wheel[name][slots] = values


def _last_place(snapshot: Snapshot, state: TimerState) -> tuple[int, int] | None:
    """Position and size of the message that the last entry names, whatever stands there; None without an entry."""
    at = state.log_end - UNIT_BYTES + _PLACE_AT
    file = next((f for f in state.files if 0 <= at - f.start < f.wrote), None)
    if file is None or file.entry is None or at < 0:
        return None
    data = snapshot.bytes_of(file.entry)[at - file.start :][: _PLACE_END - _PLACE_AT].tobytes()
    if len(data) < _PLACE_END - _PLACE_AT:
        return None
    unit = UNIT.parse((bytes(_PLACE_AT) + data).ljust(UNIT_BYTES, b"\0"))
    return unit.offset_py, unit.size_py


def _queue_offset(
    snapshot: Snapshot,
    profile: Profile,
    state: TimerState,
    place: tuple[int, int] | None,
    log: tuple[int, int],
    queue: StartedQueue | None,
) -> int:
    """Queue offset of the next unit to read: behind the unit of the last entry's message."""
    offset = _offset_in_record(snapshot, profile.record, place, log)
    if offset is None:
        found = state.check.last_timer_queue_offset
    else:
        assert place is not None
        found = 1 + (_offset_in_queue(queue, offset, place) if queue else offset)
    found = min(found, state.check.master_timer_queue_offset)
    if profile.timer is not None and profile.timer.clamps and queue is not None:
        low, high = queue.min_offset, queue.max_offset
        found = low if found < low else min(found, high)
    return found


def _offset_in_record(
    snapshot: Snapshot, rules: RecordRules, place: tuple[int, int] | None, log: tuple[int, int]
) -> int | None:
    """Queue offset in the record at a place; None if there is no record.

    A broker takes position and size from the entry, and checks neither checksum nor size of the record.
    """
    if place is None:
        return None
    position, size = place
    if not log[0] <= position or position + size > log[1] or size <= 0:
        return None
    data = commit_log_of(snapshot.layout).queue.read(position, size)
    found = decode_one(schema_of(rules), data)
    if len(data) < size or not found.ok[0] or not knows(rules, found.ints("magic_code"))[0]:
        return None
    return int(found.ints("queue_offset")[0])


def _offset_in_queue(queue: StartedQueue, offset: int, place: tuple[int, int]) -> int:
    """Newest queue offset up to `offset` whose unit names the place, else `offset`."""
    for begin, end in _ranges_backwards(min(offset, queue.max_offset - 1), offset - _UNITS_COMPARED):
        units = queue.lookup(np.arange(begin, end, dtype=np.int64))
        same = (units["physical_offset"] == place[0]) & (units["size"] == place[1])
        same &= is_valid(units)
        if same.any():
            return begin + int(np.flatnonzero(same)[-1])
    return offset


def _ranges_backwards(newest: int, oldest: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of queue offsets, the newest first."""
    end = newest + 1
    while end > max(0, oldest):
        begin = max(0, oldest, end - 1000)
        yield begin, end
        end = begin


_LOG_CODES = ("I-126",)
_WHEEL_CODES = ("I-120",)


def is_timer_file(entry: DirectoryEntry, size: int) -> bool:
    """Whether the timer log may have a file of this name, if files have `size` bytes; its own length may differ."""
    return entry.size > 0 and is_whole_file(entry._replace(size=size), size)


def timer_edits(snapshot: Snapshot) -> Iterator[Edit]:
    """Yield the edits for a store whose broker has a timer. Raises Unreadable."""
    size = snapshot.timer_file_bytes
    kept: list[DirectoryEntry] = []
    for entry in snapshot.timer_log:
        if is_timer_file(entry, size):
            kept.append(entry)
        else:
            yield Edit("move", entry.path, "not a file of the timer log", ("I-005",))
    while len(kept) > 1 and not _has_entry(snapshot, kept[-1]):
        entry = kept.pop()
        yield Edit("move", entry.path, "it has no entry: a broker may not start", _LOG_CODES)
    for entry in kept:
        if entry.size != size:
            yield from _length_edits(snapshot, entry, size, last=entry is kept[-1])
    yield from _wheel_edits(snapshot, kept)


def _wheel_edits(snapshot: Snapshot, kept: list[DirectoryEntry]) -> Iterator[Edit]:
    """Replace a wheel of a wrong length, and make a lost one if entries need it."""
    wheel = snapshot.layout.timer_wheel
    exists = wheel.exists()
    size = wheel.stat().st_size if exists else 0
    if size == FILE_BYTES or (not size and not _needs_wheel(snapshot, kept)):
        return
    if exists:
        reason = "a wheel of a wrong length: a broker does not start" if size else "an empty wheel"
        yield Edit("move", str(wheel), reason, _WHEEL_CODES)
    yield new_wheel(snapshot, kept)


def _needs_wheel(snapshot: Snapshot, kept: list[DirectoryEntry]) -> bool:
    """Whether entries wait that no broker finds without a wheel."""
    check = read_timer_check(snapshot.layout.config / TIMER_CHECK) or TimerCheck()
    reads_all_again = check.master_timer_queue_offset <= 0
    return not reads_all_again and any(_has_entry(snapshot, entry) for entry in kept)


def _has_entry(snapshot: Snapshot, entry: DirectoryEntry) -> bool:
    return entries_end(snapshot.bytes_of(entry)[:]) > 0


def _length_edits(snapshot: Snapshot, entry: DirectoryEntry, size: int, *, last: bool) -> Iterator[Edit]:
    """Give a file its length; a BLANK behind its last entry leads to the next file."""
    reason = f"{counted(entry.size, 'byte')}, not {size}: a broker does not start"
    end = entries_end(snapshot.bytes_of(entry)[:size]) // UNIT_BYTES * UNIT_BYTES
    yield Edit("truncate", entry.path, reason, ("I-003",), length=size)
    if (torn := min(entry.size, size) - end) > 0 and not is_zero_from(entry, end):
        yield Edit("write", entry.path, "an incomplete entry at the end", _LOG_CODES, end, torn)
    if not last and size - end >= BLANK_BYTES:
        blank = BLANK.build({"size": size - end, "prev_pos": 0, "magic": MAGIC_BLANK})
        reason = "a BLANK: the log continues in the next file"
        yield Edit("write", entry.path, reason, _LOG_CODES, end, len(blank), blank)


def new_wheel(snapshot: Snapshot, kept: list[DirectoryEntry]) -> Edit:
    """Make a wheel that names the entries of all files."""
    whole = replace(snapshot, timer_log=tuple(kept))
    slots = rebuilt_wheel(whole)
    used = np.flatnonzero(slots["time"])
    pieces = tuple((int(n) * SLOT_BYTES, slots[n].tobytes()) for n in used)
    path = str(snapshot.layout.timer_wheel)
    reason = f"{counted(len(used), 'tick')} of the timer log"
    return Edit("create", path, reason, _WHEEL_CODES, length=FILE_BYTES, pieces=pieces)
