"""Lag of consumer groups: messages, bytes and age of what a group has not consumed of a queue.

Bytes are those of the records that units point at; a single record is read for the oldest age. A consumer whose offset
is outside of its queue continues where brokers tell it to when it pulls (`DefaultMessageStore.getMessage` of 4.3.1 to
5.5.0; spec 05, 5.3).

Lags become JSON records: one for each group and queue, or sums by group and topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...formats.consumer_offset import steps_to_next
from ...formats.derive.ragged import Structs
from ...formats.quick import UNIT_BYTES
from ..broker.system_topics import LMQ_PREFIX, SCHEDULE_TOPIC, is_system_group
from ..errors import NotFound
from ..log.batch import Batch
from ..log.message import Mark
from ..put.tail import end_with_unit, latest_with_unit
from ..queues.read import QueueSummary
from ..queues.units import record_bytes
from ..search.log_search import SMALL_LOG_BYTES, ends_of_queues
from ..search.queue_search import open_batch_queue
from ..search.store import StoreReader
from .positions import DELAYED, PULLED, KnownGroups, Only, Position, groups_of, inside, positions_of

Queue = tuple[str, int]
"""Topic and queue id."""
Ends = Mapping[Queue, QueueSummary]
_FIRST_TO_END = "4.9"
"""From this generation on an offset after the end is set to the end, wherever the queue begins."""
_LAST_READ = "this is the last record that was read: the next one follows"
_PASSED_OVER = "behind the queue's end: the broker skips all new messages until the queue gets there"


class LagProgress(Protocol):
    """A progress bar."""

    def advance(self, done: int) -> None:
        """Add bytes that are done."""


Bar = Callable[[int], AbstractContextManager[LagProgress]]


class LagState(StrEnum):
    """The state of a group in a queue."""

    CURRENT = "current"
    BEHIND = "behind"
    EXPIRED = "expired"
    AHEAD = "ahead"
    NO_QUEUE = "no_queue"
    NO_POSITION = "no_position"
    UNKNOWN = "unknown"


class Backlog(NamedTuple):
    """Unconsumed messages. size_bytes: of the records. oldest_ms: store time of the first, None if unreadable."""

    size_bytes: int
    oldest_ms: int | None


@dataclass
class Lag:
    """A group in a queue. committed: False if the group has no offset here. queue: None if the store has no such queue.

    ends_known: where the queue ends is known. unread: None if nothing is unread, or not measured. mode: `pop` or
    `pull`, "" if unknown. subscribed: whether the group is configured, None if unknown.
    """

    position: Position
    committed: bool
    queue: QueueSummary | None
    mode: str = ""
    subscribed: bool | None = None
    unread: Backlog | None = None
    ends_known: bool = True

    @property
    def offset(self) -> int | None:
        """The offset in its file, None if it never committed."""
        return self.position.offset if self.committed else None

    @property
    def _next_offset(self) -> int:
        """The next message for the group, 0 if it never committed."""
        return self.position.next_offset if self.committed else 0

    @property
    def state(self) -> LagState:
        """The state, from offset and queue."""
        if not self.committed:
            return LagState.NO_POSITION
        if not self.ends_known and (self.queue is None or self._next_offset > self.queue.max_offset):
            return LagState.UNKNOWN
        if self.queue is None:  # a queue that never had a message does not exist, and begins at 0
            return LagState.NO_QUEUE if self._next_offset else LagState.CURRENT
        offset, queue = self._next_offset, self.queue
        if offset > queue.max_offset:
            return LagState.AHEAD
        if offset < queue.min_offset:
            return LagState.EXPIRED
        return LagState.BEHIND if offset < queue.max_offset else LagState.CURRENT

    @property
    def messages(self) -> int | None:
        """Broker offset minus consumer offset, as brokers and consoles show it: negative if the group is ahead; it
        includes expired messages if the group is before the queue's start.
        """
        if self.state is LagState.UNKNOWN or self.queue is None or (not self.committed and self.position.queue_id < 0):
            return None
        if not self.committed:
            return self.queue.max_offset - self.queue.min_offset
        return self.queue.max_offset - self._next_offset

    @property
    def lacked(self) -> int | None:
        """The lag for sums over queues: 0 if the group is ahead."""
        return None if self.messages is None else max(0, self.messages)

    @property
    def first_unread(self) -> int | None:
        """The first existing offset that is not consumed, None if there is none."""
        if self.queue is None or not self.lacked:
            return None
        return max(self._next_offset, self.queue.min_offset)

    @property
    def expired(self) -> int:
        """Messages that expired before the group consumed them."""
        if self.queue is None or not self.committed:
            return 0
        return max(0, min(self.queue.min_offset, self.queue.max_offset) - self._next_offset)

    @property
    def moved_back(self) -> int:
        """By how much the offset is lower than in the .bak."""
        backup = self.position.backup
        return 0 if backup is None else max(0, backup - self.position.offset)

    def goes_on(self, version: str) -> tuple[int | None, str]:
        """The offset from which a consumer continues, and why it differs; (offset, "") if it does not.

        version: the generation of the broker.
        """
        state, queue = self.state, self.queue
        if state is LagState.NO_POSITION:
            if queue is not None and (steps_to_next(self.position.group) or self.position.table == DELAYED):
                return queue.min_offset, "begins at the queue's start"
            return None, self._without_position()
        if state is LagState.UNKNOWN and queue is not None:
            return (None, "the end of the queue is not known before a start dispatches the rest of the log")
        if self._next_offset != self.position.offset and state is not LagState.EXPIRED:
            return self._next_offset, _PASSED_OVER if state in (LagState.AHEAD, LagState.NO_QUEUE) else _LAST_READ
        if queue is None:
            if state is not LagState.NO_QUEUE:
                return self._next_offset, ""
            return 0, "the store has no such queue: the broker answers 0"
        offset = self._next_offset
        if self.position.table == DELAYED and state in (LagState.AHEAD, LagState.EXPIRED):
            return inside(offset, queue.min_offset, queue.max_offset), "a broker start moves it into the queue"
        if state is LagState.AHEAD:
            if queue.max_offset == 0:
                return 0, "the queue is empty: the broker answers 0, and the client begins there"
            first = version < _FIRST_TO_END and queue.min_offset == 0
            place = "start" if first else "end"
            text = f"behind the queue's end: the broker answers the queue's {place}, and the client continues there"
            return (queue.min_offset if first else queue.max_offset), text
        if state is LagState.EXPIRED:
            text = "before the queue's start: the broker answers the queue's start, and the client continues there"
            return queue.min_offset, text
        return offset, ""

    def _without_position(self) -> str:
        if self.position.queue_id < 0:
            return "the group never committed here, or its consumers broadcast and keep their own offsets"
        rule = "where the client's ConsumeFromWhere says (not in the store; default: at the end)"
        if self.queue is not None and self.queue.min_offset == 0:
            return f"begins at 0 if the broker still has offset 0 in memory, else {rule}"
        return f"begins {rule}"


def queue_ends(store: StoreReader) -> dict[Queue, QueueSummary]:
    """All queues; if there is a log, without units past its end or before its start. Raises Unreadable."""
    found = store.queue_summaries if store.has_log else store.queues.summaries()
    return {(one.topic, one.queue_id): one for one in (*found, *store.batch_summaries)}


def behind_log(store: StoreReader) -> int | None:
    """The position from which records of the log lack units, until the next start dispatches them; None if none does.

    Records that get no unit do not count. Raises Unreadable.
    """
    if not store.has_log:
        return None
    reached = ends_of_queues(store)
    return reached if any(map(end_with_unit, records_from(store, reached))) else None


def records_from(store: StoreReader, position: int) -> Iterator[Batch]:
    """The records from a position of the log on, without those behind damage. Raises Unreadable."""
    end = store.log_end.position
    for item in store.log.scan(position, end, crc=False, reuse=True) if position < end else ():
        if isinstance(item, Batch) and item.mark is Mark.NONE:
            yield item


def behind_text(position: int) -> str:
    """Say that queues lack units from this position of the log on."""
    return f"the queues are behind the log, from {position} on"


class Undispatched(NamedTuple):
    """Records at the end of the log that lack units. position: of `behind_log`, None if no record lacks one.

    ended: queues whose ends these records tell. rest: the other queues of these records, None if there is too much of
    the log to read. in_use: a process holds the store, and dispatches them.
    """

    position: int | None = None
    ended: frozenset[Queue] = frozenset()
    rest: frozenset[Queue] | None = None
    in_use: bool = False

    def tell_end(self, one: Position) -> bool:
        """Whether the end of a queue is known, as far as it matters for a position. If queues are behind, others may
        have lost units, too: a position that is beyond the end says so.
        """
        queue = one.topic, one.queue_id
        if self.position is None or queue in self.ended:
            return True
        if self.rest is None or queue in self.rest or one.topic.startswith(LMQ_PREFIX):
            return False
        return self.in_use or one.next_offset == 0


def dispatched_ends(store: StoreReader) -> tuple[Ends, Undispatched]:
    """All queues, as they are when the last records of the log have units, and what is left. Raises Unreadable."""
    ends = queue_ends(store)
    if store.queues_unread and not ends:
        return ends, Undispatched(0)
    position = behind_log(store)
    if position is None or store.log_end.position - position > SMALL_LOG_BYTES:
        return ends, Undispatched(position)
    latest = dict[Queue, int]()
    for batch in records_from(store, position):
        latest |= latest_with_unit(batch)
    ended = frozenset(queue for queue in latest if queue in ends and not store.has_batch_queues(queue[0]))
    for queue in ended:
        stop = store.message_at(latest[queue]).queue_offset + 1
        ends[queue] = ends[queue]._replace(max_offset=max(ends[queue].max_offset, stop))
    return ends, Undispatched(position, ended, frozenset(latest) - ended, store.in_use)


def lacking_text(store: StoreReader) -> str:
    """That queues are behind the log, "" also while a process holds the store: it dispatches. Raises Unreadable."""
    behind = None if store.in_use else behind_log(store)
    return "" if behind is None else behind_text(behind)


def lags_of(positions: Iterable[Position], ends: Ends, groups: KnownGroups | None = None) -> Iterator[Lag]:
    """The lag of each position. With `groups` also the mode and subscription of each group, and lags without a
    position: queues of a topic that a group consumes, groups that never committed, and delay levels.
    """
    known, consumed, delayed = set[str](), dict[tuple[str, str], set[int]](), set[int]()
    topics: dict[str, list[int]] = {}
    for topic, queue_id in ends:
        topics.setdefault(topic, []).append(queue_id)
    for one in positions:
        known.add(one.group)
        if one.table not in (DELAYED, PULLED):
            consumed.setdefault((one.group, one.topic), set()).add(one.queue_id)
        if one.table == DELAYED:
            delayed.add(one.queue_id)
        yield _lag(one, ends, groups)
    if groups is None:
        return
    # some brokers note a level only when they deliver from it
    for queue_id in sorted(set(topics.get(SCHEDULE_TOPIC, ())) - delayed):
        yield _lag(_no_position("", SCHEDULE_TOPIC, queue_id, DELAYED), ends, groups, committed=False)
    for (group, topic), numbers in consumed.items():
        for queue_id in sorted(set(topics.get(topic, ())) - numbers):
            yield _lag(_no_position(group, topic, queue_id), ends, groups, committed=False)
    for group in sorted((groups.subscribed or frozenset()) - known):
        if not is_system_group(group):
            yield _lag(_no_position(group, "", -1), ends, groups, committed=False)


def _no_position(group: str, topic: str, queue_id: int, table: str = "") -> Position:
    return Position(table, group, topic, queue_id, 0, "")


def _lag(one: Position, ends: Ends, groups: KnownGroups | None, *, committed: bool = True) -> Lag:
    found = Lag(one, committed, ends.get((one.topic, one.queue_id)))
    if groups is not None and one.group:
        found.mode = groups.mode(one.group, one.topic)
        found.subscribed = groups.knows(one.group)
    return found


def measure(store: StoreReader, lags: Iterable[Lag], bar: Bar | None = None) -> None:
    """Set `unread` of the lags; the units of each queue are read once, from the first unconsumed one.

    bar: called with the bytes of these units; its progress gets the bytes done. Raises Unreadable.
    """
    queues: dict[Queue, list[Lag]] = {}
    for lag in lags:
        if lag.first_unread is not None:
            queues.setdefault((lag.position.topic, lag.position.queue_id), []).append(lag)
    with bar(sum(map(_unit_bytes, queues.values()))) if bar else nullcontext() as progress:
        _measure(store, queues, progress.advance if progress else lambda _: None)


def _unit_bytes(lags: list[Lag]) -> int:
    """Bytes of the units to read of one queue."""
    queue = lags[0].queue
    first = min(lag.first_unread or 0 for lag in lags)
    return UNIT_BYTES * (queue.max_offset - first if queue is not None else 0)


def _measure(store: StoreReader, queues: Mapping[Queue, list[Lag]], advance: Callable[[int], None]) -> None:
    with_log = store.has_log
    for (topic, queue_id), queue_lags in queues.items():
        advance(_unit_bytes(queue_lags))
        starts = sorted({lag.first_unread or 0 for lag in queue_lags})
        found = _unread(store, topic, queue_id, starts, queue_lags[0].queue, with_log)
        for lag in queue_lags:
            lag.unread = found.get(lag.first_unread or 0)


def _unread(
    store: StoreReader, topic: str, queue_id: int, starts: list[int], end: QueueSummary | None, with_log: bool
) -> dict[int, Backlog]:
    if end is None:
        return {}
    with ExitStack() as opened:
        try:
            queue = opened.enter_context(store.queues.open(topic, queue_id))
        except NotFound:
            return _unread_batches(store, topic, queue_id, starts)
        sizes = _bytes_from(queue.units(starts[0], end.max_offset), starts)
        found = {}
        for start, size in zip(starts, sizes, strict=True):
            unit = queue.unit(start)
            readable = with_log and unit is not None and unit.valid and not unit.pre_fill
            oldest_ms = store.store_time(unit.physical_offset) if readable and unit is not None else None
            if size or oldest_ms is not None:  # no unit: a broker has not dispatched the messages yet
                found[start] = Backlog(size, oldest_ms)
        return found


def _unread_batches(store: StoreReader, topic: str, queue_id: int, starts: list[int]) -> dict[int, Backlog]:
    """For a batch queue; a partly consumed batch counts completely."""
    with open_batch_queue(store, topic, queue_id) as queue:
        batches = [queue.find(start) for start in starts]
        numbers = [batch.number if batch is not None else queue.stop for batch in batches]
        sizes = _bytes_from(queue.units(numbers[0], queue.stop), numbers)
        times = [batch.store_time if batch is not None else None for batch in batches]
        found = zip(starts, sizes, times, strict=True)
        return {start: Backlog(size, time) for start, size, time in found}


def _bytes_from(windows: Iterable[tuple[int, Structs]], starts: list[int]) -> list[int]:
    """For each of the sorted `starts`, the bytes of the records of all units from it on."""
    totals = np.zeros(len(starts), np.int64)
    for first, units in windows:
        sizes = record_bytes(units)
        behind = np.append(np.cumsum(sizes[::-1])[::-1], 0)
        totals += behind[np.clip(np.asarray(starts) - first, 0, len(units))]
    found: list[int] = totals.tolist()
    return found


BY = ("group", "topic", "queue")
"""What a record is about; for the first two, queues are summed."""
COLUMNS = {
    "queue": (
        *("type", "store", "group", "topic", "queue_id", "table", "file", "mode", "state"),
        *("offset", "min_offset", "max_offset", "lag", "lag_bytes", "oldest_unread_timestamp"),
        *("lag_ms", "expired", "backup_offset", "moved_back", "subscribed", "next_offset", "next"),
    ),
    "topic": (
        *("type", "store", "group", "topic", "mode", "queues", "lag", "lag_bytes"),
        *("oldest_unread_timestamp", "lag_ms", "expired", "moved_back", "subscribed", "states"),
    ),
    "group": (
        *("type", "store", "group", "topics", "queues", "lag", "lag_bytes"),
        *("oldest_unread_timestamp", "lag_ms", "expired", "moved_back", "subscribed", "states"),
    ),
}
"""The fields of a record, by what it is about."""


class LagQuery(NamedTuple):
    """What is asked for. group, topic: names or patterns, None for all. odd: only groups that lag or need attention.
    quick: without bytes and times. now_ms: the time to which ages are counted.
    """

    now_ms: int
    by: str = "topic"
    group: str | None = None
    topic: str | None = None
    odd: bool = False
    quick: bool = False


class LagRows(NamedTuple):
    """The records of a store, and notes about its files. named: the store has a position or group with the names asked
    for, even if `odd` filters it out. hint: a similar name, if it has none.
    """

    rows: list[dict[str, Any]]
    notes: list[str]
    named: bool = True
    hint: str = ""


def offsets_of(store: StoreReader, name: str, wanted: LagQuery, bar: Bar | None = None) -> LagRows:
    """The lag of each group of a store. name: of the store in the records. bar: as for `measure`.

    Raises Unreadable.
    """
    layout, version = store.layout, store.generation.version
    if not layout.config.is_dir():
        return LagRows([], ["there is no config/: the positions of groups are not known"], named=False)
    positions, (ends, behind) = positions_of(layout, version), dispatched_ends(store)
    unread = bool(store.queues_unread and not ends)
    only = Only(wanted.group, wanted.topic)
    known = [*lags_of(positions.rows, ends, groups_of(layout, version))]
    named = [lag for lag in known if only.has(lag.position.key[1:])]
    hint = "" if named else only.hint(lag.position for lag in known)
    notes = list(positions.notes)
    for lag in named:
        lag.ends_known = behind.tell_end(lag.position)
    lags = [lag for lag in named if not wanted.odd or _is_odd(lag)]
    if named and not unread and (note := _behind_note(store, behind, lags)):
        notes.append(note)
    if unread and lags:
        notes.append(f"{store.queues_unread}: the ends of queues are not known")
    if not wanted.quick:
        measure(store, lags, bar)
        if not store.has_log:
            notes.append("there is no commit log: the age of messages is not known")
    if wanted.by == "queue":
        lags.sort(key=lambda lag: (lag.position.group, lag.position.topic, *lag.position.key))
        made = [_row(lag, name, wanted.now_ms, version) for lag in lags]
        return LagRows(made, notes, bool(named), hint)
    rows = list(_sums(lags, name, wanted))
    rows.sort(key=lambda row: (-(row["lag"] or 0), row["group"] or "", row.get("topic") or ""))
    return LagRows(rows, notes, bool(named), hint)


def _behind_note(store: StoreReader, behind: Undispatched, lags: Iterable[Lag]) -> str:
    """What records without units mean for these lags, "" if nothing."""
    if behind.position is None:
        return ""
    text = behind_text(behind.position)
    if any(lag.state is LagState.UNKNOWN for lag in lags):
        return f"{text}: the ends of UNKNOWN queues are not known before a broker dispatches the rest"
    # a running broker dispatches a record a moment after it has stored it
    left_out = not store.in_use or store.units_in_memory
    return f"{text}: bytes and ages leave out the messages there" if left_out else ""


def _is_odd(lag: Lag) -> bool:
    odd = lag.state is not LagState.CURRENT or lag.moved_back or lag.subscribed is False
    return bool(odd)


def _group(one: Position) -> str | None:
    """Its group, whose name may be empty; None for a delay level."""
    return None if one.table == DELAYED else one.group


def _row(lag: Lag, store: str, now_ms: int, version: str) -> dict[str, Any]:
    one, queue = lag.position, lag.queue
    next_offset, why = lag.goes_on(version)
    oldest = lag.unread.oldest_ms if lag.unread is not None else None
    return {
        "type": "group_offset",
        "store": store,
        "group": _group(one),
        "topic": one.topic or None,
        "queue_id": one.queue_id if one.queue_id >= 0 else None,
        "table": one.table or None,
        "file": one.file or None,
        "mode": lag.mode or None,
        "state": str(lag.state),
        "offset": lag.offset,
        "min_offset": queue.min_offset if queue is not None else None,
        "max_offset": queue.max_offset if queue is not None else None,
        "lag": lag.messages,
        "lag_bytes": lag.unread.size_bytes if lag.unread is not None else None,
        "oldest_unread_timestamp": oldest,
        "lag_ms": None if oldest is None else now_ms - oldest,
        "expired": lag.expired,
        "backup_offset": one.backup,
        "moved_back": lag.moved_back,
        "subscribed": lag.subscribed,
        "next_offset": next_offset,
        "next": why or None,
    }


def _adds_up(lag: Lag) -> bool:
    """Whether a lag counts in sums over queues: it has an offset, in a table other than `pull`, or is a delay level."""
    return lag.position.table == DELAYED or (lag.committed and lag.position.table != PULLED)


def _lacked(lags: Iterable[Lag]) -> int:
    return sum(lag.lacked or 0 for lag in lags)


class MostBehind(NamedTuple):
    """The highest lag of any group, by queue and by topic; by topic, the lag of a group is the sum over its queues, as
    in `offsets --by topic`.
    """

    queues: Mapping[Queue, int]
    topics: Mapping[str, int]


def most_behind(store: StoreReader) -> MostBehind:
    """The highest lags of all groups and delay levels of a store. Raises Unreadable."""
    queues, topics = dict[Queue, int](), dict[str, int]()
    layout, version = store.layout, store.generation.version
    if not layout.config.is_dir():
        return MostBehind(queues, topics)
    summed: dict[tuple[str | None, str], list[Lag]] = {}
    for lag in lags_of(positions_of(layout, version).rows, queue_ends(store), groups_of(layout, version)):
        one = lag.position
        key = (one.topic, one.queue_id)
        queues[key] = max(queues.get(key, 0), lag.lacked or 0)
        if _adds_up(lag):
            summed.setdefault((_group(one), one.topic), []).append(lag)
    for (_, topic), lags in summed.items():
        topics[topic] = max(topics.get(topic, 0), _lacked(lags))
    return MostBehind(queues, topics)


def _sums(lags: Iterable[Lag], store: str, wanted: LagQuery) -> Iterator[dict[str, Any]]:
    """One record for each group, or for each of its topics."""
    groups: dict[tuple[str | None, ...], list[Lag]] = {}
    for lag in lags:
        one = lag.position
        names = _group(one), one.topic
        groups.setdefault(names[: 1 if wanted.by == "group" else 2], []).append(lag)
    for key, key_lags in groups.items():
        yield {**_head(key, key_lags, store), **_counts(key_lags, wanted)}


def _head(key: tuple[str | None, ...], lags: list[Lag], store: str) -> dict[str, Any]:
    head: dict[str, Any] = {"type": "group_lag", "store": store, "group": key[0]}
    if len(key) == 1:
        return {**head, "topics": len({lag.position.topic for lag in lags} - {""})}
    modes = {lag.mode for lag in lags} - {""}
    return {**head, "topic": key[1] or None, "mode": ",".join(sorted(modes)) or None}


def _counts(lags: list[Lag], wanted: LagQuery) -> dict[str, Any]:
    """Sums over the queues in which the group has a position. If the ends of some are unknown, those of the others, or
    None if nothing is unread there. states count all lags.
    """
    measured = [lag for lag in lags if _adds_up(lag)]
    unread = [lag.unread for lag in measured if lag.unread is not None]
    oldest = min((one.oldest_ms for one in unread if one.oldest_ms is not None), default=None)
    lacked = _lacked(measured)
    unknown = not lacked and any(lag.messages is None and not lag.ends_known for lag in measured)
    states: dict[str, int] = {}
    for lag in lags:
        states[str(lag.state)] = states.get(str(lag.state), 0) + 1
    subscribed = {lag.subscribed for lag in lags}
    return {
        "queues": len({(lag.position.topic, lag.position.queue_id) for lag in measured}),
        "lag": None if unknown else lacked,
        "lag_bytes": None
        if wanted.quick or unknown or (lacked and not unread)
        else sum(one.size_bytes for one in unread),
        "oldest_unread_timestamp": oldest,
        "lag_ms": None if oldest is None else wanted.now_ms - oldest,
        "expired": sum(lag.expired for lag in measured),
        "moved_back": sum(lag.moved_back for lag in lags),
        "subscribed": None if subscribed == {None} else False not in subscribed,
        "states": states,
    }
