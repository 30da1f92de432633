"""`verify` beside a real broker's classes, which write through memory maps: no false alarm."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.findings.catalogue import Severity
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.run import verify

from .conftest import Judge
from .served import SIZES, Row, loaded

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CONFIG = BrokerConfig().with_set([f"{key}={value}" for key, value in SIZES.items()])
ROUNDS = 20
MESSAGES = 300
STARTED_MS = 1_795_000_000_000
NOT_OF_THE_STORE = {"I-012", "I-150"}
"""How full the disk is says nothing of it, and the classes alone keep no topics.json."""


def rows(first: int) -> list[Row]:
    """Messages numbered from `first` on; they fill several files."""
    return [
        {
            "topic": f"T{n % 3}",
            "keys": f"k{n}",
            "body": f"{n} " + "x" * (n * 53 % 400),
            "store_timestamp": STARTED_MS + n,
        }
        for n in range(first, first + MESSAGES)
    ]


def alarms(root: Path) -> list[str]:
    """What verify says above information."""
    with StoreReader(root, CONFIG) as store:
        found = verify(store).findings
    return [
        f"{f.severity.label} {f.code} {f.path} {f.message}"
        for f in found
        if f.severity > Severity.INFO and f.code not in NOT_OF_THE_STORE
    ]


def test_verify_while_it_writes(judge: Judge, tmp_path: Path) -> None:
    """Again and again, over roll-over, stops and starts."""
    root = tmp_path / "store"
    loaded(judge, root, SIZES, {"do": "put", "messages": rows(0)})
    done = threading.Event()
    said: list[str] = []
    rounds = 0

    def watch() -> None:
        nonlocal rounds
        while rounds < ROUNDS or not done.is_set():
            said.extend(alarms(root))
            rounds += 1

    reader = threading.Thread(target=watch)
    reader.start()
    try:
        for first in range(1000, 6000, 1000):
            pause = {"do": "wait", "ms": 500}
            loaded(judge, root, SIZES, {"do": "put", "messages": rows(first)}, pause)
    finally:
        done.set()
        reader.join()
    assert rounds >= ROUNDS
    assert said == []
    assert alarms(root) == []
