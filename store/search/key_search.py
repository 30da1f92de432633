"""Messages found by key: through the index, and by scanning what the index does not cover.

An index hit is only a candidate: the record itself must have the topic and the key. Ranges of the
log that no sound index file covers are scanned; where all this finds nothing, the rest is, too. The
index has the keys of a record, not those of the messages inside of it: the records of batch queues
are read.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from operator import attrgetter

from ..counted import counted
from ..index.read import Answer
from ..queues.places import Places, batches, merged
from ..queues.read import queue_directories
from .batch_search import batch_places, open_batch_queue
from .found import Found, Note, Via
from .log_search import Range, found_in, search_log
from .selection import Selection, matches
from .store import Store


def search_key(
    store: Store, selection: Selection, *, reverse: bool = False, note: Note
) -> Iterator[Found]:
    """Messages with the key or unique key that the selection names, in log order."""
    key = selection.key or selection.unique_key
    if key is None:
        raise ValueError("a search by key needs a key")
    answer = _ask(store, selection, key)
    start, end = store.log_files.start, store.log_end.position
    gaps = uncovered(start, end, _covered(store, answer, end))
    seen: set[tuple[int, int]] = set()
    positions = (hit.physical_offset for hit in answer.hits)
    places = Places.of(p for p in positions if start <= p < end).sorted(reverse=reverse)
    every = heapq.merge(
        _records(store, selection, places, Via.INDEX, reverse),
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
            note(f"the index does not have it: scanning {counted(size, 'byte')} of the log")
            yield from search_log(store, selection, ranges=rest, reverse=reverse, note=note)


def _in_batches(store: Store, selection: Selection, reverse: bool) -> Iterator[Found]:
    """What the records hold that the batch queues name, in log order."""
    streams = [
        batch_places(
            store, open_batch_queue(store, queue.topic, queue.queue_id), selection, reverse=reverse
        )
        for queue in queue_directories(store.layout.batch_consume_queue)
        if selection.topic is None or matches(queue.topic, selection.topic)
    ]
    for places in merged(streams, reverse=reverse):
        for found in _records(store, selection, places, Via.QUEUE, reverse):
            yield found._replace(via=Via.SCAN)


def _ask(store: Store, selection: Selection, key: str) -> Answer:
    """What the index says of a key in one topic, or in every topic that has a directory."""
    topic = selection.one_topic
    topics = store.topics if topic is None else [topic]
    if topic is None and selection.topic is not None:
        topics = [name for name in topics if matches(name, selection.topic)]
    answer = Answer()
    store.searched.index_files = len(store.index.files)
    store.searched.index_items = sum(file.last for file in store.index.files)
    for name in topics:
        part = store.index.query(name, key)
        answer.hits += part.hits
        answer.damaged += part.damaged
    return answer


def _covered(store: Store, answer: Answer, log_end: int) -> list[Range]:
    """From the first to the last record of each file that can be trusted.

    A file that goes on behind the end of the log is left from before the log was cut; a broker puts
    no record in it until the log is as long again (spec 3.4).
    """
    damaged = {file.path for file in answer.damaged}
    headers = [
        file.header
        for file in store.index.files
        if file.last and file.consistent and file.path not in damaged
    ]
    return [
        (h.begin_physical_offset, h.end_physical_offset)
        for h in headers
        if h.end_physical_offset < log_end
    ]


def _records(
    store: Store, selection: Selection, places: Places, via: Via, reverse: bool
) -> Iterator[Found]:
    """The wanted ones of the messages at some places, in the order of these."""
    for _, batch in batches(store.log, places):
        store.searched.add_batch(via, batch)
        yield from found_in(selection.wanted(batch, last_first=reverse), via)


def uncovered(start: int, end: int, covered: list[Range]) -> list[Range]:
    """Parts of start ≤ p < end outside the ranges begin ≤ p < stop, in order."""
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
