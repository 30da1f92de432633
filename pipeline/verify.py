"""`pipeline verify`: what the local `verify` finds, in many stores at once, on Spark.

A store is one task, the local run; small stores share a Spark task. A store in object storage is copied once.

A large log that cores would wait for is looked at in parts, by a task each, as `verify --jobs` does. What they leave
goes through Spark's shuffle to one more task, the run from the start of the log: it accepts what is in order, and looks
itself at what is not. That takes a third more of CPU time.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..store.arrow.stores import in_directory
from ..store.disk.broker_conf import BrokerConfig
from ..store.disk.layout import is_uri
from ..store.errors import StoreError, from_os_error
from ..store.findings.catalogue import GROUPS, Severity
from ..store.findings.findings import Finding, order
from ..store.repair.recheck import with_open_repairs
from ..store.search.store import StoreReader
from ..store.verify.context import Scope
from ..store.verify.parallel import GROUPS_BESIDE, has_parts
from ..store.verify.run import CheckedParts, look_at, together, verify
from ..store.verify.verdict import Status, Verdict, status_of
from .failures import failures
from .tasks import Task, answer_of, rows_of_tasks, run_tasks, stores_among, told
from .watch import JobProgress, Tell

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_OF_VERDICT = ("records", "bytes", "seconds", "unread", "live", "unmendable", "recovered", "to_renumber")
PART_BYTES = 1 << 30
"""A log is looked at in parts of this size or more, if it is at least twice as large."""
SHARES = 2
"""A log is looked at in parts if it exceeds the share of this many cores in all logs: others would wait for it."""
PARTS_MAX = 32
"""Limit of parts: the run behind them holds what all of them leave."""
LEFT_BYTES = 48 << 20
"""Limit of what a part leaves, pickled; a stretch in order is 20 MiB. All parts fit in a column of Arrow."""
_CODEC = "zstd"
_ROOM = 4
"""Partitions for each store: few stores meet in one."""
_ANSWERS = "task int, answer string"


def tasks_of(
    roots: Iterable[str],
    config: Mapping[str, str],
    now_ms: int,
    *,
    quick: bool = False,
    groups: frozenset[str] | None = None,
    broker_version: str | None = None,
    sizes: Mapping[str, int] | None = None,
    in_parts: Container[str] | None = None,
) -> list[Task]:
    """Return the tasks, store by store. groups: of checks, None for all.

    sizes: bytes of the logs, by store. in_parts: stores whose logs may be looked at in parts (`can_be_cut`), None for
    all.
    """
    wanted = frozenset(GROUPS) if groups is None else groups
    found: list[Task] = []
    for root in roots:
        task = {
            "root": root,
            "config": dict(config),
            "now_ms": now_ms,
            "quick": quick,
            "groups": sorted(wanted),
            "broker_version": broker_version,
        }
        size = (sizes or {}).get(root, 0)
        parts = min(PARTS_MAX, size // PART_BYTES) if in_parts is None or root in in_parts else 1
        if parts > 1 and not is_uri(root) and not quick and wanted >= GROUPS_BESIDE:
            part = {**task, "parts": parts, "bytes": size // parts}
            found += [{**part, "part": number} for number in range(parts)]
        else:
            found.append({**task, "bytes": size})
    return found


def can_be_cut(sizes: Mapping[str, int], config: Mapping[str, str], cores: int) -> set[str]:
    """Return the stores that can be cut and are worth it. sizes: store → bytes of its log."""
    found = set[str]()
    least = max(2 * PART_BYTES, SHARES * sum(sizes.values()) // cores + 1)
    for root, size in sizes.items():
        if is_uri(root) or size < least:
            continue
        with suppress(Exception), StoreReader(root, BrokerConfig(config)) as store:  # its task reports the error
            if has_parts(store):
                found.add(root)
    return found


@contextmanager
def _defects_of(root: str) -> Iterator[None]:
    """Raise a defect of ours that one store brings to light as an error of that store, so that the others continue."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise from_os_error(error, error.filename or root, "cannot read or write") from error
    except MemoryError as error:
        raise StoreError("out of memory", path=root, hint="take fewer tasks at once") from error
    except Exception as error:
        text = f"internal error: {type(error).__name__}: {error}"
        hint = "mqstore verify --verbose of this store shows where, please report"
        raise StoreError(text, path=root, hint=hint) from error


def check(task: Task, looked_at: CheckedParts | None = None) -> dict[str, Any]:
    """Run one task, on a worker: return the verdict as JSON. Raises StoreError."""
    with _defects_of(task["root"]), in_directory(task["root"]) as place:
        with StoreReader(place.folder, BrokerConfig(task["config"])) as store:
            verdict = verify(store, _scope(task), now_ms=task["now_ms"], looked_at=looked_at)
            if verdict.status is Status.DAMAGED:
                verdict = with_open_repairs(verdict, store.layout, task["broker_version"])
        found = {name: getattr(verdict, name) for name in _OF_VERDICT}
        found["findings"] = [asdict(finding) for finding in verdict.findings]
        named: dict[str, Any] = place.named(found)
        return named


def look(task: Task) -> bytes:
    """Look at one part of a log, on a worker: return what it leaves for `judge`. Raises StoreError.

    What goes beyond LEFT_BYTES is left out: the final run reads that part of the log itself.
    """
    import pyarrow as pa

    with _defects_of(task["root"]), StoreReader(task["root"], BrokerConfig(task["config"])) as store:
        found = look_at(store, _scope(task), task["part"], task["parts"], now_ms=task["now_ms"])
    kept, room = list[tuple[int, bytes]](), LEFT_BYTES
    for left in found.left:
        data = pickle.dumps(left)
        room -= len(data)
        if room < 0:
            break
        kept.append((len(data), pa.compress(data, _CODEC, asbytes=True)))
    return pickle.dumps((found.signature, kept))


def judge(task: Task, left: Iterable[bytes | None]) -> dict[str, Any]:
    """Return the verdict after the parts, as JSON. left: what `look` returned, None if it failed.

    They are unpacked one by one. Raises StoreError.
    """
    return check(task, together(map(unpacked, filter(None, left))))


def unpacked(left: bytes) -> CheckedParts:
    import pyarrow as pa

    signature, kept = pickle.loads(left)
    unpacked = (pa.decompress(data, size, _CODEC, asbytes=True) for size, data in kept)
    return CheckedParts(signature, [pickle.loads(one) for one in unpacked])


def _scope(task: Task) -> Scope:
    return Scope(quick=task["quick"], groups=frozenset(task["groups"]), broker_version=task["broker_version"])


def verify_on(
    spark: SparkSession, tasks: Sequence[Task], tell: Tell | None = None
) -> list[tuple[str, Verdict | StoreError]]:
    """Return the verdict of each store, or why it has none. Raises JobFailed.

    tell: called with the progress, in bytes.
    """
    parts = [task for task in tasks if "part" in task]
    whole = [task for task in tasks if "part" not in task]
    progress, sizes = JobProgress(tell), [task["bytes"] for task in whole]
    answers = []
    if parts:
        with failures(), progress.of(spark, [task["bytes"] for task in parts]):
            rows = _judged(spark, parts).collect()
        rows.sort(key=itemgetter("task"))
        answers += [(parts[row["task"]]["root"], told(json.loads(row["answer"]))) for row in rows]
    found = run_tasks(spark, "verify:check", whole, sizes, progress)
    answers += [(task["root"], answer) for task, answer in zip(whole, found, strict=True)]
    return joined([task["root"] for task in tasks], answers)


def _judged(spark: SparkSession, tasks: Sequence[Task]) -> DataFrame:
    """Return a row for each store whose log is looked at in parts."""
    stores = stores_among(tasks)

    def judged(rows: pa.Table) -> pa.Table:
        return judged_rows(rows, tasks)

    looked = rows_of_tasks(spark, "verify:look", tasks).select("store", "data")
    looked = looked.repartition(_ROOM * len(stores), "store")
    return looked.groupBy("store").applyInArrow(judged, _ANSWERS)


def judged_rows(rows: pa.Table, tasks: Sequence[Task]) -> pa.Table:
    """Return the row of `_judged` for one store, from the rows of `look` for it."""
    import pyarrow as pa

    number = rows["store"][0].as_py()
    left = (data.as_py() for data in rows["data"])
    answer = answer_of(partial(judge, left=left), tasks[number])
    task = pa.array([number], pa.int32())
    return pa.table({"task": task, "answer": [json.dumps(answer)]})


def joined(roots: Iterable[str], answers: Iterable[tuple[str, Any]]) -> list[tuple[str, Verdict | StoreError]]:
    """Return the answers about stores as verdicts, in the order of the stores."""
    found = dict(answers)
    return [(root, _verdict_of(found[root])) for root in dict.fromkeys(roots)]


def _verdict_of(answer: Any) -> Verdict | StoreError:
    if isinstance(answer, StoreError):
        return answer
    rows = ({**row, "severity": Severity(row["severity"])} for row in answer["findings"])
    findings = sorted((Finding(**row) for row in rows), key=order)
    fields = {name: answer[name] for name in _OF_VERDICT}
    if fields["to_renumber"] is not None:
        fields["to_renumber"] = tuple(fields["to_renumber"])
    return Verdict(status_of(findings), findings, **fields)
