"""Records of timer messages as columns: which are of one message, what leads to them, what became of it.

Rolling a message writes it to the timer topic again, delivery writes it to its real topic. Both keep what the message
was made with: records that agree in all of that are of one message (spec 04, 4.4 to 4.6).

The entries of the timer log lead to records, chain by chain from the wheel, as a broker follows them. The wheel is the
one that a broker has after its start (spec 4.9). If a start cannot be predicted, the files are taken as they lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from ...formats import message_properties as names
from ...formats.derive import dtype_of
from ...formats.derive.ragged import Flags, Ints, Ragged, Structs
from ...formats.hashing import utf8
from ...formats.hashing_columns import java_hash_column
from ...formats.property_columns import PropertyItems
from ...formats.timer_check import FILE as TIMER_CHECK
from ...formats.timer_log import MAGIC_DELETE, MAGIC_ROLL, UNIT, UNIT_BYTES
from ...formats.timer_wheel import FILE_BYTES
from ..broker.system_topics import TIMER_TOPIC
from ..columns import Rows, decimals
from ..disk.checkpoint import TimerCheck, read_timer_check
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..errors import UnreadableRange, Unsupported
from ..log.batch import DAMAGED, Batch, Extent
from ..log.commit_log import CommitLog
from ..log.message import Mark
from ..queues.units import LARGEST_OFFSET
from ..search.store import Note, StoreReader
from ..timer.read import (
    CUT,
    NO_NUMBER,
    NOWHERE,
    WINDOW_UNITS,
    TimerEntries,
    follow,
    is_in_place,
    open_timer_log,
    timer_wheel,
)
from ..timer.wheel import Ticks

if TYPE_CHECKING:
    from ..start.outcome import Outcome


_AT_ONCE = 1 << 10
"""Records read at once."""


class TimerRecords(Rows):
    """n records in the order in which they were read.

    out_ms: TIMER_OUT_MS; deliver_ms: TIMER_DELIVER_MS; rolls: TIMER_ROLL_TIMES; queue_id: REAL_QID; NO_NUMBER if
    missing. topic: the real one. cancels: TIMER_DEL_UNIQKEY; length -1 if the message cancels nothing.
    """

    position: Ints
    total_size: Ints
    queue_offset: Ints
    store_timestamp: Ints
    born_timestamp: Ints
    body_crc: Ints
    out_ms: Ints
    deliver_ms: Ints
    rolls: Ints
    queue_id: Ints
    topic: Ragged
    unique_key: Ragged
    cancels: Ragged

    @classmethod
    def of(cls, batch: Batch, topic: Ragged | None = None) -> Self:
        """Return a copy of the records of a batch.

        topic: of records in their real topics; None: REAL_TOPIC and REAL_QID tell.
        """
        columns = batch.columns
        items = PropertyItems(columns.ragged("properties"))

        def stored(name: str) -> Ints:
            return columns.ints(name).astype(np.int64)

        return cls(
            batch.position.copy(),
            stored("total_size"),
            stored("queue_offset"),
            stored("store_timestamp"),
            stored("born_timestamp"),
            stored("body_crc"),
            numbers(items.find(names.TIMER_OUT_MS)),
            numbers(items.find(names.TIMER_DELIVER_MS)),
            numbers(items.find(names.TIMER_ROLL_TIMES)),
            numbers(items.find(names.REAL_QID)) if topic is None else stored("queue_id"),
            (items.find(names.REAL_TOPIC) if topic is None else topic).packed(),
            items.find(names.UNIQ_KEY).packed(),
            items.find(names.TIMER_DEL_UNIQKEY).packed(),
        )

    def identity(self) -> Ints:
        """Return what all records of one message have in common, int64[n, 6]."""
        columns = (
            java_hash_column(self.topic),
            java_hash_column(self.unique_key),
            java_hash_column(self.cancels),
            self.out_ms,
            self.born_timestamp,
            self.body_crc,
        )
        return np.stack([column.astype(np.int64) for column in columns], axis=1)


def numbers(texts: Ragged) -> Ints:
    """Return decimal numbers, int64[n]; NO_NUMBER for other text, and for more than 18 digits."""
    number, plain = decimals(texts)
    return np.where(plain, number, NO_NUMBER)


@dataclass
class Scanned:
    """The timer messages that a log has.

    requested: records of the timer topic. came_out: records in real topics that were in the timer topic. at_once:
    records that a broker put into their topic as they came in, as a rule because they were due. damage: position of the
    last damage met, -1 for none.
    """

    requested: TimerRecords | None = None
    came_out: TimerRecords | None = None
    at_once: TimerRecords | None = None
    damage: int = -1

    @cached_property
    def rolled(self) -> Ints:
        """Positions of records of the timer topic that have a later record of the same message. Records without a
        unique key are left out: several equal messages may have written them.
        """
        if self.requested is None:
            return np.zeros(0, np.int64)
        group, position = _messages(self.requested, None)[0], self.requested.position
        newest = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
        np.maximum.at(newest, group, position)
        found: Ints = position[(position < newest[group]) & (self.requested.unique_key.length > 0)]
        return found


def timer_records(log: CommitLog, start: int | None = None) -> Scanned:
    """Scan the log for timer messages, from log position `start` on; queues are not needed. Raises Unreadable."""
    found = Scanned()
    parts: tuple[list[TimerRecords], ...] = ([], [], [])
    for item in log.scan(start=start, crc=False, reuse=True):
        if isinstance(item, Extent):
            if item.kind in DAMAGED:
                found.damage = item.position
        elif item.mark <= Mark.AFTER_DAMAGE:
            for part, mask in zip(parts, _timer_masks(item), strict=True):
                if mask.any():
                    rows = item.take(mask)
                    topic = None if part is parts[0] else rows.columns.ragged("topic")
                    part.append(TimerRecords.of(rows, topic))
    found.requested, found.came_out, found.at_once = (TimerRecords.concat(part) if part else None for part in parts)
    return found


def _timer_masks(batch: Batch) -> tuple[Flags, Flags, Flags]:
    """bool[n]: the message is in the timer topic; it was there; its producer asked for a timer, but it was not there.

    A message that a consumer sent back is neither of the last two: it keeps the properties of what was consumed.
    """
    items = PropertyItems(batch.columns.ragged("properties"))
    inside = batch.columns.ragged("topic").equals(utf8(TIMER_TOPIC))
    timed = items.find(names.TIMER_OUT_MS).length > 0
    asked = np.zeros(len(batch), np.bool_)
    for name in (names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS):
        asked |= items.find(name).length > 0
    outside = ~inside & (batch.columns.ints("reconsume_times") == 0)
    return inside, timed & outside, asked & ~timed & outside


@dataclass
class DeliveredTimers:
    """What a log shows of a timer: what waits, up to when it has delivered. All is read once, on demand."""

    store: StoreReader
    _from: dict[int, Scanned] = field(default_factory=dict, repr=False)
    """The timer messages behind a log position."""

    @property
    def ticks(self) -> Ticks:
        """The ticks of the timer: when what waits is due."""
        return Ticks.of_store(self.store.layout)

    @cached_property
    def scanned(self) -> Scanned:
        """All timer messages of the log. Raises Unreadable."""
        return timer_records(self.store.log)

    def recent(self, wheel: WheelPosition, chained: Chained, unread_at: int) -> Scanned:
        """Return the timer messages that a broker with this wheel may deliver once too often, and what it delivered.

        unread_at: position of the first message that it reads from the queue. What was delivered since `wheel.read_ms`
        lies behind that time in the log: of older files only the records that entries name are read. Raises Unreadable.
        """
        log, entries = self.store.log, chained.entries
        start = log.min_offset if "scanned" in self.__dict__ else self._file_of(wheel.read_ms, unread_at)
        if start <= log.min_offset:
            return self.scanned
        found = self._from[start] = self._from.get(start) or timer_records(log, start)
        done_ms = 0 if found.came_out is None else int(found.came_out.out_ms.max())
        fires = chained.fires_ms != NOWHERE
        places, count = np.unique(entries.offset_py[fires], return_counts=True)
        due = np.isin(places, entries.offset_py[fires & (entries.tick_ms <= done_ms)])
        places = places[((count > 1) | due) & (places < start)]
        parts = [found.requested] if found.requested is not None else []
        for first in range(0, len(places), _AT_ONCE):
            batch = log.records(places[first : first + _AT_ONCE])
            rows = batch.take(_timer_masks(batch)[0])
            parts.insert(0, TimerRecords.of(rows))
        return replace(found, requested=TimerRecords.concat(parts) if parts else None)

    def _file_of(self, time_ms: int, position: int) -> int:
        """Return where the file of the log begins that has both the first record stored at a time and a position."""
        log = self.store.log
        begins = {file.start + log.frame_of(file).payload: file.start for file in log.files}
        first = log.records(np.array([*begins], np.int64))
        older = (first.columns.ints("store_timestamp") < time_ms) & (first.position <= position)
        return max((begins[at] for at in first.position[older].tolist()), default=log.min_offset)

    def newest_ms(self, now_ms: int) -> int:
        """When the newest delivered message was due, 0 without any. One due after `now_ms` was delivered by a clock
        that was ahead, and does not count. Raises Unreadable.
        """
        done = self.scanned.came_out
        if done is None:
            return 0
        in_time = done.out_ms <= np.minimum(done.store_timestamp, now_ms)  # none is delivered before its time
        return int(done.out_ms[in_time].max(initial=0))

    def up_to(self, entries: TimerEntries, now_ms: int) -> int:
        """Return the time behind the newest delivered message, without any the first tick of the timer log's entries,
        both at most `now_ms`; 0 without entries. Raises Unreadable.
        """
        if newest_ms := self.newest_ms(now_ms):
            return self.ticks.start_ms(newest_ms) + self.ticks.precision_ms
        return self.ticks.start_ms(min(int(entries.tick_ms.min()), now_ms)) if len(entries) else 0

    def late(self, entries: TimerEntries, read_ms: int, now_ms: int) -> Flags:
        """bool[n]: the entry is of a waiting message, at a tick before those that a start at `now_ms` reads (spec 04,
        4.9).

        read_ms: up to when the timer has delivered. Raises Unreadable.
        """
        oldest_ms = self.ticks.oldest_ms(now_ms)
        found: Flags = ~entries.deletes & (entries.tick_ms >= read_ms) & (entries.tick_ms < oldest_ms)
        if found.any() and (records := self.waiting) is not None:
            found &= np.isin(entries.offset_py, records.position)
        return found

    @cached_property
    def waiting(self) -> TimerRecords | None:
        """The newest record of each message that was neither delivered nor cancelled in the tick in which it is due.

        Raises Unreadable.
        """
        records, done = self.scanned.requested, self.scanned.came_out
        if records is None:
            return None
        waits = records.out_ms != NO_NUMBER
        waits &= ~np.isin(records.position, self.scanned.rolled)
        if done is not None:
            waits &= ~np.isin(*_messages(records, done))
        tick, compared = records.out_ms // self.ticks.precision_ms, compared_by(self.store)
        cancels = np.flatnonzero(records.cancels.length > 0).tolist()
        named = {(int(tick[row]), records.cancels[row]) for row in cancels}
        for row in np.flatnonzero(np.isin(tick, tick[cancels])).tolist():
            key = records.unique_key[row]
            key = key if compared == BY_KEY else b"+".join((records.topic[row], key))
            waits[row] &= (int(tick[row]), key) not in named
        return records.take(waits & (records.cancels.length <= 0))


def _messages(records: TimerRecords, done: TimerRecords | None) -> tuple[Ints, Ints]:
    """Return the number of the message of each record; records of one message agree in all that it was made with."""
    known = [records.identity()] + ([done.identity()] if done is not None else [])
    number = np.unique(np.concatenate(known), axis=0, return_inverse=True)[1].astype(np.int64).reshape(-1)
    return number[: len(records)], number[len(records) :]


@dataclass
class TimerFacts:
    """What is known of n records of the timer topic, by column.

    group: number of the message of a record. delivered: message → positions of its records in real topics. fires_ms:
    when the wheel has the record next, NOWHERE for never; rolled: then it is only rolled; cancelling: then it acts as a
    cancel message. times: how often it fires, by its entries and by the queue; if_elected: of these, once only if the
    broker is elected after its start (B45). tick_ms: the tick of its newest entry, NOWHERE without one. unread: its
    entry names too few bytes, or bytes behind the end of the log: a broker finds no message there. in_queue: a broker
    has still to read it from the timer topic's queue. cut_off: a broker that starts cuts the log before it. damage: as
    in `Scanned`. poison: the queue offset where a broker's reading gets stuck, since TIMER_OUT_MS is no number there
    (B35), or None.
    """

    records: TimerRecords
    wheel: WheelPosition
    stuck_ms: int | None
    group: Ints
    delivered: dict[int, list[int]]
    fires_ms: Ints
    times: Ints
    if_elected: Flags
    rolled: Flags
    tick_ms: Ints
    cancelling: Flags
    unread: Flags
    in_queue: Flags
    cut_off: Flags
    damage: int
    poison: int | None

    def messages(self, wanted: Flags) -> Iterator[Ints]:
        """Yield the wanted rows of each message, by position; messages by the position of their first wanted row."""
        rows = np.flatnonzero(wanted)
        rows = rows[np.lexsort((self.records.position[rows], self.group[rows]))]
        edges = np.flatnonzero(np.diff(self.group[rows])) + 1
        parts = np.split(rows, edges) if len(rows) else []
        yield from sorted(parts, key=lambda part: int(self.records.position[part[0]]))

    def slot(self, row: int) -> int:
        """Return the tick at which the wheel releases a record's message."""
        return self.wheel.ticks.of(int(self.records.out_ms[row]))

    def text(self, name: str, row: int) -> str:
        """Return `topic`, `unique_key` or `cancels` of a record."""
        stored: bytes = getattr(self.records, name)[int(row)]
        return stored.decode("utf-8", "replace")


def facts_of(records: TimerRecords, scanned: Scanned, wheel: WheelPosition, known_to: Chained) -> TimerFacts:
    """Join the columns. known_to: what the wheel leads to."""
    count, entries, done = len(records), known_to.entries, scanned.came_out
    group, came_out = _messages(records, done)
    out: dict[int, list[int]] = {}
    for number, position in zip(came_out.tolist(), [] if done is None else done.position.tolist(), strict=True):
        out.setdefault(number, []).append(position)
    chained = known_to.fires_ms != NOWHERE
    waits = chained & _readable(entries, records, wheel)
    newest, of_any = _newest(entries.offset_py, records.position)
    next_, of_waiting = _newest(entries.offset_py[waits], records.position)
    magic = _values_at(entries.magic[waits], next_, of_waiting, empty=0)
    _, of_chained = _newest(entries.offset_py[chained], records.position)
    in_queue = records.queue_offset >= wheel.queue_offset
    if wheel.queue_end is not None:
        in_queue &= records.queue_offset < wheel.queue_end
    if_elected = in_queue & (records.queue_offset >= wheel.elected_offset)
    bad = records.queue_offset[in_queue & (records.out_ms == NO_NUMBER)]
    named = np.sort(entries.offset_py[waits])
    times = np.searchsorted(named, records.position, "right") - np.searchsorted(named, records.position, "left")
    return TimerFacts(
        records,
        wheel,
        known_to.stuck_ms,
        group,
        out,
        _values_at(known_to.fires_ms[waits], next_, of_waiting),
        times + in_queue + if_elected,
        if_elected,
        (magic & MAGIC_ROLL) != 0,
        _values_at(entries.tick_ms, newest, of_any),
        (magic & (MAGIC_ROLL | MAGIC_DELETE)) == MAGIC_DELETE,
        of_chained & ~of_waiting,
        in_queue,
        np.zeros(count, np.bool_) if wheel.log_end is None else records.position >= wheel.log_end,
        scanned.damage,
        int(bad.min()) if len(bad) else None,
    )


def _readable(entries: TimerEntries, records: TimerRecords, wheel: WheelPosition) -> Flags:
    """bool[entries]: a broker finds a record at the entry: it reads as many bytes as the entry says."""
    rows, known = _newest(records.position, entries.offset_py)
    ends = entries.offset_py + entries.size_py
    inside = known & (entries.size_py >= records.total_size[rows])
    return inside if wheel.log_end is None else inside & (ends <= wheel.log_end)


def _newest(offsets: Ints, positions: Ints) -> tuple[Ints, Flags]:
    """Return the row of the last offset that equals each position, and whether there is one."""
    if not len(offsets):
        return np.zeros(len(positions), np.int64), np.zeros(len(positions), np.bool_)
    order = np.argsort(offsets, kind="stable")
    at = np.searchsorted(offsets[order], positions, side="right") - 1
    rows = order[np.maximum(at, 0)]
    return rows.astype(np.int64), (at >= 0) & (offsets[rows] == positions)


def _values_at(values: Ints, rows: Ints, found: Flags, empty: int = NOWHERE) -> Ints:
    if not len(values):
        return np.full(len(rows), empty, np.int64)
    return np.where(found, values[rows], empty).astype(np.int64)


BY_KEY, BY_TOPIC = "unique key", "topic+unique key"
_OPTION = "appendTopicForTimerDeleteKey"
_SINCE = "5.4"
_COMPARED = {"5.1": BY_KEY, "5.3": BY_TOPIC}


def compared_by(store: StoreReader) -> str:
    """Return what a broker of the store's generation compares a cancel message with: BY_KEY or BY_TOPIC."""
    version = store.generation.version
    if version >= _SINCE:
        return BY_TOPIC if store.config.get_bool(_OPTION) else BY_KEY
    return _COMPARED.get(version, BY_KEY)


_LAST_MS = 1 << 53
"""A slot for a later time is noise."""


@dataclass
class WheelPosition:
    """Where a broker continues: times in ms, offsets in the timer topic's queue and in the log.

    last_read_ms: of timercheck. read_ms: from where slots are read; later than last_read_ms if the store stood still
    for longer than the wheel goes round. elected_offset: as in `TimerState`. queue_end: behind the last unit of that
    queue, None if not known. timer_log_end, log_end: what a broker keeps of timer log and commit log, None if not
    known. in_rocksdb: messages wait in a RocksDB, too. time_ms, last_pos: slots in use from read_ms on.
    """

    ticks: Ticks
    last_read_ms: int = 0
    read_ms: int = 0
    queue_offset: int = 0
    elected_offset: int = LARGEST_OFFSET
    queue_end: int | None = None
    timer_log_end: int | None = None
    log_end: int | None = None
    in_rocksdb: bool = False
    time_ms: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    last_pos: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, numbers: Ints, slots: Structs) -> None:
        """Add the slots that are read from read_ms on, in this round of the wheel or a later one."""
        times = slots["time"].astype(np.int64)
        used = is_in_place(numbers, times) & (times >= self.ticks.of(self.read_ms))
        used &= times <= _LAST_MS // self.ticks.precision_ms
        self.time_ms = np.concatenate([self.time_ms, times[used] * self.ticks.precision_ms])
        last = slots["last_pos"][used].astype(np.int64)
        self.last_pos = np.concatenate([self.last_pos, last])


class Chained(NamedTuple):
    """The entries of the timer log, and when the wheel leads to each.

    entries: whatever stands where an entry may be: a broker that follows a chain checks neither size nor magic.
    fires_ms: int64[n], time of the slot whose chain has the entry, NOWHERE for none. stuck_ms: time of the first slot
    that a broker cannot get past, or None. cut: number of slots whose chain ends at something else than an entry.
    """

    entries: TimerEntries
    fires_ms: Ints
    stuck_ms: int | None
    cut: int


def wheel_of(store: StoreReader, now_ms: int, note: Note, started: Outcome | None = None) -> WheelPosition:
    """Return the wheel of a broker that starts at `now_ms`. started: that start, if it is known. Raises Unreadable."""
    if started is not None:
        return _after_start(started, store, now_ms)
    from ..broker.profiles import profile_of
    from ..broker.snapshot import Snapshot
    from ..start.log import switches_of
    from ..start.simulate import simulate

    try:
        snapshot = Snapshot.of(store.layout)
        profile = profile_of(store.version)
        outcome = simulate(snapshot, profile, switches_of(snapshot), now_ms)
    except (Unsupported, UnreadableRange) as error:
        why = error.message
    else:
        if outcome.refusal is None:
            return _after_start(outcome, store, now_ms)
        why = f"a broker does not start on this store ({outcome.refusal.reason})"
    note(f"timers: {why}: the timer files are shown as they are now")
    return wheel_on_disk(store, now_ms)


def _after_start(outcome: Outcome, store: StoreReader, now_ms: int) -> WheelPosition:
    """Return the wheel after a start; an empty one if no broker used a wheel before."""
    from ..timer.start import QUEUE

    ticks, queue, state = (Ticks.of_store(store.layout), outcome.read_queues.get(QUEUE), outcome.timer)
    wheel = WheelPosition(ticks, read_ms=ticks.oldest_ms(now_ms), log_end=outcome.log_end)
    if state is not None:
        wheel.last_read_ms = state.check.last_read_time_ms
        wheel.read_ms = max(state.read_time_ms, wheel.read_ms)
        wheel.queue_offset, wheel.elected_offset = state.queue_offset, state.elected_offset
        wheel.timer_log_end = state.log_end
        wheel.add(np.arange(len(state.wheel), dtype=np.int64), state.wheel)
    wheel.queue_end = queue.max_offset if queue else 0
    if queue is not None:  # a broker skips to the begin of the queue
        wheel.queue_offset = max(wheel.queue_offset, queue.min_offset)
    return wheel


def wheel_on_disk(store: StoreReader, now_ms: int) -> WheelPosition:
    """Return the wheel as its files lie, for a broker that reads from `now_ms` on. Raises Unreadable."""
    layout = store.layout
    ticks = Ticks.of_store(store.layout)
    check = read_timer_check(layout.config / TIMER_CHECK) or TimerCheck()
    read_ms = max(check.last_read_time_ms, ticks.oldest_ms(now_ms))
    queue_offset = min(check.last_timer_queue_offset, check.master_timer_queue_offset)
    wheel = WheelPosition(ticks, check.last_read_time_ms, read_ms, queue_offset)
    if not layout.timer_wheel.exists():
        return wheel
    if layout.timer_wheel.stat().st_size != FILE_BYTES:
        return wheel  # a broker does not take a file of another size
    for number, slots in timer_wheel(layout.timer_wheel):
        wheel.add(number, slots)
    return wheel


def entries_of(store: StoreReader, wheel: WheelPosition) -> Chained:
    """Return all entries of the timer log, those in chains with their times. Raises Unreadable.

    Memory: some 100 bytes for each entry.
    """
    parts: list[TimerEntries] = []
    with open_timer_log(store.layout) as files:
        for file in files.files:
            parts += _windows(files, file, wheel.timer_log_end)
    return _chained(TimerEntries.concat(parts), wheel)


def _windows(files: MappedFileQueue, file: MappedFile, end: int | None) -> Iterator[TimerEntries]:
    """Yield the entries of a file up to `end`; if the end of the timer log is not known, all that have a size."""
    stop = file.size if end is None else min(file.size, end - file.start)
    window = WINDOW_UNITS * UNIT_BYTES
    for begin, data in files.windows(file, 0, stop, window, UNIT_BYTES):
        units = np.frombuffer(data, dtype_of(UNIT), len(data) // UNIT_BYTES)
        position = file.start + begin + np.arange(len(units), dtype=np.int64) * UNIT_BYTES
        written = np.full(len(units), end is not None) | (units["size"] != 0)
        yield TimerEntries.of(position[written], units[written])


def _chained(entries: TimerEntries, wheel: WheelPosition) -> Chained:
    """Find the slot whose chain has each entry."""
    head = entries.rows(wheel.last_pos)
    # slots at or behind the end: the next entry that a broker writes there names itself as the one before
    behind = wheel.last_pos >= (entries.end if wheel.timer_log_end is None else wheel.timer_log_end)
    good = head >= 0
    times = wheel.time_ms[good]
    owner, end = follow(entries.before, head[good])
    cut = int((end == CUT).sum() + (~good & ~behind & (wheel.last_pos != NOWHERE)).sum())
    first = np.concatenate([times[end >= 0], wheel.time_ms[behind]])
    stuck_ms = int(first.min()) if len(first) else None
    return Chained(entries, np.append(times, NOWHERE)[owner], stuck_ms, cut)
