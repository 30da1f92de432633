"""`pipeline diff` where there is nothing for Spark to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.pipeline import spark

from .datadriven import Result, run_here
from .small_store import small_store
from .two_stores import copy_of


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A store and a copy that has another configuration; no session can be started."""
    monkeypatch.setattr(spark, "spark_session", None)
    root = small_store(tmp_path / "store", {"topic": "t", "body": "x", "store_timestamp": 1})
    other = copy_of(root)
    (other / "config" / "topics.json").write_text("{}")
    return [str(root), str(other)]


def diff(pair: list[str], *words: str) -> Result:
    return run_here(["pipeline", "diff", *pair, *words])


def test_parts_that_are_no_messages_need_no_session(pair: list[str]) -> None:
    assert diff(pair, "--only", "log,queues").code == 0
    for words in (("--only", "config"), ("--quick",), ("--quick", "--only", "config,messages")):
        done = diff(pair, *words)
        assert done.code == 1, done
        assert "config topics.json: " in done.stdout and "quicker" not in done.stderr


def test_what_would_compare_nothing_is_refused(pair: list[str]) -> None:
    """The index is compared in this process only, and messages not quickly."""
    for words, told in (
        (("--only", "index"), "--only index with Spark or --quick: nothing would be compared"),
        (("--only", "index,messages", "--quick"), "--only index,messages with Spark or --quick"),
    ):
        done = diff(pair, *words)
        assert (done.code, done.stdout) == (2, "") and told in done.stderr, done
