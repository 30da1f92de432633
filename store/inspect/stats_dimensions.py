"""Dimensions by which counted records are grouped, each as numbers and the values that they stand for.

| name | value |
|---|---|
| topic, queue_id, tag | of the record; tag "" for none |
| group | the consumer group of a retry or dead letter topic, else the producer group (PGROUP), else "" |
| kind | of the topic: `user`, `retry`, `dead_letter`, `delay`, `transaction`, `system` |
| host | the producer's address |
| hour, day | of storing, in UTC: begin in ms since 1970 |
| size | of the record: the power of 2 that is not above it |
| file | the log file that has it |

`retries` counts what each consumer group sent back, and of which topic (spec 01, 1.6). For a POP consumer the name
of the retry topic tells both; since 5.5.0 the record names the group, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from ...formats import message_properties as names
from ...formats import pop as pop_format
from ...formats.derive.program import Noting
from ...formats.derive.ragged import Flags, Ints, Ragged
from ...formats.hashing import java_string
from ...formats.host import host_text
from ...formats.message_properties import RETRY_PREFIX
from ...formats.property_columns import PropertyItems, find, noting_values
from ..broker.snapshot import QueueId
from ..broker.system_topics import (
    CHECKED_TOO_OFTEN,
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    group_of_topic,
    is_system_topic,
)
from ..columns import dictionary
from ..disk.file_queue import file_name
from ..log.batch import Batch
from ..log.window import NOTING_TOPICS
from ..search.store import Note, StoreReader
from ..settings.read import Progress, read_progress

Values = list[str] | list[int]
Dimension = tuple[Ints, Values]
"""Row i has the value `values[ids[i]]`."""
USER, RETRY, DEAD_LETTER = "user", "retry", "dead_letter"
DELAY, TRANSACTION, SYSTEM = "delay", "transaction", "system"
_KINDS = {
    SCHEDULE_TOPIC: DELAY,
    TIMER_TOPIC: DELAY,
    HALF_TOPIC: TRANSACTION,
    OP_TOPIC: TRANSACTION,
    CHECKED_TOO_OFTEN: TRANSACTION,
}
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


@lru_cache(maxsize=1 << 14)
def topic_kind(topic: str) -> str:
    """What a topic is for.

    >>> [topic_kind(name) for name in ("orders", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x")]
    ['user', 'retry', 'delay', 'system']
    """
    if topic in _KINDS:
        return _KINDS[topic]
    if topic.startswith(RETRY_PREFIX):
        return RETRY
    if topic.startswith(DEAD_LETTER_PREFIX):
        return DEAD_LETTER
    return SYSTEM if is_system_topic(topic) else USER


def noting_of(by: Sequence[str]) -> Noting:
    """Return what a scan of the log has to note for these dimensions."""
    asked = [name for name, of in ((names.TAGS, "tag"), (names.PGROUP, "group")) if of in by]
    found = noting_values("properties", asked)
    if found is None:
        return NOTING_TOPICS
    return found._replace(numbered=NOTING_TOPICS.numbered, later=NOTING_TOPICS.later)


class DimensionColumns:
    """Columns of some records, or of units of one queue. Each dimension is computed when it is asked for.

    topics: the topic of each row; only a batch of the log has more than one.
    """

    def __init__(self, topics: Dimension, position: Ints, size: Ints, queue_id: Ints, starts: Ints) -> None:
        self.topics = topics
        self.position, self.size, self.queue_id, self.starts = position, size, queue_id, starts
        self._batch: Batch | None = None

    @classmethod
    def of_batch(cls, batch: Batch, starts: Ints) -> Self:
        """Return the columns of a batch. starts: where the log's files begin."""
        columns = batch.columns
        size, queue_id = columns.ints("total_size"), columns.ints("queue_id")
        found = cls(_texts(columns.ragged("topic")), batch.position, size, queue_id, starts)
        found._batch = batch
        return found

    def dimension(self, name: str) -> Dimension:
        """Return the dimension of this name; for units only those of `OF_UNITS`."""
        if name in _OF_RECORDS:
            assert self._batch is not None
            return _OF_RECORDS[name](self._batch)
        return _OF_ALL[name](self)

    def kinds(self) -> tuple[Ints, list[str]]:
        """Return the topic number of each row, and the kind of each topic."""
        ids, values = self.topics
        return ids, [topic_kind(str(topic)) for topic in values]

    def groups(self) -> Dimension:
        ids, values = self.topics
        groups = [group_of_topic(str(topic)) for topic in values]
        if self._batch is None or all(groups):
            return _joined(ids, groups)
        producers, known = _texts(find(self._batch.columns.ragged("properties"), names.PGROUP))
        every = sorted({*groups, *map(str, known)})
        number = {name: place for place, name in enumerate(every)}
        of_topic = np.array([number[name] for name in groups], np.int64)[ids]
        of_producer = np.array([number[str(name)] for name in known], np.int64)[producers]
        return np.where(of_topic == number.get("", -1), of_producer, of_topic), every


def highest_bit(size: Ints) -> Ints:
    """Return the number of the highest bit of each size, int64[n]; 0 for sizes below 2."""
    # a float64 holds a size exactly: its exponent is that of the highest bit
    return np.frexp(np.maximum(size, 1).astype(np.float64))[1].astype(np.int64) - 1


def _joined(ids: Ints, values: list[str]) -> Dimension:
    """Return the same dimension with each value once."""
    every = sorted(set(values))
    number = {value: place for place, value in enumerate(every)}
    return np.array([number[value] for value in values], np.int64)[ids], every


def _texts(strings: Ragged) -> Dimension:
    found = dictionary(strings)
    return found.ids, list(map(_text, found.values))


@lru_cache(maxsize=1 << 14)
def _text(value: bytes) -> str:
    return java_string(value)


def _numbers(values: Ints) -> Dimension:
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.zeros(len(values), np.int64), [low]
    different, ids = np.unique(values, return_inverse=True)
    return ids, different.tolist()


def _hosts(batch: Batch) -> Dimension:
    found = dictionary(batch.columns.ragged("born_host.ip"))
    return found.ids, [host_text(ip, 0).rpartition(":")[0] for ip in found.values]


def _span(length_ms: int) -> Callable[[Batch], Dimension]:
    def of(batch: Batch) -> Dimension:
        times = batch.columns.ints("store_timestamp")
        low, high = int(times.min()) // length_ms, int(times.max()) // length_ms
        if low == high:
            return np.zeros(len(times), np.int64), [low * length_ms]
        ids, spans = _numbers(times.astype(np.int64) // length_ms)
        return ids, [int(span) * length_ms for span in spans]

    return of


def _files(columns: DimensionColumns) -> Dimension:
    number = np.searchsorted(columns.starts, columns.position, "right") - 1
    used, ids = np.unique(number, return_inverse=True)
    starts = [int(columns.starts[n]) if n >= 0 else 0 for n in used.tolist()]
    return ids, [file_name(start) for start in starts]


_OF_RECORDS: Mapping[str, Callable[[Batch], Dimension]] = {
    "tag": lambda batch: _texts(find(batch.columns.ragged("properties"), names.TAGS)),
    "host": _hosts,
    "hour": _span(_HOUR_MS),
    "day": _span(_DAY_MS),
}
_OF_ALL: Mapping[str, Callable[[DimensionColumns], Dimension]] = {
    "topic": lambda columns: columns.topics,
    "queue_id": lambda columns: _numbers(columns.queue_id),
    "group": DimensionColumns.groups,
    "kind": lambda columns: _joined(*columns.kinds()),
    "size": lambda columns: _numbers(np.left_shift(1, highest_bit(columns.size))),
    "file": _files,
}
OF_UNITS = tuple(_OF_ALL)
"""Dimensions that units of queues have, too."""
DIMENSIONS = (*OF_UNITS, *_OF_RECORDS)
"""All dimensions."""


class CountKey(NamedTuple):
    """Messages that are counted together. kind: `retry` or `dead_letter`."""

    kind: str
    group: str
    original_topic: str


@dataclass
class Returned:
    """Messages that a group sent back; times in ms since 1970.

    not_consumed: at or behind the group's progress in this topic, None without progress.
    """

    messages: int = 0
    not_consumed: int | None = None
    most_reconsumed: int = 0
    first_store_timestamp: int = 0
    last_store_timestamp: int = 0

    def add(self, times: npt.NDArray[Any], reconsumed: npt.NDArray[Any]) -> None:
        """Count messages by store time and number of redeliveries."""
        first, last = int(times.min()), int(times.max())
        self.first_store_timestamp = min(first, self.first_store_timestamp) if self.messages else first
        self.last_store_timestamp = max(last, self.last_store_timestamp)
        self.most_reconsumed = max(self.most_reconsumed, int(reconsumed.max()))
        self.messages += len(times)


@dataclass
class Retries:
    """Counts by kind, group and original topic."""

    counts: dict[CountKey, Returned] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For `inspect --retries`."""
        rows = [
            {**key._asdict(), **vars(self.counts[key])}
            for key in sorted(self.counts, key=lambda key: (key.kind, key.group, key))
        ]
        kinds = ("retry", "dead_letter")
        sums = {kind: sum(r["messages"] for r in rows if r["kind"] == kind) for kind in kinds}
        return {"type": "retries", **sums, "groups": rows}


def retries(store: StoreReader, note: Note) -> Retries:
    """Count the messages in the retry and dead letter topics of a store. Raises Unreadable."""
    from .own_topics import records_of

    progress = read_progress(store.layout.config, store.layout.broker_config)
    groups = {group for known in progress.values() for group in known}
    found = Retries()
    prefixes = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
    records = records_of(store, "retries", prefixes, note)
    for topic, batch in chain.from_iterable(_by_topic(batch, prefixes) for batch in records):
        kind, prefix = (
            ("retry", RETRY_PREFIX) if topic.startswith(RETRY_PREFIX) else ("dead_letter", DEAD_LETTER_PREFIX)
        )
        plain = CountKey(kind, topic.removeprefix(prefix), "")
        popped = (_of_pop(topic, store.named_topics, groups) if kind == "retry" else None) or plain
        properties = PropertyItems(batch.columns.ragged("properties"))
        again = properties.find(pop_format.FIRST_POP_TIME).length > 0
        owners = dictionary(properties.find(names.ORIGIN_GROUP))
        for number, owner in enumerate(owners.values):
            key = _given_back_by(java_string(owner), topic) or popped
            _count(found, key, batch.take(again & (owners.ids == number)), topic, progress)
        _count(found, plain, batch.take(~again), topic, progress)
    return found


def _given_back_by(group: str, retry_topic: str) -> CountKey | None:
    """Return the group that a record of a POP consumer names, and the topic; None if this is not its retry topic."""
    topic = retry_topic.removeprefix(RETRY_PREFIX + group)[1:]
    known = group and topic and retry_topic in pop_format.retry_topics(topic, group)
    return CountKey("retry", group, topic) if known else None


def _by_topic(batch: Batch, prefixes: tuple[str, ...]) -> Iterator[tuple[str, Batch]]:
    """Yield each topic with one of these prefixes, and its records."""
    topics = dictionary(batch.columns.ragged("topic"))
    for number, name in enumerate(topics.values):
        if (topic := name.decode("utf-8", "surrogateescape")).startswith(prefixes):
            yield topic, batch.take(np.flatnonzero(topics.ids == number).astype(np.int64))


def _count(found: Retries, key: CountKey, batch: Batch, topic: str, progress: Progress) -> None:
    """Count the records of a topic that one group sent back, by the original topic of `key`, else of the record."""
    columns = batch.columns
    times, reconsumed = columns.ints("store_timestamp"), columns.ints("reconsume_times")
    waiting = _waiting(batch, topic, key.group, progress)
    origins = np.array([key.original_topic or origin for origin in _origins(batch)], np.str_)
    for origin in np.unique(origins).tolist():
        mine = origins == origin
        row = found.counts.setdefault(key._replace(original_topic=origin), Returned())
        row.add(times[mine], reconsumed[mine])
        if waiting is not None:
            row.not_consumed = (row.not_consumed or 0) + int((waiting & mine).sum())


def _of_pop(retry_topic: str, topics: Collection[str], groups: Collection[str]) -> CountKey | None:
    """Return group and topic of a POP retry topic; None if the names do not tell."""
    rest = retry_topic.removeprefix(RETRY_PREFIX)
    pairs = []
    for topic in topics:
        group = rest.removesuffix(topic)[:-1]
        if group and not topic.startswith(RETRY_PREFIX) and retry_topic in pop_format.retry_topics(topic, group):
            pairs.append(CountKey("retry", group, topic))
    known = [pair for pair in pairs if pair.group in groups] or pairs
    return known[0] if len(known) == 1 else None


def _waiting(batch: Batch, topic: str, group: str, progress: Progress) -> Flags | None:
    """bool[n]: the group has not consumed the message. None if it has no progress in this topic."""
    offsets = batch.columns.ints("queue_offset")
    queue_ids = batch.columns.ints("queue_id")
    known = False
    waiting = np.zeros(len(batch), np.bool_)
    for queue_id in np.unique(queue_ids).tolist():
        reached = progress.get(QueueId(topic, queue_id), {}).get(group)
        if reached is not None:
            known = True
            waiting |= (queue_ids == queue_id) & (offsets >= reached)
    return waiting if known else None


def _origins(batch: Batch) -> list[str]:
    """Return the original topic of each message; "" if the message does not name one."""
    properties = PropertyItems(batch.columns.ragged("properties"))
    dead, retried = (properties.find(names.DLQ_ORIGIN_TOPIC).tolist(), properties.find(names.RETRY_TOPIC).tolist())
    return [(b or a or b"").decode("utf-8", "replace") for a, b in zip(dead, retried, strict=True)]
