"""How far Spark's jobs are: stages that are over count as one, of others the share of their tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from mqstore.pipeline import watch
from mqstore.pipeline.watch import Done, JobProgress

from ..stores import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Tracker:
    """A status tracker: what is active at each question, stage by stage: (done, all) tasks."""

    def __init__(self, *answers: dict[int, tuple[int, int]]) -> None:
        self.answers = list(answers)
        self.now: dict[int, tuple[int, int]] = {}

    def getActiveStageIds(self) -> list[int]:
        self.now = self.answers.pop(0)
        return list(self.now)

    def getStageInfo(self, number: int) -> SimpleNamespace:
        done, tasks = self.now[number]
        return SimpleNamespace(numTasks=tasks, numCompletedTasks=done)


def test_stages_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_POLL_S", 0)
    monkeypatch.setattr(time, "monotonic", count(step=2).__next__)
    tracker = Tracker({}, {0: (1, 4)}, {0: (3, 4)}, {1: (0, 0), 2: (1, 2)}, {2: (2, 2)}, {})
    told: list[Done] = []
    ended = threading.Event()

    def tell(done: Done) -> None:
        told.append(done)
        if not tracker.answers:
            ended.set()

    watch._poll(tracker, lambda number: 100 * (number + 1), ended, tell)
    assert [done.stages for done in told] == [0, 0.25, 0.75, 1.5, 2, 2]
    assert [(done.tasks, done.of_tasks) for done in told[1:5]] == [(1, 4), (3, 4), (1, 2), (2, 2)]
    assert [round(done.records_per_s) for done in told] == [0, 0, 50, 0, 150, 0]


def test_no_word_of_a_jvm_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job that waits for it tells."""
    monkeypatch.setattr(watch, "_POLL_S", 0)
    told: list[Done] = []
    watch._poll(Tracker({0: (1, 4)}), lambda number: 1, threading.Event(), told.append)
    assert [done.stages for done in told] == [0.25]


def test_records_are_those_that_a_stage_took(spark: SparkSession, tmp_path: Path) -> None:
    """Of a source, and of the shuffle behind it."""
    root = unpack("5.3.3-v2", tmp_path)
    bus = spark.sparkContext._jsc.sc().listenerBus()
    rows = spark.read.format("rocketmq-log").option("fields", "topic,position").load(str(root))
    spark.sparkContext.setJobGroup("records", "")
    read = rows.repartition(2).collect()
    bus.waitUntilEmpty()
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup("records")]
    stages = [stage for job in jobs if job for stage in job.stageIds if tracker.getStageInfo(stage)]
    assert {watch.records_of(spark, stage) for stage in stages} - {0} == {len(read)}


def test_bytes_never_become_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the last task of a stage none is active for a moment."""
    seen: list[int | None] = []

    @contextmanager
    def watched(_: object, tell: watch.Tell) -> Iterator[None]:
        for tasks in (0, 1, 3, 0):
            tell(Done(0, tasks))
        yield

    monkeypatch.setattr(watch, "watched", watched)
    progress = JobProgress(lambda done: seen.append(done.bytes))
    for _ in range(2):
        with progress.of(cast("SparkSession", None), [10, 20, 30]):
            pass
    assert seen == [0, 10, 60, 60, 60, 60, 70, 120, 120, 120]
