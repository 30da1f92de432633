"""`pipeline rebuild`: queues and index of many stores from their commit logs, on Spark.

    log → units (`rebuild_source`) → one partition per group of files, sorted → files (`rebuild_sinks`)
    log → items, numbered by what the first pass has counted → the same

Where an index item goes depends on how many there are before it, so the log is read twice.

What does not need Spark stands first: the target, and taking over what a killed job left there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..store import errors
from ..store.errors import NotAStore, Refused, StoreError
from ..store.layout import JOURNAL
from ..store.write.files import Files
from ..store.write.lock import StoreLock
from .plan import Plan, split_bytes_for
from .rebuild_steps import QUEUES, complete, finish_index
from .session import spark_session, telling_line
from .stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

Job = Callable[[Plan, Stage], None]
"""Leaves queues and index of a plan in a stage: `finish_queues`, `finish_index`."""


class JobFailed(StoreError):
    """Spark gave up on a job."""


def rebuild(plan: Plan, target: Path, job: Job, files: Files | None = None) -> dict[str, Any]:
    """Run a job whose output becomes `target`, a new or empty directory: its manifest.

    A job for the same plan that was cut off while it published is finished instead. If the job
    fails, the target is as it was. Raises Refused, InUse, NotAStore, NoSpace, Unreadable, and
    whatever the job raises.
    """
    files = files or Files()
    target = target.absolute()  # Spark's processes may have another current directory
    with _workspace(target, files):
        stage = _take_over(plan, target, files)
        if stage is None:
            stage = Stage.begin(target, files)
            try:
                job(plan, stage)
                complete(stage, plan)
                stage.publish()
            except BaseException:
                if not stage.sealed:
                    stage.remove()
                raise
        manifest = stage.manifest()
        stage.remove()
        return manifest


@contextmanager
def _workspace(target: Path, files: Files) -> Iterator[None]:
    """The target with a lock in it, for one job at a time; what stays empty goes again."""
    existed = target.exists()
    if existed and not target.is_dir():
        raise NotAStore("not a directory", path=target, hint="--to takes a new directory")
    if existed and not Stage.left_in(target, files):
        _require_empty(target)
    journal = target / JOURNAL
    files.make_directory(journal)
    lock = journal / "rebuild.lock"
    with StoreLock.take(lock, files):
        try:
            yield
        finally:
            files.unlink(lock)
            for folder in (journal, *(() if existed else (target,))):
                if not any(folder.iterdir()):
                    files.remove_directory(folder)


def _take_over(plan: Plan, target: Path, files: Files) -> Stage | None:
    """Finish a sealed job of this plan, remove what others left. Raises Refused."""
    finished = None
    for stage in Stage.left_in(target, files):
        if not stage.sealed:
            stage.remove()
        elif Plan.of(stage.manifest()["plan"]) == plan:
            stage.publish()
            finished = stage
        else:
            raise Refused(
                "another rebuild was cut off here while it published",
                path=stage.folder,
                hint="run that one again, or remove the folder",
            )
    if finished is None:
        _require_empty(target)
    return finished


def _require_empty(target: Path) -> None:
    held = sorted(path.name for path in target.iterdir() if path.name != JOURNAL)
    if held:
        raise Refused(
            f"the target is not empty ({held[0]} is in it)",
            path=target,
            hint="--to takes a new directory",
        )


def on_spark(master: str, settings: Mapping[str, str]) -> Job:
    """The job in a Spark session of its own. Raises SparkUnavailable, and as `spark_job`."""

    def job(plan: Plan, stage: Stage) -> None:
        with spark_session(master, settings) as spark:
            spark_job(spark, plan, stage)

    return job


def spark_job(
    spark: SparkSession, plan: Plan, stage: Stage, sink: type[DataSource] | None = None
) -> None:
    """The job as Spark runs it; `sink` instead of `QueueSink`.

    Raises the error of `store.errors` that a worker met, else JobFailed.
    """
    from . import index_files, queue_files, rebuild_sinks, rebuild_source

    sink = sink or rebuild_sinks.QueueSink
    total_bytes = sum(store.stop - store.start for store in plan.stores)
    split_bytes = str(split_bytes_for(total_bytes, os.cpu_count() or 1))
    options = {"plan": plan.to_json(), "stage": str(stage.folder), "splitBytes": split_bytes}
    for source in (rebuild_source.LogUnits, rebuild_source.LogItems, sink, rebuild_sinks.IndexSink):
        spark.dataSource.register(source)
    with _failures():
        units = spark.read.format(rebuild_source.LogUnits.name()).options(**options).load()
        _write(units, queue_files.PARTITIONED_BY, queue_files.SORTED_BY, sink, options)
        firsts = index_files.first_items(stage.left(QUEUES)["tallies"])
        if not any(tally["items"] for tally in stage.left(QUEUES)["tallies"]):
            finish_index(stage, plan, [])
            return
        options["firsts"] = json.dumps(firsts)
        items = spark.read.format(rebuild_source.LogItems.name()).options(**options).load()
        by, order = index_files.ITEMS_PARTITIONED_BY, index_files.ITEMS_SORTED_BY
        _write(items, by, order, rebuild_sinks.IndexSink, options)


def _write(
    rows: DataFrame,
    by: Sequence[str],
    order: Sequence[str],
    sink: type[DataSource],
    options: Mapping[str, str],
) -> None:
    """Sort rows into files: all of one file in one task."""
    name, sorted_rows = sink.name(), rows.repartition(*by).sortWithinPartitions(*order)
    sorted_rows.write.format(name).mode("append").options(**options).save()


@contextmanager
def _failures() -> Iterator[None]:
    """Turn what Spark says of a failed job into the error that a worker met, in one line."""
    try:
        yield
    except Exception as error:  # Spark has its own kind for every layer a failure passes
        raise failure_of(str(error)) from error


def failure_of(text: str) -> StoreError:
    """The error of `store.errors` named in a worker's traceback, else the exception."""
    found = re.findall(r"^\s*mqstore\.[\w.]+\.(\w+): (.*)$", text, re.MULTILINE)
    kinds = [(getattr(errors, name, None), message) for name, message in found]
    for kind, message in kinds:
        if isinstance(kind, type) and issubclass(kind, StoreError):
            return kind(message)
    return JobFailed(f"the Spark job failed: {telling_line(text)}")
