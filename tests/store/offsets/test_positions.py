"""Positions of groups, out of the files and databases that have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Refused
from mqstore.store.offsets.move import parse_reset, plan_moves
from mqstore.store.offsets.positions import entries_of_database, every_file, positions_of
from mqstore.store.search.store import StoreReader

from ... import stores
from .moved import carried_out, positions


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
def test_a_file_beside_a_database_of_positions(counter: int | None, tmp_path: Path) -> None:
    """The one written more often wins, alone: a database without a counter has 0, as a file without one."""
    root = stores.unpack("5.3.3-rocksdb", tmp_path)
    assert entries_of_database(root / "config" / "consumerOffsets").counter is None  # as brokers leave it
    before = positions(root)
    version = {} if counter is None else {"dataVersion": {"counter": counter, "timestamp": 1}}
    content = {"offsetTable": {"TopicA@other": {"0": 3}}, **version}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(content))
    with StoreReader(root) as store:
        found = positions_of(store.layout, store.generation.version)
    assert not found.unsure and len(found.notes) == 1
    mine = {key: at for key, at in positions(root).items() if key[0] == "offset"}
    if counter:
        assert mine == {("offset", "other", "TopicA", 0): 3}
        assert "without 2 positions that only the RocksDB has" in found.notes[0]
    else:
        assert mine == {key: at for key, at in before.items() if key[0] == "offset"}
    carried_out(root, "TopicA/0@rg=1")
    assert positions(root)["offset", "rg", "TopicA", 0] == 1


def test_positions_that_a_broker_with_databases_does_not_take(tmp_path: Path) -> None:
    """Of LMQs in files, and of a file whose counter is 0: what can be read is told, and nothing is written into it."""
    for name, rows in (("5.3.3-lmq", 0), ("5.5.1-clean", 16)):
        root = stores.unpack(name, tmp_path)
        layout = Layout.open(root, BrokerConfig({"storeType": "defaultRocksDB", "enableLmq": "true"}))
        found = positions_of(layout, "5.5")
        assert found.lacking and "a broker begins without positions" in found.notes[0]
        assert len([row for row in found.rows if row.table == "offset"]) == rows
        with StoreReader(root, layout.broker_config) as store, pytest.raises(Refused, match="repair"):
            reset = "mqtt@lmq_group=earliest" if "lmq" in name else "orders@group-a_tags=earliest"
            plan_moves(store, [parse_reset(reset)])
