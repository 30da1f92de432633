"""What follows when all units of a queue have been seen: its end, its front, its dead tail."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats.message import SMALLEST
from ..broker.dispatch import LMQ_PREFIX
from ..broker.snapshot import QueueId
from ..counted import counted
from ..findings.catalogue import Severity
from .context import Scene
from .queue_state import Missing, QueueCheck, Queues, may_have_none
from .queue_units import QueuePass

Ints = npt.NDArray[np.int64]


def report_missing(scene: Scene, queues: Queues, check: QueueCheck) -> None:
    """Messages that no unit names (I-070)."""
    queue, known = check.queue, queues.topics
    deleted = (
        known is not None
        and queue.topic not in known
        and not queue.topic.startswith(LMQ_PREFIX)
        and not queues.has_directory(queue.topic)
        and bool(queues.paths)
    )
    there = check.reader.exists and (queues.in_database or bool(check.reader.files.files))
    if not there and not deleted and not scene.live:
        _report_no_queue(scene, queues, check)
        return
    for missing in check.missing:
        if scene.live and _there_now(queues, missing, queue):
            continue
        text = f"is missing: message {missing.first}, record at {missing.position}, has none"
        more: dict[str, Any] = {}
        if deleted:
            more["severity"] = Severity.WARNING
            text += ": the topic was deleted, it is not in topics.json"
        elif is_late(scene, missing):
            more.update(severity=Severity.INFO, unclean=not scene.live)
            text += ": not dispatched yet"
        end = missing.first + missing.count
        check.reader.report_range(scene.findings, "I-070", missing.first, end, text, **more)


def _report_no_queue(scene: Scene, queues: Queues, check: QueueCheck) -> None:
    """A queue that has no file on the disk (I-070), with all messages that the log has of it."""
    counts, positions = check.missing_counts
    if not len(counts):
        return
    count = int(counts.sum())
    many = counted(count, "message", form=",")
    alone = "" if queues.any_there else ", and so are all others"
    text = f"the queue {check.queue} is missing{alone}: the log has {many} of it"
    more: dict[str, Any] = {}
    if scene.crashed and bool((positions >= scene.log.dispatched).all()):
        more = {"severity": Severity.INFO, "unclean": True}
        text += ", not dispatched yet"
    topic, queue_id = check.queue
    if not check.reader.exists and may_have_none(scene, check.queue):
        more = {"severity": Severity.WARNING}
        text += "; or the broker has enableMultiDispatch=false: then say so with --set"
    more |= {"count": count, "topic": topic, "queue_id": queue_id}
    scene.findings.add("I-070", check.reader.directory, text, **more)


def is_late(scene: Scene, missing: Missing) -> bool:
    """What is missing lies behind the last dispatched record of a store that was not shut down."""
    return (scene.crashed or scene.live) and missing.position >= scene.log.dispatched


def _there_now(queues: Queues, missing: Missing, queue: QueueId) -> bool:
    """A running broker has made the units since, perhaps in a new file."""
    ends = np.array([missing.first, missing.first + missing.count - 1], np.int64)
    units = queues.reader(queue).lookup(ends)
    return bool((units["size"] > 0).all()) and int(units["physical_offset"][0]) == missing.position


def report_ends(scene: Scene, queues: Queues, check: QueueCheck, seen: QueuePass) -> None:
    """How the queue begins and ends."""
    if check.reader.vanished or not check.reader.exists:
        return
    _dead_units(scene, check, seen)
    _no_message(scene, queues, check, seen)
    _max_offset(scene, queues, check, seen)
    if seen.first_file_gone and check.reader.files.files:
        file = check.reader.files.files[0]
        only = len(check.reader.files.files) == 1
        why = "the queue keeps its last file" if only else "a broker deletes it at its next round"
        _add(scene, check, "I-085", file.path, f"all records of this file are expired: {why}")


def _add(scene: Scene, check: QueueCheck, code: str, path: str, text: str, **more: Any) -> None:
    topic, queue_id = check.queue
    text = f"{check.queue}: {text}"
    scene.findings.add(code, path, text, topic=topic, queue_id=queue_id, **more)


def _dead_units(scene: Scene, check: QueueCheck, seen: QueuePass) -> None:
    """Units behind the end of the queue are dead (I-062, I-067); those of lost records are damage."""
    come_back = scene.profile.dispatch.counts_puts
    severity = Severity.WARNING if come_back else Severity.INFO
    why = "a broker of this version counts them again (B21)" if come_back else "a broker cuts them"
    report, findings = check.reader.report_range, scene.findings
    for first, end in seen.behind.ranges():
        text = f"is dead, it lies behind the queue's end: {why}"
        report(findings, "I-062", first, end, text, severity=severity)
    behind = f"it lies behind the log's end {scene.log.end}"
    for first, end in seen.beyond.ranges():
        if _is_lost(scene, check, first):
            report(findings, "I-067", first, end, f"names a lost record, {behind}")
        else:
            report(findings, "I-067", first, end, f"is dead, {behind}: {why}", severity=severity)


def _is_lost(scene: Scene, check: QueueCheck, offset: int) -> bool:
    """The record of a unit behind the log's end was not cut off: it never came to the disk, or went.

    What a broker cuts stays where it was, or goes with the last files. So a record that lies
    before the end of the files, in none of them, is lost; or one in a file that is zero there,
    unless a broker has started and stopped since. Without any record the whole log is.
    """
    if not scene.log.records:
        return True
    position = int(check.reader.lookup(np.array([offset], np.int64))["physical_offset"][0])
    files = scene.store.log_files
    if files.file_at(position) is None:
        return position < files.end
    return scene.crashed and not files.read(position, SMALLEST).strip(b"\0")


def _no_message(scene: Scene, queues: Queues, check: QueueCheck, seen: QueuePass) -> None:
    """A queue with files names some record, and the last unit does (I-072, I-086, I-087)."""
    files = check.reader.files.files
    if not files:
        return
    if seen.ends_pre_filled and seen.real:
        path = files[-1].path
        _add(scene, check, "I-087", path, "its last unit fills a front and is no message")
    elif seen.ends_pre_filled:
        _add(scene, check, "I-072", files[0].path, "it has units that fill the front, and no other")
        _add(scene, check, "I-087", files[0].path, "its last unit fills a front and is no message")
    elif not seen.real:
        text, more = "its files hold no valid unit", {}
        rules = scene.profile.queues
        refuses = rules.empty_last_refuses and not scene.profile.dispatch.when_clean
        if refuses and not scene.crashed and scene.log.dispatched < scene.log.end:
            text += "; queues are behind the log, so a 5.1 broker does not start (B16)"
            more["severity"] = Severity.FATAL
        _add(scene, check, "I-086", check.reader.directory, text, **more)
    elif seen.live_end < 0 and (seen.beyond or seen.behind):
        text = "all its units are dead, as a cut of the log leaves them"
        _add(scene, check, "I-086", check.reader.directory, text, severity=Severity.INFO)


def _max_offset(scene: Scene, queues: Queues, check: QueueCheck, seen: QueuePass) -> None:
    """The queue ends with the last message that the log has of it (I-075)."""
    wanted = scene.log.next_offset.get(check.queue)
    if wanted is None or scene.scope.quick or scene.live or not scene.log.complete:
        return
    end = max(seen.live_end, 0)
    ahead = max((stop for _, stop in seen.dead), default=0)
    path, offset = check.reader.place(max(end - 1, 0))
    if end > wanted:
        text = f"it ends at {end}, the log's last message of it is {wanted - 1}"
        _add(scene, check, "I-075", path, text, offset=offset)
    elif end < wanted:
        text = f"it ends at {end}, the log has messages up to {wanted - 1}"
        behind = [m for m in check.missing if m.first + m.count > end]
        more: dict[str, Any] = {}
        if behind and all(is_late(scene, m) for m in behind):
            more = {"severity": Severity.INFO, "unclean": not scene.live}
            text += ": not dispatched yet"
        _add(scene, check, "I-075", path, text, offset=offset, **more)
    elif ahead > wanted:
        text = f"dead units follow its end {wanted}, up to {ahead - 1}"
        _add(scene, check, "I-075", path, text, offset=offset, severity=Severity.INFO)
