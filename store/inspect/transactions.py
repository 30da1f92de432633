"""Transactions: which prepared messages are open, committed, rolled back, given up (spec 01, 1.10).

A half message is decided once an op record names its queue offset: committed if a record in the log names its position,
else rolled back. A broker that asks for a decision writes the half message again: all half messages of one transaction
have one unique key.

The broker's own group has a position in both topics. It passes a half message once that is decided, written again or
given up, and an op record once it has passed the half messages that this decides. Positions that contradict this hide
open transactions, or reopen decided ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from ...formats import message_properties as names
from ...formats.derive import Columns
from ...formats.hashing import java_string, utf8
from ...formats.op_record import offsets_in
from ...formats.property_columns import PropertyItems
from ...formats.sys_flag import TRANSACTION_MASK, SysFlag
from ..broker.snapshot import QueueId
from ..broker.system_topics import (
    CHECKED_TOO_OFTEN,
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    TRANSACTION_GROUP,
)
from ..counted import counted
from ..disk.files import has_log_changed_by_session
from ..errors import StoreError
from ..log.batch import Batch, good_records
from ..log.message import Mark, tombstones
from ..queues.rocksdb import is_rocksdb
from ..queues.rocksdb_copy import has_rows
from ..search.log_search import units_lost_behind
from ..search.queue_search import note_loss_in
from ..search.store import Note, StoreReader, silent
from ..settings.generation import generation_of
from ..settings.options import options_of
from ..settings.read import read_progress
from .own_topics import any_lacking, goes_on_at, is_next, not_read, span, topic_records

_MOST_READ = 100_000
"""Limit of half messages and op records that are looked at one by one, in some seconds."""
_GIVES_UP_SILENTLY = "4.3"
"""A broker of this generation writes nothing to `CHECKED_TOO_OFTEN` (store 4.3.1-killed-restarted)."""


class TransactionState(StrEnum):
    """What became of a prepared message. unknown: the RocksDB that tells whether a broker asks for it is not whole."""

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    GIVEN_UP = "given_up"
    UNKNOWN = "unknown"


@dataclass
class Transaction:
    """One prepared message; positions in the log, times in ms since 1970.

    positions: of its half records; the producer wrote the first one. checks: how often the broker had asked for a
    decision. in_rocksdb: its half messages have a topic of their own (spec 4.10), and are not given up for their age.
    give_up_timestamp: of an open one; a check after that time gives it up. asked_again: committed, but a start asks for
    the decision again, and delivers the message a second time if that is a commit.
    """

    unique_key: str
    topic: str
    queue_id: int
    producer_group: str
    store_timestamp: int
    born_timestamp: int
    in_rocksdb: bool = False
    positions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    checks: int = 0
    state: TransactionState = TransactionState.OPEN
    give_up_timestamp: int | None = None
    asked_again: bool = False

    def to_json(self) -> dict[str, Any]:
        row = {**vars(self), "state": self.state.value}
        del row["offsets"], row["in_rocksdb"], row["born_timestamp"]
        return row


@dataclass
class Transactions:
    """All prepared messages that the log still has, in log order. reserved_hours: fileReservedTime of the broker."""

    rows: list[Transaction]
    reserved_hours: int

    def to_json(self, now_ms: int) -> dict[str, Any]:
        """For `inspect --transactions`."""
        counts = {state.value: sum(row.state is state for row in self.rows) for state in TransactionState}
        asked = {"now": now_ms, "file_reserved_hours": self.reserved_hours}
        counts["asked_again"] = sum(row.asked_again for row in self.rows)
        return {"type": "transactions", **asked, **counts, "transactions": [row.to_json() for row in self.rows]}


def transactions(store: StoreReader, note: Note) -> Transactions:
    """Return the prepared messages of a store and what became of them. Raises Unreadable."""
    found: dict[str, Transaction] = {}
    for batch in topic_records(store, HALF_TOPIC, note):
        _add(found, batch, in_rocksdb=False)
    ops, positions = _op_records(store, note) if found else OpRecords(), set[int]()
    kept: set[int] | None = None  # all
    # few brokers have these topics: the log is not scanned for them while there are queues
    if store.queues.has_topic(ROCKSDB_HALF_TOPIC) or not store.topics:
        for batch in topic_records(store, ROCKSDB_HALF_TOPIC, note):
            _add(found, batch, in_rocksdb=True)
        database = store.layout.rocksdb_store
        if note_loss_in(store, database, "transactions", note) or not is_rocksdb(database):
            from ..settings.rocksdb import transactions_kept

            kept = set()
            with suppress(StoreError):
                kept |= transactions_kept(database).keys()
        positions = {number for batch in topic_records(store, ROCKSDB_OP_TOPIC, note) for number in _ended(batch)}
    hours = options_of(store.layout).reserved_hours
    if not found:
        return Transactions([], hours)
    given_up = _given_up(store, note)
    committed = _committed(store)
    for key, row in found.items():
        if committed & set(row.positions):
            row.state = TransactionState.COMMITTED
        elif key in given_up:
            row.state = TransactionState.GIVEN_UP
        elif positions & set(row.positions) if row.in_rocksdb else row.offsets[-1] in ops.decided:
            row.state = TransactionState.ROLLED_BACK
        elif row.in_rocksdb and kept is not None and kept.isdisjoint(row.positions):
            row.state = TransactionState.UNKNOWN
    own = [row for row in found.values() if not row.in_rocksdb]
    queues = TransactionQueues(own, ops, _given_up_noted(store), _transaction_ends(store))
    at = stored_positions(store)
    _hold_against_positions(queues, at, note)
    for row in own if is_next(store) else ():
        row.asked_again = row.state is TransactionState.COMMITTED and at.ask(row.offsets, ops.decided)
    for row in (row for row in own if row.state is TransactionState.OPEN):
        row.give_up_timestamp = give_up_ms(store, row.born_timestamp)
    waits = sum(row.in_rocksdb and row.state is TransactionState.OPEN for row in found.values())
    if waits and (why := not_read(store, store.layout.rocksdb_store.name)):
        note(f"transactions: no broker asks for the decision of {counted(waits, 'open one')}: {why}")
    return Transactions(sorted(found.values(), key=lambda row: row.positions[0]), hours)


def give_up_ms(store: StoreReader, born_ms: int) -> int:
    """The time after which a check gives up a half message that was sent at `born_ms`, if no RocksDB has it."""
    return born_ms + options_of(store.layout).reserved_ms


@dataclass
class OpRecords:
    """decided: queue offset of a half message → offset of the first op record that names it. lost: number of op records
    that are tombstones, have a damaged body, or are gone.
    """

    decided: dict[int, int] = field(default_factory=dict)
    lost: int = 0

    def add(self, offset: int, body: bytes) -> None:
        """Note what an op record decides. Each may be named again by a later one."""
        for number in offsets_in(body):
            self.decided[number] = min(offset, self.decided.get(number, offset))


class TransactionPositions(NamedTuple):
    """The group's positions in the queues of half messages and of op records; None: at the begin of the queue."""

    half: int | None
    op: int | None

    def ask(self, offsets: Iterable[int], decided: Mapping[int, int]) -> bool:
        """Whether a broker asks for the decision of one of these half messages: it reads that, but no op record for it.
        Brokers of 5.x write op records every three seconds. decided: see `OpRecords`.
        """
        half, op = self.half or 0, self.op or 0
        return any(n >= half and decided.get(n, -1) < op for n in offsets)


class TransactionQueues(NamedTuple):
    """What half messages and op records say. rows: transactions that are not in a RocksDB. given_up_noted: a broker
    that gives one up writes a record. ends: queue offsets behind the last half message and the last op record.
    """

    rows: list[Transaction]
    ops: OpRecords
    given_up_noted: bool
    ends: TransactionPositions

    def passed(self, at: TransactionPositions) -> list[Transaction]:
        """Return open transactions whose half messages a broker does not read again."""
        if not self.given_up_noted:
            return []
        decided = self.ops.decided.keys()
        return [
            row
            for row in self.rows
            if row.state is TransactionState.OPEN
            and row.unique_key != str(row.positions[0])  # nothing tells which one was written again
            and row.offsets[-1] < (at.half or 0)
            and decided.isdisjoint(row.offsets)
        ]

    def revived(self, at: TransactionPositions) -> list[Transaction]:
        """Return decided transactions whose half messages a broker reads again, but not what decides them."""
        half, op = at.half or 0, at.op or 0
        decided = self.ops.decided
        return [row for row in self.rows if any(n >= half and decided.get(n, op) < op for n in row.offsets)]

    def told(self, at: TransactionPositions) -> list[str]:
        """Return texts about what is wrong with these positions."""
        found, place = [], f"the position {at.half or 0} of {TRANSACTION_GROUP} on {HALF_TOPIC}"
        if passed := len(self.passed(at)):
            what = counted(passed, "open transaction lies", "open transactions lie")
            found.append(f"{what} before {place}: no broker checks them")
        if revived := len(self.revived(at)):
            what = counted(revived, "decided transaction lies", "decided transactions lie")
            ops = f"but their op records lie before position {at.op} on {OP_TOPIC}"
            found.append(f"{what} behind {place}, {ops}: brokers treat them as open")
        return found

    def fitting(self) -> TransactionPositions:
        """Return positions from which a broker reads all that may be open, and of the rest only what lies behind."""
        open_ = (row.offsets[-1] for row in self.rows if row.state is TransactionState.OPEN)
        half = min(open_, default=self.ends.half or 0)
        op = min((op for n, op in self.ops.decided.items() if n >= half), default=self.ends.op)
        return TransactionPositions(half, op)


def stored_positions(store: StoreReader) -> TransactionPositions:
    """Return the positions that the configuration has."""
    known = read_progress(store.layout.config, store.config)
    return TransactionPositions(
        *(known.get(QueueId(topic, 0), {}).get(TRANSACTION_GROUP) for topic in (HALF_TOPIC, OP_TOPIC))
    )


def _hold_against_positions(queues: TransactionQueues, at: TransactionPositions, note: Note) -> None:
    """Note what contradicts the positions. If op records are lost, what the broker has passed counts as rolled back."""
    if queues.ops.lost:
        passed = queues.passed(at)
        for row in passed:
            row.state = TransactionState.ROLLED_BACK
        count = counted(len(passed), "transaction counts", "transactions count")
        more = f": {count} as rolled back, because the broker was past them" if passed else ""
        note(f"transactions: {counted(queues.ops.lost, 'op record is', 'op records are')} lost or damaged{more}")
    for text in queues.told(at):
        note(f"transactions: {text}")


def transaction_queues(store: StoreReader, *, reached_too: bool = True) -> TransactionQueues | None:
    """Return what the queues of the transaction topics tell; None if they may not name all, records are lost, the
    broker was killed (even if the log was mended since), or there are too many records. Commits are not looked for:
    what was decided counts as rolled back. reached_too: see `lacking`. Raises Unreadable.
    """
    topics = (HALF_TOPIC, OP_TOPIC, CHECKED_TOO_OFTEN)
    abort = store.layout.abort  # whoever holds the lock: plans are made without and with it
    if os.path.lexists(abort) or store.queues_unread or not store.queues.has_topic(HALF_TOPIC):
        return None
    if _units(store, topics) > _MOST_READ:
        return None
    if has_log_changed_by_session(store.layout, abort.name) or any_lacking(store, topics, reached_too=reached_too):
        return None
    found, doubts = dict[str, Transaction](), list[str]()
    for batch in topic_records(store, HALF_TOPIC, doubts.append):
        _add(found, batch, in_rocksdb=False)
    ops = _op_records(store, doubts.append)
    given_up = _given_up(store, doubts.append)
    for key, row in found.items():
        if key in given_up:
            row.state = TransactionState.GIVEN_UP
        elif row.offsets[-1] in ops.decided:
            row.state = TransactionState.ROLLED_BACK
    if doubts or ops.lost:
        return None
    return TransactionQueues([*found.values()], ops, _given_up_noted(store), _transaction_ends(store))


def _spans_of(store: StoreReader, topics: Iterable[str]) -> Iterator[tuple[QueueId, int, int]]:
    """Yield the units start ≤ k < end of each queue of these topics."""
    for directory in (each for topic in topics for each in store.queues.of_topic(topic)):
        with store.queues.open(directory.topic, directory.queue_id) as queue:
            yield (QueueId(queue.topic, queue.queue_id), *span(store, queue, None))


def _units(store: StoreReader, topics: Iterable[str]) -> int:
    return sum(end - start for _, start, end in _spans_of(store, topics))


def _transaction_ends(store: StoreReader) -> TransactionPositions:
    ends = {queue: end for queue, _, end in _spans_of(store, (HALF_TOPIC, OP_TOPIC))}
    return TransactionPositions(*(ends.get(QueueId(topic, 0), 0) for topic in (HALF_TOPIC, OP_TOPIC)))


def _given_up_noted(store: StoreReader) -> bool:
    return _GIVES_UP_SILENTLY not in generation_of(store.layout).candidates


def _given_up(store: StoreReader, note: Note) -> set[str]:
    read = topic_records(store, CHECKED_TOO_OFTEN, note)
    return {key for batch in read for key in _keys(batch, _items(batch))}


def _items(batch: Batch) -> PropertyItems:
    return PropertyItems(batch.columns.ragged("properties"))


def _keys(batch: Batch, items: PropertyItems) -> list[str]:
    """Return the unique keys; for a message without one its position."""
    keys = zip(items.find(names.UNIQ_KEY).tolist(), batch.position.tolist(), strict=True)
    return [java_string(key) if key else str(position) for key, position in keys]


def _add(found: dict[str, Transaction], batch: Batch, *, in_rocksdb: bool) -> None:
    batch = batch.take(~tombstones(batch.columns))  # no broker asks for a decision on what tombstones replaced
    columns, items = batch.columns, _items(batch)
    texts = (items.find(name).tolist() for name in (names.REAL_TOPIC, names.REAL_QID, names.PGROUP))
    rows = zip(
        _keys(batch, items),
        batch.position.tolist(),
        columns.ints("queue_offset").tolist(),
        columns.ints("store_timestamp").tolist(),
        columns.ints("born_timestamp").tolist(),
        items.find(names.TRANSACTION_CHECK_TIMES).tolist(),
        *texts,
        strict=True,
    )
    for key, position, offset, stored_ms, born_ms, checks, topic, queue_id, group in rows:
        if (row := found.get(key)) is None:
            target = (java_string(topic), _number(queue_id, -1), java_string(group))
            row = found[key] = Transaction(key, *target, stored_ms, born_ms, in_rocksdb)
        row.positions.append(position)
        row.offsets.append(offset)
        row.checks = max(row.checks, _number(checks, 0))


def _number(text: bytes, otherwise: int) -> int:
    """Return the number that a property holds; `otherwise` for other text, and for more digits than a broker writes."""
    return int(text) if text.isdigit() and len(text) < 20 else otherwise


def _op_records(store: StoreReader, note: Note) -> OpRecords:
    """Read all op records of the topic. A damaged body counts as lost, but decides as far as it can be read."""
    found, missing = OpRecords(), _units(store, (OP_TOPIC,))
    for batch in topic_records(store, OP_TOPIC, note):
        missing -= len(batch)
        lost = tombstones(batch.columns)
        if (crc_ok := batch.checked().body_crc_ok) is not None:
            lost |= ~crc_ok
        found.lost += int(lost.sum())
        columns = batch.columns
        for offset, body in zip(columns.ints("queue_offset").tolist(), columns.ragged("body").tolist(), strict=True):
            found.add(offset, body)
    found.lost += max(0, missing) + units_lost_behind(store, OP_TOPIC)
    return found


def _ended(batch: Batch) -> Iterator[int]:
    """The positions of half messages that these op records of transactions in a RocksDB name (spec 4.10)."""
    texts = _items(batch).find(names.TRANS_OFFSET).tolist()
    return (number for text in texts if (number := _number(text, -1)) >= 0)


def _committed(store: StoreReader) -> set[int]:
    """Scan the log for commit records, and return the positions of the half messages that they name."""
    found: set[int] = set()
    for batch in good_records(store.log.scan(crc=False, reuse=True)):
        found |= _commits(batch.columns)
    return found


def _commits(columns: Columns) -> set[int]:
    """The positions of the half messages that commit records name."""
    rows = np.flatnonzero(columns.ints("sys_flag") & TRANSACTION_MASK == SysFlag.COMMIT)
    places = columns.ints("prepared_transaction_offset")[rows]
    return set(places[places >= 0].tolist())


def open_in(log: Iterable[Columns]) -> int:
    """The number of transactions that a broker finds only in a RocksDB, and that no record of these decides."""
    found, given_up, decided = dict[str, Transaction](), set[str](), set[int]()
    for columns in log:
        batch = Batch(columns, columns.ints("physical_offset"), Mark.NONE, None)
        topic = columns.ragged("topic")
        _add(found, batch.take(topic.equals(utf8(ROCKSDB_HALF_TOPIC))), in_rocksdb=True)
        over = batch.take(topic.equals(utf8(CHECKED_TOO_OFTEN)))
        given_up.update(_keys(over, _items(over)))
        decided |= _commits(columns)
        decided.update(_ended(batch.take(topic.equals(utf8(ROCKSDB_OP_TOPIC)))))
    return sum(decided.isdisjoint(row.positions) and key not in given_up for key, row in found.items())


def open_in_database(store: StoreReader, *, sure: bool = False) -> int:
    """Return the number of open transactions that a broker finds only in a RocksDB. sure: it has them. Raises
    Unreadable.
    """
    if store.topics and not store.queues.has_topic(ROCKSDB_HALF_TOPIC):
        return 0
    open_ = (TransactionState.OPEN, *([] if sure else [TransactionState.UNKNOWN]))
    return sum(row.in_rocksdb and row.state in open_ for row in transactions(store, silent).rows)


def never_asked(store: StoreReader) -> tuple[int, str]:
    """Return how many open transactions no start asks for, and why (see `not_read`). Raise StoreError if the RocksDB
    that tells cannot be read.
    """
    database = store.layout.rocksdb_store
    if not (why := not_read(store, database.name)) or not has_rows(database):
        return 0, why
    from ..settings.rocksdb import transactions_kept

    transactions_kept(database)
    return open_in_database(store, sure=True), why


def asked_again(store: StoreReader, made: Mapping[QueueId, int]) -> int:
    """Return how many committed transactions a start asks for again. made: ends of queues then. Raises Unreadable."""
    at = stored_positions(store)
    first = _first_asked(store, at, made) if is_next(store) else None
    found, ops, committed = dict[str, Transaction](), OpRecords(), set[int]()
    for batch in () if first is None else store.good_records(first):
        topic = batch.columns.ragged("topic")
        _add(found, batch.take(topic.equals(utf8(HALF_TOPIC))), in_rocksdb=False)
        for row in np.flatnonzero(topic.equals(utf8(OP_TOPIC))).tolist():
            ops.add(int(batch.columns.ints("queue_offset")[row]), batch.columns.ragged("body")[row])
        committed |= _commits(batch.columns)
    return sum(at.ask(row.offsets, ops.decided) and not committed.isdisjoint(row.positions) for row in found.values())


def _first_asked(store: StoreReader, at: TransactionPositions, made: Mapping[QueueId, int]) -> int | None:
    """Return the position of the first half message that a broker reads, or of one before it; None for no message."""
    for directory in store.queues.of_topic(HALF_TOPIC):
        with store.queues.open(HALF_TOPIC, directory.queue_id) as queue:
            found = goes_on_at(store, queue, at.half or 0, made.get(QueueId(HALF_TOPIC, directory.queue_id), 0))
        if found is not None:
            return found
    return store.log.min_offset if at.half is not None and store.queues_unread else None
