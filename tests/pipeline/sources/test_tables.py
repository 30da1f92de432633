"""Tables of stores as sources: what of them cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.pipeline.sources.tables import reader_of
from mqstore.store.arrow.stores import ReadOptions
from mqstore.store.arrow.tables import OffsetTable
from mqstore.store.arrow.views import damage_parts, damage_rows
from mqstore.store.search.log_search import DamageWarning


def test_what_cannot_be_read_is_no_row(tmp_path: Path) -> None:
    """It is a warning, and a row of the source that is asked for it."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "config").mkdir()
    file = tmp_path / "config/consumerOffset.json"
    file.write_text('{"offsetTable": {"t@g": {"0": "x", "1": 5}}}')
    table = OffsetTable()
    reader = reader_of(table, ReadOptions.of({"path": str(tmp_path)}), tuple(table.all_columns()))
    with pytest.warns(DamageWarning, match=r"not read: .*consumerOffset.json.*of=offsets"):
        found = [b for part in reader.partitions() for b in reader.read(part)]
    assert [row["offset"] for batch in found for row in batch.to_pylist()] == [5]
    assert "problem" not in found[0].schema.names
    for of, places in (("log", 0), ("offsets", 1), ("index, offsets", 1), ("*", 2)):
        ask = ReadOptions.of({"path": str(tmp_path), "of": of})
        told = [b for part in damage_parts(ask) for b in damage_rows(ask, ["reason"], part)]
        reasons = [row["reason"] for batch in told for row in batch.to_pylist()]
        assert len(reasons) == places and all(str(file) in reason for reason in reasons), of
