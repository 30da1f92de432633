"""What is wrong with a store at first sight: for `inspect`, which reads little of it.

Names and sizes of files, what a load refuses, the configuration, damage in the part of the log that
was walked. The verdict that these make is never "Safe to start": the rest was not looked at.

Whether a store has the topic or queue that a run is confined to: a mistyped one is never clean.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from ..broker.load_rules import Refusal
from ..broker.profiles import profile_of
from ..broker.snapshot import QueueId, Snapshot
from ..broker.topics import Topics
from ..counted import counted
from ..disk.layout import has_topic, queue_directories
from ..errors import InvalidInput, NotFound, Refused, StoreError, UnreadableRange, Unsupported
from ..findings.findings import Finding, order
from ..plan.normalize import mend
from ..search.find import find
from ..search.selection import Selection, is_pattern
from ..search.store import Store
from ..session.journal import barriers, unfinished
from ..start.config import config_start
from ..timer.start import load_timer
from .context import VerifyContext, going_on, of_unread
from .register import CHECKS, Scope, checks_of
from .run import load_checks
from .start import cut_off, forgotten
from .verdict import Verdict, status_of

if TYPE_CHECKING:
    from ..inspect.description import Description


_GROUPS = frozenset({"layout", "config"})
_NOT_READ = "records, queues, index and timer one by one, and what a broker's start does to them"


def at_first_sight(seen: Description) -> Verdict:
    """The verdict on a store by what `describe` has read of it and little more. Raises Unreadable."""
    load_checks(_GROUPS)
    with Store(seen.layout) as store:
        context = VerifyContext(store, Scope(quick=True, broker_version=seen.generation.version))
        for check in checks_of(CHECKS.before, _GROUPS):
            with going_on(context, ()):
                check(context)
        live = seen.exit == "running"
        told = [*context.findings, *_of_description(seen)]
    findings = sorted([*told, *of_unread()], key=order)
    if live:
        findings = [replace(finding, unclean=False) for finding in findings]
    return Verdict(status_of(findings), findings, 0, 0, 0.0, [_NOT_READ], live=live)


def _of_description(seen: Description) -> Iterator[Finding]:
    """What the walk over the log and the load of its files have shown."""
    log, root = seen.log, os.fspath(seen.layout.root)
    journal = unfinished(seen.layout.root, seen.layout.journal)
    yield from cut_off(root, journal.session if journal else "", bool(barriers(seen.layout)))
    if log.damaged_ranges:
        ranges = counted(log.damaged_ranges, "range", form=",")
        size = counted(
            log.damaged_bytes, f"byte in {ranges} is", f"bytes in {ranges} are", form=","
        )
        text = f"{size} no records"
        path = os.fspath(log.directories[0]) if log.directories else root
        yield Finding.of("I-020", path, text, log.damaged_ranges)
    if seen.restart is not None and not seen.restart.file:
        text = f"a broker {seen.restart.version} would not start: {seen.restart.reason}"
        yield Finding.of("I-180", root, text)
    if seen.exit != "running":  # files that are being made have other lengths
        yield from _of_lengths(seen, root)
    if seen.restart is not None:  # there is a plain log
        yield from _of_config(seen, root)


def _of_lengths(seen: Description, root: str) -> Iterator[Finding]:
    """What keeps a plan or a timer off by the lengths and names of files alone."""
    try:
        snapshot = Snapshot.of(seen.layout)
    except Unsupported:
        return
    try:
        mend(snapshot, any_length=True)
    except Refused as error:
        yield Finding.of("I-187", root, f"no recovery is possible yet: {error}")
    except UnreadableRange:
        return  # it is noted
    profile = profile_of(seen.generation.version)
    timer = load_timer(snapshot, profile) if profile.timer and snapshot.has_timer else None
    if isinstance(timer, Refusal):
        text = f"a broker {profile.version} would not start: {timer.reason} ({timer.path})"
        yield Finding.of("I-180", root, text)


def _of_config(seen: Description, root: str) -> Iterator[Finding]:
    ranges = {
        QueueId(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset)
        for queue in seen.queues
    }
    profile = profile_of(seen.generation.version)
    found = config_start(seen.layout, profile, ranges)
    if found.refuses:
        text = f"a broker {profile.version} would not start: {found.refuses}"
        yield Finding.of("I-180", root, text)
    yield from forgotten(root, found)


def check_topic(store: Store, topic: str, queue_id: int | None = None) -> None:
    """Raise InvalidInput for a topic that nothing in a store names, and for a queue that it has not.

    Directories of queues name a topic, topics.json, and where there are no queues the log.
    """
    layout = store.layout
    parts = (
        *(layout.consume_queue, layout.batch_consume_queue),
        *(layout.consume_queue_ext, layout.compaction_queues),
    )
    try:
        configured = Topics.read(layout.config)
    except StoreError:
        configured = None
    served = None if configured is None else configured.queues(topic)
    if served is None and not any(has_topic(part, topic) for part in parts):
        if _in_log(store, topic):
            return
        names = {each.name for part in parts if part.is_dir() for each in os.scandir(part)}
        near = get_close_matches(
            topic[:256], names.union(configured.known if configured else ()), 1
        )
        hint = f"did you mean {near[0]}?" if near else "mqstore inspect lists the topics"
        raise InvalidInput(f"no such topic: {topic}", path=layout.root, hint=hint)
    if queue_id is not None:
        there = {q.queue_id for part in parts for q in queue_directories(part) if q.topic == topic}
        there.update(range(served or 0))
        if queue_id not in there:
            queues = ", ".join(map(str, sorted(there)[:_SHOWN])) or "none"
            more = ", …" if len(there) > _SHOWN else ""
            raise InvalidInput(
                f"{topic} has no queue {queue_id}", path=layout.root, hint=f"it has {queues}{more}"
            )


_SHOWN = 16


def _in_log(store: Store, topic: str) -> bool:
    """Whether the log has a message of it; only asked where no queues tell."""
    if is_pattern(topic) or not store.queues_unread:
        return False
    try:
        return any(True for _ in find(store, Selection(topic=topic), count=1))
    except NotFound:
        return False
