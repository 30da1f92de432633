"""What a search without an answer has looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..stores import unpack
from .datadriven import run_here


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack("5.3.3-batchcq", tmp_path)


def test_what_was_searched_is_said(root: Path) -> None:
    times = "they were stored 2026-11-20T21:48:53.666Z … 2026-11-20T21:48:56.158Z"
    for words, said in (
        (("--key", "nope"), "searched 80 records by scanning the log, 60 records named by queues, 1 index"),
        (("--topic", "T*"), f"searched 80 records by scanning the log; {times}"),
        (("--topic", "TopicA", "--tag", "nope"), "searched 20 records named by queues; "),
        (("--topic", "TopicA", "--since", "now"), "searched 20 records named by queues; "),
    ):
        words = (*words, "--grep", "no such text") if words[-1] == "T*" else words
        result = run_here(["get", str(root), *words, "--utc", "-q"])
        assert result.code == 1 and result.stderr.startswith("mqstore: no such message: ")
        assert said in result.stderr, result.stderr


def test_a_large_log_of_which_nothing_was_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The times said are those of two records, as others may lie before or after them."""
    monkeypatch.setattr("mqstore.store.search.log_search.SMALL_LOG_BYTES", 0)
    (root / "batchconsumequeue").rename(root / "other")
    topic = next(path.name for path in (root / "consumequeue").iterdir())
    result = run_here(["get", str(root), "--topic", topic, "--since", "now", "--utc"])
    said = "searched no queue unit and no record; the first record of the log was stored 2026-11-20T21:48:5"
    assert result.code == 1 and said in result.stderr and ", the last 2026-11-20T21:48:5" in result.stderr
    assert "left out by the store times around them" in result.stderr
