"""Progress of Spark's jobs: a thread asks the status API; a Connect server tells by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Done:
    """Progress of a job.

    stages: number of finished stages, plus the finished share of those that run. tasks, of_tasks: finished and all
    tasks of the stages that run. records_per_s: rows that these stages have taken per second so far, 0 if nobody counts
    them. bytes: worked off; None if stages tell the progress.
    """

    stages: float
    tasks: int = 0
    of_tasks: int = 0
    records_per_s: float = 0.0
    bytes: int | None = None


Tell = Callable[[Done], None]
"""Called with the progress again and again."""
_POLL_S = 0.3


@contextmanager
def watched(spark: SparkSession, tell: Tell | None) -> Iterator[None]:
    """Tell of the stages of all jobs that run in the block."""
    if tell is None:
        yield
        return
    if not hasattr(spark, "_jsparkSession"):
        yield from _from_server(spark, tell)
        return
    ended = threading.Event()
    tracker, records = spark.sparkContext.statusTracker(), partial(records_of, spark)
    thread = threading.Thread(target=_poll, args=(tracker, records, ended, tell), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class JobProgress:
    """Tells of jobs whose tasks are known by their bytes, one job after the other. The bytes never decrease."""

    def __init__(self, tell: Tell | None) -> None:
        self._tell = tell
        self._before = self._reported = 0

    @contextmanager
    def of(self, spark: SparkSession, sizes: Sequence[int]) -> Iterator[None]:
        """Tell of one job. sizes: bytes of its tasks, in the order in which Spark starts them."""
        reached = [0, *accumulate(sizes)]

        def tell(done: Done) -> None:
            assert self._tell is not None
            now = self._before + reached[min(done.tasks, len(sizes))]
            self._reported = max(self._reported, now)  # a stage that is over has no active task
            self._tell(replace(done, bytes=self._reported))

        with watched(spark, self._tell and tell):
            yield
        self._before += reached[-1]
        if self._tell is not None:
            self._reported = self._before
            self._tell(Done(0, bytes=self._before))


def records_of(spark: SparkSession, stage: int) -> int:
    """Return the number of rows that the tasks of a stage have taken so far, from a source or the stage before.

    The status tracker does not know them; Spark's status store does.
    """
    context: Any = spark.sparkContext
    data = context._jsc.sc().statusStore().lastStageAttempt(stage)
    return int(max(data.inputRecords(), data.shuffleReadRecords()))


def _poll(tracker: Any, records: Callable[[int], int], ended: threading.Event, tell: Tell) -> None:
    """Tell the progress again and again. A stage that is no longer active counts as done."""
    shares: dict[int, float] = {}
    begun: dict[int, float] = {}
    while not ended.wait(_POLL_S):
        tasks, of_tasks, rate, now = 0, 0, 0.0, time.monotonic()
        try:
            active = set(tracker.getActiveStageIds())
            for number in active:
                stage = tracker.getStageInfo(number)
                if stage is not None and stage.numTasks:
                    shares[number] = stage.numCompletedTasks / stage.numTasks
                    tasks, of_tasks = tasks + stage.numCompletedTasks, of_tasks + stage.numTasks
                    seconds = now - begun.setdefault(number, now)
                    rate += records(number) / seconds if seconds else 0
        except Exception:  # noqa: BLE001 - of py4j: a JVM that has ended is told by the job that waits for it
            return
        shares.update((number, 1.0) for number in shares.keys() - active)
        tell(Done(sum(shares.values()), tasks, of_tasks, rate))


def _from_server(spark: SparkSession, tell: Tell) -> Iterator[None]:
    """Let a Connect server tell of stages and tasks; it does not tell of records."""
    finished: list[float] = []

    def hear(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        some = [s for s in stages or () if s.num_tasks]
        shares = [s.num_completed_tasks / s.num_tasks for s in some]
        tasks = sum(s.num_completed_tasks for s in some)
        tell(Done(sum(finished) + sum(shares), tasks, sum(s.num_tasks for s in some)))
        if done:
            finished.append(len(shares))

    handler: Any = hear
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)
