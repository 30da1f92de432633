"""What lost op records of transactions said, as far as the log proves it (spec 9.9.3).

A committed half message has a record with its position in `prepared_transaction_offset`. One that
no surviving op record names was named by a lost one: its tombstone says it again. Otherwise the broker
would ask for that transaction again and deliver the message twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...formats.derive import Columns
from ...formats.message import TRANSACTION_MASK, SysFlag
from ..log.batch import Batch
from ..log.commit_log import CommitLog
from ..log.record_status import Mark
from .fill import Fill
from .lost_units import LostUnits
from .tombstones import HALF_TOPIC, NO_OFFSET, OP_TOPIC, Forms

Ints = npt.NDArray[np.int64]
_LIST_SINCE = "5"
"""Brokers write several offsets in one op record since 5.0."""
_DIGITS_END = 19
"""Fewer digits than that are a queue offset."""


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
    found = _Transactions()
    found.read(log)
    halves = np.array([queue.topic == HALF_TOPIC for queue in lost.queues])
    gone = lost.take(halves[lost.queue])
    waiting = found.waiting(gone.position, gone.queue_offset)
    new = bool(forms.generations) and all(g >= _LIST_SINCE for g in forms.generations)
    as_list = new or found.lists
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


class _Transactions:
    """What the log says of half messages: int64[n] each, in log order.

    committed: positions of those that were. halves: positions and queue offsets. named: queue
    offsets that op records name; lists: some of these name several.
    """

    def __init__(self) -> None:
        nothing = np.zeros(0, np.int64)
        self.committed, self.named = [nothing], [nothing]
        self.halves, self.offsets = [nothing], [nothing]
        self.lists = False

    def read(self, log: CommitLog) -> None:
        """Read the whole log. Raises Unreadable."""
        for item in log.scan(reuse=True):
            if isinstance(item, Batch) and item.mark <= Mark.AFTER_DAMAGE:
                good = np.ones(len(item), np.bool_)
                self._take(item.take(good if item.body_crc_ok is None else item.body_crc_ok))

    def _take(self, batch: Batch) -> None:
        columns = batch.columns
        state = columns.ints("sys_flag") & TRANSACTION_MASK
        positions = columns.ints("prepared_transaction_offset")[state == SysFlag.COMMIT]
        self.committed.append(positions.astype(np.int64))
        half = _has_topic(columns, HALF_TOPIC)
        self.halves.append(batch.position[half])
        self.offsets.append(columns.ints("queue_offset")[half].astype(np.int64))
        for row in _has_topic(columns, OP_TOPIC).tolist():
            texts = columns.ragged("body")[row].split(b",")
            self.lists |= len(texts) > 1
            digits = [int(text) for text in texts if text.isdigit() and len(text) < _DIGITS_END]
            self.named.append(np.array(digits, np.int64))

    def waiting(self, gone: Ints, gone_offsets: Ints) -> list[int]:
        """Queue offsets of halves that were committed, those that are `gone` too, and that no op
        record names, rising.
        """
        positions = np.concatenate([*self.halves, gone])
        offsets = np.concatenate([*self.offsets, gone_offsets])
        decided = offsets[np.isin(positions, np.concatenate(self.committed))]
        left: list[int] = np.setdiff1d(decided, np.concatenate(self.named)).tolist()
        return left


def _has_topic(columns: Columns, topic: str) -> Ints:
    """Rows of records of a topic."""
    wanted, topics = topic.encode(), columns.ragged("topic")
    rows = np.flatnonzero(topics.length == len(wanted)).tolist()
    return np.array([row for row in rows if topics[row] == wanted], np.int64)
