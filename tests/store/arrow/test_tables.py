"""Offsets of groups as rows, and how far they are behind the ends of their queues."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.arrow.log_rows import Damage
from mqstore.store.arrow.stores import ReadOptions
from mqstore.store.arrow.tables import LagTable, OffsetTable, Table, parts_of, table_rows
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput
from mqstore.store.offsets.lag import LagQuery, offsets_of
from mqstore.store.search.store import StoreReader

from ...stores import config, truth, unpack

Row = dict[str, Any]


def rows(table: Table, root: Path, **options: str) -> list[Row]:
    ask = ReadOptions.of({"path": str(root), **options})
    names = tuple(table.all_columns())
    lost: list[Damage] = []
    parts = parts_of(table, ask)
    found = [b for part in parts for b in table_rows(table, ask, names, part, lost.append)]
    assert not lost
    return [row for batch in found for row in batch.to_pylist()]


def configured(tmp_path: Path, **files: Any) -> Path:
    (tmp_path / "config").mkdir()
    (tmp_path / "commitlog").mkdir()
    for name, content in files.items():
        (tmp_path / f"config/{name}.json").write_text(json.dumps(content))
    return tmp_path


FILES = {
    "consumerOffset": {"offsetTable": {"T@g": {"0": 5, "1": -1, "2": 0}}, "pullOffsetTable": {"T@p": {"0": 3}}},
    "lmqConsumerOffset": {"lmqOffsetTable": {"%LMQ%q@%LMQ%g": 7, "%LMQ%q@%LMQ%h": -1}},
    "delayOffset": {"offsetTable": {"3": 15, "4": -1}},
}
WANTED = {
    "offset": [("T", "g", 0, 5), ("T", "g", 2, 0)],
    "pull": [("T", "p", 0, 3)],
    "lmq": [("%LMQ%q", "%LMQ%g", 0, 7)],
    "delay": [("SCHEDULE_TOPIC_XXXX", None, 2, 15)],
}


def test_one_table_unless_others_are_asked_for(tmp_path: Path) -> None:
    """Two groups that have never committed, and a level, are no rows."""
    root = configured(tmp_path, **FILES)
    names = ("topic", "group", "queue_id", "offset")

    def found(**options: str) -> dict[str, list[tuple[Any, ...]]]:
        by_table: dict[str, list[tuple[Any, ...]]] = {}
        for row in rows(OffsetTable(), root, **options):
            by_table.setdefault(row["table"], []).append(tuple(row[name] for name in names))
        return by_table

    assert found() == {"offset": WANTED["offset"]}
    assert found(tables="pull, delay") == {name: WANTED[name] for name in ("pull", "delay")}
    assert found(tables="*") == WANTED
    with pytest.raises(InvalidInput, match="option tables: no 'x'"):
        found(tables="offset,x")


def test_lag_of_queues_that_are_not_there(tmp_path: Path) -> None:
    root = configured(tmp_path, **FILES)
    found = rows(LagTable(), root)
    assert [(row["topic"], row["max_offset"], row["lag"]) for row in found] == [("T", None, None)] * 2


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-batchcq", "5.3.3-lmq", "5.5.0-killed"])
def test_lag_is_how_many_messages_are_before_a_group(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    options = {"broker_config": json.dumps(config(name, root))}
    found, groups = rows(LagTable(), root, **options), rows(OffsetTable(), root, **options)
    assert [(row["topic"], row["queue_id"], row["offset"]) for row in found] == [
        (row["topic"], row["queue_id"], row["offset"]) for row in groups
    ]
    queues = {queue: ends["max_offset"] for queue, ends in truth(name)["queues"].items()}
    assert found, "there is something to tell"
    for row in found:
        end = queues.get(f"{row['topic']}/{row['queue_id']}")
        assert row["max_offset"] == end, row
        assert row["lag"] == (None if end is None else max(0, end - row["offset"]))


@pytest.mark.parametrize(
    ("name", "behind"),
    [("4.9.7-killed-hole", 0), pytest.param("4.9.7-killed", None, id="a queue that does not tell its end")],
)
def test_lag_of_a_group_that_is_ahead_does_not_lessen_sums(name: str, behind: int | None, tmp_path: Path) -> None:
    """It is what `offsets` tells of a queue, and adds up."""
    root = unpack(name, tmp_path)
    offsets = root / "config" / "consumerOffset.json"
    offsets.write_text(
        re.sub(r'("orders@group-a-retry":\{.*?3:)\d+', r"\g<1>9999", offsets.read_text(), flags=re.DOTALL)
    )
    with StoreReader(root) as store:
        told = offsets_of(store, "", LagQuery(0, by="queue")).rows
    known = {(row["topic"], row["group"], row["queue_id"]): row["lag"] for row in told}
    found = {(row["topic"], row["group"], row["queue_id"]): row["lag"] for row in rows(LagTable(), root)}
    assert found["orders", "group-a-retry", 3] == behind
    assert found == {key: known[key] and max(0, known[key]) for key in found}


def test_positions_of_a_rocksdb(tmp_path: Path) -> None:
    """They are rows like those of files."""
    root = unpack("5.3.3-rocksdb", tmp_path)
    found = rows(LagTable(), root)
    assert [(r["group"], r["topic"], r["queue_id"], r["offset"], r["lag"]) for r in found] == [
        ("rg", "TopicA", 0, 54, 0),
        ("rg", "TopicA", 1, 56, 0),
    ]
    assert {row["file"] for row in rows(OffsetTable(), root)} == {"consumerOffsets"}


@pytest.mark.parametrize(
    ("text", "problems"), [("", 1), ("{", 1), ('{"offsetTable": {"t@g": {"0": "x", "1": 5}}}', 1), ("{}", 0)]
)
def test_offsets_that_cannot_be_read_are_told(text: str, problems: int, tmp_path: Path) -> None:
    """Of a file with nothing in it, too; other files do not count."""
    config = tmp_path / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text(text)
    (config / "topics.json").write_text("{")
    found = list(OffsetTable().rows(Layout.of(tmp_path), ReadOptions.of({"path": str(tmp_path)}), True))
    told = [values["problem"] for _, values in found if values.get("problem")]
    assert len(told) == problems
    assert all(str(config / "consumerOffset.json") in problem for problem in told)
    assert sum(count for count, values in found if "problem" not in values) == ("5" in text)
