"""`pipeline rebuild`: queues and index of many stores from their commit logs, on Spark.

    log → units (`rebuild_source`) → one partition per group of files, sorted → files (`rebuild_sinks`)
    log → items, numbered by what the first pass has counted → the same

Where an index item goes depends on how many there are before it, so the log is read twice.

What does not need Spark stands first: the target, and taking over what a killed job left there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..store.split import split_bytes_for
from ..store.write.files import Files
from .failures import failures
from .plan import Plan
from .publishing import publish_job
from .rebuild_steps import QUEUES, complete, finish_index
from .session import spark_session
from .stage import Stage
from .watch import Tell, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

Job = Callable[[Plan, Stage], None]
"""Leaves queues and index of a plan in a stage: `finish_queues`, `finish_index`."""


def rebuild(plan: Plan, target: Path, job: Job, files: Files | None = None) -> dict[str, Any]:
    """Run a job whose output becomes `target`, a new or empty directory: its manifest.

    A job for the same plan that was cut off while it published is finished instead. If the job
    fails, the target is as it was. Raises Refused, InUse, NotAStore, NoSpace, Unreadable, and
    whatever the job raises.
    """

    def fill(stage: Stage) -> None:
        job(plan, stage)
        complete(stage, plan)

    return publish_job(target, fill, lambda found: Plan.of(found["plan"]) == plan, files)


STAGES = 4
"""Stages of Spark in a job: read and write, of queues and of the index."""


def on_spark(master: str, settings: Mapping[str, str], tell: Tell | None = None) -> Job:
    """The job in a Spark session of its own. Raises SparkUnavailable, and as `spark_job`."""

    def job(plan: Plan, stage: Stage) -> None:
        with spark_session(master, settings) as spark, watched(spark, tell):
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
    with failures():
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
