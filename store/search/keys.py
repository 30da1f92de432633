"""Where the messages with many unique keys lie: by the index, and one scan for what it lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from ...formats.message_properties import UNIQ_KEY
from ...formats.property_columns import Items
from ..counted import counted
from ..errors import NotFound
from ..log.batch import Batch
from ..log.record_status import Mark
from .found import Note, Via
from .inner_batch import unwrapped
from .selection import utf8
from .store import Store

Key = tuple[str, str | None]
"""A unique key, and the topic of the message or None for any."""
Places = dict[Key, tuple[int, int, Via]]
"""Position of the record; number of the message inside of it, -1 for the record; how it was found."""


def places_of_keys(store: Store, keys: Iterable[Key], note: Note) -> Places:
    """Where the first message with each key is, and how it was found; none for those not found.

    The index is asked first. The log is scanned once for the others, until all are found: those of
    messages inside of batch records are in no index. Memory: that of the keys. Raises Unreadable.
    """
    wanted = dict.fromkeys(keys)
    places: Places = {}
    for key in wanted:
        if (position := _by_index(store, key)) is not None:
            places[key] = position, -1, Via.INDEX
    rest = [key for key in wanted if key not in places]
    if rest:
        what = counted(len(rest), "unique key is", "unique keys are")
        note(f"{what} not in the index: scanning the log")
        places.update(_by_scan(store, rest))
    return places


def _by_index(store: Store, key: Key) -> int | None:
    """Position of the first message with a key that the index leads to."""
    unique_key, topic = key
    topics = store.topics if topic is None else [topic]
    hits = {
        hit.physical_offset for name in topics for hit in store.index.query(name, unique_key).hits
    }
    end = store.log_end.position
    for position in sorted(hit for hit in hits if store.log_files.start <= hit < end):
        try:
            message = store.message_at(position)
        except NotFound:
            continue
        in_place = message.physical_offset == position
        if in_place and message.unique_key == unique_key and topic in (None, message.topic):
            return position
    return None


def _by_scan(store: Store, keys: list[Key]) -> Places:
    """Positions of the first messages with the keys, by one pass over the log."""
    left = {utf8(unique_key): list[Key]() for unique_key, _ in keys}
    for key in keys:
        left[utf8(key[0])].append(key)
    places: Places = {}
    for batch in chain.from_iterable(map(_and_inside, _batches(store))):
        found = Items(batch.columns.ragged("properties")).find(UNIQ_KEY).tolist()
        for row in [row for row, text in enumerate(found) if text in left]:
            topic = batch.columns.ragged("topic")[row]
            taken = [key for key in left[found[row]] if key[1] is None or utf8(key[1]) == topic]
            for key in taken:
                number = -1 if batch.inner is None else int(batch.inner.number[row])
                places.setdefault(key, (int(batch.position[row]), number, Via.SCAN))
        if len(places) == len(keys):
            break
    return places


def _and_inside(records: Batch) -> Iterator[Batch]:
    """Records, and the messages inside of them where there are some."""
    yield records
    apart = unwrapped(records)
    if apart.inner is not None:
        yield apart.take(apart.inner.number >= 0)


def _batches(store: Store) -> Iterator[Batch]:
    """The records of the log, stale ones left out."""
    for item in store.log.scan(crc=False, reuse=True):
        store.scanned(item.size if not isinstance(item, Batch) else _size(item))
        if isinstance(item, Batch) and item.mark <= Mark.AFTER_DAMAGE:
            yield item


def _size(batch: Batch) -> int:
    return batch.end - int(np.min(batch.position))
