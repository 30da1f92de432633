"""Views of stores: their columns, filters on them, damage of many stores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mqstore.store.arrow.stores import ReadOptions
from mqstore.store.arrow.views import VIEWS, columns_of, damage_parts, damage_rows, mask_of

from ...cli.datadriven import run_here
from ...stores import unpack


def test_a_filter_of_arrow() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())])
    expression = (pc.field("a") > 1) & pc.field("b").is_null()
    assert columns_of(expression, schema) == ["a", "b"]
    batch = pa.RecordBatch.from_pylist([{"a": 2, "b": None}, {"a": 2, "b": "x"}, {"a": None, "b": None}], schema=schema)
    assert mask_of(expression, batch).tolist() == [True, False, False]


def test_views_name_what_there_is() -> None:
    for view in VIEWS.values():
        assert view.schema.names == list(view.columns)
        assert "store" in view.columns


def test_views_are_told_apart_by_their_columns() -> None:
    assert len({tuple(view.columns) for view in VIEWS.values()}) == len(VIEWS)


@pytest.mark.parametrize("split", ["", "70000"])
@pytest.mark.parametrize("name", ["4.9.7-killed-torn", "4.9.7-killed-page", "4.9.7-killed-gap"])
def test_ranges_and_reasons_are_those_of_dump(name: str, split: str, tmp_path: Path) -> None:
    """A torn end and a file that is missing, too."""
    root = unpack(name.replace("-gap", ""), tmp_path)
    if name.endswith("-gap"):
        first = min((root / "commitlog").iterdir())
        shutil.copyfile(first, first.with_name(f"{4 * first.stat().st_size:020d}"))
    ask = ReadOptions.of({"path": str(root), **({"split_bytes": split} if split else {})})
    wanted = ("position", "size", "reason")
    found = [row for part in damage_parts(ask) for batch in damage_rows(ask, wanted, part) for row in batch.to_pylist()]
    lines = run_here(["dump", str(root), "--format", "ndjson"]).stdout.splitlines()
    dumped = [row for row in map(json.loads, lines) if row["type"] == "damage"]
    told = [row for row in dumped if not row["reason"].startswith("stale bytes")]
    kinds = {"4.9.7-killed-torn": "torn tail: ", "4.9.7-killed-gap": "missing: "}
    assert any(row["reason"].startswith(kinds.get(name, "")) for row in told)
    assert found == [{field: row[field] for field in wanted} for row in told]


def test_what_lies_behind_the_last_message_may_be_left_out(tmp_path: Path) -> None:
    """A query over messages is told no more: a torn tail is no damage of it."""
    for name, wanted in (("4.9.7-killed-torn", (1, 0)), ("4.9.7-killed-page", (1, 1))):
        root = str(unpack(name, tmp_path))
        for tails, count in zip(("true", "false"), wanted, strict=True):
            ask = ReadOptions.of({"path": root, "tails": tails})
            told = [rows for part in damage_parts(ask) for rows in damage_rows(ask, ["reason"], part)]
            assert sum(rows.num_rows for rows in told) == count, (name, tails)


def test_hundreds_of_stores(tmp_path: Path) -> None:
    """Each of many small stores is one part; those that are none are rows of the damage."""
    one = unpack("5.3.3-lmq", tmp_path)
    for number in range(200):
        (tmp_path / "fleet" / f"{number:03}").mkdir(parents=True)
        if number % 10:
            (tmp_path / "fleet" / f"{number:03}" / "commitlog").symlink_to(one / "commitlog")
    parts = damage_parts(ReadOptions.of({"path": f"{tmp_path}/fleet/*"}))
    assert len(parts) == 200
    assert sum(bool(part.reason) for part in parts) == 20
