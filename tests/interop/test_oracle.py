"""The judge itself: what it says about the broker's own stores is what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.findings.catalogue import Severity
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify
from tests.stores import NAMES, config, pairs, truth, unpack

from .conftest import Judge
from .oracle import TINY
from .served import Row, assert_left_alone

pytestmark = pytest.mark.interop

MESSAGES = [{"topic": "T", "queue_id": n % 3, "keys": f"k{n}", "body": f"body {n}"} for n in range(60)]
ROOMY_INDEX = {"maxIndexNum": 200}


def test_its_own_store_serves_every_message(judge: Judge, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put, got = judge.run(root, config=ROOMY_INDEX, steps=[{"do": "put", "messages": MESSAGES}, {"do": "get"}])["steps"]
    assert all(answer["status"] == "PUT_OK" for answer in put)
    offsets = [answer["physical_offset"] for answer in put]
    assert sorted(message["physical_offset"] for message in got) == offsets
    assert all(message["look_ok"] for message in got)
    again = judge.run(root, config=ROOMY_INDEX, steps=[{"do": "query", "topic": "T", "key": "k7"}])
    assert [message["physical_offset"] for message in again["steps"][0]["messages"]] == offsets[7:8]


def _by_key(judge: Judge, root: Path, options: dict[str, int]) -> int:
    """How many messages a broker with these options finds by a key of each."""
    steps = [{"do": "query", "topic": "T", "key": f"k{n}", "max": 9} for n in range(len(MESSAGES))]
    return sum(bool(answer["messages"]) for answer in judge.run(root, config=options, steps=steps)["steps"])


@pytest.mark.parametrize("options", [{"maxHashSlotNum": 11}, {"maxIndexNum": 40}, {"maxIndexNum": 400}])
def test_an_index_of_other_options_than_it_was_made_with(options: dict[str, int], judge: Judge, tmp_path: Path) -> None:
    """It is an error where no key finds a message, and none where all do."""
    root = tmp_path / "store"
    judge.run(root, config=ROOMY_INDEX, steps=[{"do": "put", "messages": MESSAGES}])
    options = {**TINY, **ROOMY_INDEX, **options}
    with StoreReader(root, BrokerConfig.of(options)) as store:
        told = [f.severity for f in verify(store, Scope(groups=frozenset({"index"}))).findings if f.code == "I-090"]
    found = _by_key(judge, root, options)
    assert (told, found) in [([Severity.ERROR], 0), ([Severity.WARNING], len(MESSAGES))]


@pytest.mark.parametrize("name", [n for n in NAMES if n.split("-", 1)[1] == "clean"])
def test_a_real_store_loads_as_its_truth_says(name: str, oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    root, known = unpack(name, tmp_path), truth(name)
    answer = oracle(known["broker_version"]).run(root, config=config(name, root), start=False)
    assert answer["loaded"]
    assert answer["after_load"]["max_offset"] == known["load"]["after_load"]["max_phy_offset"]


def known_recovery(name: str) -> Row:
    """What the truth says of the log end and the queues, as a plan says it."""
    known = truth(name)
    queues = [
        {"topic": key.rpartition("/")[0], "queue_id": int(key.rpartition("/")[2]), **ends}
        for key, ends in known["queues"].items()
    ]
    return {"log_end": known["load"]["after_load"]["max_phy_offset"], "queues": queues}


@pytest.mark.slow
@pytest.mark.parametrize("name", [after for before, after in pairs() if before[5:] == "-killed"])
def test_the_brokers_own_recovery_is_left_alone(name: str, oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    judge = oracle(truth(name)["broker_version"])
    assert_left_alone(judge, root, config(name, root), known_recovery(name))


def test_a_killed_store_is_not_left_alone(oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    root = unpack("5.3.3-killed", tmp_path)
    with pytest.raises(AssertionError, match=r"changed .*index"):
        assert_left_alone(oracle("5.3.3"), root, config("5.3.3-killed", root), known_recovery("5.3.3-killed"))


def test_a_damaged_request_is_an_error_not_a_death(judge: Judge) -> None:
    with pytest.raises(RuntimeError, match="NullPointerException"):
        judge.oracle.ask({})
    assert judge.oracle.returncode is None
