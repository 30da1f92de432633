"""Positions of two stores, master and slave or before and after: who is ahead, group by group.

The other one may be a store, its `config` directory, or one file of positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.kinds import KINDS
from ..disk.broker_conf import BrokerConfig
from ..disk.layout import CONFIG
from ..errors import InvalidInput
from ..queues.read import QueueSummary
from ..queues.rocksdb import is_rocksdb
from ..search.store import Store
from ..settings.read import BACKUP, FILES
from ..settings.rocksdb import SECOND, SEPARATE, SINGLE, stand_ins
from ..start.config_load import OFFSETS
from .lag import Ends, queue_ends
from .positions import (
    DELAYED,
    TABLES,
    Entries,
    Positions,
    entries_of,
    entries_of_database,
    every_file,
    positions_of,
)


class Ahead(StrEnum):
    """Which of two positions is farther, or the only one."""

    SAME = "same"
    HERE = "here"
    OTHER = "other"
    ONLY_HERE = "only_here"
    ONLY_OTHER = "only_other"


class Side(NamedTuple):
    """One of the two: its positions and its queues, without these None. tables: that it can have."""

    positions: Positions
    ends: Ends | None
    tables: frozenset[str] = frozenset(TABLES)


class Compared(NamedTuple):
    """One position in both; None where a side has none."""

    key: tuple[str, str, str, int]
    offset: int | None
    other_offset: int | None
    queue: QueueSummary | None
    other_queue: QueueSummary | None

    @property
    def ahead(self) -> Ahead:
        """Who is."""
        if self.other_offset is None:
            return Ahead.ONLY_HERE
        if self.offset is None:
            return Ahead.ONLY_OTHER
        if self.offset == self.other_offset:
            return Ahead.SAME
        return Ahead.HERE if self.offset > self.other_offset else Ahead.OTHER

    @property
    def difference(self) -> int | None:
        """Messages from the other's position to this one."""
        if self.offset is None or self.other_offset is None:
            return None
        return self.offset - self.other_offset

    def to_json(self) -> dict[str, Any]:
        """Fields of the JSON."""
        table, group, topic, queue_id = self.key
        here, other = self.queue, self.other_queue
        return {
            "table": table,
            "group": None if table == DELAYED else group,
            "topic": topic,
            "queue_id": queue_id,
            "offset": self.offset,
            "other_offset": self.other_offset,
            "difference": self.difference,
            "ahead": str(self.ahead),
            "max_offset": None if here is None else here.max_offset,
            "other_max_offset": None if other is None else other.max_offset,
        }


def side_of(store: Store) -> Side:
    """Positions and queues of a store. Raises Unreadable."""
    return Side(positions_of(store.layout, store.generation.version), queue_ends(store))


def open_side(path: Path, config: BrokerConfig | None = None) -> Side:
    """The same of a store, of a `config` directory, or of a file of positions. Raises InvalidInput, Missing,
    NotAStore, Unreadable.
    """
    if path.is_file():
        kind = FILES.get(path.name.removesuffix(BACKUP))
        if kind is None or not KINDS[kind].tables:
            names = "consumerOffset.json or lmqConsumerOffset.json, or their .bak"
            raise InvalidInput("no file of positions", path=path, hint=f"name a store, or {names}")
        return _from(entries_of(path, kind))
    if is_rocksdb(path) and path.name in (SEPARATE[OFFSETS], SINGLE, SECOND):
        return _from(entries_of_database(path))
    own = [path / name for name in FILES] if path.is_dir() and not (path / CONFIG).is_dir() else []
    if any(one.is_file() for one in own) or OFFSETS in stand_ins(path):
        return _from(*every_file(path))
    with Store(path, config) as store:
        return side_of(store)


def _from(*files: Entries) -> Side:
    rows = [row for file in files for row in file.positions]
    notes = [f"{file.path}: {problem}" for file in files for problem in file.problems]
    return Side(Positions(rows, notes), None, frozenset(row.table for row in rows))


def compare(here: Side, other: Side) -> Iterator[Compared]:
    """Every position of either, in order of table, group, topic and queue; of a file its tables only."""
    tables = here.tables & other.tables
    mine, others = (
        {row.key: row.offset for row in side.positions.rows if row.table in tables}
        for side in (here, other)
    )
    for key in sorted(mine.keys() | others.keys()):
        place = key[2], key[3]
        yield Compared(
            key,
            mine.get(key),
            others.get(key),
            None if here.ends is None else here.ends.get(place),
            None if other.ends is None else other.ends.get(place),
        )
