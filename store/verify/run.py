"""The run of all checks: `verify` calls them before the log, in one pass over it, and after it.

`at_first_sight` is for `inspect`, which reads little of a store: names and lengths of files, what a load refuses, the
configuration, damage in the part of the log that was read. Its verdict is never "Safe to start": the rest was not
checked.

`check_topic`: a topic or queue to which a run is limited must exist, so that a mistyped one is never clean.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..broker.load_rules import Refusal
from ..broker.profiles import profile_of
from ..broker.snapshot import QueueId, Snapshot, unmendable
from ..broker.topics import Topics
from ..counted import counted
from ..disk.byte_reader import at_rate, noting
from ..disk.layout import has_topic, queue_directories
from ..errors import InvalidInput, Missing, NotFound, Refused, StoreError, UnreadableRange, Unsupported, did_you_mean
from ..findings.catalogue import GROUPS, Severity, group_of
from ..findings.findings import Finding, order
from ..search.find import find
from ..search.selection import Selection, is_pattern
from ..search.store import StoreReader
from ..session.journal import left_over
from .context import NOT_CHECKED, Scope, VerifyContext, ended, going_on, of_unread
from .log_pass import LogPass, ReadRange, items_of, not_asked_for, parts_of, read, wants_crc
from .register import CHECKS, checks_of, last
from .start import end_is_gone, forgotten, proved_of, start_beside, unfinished_change, would_not_start
from .verdict import Status, Verdict, status_of

if TYPE_CHECKING:
    from ..audit.verified import VerifiedLog
    from ..inspect.description import Description
    from .parallel import PartResult


MODULES = {
    "commit_log": "log_chain log_order log_records log_system",
    "consume_queue": "consume_queue queue_files",
    "index": "index_files index_log",
    "timer": "timer_log timer_wheel",
    "config": "config_files config_entries",
}
"""The modules with the checks of a group; a group that is not here has one module of its name."""
_ATTEMPTS = 3
"""Most runs over a store whose oldest files are deleted meanwhile, or that begins to change."""
_GRACE_S = 5.0
"""Time for the checks after the log when the run has to end."""
_AT_FIRST_SIGHT = frozenset({"layout", "config"})
_QUEUES_SHOWN = 16
_TAGS = "I-065"
"""The finding about a unit with another tags code than its message asks for."""
_NOT_READ = "records, queues, index and timer one by one, and what a broker's start does to them"


def load_checks(groups: Iterable[str] = GROUPS) -> None:
    """Import the modules with checks of some groups; each module registers its checks."""
    for group in GROUPS:
        if group in groups:
            for module in MODULES.get(group, group).split():
                import_module(f".{module}", __package__)


def verify(
    store: StoreReader | str | os.PathLike[str],
    scope: Scope | None = None,
    *,
    now_ms: int | None = None,
    progress: Callable[[int], None] | None = None,
    stop: Callable[[], bool] | None = None,
    jobs: int = 1,
    looked_at: CheckedParts | None = None,
) -> Verdict:
    """Check every invariant of docs/invariants.md. Write nothing. Raise Unreadable.

    store: an open one, or its root directory (then raise Missing and NotAStore, too). progress: called with the log
    position reached. stop: returns whether to end with what there is. jobs: number of processes, each for a part of the
    log; 1 if the log cannot be divided. looked_at: what other runs found of parts of the log (`look_at`).
    """
    if not isinstance(store, StoreReader):
        with StoreReader(store) as opened:
            return verify(opened, scope, now_ms=now_ms, progress=progress, stop=stop, jobs=jobs, looked_at=looked_at)
    began = time.monotonic()
    scope = scope or Scope()
    with at_rate(store.rate_bytes), noting():
        context = _run_until_settled(store, scope, now_ms, progress, stop, jobs, looked_at)
    findings = _asked_for(context)
    status = status_of(findings)
    return Verdict(
        status,
        findings,
        context.log.records,
        context.log.bytes,
        time.monotonic() - began,
        context.unread,
        context.log.stopped_at,
        context.live,
        context.log,
        str(unmendable(store.layout) or ""),
        context.predicted.recovered,
        _proved(context, findings) if scope.proof or status is Status.DAMAGED else None,
        context.predicted.facts,
        context.predicted.config,
        None if scope.watch is None else context.states().get(scope.watch),
    )


def _proved(context: VerifyContext, findings: Iterable[Finding]) -> VerifiedLog | None:
    """Return what of the log is in order; `tagged` if all units were read and have the tags codes of their messages."""
    found, groups = proved_of(context), context.scope.groups
    if found is None or found.copied is not None or (groups is not None and group_of()[_TAGS] not in groups):
        return found
    unread = set(context.unread) - set(not_asked_for(groups))
    return replace(found, tagged=not unread and all(finding.code != _TAGS for finding in findings))


def _asked_for(context: VerifyContext) -> list[Finding]:
    """Return the findings of the groups that are asked for, without those of groups that these need."""
    along = context.groups - (context.scope.groups or context.groups)
    if not along:
        return list(context.findings)
    groups = group_of()
    return [finding for finding in context.findings if groups[finding.code] not in along]


class CheckedParts(NamedTuple):
    """What other runs found in order in parts of a log. signature: of the store at that time."""

    signature: list[tuple[str, int, int]]
    left: list[PartResult]


def look_at(store: StoreReader, scope: Scope, number: int, jobs: int, *, now_ms: int | None = None) -> CheckedParts:
    """Return what one of `jobs` runs finds of its part, for the `verify` after all of them. Raise Unreadable.

    Nothing for a store that somebody writes, or that runs cannot divide.
    """
    from .parallel import look

    load_checks()
    context, signature = VerifyContext(store, scope, now_ms), _signature(store)
    if context.live:
        return CheckedParts(signature, [])
    return CheckedParts(signature, look(context, parts_of(context), number, jobs))


def together(parts: Iterable[CheckedParts]) -> CheckedParts | None:
    """Return all parts of a log, without those that saw another store than the first one."""
    first: CheckedParts | None = None
    same: list[PartResult] = []
    for part in parts:  # one at a time: each may be large
        first = first or CheckedParts(part.signature, same)
        same += part.left if part.signature == first.signature else []
    return first if same else None


def _run_until_settled(
    store: StoreReader,
    scope: Scope,
    now_ms: int | None,
    progress: Callable[[int], None] | None,
    stop: Callable[[], bool] | None,
    jobs: int,
    looked_at: CheckedParts | None,
) -> VerifyContext:
    """Run the checks; again if the store has changed meanwhile and was not known to change, or has outlived damage."""
    changing = False
    for attempt in range(_ATTEMPTS):
        store.layout.version_named = scope.broker_version or ""
        context = VerifyContext(store, scope, now_ms, stop, changing=changing)
        before, known = _signature(store), context.live
        last = attempt == _ATTEMPTS - 1
        can_merge = looked_at is not None and before == looked_at.signature and not known
        try:
            _run(context, progress, jobs, looked_at.left if looked_at and can_merge else ())
        except Missing:  # a broker has deleted its oldest file
            if last:
                raise
        else:
            is_settled = not _has_outlived(context) if known else before == _signature(store)
            if last or is_settled:
                return context
        changing = True
        store = StoreReader(store.layout.root, store.config, rate_bytes=store.rate_bytes)
    raise AssertionError("the last attempt returns or raises")


def _has_outlived(context: VerifyContext) -> bool:
    """Return whether a log file in which something is wrong has expired since: what follows from that is over, too."""
    begin = context.begin_now()
    gone = {file.path for file in context.files if file.start < begin} if context.log.stopped_at is None else set()
    return any(one.severity > Severity.INFO and one.path in gone for one in context.findings)


def _signature(store: StoreReader) -> list[tuple[str, int, int]]:
    """Return names, times and lengths of files, of which each write to a store changes some."""
    layout, files = store.layout, store.log_files.files
    paths = [layout.lock, layout.abort, layout.checkpoint, *layout.commit_log_directories]
    found = []
    for path in [*map(os.fspath, paths), *(file.path for file in files)]:
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            continue
        found.append((path, status.st_mtime_ns, status.st_size))
    return found


def _run(context: VerifyContext, progress: Callable[[int], None] | None, jobs: int, done: Sequence[PartResult]) -> None:
    load_checks(context.groups)
    parts = parts_of(context)
    alone = partial(_read_parts, context, parts, progress)
    if context.store.layout.rocksdb_queues:
        from .queue_state import copy_queues  # few stores have a RocksDB

        copy_queues(context)
    if (jobs == 1 and not done) or len(parts) != 1:
        check_groups(context, alone)
        return
    from .parallel import Beside

    with Beside(context, parts, jobs, done) as others:
        check_groups(context, partial(others.run, LogPass(context), progress) if others else alone)


def _read_parts(context: VerifyContext, parts: list[ReadRange], progress: Callable[[int], None] | None) -> None:
    items = items_of(context, parts, crc=wants_crc(context))
    read(context, LogPass(context), items, progress)


def check_groups(context: VerifyContext, read_log: Callable[[], None]) -> None:
    """Run all checks of the groups of a run in their order. read_log: does the pass over the log."""
    for once, codes in checks_of(CHECKS.before, context.groups).items():
        with going_on(context, codes):
            once(context)
    read_log()
    with start_beside(context):
        _check_behind(context)
    for once in CHECKS.last.values():
        once(context)


def _check_behind(context: VerifyContext) -> None:
    late: list[str] = []
    stopped = bool(context.stopped())
    end = time.monotonic() + _GRACE_S
    for once, codes in checks_of(CHECKS.after, context.groups).items():
        if (stopped or context.stopped()) and time.monotonic() > end:
            late += codes
            continue
        with going_on(context, codes):
            once(context)
    if late:
        context.unread.append(f"not checked any more: {', '.join(sorted(late))}")


@last("I-015")
def every_byte_is_there(context: VerifyContext) -> None:
    """Report what could not be read, and the checks that ended there."""
    for one in of_unread():
        context.findings.add("I-015", one.path, one.message, offset=one.offset, length=one.length)
    for place, codes in ended(context).items():
        context.unread.append(f"{NOT_CHECKED}, {place}: {', '.join(sorted(codes))}")


def at_first_sight(seen: Description) -> Verdict:
    """Return the verdict on a store by what `describe` has read of it and little more. Raise Unreadable."""
    load_checks(_AT_FIRST_SIGHT)
    with StoreReader(seen.layout) as store:
        context = VerifyContext(store, Scope(quick=True, broker_version=seen.generation.version))
        for check in checks_of(CHECKS.before, _AT_FIRST_SIGHT):
            with going_on(context, ()):
                check(context)
        with going_on(context, ()):
            _topics_in_use(seen, context)
        live = seen.exit == "running"
        if seen.log.torn is not None and not live:  # a record that a broker writes is not whole yet
            from .log_chain import torn

            torn(context, seen.log.torn)
        found = [*context.findings, *_of_description(seen, context)]
    findings = sorted([*found, *of_unread()], key=order)
    if live:
        findings = [replace(finding, unclean=False) for finding in findings]
    kind = str(unmendable(seen.layout) or "")
    return Verdict(status_of(findings), findings, 0, 0, 0.0, [_NOT_READ], live=live, unmendable=kind)


def _of_description(seen: Description, context: VerifyContext) -> Iterator[Finding]:
    """Yield findings about what the walk over the log and the load of its files have shown."""
    log, root = seen.log, seen.layout.root
    yield from unfinished_change(root, left_over(seen.layout))
    if log.damaged_ranges:
        ranges = counted(log.damaged_ranges, "range", form=",")
        size = counted(log.damaged_bytes, f"byte in {ranges} is", f"bytes in {ranges} are", form=",")
        path = log.directories[0] if log.directories else root
        yield Finding.of("I-020", path, f"{size} damaged", count=log.damaged_ranges)
    if gone := seen.lost_end:
        yield end_is_gone(seen.layout, gone, 0)
    elif seen.end_is_lost and log.torn is None:
        text = f"queues name a message at {log.end:,}, where the log ends"
        text += context.again or ": that message is gone"
        yield Finding.of("I-186", root, text, **context.behind_the_end)
    lacking = not (any(queue.max_offset for queue in seen.queues) or context.store.queues_problem)
    stopped = seen.exit == "clean" and log.first_store_timestamp is not None
    if lacking and stopped and not context.waits(context.log.start):
        who = "brokers 4.3 and 5.1 do" if seen.layout.dledger is None else "a start does"
        text = f"no message has a queue unit, but there is no abort file: {who} not look for them"
        yield Finding.of("I-114", seen.layout.abort, text)
    if seen.restart is not None and not seen.restart.file:
        yield would_not_start(root, seen.restart.version, seen.restart.reason)
    if seen.exit != "running":  # a file that a broker makes has another length
        yield from _of_lengths(seen, root)
    if seen.restart is not None or seen.layout.dledger is not None:
        from .config_files import config_start_of

        config = config_start_of(context)
        if config.refuses:
            yield would_not_start(root, config.version, config.refuses)
        yield from forgotten(root, config)


def _topics_in_use(seen: Description, context: VerifyContext) -> None:
    """Check the topics of queues. The newest record is the last one that a queue names: the log was not read."""
    from ..search.log_search import never_delivered
    from ..start.config import ConfigStart, config_start

    ranges = {QueueId(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in seen.queues}
    undelivered = None if seen.exit == "running" else partial(never_delivered, context.store)
    context.kept(ConfigStart, lambda: config_start(seen.layout, context.profile, ranges, undelivered))
    context.log.last = [queue.last_position for queue in seen.queues if queue.last_position is not None]
    CHECKS.after["I-150"](context)


def _of_lengths(seen: Description, root: Path) -> Iterator[Finding]:
    """Yield what keeps a plan or a timer from its work, by lengths and names of files alone."""
    from ..plan.normalize import normalize  # a run of few checks needs neither plan nor start
    from ..timer.start import load_timer

    try:
        snapshot = Snapshot.of(seen.layout)
    except Unsupported:
        return
    try:
        normalize(snapshot, any_length=True)
    except Refused as error:
        yield Finding.of("I-187", root, f"recovery is not possible yet: {error}")
    except UnreadableRange:
        return  # it is noted
    profile = profile_of(seen.generation.version)
    timer = load_timer(snapshot, profile) if profile.timer and snapshot.has_timer else None
    if isinstance(timer, Refusal):
        yield would_not_start(root, profile.version, f"{timer.reason} ({timer.path})")


def check_topic(store: StoreReader, topic: str, queue_id: int | None = None) -> None:
    """Raise InvalidInput for a topic that nothing in a store names, and for a queue that the topic does not have.

    Directories of queues name topics, so does topics.json, and the log if queues cannot be read.
    """
    layout = store.layout
    parts = (layout.consume_queue, layout.batch_consume_queue, layout.consume_queue_ext, layout.compaction_queues)
    try:
        configured = Topics.read(layout.config)
    except StoreError:
        configured = None
    served = None if configured is None else configured.queues(topic)
    if served is None and not any(has_topic(part, topic) for part in parts):
        if _is_in_log(store, topic):
            return
        names = {each.name for part in parts if part.is_dir() for each in os.scandir(part)}
        names |= {*configured.known} if configured else set()
        hint = did_you_mean(topic, names, "mqstore inspect lists the topics")
        raise InvalidInput(f"no such topic: {topic}", path=layout.root, hint=hint)
    if queue_id is not None:
        there = {q.queue_id for part in parts for q in queue_directories(part) if q.topic == topic}
        there.update(range(served or 0))
        if queue_id not in there:
            queues = ", ".join(map(str, sorted(there)[:_QUEUES_SHOWN])) or "none"
            more = ", …" if len(there) > _QUEUES_SHOWN else ""
            raise InvalidInput(f"{topic} has no queue {queue_id}", path=layout.root, hint=f"it has {queues}{more}")


def _is_in_log(store: StoreReader, topic: str) -> bool:
    """Return whether the log has a message of the topic; searched only if queues cannot be read."""
    if is_pattern(topic) or not store.queues_unread:
        return False
    try:
        return any(True for _ in find(store, Selection(topic=topic), count=1))
    except NotFound:
        return False
