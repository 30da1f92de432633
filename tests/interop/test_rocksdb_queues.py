"""Queues in a RocksDB that mqstore built: the real classes load them and serve every message."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.recover.broker_bugs import WITHOUT_COMPACTION_LOG
from mqstore.store.recover.recovery import analyze

from .. import stores
from .conftest import Judge
from .oracle import Oracle
from .served import loaded, mqstore

pytestmark = pytest.mark.interop

VERSIONS = ("5.4.0", "5.5.0", "5.5.1")
LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true"}
ALONE = {"storeType": "defaultRocksDB", **LIGHT}
BOTH = {
    "rocksdbCQDoubleWriteEnable": "true",
    "combineCQUseRocksdbForLmq": "true",
    "useSeparateStorePathForRocksdbCQ": "true",
    **LIGHT,
}
BODY = {"topic": "TopicA", "queue_id": 0, "body": "next", "store_timestamp": 1_795_400_000_000}


def opened(name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """A store, and its own options of sizes."""
    root = stores.unpack(name, folder)
    config = stores.config(name, root)
    sizes = {k: v for k, v in config.items() if k.startswith(("mapped", "mapper", "max"))}
    return root, sizes


def assert_served(judge: Judge, root: Path, config: dict[str, Any], name: str) -> None:
    """Each message of each queue, and one more at the next offset."""
    ends = {
        tuple(queue.rpartition("-")[::2]) if "/" not in queue else tuple(queue.rpartition("/")[::2]): row
        for queue, row in stores.truth(name)["queues"].items()
    }
    queues = [[topic, int(number)] for topic, number in sorted(ends) if not topic.startswith("rmq_")]
    if ["TopicA", 0] not in queues:
        queues.append(["TopicA", 0])
    steps = ({"do": "get"}, {"do": "put", "messages": [BODY]}, {"do": "wait", "ms": 300}, {"do": "get"})
    answer = loaded(judge, root, config, *steps, queues=queues, files="none")
    served = [m for m in answer["steps"][0] if "sha1" in m]
    assert len(served) == len(answer["steps"][0]), "a pull gave nothing"
    wanted = sum(
        ends[topic, str(number)]["max_offset"] - ends[topic, str(number)]["min_offset"]
        for topic, number in queues
        if (topic, str(number)) in ends
    )
    assert len(served) == wanted
    assert all(m["look_ok"] for m in served)
    assert len([m for m in answer["steps"][3] if "sha1" in m]) == wanted + 1


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["5.5.1-clean", "5.5.1-combine-lmq", "5.5.1-combine-same"])
def test_from_files_to_a_rocksdb(version: str, name: str, oracle: Any, tmp_path: Path) -> None:
    judge = oracle(version)
    root, sizes = opened(name, tmp_path)
    words = ["--queues", "--as", "rocksdb", "--apply", "--yes", "--broker-version", version]
    mqstore("repair", root, *words)
    # 5.4.0 looks for its database in consumequeue, and knows no other place
    aside = name == "5.5.1-combine-lmq" and version != "5.4.0"
    place = {"useSeparateStorePathForRocksdbCQ": "true"} if aside else {}
    assert (root / ("consumequeue_rocksdb" if aside else "consumequeue") / "CURRENT").is_file()
    assert_served(judge, root, {**sizes, **ALONE, **place}, name)


@pytest.mark.parametrize("version", VERSIONS)
def test_from_a_rocksdb_to_files(version: str, oracle: Any, tmp_path: Path) -> None:
    judge = oracle(version)
    root, sizes = opened("5.5.1-combine-lmq", tmp_path)
    mqstore("repair", root, "--queues", "--as", "files", "--apply", "--yes")
    assert_served(judge, root, {**sizes, **LIGHT}, "5.5.1-combine-lmq")


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_both_kinds_after_the_database_was_lost(version: str, oracle: Any, tmp_path: Path) -> None:
    """A broker by itself loses the LMQs of all but the last log file."""
    judge = oracle(version)
    root, sizes = opened("5.5.1-combine-lmq", tmp_path)
    for table in (root / "consumequeue_rocksdb").glob("*.sst"):
        table.unlink()
    mqstore("repair", root, "--queues", "--apply", "--yes")
    assert_served(judge, root, {**sizes, **BOTH}, "5.5.1-combine-lmq")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rocksdb_alone_after_a_wrong_table(version: str, oracle: Any, tmp_path: Path) -> None:
    judge = oracle(version)
    root, sizes = opened("5.3.3-rocksdb", tmp_path)
    table = max((root / "consumequeue").glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 3] ^= 4
    table.write_bytes(data)
    mqstore("repair", root, "--queues", "--apply", "--yes", "--broker-version", version)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    assert_served(judge, copy, {**sizes, **ALONE}, "5.3.3-rocksdb")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_database_that_is_gone(version: str, oracle: Any, tmp_path: Path) -> None:
    """Nothing is left in consumequeue: the broker had its topics in a RocksDB, so its queues were in one."""
    root, sizes = opened("5.5.1-rocksdb", tmp_path)
    for file in (root / "consumequeue").iterdir():
        file.unlink()
    mqstore("recover", root, "--apply", "--yes", "--broker-version", version)
    assert (root / "consumequeue" / "CURRENT").is_file()
    assert_served(oracle(version), root, {**sizes, **ALONE}, "5.5.1-rocksdb")


HYBRID = {"rocksdbCQDoubleWriteEnable": "true", "combineCQUseRocksdbForLmq": "true"}


@pytest.mark.parametrize("version", ["5.3.3", "5.4.0", "5.5.1"])
@pytest.mark.parametrize(
    ("name", "without", "config"),
    [
        ("5.3.3-batchcq", "", HYBRID),
        ("5.3.3-batchcq", "batchconsumequeue", HYBRID),
        ("5.3.3-compaction", "", HYBRID),
        ("5.3.3-compaction", "", {"storeType": "defaultRocksDB"}),
        ("5.3.3-compaction", "", {"storeType": "defaultRocksDB", "enableCompaction": "false"}),
        ("5.3.3-compaction", "compaction", {"storeType": "defaultRocksDB"}),
    ],
)
def test_what_needs_queues_in_files_alone(
    name: str, without: str, config: dict[str, str], version: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    """The prediction says whether a real store loads that keeps queues in a RocksDB, and what it serves."""
    root = stores.unpack(name, tmp_path)
    if without:
        shutil.rmtree(root / without)
    config = stores.config(name, root) | config
    told = analyze(Layout.open(root, BrokerConfig(config)), version).prediction
    entries = json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]
    topics = {topic: entry.get("attributes") or {} for topic, entry in entries.items()}
    step = {"do": "get_message", "topic": "state", "queue_id": 0, "offset": 0, "max": 1}
    answer = oracle(version).run(root, config=config, topics=topics, steps=[step] if "compaction" in name else [])
    assert answer["loaded"] is told.starts
    if told.starts and answer["steps"]:
        unserved = any(share.reason == WITHOUT_COMPACTION_LOG for share in told.invisible)
        assert (answer["steps"][0]["status"] == "NO_MATCHED_LOGIC_QUEUE") is unserved
