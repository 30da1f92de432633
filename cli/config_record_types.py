"""Record types of configuration files and of RocksDBs, by kind."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "rocksdb_queue_unit": ("queue unit key", "queue unit"),
    "rocksdb_queue_bound": ("queue bound key", "queue bound"),
    "rocksdb_dispatched": ("queue bound key", "dispatched"),
    "rocksdb_timer": ("timer key", "timer"),
    "rocksdb_transaction": ("transaction key", "transaction"),
    "rocksdb_index": ("index key", "index"),
    "rocksdb_position": ("position",),
    "rocksdb_pop": ("pop key",),
}
"""Record type of the kind `rocksdb` → layouts of key and value, or of the value alone."""
ENTRY = "rocksdb_entry"


def types_of_kind(name: str) -> tuple[str, ...]:
    """The record types that `dump` prints of a text file of some kind, of all files of `config/`, or of a RocksDB."""
    from ..formats.kinds import KINDS

    if name == "rocksdb":
        rows = ("topic_config", "subscription_group", "consumer_offset", "data_version")
        return (*LAYOUTS, *rows, "config_value", ENTRY)
    if name == "config":
        files = [types_of_kind(kind.name) for kind in KINDS.values() if kind.file and kind.place == "config"]
        return tuple(dict.fromkeys((*chain.from_iterable(files), ENTRY)))
    tables = tuple(dict.fromkeys(table.record_type for table in KINDS[name].tables))
    return (*tables, "config_value", "damage")
