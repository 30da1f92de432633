"""The types of records that the commands print, by the JSON Schemas in `cli/schemas`.

A schema's order of properties is the order of columns. Those of records with a schema in `formats`
are derived from it (`derived_schema`); `man/generate.py` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .config_record_types import OF_KIND as CONFIG_KINDS

SCHEMAS = Path(__file__).parent / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_LOG = ("message", "damage", "blank")
OF_KIND: Mapping[str, tuple[str, ...]] = {
    "store": _LOG,
    "commit-log": _LOG,
    "dledger": _LOG,
    "consume-queue": ("consume_queue_unit",),
    "consume-queue-ext": ("consume_queue_ext_unit", "damage"),
    "batch-consume-queue": ("batch_consume_queue_unit",),
    "compaction-log": _LOG,
    "sparse-consume-queue": ("sparse_consume_queue_unit", "damage"),
    "index-file": ("index_header", "index_item"),
    "checkpoint": ("checkpoint",),
    "abort": ("abort",),
    "lock": ("lock",),
    "tiered-commit-log": _LOG,
    "tiered-consume-queue": ("consume_queue_unit",),
    "tiered-index": ("tiered_index_header", "tiered_index_item", "damage"),
    "tiered-index-file": ("tiered_index_file_header", "tiered_index_file_item", "damage"),
    "dledger-index": ("dledger_index_unit", "damage"),
    "timer-log": ("timer_log_unit", "blank", "damage"),
    "timer-wheel": ("timer_wheel_slot",),
    "timer-check": ("timer_check",),
    **CONFIG_KINDS,
}
"""What `dump` prints of each kind."""

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

DERIVED: Mapping[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
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


def schema_of(record_type: str) -> dict[str, Any]:
    """The JSON Schema of a record type."""
    import json

    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{record_type}.json").read_text("utf-8"))
    return loaded


def columns_of_kind(kind: str) -> tuple[str, ...]:
    """All fields of the records of a kind, in order."""
    return columns_of_types(OF_KIND[kind])


def columns_of_types(record_types: tuple[str, ...]) -> tuple[str, ...]:
    """All fields of the records of some types, in order."""
    return tuple(dict.fromkeys(name for t in record_types for name in schema_of(t)["properties"]))


def config_schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schemas of records of configuration files and RocksDBs, by record type."""
    from .config_record_types import schemas

    return {
        record_type: {
            "$schema": DIALECT,
            "title": record_type,
            "description": description,
            "type": "object",
            "required": ["type", *required],
            "additionalProperties": False,
            "properties": {"type": {"const": record_type}, **properties},
        }
        for record_type, description, properties, required in schemas()
    }


def derived_schema(record_type: str) -> dict[str, Any]:
    """The JSON Schema of a record that is a layout of `formats`, with the fields around it."""
    from ..formats.derive import columns_of
    from ..formats.kinds import KINDS

    kind, layout, before, behind = DERIVED[record_type]
    fields = {
        column.name: {"type": "string" if column.type == "bytes" else "integer", "description": column.doc}
        for column in columns_of(dict(KINDS[kind].layouts)[layout])
    }
    return {
        "$schema": DIALECT,
        "title": record_type,
        "description": KINDS[kind].description.partition("\n")[0],
        "type": "object",
        "required": ["type", *before, *fields],
        "additionalProperties": False,
        "properties": {"type": {"const": record_type}, **before, **fields, **behind},
    }
