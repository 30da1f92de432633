"""Logs of compaction topics: their length, the place each record names, torn records, the BLANK.

A record that is torn is taken from the commit log, where that still has its message. Spec 06, 6.1;
I-055, I-161, I-162, I-164.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

import numpy as np

from ...formats.blank import BLANK, MAGIC_BLANK
from ...formats.derive import offset_of
from ...formats.message import MESSAGE
from ...formats.message_properties import crc_ok
from ..counted import counted
from ..disk.edits import Edit
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..disk.layout import Layout
from ..errors import NotFound
from ..log.commit_log import Batch, CommitLog
from ..queues.read import ConsumeQueue, queue_directories
from ..search.compaction import open_log
from ..search.store import Store
from ..verify.compaction import FEWEST_QUEUE_FILES, log_bytes
from ..verify.compaction_files import CompactedQueue

_SAME = (
    "total_size",
    "queue_offset",
    "body_crc",
    "body_length",
    "born_timestamp",
    "store_timestamp",
)
"""Fields of a record that are the same in both logs."""
_PLACE_AT = offset_of(MESSAGE, "physical_offset")


def log_sizes(layout: Layout) -> Counter[int]:
    """How many log files there are of each length. Raises Unreadable."""
    sizes: Counter[int] = Counter()
    for queue in queue_directories(layout.compaction_log):
        with MappedFileQueue.open(queue.path) as files:
            sizes.update(file.size for file in files.files)
    return sizes


def restored(store: Store, queue: CompactedQueue) -> dict[int, bytes]:
    """By position in the compaction log, torn records as the commit log has them.

    Raises Unreadable.
    """
    records = queue.records
    rows = np.flatnonzero(records.torn).tolist()
    if not rows:
        return {}
    try:
        units = store.queues.open(queue.topic, queue.queue_id)
    except NotFound:
        return {}
    with units, open_log(store.layout, queue.topic, queue.queue_id).queue as files:
        log = CommitLog(files)
        found = {
            int(records.position[row]): _from_commit_log(store, queue, row, units, log)
            for row in rows
        }
    return {position: data for position, data in found.items() if data is not None}


def log_lengths(
    store: Store, queue: CompactedQueue, queue_bytes: int, sizes: Counter[int]
) -> dict[int, Edit]:
    """By start of a file of the log, how its length is put right. Raises Unreadable.

    queue_bytes: length of the queue's files. sizes: as `log_sizes`.
    """
    found: dict[int, Edit] = {}
    for file, behind in zip_longest(queue.log_files, queue.log_files[1:]):
        for edit in _length(file, behind, _wanted(store, sizes, file, queue_bytes)):
            found[file.start] = edit
    return found


def closed_files(queue: CompactedQueue, lengths: Mapping[int, Edit]) -> dict[int, int]:
    """By start, where those files of the log will end that another one follows at once."""
    starts = {file.start for file in queue.log_files}
    ends = {
        file.start: file.start + lengths[file.start].length if file.start in lengths else file.end
        for file in queue.log_files
    }
    return {start: end for start, end in ends.items() if end in starts}


def log_edits(
    queue: CompactedQueue, lengths: Mapping[int, Edit], whole: Mapping[int, bytes]
) -> Iterator[Edit]:
    """What the log of a queue needs. lengths: as `log_lengths`. whole: as `restored`."""
    closed = closed_files(queue, lengths)
    for file in queue.log_files:
        if file.start in lengths:
            yield lengths[file.start]
        if file.start in closed:
            yield from _blank(queue, file, closed[file.start])
    yield from _records(queue, whole)


def _wanted(store: Store, sizes: Counter[int], file: MappedFile, queue_bytes: int) -> int:
    """Length of a log file: as configured, else that of most files, else the nearest that fits.

    Where no file is as configured and several agree, the option is what was changed.
    """
    least = FEWEST_QUEUE_FILES * queue_bytes
    usual = [row for row in sizes.most_common() if row[0] % queue_bytes == 0 and row[0] >= least]
    configured = store.config.get_int("compactionMappedFileSize")
    if configured is not None:
        size = log_bytes(configured, queue_bytes)
        changed = not sizes[size] and usual and usual[0][1] > 1
        return usual[0][0] if changed else size
    if file.size % queue_bytes == 0 and file.size >= least:
        return file.size
    near = (file.size + queue_bytes // 2) // queue_bytes * queue_bytes
    return usual[0][0] if usual else max(near, least)


def _length(file: MappedFile, behind: MappedFile | None, size: int) -> Iterator[Edit]:
    """The length of a file, where that leaves the file behind it its place."""
    if file.size == size:
        return
    if behind is not None and (file.end == behind.start or file.start + size > behind.start):
        return  # only the option differs from the one that the files were made with
    with MappedFileQueue.of_file(file.path, file.start) as files:
        if file.size > size and files.next_data(files.files[0], size) is not None:
            return  # what lies there is not thrown away
    reason = f"{counted(file.size, 'byte')}, not {size}: its queue file does not fit"
    yield Edit("truncate", file.path, reason, ("I-161",), length=size)


def _blank(queue: CompactedQueue, file: MappedFile, file_end: int) -> Iterator[Edit]:
    """A full file is closed behind its last record. file_end: of the file as it will be."""
    records = queue.records
    mine = (records.position >= file.start) & (records.position < file.end)
    if not mine.any() or (file_end == file.end and file_end in queue.blank_ends):
        return
    end = int((records.position[mine] + records.size[mine]).max())
    data: bytes = BLANK.build({"total_size": file_end - end, "magic_code": MAGIC_BLANK})
    if end + len(data) > file_end:
        return
    with MappedFileQueue.of_file(file.path, file.start) as files:
        if files.read(end, len(data)) == data:
            return
    yield Edit(
        "write", file.path, "go on in the next file", ("I-164",), end - file.start, len(data), data
    )


def _records(queue: CompactedQueue, whole: Mapping[int, bytes]) -> Iterator[Edit]:
    """Torn records, and those that name another place than their own."""
    records = queue.records
    for position in records.position[records.physical_offset != records.position].tolist():
        if position not in whole:
            data: bytes = MESSAGE.physical_offset.build(position)
            file = _file_of(queue.log_files, position)
            at = position - file.start + _PLACE_AT
            yield Edit("write", file.path, "its own place", ("I-162",), at, len(data), data)
    for position, data in whole.items():
        file = _file_of(queue.log_files, position)
        reason = "torn, and taken from the commit log"
        yield Edit("write", file.path, reason, ("I-055",), position - file.start, len(data), data)


def _from_commit_log(
    store: Store, queue: CompactedQueue, row: int, units: ConsumeQueue, log: CommitLog
) -> bytes | None:
    """The record as the commit log has it, with its place here; None where it is not there whole.

    units: of the queue in front of the commit log. log: the queue's own.
    """
    records = queue.records
    unit = units.unit(int(records.queue_offset[row]))
    if unit is None or unit.size != records.size[row]:
        return None
    found = store.log.records(np.array([unit.physical_offset], np.int64))
    torn = log.records(records.position[row : row + 1])
    if not len(found) or not len(torn) or not _is_message(found, torn, queue):
        return None
    data = store.log.queue.read(unit.physical_offset, unit.size)
    if crc_ok(data) is False:
        return None
    place: bytes = MESSAGE.physical_offset.build(int(records.position[row]))
    return data[:_PLACE_AT] + place + data[_PLACE_AT + len(place) :]


def _is_message(record: Batch, torn: Batch, queue: CompactedQueue) -> bool:
    """A record of the commit log is the same message of the queue, and nothing of it is damaged.

    A tombstone has its queue offset and its size, too, but not its time and its body.
    """
    columns = record.columns
    wanted = {name: int(torn.columns.ints(name)[0]) for name in _SAME}
    wanted |= {"queue_id": queue.queue_id, "physical_offset": int(record.position[0])}
    same = all(int(columns.ints(name)[0]) == value for name, value in wanted.items())
    topic = columns.ragged("topic")[0] == queue.topic.encode("utf-8", "surrogateescape")
    sound = record.body_crc_ok is not None and bool(record.body_crc_ok[0])
    return same and topic and sound and b"\0" not in columns.ragged("properties")[0]


def _file_of(files: Iterable[MappedFile], position: int) -> MappedFile:
    return next(file for file in files if file.start <= position < file.end)
