"""Queues that a torn record named besides its own: their units tell (spec 2.9; 7.12, B27).

A message for several queues is one record; its properties name the further ones, with its number in
each. Their units go on naming the record: so the names are proved, and are put back. Without them
whoever makes these queues anew gives the message no place in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...formats.message_properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    ITEM_SEPARATOR,
    NAME_VALUE_SEPARATOR,
)
from ..broker.dispatch import LMQ_PREFIX
from ..disk.snapshot import QueueId, Snapshot
from .gaps import TornRecord, is_poison
from .lost_units import units_at

Further = Sequence[tuple[bytes, int]]
"""Names of queues, and the queue offset of a record in each."""
_NAMES, _OFFSETS = INNER_MULTI_DISPATCH.encode(), INNER_MULTI_QUEUE_OFFSET.encode()
_COMMA = b","


def further_queues(snapshot: Snapshot, records: Sequence[TornRecord]) -> Mapping[int, Further]:
    """By position of a record: what units of other queues prove. Raises Unreadable.

    Where no broker makes such units, none is looked for.
    """
    found: dict[int, dict[bytes, int]] = {record.position: {} for record in records}
    if not records or not snapshot.layout.options.multi_dispatch.value:
        return {}
    positions = np.array(sorted(found), np.int64)
    for queue in sorted(snapshot.queues):
        mine = {record.position: record for record in records if _may_name(record, queue)}
        if not mine:
            continue
        name = queue.topic.encode("utf-8", "surrogateescape")
        units = units_at(snapshot, queue, positions)
        rows = zip(
            units.position.tolist(), units.size.tolist(), units.queue_offset.tolist(), strict=True
        )
        for position, size, offset in rows:
            if position in mine and size == mine[position].size:
                found[position].setdefault(name, offset)
    return {position: list(names.items()) for position, names in found.items()}


def _may_name(record: TornRecord, queue: QueueId) -> bool:
    """A further queue has the number of the record's own, a light one 0."""
    topic = record.topic.decode("utf-8", "surrogateescape")
    light = queue.topic.startswith(LMQ_PREFIX)
    return queue.topic != topic and queue.queue_id == (0 if light else record.queue_id)


def with_further(text: bytes, further: Further, room: int, *, ended: bool) -> bytes:
    """A property text with these queues, as it is where they do not fit or where it names its own.

    room: bytes that it may have. ended: a separator has to end it.
    """
    items = [item for item in text.split(ITEM_SEPARATOR) if item]
    known = dict(item.split(NAME_VALUE_SEPARATOR, 1) for item in items)
    names, offsets = known.get(_NAMES, b""), known.get(_OFFSETS, b"")
    if not further or (names and offsets and not is_poison(names, offsets)):
        return text
    known[_NAMES] = _COMMA.join(name for name, _ in further)
    known[_OFFSETS] = _COMMA.join(b"%d" % offset for _, offset in further)
    made = b"".join(
        name + NAME_VALUE_SEPARATOR + value + ITEM_SEPARATOR for name, value in known.items()
    )
    if len(made) > room and not ended:
        made = made.removesuffix(ITEM_SEPARATOR)
    return made if len(made) <= room else text
