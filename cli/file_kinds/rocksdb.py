"""A RocksDB: the entries of all its column families."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ...formats.rocksdb_consume_queue import BOUNDS
from ...store.inspect.recognise import Recognised
from ...store.queues.rocksdb import RocksDb, RocksdbConsumeQueues
from ...store.settings.read import count_entries, entries_text
from ...store.settings.rocksdb import RocksdbEntry, as_bytes, read_entries
from ..options import Common
from .chunks import Chunk, RecordPiece, SingleRecords
from .queues import sums


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """Entries from number `at` on, with `raw` as plain bytes."""
    return database_chunks(what.path, at or 0, raw)


def database_chunks(path: Path, at: int, raw: bool = False) -> Iterator[Chunk]:
    with RocksDb.open(path) as database:
        entries = as_bytes(database) if raw else read_entries(database)
        for number, entry in enumerate(islice(entries, at, None), at):
            yield SingleRecords(entry.records, partial(_pieces, number, entry))


def _pieces(number: int, entry: RocksdbEntry) -> Iterator[RecordPiece]:
    name = f"entry {number} of column family {entry.family}"
    yield RecordPiece(f"{name}, key", 0, entry.key, entry.key_schema, counts=False)
    yield RecordPiece(f"{name}, value", 0, entry.value, entry.value_schema)


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """Column families and their content; for consume queues, the queues and their messages."""
    with RocksDb.open(what.path) as database:
        families = list(database.column_families)
    if BOUNDS not in families:
        contents = [entries_text({name: n}) for name, n in count_entries(what.path).items()]
        return {"column_families": families, "contents": contents}
    queues = RocksdbConsumeQueues.at(what.path)
    found = queues.summaries()
    queues.close()
    return {"column_families": families, **sums(found)}
