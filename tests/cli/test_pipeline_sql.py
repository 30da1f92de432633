"""`mqstore pipeline sql` and `sql --master`: bad input, and programs with sessions of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqstore.cli.app import run

from ..pipeline.test_session import without
from ..stores import unpack


def test_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    query = ("pipeline", "sql", "SELECT 1")
    for words, code in (
        ([str(tmp_path / "none*")], 5),
        ([f"@{tmp_path}/list"], 5),
        ([f"{tmp_path}/none"], 5),
        ([str(tmp_path), "--since", "whenever"], 2),
        ([str(tmp_path), "--rate", "1M"], 2),
        ([str(tmp_path), "--conf", "x"], 2),
        ([], 2),
    ):
        assert run([*query, *words]) == code, words
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1, err
    assert run([*query, f"{tmp_path}/none", str(tmp_path)]) == 5
    assert capsys.readouterr().err.count("\n") == 2, "a line for each"
    without(monkeypatch, "pyspark")
    assert run([*query, str(tmp_path)]) == 5
    assert "pip install 'mqstore[spark]'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.spark
def test_the_command(tmp_path: Path) -> None:
    """As programs with sessions of their own: nothing but the answer is on stdout."""
    import subprocess
    import sys

    root = unpack("4.9.7-killed-page", tmp_path)
    (tmp_path / "list").write_text(f"# stores\n{root}\n\n{tmp_path / 'none'}\n")

    def asks(*words: str) -> tuple[int, str, list[str]]:
        done = subprocess.run(
            [sys.executable, "-m", "mqstore", *words, f"@{tmp_path / 'list'}"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr.splitlines()

    gone = f"mqstore: no such directory: {tmp_path / 'none'}; check the path"
    local = "--master=local[2]"
    code, out, err = asks("pipeline", "sql", "SELECT count(*) n FROM messages", local)
    assert (code, out, err[0], len(err)) == (5, "", gone, 2)
    words = ("sql", "SELECT count(*) n FROM messages", local, "--format=ndjson", "--partial")
    code, out, err = asks(*words)
    count, unread = map(json.loads, out.splitlines())
    assert (code, err[0], count["n"] > 0) == (1, gone, True)
    assert err[1].startswith(f"mqstore: not in the answer: {root} at ") and len(err) == 2
    assert unread["type"] == "unread" and unread["store"] == str(tmp_path / "none")
    code, out, err = asks("sql", "SELECT size FROM damage", local, "--fields=nothing", "--partial")
    assert (code, out) == (2, "") and "no field 'nothing'" in err[-1]
