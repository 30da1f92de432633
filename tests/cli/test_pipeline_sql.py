"""`mqstore pipeline sql` and `sql --master`: bad input, and programs with sessions of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from mqstore.cli import pipeline_sql
from mqstore.cli.app import run
from mqstore.store.arrow.views import AnswerGaps
from mqstore.store.errors import Missing

from ..pipeline.test_session import without
from ..stores import unpack


def test_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    query = ("pipeline", "sql", "SELECT 1")
    for words, code in (
        ([str(tmp_path / "none*")], 5),
        ([f"@{tmp_path}/list"], 5),
        ([f"{tmp_path}/none"], 5),
        ([str(tmp_path), "--since", "whenever"], 2),
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


def test_a_store_that_goes_away_while_the_query_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --partial the query runs again with the others; nothing is printed of the run that failed."""
    one, two = (str(unpack("4.9.7-clean", tmp_path / name)) for name in ("one", "two"))
    asked: list[list[str]] = []

    def answer(_: object, query: object, stores: Sequence[str], options: object) -> Iterator[pa.RecordBatch]:
        asked.append([*stores])
        if len(asked) % 2:
            Path(two).rename(tmp_path / f"gone{len(asked)}")
            raise Missing("no such directory", path=two)
        yield pa.RecordBatch.from_pydict({"n": [7]})

    monkeypatch.setattr(pipeline_sql, "session_showing", lambda *words, **options: nullcontext())
    monkeypatch.setattr("mqstore.pipeline.register", lambda session: None)
    monkeypatch.setattr(
        "mqstore.pipeline.sql_plan.understood", lambda *words: SimpleNamespace(columns={"n": False}, views=[], text="")
    )
    monkeypatch.setattr("mqstore.pipeline.sql.answer", answer)
    monkeypatch.setattr("mqstore.pipeline.sql.lacking", lambda _, query, stores, options: AnswerGaps())
    words = ["pipeline", "sql", "SELECT 1", one, two, "--format", "csv"]
    assert run([*words, "--partial"]) == 1
    out, err = capsys.readouterr()
    assert asked == [[one, two], [one]] and "no such directory" in err
    assert out.splitlines() == ["n", "7"]
    (tmp_path / "gone1").rename(two)
    asked.clear()
    assert run(words) == 5
    assert capsys.readouterr().out == "" and asked == [[one, two]]


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
