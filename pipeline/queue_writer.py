"""The PySpark data source that sorted units are written to, and how such a job ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..store.write.files import Files
from .log_source import DAMAGE, damage_of
from .plan import Plan
from .queue_files import QueueFile, QueueFiles, fill_up
from .stage import Stage


class QueueSink(DataSource):
    """Options: `stage`, a folder of `Stage.begin`; `plan`, the job's plan as JSON."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-queue"

    def writer(self, schema: StructType, overwrite: bool) -> QueueWriter:
        return QueueWriter(Path(self.options["stage"]), Plan.from_json(self.options["plan"]))


@dataclass
class Written(WriterCommitMessage):
    """What one task has done. damage: rows of the source's `damage` column."""

    files: list[QueueFile]
    damage: list[dict[str, Any]]


class QueueWriter(DataSourceArrowWriter):
    """Writes partitions of rows sorted by `queue_files.SORTED_BY`."""

    def __init__(self, stage: Path, plan: Plan) -> None:
        self._stage = stage
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One attempt at one task: its files, in a folder of its own."""
        context = TaskContext.get()
        assert context is not None
        attempt = str(context.taskAttemptId())
        stage, files = Stage(self._stage, Files()), Files()
        queues = QueueFiles(stage.attempt(attempt), attempt, self._plan, files)
        damage: list[dict[str, Any]] = []
        for rows in iterator:
            damage += damage_of(rows)
            queues.add(rows.filter(rows.column(DAMAGE).is_null()))
        queues.close()
        return Written(queues.written, damage)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Every task has succeeded: publish what they wrote."""
        written = [message for message in messages if isinstance(message, Written)]
        stage = Stage(self._stage, Files())
        files = [file for message in written for file in message.files]
        damage = [row for message in written for row in message.damage]
        finish(stage, self._plan, files, damage)


def finish(
    stage: Stage, plan: Plan, files: Iterable[QueueFile], damage: Sequence[dict[str, Any]]
) -> None:
    """Complete the files of a job, decide that it has succeeded, and publish them.

    A queue goes on behind a file that lacks its last units: they get the pre-fill too, since a
    broker takes an empty unit for the end of the queue.
    """
    files = sorted(files, key=attrgetter("queue", "start"))
    for before, after in pairwise(files):
        if before.queue == after.queue and before.end < after.first:
            after.missing += after.first - before.end
            file_bytes = plan.stores[before.store].file_bytes
            fill_up(stage.files, stage.attempt(before.attempt), before, file_bytes)
    stage.collect((file.attempt, file.path) for file in files)
    queues = [summary(list(group)) for _, group in groupby(files, attrgetter("queue"))]
    damage = sorted(damage, key=itemgetter("store", "position"))
    stage.seal({"plan": asdict(plan), "queues": queues, "damage": damage})
    stage.publish()


def summary(files: Sequence[QueueFile]) -> dict[str, Any]:
    """What the manifest says of a queue, by its files in order."""
    return {
        "store": files[0].store,
        "topic": files[0].topic,
        "queue_id": files[0].queue_id,
        "min_offset": files[0].first,
        "max_offset": files[-1].end,
        "files": len(files),
        "units": sum(file.units for file in files),
        "missing": sum(file.missing for file in files),
        "duplicates": sum(file.duplicates for file in files),
    }
