"""`pipeline compact` of several stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.app import run
from mqstore.store.arrow import compact

from ..stores import config_set, unpack


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
