"""`get --follow` beside a real broker's classes, which write through memory maps."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.log.batch import messages
from mqstore.store.search.follow import Follower

from .conftest import Judge
from .served import SIZES, Row, loaded

pytestmark = pytest.mark.interop

CONFIG = BrokerConfig().with_set([f"{key}={value}" for key, value in SIZES.items()])
MESSAGES = 400
STARTED_MS = 1_795_000_000_000


def rows(first: int) -> list[Row]:
    """Messages numbered from `first` on; they fill several files."""
    return [
        {"topic": f"T{n % 3}", "body": f"{n} " + "x" * (n * 53 % 400), "store_timestamp": STARTED_MS + n}
        for n in range(first, first + MESSAGES)
    ]


def test_every_message_once(judge: Judge, tmp_path: Path) -> None:
    """While it writes, over roll-over, and over a stop and a new start of it."""
    root = tmp_path / "store"
    loaded(judge, root, SIZES, {"do": "put", "messages": rows(0)[:1]})
    notes: list[str] = []
    follower = Follower(Layout.open(root, CONFIG), 0, notes.append)
    found: list[str] = []
    done = threading.Event()

    def follow() -> None:
        last = False
        while True:
            batch = follower.poll()
            if batch is not None:
                found.extend(m.stored_body.decode().split()[0] for m in messages(batch))
            elif last:
                return
            else:
                last = done.is_set()  # once more, now that all is written

    reader = threading.Thread(target=follow)
    reader.start()
    try:
        for first in (1000, 2000, 3000):
            loaded(judge, root, SIZES, {"do": "put", "messages": rows(first)})
    finally:
        done.set()
        reader.join()
    assert found == ["0", *(row["body"].split()[0] for f in (1000, 2000, 3000) for row in rows(f))]
    assert notes == []
