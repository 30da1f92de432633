"""Appending many messages at once, as columns, without Python code per message (spec 01, 1.15).

`PresentKeys` finds the messages that a store already has, which `put --resume` leaves out. A message is identified by
topic, queue and unique key; without a unique key, as in transactions, by its born timestamp and body. A store may have
it several times (retries, the steps of a transaction), so occurrences are counted: the first n are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...formats.consume_queue import UNIT
from ...formats.derive import Columns, Ragged, dtype_of, sizes
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import crc31, java_string
from ...formats.hashing_columns import crc31_column
from ...formats.message import MESSAGE, SysFlag
from ...formats.message_properties import ITEM_SEPARATOR, UNIQ_KEY, parse
from ...formats.property_columns import PropertyItems, joined
from ..broker.dispatch import Dispatched, Units, dispatch_columns
from ..broker.dispatch_record import Dispatching
from ..broker.system_topics import LMQ_PREFIX
from ..columns import Dictionary, begins
from ..disk.layout import Layout
from ..errors import InvalidInput, LimitExceeded
from ..log.write import place_columns, place_whole
from .message_columns import HALF, NO_CRC, OP, CopiedNumbers, count_of, prepare, rows_of, spread, times_replaced
from .new_message import COPIED, STORE, Host, NewMessage, NoKeys, Stored, check_record, check_sizes
from .open_store import OpenStore
from .queue_kinds import LightQueueRows, name_offsets, numbered_anew, set_texts, with_bases
from .tail import NO_BATCHES

STEP_ROWS = 1 << 16
"""Messages that are prepared, placed and dispatched together; steps of 16,384 take a fifth longer."""
AHEAD_ROWS = 1 << 14
"""Messages per step of a stream, which has the bodies of several steps in memory."""


class StoredColumns(NamedTuple):
    """Where n messages were stored: int64[n] each; `topics[topic_id]` are their topics.

    kept: which of the given messages these are; None: all.
    """

    topics: list[str]
    topic_id: Ints
    queue_id: Ints
    queue_offset: Ints
    physical_offset: Ints
    total_size: Ints
    store_host: Host
    kept: Flags | None = None

    def of(self, given: Ragged) -> Ragged:
        """A given column without the rows that were left out."""
        return given if self.kept is None else given[self.kept]

    def some(self, rows: Ints) -> StoredColumns:
        return self._replace(**{name: getattr(self, name)[rows] for name in _STORED}, kept=None)

    def rows(self) -> list[Stored]:
        """The messages one by one."""
        rows = zip(*(getattr(self, name).tolist() for name in _STORED), strict=True)
        return [Stored._make((self.topics[topic], *row, self.store_host)) for topic, *row in rows]


_STORED = StoredColumns._fields[1:6]


def append_columns(writer: OpenStore, columns: Mapping[str, Any], *, whole: bool = False) -> StoredColumns:
    """Append n messages; they are on disk after `writer.sync`.

    columns: named as in MESSAGE; arrays, `Ragged`, or one value for all. topic and body are required; other fields of a
    producer (`NewMessage`, also wrong_crc) have defaults; a missing born_timestamp, and a store_timestamp below 0 or
    missing, becomes the current time. queue_offset, physical_offset, store are those of the copied records, for
    `CopiedNumbers`; other fields that the store assigns are ignored. whole: append all in one step, to one file. Raises
    what `StoreWriter.append` raises; if a message is refused, nothing of its step of 65,536 was written.
    """
    writer.settle()
    total = count_of(columns)
    step = max(total, 1) if whole else STEP_ROWS
    steps = Steps(writer, aside=total > step)
    try:
        parts = [
            steps.append(rows_of(columns, total, slice(n, min(n + step, total))), whole=whole)
            for n in range(0, total, step)
        ]
    except (InvalidInput, LimitExceeded):
        steps.finish()
        raise
    except BaseException:
        writer.abandon()
        raise
    steps.finish()
    return _joined(parts, writer.rules.store_host)


class Steps:
    """Appends step by step: first the records, then their units and index items.

    Until `finish` nobody else may write to the store, and its `sync` guarantees nothing.

    aside: another thread encodes and writes the records of a step, while this one finds their units and items. These
    are written once the records are in the log, before the records of the next step.
    """

    def __init__(self, writer: OpenStore, *, aside: bool) -> None:
        self._writer = writer
        self._aside = aside
        self._found: _StepAdditions | None = None
        self._unindexed: Dispatched | None = None

    def append(self, columns: dict[str, Any], *, whole: bool = False) -> StoredColumns:
        """Append the rows of a step, as `rows_of` gives them; few enough for memory.

        whole: put all records in one file, like those of a batch. Raises what `append_columns` raises; then nothing of
        this step was written.
        """
        writer = self._writer
        replaced = times_replaced(columns, len(columns["body"]))
        topics = prepare(columns, len(columns["body"]), writer.rules, writer.clock())
        texts = [java_string(topic) for topic in topics.values]
        numbering = _Numbering.of(writer, columns, topics, texts)
        copies, given = None, columns["properties"]
        if "queue_offset" in columns:
            self._settle_units()  # queue offsets continue after those of the step before
            queues_of = partial(numbering.groups.with_any, topics=texts)
            copies = writer.copies.fitted(columns, topics, numbering.offsets(writer, texts), queues_of)
            columns, topics = copies.columns, copies.topics
            if not len(topics.ids):
                writer.copies.note(copies, columns)
                return _joined([], writer.rules.store_host)._replace(kept=copies.kept)
            if columns["properties"] is not given:
                numbering, given = _Numbering.of(writer, columns, topics, texts), columns["properties"]
        old = {name: columns.pop(name, None) for name in (*COPIED, STORE)}
        groups, properties, counts, _ = numbering
        if counts is not None and writer.database is not None:
            raise InvalidInput(NO_BATCHES)
        for topic_id, queue_id in groups.queues:
            writer.check_queue((texts[topic_id], queue_id))
        columns["total_size"] = sizes(MESSAGE, columns)
        largest = columns["total_size"].sum() if whole else columns["total_size"].max(initial=0)
        check_record(int(largest), writer.rules)
        wrong = np.asarray(columns.pop("wrong_crc"))  # of bodies known to be corrupted, which keep it
        columns["body_crc"] = np.where(wrong == NO_CRC, crc31_column(columns["body"]), wrong)
        self._settle_units()
        columns["queue_offset"] = numbering.offsets(writer, texts)
        named = _with_offsets(writer, columns, topics, texts, counts, properties)
        lay = place_whole if whole else place_columns
        placement = lay(writer.log.position, columns["total_size"], writer.log.file_size)
        columns["physical_offset"] = placement.positions
        if copies is not None:
            writer.copies.note(copies, old)
        with writer.writing(int(columns["store_timestamp"].min())):
            if self._aside:
                writer.records().write_aside(columns, placement)
            else:
                writer.records().write(columns, placement)
            if named is not None:
                writer.lmq_offsets.update(named.counters)
            self._index()
            taken = None if writer.database is None else writer.database.taken(topics)
            known = properties if columns["properties"] is given else None
            self._found = _StepAdditions(_dispatch(writer, columns, topics, known), counts, taken)
        highest: dict[str, int] = {}
        for topic_id, queue_id in groups.queues:
            highest[texts[topic_id]] = max(queue_id, highest.get(texts[topic_id], 0))
        last_time = int(columns["store_timestamp"][-1])
        writer.note(int(placement.positions[-1]), last_time, highest)
        writer.times_replaced += replaced
        return StoredColumns(
            texts,
            topics.ids,
            columns["queue_id"],
            columns["queue_offset"],
            placement.positions,
            columns["total_size"],
            writer.rules.store_host,
            None if copies is None else copies.kept,
        )

    def append_all(self, columns: Mapping[str, Any]) -> StoredColumns:
        """Append messages as one step; if that fails, nothing more is written (`StoreWriter.abandon`)."""
        total = count_of(columns)
        try:
            return self.append(rows_of(columns, total, slice(0, total)))
        except (InvalidInput, LimitExceeded):
            raise
        except BaseException:
            self._writer.abandon()
            raise

    def _settle_units(self) -> None:
        """Wait for the records of the step before and write their units; their index items wait."""
        found, self._found = self._found, None
        if found is not None:
            with self._writer.writing():
                self._writer.records().drain()
                _write_units(self._writer, found)
                self._writer.relieve_database()
            self._unindexed = found.dispatched

    def _index(self) -> None:
        found, self._unindexed = self._unindexed, None
        if found is not None:
            self._writer.index_records()
            if self._writer.index is not None:
                self._writer.index.append(found.items, found.count)

    def finish(self) -> None:
        """Complete the last step."""
        self._settle_units()
        with self._writer.writing():
            self._index()


def _with_offsets(
    writer: OpenStore,
    columns: dict[str, Any],
    topics: Dictionary,
    texts: list[str],
    counts: Ints | None,
    properties: PropertyItems,
) -> LightQueueRows | None:
    """Complete, in place, the properties that contain queue offsets: INNER_BASE, and those of LMQs.

    Raises InvalidInput, LimitExceeded.
    """
    if counts is not None:
        with_bases(columns, final_separator=writer.profile.final_separator)
    named = None
    if writer.names_lmq_queues:
        known = writer.queues.next_offsets
        named = name_offsets(columns, topics, texts, writer.rules, known, writer.lmq_offsets, properties)
        if named is not None:
            set_texts(columns, named, writer.rules)
    elif writer.numbers_anew:
        named = numbered_anew(columns, topics, texts, _dispatch_rules(writer), writer.queues.next_offsets, properties)
        if named is not None:
            set_texts(columns, named)
    if counts is not None or named is not None:
        check_sizes(0, int(columns["properties"].length.max(initial=0)), writer.rules)
        columns["total_size"] = sizes(MESSAGE, columns)
    return named


class _StepAdditions(NamedTuple):
    """What a step adds to queues and index. counts: messages in each record; None: one each. in_database: the records
    whose units go to RocksDB; None: all, if there is one.
    """

    dispatched: Dispatched
    counts: Ints | None
    in_database: Flags | None


class _Groups(NamedTuple):
    """Rows grouped by topic and queue: `order` brings the rows of a queue together, in their order.

    queues: (topic id, queue id) of each group. begin: int64[groups + 1], where each group begins in `order`.
    """

    order: Ints
    queues: list[tuple[int, int]]
    begin: Ints

    @classmethod
    def by_queue(cls, topic_ids: Ints, queue_ids: Ints) -> _Groups:
        width = int(queue_ids.max(initial=0)) + 1
        key = topic_ids * width + queue_ids
        small = int(key.max(initial=0)) < 1 << 16
        # numpy sorts 16-bit numbers by radix, many times faster
        order = np.argsort(key.astype(np.uint16) if small else key, kind="stable")
        ranked = key[order]
        first = np.flatnonzero(begins(ranked))
        heads = [(k // width, k % width) for k in ranked[first].tolist()]
        return cls(order, heads, np.append(first, len(order)))

    def with_any(self, flags: Flags, topics: list[str]) -> list[tuple[str, int]]:
        """The queues with a row whose flag is set."""
        if not flags.any():
            return []
        found = np.logical_or.reduceat(flags[self.order], self.begin[:-1]).tolist()
        return [(topics[t], q) for (t, q), is_set in zip(self.queues, found, strict=True) if is_set]

    def offsets(self, advances: Flags | Ints, topics: list[str], next_offsets: dict[Any, int]) -> Ints:
        """The queue offset of each row; `advances` is by how much a row advances its queue, and a row with 0 gets 0."""
        steps = advances[self.order].astype(np.int64)
        before = np.cumsum(steps) - steps
        starts = [next_offsets.get((topics[t], q), 0) for t, q in self.queues]
        counts = np.diff(self.begin)
        base = np.repeat(np.array(starts, np.int64) - before[self.begin[:-1]], counts)
        offsets = np.empty(len(self.order), np.int64)
        offsets[self.order] = np.where(steps, base + before, 0)
        return offsets


class _Numbering(NamedTuple):
    """How the rows of a step are numbered. properties: their items. counts: messages in each row, see
    `QueueKinds.counts`. steps: by how much a row advances its queue.
    """

    groups: _Groups
    properties: PropertyItems
    counts: Ints | None
    steps: Flags | Ints

    @classmethod
    def of(cls, writer: OpenStore, columns: dict[str, Any], topics: Dictionary, texts: list[str]) -> _Numbering:
        """Raises what `QueueKinds.counts` raises."""
        properties = PropertyItems(columns["properties"])
        counts = writer.kinds.counts(columns, topics, texts, properties)
        advances = columns["sys_flag"] & SysFlag.PREPARED == 0
        steps = advances if counts is None else np.where(advances, counts, 0)
        return cls(_Groups.by_queue(topics.ids, columns["queue_id"]), properties, counts, steps)

    def offsets(self, writer: OpenStore, texts: list[str]) -> Ints:
        """The queue offsets that the rows get now, int64[n]."""
        return self.groups.offsets(self.steps, texts, writer.queues.next_offsets)


def _dispatch(
    writer: OpenStore, columns: dict[str, Any], topics: Dictionary, properties: PropertyItems | None
) -> Dispatched:
    records = Columns(np.zeros(len(topics.ids), np.int64))
    places = ("queue_id", "queue_offset", "physical_offset", "total_size")
    for name in ("topic", "properties", *places, "sys_flag", "store_timestamp"):
        records.set(name, columns[name])
    if writer.queues.ext is not None:
        writer.queues.ext.look_at(records, topics)
    return dispatch_columns(records, _dispatch_rules(writer), topics, properties)


def _dispatch_rules(writer: OpenStore) -> Dispatching:
    how = writer.profile.start.dispatch.how(
        items=writer.index is not None, multi_dispatch=writer.lmq_units, delay_levels=writer.delay_levels
    )
    return how if writer.database is None else writer.database.stores.making(how)


def _write_units(writer: OpenStore, what: _StepAdditions) -> None:
    found, units = what.dispatched, what.dispatched.units
    groups = _Groups.by_queue(units.topic_id, units.queue_id)
    sorted_units = units.take(groups.order)
    rows = np.empty(len(units), dtype_of(UNIT))
    for name in UNIT_FIELDS:
        rows[name] = getattr(sorted_units, name)
    data = rows.view(np.uint8).data
    for (topic_id, queue_id), begin, end in zip(
        groups.queues, groups.begin[:-1].tolist(), groups.begin[1:].tolist(), strict=True
    ):
        queue = (found.topics[topic_id], queue_id)
        if what.counts is not None and writer.kinds.is_batch(queue[0]):
            own = sorted_units.take(slice(begin, end))
            writer.batch_queues.add(queue, own, what.counts[own.record])
            continue
        if writer.database is not None:
            own = sorted_units.take(slice(begin, end))
            wanted = what.in_database
            writer.database.add(queue, own if wanted is None else own.take(wanted[own.record]))
            if not writer.database.in_files(queue[0]):
                writer.queues.next_offsets[queue] = int(own.queue_offset.max()) + 1
                continue
        ext = writer.queues.ext
        if ext is not None and not queue[0].startswith(LMQ_PREFIX):
            rows["tags_code"][begin:end] = ext.add(*queue, sorted_units.take(slice(begin, end)))
        for first, stop in _runs(sorted_units, begin, end):
            unit = rows.itemsize
            offset = int(sorted_units.queue_offset[first])
            writer.queues.add(queue, offset, data[first * unit : stop * unit])


UNIT_FIELDS = ("physical_offset", "size", "tags_code")


def _runs(units: Units, begin: int, end: int) -> list[tuple[int, int]]:
    """Ranges of rows with consecutive queue offsets; those of LMQs may have gaps."""
    offsets = units.queue_offset[begin:end]
    if int(offsets[-1]) - int(offsets[0]) == end - begin - 1:
        return [(begin, end)]
    cuts = (np.flatnonzero(np.diff(offsets) != 1) + 1 + begin).tolist()
    return list(zip([begin, *cuts], [*cuts, end], strict=True))


def _joined(parts: list[StoredColumns], store_host: Host) -> StoredColumns:
    topics: dict[str, int] = {}
    empty = np.zeros(0, np.int64)
    ids = [
        np.array([topics.setdefault(topic, len(topics)) for topic in part.topics], np.int64)[part.topic_id]
        for part in parts
    ]
    kept = [np.ones(len(part.topic_id), np.bool_) if part.kept is None else part.kept for part in parts]
    numbers = {name: np.concatenate([empty, *(getattr(part, name) for part in parts)]) for name in _STORED[1:]}
    return StoredColumns(
        list(topics),
        np.concatenate([empty, *ids]),
        **numbers,
        store_host=store_host,
        kept=np.concatenate(kept) if any(part.kept is not None for part in parts) else None,
    )


_SEPARATOR = b"\0"


class PresentKeys:
    """Counts of the messages in a store by topic, queue and key. Memory: that of the keys.

    copies: gets the numbers of messages that are present, when they come again. queues: the queues of these messages.
    """

    def __init__(self, copies: CopiedNumbers | None = None) -> None:
        self.queues = set[tuple[str, int]]()
        #: by key: the first record not yet matched, and those after it
        self._next: dict[bytes, int] = {}
        self._others: dict[bytes, deque[int]] = {}
        self._numbers = [np.zeros((2, 0), np.int64)]
        self._halves: list[tuple[int, ...]] = []
        self._copies = copies or CopiedNumbers()

    @classmethod
    def of(cls, layout: Layout, copies: CopiedNumbers | None = None) -> PresentKeys:
        """The messages of a store, read from its log once."""
        from ..search.store import StoreReader  # imported here, as most puts do not need it

        present = cls(copies)
        count = 0
        with StoreReader(layout) as store:
            for batch in store.good_records():
                columns = batch.columns
                topics = columns.ragged("topic")
                names = _full_keys(topics, columns.ints("queue_id"), _keys(columns, columns.ints("born_timestamp")))
                for row, name in enumerate(names, count):
                    if present._next.setdefault(name, row) != row:
                        present._others.setdefault(name, deque()).append(row)
                count += len(names)
                present._numbers.append(np.stack([columns.ints(name) for name in COPIED]))
        present._numbers = [np.concatenate(present._numbers, axis=1)]
        return present

    def lacks(self, columns: Mapping[str, Any]) -> Flags:
        """bool[n]: the rows that the store does not have. Rows without a unique key need their born timestamp."""
        count = len(columns["body"])
        keys = _keys(columns, spread(columns["born_timestamp"], count))
        names = _full_keys(columns["topic"], spread(columns.get("queue_id", 0), count), keys)
        old = zip(*(spread(columns.get(name, -1), count).tolist() for name in (STORE, *COPIED)), strict=True)
        lacking = np.array([not self._take(name, *numbers) for name, numbers in zip(names, old, strict=True)], np.bool_)
        self._report_halves()
        return lacking

    def has(self, message: NewMessage, *, dated: bool) -> bool:
        """Whether the store has a message. dated: its born timestamp was given. Raises InvalidInput for a message with
        neither a unique key nor a given born timestamp.
        """
        key = parse(message.properties).get(UNIQ_KEY, "").encode("utf-8", "surrogatepass")
        if not key:
            crc = 0 if message.topic == OP else crc31(message.body)
            key = _key_of(message.born_timestamp, crc) if dated else NoKeys().next().encode()
        name = _SEPARATOR.join((message.topic, key, b"%d" % message.queue_id))
        found = self._take(name, message.store, message.queue_offset, message.physical_offset)
        self._report_halves()
        return found

    def _take(self, name: bytes, store: int, old_offset: int, old_place: int) -> bool:
        row = self._next.pop(name, -1)
        if row < 0:
            return False
        if others := self._others.get(name):
            self._next[name] = others.popleft()
        topic, _, key = name.partition(_SEPARATOR)
        queue = java_string(topic), int(key.rpartition(_SEPARATOR)[2])
        self.queues.add(queue)
        if old_offset < 0:  # not a copy
            return True
        offset, place = self._numbers[0][:, row].tolist()
        if topic == HALF:
            self._halves.append((store, old_offset, offset, old_place, place))
        if old_offset != offset:
            self._copies.moved.add((store, *queue))
        return True

    def _report_halves(self) -> None:
        """Tell the half messages found present to `CopiedNumbers`, for copies that name them."""
        if not self._halves:
            return
        store, *numbers = np.array(self._halves, np.int64).reshape(-1, 5).T
        self._copies.add_halves(store, (numbers[0], numbers[1]), (numbers[2], numbers[3]))
        self._halves.clear()


def _keys(columns: Mapping[str, Any], born: Ints) -> Ragged:
    """The keys of messages within a queue: the unique key, or else that of `_key_of`.

    The body of an op record does not count, as copying changes it.
    """
    keys = PropertyItems(columns["properties"]).find(UNIQ_KEY)
    rows = np.flatnonzero(keys.length <= 0)
    if not len(rows):
        return keys
    texts = keys.tolist()
    crcs = np.where(columns["topic"][rows].equals(OP), 0, crc31_column(columns["body"][rows]))
    for row, time, crc in zip(rows.tolist(), born[rows].tolist(), crcs.tolist(), strict=True):
        texts[row] = _key_of(time, crc)
    return Ragged.of(texts)


def _key_of(born_timestamp: int, body_crc: int) -> bytes:
    """The key of a message without a unique key; no unique key looks like it."""
    return b"%b%d %d" % (ITEM_SEPARATOR, born_timestamp, body_crc)


def _full_keys(topics: Ragged, queue_ids: Ints, keys: Ragged) -> list[bytes]:
    separators = Ragged.repeat(_SEPARATOR, len(keys))
    queues = Ragged.of([b"%d" % queue_id for queue_id in queue_ids.tolist()])
    return joined([topics, separators, keys, separators, queues]).tolist()
