"""What `repair --convert plain` made of a DLedger store is loaded, served and left alone by plain brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.slices import pick
from tests.stores import ALL, config, messages, truth, unpack

from .conftest import Judge
from .served import DATA, Row, changed, ends, loaded, mqstore, settings

pytestmark = pytest.mark.interop

MODE = ("enableDLegerCommitLog", "dLegerGroup", "dLegerSelfId", "dLegerPeers")
NAMES = tuple(name for name in ALL if "dledger" in name)


@pytest.mark.parametrize("name", ["5.3.3-dledger", *pick(NAMES, "DLedger stores")])
def test_a_plain_broker_serves_it(oracle: Callable[[str], Judge], name: str, tmp_path: Path) -> None:
    """Every message at its queue offset, found by its key, and not one byte changed by a start."""
    root, new = unpack(name, tmp_path), tmp_path / "plain"
    told = json.loads(mqstore("repair", root, "--convert", "plain", "--to", new, "--format", "json"))
    options = {k: v for k, v in config(name, new).items() if k not in MODE}
    known = [row for row in messages(name) if row["properties"].get("KEYS")]
    queries = [
        {"do": "query", "topic": row["topic"], "key": row["properties"]["UNIQ_KEY"], "max": 9}
        for row in known[:: max(1, len(known) // 20)]
    ]
    judge = oracle(truth(name)["broker_version"])
    answer = loaded(judge, new, options, {"do": "get"}, *queries)
    wrong = changed(answer, *DATA)
    assert not wrong, wrong
    served: dict[tuple[str, int, int], Row] = {
        (row["topic"], row["queue_id"], row["unit"]): row for row in answer["steps"][0]
    }
    assert told["records"] == len(served) == len(list(messages(name)))
    for row in messages(name):
        found = served[row["topic"], row["queue_id"], row["queue_offset"]]
        assert found["look_ok"]
        assert found["properties"] == row["properties"]
    assert all(result["messages"] for result in answer["steps"][1:])
    known_ends = {
        (queue.rpartition("/")[0], int(queue.rpartition("/")[2])): row["max_offset"]
        for queue, row in truth(name)["queues"].items()
    }
    assert ends(answer["after_start"]["queues"], "max") == known_ends
    assert settings(options)
