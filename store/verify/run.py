"""`verify` from the first check to the last: before the log, one pass over it, behind it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import TypeVar

from ..commit_log import Batch, Extent
from ..dispatch import Dispatched
from ..errors import Missing
from ..mark import Mark
from ..page_cache import aside
from ..recent import LOOK_BACK
from ..recovery.snapshot import QueueId
from ..recovery.survey import Messages, survey
from ..recovery.topic_table import TopicTable
from ..store import Store
from .catalogue import GROUPS, Severity, catalogue
from .finding import Finding
from .log_pass import Part, items_of, parts_of
from .records import Records
from .register import CHECKS
from .scene import LogFacts, Scene, Scope

F = TypeVar("F")

_ATTEMPTS = 3
"""Runs over a store whose oldest files are deleted meanwhile, or that has begun to change."""
_GRACE_S = 5.0
"""How long the checks behind the log may take when the run is to end."""
_LOG_GROUPS = frozenset({"layout", "commit_log"})
"""Groups that look at records without asking what they add to queues and index."""


class Status(StrEnum):
    """The verdict."""

    CLEAN = "clean"
    UNCLEAN = "unclean"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class Verdict:
    """The answer. findings: worst first. records, bytes: of the log that were read.

    stopped_at: log position where an interrupted run can go on. live: somebody wrote meanwhile.
    """

    status: Status
    findings: list[Finding]
    records: int
    bytes: int
    seconds: float
    #: What was not looked at, and why.
    unread: list[str] = field(default_factory=list)
    stopped_at: int | None = None
    live: bool = False
    #: For a run that goes on at `stopped_at`.
    facts: LogFacts = field(default_factory=LogFacts)


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
    stop: Callable[[], bool] | None = None,
    jobs: int = 1,
) -> Verdict:
    """Check every invariant of spec 08. Writes nothing. Raises Unreadable.

    progress: called with the log position reached. stop: asked now and then whether to end with
    what there is. jobs: processes; a second one checks the log for itself, more are of no use.
    """
    began = time.monotonic()
    load_checks()
    scope = scope or Scope()
    with aside(store.rate_bytes is not None):
        scene, beside = _settled(store, scope, now_ms, progress, stop, jobs)
    findings = [*scene.findings, *beside]
    findings.sort(key=lambda f: (-f.severity, f.code, f.path, f.offset or 0))
    return Verdict(
        status_of(findings),
        findings,
        scene.log.records,
        scene.log.bytes,
        time.monotonic() - began,
        scene.unread,
        scene.log.stopped_at,
        scene.live,
        scene.log,
    )


def status_of(findings: Iterable[Finding]) -> Status:
    """The verdict that findings make."""
    worst, unclean = Severity.INFO, False
    for finding in findings:
        worst = max(worst, finding.severity)
        unclean |= finding.unclean
    if worst >= Severity.ERROR:
        return Status.DAMAGED
    return Status.UNCLEAN if unclean else Status.CLEAN


def _settled(
    store: Store,
    scope: Scope,
    now_ms: int | None,
    progress: Callable[[int], None] | None,
    stop: Callable[[], bool] | None,
    jobs: int,
) -> tuple[Scene, list[Finding]]:
    """Run until the store has not changed under the run, or was known to change."""
    changing = False
    for attempt in range(_ATTEMPTS):
        more = {} if stop is None else {"asked_to_stop": stop}
        scene = Scene(store, scope, now_ms, changing=changing, **more)
        before, known = _signature(store), scene.live
        last = attempt == _ATTEMPTS - 1
        try:
            beside = _run(scene, progress, jobs)
        except Missing:  # a broker has deleted its oldest file
            if last:
                raise
        else:
            if known or last or before == _signature(store):
                return scene, beside
        changing = True
        store = Store(store.layout.root, store.config, rate_bytes=store.rate_bytes)
    raise AssertionError("the last attempt returns or raises")


def _signature(store: Store) -> list[tuple[str, int, int]]:
    """What no one writes to a store without changing."""
    layout, files = store.layout, store.log_files.files
    paths = [layout.lock, layout.abort, layout.checkpoint, *layout.commit_log_directories]
    found = []
    for path in [*map(os.fspath, paths), *(file.path for file in (*files[:1], *files[-1:]))]:
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            continue
        found.append((path, status.st_mtime_ns, status.st_size))
    return found


def _run(scene: Scene, progress: Callable[[int], None] | None, jobs: int) -> list[Finding]:
    """One run. Findings of a second process, which has checked the log for itself."""
    groups = scene.scope.groups or frozenset(GROUPS)
    parts = parts_of(scene)
    limited = scene.store.rate_bytes is not None  # two would read twice as much
    if jobs > 1 and not limited and "commit_log" in groups and groups - _LOG_GROUPS:
        from .beside import GROUPS_BESIDE, LogBeside

        with LogBeside(scene, parts) as other:
            check_groups(scene, groups - GROUPS_BESIDE, parts, progress)
            return other.findings(scene)
    check_groups(scene, groups, parts, progress)
    return []


def check_groups(
    scene: Scene,
    groups: frozenset[str],
    parts: list[Part],
    progress: Callable[[int], None] | None,
) -> None:
    """All checks of some groups in their order."""
    for once in _each(CHECKS.before, groups):
        once(scene)
    read_log(scene, groups, parts, progress)
    late: list[str] = []
    stopped = bool(scene.stopped())
    end = time.monotonic() + _GRACE_S
    for once in _each(CHECKS.after, groups):
        if (stopped or scene.stopped()) and time.monotonic() > end:
            late += [code for code, check in CHECKS.after.items() if check is once]
        else:
            once(scene)
    if late:
        scene.unread.append(f"not checked any more: {', '.join(sorted(late))}")


def _each(moment: dict[str, F], groups: frozenset[str]) -> list[F]:
    """The checks of a moment, each once, in the order of their codes."""
    told = catalogue()
    wanted = (code for code in sorted(moment) if told[code].group in groups)
    return list(dict.fromkeys(moment[code] for code in wanted))


def read_log(
    scene: Scene,
    groups: frozenset[str],
    parts: list[Part],
    progress: Callable[[int], None] | None,
) -> None:
    """The pass over the log."""
    rules, log_pass = scene.profile.dispatch, _Pass(scene, groups)
    crc = "commit_log" in groups and not scene.scope.quick
    items = items_of(scene, parts, crc=crc)
    if groups <= _LOG_GROUPS:
        log_pass.of_log_alone(items, progress)
        return
    survey(
        scene.store.log,
        [log_pass],
        index_tags=rules.index_tags,
        multi_dispatch=rules.multi_dispatch,
        progress=progress,
        items=items,
    )


class _Pass:
    """Hands what the pass over the log meets to the checks."""

    def __init__(self, scene: Scene, groups: frozenset[str]) -> None:
        self._scene = scene
        self._topics = TopicTable()
        self._records = _each(CHECKS.records, groups)
        self._stale = _each(CHECKS.stale, groups)
        self._messages = _each(CHECKS.messages, groups)
        self._extents = _each(CHECKS.extents, groups)

    def of_log_alone(
        self, items: Iterable[Batch | Extent], progress: Callable[[int], None] | None
    ) -> None:
        """The same without what records add to queues and index."""
        for item in items:
            if isinstance(item, Extent):
                self.extent(item)
                continue
            if progress is not None:
                progress(item.end)
            if item.mark > Mark.AFTER_DAMAGE:
                self.stale(item)
            else:
                self.records(item, None)

    def records(self, batch: Batch, dispatched: Dispatched | None) -> None:
        records, log = Records(batch, dispatched, self._topics), self._scene.log
        for check in self._records:
            check(self._scene, records)
        log.end = batch.end
        log.records += len(batch)
        log.bytes += batch.end - int(batch.position[0])
        times = records.ints("store_timestamp")
        log.newest = max(log.newest, int(times.max()))
        log.last, log.last_timestamp = batch.position[-LOOK_BACK:].tolist(), int(times[-1])

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
        records, log = Records(batch), self._scene.log
        if batch.mark is Mark.DEAD_TAIL:
            log.newest_dead = max(log.newest_dead, int(records.ints("store_timestamp").max()))
        for check in self._stale:
            check(self._scene, records)
