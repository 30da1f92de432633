"""A store recovered by `mqstore recover` is left alone by the real broker."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.consume_queue import UNIT, UNIT_BYTES
from mqstore.store.disk.file_queue import file_name
from tests.damage import damage
from tests.stores import NAMES, config, truth, unpack

from .conftest import Judge
from .served import SIZES, Row, assert_left_alone, loaded, message, mqstore, settings, victim

pytestmark = pytest.mark.interop

UNCLEAN = [
    name
    for name in NAMES
    if truth(name)["expected_verdict"] in ("unclean", "damaged")
    and "load_error" not in truth(name)
    and not any(word in name for word in ("-ha-", "compaction", "rocksdb", "lmq", "-hole"))
]


def recovered(root: Path, sizes: dict[str, Any], *options: str) -> Row:
    """Recover as the broker does, and return the plan that was applied."""
    options = ("--policy", "broker", "--format", "json", *settings(sizes), *options)
    plan = json.loads(mqstore("recover", root, *options, codes=(0, 1, 3)))
    mqstore("recover", root, "--apply", "--yes", *options, codes=(0, 1))
    assert not (root / "abort").exists()
    made: Row = plan["plan"]
    return made


@pytest.mark.few(1)
@pytest.mark.parametrize("name", UNCLEAN[::4])
def test_some_real_stores_after_recovery(name: str, oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    check(name, oracle, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", UNCLEAN)
def test_every_real_store_after_recovery(name: str, oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    check(name, oracle, tmp_path)


def check(name: str, oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    """The real classes change nothing in a real store that was recovered."""
    root = unpack(name, tmp_path)
    sizes = config(name, root)
    plan = recovered(root, sizes)
    if "timer" in name:
        sizes["timerWheelEnable"] = "false"  # a timer that runs delivers what is due meanwhile
    assert_left_alone(oracle(truth(name)["broker_version"]), root, sizes, plan)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "kind", [None, "torn_tail", *(pytest.param(k, marks=pytest.mark.slow) for k in ("flip_bit", "zero_page"))]
)
def test_a_store_killed_on_purpose(judge: Judge, version: str, kind: str | None, tmp_path: Path) -> None:
    root = tmp_path / "store"
    messages = [message(number) for number in range(150)]
    answer = loaded(judge, root, SIZES, {"do": "put", "messages": messages}, exit="halt")
    spoiled: frozenset[int] = frozenset()
    if kind:
        hurt = damage(victim(root, answer["steps"][0]), random.Random(kind), kind=kind)
        spoiled = hurt.spoiled
    plan = recovered(root, SIZES, "--broker-version", version)
    assert_left_alone(judge, root, SIZES, plan)
    # What lies before the file where the broker's scan begins stays as it is, damaged or not.
    got = loaded(judge, root, SIZES, {"do": "get"})["steps"][0]
    unreadable = [served for served in got if not served.get("look_ok")]
    assert len(unreadable) <= len(spoiled)
    assert len(got) == sum(queue["max_offset"] for queue in plan["queues"])


def test_a_queue_without_unit_and_message(judge: Judge, version: str, tmp_path: Path) -> None:
    """Its messages have expired: the broker begins at 0 again, as the plan says, not where it was."""
    root = tmp_path / "store"
    put = {"do": "put", "messages": [message(number) for number in range(20)]}
    loaded(judge, root, SIZES, put, exit="halt")
    queue = root / "consumequeue" / "expired" / "0"
    queue.mkdir(parents=True)
    size = int(SIZES["mappedFileSizeConsumeQueue"])
    (queue / file_name(3 * size)).write_bytes(bytes(size))
    plan = recovered(root, SIZES, "--broker-version", version)
    assert_left_alone(judge, root, SIZES, plan)


@pytest.mark.parametrize("over", [False, True])
def test_units_that_a_start_would_keep_behind_the_last_message(
    over: bool, judge: Judge, version: str, tmp_path: Path
) -> None:
    """It compares only where they begin. Recovered, the next message of the queue gets the next number."""
    root = tmp_path / "store"
    messages = [message(number) for number in range(30)]
    answer = loaded(judge, root, SIZES, {"do": "put", "messages": messages})
    end = answer["at_end"]["max_offset"]
    queue = next(q for q in answer["at_end"]["queues"] if q["topic"] == "orders")
    size, at = int(SIZES["mappedFileSizeConsumeQueue"]), queue["max"] * UNIT_BYTES
    path = root / "consumequeue" / "orders" / str(queue["queue_id"]) / file_name(at // size * size)
    with path.open("r+b") as file:
        file.seek(at % size)
        file.write(UNIT.build({"physical_offset": end - 90, "size": 80 + 40 * over, "tags_code": 0}))
    spoiled = tmp_path / "spoiled"
    shutil.copytree(root, spoiled)
    of_queue = {"topic": "orders", "queue_id": queue["queue_id"]}
    assert _end_of(of_queue, loaded(judge, spoiled, SIZES)) == queue["max"] + 1
    options = ("--broker-version", version, *settings(SIZES))
    assert "a broker keeps it" in mqstore("verify", root, *options, codes=(1,))
    told = json.loads(mqstore("recover", root, "--format", "json", *options, codes=(1,)))
    assert [q["max_offset"] for q in told["prediction"]["queues"] if of_queue.items() <= q.items()] == [
        queue["max"] + 1
    ]
    mqstore("recover", root, "--apply", "--yes", *options)
    assert "Safe to start" in mqstore("verify", root, *options)
    put = {"do": "put", "messages": [{**of_queue, "body": "next"}]}
    answer = loaded(judge, root, SIZES, put, {"do": "get"})
    assert [each["queue_offset"] for each in answer["steps"][0]] == [queue["max"]]
    assert all(served.get("look_ok") for served in answer["steps"][1])


def _end_of(queue: Row, answer: Row) -> int:
    """Of a queue, once the broker has started."""
    return next(int(each["max"]) for each in answer["after_start"]["queues"] if queue.items() <= each.items())
