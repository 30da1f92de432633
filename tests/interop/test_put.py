"""A store written by `mqstore put` is one to the real broker, of every version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.stores import NAMES, config, truth, unpack

from .conftest import Judge
from .served import (
    SIZES,
    Row,
    as_broker,
    assert_serves,
    body_sha1,
    broker_put,
    loaded,
    log_end,
    message,
    mqstore,
    put,
    rows,
    settings,
    warnings,
)

pytestmark = pytest.mark.interop

MESSAGES = [message(number) for number in range(200)]
LATER = [message(number, prefix="later") for number in range(40)]


def stored(root: Path, messages: list[Row], sizes: dict[str, Any], *options: str) -> list[Row]:
    """Put, and join each answer with its message."""
    answers = put(root, messages, sizes, *options)
    assert len(answers) == len(messages)
    return [before | answer for before, answer in zip(messages, answers, strict=True)]


def known_warnings(judge: Judge, folder: Path) -> set[str]:
    """What a broker says about stores that nobody but itself has written."""
    said: set[str] = set()
    for messages in (MESSAGES, LATER):
        said |= warnings(broker_put(judge, folder / "own", messages, SIZES))
    return said | warnings(loaded(judge, folder / "own", SIZES, {"do": "get"}))


def test_a_new_store_is_the_brokers(judge: Judge, version: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    ours = stored(root, MESSAGES, SIZES, *as_broker(version))
    answer = assert_serves(judge, root, SIZES, ours)
    assert answer["after_load"]["max_offset"] == log_end(ours)
    assert answer["after_load"]["queues"] == answer["after_start"]["queues"]
    assert warnings(answer) <= known_warnings(judge, tmp_path)


def test_broker_and_put_take_turns(judge: Judge, version: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    ours = stored(root, MESSAGES, SIZES, *as_broker(version))
    theirs = broker_put(judge, root, LATER, SIZES)
    assert theirs["steps"][0][0]["physical_offset"] >= log_end(ours)
    ours += stored(root, [message(n, prefix="again") for n in range(60)], SIZES)
    answer = assert_serves(judge, root, SIZES, ours)
    served = [m for m in answer["steps"][0] if "sha1" in m]
    assert len(served) == len(ours) + len(LATER)
    assert warnings(answer) <= known_warnings(judge, tmp_path)


def test_appended_to_the_brokers_own(judge: Judge, tmp_path: Path) -> None:
    root = tmp_path / "store"
    broker_put(judge, root, MESSAGES, SIZES)
    ours = stored(root, LATER, SIZES)
    answer = assert_serves(judge, root, SIZES, ours)
    assert answer["after_load"]["max_offset"] == log_end(ours)
    assert len([m for m in answer["steps"][0] if "sha1" in m]) == len(MESSAGES) + len(LATER)
    assert warnings(answer) <= known_warnings(judge, tmp_path)


@pytest.mark.parametrize("name", [n for n in NAMES if n.split("-", 1)[1] == "clean"])
def test_appended_to_a_real_store(name: str, oracle: Any, tmp_path: Path) -> None:
    root, known = unpack(name, tmp_path), truth(name)
    judge = oracle(known["broker_version"])
    sizes = config(name, root)
    before = known["queues"]
    ours = stored(root, LATER, sizes)
    for row in ours:
        queue = before.get(f"{row['topic']}/{row['queue_id']}", {"max_offset": 0})
        assert row["queue_offset"] >= queue["max_offset"]
    answer = assert_serves(judge, root, sizes, ours)
    assert answer["after_load"]["max_offset"] == log_end(ours)
    broker_put(judge, root, LATER, sizes)


@pytest.mark.parametrize(
    "name", ["4.3.1-clean", "4.9.7-expired", "4.9.7-lmq", "5.1.4-v2", "5.3.3-dledger", "5.5.0-ipv6"]
)
def test_a_real_store_dumped_into_a_new_one(name: str, oracle: Any, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    judge = oracle(truth(name)["broker_version"])
    options = config(name, root)
    sizes = {key: value for key, value in options.items() if key.startswith(("map", "max"))}
    dumped = mqstore("dump", root, "--format", "ndjson", "--raw", *settings(options))
    lines = [row for row in rows(dumped) if row["type"] == "message"]
    host = ["--store-host", lines[0]["store_host"], "--keep-times"]
    ours = put(tmp_path / "new", lines, sizes, *host, *as_broker(judge.version))
    answer = loaded(judge, tmp_path / "new", sizes, {"do": "get"})
    assert answer["after_load"]["max_offset"] == log_end(ours)
    assert all(served.get("look_ok") for served in answer["steps"][0])
    position = {row["physical_offset"]: line for row, line in zip(ours, lines, strict=True)}
    for served in answer["steps"][0]:
        line = position[served["physical_offset"]]
        assert served["sha1"] == body_sha1(line)
        assert served["properties"] == line["properties"]
