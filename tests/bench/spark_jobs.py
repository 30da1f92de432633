"""What jobs of Spark cost as stores grow and as there are more of them.

``python -m tests.bench.spark_jobs WORK JOB``: one session; JOB is `scan`, `rebuild`, `verify`, `export` or `stats`. A
line of JSON for each load: 1, 4 and 8 GiB of messages of 1 KB (`1g-1k`, `4g-1k`, this one twice), then 1, 50 and 200
small stores. ``… WORK JOB CUT ROUNDS``: one store of 64 MiB, 256 MiB, 1 and 4 GiB; CUT is `whole`, one task of local
code, or `parts`, a task a part and more behind them. Of ROUNDS runs the least counts. CPU seconds are user and system
of everything: this process, the JVM, all Python workers; starting the session and a first small job are not in them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from mqstore.pipeline import register
from mqstore.pipeline.export import export, on_spark
from mqstore.pipeline.plan import plan_of
from mqstore.pipeline.rebuild import rebuild, spark_job
from mqstore.pipeline.spark import spark_session
from mqstore.pipeline.stats import count_on
from mqstore.pipeline.stats import tasks_of as stats_tasks
from mqstore.pipeline.tasks import cores_of
from mqstore.pipeline.verify import can_be_cut, tasks_of, verify_on
from mqstore.store.arrow.export_files import ExportHow
from mqstore.store.arrow.export_formats import ExportFormat
from mqstore.store.arrow.stores import ReadOptions, log_sizes
from mqstore.store.disk.broker_conf import BrokerConfig
from tests.spark_processes import cpu_s, jvm_below, worker_peaks

from .spark_scan import FIELDS, PROCESSES, fleet_of, twice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Job = Callable[["SparkSession", list[str]], object]


def scan_job(spark: SparkSession, roots: list[str]) -> None:
    """All rows of 13 columns."""
    rows = spark.read.format("rocketmq-log").option("fields", FIELDS).load(roots)
    rows.write.format("noop").mode("overwrite").save()


def rebuild_job(spark: SparkSession, roots: list[str]) -> None:
    """Queues and index of all stores."""
    plan = plan_of([Path(root) for root in roots], BrokerConfig())
    with TemporaryDirectory() as folder:
        rebuild(plan, Path(folder, "new"), lambda plan, stage: spark_job(spark, plan, stage))


def verify_job(spark: SparkSession, roots: list[str]) -> None:
    """Everything in all stores."""
    sizes, _ = log_sizes(roots, BrokerConfig())
    cut = can_be_cut(sizes, {}, cores_of(spark))
    tasks = tasks_of(roots, {}, time.time_ns() // 1_000_000, sizes=sizes, in_parts=cut)
    verify_on(spark, tasks)


def export_job(spark: SparkSession, roots: list[str]) -> None:
    """All columns but bodies, as Parquet."""
    with TemporaryDirectory() as folder:
        job = on_spark(lambda: nullcontext(spark))
        export(roots, {}, ExportHow(ExportFormat()), Path(folder, "new"), job)


def stats_job(spark: SparkSession, roots: list[str]) -> None:
    """Bytes and messages by topic."""
    count_on(spark, stats_tasks(ReadOptions(tuple(roots)), ["topic"]), ["topic"])


DEALT_OUT = ("rebuild", "verify")
"""Jobs that deal a store out in several ways."""
CUTS = ("whole", "parts")
"""Those ways."""
SIZES = {"64m-1k": 64, "256m-1k": 256, "1g-1k": 1 << 10, "4g-1k": 4 << 10}
"""Stores that are dealt out, and the MiB of their logs."""
_NEVER = 1 << 62


def dealt(job: str, cut: str, size: int) -> AbstractContextManager[object]:
    """A block in which a job deals a log of `size` bytes out that way, whatever it would do."""
    module = import_module(f"mqstore.pipeline.{job}")
    part = min(module.PART_BYTES, size // PROCESSES) if cut == "parts" else _NEVER
    if job == "rebuild":
        return patch.multiple(module, PART_BYTES=part)
    return patch.multiple(module, PART_BYTES=part, SHARES=0)


JOBS: dict[str, Job] = {
    "scan": scan_job,
    "rebuild": rebuild_job,
    "verify": verify_job,
    "export": export_job,
    "stats": stats_job,
}


def cost(spark: SparkSession, job: Job, roots: list[str]) -> dict[str, Any]:
    """Of one run of a job; the peak is that of the largest worker that is there at its end."""
    me = os.getpid()
    cpu, start = cpu_s(me), time.perf_counter()
    job(spark, roots)
    found = {"wall_s": time.perf_counter() - start, "cpu_s": cpu_s(me) - cpu}
    jvm = jvm_below(me)
    peaks = worker_peaks(jvm) if jvm else {}
    return {**found, "worker_peak_bytes": max(peaks.values(), default=0)}


def loads(spark: SparkSession, job: str, work: Path) -> None:
    """As loads grow."""
    fleet = fleet_of(work)
    sizes = {"1 GiB": [work / "1g-1k"], "4 GiB": [work / "4g-1k"], "8 GiB": twice(work, "4g-1k")}
    counts = {f"{count} stores": fleet[:count] for count in (1, 50, 200)}
    for load, roots in (sizes | counts).items():
        found = cost(spark, JOBS[job], [str(root) for root in roots])
        print(json.dumps({"job": job, "load": load, **found}), flush=True)


def cuts(spark: SparkSession, job: str, work: Path, cut: str, rounds: int) -> None:
    """One store after the other of those that are there, dealt out one way."""
    for name, mib in SIZES.items():
        if (work / name).exists():
            with dealt(job, cut, mib << 20):
                runs = [cost(spark, JOBS[job], [str(work / name)]) for _ in range(rounds)]
            found = {key: min(run[key] for run in runs) for key in runs[0]}
            print(json.dumps({"job": job, "cut": cut, "mib": mib, **found}), flush=True)


def main(work: Path, job: str, cut: str = "", rounds: str = "1") -> None:
    with spark_session(f"local[{PROCESSES}]", in_python=job != "scan") as spark:
        register(spark)
        JOBS[job](spark, [str(fleet_of(work)[0])])
        if cut:
            cuts(spark, job, work, cut, int(rounds))
        else:
            loads(spark, job, work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
