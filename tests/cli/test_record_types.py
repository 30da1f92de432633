"""Every record that a command prints is what its JSON Schema says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.record_types import SCHEMAS, schema_of, types_of_kind
from mqstore.formats.kinds import KINDS

from .. import stores, tiered
from .datadriven import run_here
from .json_schema import wrong

STORES = (
    *("4.3.1-killed", "4.9.7-lmq", "5.3.3-killed-page", "5.3.3-timer-clean", "5.3.3-dledger"),
    *("5.5.0-ipv6", "5.3.3-v2", "5.3.3-batchcq", "5.3.3-killed-torn"),
    *("5.3.3-rocksdb", "5.5.0-rocksdb-killed", "4.9.7-cqext", "5.3.3-compaction"),
)


def records(*arguments: str) -> list[dict[str, Any]]:
    """What a command prints."""
    result = run_here([*arguments, "--format", "ndjson"])
    assert result.code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", STORES)
def test_everything_that_is_printed_of_a_store(name: str, tmp_path: Path) -> None:
    """By `dump` of the store and of its parts, by `inspect` of all of them."""
    store = stores.unpack(name, tmp_path)
    parts = [store, *(p for p in store.iterdir() if p.name.partition(".")[0] in _PARTS)]
    seen = set()
    for part in parts:
        options = ["--as", "abort"] if part.name == "abort.bak" else []
        for record in (
            *records("dump", str(part), *options),
            *records("dump", str(part), "--raw", "--count", "50", *options),
            *records("inspect", str(part), *options),
        ):
            assert wrong(record) == []
            seen.add(record["type"])
    units = "rocksdb_queue_unit" if name == "5.3.3-rocksdb" else "consume_queue_unit"
    wanted = {"message", "store", "file", "checkpoint", "topic_config"}
    assert wanted | ({units} if name != "5.5.0-rocksdb-killed" else set()) <= seen


def test_everything_that_is_printed_of_tiered_segments(tmp_path: Path) -> None:
    root = tiered.unpack("5.3.3", tmp_path)
    seen = set()
    for place in tiered.PLACES.values():
        for record in (*records("dump", str(root / place)), *records("inspect", str(root / place))):
            assert wrong(record) == []
            seen.add(record["type"])
        assert run_here(["dump", str(root / place), "--hex"]).code == 0
        assert run_here(["dump", str(root / place), "--format", "csv"]).code == 0
    assert seen >= {"message", "consume_queue_unit", "tiered_index_item", "tiered_index_header"}


_PARTS = {
    *("abort", "lock", "checkpoint", "commitlog", "consumequeue", "index"),
    *("timerlog", "timerwheel", "dledger-n0", "config", "rocksdbstore", "compaction"),
}


def test_schemas_are_whole() -> None:
    """Each names its record type and requires only what it knows."""
    names = {path.stem for path in SCHEMAS.glob("*.json")}
    every = [types_of_kind(kind) for kind in ("store", *KINDS)]
    assert {record_type for types in every for record_type in types} <= names
    for name in names:
        schema = schema_of(name)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["title"] == name
        assert schema["description"]
        assert schema["properties"]["type"] == {"const": name}
        assert set(schema["required"]) <= set(schema["properties"])


def test_the_check_itself_finds_what_is_wrong() -> None:
    """A message without a topic, with a stranger, with a text for a number."""
    broken = {"type": "message", "stranger": 1, "queue_id": "0", "body": "", "body_base64": ""}
    said = "\n".join(wrong(broken))
    assert "topic is missing" in said
    assert "stranger is not known" in said
    assert "queue_id: '0' is not of type" in said
    assert "alternatives" in said
