"""Which parts of the commit log a run reads, and what it leaves out, with the reason.

A whole run reads from the first file to the end; on a directory that a broker works in to where
the log ended when the run began: what comes behind that is no damage, only later.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import numpy as np

from ..errors import NotFound
from ..log.commit_log import Batch, CommitLog, Extent
from ..log.record_status import Mark
from ..log.splits import record_behind
from ..log.tail_history import Recent
from .catalogue import GROUPS
from .context import LogFacts, Scene

CUT_BYTES = 64 << 20
"""No batch has records on both sides of a multiple of it in a file: parts of the log begin there."""
SLICE_BYTES = 16 << 20
"""A sample is drawn of pieces of this size."""
_QUICK_FILES = 3
"""Files at the end of the log that a quick run reads: what older brokers look at when they start."""


_AT_ONCE = ("I-031", "I-051", "I-053", "I-128", "I-129", "I-133", "I-136")
"""Statements about records that an earlier run may have read: what it knew of them is not kept."""


class Part(NamedTuple):
    """A range of the log that is read; stop None: to the end."""

    start: int
    stop: int | None


def not_asked_for(groups: frozenset[str] | None) -> list[str]:
    """What is said of the groups of checks that are not among these; None: all are."""
    others = [] if groups is None else [group for group in GROUPS if group not in groups]
    return [f"{', '.join(others)}: --only"] if others else []


def parts_of(scene: Scene) -> list[Part]:
    """What is to be read, in log order; tells `scene.unread` of the rest. Raises Unreadable."""
    files = scene.store.log_files
    start, scope = files.start, scene.scope
    scene.unread += not_asked_for(scope.groups)
    if scope.topic is not None:
        scene.unread.append("queues, index and configuration of other topics: --topic")
    stop = scene.store.log_end.position if scene.live else None
    if scope.start is not None and scope.start > start:
        start = scope.start
        scene.unread.append(f"the log before {start}: an earlier run has read it")
        if scope.earlier is None:
            scene.log.skipped = True
        else:
            scene.unread.append(f"{', '.join(_AT_ONCE)}: they need the log in one run")
    if scope.quick and len(files.files) > _QUICK_FILES and files.files[-_QUICK_FILES].start > start:
        start = files.files[-_QUICK_FILES].start
        _leave_out(scene, f"the log before {start}: --quick reads the last {_QUICK_FILES} files")
    if scope.since_ms is not None and (later := _file_of(scene, scope.since_ms)) > start:
        start = later
        _leave_out(scene, f"the log before {start}: its messages are older than --since")
    if scope.quick:
        scene.unread.append("CRCs of bodies, and queues against the log: --quick")
    if scope.sample_percent is not None and scope.sample_percent < 100:
        return _sample(scene, start, stop, scope.sample_percent)
    return [Part(start, stop)]


def items_of(scene: Scene, parts: list[Part], *, crc: bool) -> Iterator[Batch | Extent]:
    """The items of the parts, until the run is to end. Raises Unreadable."""
    log = scene.store.log
    scene.begin_reading()
    goes_on = scene.scope.start if scene.scope.earlier is not None else None
    for part in parts:
        exact = part.start <= log.min_offset or part.start == goes_on
        start = part.start if exact else _begin(log, part)
        for item in scan(scene, start, part.stop, crc=crc):
            if is_ended(scene, item):
                return
            yield item


def scan(scene: Scene, start: int, stop: int | None, *, crc: bool) -> Iterator[Batch | Extent]:
    """The log from a record on, in batches that are the same from wherever it is read."""
    log, recent = scene.store.log, _recent(scene.log)
    return log.scan(start, stop, crc=crc, recent=recent, cut_bytes=CUT_BYTES, reuse=True)


def is_ended(scene: Scene, item: Batch | Extent) -> bool:
    """The run is to end in front of this item; says so."""
    reason = scene.stopped()
    if reason:
        position = _where_to_go_on(scene, item)
        scene.unread.append(f"the log from {position} on: {reason}")
        scene.log.stopped_at = position
    return bool(reason)


def _recent(facts: LogFacts) -> Recent:
    """The records in front of a run that goes on: what is dead behind the end is told by them."""
    recent = Recent()
    if facts.last:
        recent.remember(np.array(facts.last, np.int64), facts.last_timestamp)
    return recent


def _where_to_go_on(scene: Scene, item: Batch | Extent) -> int:
    """Where a run that stops at an item goes on: what ends the log has to be seen once more."""
    if isinstance(item, Extent):
        return min(item.position, max(scene.log.end, scene.log.start))
    if item.mark > Mark.AFTER_DAMAGE:
        return scene.log.end
    return int(item.position[0])


def _leave_out(scene: Scene, what: str) -> None:
    scene.unread.append(what)
    scene.log.skipped = True


def _file_of(scene: Scene, since_ms: int) -> int:
    """Start of the newest file whose first record is not younger; of the first file without one."""
    files, log = scene.store.log_files, scene.store.log
    for file in reversed(files.files):
        try:
            first = log.record(file.start + log.frame_of(file).payload)
        except NotFound:
            continue
        if 0 < int(first.columns.ints("store_timestamp")[0]) <= since_ms:
            return file.start
    return files.start


def _sample(scene: Scene, start: int, stop: int | None, percent: float) -> list[Part]:
    """Pieces drawn at random, other ones in each run; the last piece, with the end, is always one."""
    random = Random(time.time_ns())
    end = scene.store.log_files.end if stop is None else stop
    cuts = list(range(start, end, SLICE_BYTES))
    wanted = max(1, round(len(cuts) * percent / 100))
    drawn = sorted(random.sample(range(len(cuts) - 1), wanted - 1)) if wanted > 1 else []
    parts: list[Part] = []
    for number in [*drawn, len(cuts) - 1] if cuts else []:
        begin = cuts[number]
        behind = stop if number == len(cuts) - 1 else cuts[number + 1]
        if parts and parts[-1].stop == begin:
            parts[-1] = Part(parts[-1].start, behind)
        else:
            parts.append(Part(begin, behind))
    if wanted < len(cuts):
        text = f"{len(cuts) - wanted} of {len(cuts)} pieces of the log: --sample {percent:g}%"
        _leave_out(scene, text)
    return parts


def _begin(log: CommitLog, part: Part) -> int:
    """The first record of a part that begins anywhere; where there is none, its start."""
    file = log.queue.file_at(part.start)
    if file is None or part.start == file.start:
        return part.start
    found = record_behind(log, part.start)
    return file.end if found is None else found
