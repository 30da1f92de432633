"""What lost op records of transactions said, as far as the log proves it (repair answers, 9.3).

A committed half message has a record with its position in `prepared_transaction_offset`. One that
no surviving op record names was named by a lost one: its tombstone says it again. Otherwise the broker
would ask for that transaction again and deliver the message twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....formats.message import TRANSACTION_MASK, SysFlag
from ...batch import Batch
from ...commit_log import CommitLog
from ...mark import Mark
from .fill import Fill
from .forms import HALF_TOPIC, NO_OFFSET, OP_TOPIC, Forms
from .lost_units import LostUnits

_LIST_SINCE = "5"
"""Brokers write several offsets in one op record since 5.0."""
_DIGITS_MAX = 19
"""Of a queue offset."""


def op_bodies(
    log: CommitLog, lost: LostUnits, closed: Sequence[Fill], forms: Forms
) -> dict[int, bytes]:
    """Bodies of the tombstones of op records, by position. Reads the log once more if there are any.

    lost: where the lost records were; closed: as the tombstones will be. Raises Unreadable.
    """
    topics = np.array([queue.topic == OP_TOPIC for queue in lost.queues] or [False])
    places = [
        (position, size)
        for fill in closed
        for position, size in zip(*_of(fill.lost, topics), strict=True)
    ]
    if not places:
        return {}
    committed, named = _decided(log)
    half = log.records(np.array(sorted(committed), np.int64))
    of_half = [topic == HALF_TOPIC.encode() for topic in half.columns.ragged("topic").tolist()]
    offsets = half.columns.ints("queue_offset")[np.array(of_half, np.bool_)].tolist()
    halves = np.array([queue.topic == HALF_TOPIC for queue in lost.queues])
    gone = lost.take(halves[lost.queue] & np.isin(lost.position, sorted(committed)))
    waiting = sorted({*offsets, *gone.queue_offset.tolist()} - named)
    as_list = bool(forms.generations) and all(g >= _LIST_SINCE for g in forms.generations)
    base = forms.smallest(OP_TOPIC) - len(NO_OFFSET)
    bodies = {}
    for position, size in places:
        room = size - base
        body = b""
        while waiting and len(text := _text(waiting[0], as_list)) <= room - len(body):
            body += text
            waiting.pop(0)
            if not as_list:
                break
        bodies[position] = body or NO_OFFSET
    return bodies


def _of(lost: LostUnits, topics: np.ndarray) -> tuple[list[int], list[int]]:
    """Positions and sizes of those whose topic is among `topics`, bool by queue."""
    mine = lost.take(topics[lost.queue])
    return mine.position.tolist(), mine.size.tolist()


def _text(offset: int, as_list: bool) -> bytes:
    return b"%d," % offset if as_list else b"%d" % offset


def _decided(log: CommitLog) -> tuple[set[int], set[int]]:
    """Positions of committed half messages; half queue offsets that op records name."""
    committed: set[int] = set()
    named: set[int] = set()
    for item in log.scan():
        if not isinstance(item, Batch) or item.mark > Mark.AFTER_DAMAGE:
            continue
        columns = item.columns
        state = columns.ints("sys_flag") & TRANSACTION_MASK
        positions = columns.ints("prepared_transaction_offset")[state == SysFlag.COMMIT]
        committed |= set(positions[positions > 0].tolist())
        topic = columns.ragged("topic")
        same_length = np.flatnonzero(topic.length == len(OP_TOPIC))
        for row in same_length.tolist():
            if topic[row] == OP_TOPIC.encode():
                texts = columns.ragged("body")[row].split(b",")
                named |= {
                    int(text) for text in texts if text.isdigit() and len(text) <= _DIGITS_MAX
                }
    return committed, named
