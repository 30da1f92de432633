"""`pipeline sql`: what its views read, and the command as people run it."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mqstore.cli.app import run
from mqstore.pipeline.sql import VIEWS, ask, columns_of_answer, records_of, views_of
from mqstore.store.errors import InvalidInput, NotAStore

from ..stores import messages, unpack
from .test_session import without

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {name: ["store", "topic", "queue_id", "size", "body"] for name in VIEWS}


@pytest.mark.parametrize(
    ("query", "fields", "pushdown"),
    [
        ("SELECT topic, count(*) FROM messages GROUP BY topic", ["topic"], True),
        ("select TOPIC from MESSAGES where Queue_Id = 1", ["topic", "queue_id"], True),
        ("SELECT COUNT( * ) FROM messages", ["store"], True),
        ("SELECT * FROM messages", None, True),
        ("SELECT messages.body FROM messages", ["body"], False),
        ("SELECT a.size FROM messages a, messages b", ["size"], False),
        ("WITH m AS (SELECT size FROM messages) SELECT 1 FROM m x, m y", ["size"], False),
    ],
)
def test_a_view_reads_what_the_query_names(
    query: str, fields: list[str] | None, pushdown: bool
) -> None:
    (view,) = views_of(query, COLUMNS)
    assert (view.name, view.fields, view.pushdown) == ("messages", fields, pushdown)


def test_only_views_that_are_named_are_made() -> None:
    query = "SELECT 1 FROM queues q JOIN index_items i ON q.physical_offset = i.physical_offset"
    assert [view.name for view in views_of(query, COLUMNS)] == ["queues", "index_items"]


def test_bytes_and_names_of_an_answer() -> None:
    answer = pa.table({"body": [b"text", b"\xff"], "n": [1, None]})
    assert list(records_of(answer)) == [
        {"body": "text", "n": 1},
        {"body_base64": "/w==", "n": None},
    ]
    assert columns_of_answer(answer) == ["body", "body_base64", "n"]
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InvalidInput, match="two columns are named a"):
        list(records_of(twice))


@pytest.mark.spark
def test_a_query_over_two_stores(spark: SparkSession, tmp_path: Path) -> None:
    """Counts by topic are those of the truth."""
    names = ("4.9.7-clean", "5.1.4-clean")
    roots = [str(unpack(name, tmp_path)) for name in names]
    query = "SELECT store, topic, count(*) AS n FROM messages GROUP BY store, topic"
    rows = ask(spark, query, roots, {}).to_pylist()
    for name, root in zip(names, roots, strict=True):
        wanted = Counter(message["topic"] for message in messages(name))
        assert {r["topic"]: r["n"] for r in rows if r["store"] == root} == dict(wanted)


@pytest.mark.slow
@pytest.mark.spark
def test_a_query_over_two_views(spark: SparkSession, tmp_path: Path) -> None:
    """Of a clean store every message has its unit."""
    roots = [str(unpack(name, tmp_path)) for name in ("4.9.7-clean", "5.1.4-clean")]
    joined = ask(
        spark,
        "SELECT count(*) AS n FROM messages m LEFT JOIN queues q ON m.store = q.store"
        " AND m.physical_offset = q.physical_offset WHERE q.topic IS NULL OR m.topic <> q.topic",
        roots,
        {},
    )
    assert joined.to_pylist() == [{"n": 0}]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT nothing FROM messages", "nothing"),
        ("SELECT topic FROM message", "message"),
        ("SELEC", "SELEC"),
    ],
)
def test_a_query_that_makes_no_sense(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    query: str,
    reason: str,
) -> None:
    """Raised, and not logged besides: Spark's own logger prints."""
    root = unpack("5.3.3-lmq", tmp_path)
    logger = logging.getLogger("SQLQueryContextLogger")
    logger.addHandler(caplog.handler)
    try:
        with pytest.raises(InvalidInput, match=reason):
            ask(spark, query, [str(root)], {})
    finally:
        logger.removeHandler(caplog.handler)
    assert not caplog.records


@pytest.mark.spark
def test_a_failing_job_is_one_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotAStore):
        ask(
            spark,
            "SELECT topic FROM messages",
            [str(tmp_path / "empty")],
            {"on_damage": "fail"},
        )


def test_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query = ("pipeline", "sql", "SELECT 1")
    for words, code in (
        ([str(tmp_path / "none*")], 5),
        ([f"@{tmp_path}/list"], 5),
        ([f"{tmp_path}/none"], 5),
        ([f"{tmp_path}/none", str(tmp_path)], 5),
        ([str(tmp_path), "--since", "whenever"], 2),
        ([str(tmp_path), "--rate", "1M"], 2),
        ([str(tmp_path), "--conf", "x"], 2),
        ([], 2),
    ):
        assert run([*query, *words]) == code, words
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1, err
    without(monkeypatch, "pyspark")
    assert run([*query, str(tmp_path)]) == 5
    assert "pip install 'mqstore[spark]'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.spark
def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As a program with a session of its own: nothing but the answer is printed."""
    import subprocess
    import sys

    root = unpack("4.9.7-killed-page", tmp_path)
    (tmp_path / "list").write_text(f"# stores\n{root}\n\n{tmp_path / 'none'}\n")
    query = "SELECT store, position, size, reason FROM damage"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mqstore", "pipeline", "sql", query),
            *(f"@{tmp_path / 'list'}", "--format=json", "--master=local[2]"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (5, 1)
    assert f"no such directory: {tmp_path / 'none'}" in done.stderr
    found = {row["store"]: row for row in json.loads(done.stdout)}
    assert found[str(root)]["size"] > 0
    assert found[str(tmp_path / "none")]["position"] is None
