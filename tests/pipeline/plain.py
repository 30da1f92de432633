"""The rebuild job without Spark: the same source and writer functions, sorted by Arrow."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pyarrow as pa

from mqstore.pipeline.log_source import SCHEMA, damage_of, rows_of
from mqstore.pipeline.plan import Plan
from mqstore.pipeline.queue_files import PARTITIONED_BY, SORTED_BY, QueueFiles
from mqstore.pipeline.queue_writer import finish
from mqstore.pipeline.stage import Stage
from mqstore.store.split import Split


def plain_job(seed: int = 0, splits: int = 5, tasks: int = 3) -> Callable[[Plan, Stage], None]:
    """A job that cuts each log at random places and deals the files out to some tasks."""

    def job(plan: Plan, stage: Stage) -> None:
        rng = random.Random(seed)
        batches = []
        for number, store in enumerate(plan.stores):
            cuts = [rng.randint(store.start, store.stop) for _ in range(splits)]
            for start, stop in pairwise(sorted([store.start, *cuts, store.stop])):
                batches += list(rows_of(plan, number, Split(start, stop)))
        table = pa.Table.from_batches(batches, SCHEMA)
        damage = [row for batch in batches for row in damage_of(batch)]
        table = table.filter(table.column("topic").is_valid())
        columns = [table.column(name).to_pylist() for name in PARTITIONED_BY]
        keys = [str(key) for key in zip(*columns, strict=True)]
        task_of = {key: rng.randrange(tasks) for key in sorted(set(keys))}
        written = []
        for task in range(tasks):
            mine = table.filter(pa.array([task_of[key] == task for key in keys], pa.bool_()))
            mine = mine.sort_by([(name, "ascending") for name in SORTED_BY])
            queues = QueueFiles(stage.attempt(str(task)), str(task), plan, stage.files)
            for batch in mine.to_batches(max_chunksize=rng.randint(1, 100)):
                queues.add(batch)
            queues.close()
            written += queues.written
        finish(stage, plan, written, damage)

    return job
