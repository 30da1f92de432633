"""Check points, acknowledgements and what came back of POP, read from a broker's own topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats import message_properties as names
from ...formats import pop
from ...formats.derive.ragged import Ragged
from ...formats.property_columns import Items
from ..broker.delay_level import TIMER_TOPIC
from ..log.batch import Batch
from ..log.record_status import Mark
from ..search.found import Note
from ..search.selection import equal, utf8
from ..search.store import Store
from .topic_records import topic_records, unreliable

Mask = npt.NDArray[np.bool_]
Key = tuple[Any, ...]


@dataclass
class CheckPoint:
    """A check point. position: of its newest record. revived: its place in a revive topic (topic,
    queue, offset), None while only the timer topic has it.
    """

    fields: dict[str, Any]
    position: int
    revived: tuple[str, int, int] | None = None


@dataclass
class PopRecords:
    """What the topics of POP hold.

    acks: of each check point the queue offsets that were acknowledged. came_back: retry topic →
    unique key → positions. newest: revive queue → offset of its newest record. wrong: bodies that
    are none.
    """

    check_points: dict[Key, CheckPoint] = field(default_factory=dict)
    acks: dict[Key, set[int]] = field(default_factory=dict)
    came_back: dict[str, dict[bytes, list[int]]] = field(default_factory=dict)
    newest: dict[tuple[str, int], int] = field(default_factory=dict)
    wrong: int = 0


def pop_records(store: Store, note: Note) -> PopRecords:
    """Read all of them. Memory: what the topics hold. Raises Unreadable."""
    found = PopRecords()
    for batch in _batches(store, note):
        topics, items = batch.columns.ragged("topic"), Items(batch.columns.ragged("properties"))
        revive = _begins(topics, pop.REVIVE_TOPIC)
        waits = equal(topics, utf8(TIMER_TOPIC))
        waits &= _begins(items.find(names.REAL_TOPIC), pop.REVIVE_TOPIC)
        tags = items.find(names.TAGS)
        for row in np.flatnonzero(revive | waits).tolist():
            _add(found, batch, row, tags[row].decode("utf-8", "replace"), bool(revive[row]))
        again = _begins(topics, pop.RETRY_PREFIX) & (items.find(pop.FIRST_POP_TIME).length > 0)
        _add_returned(found, batch, np.flatnonzero(again).tolist(), items.find(names.UNIQ_KEY))
    return found


def _batches(store: Store, note: Note) -> Iterator[Batch]:
    """Records of the timer topic, of revive and of retry topics; in one scan where there is one."""
    if why := unreliable(store):
        note(f"pop: {why}: scanning the log")
        for item in store.log.scan(crc=False, reuse=True):
            if isinstance(item, Batch) and item.mark <= Mark.AFTER_DAMAGE:
                yield item
        return
    for topic in store.topics:
        if topic == TIMER_TOPIC or topic.startswith((pop.REVIVE_TOPIC, pop.RETRY_PREFIX)):
            yield from topic_records(store, topic, note)


def _begins(strings: Ragged, prefix: str) -> Mask:
    """bool[n]: the string begins with the prefix."""
    head = utf8(prefix)
    return equal(Ragged(strings.buffer, strings.start, np.minimum(strings.length, len(head))), head)


def _add(found: PopRecords, batch: Batch, row: int, tag: str, revived: bool) -> None:
    """A check point or an acknowledgement; of several records of one the newest counts."""
    columns, position = batch.columns, int(batch.position[row])
    place = None
    if revived:
        topic = columns.ragged("topic")[row].decode("utf-8", "replace")
        queue = (topic, int(columns.ints("queue_id")[row]))
        place = (*queue, int(columns.ints("queue_offset")[row]))
        found.newest[queue] = max(place[2], found.newest.get(queue, 0))
    fields = pop.parse(tag, columns.ragged("body")[row])
    if fields is None:
        found.wrong += 1
        return
    key = pop.key_of(fields)
    if tag == pop.ACK_TAG:
        found.acks.setdefault(key, set()).add(fields["ack_offset"])
    elif tag == pop.BATCH_ACK_TAG:
        found.acks.setdefault(key, set()).update(fields["ack_offsets"])
    else:
        old = found.check_points.get(key)
        if old is None or old.position < position:
            found.check_points[key] = CheckPoint(fields, position, place)


def _add_returned(found: PopRecords, batch: Batch, rows: list[int], keys: Ragged) -> None:
    topics = batch.columns.ragged("topic")
    for row in rows:
        topic = topics[row].decode("utf-8", "replace")
        mine = found.came_back.setdefault(topic, {})
        mine.setdefault(identity(batch, row, keys), []).append(int(batch.position[row]))


def identity(batch: Batch, row: int, keys: Ragged) -> bytes:
    """What a message keeps on its way through retry topics: its unique key, else time and CRC."""
    if keys.length[row] > 0:
        return keys[row]
    columns = batch.columns
    return b"%d %d" % (columns.ints("born_timestamp")[row], columns.ints("body_crc")[row])
