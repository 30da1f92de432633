"""What `put` adds to queues in a RocksDB, alone or besides files, the real classes serve, and go on from there."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.put.database import DatabaseWriter
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter, WriterOptions
from mqstore.store.queues.rocksdb import RocksDb, RocksdbConsumeQueues

from ..cli.datadriven import run_here
from ..store.put.faults import Killed
from .conftest import Judge
from .served import Row, body_sha1, loaded, message, put, settings
from .test_rocksdb_queues import ALONE, BOTH, opened

pytestmark = pytest.mark.interop

VERSIONS = ("5.4.0", "5.5.0", "5.5.1")
QUEUES = [["TopicA", 0], ["TopicA", 1], ["TopicNew", 0], ["%LMQ%new", 0]]


def sent(count: int) -> list[Row]:
    """Messages of an old topic and of a new one, every fifth for an LMQ as well."""
    found = []
    for number in range(count):
        row = message(number) | {"queue_id": number % 2, "topic": "TopicA"}
        if number % 3 == 0:
            row |= {"queue_id": 0, "topic": "TopicNew"}
        if number % 5 == 0:
            row["properties"] = {**row["properties"], "INNER_MULTI_DISPATCH": "%LMQ%new"}
        found.append(row)
    return found


def assert_goes_on(
    judge: Judge, root: Path, config: dict[str, Any], ours: list[Row], queues: list[list[Any]] = QUEUES, **request: Any
) -> None:
    """Each message is served at its number, and a broker gives the next ones to the messages it takes.

    queues: three of topics, and light ones.
    """
    before = dict.fromkeys(map(tuple, queues), -1)
    for row in ours:
        queue = row["topic"], row["queue_id"]
        before[queue] = max(before[queue], row["queue_offset"])
    more = [{"topic": t, "queue_id": q, "body": "next", "store_timestamp": 1_800_000_000_000} for t, q in queues[:3]]
    steps = ({"do": "get"}, {"do": "put", "messages": more}, {"do": "wait", "ms": 500}, {"do": "get"})
    answer = loaded(judge, root, config, *steps, queues=queues, files="none", **request)
    served = {(m["topic"], m["queue_id"], m["queue_offset"]): m for m in answer["steps"][0] if "sha1" in m}
    assert len([m for m in answer["steps"][0] if "sha1" not in m]) == 0, "a pull gave nothing"
    for row in ours:
        assert served[row["topic"], row["queue_id"], row["queue_offset"]]["sha1"] == body_sha1(row)
    assert all(m["look_ok"] for m in answer["steps"][0])
    assert [m["queue_offset"] for m in answer["steps"][1]] == [before[t, q] + 1 for t, q in queues[:3]]
    later = [m for m in answer["steps"][3] if "sha1" in m]
    assert len(later) == len([m for m in answer["steps"][0] if "sha1" in m]) + 3


def stored(root: Path, config: dict[str, Any], version: str, count: int = 90) -> list[Row]:
    rows = sent(count)
    answers = put(root, rows, config, "--as-broker", version, "--no-topic-config")
    return [before | answer for before, answer in zip(rows, answers, strict=True)]


@pytest.mark.parametrize("version", VERSIONS)
def test_queues_in_a_rocksdb_alone(version: str, oracle: Any, tmp_path: Path) -> None:
    root, sizes = opened("5.3.3-rocksdb", tmp_path)
    config = {**sizes, **ALONE}
    ours = stored(root, config, version)
    assert_goes_on(oracle(version), root, config, ours)


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_queues_in_both(version: str, oracle: Any, tmp_path: Path) -> None:
    root, sizes = opened("5.5.1-combine-lmq", tmp_path)
    config = {**sizes, **BOTH}
    ours = stored(root, config, version)
    assert_goes_on(oracle(version), root, config, ours)


LITE = "lite-parent"
LITE_QUEUES = [["TopicA", 0], [LITE, 0], ["TopicA", 1], [f"%LMQ%${LITE}$lite0", 0], ["%LMQ%a", 0]]


@pytest.mark.few(1)
@pytest.mark.parametrize("told", [True, False])
def test_a_rocksdb_of_lite_topics_alone(told: bool, oracle: Any, tmp_path: Path) -> None:
    """It gets what messages of LITE topics name; LMQs of others are nowhere, as with a broker.

    told: by an option; without it what is there says it.
    """
    root, sizes = opened("5.5.1-combine-selective", tmp_path)
    config = {**sizes, **BOTH, "rocksdbCQSelectiveDoubleWriteEnable": "true"}
    rows = [message(number) | {"topic": "TopicA", "queue_id": number % 2} for number in range(90)]
    for row in rows[::3]:
        row |= {"topic": LITE, "queue_id": 0}
        row["properties"] |= {"INNER_MULTI_DISPATCH": f"%LMQ%${LITE}$lite0"}
    for row in rows[1::5]:
        row["properties"].setdefault("INNER_MULTI_DISPATCH", "%LMQ%a")
    words = ("--as-broker", "5.5.1", "--no-topic-config")
    for half in (rows[:45], rows[45:]):
        answers = put(root, half, config if told else {}, *words)
        for row, answer in zip(half, answers, strict=True):
            row |= answer
    verdict = run_here(["verify", str(root), "--format", "json", *settings(config)])
    assert verdict.code == 0, verdict.stdout
    with RocksDb.open(root / "consumequeue_rocksdb") as database:
        topics = {each.topic for each in RocksdbConsumeQueues.of(database)}
    assert topics == {LITE, *(f"%LMQ%${LITE}$lite{n}" for n in range(3))}
    kind = {LITE: {"message.type": "LITE"}}
    assert_goes_on(oracle("5.5.1"), root, config, rows, LITE_QUEUES, topics=kind)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "version"), [("5.3.3-rocksdb", "5.4.0"), ("5.3.3-rocksdb", "5.5.1"), ("5.5.1-combine-lmq", "5.5.1")]
)
def test_killed_before_the_database(
    name: str, version: str, oracle: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The log has what the database lacks: the start of a broker completes it, because `abort` is there."""
    root, sizes = opened(name, tmp_path)
    config = {**sizes, **(ALONE if name == "5.3.3-rocksdb" else BOTH)}
    options = WriterOptions(as_broker=version, wait_seconds=0, topic_config=False)

    def killed(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(DatabaseWriter, "write", killed)
    ours = []
    store = StoreWriter.open(root, BrokerConfig(config), options)
    for row in sent(60):
        body = base64.b64decode(row["body_base64"])
        queue = row["topic"].encode(), body
        said = store.append(NewMessage(*queue, queue_id=row["queue_id"], properties=_properties(row)))
        ours.append(row | said._asdict())
    store.sync()
    with pytest.raises(Killed):
        store.close()
    assert (root / "abort").exists()
    assert_goes_on(oracle(version), root, config, ours)


def _properties(row: Row) -> bytes:
    return "".join(f"{k}\1{v}\2" for k, v in row["properties"].items()).encode()
