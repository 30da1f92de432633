"""All records of one topic, in columns."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from ..counted import counted
from ..log.batch import Batch
from ..log.record_status import Mark
from ..queues.places import batches, of_queue
from ..search.found import Note
from ..search.selection import equal, utf8
from ..search.store import Store


def topic_records(store: Store, topic: str, note: Note) -> Iterator[Batch]:
    """Records of a topic: queue by queue, or in log order where the log has to be scanned.

    A batch is valid until the next one is asked for. note: told once where the log is scanned, and
    how many units point at no record. Raises Unreadable.
    """
    why = unreliable(store)
    if why:
        note(f"{topic}: {why}: scanning the log")
        yield from scanned(store, topic)
        return
    end, lost = store.log_end.position, 0
    for directory in store.queues.of_topic(topic):
        with store.queues.open(topic, directory.queue_id) as queue:
            ends = store.queue_summary(queue)
            for window in of_queue(queue, ends.min_offset, ends.max_offset, log_end=end):
                for places, batch in batches(store.log, window):
                    lost += len(places) - len(batch)
                    yield batch.take(equal(batch.columns.ragged("topic"), utf8(topic)))
    if lost:
        note(f"{topic}: {counted(lost, 'unit points', 'units point')} at no record")


def unreliable(store: Store) -> str:
    """Why queues may not have all messages, "" where they have."""
    if os.path.lexists(store.layout.abort):
        return "the broker did not shut down, queues may be behind"
    return store.queues_unread


def scanned(store: Store, topic: str) -> Iterator[Batch]:
    """Records of a topic by a scan of the log, stale ones left out."""
    for item in store.log.scan(crc=False, reuse=True):
        if isinstance(item, Batch) and item.mark <= Mark.AFTER_DAMAGE:
            own = equal(item.columns.ragged("topic"), utf8(topic))
            if own.any():
                yield item.take(np.flatnonzero(own).astype(np.int64))
