"""`config/` whose tables lie in RocksDBs, as `dump` prints it."""

from __future__ import annotations

import json
from pathlib import Path

from ... import stores
from ..printed import dumped

ROCKSDB = "5.3.3-rocksdb"


def test_configuration_in_a_rocksdb_is_that_of_files(tmp_path: Path) -> None:
    """The same record types and fields, with the directory's name for the file's."""
    root = stores.unpack(ROCKSDB, tmp_path)
    found = dumped(root / "config")
    topics = {r["topic"]: r for r in found if r["type"] == "topic_config"}
    stored = stores.truth(ROCKSDB)["rocksdb"]["config/topics"]["default"]
    for key, value in stored:
        entry = json.loads(bytes.fromhex(value))
        record = topics[bytes.fromhex(key).decode()]
        assert (record["file"], record["perm"]) == ("topics", entry["perm"])
        assert record["attributes"] == entry["attributes"]
    assert len(topics) == len(stored)
    offsets = [r for r in found if r["type"] == "consumer_offset"]
    assert [(r["topic"], r["group"], r["queue_id"], r["offset"]) for r in offsets] == [
        ("TopicA", "rg", 0, 54),
        ("TopicA", "rg", 1, 56),
    ]
