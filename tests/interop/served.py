"""Running `mqstore` on a store, then asking a judge what the broker serves from it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.datadriven import run_here
from tests.damage import Span, Victim

from .conftest import Judge

Row = dict[str, Any]

#: Small files: a few hundred messages fill several of each kind. An index file holds enough items
#: that a broker does not fill two in one millisecond, which would give them the same name.
SIZES = {"mappedFileSizeCommitLog": 16384, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 50, "maxIndexNum": 200}

#: What a start may not touch in a store that has nothing to recover.
DATA = ("commitlog", "consumequeue", "index", "commitlog-a", "disk2", "d1", "d2", "d3")

_LOG_LINE = re.compile(r"^[\d:.]+ (WARN|ERROR)\s+(.*)$")


def mqstore(*words: str | Path, stdin: str = "", codes: Sequence[int] = (0,)) -> str:
    """Run a command to its end and return stdout; any other exit code than `codes` is a failure."""
    arguments = [*map(str, words)]
    with tempfile.TemporaryFile("w+") as file, pytest.MonkeyPatch.context() as patched:
        file.write(stdin)
        file.seek(0)
        patched.setattr(sys, "stdin", file)
        done = run_here(arguments)
    assert done.code in codes, f"{arguments}: exit {done.code}\n{done.stderr}"
    return done.stdout


def settings(config: dict[str, Any]) -> list[str]:
    """The same configuration as ``--set`` options."""
    return [word for key, value in config.items() for word in ("--set", f"{key}={value}")]


def rows(text: str) -> list[Row]:
    """NDJSON, parsed."""
    return [json.loads(line) for line in text.splitlines()]


def put(root: Path, messages: Iterable[Row], config: dict[str, Any], *options: str) -> list[Row]:
    """`mqstore put --from -`: the answers, one per message."""
    lines = "".join(json.dumps(message) + "\n" for message in messages)
    said = mqstore(*("put", str(root), "--from", "-", "--format", "ndjson"), *settings(config), *options, stdin=lines)
    return [row for row in rows(said) if row["type"] == "stored"]


def message(number: int, *, prefix: str = "m") -> Row:
    """A message of its own for each number: topics, queues, sizes, hosts, keys and tags differ."""
    body = f"{prefix} {number} 消息 ".encode() * (number * 7 % 40)
    row: Row = {
        "type": "message",
        "topic": ("orders", "T%a|b_c-D", "long_" + "x" * 60)[number % 3],
        "queue_id": number * 5 % 4,
        "flag": number % 2,
        "born_timestamp": 1_700_000_000_000 + number,
        "born_host": f"10.0.{number % 7}.1:{40000 + number}",
        "reconsume_times": number % 3,
        "properties": {"KEYS": f"{prefix}{number} {prefix}all", "region": "中国", "WAIT": "true"},
    }
    if number % 4:
        row["properties"]["TAGS"] = f"tag{number % 5}"
    if number % 6 == 1:
        body = bytes(range(256))
    return row | {"body_base64": base64.b64encode(body).decode()}


def body_sha1(row: Row) -> str:
    """As the judge says it."""
    body = row.get("body", "").encode() or base64.b64decode(row.get("body_base64", ""))
    return hashlib.sha1(body).hexdigest()


def loaded(judge: Judge, root: Path, config: dict[str, Any], *steps: Row, **request: Any) -> Row:
    """Open the store in the real broker's classes; it must load and find nothing left to do."""
    answer = judge.run(root, config=config, steps=list(steps), **request)
    said = "\n".join(answer["log"])
    assert answer["loaded"], said
    assert "exception" not in answer, f"{answer['exception']}\n{said}"
    assert answer.get("idle", True), said
    for step, result in zip(steps, answer["steps"], strict=True):
        assert not (isinstance(result, dict) and "exception" in result), f"{step}: {result}"
    return answer


def broker_put(judge: Judge, root: Path, messages: list[Row], config: dict[str, Any]) -> Row:
    """The broker itself takes messages."""
    answer = loaded(judge, root, config, {"do": "put", "messages": messages})
    assert {result["status"] for result in answer["steps"][0]} == {"PUT_OK"}
    return answer


def as_broker(version: str) -> list[str]:
    """The option of `put` that asks for a store of that version."""
    return ["--as-broker", version]


def warnings(answer: Row) -> set[str]:
    """What RocketMQ warned of, numbers blotted out."""
    found = filter(None, map(_LOG_LINE.match, answer["log"]))
    return {re.sub(r"\d+", "N", line.group(2)).strip() for line in found}


def assert_serves(judge: Judge, root: Path, config: dict[str, Any], stored: list[Row]) -> Row:
    """By queue, by id (look) and by key, every stored message comes out as it went in.

    A stored row is an answer of `put` together with the message that it answers.
    """
    by_key = [
        {"do": "query", "topic": row["topic"], "key": key, "max": 1000}
        for row in stored
        for key in [*row["properties"]["KEYS"].split(" ")[:1], row["unique_key"]]
    ]
    answer = loaded(judge, root, config, {"do": "get"}, *by_key)
    got = {(m["topic"], m["queue_id"], m["unit"]): m for m in answer["steps"][0] if "sha1" in m}
    for row in stored:
        served = got[row["topic"], row["queue_id"], row["queue_offset"]]
        where = f"{row['topic']}/{row['queue_id']}/{row['queue_offset']}"
        assert served["look_ok"], where
        assert served["sha1"] == body_sha1(row), where
        assert served["message_id"] == row["message_id"], where
        assert served["physical_offset"] == row["physical_offset"], where
        wanted = row["properties"] | {"UNIQ_KEY": row["unique_key"]}
        assert wanted.items() <= served["properties"].items(), where
    for query, result in zip(by_key, answer["steps"][1:], strict=True):
        wanted_offsets = [
            row["physical_offset"]
            for row in stored
            if query["topic"] == row["topic"]
            and query["key"] in (*row["properties"]["KEYS"].split(" "), row["unique_key"])
        ]
        found = {m["physical_offset"] for m in result["messages"]}
        assert found >= set(wanted_offsets), query
    return answer


def log_end(stored: list[Row]) -> int:
    """Position behind the last stored message."""
    return max(int(row["physical_offset"]) + int(row["total_size"]) for row in stored)


def changed(answer: Row, *folders: str) -> dict[str, tuple[Row | None, Row | None]]:
    """Files below `folders` whose bytes are not the same before and after a life of the store."""
    before, after = answer["files_before"], answer["files_after"]
    names = {name for name in before.keys() | after.keys() if name.split("/")[0] in folders}
    pairs = {name: (before.get(name), after.get(name)) for name in sorted(names)}
    return {name: pair for name, pair in pairs.items() if _bytes(pair[0]) != _bytes(pair[1])}


def _bytes(file: Row | None) -> tuple[bool, str]:
    """Whether it is there, and its hash (an empty directory has none)."""
    return file is not None, (file or {}).get("sha256", "")


def assert_left_alone(judge: Judge, root: Path, sizes: dict[str, Any], plan: Row) -> None:
    """A load, then a start: same end, same queues, not one byte of the data changed."""
    queues = ends(plan["queues"], "max_offset")
    for start in (False, True):
        answer = loaded(judge, root, sizes, start=start)
        wrong = changed(answer, *DATA)
        assert not wrong, f"start={start}: changed {wrong}"
        assert answer["after_load"]["max_offset"] == plan["log_end"]
        for moment in ("after_load", "after_start")[: 1 + start]:
            assert ends(answer[moment]["queues"], "max") == queues, moment


def ends(queues: list[Row], field: str) -> dict[tuple[str, int], int]:
    """The maximum offset of each queue that ever had a message."""
    return {(q["topic"], q["queue_id"]): q[field] for q in queues if q[field]}


def victim(root: Path, put: list[Row]) -> Victim:
    """The records that the broker says it wrote, by their place."""
    size = SIZES["mappedFileSizeCommitLog"]
    spans = []
    for row in put:
        at = row["physical_offset"]
        path = root / "commitlog" / f"{at // size * size:020d}"
        spans.append(Span(at, path, at % size, row["size"]))
    return Victim(root, tuple(spans))
