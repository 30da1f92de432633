"""What `rocksdbstore/` says of one message: an open transaction, a timer (spec 04, 4.10)."""

from __future__ import annotations

from pathlib import Path

from ...formats import rocksdb_store as formats
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
