"""A RocksDB: entries of all its column families."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .chunks import Chunk, Piece, Texts

if TYPE_CHECKING:
    from ...store.recognise import Recognised
    from ...store.rocksdb_records import Entry
    from ..options import Common


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """Entries from number `at` on, with `raw` as plain bytes."""
    return database_chunks(what.path, at or 0, raw)


def database_chunks(path: Path, at: int, raw: bool = False) -> Iterator[Chunk]:
    """The same for a directory."""
    from ...store.rocksdb import RocksDb
    from ...store.rocksdb_records import as_bytes, read_entries

    with RocksDb.open(path) as database:
        entries = as_bytes(database) if raw else read_entries(database)
        for number, entry in enumerate(islice(entries, at, None), at):
            yield Texts(entry.records, _pieces(number, entry))


def _pieces(number: int, entry: Entry) -> Any:
    def pieces() -> Iterator[Piece]:
        name = f"entry {number} of column family {entry.family}"
        yield Piece(f"{name}, key", 0, entry.key, entry.key_schema, counts=False)
        yield Piece(f"{name}, value", 0, entry.value, entry.value_schema)

    return pieces


def contents(path: Path) -> list[str]:
    """How many records of what; of queue units how many queues."""
    from ...store.rocksdb import RocksDb
    from ...store.rocksdb_records import read_entries

    counts: Counter[str] = Counter()
    with RocksDb.open(path) as database:
        for entry in read_entries(database):
            counts.update(record["type"] for record in entry.records)
    counts.pop("data_version", None)
    return [f"{n} {name.replace('_', ' ')}{'' if n == 1 else 's'}" for name, n in counts.items()]


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """Column families and what is in them; of consume queues the queues."""
    from ...store.rocksdb import RocksDb

    with RocksDb.open(what.path) as database:
        families = list(database.column_families)
    return {"column_families": families, "contents": contents(what.path)}
