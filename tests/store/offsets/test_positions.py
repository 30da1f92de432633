"""Positions of groups, out of the files and databases that have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Refused
from mqstore.store.offsets.positions import entries_of_database, every_file, positions_of
from mqstore.store.search.store import StoreReader

from ... import stores
from .moved import planned, positions


def test_both_files_of_offsets_are_told(tmp_path: Path) -> None:
    """Where nothing says whether LMQs are on."""
    root = stores.unpack("4.9.7-lmq", tmp_path)
    light = '{"lmqOffsetTable":{"%LMQ%a@%LMQ%g":5},"offsetTable":{}}'
    (root / "config" / "lmqConsumerOffset.json").write_text(light)
    plain = '{"offsetTable":{"T@g":{0:3}}}'
    (root / "config" / "consumerOffset.json").write_text(plain)
    for given, groups in ((None, {"g", "%LMQ%g"}), ("true", {"%LMQ%g"}), ("false", {"g"})):
        config = BrokerConfig().with_set([] if given is None else [f"enableLmq={given}"])
        found = positions_of(Layout.open(root, config), "4.9")
        assert {row.group for row in found.rows if row.table != "delay"} == groups
        assert bool(found.notes) == (given is None)


def test_a_file_beside_a_rocksdb_is_told(tmp_path: Path) -> None:
    """Where it has other positions."""
    root = stores.unpack("5.3.3-rocksdb", tmp_path)
    path = root / "config" / "consumerOffset.json"
    for offset, notes in ((54, 0), (3, 1)):
        path.write_text(f'{{"offsetTable":{{"TopicA@rg":{{0:{offset},1:56}}}}}}')
        found = positions_of(Layout.open(root), "5.3")
        assert len(found.notes) == notes
        assert {row.file for row in found.rows if row.table == "offset"} == {"consumerOffsets"}


def test_a_rocksdb_has_the_tables_that_are_asked_for(tmp_path: Path) -> None:
    """As a file has: positions of pulling consumers beside the others would count what is before them twice."""
    config = stores.unpack("5.5.1-config-v2", tmp_path) / "config"

    def tables(*asked: str) -> set[str]:
        return {row.table for file in every_file(config, asked) for row in file.positions}

    assert tables("offset") == {"offset"}
    assert tables("pull") == {"pull"}
    assert tables("delay") == {"delay"}
    assert tables("offset", "pull", "lmq", "delay") == {"offset", "pull", "delay"}


@pytest.mark.parametrize("counter", [None, 0, 7])
def test_a_file_beside_a_database_of_positions(
    counter: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one written more often wins; where that cannot be told nothing is planned."""
    root = stores.unpack("5.3.3-rocksdb", tmp_path)
    database = entries_of_database(root / "config" / "consumerOffsets")
    assert database.counter is None  # as brokers leave it
    versioned = database._replace(counter=3)
    monkeypatch.setattr(f"{positions_of.__module__}.entries_of_database", lambda _: versioned)
    key, offset = next((key, at) for key, at in sorted(positions(root).items()) if at > 2)
    other = {"offsetTable": {f"{key[2]}@{key[1]}": {key[3]: offset - 1}}}
    version = {} if counter is None else {"dataVersion": {"counter": counter, "timestamp": 1}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({**other, **version}))
    with StoreReader(root) as store:
        found = positions_of(store.layout, store.generation.version)
    assert found.notes
    assert bool(found.unsure) == (counter is None)
    if found.unsure:
        with pytest.raises(Refused, match="cannot be told"):
            planned(root, f"{key[2]}/{key[3]}@{key[1]}=1")
    else:
        wins = positions(root)[key] == offset - 1
        assert wins == (counter == 7)
