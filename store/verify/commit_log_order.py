"""What records say of those before them: times, queue offsets, unique keys (I-028, I-031, I-051)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...formats.derive.ragged import Ragged, overlapping
from ...formats.message_properties import INNER_NUM, UNIQ_KEY
from ...formats.sys_flag import SysFlag
from .catalogue import Severity
from .commit_log_chain import chain_of
from .records import Ints, Records
from .register import after, of_records
from .scene import Scene

_PLACE_BITS = 20
"""Room for so many unique keys, as a power of two: the same one is looked for among these."""
_ROW_BITS = 17
"""The same for those of one batch, few enough to stay in a processor's cache."""
_DIGITS_MAX = 9
_QUEUES = 1 << 16
"""Queues of a topic that are looked at; a damaged number must not ask for memory."""
_MIX = 0x9E3779B97F4A7C15
_WORD = np.dtype(np.uint64)
_WORDS = 4
"""Words of a unique key that count: its first 32 characters."""


@dataclass
class _Order:
    """newest: store timestamp of the last record. topics: a number for each.

    next_offset: int64[topics, queues], -1 where no message of the queue was met.
    """

    newest: int = 0
    topics: dict[bytes, int] = field(default_factory=dict)
    next_offset: Ints = field(default_factory=lambda: np.full((1, 1), _UNKNOWN, np.int64))

    def room(self, records: Records, queues: int) -> Ints:
        """Make room for all queues; int64[n]: the number of each topic of the records."""
        for value in records.topics.values:
            self.topics.setdefault(value, len(self.topics))
        have = self.next_offset.shape
        wanted = (max(have[0], len(self.topics)), max(have[1], queues))
        if wanted != have:
            wider = np.full([2 * n if n > m else n for n, m in zip(wanted, have, strict=True)], -1)
            wider[: have[0], : have[1]] = self.next_offset
            self.next_offset = wider.astype(np.int64)
        return np.array([self.topics[value] for value in records.topics.values], np.int64)


_UNKNOWN = -1


@of_records("I-028")
def rising_times(scene: Scene, records: Records) -> None:
    """Store timestamps do not fall along the log."""
    order = scene.kept(_Order, _Order)
    time = records.columns.ints("store_timestamp")
    before = np.empty_like(time)
    before[0], before[1:] = order.newest, time[:-1]
    order.newest = int(time[-1])
    wrong = time < before
    if wrong.any():
        scene.log_rows(
            "I-028",
            wrong,
            records.position,
            records.ends,
            lambda row: (
                f"record at {records.position[row]}: stored {int(before[row]) - int(time[row])} ms before"
                " the record in front of it"
            ),
        )


@of_records("I-031")
def queue_offsets(scene: Scene, records: Records) -> None:
    """In each queue the next message has the next queue offset."""
    order, chain = scene.kept(_Order, _Order), chain_of(scene)
    if not chain.follows(scene, records) and not chain.lost:
        order.next_offset[:] = _UNKNOWN  # what lies between was not read
    flags = records.columns.ints("sys_flag")
    queue_id = records.columns.ints("queue_id")
    rows = np.flatnonzero((flags & SysFlag.PREPARED == 0) & (queue_id >= 0) & (queue_id < _QUEUES))
    if not len(rows):
        return
    rows, group = _by_queue(records, rows)
    offset = records.columns.ints("queue_offset")[rows]
    count = _messages_in(records, flags, rows)
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    last = np.append(first[1:], len(rows)) - 1
    queues = queue_id[rows[first]]
    topics = order.room(records, int(queues.max()) + 1)[records.topics.ids[rows[first]]]
    known = order.next_offset[topics, queues]
    expected = np.empty(len(rows), np.int64)
    expected[1:] = offset[:-1] + count[:-1]
    expected[first] = np.where(known == _UNKNOWN, offset[first], known)
    order.next_offset[topics, queues] = offset[last] + count[last]
    wrong = np.flatnonzero(offset != expected)
    if len(wrong):
        _report_jumps(scene, records, rows, wrong, offset, expected)


def _by_queue(records: Records, rows: Ints) -> tuple[Ints, Ints]:
    """The rows queue by queue, each queue's in log order, and a number for the queue of each."""
    queue_id = records.columns.ints("queue_id")[rows].astype(np.int64)
    queue_id -= queue_id.min()
    width = int(queue_id.max()) + 1
    group = records.topics.ids[rows] * width + queue_id
    if int(group.max()) < 1 << 16:  # few queues: numpy sorts such numbers by radix
        by_group = np.argsort(group.astype(np.uint16), kind="stable")
    else:
        by_group = np.argsort(group, kind="stable")
    return rows[by_group], group[by_group]


def _messages_in(records: Records, flags: npt.NDArray[np.int64], rows: Ints) -> Ints:
    """How many queue offsets each row takes: one, or those of an inner batch."""
    count = np.ones(len(rows), np.int64)
    batches = np.flatnonzero(flags[rows] & SysFlag.INNER_BATCH)
    if len(batches):
        numbers = records.properties.find(INNER_NUM)
        for at in batches.tolist():
            text = numbers[int(rows[at])]
            count[at] = int(text) if text.isdigit() and len(text) <= _DIGITS_MAX else 1
    return count


def _report_jumps(
    scene: Scene, records: Records, rows: Ints, wrong: Ints, offset: Ints, expected: Ints
) -> None:
    """Told record by record, in log order."""
    lost = chain_of(scene).lost
    for at in wrong[np.argsort(rows[wrong])].tolist():
        row = int(rows[at])
        topic = records.topic_texts[records.topics.ids[row]]
        queue_id = int(records.columns.ints("queue_id")[row])
        found, wanted = int(offset[at]), int(expected[at])
        explained, why = lost, "; records before it are lost"
        if found < wanted:
            # a start of an older broker gives out once more what it has cut
            goes_on = at + 1 < len(rows) and int(offset[at + 1]) == int(expected[at + 1])
            explained, why = goes_on, ": given out again from here on"
        scene.log_finding(
            "I-031",
            int(records.position[row]),
            int(records.ends[row] - records.position[row]),
            f"record at {records.position[row]} is {topic}/{queue_id} {found}, not {wanted}"
            + (why if explained else ""),
            severity=Severity.WARNING if explained else None,
        )


@of_records("I-051")
def unique_keys(scene: Scene, records: Records) -> None:
    """No two messages of a topic have one unique key, as far as memory for it lasts."""
    if scene.scope.quick:
        return
    keys = records.properties.find(UNIQ_KEY)
    has = np.flatnonzero(keys.length > 0)
    if not len(has):
        return
    numbers = _numbers(keys[has], records.topics.ids[has], records.topics.values)
    twice = scene.kept("unique keys", _Seen).add(numbers)
    if not twice.any():
        return
    topics, repeats = records.topics.ids, scene.kept("repeated keys", dict[str, _Repeat])
    for topic in np.unique(topics[has[twice]]).tolist():
        rows = has[twice][topics[has[twice]] == topic]
        row = int(rows[0])
        place = (int(records.position[row]), int(records.ends[row] - records.position[row]))
        repeat = repeats.setdefault(records.topic_texts[topic], _Repeat(*place))
        repeat.count += len(rows)


@dataclass
class _Repeat:
    """Messages of a topic with the unique key of one before: where the first stands, how many."""

    position: int
    size: int
    count: int = 0


@after("I-051")
def repeated_keys(scene: Scene) -> None:
    """Told once for each topic: retries and batches make many of them."""
    for topic, repeat in scene.kept("repeated keys", dict[str, _Repeat]).items():
        text = f"{repeat.count} messages of {topic} have the unique key of one before them"
        more = {"count": repeat.count, "topic": topic}
        scene.log_finding("I-051", repeat.position, repeat.size, text, **more)


class _Seen:
    """Unique keys that were met, as numbers: each has a place, and the next one there takes it."""

    def __init__(self) -> None:
        self._marks = np.zeros(1 << _PLACE_BITS, np.uint32)
        self._rows = np.zeros(1 << _ROW_BITS, np.int32)

    def add(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Note them; bool[n]: which of them were met before, or stand here twice."""
        place = (numbers >> np.uint64(64 - _PLACE_BITS)).astype(np.int64)
        mark = numbers.astype(np.uint32) | np.uint32(1)  # 0 is a free place
        twice: npt.NDArray[np.bool_] = self._marks[place] == mark
        self._marks[place] = mark
        own = np.arange(len(numbers), dtype=np.int32)
        small = place >> (_PLACE_BITS - _ROW_BITS)
        self._rows[small[::-1]] = own[::-1]
        first = self._rows[small]
        shared = np.flatnonzero(first != own)  # one of these before it has the same small place
        if len(shared):
            some = np.zeros(len(numbers), np.bool_)
            some[shared] = some[first[shared]] = True
            rows = np.flatnonzero(some)
            rows = rows[np.argsort(numbers[rows], kind="stable")]
            twice[rows[1:]] |= numbers[rows[1:]] == numbers[rows[:-1]]
        return twice


def _numbers(keys: Ragged, topic_ids: Ints, topics: list[bytes]) -> npt.NDArray[np.uint64]:
    """A number for topic and key: equal for equal ones, and for others hardly ever."""
    seeds = np.array([hash(topic) & 0xFFFFFFFFFFFFFFFF for topic in topics], np.uint64)
    mixed = seeds[topic_ids] ^ keys.length.astype(np.uint64)
    words = overlapping(keys.buffer, _WORD)
    shortest = int(keys.length.min())
    for number in range(_WORDS):
        behind = (number + 1) * _WORD.itemsize
        at = keys.start + number * _WORD.itemsize
        if behind <= shortest:
            part = words[at]
        else:
            part = words[np.minimum(at, len(words) - 1)]
            part[behind > keys.length] = 0
        part *= np.uint64(pow(_MIX, number + 1, 1 << 64))
        mixed += part
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(_MIX)
    mixed ^= mixed >> np.uint64(29)
    return mixed
