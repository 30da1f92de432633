"""Delay levels: what `put` stores is what the broker's own classes store."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.formats.message_properties import parse
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import Batch
from mqstore.store.queues.references import commit_log_of
from mqstore.store.search.store import StoreReader

from .conftest import Judge
from .served import SIZES, Row, as_broker, loaded, mqstore, settings

pytestmark = pytest.mark.interop

CONFIG = BrokerConfig().with_set([f"{key}={value}" for key, value in SIZES.items()])
LEVELS = (1, 3, 18, 25)


def records(root: Path) -> list[Row]:
    """Topic, queue, offset, properties, and how much later than stored the unit's time is."""
    found: list[Row] = []
    for item in commit_log_of(Layout.open(root, CONFIG)).scan():
        if not isinstance(item, Batch):
            continue
        columns = item.columns
        for row in range(len(item)):
            found.append(
                {
                    "topic": columns.ragged("topic")[row].decode(),
                    "queue_id": int(columns.ints("queue_id")[row]),
                    "queue_offset": int(columns.ints("queue_offset")[row]),
                    "stored_ms": int(columns.ints("store_timestamp")[row]),
                    "properties": parse(columns.ragged("properties")[row]),
                }
            )
    with StoreReader(root, CONFIG) as store:
        for each in found:
            with store.queues.open(each["topic"], each["queue_id"]) as queue:
                unit = queue.unit(each["queue_offset"])
            assert unit is not None
            each["waits_ms"] = unit.tags_code - each.pop("stored_ms")
    return found


def test_levels(judge: Judge, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    messages = [
        {
            "topic": "orders",
            "queue_id": 2,
            "body": f"level {level}",
            "delay_level": level,
            "unique_key": f"{level:032X}",
            "properties": {"KEYS": f"k{level}"},
        }
        for level in LEVELS
    ]
    loaded(judge, theirs, SIZES, {"do": "put", "messages": messages})
    for level in LEVELS:
        words = ["--delay-level", str(level), "--queue", "2", "--keys", f"k{level}"]
        unique = ["--property", f"UNIQ_KEY={level:032X}"]
        put = ["put", str(ours), "orders", f"level {level}", *words, *unique]
        mqstore(*put, *as_broker(judge.version), *settings(SIZES))
    assert records(ours) == records(theirs)
    loaded(judge, ours, SIZES)
