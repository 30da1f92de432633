"""Options of `export` that make no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.cli.app import run


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["export"], ["pipeline", "export"]):
        command = [*words, str(tmp_path), "--to", str(tmp_path / "new")]
        for more, code in (
            (["--format", "xml"], 2),
            (["--body", "all"], 2),
            (["--columns", "topic, body", "--body", "none"], 2),
            (["--since", "whenever"], 2),
            (["--compression", "lz4", "--format", "csv"], 2),
            (["--conf", "x"], 2),
            (["--to", "s3://bucket/new"], 2),
            ([str(tmp_path / "none*")], 5),
        ):
            assert run([*command, *more]) == code, more
            out, err = capsys.readouterr()
            assert out == "" and err.count("\n") == 1, err
        assert not (tmp_path / "new").exists()
