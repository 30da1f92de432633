"""What `rocksdbstore/` says of messages: an open transaction, timers (spec 04, 4.10)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...formats import rocksdb_store as formats
from ...formats.derive.ragged import Ints
from ...formats.pop import KV_STATE
from ..broker.snapshot import list_entries
from ..queues.rocksdb import RocksDb, is_rocksdb


def transaction_is_open(path: Path, position: int) -> bool:
    """Whether the half message at a position of the log is kept for a check.

    path: of the RocksDB; without one nothing is. Raises Unreadable, Unsupported.
    """
    if not is_rocksdb(path):
        return False
    with RocksDb.open(path) as database:
        start = formats.POSITION.build({"value": position})
        key, _ = next(database.items(formats.TRANSACTION, start), (b"", b""))
        return key.startswith(start)


def timer_due(path: Path, unique_key: str) -> int | None:
    """When the timer of a message fires, in ms; None where it has none there.

    Its entries are in the order of time: all are read. path: of the RocksDB. Raises Unreadable,
    Unsupported.
    """
    if not unique_key or not is_rocksdb(path):
        return None
    wanted = unique_key.encode("utf-8", "surrogateescape")
    with RocksDb.open(path) as database:
        for key, _ in database.items(formats.TIMER):
            if key.endswith(wanted) and not formats.is_text_key(key):
                found = formats.TIMER_KEY.parse(key)
                if found.unique_key == wanted:
                    return int(found.delay_time)
    return None


def read_whole(path: Path, stopped: Callable[[], str] = str) -> str:
    """Read the timers, transactions, or what consumers of POP have, of `rocksdbstore/` or `kvStore/`; why that
    ended early, "" if it did not. Raises Unreadable, Unsupported, NoSpace.

    Entries of the index are not read: there can be as many as messages. path: of the RocksDB. stopped: asked
    now and then why to end, "" to go on.
    """
    with RocksDb.open(path) as database:
        for family in (formats.TIMER, formats.TRANSACTION, KV_STATE):
            keys, start = [b""], b""
            while keys and not stopped():
                keys, _ = database.stretch(family, start, _AT_ONCE)
                start = keys[-1] + b"\0" if keys else start
    return stopped()


_AT_ONCE = 1 << 12
"""Rows."""


def has_rows(path: Path) -> bool:
    """Something is kept there: of a broker that never did there is no table, and an empty log."""
    return any(
        entry.name.endswith(".sst") or (entry.name.endswith(".log") and entry.size)
        for entry in list_entries(path)
    )


class TimersKept(NamedTuple):
    """The timers in a RocksDB: int64[n] each. due_ms: when each fires. queue_offset: of the timer topic's
    queue, from where a broker reads on. delivered_ms: the last time whose timers were delivered.
    """

    due_ms: Ints
    position: Ints
    size: Ints
    queue_offset: int = 0
    delivered_ms: int = 0


def timers_kept(path: Path) -> TimersKept | None:
    """All timers there, None where no broker has ever kept one there. Raises Unreadable, Unsupported.

    path: of the RocksDB. Memory: some 100 bytes for each.
    """
    if not is_rocksdb(path):
        return None
    rows: list[tuple[int, int, int]] = []
    marks: dict[bytes, int] = {}
    with RocksDb.open(path) as database:
        for key, value in database.items(formats.TIMER):
            if formats.is_text_key(key):
                if len(value) == formats.POSITION.sizeof():
                    marks[key] = int(formats.POSITION.parse(value).value)
            elif len(key) > _DUE_BYTES and len(value) == formats.TIMER_VALUE.sizeof():
                found = formats.TIMER_VALUE.parse(value)
                due = formats.TIMER_KEY.parse(key).delay_time
                rows.append((int(due), int(found.physical_offset), int(found.size)))
    if not rows and not marks:
        return None
    due_ms, position, size = np.array(rows, np.int64).reshape(-1, 3).T
    offset = marks.get(formats.TIMER_QUEUE_OFFSET, 0)
    return TimersKept(due_ms, position, size, offset, marks.get(formats.TIMER_DELIVERED, 0))


_DUE_BYTES = formats.POSITION.sizeof()
