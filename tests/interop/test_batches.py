"""Batches of a client: `put` makes of them what the real classes make.

The same request goes to the broker's `putMessages`, or as one inner batch to a topic with batch
queues, and as a line with `batch` to `put`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.sys_flag import SysFlag

from .conftest import Judge
from .served import SIZES, Row, as_broker, broker_put, loaded, mqstore, put, rows, settings
from .test_same_bytes import HOST, START_MS, difference, files, random_message

pytestmark = pytest.mark.interop

FIVE = ["5.1.4", "5.3.3", "5.4.0", "5.5.0", "5.5.1"]
BATCH_TOPIC = {"B": {"queue.type": "BatchCQ"}}
CONFIG = SIZES | {"mapperFileSizeBatchConsumeQueue": 460}
REQUESTS = 40


def message(number: int, chance: random.Random) -> Row:
    """One of a batch. One property at most: their order is that of Java's hash map."""
    row: Row = {"body": "b" * chance.choice((0, 1, 30, 900)), "flag": chance.randrange(-3, 3)}
    row["properties"] = chance.choice(({}, {"TAGS": "Aa"}, {"UNIQ_KEY": f"{number:032X}"}))
    return row


def request(number: int, chance: random.Random, topic: str) -> Row:
    """A batch, and what holds for all of it."""
    count = chance.choice((1, 2, 3, 12))
    return {
        "topic": topic,
        "queue_id": chance.randrange(3),
        "sys_flag": chance.choice((0, 0, 1, 2)),
        "born_timestamp": START_MS - number,
        "born_host": f"192.168.0.{chance.randrange(250)}:4000",
        "reconsume_times": chance.randrange(3),
        "prepared_transaction_offset": chance.choice((0, 77)),
        "store_timestamp": START_MS + number,
        "properties": chance.choice(({}, {"WAIT": "true"}, {"UNIQ_KEY": f"B{number:031X}"})),
        "batch": [message(100 * number + n, chance) for n in range(count)],
    }


def without_keys(row: Row) -> Row:
    """The same for `put`, which otherwise gives every message a unique key.

    It refuses a body that says it is compressed and is not, unless it is told that it is as stored.
    """
    found = dict(row)
    if row.get("sys_flag", 0) & SysFlag.COMPRESSED:
        found["body_error"] = "as stored"
    if "UNIQ_KEY" not in row.get("properties", {}):
        found["unique_key"] = None
    if "batch" in row:
        found["batch"] = [without_keys(each) for each in row["batch"]]
    return found


def records(root: Path, config: dict[str, Any]) -> list[Row]:
    """Everything in the log, but when it was stored."""
    dumped = mqstore("dump", root, "--format", "ndjson", *settings(config))
    return [{name: value for name, value in row.items() if name != "store_timestamp"} for row in rows(dumped)]


def put_ours(root: Path, found: list[Row], config: dict[str, Any], version: str) -> list[Row]:
    options = ["--keep-times", "--store-host", HOST, *as_broker(version)]
    return put(root, [without_keys(row) for row in found], config, *options)


def test_a_clients_batch(judge: Judge, version: str, tmp_path: Path) -> None:
    chance = random.Random(f"batch {version}")
    found = [request(n, chance, "orders") for n in range(REQUESTS)]
    found += [random_message(n, chance, version) for n in range(REQUESTS, 2 * REQUESTS)]
    for row in found:
        row.pop("delay_level", None)
        row["properties"] = dict(list(row["properties"].items())[:1])
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    broker_put(judge, theirs, found, SIZES)
    answers = put_ours(ours, found, SIZES, version)
    assert len(answers) == sum(len(row.get("batch", "1")) for row in found)
    assert records(ours, SIZES) == records(theirs, SIZES)
    if version != "4.3.1":  # batches have the time of the clock there
        assert not difference(theirs, ours)
    loaded(judge, ours, SIZES)


def batch_topic(root: Path) -> None:
    """A store to be, whose topics.json has a topic with batch queues."""
    (root / "config").mkdir(parents=True)
    entry = {"topicName": "B", "attributes": BATCH_TOPIC["B"], "perm": 6}
    queues = {"readQueueNums": 4, "writeQueueNums": 4}
    content = {"topicConfigTable": {"B": entry | queues}}
    (root / "config" / "topics.json").write_text(json.dumps(content))


@pytest.mark.parametrize("crc", [False, True], ids=["plain", "property-crc"])
@pytest.mark.parametrize("version", FIVE, scope="session")
def test_an_inner_batch(judge: Judge, version: str, crc: bool, tmp_path: Path) -> None:
    chance = random.Random(f"inner {version}")
    config = CONFIG | {"enabledAppendPropCRC": str(crc).lower()}
    found = []
    for number in range(REQUESTS):
        row = request(number, chance, "B")
        row["inner"] = row["properties"].get("UNIQ_KEY") is not None
        found.append({k: v for k, v in row.items() if k != "inner" or v})
        single = random_message(number, chance, version) | {"sys_flag": 0, "topic": "B"}
        single.pop("delay_level", None)
        single["properties"] = {k: v for k, v in single["properties"].items() if v}
        found.append(single | {"store_timestamp": START_MS + number})
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for row in found:
        row["store_host"] = HOST
    judge_topics = {"topics": BATCH_TOPIC}
    answer = loaded(judge, theirs, config, {"do": "put", "messages": found}, **judge_topics)
    assert {result["status"] for result in answer["steps"][0]} == {"PUT_OK"}
    batch_topic(ours)
    put_ours(ours, found, config, version)
    left, right = records(theirs, config), records(ours, config)
    if crc:
        for row in (*left, *right):  # it covers the properties, whose order is Java's own
            for holder in (row, row.get("batch_record", {})):
                holder.get("properties", {}).pop("__CRC32#", None)
    assert right == left
    queues = [files(root / "batchconsumequeue", numbered=False) for root in (theirs, ours)]
    assert queues[1] == queues[0]
    get = loaded(judge, ours, config, {"do": "get"}, **judge_topics)["steps"][0]
    assert all(row.get("look_ok") for row in get)
    messages = [row for row in left if row["type"] == "message"]
    assert len(get) == len({row["physical_offset"] for row in messages})
    assert [as_decoded(row) for row in messages] == client_gets(judge, theirs)


def client_gets(judge: Judge, root: Path) -> list[Row]:
    """What a real client makes of the records: those of batches taken apart, if it can.

    It gives their messages a WAIT of its own.
    """
    found = judge.oracle.decode(root)["messages"]
    assert any(row.get("inner") == "failed" for row in found)
    apart = [row["inner"] if isinstance(row.get("inner"), list) else [row] for row in found]
    for row in (row for inner in apart for row in inner):
        row["properties"] = {n: v for n, v in row["properties"].items() if n not in NOT_COMPARED}
    return [{name: row[name] for name in DECODED} for inner in apart for row in inner]


NOT_COMPARED = ("WAIT", "__CRC32#")
DECODED = (
    *("topic", "queue_id", "queue_offset", "physical_offset", "sys_flag", "sha1", "properties"),
    "born_timestamp",
)


def as_decoded(row: Row) -> Row:
    """A message of `dump` with the names of the judge's."""
    body = row["body"].encode() if "body" in row else base64.b64decode(row["body_base64"])
    kept = {n: v for n, v in row["properties"].items() if n not in NOT_COMPARED}
    found = row | {"sha1": hashlib.sha1(body).hexdigest(), "properties": kept}
    return {name: found[name] for name in DECODED}


@pytest.mark.parametrize("version", FIVE, scope="session")
def test_inner_batches_byte_by_byte(judge: Judge, version: str, tmp_path: Path) -> None:
    chance = random.Random(f"inner bytes {version}")
    found = []
    for number in range(REQUESTS):
        row = request(number, chance, "B") | {"inner": True, "store_host": HOST}
        row["properties"] = {"UNIQ_KEY": f"B{number:031X}", "WAIT": "true"}
        found.append(row)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    loaded(judge, theirs, CONFIG, {"do": "put", "messages": found}, topics=BATCH_TOPIC)
    dumped = mqstore("dump", theirs, "--format", "ndjson", "--raw", *settings(CONFIG))
    options = ["--keep-times", "--store-host", HOST, *as_broker(version), *settings(CONFIG)]
    # a new topic whose first message is an inner batch gets batch queues
    mqstore("put", ours, "--from", "-", *options, stdin=dumped)
    assert not difference(theirs, ours)
    assert "BatchCQ" in (ours / "config" / "topics.json").read_text()


@pytest.mark.parametrize("version", FIVE, scope="session")
def test_what_a_broker_of_5_refuses(judge: Judge, version: str, tmp_path: Path) -> None:
    """The judge refuses it, and so does `put`; nothing is written."""
    bad: list[Row] = [
        {"topic": "B", "properties": {"INNER_NUM": "2"}, "body": "x"},
        {"topic": "T", "sys_flag": 0xC0, "properties": {"INNER_NUM": "2"}, "body": "x"},
        {"topic": "T", "sys_flag": 0x80, "body": "x"},
        {"topic": "T", "sys_flag": 4, "batch": [{"body": "x"}]},
        {"topic": "T", "properties": {"DELAY": "3"}, "batch": [{"body": "x"}]},
    ]
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    steps = [{"do": "put", "messages": [row]} for row in bad]
    answer = loaded(judge, theirs, CONFIG, *steps, topics=BATCH_TOPIC)
    assert [s[0]["status"] for s in answer["steps"]] == ["MESSAGE_ILLEGAL"] * len(bad)
    batch_topic(ours)
    mqstore("put", ours, "T", "first", *as_broker(version), *settings(CONFIG))
    before = files(ours, numbered=False)
    for row in bad:
        options = [*as_broker(version), *settings(CONFIG)]
        mqstore("put", ours, "--from", "-", *options, stdin=json.dumps(row), codes=(2,))
        assert files(ours, numbered=False) == before, row


@pytest.mark.parametrize("version", FIVE, scope="session")
def test_a_file_of_zeros_behind_a_full_one_hides_the_queue(judge: Judge, version: str, tmp_path: Path) -> None:
    """Where the queue of another topic reaches the end of the log, a start counts its first unit (B4)."""
    root, config = tmp_path / "store", CONFIG
    ten = [{"topic": "B", "batch": [{"body": f"{n}"}], "inner": True} for n in range(10)]
    start = partial(judge.run, root, config=config, topics=BATCH_TOPIC)
    start(steps=[{"do": "put", "messages": [*ten, {"topic": "T", "body": "last"}]}])
    (root / "batchconsumequeue" / "B" / "0" / f"{460:020}").write_bytes(bytes(460))
    options = ["--format", "json", "--broker-version", version, *settings(config)]
    said = json.loads(mqstore("recover", root, *options, codes=(1,)))
    assert [(row["topic"], row["messages"]) for row in said["prediction"]["invisible"]] == [("B", 10)]
    answer = start(steps=[{"do": "get"}, {"do": "put", "messages": ten[:1]}])
    ends = {queue["topic"]: (queue["min"], queue["max"]) for queue in answer["after_start"]["queues"]}
    pulled, (again,) = answer["steps"]
    assert (ends, {row["topic"] for row in pulled}) == ({"B": (0, 0), "T": (0, 1)}, {"T"})
    assert again["queue_offset"] == 0
