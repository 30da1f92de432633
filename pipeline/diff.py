"""`diff`: the first message of each queue in which two stores, or two fleets, differ.

Records of both sides are matched by store, topic, queue and queue offset, and compared by what the producer gave; log
positions and store times do not count. Pairs of stores are compared one after the other in this process, or by Spark
tasks that look at a part of both logs each. What these leave unmatched is matched in the driver. For logs that are no
copies that would be too much: the driver compares them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from ..store.arrow.differences import WAITING_MAX, Left, QueueDifferences, Unsound, compare, look, met
from ..store.arrow.log_rows import LogSplit, parts_of
from ..store.arrow.stores import ReadOptions, as_path
from ..store.log.commit_log import SPLIT_BYTES_MAX
from .plan import names_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .tasks import Task

_SPLIT_BYTES = SPLIT_BYTES_MAX
"""Bytes of each log that a task looks at."""
_LEFT_MIN = 1000
"""Messages that every task may leave, however many tasks there are."""

Pairs = Mapping[str, tuple[str, str]]
"""Name of a pair → its stores, that of `a` first."""
Differences = list[dict[str, Any]]
"""A row for each queue that differs: where first, how, and how often."""


def pairs_of(a: Sequence[str], b: Sequence[str]) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Return the pairs of the stores in `a` and in `b`, and the names that have no partner.

    Single stores are partners of each other. Of several, partners have the same path below the directory that all
    stores of their side share.
    """
    if len(a) == len(b) == 1:
        return {"": (a[0], b[0])}, []
    sides = []
    for roots in (a, b):
        names = names_of([as_path(root) for root in roots])
        names = [name or as_path(root).name for name, root in zip(names, roots, strict=True)]
        sides.append(dict(zip(names, roots, strict=True)))
    one, other = sides
    pairs = {name: (root, other[name]) for name, root in one.items() if name in other}
    return pairs, sorted(one.keys() ^ other.keys())


Ranges = Sequence[tuple[int, int]]
"""Log positions [begin, end)."""


def here(
    pairs: Pairs, config: Mapping[str, str], note: Callable[[int], None], within: Mapping[str, Ranges] | None = None
) -> tuple[Differences, Unsound]:
    """Compare pair by pair in this process. note: called with the number of bytes read. within: pair name → log
    positions that may differ. Raises StoreError.

    Messages before the first one that the other side still has of a queue have expired there; they are skipped.
    """
    return _all(compare(*_asks(pair, config), name, note, (within or {}).get(name)) for name, pair in pairs.items())


def _asks(pair: Sequence[str], config: Mapping[str, str]) -> tuple[ReadOptions, ReadOptions]:
    made = [ReadOptions((store,), split_bytes=_SPLIT_BYTES, config=dict(config)) for store in pair]
    return made[0], made[1]


def _all(pairs: Iterable[QueueDifferences]) -> tuple[Differences, Unsound]:
    rows: Differences = []
    unsound = Unsound()
    for found in pairs:
        rows += found.rows
        unsound.join(found.unsound)
    return rows, unsound


def on_spark(spark: SparkSession, pairs: Pairs, config: Mapping[str, str]) -> tuple[Differences, Unsound]:
    """Compare by Spark tasks. Raises the error that a task met, or JobFailed."""
    from .tasks import run_tasks, whole

    tasks = tasks_of(pairs, config)
    answers = run_tasks(spark, "diff:compare_parts", tasks, [task["bytes"] for task in tasks])
    of: dict[str, list[Any]] = {name: [] for name in pairs}
    for task, answer in zip(tasks, whole(answers), strict=True):
        of[task["name"]].append(answer)

    def compared() -> Iterator[QueueDifferences]:
        for name, answers in of.items():
            if None in answers:
                yield compare(*_asks(pairs[name], config), name)
            else:
                yield met(map(Left.from_json, answers), name)

    return _all(compared())


def tasks_of(pairs: Pairs, config: Mapping[str, str]) -> list[Task]:
    """Return a task for each part of a pair: what lies at one place in both logs, since copies are alike."""
    tasks: list[Task] = []
    for name, pair in pairs.items():
        parts: dict[int, tuple[list[LogSplit], list[LogSplit]]] = {}
        for side, ask in enumerate(_asks(pair, config)):
            for number, part in enumerate(parts_of(ask)):
                place = number if part.split is None else part.split.start // _SPLIT_BYTES
                parts.setdefault(place, ([], []))[side].append(part)
        for _, both in sorted(parts.items()):
            task: Task = {"root": pair[0], "name": name, "pair": pair, "config": dict(config)}
            task["parts"] = [[astuple(part) for part in mine] for mine in both]
            task["bytes"] = sum(part.bytes for mine in both for part in mine)
            tasks.append(task)
    most = max(_LEFT_MIN, WAITING_MAX // max(1, len(tasks)))
    return [{**task, "most": most} for task in tasks]


def compare_parts(task: Task) -> dict[str, Any] | None:
    """Run one task, on a worker: return `Left.to_json`, None if too much is left. Raises StoreError."""
    parts = [[LogSplit.of(part) for part in mine] for mine in task["parts"]]
    left = look(*_asks(task["pair"], task["config"]), parts, task["most"])
    return None if left is None else left.to_json()
