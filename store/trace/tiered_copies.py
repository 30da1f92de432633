"""Copies of a message in the segments of a tiered store (POSIX provider, 5.1 and later).

Each queue has segments of its own, `CLUSTER/BROKER/TOPIC/QUEUE/KIND/`: units by queue offset, and the
records that they name. They lie below tieredStoreFilePath, or below the store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from glob import escape
from pathlib import Path

from ..errors import StoreError
from ..log.message import Message
from ..log.one_record import read_message
from ..queues.read import ConsumeQueue
from ..search.store import Store
from ..tiered.segments import open_segments, tiered_roots
from .answer import Event, Kind

_LOG, _QUEUE = "COMMIT_LOG", "CONSUME_QUEUE"


def tiered_copies(store: Store, message: Message) -> Iterator[Event]:
    """An event for each copy. What cannot be read has none. Raises Unreadable."""
    for queue in _directories(store, message):
        log = queue.with_name(_LOG)
        copy = _copy(queue, log, message)
        if copy is not None:
            path = os.path.relpath(log, store.layout.root)
            text = f"a copy in the tiered store, at {copy.position} of its segments"
            place = (message.topic, message.queue_id, message.queue_offset)
            yield Event(Kind.TIERED, text, None, None, *place, path=path)


def _directories(store: Store, message: Message) -> list[Path]:
    """Segments of units of the message's queue, of whatever cluster and broker."""
    roots = tiered_roots(store.layout.root, store.config)
    place = f"*_*/*/{escape(message.topic)}/{message.queue_id}/{_QUEUE}"
    return [path for root in roots for path in sorted(root.glob(place)) if path.is_dir()]


def _copy(queue: Path, log: Path, message: Message) -> Message | None:
    """The record that the tiered queue has at the message's offset, if it is the same message."""
    try:
        with open_segments(queue) as units, open_segments(log) as records:
            unit = ConsumeQueue(message.topic, message.queue_id, units).unit(message.queue_offset)
            found = read_message(records, unit.physical_offset) if unit is not None else None
    except StoreError:
        return None
    if found is None or found.queue_offset != message.queue_offset:
        return None
    same = (found.unique_key, found.body_crc) == (message.unique_key, message.body_crc)
    return found if same else None
