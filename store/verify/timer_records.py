"""What the log has of the timer topic: the columns that timer checks compare with (spec 04, 4.4)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...formats import message_properties as names
from ...formats.derive.ragged import Flags, Ints, Ragged
from ...formats.hashing_columns import java_hash_column
from ...formats.property_columns import Items
from ..broker.system_topics import TIMER_TOPIC
from ..columns import Rows, rows_of
from ..log.message import tombstones
from .context import Mergeable, Records, VerifyContext
from .register import of_records

_KEY = "timer records"
_HASH_BASE = np.uint32(31)
_BETWEEN = np.uint32(ord("+"))


class TimerColumns(Rows):
    """n records of the timer topic in log order.

    out_ms: TIMER_OUT_MS, NO_NUMBER without one. topic_hash: of REAL_TOPIC, 0 for none. cancels:
    it has TIMER_DEL_UNIQKEY. name: hash of what a cancel message would call it; target: hash of
    what it cancels. lost: it stands for a lost message.
    """

    position: Ints
    size: Ints
    queue_offset: Ints
    store_timestamp: Ints
    out_ms: Ints
    topic_hash: Ints
    cancels: Flags
    name: Ints
    target: Ints
    lost: Flags

    def at(self, positions: Ints) -> tuple[Ints, Flags]:
        """(row, known) of the record that begins at each position."""
        return rows_of(self.position, positions)


@dataclass
class _Parts(Mergeable):
    """Batches so far."""

    columns: list[TimerColumns] = field(default_factory=list)

    def merge(self, context: VerifyContext, left: _Parts) -> None:
        """Those of the part come later."""
        del context
        self.columns += left.columns


@of_records("I-133")
def note_timer_records(context: VerifyContext, records: Records) -> None:
    """Keep the columns of the records of the timer topic."""
    rows = records.of_topic(TIMER_TOPIC)
    if not len(rows):
        return
    from ..inspect.timer_records import BY_TOPIC, compared_by, numbers  # where there are timers

    batch = records.batch.take(rows)
    items = Items(batch.columns.ragged("properties"))
    topic, key = items.find(names.REAL_TOPIC), items.find(names.UNIQ_KEY)
    cancels = items.find(names.TIMER_DEL_UNIQKEY)
    topic_hash, name = java_hash_column(topic), java_hash_column(key).view(np.uint32)
    if compared_by(context.store) == BY_TOPIC:
        shift = _power(np.maximum(key.length, 0))
        name = (topic_hash.view(np.uint32) * _HASH_BASE + _BETWEEN) * shift + name
    size, queue_offset, time = (batch.columns.ints(n).astype(np.int64) for n in _STORED)
    parts = context.kept(_KEY, _Parts)
    parts.columns.append(
        TimerColumns(
            batch.position.copy(),
            size,
            queue_offset,
            time,
            numbers(items.find(names.TIMER_OUT_MS)),
            topic_hash.astype(np.int64),
            cancels.length >= 0,
            name.astype(np.int64),
            java_hash_column(cancels).view(np.uint32).astype(np.int64),
            tombstones(batch.columns) | _cancels_nothing(topic, cancels),
        )
    )


def _cancels_nothing(topic: Ragged, cancels: Ragged) -> Flags:
    """bool[n]: it cancels what has the name of its topic: a tombstone without room for its mark."""
    found: Flags = (cancels.length >= 0) & (cancels.length == topic.length)
    found &= java_hash_column(cancels) == java_hash_column(topic)
    return found


_STORED = ("total_size", "queue_offset", "store_timestamp")


def timer_columns(context: VerifyContext) -> TimerColumns:
    """All of them, once the log has been read."""
    parts = context.kept(_KEY, _Parts)
    parts.columns = [TimerColumns.concat(parts.columns)]
    return parts.columns[0]


def _power(exponent: Ints) -> npt.NDArray[np.uint32]:
    """The base of Java's string hash to these powers, modulo 2^32."""
    found = np.ones(len(exponent), np.uint32)
    square, left = _HASH_BASE, exponent.copy()
    with np.errstate(over="ignore"):
        while left.any():
            found = np.where(left & 1, found * square, found).astype(np.uint32)
            square, left = np.uint32(int(square) ** 2 & 0xFFFFFFFF), left >> 1
    return found
