"""`pipeline rebuild`: queues and index of many stores from their commit logs, in tasks of Spark.

A store whose log is small is one task, which reads it and makes its files. A larger log is read in
parts, a task each. What a part adds is kept in the stage, sorted by file of a queue; in a second
round of tasks each makes some files of queues of it, or one of the index: by then it is known how
many items there are before each.

What does not need Spark stands first: the target, and taking over what a killed job left there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..store.disk.files import Files
from ..store.errors import StoreError
from ..store.log.commit_log import splits
from ..store.output.stage import Stage, publish_job
from .index_files import slices_of
from .plan import JobPlan, StorePlan
from .rebuild_steps import RebuiltFiles, complete
from .rebuild_tasks import part_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .tasks import Task
    from .watch import Tell

Job = Callable[[JobPlan, Stage], RebuiltFiles]
"""Makes queues and index of a plan in a stage: `work` with some `run`."""
Run = Callable[[str, Sequence["Task"], Sequence[int]], list[Any]]
"""What `read` and `make` of `rebuild_tasks` answer about tasks, an error instead where one was
raised. Beside each task the bytes that it works off."""

PART_BYTES = 64 << 20
"""What a task reads at once, some 600,000 of the smallest messages. A log that has no more is one task."""
PARTS_MAX = 1 << 11
"""A log that would have more has larger ones: each task behind them looks at all."""
BUCKETS_MAX = 1 << 10
"""Tasks that make the queues of one store."""
_BEHIND = 4
"""What is done behind the parts of a log counts as one of so many parts of its bytes."""


def rebuild(plan: JobPlan, target: Path, job: Job, files: Files | None = None) -> dict[str, Any]:
    """Run a job whose output becomes `target`, a new or empty directory: its manifest.

    A job for the same plan that was cut off while it published is finished instead. If the job
    fails, the target is as it was. Raises Refused, InUse, NotAStore, NoSpace, Unreadable, and
    whatever the job raises.
    """

    def fill(stage: Stage) -> None:
        complete(stage, plan, job(plan, stage))

    same = json.loads(json.dumps(asdict(plan)))
    return publish_job(target, fill, lambda found: found.get("plan") == same, files)


def on_spark(master: str, settings: Mapping[str, str], tell: Tell | None = None) -> Job:
    """The job in a Spark session of its own. Raises SparkUnavailable, JobFailed."""

    def job(plan: JobPlan, stage: Stage) -> RebuiltFiles:
        from .spark import spark_session

        with spark_session(master, settings, in_python=True) as spark:
            return spark_job(spark, plan, stage, tell)

    return job


def spark_job(spark: SparkSession, plan: JobPlan, stage: Stage, tell: Tell | None = None) -> RebuiltFiles:
    """The job as Spark runs it. Raises the error that a task met, else JobFailed."""
    from .tasks import run_tasks
    from .watch import JobProgress

    return work(plan, stage, partial(run_tasks, spark, progress=JobProgress(tell)))


def work(plan: JobPlan, stage: Stage, run: Run) -> RebuiltFiles:
    """Read all logs, then make what is left to make. Raises what `run` answers."""
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
    per_store = {number: _share(plan.stores[number]) for number in items}
    for number in items:
        per_store[number] //= sum(task["number"] == number for task in tasks)
    for task, answer in _answers(run, "make", tasks, [per_store[t["number"]] for t in tasks]):
        made.add(task["number"], answer)
    return made


def _reading(plan: JobPlan, number: int, stage: Stage) -> Iterator[Task]:
    """The tasks that read the log of a store, in the order of the log."""
    store = plan.stores[number]
    size = max(PART_BYTES, -(-store.bytes // PARTS_MAX))
    cuts = [list(split) for split in splits(store.start, store.stop, size)]
    whole = len(cuts) < 2 or store.bytes <= PART_BYTES
    one_by_one = not whole and not store.follows_on
    for some in [[cut] for cut in cuts] if one_by_one else [cuts] if cuts else []:
        yield {**_task(plan, number, stage), "splits": some, "whole": whole}


def _making(plan: JobPlan, number: int, stage: Stage, items: Sequence[int]) -> Iterator[Task]:
    """The tasks that make queues and index of a store. items: how many each part of its log has."""
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
    """What a task that reads works off, in bytes of the log."""
    size: int = sum(stop - start for start, stop in task["splits"])
    return size if task["whole"] else size - size // _BEHIND


def _share(store: StorePlan) -> int:
    """What is left to do behind the parts of a log, in bytes of the log."""
    return store.bytes // _BEHIND


def _answers(run: Run, name: str, tasks: Sequence[Task], sizes: Sequence[int]) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Each task with its answer. Raises the first error."""
    if not tasks:
        return
    for task, answer in zip(tasks, run(f"rebuild_tasks:{name}", tasks, sizes), strict=True):
        if isinstance(answer, StoreError):
            raise answer
        yield task, answer
