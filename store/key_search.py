"""Messages found by key: through the index, and by scanning what the index does not cover.

An index hit is only a candidate: the record itself must have the topic and the key. Ranges of the
log that no sound index file covers are scanned; where all this finds nothing, the rest is, too.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from operator import attrgetter

from .found import Found, Note, Via
from .index import Answer
from .log_search import Range, found_in, search_log
from .places import Places, batches
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
    seen: set[int] = set()
    positions = (hit.physical_offset for hit in answer.hits)
    places = Places.of(p for p in positions if start <= p < end).sorted(reverse=reverse)
    merged = heapq.merge(
        _indexed(store, selection, places),
        search_log(store, selection, ranges=gaps, reverse=reverse, note=note),
        key=attrgetter("message.position"),
        reverse=reverse,
    )
    for found in merged:
        if found.message.position not in seen:
            seen.add(found.message.position)
            yield found
    if not seen:
        rest = uncovered(start, end, gaps)
        if rest:
            size = sum(stop - begin for begin, stop in rest)
            note(f"the index does not have it: scanning {size} bytes of the log")
            yield from search_log(store, selection, ranges=rest, reverse=reverse, note=note)


def _ask(store: Store, selection: Selection, key: str) -> Answer:
    """What the index says of a key in one topic, or in every topic that has a directory."""
    topic = selection.one_topic
    topics = store.topics if topic is None else [topic]
    if topic is None and selection.topic is not None:
        topics = [name for name in topics if matches(name, selection.topic)]
    answer = Answer()
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


def _indexed(store: Store, selection: Selection, places: Places) -> Iterator[Found]:
    for _, batch in batches(store.log, places):
        yield from found_in(batch.take(selection.mask(batch)), Via.INDEX)


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
