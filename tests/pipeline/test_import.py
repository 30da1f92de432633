"""`pipeline import`: what was exported becomes a store with the same messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from mqstore.pipeline.importing import files_of, fill, options_of
from mqstore.pipeline.publishing import publish_job
from mqstore.pipeline.stage import Stage
from mqstore.store.errors import InvalidInput, Unreadable
from mqstore.store.store import Store
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Status

from ..stores import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = {"mappedFileSizeCommitLog": "262144", "maxHashSlotNum": "1000", "maxIndexNum": "4000"}
FIELDS = "topic,queue_id,position,store_timestamp,born_timestamp,properties,body"


def test_there_and_back(spark: SparkSession, tmp_path: Path) -> None:
    root, new = unpack("5.3.3-v2", tmp_path), tmp_path / "new"
    read = spark.read.format("rocketmq-log").option("fields", FIELDS).option("body", "stored")
    exported = read.load(str(root)).toArrow()
    pq.write_table(exported, tmp_path / "a.parquet")
    options = options_of(SIZES, "5.3", keep_times=True)

    def job(stage: Stage) -> None:
        count = fill(spark, [str(tmp_path / "a.parquet")], stage, options)
        stage.seal({"messages": count})

    assert publish_job(new, job, lambda _: False) == {"messages": exported.num_rows}
    assert not (new / ".mqstore").exists()
    names = ["topic", "body", "store_timestamp"]
    found = read.load(str(new)).orderBy("position").toArrow().select(names)
    assert found == exported.sort_by("position").select(names)
    with Store(new) as store:
        assert verify(store).status is Status.CLEAN


def test_files_and_directories_of_them(tmp_path: Path) -> None:
    (tmp_path / "topic=a").mkdir()
    for name in ("topic=a/x.parquet", "y.parquet", "z.csv"):
        (tmp_path / name).write_bytes(b"PAR1 PAR1")
    assert files_of([tmp_path]) == [tmp_path / "topic=a/x.parquet", tmp_path / "y.parquet"]
    assert files_of([tmp_path / "y.parquet"]) == [tmp_path / "y.parquet"]
    (tmp_path / "of_spark/z.parquet").mkdir(parents=True)
    (part := tmp_path / "of_spark/z.parquet/part-0.snappy.parquet").write_bytes(b"PAR1 PAR1")
    assert files_of([tmp_path / "of_spark"]) == files_of([part.parent]) == [part]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="no Parquet file there"):
        files_of([tmp_path / "empty"])


@pytest.mark.parametrize("content", [b"", b"PAR", b"PAR1 cut", b"no PAR1"])
def test_no_parquet_file(content: bytes, tmp_path: Path) -> None:
    """Told before Spark starts, with its name."""
    (tmp_path / "good.parquet").write_bytes(b"PAR1 PAR1")
    (tmp_path / "bad.parquet").write_bytes(content)
    with pytest.raises(Unreadable, match=r"not a Parquet file, or not all of one: .*/bad\.parquet"):
        files_of([tmp_path])


def test_a_generation_that_there_is_not() -> None:
    with pytest.raises(InvalidInput):
        options_of({}, "x.y", keep_times=True)
