"""Known bugs of brokers: the table, which bug hides messages that stay in the log, losses of timed messages, and what
waits where a start does not read it.

Findings, cases and predictions name bugs by their numbers (spec 07, 7.12). A message is hidden if its unit is missing,
wrong, or below the queue's min offset. Why the start leaves it so follows from the exit, the generation, and the files
of its queue.

A start can leave waiting timed messages unfired, fire them twice, or get stuck (spec 07, B31 … B36). After load a
broker follows the wheel: each slot leads to the newest entry of its tick, each entry to the one before. An entry that
no slot leads to fires only if its message is read from the timer topic's queue again; an entry that a slot leads to and
whose message is read again fires twice.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pkgutil import get_data
from typing import Any, NamedTuple

import numpy as np

from ...formats.consume_queue import PRE_FILL
from ...formats.derive import dtype_of
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import java_integer
from ...formats.message_properties import TIMER_DEL_UNIQKEY, TIMER_OUT_MS, parse
from ...formats.pop import REVIVE_TOPIC
from ...formats.timer_log import UNIT, UNIT_BYTES
from ..audit.messages import BEHIND_HOLE, HIDDEN, MISPLACED, NO_UNIT, UNSERVED, Share, Tally
from ..broker.profiles import MinOffset, Profile, ReputStart, TimerRules
from ..broker.snapshot import QueueId
from ..counted import counted
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..disk.layout import KV_STORE
from ..errors import StoreError
from ..inspect.own_topics import is_next, not_read
from ..inspect.pop import PopState, pop
from ..inspect.timer_records import DeliveredTimers
from ..inspect.timers import WAITING, TimerMessageState, delivered_again, in_database, timers
from ..inspect.transactions import never_asked
from ..queues.references import commit_log_of
from ..queues.rocksdb_copy import has_rows
from ..queues.start_rocksdb import Commit, StartedQueue, queue_offsets, queue_windows
from ..queues.units import FileUnits, is_pre_fill, is_valid
from ..search.store import StoreReader, silent
from ..start.log import LAST_LOOKED_AT
from ..start.outcome import Outcome
from ..timer.read import NOWHERE, TimerEntries, follow, is_entry, is_in_place
from ..timer.start import QUEUE, TimerState, recover_timer


class BrokerBug(NamedTuple):
    """One bug. words: a short text for reasons, "" if no reason names it. codes: findings that it causes."""

    code: str
    versions: str
    trigger: str
    effect: str
    mends: str
    codes: tuple[str, ...]
    words: str = ""


@cache
def bugs() -> dict[str, BrokerBug]:
    data = get_data(__package__, "bugs.toml")
    assert data is not None
    rows = tomllib.loads(data.decode("utf-8"))
    return {code: BrokerBug(code=code, **{**row, "codes": tuple(row["codes"])}) for code, row in rows.items()}


_PRE_FILL_END = PRE_FILL["physical_offset"] + PRE_FILL["size"]


WITHOUT_COMPACTION_LOG = "of a compaction topic, which has no compaction log if queues are in a RocksDB"
"""Why a message is not read although its queue has it."""
MADE_AGAIN = "B46"
BETWEEN_BATCHES = "of a topic with BatchCQ and queues in a RocksDB, where pulls at an inner batch fail"
"""Why a message is not read: no unit follows its batch's unit (spec 2.10)."""


def with_bugs(outcome: Outcome, invisible: Tally) -> Tally:
    """Return the shares, with the bug that caused each behind its reason. Raises Unreadable."""
    if not invisible.shares or outcome.refusal is not None:
        return invisible
    named = Tally()
    judge, unserved = _BugFinder(outcome, invisible), outcome.unserved
    for share in invisible:
        reason = share.reason
        if share.queue.topic in unserved:
            reason = WITHOUT_COMPACTION_LOG
        elif reason in (NO_UNIT, BEHIND_HOLE) and share.queue.topic in outcome.stores.batches:
            reason = BETWEEN_BATCHES
        elif bug := judge.bug_of(share):
            reason = f"{reason} ({bug}: {bugs()[bug].words})"
        named.take(replace(share, reason=reason))
    return named


class _BugFinder:
    """Finds the bugs of shares; looks up common facts once."""

    def __init__(self, outcome: Outcome, invisible: Tally) -> None:
        self._outcome = outcome
        self._crashed = outcome.snapshot.abort
        self._log = commit_log_of(outcome.snapshot.layout)
        self._start_time = self._time_at(outcome.scan_start)
        self._at_end = self._message_at(outcome.queues_end)
        #: Store time of the first hidden message of each queue: later ones are shifted by it.
        self._first: dict[QueueId, int] = {}
        for share in invisible:
            first = share.first_store_timestamp
            self._first[share.queue] = min(first, self._first.get(share.queue, first))

    def bug_of(self, share: Share) -> str:
        """Return the number of a bug, "" if the files are damaged and no broker's rule is at fault."""
        if share.reason == UNSERVED:
            return ""
        if self._outcome.commit is Commit.BACKWARDS and share.reason == MISPLACED:
            return MADE_AGAIN
        if self._outcome.stores.reads(share.queue):
            return "B41" if not self._outcome.stores.files else "B43"
        if share.reason == HIDDEN:
            linear = self._outcome.profile.queues.min_offset is MinOffset.LINEAR
            return "" if linear else "B23"
        last = self._units(share.queue).last(is_valid)
        reput = self._outcome.profile.dispatch.reput
        if self._outcome.queues_end >= _PRE_FILL_END and reput is ReputStart.QUEUES_END:
            return "B3"
        if last is not None and is_pre_fill(last[1])[0]:  # the queue ends with a pre-fill unit
            return "B22"
        looked_back = self._outcome.start and self._outcome.start.reason == LAST_LOOKED_AT
        older = self._first[share.queue] < self._start_time
        if older and (self._crashed or looked_back):
            return "B25" if looked_back else "B19"
        return "" if self._crashed else self._after_a_clean_exit(share)

    def _after_a_clean_exit(self, share: Share) -> str:
        if any(e.size for e in self._outcome.snapshot.batch_queues.get(share.queue, ())):
            return ""
        if not self._units(share.queue).files.files:
            return "B2"
        queue, offset = self._at_end
        dispatch = self._outcome.profile.dispatch
        if dispatch.when_clean and queue == share.queue and share.first_offset >= offset:
            return "B1"
        last = self._units(share.queue).last()
        if last is not None and last[0] >= share.last_offset:  # a unit at or behind the last of these messages
            return ""
        never_dispatches = not dispatch.when_clean and dispatch.reput is not ReputStart.QUEUES_END
        return "B1" if never_dispatches else "B2"

    def _units(self, queue: QueueId) -> FileUnits:
        entries = self._outcome.snapshot.queues.get(queue, ())
        there = [e for e in entries if not e.directory and e.name.isascii() and e.name.isdigit() and e.size]
        files = [MappedFile(entry.path, int(entry.name), entry.size) for entry in there]
        return FileUnits(MappedFileQueue((), files, 0, []))

    def _time_at(self, position: int) -> int:
        """Return the store time of the record at a position, 0 without one."""
        found = self._log.records(np.array([position], np.int64))
        return int(found.columns.ints("store_timestamp")[0]) if len(found) else 0

    def _message_at(self, position: int) -> tuple[QueueId | None, int]:
        found = self._log.records(np.array([position], np.int64)) if position >= 0 else None
        if found is None or not len(found):
            return None, -1
        columns = found.columns
        topic = columns.ragged("topic")[0].decode("utf-8", "surrogateescape")
        queue = QueueId(topic, int(columns.ints("queue_id")[0]))
        return queue, int(columns.ints("queue_offset")[0])


_UNIT = dtype_of(UNIT)
_TOO_LATE = "the broker was down for longer than the wheel reaches back"
_NO_TIMER = "this version has no timer"
_AHEAD_MAX_MS = 60_000
"""So much, at most, two clocks differ by chance."""
_READ_AGAIN_MAX = 10_000
"""Most messages of the timer topic, read after the start, whose time is looked at."""


@dataclass(frozen=True)
class TimerLoss:
    """Timed messages after a start. pending: with a good entry in the timer log, not due when the broker last read, and
    not delivered. fired_twice: also delivered ones that come again. loops: ticks whose chain leads to itself when it is
    continued. stuck_at: queue offset in the timer topic behind which nothing is read, None if nothing blocks it.
    too_late: never fired only because the start comes so late that it reads the wheel from a later tick on. by_chance:
    of these, messages read from the queue, which may fire in time after all (spec 04, 4.9). read_timestamp: time to
    come from which on ticks are read, None if it is not to come: messages sent after the start and due before it are
    not delivered (M 5.5.1). in_use: the timer's topic has or had messages.
    """

    pending: int = 0
    never_fired: int = 0
    fired_twice: int = 0
    loops: int = 0
    stuck_at: int | None = None
    too_late: int = 0
    by_chance: int = 0
    read_timestamp: int | None = None
    bugs: list[str] = field(default_factory=list)
    #: Cancelled messages that fire, of a broker with its timers in a RocksDB; None: it has files.
    uncancelled: int | None = None
    #: Why messages are never fired, where no bug is the cause.
    why_never: str = ""
    in_use: bool = True

    @property
    def in_files(self) -> bool:
        """The fault is in the timer's files: a repair corrects it."""
        return self.uncancelled is None and self.why_never != _NO_TIMER

    @property
    def harmless(self) -> bool:
        """Every timed message fires once."""
        return not (self.unfired or self.fired_twice) and self.read_timestamp is None

    @property
    def unfired(self) -> int:
        """Rises with the number of timed messages that no consumer would see; 0: each fires at least once."""
        late = self.in_use and self.read_timestamp is not None
        return self.never_fired + self.loops + (self.stuck_at is not None) + late

    @property
    def unfired_text(self) -> str:
        """What a broker would do with messages that no consumer would see; "" if each fires."""
        why = f" ({', '.join(self.bugs)})" if self.bugs else ""
        if self.never_fired:
            messages = counted(self.pending, "timed message", form=",")
            reason = f": {self.why_never}" if self.why_never else ""
            most = "up to " if self.by_chance else ""
            return f"leave {most}{self.never_fired:,} of {messages} unfired{why}{reason}"
        if self.stuck_at is not None:
            return f"fire no timed message behind offset {self.stuck_at:,} of the timer queue{why}"
        if self.loops:
            ticks = counted(self.loops, "tick", form=",")
            return f"lead the timer into a loop at {ticks}{why}, and then fire no timed message"
        if self.read_timestamp is not None:
            return f"fire no timed message before {self.fires_from}{'' if self.in_use else '; none waits now'}"
        return ""

    @property
    def fires_from(self) -> str:
        """The time to come from which on ticks are read, in UTC."""
        return f"{np.datetime64(self.read_timestamp or 0, 'ms')}+00:00, the time read in timercheck"

    @property
    def if_elected(self) -> str:
        """The condition on which messages are delivered twice, "" if there is none."""
        return ", if it is elected" if "B45" in self.bugs else ""

    @property
    def twice_text(self) -> str:
        """Messages that a broker would deliver twice, or although they were cancelled; "" for none."""
        why = f" ({', '.join(self.bugs)})" if self.bugs else ""
        count = ("up to " if self.if_elected else "") + counted(self.fired_twice, "timed message", form=",")
        cancelled = f", and {self.uncancelled:,} that were cancelled" if self.uncancelled else ""
        return f"{count}{why} twice{cancelled}{self.if_elected}" if self.fired_twice else ""

    def to_json(self) -> dict[str, Any]:
        """Return the object `prediction.timers`."""
        left_out = {"why_never", "in_use"} | ({"uncancelled"} if self.uncancelled is None else set())
        return {name: value for name, value in vars(self).items() if name not in left_out}


def timer_loss(outcome: Outcome, now_ms: int, delivered: DeliveredTimers) -> TimerLoss | None:
    """Return the loss; None if nobody used the timer and its clock was not set back, the broker does not run it, or its
    RocksDB of timers cannot be read. now_ms: time of the start. Raises Unreadable.

    Messages due before the ticks that the start reads, and read from the queue again, are filed at ticks it has passed,
    except those that it reads when its timer already delivers: some tens of some hundred (M 5.1.4, 5.5.0).
    """
    state, queue = outcome.timer, outcome.read_queues.get(QUEUE)
    if outcome.hangs or outcome.refusal is not None:
        return None
    if queue is None:
        return None if state is None else _without_queue(state, outcome.profile, now_ms, delivered)
    if (kept := in_database(delivered.store, silent, outcome.profile.version)) is not None:
        return None if kept.unread else _database_loss(outcome, queue, now_ms, delivered)
    if state is None:
        return None if outcome.profile.timer else _without_timer(outcome, queue, now_ms, delivered)
    entries = _log_entries(outcome, state)
    read_ms, since_ms = _read_ms(entries, state, now_ms, delivered)
    used = state.wheel[state.used(read_ms)]
    heads = entries.rows(used["last_pos"].astype(np.int64))
    reached = follow(entries.before, heads[heads >= 0])[0] != NOWHERE
    offset = queue_offsets(queue, entries.offset_py)
    own = _waiting(outcome, entries, read_ms, since_ms, delivered)
    again = (offset >= state.queue_offset) & ((entries.tick_ms >= read_ms) | (entries.tick_ms <= now_ms))
    loops = int((used["last_pos"] >= state.log_end).sum())
    late = own & (reached | again)
    if late.any():
        late &= delivered.late(entries, since_ms, now_ms)
    reread = bool((own & reached & again & ~late).any())
    twice = delivered_again(delivered, now_ms, outcome, _unread_at(queue, state.queue_offset))
    done = 0 if since_ms < read_ms else sum(bool(row.delivered) and row.next_timestamp is not None for row in twice)
    forgotten = _without_entry(outcome, state, queue, entries, offset, since_ms, delivered)
    too_late = int(late.sum()) + (unread := _unread_late(state, queue, entries, now_ms, delivered))
    never = int((own & ~reached & ~again).sum()) + forgotten + too_late
    stuck = _stuck_at(outcome, state, queue)
    bugs = ["B31"] if loops else []
    bugs += [bug] if never > too_late and (bug := _why_never(outcome, state, entries)) else []
    bugs += ["B34"] if reread else []
    bugs += ["B35"] if stuck is not None else []
    elected_at = _unread_at(queue, state.elected_offset)
    bugs += ["B45"] if any(row.positions[-1] >= elected_at for row in twice) else []
    pending = int(own.sum()) - done + forgotten + unread
    why_never = _TOO_LATE if too_late else ""
    ahead = _ahead(read_ms, now_ms)
    return TimerLoss(pending, never, len(twice), loops, stuck, too_late, unread, ahead, bugs, why_never=why_never)


def _ahead(read_ms: int, now_ms: int) -> int | None:
    """Return the time from which on ticks are read, None if it is not to come."""
    return read_ms if read_ms > now_ms + _AHEAD_MAX_MS else None


def _without_queue(state: TimerState, profile: Profile, now_ms: int, delivered: DeliveredTimers) -> TimerLoss | None:
    """Return the loss where the timer's topic has no messages: of those that are sent later, None if they fire."""
    ahead = _ahead(state.read_time_ms, now_ms)
    if ahead is None or in_database(delivered.store, silent, profile.version) is not None:
        return None
    return TimerLoss(read_timestamp=ahead, in_use=state.check.last_timer_queue_offset > 0)


def _unread_late(
    state: TimerState, queue: StartedQueue, entries: TimerEntries, now_ms: int, delivered: DeliveredTimers
) -> int:
    """Count waiting messages without an entry that are due before the ticks that a start at `now_ms` reads."""
    oldest_ms = state.ticks.oldest_ms(now_ms)
    if queue.max_offset <= state.queue_offset or oldest_ms < state.check.last_read_time_ms:
        return 0
    records = delivered.waiting
    if records is None:
        return 0
    unread = (records.queue_offset >= state.queue_offset) & (records.queue_offset < queue.max_offset)
    unread &= (records.out_ms < oldest_ms) & ~np.isin(records.position, entries.offset_py)
    return int(unread.sum())


def _database_loss(outcome: Outcome, queue: StartedQueue, now_ms: int, delivered: DeliveredTimers) -> TimerLoss:
    """Return the loss of a broker with timers in a RocksDB; what is cancelled is not missed. Raises Unreadable."""
    found = timers(delivered.store, now_ms, silent, delivered.scanned, outcome)
    cancelled = {cancel.cancels.rpartition("+")[2] for cancel in found.cancels}
    known = [row for row in found.rows if row.deliver_timestamp is not None and row.positions]
    waiting = [row for row in known if row.state in WAITING]
    never = sum(
        row.state is TimerMessageState.NEVER and row.positions[-1] < outcome.log_end and row.unique_key not in cancelled
        for row in known
    )
    pending = len(waiting) + never
    loss = TimerLoss(
        pending, never, uncancelled=0, why_never="rocksdbstore has no row for them, or is read from a later time"
    )
    if found.queue_offset >= queue.max_offset - 1:
        return loss  # after every shutdown the last message that was read is read again
    uncancelled = sum(row.unique_key in cancelled for row in waiting)
    return replace(loss, fired_twice=sum(row.again for row in known), uncancelled=uncancelled)


def _read_ms(entries: TimerEntries, state: TimerState, now_ms: int, delivered: DeliveredTimers) -> tuple[int, int]:
    """Return the time from which on a broker reads slots, if it starts when the timer log was written or later (spec
    04, 4.9), and the time from which on messages wait: the same, or what the log shows if the timer has not reached
    that time yet.
    """
    read_ms = max(state.read_time_ms, state.ticks.oldest_ms(entries.alive_ms(now_ms)))
    if read_ms <= 0:
        read_ms = _oldest_ms(entries, state)
    if read_ms <= now_ms + state.ticks.precision_ms:
        return read_ms, read_ms
    return read_ms, min(read_ms, delivered.up_to(entries, now_ms))


def _waiting(outcome: Outcome, entries: TimerEntries, read_ms: int, since_ms: int, delivered: DeliveredTimers) -> Flags:
    """bool[n]: the newest entry of a message that is due at `since_ms` or later; older ones have been rolled. The times
    are as of `_read_ms`.
    """
    found: Flags = ~entries.deletes & (entries.offset_py < outcome.log_end) & (entries.tick_ms >= since_ms)
    if since_ms < read_ms and (records := delivered.waiting) is not None:  # a clock that was ahead has delivered some
        found &= (entries.tick_ms > delivered.newest_ms(read_ms)) | np.isin(entries.offset_py, records.position)
    return found & _is_newest(entries)


def _without_timer(outcome: Outcome, queue: StartedQueue, now_ms: int, delivered: DeliveredTimers) -> TimerLoss:
    """Count waiting messages as a broker with a timer would find them; if it refuses the files, by the queue alone."""
    snapshot = outcome.snapshot
    profile = outcome.profile._replace(timer=TimerRules(clamps=True, any_size=True))
    state = recover_timer(snapshot, profile, (outcome.log_start, outcome.log_end), queue, 0)
    if not isinstance(state, TimerState):
        state = TimerState.without_files(snapshot.layout)
    entries = _log_entries(outcome, state)
    read_ms, since_ms = _read_ms(entries, state, now_ms, delivered)
    count = int(_waiting(outcome, entries, read_ms, since_ms, delivered).sum())
    offset = queue_offsets(queue, entries.offset_py)
    state.queue_offset = queue.max_offset
    count += _without_entry(outcome, state, queue, entries, offset, since_ms, delivered)
    return TimerLoss(count, count, why_never=_NO_TIMER)


def _oldest_ms(entries: TimerEntries, state: TimerState) -> int:
    """Return the oldest time in log or wheel, 0 without one: without a timercheck nothing shows what was read."""
    if len(entries):
        return int(entries.tick_ms.min())
    time = state.wheel["time"]
    number = np.flatnonzero(time > 0)
    inside = time[number][is_in_place(number, time[number])]
    return int(inside.min()) * state.ticks.precision_ms if len(inside) else 0


def _why_never(outcome: Outcome, state: TimerState, entries: TimerEntries) -> str:
    """Return the bug that leaves messages unfired, "" if the timer log itself is damaged."""
    wheel = outcome.snapshot.layout.timer_wheel
    if not wheel.exists() or not wheel.stat().st_size:
        return "B33"
    if not state.files:
        return ""
    if state.log_end % state.file_bytes == 0:
        return "B32"
    return "B36" if state.log_end - UNIT_BYTES not in entries.position[-1:] else ""


def _without_entry(
    outcome: Outcome,
    state: TimerState,
    queue: StartedQueue,
    entries: TimerEntries,
    offset: Ints,
    since_ms: int,
    delivered: DeliveredTimers,
) -> int:
    """Count waiting messages without an entry that are not read again, of the newest before the broker goes on."""
    known = offset[(offset >= 0) & ~entries.deletes]  # with timers in a RocksDB there are no others
    first = max(queue.min_offset, state.queue_offset - _READ_AGAIN_MAX)
    first = max(first, int(known.min())) if len(known) else first
    log, found = commit_log_of(outcome.snapshot.layout), list[int]()
    for begin, units in queue_windows(queue, first):
        rows = np.flatnonzero(is_valid(units))
        rows = rows[begin + rows < state.queue_offset]
        places = units["physical_offset"][rows].astype(np.int64)
        places = places[~np.isin(places, entries.offset_py) & (places < outcome.log_end)]
        records = log.records(places)
        texts = records.columns.ragged("properties").tolist()
        for position, text in zip(records.position.tolist(), texts, strict=True):
            properties = parse(text)
            due_ms = java_integer(properties.get(TIMER_OUT_MS, ""), 64)
            if due_ms is not None and due_ms >= since_ms and TIMER_DEL_UNIQKEY not in properties:
                found.append(position)
    if not found or (waiting := delivered.waiting) is None:
        return 0
    return int(np.isin(np.array(found, np.int64), waiting.position).sum())


def _log_entries(outcome: Outcome, state: TimerState) -> TimerEntries:
    """Return the entries of the timer log, up to where a broker reads."""
    parts = []
    for file in state.files:
        if file.entry is None or file.start >= state.log_end:
            continue
        end = min(file.wrote, state.log_end - file.start)
        data = outcome.snapshot.bytes_of(file.entry)[: end // UNIT_BYTES * UNIT_BYTES]
        units = data.view(_UNIT)
        rows = np.flatnonzero(is_entry(units) & (units["size_py"] > 0))
        parts.append(TimerEntries.of(rows * UNIT_BYTES + file.start, units[rows]))
    return TimerEntries.concat(parts)


def _is_newest(entries: TimerEntries) -> Flags:
    """bool[n]: no later entry is for the same message."""
    newest = np.zeros(len(entries), np.bool_)
    _, first = np.unique(entries.offset_py[::-1], return_index=True)
    newest[len(entries) - 1 - first] = True
    return newest


def _unread_at(queue: StartedQueue, offset: int) -> int:
    """Return the position of the message at a queue offset, a place behind all others for the end of the queue."""
    for _, units in queue_windows(queue, max(offset, queue.min_offset)):
        if len(places := units["physical_offset"][is_valid(units)]):
            return int(places[0])
    return np.iinfo(np.int64).max


def _stuck_at(outcome: Outcome, state: TimerState, queue: StartedQueue) -> int | None:
    """Return the first message to be read whose time is not a number."""
    log = commit_log_of(outcome.snapshot.layout)
    end = min(queue.max_offset, state.queue_offset + _READ_AGAIN_MAX)
    for first, units in queue_windows(queue, max(queue.min_offset, state.queue_offset)):
        rows = np.flatnonzero(is_valid(units))[: max(0, end - first)]
        records = log.records(units["physical_offset"][rows].astype(np.int64))
        texts = records.columns.ragged("properties").tolist()
        wrong = {
            position
            for position, text in zip(records.position.tolist(), texts, strict=True)
            if java_integer(parse(text).get(TIMER_OUT_MS, ""), 64) is None
        }
        for row in rows.tolist():
            if int(units["physical_offset"][row]) in wrong:
                return int(first + row)
        if first + len(units) >= end:
            break
    return None


class NeverRead(NamedTuple):
    """What waits where a start does not read it: messages that POP consumers of groups have, else open transactions.

    reason: why it does not. waiting: how many; 0 if that cannot be read; the reason says so.
    """

    reason: str
    waiting: int
    groups: Sequence[str] = ()


def never_read(store: StoreReader, now_ms: int) -> Iterator[NeverRead]:
    """Yield what waits where a broker of this version, or with these options, does not read it."""
    if not is_next(store):
        return
    places = [KV_STORE] if has_rows(store.layout.root / KV_STORE) else []
    try:
        if not_read(store, REVIVE_TOPIC):
            places += [topic for topic in store.named_topics if topic.startswith(REVIVE_TOPIC)]
        why = {not_read(store, place) for place in places} - {""}
        rows = pop(store, now_ms, silent).rows if why else []
        for reason in sorted(why):
            held = [row.group for row in rows if row.state is PopState.NEVER and row.reason == reason and not row.again]
            if held:
                yield NeverRead(reason, len(held), sorted({*held}))
        count, reason = never_asked(store)
        if count:
            yield NeverRead(reason, count)
    except StoreError as error:
        yield NeverRead(f"it is not known what waits where a start does not read it: {error}", 0)
