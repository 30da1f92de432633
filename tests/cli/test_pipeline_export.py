"""`export`, here and on Spark, of stores that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.app import run
from mqstore.pipeline import export
from mqstore.pipeline.export import Job, here

from ..stores import unpack


@pytest.mark.parametrize("words", [["export"], ["pipeline", "export"]])
def test_a_store_that_cannot_be_read(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error, not an empty export; one of several ends it, too."""
    root = unpack("5.3.3-v2", tmp_path)
    (tmp_path / "empty").mkdir()
    to = ["--to", str(tmp_path / "new")]
    for stores in (["none"], ["none", "empty"], [root.name, "none"], [root.name, "empty"]):
        assert run([*words, *(str(tmp_path / name) for name in stores), *to]) == 5
        out, err = capsys.readouterr()
        assert out == ""
        for name in set(stores) - {root.name}:
            assert err.count(f"{tmp_path / name}") == 1, err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("partial", [True, False])
def test_a_store_that_goes_away_while_it_is_read(
    partial: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --partial the others are exported, and all of them; else it ends, and nothing is there."""
    for name in ("a", "b"):
        unpack("5.3.3-v2", tmp_path / name)
    roots = [tmp_path / name / "5.3.3-v2" for name in ("a", "b")]

    def vanishing(*asked: Any) -> Job:
        if roots[1].exists():
            roots[1].rename(tmp_path / "moved")
        return here(*asked)

    assert run(["export", str(roots[0]), "--to", str(tmp_path / "alone"), "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)["rows"]
    monkeypatch.setattr(export, "here", vanishing)
    words = ["export", *map(str, roots), "--to", str(tmp_path / "new"), "--json"]
    assert run([*words, *(["--partial"] if partial else [])]) == (1 if partial else 5)
    out, err = capsys.readouterr()
    assert f"no such directory: {roots[1]}" in err
    assert (tmp_path / "new").exists() == partial == bool(out)
    if partial:
        report = json.loads(out)
        assert [one["store"] for one in report["unread"]] == [str(roots[1])] and report["rows"] == alone > 0
