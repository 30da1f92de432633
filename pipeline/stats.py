"""`pipeline stats`: `store.stats` of many logs, a task a split, added up in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..store.arrow.remote import open_log
from ..store.commit_log import Batch
from ..store.config import BrokerConfig
from ..store.errors import StoreError
from ..store.mark import Mark
from ..store.split import Split, scan_split, splits
from ..store.stats import Stats
from ..store.time_range import TimeRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .tasks import Task

SPLIT_BYTES = 256 << 20


def tasks_of(
    roots: Sequence[str], config: BrokerConfig, by: Sequence[str], times: TimeRange
) -> tuple[list[Task], list[StoreError]]:
    """A task for each split of each log, and what of the stores cannot be read."""
    tasks: list[Task] = []
    unread: list[StoreError] = []
    for root in roots:
        try:
            log = open_log(root, config)
        except StoreError as error:
            unread.append(error)
            continue
        with log.queue:
            bounds = list(log.files)
        stop = bounds[-1].end if bounds else 0
        for split in splits(log.min_offset, stop, SPLIT_BYTES):
            tasks.append(
                {
                    "root": root,
                    "config": dict(config),
                    "by": list(by),
                    "split": list(split),
                    "times": [times.since_ms, times.until_ms],
                }
            )
    return tasks, unread


def count(task: Task) -> list[Any]:
    """One task, where it runs: `Stats.to_json`. Raises StoreError."""
    stats, times = Stats(task["by"]), TimeRange(*task["times"])
    log = open_log(task["root"], BrokerConfig(task["config"]))
    with log.queue:
        for item in scan_split(log, Split(*task["split"])):
            if isinstance(item, Batch) and item.mark <= Mark.AFTER_DAMAGE:
                time = item.columns.ints("store_timestamp")
                inside = (time >= times.since_ms) & (time < times.until_ms)
                stats.add(item if inside.all() else item.take(inside))
    return stats.to_json()


def stats_on(
    spark: SparkSession, tasks: Sequence[Task], by: Sequence[str]
) -> tuple[Stats, list[StoreError]]:
    """All tasks together; with the store first where `by` begins with it. Raises JobFailed."""
    from .tasks import run_tasks

    return joined(tasks, run_tasks(spark, "stats:count", tasks), by)


def joined(
    tasks: Sequence[Task], answers: Sequence[Any], by: Sequence[str]
) -> tuple[Stats, list[StoreError]]:
    """The answers added up. by: that of the tasks, or `store` and that of the tasks."""
    total = Stats(by)
    unread: list[StoreError] = []
    for task, answer in zip(tasks, answers, strict=True):
        if isinstance(answer, StoreError):
            unread.append(answer)
            continue
        part = Stats.from_json(task["by"], answer)
        if len(by) > len(part.by):
            part.groups = {(task["root"], *key): group for key, group in part.groups.items()}
        total.merge(part)
    return total, unread
