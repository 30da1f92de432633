"""The data source in Spark against the same rows in two plain Python processes, taking turns.

``python -m tests.bench.spark_scan WORK PART``: one session, one round, one line of JSON. PART is 1, 4
or 8 (GiB), `filters` or `fleets`. CPU seconds are user and
system of the JVM and of all Python workers; memory is the peak of the largest worker (VmHWM).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqstore.pipeline import register
from mqstore.pipeline.spark import spark_session
from mqstore.store.arrow.log_rows import LogSplit, parts_of, rows_of
from mqstore.store.arrow.stores import ReadOptions
from tests.spark_processes import cpu_s, jvm_below, own_cpu_s, worker_peaks
from tests.stores import unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROCESSES = 2
GIB = 1 << 30
FIELDS = (
    "position,total_size,body_crc,queue_id,flag,queue_offset,physical_offset,sys_flag,"
    "born_timestamp,store_timestamp,reconsume_times,prepared_transaction_offset,topic"
)
FEW = "topic,queue_id,total_size"


def _part(job: tuple[ReadOptions, LogSplit]) -> int:
    return sum(rows.num_rows for rows in rows_of(*job, lambda damage: None))


def plain(path: str, fields: str) -> int:
    """Rows of a log, made by two processes."""
    ask = ReadOptions.of({"path": path, "fields": fields})
    jobs = [(replace(ask), part) for part in parts_of(ask)]
    with get_context("fork").Pool(PROCESSES) as pool:
        return sum(pool.imap_unordered(_part, jobs, chunksize=1))


def _jvm() -> int:
    found = jvm_below(os.getpid())
    assert found is not None, "no session is there"
    return found


def timed(action: Callable[[], object]) -> dict[str, float]:
    """Seconds by the clock, and CPU seconds of Spark: all of it, and of the JVM alone."""
    jvm = _jvm()
    own, cpu, start = own_cpu_s(jvm), cpu_s(jvm), time.perf_counter()
    action()
    wall_s = time.perf_counter() - start
    return {"wall_s": wall_s, "cpu_s": cpu_s(jvm) - cpu, "jvm_cpu_s": own_cpu_s(jvm) - own}


def timed_plain(action: Callable[[], object]) -> dict[str, float]:
    """The same of this process and of those that it starts and waits for."""
    cpu, start = sum(os.times()[:4]), time.perf_counter()
    action()
    return {"wall_s": time.perf_counter() - start, "cpu_s": sum(os.times()[:4]) - cpu}


def _scan(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _group(rows: DataFrame) -> None:
    rows.groupBy("topic", "queue_id").agg({"total_size": "sum"}).collect()


def _load(spark: SparkSession, path: str, fields: str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq-log").options(fields=fields, **options).load(path)


def of_store(spark: SparkSession, path: str, gib: int) -> dict[str, Any]:
    """One round over a store."""
    return {
        "gib": gib,
        "plain": timed_plain(lambda: plain(path, FIELDS)),
        "no_row": timed(lambda: _scan(_load(spark, path, FIELDS, topics="no-such-topic"))),
        "scan": timed(lambda: _scan(_load(spark, path, FIELDS))),
        "group": timed(lambda: _group(_load(spark, path, FIELDS))),
        "group_few": timed(lambda: _group(_load(spark, path, FEW))),
    }


def filters(spark: SparkSession, path: str) -> dict[str, Any]:
    """One topic of many: left to Spark, handed down, as an option."""
    whole = _load(spark, path, FIELDS)
    first = whole.select("topic").first()
    assert first is not None
    topic = first["topic"]
    pushed = _load(spark, path, FIELDS, pushdown="true")
    return {
        "left": timed(lambda: _scan(whole.filter(whole.topic == topic))),
        "pushed": timed(lambda: _scan(pushed.filter(pushed.topic == topic))),
        "option": timed(lambda: _scan(_load(spark, path, FIELDS, topics=topic))),
    }


def fleets(spark: SparkSession, work: Path) -> dict[str, Any]:
    """The same small store 1, 50 and 200 times."""
    found = {}
    folder = fleet_of(work)[0].parent
    for pattern, count in (("000", 1), ("0[0-4]?", 50), ("*", 200)):
        path = str(folder / pattern)
        found[str(count)] = timed(lambda path=path: _scan(_load(spark, path, FIELDS)))  # type: ignore[misc]
    return found


def fleet_of(work: Path) -> list[Path]:
    """200 small stores of the same files."""
    folder = work / "fleet"
    if not folder.exists():
        one = unpack("5.3.3-v2", folder / "one")
        for number in range(200):
            _same_files(one, folder / "all" / f"{number:03}")
    return sorted((folder / "all").iterdir())


def twice(work: Path, name: str) -> list[Path]:
    """Two stores of the same files, in a directory of their own."""
    folder = work / "8g-1k"
    if not folder.exists():
        for copy in ("a", "b"):
            _same_files(work / name, folder / copy)
    return sorted(folder.iterdir())


def _same_files(store: Path, copy: Path) -> None:
    """Another store of hard links to the files: a store with two names would be read once."""
    shutil.copytree(store, copy, copy_function=os.link)


def main(work: Path, part: str) -> None:
    settings = {"spark.sql.python.filterPushdown.enabled": "true"}
    both = twice(work, "4g-1k")[0].parent / "*"
    paths = {"1": str(work / "1g-1k"), "4": str(work / "4g-1k"), "8": str(both)}
    with spark_session(f"local[{PROCESSES}]", settings) as spark:
        register(spark)
        first = timed(lambda: _scan(_load(spark, paths["1"], FIELDS)))
        if part in paths:
            result = of_store(spark, paths[part], int(part))
        else:
            result = filters(spark, paths["4"]) if part == "filters" else fleets(spark, work)
        peak = max(worker_peaks(_jvm()).values(), default=0)
    print(json.dumps(result | {"first": first, "worker_peak_bytes": peak}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
