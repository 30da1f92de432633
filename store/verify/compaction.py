"""Group H: compaction (docs/invariants.md, I-160 … I-167), and the files of high availability."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from ...formats.sparse_consume_queue import UNIT_BYTES
from ..columns.ordered import rows_of
from ..counted import counted
from ..disk.snapshot import QueueId
from ..errors import Missing
from ..settings.read import read_config_file
from .catalogue import Severity
from .compaction_files import CompactedQueue, compacted_queues, leftovers
from .context import Scene
from .queue_bounds import queue_bounds
from .register import after, before

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_BUSY = "compaction logs against their queues: a broker writes"
FEWEST_QUEUE_FILES = 5
"""A log file is at least so many times as long as its queue file."""


@before("I-160")
def files_come_in_pairs(scene: Scene) -> None:
    """Each file of the log has one of the queue by its name, and the reverse."""
    for queue in _at_rest(scene):
        of_log = {file.start: file.path for file in queue.log_files}
        of_queue = {file.start: file.path for file in queue.queue_files}
        for start in sorted(of_log.keys() ^ of_queue.keys()):
            path = of_log.get(start) or of_queue[start]
            other = "queue" if start in of_log else "log"
            _tell(scene, "I-160", queue, path, f"there is no file of the compaction {other} for it")


@before("I-161")
def files_have_sizes_that_fit(scene: Scene) -> None:
    """The length of log files follows from that of queue files."""
    wanted = scene.store.config.get_int("compactionMappedFileSize")
    for queue in compacted_queues(scene):
        sizes = {file.start: file.size for file in queue.queue_files}
        for file in queue.log_files:
            unit = sizes.get(file.start, 0)
            if not unit:
                continue
            if wanted is None:
                fits = file.size % unit == 0 and file.size >= FEWEST_QUEUE_FILES * unit
            else:
                fits = file.size == log_bytes(wanted, unit)
            if not fits or unit % UNIT_BYTES:
                text = f"{counted(file.size, 'byte')}; its queue file has {unit}"
                _tell(scene, "I-161", queue, file.path, text)


def log_bytes(wanted: int, queue_bytes: int) -> int:
    """Length of a log file for the option and the length of a queue file."""
    times, rest = divmod(wanted, queue_bytes)
    if times < FEWEST_QUEUE_FILES:
        return FEWEST_QUEUE_FILES * queue_bytes
    down = 0 < rest < queue_bytes / 2
    return (times if down else times + 1) * queue_bytes


@before("I-162")
def records_know_their_place(scene: Scene) -> None:
    """physical_offset of a record is its position in the compaction log."""
    for queue in compacted_queues(scene):
        records = queue.records
        wrong = records.physical_offset != records.position
        _torn(scene, queue)

        def told(row: int, queue: CompactedQueue = queue) -> str:
            records = queue.records
            return f"record at {records.position[row]} says {records.physical_offset[row]}"

        for file in queue.log_files:
            mine = wrong & (records.position >= file.start) & (records.position < file.end)
            starts = records.position - file.start
            scene.findings.add_rows(
                "I-162",
                file.path,
                mine,
                starts,
                starts + records.size,
                told,
                topic=queue.topic,
                queue_id=queue.queue_id,
            )


def _torn(scene: Scene, queue: CompactedQueue) -> None:
    """No record has a NUL byte in its properties. Told as in the commit log, I-055."""
    records = queue.records
    for row in np.flatnonzero(records.torn).tolist():
        position = int(records.position[row])
        file = next(f for f in queue.log_files if f.start <= position < f.end)
        text = f"record at {position}: a NUL byte in the properties: torn, keys and tags lost"
        scene.findings.add(
            "I-055",
            file.path,
            text,
            offset=position - file.start,
            length=int(records.size[row]),
            topic=queue.topic,
            queue_id=queue.queue_id,
            repair="compaction",
        )


@before("I-163")
def units_name_their_records(scene: Scene) -> None:
    """Unit and record agree, one for one, and queue offsets increase."""
    for queue in _at_rest(scene):
        units, records = queue.units, queue.records
        row, known = rows_of(records.position, units.physical_offset)
        same = known.copy()
        if len(records.position):
            same &= records.size[row] == units.size
            same &= records.queue_offset[row] == units.base
            same &= records.store_timestamp[row] == units.store_time
        ordered = np.append(True, np.diff(units.base) > 0)[: len(units.base)]
        _tell_units(scene, queue, ~(same & ordered))
        for odd in queue.odd_units:
            file = next(f for f in queue.queue_files if f.start <= odd.position < f.end)
            _tell(scene, "I-163", queue, file.path, odd.reason, odd.position - file.start)
        lost = ~rows_of(np.sort(units.physical_offset), records.position)[1]
        if lost.any():
            first = int(records.position[lost][0])
            text = f"no unit names the record at {first}"
            _tell(
                scene,
                "I-163",
                queue,
                os.fspath(queue.queue_path),
                text,
                count=int(lost.sum()),
                unclean=scene.crashed,
                severity=Severity.WARNING if scene.crashed else None,
            )


def _tell_units(scene: Scene, queue: CompactedQueue, wrong: Flags) -> None:
    units = queue.units

    def told(row: int) -> str:
        place = f"{counted(int(units.size[row]), 'byte')} at {units.physical_offset[row]}"
        return f"the unit of queue offset {units.base[row]} names {place}: not that message"

    for file in queue.queue_files:
        mine = wrong & (units.place >= file.start) & (units.place < file.end)
        starts = units.place - file.start
        ends = starts + UNIT_BYTES
        more = {"topic": queue.topic, "queue_id": queue.queue_id}
        scene.findings.add_rows("I-163", file.path, mine, starts, ends, told, **more)


@before("I-164")
def full_files_are_closed(scene: Scene) -> None:
    """A full queue file ends with the end unit, a full log file with a BLANK."""
    for queue in _at_rest(scene):
        units, records = queue.units, queue.records
        if not len(units.place) and not len(records.position):
            continue
        for file in queue.queue_files[:-1]:
            closed = any(file.start <= place < file.end for place in queue.closed)
            if not closed and not queue.before_gap(file):
                _tell(scene, "I-164", queue, file.path, "it has no end unit, and files follow")
        for file in queue.log_files[:-1]:
            if file.end not in queue.blank_ends and not queue.before_gap(file):
                _tell(scene, "I-164", queue, file.path, "it has no BLANK, and files follow")


@after("I-165")
def compaction_is_not_ahead(scene: Scene) -> None:
    """What position-checkpoint says was compacted is in the queue."""
    path = scene.store.layout.compaction_log.parent / "position-checkpoint"
    try:
        file = read_config_file(path, "position-checkpoint")
    except Missing:
        return
    if file.problem is not None:
        text = f"cannot be read: {file.problem.reason}"
        scene.findings.add("I-165", os.fspath(path), text, offset=file.problem.position)
    for record in file.records():
        if record["type"] != "compaction_position":
            continue
        queue, offset = QueueId(record["topic"], record["queue_id"]), record["offset"]
        if scene.scope.topic not in (None, queue.topic) or not scene.log.complete:
            continue
        bounds = queue_bounds(scene).of(queue)
        end = bounds[1] if bounds is not None else 0
        if offset >= max(end, 1):
            text = (
                f"{queue.topic}/{queue.queue_id}: compacted up to {offset}, the queue ends at {end}"
            )
            scene.findings.add(
                "I-165", os.fspath(path), text, topic=queue.topic, queue_id=queue.queue_id
            )


@before("I-166")
def nothing_is_left_of_a_compaction(scene: Scene) -> None:
    """No directory of a running compaction, no file that was to be deleted."""
    if scene.live:
        return
    for path in leftovers(scene):
        fatal = path.suffix == ".delete"
        text = "no broker loads a name that is no number" if fatal else "left of a compaction"
        level = Severity.FATAL if fatal else None
        scene.findings.add("I-166", os.fspath(path), text, severity=level)


@after("I-167")
def keys_are_there_once(scene: Scene) -> None:
    """Of each key only the newest message is left in what was compacted."""
    path = scene.store.layout.compaction_log.parent / "position-checkpoint"
    try:
        rows = list(read_config_file(path, "position-checkpoint").records())
    except Missing:
        return
    upto = {
        (row["topic"], row["queue_id"]): row["offset"]
        for row in rows
        if row["type"] == "compaction_position"
    }
    for queue in compacted_queues(scene):
        records = queue.records
        done = records.queue_offset <= upto.get((queue.topic, queue.queue_id), -1)
        keys = records.keys[done & (records.keys >= 0)]
        counts = np.unique(keys, return_counts=True)[1]
        if (extra := int((counts - 1).sum())) > 0:
            text = f"{counted(int((counts > 1).sum()), 'key is', 'keys are')} there more than once"
            _tell(scene, "I-167", queue, os.fspath(queue.log_path), text, count=extra)


def _at_rest(scene: Scene) -> list[CompactedQueue]:
    """The queues, or none where a broker may be writing: log and queue are not read at once."""
    queues = compacted_queues(scene)
    if not scene.live or not queues:
        return queues
    if _BUSY not in scene.unread:
        scene.unread.append(_BUSY)
    return []


def _tell(
    scene: Scene,
    code: str,
    queue: CompactedQueue,
    path: str,
    text: str,
    offset: int | None = None,
    **more: object,
) -> None:
    length = None if offset is None else UNIT_BYTES
    add = scene.findings.add
    of_queue = {"topic": queue.topic, "queue_id": queue.queue_id}
    add(code, path, text, offset=offset, length=length, **of_queue, **more)  # type: ignore[arg-type]
