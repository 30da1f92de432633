"""`pipeline verify`: what the local `verify` finds, in many stores at once, on Spark.

A store is two tasks, as for `verify --jobs 2`: one compares log, queues, index and all else with
each other, the other checks the log for itself. Their findings together are the store's verdict. A
store in object storage is one task: it is copied once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..store.config import BrokerConfig
from ..store.errors import StoreError
from ..store.store import Store
from ..store.verify.beside import GROUPS_BESIDE
from ..store.verify.catalogue import GROUPS, Severity
from ..store.verify.finding import Finding
from ..store.verify.log_pass import not_asked_for
from ..store.verify.run import Verdict, status_of, verify
from ..store.verify.scene import Scope
from .sources.fetched import in_directory
from .sources.fleet import is_uri
from .sources.remote import log_sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .tasks import Task

_OF_VERDICT = ("records", "bytes", "seconds", "unread", "live")


def tasks_of(
    roots: Iterable[str],
    config: Mapping[str, str],
    now_ms: int,
    *,
    quick: bool = False,
    groups: frozenset[str] | None = None,
    broker_version: str | None = None,
) -> list[Task]:
    """The tasks, store by store. groups: of checks, None for all."""
    wanted = frozenset(GROUPS) if groups is None else groups
    halves = [part for part in (wanted - GROUPS_BESIDE, wanted & GROUPS_BESIDE) if part]
    return [
        {
            "root": root,
            "config": dict(config),
            "now_ms": now_ms,
            "quick": quick,
            "groups": sorted(part),
            "broker_version": broker_version,
        }
        for root in roots
        for part in ([wanted] if is_uri(root) else halves)
    ]


def log_bytes(roots: Iterable[str], config: BrokerConfig) -> int:
    """Bytes of the logs of those stores that can be read."""
    return sum(log_sizes(roots, config)[0].values())


def check(task: Task) -> dict[str, Any]:
    """One task, where it runs: the verdict as JSON. Raises StoreError."""
    scope = Scope(
        quick=task["quick"],
        groups=frozenset(task["groups"]),
        broker_version=task["broker_version"],
    )
    with in_directory(task["root"]) as place:
        with Store(place.folder, BrokerConfig(task["config"])) as store:
            verdict = verify(store, scope, now_ms=task["now_ms"])
        found = {name: getattr(verdict, name) for name in _OF_VERDICT}
        found["groups"] = task["groups"]
        found["findings"] = [asdict(finding) for finding in verdict.findings]
        named: dict[str, Any] = place.named(found)
        return named


def verify_on(spark: SparkSession, tasks: Sequence[Task]) -> list[tuple[str, Verdict | StoreError]]:
    """The verdict of each store, or why it has none. Raises JobFailed."""
    from .tasks import run_tasks

    return joined(tasks, run_tasks(spark, "verify:check", tasks))


def joined(tasks: Sequence[Task], answers: Sequence[Any]) -> list[tuple[str, Verdict | StoreError]]:
    """The answers of the tasks of each store together."""
    found: dict[str, list[Any]] = {}
    for task, answer in zip(tasks, answers, strict=True):
        found.setdefault(task["root"], []).append(answer)
    return [(root, _joined(parts)) for root, parts in found.items()]


def _joined(parts: Sequence[Any]) -> Verdict | StoreError:
    errors = [part for part in parts if isinstance(part, StoreError)]
    if errors:
        return errors[0]
    findings = [_finding(row) for part in parts for row in part["findings"]]
    findings.sort(key=lambda f: (-f.severity, f.code, f.path, f.offset or 0))
    apart = [set(not_asked_for(frozenset(part["groups"]))) for part in parts]
    unread = [
        t for part, left in zip(parts, apart, strict=True) for t in part["unread"] if t not in left
    ]
    groups = frozenset(group for part in parts for group in part["groups"])
    unread = [*not_asked_for(groups), *dict.fromkeys(unread)]
    return Verdict(
        status_of(findings),
        findings,
        parts[0]["records"],
        parts[0]["bytes"],
        sum(part["seconds"] for part in parts),
        unread,
        None,
        any(part["live"] for part in parts),
    )


def _finding(row: Mapping[str, Any]) -> Finding:
    return Finding(**{**row, "severity": Severity(row["severity"])})
