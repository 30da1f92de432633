"""What jobs of Spark cost as stores grow and as there are more of them.

``python -m tests.bench.spark_jobs WORK JOB``: one session; JOB is `scan`, `rebuild` or `verify`. A
line of JSON for each load: 1, 4 and 8 GiB of messages of 1 KB (`1g-1k`, `4g-1k`, this one twice),
then 1, 50 and 200 small stores. CPU seconds are user and system of everything: this process, the
JVM, all Python workers; starting the session and a first small job are not in them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mqstore.pipeline import register
from mqstore.pipeline.plan import plan_of
from mqstore.pipeline.rebuild import rebuild, spark_job
from mqstore.pipeline.spark import spark_session
from mqstore.pipeline.verify import can_be_cut, tasks_of, verify_on
from mqstore.store.arrow.remote import log_sizes
from mqstore.store.config import BrokerConfig
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
    cut = can_be_cut(sizes, {})
    tasks = tasks_of(roots, {}, time.time_ns() // 1_000_000, sizes=sizes, in_parts=cut)
    verify_on(spark, tasks)


JOBS: dict[str, Job] = {"scan": scan_job, "rebuild": rebuild_job, "verify": verify_job}


def cost(spark: SparkSession, job: Job, roots: list[str]) -> dict[str, Any]:
    """Of one run of a job; the peak is that of the largest worker that is there at its end."""
    me = os.getpid()
    cpu, start = cpu_s(me), time.perf_counter()
    job(spark, roots)
    found = {"wall_s": time.perf_counter() - start, "cpu_s": cpu_s(me) - cpu}
    jvm = jvm_below(me)
    peaks = worker_peaks(jvm) if jvm else {}
    return {**found, "worker_peak_bytes": max(peaks.values(), default=0)}


def main(work: Path, name: str) -> None:
    sizes = {"1 GiB": [work / "1g-1k"], "4 GiB": [work / "4g-1k"], "8 GiB": twice(work, "4g-1k")}
    fleet = fleet_of(work)
    counts = {f"{count} stores": fleet[:count] for count in (1, 50, 200)}
    with spark_session(f"local[{PROCESSES}]") as spark:
        register(spark)
        JOBS[name](spark, [str(fleet[0])])
        for load, roots in (sizes | counts).items():
            found = cost(spark, JOBS[name], [str(root) for root in roots])
            print(json.dumps({"job": name, "load": load, **found}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
