"""Find the message that an operator means: by key, unique key, message id, or place in log or queue.

A text that looks like a position is a position if a record begins there, else a key. The same holds for ids, and for
places in queues that are missing or cannot be read: the log is scanned for these first. For a key the log is read at
most once: if the index has the key, only what the index lacks.

A place without a readable record has expired (before the log's start), was cut off or never existed (behind its end),
has no record that begins there, or is damaged, as a scan tells (`judgement_of`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from ..counted import counted
from ..errors import InvalidInput, NotFound, StoreError
from ..log.commit_log import Batch
from ..log.message import Mark, Message
from ..search.find import Address, Finder, parse_address
from ..search.key_search import search_key
from ..search.log_search import search_log
from ..search.selection import Selection, matches
from ..search.store import FoundMessage, Note, StoreReader, Via
from .answer import By, DeliveryVerdict, Evidence, Judgement
from .family import Family, families, identity, inner_number, naming, only

MOST_RECORDS = 10_000
"""At most this many records with one key are shown."""


class TraceTarget(NamedTuple):
    """What is asked for. by: None if the text has to tell. topic: of the message, or a pattern."""

    text: str
    by: By | None = None
    topic: str | None = None


class PlaceWithoutRecord(NamedTuple):
    """A place without a readable record that was asked for, or that the index names.

    named_by: files of the index and of queues that name the place. by_key: the index led there.
    """

    position: int | None
    why: str
    address: Address | None = None
    named_by: tuple[str, ...] = ()
    by_key: bool = False


class Located(NamedTuple):
    """What was found: messages, or else places without a record."""

    families: list[Family]
    gone: list[PlaceWithoutRecord]


def locate(store: StoreReader, asked: TraceTarget, note: Note) -> Located:
    """Return the messages that are meant, in log order. Raises InvalidInput, Unreadable."""
    if not asked.text:
        raise InvalidInput("give a key, an id or a position")
    address, of_topic = _address(store, asked), Selection(topic=asked.topic).of_queues(store.layout)
    gone: list[PlaceWithoutRecord] = []
    topic = address.topic if address is not None else None
    sure = asked.by is not None or (topic is not None and topic in store.topics)
    if address is not None:
        try:
            given = _at(store, address, note)
        except NotFound as error:
            if topic is None or sure:  # otherwise it may be a key
                gone = [PlaceWithoutRecord(address.position, str(error), address)]
            if sure and (stored := _without_unit(store, address, note)) is not None:
                return Located(_around(store, asked, stored, note), [])
            if sure or _is_named(store, address, asked):
                return Located([], gone)
        else:
            around = only(_around(store, asked, given, note), of_topic)
            if around or asked.by is not None:
                return Located(around, [])
    by = By.UNIQUE_KEY if asked.by is By.UNIQUE_KEY else By.KEY
    found = families(_records(store, asked.text, by, note), _found_by(asked))
    if found:
        return Located(only(found, of_topic), [])
    return Located([], gone or list(_hits(store, asked)))


def _without_unit(store: StoreReader, address: Address, note: Note) -> tuple[Message, str] | None:
    """Return a message by its place in a queue where consumers do not get it: from the unit if compaction has left it
    out, else by a scan of the log.
    """
    topic, queue_id, offset = address.topic, address.queue_id, address.queue_offset
    if topic is None or queue_id is None or offset is None:
        return None
    with suppress(NotFound), store.queues.open(topic, queue_id) as queue:
        return store.message_of_unit(queue, offset), Via.QUEUE.value
    wanted = Selection(topic=topic, queue_id=queue_id)
    note(f"no unit of {topic}/{queue_id} leads to message {offset}: scanning the log")
    found = next(search_log(store, wanted, offsets=(offset, offset + 1), note=note), None)
    return None if found is None else (found.message, found.via.value)


def _is_named(store: StoreReader, address: Address, asked: TraceTarget) -> bool:
    """Whether a unit names the place: then the number is no key."""
    at = address.position
    if at is None or not store.log_files.start <= at < store.log_files.end:
        return False
    return any(naming(store, at, asked.topic))


def _found_by(asked: TraceTarget) -> str:
    if asked.by is not None:
        return asked.by.value
    address = _parsed(asked.text)
    return (By.UNIQUE_KEY if address is not None and address.unique_key else By.KEY).value


def _parsed(text: str) -> Address | None:
    if text.startswith("{"):
        return None
    try:
        return parse_address(text)
    except InvalidInput:
        return None


def _address(store: StoreReader, asked: TraceTarget) -> Address | None:
    """Return the place that the text names, None for a key. Raises InvalidInput."""
    by, address = asked.by, _parsed(asked.text)
    if by in (By.KEY, By.UNIQUE_KEY):
        return None
    if by is By.MESSAGE_ID:
        return Address(message_id=asked.text)
    if address is None or (address.unique_key and not address.message_id):
        if by is not None:
            raise InvalidInput(f"not a {by.value}: {asked.text[:80]!r}")
        return None
    if address.topic is not None:
        # without queues topics cannot be told from other words
        known = by is By.QUEUE or address.topic in store.topics or store.topic_unread(address.topic)
        return address if known and by in (None, By.QUEUE) else None
    if by is By.QUEUE or (by is By.POSITION and address.position is None):
        raise InvalidInput(f"not a {by.value}: {asked.text[:80]!r}")
    return Address(message_id=asked.text) if address.message_id else address


def _at(store: StoreReader, address: Address, note: Note) -> tuple[Message, str]:
    """Return the message at an address and how it was found. Raises NotFound."""
    with Finder(store, note) as finder:
        (found,) = finder.find([address])
    if isinstance(found, NotFound):
        raise found
    return found.message, found.via.value


def _around(store: StoreReader, asked: TraceTarget, given: tuple[Message, str], note: Note) -> list[Family]:
    """Return the message of a record, with all its other records."""
    message, via = given
    by = asked.by.value if asked.by else _shape(asked.text)
    key = message.unique_key
    rows = [(message, via)]
    if key is not None or message.keys:
        way = By.UNIQUE_KEY if key is not None else By.KEY
        rows += [
            row
            for row in _records(store, key or message.keys[0], way, note)
            if identity(row[0]) == identity(message)
            and (row[0].position != message.position or inner_number(row[0]) not in (-1, inner_number(message)))
        ]
    return families(rows, by, message)


def _shape(text: str) -> str:
    address = _parsed(text)
    if address is not None and address.position is not None:
        return By.POSITION.value
    queue = address is not None and address.topic is not None
    return (By.QUEUE if queue else By.MESSAGE_ID).value


def _records(store: StoreReader, key: str, by: By, note: Note) -> Iterator[tuple[Message, str]]:
    """Yield records with a key, MOST_RECORDS at most, and how each was found."""
    selection = Selection(unique_key=key) if by is By.UNIQUE_KEY else Selection(key=key)
    found: Iterator[FoundMessage] = search_key(store, selection, note=note)
    for one in islice(found, MOST_RECORDS):
        if one.message.mark <= Mark.AFTER_DAMAGE:
            yield one.message, one.via.value
    if next(found, None) is not None:
        note(f"more than {counted(MOST_RECORDS, 'record')} have the key: the others are not shown")


def _hits(store: StoreReader, asked: TraceTarget) -> Iterator[PlaceWithoutRecord]:
    """Yield places that the index names for a key, but where no record can be read."""
    seen = set()
    for topic in store.named_topics:
        if asked.topic is not None and not matches(topic, asked.topic):
            continue
        for hit in store.index.query(topic, asked.text).hits:
            if hit.physical_offset in seen:
                continue
            seen.add(hit.physical_offset)
            try:
                store.message_at(hit.physical_offset)
            except StoreError as error:
                where = f"{hit.file.path} item {hit.number}"
                address = Address(position=hit.physical_offset, topic=topic)
                yield PlaceWithoutRecord(hit.physical_offset, error.message, address, (where,), by_key=True)


_BEFORE = 64 << 10
"""A scan begins this far before the place, but not before the start of its file."""


def judgement_of(store: StoreReader, gone: PlaceWithoutRecord) -> Judgement | None:
    """Return the judgement on the place; None if it is inside a whole record, or if nothing shows that there ever was a
    record. Raises Unreadable.
    """
    position = gone.position
    item, unit = "an index item names this place, by the hash of its key", "a queue unit names this place"
    facts = tuple(Evidence(item if gone.by_key else unit, where) for where in gone.named_by)
    if position is None:
        return _of_queue(store, gone)
    log = store.log_files
    start, end = log.start, store.log_end.position
    if position < start:
        reason = f"it has expired: the log begins at {start}"
        return Judgement(DeliveryVerdict.GONE, reason, (*facts, Evidence(f"the log begins at {start}", "commitlog")))
    if position >= end:
        if not gone.named_by:
            return None
        reason = f"the message was cut off: the log ends at {end}"
        return Judgement(DeliveryVerdict.GONE, reason, (*facts, Evidence(f"the log ends at {end}", "commitlog")))
    what = _seen_at(store, position)
    if what is None:
        return None
    fact = Evidence(what, f"commitlog at {position}")
    return Judgement(DeliveryVerdict.UNREADABLE, "its record cannot be read", (*facts, fact))


def _of_queue(store: StoreReader, gone: PlaceWithoutRecord) -> Judgement | None:
    """Judge a place in a queue whose unit or record is missing."""
    address = gone.address
    if address is None or address.topic is None or address.queue_offset is None:
        return None
    queue = (address.topic, address.queue_id)
    ends = next((one for one in store.queue_summaries if (one.topic, one.queue_id) == queue), None)
    name, offset = f"{address.topic}/{address.queue_id}", address.queue_offset
    if ends is None or offset >= ends.max_offset:
        return None
    if offset < ends.min_offset:
        fact = Evidence(f"{name} begins at {ends.min_offset}", "consumequeue")
        return Judgement(DeliveryVerdict.GONE, "it has expired", (fact,))
    return Judgement(DeliveryVerdict.UNREADABLE, "its queue unit leads to no record", (Evidence(gone.why, name),))


def _seen_at(store: StoreReader, position: int) -> str | None:
    """Return what lies at a place of the log; None if it is inside a whole record."""
    file = store.log_files.file_at(position)
    if file is None:
        return "a file of the log is missing"
    for item in store.log.scan(max(file.start, position - _BEFORE), position + 1, crc=False):
        if isinstance(item, Batch):
            inside = (item.position <= position) & (position < item.position + item.columns.ints("total_size"))
            if inside.any() and position not in item.position.tolist():
                return None
        elif item.position <= position < item.end:
            return f"{item.kind.value}: {item.reason}" if item.reason else item.kind.value
    return "no record begins here"
