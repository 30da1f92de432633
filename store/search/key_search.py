"""Messages by key: through the index, and by scanning what the index does not cover.

An index hit is only a candidate: the record itself must have the topic and the key. Ranges of the log without a sound
index file are scanned; if that finds nothing, the rest is scanned too, also for the ids of messages of a batch, which
brokers 5.1 and 5.3 store, but do not index (B13). The index hashes a key together with its topic: if not all topics are
known, the whole log is scanned. That a topic was deleted shows nowhere: its messages are found only with their topic.
The index has the keys of a record, not those of the messages inside it: so records in batch queues are read.

`places_of_keys` finds the places of many unique keys: by the index, and one scan for those it lacks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter

from ...formats.hashing import utf8
from ...formats.message_properties import UNIQ_KEY
from ...formats.property_columns import PropertyItems
from ..counted import counted
from ..disk.layout import queue_directories
from ..errors import NotFound
from ..index.read import Answer, IndexFile
from ..log.batch import Batch, unwrapped
from ..log.commit_log import RecordPlaces, batches, merged
from .log_search import Range, found_in, search_log
from .queue_search import batch_places, open_batch_queue
from .selection import Selection, Slice, matches
from .store import FoundMessage, Note, StoreReader, Via, silent

_CHECKED = 4096
"""Up to this many hits are read before the first message is given: where one leads to no record, the log is scanned."""


def search_key(
    store: StoreReader, selection: Selection, *, reverse: bool = False, note: Note
) -> Iterator[FoundMessage]:
    """Messages with the key or unique key in the selection, in log order."""
    key = selection.key or selection.unique_key
    if key is None:
        raise ValueError("a search by key needs a key")
    selection = selection.of_queues(store.layout)
    answer = _query_index(store, selection, key)
    start, end = store.log_files.start, store.log_end.position
    places = RecordPlaces.of(p for p in _positions(answer) if start <= p < end).sorted(reverse=reverse)
    answer.damaged += _misled(store, answer, places)
    covered = _covered(store, answer, end)
    if covered and _indexed_topic(selection) is None and (why := store.queues_unread):
        note(f"{why}, but the index needs a topic for a key: scanning the log")
        covered = []
    gaps = uncovered(start, end, covered)
    seen: set[tuple[int, int]] = set()
    every = heapq.merge(
        _records(store, selection, places, Via.INDEX, reverse, note),
        search_log(store, selection, ranges=gaps, reverse=reverse, note=note),
        _in_batches(store, selection, reverse),
        key=attrgetter("place"),
        reverse=reverse,
    )
    for found in every:
        if found.place not in seen:
            seen.add(found.place)
            yield found
    if not seen:
        rest = uncovered(start, end, gaps)
        if rest:
            size = sum(stop - begin for begin, stop in rest)
            note(f"the key is not in the index: scanning {counted(size, 'byte')} of the log")
            yield from search_log(store, selection, ranges=rest, reverse=reverse, note=note)


def _in_batches(store: StoreReader, selection: Selection, reverse: bool) -> Iterator[FoundMessage]:
    """Messages in the records that batch queues point at, in log order."""
    streams = [
        batch_places(store, open_batch_queue(store, queue.topic, queue.queue_id), selection, Slice(reverse=reverse))
        for queue in queue_directories(store.layout.batch_consume_queue)
        if selection.topic is None or matches(queue.topic, selection.topic)
    ]
    for places in merged(streams, reverse=reverse):
        for found in _records(store, selection, places, Via.QUEUE, reverse, silent):
            yield found._replace(via=Via.SCAN)


def _query_index(store: StoreReader, selection: Selection, key: str) -> Answer:
    """The index answers for a key, in one topic or in every known topic."""
    topic = _indexed_topic(selection)
    topics = store.named_topics if topic is None else [topic]
    if topic is None and selection.topic is not None and selection.further is None:
        topics = [name for name in topics if matches(name, selection.topic)]
    store.searched.index_files = len(store.index.files)
    store.searched.index_items = sum(file.last for file in store.index.files)
    return _answer(store, topics, key)


def _answer(store: StoreReader, topics: Iterable[str], key: str) -> Answer:
    """The index answers for a key in several topics."""
    answer = Answer()
    for name in topics:
        part = store.index.query(name, key)
        answer.hits += part.hits
        answer.damaged += part.damaged
    return answer


def _positions(answer: Answer) -> Iterator[int]:
    return (hit.physical_offset for hit in answer.hits)


def _misled(store: StoreReader, answer: Answer, places: RecordPlaces) -> set[IndexFile]:
    """The files whose items for a key lead to no record. places: those in the log that the items name; many are not
    read here, but noted when they are (`_records`).

    In front of the log the records of a file may have expired.
    """
    named, found = set(places.position.tolist()), set[int]()
    for _, batch in batches(store.log, places) if len(places) <= _CHECKED else ():
        found.update(batch.position.tolist())
    found = found if len(places) <= _CHECKED else named
    lost = (hit for hit in answer.hits if hit.physical_offset not in found)
    return {hit.file for hit in lost if hit.physical_offset in named or hit.is_outside}


def _indexed_topic(selection: Selection) -> str | None:
    """The topic under which the index has the key, None for any: an LMQ has messages of other topics."""
    return selection.one_topic if selection.further is None else None


def _covered(store: StoreReader, answer: Answer, log_end: int) -> list[Range]:
    """The range from the first to the last record of each index file that can be trusted.

    A file that reaches past the end of the log is from before the log was truncated; a broker adds no record to it
    until the log is as long again (spec 3.4).
    """
    damaged = {file.path for file in answer.damaged}
    headers = [file.header for file in store.index.files if file.last and file.consistent and file.path not in damaged]
    return [(h.begin_physical_offset, h.end_physical_offset) for h in headers if h.end_physical_offset < log_end]


def _records(
    store: StoreReader, selection: Selection, places: RecordPlaces, via: Via, reverse: bool, note: Note
) -> Iterator[FoundMessage]:
    """The wanted messages at some places, in the order of the places."""
    lost = len(places) <= _CHECKED  # the range of their files is scanned
    for named, batch in batches(store.log, places):
        if not lost and len(batch) < len(named):
            note("items of the index lead to no record: `mqstore dump --key` finds messages that are left out")
            lost = True
        store.searched.add_batch(via, batch)
        yield from found_in(selection.wanted(batch, last_first=reverse), via)


def uncovered(start: int, end: int, covered: list[Range]) -> list[Range]:
    """The parts of start ≤ p < end outside the ranges begin ≤ p < stop, in order."""
    gaps = []
    at = start
    for begin, stop in sorted(covered):
        if begin > at:
            gaps.append((at, min(begin, end)))
        at = max(at, stop)
        if at >= end:
            return gaps
    gaps.append((at, end))
    return gaps


Key = tuple[str, str | None]
"""A unique key, and the topic of the message or None for any."""
KeyPlaces = dict[Key, tuple[int, int, Via]]
"""By key: position of the record; number of the message inside it, -1 for the record itself; how it was found."""


def places_of_keys(store: StoreReader, keys: Iterable[Key], note: Note) -> KeyPlaces:
    """Find the first message with each key; keys without one are not in the result.

    The index is asked first. One scan of the log finds the others, and ends when all are found; keys of messages inside
    batch records are in no index. Memory: that of the keys. Raises Unreadable.
    """
    wanted = dict.fromkeys(keys)
    places: KeyPlaces = {}
    for key in wanted:
        if (position := _by_index(store, key)) is not None:
            places[key] = position, -1, Via.INDEX
    for key, place in _before_index(store, places).items():
        places[key] = min(place, places[key])
    rest = [key for key in wanted if key not in places]
    if rest:
        what = counted(len(rest), "unique key is", "unique keys are")
        unsure = any(topic is None for _, topic in rest) and store.queues_unread
        note(f"{what} not {'certain by' if unsure else 'in'} the index: scanning the log")
        places.update(_by_scan(store, rest, [(store.log_files.start, store.log_files.end)]))
    return places


def _by_index(store: StoreReader, key: Key) -> int | None:
    """The position of the first message with a key, by the index; None if there is none, or the index is not sure."""
    unique_key, topic = key
    if topic is None and store.queues_unread:
        return None  # the first may be of a topic that is not known
    answer, found = _answer(store, store.named_topics if topic is None else [topic], unique_key), list[int]()
    start, end = store.log_files.start, store.log_end.position
    for hit in answer.hits:
        try:
            message = store.message_at(hit.physical_offset) if start <= hit.physical_offset < end else None
        except NotFound:
            return None
        if message is None:
            if hit.is_outside:
                return None
        elif message.has_unique_key(unique_key) and topic in (None, message.topic):
            found += [message.position] if message.physical_offset == message.position else []
    return min(found, default=None) if not answer.damaged else None


def _before_index(store: StoreReader, places: KeyPlaces) -> KeyPlaces:
    """The first messages with keys that the index has, where it does not cover the log in front of those places."""
    if not places:
        return {}
    last = max(position for position, *_ in places.values())
    gaps = uncovered(store.log_files.start, last, _covered(store, Answer(), store.log_end.position))
    return _by_scan(store, list(places), [(start, stop) for start, stop in gaps if start < stop])


def _by_scan(store: StoreReader, keys: list[Key], ranges: list[Range]) -> KeyPlaces:
    """The places of the first messages with the keys, by one pass over ranges of the log."""
    wanted: dict[bytes, list[Key]] = {}
    for key in keys:
        wanted.setdefault(utf8(key[0]), []).append(key)
    places: KeyPlaces = {}
    records = chain.from_iterable(store.good_records(start, stop) for start, stop in ranges)
    for batch in chain.from_iterable(map(_with_inner, records)):
        items = PropertyItems(batch.columns.ragged("properties"), [UNIQ_KEY])
        found = [*enumerate(items.find(UNIQ_KEY).tolist()), *items.repeated_values(UNIQ_KEY)]
        for row, text in sorted((row, text) for row, text in found if text in wanted):
            topic = batch.columns.ragged("topic")[row]
            matched = [key for key in wanted[text] if key[1] is None or utf8(key[1]) == topic]
            for key in matched:
                number = -1 if batch.inner is None else int(batch.inner.number[row])
                places.setdefault(key, (int(batch.position[row]), number, Via.SCAN))
        if len(places) == len(keys):
            break
    return places


def _with_inner(records: Batch) -> Iterator[Batch]:
    """Records, and then the messages inside them if there are any."""
    yield records
    apart = unwrapped(records)
    if apart.inner is not None:
        yield apart.take(apart.inner.number >= 0)
