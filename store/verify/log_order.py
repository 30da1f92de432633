"""What records say of those before them: times, queue offsets (I-028, I-031)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.message_properties import INNER_NUM
from ...formats.sys_flag import SysFlag
from ..columns.ordered import Ints
from .catalogue import Severity
from .context import Scene
from .log_chain import chain_of
from .part_result import Carried
from .records import Records
from .register import after, of_records

_DIGITS_MAX = 9
_QUEUES = 1 << 16
"""Queues of a topic that are looked at; a damaged number must not ask for memory."""
_UNKNOWN = -1


def _none_known() -> Ints:
    return np.full((1, 1), _UNKNOWN, np.int64)


class _Jump(NamedTuple):
    """A record, its position and size, that has a lower queue offset than it should."""

    position: int
    size: int
    text: str


@dataclass
class _Order(Carried):
    """newest, oldest: store timestamps of the last record and of the first. topics: a number for each.

    next_offset: int64[topics, queues], behind the last message of the queue, -1 where none was met.
    first_offset: the same of the first one. open: by topic and queue, a jump back that nothing of the
    queue has followed yet.
    """

    newest: int = 0
    oldest: int | None = None
    topics: dict[bytes, int] = field(default_factory=dict)
    next_offset: Ints = field(default_factory=_none_known)
    first_offset: Ints = field(default_factory=_none_known)
    open: dict[tuple[int, int], _Jump] = field(default_factory=dict)

    def room(self, records: Records, queues: int) -> Ints:
        """Make room for all queues; int64[n]: the number of each topic of the records."""
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

    def fits(self, left: _Order) -> bool:
        """Times and queue offsets go on where they were."""
        if self.open or (left.oldest is not None and left.oldest < self.newest):
            return False
        queues = min(self.next_offset.shape[1], left.first_offset.shape[1])
        for topic, number in left.topics.items():
            if topic in self.topics:
                known = self.next_offset[self.topics[topic], :queues]
                first = left.first_offset[number, :queues]
                if ((known != first) & (known != _UNKNOWN) & (first != _UNKNOWN)).any():
                    return False
        return True

    def take_on(self, scene: Scene, left: _Order) -> None:
        """What follows the part is compared with its last records."""
        del scene
        self.newest = left.newest
        for topic in left.topics:
            self.topics.setdefault(topic, len(self.topics))
        queues = left.next_offset.shape[1]
        self._widen(queues)
        for topic, number in left.topics.items():
            row, known = self.next_offset[self.topics[topic]], left.next_offset[number]
            row[:queues] = np.where(known == _UNKNOWN, row[:queues], known)


@of_records("I-028")
def rising_times(scene: Scene, records: Records) -> None:
    """Store timestamps do not fall along the log."""
    order = scene.kept(_Order, _Order)
    time = records.columns.ints("store_timestamp")
    before = np.empty_like(time)
    before[0], before[1:] = order.newest, time[:-1]
    order.newest = int(time[-1])
    order.oldest = int(time[0]) if order.oldest is None else order.oldest
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
        close_jumps(scene)
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
    if order.open:
        for at, queue in enumerate(zip(topics.tolist(), queues.tolist(), strict=True)):
            if queue in order.open:
                _tell_jump(scene, order.open.pop(queue), bool(offset[first[at]] == known[at]))
    order.next_offset[topics, queues] = offset[last] + count[last]
    new = order.first_offset[topics, queues] == _UNKNOWN
    order.first_offset[topics[new], queues[new]] = offset[first[new]]
    wrong = np.flatnonzero(offset != expected)
    if len(wrong):
        ends = dict(
            zip(last.tolist(), zip(topics.tolist(), queues.tolist(), strict=True), strict=True)
        )
        _report_jumps(scene, records, rows, wrong, offset, expected, ends)


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
    scene: Scene,
    records: Records,
    rows: Ints,
    wrong: Ints,
    offset: Ints,
    expected: Ints,
    ends: dict[int, tuple[int, int]],
) -> None:
    """Told record by record, in log order. ends: the last row of each queue, and which queue that is."""
    order, lost = scene.kept(_Order, _Order), chain_of(scene).lost
    for at in wrong[np.argsort(rows[wrong])].tolist():
        row = int(rows[at])
        topic = records.topic_texts[records.topics.ids[row]]
        queue_id = int(records.columns.ints("queue_id")[row])
        found, wanted = int(offset[at]), int(expected[at])
        position, end = int(records.position[row]), int(records.ends[row])
        text = f"record at {position} is {topic}/{queue_id} {found}, not {wanted}"
        jump = _Jump(position, end - position, text)
        if found > wanted:
            _tell(scene, jump, "; records before it are lost" if lost else "")
        elif at not in ends:
            _tell_jump(scene, jump, bool(offset[at + 1] == expected[at + 1]))
        elif scene.behind is None:
            order.open[ends[at]] = jump
        else:  # the run in front looks itself
            _tell_jump(scene, jump, goes_on=False)


def _tell_jump(scene: Scene, jump: _Jump, goes_on: bool) -> None:
    """A start of an older broker gives out once more what it has cut: the queue goes on from there."""
    _tell(scene, jump, ": given out again from here on" if goes_on else "")


def _tell(scene: Scene, jump: _Jump, why: str) -> None:
    severity = Severity.WARNING if why else None
    scene.log_finding("I-031", jump.position, jump.size, jump.text + why, severity=severity)


@after("I-031")
def close_jumps(scene: Scene) -> None:
    """Nothing of their queues has followed."""
    order = scene.kept(_Order, _Order)
    for jump in order.open.values():
        _tell_jump(scene, jump, goes_on=False)
    order.open.clear()
