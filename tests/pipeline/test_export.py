"""`export`: files hold every message, whole or not at all, and others read them as they are meant."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import fastavro
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqstore.cli.app import run
from mqstore.cli.export_options import report_of
from mqstore.cli.record_types import schema_of
from mqstore.pipeline.export import export, here, on_spark, tasks_of
from mqstore.store.arrow import export_files
from mqstore.store.arrow.export_files import ExportHow
from mqstore.store.arrow.export_formats import FileKind, open_sink
from mqstore.store.arrow.log_rows import parts_of
from mqstore.store.arrow.stores import Ask
from mqstore.store.disk.files import Files
from mqstore.store.errors import InvalidInput, Refused
from mqstore.store.output.stage import Stage

from ..cli.json_schema import errors
from ..cli.small_store import small_store
from ..store.arrow.test_log_rows import rows, walk
from ..stores import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = here(lambda size: None)


def exported(root: Path, target: Path, form: str = "parquet", **more: Any) -> dict[str, Any]:
    """Export in this process: the command's answer, as its schema says."""
    options = {"body": "plain", "split_bytes": "60000"}
    how = ExportHow(FileKind(form), **more)
    report = report_of(target, export([str(root)], options, how, target, HERE))
    assert list(errors(schema_of("export"), report)) == []
    return report


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of a topic that looks like a number, and one that looks like a day."""
    folder = tmp_path_factory.mktemp("numbered")
    days = [1_700_000_000_000 + day * export_files.DAY_MS for day in range(3)]
    topics = ("00123", "2026-01-01", "orders")
    given = [
        {"topic": topic, "body": "{}", "tags": "=1+1", "store_timestamp": time}
        for time, topic in zip(days, topics, strict=True)
    ]
    store = small_store(folder / "store", *given)
    words = ["export", str(store), "--to", str(folder / "out"), "--timestamps", "--by-day", "-q"]
    assert run([*words, "--output", str(folder / "answer")]) == 0
    return folder / "out"


TOPICS = ["00123", "2026-01-01", "orders"]
TIME = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def test_pandas_reads_it(numbered: Path) -> None:
    found = pd.read_parquet(numbered).sort_values("position")
    assert found["topic"].tolist() == TOPICS
    assert found["store_time"].iloc[0] == pd.Timestamp(TIME)


def test_pyarrow_reads_it(numbered: Path) -> None:
    found = pq.read_table(numbered).sort_by("position")
    assert found.column("topic").to_pylist() == TOPICS
    assert found.schema.field("store_time").type == pa.timestamp("ms", "UTC")
    assert found.column("store_time")[0].as_py() == TIME


def test_polars_reads_it(numbered: Path) -> None:
    found = pl.read_parquet(numbered, hive_partitioning=True).sort("position")
    assert found["topic"].to_list() == TOPICS
    assert found["store_time"][0] == TIME


def test_duckdb_reads_it(numbered: Path) -> None:
    query = f"SELECT topic, epoch_ms(store_time) FROM '{numbered}/**/*.parquet' ORDER BY position"
    found = duckdb.connect().execute(query).fetchall()
    assert [topic for topic, _ in found] == TOPICS
    assert found[0][1] == TIME.timestamp() * 1000


@pytest.mark.spark
def test_spark_reads_it(spark: SparkSession, numbered: Path) -> None:
    found = spark.read.parquet(str(numbered)).orderBy("position")
    assert [row["topic"] for row in found.collect()] == TOPICS
    some = found.where("date = date'2023-11-14'").selectExpr("unix_millis(store_time) AS ms")
    assert some.collect()[0]["ms"] == TIME.timestamp() * 1000


def test_a_folder_a_day(numbered: Path) -> None:
    days = sorted(path.name for path in numbered.iterdir())
    assert days == [f"date=2023-11-{day}" for day in (14, 15, 16)]


@pytest.mark.parametrize("name", ["4.9.7-killed-page", "5.3.3-v2"])
def test_parquet_has_every_message(name: str, tmp_path: Path) -> None:
    """All splits of a log in one file, which says what it is compressed with."""
    root = unpack(name, tmp_path)
    report = exported(root, tmp_path / "out")
    wanted = rows(Ask.of({"path": str(root), "body": "plain"}))
    (file,) = report["files"]
    read = pq.ParquetFile(tmp_path / "out" / file["path"])
    assert read.read().to_pylist() == wanted
    assert {read.metadata.row_group(0).column(n).compression for n in range(5)} == {"ZSTD"}
    assert report["rows"] == len(wanted)
    damaged = [extent.position for extent in walk(root)[1]]
    assert [one["position"] for one in report["damage"]] == damaged
    assert report["status"] == ("incomplete" if damaged else "complete")


def test_files_have_the_size_that_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_files, "_KEPT_BYTES_MAX", 50_000)
    root = unpack("4.9.7-clean", tmp_path)
    whole = exported(root, tmp_path / "one", "json")
    report = exported(root, tmp_path / "more", "json", file_bytes=100_000)
    assert len(whole["files"]) == 1 and len(report["files"]) > 2
    sizes = [file["bytes"] for file in report["files"]]
    assert all(100_000 <= size < 300_000 for size in sizes[:-1]), sizes
    assert report["rows"] == whole["rows"]


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


@pytest.mark.parametrize("form", ["parquet", "json", "csv", "avro"])
def test_times_that_no_calendar_has(form: str, tmp_path: Path) -> None:
    """Are milliseconds and no times."""
    times = [-(2**62), -1, 2**62]
    given = pa.record_batch({"born_timestamp": pa.array(times, pa.int64())})
    schema = export_files.schema_of(Ask((), ("born_timestamp",)), ExportHow(times=True))
    shown = export_files._with_times(given, schema)
    assert shown.column("born_timestamp").to_pylist() == times
    assert [time is None for time in shown.column("born_time").to_pylist()] == [True, False, True]
    sink = open_sink(FileKind(form), tmp_path / "out", schema)
    sink.write(pa.Table.from_batches([shown]))
    sink.close()


def test_json_is_what_put_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Messages that are exported and put into a new store are the same messages."""
    root = unpack("4.9.7-multipath", tmp_path)
    (file,) = exported(root, tmp_path / "out", "json", times=True)["files"]
    words = ["put", str(tmp_path / "new"), "-q", "--from", str(tmp_path / "out" / file["path"])]
    assert run([*words, "--from-format", "ndjson"]) == 0
    capsys.readouterr()
    fields = "topic,queue_id,properties,body,born_timestamp,flag"
    before, after = (
        sorted(rows(Ask.of({"path": str(store), "fields": f"{fields},position"})), key=str)
        for store in (root, tmp_path / "new")
    )
    for one, other in zip(before, after, strict=True):
        assert {f: one[f] for f in fields.split(",")} == {f: other[f] for f in fields.split(",")}


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_directory_is_what_put_reads(form: str, tmp_path: Path) -> None:
    """With folders a day and times besides."""
    root = unpack("4.9.7-multipath", tmp_path)
    report = exported(root, tmp_path / "out", form, times=True, by_day=True)
    words = ["put", str(tmp_path / "new"), "--from", str(tmp_path / "out"), "--no-answers", "-q"]
    assert run([*words, "--keep-times"]) == 0
    fields = "topic,queue_id,properties,body,born_timestamp,store_timestamp,flag"
    before, after = (
        sorted(rows(Ask.of({"path": str(store), "fields": fields})), key=str) for store in (root, tmp_path / "new")
    )
    assert len(before) == report["rows"] and before == after


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
    [
        (True, ['"tags"', '"\'=1+1"', "\"''@x\"", '"plain"', ""]),
        (False, ['"tags"', '"=1+1"', '"\'@x"', '"plain"', ""]),
    ],
)
def test_a_cell_is_no_formula_where_that_is_asked(safe: bool, lines: list[str], tmp_path: Path) -> None:
    table = pa.table({"tags": ["=1+1", "'@x", "plain", None]})
    sink = open_sink(FileKind("csv", safe_csv=safe), tmp_path / "a.csv", table.schema)
    sink.write(table)
    sink.close()
    assert (tmp_path / "a.csv").read_text().splitlines() == lines


@pytest.mark.parametrize("kind", [FileKind("csv", "zstd"), FileKind("arrow", "gzip"), FileKind("json", safe_csv=True)])
def test_what_does_not_fit_together_is_refused(kind: FileKind, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        export([str(tmp_path)], {}, ExportHow(kind), tmp_path / "out", HERE)
    assert not (tmp_path / "out").exists()


def test_a_job_that_fails_leaves_nothing(tmp_path: Path) -> None:
    root = unpack("5.3.3-lmq", tmp_path)

    def job(*given: Any) -> Sequence[Any]:
        HERE(*given)
        raise RuntimeError("the last task fails")

    with pytest.raises(RuntimeError):
        export([str(root)], {}, ExportHow(), tmp_path / "out", job)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(Refused, match="not empty"):
        export([str(root)], {}, ExportHow(), tmp_path / "out", HERE)


@pytest.mark.spark
def test_export_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The same messages as without Spark, and what cannot be read is told."""
    roots = [str(unpack(name, tmp_path)) for name in ("5.3.3-v2", "4.9.7-killed-page")]
    options = {"split_bytes": "300000"}
    how = ExportHow(by_day=True)
    there = export(roots, options, how, tmp_path / "spark", on_spark(lambda: nullcontext(spark)))
    alone = export(roots, options, how, tmp_path / "plain", HERE)
    assert there["damage"] == alone["damage"] and alone["damage"]
    one, other = (
        pq.read_table(tmp_path / side).sort_by([("store", "ascending"), ("position", "ascending")])
        for side in ("spark", "plain")
    )
    assert one.to_pylist() == other.to_pylist()
    assert not (tmp_path / "spark" / ".mqstore").exists()


def test_small_stores_share_a_task(tmp_path: Path) -> None:
    names = ("5.3.3-v2", "5.3.3-lmq", "4.9.7-killed-page")
    for name in names:
        unpack(name, tmp_path / "fleet")
    asked = {"path": str(tmp_path / "fleet" / "*")}
    stage = Stage(tmp_path / "stage", Files())
    (task,) = tasks_of(asked, ExportHow(), stage, parts_of(Ask.of(asked)))
    assert len(task["parts"]) == len(names)
    small = {**asked, "split_bytes": "100000"}
    parts = [part for t in tasks_of(asked, ExportHow(), stage, parts_of(Ask.of(small))) for part in t["parts"]]
    assert len(parts) > len(names)
