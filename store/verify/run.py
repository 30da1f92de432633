"""Running the checks: `verify` from the first to the last, before the log, in one pass over it, behind it.

For `inspect`, which reads little of a store, what is wrong at first sight: names and sizes of files, what a load
refuses, the configuration, damage in the part of the log that was walked. The verdict that these make is never "Safe
to start": the rest was not looked at.

A topic or queue that a run is confined to must be there (`check_topic`): a mistyped one is never clean.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ..broker.load_rules import Refusal
from ..broker.profiles import profile_of
from ..broker.snapshot import QueueId, Snapshot, unmendable
from ..broker.topics import Topics
from ..counted import counted
from ..disk.byte_reader import aside, noting
from ..disk.layout import has_topic, queue_directories
from ..errors import InvalidInput, Missing, NotFound, Refused, StoreError, UnreadableRange, Unsupported
from ..findings.catalogue import GROUPS, group_of
from ..findings.findings import Finding, order
from ..search.find import find
from ..search.selection import Selection, is_pattern
from ..search.store import StoreReader
from ..session.journal import left_over
from .context import NOT_CHECKED, Scope, VerifyContext, ended, going_on, never, of_unread
from .log_pass import LogPass, ReadRange, items_of, parts_of, read, wants_crc
from .register import CHECKS, Once, checks_of, last
from .start import cut_off, forgotten, proved_of, start_beside
from .verdict import Status, Verdict, status_of

if TYPE_CHECKING:
    from ..inspect.description import Description
    from .parallel import PartResult


MODULES = {
    "commit_log": "log_chain log_order log_records log_system",
    "consume_queue": "consume_queue queue_batches queue_files",
    "index": "index_files index_log",
    "timer": "timer_log timer_wheel",
    "config": "config_files config_entries",
}
"""The modules with the checks of a group; one that is not here has the name of its group."""
_ATTEMPTS = 3
"""Runs over a store whose oldest files are deleted meanwhile, or that has begun to change."""
_GRACE_S = 5.0
"""How long the checks behind the log may take when the run is to end."""
_AT_FIRST_SIGHT = frozenset({"layout", "config"})
_QUEUES_SHOWN = 16
_NOT_READ = "records, queues, index and timer one by one, and what a broker's start does to them"


def load_checks(groups: Iterable[str] = GROUPS) -> None:
    """Import the modules of checks of some groups: each registers its own."""
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
    looked_at: LookedAt | None = None,
) -> Verdict:
    """Check every invariant of docs/invariants.md. Writes nothing. Raises Unreadable.

    store: one that is open, or its root directory (then Missing and NotAStore, too).
    progress: called with the log position reached. stop: asked now and then whether to end with
    what there is. jobs: processes, each of which looks at a part of the log; 1 where they may not.
    looked_at: what others have left of parts of the log (`look_at`).
    """
    if not isinstance(store, StoreReader):
        with StoreReader(store) as opened:
            return verify(opened, scope, now_ms=now_ms, progress=progress, stop=stop, jobs=jobs, looked_at=looked_at)
    began = time.monotonic()
    scope = scope or Scope()
    with aside(store.rate_bytes is not None), noting():
        context = _settled(store, scope, now_ms, progress, stop, jobs, looked_at)
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
        proved_of(context) if scope.proof or status is Status.DAMAGED else None,
        context.predicted.facts,
        context.predicted.config,
        None if scope.watch is None else context.states().get(scope.watch),
    )


def _asked_for(context: VerifyContext) -> list[Finding]:
    """The findings of the groups that are asked for; checks of others may have run along."""
    along = context.groups - (context.scope.groups or context.groups)
    if not along:
        return list(context.findings)
    groups = group_of()
    return [finding for finding in context.findings if groups[finding.code] not in along]


class LookedAt(NamedTuple):
    """What is in order in parts of a log. signature: of the store when they were looked at."""

    signature: list[tuple[str, int, int]]
    left: list[PartResult]


def look_at(store: StoreReader, scope: Scope, number: int, jobs: int, *, now_ms: int | None = None) -> LookedAt:
    """What one of `jobs` runs leaves for the `verify` behind them all. Raises Unreadable.

    Nothing of a store that somebody writes, and where a run cannot be one of several.
    """
    from .parallel import look

    load_checks()
    context, signature = VerifyContext(store, scope, now_ms), _signature(store)
    if context.live:
        return LookedAt(signature, [])
    return LookedAt(signature, look(context, context.groups, parts_of(context), number, jobs))


def together(parts: Iterable[LookedAt]) -> LookedAt | None:
    """All parts of a log; those that saw another store than the first one are left out."""
    first: LookedAt | None = None
    same: list[PartResult] = []
    for part in parts:  # one at a time: each may be large
        first = first or LookedAt(part.signature, same)
        same += part.left if part.signature == first.signature else []
    return first if same else None


def _settled(
    store: StoreReader,
    scope: Scope,
    now_ms: int | None,
    progress: Callable[[int], None] | None,
    stop: Callable[[], bool] | None,
    jobs: int,
    looked_at: LookedAt | None,
) -> VerifyContext:
    """Run until the store has not changed under the run, or was known to change."""
    changing = False
    for attempt in range(_ATTEMPTS):
        context = VerifyContext(store, scope, now_ms, stop or never, changing=changing)
        before, known = _signature(store), context.live
        last = attempt == _ATTEMPTS - 1
        can_merge = looked_at is not None and before == looked_at.signature and not known
        try:
            _run(context, progress, jobs, looked_at.left if looked_at and can_merge else ())
        except Missing:  # a broker has deleted its oldest file
            if last:
                raise
        else:
            if known or last or before == _signature(store):
                return context
        changing = True
        store = StoreReader(store.layout.root, store.config, rate_bytes=store.rate_bytes)
    raise AssertionError("the last attempt returns or raises")


def _signature(store: StoreReader) -> list[tuple[str, int, int]]:
    """What no one writes to a store without changing."""
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


def _run(context: VerifyContext, progress: Callable[[int], None] | None, jobs: int, left: Sequence[PartResult]) -> None:
    """One run."""
    groups = context.groups
    load_checks(groups)
    parts = parts_of(context)
    if context.store.layout.rocksdb_queues:
        from .queue_state import copy_queues  # few stores have one

        copy_queues(context, groups)
    if (jobs == 1 and not left) or len(parts) != 1:
        check_groups(context, groups, partial(_read_parts, context, groups, parts, progress))
        return
    from .parallel import Beside

    with Beside(context, groups, parts, jobs, left) as others:
        beside = partial(others.run, LogPass(context, groups), progress)
        alone = partial(_read_parts, context, groups, parts, progress)
        check_groups(context, groups, beside if others else alone)


def _read_parts(
    context: VerifyContext, groups: frozenset[str], parts: list[ReadRange], progress: Callable[[int], None] | None
) -> None:
    """The pass over the log in one process."""
    items = items_of(context, parts, crc=wants_crc(context, groups))
    read(context, LogPass(context, groups), items, progress)


def check_groups(context: VerifyContext, groups: frozenset[str], read_log: Callable[[], None]) -> None:
    """All checks of some groups in their order. read_log: the pass over the log."""
    for once in checks_of(CHECKS.before, groups):
        with going_on(context, _codes(CHECKS.before, once)):
            once(context)
    read_log()
    with start_beside(context, groups):
        _check_behind(context, groups)
    for once in CHECKS.last.values():
        once(context)


def _check_behind(context: VerifyContext, groups: frozenset[str]) -> None:
    """The checks behind the log."""
    late: list[str] = []
    stopped = bool(context.stopped())
    end = time.monotonic() + _GRACE_S
    for once in checks_of(CHECKS.after, groups):
        if (stopped or context.stopped()) and time.monotonic() > end:
            late += _codes(CHECKS.after, once)
            continue
        with going_on(context, _codes(CHECKS.after, once)):
            once(context)
    if late:
        context.unread.append(f"not checked any more: {', '.join(sorted(late))}")


def _codes(moment: dict[str, Once], check: Once) -> list[str]:
    """What a check of some moment is for."""
    return [code for code, registered in moment.items() if registered is check]


@last("I-015")
def every_byte_is_there(context: VerifyContext) -> None:
    """What was read of the files could be read."""
    for one in of_unread():
        context.findings.add("I-015", one.path, one.message, offset=one.offset, length=one.length)
    for place, codes in ended(context).items():
        context.unread.append(f"{NOT_CHECKED}, {place}: {', '.join(sorted(codes))}")


def at_first_sight(seen: Description) -> Verdict:
    """The verdict on a store by what `describe` has read of it and little more. Raises Unreadable."""
    load_checks(_AT_FIRST_SIGHT)
    with StoreReader(seen.layout) as store:
        context = VerifyContext(store, Scope(quick=True, broker_version=seen.generation.version))
        for check in checks_of(CHECKS.before, _AT_FIRST_SIGHT):
            with going_on(context, ()):
                check(context)
        live = seen.exit == "running"
        if seen.log.torn is not None and not live:  # what somebody writes is not whole yet
            from .log_chain import torn

            torn(context, seen.log.torn)
        told = [*context.findings, *_of_description(seen, context)]
    findings = sorted([*told, *of_unread()], key=order)
    if live:
        findings = [replace(finding, unclean=False) for finding in findings]
    kind = str(unmendable(seen.layout) or "")
    return Verdict(status_of(findings), findings, 0, 0, 0.0, [_NOT_READ], live=live, unmendable=kind)


def _of_description(seen: Description, context: VerifyContext) -> Iterator[Finding]:
    """What the walk over the log and the load of its files have shown."""
    log, root = seen.log, os.fspath(seen.layout.root)
    yield from cut_off(root, left_over(seen.layout))
    if log.damaged_ranges:
        ranges = counted(log.damaged_ranges, "range", form=",")
        size = counted(log.damaged_bytes, f"byte in {ranges} is", f"bytes in {ranges} are", form=",")
        text = f"{size} damaged"
        path = os.fspath(log.directories[0]) if log.directories else root
        yield Finding.of("I-020", path, text, count=log.damaged_ranges)
    if seen.end_is_lost and log.torn is None:
        text = f"queues name a message at {log.end:,}, where the log ends"
        text += context.again or ": that message is gone"
        yield Finding.of("I-186", root, text, **context.behind_the_end)
    lacking = not (any(queue.max_offset for queue in seen.queues) or context.store.queues_problem)
    if lacking and seen.exit == "clean" and log.first_store_timestamp is not None:
        who = "brokers 4.3 and 5.1 do" if seen.layout.dledger is None else "a start does"
        text = f"no message has a queue unit, but there is no abort file: {who} not look for them"
        yield Finding.of("I-114", os.fspath(seen.layout.abort), text)
    if seen.restart is not None and not seen.restart.file:
        text = f"a broker {seen.restart.version} would not start: {seen.restart.reason}"
        yield Finding.of("I-180", root, text)
    if seen.exit != "running":  # files that are being made have other lengths
        yield from _of_lengths(seen, root)
    if seen.restart is not None:  # there is a plain log
        yield from _of_config(seen, context.store, root)


def _of_lengths(seen: Description, root: str) -> Iterator[Finding]:
    """What keeps a plan or a timer off by the lengths and names of files alone."""
    from ..plan.normalize import normalize  # a run of few checks asks for neither plan nor start
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
        text = f"a broker {profile.version} would not start: {timer.reason} ({timer.path})"
        yield Finding.of("I-180", root, text)


def _of_config(seen: Description, store: StoreReader, root: str) -> Iterator[Finding]:
    from ..search.log_search import never_delivered
    from ..start.config import config_start

    ranges = {QueueId(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in seen.queues}
    profile = profile_of(seen.generation.version)
    undelivered = None if seen.exit == "running" else partial(never_delivered, store)
    found = config_start(seen.layout, profile, ranges, undelivered)
    if found.refuses:
        text = f"a broker {profile.version} would not start: {found.refuses}"
        yield Finding.of("I-180", root, text)
    yield from forgotten(root, found)


def check_topic(store: StoreReader, topic: str, queue_id: int | None = None) -> None:
    """Raise InvalidInput for a topic that nothing in a store names, and for a queue that it has not.

    Directories of queues name a topic, topics.json, and where there are no queues the log.
    """
    layout = store.layout
    parts = (*(layout.consume_queue, layout.batch_consume_queue), *(layout.consume_queue_ext, layout.compaction_queues))
    try:
        configured = Topics.read(layout.config)
    except StoreError:
        configured = None
    served = None if configured is None else configured.queues(topic)
    if served is None and not any(has_topic(part, topic) for part in parts):
        if _in_log(store, topic):
            return
        names = {each.name for part in parts if part.is_dir() for each in os.scandir(part)}
        near = get_close_matches(topic[:256], names.union(configured.known if configured else ()), 1)
        hint = f"did you mean {near[0]}?" if near else "mqstore inspect lists the topics"
        raise InvalidInput(f"no such topic: {topic}", path=layout.root, hint=hint)
    if queue_id is not None:
        there = {q.queue_id for part in parts for q in queue_directories(part) if q.topic == topic}
        there.update(range(served or 0))
        if queue_id not in there:
            queues = ", ".join(map(str, sorted(there)[:_QUEUES_SHOWN])) or "none"
            more = ", …" if len(there) > _QUEUES_SHOWN else ""
            raise InvalidInput(f"{topic} has no queue {queue_id}", path=layout.root, hint=f"it has {queues}{more}")


def _in_log(store: StoreReader, topic: str) -> bool:
    """Whether the log has a message of it; only asked where no queues tell."""
    if is_pattern(topic) or not store.queues_unread:
        return False
    try:
        return any(True for _ in find(store, Selection(topic=topic), count=1))
    except NotFound:
        return False
