"""Compaction topics: their sparse queues made from their logs, and what a compaction left behind.

Queue and log of a compaction topic have files of the same names; a broker refuses to start where one
of a pair is missing. The queue follows from the log, whose own mends are in `compaction_log.py`. Spec
06, 6.1; I-160, I-161, I-163 to I-166.

Logs of compaction topics: their length, the place each record names, torn records, the BLANK.

A record that is torn is taken from the commit log, where that still has its message. Spec 06, 6.1;
I-055, I-161, I-162, I-164.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import pairwise, zip_longest

import numpy as np

from ...formats import message_properties as names
from ...formats.blank import BLANK, MAGIC_BLANK
from ...formats.derive import dtype_of, offset_of
from ...formats.hashing import java_hash
from ...formats.hashing_columns import java_hash_column
from ...formats.message import MESSAGE
from ...formats.message_properties import crc_ok
from ...formats.property_columns import PropertyItems
from ...formats.sparse_consume_queue import END, UNIT, UNIT_BYTES
from ..broker.snapshot import QueueId
from ..broker.topics import json_bytes, read_json
from ..counted import counted
from ..disk.compressed import read_regular
from ..disk.file_queue import MappedFile, MappedFileQueue, file_name
from ..disk.files import Edit
from ..disk.layout import Layout, queue_directories
from ..errors import NotFound
from ..log.commit_log import Batch, CommitLog
from ..log.message import Mark
from ..queues.read import ConsumeQueue
from ..queues.units import Units
from ..search.queue_search import open_log
from ..search.store import StoreReader
from ..settings.read import BACKUP, read_config_file
from ..verify.compaction import (
    FEWEST_QUEUE_FILES,
    CompactedQueue,
    compacted_queues,
    leftovers,
    log_bytes,
)
from ..verify.context import Scope, VerifyContext

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


def restored(store: StoreReader, queue: CompactedQueue) -> dict[int, bytes]:
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
        found = {int(records.position[row]): _from_commit_log(store, queue, row, units, log) for row in rows}
    return {position: data for position, data in found.items() if data is not None}


def log_lengths(store: StoreReader, queue: CompactedQueue, queue_bytes: int, sizes: Counter[int]) -> dict[int, Edit]:
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


def log_edits(queue: CompactedQueue, lengths: Mapping[int, Edit], whole: Mapping[int, bytes]) -> Iterator[Edit]:
    """What the log of a queue needs. lengths: as `log_lengths`. whole: as `restored`."""
    closed = closed_files(queue, lengths)
    for file in queue.log_files:
        if file.start in lengths:
            yield lengths[file.start]
        if file.start in closed:
            yield from _blank(queue, file, closed[file.start])
    yield from _records(queue, whole)


def _wanted(store: StoreReader, sizes: Counter[int], file: MappedFile, queue_bytes: int) -> int:
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
    yield Edit("write", file.path, "go on in the next file", ("I-164",), end - file.start, len(data), data)


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
    store: StoreReader, queue: CompactedQueue, row: int, units: ConsumeQueue, log: CommitLog
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


_DEFAULT_BYTES = 10 << 20
_POSITIONS, _EMPTY = "queueOffsetMap", "empty"
_END_UNIT = UNIT.build(END)


def compaction_repair(layout: Layout, ranges: Mapping[QueueId, tuple[int, int]]) -> Iterator[Edit]:
    """The edits. ranges: (min, max) offset of each queue once it is mended. Raises Unreadable."""
    with StoreReader(layout) as store:
        scene = VerifyContext(store, Scope())
        for path in leftovers(scene):
            yield Edit("move", os.fspath(path), "left of a compaction", ("I-166",))
        sizes = log_sizes(layout)
        queues = compacted_queues(scene)
        size = _queue_file_bytes(layout, sizes, _least_step(queues))
        for queue in queues:
            whole = restored(store, queue)
            lengths = {} if size is None else log_lengths(store, queue, size, sizes)
            yield from log_edits(queue, lengths, whole)
            if size is not None:
                yield from _queue_edits(layout, queue, size, closed_files(queue, lengths), whole)
    yield from _position_edits(layout, ranges)


def _least_step(queues: Iterable[CompactedQueue]) -> int | None:
    """The least distance from the beginning of a log file to that of the next one; None without a next one."""
    steps = (behind.start - file.start for queue in queues for file, behind in pairwise(queue.log_files))
    return min(steps, default=None)


def _queue_file_bytes(layout: Layout, logs: Counter[int], step: int | None) -> int | None:
    """Length of a queue file: that of most files that fit their logs, else what is configured, else that of
    a broker that is not told, where the logs are as it makes them. None: nobody knows.

    step: as of `_least_step`. Files that are too long for it would lie over the next ones.
    """
    sizes = Counter[int]()
    for queue in queue_directories(layout.compaction_queues):
        with MappedFileQueue.open(queue.path) as files:
            sizes.update(file.size for file in files.files)

    def has_room(size: int) -> bool:
        return step is None or size * FEWEST_QUEUE_FILES <= step

    whole = [(size, n) for size, n in sizes.items() if size and size % UNIT_BYTES == 0 and has_room(size)]
    if whole:
        return max(whole, key=lambda row: (sum(logs[n] for n in logs if n % row[0] == 0), row[1]))[0]
    told = layout.broker_config.get_int("compactionCqMappedFileSize")
    wanted = max(1, (told or _DEFAULT_BYTES) // UNIT_BYTES) * UNIT_BYTES
    if has_room(wanted) and any(n % wanted == 0 and n >= FEWEST_QUEUE_FILES * wanted for n in logs):
        return wanted
    for size in sizes:
        for length in logs:
            times = round(length / max(1, size))
            if times >= FEWEST_QUEUE_FILES and length % (times * UNIT_BYTES) == 0 and has_room(length // times):
                return length // times
    return wanted if told and has_room(wanted) else None


def _queue_edits(
    layout: Layout,
    queue: CompactedQueue,
    size: int,
    closed: Container[int],
    whole: Mapping[int, bytes],
) -> Iterator[Edit]:
    """The queue files. closed: starts of those that others follow; what compaction wrote is not.

    whole: records by position as they will be.
    """
    there = {file.start: file for file in queue.queue_files}
    log = open_log(layout, queue.topic, queue.queue_id)
    with log.queue:
        for file in log.queue.files:
            units = _units_of(log_units(log.scan(file.start, file.end, crc=False, reuse=True)))
            for row in np.flatnonzero(np.isin(units["physical_offset"], list(whole))).tolist():
                units["tags_code"][row] = _tags_code(whole[int(units["physical_offset"][row])])
            known = there.pop(file.start, None)
            old = b"" if known is None else read_regular(known.path, size)
            data = _file(units, old, size, closed=file.start in closed)
            cut = known is not None and known.size != size
            if data is not None and (cut or data != old):
                path = os.fspath(queue.queue_path / file_name(file.start))
                reason = f"{counted(len(units), 'unit')} of records in the compaction log"
                pieces = ((0, data.rstrip(b"\0")),)
                yield Edit("create", path, reason, ("I-163",), length=size, pieces=pieces)
    for stray in there.values():
        yield Edit("move", stray.path, "no file of the compaction log is beside it", ("I-160",))


def log_units(items: Iterator[object]) -> Iterator[Units]:
    """The units of records of a compaction log, batch by batch."""
    for item in items:
        if not isinstance(item, Batch) or item.mark is Mark.EMBEDDED:
            continue
        columns = item.columns
        units = np.zeros(len(item), dtype_of(UNIT))
        units["physical_offset"] = item.position
        units["size"] = columns.ints("total_size")
        tags = PropertyItems(columns.ragged("properties")).find(names.TAGS)
        units["tags_code"] = java_hash_column(tags)
        units["store_time"] = columns.ints("store_timestamp")
        units["msg_base_offset"] = columns.ints("queue_offset")
        units["batch_size"] = 1
        units["compacted_offset"] = END["compacted_offset"]
        yield units


def _tags_code(record: bytes) -> int:
    properties = names.parse(MESSAGE.parse(record).properties)
    return java_hash(properties.get(names.TAGS, ""))


def _units_of(parts: Iterator[Units]) -> Units:
    """All of them in one array; the byte order stays that of the file."""
    found = list(parts)
    units = np.zeros(sum(map(len, found)), dtype_of(UNIT))
    at = 0
    for part in found:
        units[at : at + len(part)] = part
        at += len(part)
    return units


def _file(units: Units, old: bytes, size: int, *, closed: bool) -> bytes | None:
    """What a queue file is to hold; None where its units do not fit: then it stays."""
    data = units.tobytes()
    ends = closed or old[len(data) : len(data) + UNIT_BYTES] == _END_UNIT
    data += _END_UNIT if ends else b""
    return data.ljust(size, b"\0") if len(data) <= size else None


def _position_edits(layout: Layout, ranges: Mapping[QueueId, tuple[int, int]]) -> Iterator[Edit]:
    """position-checkpoint, its .bak, or what is left of it, names no offset that its queue does not have."""
    path = layout.compaction_log.parent / "position-checkpoint"
    if not path.is_file():
        return
    content, reasons = read_json(path), list[str]()
    backup = path.with_name(path.name + BACKUP)
    if content is None and backup.is_file():
        content, reasons = read_json(backup), [f"taken from {backup.name}: it cannot be read"]
    if content is None:
        left = read_config_file(path, path.name).value.get(_POSITIONS)
        rows = left if isinstance(left, dict) else {}
        known = {name: offset for name, offset in rows.items() if isinstance(offset, int)}
        content, reasons = {_EMPTY: not known, _POSITIONS: known}, ["what is left of it: it cannot be read"]
    table = content.get(_POSITIONS)
    if not isinstance(table, dict):
        return
    highest: Mapping[str, int] = {f"{queue.topic}_{queue.queue_id}": bounds[1] - 1 for queue, bounds in ranges.items()}
    wrong = {
        name: highest[name]
        for name, offset in table.items()
        if name in highest and isinstance(offset, int) and offset > max(highest[name], 0)
    }
    if wrong:
        table.update(wrong)
        reasons.append(f"{counted(len(wrong), 'position')} behind the end of their queue")
    if reasons:
        data = json_bytes(content)
        pieces = ((0, data),)
        reason = "; ".join(reasons)
        yield Edit("create", os.fspath(path), reason, ("I-165",), length=len(data), pieces=pieces)
