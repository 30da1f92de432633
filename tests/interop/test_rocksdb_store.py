"""Index items in `rocksdbstore/` as the real store writes them, 5.4+."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..cli.datadriven import run_here
from .oracle import Oracle, missing

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", ["5.4.0", "5.5.0", "5.5.1"])
def test_index_items_in_a_rocksdb(version: str, tmp_path: Path) -> None:
    if why := missing(version):
        pytest.skip(why)
    sent = [
        {"topic": "T", "queue_id": 0, "body": "b", "keys": f"k@{n}", "tags": "a", "unique_key": f"U{n}"}
        for n in range(3)
    ]
    with Oracle(version, timeout_seconds=60) as oracle:
        answer = oracle.run(
            tmp_path,
            config={"indexRocksDBEnable": "true"},
            topics={"T": {}},
            steps=[{"do": "put", "messages": sent}, {"do": "wait", "ms": 2000}],
            exit="clean",
        )
    stored = answer["steps"][0]
    result = run_here(["dump", str(tmp_path / "rocksdbstore"), "--format", "ndjson"])
    assert result.code == 0, result.stderr
    records = [json.loads(line) for line in result.stdout.splitlines()]
    items = {
        (r["topic"], r["index_type"], r["key"], r["unique_key"], r["physical_offset"])
        for r in records
        if r["type"] == "rocksdb_index"
    }
    expected = set()
    for number, one in enumerate(stored):
        place = f"U{number}", one["physical_offset"]
        expected |= {("T", "K", f"k@{number}", *place), ("T", "T", "a", *place)}
        expected.add(("T", "U", "", *place))
    assert items == expected
    times = {r["store_timestamp"] for r in records if r["type"] == "rocksdb_index"}
    assert times == {one["store_timestamp"] for one in stored}
    rows = {r["name"]: r["value"] for r in records if r["type"] == "rocksdb_position"}
    assert rows == {"lastOffsetPy": stored[-1]["physical_offset"], "lastStoreTimeStamp": stored[-1]["store_timestamp"]}
    assert not [r for r in records if r["type"] == "rocksdb_entry"]
