"""Positions that `mqstore offsets` has moved, taken by the managers and clients of real brokers."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from mqstore.store.settings.parse import parse

from .. import stores
from .brokers import VERSIONS, Broker, missing
from .managers import Managers
from .served import mqstore, put, settings

pytestmark = pytest.mark.interop

#: Of the clients of `BrokerMain`.
GROUP = "mqstore-interop"
CONFIG: dict[str, Any] = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}


@pytest.fixture(scope="module")
def managers() -> Iterator[Callable[[str], Managers]]:
    """The real managers of a version, in one JVM."""
    started = dict[str, Managers]()

    def of(version: str) -> Managers:
        if why := missing(version):
            pytest.skip(why)
        if version not in started:
            started[version] = Managers(version)
        return started[version]

    yield of
    for each in started.values():
        each.close()


def table(managers: Managers, root: Path, name: str) -> dict[str, dict[str, int]]:
    """What the real manager has of a file, or of a database, with texts for keys. It gets a copy: to open a
    database changes its files.
    """
    with TemporaryDirectory(dir=root.parent) as folder:
        shutil.copytree(root / "config", Path(folder, "config"))
        answer = managers.load(folder, [name])[name]
    assert answer["loaded"], answer
    found = (parse(answer["table"].encode()).value or {})["offsetTable"]
    return {key: {str(queue): at for queue, at in row.items()} for key, row in found.items()}


@pytest.mark.parametrize("version", ["4.9.7", *VERSIONS])
def test_the_manager_has_what_was_written(version: str, managers: Callable[[str], Managers], tmp_path: Path) -> None:
    real = managers(version)
    root = stores.unpack(f"{version}-clean", tmp_path)
    before = table(real, root, "consumerOffset.json")
    words = ["--reset", "orders/1@group-a_tags=7", "--reset", "orders@group-a_fifo=earliest"]
    mqstore("offsets", root, *words, "--apply", "--yes")
    wanted = {**before["orders@group-a_tags"], "1": 7}
    fresh = dict.fromkeys(map(str, range(4)), 0)
    after = table(real, root, "consumerOffset.json")
    assert after == {**before, "orders@group-a_tags": wanted, "orders@group-a_fifo": fresh}
    mqstore("undo", root, "--yes")
    assert table(real, root, "consumerOffset.json") == before


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manager_has_what_was_written_into_its_rocksdb(
    version: str, managers: Callable[[str], Managers], tmp_path: Path
) -> None:
    real = managers(version)
    root = stores.unpack(f"{version}-rocksdb", tmp_path)
    before = table(real, root, "consumerOffsets/")
    key, row = next((key, row) for key, row in before.items() if max(row.values()) > 3)
    topic, _, group = key.rpartition("@")
    mqstore("offsets", root, "--reset", f"{topic}@{group}=3", "--apply", "--yes")
    assert table(real, root, "consumerOffsets/") == {**before, key: dict.fromkeys(row, 3)}
    mqstore("undo", root, "--yes")
    assert table(real, root, "consumerOffsets/") == before


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-clean", "5.5.0-clean", "5.5.1-clean", "5.3.3-lmq"])
def test_the_manager_has_what_was_in_files(name: str, managers: Callable[[str], Managers], tmp_path: Path) -> None:
    """Queues that went from files into a RocksDB, and positions with them; 5.5.1 takes over what 4.9.7 has left."""
    version = name.partition("-")[0].replace("4.9.7", "5.5.1")
    real, root = managers(version), stores.unpack(name, tmp_path)
    file = "lmqConsumerOffset.json" if "lmq" in name else "consumerOffset.json"
    before = table(real, root, file)
    assert before and not table(real, root, "consumerOffsets/")
    words = ["--broker-version", version.rpartition(".")[0]]
    mqstore("repair", root, "--queues", "--as", "rocksdb", "--apply", "--yes", *words)
    assert table(real, root, "consumerOffsets/") == before
    options = ["--set", "storeType=defaultRocksDB"]
    group, topic = ("lmq_group", "mqtt") if "lmq" in name else ("group-a_tags", "orders")
    mqstore("offsets", root, "--reset", f"{topic}@{group}=earliest", "--apply", "--yes", *options)
    key = f"{topic}@{group}"
    assert table(real, root, "consumerOffsets/") == {**before, key: dict.fromkeys(before[key], 0)}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manager_has_them_there_and_back(version: str, managers: Callable[[str], Managers], tmp_path: Path) -> None:
    real, root = managers(version), stores.unpack(f"{version}-rocksdb", tmp_path)
    before = table(real, root, "consumerOffsets/")
    for kind in ("files", "rocksdb"):
        mqstore("repair", root, "--queues", "--as", kind, "--apply", "--yes")
    assert before and table(real, root, "consumerOffsets/") == before


@pytest.mark.slow
def test_a_client_goes_on_with_queues_in_files_and_version_2(tmp_path: Path) -> None:
    """config/rdb stays in force, with the options that the conversion names."""
    if why := missing("5.5.1"):
        pytest.skip(why)
    root, broker = tmp_path / "store", {"configManagerVersion": "v2"}
    with Broker("5.5.1", root, {**CONFIG, "storeType": "defaultRocksDB"}, broker) as running:
        assert set(running.produce([{"topic": "orders", "body": f"message {n}"} for n in range(24)])) == {"SEND_OK"}
        running.consume({"orders": "*"})
        assert len(running.received(24)) == 24
        running.leave(GROUP)  # its offsets are committed
        running.stop()
    # that such a broker has forgotten the topic, it says as well
    told = mqstore("repair", root, "--queues", "--as", "files", "--apply", "--yes", *settings(CONFIG), codes=(0, 1))
    assert "storeType=default, configManagerVersion=v2" in told and "positions" not in told
    with Broker("5.5.1", root, {**CONFIG, "storeType": "default"}, broker) as running:
        assert running.produce([{"topic": "orders", "body": "later"}]) == ["SEND_OK"]
        running.consume({"orders": "*"})
        assert [row["body"] for row in running.received(2, seconds=8)] == ["later"]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_goes_on_where_it_was_sent(version: str, tmp_path: Path) -> None:
    """Twelve messages a queue, all consumed; then three of one queue once more, and no other."""
    if why := missing(version):
        pytest.skip(why)
    root = tmp_path / "store"
    rows = [{"topic": "orders", "queue_id": n % 2, "body": f"message {n}"} for n in range(24)]
    put(root, rows, CONFIG, "--as-broker", version.rpartition(".")[0])
    with Broker(version, root, CONFIG) as broker:
        broker.consume({"orders": "*"})
        assert len(broker.received(24)) == 24
        broker.stop()
    words = [word for name, value in CONFIG.items() for word in ("--set", f"{name}={value}")]
    # what a client has consumed last it may not have committed yet
    words += ["--reset", f"orders/0@{GROUP}=latest", "--reset", f"orders/1@{GROUP}=9"]
    mqstore("offsets", root, *words, "--apply", "--yes")
    with Broker(version, root, CONFIG) as broker:
        broker.consume({"orders": "*"})
        again = broker.received(4, seconds=8)
    assert sorted((row["queue_id"], row["queue_offset"]) for row in again) == [(1, 9), (1, 10), (1, 11)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "broker", "name"),
    [
        ({}, {"configManagerVersion": "v2"}, "rdb"),
        ({"storeType": "defaultRocksDB"}, {"useSingleRocksDBForAllConfigs": "true"}, "metadata"),
    ],
    ids=["v2", "single"],
)
def test_a_client_goes_on_by_one_database_for_all(
    store: dict[str, str], broker: dict[str, str], name: str, tmp_path: Path
) -> None:
    """The same where topics, groups and positions are in one RocksDB: a real 5.5.1 reads what was written."""
    if why := missing("5.5.1"):
        pytest.skip(why)
    root = tmp_path / "store"
    config = {**CONFIG, **store}
    with Broker("5.5.1", root, config, broker) as running:
        messages = [{"topic": "orders", "body": f"message {n}"} for n in range(24)]
        assert set(running.produce(messages)) == {"SEND_OK"}
        running.consume({"orders": "*"})
        there = running.received(24)
        assert len(there) == 24
        running.stop()
    assert (root / "config" / name / "CURRENT").is_file()
    words = [f"--reset=orders@{GROUP}=latest", f"--reset=orders/1@{GROUP}=2"]
    mqstore("offsets", root, *words, "--apply", "--yes")
    ends = Counter(row["queue_id"] for row in there)
    wanted = sorted(row["queue_offset"] for row in there if row["queue_id"] == 1)[2:]
    with Broker("5.5.1", root, config, broker) as running:
        # with version 2 a broker forgets topics that producers have made
        assert running.produce([{"topic": "orders", "body": "later"}]) == ["SEND_OK"]
        running.consume({"orders": "*"})
        again = running.received(len(wanted) + 1)
    assert wanted
    old = [row for row in again if row["queue_offset"] < ends[row["queue_id"]]]
    assert sorted((row["queue_id"], row["queue_offset"]) for row in old) == [(1, offset) for offset in wanted]
