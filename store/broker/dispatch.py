"""Dispatch: the consume queue units and index items that records of the commit log produce.

The one place for the rules of spec/02-consumequeue.md (2.2, 2.3, 2.9) and spec/03-index.md (3.2, 3.3). The functions
are pure, from columns to columns: `put`, `recover` and the Spark pipeline share them. They tell what every record would
add; the writer decides what exists already. `unannounceable`: what a broker reads to notify waiting consumers (4.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from ...formats import message_properties as names
from ...formats.derive import Columns, Ragged
from ...formats.derive.ragged import Ints, StringNotes
from ...formats.hashing import java_hash, java_integer, java_string
from ...formats.hashing_columns import index_hash_column, java_hash_column
from ...formats.message import TRANSACTION_MASK, SysFlag
from ...formats.property_columns import PropertyItems, find
from ..columns import Dictionary, Rows, dictionary
from .dispatch_record import Dispatching
from .system_topics import SCHEDULE_TOPIC, delay_ms, parse_levels

_NAME_SEPARATOR: Final = ","
_TAG_MARK: Final = "T#"


class HasColumns(Protocol):
    """A batch of records."""

    @property
    def columns(self) -> Columns: ...


class Units(Rows):
    """Consume queue units, int64[n] each, in the order in which a broker writes them.

    record: row of the batch. topic_id: index into `Dispatched.topics`.
    """

    record: Ints
    topic_id: Ints
    queue_id: Ints
    queue_offset: Ints
    physical_offset: Ints
    size: Ints
    tags_code: Ints
    store_timestamp: Ints


class IndexItems(Rows):
    """Index items, int64[n] each, in the order in which a broker writes them.

    record: row of the batch. key_hash: never negative.
    """

    record: Ints
    key_hash: Ints
    physical_offset: Ints
    store_timestamp: Ints


_NO_ITEMS = IndexItems.concat([])


@dataclass(frozen=True)
class Dispatched:
    """What a batch adds to queues and index.

    topics: names for `units.topic_id`, including LMQs, decoded as Java does. count: records of the batch.
    undispatchable: rows of records with LMQ offsets that a broker cannot read, so that it throws there for ever (spec
    2.9, B11); here only the bad name is left out. stored_topics, properties: the columns as parsed for the dispatch.
    how: the rules used.
    """

    topics: list[str]
    units: Units
    items: IndexItems
    count: int
    undispatchable: Ints
    stored_topics: Dictionary
    properties: PropertyItems
    how: Dispatching

    def is_as(self, how: Dispatching, *, named: bool) -> bool:
        """Whether dispatch by the rules `how` gives the same result. named: records may name further queues."""
        own, record = self.how, self.units.record
        items = not how.items or (own.items and own.index_tags == how.index_tags)
        lmq = how.multi_dispatch and named
        single = bool((record[1:] > record[:-1]).all())  # no record has a unit besides that in its own queue
        return items and single and not lmq and own.delay_levels == how.delay_levels


def dispatch(batch: HasColumns, how: Dispatching) -> Dispatched:
    """Units and index items of all records of a batch, as `dispatch_columns`."""
    return dispatch_columns(batch.columns, how)


def dispatch_columns(
    columns: Columns, how: Dispatching, topics: Dictionary | None = None, properties: PropertyItems | None = None
) -> Dispatched:
    """Units and index items of n records.

    columns: at least topic, properties, queue_id, queue_offset, physical_offset, total_size, sys_flag and
    store_timestamp of MESSAGE. topics, properties: dictionary of the topics and items of the properties, if the caller
    has them already.
    """
    topics = topics or dictionary(columns.ragged("topic"))
    texts = [java_string(value) for value in topics.values]
    properties = properties or PropertyItems(columns.ragged("properties"))
    tags = properties.find(names.TAGS)
    hashes = java_hash_column(tags).astype(np.int64)
    transaction = columns.ints("sys_flag") & TRANSACTION_MASK
    codes = hashes
    if SCHEDULE_TOPIC in texts:
        scheduled = np.flatnonzero(topics.ids == texts.index(SCHEDULE_TOPIC))
        levels = parse_levels() if how.delay_levels is None else how.delay_levels
        codes = _delivery_times(columns, scheduled, hashes, properties, levels)
    own = np.flatnonzero(transaction & SysFlag.PREPARED == 0)
    units = _units(columns, own, topics.ids, codes)
    undispatchable = np.zeros(0, np.int64)
    if how.multi_dispatch:
        lmq = _LmqQueues(texts, how)
        closed = how.lmq_closed
        for row, queues, offsets in named_queues(properties, own, topics.ids, texts, closed):
            lmq.add(row, queues, offsets, int(columns.ints("queue_id")[row]))
        units = lmq.merge(units, columns, hashes)
        texts, undispatchable = lmq.topics, np.array(lmq.undispatchable, np.int64)
    items, with_tags = _NO_ITEMS, tags if how.index_tags else None
    if how.items:
        items = _items(columns, topics.ids, topics.values, properties, with_tags)
    return Dispatched(texts, units, items, len(columns), undispatchable, topics, properties, how)


def _int64(column: npt.NDArray[np.generic]) -> Ints:
    return column.astype(np.int64, copy=False)


def _units(columns: Columns, rows: Ints, topic_ids: Ints, codes: Ints) -> Units:
    """The units of records in their own queues, for the given rows (PREPARED and ROLLBACK have none)."""
    everything = len(rows) == len(columns)
    key: Ints | slice = slice(None) if everything else rows
    return Units(
        rows,
        topic_ids[key],
        _int64(columns.ints("queue_id"))[key],
        _int64(columns.ints("queue_offset"))[key],
        _int64(columns.ints("physical_offset"))[key],
        _int64(columns.ints("total_size"))[key],
        codes[key],
        _int64(columns.ints("store_timestamp"))[key],
    )


def _delivery_times(
    columns: Columns, rows: Ints, hashes: Ints, properties: PropertyItems, levels: tuple[int, ...]
) -> Ints:
    """tags_code of all records; for scheduled messages it is the time of their delivery (spec 2.3)."""
    delays = properties.find(names.DELAY)[rows]
    known = dictionary(delays)
    waits = [delay_ms(value.decode("utf-8", "replace"), levels) for value in known.values]
    has = np.array([wait is not None for wait in waits], np.bool_)[known.ids]
    wait = np.array([wait or 0 for wait in waits], np.int64)[known.ids]
    codes = hashes.copy()
    delayed = rows[has]
    codes[delayed] = _int64(columns.ints("store_timestamp"))[delayed] + wait[has]
    return codes


def named_queues(
    properties: PropertyItems, rows: Ints, topic_ids: Ints, texts: list[str], closed: tuple[str, ...]
) -> list[tuple[int, bytes, bytes]]:
    """(row, names, offsets) of records that go to further queues by name (spec 2.9); usually none."""
    queues = properties.find(names.INNER_MULTI_DISPATCH)
    rows = rows[queues.length[rows] > 0]
    if not len(rows):
        return []
    offsets = properties.find(names.INNER_MULTI_QUEUE_OFFSET)
    allowed = np.array([not text.startswith(closed) for text in texts], np.bool_)
    rows = rows[(offsets.length[rows] > 0) & allowed[topic_ids[rows]]]
    return list(zip(rows.tolist(), queues[rows].tolist(), offsets[rows].tolist(), strict=True))


class _LmqQueues:
    """Units of records that name further queues, made row by row: few brokers have them, but there every record may."""

    def __init__(self, texts: list[str], how: Dispatching) -> None:
        self.topics = list(texts)
        self.undispatchable: list[int] = []
        self._ids = {text: i for i, text in enumerate(texts)}
        self._how = how
        self._rows: list[tuple[int, int, int, int]] = []
        self._seen: set[tuple[int, int, int]] = set()

    def add(self, row: int, queue_names: bytes, queue_offsets: bytes, queue_id: int) -> None:
        for _, name, offset in numbered_names(java_split(queue_names), java_split(queue_offsets), self._how):
            if offset is None:
                self.undispatchable.append(row)
                continue
            topic_id = self._ids.setdefault(name, len(self._ids))
            if topic_id == len(self.topics):
                self.topics.append(name)
            own_queue = self._how.queue_id_of(name, queue_id)
            if (row, topic_id, own_queue) not in self._seen:
                # named twice: a broker takes the second unit of a record as already written (spec 2.2)
                self._seen.add((row, topic_id, own_queue))
                self._rows.append((row, topic_id, own_queue, offset))

    def merge(self, units: Units, columns: Columns, hashes: Ints) -> Units:
        """`units` and the added units, record by record; the unit in a record's own queue comes first."""
        if not self._rows:
            return units
        rows = np.array(self._rows, np.int64)
        record, topic_id, queue_id, queue_offset = rows.T
        named = Units(
            record,
            topic_id,
            queue_id,
            queue_offset,
            _int64(columns.ints("physical_offset"))[record],
            _int64(columns.ints("total_size"))[record],
            hashes[record],
            _int64(columns.ints("store_timestamp"))[record],
        )
        order = np.argsort(np.concatenate([units.record, record]), kind="stable")
        both = (np.concatenate([getattr(units, field), getattr(named, field)])[order] for field in Units.FIELDS)
        return Units(*both)


def numbered_names(queues: list[str], offsets: list[str], how: Dispatching) -> Iterator[tuple[int, str, int | None]]:
    """Yield (number of the item, name, queue offset) for the names in a record that get a unit.

    The offset is None if a broker cannot read it. Nothing if there are not as many offsets as names.
    """
    if len(queues) != len(offsets):
        return
    for number, (name, text) in enumerate(zip(queues, offsets, strict=True)):
        if how.skips(name):
            continue
        offset = queue_offset_of(text)
        if offset is None or how.has_queue(name):
            yield number, name, offset


def java_split(text: bytes) -> list[str]:
    """Java's `String.split(",")`: empty strings at the end are dropped."""
    parts = java_string(text).split(_NAME_SEPARATOR)
    while parts and not parts[-1]:
        parts.pop()
    return parts if text else [""]


def _items(
    columns: Columns, topic_ids: Ints, topics: list[bytes], properties: PropertyItems, tags: Ragged | None
) -> IndexItems:
    """Index items of each record: UNIQ_KEY, each part of KEYS, then TAGS if they are indexed."""
    prefixes = np.array([_hash_before_key(topic) for topic in topics], np.int32)
    rolled_back = (columns.ints("sys_flag") & TRANSACTION_MASK) == SysFlag.ROLLBACK
    unique = properties.find(names.UNIQ_KEY)
    key_row, keys = split_keys(properties.find(names.KEYS))
    has_unique = (unique.length > 0) & ~rolled_back
    kept = ~rolled_back[key_row]
    if not kept.all():
        key_row, keys = key_row[kept], keys[np.flatnonzero(kept)]
    key_count = np.bincount(key_row, minlength=len(columns))
    count = has_unique + key_count
    if tags is not None:
        has_tags = (tags.length > 0) & ~rolled_back
        count = count + has_tags
    begin = np.cumsum(count) - count
    total = int(count.sum())
    record, key_hash = np.empty(total, np.int64), np.empty(total, np.int64)

    def place(at: Ints, rows: Ints, prefix: npt.NDArray[np.int32], strings: Ragged) -> None:
        record[at] = rows
        key_hash[at] = index_hash_column(prefix[topic_ids[rows]], strings)

    whole = len(columns)
    if tags is None and total == 2 * whole and has_unique.all() and key_count.all():
        prefix = prefixes.take(topic_ids)  # every record has a unique key and one other key
        key_hash[::2] = index_hash_column(prefix, unique)
        key_hash[1::2] = index_hash_column(prefix, keys)
        return _index_items(columns, np.repeat(np.arange(whole), 2), key_hash)
    if has_unique.all():
        place(begin, np.arange(len(columns)), prefixes, unique)
    else:
        rows = np.flatnonzero(has_unique)
        place(begin[rows], rows, prefixes, unique[rows])
    first = np.cumsum(key_count) - key_count
    at = begin[key_row] + has_unique[key_row] + np.arange(len(key_row)) - first[key_row]
    place(at, key_row, prefixes, keys)
    if tags is not None:
        rows = np.flatnonzero(has_tags)
        marked = [_hash_before_key(topic, _TAG_MARK) for topic in topics]
        place(begin[rows] + count[rows] - 1, rows, np.array(marked, np.int32), tags[rows])
    return _index_items(columns, record, key_hash)


def _index_items(columns: Columns, record: Ints, key_hash: Ints) -> IndexItems:
    return IndexItems(
        record,
        key_hash,
        _int64(columns.ints("physical_offset")).take(record),
        _int64(columns.ints("store_timestamp")).take(record),
    )


@lru_cache(maxsize=1 << 12)
def _hash_before_key(topic: bytes, mark: str = "") -> int:
    """Java hash of the text before a key of the topic in the index."""
    return java_hash(f"{java_string(topic)}#{mark}")


def split_keys(keys: Ragged) -> tuple[Ints, Ragged]:
    """Split each string at spaces: row and text of all non-empty parts, in order."""
    rows = np.flatnonzero(keys.length > 0)
    hashes = keys.noted.hashes
    if hashes is not None and hashes.min(initial=0) >= 0:  # no string has a separator
        if len(rows) == len(keys):
            return rows, keys
        noted = StringNotes(hashes=hashes[rows])
        return rows, Ragged(keys.buffer, keys.start[rows], keys.length[rows], noted)
    packed = keys[rows].packed()
    spaces = np.flatnonzero(packed.buffer == ord(names.KEY_SEPARATOR))
    if not len(spaces):
        return rows, packed
    # sorted begins and sorted ends pair up part by part, row ends included
    begin = np.sort(np.concatenate([packed.start, spaces + 1]))
    end = np.sort(np.concatenate([packed.start + packed.length, spaces]))
    full = end > begin
    begin, end = begin[full], end[full]
    row = rows[np.searchsorted(packed.start, begin, side="right") - 1]
    return row, Ragged(packed.buffer, begin, end - begin)


def queue_offset_of(text: str) -> int | None:
    """The queue offset of an LMQ as a broker reads it; None if the broker throws (spec 2.9)."""
    number = java_integer(text, 64)
    return None if number is None or number < 0 else number


def unannounceable(columns: Columns) -> int | None:
    """Row of the first record whose further queues a broker cannot announce; None if there is none.

    Every offset in INNER_MULTI_QUEUE_OFFSET has to be a number, also in records of transactions and of topics without
    further queues, and whether or not the broker has LMQs (B11).
    """
    properties = columns.ragged("properties")
    queues = find(properties, names.INNER_MULTI_DISPATCH)
    offsets = find(properties, names.INNER_MULTI_QUEUE_OFFSET)
    for row in np.flatnonzero((queues.length > 0) & (offsets.length > 0)).tolist():
        numbers = java_split(offsets[row])
        unreadable = any(java_integer(text, 64) is None for text in numbers)
        if unreadable and len(numbers) == len(java_split(queues[row])):
            return int(row)
    return None
