"""`export`: files hold every message, whole or not at all, and others read them as they are meant."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqstore.cli.app import run
from mqstore.pipeline.export import export, on_spark, tasks_of
from mqstore.store.arrow import export_files
from mqstore.store.arrow.export_files import ExportHow
from mqstore.store.arrow.export_formats import ExportFormat
from mqstore.store.arrow.log_rows import parts_of
from mqstore.store.arrow.stores import ReadOptions
from mqstore.store.disk.files import Files
from mqstore.store.errors import InvalidInput, Refused
from mqstore.store.output.stage import Stage

from ..cli.small_store import small_store
from ..store.arrow.exports import HERE, exported
from ..store.arrow.rows import rows, walk
from ..stores import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    wanted = rows(ReadOptions.of({"path": str(root), "body": "plain"}))
    (file,) = report["files"]
    read = pq.ParquetFile(tmp_path / "out" / file["path"])
    assert read.read().to_pylist() == wanted
    assert {read.metadata.row_group(0).column(n).compression for n in range(5)} == {"ZSTD"}
    assert report["rows"] == len(wanted)
    damaged = [extent.position for extent in walk(root)[1]]
    assert [one["position"] for one in report["damage"]] == damaged
    assert report["status"] == ("incomplete" if damaged else "complete")


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_directory_is_what_put_reads(form: str, tmp_path: Path) -> None:
    """With folders a day and times besides."""
    root = unpack("4.9.7-multipath", tmp_path)
    report = exported(root, tmp_path / "out", form, times=True, by_day=True)
    words = ["put", str(tmp_path / "new"), "--from", str(tmp_path / "out"), "--no-answers", "-q"]
    assert run([*words, "--keep-times"]) == 0
    fields = "topic,queue_id,properties,body,born_timestamp,store_timestamp,flag"
    before, after = (
        sorted(rows(ReadOptions.of({"path": str(store), "fields": fields})), key=str)
        for store in (root, tmp_path / "new")
    )
    assert len(before) == report["rows"] and before == after


@pytest.mark.parametrize(
    "kind", [ExportFormat("csv", "zstd"), ExportFormat("arrow", "gzip"), ExportFormat("json", safe_csv=True)]
)
def test_what_does_not_fit_together_is_refused(kind: ExportFormat, tmp_path: Path) -> None:
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
    (task,) = tasks_of(asked, ExportHow(), stage, parts_of(ReadOptions.of(asked)))
    assert len(task["parts"]) == len(names)
    small = {**asked, "split_bytes": "100000"}
    parts = [part for t in tasks_of(asked, ExportHow(), stage, parts_of(ReadOptions.of(small))) for part in t["parts"]]
    assert len(parts) > len(names)
