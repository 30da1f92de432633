"""With its queues a broker's topics, groups and positions go from RocksDBs into files of JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqstore.store.disk.layout import Layout
from mqstore.store.repair.database import QueueStoreKind, as_kind
from mqstore.store.settings.read import FILES, read_config_file
from mqstore.store.settings.rocksdb import in_force, rows_of
from mqstore.store.start.config_load import LMQ_OFFSETS, OFFSETS
from tests.cli.datadriven import run_here

from ... import stores
from ..session.test_undo import everything
from .test_database import carried_out, errors, opened, taken_back

pytestmark = pytest.mark.long

ROCKS, SINGLE, SECOND = "5.3.3-rocksdb", "5.5.1-config-single", "5.5.1-config-v2"


def _rows(layout: Layout) -> dict[str, list[dict[str, Any]]]:
    """What the databases that are in force say."""
    found = in_force(layout.config, layout.broker_config).databases
    return {name: _sorted(rows_of(path, name)) for name, path in found.items()}


def _written(layout: Layout, name: str) -> list[dict[str, Any]]:
    file = read_config_file(layout.config / name, FILES[name])
    assert file.problem is None
    return _sorted([row for row in file.records() if row["type"] != "config_value"])


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    bare = [{key: value for key, value in row.items() if key != "file"} for row in rows]
    return sorted(bare, key=repr)


@pytest.mark.parametrize("name", [ROCKS, SINGLE])
def test_every_entry_is_in_a_file(name: str, tmp_path: Path) -> None:
    layout = opened(name, tmp_path)
    wanted, before = _rows(layout), everything(layout.root)
    assert all(wanted.values())
    files = as_kind(layout, QueueStoreKind.FILES)
    done = carried_out(files, QueueStoreKind.FILES)
    for file, rows in wanted.items():
        made = _written(layout, file if (layout.config / file).exists() else LMQ_OFFSETS)
        assert [row for row in made if row in rows] == rows, file
        assert {row["type"] for row in made if row not in rows} <= {"data_version"}
    assert not in_force(layout.config).databases
    assert not errors(files)
    taken_back(files, done)
    assert everything(layout.root) == before


def test_light_queues_have_a_file_of_positions_of_their_own(tmp_path: Path) -> None:
    layout = opened(ROCKS, tmp_path)
    files = Layout.open(layout.root, layout.broker_config.with_set(["enableLmq=true"]))
    (layout.config / OFFSETS).write_text("{}")
    carried_out(as_kind(files, QueueStoreKind.FILES), QueueStoreKind.FILES)
    assert (layout.config / LMQ_OFFSETS).is_file()
    assert not (layout.config / OFFSETS).exists()


def test_version_2_is_read_with_queues_in_files_too(tmp_path: Path) -> None:
    layout = opened(SECOND, tmp_path)
    there = in_force(layout.config).databases
    carried_out(as_kind(layout, QueueStoreKind.FILES), QueueStoreKind.FILES)
    assert in_force(layout.config).databases == there


def test_a_database_that_cannot_be_read_stays(tmp_path: Path) -> None:
    layout = opened(ROCKS, tmp_path)
    broken = layout.config / "consumerOffsets"
    for table in [*broken.glob("*.sst"), *broken.glob("*.log")]:
        table.write_bytes(b"x" * 100)
    carried_out(as_kind(layout, QueueStoreKind.FILES), QueueStoreKind.FILES)
    assert (broken / "CURRENT").is_file()
    assert (layout.config / "topics.json").is_file()
    assert not (layout.config / OFFSETS).exists()


def test_a_broker_can_be_started_then(tmp_path: Path) -> None:
    root = str(stores.unpack(ROCKS, tmp_path))
    done = run_here(["repair", root, "--queues", "--as", "files", "--apply", "--yes"])
    assert done.code == 0, done.stdout
    assert "config/topics.json" in done.stdout
    for words in (["verify", root], ["verify", root, "--set", "storeType=default"]):
        assert run_here(words).code == 0
