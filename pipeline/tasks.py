"""Work that is a task per store: one Python data source runs any of it, an answer a task.

What a task is given and what it answers are JSON, or bytes that stay where tasks run. A store that
cannot be read is an answer, too: it ends nothing else. Rows name a store by its number: a path may
have bytes that are no text in Arrow and in Java.
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
    from pyspark.sql import DataFrame, SparkSession

Task = dict[str, Any]
"""`root`: the store it is about; all else as its function wants it."""
_SCHEMA = pa.schema(
    {"task": pa.int32(), "store": pa.int32(), "answer": pa.string(), "data": pa.binary()}
)


class TaskSource(DataSource):
    """Options: `function`, `MODULE:NAME` in this package; `tasks`, JSON."""

    @classmethod
    def name(cls) -> str:
        return "mqstore-tasks"

    def schema(self) -> str:
        return "task int, store int, answer string, data binary"

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
        self._stores = stores_among(tasks)

    def partitions(self) -> list[InputPartition]:
        """A partition a task."""
        return [TaskPartition(number) for number in range(len(self._tasks))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The answer of one task."""
        assert isinstance(partition, TaskPartition)
        module, _, name = self._function.partition(":")
        function = getattr(import_module(f".{module}", __package__), name)
        task = self._tasks[partition.number]
        answer, data = answer_of(function, task), None
        if isinstance(answer.get("answer"), bytes):
            data = answer.pop("answer")
        store = self._stores[task["root"]]
        row = {"task": partition.number, "store": store, "answer": json.dumps(answer), "data": data}
        yield pa.RecordBatch.from_pylist([row], schema=_SCHEMA)


def stores_among(tasks: Sequence[Task]) -> dict[str, int]:
    """The number of each store: that of the first task about it."""
    found: dict[str, int] = {}
    for number, task in enumerate(tasks):
        found.setdefault(task["root"], number)
    return found


def answer_of(function: Callable[[Task], Any], task: Task) -> dict[str, Any]:
    """What a function answers, or the error of `store.errors` that it raises."""
    try:
        return {"answer": function(task)}
    except StoreError as error:
        return {"error": [type(error).__name__, str(error)]}


def rows_of_tasks(spark: SparkSession, function: str, tasks: Sequence[Task]) -> DataFrame:
    """A row for each of some tasks, not run yet: `task`, `store`, `answer`, `data`.

    store: as `stores_among` has it; answer: what `answer_of` gives, as JSON; data: instead of an answer that is bytes.
    """
    spark.dataSource.register(TaskSource)
    source = spark.read.format(TaskSource.name()).option("function", function)
    return source.option("tasks", json.dumps(tasks)).load()


def run_tasks(spark: SparkSession, function: str, tasks: Sequence[Task]) -> list[Any]:
    """The answer of each task, a StoreError where it has raised one. Raises JobFailed."""
    if not tasks:
        return []
    with failures():
        rows = rows_of_tasks(spark, function, tasks).select("task", "answer").collect()
    answers = {row["task"]: json.loads(row["answer"]) for row in rows}
    return [told(answers[number]) for number in range(len(tasks))]


def told(answer: dict[str, Any]) -> Any:
    """What `answer_of` has put into words."""
    if "answer" in answer:
        return answer["answer"]
    name, message = answer["error"]
    kind = getattr(errors, name, StoreError)
    return kind(message) if issubclass(kind, StoreError) else StoreError(message)
