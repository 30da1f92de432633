"""`pipeline stats`: the counts of many logs, a task for each part of a log, added up in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any

from ..store.arrow.log_columns import STORE
from ..store.arrow.log_rows import Bounds, Counted, LogSplit, count_part, parts_of
from ..store.arrow.stores import ReadOptions
from ..store.errors import StoreError
from ..store.inspect.stats import Stats
from ..store.search.selection import TimeRange
from .tasks import Task, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLIT_BYTES = 256 << 20


def tasks_of(ask: ReadOptions, by: Sequence[str], bounds: Bounds = lambda store, found: None) -> list[Task]:
    """Return a task for each part of each log. bounds: as for `parts_of`. Raises StoreError for a store that cannot be
    read.
    """
    inside = [name for name in by if name != STORE]
    return [
        {
            "root": part.store,
            "config": dict(ask.config),
            "by": inside,
            "part": astuple(part),
            "times": [ask.times.since_ms, ask.times.until_ms],
            "on_damage": ask.on_damage,
        }
        for part in parts_of(replace(ask, split_bytes=SPLIT_BYTES), bounds=bounds)
    ]


def count(task: Task) -> list[Any]:
    """Run one task, on a worker: return `Counted.to_json`. Raises StoreError."""
    ask = ReadOptions(
        (task["root"],), times=TimeRange(*task["times"]), on_damage=task["on_damage"], config=task["config"]
    )
    return count_part(ask, LogSplit.of(task["part"]), task["by"]).to_json()


def count_on(spark: SparkSession, tasks: Sequence[Task], by: Sequence[str]) -> tuple[Counted, dict[str, StoreError]]:
    """Count all tasks together, and return the errors by store. Raises JobFailed."""
    return joined(tasks, run_tasks(spark, "stats:count", tasks), by)


def joined(tasks: Sequence[Task], answers: Sequence[Any], by: Sequence[str]) -> tuple[Counted, dict[str, StoreError]]:
    """Add up the answers; stores that could not be read are left out and returned. Raises LimitExceeded."""
    total = Counted(Stats(by))
    unread = {
        task["root"]: answer for task, answer in zip(tasks, answers, strict=True) if isinstance(answer, StoreError)
    }
    for task, answer in zip(tasks, answers, strict=True):
        if task["root"] not in unread:
            total.add(Counted.from_json(task["root"], task["by"], answer), task["root"])
    return total, unread
