"""`dump`, `inspect` and `get` of config/ and of RocksDBs, as a person calls them."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.config_record_types import OF_KIND
from mqstore.formats.kinds import KINDS

from .. import stores
from .datadriven import run_here

ROCKSDB = "5.3.3-rocksdb"


def records(path: Path, *options: str) -> list[dict[str, Any]]:
    """What `dump` prints."""
    result = run_here(["dump", str(path), "--format", "ndjson", *options])
    assert result.code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_types_of_each_kind_are_those_of_its_tables() -> None:
    for name, kind in KINDS.items():
        if kind.tables:
            declared = dict.fromkeys(table.record_type for table in kind.tables)
            assert OF_KIND[name] == (*declared, "config_value", "damage"), name


def test_queue_units_are_those_of_the_truth(tmp_path: Path) -> None:
    root = stores.unpack(ROCKSDB, tmp_path)
    found = records(root / "consumequeue")
    units = [r for r in found if r["type"] == "rocksdb_queue_unit"]
    known = {
        (m["topic"], m["queue_id"], m["queue_offset"], m["physical_offset"], m["store_timestamp"])
        for m in stores.messages(ROCKSDB)
    }
    names = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp")
    assert {tuple(unit[name] for name in names) for unit in units} <= known
    truth = stores.truth(ROCKSDB)["rocksdb"]
    assert len(units) == len(truth["consumequeue"]["default"])
    raw = records(root / "consumequeue", "--raw")
    assert [[r["key"], r["value"]] for r in raw] == [
        *truth["consumequeue"]["default"],
        *truth["consumequeue"]["offset"],
    ]


def test_configuration_in_a_rocksdb_is_that_of_files(tmp_path: Path) -> None:
    """The same record types and fields, with the directory's name for the file's."""
    root = stores.unpack(ROCKSDB, tmp_path)
    found = records(root / "config")
    topics = {r["topic"]: r for r in found if r["type"] == "topic_config"}
    stored = stores.truth(ROCKSDB)["rocksdb"]["config/topics"]["default"]
    for key, value in stored:
        entry = json.loads(bytes.fromhex(value))
        record = topics[bytes.fromhex(key).decode()]
        assert (record["file"], record["perm"]) == ("topics", entry["perm"])
        assert record["attributes"] == entry["attributes"]
    assert len(topics) == len(stored)
    offsets = [r for r in found if r["type"] == "consumer_offset"]
    assert [(r["topic"], r["group"], r["queue_id"], r["offset"]) for r in offsets] == [
        ("TopicA", "rg", 0, 54),
        ("TopicA", "rg", 1, 56),
    ]


def test_every_format_and_the_hex_view(tmp_path: Path) -> None:
    root = stores.unpack(ROCKSDB, tmp_path)
    for place in ("consumequeue", "config", "config/delayOffset.json", "config/topics"):
        path = str(root / place)
        text = run_here(["dump", path])
        rows = list(csv.reader(io.StringIO(run_here(["dump", path, "--format", "csv"]).stdout)))
        listed = json.loads(run_here(["dump", path, "--format", "json"]).stdout)
        assert len(text.stdout.splitlines()) == len(rows) - 1 == len(listed) > 0
        seen = run_here(["dump", path, "--hex", "--count", "3"])
        assert (seen.code, seen.stderr) == (0, "")
        assert "--" in seen.stdout
        third = json.loads(run_here(["dump", path, "--at", "2", "--format", "json"]).stdout)
        if place != "config":
            assert third == listed[2:]


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nothing else can answer says what to install; the rest is answered."""
    root = stores.unpack(ROCKSDB, tmp_path)
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    for command in ("dump", "inspect"):
        result = run_here([command, str(root / "consumequeue")])
        assert (result.code, result.stdout) == (5, "")
        assert result.stderr.count("\n") == 1
        assert "pip install 'mqstore[rocksdb]'" in result.stderr
    result = run_here(["get", str(root), "--topic", "TopicA", "--queue", "0", "--offset", "3"])
    assert (result.code, "@3" in result.stdout) == (0, True)
    assert "pip install" in result.stderr and "scanning the log" in result.stderr
    result = run_here(["inspect", str(root)])
    assert result.code == 0
    assert "pip install" in result.stdout
    result = run_here(["dump", str(root / "config"), "--format", "ndjson"])
    assert result.code == 0
    assert result.stderr.count("pip install") == 3


def test_damage_does_not_stop_the_rest(tmp_path: Path) -> None:
    root = stores.unpack(ROCKSDB, tmp_path)
    for manifest in (root / "consumequeue").glob("MANIFEST-*"):
        manifest.unlink()
    result = run_here(["dump", str(root / "consumequeue")])
    assert (result.code, result.stdout) == (5, "")
    assert result.stderr.count("\n") == 1 and "MANIFEST" in result.stderr
    result = run_here(["inspect", str(root)])
    assert result.code == 0 and "cannot read the RocksDB" in result.stdout
    result = run_here(["get", str(root), "--topic", "TopicA", "--queue", "0", "--offset", "3"])
    assert (result.code, "@3" in result.stdout) == (0, True)
    assert "scanning the log" in result.stderr


def test_a_part_of_a_rocksdb_says_what_it_is(tmp_path: Path) -> None:
    root = stores.unpack(ROCKSDB, tmp_path)
    result = run_here(["dump", str(root / "consumequeue" / "CURRENT")])
    assert result.code == 5
    assert "name its directory" in result.stderr


def test_put_goes_on_at_the_end_of_the_queue(tmp_path: Path) -> None:
    root = stores.unpack(ROCKSDB, tmp_path)
    result = run_here(["put", str(root), "TopicA", "one more", "--queue", "0"])
    assert result.code == 0, result.stderr
    told = re.search(r"TopicA queue 0 offset (\d+)", result.stdout)
    assert told is not None, result.stdout
    place = ["--topic", "TopicA", "--queue", "0", "--offset", told[1]]
    assert "one more" in run_here(["get", str(root), *place]).stdout
    assert run_here(["verify", str(root)]).code == 0


def test_a_healthy_store_is_nothing_to_recover(tmp_path: Path) -> None:
    root = stores.unpack(ROCKSDB, tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    result = run_here(["recover", str(root), "--apply", "--yes"])
    assert (result.code, "Nothing to do" in result.stdout) == (0, True)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


HOSTILE = {
    "escapes": '{"topicConfigTable":{"a\\u001b]0;x\\u0007\\u202e":{"perm":6,"\\u001b[31m":1}}}',
    "formulas": '{"topicConfigTable":{"=1+1":{"topicName":"@x","perm":6,"order":"=2"}}}',
    "twice": '{"topicConfigTable":{"a":{"perm":1}},"topicConfigTable":{"b":{"perm":6}}}',
    "numbers": '{"topicConfigTable":{"a":{"perm":' + "9" * 5000 + ',"topicSysFlag":1e999}}}',
    "types": '{"topicConfigTable":[1,{"a":2}],"dataVersion":"x"}',
    "surrogates": '{"topicConfigTable":{"\\ud800":{"perm":6}}}',
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_json_is_shown_escaped(case: str, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_text(HOSTILE[case])
    for form in ("text", "json", "ndjson", "csv"):
        result = run_here(["dump", str(path), "--format", form])
        assert result.code == 0, result.stderr
        shown = result.stdout + result.stderr
        assert not set(shown) & {"\x1b", "\x07", "\u202e"}
        if form == "json":
            json.loads(result.stdout)
        for row in csv.reader(io.StringIO(result.stdout)) if form == "csv" else ():
            assert not any(cell.startswith(("=", "@", "+")) for cell in row)
    assert run_here(["inspect", str(path)]).code == 0


def test_a_broken_file_is_told_with_its_place(tmp_path: Path) -> None:
    config = stores.unpack("5.3.3-clean", tmp_path) / "config"
    path = config / "topics.json"
    path.write_bytes(path.read_bytes()[:1000])
    *read, damage = records(path)
    assert any(record["type"] == "topic_config" for record in read)
    assert (damage["type"], damage["position"], damage["size"]) == ("damage", 1000, 1)
    assert "the file ends" in damage["reason"], "what is missing counts as a byte"
    result = run_here(["dump", str(path)])
    assert "topics.json.bak, which is whole" in result.stderr
    shutil.copyfile(config / "topics.json.bak", tmp_path / "topics.json")
    assert records(tmp_path / "topics.json")
    told = run_here(["inspect", str(config.parent)]).stdout
    assert "topics.json: broken at byte" in told and "a broker reads topics.json.bak" in told


@pytest.mark.few(2)
@pytest.mark.parametrize("words", [("recover",), ("repair", "--queues"), ("repair", "--all")])
def test_an_emptied_directory_of_queues(words: tuple[str, ...], tmp_path: Path) -> None:
    """The queues were in a RocksDB, as the topics are: no files are made."""
    root = stores.unpack(ROCKSDB, tmp_path)
    for file in (root / "consumequeue").iterdir():
        file.unlink()
    command, *options = words
    result = run_here([command, str(root), *options, "--apply", "--yes"])
    assert result.code == 0, result.stdout + result.stderr
    assert (root / "consumequeue" / "CURRENT").is_file()
    assert not [path for path in (root / "consumequeue").iterdir() if path.is_dir()]
    assert run_here(["verify", str(root)]).code == 0
