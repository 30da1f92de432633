"""The rebuild job without Spark: the same tasks, run in this process in any order."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from mqstore.pipeline import rebuild
from mqstore.pipeline.plan import JobPlan
from mqstore.pipeline.rebuild_steps import RebuiltFiles
from mqstore.pipeline.tasks import Task, answer_of, named, told
from mqstore.store.output.stage import Stage


def plain_job(seed: int = 0, parts: int = 5) -> Callable[[JobPlan, Stage], RebuiltFiles]:
    """A job that cuts the longest log into about so many parts; 1: each log is one task."""

    def run(function: str, tasks: Sequence[Task], sizes: Sequence[int]) -> list[Any]:
        assert len(sizes) == len(tasks)
        answers: dict[int, Any] = {}
        for number in random.Random(seed).sample(range(len(tasks)), len(tasks)):
            task = json.loads(json.dumps(tasks[number]))
            answers[number] = told(json.loads(json.dumps(answer_of(named(function), task))))
        return [answers[number] for number in range(len(tasks))]

    def job(plan: JobPlan, stage: Stage) -> RebuiltFiles:
        longest = max((store.bytes for store in plan.stores), default=0)
        size = longest // parts + random.Random(seed).randint(1, 1000) if parts > 1 else longest
        with patch.object(rebuild, "PART_BYTES", size):
            return rebuild.work(plan, stage, run)

    return job
