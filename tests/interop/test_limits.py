"""Limits: what the real classes take `put` takes, what they refuse it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.datadriven import run_here

from .conftest import Judge
from .served import SIZES, Row, as_broker, loaded, settings

pytestmark = pytest.mark.interop

LIMIT = 5000
CONFIG = SIZES | {"maxMessageSize": LIMIT, "mappedFileSizeCommitLog": 1 << 20}
HEAD = 91 + 1
"""Bytes of a record for the topic T around body and properties."""


def properties(size: int) -> dict[str, str]:
    """Properties of this size as their text, a final separator included."""
    return {"k": "v" * (size - 3)}


def edges() -> dict[str, Row]:
    """Messages at each limit, just below it, just above."""
    found: dict[str, Row] = {}
    for size in (LIMIT - HEAD, LIMIT - HEAD + 1, LIMIT, LIMIT + 1):
        found[f"body {size}"] = {"body": "x" * size}
    for size in (32766, 32767, 32768, 32769):
        found[f"properties {size}"] = {"body": "x", "properties": properties(size)}
    for size in (32746, 32747, 32748, 32749):
        found[f"properties of a full body {size}"] = {"body": "x" * LIMIT, "properties": properties(size)}
    for size in (LIMIT - HEAD, LIMIT - HEAD + 1, LIMIT - 22, LIMIT - 21):
        found[f"batch of one {size}"] = {"batch": [{"body": "x" * size}]}
    for size in (LIMIT // 2 - HEAD, LIMIT // 2 - HEAD + 1, LIMIT // 2 - 22, LIMIT // 2 - 21):
        found[f"batch of two {size}"] = {"batch": [{"body": "x" * size}, {"body": "x" * size}]}
    for size in (127, 128):
        found[f"topic {size}"] = {"topic": "t" * size, "body": "x"}
    found["empty body"] = {"body": ""}
    return {name: {"topic": "T", "unique_key": None, **row} for name, row in found.items()}


def broker_takes(judge: Judge, root: Path, rows: dict[str, Row], config: Row) -> dict[str, bool]:
    messages = [{k: v for k, v in row.items() if k != "unique_key"} for row in rows.values()]
    steps = [{"do": "put", "messages": [message]} for message in messages]
    answer = judge.run(root, config=config, steps=steps)
    results = zip(rows, answer["steps"], strict=True)
    # a batch that is too large ends in an exception there
    return {n: isinstance(r, list) and r[0]["status"] == "PUT_OK" for n, r in results}


def we_take(root: Path, row: Row, config: dict[str, Any], version: str) -> bool:
    """A refusal says why, and names what can be changed."""
    for each in row.get("batch", ()):
        each["unique_key"] = None
    line = root.with_name("line")
    line.write_text(json.dumps(row))
    return taken("put", root, "--from", line, *as_broker(version), *settings(config))


def taken(*words: str | Path) -> bool:
    """Whether a command, run here, does what it is asked; else it has to say why."""
    said = run_here([str(word) for word in words])
    assert said.code in (0, 2, 5), said
    assert bool(said.stdout) == (said.code == 0) == (not said.stderr), said
    return said.code == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("crc", ["false", "true"], ids=["plain", "property-crc"])
def test_the_edges(judge: Judge, version: str, crc: str, tmp_path: Path) -> None:
    config = CONFIG | {"enabledAppendPropCRC": crc}
    rows = edges()
    theirs = broker_takes(judge, tmp_path / "theirs", rows, config)
    ours = {name: we_take(tmp_path / "ours", row, config, version) for name, row in rows.items()}
    assert ours == theirs
    assert not all(ours.values())
    loaded(judge, tmp_path / "ours", config)


TOPICS = [
    *("T", "a%b|c_d-E9", "", "a b", "a.b", "a/b", "订单", "%RETRY%g", "%DLQ%g", "x\ty"),
    *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
    *("TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "TBW102"),
    *("rmq_sys_wheel_timer", "RMQ_SYS_TRACE_TOPIC", "BenchmarkTest"),
    *("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"),
    *("t" * 127, "t" * 128, ("%RETRY%" + "t" * 255)[:255], ("%DLQ%" + "t" * 255)[:255]),
    *(("%RETRY%" + "t" * 256)[:256], ("%RETRY%" + "t" * 255)[:128]),
]


@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.3.3", "5.4.0", "5.5.0", "5.5.1"], scope="session")
def test_topics_that_a_producer_may_send_to(judge: Judge, version: str, tmp_path: Path) -> None:
    """But that of the timer, which brokers let a producer fill with what stops it for ever."""
    steps = [{"do": "may_send", "topic": topic} for topic in TOPICS]
    theirs = dict(zip(TOPICS, loaded(judge, tmp_path / "x", {}, *steps)["steps"], strict=True))
    ours = {}
    for topic in TOPICS:
        ours[topic] = taken("put", tmp_path / "ours", topic, "x", *as_broker(version))
    assert ours == theirs | {"rmq_sys_wheel_timer": False}
