"""Work as a task for each store or part of one, on Spark; each task gives an answer.

`mapInArrow` runs the tasks: a Python data source would make Spark start three more kinds of Python processes for its
plan, which takes half a second each. Small tasks share a Spark task, by bytes, and large ones start first. Tasks and
answers are JSON; bytes as an answer stay on the workers. A store that cannot be read is an answer, too, and does not
end the others. Rows name a store by a number: a path may have bytes that are no text in Arrow and in Java.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..store import errors
from ..store.disk.byte_reader import at_rate, note_expired, noting, reading_rate
from ..store.errors import StoreError
from .failures import failures
from .masters import is_local
from .watch import JobProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = dict[str, Any]
"""`root`: the store; the other members are for the task's function."""
_SCHEMA = pa.schema({"task": pa.int32(), "store": pa.int32(), "answer": pa.string(), "data": pa.binary()})
_COLUMNS = "task int, store int, answer string, data binary"

SHARE_BYTES = 256 << 20
"""A Spark task pays off for tasks with this many bytes together."""
TASK_BYTES = 8 << 20
"""A task costs as much as this many bytes, besides its own."""
_ROUNDS = 3
"""Shares for each core, if there is enough to do: so the last ones end at the same time."""
_CORES_UNKNOWN = 8


class TaskReader:
    """Calls a function for each task. shares: numbers of the tasks that go together, None: each by itself. What a task
    reads has the limit of the `at_rate` block in which this object is made.

    Workers get the JSON of each share: number, number of the store, and the task itself, for each of its tasks.
    """

    def __init__(self, function: str, tasks: Sequence[Task], shares: Sequence[Sequence[int]] | None = None) -> None:
        self._function, self._rate_bytes = function, reading_rate()
        stores = stores_among(tasks)
        self.shares = [
            json.dumps([(number, stores[tasks[number]["root"]], tasks[number]) for number in some])
            for some in ([[number] for number in range(len(tasks))] if shares is None else shares)
        ]

    def read(self, share: int) -> Iterator[pa.RecordBatch]:
        """Yield the answers of the tasks of a share, one by one."""
        for number, store, task in json.loads(self.shares[share]):
            with at_rate(self._rate_bytes):
                answer, data = answer_of(named(self._function), task), None
            if isinstance(answer.get("answer"), bytes):
                data = answer.pop("answer")
            row = {"task": number, "store": store, "answer": json.dumps(answer), "data": data}
            yield pa.RecordBatch.from_pylist([row], schema=_SCHEMA)


def named(function: str) -> Callable[[Task], Any]:
    module, _, name = function.partition(":")
    found: Callable[[Task], Any] = getattr(import_module(f".{module}", __package__), name)
    return found


def stores_among(tasks: Sequence[Task]) -> dict[str, int]:
    """Return the number of each store: that of the first task about it."""
    found: dict[str, int] = {}
    for number, task in enumerate(tasks):
        found.setdefault(task["root"], number)
    return found


def answer_of(function: Callable[[Task], Any], task: Task) -> dict[str, Any]:
    """Return what a function answers, or the error of `store.errors` that it raises; and what has expired meanwhile."""
    with noting(around=False) as noted:
        try:
            found = {"answer": function(task)}
        except StoreError as error:
            found = {"error": [type(error).__name__, str(error), error.store]}
    return {**found, "expired": noted.expired} if noted.expired else found


def shares_of(sizes: Sequence[int], cores: int) -> list[list[int]]:
    """Return numbers of tasks that go together, by their bytes: a large one alone, and before the others.

    >>> shares_of([1, 900 << 20, 2, 300 << 20], 2)
    [[1], [3], [2, 0]]
    """
    costs = [size + TASK_BYTES for size in sizes]
    most = min(SHARE_BYTES, -(-sum(costs) // (cores * _ROUNDS)))
    found: list[list[int]] = []
    room = 0
    for number in sorted(range(len(sizes)), key=lambda number: -costs[number]):
        if not found or costs[number] > room:
            found.append([])
            room = most
        found[-1].append(number)
        room -= costs[number]
    return found


def cores_of(spark: SparkSession) -> int:
    """Return how many Spark tasks run at once. A Connect server does not tell; executors of a cluster may still be
    starting."""
    if not hasattr(spark, "_jsparkSession"):
        return _CORES_UNKNOWN
    context = spark.sparkContext
    least = 1 if is_local(context.master or "") else _CORES_UNKNOWN
    return max(least, int(context.defaultParallelism))


def rows_of_tasks(
    spark: SparkSession, function: str, tasks: Sequence[Task], shares: Sequence[Sequence[int]] | None = None
) -> DataFrame:
    """Return a row for each of some tasks, not run yet: `task`, `store`, `answer`, `data`.

    shares: of `shares_of`; None: each by itself. store: as in `stores_among`; answer: of `answer_of`, as JSON; data:
    the answer if it is bytes.
    """
    reader = TaskReader(function, tasks, shares)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(0).to_pylist():
                yield from reader.read(share)

    count = len(reader.shares)  # each partition has one of these numbers
    return spark.range(0, count, 1, count).mapInArrow(rows, _COLUMNS)


def run_tasks(
    spark: SparkSession,
    function: str,
    tasks: Sequence[Task],
    sizes: Sequence[int] | None = None,
    progress: JobProgress | None = None,
) -> list[Any]:
    """Run the tasks; return the answer of each, a StoreError if it has raised one. Raises JobFailed.

    sizes: bytes of each; None: no task shares a Spark task. progress: gets the bytes that are done.
    """
    if not tasks:
        return []
    shares = None if sizes is None else shares_of(sizes, cores_of(spark))
    together = [sum(sizes[number] for number in some) for some in shares or ()] if sizes else []
    with failures(), (progress or JobProgress(None)).of(spark, together):
        rows = rows_of_tasks(spark, function, tasks, shares).select("task", "answer").collect()
    answers = {row["task"]: json.loads(row["answer"]) for row in rows}
    return [told(answers[number]) for number in range(len(tasks))]


def whole(answers: list[Any]) -> list[Any]:
    """Return the answers of `run_tasks`. Raises the first error among them."""
    for answer in answers:
        if isinstance(answer, StoreError):
            raise answer
    return answers


def told(answer: dict[str, Any]) -> Any:
    """Return the answer that `answer_of` wrapped, or its error; note what has expired."""
    for directory, begin in answer.get("expired", {}).items():
        note_expired(directory, begin)
    if "answer" in answer:
        return answer["answer"]
    name, message, store = answer["error"]
    kind = getattr(errors, name, StoreError)
    error = kind(message) if issubclass(kind, StoreError) else StoreError(message)
    error.store = store
    return error
