"""Entries of RocksDBs that no store has, made here; and bytes that fit nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from mqstore.formats import rocksdb_store as formats
from mqstore.store.queues.rocksdb import RocksDb
from mqstore.store.settings.rocksdb import as_bytes, read_entries


def database(path: Path, families: dict[str, dict[bytes, bytes]]) -> Path:
    """A RocksDB with these entries."""
    made = Rdict(str(path), Options(raw_mode=True))
    for family, rows in families.items():
        column = made if family == "default" else made.create_column_family(family, Options(raw_mode=True))
        for key, value in rows.items():
            column.put(key, value)
    made.close()
    return path


def records(path: Path) -> list[dict[str, Any]]:
    """All records of a RocksDB."""
    with RocksDb.open(path) as opened:
        return [record for entry in read_entries(opened) for record in entry.records]


def test_timers_and_transactions(tmp_path: Path) -> None:
    timer = {"delay_time": 1795211490605, "unique_key": b"7F00"}
    timer_value = {"size": 200, "physical_offset": 4096}
    transaction = {"physical_offset": 8192, "name": b"@T@7F01"}
    path = database(
        tmp_path / "rocksdbstore",
        {
            "default": {b"lastOffsetPy": formats.POSITION.build({"value": 12})},
            "timer": {formats.TIMER_KEY.build(timer): formats.TIMER_VALUE.build(timer_value), b"short": b"?"},
            "trans": {
                formats.TRANSACTION_KEY.build(transaction): formats.TRANSACTION_VALUE.build(
                    {"check_times": 2, "size": 300}
                )
            },
        },
    )
    assert records(path) == [
        {"type": "rocksdb_position", "column_family": "default", "name": "lastOffsetPy", "value": 12},
        {
            "type": "rocksdb_timer",
            "delay_time": 1795211490605,
            "unique_key": "7F00",
            "size": 200,
            "physical_offset": 4096,
        },
        {"type": "rocksdb_entry", "column_family": "timer", "key": b"short".hex(), "value": "3f"},
        {"type": "rocksdb_transaction", "physical_offset": 8192, "name": "@T@7F01", "check_times": 2, "size": 300},
    ]


def test_what_is_not_known_is_bytes(tmp_path: Path) -> None:
    path = database(
        tmp_path / "topics",
        {
            "default": {b"T": b'{"topicName":"T","perm":6}', b"broken": b'{"perm":'},
            "kvDataVersion": {b"kvDataVersionKey": b'{"counter":3}'},
            "forbidden": {b"G": b'{"T":1}'},
        },
    )
    found = records(path)
    assert [r["type"] for r in found] == [*("topic_config", "rocksdb_entry", "rocksdb_entry", "data_version")]
    with RocksDb.open(path) as opened:
        assert [entry.key for entry in as_bytes(opened)] == [*(b"T", b"broken", b"G", b"kvDataVersionKey")]


@given(st.binary(max_size=60))
def test_any_name_of_an_index_key(data: bytes) -> None:
    for name in (data, b"@" + data + b"@" + bytes(8)):
        found = formats.index_name(name)
        if found is not None:
            rest = found.key + b"@" + found.unique_key if found.key else found.unique_key
            assert found.topic + b"@" + found.index_type + b"@" + rest in name


@pytest.mark.parametrize("name", [b"", b"@", b"@@" + bytes(8), b"@T@X@k@u@" + bytes(8)])
def test_names_that_are_none(name: bytes) -> None:
    assert formats.index_name(name) is None
