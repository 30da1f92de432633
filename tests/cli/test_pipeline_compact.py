"""`pipeline compact` of several stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.app import run
from mqstore.cli.record_types import schema_of
from mqstore.store.arrow import compact

from ..stores import config_set, unpack
from .json_schema import errors


def _done(folders: dict[str, str]) -> dict[str, Any]:
    """What a job says of stores without a message."""
    nothing = {"messages": 0, "kept": 0, "damage": [], "skipped": 0, "marked": 0}
    return {"stores": [{"store": root, "folder": folder, **nothing} for root, folder in folders.items()]}


def test_a_store_that_is_missing_moves_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one of two stores that can be read gets its folder in DIR, not DIR itself."""
    root, new = unpack("5.3.3-v2", tmp_path), tmp_path / "new"
    told: list[object] = []

    def job(folders: dict[str, str], *others: object) -> dict[str, Any]:
        told.append(folders)
        return _done(folders)

    monkeypatch.setattr(compact, "compact_stores", job)
    words = ["pipeline", "compact", str(root), str(tmp_path / "none"), "-t", "a"]
    assert run([*words, "--to", str(new), "--format=ndjson"]) == 5
    assert told == [{str(root): root.name}]
    assert json.loads(capsys.readouterr().out)["to"] == str(new / root.name)


def test_the_configuration_of_the_old_store_names_no_place_of_the_new_one(tmp_path: Path) -> None:
    """broker.conf has storePathCommitLog."""
    root, new = unpack("5.3.3-v2", tmp_path), tmp_path / "new"
    options = [word for text in config_set("5.3.3-v2", root) for word in ("--set", text)]
    assert f"storePathCommitLog={root / 'commitlog'}" in options
    assert run(["pipeline", "compact", str(root), "-t", "*", "--to", str(new), *options]) == 0
    assert (new / "commitlog").is_dir()


def test_a_store_stays_on_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "a\nb"
    unpack("5.3.3-v2", tmp_path).rename(root)
    monkeypatch.setattr(compact, "compact_stores", lambda folders, *_: _done(folders))
    assert run(["pipeline", "compact", str(root), "-t", "a", "--to", str(tmp_path / "new")]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "a\\nb" in line


def test_a_message_that_brokers_stop_at_is_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, lines = tmp_path / "old", tmp_path / "lines"
    target = {"REAL_TOPIC": "T", "REAL_QID": "0"}
    rows = [
        {"topic": "SCHEDULE_TOPIC_XXXX", "body": "x", "properties": {"KEYS": key, "DELAY": "1", **more}}
        for key, more in (("good", target), ("bad", {}))
    ]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = ["--set", "mappedFileSizeCommitLog=65536"]
    assert run(["put", str(root), "--from", str(lines), "--as-broker", "4.3", "--no-answers", *small]) == 0
    words = ["pipeline", "compact", str(root), "-t", "*", "-t", "SCHEDULE_TOPIC_XXXX", "--to", str(tmp_path / "new")]
    assert run([*words, "--as-broker", "4.9", "--format=json", *small]) == 1
    said = capsys.readouterr()
    (record,) = json.loads(said.out)
    assert (record["kept"], record["refused"], [*errors(schema_of("compact"), record)]) == (1, 1, [])
    assert "1 message is left out:\n" in said.err and ": row 2, at " in said.err
