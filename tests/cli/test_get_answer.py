"""What `get` answers for a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ..stores import NAMES, truth
from .printed import get


@pytest.fixture
def root(store: Callable[[str], Path]) -> Path:
    return store("5.3.3-clean")


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "name", [n for n in NAMES if truth(n)["expected_verdict"] == "clean" and "4.9.7-dledger" not in n]
)
def test_offset_at_is_the_broker_s_answer(name: str, store: Callable[[str], Path]) -> None:
    place = store(name)
    for query in truth(name).get("time_queries", [])[:12]:
        queue = ["--topic", query["topic"], "--queue", str(query["queue_id"])]
        result = get(place, *queue, "--offset-at", str(query["timestamp"]))
        assert result.stdout == f"{query['offset']}\n", query
        assert result.code == 0


def test_offset_at_as_json(root: Path) -> None:
    queue = ["--topic", "orders", "--queue", "1", "--offset-at", "0", "--format", "json"]
    assert json.loads(get(root, *queue).stdout) == {
        "type": "queue_offset",
        "topic": "orders",
        "queue_id": 1,
        "timestamp": 0,
        "queue_offset": 0,
    }


@pytest.mark.parametrize(
    "place",
    [
        ["--topic", "orders", "--queue", "0", "--offset", "99999"],
        ["--topic", "orders", "--queue", "77", "--offset", "0"],
        ["--at", "5"],
        ["--message-id", "00" * 16],
        ["--tag", "NOPE"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(("form", "stdout"), [("json", "[]\n"), ("ndjson", "")])
def test_an_answer_without_messages_is_complete(place: list[str], form: str, stdout: str, root: Path) -> None:
    result = get(root, *place, "--format", form)
    assert (result.code, result.stdout) == (1, stdout)
