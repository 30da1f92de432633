"""What makes rows of a whole log, in this process: 500 MB are enough, however many messages it has."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .. import huge_store
from .peak import peak_bytes

MOST_BYTES = 500_000_000
MOST_BYTES_OF_COUNTS = 300_000_000
"""What keeps no rows."""
LOG_BYTES = 300 << 20
"""Three million messages of a hundred bytes: rows cost more than bodies do."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return huge_store.make(tmp_path_factory.mktemp("one") / "store", 1, 4, 8, LOG_BYTES).root


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same messages, dealt out to other queues: none has a partner."""
    return huge_store.make(tmp_path_factory.mktemp("two") / "store", 1, 4, 16, LOG_BYTES).root


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--compression", "zstd"],
        ["--by-day", "--timestamps", "--file-size", "4G"],
        ["--format", "arrow"],
        ["--format", "csv", "--columns", "topic,body,properties"],
    ],
    ids=" ".join,
)
def test_export(options: list[str], store: Path, tmp_path: Path) -> None:
    words = ["export", str(store), "--to", str(tmp_path / "out"), "--since-last", *options]
    try:
        assert peak_bytes(*words) < MOST_BYTES
    finally:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "SELECT queue_id, count(*), sum(octet_length(body)) FROM messages GROUP BY queue_id",
        "SELECT * FROM messages WHERE position % 1000000 < 100",
        "SELECT body, position FROM messages",
        "SELECT count(*) FROM queues",
    ],
)
def test_sql(query: str, store: Path) -> None:
    assert peak_bytes("sql", query, str(store), "--format", "ndjson") < MOST_BYTES


@pytest.mark.slow
def test_trace(store: Path) -> None:
    """A scan for a key that nothing has, and a place among all queues."""
    assert peak_bytes("trace", str(store), "nothing-has-this-key", code=1) < MOST_BYTES
    assert peak_bytes("trace", str(store), "0", "--next-start") < MOST_BYTES


@pytest.mark.slow
def test_diff(store: Path, other: Path) -> None:
    assert peak_bytes("diff", str(store), str(store)) < MOST_BYTES
    assert peak_bytes("diff", str(store), str(other), code=1) < MOST_BYTES


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("stats", "--by", "topic,hour"),
        ("stats", "--by", "group,size,file"),
        ("stats", "--by", "queue", "--quick"),
        ("offsets", "--by", "queue"),
        ("stats", "--expires", "--disk-size", "1000G", "--disk-used", "1G"),
    ],
    ids=" ".join,
)
def test_counts_and_offsets(words: tuple[str, ...], store: Path) -> None:
    command, *options = words
    code = int("--expires" in options)  # without config/ nobody knows who loses what
    assert peak_bytes(command, str(store), *options, code=code) < MOST_BYTES_OF_COUNTS
