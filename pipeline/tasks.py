"""Work that is a task per store: one Python data source runs any of it, an answer a task.

What a task is given and what it answers are JSON. A store that cannot be read is an answer, too: it
ends nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..store import errors
from ..store.errors import StoreError
from .failures import failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = dict[str, Any]
_SCHEMA = pa.schema({"task": pa.int32(), "answer": pa.string()})


class TaskSource(DataSource):
    """Options: `function`, `MODULE:NAME` in this package; `tasks`, JSON."""

    @classmethod
    def name(cls) -> str:
        return "mqstore-tasks"

    def schema(self) -> str:
        return "task int, answer string"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TaskReader(self.options["function"], json.loads(self.options["tasks"]))


class TaskPartition(InputPartition):
    """One task."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class TaskReader(DataSourceReader):
    """Calls a function for each task."""

    def __init__(self, function: str, tasks: Sequence[Task]) -> None:
        self._function = function
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        """A partition a task."""
        return [TaskPartition(number) for number in range(len(self._tasks))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The answer of one task."""
        assert isinstance(partition, TaskPartition)
        module, _, name = self._function.partition(":")
        function = getattr(import_module(f".{module}", __package__), name)
        answer = answer_of(function, self._tasks[partition.number])
        row = {"task": partition.number, "answer": json.dumps(answer)}
        yield pa.RecordBatch.from_pylist([row], schema=_SCHEMA)


def answer_of(function: Callable[[Task], Any], task: Task) -> dict[str, Any]:
    """What a function answers, or the error of `store.errors` that it raises."""
    try:
        return {"answer": function(task)}
    except StoreError as error:
        return {"error": [type(error).__name__, str(error)]}


def run_tasks(spark: SparkSession, function: str, tasks: Sequence[Task]) -> list[Any]:
    """The answer of each task, a StoreError where it has raised one. Raises JobFailed."""
    if not tasks:
        return []
    spark.dataSource.register(TaskSource)
    source = spark.read.format(TaskSource.name()).option("function", function)
    with failures():
        rows = source.option("tasks", json.dumps(tasks)).load().collect()
    answers = {row["task"]: json.loads(row["answer"]) for row in rows}
    return [told(answers[number]) for number in range(len(tasks))]


def told(answer: dict[str, Any]) -> Any:
    """What `answer_of` has put into words."""
    if "answer" in answer:
        return answer["answer"]
    name, message = answer["error"]
    kind = getattr(errors, name, StoreError)
    return kind(message) if issubclass(kind, StoreError) else StoreError(message)
