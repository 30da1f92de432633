"""How far Spark's jobs are: a thread asks the status API, a Connect server tells by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[float], None]
"""Hears how many stages are done; of one that runs, the share of its tasks."""
_POLL_S = 0.3


@contextmanager
def watched(spark: SparkSession, tell: Tell | None) -> Iterator[None]:
    """Tell of the stages of all jobs that run meanwhile."""
    if tell is None:
        yield
        return
    if not hasattr(spark, "_jsparkSession"):
        yield from _told_by_server(spark, tell)
        return
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()
    thread = threading.Thread(target=_ask, args=(tracker, ended, tell), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _ask(tracker: Any, ended: threading.Event, tell: Tell) -> None:
    """Ask again and again. A stage that is over is told of no more: it was done."""
    shares: dict[int, float] = {}
    while not ended.wait(_POLL_S):
        active = set(tracker.getActiveStageIds())
        for number in active:
            stage = tracker.getStageInfo(number)
            if stage is not None and stage.numTasks:
                shares[number] = stage.numCompletedTasks / stage.numTasks
        shares.update((number, 1.0) for number in shares.keys() - active)
        tell(sum(shares.values()))


def _told_by_server(spark: SparkSession, tell: Tell) -> Iterator[None]:
    finished: list[float] = []

    def hear(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        shares = [s.num_completed_tasks / s.num_tasks for s in stages or () if s.num_tasks]
        tell(sum(finished) + sum(shares))
        if done:
            finished.append(len(shares))

    handler: Any = hear
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)
