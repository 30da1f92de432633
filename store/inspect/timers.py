"""Timer messages: when each is due, and whether a broker will deliver it (spec 04, 4.4 to 4.9).

A message is judged by what a broker would do that starts at the time asked for: the message is in the log in its real
topic already, or the wheel or the timer topic's queue leads to it, or nothing does.

With timerRocksDBEnable (5.4+; spec 04, 4.10) timers are kept in the RocksDB `rocksdbstore/`: a row for each message,
under the time when it fires. The broker notes up to which time it has delivered, and from where it reads the timer
topic's queue. Wheel and timer log stay in use: they have the cancel messages. A message that the broker reads from
the queue after its time goes to its topic at once, even if it has a row or was cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...formats.derive.ragged import Ints
from ...formats.timer_check import FILE as TIMER_CHECK
from ..broker.snapshot import list_entries
from ..broker.system_topics import TIMER_TOPIC
from ..counted import counted
from ..disk.checkpoint import TimerCheck, read_timer_check
from ..errors import StoreError
from ..log.commit_log import RecordPlaces, batches
from ..queues.units import is_valid
from ..search.queue_search import note_loss_in
from ..search.store import Note, StoreReader, silent
from ..settings.rocksdb import TimersKept, timers_kept
from ..timer.read import NO_NUMBER, NOWHERE, TimerEntries
from .timer_records import (
    BY_KEY,
    BY_TOPIC,
    Chained,
    DeliveredTimers,
    Scanned,
    TimerFacts,
    TimerRecords,
    WheelPosition,
    compared_by,
    entries_of,
    facts_of,
    timer_records,
    wheel_of,
    wheel_on_disk,
)

if TYPE_CHECKING:
    from ..start.outcome import Outcome

HOUR_MS = 3_600_000
_STUCK = (
    "a wheel slot leads into a loop or beyond the end of the timer log: a broker that reaches this"
    " slot may stop all delivery of timer messages"
)
_AT_ONCE = "already due when it was stored: put into its topic at once"
_NOT_ASKED = "put into its topic at once although it was not due"
_POISON = "a broker stops reading the timer queue at"
_WRONG_SIZE = "its timer log entry has a wrong size"
_NO_ROW = "the RocksDB has no row for this message, and no broker reads it from the queue again"
_PASSED = "a broker reads the RocksDB from a later time on than this message's row"
_TOO_LATE = "due too long ago: a broker starts reading the wheel at a later tick"
_BY_CHANCE = f"{_TOO_LATE}; whether it still delivers this message is a matter of chance"
_UNREAD = "not in the wheel, and no broker puts it there"
NO_CHAIN = "no chain of the wheel leads to its timer log entry"


class Engine(StrEnum):
    """Where a broker keeps its timers."""

    WHEEL = "wheel"
    ROCKSDB = "rocksdb"


class TimerMessageState(StrEnum):
    """What becomes of a timer message."""

    PENDING = "pending"
    ROLLED = "rolled"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"
    NEVER = "never"
    UNKNOWN = "unknown"


WAITING = (TimerMessageState.PENDING, TimerMessageState.ROLLED)


@dataclass
class Timer:
    """One timer message; positions in the log, times in ms since 1970.

    topic, queue_id: the real ones, queue_id -1 if unknown. deliver_timestamp: when a broker delivers it.
    next_timestamp: when the wheel has it next, None if it is in no chain; before deliver_timestamp if the message is
    rolled then. rolls: how often it was rolled. positions: its records in the timer topic. delivered: its records in
    its real topic. again: a broker delivers it once more than it should. reason: of the state, if that needs one.
    """

    unique_key: str
    topic: str
    queue_id: int
    store_timestamp: int
    deliver_timestamp: int | None
    state: TimerMessageState
    reason: str = ""
    overdue: bool = False
    rolls: int = 0
    next_timestamp: int | None = None
    positions: list[int] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    again: bool = False

    @property
    def bug(self) -> str:
        """Number of the broker bug that keeps the message back (spec 7.12), "" for none."""
        if self.reason.startswith(_POISON):
            return "B35"
        return {_STUCK: "B31", _WRONG_SIZE: "B36"}.get(self.reason, "")


@dataclass
class Cancel:
    """A message that cancels another one; positions in the log, times in ms since 1970.

    cancels: what it names, as stored. effective: it has cancelled its target, or will. reason: why not.
    """

    cancels: str
    topic: str
    position: int
    store_timestamp: int
    deliver_timestamp: int | None
    effective: bool = False
    reason: str = "no message has that key"


class _CancelMessage(NamedTuple):
    """A cancel message. slot: its tick. in_its_tick: the wheel has it in its tick, had it, or will have it."""

    cancel: Cancel
    slot: int
    in_its_tick: bool


class Cancels:
    """The cancel messages of a store, by what they name. A cancel message works only in the very tick of its target,
    and only if it names the target as that generation of brokers does: by unique key, or by topic and key.
    """

    def __init__(self, facts: TimerFacts, store: StoreReader, now_ms: int) -> None:
        self.all: list[Cancel] = []
        self._compared = compared_by(store)
        self._version = store.generation.version
        self._named: dict[str, list[_CancelMessage]] = {}
        for rows in facts.messages(facts.records.cancels.length > 0):
            named = _cancel_message(facts, rows, now_ms)
            self.all.append(named.cancel)
            self._named.setdefault(named.cancel.cancels, []).append(named)

    def of(self, topic: str, unique_key: str, slot: int, delivered: bool) -> tuple[bool, str]:
        """Return whether a message is cancelled, and if not, why a cancel message that names it fails."""
        if not self._named or not unique_key:
            return False, ""
        cancelled, why = False, ""
        forms = {BY_KEY: unique_key, BY_TOPIC: f"{topic}+{unique_key}"}
        for form, text in forms.items():
            for named in self._named.get(text, ()):
                reason = self._why_not(named, form, slot, delivered)
                named.cancel.effective |= not reason
                named.cancel.reason = "" if named.cancel.effective else reason
                cancelled |= not reason
                why = why or (f"the cancel message at {named.cancel.position}: {reason}")
        return cancelled, "" if cancelled else why

    def _why_not(self, named: _CancelMessage, form: str, slot: int, delivered: bool) -> str:
        if delivered:
            return "its target was delivered"
        if named.slot != slot:
            return "its target is due at another tick"
        if self._compared != form:
            return f"a {self._version} broker compares the {self._compared}, not the {form}"
        return "" if named.in_its_tick else _UNREAD


def _cancel_message(facts: TimerFacts, rows: Ints, now_ms: int) -> _CancelMessage:
    records, ticks = facts.records, facts.wheel.ticks
    last = int(rows[-1])
    out_ms = int(records.out_ms[last])
    cancel = Cancel(
        facts.text("cancels", last),
        facts.text("topic", last),
        int(records.position[last]),
        int(records.store_timestamp[rows[0]]),
        None if out_ms == NO_NUMBER else out_ms + ticks.precision_ms,
    )
    waits = facts.fires_ms[rows] != NOWHERE
    waits &= facts.cancelling[rows] | facts.rolled[rows]
    to_come = bool(facts.in_queue[last]) and out_ms >= ticks.start_ms(now_ms)
    was_there = out_ms < facts.wheel.last_read_ms and bool(
        np.any(facts.tick_ms[rows] // ticks.precision_ms == facts.slot(last))
    )
    return _CancelMessage(cancel, facts.slot(last), bool(waits.any()) or to_come or was_there)


@dataclass
class Timers:
    """All timer messages that the log still has, by position, and those that only entries know.

    read_timestamp, queue_offset: from where a broker reads the wheel (or the RocksDB) and the timer topic's queue.
    engine: wheel or RocksDB. live: a process uses the store: a broker writes timercheck once a second, and continues
    from memory, so `again` counts messages that come again only if it is killed now. if_elected: some of them come
    again only if the broker becomes the master after its start (B45).
    """

    now_ms: int
    read_timestamp: int = 0
    queue_offset: int = 0
    engine: Engine = Engine.WHEEL
    live: bool = False
    if_elected: bool = False
    rows: list[Timer] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)

    def hours(self) -> dict[int, int]:
        """Return hour → number of waiting messages that are due in it, earliest first."""
        due = np.array([r.deliver_timestamp for r in self.rows if r.state in WAITING], dtype=np.int64)
        hours, counts = np.unique(due // HOUR_MS * HOUR_MS, return_counts=True)
        return dict(zip(hours.tolist(), counts.tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        """For `inspect --timers`."""
        return {
            "type": "timers",
            "now": self.now_ms,
            "engine": self.engine.value,
            "read_timestamp": self.read_timestamp,
            "queue_offset": self.queue_offset,
            "live": self.live,
            "if_elected": self.if_elected,
            **{state.value: sum(row.state is state for row in self.rows) for state in TimerMessageState},
            "overdue": sum(row.overdue for row in self.rows),
            "again": sum(row.again for row in self.rows),
            "hours": [{"hour_timestamp": h, "messages": n} for h, n in self.hours().items()],
            "timers": [vars(row) for row in self.rows],
            "cancels": [vars(row) for row in self.cancels],
        }


def timers(
    store: StoreReader, now_ms: int, note: Note, scanned: Scanned | None = None, started: Outcome | None = None
) -> Timers:
    """Return the timer messages of a store as they stand at `now_ms`. Raises Unreadable.

    scanned: the messages, if they are known already; else the log is scanned. started: see `wheel_of`.
    """
    scanned = timer_records(store.log) if scanned is None else scanned
    records = scanned.requested
    kept = in_database(store, note, started.profile.version if started else "")
    if kept is not None and kept.unread:
        kept = None
    if records is None and not store.layout.timer_wheel.exists() and kept is None:
        return Timers(now_ms, live=store.in_use)
    wheel = wheel_of(store, now_ms, note, started)
    wheel, chained = _led_to(store, wheel, kept, now_ms, note, note)
    found = Timers(now_ms, wheel.read_ms, wheel.queue_offset, live=store.in_use)
    found.engine = Engine.WHEEL if kept is None else Engine.ROCKSDB
    if records is not None:
        facts = facts_of(records, scanned, wheel, chained)
        cancels = Cancels(facts, store, now_ms)
        plain = facts.records.cancels.length <= 0
        found.rows = [_row(facts, cancels, rows, now_ms) for rows in facts.messages(plain)]
        found.if_elected = not wheel.in_rocksdb and bool(facts.if_elected.any())
        found.cancels = cancels.all
    if scanned.at_once is not None:
        found.rows += _at_once(scanned.at_once)
    known = np.empty(0, np.int64) if records is None else records.position
    found.rows += _entries_without_record(store, chained, known)
    if found.rows and not store.config.get_bool("timerWheelEnable", True):
        note("timers: with timerWheelEnable=false a broker delivers none of them")
    return found


def _led_to(
    store: StoreReader, wheel: WheelPosition, kept: TimersKept | None, now_ms: int, note: Note, lacks: Note
) -> tuple[WheelPosition, Chained]:
    """Return where a broker continues, and what leads to messages. lacks: gets why more may wait. Raises Unreadable."""
    chained = entries_of(store, wheel)
    if chained.cut:
        leads = counted(chained.cut, "slot of the wheel leads", "slots of the wheel lead")
        lacks(f"timers: {leads} to a place without an entry")
    if chained.stuck_ms is not None:
        lacks(f"timers: {_STUCK}")
    if kept is None or kept.unread:
        return wheel, chained
    return with_database(wheel, chained, kept, now_ms, note)


class InWheel(NamedTuple):
    """Log positions of timer messages. position: those that wait by wheel or RocksDB, each once; next_ms: when a broker
    reads each next. unread: those of the timer topic that the timer has not read yet.
    """

    position: Ints
    next_ms: Ints
    unread: Ints


def waiting_in_wheel(store: StoreReader, now_ms: int, note: Note, lacks: Note) -> InWheel:
    """Return what waits by the files as they lie; neither a start nor the log is asked. lacks: see `_led_to`. Raises
    Unreadable.
    """
    kept = in_database(store, lacks if store.config.get_bool(OPTION) else note)  # with the option it notes losses
    wheel, chained = _led_to(store, wheel_on_disk(store, now_ms), kept, now_ms, note, lacks)
    entries, next_ms = chained.entries, chained.fires_ms
    check = read_timer_check(store.layout.config / TIMER_CHECK) or TimerCheck()
    apart = (next_ms == NOWHERE) & (entries.tick_ms >= wheel.read_ms)
    filed = apart & (entries.position >= check.last_timer_log_flush_pos)  # a start puts these into the wheel
    next_ms = np.where(filed, entries.tick_ms, next_ms)
    lost = int((apart & ~filed & ~entries.deletes).sum())
    if lost and not store.in_use:  # a broker has filed more since the wheel was read
        lacks(f"timers: no chain of the wheel leads to {counted(lost, 'entry', 'entries')} of the timer log")
    waits = (next_ms != NOWHERE) & ~entries.deletes
    position, rows = np.unique(entries.offset_py[waits], return_index=True)
    again = wheel.in_rocksdb and wheel.queue_offset > 0  # then the message that was read last is read again
    unread = [np.zeros(0, np.int64)]
    for directory in store.queues.of_topic(TIMER_TOPIC):
        with store.queues.open(TIMER_TOPIC, directory.queue_id) as queue:
            ends = store.queue_summary(queue)
            for _, units in queue.units(max(wheel.queue_offset + again, ends.min_offset), ends.max_offset):
                unread.append(units["physical_offset"].astype(np.int64)[is_valid(units)])
    every = np.concatenate(unread)
    return InWheel(position, next_ms[waits][rows], every[~np.isin(every, entries.offset_py)])


def delivered_again(delivered: DeliveredTimers, now_ms: int, started: Outcome, unread_at: int) -> list[Timer]:
    """Return the messages with `Timer.again` after this start, for timers in the wheel; of old log files only what may
    be one of them is read. unread_at: position of the first message read from the queue. Raises Unreadable.
    """
    wheel = wheel_of(delivered.store, now_ms, silent, started)
    chained = entries_of(delivered.store, wheel)
    scanned = delivered.recent(wheel, chained, unread_at)
    if scanned.requested is None:
        return []
    facts = facts_of(scanned.requested, scanned, wheel, chained)
    cancels = Cancels(facts, delivered.store, now_ms)
    often = np.bincount(facts.group, facts.times)[facts.group] + np.isin(facts.group, list(facts.delivered))
    rows = facts.messages((facts.records.cancels.length <= 0) & (often > 1))
    return [row for each in rows if (row := _row(facts, cancels, each, now_ms)).again]


def _row(facts: TimerFacts, cancels: Cancels, rows: Ints, now_ms: int) -> Timer:
    """Return the message of these records. rows: by position."""
    records, last = facts.records, int(rows[-1])
    out_ms = int(records.out_ms[last])
    row = Timer(
        facts.text("unique_key", last),
        facts.text("topic", last),
        int(records.queue_id[last]),
        int(records.store_timestamp[rows[0]]),
        None if out_ms == NO_NUMBER else out_ms + facts.wheel.ticks.precision_ms,
        TimerMessageState.UNKNOWN,
        rolls=max(int(records.rolls[rows].max()), 0),
        positions=records.position[rows].tolist(),
        delivered=facts.delivered.get(int(facts.group[last]), []),
    )
    waits = rows[facts.fires_ms[rows] != NOWHERE]
    if len(waits):
        row.next_timestamp = int(facts.fires_ms[waits[-1]])
    row.state, row.reason = _state(facts, rows)
    at_once = facts.wheel.in_rocksdb and bool(facts.in_queue[rows].any()) and out_ms <= now_ms
    twice = bool(at_once and len(waits)) if facts.wheel.in_rocksdb else facts.times[rows].sum() > 1
    row.again = row.state in WAITING and bool(row.delivered or twice)
    if row.delivered:
        row.state, row.reason = TimerMessageState.DELIVERED, ""
    cancelled, why_not = cancels.of(row.topic, row.unique_key, facts.slot(last), row.delivered != [])
    if cancelled and not at_once:
        row.state, row.reason, row.again = TimerMessageState.CANCELLED, "", False
    elif why_not and row.state in WAITING:
        row.reason = why_not
    due = row.deliver_timestamp
    row.overdue = row.state in WAITING and due is not None and due <= now_ms
    return row


def _state(facts: TimerFacts, rows: Ints) -> tuple[TimerMessageState, str]:
    """Return what becomes of a message that was neither delivered nor cancelled, and why."""
    last = int(rows[-1])
    waits = rows[facts.fires_ms[rows] != NOWHERE]
    if facts.cut_off[last]:
        return TimerMessageState.NEVER, "a broker start cuts the log before this record"
    if len(waits):
        if facts.stuck_ms is not None and facts.fires_ms[waits[-1]] >= facts.stuck_ms:
            return TimerMessageState.UNKNOWN, _STUCK
        if facts.cancelling[waits[-1]]:
            return TimerMessageState.NEVER, "its timer log entry is marked as a cancel message"
        late = facts.fires_ms[waits[-1]] > facts.records.out_ms[waits[-1]]
        if late and not facts.rolled[waits[-1]]:
            return TimerMessageState.PENDING, "its wheel slot is for a later time"
        return (TimerMessageState.ROLLED if facts.rolled[waits[-1]] else TimerMessageState.PENDING), ""
    if facts.in_queue[last]:
        if facts.poison is not None and not facts.wheel.in_rocksdb and facts.records.queue_offset[last] >= facts.poison:
            return TimerMessageState.NEVER, f"{_POISON} {facts.poison}"
        if _is_filed_too_late(facts, last):
            return TimerMessageState.UNKNOWN, _BY_CHANCE
        return TimerMessageState.PENDING, "not in the wheel yet"
    if facts.damage > facts.records.position[last]:
        return TimerMessageState.UNKNOWN, "nothing leads to this message, but the log behind it is damaged"
    return TimerMessageState.NEVER, _why_never(facts, last)


def _is_filed_too_late(facts: TimerFacts, row: int) -> bool:
    """Whether a start reads the record from the queue and files it before the ticks that it reads next. Of such
    messages it delivers those that it reads once its timer delivers: none, some or all (spec 04, 4.9).
    """
    wheel = facts.wheel
    stood_still = not wheel.in_rocksdb and wheel.last_read_ms < wheel.read_ms
    return stood_still and int(facts.records.out_ms[row]) < wheel.read_ms


def _why_never(facts: TimerFacts, last: int) -> str:
    tick_ms, wheel = int(facts.tick_ms[last]), facts.wheel
    if facts.unread[last]:
        return _WRONG_SIZE
    if wheel.in_rocksdb:
        return _NO_ROW if tick_ms == NOWHERE else _PASSED
    if tick_ms == NOWHERE:
        return "no timer log entry names this message, and no broker reads it from the queue again"
    if tick_ms < wheel.last_read_ms:
        return "a broker has read its tick, but not delivered it"
    if tick_ms < wheel.read_ms:
        return _TOO_LATE
    return NO_CHAIN


def _at_once(records: TimerRecords) -> Iterator[Timer]:
    """Yield messages that never waited, as a rule because they were due when they came in."""
    for row in range(len(records)):
        due, stored = int(records.deliver_ms[row]), int(records.store_timestamp[row])
        yield Timer(
            records.unique_key[row].decode("utf-8", "replace"),
            records.topic[row].decode("utf-8", "replace"),
            int(records.queue_id[row]),
            stored,
            None if due == NO_NUMBER else due,
            TimerMessageState.DELIVERED,
            _NOT_ASKED if due > stored else _AT_ONCE,
            delivered=[int(records.position[row])],
        )


def _entries_without_record(store: StoreReader, chained: Chained, known: Ints) -> list[Timer]:
    """Return the waiting entries that name no record of the timer topic."""
    entries = chained.entries
    waits = np.flatnonzero((chained.fires_ms != NOWHERE) & ~np.isin(entries.offset_py, known))
    if store.in_use and len(known):  # a broker has filed later messages since the log was read
        waits = waits[entries.offset_py[waits] <= known.max()]
    offsets = np.unique(entries.offset_py[waits])
    whole = offsets[offsets >= 0]
    there = set()
    for _, batch in batches(store.log, RecordPlaces(whole, np.zeros_like(whole))):
        there.update(batch.position.tolist())
    found = []
    for row in waits.tolist():
        position, fires_ms = int(entries.offset_py[row]), int(chained.fires_ms[row])
        if position in there:
            state, reason = TimerMessageState.UNKNOWN, "its entry names a record that is not in the timer topic"
        else:
            state, reason = TimerMessageState.NEVER, "its entry names a place where no message begins"
        found.append(Timer("", "", -1, 0, None, state, reason, next_timestamp=fires_ms, positions=[position]))
    return found


OPTION, _OPTION_SINCE = "timerRocksDBEnable", "5.4"


def in_database(store: StoreReader, note: Note, version: str = "") -> TimersKept | None:
    """Return the timers in the RocksDB if a broker that starts reads them there, else None.

    The option decides. Without it: RocksDB or wheel, whichever has got farther in the timer topic's queue; if both are
    as far, as after a start that read nothing new, the RocksDB if it has timers. version: of the broker, "" for that of
    the store; one that does not know the option has none, except where it is only the guess.
    """
    from ..broker.profiles import writer_profile

    version = version or store.version
    knows = version == store.generation.version or writer_profile(version).rocksdb_store
    said, on, nothing = store.config.get(OPTION), knows and store.config.get_bool(OPTION), np.zeros(0, np.int64)
    if on:
        note_loss_in(store, store.layout.rocksdb_store, "timers", note)
    try:
        kept = timers_kept(store.layout.rocksdb_store)
    except StoreError as error:
        if not on:
            return None
        note(f"timers: {OPTION} is on, and {error.message}: timers that wait there are not known")
        return TimersKept(nothing, nothing, nothing, unread=True)
    if said is not None or not knows:
        if on:
            if not list_entries(store.layout.rocksdb_store):
                note("timers: rocksdbstore is missing: a start delivers again what was delivered before")
            return kept or TimersKept(nothing, nothing, nothing)
        if kept is not None and (waits := int((kept.due_ms >= (kept.delivered_ms or 0)).sum())):
            waiting = counted(waits, "timer waits", "timers wait")
            broker = f"with {OPTION}=false" if knows else f"before {_OPTION_SINCE}"
            note(f"timers: {waiting} in rocksdbstore, where a broker {broker} does not look")
        return None
    check = read_timer_check(store.layout.config / TIMER_CHECK)
    behind = min(check.last_timer_queue_offset, check.master_timer_queue_offset) if check else 0
    if kept is None or kept.queue_offset < behind or (kept.queue_offset == behind and not len(kept.due_ms)):
        return None
    note(f"timers: rocksdbstore is as far as the wheel or farther: {OPTION}=true is assumed (else --set)")
    return kept


def with_database(
    wheel: WheelPosition, chained: Chained, kept: TimersKept, now_ms: int, note: Note
) -> tuple[WheelPosition, Chained]:
    """Return where a broker continues, and what leads to messages, with the rows of the RocksDB added."""
    entries, count = chained.entries, len(kept.due_ms)
    waits = int(((chained.fires_ms != NOWHERE) & ~entries.deletes).sum())
    if waits:
        left = counted(waits, "entry", "entries")
        note(f"timers: {left} of the wheel, from before the change to RocksDB, still waiting, too")
    nothing = np.zeros(count, np.int64)
    position = entries.end + np.arange(count, dtype=np.int64)
    none_before = np.full(count, NOWHERE, np.int64)
    rows = TimerEntries(position, none_before, kept.due_ms, kept.position, kept.size, *[nothing] * 4)
    read_ms = kept.read_ms(now_ms)
    fires = np.where(kept.due_ms >= read_ms, kept.due_ms, NOWHERE)
    both = TimerEntries.concat([entries, rows])
    ahead = replace(wheel, last_read_ms=read_ms, read_ms=read_ms, queue_offset=kept.queue_offset, in_rocksdb=True)
    return ahead, chained._replace(entries=both, fires_ms=np.concatenate([chained.fires_ms, fires]))
