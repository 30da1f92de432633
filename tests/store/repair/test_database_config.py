"""With its queues a broker's topics, groups and positions go from RocksDBs into files of JSON."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.kinds import KINDS
from mqstore.formats.rocksdb_config import KV_DATA_VERSION, VERSION_ROW
from mqstore.store.broker.topics import loads
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.next_commands import settings
from mqstore.store.offsets.positions import positions_of
from mqstore.store.queues.rocksdb_write import rewritten
from mqstore.store.repair.parts import QueueStoreKind, RepairPart, as_kind, chosen
from mqstore.store.repair.repair import analyze, replan
from mqstore.store.session.apply import apply
from mqstore.store.settings.read import FILES, read_config_file
from mqstore.store.settings.rocksdb import SEPARATE, in_force, rows_of, table_of
from mqstore.store.start.config_load import GROUPS, LMQ_OFFSETS, OFFSETS, RULES, TOPICS, load_table
from tests.cli.datadriven import run_here

from ... import stores
from ..session.test_undo import everything
from .test_database import FILES as CLEAN
from .test_database import NOW_MS, again, carried_out, errors, examined, opened, taken_back

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


def test_what_a_database_has_lost_is_told_and_the_way_to_serve_its_topics(tmp_path: Path) -> None:
    """The files have what is left; the topics that the log shows come back with a second command."""
    root = stores.unpack("5.5.0-rocksdb-killed", tmp_path)
    (root / "config/topics/000010.log").unlink()
    sizes = {k: text for k, text in stores.config(root.name, root).items() if k.startswith("mappedFileSize")}
    words = [str(root), *settings(sizes)]
    done = run_here(["repair", *words, "--queues", "--as", "files", "--apply", "--yes"])
    told = "Not restored: 1 topic is no longer served, entries of config/topics may be lost (a write-ahead log"
    assert done.code == 1 and f"Done: repaired. {told}" in done.stdout and "  lost     topic TopicB" in done.stdout
    commands = re.findall(r"^(?:Next|Then): mqstore (re.* --apply .*)", done.stdout, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["recover", "repair"]
    assert [run_here([*shlex.split(command, comments=True), "--yes"]).code for command in commands] == [0, 0]
    assert "TopicB" in (root / "config/topics.json").read_text()
    assert run_here(["verify", *words, "--set", "storeType=default"]).code == 0


@pytest.mark.parametrize("name", SEPARATE)
def test_a_file_in_the_place_of_a_database_that_is_gone_stays(name: str, tmp_path: Path) -> None:
    root = stores.unpack("5.5.1-rocksdb", tmp_path)
    config = stores.config(root.name, root)
    sizes = settings({key: text for key, text in config.items() if key.startswith(("mappedFileSize", "storeType"))})
    shutil.rmtree(root / "config" / SEPARATE[name])
    run_here(["recover", str(root), "--apply", "--yes", *sizes])
    kept = (root / "config" / name).read_bytes()
    done = run_here(["repair", str(root), "--queues", "--as", "files", "--apply", "--yes", *sizes])
    assert done.code == 0, done
    assert f"config/{name} stays as it is: its RocksDB config/{SEPARATE[name]} is not there" in done.stderr
    assert (root / "config" / name).read_bytes() == kept
    assert not [path for other in SEPARATE.values() if (path := root / "config" / other / "CURRENT").exists()]
    assert run_here(["verify", str(root), *sizes, "--set", "storeType=default"]).code == 0


@pytest.mark.parametrize("name", [CLEAN, "5.3.3-lmq"])
def test_a_broker_with_databases_has_the_positions(name: str, tmp_path: Path) -> None:
    """Its counter is greater than any that may be there, and LMQs have no file of their own."""
    layout = opened(name, tmp_path)
    before, wanted = everything(layout.root), _positions(layout)
    rocks = as_kind(layout, QueueStoreKind.ROCKSDB)
    done = carried_out(rocks, QueueStoreKind.ROCKSDB)
    assert wanted and _positions(again(rocks)) == wanted
    assert not errors(rocks)
    assert examined(rocks, QueueStoreKind.ROCKSDB).nothing_to_do
    taken_back(rocks, done)
    assert everything(layout.root) == before


@pytest.mark.parametrize("name", ["5.5.1-rocksdb", SINGLE])
def test_there_and_back(name: str, tmp_path: Path) -> None:
    """The files have the counters of the databases, 0 mostly."""
    layout = opened(name, tmp_path)
    wanted = _positions(layout)
    for kind in (QueueStoreKind.FILES, QueueStoreKind.ROCKSDB):
        layout = as_kind(layout, kind)
        carried_out(layout, kind)
        assert wanted and _positions(again(layout)) == wanted
        assert not errors(layout)


def test_a_database_of_an_earlier_time_does_not_win(tmp_path: Path) -> None:
    layout = opened(CLEAN, tmp_path)
    older = layout.config / "consumerOffsets"
    shutil.copytree(stores.unpack(ROCKS, tmp_path) / "config/consumerOffsets", older)
    row = {VERSION_ROW: b'{"counter":70,"stateVersion":0,"timestamp":1}'}
    for file, data in rewritten(older, row, KV_DATA_VERSION).made.items():
        (older / file).write_bytes(data)
    rocks = as_kind(layout, QueueStoreKind.ROCKSDB)
    carried_out(rocks, QueueStoreKind.ROCKSDB)
    (version,) = [row for row in _written(rocks, OFFSETS) if row["type"] == "data_version"]
    assert version["counter"] == 71


@pytest.mark.parametrize("name", [CLEAN, "5.3.3-lmq"])
def test_positions_that_are_lost_by_the_options_come_back(name: str, tmp_path: Path) -> None:
    """Queues that went into a RocksDB, and a file of positions that no broker takes then."""
    layout = opened(name, tmp_path)
    wanted, rocks = _positions(layout), as_kind(layout, QueueStoreKind.ROCKSDB)
    assert "I-188" in errors(rocks)
    _config_repaired(rocks)
    assert _positions(again(rocks)) == wanted
    assert "I-188" not in errors(rocks)


@pytest.mark.parametrize("suffix", ["", ".bak"])
def test_positions_of_a_database_that_is_gone_beside_the_others(suffix: str, tmp_path: Path) -> None:
    """A broker makes an empty one, which a file with a greater counter replaces."""
    layout = opened(ROCKS, tmp_path)
    shutil.rmtree(layout.config / "consumerOffsets")
    (layout.config / f"{OFFSETS}{suffix}").write_text('{"offsetTable":{"TopicA@rg":{0:52,1:46}}}')
    rocks = as_kind(layout, QueueStoreKind.ROCKSDB)
    assert "I-188" in errors(rocks)
    _config_repaired(rocks)
    (row,) = [row for row in _written(rocks, OFFSETS) if row["type"] == "data_version"]
    assert row["counter"] == 1 and "I-188" not in errors(rocks)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(
    ("gone", "name"), [([*SEPARATE.values()], TOPICS), ([SEPARATE[TOPICS]], TOPICS), ([SEPARATE[GROUPS]], GROUPS)]
)
def test_what_is_made_anew_for_a_broker_with_databases_is_taken_over(
    gone: list[str], name: str, there: bool, tmp_path: Path
) -> None:
    """A file has a counter: one without is as if it was not there."""
    layout = opened(ROCKS, tmp_path)
    for directory in gone:
        shutil.rmtree(layout.config / directory)
    table, rocks = KINDS[FILES[name]].tables[0].member, as_kind(layout, QueueStoreKind.ROCKSDB)
    if there:
        (layout.config / name).write_text(f'{{"{table}":{{"TopicA":{{"perm":6}},"TopicB":{{}},"rg":{{}}}}}}')
    assert "I-188" in errors(rocks)
    _config_repaired(rocks)
    assert not errors(rocks)
    taken = load_table(again(rocks), name, RULES["5.3"]).taken
    assert taken is not None and {"TopicA", "TopicB", "rg"} & set(taken.value[table])


def test_a_broken_file_beside_a_database_is_no_start(tmp_path: Path) -> None:
    """Its .bak is not asked; mended, it does not stand in for what the RocksDB has."""
    layout = opened("5.5.1-rocksdb", tmp_path)
    wanted = _positions(layout)
    (layout.config / OFFSETS).write_text('{"dataVersion":{"counter":9},"offsetTable":{"A@g":{0:')
    (layout.config / f"{OFFSETS}.bak").write_text('{"dataVersion":{"counter":9},"offsetTable":{"TopicA@rg":{0:1}}}')
    assert "I-180" in errors(layout)
    _config_repaired(layout)
    assert _positions(again(layout)) == wanted
    assert not errors(layout)


@pytest.mark.parametrize("version", ['{"counter":null}', "null"])
def test_a_file_without_a_counter_beside_a_database_gets_one(tmp_path: Path, version: str) -> None:
    """The RocksDB has each position: the file alone is in the way."""
    layout = opened("5.5.1-rocksdb", tmp_path)
    wanted = _positions(layout)
    (layout.config / OFFSETS).write_text(f'{{"dataVersion":{version},"offsetTable":{{"TopicA@rg":{{0:1}}}}}}')
    assert "I-180" in errors(layout)
    _config_repaired(layout)
    assert _positions(again(layout)) == wanted
    assert not errors(layout)


def test_version_2_is_named_and_judged(tmp_path: Path) -> None:
    root = str(stores.unpack(SECOND, tmp_path))
    for kind, store_type in (("files", "default"), ("rocksdb", "defaultRocksDB")):
        done = run_here(["repair", root, "--queues", "--as", kind, "--apply", "--yes"])
        assert done.code == 0, done.stdout
        assert f"storeType={store_type}, configManagerVersion=v2, no rocksdbCQ" in done.stdout


def _config_repaired(layout: Layout) -> None:
    found = analyze(again(layout), chosen([RepairPart.CONFIG], ()), None, NOW_MS)
    apply(again(layout), found.plan, lambda: replan(again(layout), found.request), Files())


def _positions(layout: Layout) -> dict[tuple[str, str, int], int]:
    """What a broker takes of positions of groups."""
    found = positions_of(layout, "5.5")
    return {row.key[1:]: row.offset for row in found.rows if row.table in ("offset", "lmq") and not found.lacking}


@pytest.mark.parametrize("command", [["recover"], ["repair", "--config"]])
def test_topics_that_a_database_has_lost_come_back_by_the_file(command: list[str], tmp_path: Path) -> None:
    """A broker adds them to the database, as the counter of the file is above its own."""
    root = stores.unpack("5.5.0-rocksdb-killed", tmp_path)
    (root / "config/topics/000010.log").unlink()
    sizes = {k: text for k, text in stores.config(root.name, root).items() if k.startswith("mappedFileSize")}
    words = [str(root), *settings(sizes)]
    done = run_here([*command, *words, "--apply", "--yes"])
    back = (
        "1 topic came back with default settings: their old settings are lost. Not restored: entries of config/topics"
    )
    assert done.code == 1 and back in done.stdout, done.stdout
    kept, file = table_of(root / "config/topics", "topics.json"), json.loads((root / "config/topics.json").read_text())
    assert file["topicConfigTable"].items() > kept["topicConfigTable"].items()
    assert file["topicConfigTable"].keys() - kept["topicConfigTable"] == {"TopicB"}
    assert file["dataVersion"]["counter"] > kept["dataVersion"]["counter"]
    verdict = run_here(["verify", *words])
    assert verdict.code == 1 and "no longer served" not in verdict.stdout
    assert "Nothing to repair in config" in run_here(["repair", "--config", *words]).stdout


@pytest.mark.parametrize("taken", ["consumerOffset.json", "consumerOffset.json.bak"])
def test_files_older_than_a_database_that_a_broker_does_not_read(taken: str, tmp_path: Path) -> None:
    """They get what the RocksDB has more of, and keep what it lacks, as a .bak does that is taken."""
    layout = Layout.open(stores.unpack(SINGLE, tmp_path))
    (layout.config / taken).write_text('{"offsetTable":{"TopicA@rg":{0:3,1:8},"TopicB@old":{0:1}}}')
    (layout.config / "topics.json").write_text('{"topicConfigTable":{"TopicA":{"topicName":"TopicA"}}}')
    for name in (taken, "topics.json"):
        os.utime(layout.config / name, (0, 0))
    found = analyze(layout, chosen([RepairPart.CONFIG], ()), "4.9", NOW_MS)
    made = {Path(edit.path).name: loads(bytes(edit.pieces[0][1]).decode()) for edit in found.plan.edits}
    assert made["consumerOffset.json"]["offsetTable"]["TopicA@rg"][0] == 18
    assert made["consumerOffset.json"]["offsetTable"]["TopicB@old"] == {0: 1}
    assert made["topics.json"]["topicConfigTable"].keys() >= {"TopicA", "TopicB", "BenchmarkTest"}
    reasons = [edit.reason for edit in found.plan.edits]
    assert sum("RocksDB metadata has besides" in reason for reason in reasons) == 2
    assert any("taken from" in reason for reason in reasons) == taken.endswith(".bak")
