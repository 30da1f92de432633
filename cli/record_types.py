"""The types of records that commands print, described by the JSON Schemas in `cli/schemas`.

The order of a schema's properties is the order of columns. `man/generate.py` writes the schemas of records that have a
schema in `formats`, derived from that (`man/schemas.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parent / "schemas"

_LOG = ("message", "damage", "blank")
_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "store": _LOG,
    "commit-log": _LOG,
    "dledger": _LOG,
    "consume-queue-ext": ("consume_queue_ext_unit", "damage"),
    "compaction-log": _LOG,
    "sparse-consume-queue": ("sparse_consume_queue_unit", "damage"),
    "index-file": ("index_header", "index_item"),
    "tiered-commit-log": _LOG,
    "tiered-index": ("tiered_index_header", "tiered_index_item", "damage"),
    "tiered-index-file": ("tiered_index_file_header", "tiered_index_file_item", "damage"),
    "dledger-index": ("dledger_index_unit", "damage"),
    "timer-log": ("timer_log_unit", "blank", "damage"),
}
"""Record types that `dump` prints of a kind of binary files, if there are several."""
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


@cache
def schema_of(record_type: str) -> dict[str, Any]:
    import json

    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{record_type}.json").read_text("utf-8"))
    return loaded


def types_of_kind(name: str) -> tuple[str, ...]:
    """The record types that `dump` prints of a kind."""
    if name in _OF_KIND:
        return _OF_KIND[name]
    from ..formats.kinds import KINDS

    if name == "rocksdb":
        rows = ("topic_config", "subscription_group", "consumer_offset", "data_version")
        return (*LAYOUTS, *rows, "config_value", ENTRY)
    if name == "config":
        files = [types_of_kind(kind.name) for kind in KINDS.values() if kind.file and kind.place == "config"]
        return tuple(dict.fromkeys((*chain.from_iterable(files), ENTRY)))
    if not KINDS[name].tables:
        return (KINDS[name].record_type,)
    return (*dict.fromkeys(table.record_type for table in KINDS[name].tables), "config_value", "damage")


def columns_of(*record_types: str) -> Callable[[], tuple[str, ...]]:
    """A function that returns all fields of the records of some types, in order: schemas are read when needed."""
    return lambda: tuple(dict.fromkeys(name for t in record_types for name in schema_of(t)["properties"]))
