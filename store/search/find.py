"""Finding messages in the cheapest way: by queue, by index or by scan; and many at once by their addresses.

Heavy modules are imported only when needed: one message is read by its queue offset before numpy would be imported
(`read_queue`; `queue_search` reads many, and a test checks that both agree).

An address, as in `get --addresses`, is a position in the log, an offset message id, a unique key, or a place in a
queue, and gets one answer. Keys are looked up in the index; one scan of the log finds all that the index lacks. The
position and the ids of a batch record lead to the record as stored; a message inside it has its own unique key and
place in a queue.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ..errors import InvalidInput, NotFound
from ..log.message import Message
from ..queues.read import ConsumeQueue
from .selection import Selection, Slice
from .store import FoundMessage, Note, StoreReader, Via, no_message, other_place, silent

if TYPE_CHECKING:
    from .key_search import KeyPlaces


def find(
    store: StoreReader,
    selection: Selection,
    *,
    offset: int | None = None,
    count: int | None = None,
    reverse: bool = False,
    note: Note = silent,
) -> Iterator[FoundMessage]:
    """The messages that a selection describes, in log order; of a single queue in queue order.

    offset, count: queue offsets offset ≤ k < offset + count of the queue in the selection. Without offset, or with
    further conditions and a count above 1: the first `count` wanted messages. For a compaction topic: the first `count`
    that are left from offset on. reverse: last message first. note: called with one line for damage and for a fallback
    taken.

    A key or unique key is looked up in the index, and scanned for where the index does not cover the log. A topic is
    read through its queues. Everything else, also a pattern of topics, is a scan of the log files that the times allow.
    Raises NotFound for an unknown topic, queue or offset, Unreadable.

    >>> from mqstore.store.search.selection import Selection
    >>> [found.message.queue_offset for found in find(store, Selection(key="key28"))]
    [3]
    """
    if selection.key is not None or selection.unique_key is not None:
        from .key_search import search_key

        return search_key(store, selection, reverse=reverse, note=note)
    if selection.one_topic is None:
        from .log_search import search_log

        return search_log(store, selection, most=count, reverse=reverse, note=note)
    if count is None or (offset is not None and (count == 1 or not selection.asks_more)):
        return _search_queues(store, selection, Slice(offset, count, reverse), note)
    first = islice(_search_queues(store, selection, Slice(offset), note), count)
    return reversed([*first]) if reverse else first


def _search_queues(store: StoreReader, selection: Selection, part: Slice, note: Note) -> Iterator[FoundMessage]:
    """The messages of one topic, through its queues of any kind, or by a scan."""
    topic = selection.one_topic
    assert topic is not None
    if store.has_compaction_queues(topic):
        from .queue_search import is_compaction_topic, search_compaction

        if is_compaction_topic(store, topic):
            return search_compaction(store, selection, part, note)
        note(f"{topic} is no longer a compaction topic: compaction/ is not read")
    if not store.queues_problem and store.has_batch_queues(topic):
        return _search_batches(store, selection, part, note)

    few = part.offset is not None and part.length is not None and part.length <= MOST
    why = store.topic_unread(topic)
    if not why and few and not store.layout.rocksdb_queues:
        return _read_few(store, selection, part, note)
    if not why and few and (found := _read_few_complete(store, selection, part, note)) is not None:
        return found
    if why := why or store.units_in_memory or _empty_queue_text(store, topic, selection.queue_id):
        from .log_search import search_log_queue

        note(f"{why}: scanning the log")
        return search_log_queue(store, selection, part, note)
    from .queue_search import search_queues

    try:
        return search_queues(store, selection, part, note)
    except NotFound as error:
        if selection.queue_id is None or not store.queues.has_topic(topic):
            raise
        return _scan_without_units(store, selection, part, error, note)


def _search_batches(store: StoreReader, selection: Selection, part: Slice, note: Note) -> Iterator[FoundMessage]:
    """The messages of one topic, through its batch queues; by a scan if a queue has no unit for the first one."""
    from .log_search import search_log_queue
    from .queue_search import search_batch_queues

    if why := _empty_queue_text(store, selection.topic or "", selection.queue_id):
        note(f"{why}: scanning the log")
        yield from search_log_queue(store, selection, part, note)
        return
    try:
        yield from search_batch_queues(store, selection, part, note)
    except NotFound as error:  # comes before any message
        yield from _scan_without_units(store, selection, part, error, note)


def _empty_queue_text(store: StoreReader, topic: str, queue_id: int | None) -> str:
    """Say that a queue exists without a unit; "" if it has one, or does not exist."""
    if queue_id is None or queue_id not in store.empty_queues(topic, queue_id):
        return ""
    return f"queue {queue_id} of {topic} has no unit"


def _read_few(store: StoreReader, selection: Selection, part: Slice, note: Note) -> Iterator[FoundMessage]:
    """Messages of one queue, read one by one; by a scan if the queue has no unit for the first one."""
    offset, count = part.offset or 0, part.length or 0
    if selection.topic is None or selection.queue_id is None:
        raise ValueError("an offset needs a topic and a queue")
    try:
        read = [*read_queue(store, selection.topic, selection.queue_id, offset, count, note)]
    except NotFound as error:
        if store.units_in_memory:
            raise
        yield from _scan_without_units(store, selection, part, error, note)
        return
    if not read:  # the reason is noted already
        why = NotFound(f"unit {offset} of {selection.topic}/{selection.queue_id} names no message")
        with suppress(NotFound):
            yield from _scan_without_units(store, selection, part, why, note)
        return
    in_order = reversed(read) if part.reverse else read
    found: Iterator[FoundMessage] = (one for one in in_order if selection.takes(one.message, in_queue=True))
    if len(read) < count:
        found = _with_rest(store, selection, found, Slice(offset + len(read), count - len(read), part.reverse), note)
    yield from found


def _with_rest(
    store: StoreReader, selection: Selection, found: Iterator[FoundMessage], part: Slice, note: Note
) -> Iterator[FoundMessage]:
    """`found`, and messages of the part after it that the queue lacks; or a note about those."""
    from .log_search import behind_of, note_behind, queue_gaps_of, wanted_offsets, with_gaps

    topic, queue_id, rest = selection.topic or "", selection.queue_id or 0, wanted_offsets(part.offset, part.length)
    behind = behind_of(store, selection, rest)
    with store.queues.open(topic, queue_id) as queue:
        lacks = queue_gaps_of(store, queue, behind.reached(store, topic), rest)
    if behind.wanted and not lacks:
        note_behind(store, note)
    return with_gaps(store, selection, lacks, found, part.reverse, note)


def _scan_without_units(
    store: StoreReader, selection: Selection, part: Slice, error: NotFound, note: Note
) -> Iterator[FoundMessage]:
    """Messages of one queue without units for them, by a scan of where they may be. Raises `error` if none is there."""
    topic, queue_id = selection.topic, selection.queue_id
    if topic is None or queue_id is None or not (store.queues.has_topic(topic) or store.has_batch_queues(topic)):
        raise error
    from .log_search import search_log, wanted_offsets

    offsets = wanted_offsets(part.offset, part.length)
    begin, end = _place_in_log(store, topic, queue_id, offsets)
    ranges = [(begin, end)] if begin < end else []
    found = search_log(store, selection, ranges=ranges, offsets=offsets, reverse=part.reverse, note=note)
    first = next(found, None)
    if first is None:
        raise error
    note(f"{error.message}: found by scanning the log")
    yield first
    yield from found


def _place_in_log(store: StoreReader, topic: str, queue_id: int, offsets: tuple[int, int] | None) -> tuple[int, int]:
    """The part of the log that may hold messages for which a queue has no unit, judged by its other units.

    offsets: wanted queue offsets first ≤ k < stop, None for all.
    """
    from .queue_search import open_queue

    begin, end = store.log_files.start, store.log_end.position
    try:
        queue = open_queue(store, topic, queue_id)
    except NotFound:
        return begin, end
    with queue:
        summary = store.queue_summary(queue)
        first = queue.position(summary.min_offset) if summary.min_offset < summary.max_offset else None
    if offsets is None or first is None or summary.end_position is None:
        return begin, end
    if offsets[0] >= summary.max_offset:
        begin = max(begin, summary.end_position)
    elif offsets[1] <= summary.min_offset:
        end = min(end, first)
    return begin, end


def _read_few_complete(
    store: StoreReader, selection: Selection, part: Slice, note: Note
) -> Iterator[FoundMessage] | None:
    """The messages of `_read_few`; None if a broker may have more of them in memory."""
    try:
        found = [*_read_few(store, selection, part, note)]
    except NotFound:
        if not store.units_in_memory:
            raise
        return None
    whole = len(found) == part.length or selection.asks_more
    return iter(found) if whole or not store.units_in_memory else None


def offset_at(store: StoreReader, topic: str, queue_id: int, time_ms: int, *, note: Note = silent) -> int:
    """The queue offset that a broker answers for a time; found by a scan if no queue can be read.

    Raises NotFound for an unknown topic or queue.

    >>> offset_at(store, "orders", 0, 0)
    0
    """
    from .queue_search import queue_offset_at

    if not store.queues_problem and store.has_batch_queues(topic):
        return queue_offset_at(store, topic, queue_id, time_ms)
    if why := store.topic_unread(topic) or store.units_in_memory or _empty_queue_text(store, topic, queue_id):
        from .log_search import log_offset_at

        note(f"{why}: scanning the log")
        try:
            return log_offset_at(store, topic, queue_id, time_ms, note)
        except NotFound:
            if not _empty_queue_text(store, topic, queue_id):
                raise
    found = queue_offset_at(store, topic, queue_id, time_ms)
    _note_at_end(store, topic, queue_id, found, note)
    return found


def _note_at_end(store: StoreReader, topic: str, queue_id: int, offset: int, note: Note) -> None:
    """Note messages missing from a queue next to the offset that it answers for a time."""
    from .log_search import behind_of, gap_text, queue_gaps_of

    asked = Selection(topic=topic, queue_id=queue_id)
    with store.queues.open(topic, queue_id) as queue:
        lacks = queue_gaps_of(store, queue, behind_of(store, asked).reached(store, topic))
    for lack in lacks:
        beside = offset <= lack.numbers[1] if lack.in_front else offset >= lack.numbers[0]
        if beside and (text := gap_text(store, asked, lack)):
            note(f"{topic}: {text}: the times of its other messages do not count")


OPEN_QUEUES = 16
LARGEST = (1 << 63) - 1
_HEX = re.compile(r"[0-9A-Fa-f]{32}(?:[0-9A-Fa-f]{24})?")
"""The form of an offset message id and of a unique key, for IPv4 and for IPv6."""
_HEX_OF_GRPC = re.compile(r"[0-9A-Fa-f]{34}")
"""The form of a unique key of a gRPC client (spec 1.8)."""
_HINT = (
    "one per line: a position in the log, a message id, a unique key, TOPIC/QUEUE/OFFSET, or a JSON "
    "object with message_id, physical_offset, unique_key, or topic, queue_id and queue_offset"
)


class Address(NamedTuple):
    """One of: position; message_id; topic, queue_id and queue_offset; unique_key, with or without topic.

    With both message_id and unique_key, the first that leads to a message counts. inner_number: with position or
    message_id, the number of a message inside a batch record.
    """

    position: int | None = None
    message_id: str | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    unique_key: str | None = None
    inner_number: int | None = None


def parse_address(text: str) -> Address:
    """Parse an address, text or a JSON object. Raises InvalidInput.

    >>> parse_address("orders/0/17").queue_offset
    17
    """
    text = text.strip()
    if text.startswith("{"):
        return _of_object(text)
    if text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= LARGEST:
        return Address(position=int(text))
    if _HEX.fullmatch(text):
        return Address(message_id=text, unique_key=text)
    if is_unique_key(text):
        return Address(unique_key=text)
    topic, queue_id, offset = ("", "", *text.rsplit("/", 2))[-3:]
    if topic and all(part.isascii() and part.isdecimal() for part in (queue_id, offset)):
        return _place_address(topic, int(queue_id[:20]), int(offset[:20]))
    raise InvalidInput(f"not an address: {text[:80]!r}", hint=_HINT)


def is_unique_key(text: str) -> bool:
    """Whether a text has the form of a unique key made by a RocketMQ client."""
    return bool(_HEX.fullmatch(text) or _HEX_OF_GRPC.fullmatch(text))


def _place_address(topic: str, queue_id: int, queue_offset: int) -> Address:
    if queue_id > LARGEST or queue_offset > LARGEST:
        raise InvalidInput(f"not a place in a queue: {topic}/{queue_id}/{queue_offset}")
    return Address(topic=topic, queue_id=queue_id, queue_offset=queue_offset)


def _of_object(text: str) -> Address:
    """The address in an object, for example an answer of `put` or a record of `dump`. Raises InvalidInput."""
    from json import loads

    try:
        found = loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not a JSON object: {error}", hint=_HINT) from None
    if not isinstance(found, dict):
        raise InvalidInput("not a JSON object", hint=_HINT)
    number = _typed(found, "inner_number", int)
    if (message_id := _typed(found, "message_id", str)) is not None:
        return Address(message_id=message_id, inner_number=number)
    for name in ("position", "physical_offset"):
        if (position := _typed(found, name, int)) is not None:
            return Address(position=position, inner_number=number)
    topic = _typed(found, "topic", str)
    queue_id, offset = (_typed(found, name, int) for name in ("queue_id", "queue_offset"))
    if topic is not None and queue_id is not None and offset is not None:
        return _place_address(topic, queue_id, offset)
    if (unique_key := _typed(found, "unique_key", str)) is not None:
        return Address(unique_key=unique_key, topic=topic)
    raise InvalidInput("an object without an address", hint=_HINT)


def _typed(found: dict[str, Any], name: str, kind: type) -> Any:
    """A field of a JSON object; None if missing, null or empty. Raises InvalidInput for another type."""
    value = found.get(name)
    if value is None or value == "":
        return None
    good = isinstance(value, kind) and not isinstance(value, bool)
    if good and kind is int:
        good = 0 <= value <= LARGEST
    elif good:
        good = not any("\ud800" <= c <= "\udfff" for c in value)
    if not good:
        meant = "a text" if kind is str else "a number, 0 or greater"
        raise InvalidInput(f"{name} is not {meant}: {repr(value)[:80]}")
    return value


class Finder:
    """Looks up addresses in one store; a context manager.

    note: called with one line for scans and damage.
    """

    def __init__(self, store: StoreReader, note: Note) -> None:
        self._store = store
        self._note = note
        self._queues: OrderedDict[tuple[str, int], ConsumeQueue] = OrderedDict()

    def find(self, addresses: Sequence[Address]) -> Iterator[FoundMessage | NotFound]:
        """Yield the message of each address in order, or why there is none.

        Of several messages with a unique key, the first in the log counts. Raises Unreadable.
        """
        _ = self._store.log_end  # once the end is known, dead records are recognized quickly
        keys = list(self._keys(addresses))
        places: KeyPlaces = {}
        if keys:
            from .key_search import places_of_keys

            places = places_of_keys(self._store, keys, self._note)
        for address in addresses:
            try:
                yield self._find_one(address, places)
            except NotFound as error:
                yield error

    def _keys(self, addresses: Sequence[Address]) -> Iterator[tuple[str, str | None]]:
        """The unique keys, with their topics, of addresses without a message id that leads to a message."""
        for address in addresses:
            if address.unique_key is not None and self._by_id(address.message_id) is None:
                yield address.unique_key, address.topic

    def _by_id(self, message_id: str | None) -> Message | None:
        if message_id is None:
            return None
        try:
            return self._store.message_by_id(message_id)
        except NotFound:
            return None

    def _find_one(self, address: Address, places: KeyPlaces) -> FoundMessage:
        if address.unique_key is not None:
            message = self._by_id(address.message_id)
            if message is not None:
                return self._marked(message)
            if (address.unique_key, address.topic) not in places:
                what = "message id or unique key" if address.message_id else "unique key"
                raise NotFound(f"no message with this {what}")
            position, number, via = places[address.unique_key, address.topic]
            return FoundMessage(self._inner_message(self._store.message_at(position), number), via)
        if address.message_id is not None or address.position is not None:
            message = (
                self._message_by_id(address.message_id)
                if address.message_id is not None
                else self._store.message_at(address.position or 0)
            )
            return self._marked(self._inner_message(message, address.inner_number))
        return self._in_queue(address.topic or "", address.queue_id or 0, address.queue_offset or 0)

    def _inner_message(self, message: Message, number: int | None) -> Message:
        if number is None or number < 0:
            return message
        return message_in(self._store, message, number)

    def _marked(self, message: Message) -> FoundMessage:
        return FoundMessage(self._store.marked(message), Via.ADDRESS)

    def _message_by_id(self, message_id: str) -> Message:
        try:
            return self._store.message_by_id(message_id)
        except InvalidInput as error:
            raise NotFound(error.message) from error

    def _in_queue(self, topic: str, queue_id: int, offset: int) -> FoundMessage:
        """Read the message at a place in a queue. Raises NotFound."""
        store = self._store
        if (
            store.queues_unread
            or store.has_batch_queues(topic)
            or store.has_compaction_queues(topic)
            or store.topic_unread(topic)
            or store.units_in_memory
        ):
            selection = Selection(topic=topic, queue_id=queue_id)
            one = next(find(store, selection, offset=offset, count=1, note=self._note), None)
            # a compaction topic may answer with a later message; in an LMQ messages have other queue offsets
            compacted = store.has_compaction_queues(topic)
            if one is None or (compacted and one.message.queue_offset > offset):
                raise NotFound(f"{topic}/{queue_id} has no message {offset}")
            return one
        return FoundMessage(store.message_of_unit(self._queue(topic, queue_id), offset), Via.QUEUE)

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """An open queue; the `OPEN_QUEUES` used last stay open."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._queues[topic, queue_id] = self._store.queues.open(topic, queue_id)
            if len(self._queues) > OPEN_QUEUES:
                self._queues.popitem(last=False)[1].close()
        self._queues.move_to_end((topic, queue_id))
        return queue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for queue in self._queues.values():
            queue.close()


def message_in(store: StoreReader, message: Message, number: int) -> Message:
    """A message inside a batch record. Raises NotFound if there is none."""

    from ..log.batch import messages, unwrapped

    batch = unwrapped(store.log.record(message.position).replace(mark=message.mark))
    if batch.inner is None or not number < len(batch) == batch.inner.count[0]:
        raise NotFound(f"the record at {message.position} has no inner message {number}")
    (found,) = messages(batch.take(slice(number, number + 1)))
    return found


MOST = 64
"""Above this number, messages are read faster in columns."""


def read_queue(
    store: StoreReader, topic: str, queue_id: int, offset: int, count: int, note: Note
) -> Iterator[FoundMessage]:
    """Yield the existing messages with queue offsets offset ≤ k < offset + count.

    A unit that points at no record, or at another message, is noted and skipped; one that points past the end of the
    log counts as missing. Raises NotFound if the queue, or its unit `offset`, does not exist.
    """
    with store.queues.open(topic, queue_id) as queue:
        messages = list(_messages(store, queue, offset, count, note))
        if any(store.may_be_dead(message) for message in messages[-1:]):
            end = store.log_end.position
            messages = [message for message in messages if message.position < end]
            if not messages:
                raise no_message(store, queue, offset)
    for message in messages:
        store.searched.add(Via.QUEUE, 1, message.store_timestamp, message.store_timestamp)
        yield FoundMessage(message, Via.QUEUE)


def _messages(store: StoreReader, queue: ConsumeQueue, offset: int, count: int, note: Note) -> Iterator[Message]:
    name = f"{queue.topic}/{queue.queue_id}"
    for number in range(offset, offset + count):
        unit = queue.unit(number)
        if unit is None or not unit.valid or unit.pre_fill:
            if number == offset:
                raise no_message(store, queue, offset)
            if number >= store.queue_summary(queue).max_offset:
                return
            note(f"{name} has no unit {number}: left out")
            continue
        try:
            message = store.message_at(unit.physical_offset)
        except NotFound as error:
            note(f"message {number} of {name} is not readable: {error}")
            continue
        if other := other_place(message, queue, number):
            note(f"unit {number} of {name} points at {other}: left out")
        else:
            yield message
