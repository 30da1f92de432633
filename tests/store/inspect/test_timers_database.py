"""Timers in the RocksDB `rocksdbstore/`: what real brokers of 5.5 kept there is what waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqstore.formats import rocksdb_store as formats
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.inspect import timers as module
from mqstore.store.inspect.timers import Engine, TimerMessageState, Timers, timers
from mqstore.store.search.store import StoreReader
from tests import stores

pytest.importorskip("rocksdict")

NAMES = [name for name in stores.OF_TODAY if "rocks-timer" in name]
NOW_MS = 1_795_350_000_000
ON, OFF = "timerRocksDBEnable=true", "timerRocksDBEnable=false"


def rows(name: str) -> list[tuple[bytes, bytes]]:
    """The rows of the column family, by the real classes."""
    kept = stores.truth(name)["rocksdb"]["rocksdbstore"]["timer"]
    return [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in kept]


def viewed(root: Path, *said: str) -> tuple[Timers, list[str]]:
    notes: list[str] = []
    with StoreReader(root, BrokerConfig({}).with_set(said)) as store:
        return timers(store, NOW_MS, notes.append), notes


@pytest.mark.parametrize("name", NAMES)
def test_what_waits_is_what_the_database_has(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    found, notes = viewed(root, ON)
    assert found.engine is Engine.ROCKSDB
    marks = {key: int.from_bytes(value, "big") for key, value in rows(name) if key[:1] != b"\0"}
    done = marks.get(formats.TIMER_DELIVERED, NOW_MS - 10_000)  # as a real broker that finds no row for it
    waits = {key[8:].decode() for key, _ in rows(name) if key[:1] == b"\0" and int.from_bytes(key[:8], "big") >= done}
    assert found.queue_offset == marks.get(formats.TIMER_QUEUE_OFFSET, 0)
    told = {row.unique_key for row in found.rows if row.next_timestamp is not None}
    assert told == waits
    undelivered = set(stores.truth(name)["timer"]["not_delivered"])
    pending = {row.unique_key for row in found.rows if row.state is TimerMessageState.PENDING}
    if not name.endswith("-restarted"):
        assert pending - undelivered <= {row.unique_key for row in found.rows}
        assert not [row for row in found.rows if row.state in (TimerMessageState.NEVER, TimerMessageState.UNKNOWN)]
    assert not notes


@pytest.mark.parametrize("name", [name for name in NAMES if "killed" not in name])
def test_which_engine_a_start_uses(name: str, tmp_path: Path) -> None:
    """As configured; where nothing tells, the one that has got farther. What waits in the other is told."""
    root = stores.unpack(name, tmp_path)
    guessed, notes = viewed(root)
    assert guessed.engine is Engine.ROCKSDB
    assert "is as far as the wheel or farther" in notes[0]
    other, notes = viewed(root, OFF)
    assert other.engine is Engine.WHEEL
    assert other.queue_offset == 0
    assert "wait in rocksdbstore" in notes[0]


def test_the_version_that_is_named_decides(tmp_path: Path) -> None:
    notes: list[str] = []
    with StoreReader(stores.unpack("5.5.1-rocks-timer", tmp_path)) as store:
        store.layout.version_named = "5.3"
        assert timers(store, NOW_MS, notes.append).engine is Engine.WHEEL
    assert "wait in rocksdbstore, where a broker before 5.4 does not look" in notes[0]


def test_a_store_without_one(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-timer-clean", tmp_path)
    found, notes = viewed(root)
    assert found.engine is Engine.WHEEL
    assert not notes


def test_a_database_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mqstore.store.errors import Unreadable

    def fails(_path: Path) -> Any:
        raise Unreadable("torn")

    monkeypatch.setattr(module, "timers_kept", fails)
    root = stores.unpack("5.3.3-timer-clean", tmp_path)
    found, notes = viewed(root, ON)
    assert found.engine is Engine.WHEEL
    assert notes == ["timers: timerRocksDBEnable is on, and torn: timers that wait there are not known"]
