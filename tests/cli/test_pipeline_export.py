"""`export`, here and on Spark, of stores that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.cli.app import run

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
