"""Checks of records against earlier ones: store times, queue offsets (I-028, I-031), unique keys (I-051).

A unique key that more than one message of a topic has is found as far as the memory for keys lasts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats import kernel
from ...formats.derive.ragged import Flags, Ints, Ragged
from ...formats.hashing_columns import WORD_FACTOR, word_sums
from ...formats.message_properties import INNER_NUM, UNIQ_KEY
from ...formats.sys_flag import SysFlag
from ..broker.snapshot import QueueId
from ..columns import begins
from ..counted import counted
from ..findings.catalogue import Severity
from ..log.batch import inner_numbers
from ..start.queue_stores import queue_begins
from .context import Mergeable, Records, VerifyContext
from .log_chain import chain_of
from .queue_state import queues_of
from .register import after, of_records

_QUEUES = 1 << 16
"""Queue numbers from this one on are not checked: a damaged number must not take memory."""
_UNKNOWN = -1
_LOCK_WAIT_MS = 1000
"""A DLedger broker takes the time of a record before it waits for the lock of the log."""


def _none_known() -> Ints:
    return np.full((1, 1), _UNKNOWN, np.int64)


class _Jump(NamedTuple):
    """Position and size of a record that has a lower queue offset than expected, and the text of its finding."""

    position: int
    size: int
    text: str


@dataclass
class _LogOrder(Mergeable):
    """newest, oldest: store timestamps of the last record and of the first. topics: a number for each.

    next_offset: int64[topics, queues], behind the last message of the queue, -1 without any. first_offset: the same, of
    the first message. open: by topic and queue number, a jump back that no message of the queue has followed yet.
    """

    newest: int = 0
    oldest: int | None = None
    topics: dict[bytes, int] = field(default_factory=dict)
    next_offset: Ints = field(default_factory=_none_known)
    first_offset: Ints = field(default_factory=_none_known)
    open: dict[tuple[int, int], _Jump] = field(default_factory=dict)

    def room(self, records: Records, queues: int) -> Ints:
        """Make room for all queues; return the number of each topic of the records, int64[n]."""
        for value in records.topics.values:
            self.topics.setdefault(value, len(self.topics))
        self._widen(queues)
        return np.array([self.topics[value] for value in records.topics.values], np.int64)

    def _widen(self, queues: int) -> None:
        have = self.next_offset.shape
        wanted = (max(have[0], len(self.topics)), max(have[1], queues))
        if wanted != have:
            room = [2 * n if n > m else n for n, m in zip(wanted, have, strict=True)]
            for name in ("next_offset", "first_offset"):
                wider = np.full(room, _UNKNOWN, np.int64)
                wider[: have[0], : have[1]] = getattr(self, name)
                setattr(self, name, wider)

    def can_merge(self, exported: _LogOrder) -> bool:
        """Return whether times and queue offsets of the part continue those seen so far."""
        if self.open or (exported.oldest is not None and exported.oldest < self.newest):
            return False
        queues = min(self.next_offset.shape[1], exported.first_offset.shape[1])
        for topic, number in exported.topics.items():
            if topic in self.topics:
                known = self.next_offset[self.topics[topic], :queues]
                first = exported.first_offset[number, :queues]
                if ((known != first) & (known != _UNKNOWN) & (first != _UNKNOWN)).any():
                    return False
        return True

    def merge(self, context: VerifyContext, exported: _LogOrder) -> None:
        """Compare what follows the part with its last records."""
        self.newest = exported.newest
        for topic in exported.topics:
            self.topics.setdefault(topic, len(self.topics))
        queues = exported.next_offset.shape[1]
        self._widen(queues)
        for topic, number in exported.topics.items():
            row, known = self.next_offset[self.topics[topic]], exported.next_offset[number]
            row[:queues] = np.where(known == _UNKNOWN, row[:queues], known)


@of_records("I-028")
def rising_times(context: VerifyContext, records: Records) -> None:
    order = context.kept(_LogOrder, _LogOrder)
    time = records.columns.ints("store_timestamp")
    before = np.empty_like(time)
    before[0], before[1:] = order.newest, time[:-1]
    order.newest = int(time[-1])
    order.oldest = int(time[0]) if order.oldest is None else order.oldest
    wrong = time < before
    if not wrong.any():
        return

    def text(row: int) -> str:
        earlier = int(before[row]) - int(time[row])
        return f"record at {records.position[row]}: stored {earlier} ms before the previous record"

    usual = wrong & (time > before - _LOCK_WAIT_MS) & bool(context.store.payload_at(int(records.position[0])))
    for rows, severity in ((wrong & ~usual, None), (usual, Severity.INFO)):
        context.log_rows("I-028", rows, records.position, records.ends, text, severity=severity)


@of_records("I-031")
def queue_offsets(context: VerifyContext, records: Records) -> None:
    order, chain = context.kept(_LogOrder, _LogOrder), chain_of(context)
    if not chain.follows(context, records) and not chain.lost:
        order.next_offset[:] = _UNKNOWN  # the records between were not read
        close_jumps(context)
    flags = records.columns.ints("sys_flag")
    queue_id = records.columns.ints("queue_id")
    rows = np.flatnonzero((flags & SysFlag.PREPARED == 0) & (queue_id >= 0) & (queue_id < _QUEUES))
    if not len(rows):
        return
    if not order.open and _all_continue(context, order, records, rows):
        return
    rows, group = _by_queue(records, rows)
    offset = records.columns.ints("queue_offset")[rows]
    count = _messages_in(context, records, rows)
    first = np.flatnonzero(begins(group))
    last = np.append(first[1:], len(rows)) - 1
    queues = queue_id[rows[first]]
    topics = order.room(records, int(queues.max()) + 1)[records.topics.ids[rows[first]]]
    known = order.next_offset[topics, queues]
    expected = np.empty(len(rows), np.int64)
    expected[1:] = offset[:-1] + count[:-1]
    expected[first] = np.where(known == _UNKNOWN, offset[first], known)
    if order.open:
        for at, queue in enumerate(zip(topics.tolist(), queues.tolist(), strict=True)):
            if queue in order.open:
                _report_jump(context, order.open.pop(queue), bool(offset[first[at]] == known[at]))
    order.next_offset[topics, queues] = offset[last] + count[last]
    new = order.first_offset[topics, queues] == _UNKNOWN
    order.first_offset[topics[new], queues[new]] = offset[first[new]]
    wrong = np.flatnonzero(offset != expected)
    if len(wrong):
        ends = dict(zip(last.tolist(), zip(topics.tolist(), queues.tolist(), strict=True), strict=True))
        _report_jumps(context, records, rows, wrong, offset, expected, ends)


def _all_continue(context: VerifyContext, order: _LogOrder, records: Records, rows: Ints) -> bool:
    """Whether all rows are known to continue their queues, which is noted; if not, the caller checks row by row."""
    if not kernel.is_wanted(len(rows)):
        return False
    queue_id = records.columns.ints("queue_id")[rows]
    topics = order.room(records, int(queue_id.max()) + 1)[records.topics.ids[rows]]
    group = topics * order.next_offset.shape[1] + queue_id
    offset = records.columns.ints("queue_offset")[rows]
    count = _messages_in(context, records, rows)
    arrays = (group, offset, count, order.next_offset, order.first_offset, np.empty_like(group))
    return kernel.run(kernel.Operation.GO_ON, arrays) == len(rows)


def _by_queue(records: Records, rows: Ints) -> tuple[Ints, Ints]:
    """Return the rows queue by queue, in log order within each queue, and for each row a number of its queue."""
    queue_id = records.columns.ints("queue_id")[rows].astype(np.int64)
    queue_id -= queue_id.min()
    width = int(queue_id.max()) + 1
    group = records.topics.ids[rows] * width + queue_id
    if int(group.max()) < 1 << 16:  # few queues: numpy sorts such numbers by radix
        by_group = np.argsort(group.astype(np.uint16), kind="stable")
    else:
        by_group = np.argsort(group, kind="stable")
    return rows[by_group], group[by_group]


def _messages_in(context: VerifyContext, records: Records, rows: Ints) -> Ints:
    """Return how many queue offsets each row takes: one, or those of an inner batch. In a queue of batches any record
    with the number counts: a tombstone of a batch has it, too.
    """
    count = np.ones(len(rows), np.int64)
    inner = records.columns.ints("sys_flag")[rows] & SysFlag.INNER_BATCH != 0
    if not inner.any() and not records.properties.has_name(INNER_NUM):
        return count
    topics = queues_of(context).batch_topics
    known = [number for number, topic in enumerate(records.topic_texts) if topic in topics]
    batches = np.flatnonzero(inner | np.isin(records.topics.ids[rows], known))
    count[batches] = inner_numbers(records.properties.find(INNER_NUM)[rows[batches]])
    return count


def _report_jumps(
    context: VerifyContext,
    records: Records,
    rows: Ints,
    wrong: Ints,
    offset: Ints,
    expected: Ints,
    ends: dict[int, tuple[int, int]],
) -> None:
    """Report wrong queue offsets record by record, in log order. ends: by the last row of a queue, which queue."""
    order, lost = context.kept(_LogOrder, _LogOrder), chain_of(context).lost
    for at in wrong[np.argsort(rows[wrong])].tolist():
        row = int(rows[at])
        topic = records.topic_texts[records.topics.ids[row]]
        queue_id = int(records.columns.ints("queue_id")[row])
        found, wanted = int(offset[at]), int(expected[at])
        position, end = int(records.position[row]), int(records.ends[row])
        text = f"record at {position} is {topic}/{queue_id} {found}, not {wanted}"
        jump = _Jump(position, end - position, text)
        queue_starts = queue_begins(context.store.layout)
        if found < wanted and position <= queue_starts(topic, queue_id, 0):
            without_unit = queue_starts.left.get(QueueId(topic, queue_id), 0)
            in_front = counted(without_unit, "message before it has", "messages before it have")
            why = ": the queue was deleted and created again, or lost before a start"
            _report(context, jump, f"{why}; {in_front} no unit")
        elif found > wanted:
            _report(context, jump, "; records before it are lost" if lost else "")
        elif at not in ends:
            _report_jump(context, jump, bool(offset[at + 1] == expected[at + 1]))
        elif context.behind is None:
            order.open[ends[at]] = jump
        else:  # the run in front reads the part itself then
            _report_jump(context, jump, continues=False)


def _report_jump(context: VerifyContext, jump: _Jump, continues: bool) -> None:
    """Report a jump. continues: its queue goes on from it, as if a start had cut units and used their offsets again."""
    _report(context, jump, ": a start used these queue offsets again from here on" if continues else "")


def _report(context: VerifyContext, jump: _Jump, why: str) -> None:
    severity = Severity.WARNING if why else None
    context.log_finding("I-031", jump.position, jump.size, jump.text + why, severity=severity)


@after("I-031")
def close_jumps(context: VerifyContext) -> None:
    """Report jumps back that no message of their queue follows."""
    order = context.kept(_LogOrder, _LogOrder)
    for jump in order.open.values():
        _report_jump(context, jump, continues=False)
    order.open.clear()


_PLACE_BITS = 20
"""Exponent of 2: number of places for unique keys. A repeated key is found if its place was not used again since."""
_FREE = np.uint32(0)
"""An unused place: no mark is 0."""
_NEW, _AGAIN = 0, 2
"""Answers of the native kernel about a number: kernel/src/rows.rs."""
_SEED_BYTES = 8
_SEEDS = 1 << 16
"""Number of topics whose seeds are cached."""
_AT_A_SEAM = 10_000
"""Keys that repeat one in front of a part of the log: so many are looked up one by one, not more."""

Numbers = npt.NDArray[np.uint64]


@of_records("I-051")
def unique_keys(context: VerifyContext, records: Records) -> None:
    if context.scope.quick:
        return
    keys, topics = records.properties.find(UNIQ_KEY), records.topics
    has = np.flatnonzero(keys.length > 0)
    if not len(has):
        return
    numbers = key_numbers(keys, topics.ids, topics.values)[has]  # of all: the kernel has noted sums for all
    seen = context.kept(SeenKeys, lambda: SeenKeys(behind=context.behind is not None))
    twice = seen.add(numbers, records.position[has])
    if twice.any():
        seen.note(records, has[twice])


@dataclass
class _Repeat:
    """Messages of a topic with the unique key of an earlier one: position and size of the first, number of all."""

    position: int
    size: int
    count: int = 0


@after("I-051")
def repeated_keys(context: VerifyContext) -> None:
    """Report repeated keys once per topic: retries and batches make many of them."""
    repeats = context.kept(SeenKeys, SeenKeys).repeats
    for topic, repeat in repeats.items():
        many = counted(repeat.count, f"message of {topic} has", f"messages of {topic} have")
        text = f"{many} the unique key of an earlier message"
        more = {"count": repeat.count, "topic": topic}
        context.log_finding("I-051", repeat.position, repeat.size, text, **more)


class _KeysExport(NamedTuple):
    """Keys of a part of the log. numbers: keys that found their place unused, uint64[n]. position: of their records."""

    marks: npt.NDArray[np.uint32]
    numbers: Numbers
    position: Ints
    repeats: dict[str, _Repeat]


class SeenKeys(Mergeable):
    """Unique keys that were met, as numbers: each has a place, and the next key with that place replaces it.

    repeats: by topic. behind: another run reads the log in front of this one: keep the keys that found their place
    unused, for its `merge`.
    """

    def __init__(self, *, behind: bool = False) -> None:
        self.repeats: dict[str, _Repeat] = {}
        self._marks = np.zeros(1 << _PLACE_BITS, np.uint32)
        self._behind = behind
        self._first: list[tuple[Numbers, Ints]] = []

    def add(self, numbers: Numbers, position: Ints) -> Flags:
        """Note the keys of the records at `position`; return bool[n]: which were met before, or occur twice here."""
        twice: Flags
        if kernel.is_wanted(len(numbers)):
            answers = np.empty(len(numbers), np.uint8)
            kernel.run(kernel.Operation.MEET, (numbers, self._marks, answers))
            twice, first = answers == _AGAIN, answers == _NEW
        else:
            twice, before = self._note_keys(numbers)
            first = (before == _FREE) & ~twice
        if self._behind:
            self._first.append((numbers[first], position[first]))
        return twice

    def _note_keys(self, numbers: Numbers) -> tuple[Flags, npt.NDArray[np.uint32]]:
        """Note keys without the kernel; return which were met before, and the former mark of each place."""
        place, mark = _place_and_mark(numbers)
        before = self._marks[place]
        twice: Flags = before == mark
        self._marks[place] = mark
        rows = np.argsort(numbers, kind="stable")
        twice[rows[1:]] |= numbers[rows[1:]] == numbers[rows[:-1]]
        return twice, before

    def note(self, records: Records, rows: Ints) -> None:
        topics = records.topics.ids[rows]
        for topic in np.flatnonzero(np.bincount(topics)).tolist():
            some = rows[topics == topic]
            row = int(some[0])
            position = int(records.position[row])
            repeat = _Repeat(position, int(records.ends[row]) - position, len(some))
            self._add_repeat(records.topic_texts[topic], repeat)

    def _add_repeat(self, topic: str, repeat: _Repeat) -> None:
        known = self.repeats.setdefault(topic, repeat)
        if known is not repeat:
            first = min(known, repeat, key=lambda each: each.position)
            count = known.count + repeat.count
            self.repeats[topic] = _Repeat(first.position, first.size, count)

    def export(self) -> _KeysExport:
        """Return the marks, and the keys to compare with the marks of the run in front."""
        numbers = np.concatenate([np.zeros(0, np.uint64), *(keys for keys, _ in self._first)])
        position = np.concatenate([np.zeros(0, np.int64), *(positions for _, positions in self._first)])
        return _KeysExport(self._marks, numbers, position, self.repeats)

    def _repeated(self, exported: _KeysExport) -> Ints:
        """Return the positions of records of the part that repeat a key of a record in front of it: int64[m]."""
        place, mark = _place_and_mark(exported.numbers)
        again: Ints = exported.position[self._marks[place] == mark]
        return again

    def can_merge(self, exported: _KeysExport) -> bool:
        """Return whether few keys are repeated across the seam."""
        return len(self._repeated(exported)) <= _AT_A_SEAM

    def merge(self, context: VerifyContext, exported: _KeysExport) -> None:
        """Note repeats across the seam and those of the part; its keys are the newer ones."""
        again = self._repeated(exported)
        if len(again):
            records = Records(context.store.log.records(again))
            front = SeenKeys()
            front.repeats = exported.repeats
            front.note(records, np.arange(len(records)))
        for topic, repeat in exported.repeats.items():
            self._add_repeat(topic, repeat)
        self._marks = np.where(exported.marks == _FREE, self._marks, exported.marks)


def _place_and_mark(numbers: Numbers) -> tuple[Ints, npt.NDArray[np.uint32]]:
    place = (numbers >> np.uint64(64 - _PLACE_BITS)).astype(np.int64)
    return place, numbers.astype(np.uint32) | np.uint32(1)


@lru_cache(_SEEDS)
def _seed(topic: bytes) -> int:
    """Return a number for a topic; `hash` would differ in a process that is not forked from this one."""
    return int.from_bytes(blake2b(topic, digest_size=_SEED_BYTES).digest())


def key_numbers(keys: Ragged, topic_ids: Ints, topics: list[bytes]) -> npt.NDArray[np.uint64]:
    """Return a number for each topic and key: equal for equal ones, hardly ever equal for others."""
    seeds = np.array([_seed(topic) for topic in topics], np.uint64)
    mixed = seeds.take(topic_ids)
    mixed ^= keys.length.view(np.uint64)
    mixed += word_sums(keys)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(WORD_FACTOR)
    mixed ^= mixed >> np.uint64(29)
    return mixed
