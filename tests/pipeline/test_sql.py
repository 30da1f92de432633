"""`pipeline sql`: what its views read, and the answers of both engines, also of a Connect server."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from mqstore.cli.app import run
from mqstore.pipeline.sql import answer, lacking
from mqstore.pipeline.sql_plan import Needed, SparkQuery, understood
from mqstore.store.arrow.export_formats import records_of
from mqstore.store.arrow.local_query import LocalQuery
from mqstore.store.arrow.stores import ReadOptions
from mqstore.store.arrow.views import VIEWS, AnswerGaps
from mqstore.store.disk.byte_reader import noting
from mqstore.store.errors import InvalidInput, NotAStore

from ..stores import messages, unpack
from . import clusters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = tuple(VIEWS["lag"].columns)


def asked(spark: SparkSession, query: str) -> dict[str, tuple[str, ...]]:
    return {needed.view.name: needed.columns for needed in understood(spark, query).views}


def test_a_view_reads_what_the_plan_of_the_query_needs(spark: SparkSession) -> None:
    """Not what its words look like: each of these was wrong, or failed."""
    every = tuple(VIEWS["messages"].columns)
    body = ("body", "body_error")
    for query, wanted in (
        ("SELECT TOPIC, count(*) FROM Messages GROUP BY topic", {"messages": ("topic",)}),
        ("SELECT count(*) FROM messages", {"messages": ()}),
        ("TABLE messages", {"messages": every}),
        ("SELECT *, body FROM messages", {"messages": every}),
        ("FROM messages |> WHERE queue_id = 1 |> SELECT tags", {"messages": ("queue_id", "tags")}),
        ("SELECT 'body' AS topic FROM messages", {"messages": ()}),
        ("SELECT count(*) FROM (SELECT * FROM messages)", {"messages": ()}),
        ("SELECT * EXCEPT (body) FROM messages", {"messages": tuple(n for n in every if n != "body")}),
        (
            "SELECT lag FROM lag NATURAL JOIN offsets",
            {"lag": tuple(n for n in ALL if n != "max_offset"), "offsets": (*ALL[:1], *ALL[1:5])},
        ),
        ("WITH messages AS (SELECT * FROM lag) SELECT lag FROM messages", {"lag": ("lag",)}),
        (f"SELECT {', '.join(body)} FROM messages; ", {"messages": body}),
    ):
        assert asked(spark, query) == wanted, query
    assert [n.times for n in understood(spark, "SELECT 1 FROM lag a, lag b").views] == [2]


def on_spark(spark: SparkSession, query: str | SparkQuery, roots: list[str]) -> tuple[list[dict[str, Any]], AnswerGaps]:
    taken = query if isinstance(query, SparkQuery) else understood(spark, query)
    rows = [row for part in answer(spark, taken, roots, {}) for row in records_of(part)]
    return rows, lacking(spark, taken, roots, {})


def here(query: str, roots: list[str]) -> tuple[list[dict[str, Any]], AnswerGaps]:
    lost = AnswerGaps()
    with LocalQuery(query) as taken:
        rows = [row for part in taken.answer(ReadOptions(tuple(roots)), lost) for row in records_of(part)]
    return rows, lost


def as_sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.few(1)
@pytest.mark.parametrize("view", VIEWS)
def test_both_engines_have_the_same_views(spark: SparkSession, tmp_path: Path, view: str) -> None:
    """Names, types and rows of every view; what is lacking. A store is damaged, one has timers, one a torn tail."""
    names = ("4.9.7-killed-page", "5.3.3-timer-clean", "4.9.7-killed-torn")
    roots = [str(unpack(name, tmp_path)) for name in names]
    taken = understood(spark, f"TABLE {view}")
    with LocalQuery(f"TABLE {view}") as local:
        assert taken.columns == local.columns
    found, lost = on_spark(spark, taken, roots)
    rows, lost_here = here(f"TABLE {view}", roots)
    assert as_sorted(found) == as_sorted(rows)
    assert lost == lost_here
    assert bool(lost) == (view == "messages")


@pytest.mark.slow
def test_both_engines_give_the_same_answers(spark: SparkSession, tmp_path: Path) -> None:
    names = ("4.9.7-killed-page", "5.1.4-clean")
    roots = [str(unpack(name, tmp_path)) for name in names]
    for query in (
        """SELECT store, topic, count(*) AS n, sum(total_size) AS size, max(store_timestamp) AS last
        FROM messages GROUP BY store, topic""",
        """SELECT keys, properties['TAGS'] AS tag, body FROM messages WHERE queue_id IN (1, 2)
        AND body_length > 10""",
        """SELECT count(*) AS n FROM messages m LEFT JOIN queues q ON m.store = q.store AND
        m.physical_offset = q.physical_offset WHERE q.topic IS NULL OR m.topic <> q.topic""",
        "SELECT severity, code, count(*) AS n FROM findings GROUP BY severity, code",
    ):
        found, _ = on_spark(spark, query, roots)
        assert as_sorted(found) == as_sorted(here(query, roots)[0]), query


def test_a_query_over_two_stores(spark: SparkSession, tmp_path: Path) -> None:
    """Counts by topic are those of the truth."""
    names = ("4.9.7-clean", "5.1.4-clean")
    roots = [str(unpack(name, tmp_path)) for name in names]
    query = "SELECT store, topic, count(*) AS n FROM messages GROUP BY store, topic"
    rows, lost = on_spark(spark, query, roots)
    assert not lost
    for name, root in zip(names, roots, strict=True):
        wanted = Counter(message["topic"] for message in messages(name))
        assert {r["topic"]: r["n"] for r in rows if r["store"] == root} == dict(wanted)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT nothing FROM messages", "nothing"),
        ("SELECT topic FROM message", "message"),
        ("SELEC", "SELEC"),
        ("SELECT 1,\n nothing", "line 2 pos 1"),
        ("SELECT 1 / 0", "zero"),
        ("SELECT make_interval(0, 1) AS wait", "column wait has the type interval"),
        ("DROP VIEW messages", r"Syntax.*\(line 1, pos 10\)"),
        ("INSERT OVERWRITE DIRECTORY '/nowhere' SELECT 1", "Syntax"),
    ],
)
def test_a_query_that_makes_no_sense(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, query: str, reason: str
) -> None:
    """Raised before a store is looked at, and not logged besides: Spark's own logger prints."""
    logger = logging.getLogger("SQLQueryContextLogger")
    logger.addHandler(caplog.handler)
    try:
        with pytest.raises(InvalidInput, match=reason):
            understood(spark, query)
    finally:
        logger.removeHandler(caplog.handler)
    assert not caplog.records


def test_a_failing_job_is_one_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotAStore):
        on_spark(spark, "SELECT topic FROM messages", [str(tmp_path / "empty")])


def test_corrupted_bodies_are_counted_where_bodies_are_read(spark: SparkSession, tmp_path: Path) -> None:
    root = unpack("4.9.7-killed-bit", tmp_path)
    roots = [str(root)]
    for query, bodies in (("SELECT body FROM messages", 1), ("SELECT topic FROM messages", 0)):
        assert on_spark(spark, query, roots)[1].bodies == here(query, roots)[1].bodies == bodies


@pytest.mark.slow
def test_a_connect_server_prints_its_plans_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is only sorted or grouped by is needed: there is next to nothing to sort in a plan's views."""
    import subprocess
    import sys

    root = str(unpack("5.3.3-clean", tmp_path))
    with clusters.connect(tmp_path) as url:
        for query in (
            "SELECT topic FROM lag WHERE lag >= 0 ORDER BY max_offset DESC, topic, queue_id LIMIT 9",
            "SELECT DISTINCT topic, (SELECT max(total_size) FROM messages) AS n FROM queues ORDER BY 1",
        ):
            words = ["sql", query, root, "--format=json"]
            done = subprocess.run(
                [sys.executable, "-m", "mqstore", *words, "--master", url],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert (run(words), done.returncode, done.stderr) == (0, 0, "")
            assert done.stdout == capsys.readouterr().out


def test_a_query_notes_the_log_files_that_expire_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark: the files go while it answers."""
    root = unpack("5.3.3-clean", tmp_path)

    class Session:
        """Answers one row."""

        def sql(self, text: str) -> Session:
            min((root / "commitlog").iterdir()).unlink()
            return self

        def toArrow(self) -> pa.Table:
            return pa.table({"n": [1]})

    monkeypatch.setattr("mqstore.pipeline.sql._rows", Mock())
    query = SparkQuery("SELECT 1 n FROM messages", {"n": False}, (Needed(VIEWS["messages"], ("topic",), 1),))
    with noting() as noted:
        (rows,) = answer(Session(), query, [str(root)], {})  # type: ignore[arg-type]
    assert rows.num_rows == 1 and noted.expired == {str(root / "commitlog"): 262144}
