"""Transactions: which prepared messages are open, committed, rolled back, given up (spec 01, 1.10).

A half message is decided once an op record names its queue offset. It was committed if a record in
the log names its place; what is decided otherwise was rolled back. A broker that asks for a decision
writes the half message again, and an op record for the one before: all of one transaction have one
unique key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from ...formats import message_properties as names
from ...formats.sys_flag import TRANSACTION_MASK, SysFlag
from ..log.batch import Batch
from ..log.message import Message, messages
from ..log.record_status import Mark
from ..plan.tombstones import HALF_TOPIC, OP_TOPIC
from ..search.found import Note
from ..search.store import Store
from .topic_records import topic_records

GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
_CHECKS = "TRANSACTION_CHECK_TIMES"


class State(StrEnum):
    """What became of a prepared message."""

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    GIVEN_UP = "given_up"


@dataclass
class Transaction:
    """One prepared message; positions in the log, times in ms since 1970.

    positions: of its half records, the first one is the producer's. checks: how often the broker
    had asked for a decision.
    """

    unique_key: str
    topic: str
    queue_id: int
    producer_group: str
    store_timestamp: int
    positions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    checks: int = 0
    state: State = State.OPEN

    def to_json(self) -> dict[str, Any]:
        """One row of `inspect --transactions`."""
        row = {**vars(self), "state": self.state.value}
        del row["offsets"]
        return row


@dataclass
class Transactions:
    """All prepared messages that the log still has, in log order."""

    rows: list[Transaction]

    def to_json(self) -> dict[str, Any]:
        """For `inspect --transactions`."""
        counts = {state.value: sum(row.state is state for row in self.rows) for state in State}
        return {
            "type": "transactions",
            **counts,
            "transactions": [row.to_json() for row in self.rows],
        }


def transactions(store: Store, note: Note) -> Transactions:
    """The prepared messages of a store and what became of them. Raises Unreadable."""
    found: dict[str, Transaction] = {}
    for message in _messages(store, HALF_TOPIC, note):
        _add(found, message)
    if not found:
        return Transactions([])
    decided = _decided(store, note)
    given_up = {_key(message) for message in _messages(store, GIVEN_UP_TOPIC, note)}
    committed = _committed(store)
    for key, row in found.items():
        if committed & set(row.positions):
            row.state = State.COMMITTED
        elif key in given_up:
            row.state = State.GIVEN_UP
        elif row.offsets[-1] in decided:
            row.state = State.ROLLED_BACK
    return Transactions(sorted(found.values(), key=lambda row: row.positions[0]))


def _messages(store: Store, topic: str, note: Note) -> Iterator[Message]:
    for batch in topic_records(store, topic, note):
        yield from messages(batch)


def _key(message: Message) -> str:
    return message.unique_key or str(message.position)


def _add(found: dict[str, Transaction], message: Message) -> None:
    properties = message.properties
    key = _key(message)
    if key not in found:
        found[key] = Transaction(
            key,
            properties.get(names.REAL_TOPIC, ""),
            _number(properties.get(names.REAL_QID, ""), -1),
            properties.get(names.PGROUP, ""),
            message.store_timestamp,
        )
    row = found[key]
    row.positions.append(message.position)
    row.offsets.append(message.queue_offset)
    row.checks = max(row.checks, _number(properties.get(_CHECKS, ""), 0))


def _number(text: str, otherwise: int) -> int:
    """A number of a property; `otherwise` for what is none, or one that no broker has written."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else otherwise


def _decided(store: Store, note: Note) -> set[int]:
    """Queue offsets of half messages that op records name."""
    found: set[int] = set()
    for message in _messages(store, OP_TOPIC, note):
        parts = message.stored_body.split(b",")
        found |= {int(part) for part in parts if part.isdigit() and len(part) < 20}
    return found


def _committed(store: Store) -> set[int]:
    """Positions of half messages that committed records name: the log is scanned for them."""
    found: set[int] = set()
    for item in store.log.scan(crc=False, reuse=True):
        if not isinstance(item, Batch) or item.mark > Mark.AFTER_DAMAGE:
            continue
        state = item.columns.ints("sys_flag") & TRANSACTION_MASK
        rows = np.flatnonzero(state == SysFlag.COMMIT)
        if len(rows):
            places = item.columns.ints("prepared_transaction_offset")[rows]
            found |= set(places[places >= 0].tolist())
    return found
