"""Why `put` refuses a compaction topic: a real store never serves a message that has its unit already."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter, WriterOptions

from .. import stores
from .oracle import Oracle

pytestmark = pytest.mark.interop

NAME, TOPIC, QUEUE = "5.3.3-compaction", "state", 1


def test_a_message_that_is_put_is_not_served(tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    root = stores.unpack(NAME, tmp_path)
    config = stores.config(NAME, root)
    off = BrokerConfig(config | {"enableCompaction": "false"})
    with StoreWriter.open(root, off, WriterOptions(wait_seconds=0)) as writer:
        put = writer.append(NewMessage(TOPIC.encode(), b"v1", queue_id=QUEUE, properties=b"KEYS\1kz\2"))
    steps = [
        {"do": "get_message", "topic": TOPIC, "queue_id": QUEUE, "offset": put.queue_offset - back, "max": 5}
        for back in (1, 0)
    ]
    topics = {TOPIC: {"cleanup.policy": "COMPACTION"}}
    answer = oracle(stores.truth(NAME)["broker_version"]).run(root, config=config, topics=topics, steps=steps)
    assert answer["loaded"]
    before, own = ([m["queue_offset"] for m in step["messages"]] for step in answer["steps"])
    assert before == [put.queue_offset - 1]
    assert own == []
