"""Which form of the configuration is in force, and what its databases say: stores of real brokers."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from mqstore.store.errors import Unreadable
from mqstore.store.findings.catalogue import Severity
from mqstore.store.offsets.positions import positions_of
from mqstore.store.search.store import StoreReader
from mqstore.store.settings.rocksdb import SEPARATE, ConfigForm, in_force, rows_of, stand_ins, table_of
from mqstore.store.verify.run import verify

from ... import stores

TOPICS, GROUPS, OFFSETS = SEPARATE
FORMS = {
    "5.5.1-config-v2": (ConfigForm.SECOND, {"rdb"}),
    "5.5.1-config-single": (ConfigForm.SINGLE, {"metadata"}),
    "5.3.3-rocksdb": (ConfigForm.SEPARATE, set(SEPARATE.values())),
    "5.3.3-clean": (ConfigForm.FILES, set[str]()),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_form_in_force(name: str, tmp_path: Path) -> None:
    """By what lies there, and by the options of the broker that wrote it."""
    root = stores.unpack(name, tmp_path)
    form, directories = FORMS[name]
    for options in (None, stores.config(name, root)):
        found = in_force(root / "config", options)
        assert found.form is form
        assert {path.name for path in found.databases.values()} == directories
        assert found.others == ()


@pytest.mark.parametrize(
    ("options", "form"),
    [
        ({}, ConfigForm.SECOND),
        ({"configManagerVersion": "v2"}, ConfigForm.SECOND),
        ({"storeType": "default"}, ConfigForm.FILES),
        ({"storeType": "defaultRocksDB", "useSingleRocksDBForAllConfigs": "true"}, ConfigForm.SINGLE),
        ({"storeType": "defaultRocksDB", "configManagerVersion": "v1"}, ConfigForm.SEPARATE),
    ],
)
def test_an_option_says_which_of_two(options: dict[str, str], form: ConfigForm, tmp_path: Path) -> None:
    """Both are there: without an option the one written last counts, and is not sure."""
    config = stores.unpack("5.5.1-config-v2", tmp_path) / "config"
    other = stores.unpack("5.5.1-config-single", tmp_path) / "config" / "metadata"
    shutil.copytree(other, config / "metadata")
    for file in (config / "metadata").iterdir():
        os.utime(file, (1, 1))
    found = in_force(config, options)
    assert (found.form, found.sure) == (form, bool(options))
    assert found.others == tuple(
        name for place, name in ((ConfigForm.SINGLE, "metadata"), (ConfigForm.SECOND, "rdb")) if place != form
    )


@pytest.mark.parametrize(
    ("name", "topics", "groups", "positions"),
    [
        ("5.5.1-config-v2", {"TopicA", "TopicB"}, 0, {("TopicA", "rg", 0): 23, ("TopicA", "rg", 1): 6}),
        ("5.5.1-config-single", 17, 9, {("TopicA", "rg", 0): 18, ("TopicA", "rg", 1): 7}),
    ],
)
def test_what_the_databases_say(
    name: str, topics: set[str] | int, groups: int, positions: dict[tuple[str, str, int], int], tmp_path: Path
) -> None:
    found = stand_ins(stores.unpack(name, tmp_path) / "config")
    rows = {file: rows_of(path, file) for file, path in found.items()}
    names = [row["topic"] for row in rows[TOPICS] if row["type"] == "topic_config"]
    assert set(names) == topics if isinstance(topics, set) else len(names) == topics
    assert Counter(row["type"] for row in rows[GROUPS])["subscription_group"] == groups
    assert positions == {
        (row["topic"], row["group"], row["queue_id"]): row["offset"]
        for row in rows[OFFSETS]
        if row.get("table") == "offsetTable"
    }


@pytest.mark.parametrize("name", ["5.5.1-config-v2", "5.5.1-config-single"])
def test_a_healthy_store_has_no_finding(name: str, tmp_path: Path) -> None:
    """Its topics are in the database, and positions are those of it."""
    root = stores.unpack(name, tmp_path)
    with StoreReader(root) as store:
        told = [found for found in verify(store).findings if found.severity > Severity.INFO]
        positions = positions_of(store.layout, store.generation.version)
    assert told == []
    assert positions.notes == [] and not positions.lacking
    assert any(row.group == "rg" for row in positions.rows)


def test_two_forms_and_no_option_stop_a_plan(tmp_path: Path) -> None:
    root = stores.unpack("5.5.1-config-v2", tmp_path)
    other = stores.unpack("5.5.1-config-single", tmp_path) / "config" / "metadata"
    shutil.copytree(other, root / "config" / "metadata")
    with StoreReader(root) as store:
        found = positions_of(store.layout, store.generation.version)
    both = [("metadata", "rdb"), ("rdb", "metadata")]
    assert found.unsure in [f"config/ has the databases {a} and {b}" for a, b in both]
    assert found.lacking


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[6] ^= 4
    path.write_bytes(data)


def test_an_older_version_that_is_damaged_is_not_asked_for(tmp_path: Path) -> None:
    """A real 5.5.1 starts with it and serves all; a table with topics in the same state keeps it from a start."""
    tables = stores.unpack("5.5.1-rocksdb", tmp_path) / "config" / "topics"
    before = table_of(tables, "topics.json")
    spoil(tables / "000011.sst")
    assert table_of(tables, "topics.json") == before and len(rows_of(tables, "topics.json")) > 16
    spoil(tables / "000012.sst")
    with pytest.raises(Unreadable):
        rows_of(tables, "topics.json")
