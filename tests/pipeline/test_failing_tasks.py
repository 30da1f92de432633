"""Tasks that fail, once or always, on a real Spark: the job is done in the end, or nothing is seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqstore.pipeline import register, tasks
from mqstore.pipeline.export import export, on_spark
from mqstore.pipeline.failures import JobFailed, failures
from mqstore.pipeline.sources.log import LogSource
from mqstore.pipeline.sources.log_writer import LogSourceWriter
from mqstore.store.arrow.export_files import ExportHow
from mqstore.store.arrow.export_formats import ExportFormat

from ..stores import unpack
from .trees import tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = {"mappedFileSizeCommitLog": "262144", "maxHashSlotNum": "1000", "maxIndexNum": "4000"}
FIELDS = "topic,queue_id,position,store_timestamp,born_timestamp,properties,body"
TIMED = ("index/", "config/", "checkpoint")
"""What has the time of writing in its name or content."""
WHY = "this attempt fails when all is written"
Job = Callable[["SparkSession", Path, Path], None]


def run_export(spark: SparkSession, root: Path, new: Path) -> None:
    options = {"body": "plain", "split_bytes": "100000"}
    how = ExportHow(ExportFormat("json"))
    export([str(root)], options, how, new, on_spark(lambda: nullcontext(spark)))


def run_write(spark: SparkSession, root: Path, new: Path) -> None:
    rows = spark.read.format("rocketmq-log").options(fields=FIELDS, body="stored").load(str(root))
    options = {"broker_config": json.dumps(SIZES), "as_broker": "5.3", "keep_times": "true"}
    with failures():
        write = rows.repartition(3, "position").sortWithinPartitions("position").write
        write.format("rocketmq-log").options(**options).mode("append").save(str(new))


def failing(attempts: int, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempts at each task of an export, and of the writer of a store, are in vain."""

    def give_up() -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() < attempts:
            raise RuntimeError(WHY)

    class Reader(tasks.TaskReader):
        def read(self, share: int) -> Iterator[Any]:
            found = list(super().read(share))
            give_up()
            return iter(found)

    class Writer(LogSourceWriter):
        def write(self, iterator: Any) -> Any:
            spooled = super().write(iterator)
            give_up()
            return spooled

    class Log(LogSource):
        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Writer(self.options, schema.names, overwrite)

    monkeypatch.setattr(tasks, "TaskReader", Reader)
    spark.dataSource.register(Log)


def visible(new: Path) -> dict[str, str]:
    """The files by path, those of an index by number: these are called by the time of writing."""
    found = {path: seen for path, seen in tree(new).items() if not path.startswith(TIMED)}
    index = tree(new / "index").values()
    return found | {f"index {number}": seen for number, seen in enumerate(index)}


@pytest.mark.slow
@pytest.mark.parametrize("job", [run_export, run_write])
def test_a_task_that_fails(job: Job, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = unpack("5.3.3-compaction", tmp_path)
    register(spark)
    job(spark, root, tmp_path / "wanted")
    try:
        with monkeypatch.context() as patched:
            failing(1, spark, patched)
            job(spark, root, tmp_path / "new")
        with monkeypatch.context() as patched:
            failing(99, spark, patched)
            with pytest.raises(JobFailed, match=WHY):
                job(spark, root, tmp_path / "none")
    finally:
        register(spark)
    assert visible(tmp_path / "new") == visible(tmp_path / "wanted")
    assert not (tmp_path / "new" / ".mqstore").exists()
    assert not (tmp_path / "none").exists()
