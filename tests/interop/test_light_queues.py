"""LMQs (light message queues): the offsets that `put` names are those of the real classes, and so are the units."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.session.apply import apply
from tests import stores
from tests.store.plan.test_torn_records import places, planned, tear_named

from .conftest import Judge
from .served import DATA, SIZES, Row, as_broker, changed, loaded, mqstore, rows, settings
from .test_same_bytes import HOST, START_MS, difference

pytestmark = pytest.mark.interop

VERSIONS = ["4.9.7", "5.1.4", "5.3.3", "5.4.0", "5.5.0", "5.5.1"]
NAMES = ("%LMQ%a", "%LMQ%b", "%LMQ%", "%LMQ%long" + "x" * 50)
TOPICS = ("orders", "orders", "orders", "%RETRY%g", "rmq_sys_x")
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
MESSAGES = 120
ON = {"enableLmq": "true", "enableMultiDispatch": "true"}


def message(number: int, chance: random.Random, version: str) -> Row:
    names = [chance.choice(NAMES) for _ in range(chance.choice((0, 1, 1, 2, 3)))]
    if version.startswith("4") and chance.random() < 0.1:
        names.append("copies")  # an ordinary queue; later brokers choke on it
    properties = {"INNER_MULTI_DISPATCH": ",".join(names)} if names else {}
    if names and chance.random() < 0.3:
        properties["INNER_MULTI_QUEUE_OFFSET"] = "77"  # overwritten
    return {
        "topic": chance.choice(TOPICS),
        "queue_id": chance.randrange(2),
        "sys_flag": chance.choice((0, 0, 0, 0, PREPARED, COMMIT, ROLLBACK)),
        "properties": properties | {"UNIQ_KEY": f"{number:032X}"},
        "body": "x" * chance.randrange(50),
        "store_timestamp": START_MS + number,
        "store_host": HOST,
    }


def again(theirs: Path, ours: Path, config: dict[str, Any], version: str) -> None:
    """Put what the broker was given; the dump has its properties in the broker's order."""
    dumped = mqstore("dump", theirs, "--format", "ndjson", "--raw", *settings(config))
    options = ["--keep-times", "--store-host", HOST, *as_broker(version), *settings(config)]
    mqstore("put", ours, "--from", "-", "--no-answers", *options, stdin=dumped)


@pytest.mark.parametrize("version", VERSIONS, scope="session")
def test_offsets_and_units(judge: Judge, version: str, tmp_path: Path) -> None:
    chance = random.Random(f"light {version}")
    found = [message(n, chance, version) for n in range(MESSAGES)]
    config = SIZES | ON
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    answer = loaded(judge, theirs, config, {"do": "put", "messages": found})
    assert {result["status"] for result in answer["steps"][0]} == {"PUT_OK"}
    again(theirs, ours, config, version)
    assert not difference(theirs, ours)
    assert (ours / "consumequeue" / "%LMQ%a" / "0").is_dir()
    loaded(judge, ours, config)


@pytest.mark.parametrize("options", [{"enableLmq": "true"}, {"enableMultiDispatch": "true"}])
@pytest.mark.parametrize("version", VERSIONS, scope="session")
def test_one_option_alone(judge: Judge, version: str, options: dict[str, str], tmp_path: Path) -> None:
    found = [
        {
            "topic": "orders",
            "body": "x",
            "properties": {"INNER_MULTI_DISPATCH": "%LMQ%a", "UNIQ_KEY": f"{number:032X}"},
            "store_timestamp": START_MS + number,
            "store_host": HOST,
        }
        for number in range(3)
    ]
    config = SIZES | options
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    loaded(judge, theirs, config, {"do": "put", "messages": found})
    again(theirs, ours, config, version)
    assert not difference(theirs, ours)


@pytest.mark.parametrize("version", VERSIONS, scope="session")
def test_how_large_such_a_record_may_be(judge: Judge, version: str, tmp_path: Path) -> None:
    config = SIZES | ON | {"maxMessageSize": 5000}
    named = {"INNER_MULTI_DISPATCH": "%LMQ%a", "UNIQ_KEY": "K"}
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for size in (4800, 4841, 4842, 4850, 5000):
        row = {"topic": "T", "body": "x" * size, "properties": named}
        (result,) = loaded(judge, theirs, config, {"do": "put", "messages": [row]})["steps"][0]
        words = ["--property", "INNER_MULTI_DISPATCH=%LMQ%a", "--property", "UNIQ_KEY=K"]
        options = [*words, *as_broker(version), *settings(config)]
        said = mqstore("put", ours, "T", "x" * size, *options, codes=(0, 5))
        assert bool(said) == (result["status"] == "PUT_OK"), size


@pytest.mark.parametrize("version", VERSIONS, scope="session")
def test_a_number_that_nobody_reads(judge: Judge, version: str, tmp_path: Path) -> None:
    """That for a name with a `/`: since 5.1 it stops no broker, and `verify` does not say so."""
    config, root = SIZES | ON, tmp_path / "store"
    row: Row = {
        "topic": "orders",
        "body": "x",
        "properties": {"INNER_MULTI_DISPATCH": "%LMQ%a/b,%LMQ%a", "UNIQ_KEY": "K"},
        "store_timestamp": START_MS,
        "store_host": HOST,
    }
    loaded(judge, root, config, {"do": "put", "messages": [row]}, exit="halt")
    file = min((root / "commitlog").iterdir())
    file.write_bytes(file.read_bytes().replace(b"_OFFSET\x010,0", b"_OFFSET\x01x,0"))
    said = mqstore(
        *("verify", root, "--format", "ndjson", "--broker-version", version), *settings(config), codes=(1, 3)
    )
    (level,) = {row["severity"] for row in rows(said) if row.get("code") == "I-048"}
    answer = judge.run(root, config=config, steps=[])
    assert (answer["loaded"], level) == ((False, "fatal") if version < "5" else (True, "error"))


def test_a_torn_record_keeps_its_place_in_the_queues_it_named(oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    """A broker that rebuilds all queues numbers the messages behind it as they were."""
    name, version = "4.9.7-lmq", "4.9.7"
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig().with_set(stores.config_set(name, root))
    wanted = places(root, config)
    tear_named(root, all_of_it=True)
    plan = planned(root, version, config)
    apply(Layout.open(root, config), plan, lambda: planned(root, version, config), Files())
    assert not changed(loaded(oracle(version), root, dict(config.items())), *DATA)
    assert places(root, config) == wanted
    for part in ("consumequeue", "index"):
        shutil.rmtree(root / part)
    (root / "abort").touch()
    loaded(oracle(version), root, dict(config.items()))
    assert places(root, config) == wanted


@pytest.mark.parametrize("without_queues", [False, True])
@pytest.mark.parametrize("name", ["4.9.7-lmq", "5.3.3-lmq"])
def test_tombstones_are_in_the_queues_of_their_records(
    oracle: Callable[[str], Judge], name: str, without_queues: bool, tmp_path: Path
) -> None:
    """A broker that rebuilds all queues makes the units of the plan."""
    version = name.partition("-")[0]
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig().with_set(stores.config_set(name, root))
    with min((root / "commitlog").iterdir()).open("r+b") as log:
        log.seek(8192)
        log.write(bytes(12288))
    if without_queues:
        shutil.rmtree(root / "consumequeue")
    plan = planned(root, version, config)
    apply(Layout.open(root, config), plan, lambda: planned(root, version, config), Files())
    wanted = places(root, config)
    assert not changed(loaded(oracle(version), root, dict(config.items())), *DATA)
    for part in ("consumequeue", "index"):
        shutil.rmtree(root / part)
    (root / "abort").touch()
    loaded(oracle(version), root, dict(config.items()))
    assert places(root, config) == wanted
