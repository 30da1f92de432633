"""Clean stores of any configuration, made by the real classes: no error without being told the options."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.recover.recovery import analyze
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify
from tests.slices import rng, share

from .conftest import Judge

pytestmark = pytest.mark.interop

NOW_MS = 1_795_000_000_000
CASES = 12
"""Configurations of each version, at a whole slice."""
WAITS = ("1s", "2s", "5s", "17s", "1m", "90s", "2m", "1h", "5h", "1d", "3d")
#: Of the verdict on a start and on config/, which the store classes do not write, others say more.
GROUPS = frozenset({"layout", "commit_log", "consume_queue", "index", "checkpoint", "timer", "compaction"})


def configuration(chance: random.Random, version: str) -> dict[str, Any]:
    """Options with values of their own."""
    found: dict[str, Any] = {
        "mappedFileSizeCommitLog": chance.choice((8192, 10_000, 16384, 65536)),
        "mappedFileSizeConsumeQueue": 20 * chance.choice((5, 20, 33, 100)),
        "maxHashSlotNum": chance.choice((7, 50, 1000)),
        "maxIndexNum": chance.choice((200, 333, 5000)),
        "messageDelayLevel": " ".join(chance.choice(WAITS) for _ in range(chance.choice((1, 5, 18, 30)))),
        "messageIndexEnable": chance.random() < 0.8,
        "enableMultiDispatch": chance.random() < 0.3,
        "enableLmq": chance.random() < 0.3,
    }
    if chance.random() < 0.3:
        found |= {
            "enableConsumeQueueExt": True,
            "mappedFileSizeConsumeQueueExt": chance.choice((1024, 5000)),
            "bitMapLengthConsumeQueueExt": chance.choice((64, 112)),
        }
    if version > "5.2" and chance.random() < 0.3:
        found["enabledAppendPropCRC"] = True
    return found


def messages(chance: random.Random, config: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Plain ones, delayed ones, some that name further queues; keys, tags, sizes of all kinds."""
    levels = len(config["messageDelayLevel"].split())
    found = []
    for number in range(count):
        one: dict[str, Any] = {
            "topic": chance.choice(("orders", "bills")),
            "queue_id": chance.randrange(3),
            "body": "x" * chance.randrange(1, 400),
            "keys": f"k{number}",
            "unique_key": f"{number:032X}",
            "store_timestamp": NOW_MS + number * chance.choice((1, 7, 997)),
        }
        if chance.random() < 0.5:
            one["tags"] = chance.choice("ab")
        if chance.random() < 0.3:
            one["delay_level"] = chance.randrange(1, levels + 2)
        elif config["enableLmq"] and chance.random() < 0.3:
            one["properties"] = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
        found.append(one)
    return found


@pytest.mark.few(4)
@pytest.mark.parametrize("exit", ["clean", "halt"])
@pytest.mark.parametrize("number", range(share(CASES)))
def test_no_error_without_being_told(number: int, exit: str, judge: Judge, tmp_path: Path) -> None:
    chance = rng(f"options {judge.version} {number}")
    config = configuration(chance, judge.version)
    put = {"do": "put", "messages": messages(chance, config, chance.choice((3, 60)))}
    root = tmp_path / "store"
    root.mkdir()
    answer = judge.run(root, config=config, steps=[put], exit=exit, files="none")
    assert answer["loaded"] and answer["idle"], answer
    with StoreReader(root) as store:
        scope = Scope(broker_version=judge.version, groups=GROUPS)
        found = verify(store, scope, now_ms=NOW_MS).findings
    wrong = [f"{f.code} {f.path}: {f.message}" for f in found if f.severity >= Severity.ERROR]
    assert not wrong, config
    if exit == "clean":
        recovery = analyze(Layout.open(root), judge.version)
        assert not recovery.harmful, config
        edits = [] if recovery.plan is None else [e.reason for e in recovery.plan.edits]
        assert not edits, config
