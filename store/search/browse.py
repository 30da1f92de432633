"""Browsing a store: topics, their queues, pages of messages.

A page is a range of queue offsets; an offset whose message is missing or unreadable is a row too. Everything is read
through the queues; without readable queues there is nothing to browse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ...formats.hashing import utf8
from ..errors import StoreError
from ..log.message import Message
from ..queues.read import QueueSummary
from ..queues.units import record_bytes
from .find import find, offset_at
from .queue_search import open_batch_queue
from .selection import Selection
from .store import FoundMessage, StoreReader

PAGE = 200
"""Messages per page."""
_SEARCHED_MAX = 20_000
"""Messages per search for a text."""
Queue = tuple[str, int]
"""Topic and queue id."""


class Usage(NamedTuple):
    """The size of a topic or of one queue. queues: how many. size_bytes: of the records, None until they are counted.
    behind: the lag of the consumer group that lags most, in messages, None without a group. unread: a queue could not
    be read to its end, so there are more bytes.
    """

    topic: str
    queues: int
    messages: int
    size_bytes: int | None
    behind: int | None
    unread: bool = False


class BrowseRow(NamedTuple):
    """A place in a queue. problem: why there is no message, "" if there is one."""

    queue_offset: int
    message: Message | None
    problem: str = ""


class Browser:
    """Browses a store. behind, topics_behind: the lag of the group that lags most, by queue and by topic. lacking: says
    what the queues lack of the log, "" for nothing.
    """

    def __init__(
        self,
        store: StoreReader,
        behind: Mapping[Queue, int],
        topics_behind: Mapping[str, int] | None = None,
        lacking: str = "",
    ) -> None:
        self._store, self._lacking = store, lacking
        self._behind, self._topics_behind = behind, topics_behind or {}
        self._bytes: dict[Queue, int] = {}
        self._unread: set[Queue] = set()
        found = [*store.queue_summaries, *store.batch_summaries]
        self.queues: dict[Queue, QueueSummary] = {(q.topic, q.queue_id): q for q in found}

    @property
    def unread(self) -> str:
        """Why there is nothing to browse, or not everything; "" if all is well."""
        return self._store.queues_problem or ("" if self.queues else self._store.queues_unread) or self._lacking

    def topics(self) -> list[Usage]:
        """All topics with queues, by name."""
        by_topic: dict[str, list[QueueSummary]] = {}
        for queue in self.queues.values():
            by_topic.setdefault(queue.topic, []).append(queue)
        behind = self._topics_behind
        return [self._usage(name, queues, behind.get(name)) for name, queues in sorted(by_topic.items())]

    def queues_of(self, topic: str) -> list[tuple[QueueSummary, Usage]]:
        """The queues of a topic, by number."""
        found = (queue for queue in self.queues.values() if queue.topic == topic)
        in_order = sorted(found, key=lambda queue: queue.queue_id)
        return [(q, self._usage(topic, [q], self._behind.get((topic, q.queue_id)))) for q in in_order]

    def _usage(self, topic: str, queues: list[QueueSummary], behind: int | None) -> Usage:
        keys = [(queue.topic, queue.queue_id) for queue in queues]
        known = [self._bytes[key] for key in keys if key in self._bytes]
        return Usage(
            topic,
            len(queues),
            sum(queue.max_offset - queue.min_offset for queue in queues),
            sum(known) if len(known) == len(keys) else None,
            behind,
            not self._unread.isdisjoint(keys),
        )

    def count_bytes(self, queue: QueueSummary) -> None:
        """Add up the record sizes in the units of a queue, as far as they can be read."""
        key, total = (queue.topic, queue.queue_id), 0
        try:
            for size in self._sizes(queue):
                total += size
        except StoreError:
            self._unread.add(key)
        self._bytes[key] = total

    def _sizes(self, queue: QueueSummary) -> Iterator[int]:
        if self._store.has_batch_queues(queue.topic):
            with open_batch_queue(self._store, queue.topic, queue.queue_id) as batches:
                yield from (int(record_bytes(units).sum()) for _, units in batches.stream.written())
            return
        with self._store.queues.open(queue.topic, queue.queue_id) as opened:
            for _, units in opened.units(queue.min_offset, queue.max_offset):
                yield int(record_bytes(units).sum())

    def page(self, queue: QueueSummary, first: int) -> list[BrowseRow]:
        """Up to `PAGE` places of a queue from an offset on, in order. Raises Unreadable."""
        first = max(first, queue.min_offset)
        count = min(PAGE, queue.max_offset - first)
        if count <= 0:
            return []
        notes: list[str] = []
        selection = Selection(topic=queue.topic, queue_id=queue.queue_id)
        found = find(self._store, selection, offset=first, count=count, note=notes.append)
        messages = dict(self._with_offsets(queue, found, first, first + count))
        why = "; ".join(notes) or "no message"
        return [
            BrowseRow(offset, messages.get(offset), "" if offset in messages else why)
            for offset in range(first, first + count)
        ]

    def offset_at(self, queue: QueueSummary, time_ms: int) -> int:
        """The queue offset that a broker answers for a time. Raises Unreadable."""
        return offset_at(self._store, queue.topic, queue.queue_id, time_ms)

    def having(self, queue: QueueSummary, first: int, text: str) -> tuple[list[BrowseRow], int]:
        """Up to `PAGE` messages from an offset on whose properties or body contain a text, and the offset where to
        search next. Looks at 20,000 messages at most. Raises Unreadable.
        """
        count = min(_SEARCHED_MAX, queue.max_offset - first)
        if count <= 0:
            return [], first
        selection = Selection(topic=queue.topic, queue_id=queue.queue_id)
        found = find(self._store, selection, offset=first, count=count)
        rows = list(_matching(self._with_offsets(queue, found, first, first + count), text.casefold()))
        return rows, first + count if len(rows) < PAGE else rows[-1].queue_offset + 1

    def _with_offsets(
        self, queue: QueueSummary, found: Iterable[FoundMessage], first: int, stop: int
    ) -> Iterator[tuple[int, Message]]:
        """Messages with their offsets in this queue, first ≤ k < stop. An LMQ, or a queue that gets copies, has
        messages of other topics, whose offsets in this queue only the units tell.
        """
        own, numbers = utf8(queue.topic), None
        for message in (each.message for each in found):
            if message.raw_topic == own:
                yield message.queue_offset, message
                continue
            if numbers is None:
                numbers = self._offsets_by_position(queue, first, stop)
            for number in numbers.pop(message.position, ()):
                yield number, message

    def _offsets_by_position(self, queue: QueueSummary, first: int, stop: int) -> dict[int, list[int]]:
        """The queue offsets of units by the position they point at."""
        numbers: dict[int, list[int]] = {}
        with self._store.queues.open(queue.topic, queue.queue_id) as opened:
            for begin, units in opened.units(first, stop):
                for number, position in enumerate(units["physical_offset"].tolist(), begin):
                    numbers.setdefault(position, []).append(number)
        return numbers


def _matching(messages: Iterable[tuple[int, Message]], text: str) -> Iterator[BrowseRow]:
    most = PAGE
    for number, message in messages:
        properties = " ".join(message.properties.values())
        body = message.body().data.decode("utf-8", "replace")
        if text in properties.casefold() or text in body.casefold():
            yield BrowseRow(number, message)
            most -= 1
            if not most:
                return
