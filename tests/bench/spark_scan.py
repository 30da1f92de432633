"""The data source in Spark against the same rows in two plain Python processes, taking turns.

``python -m tests.bench.spark_scan WORK PART``: one session, one round, one line of JSON. PART is 1, 4
or 8 (GiB), `filters` or `fleets`. CPU seconds are user and
system of the JVM and of all Python workers; memory is the peak of the largest worker (VmHWM).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqstore.pipeline import register
from mqstore.pipeline.session import spark_session
from mqstore.pipeline.sources.ask import Ask
from mqstore.pipeline.sources.log import LogPartition, partitions_of, rows_of
from mqstore.pipeline.sources.pushed import Pushed
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
_TICKS_A_S = os.sysconf("SC_CLK_TCK")


def _part(job: tuple[Ask, LogPartition]) -> int:
    return sum(rows.num_rows for rows in rows_of(*job, Pushed()))


def plain(path: str, fields: str) -> int:
    """Rows of a log, made by two processes."""
    ask = Ask.of({"path": path, "fields": fields})
    jobs = [(replace(ask), part) for part in partitions_of(ask)]
    with get_context("fork").Pool(PROCESSES) as pool:
        return sum(pool.imap_unordered(_part, jobs, chunksize=1))


def _tree(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from _tree(int(child))


def _jvm() -> int:
    return next(pid for pid in _tree(os.getpid()) if _name(pid) == "java")


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _cpu_s(pid: int) -> float:
    """User and system time of a process tree, and of what has ended in it."""
    total = 0
    for one in _tree(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15]))
    return total / _TICKS_A_S


def _worker_peak_bytes() -> int:
    """The most that any Python worker has had."""
    peaks = [0]
    for pid in _tree(_jvm()):
        if _name(pid) != "java":
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            peaks += [int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")]
    return max(peaks)


def timed(action: Callable[[], object]) -> dict[str, float]:
    """Seconds by the clock, and CPU seconds of Spark."""
    cpu, start = _cpu_s(_jvm()), time.perf_counter()
    action()
    return {"wall_s": time.perf_counter() - start, "cpu_s": _cpu_s(_jvm()) - cpu}


def _scan(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _group(rows: DataFrame) -> None:
    rows.groupBy("topic", "queue_id").agg({"total_size": "sum"}).collect()


def _load(spark: SparkSession, path: str, fields: str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq-log").options(fields=fields, **options).load(path)


def of_store(spark: SparkSession, path: str, gib: int) -> dict[str, Any]:
    """One round over a store."""
    start = time.perf_counter()
    rows = plain(path, FIELDS)
    plain_s = time.perf_counter() - start
    start = time.perf_counter()
    plain(path, FEW)
    return {
        "gib": gib,
        "rows": rows,
        "plain_s": plain_s,
        "plain_few_s": time.perf_counter() - start,
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
    folder = work / "fleet"
    if not folder.exists():
        one = unpack("5.3.3-v2", folder / "one")
        for number in range(200):
            (folder / "all").mkdir(exist_ok=True)
            (folder / "all" / f"{number:03}").symlink_to(one)
    found = {}
    for pattern, count in (("000", 1), ("0[0-4]?", 50), ("*", 200)):
        path = str(folder / "all" / pattern)
        found[str(count)] = timed(lambda path=path: _scan(_load(spark, path, FIELDS)))  # type: ignore[misc]
    return found


def main(work: Path, part: str) -> None:
    settings = {"spark.sql.python.filterPushdown.enabled": "true"}
    stores = {"1": work / "1g-1k", "4": work / "4g-1k", "8": work / "8g-1k"}
    if not stores["8"].exists():
        stores["8"].mkdir()
        for name in ("a", "b"):
            (stores["8"] / name).symlink_to(stores["4"])
    paths = {gib: str(root) for gib, root in stores.items()} | {"8": str(stores["8"] / "*")}
    with spark_session(f"local[{PROCESSES}]", settings) as spark:
        register(spark)
        first = timed(lambda: _scan(_load(spark, paths["1"], FIELDS)))
        if part in paths:
            result = of_store(spark, paths[part], int(part))
        else:
            result = filters(spark, paths["4"]) if part == "filters" else fleets(spark, work)
        peak = _worker_peak_bytes()
    print(json.dumps(result | {"first": first, "worker_peak_bytes": peak}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
