"""Record types of configuration files and of RocksDBs: those of a kind, and their JSON Schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_DATA_VERSION = "data_version"
_REST = ("config_value", "damage")
_OF_FILE: Mapping[str, tuple[str, ...]] = {
    "topics": ("topic_config", _DATA_VERSION, *_REST),
    "subscription-group": ("subscription_group", "forbidden", _DATA_VERSION, *_REST),
    "consumer-offset": ("consumer_offset", _DATA_VERSION, *_REST),
    "lmq-consumer-offset": ("consumer_offset", _DATA_VERSION, *_REST),
    "delay-offset": ("delay_offset", _DATA_VERSION, *_REST),
    "consumer-filter": ("consumer_filter", *_REST),
    "consumer-order-info": ("consumer_order_info", *_REST),
    "topic-queue-mapping": ("topic_queue_mapping", _DATA_VERSION, *_REST),
    "message-request-mode": ("message_request_mode", *_REST),
    "transaction-metrics": ("transaction_count", _DATA_VERSION, *_REST),
    "timer-metrics": ("timer_count", _DATA_VERSION, *_REST),
    "tiered-store-metadata": ("tiered_topic", "tiered_queue", "tiered_segment", *_REST),
    "broker-properties": ("broker_property", *_REST),
}
_CONFIG = tuple(dict.fromkeys(name for names in _OF_FILE.values() for name in names))
_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "position-checkpoint": ("compaction_position", *_REST),
    "epoch-file": ("epoch_file", "epoch", *_REST),
    "broker-identity": ("broker_identity", *_REST),
    "dledger-state": ("dledger_state", *_REST),
}
"""Files of this sort that do not lie in `config/`."""
_LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "rocksdb_queue_unit": ("queue unit key", "queue unit"),
    "rocksdb_queue_bound": ("queue bound key", "queue bound"),
    "rocksdb_dispatched": ("queue bound key", "dispatched"),
    "rocksdb_timer": ("timer key", "timer"),
    "rocksdb_transaction": ("transaction key", "transaction"),
    "rocksdb_index": ("index key", "index"),
    "rocksdb_position": ("position",),
    "rocksdb_pop": ("pop key",),
}
"""Record type → layouts of key and value, or of a value alone, of the kind `rocksdb`."""
_ENTRY = "rocksdb_entry"
OF_KIND: Mapping[str, tuple[str, ...]] = {
    **_OF_FILE,
    **_ELSEWHERE,
    "config": (*_CONFIG, _ENTRY),
    "rocksdb": (
        *(*_LAYOUTS, "topic_config", "subscription_group", "consumer_offset", _DATA_VERSION),
        *("config_value", _ENTRY),
    ),
}
"""What `dump` prints of each kind."""

_STRING = {"type": "string"}


def schemas() -> Iterator[tuple[str, str, dict[str, Any], tuple[str, ...]]]:
    """(record type, description, properties, those that are required) of all of them."""
    from ..formats.kinds import KINDS

    seen = set[str]()
    for kind in KINDS.values():
        for table in kind.tables:
            if table.record_type not in seen:
                seen.add(table.record_type)
                yield _of_table(table)
    file = {"file": {**_STRING, "description": "name of the file, or of the RocksDB's directory"}}
    value = {
        "name": {**_STRING, "description": "where in the file, levels with dots between"},
        "value": {"description": "as it stands there"},
        "problem": {**_STRING, "description": "what it is not, where something else belongs"},
    }
    description = "A part of a configuration file that is in none of its known tables."
    yield "config_value", description, file | value, ("file", "name", "value")
    for record_type, layouts in _LAYOUTS.items():
        yield _of_layouts(record_type, layouts)
    entry = {
        "column_family": _STRING,
        "key": {**_STRING, "description": "hexadecimal"},
        "value": {**_STRING, "description": "hexadecimal"},
    }
    yield _ENTRY, "An entry of a RocksDB that is not known, or with --raw.", entry, tuple(entry)


def _of_table(table: Any) -> tuple[str, str, dict[str, Any], tuple[str, ...]]:
    head = {
        "file": {**_STRING, "description": "name of the file, or of the RocksDB's directory"},
        "table": {**_STRING, "description": "member of the file that has the entry"},
    }
    if not table.member:
        del head["table"]
    columns = {c.column: {"type": c.type, "description": c.doc} for c in table.columns}
    more = {"type": "object", "description": "members that are not known, or of another type"}
    # a queue id is missing where an LMQ has only one
    keys = [key.column for key in table.keys if key.column != "queue_id"]
    required = (*head, *keys, *((table.value.column,) if table.value else ()))
    return table.record_type, table.doc, {**head, **columns, "more": more}, required


def _of_layouts(record_type: str, layouts: tuple[str, ...]) -> tuple[str, str, dict[str, Any], tuple[str, ...]]:
    from ..formats import pop
    from ..formats.derive import columns_of
    from ..formats.kinds import KINDS
    from ..store.settings.rocksdb import is_shown

    known = dict(KINDS["rocksdb"].layouts)
    fields = {
        column.name: {"type": "string" if column.type == "bytes" else "integer", "description": column.doc}
        for layout in layouts
        for column in columns_of(known[layout])
        if is_shown(column.name)
    }
    if record_type == "rocksdb_index":  # the name in the key is taken apart
        del fields["name"]
        fields |= {
            "topic": _STRING,
            "index_type": {**_STRING, "description": "K key, T tag, U unique key"},
            "key": {**_STRING, "description": "key or tag, empty for a unique key"},
            "unique_key": _STRING,
            "physical_offset": {"type": "integer", "description": "position of the record"},
        }
    if record_type == "rocksdb_pop":  # its value is JSON
        del fields["name"]
        fields |= {field.column: {"type": field.type, "description": field.doc} for field in pop.KV_VALUE}
    if record_type == "rocksdb_position":
        fields = {"column_family": _STRING, "name": _STRING, **fields}
    return record_type, f"{layouts[-1]}: an entry of a RocksDB", fields, tuple(fields)
