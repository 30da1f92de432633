"""JSON Schemas of the records that are layouts or tables of `formats`, for `cli/schemas`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mqstore.cli.record_types import ENTRY, LAYOUTS
from mqstore.formats import pop
from mqstore.formats.derive import columns_of
from mqstore.formats.kinds import KINDS
from mqstore.store.settings.rocksdb import is_shown

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}
_ADDRESS = {"type": "integer", "description": "tags_code of the unit in the queue"}
_QUEUE = {"topic": {"type": ["string", "null"]}, "queue_id": {"type": ["integer", "null"]}}
_STATE = {"enum": ["invalid", "pre_fill"], "description": "only where it points at no message"}
_POSITION = {"type": "integer", "description": "number in the name of the file plus byte in it"}
_SPARSE_STATE = {
    "enum": ["end", "invalid"],
    "description": "only where it names no message; end: the queue goes on in the next file",
}
_INVALID = {"enum": ["invalid"], "description": "only where it is not unit `number`"}
_EXT = {
    "ext_address": {
        "type": "integer",
        "description": "tags_code where that is the address of a unit in consumequeue_ext",
    },
    "ext_tags_code": {"type": "integer", "description": "tags_code of that unit"},
    "ext_bit_map": {"type": "string", "description": "its bit map, hexadecimal"},
    "ext_problem": {"type": "string", "description": "why there is no such unit"},
}

_DERIVED: Mapping[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "consume_queue_unit": ("consume-queue", "unit", {**_QUEUE, "queue_offset": _INTEGER}, {"state": _STATE, **_EXT}),
    "consume_queue_ext_unit": ("consume-queue-ext", "unit", {**_QUEUE, "position": _INTEGER, "address": _ADDRESS}, {}),
    "batch_consume_queue_unit": ("batch-consume-queue", "unit", {**_QUEUE, "number": _INTEGER}, {"state": _STATE}),
    "sparse_consume_queue_unit": (
        "sparse-consume-queue",
        "unit",
        {**_QUEUE, "position": _POSITION},
        {"state": _SPARSE_STATE},
    ),
    "tiered_index_header": ("tiered-index", "header", {"file": {"type": "string"}, "slots": _INTEGER}, {}),
    "tiered_index_item": (
        "tiered-index",
        "item",
        {"file": {"type": "string"}, "number": _INTEGER, "slot": _INTEGER},
        {"state": {"enum": ["unlinked"], "description": "only where its slot does not lead to it"}},
    ),
    "tiered_index_file_header": (
        "tiered-index-file",
        "header",
        {"file": {"type": "string"}, "slots": {"type": ["integer", "null"]}},
        {},
    ),
    "tiered_index_file_item": (
        "tiered-index-file",
        "item",
        {"file": {"type": "string"}, "number": _INTEGER, "slot": _INTEGER},
        {"state": {"enum": ["unlinked"], "description": "only where its slot does not lead to it"}},
    ),
    "dledger_index_unit": ("dledger-index", "unit", {"number": _INTEGER}, {"state": _INVALID}),
    "timer_check": ("timer-check", "fields", {}, {}),
    "index_header": ("index-file", "header", {"file": {"type": "string"}}, {}),
    "index_item": ("index-file", "item", {"file": {"type": "string"}, "number": _INTEGER, "slot": _INTEGER}, {}),
    "checkpoint": ("checkpoint", "checkpoint", {}, {}),
    "abort": ("abort", "abort", {}, {}),
    "lock": ("lock", "lock", {}, {}),
    "timer_log_unit": ("timer-log", "unit", {"position": _INTEGER}, {}),
    "timer_wheel_slot": ("timer-wheel", "slot", {"slot": _INTEGER}, {}),
}
"""Type → kind, layout in `formats.kinds`, properties before the schema's, properties behind."""


def schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema of each such record type."""
    return {record[0]: _schema(*record) for record in (*map(_of_layout, _DERIVED), *_config_records())}


def _schema(
    record_type: str, description: str, properties: dict[str, Any], required: tuple[str, ...]
) -> dict[str, Any]:
    return {
        "$schema": _DIALECT,
        "title": record_type,
        "description": description,
        "type": "object",
        "required": ["type", *required],
        "additionalProperties": False,
        "properties": {"type": {"const": record_type}, **properties},
    }


def _of_layout(record_type: str) -> tuple[str, str, dict[str, Any], tuple[str, ...]]:
    """A record that is a layout of `formats`, with the fields around it."""
    kind, layout, before, behind = _DERIVED[record_type]
    fields = _fields(dict(KINDS[kind].layouts)[layout])
    description = KINDS[kind].description.partition("\n")[0]
    return record_type, description, {**before, **fields, **behind}, (*before, *fields)


def _fields(schema: Any) -> dict[str, Any]:
    return {
        column.name: {"type": "string" if column.type == "bytes" else "integer", "description": column.doc}
        for column in columns_of(schema)
    }


def _config_records() -> Iterator[tuple[str, str, dict[str, Any], tuple[str, ...]]]:
    """(record type, description, properties, those that are required) of configuration files and RocksDBs."""
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
    for record_type, layouts in LAYOUTS.items():
        yield _of_layouts(record_type, layouts)
    entry = {
        "column_family": _STRING,
        "key": {**_STRING, "description": "hexadecimal"},
        "value": {**_STRING, "description": "hexadecimal"},
    }
    yield ENTRY, "An entry of a RocksDB that is not known, or with --raw.", entry, tuple(entry)


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
    known = dict(KINDS["rocksdb"].layouts)
    fields = {name: field for layout in layouts for name, field in _fields(known[layout]).items() if is_shown(name)}
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
