"""Queries in this process: what is read of a store for one, and how one ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.arrow import local_query
from mqstore.store.arrow.local_query import LocalQuery, in_thread
from mqstore.store.arrow.stores import ReadOptions
from mqstore.store.arrow.views import VIEWS, AnswerGaps, rows_of_view
from mqstore.store.disk.byte_reader import at_rate, rest
from mqstore.store.errors import InvalidInput, Unsupported

from ...pipeline.test_session import without
from ...stores import unpack

MESSAGES = VIEWS["messages"]


def rows(query: str, *roots: Path) -> list[dict[str, Any]]:
    with LocalQuery(query) as asked:
        answer = asked.answer(ReadOptions(tuple(map(str, roots))), AnswerGaps())
        return [row for part in answer for row in part.to_pylist()]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...]]]:
    """Views and columns that are read from now on."""
    found: list[tuple[str, tuple[str, ...]]] = []

    def watched(view: Any, ask: ReadOptions, columns: Sequence[str], *rest: Any) -> Iterator[Any]:
        found.append((view.name, tuple(columns)))
        return rows_of_view(view, ask, columns, *rest)

    monkeypatch.setattr(local_query, "rows_of_view", watched)
    return found


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT TOPIC, count(*) FROM Messages GROUP BY topic", {("topic",)}),
        ("SELECT count(*) FROM (SELECT * FROM messages)", {("store",)}),
        ("SELECT 'body' FROM messages", {("store",)}),
        ("TABLE messages", {tuple(MESSAGES.columns)}),
        ("SELECT * EXCLUDE (body) FROM messages", {(*(MESSAGES.columns.keys() - {"body"}),)}),
        ("SELECT 1 FROM messages a JOIN messages b USING (tags)", {("tags",)}),
    ],
)
def test_what_the_plan_needs_is_read(
    read: list[Any], tmp_path: Path, query: str, columns: set[tuple[str, ...]]
) -> None:
    assert rows(query, unpack("5.3.3-clean", tmp_path))
    assert {frozenset(names) for _, names in read} == set(map(frozenset, columns))


def test_what_a_filter_leaves_out_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of other topics are not unpacked."""
    root = unpack("5.3.3-clean", tmp_path)
    every = rows("SELECT topic, body FROM messages", root)
    wanted = [row["body"] for row in every if row["topic"] == "orders"]
    from mqstore.store.arrow import log_columns

    seen = 0
    shown = log_columns._with_bodies

    def counting(batch: Any, raw: bool) -> Any:
        nonlocal seen
        seen += len(batch)
        return shown(batch, raw)

    monkeypatch.setattr(log_columns, "_with_bodies", counting)
    found = rows("SELECT body FROM messages WHERE topic = 'orders'", root)
    assert [row["body"] for row in found] == wanted
    assert seen == len(wanted) < len(every)


def test_filters_are_those_of_the_rows(tmp_path: Path) -> None:
    """Whether the scan takes them or DuckDB does."""
    root = unpack("5.3.3-clean", tmp_path)
    every = rows("SELECT * FROM messages", root)
    conditions: tuple[tuple[str, Callable[[dict[str, Any]], bool]], ...] = (
        ("tags = 'TagA'", lambda row: row["tags"] == "TagA"),
        ("tags IS NULL AND queue_id IN (1, 2)", lambda r: r["tags"] is None and 0 < r["queue_id"] < 3),
        ("body_crc_ok AND NOT raw", lambda row: row["body_crc_ok"] and not row["raw"]),
        ("total_size > 300 OR topic = 'logs'", lambda r: r["total_size"] > 300 or r["topic"] == "logs"),
        ("store = 'elsewhere'", lambda row: False),
    )
    for condition, fits in conditions:
        found = rows(f"SELECT position FROM messages WHERE {condition}", root)
        assert [r["position"] for r in found] == [r["position"] for r in every if fits(r)], condition


@pytest.mark.parametrize(
    "query",
    [
        *("SELECT nothing FROM messages", "SELECT 1; SELECT 2", "", "DROP VIEW lag", "SELECT ?"),
        *("COPY (SELECT 1) TO 'x'", "CREATE TABLE t AS SELECT 1", "SET threads = 9", "ATTACH 'x'"),
        *("SELECT * FROM '/etc/passwd'", "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM rows"),
        *("INSTALL httpfs", "INSERT INTO messages SELECT 1"),
    ],
)
def test_a_query_reads_views_and_nothing_else(query: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        LocalQuery(query)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("values", ["", " IN ('a')"])
def test_a_pivot_names_its_values(values: str) -> None:
    """Without them DuckDB asks for them first, by a query of its own."""
    query = f"SELECT * FROM (PIVOT messages ON tags{values} USING count(*))"
    if values:
        LocalQuery(query).close()
        return
    with pytest.raises(InvalidInput, match="a PIVOT needs its values"):
        LocalQuery(query)


def test_without_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "duckdb")
    with pytest.raises(Unsupported, match=r"mqstore\[sql\]"):
        LocalQuery("SELECT 1")


def test_a_view_that_is_read_twice_tells_damage_once(tmp_path: Path) -> None:
    lacking = AnswerGaps()
    roots = (str(unpack("4.9.7-killed-page", tmp_path)),)
    with LocalQuery("SELECT count(*) FROM messages a JOIN messages b USING (position)") as asked:
        list(asked.answer(ReadOptions(roots), lacking))
    assert [(one.store, one.size) for one in lacking.damage] == [(roots[0], 4109)]


def test_an_answer_that_nobody_reads_to_its_end(tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    with LocalQuery("SELECT * FROM messages a, messages b, messages c") as asked:
        answer = asked.answer(ReadOptions((str(root),)), AnswerGaps())
        assert len(next(answer)) > 0
    assert list(answer) == []


def test_what_a_thread_raises_is_raised_where_it_is_waited_for() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("here")

    found = in_thread(items, lambda: None)
    assert next(found) == 1
    with pytest.raises(ValueError, match="here"):
        next(found)


def test_a_thread_that_rests_at_a_rate_is_not_waited_for() -> None:
    """Ctrl-C is heard however slowly is read: this takes a minute where it is not."""

    def items() -> Iterator[int]:
        yield 1
        rest(60)

    with at_rate(1), closing(in_thread(items, lambda: None)) as found:
        assert next(found) == 1
        before = time.monotonic()
    assert time.monotonic() - before < 30


@pytest.mark.slow
def test_ctrl_c_ends_a_query_that_is_at_work(tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    query = (
        "SELECT count(*) FROM messages a, messages b, messages c, messages d, messages e, messages f"
        " WHERE a.tags < f.tags"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "mqstore", "sql", query, str(root), "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        time.sleep(4)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "mqstore: interrupted\n")
