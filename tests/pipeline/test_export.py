"""`pipeline export`: files by topic and day hold every message, whole or not at all."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow.parquet as pq
import pytest

from mqstore.cli.app import run
from mqstore.cli.pipeline_export import report_of
from mqstore.cli.record_types import schema_of
from mqstore.pipeline.export import export, spark_job
from mqstore.pipeline.export_source import ExportPartition, export_split
from mqstore.pipeline.stage import Stage
from mqstore.store.arrow.ask import Ask
from mqstore.store.arrow.export_files import folder_name
from mqstore.store.arrow.log_rows import parts_of
from mqstore.store.errors import Refused

from ..cli.json_schema import errors
from ..stores import unpack
from .test_log_rows import rows, walk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Notes = Sequence[tuple[str, Mapping[str, Any]]]
SPLIT_BYTES = "60000"


def plain_job(ask: Mapping[str, str], form: str, stage: Stage) -> Notes:
    """The job without Spark."""
    asked = Ask.of(ask)
    return [
        (str(number), note)
        for number, split in enumerate(parts_of(asked))
        for note in export_split(asked, ExportPartition(number, split), form, stage, str(number))
    ]


def exported(root: Path, target: Path, form: str, **options: str) -> dict[str, Any]:
    """Export without Spark: the command's answer, as its schema says."""
    ask = {"path": str(root), "body": "plain", "split_bytes": SPLIT_BYTES, **options}
    report = report_of(target, export(ask, form, target, plain_job))
    assert list(errors(schema_of("export"), report)) == []
    return report


@pytest.mark.parametrize("name", ["4.9.7-killed-page", "5.3.3-v2"])
def test_parquet_has_every_message(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    report = exported(root, tmp_path / "out", "parquet")
    ask = Ask.of({"path": str(root), "body": "plain"})
    wanted = rows(ask)
    found = []
    for file in report["files"]:
        table = pq.read_table(tmp_path / "out" / file["path"], partitioning=None)
        assert {str(day) for day in table.column("topic").unique().to_pylist()} == {file["topic"]}
        found += table.to_pylist()
    assert sorted(found, key=lambda row: row["position"]) == wanted
    assert report["rows"] == len(wanted)
    damaged = [extent.position for extent in walk(root)[1]]
    assert [one["position"] for one in report["damage"]] == damaged
    assert report["status"] == ("incomplete" if damaged else "complete")


def test_json_is_what_put_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Messages that are exported and put into a new store are the same messages."""
    root = unpack("4.9.7-multipath", tmp_path)
    report = exported(root, tmp_path / "out", "json")
    lines = [
        line
        for file in report["files"]
        for line in (tmp_path / "out" / file["path"]).read_bytes().splitlines(keepends=True)
    ]
    (tmp_path / "all.ndjson").write_bytes(b"".join(lines))
    assert run(["put", str(tmp_path / "new"), "--from", str(tmp_path / "all.ndjson"), "-q"]) == 0
    capsys.readouterr()
    fields = "topic,queue_id,properties,body,born_timestamp,flag"
    before, after = (
        sorted(rows(Ask.of({"path": str(store), "fields": f"{fields},position"})), key=str)
        for store in (root, tmp_path / "new")
    )
    for one, other in zip(before, after, strict=True):
        assert {f: one[f] for f in fields.split(",")} == {f: other[f] for f in fields.split(",")}


def test_csv_and_avro_say_the_same(tmp_path: Path) -> None:
    root = unpack("5.3.3-v2", tmp_path)
    tables: dict[str, list[dict[str, Any]]] = {"csv": [], "avro": []}
    for form, found in tables.items():
        report = exported(root, tmp_path / form, form)
        for file in report["files"]:
            path = tmp_path / form / file["path"]
            if form == "csv":
                with path.open(newline="") as text:
                    found += csv.DictReader(text)
            else:
                with path.open("rb") as data:
                    found += [dict(row) for row in fastavro.reader(data) if isinstance(row, dict)]
        found.sort(key=lambda row: int(row["position"]))
    assert len(tables["csv"]) == len(tables["avro"]) > 0
    for one, other in zip(tables["csv"], tables["avro"], strict=True):
        assert base64.b64decode(one["body_base64"]) == other["body"]
        assert json.loads(one["properties"]) == other["properties"]
        assert json.loads(one["keys"]) == other["keys"]
        assert one["message_id"] == other["message_id"]


def test_a_cell_is_no_formula(tmp_path: Path) -> None:
    import pyarrow as pa

    from mqstore.store.arrow.export_formats import open_sink

    column = pa.array(["=1+1", "'@x", "plain", None])
    sink = open_sink("csv", tmp_path / "a.csv", pa.schema([("tags", pa.string())]))
    sink.write(pa.RecordBatch.from_arrays([column], ["tags"]))
    sink.close()
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines == ['"tags"', '"\'=1+1"', "\"''@x\"", '"plain"', ""]


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "orders"),
        ("%RETRY%group", "%25RETRY%25group"),
        ("a/b=c", "a%2Fb%3Dc"),
        ("", "__HIVE_DEFAULT_PARTITION__"),
        ("订单", "订单"),
    ],
)
def test_topics_as_folders(topic: str, name: str) -> None:
    assert folder_name(topic) == name


def test_a_long_topic_is_a_short_folder() -> None:
    names = {folder_name("x" * 30_000), folder_name("x" * 30_001), folder_name("单" * 9_000)}
    assert len(names) == 3
    assert all(len(name.encode()) <= 200 for name in names)


def test_a_job_that_fails_leaves_nothing(tmp_path: Path) -> None:
    root = unpack("5.3.3-lmq", tmp_path)

    def job(ask: Mapping[str, str], form: str, stage: Stage) -> Notes:
        plain_job(ask, form, stage)
        raise RuntimeError("the last task fails")

    with pytest.raises(RuntimeError):
        export({"path": str(root)}, "json", tmp_path / "out", job)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(Refused, match="not empty"):
        export({"path": str(root)}, "json", tmp_path / "out", plain_job)


@pytest.mark.spark
def test_export_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The same files as without Spark, and what cannot be read is told."""
    roots = [unpack(name, tmp_path) for name in ("5.3.3-v2", "4.9.7-killed-page")]
    ask = {"path": "\n".join(map(str, roots)), "fields": "topic,position"}
    there = export(ask, "csv", tmp_path / "spark", partial(spark_job, spark))
    here = export(ask, "csv", tmp_path / "plain", plain_job)
    assert there == here
    assert there["damage"][-1]["store"] == str(roots[1])
    for file in here["files"]:
        one, other = (tmp_path / side / file["path"] for side in ("spark", "plain"))
        assert one.read_bytes() == other.read_bytes()
    assert not (tmp_path / "spark" / ".mqstore").exists()


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("pipeline", "export", str(tmp_path), "--to", str(tmp_path / "new"))
    for words, code in (
        (["--format", "xml"], 2),
        (["--body", "all"], 2),
        (["--since", "whenever"], 2),
        (["--rate", "1M"], 2),
        (["--conf", "x"], 2),
        ([str(tmp_path / "none*")], 5),
    ):
        assert run([*command, *words]) == code, words
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1, err
    assert not (tmp_path / "new").exists()


def test_no_store_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error, not an empty export."""
    assert run(["pipeline", "export", str(tmp_path / "none"), "--to", str(tmp_path / "new")]) == 5
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("mqstore: no such directory") and err.count("\n") == 1
    assert not (tmp_path / "new").exists()
