"""Views of stores: their columns, filters on them, damage of many stores."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from mqstore.store.arrow.stores import Ask
from mqstore.store.arrow.views import VIEWS, columns_of, damage_parts, mask_of

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


def test_hundreds_of_stores(tmp_path: Path) -> None:
    """Each of many small stores is one part; those that are none are rows of the damage."""
    one = unpack("5.3.3-lmq", tmp_path)
    for number in range(200):
        (tmp_path / "fleet" / f"{number:03}").mkdir(parents=True)
        if number % 10:
            (tmp_path / "fleet" / f"{number:03}" / "commitlog").symlink_to(one / "commitlog")
    parts = damage_parts(Ask.of({"path": f"{tmp_path}/fleet/*"}))
    assert len(parts) == 200
    assert sum(bool(part.reason) for part in parts) == 20
