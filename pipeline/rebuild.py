"""`pipeline rebuild`: queues and index of many stores from their commit logs, in tasks of Spark.

A store with a small log is one task, which reads the log and makes all files. A larger log is read in parts, a task
each. What a part adds is kept in the stage, sorted by file of a queue. In a second round, when the number of index
items before each part is known, each task makes some queue files, or one index file.

What does not need Spark comes first: the target, and finishing what a killed job left there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..store.disk.files import Files
from ..store.log.commit_log import splits
from ..store.output.stage import Stage, publish_job
from .index_files import slices_of
from .plan import JobPlan
from .rebuild_steps import RebuiltFiles, complete
from .rebuild_tasks import part_folder
from .spark import spark_session
from .tasks import Task, run_tasks, whole
from .watch import JobProgress, Tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Job = Callable[[JobPlan, Stage], RebuiltFiles]
"""Makes queues and index of a plan in a stage: `work` with some `run`."""
Run = Callable[[str, Sequence[Task], Sequence[int]], list[Any]]
"""Runs `read` or `make` of `rebuild_tasks` for tasks; returns each answer, or the error raised. The last argument:
bytes that each task works off."""

PART_BYTES = 64 << 20
"""A task reads this much at once, some 600,000 of the smallest messages; a log of at most this size is one task."""
PARTS_MAX = 1 << 11
"""A log that would have more parts gets larger ones: each task of the second round looks at all."""
BUCKETS_MAX = 1 << 10
"""Limit of tasks that make the queues of one store."""
_BEHIND = 4
"""For progress, the second round counts as this fraction (1 / _BEHIND) of the log's bytes."""


def rebuild(plan: JobPlan, target: Path, job: Job, files: Files | None = None) -> dict[str, Any]:
    """Run a job whose output becomes `target`, a new or empty directory; return the manifest.

    A job for the same plan that was interrupted while it published is finished instead. If the job fails, the target is
    as it was. Raises Refused, InUse, NotAStore, NoSpace, Unreadable, and whatever the job raises.
    """

    def fill(stage: Stage) -> None:
        complete(stage, plan, job(plan, stage))

    same = json.loads(json.dumps(asdict(plan)))
    like = next((Path(store.root) for store in plan.stores), None)
    return publish_job(target, fill, lambda found: found.get("plan") == same, files, like=like)


def on_spark(master: str, settings: Mapping[str, str], tell: Tell | None = None) -> Job:
    """Return the job in a Spark session of its own. Raises SparkUnavailable, JobFailed."""

    def job(plan: JobPlan, stage: Stage) -> RebuiltFiles:
        with spark_session(master, settings, in_python=True) as spark:
            return spark_job(spark, plan, stage, tell)

    return job


def spark_job(spark: SparkSession, plan: JobPlan, stage: Stage, tell: Tell | None = None) -> RebuiltFiles:
    """Run the job on Spark. Raises the error that a task met, else JobFailed."""
    return work(plan, stage, partial(run_tasks, spark, progress=JobProgress(tell)))


def work(plan: JobPlan, stage: Stage, run: Run) -> RebuiltFiles:
    """Read all logs, then make what is left to make. Raises the errors among the answers."""
    made = RebuiltFiles()
    tasks = [task for number in range(len(plan.stores)) for task in _reading(plan, number, stage)]
    sizes = [_bytes_of(task) for task in tasks]
    items: dict[int, list[int]] = {}
    for task, answer in _answers(run, "read", tasks, sizes):
        number = task["number"]
        made.add(number, answer)
        if not task["whole"]:
            counts = items.setdefault(number, [])
            for part, found in enumerate(answer["found"]):
                kept = part_folder(stage, number, len(counts))
                stage.files.make_directory(kept.parent)
                stage.files.rename(stage.attempt(answer["attempt"]) / f"part-{part}", kept)
                counts.append(found["items"])
    tasks = [task for number in items for task in _making(plan, number, stage, items[number])]
    per_task: dict[int, int] = {}
    for number in items:
        count = sum(task["number"] == number for task in tasks)
        per_task[number] = plan.stores[number].bytes // _BEHIND // count
    for task, answer in _answers(run, "make", tasks, [per_task[t["number"]] for t in tasks]):
        made.add(task["number"], answer)
    return made


def _reading(plan: JobPlan, number: int, stage: Stage) -> Iterator[Task]:
    """Yield the tasks that read the log of a store, in the order of the log."""
    store = plan.stores[number]
    size = max(PART_BYTES, -(-store.bytes // PARTS_MAX))
    cuts = [list(split) for split in splits(store.start, store.stop, size)]
    whole = len(cuts) < 2 or store.bytes <= PART_BYTES
    for some in filter(None, [cuts] if whole or store.needs_one_process else [[cut] for cut in cuts]):
        yield {**_task(plan, number, stage), "splits": some, "whole": whole}


def _making(plan: JobPlan, number: int, stage: Stage, items: Sequence[int]) -> Iterator[Task]:
    """Yield the tasks that make queues and index of a store. items: how many each part of its log has."""
    store = plan.stores[number]
    task = {**_task(plan, number, stage), "parts": len(items)}
    if sum(items):
        for file, slices in enumerate(slices_of(items, store.index_items - 1)):
            yield {**task, "file": file, "slices": slices}
    buckets = min(BUCKETS_MAX, -(-len(items) // 4))
    for bucket in range(buckets):
        yield {**task, "bucket": bucket, "buckets": buckets}


def _task(plan: JobPlan, number: int, stage: Stage) -> Task:
    store = plan.stores[number]
    return {"root": store.root, "store": asdict(store), "number": number, "stage": str(stage.folder)}


def _bytes_of(task: Task) -> int:
    """Return what a reading task works off, in bytes of the log."""
    size: int = sum(stop - start for start, stop in task["splits"])
    return size if task["whole"] else size - size // _BEHIND


def _answers(run: Run, name: str, tasks: Sequence[Task], sizes: Sequence[int]) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Yield each task with its answer. Raises the first error."""
    if not tasks:
        return
    yield from zip(tasks, whole(run(f"rebuild_tasks:{name}", tasks, sizes)), strict=True)
