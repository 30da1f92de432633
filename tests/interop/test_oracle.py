"""The judge itself: what it says about the broker's own stores is what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stores import NAMES, config, truth, unpack

from .conftest import Judge

pytestmark = pytest.mark.interop

MESSAGES = [
    {"topic": "T", "queue_id": n % 3, "keys": f"k{n}", "body": f"body {n}"} for n in range(60)
]
ROOMY_INDEX = {"maxIndexNum": 200}


def test_its_own_store_serves_every_message(judge: Judge, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put, got = judge.run(
        root,
        config=ROOMY_INDEX,
        steps=[{"do": "put", "messages": MESSAGES}, {"do": "get"}],
    )["steps"]
    assert all(answer["status"] == "PUT_OK" for answer in put)
    offsets = [answer["physical_offset"] for answer in put]
    assert sorted(message["physical_offset"] for message in got) == offsets
    assert all(message["look_ok"] for message in got)
    again = judge.run(root, config=ROOMY_INDEX, steps=[{"do": "query", "topic": "T", "key": "k7"}])
    assert [message["physical_offset"] for message in again["steps"][0]["messages"]] == offsets[7:8]


@pytest.mark.parametrize("name", [n for n in NAMES if n.split("-", 1)[1] == "clean"])
def test_a_real_store_loads_as_its_truth_says(
    name: str, oracle: Callable[[str], Judge], tmp_path: Path
) -> None:
    root, known = unpack(name, tmp_path), truth(name)
    answer = oracle(known["broker_version"]).run(root, config=config(name, root), start=False)
    assert answer["loaded"]
    assert answer["after_load"]["max_offset"] == known["load"]["after_load"]["max_phy_offset"]


def test_a_damaged_request_is_an_error_not_a_death(judge: Judge) -> None:
    with pytest.raises(RuntimeError, match="NullPointerException"):
        judge.oracle.ask({})
    assert judge.oracle.returncode is None
