"""Positions of groups, held against the records that real brokers had read when they noted them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.formats.consumer_offset import steps_to_next
from mqstore.formats.pop import CHECK_POINT_TAG, REVIVE_GROUP, REVIVE_TOPIC
from mqstore.store.broker.topics import read_json

from ..stores import NAMES, messages, unpack


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-pop")])
def test_only_the_revive_group_notes_the_last_record_read(name: str, tmp_path: Path) -> None:
    """It is a check point; where consumers have read all, no record is at their position."""
    table = (read_json(unpack(name, tmp_path) / "config" / "consumerOffset.json") or {})["offsetTable"]
    (key,) = (key for key in table if key.endswith(f"@{REVIVE_GROUP}"))
    tags = {
        (message["topic"], message["queue_id"], message["queue_offset"]): message["properties"].get("TAGS")
        for message in messages(name)
    }
    topic = f"{REVIVE_TOPIC}TestCluster"
    assert {tags[topic, queue, offset] for queue, offset in table.pop(key).items()} == {CHECK_POINT_TAG}
    read_all = [key for key, row in table.items() for q in row if (*key.split("@")[:1], q, row[q]) not in tags]
    assert read_all
    assert {steps_to_next(key.partition("@")[2]) for key in table} == {0}
    assert steps_to_next(REVIVE_GROUP) == 1
