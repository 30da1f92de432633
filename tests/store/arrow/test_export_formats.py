"""Kinds of files: what each of them says of a message, and what it cannot say."""

from __future__ import annotations

import base64
import csv
import gc
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from mqstore.cli.app import run
from mqstore.store.arrow import export_files
from mqstore.store.arrow.export_files import ExportHow
from mqstore.store.arrow.export_formats import ExportFormat, open_sink
from mqstore.store.arrow.stores import ReadOptions

from ...stores import unpack
from .exports import exported
from .rows import rows

pytestmark = pytest.mark.long


@pytest.mark.parametrize("form", ["parquet", "json", "csv", "avro"])
def test_times_that_no_calendar_has(form: str, tmp_path: Path) -> None:
    """Are milliseconds and no times."""
    times = [-(2**62), -1, 2**62]
    given = pa.record_batch({"born_timestamp": pa.array(times, pa.int64())})
    schema = export_files.schema_of(ReadOptions((), ("born_timestamp",)), ExportHow(times=True))
    shown = export_files._with_times(given, schema)
    assert shown.column("born_timestamp").to_pylist() == times
    assert [time is None for time in shown.column("born_time").to_pylist()] == [True, False, True]
    sink = open_sink(ExportFormat(form), tmp_path / "out", schema)
    sink.write(pa.Table.from_batches([shown]))
    sink.close()


@pytest.mark.parametrize("form", ["parquet", "arrow", "json", "csv", "avro"])
def test_a_file_that_is_given_up_says_nothing(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-C; nor where its end cannot be written, which is told once."""
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    table = pa.table({"topic": ["t"] * 3})
    sink = open_sink(ExportFormat(form), tmp_path / "out", table.schema)
    sink.write(table)
    sink.give_up()
    full = open_sink(ExportFormat(form), Path("/dev/full"), table.schema)
    full.write(table)
    with pytest.raises(OSError, match="No space left"):
        full.close()
    del sink, full
    gc.collect()
    assert said == []


def test_json_is_what_put_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Messages that are exported and put into a new store are the same messages."""
    root = unpack("4.9.7-multipath", tmp_path)
    (file,) = exported(root, tmp_path / "out", "json", times=True)["files"]
    words = ["put", str(tmp_path / "new"), "-q", "--from", str(tmp_path / "out" / file["path"])]
    assert run([*words, "--from-format", "ndjson"]) == 0
    capsys.readouterr()
    fields = "topic,queue_id,properties,body,born_timestamp,flag"
    before, after = (
        sorted(rows(ReadOptions.of({"path": str(store), "fields": f"{fields},position"})), key=str)
        for store in (root, tmp_path / "new")
    )
    for one, other in zip(before, after, strict=True):
        assert {f: one[f] for f in fields.split(",")} == {f: other[f] for f in fields.split(",")}


def test_csv_and_avro_say_the_same(tmp_path: Path) -> None:
    root = unpack("5.3.3-v2", tmp_path)
    tables: dict[str, list[dict[str, Any]]] = {"csv": [], "avro": []}
    for form, found in tables.items():
        report = exported(root, tmp_path / form, form, times=True)
        for file in report["files"]:
            path = tmp_path / form / file["path"]
            if form == "csv":
                with path.open(newline="") as text:
                    found += csv.DictReader(text)
            else:
                with path.open("rb") as data:
                    found += [dict(row) for row in fastavro.reader(data) if isinstance(row, dict)]
    assert len(tables["csv"]) == len(tables["avro"]) > 0
    for one, other in zip(tables["csv"], tables["avro"], strict=True):
        assert base64.b64decode(one["body_base64"]) == other["body"]
        assert json.loads(one["properties"]) == other["properties"]
        assert json.loads(one["keys"]) == other["keys"]
        assert one["message_id"] == other["message_id"]
        assert round(other["store_time"].timestamp() * 1000) == other["store_timestamp"]
        assert datetime.fromisoformat(one["store_time"]) == other["store_time"]


@pytest.mark.parametrize(
    ("safe", "lines"),
    [(True, ['"tags"', '"\'=1+1"', "\"''@x\"", '"plain"', ""]), (False, ['"tags"', '"=1+1"', '"\'@x"', '"plain"', ""])],
)
def test_a_cell_is_no_formula_where_that_is_asked(safe: bool, lines: list[str], tmp_path: Path) -> None:
    table = pa.table({"tags": ["=1+1", "'@x", "plain", None]})
    sink = open_sink(ExportFormat("csv", safe_csv=safe), tmp_path / "a.csv", table.schema)
    sink.write(table)
    sink.close()
    assert (tmp_path / "a.csv").read_text().splitlines() == lines
