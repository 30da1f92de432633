"""The rebuild job without Spark: the same source and writer functions, sorted by Arrow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from mqstore.pipeline.index_files import (
    ITEMS_PARTITIONED_BY,
    ITEMS_SORTED_BY,
    IndexFiles,
    first_items,
)
from mqstore.pipeline.plan import Plan
from mqstore.pipeline.queue_files import PARTITIONED_BY, SORTED_BY, QueueFiles
from mqstore.pipeline.rebuild_rows import (
    DAMAGE,
    ITEMS,
    TALLY,
    UNITS,
    item_rows,
    notes_of,
    split_key,
    unit_rows,
)
from mqstore.pipeline.rebuild_steps import finish_index, finish_queues
from mqstore.pipeline.stage import Stage
from mqstore.store.split import Split


def plain_job(seed: int = 0, splits: int = 5, tasks: int = 3) -> Callable[[Plan, Stage], None]:
    """A job that cuts each log at random places and deals the files out to some tasks."""

    def job(plan: Plan, stage: Stage) -> None:
        rng = random.Random(seed)
        parts = []
        for number, store in enumerate(plan.stores):
            cuts = [rng.randint(store.start, store.stop) for _ in range(splits)]
            bounds = pairwise(sorted({store.start, *cuts, store.stop}))
            parts += [(number, Split(start, stop)) for start, stop in bounds]
        batches = [batch for part in parts for batch in unit_rows(plan, *part)]
        table = pa.Table.from_batches(batches, UNITS)
        table = table.filter(table.column("topic").is_valid())
        files, others = [], []
        for task, rows in _dealt(table, PARTITIONED_BY, SORTED_BY, tasks, rng):
            queues = QueueFiles(stage.attempt(task), task, plan, stage.files)
            for batch in rows:
                queues.add(batch)
            queues.close()
            files += queues.written
            others += [(task, path) for path in queues.others]
        damage = [row for batch in batches for row in notes_of(batch, DAMAGE)]
        tallies = [row for batch in batches for row in notes_of(batch, TALLY)]
        finish_queues(stage, plan, files, others, damage, tallies)
        firsts = first_items(tallies)
        items = [
            batch
            for number, split in parts
            for batch in item_rows(plan, number, split, firsts[split_key(number, split.start)])
        ]
        written = []
        table = pa.Table.from_batches(items, ITEMS)
        for task, rows in _dealt(table, ITEMS_PARTITIONED_BY, ITEMS_SORTED_BY, tasks, rng):
            index = IndexFiles(stage.attempt(f"i{task}"), f"i{task}", plan, stage.files)
            for batch in rows:
                index.add(batch)
            index.close()
            written += index.written
        finish_index(stage, plan, written)

    return job


def _dealt(
    table: pa.Table, by: Sequence[str], order: Sequence[str], tasks: int, rng: random.Random
) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
    """Each task with its rows, sorted, in batches of some size."""
    columns = [table.column(name).to_pylist() for name in by]
    keys = [str(key) for key in zip(*columns, strict=True)]
    task_of = {key: rng.randrange(tasks) for key in sorted(set(keys))}
    for task in range(tasks):
        mine = table.filter(pa.array([task_of[key] == task for key in keys], pa.bool_()))
        mine = mine.sort_by([(name, "ascending") for name in order])
        yield str(task), mine.to_batches(max_chunksize=rng.randint(1, 100))
