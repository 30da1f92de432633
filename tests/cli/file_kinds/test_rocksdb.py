"""`dump`, `inspect` and `get` of RocksDBs, as a person calls them."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from ... import stores
from ..datadriven import run_here
from ..printed import dumped

ROCKSDB = "5.3.3-rocksdb"


def test_queue_units_are_those_of_the_truth(tmp_path: Path) -> None:
    root = stores.unpack(ROCKSDB, tmp_path)
    found = dumped(root / "consumequeue")
    units = [r for r in found if r["type"] == "rocksdb_queue_unit"]
    known = {
        (m["topic"], m["queue_id"], m["queue_offset"], m["physical_offset"], m["store_timestamp"])
        for m in stores.messages(ROCKSDB)
    }
    names = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp")
    assert {tuple(unit[name] for name in names) for unit in units} <= known
    truth = stores.truth(ROCKSDB)["rocksdb"]
    assert len(units) == len(truth["consumequeue"]["default"])
    raw = dumped(root / "consumequeue", "--raw")
    assert [[r["key"], r["value"]] for r in raw] == [
        *truth["consumequeue"]["default"],
        *truth["consumequeue"]["offset"],
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
