"""Files of an export: of the size that is wanted, a folder a day, never too many open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqstore.store.arrow import export_files

from ...cli.small_store import small_store
from ...stores import unpack
from .exports import exported


def test_files_have_the_size_that_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_files, "_KEPT_BYTES_MAX", 50_000)
    root = unpack("4.9.7-clean", tmp_path)
    whole = exported(root, tmp_path / "one", "json")
    report = exported(root, tmp_path / "more", "json", file_bytes=100_000)
    assert len(whole["files"]) == 1 and len(report["files"]) > 2
    sizes = [file["bytes"] for file in report["files"]]
    assert all(100_000 <= size < 300_000 for size in sizes[:-1]), sizes
    assert report["rows"] == whole["rows"]


def test_days_at_the_ends_of_the_calendar() -> None:
    times = [-(2**63), -62_135_596_800_000, 253_402_300_799_999, 2**63 - 1]
    found = export_files.by_day(pa.RecordBatch.from_pydict({export_files.DAY_COLUMN: times}))
    days = [(str(np.datetime64(day, "D")), rows.num_rows) for day, rows in found if day is not None]
    assert days == [("0001-01-01", 2), ("9999-12-31", 2)]


def test_more_days_than_files_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_files, "_OPEN_MAX", 2)
    monkeypatch.setattr(export_files, "_KEPT_BYTES_MAX", 1)
    times = [day * export_files.DAY_MS for day in (5, 6, 7, 5, 6, 7)]
    given = [{"topic": "t", "body": str(n), "store_timestamp": t} for n, t in enumerate(times)]
    root = small_store(tmp_path / "store", *sorted(given, key=lambda row: int(str(row["store_timestamp"]))))
    report = exported(root, tmp_path / "out", by_day=True)
    assert report["rows"] == 6
    found = pq.read_table(tmp_path / "out").column("body").to_pylist()
    assert sorted(found) == [str(n).encode() for n in range(6)]
