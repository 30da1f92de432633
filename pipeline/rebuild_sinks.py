"""The PySpark data sources that sorted rows of `rebuild` are written to: files in the job's stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..store.write.files import Files
from .index_files import IndexFiles, IndexPart
from .plan import Plan
from .queue_files import QueueFile, QueueFiles
from .rebuild_rows import DAMAGE, TALLY, notes_of
from .rebuild_steps import finish_index, finish_queues
from .stage import Stage


class QueueSink(DataSource):
    """Options: `stage`, a folder of `Stage.begin`; `plan`, the job's plan as JSON."""

    @classmethod
    def name(cls) -> str:
        return "mqstore-rebuild-queues"

    def writer(self, schema: StructType, overwrite: bool) -> QueueWriter:
        return QueueWriter(Path(self.options["stage"]), Plan.from_json(self.options["plan"]))


class IndexSink(DataSource):
    """Options: as `QueueSink`."""

    @classmethod
    def name(cls) -> str:
        return "mqstore-rebuild-index"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return IndexSinkWriter(Path(self.options["stage"]), Plan.from_json(self.options["plan"]))


@dataclass
class Written(WriterCommitMessage):
    """What one task has done. others: files that `files` does not name. notes: of the log."""

    attempt: str
    files: list[QueueFile]
    others: list[str]
    damage: list[dict[str, Any]]
    tallies: list[dict[str, Any]]


@dataclass
class WrittenIndex(WriterCommitMessage):
    """What one task has done."""

    parts: list[IndexPart]


class QueueWriter(DataSourceArrowWriter):
    """Writes partitions of rows sorted by `queue_files.SORTED_BY`."""

    def __init__(self, stage: Path, plan: Plan) -> None:
        self._stage = stage
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One attempt at one task: its files, in a folder of its own."""
        attempt, stage = attempt_id("q"), Stage(self._stage, Files())
        queues = QueueFiles(stage.attempt(attempt), attempt, self._plan, stage.files)
        damage: list[dict[str, Any]] = []
        tallies: list[dict[str, Any]] = []
        for rows in iterator:
            damage += notes_of(rows, DAMAGE)
            tallies += notes_of(rows, TALLY)
            queues.add(rows.filter(rows.column("topic").is_valid()))
        queues.close()
        return Written(attempt, queues.written, queues.others, damage, tallies)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Every task has succeeded: what they wrote counts."""
        written = [message for message in messages if isinstance(message, Written)]
        finish_queues(
            Stage(self._stage, Files()),
            self._plan,
            [file for message in written for file in message.files],
            [(message.attempt, path) for message in written for path in message.others],
            [row for message in written for row in message.damage],
            [row for message in written for row in message.tallies],
        )


class IndexSinkWriter(DataSourceArrowWriter):
    """Writes partitions of rows sorted by `index_files.ITEMS_SORTED_BY`."""

    def __init__(self, stage: Path, plan: Plan) -> None:
        self._stage = stage
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenIndex:
        """One attempt at one task: its files, in a folder of its own."""
        attempt, stage = attempt_id("i"), Stage(self._stage, Files())
        index = IndexFiles(stage.attempt(attempt), attempt, self._plan, stage.files)
        for rows in iterator:
            index.add(rows)
        index.close()
        return WrittenIndex(index.written)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Every task has succeeded: what they wrote counts."""
        written = [message for message in messages if isinstance(message, WrittenIndex)]
        parts = [part for message in written for part in message.parts]
        finish_index(Stage(self._stage, Files()), self._plan, parts)


def attempt_id(step: str) -> str:
    """Names this attempt at this task of a step of a job."""
    context = TaskContext.get()
    assert context is not None
    return f"{step}{context.taskAttemptId()}"
