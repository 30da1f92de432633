"""`verify` from the first check to the last: before the log, one pass over it, behind it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import TypeVar

from ..commit_log import Batch, Extent
from ..dispatch import Dispatched
from ..recovery.snapshot import QueueId
from ..recovery.survey import Messages, survey
from ..store import Store
from .catalogue import GROUPS, Severity
from .finding import Finding
from .records import Records
from .register import CHECKS
from .scene import Scene, Scope

F = TypeVar("F")


class Status(StrEnum):
    """The verdict."""

    CLEAN = "clean"
    UNCLEAN = "unclean"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class Verdict:
    """The answer. findings: worst first. records, bytes: of the log that were read."""

    status: Status
    findings: list[Finding]
    records: int
    bytes: int
    seconds: float
    #: What was not looked at, and why.
    unread: list[str] = field(default_factory=list)


def load_checks() -> None:
    """Import the modules of checks: each registers its own."""
    for group in GROUPS:
        import_module(f".{group}", __package__)


def verify(
    store: Store,
    scope: Scope | None = None,
    *,
    now_ms: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Verdict:
    """Check every invariant of spec 08. Writes nothing. Raises Unreadable.

    progress: called with the log position reached.
    """
    began = time.monotonic()
    load_checks()
    scene = Scene(store, scope or Scope(), now_ms)
    for once in _each(CHECKS.before):
        once(scene)
    _read_log(scene, progress)
    for once in _each(CHECKS.after):
        once(scene)
    findings = list(scene.findings)
    seconds = time.monotonic() - began
    return Verdict(_status(scene), findings, scene.log.records, scene.log.bytes, seconds)


def _status(scene: Scene) -> Status:
    worst = scene.findings.worst
    if worst is not None and worst >= Severity.ERROR:
        return Status.DAMAGED
    return Status.UNCLEAN if scene.findings.unclean else Status.CLEAN


def _each(moment: dict[str, F]) -> list[F]:
    """The checks of a moment, each once, in the order of their codes."""
    return list(dict.fromkeys(moment[code] for code in sorted(moment)))


def _read_log(scene: Scene, progress: Callable[[int], None] | None) -> None:
    profile = scene.profile
    survey(
        scene.store.log,
        [_Pass(scene)],
        index_tags=profile.dispatch.index_tags,
        multi_dispatch=profile.dispatch.multi_dispatch,
        crc=not scene.scope.quick,
        progress=progress,
    )


class _Pass:
    """Hands what the pass over the log meets to the checks."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._records = _each(CHECKS.records)
        self._stale = _each(CHECKS.stale)
        self._messages = _each(CHECKS.messages)
        self._extents = _each(CHECKS.extents)

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        records, log = Records(batch, dispatched), self._scene.log
        for check in self._records:
            check(self._scene, records)
        log.end = batch.end
        log.records += len(batch)
        log.bytes += batch.end - int(batch.position[0])
        log.newest = max(log.newest, int(records.ints("store_timestamp").max()))

    def messages(self, messages: Messages) -> None:
        for check in self._messages:
            check(self._scene, messages)
        self._note(messages.queue, messages)

    def _note(self, queue: QueueId, messages: Messages) -> None:
        log, last = self._scene.log, int(messages.offset[-1])
        log.first_offset.setdefault(queue, int(messages.offset[0]))
        log.next_offset[queue] = max(log.next_offset.get(queue, 0), last + 1)

    def extent(self, extent: Extent) -> None:
        self._scene.log.bytes += extent.size
        for check in self._extents:
            check(self._scene, extent)

    def stale(self, batch: Batch) -> None:
        self._scene.log.bytes += batch.end - int(batch.position[0])
        records = Records(batch)
        for check in self._stale:
            check(self._scene, records)
