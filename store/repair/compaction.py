"""Compaction topics: their sparse queues made from their logs, and what a compaction left behind.

Queue and log of a compaction topic have files of the same names; a broker refuses to start where one
of a pair is missing. The queue follows from the log, whose own mends are in `compaction_log.py`. Spec
06, 6.1; I-160, I-161, I-163 to I-166.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

import numpy as np

from ...formats import message_properties as names
from ...formats.derive import dtype_of
from ...formats.hashing import java_hash
from ...formats.hashing_columns import java_hash_column
from ...formats.message import MESSAGE
from ...formats.property_columns import Items
from ...formats.sparse_consume_queue import END, UNIT, UNIT_BYTES
from ..broker.config_json import dumps, loads
from ..counted import counted
from ..disk.edits import Edit
from ..disk.file_queue import MappedFileQueue, file_name
from ..disk.layout import Layout
from ..disk.regular_file import read_regular
from ..disk.snapshot import QueueId
from ..log.commit_log import Batch
from ..log.record_status import Mark
from ..queues.read import queue_directories
from ..queues.read_batches import Units
from ..search.compaction import open_log
from ..search.store import Store
from ..settings.read import BACKUP
from ..verify.compaction_files import CompactedQueue, compacted_queues, leftovers
from ..verify.context import Scene, Scope
from .compaction_log import closed_files, log_edits, log_lengths, log_sizes, restored

_LARGEST_BYTES = 64 << 20
_DEFAULT_BYTES = 10 << 20
_POSITIONS = "queueOffsetMap"
_END_UNIT = UNIT.build(END)


def compaction_repair(layout: Layout, ranges: Mapping[QueueId, tuple[int, int]]) -> Iterator[Edit]:
    """The edits. ranges: (min, max) offset of each queue once it is mended. Raises Unreadable."""
    with Store(layout.root, layout.broker_config) as store:
        scene = Scene(store, Scope())
        for path in leftovers(scene):
            yield Edit("move", os.fspath(path), "left of a compaction", ("I-166",))
        sizes = log_sizes(layout)
        size = _queue_file_bytes(layout, sizes)
        for queue in compacted_queues(scene):
            whole = restored(store, queue)
            lengths = log_lengths(store, queue, size, sizes)
            yield from log_edits(queue, lengths, whole)
            yield from _queue_edits(layout, queue, size, closed_files(queue, lengths), whole)
    yield from _position_edits(layout, ranges)


def _queue_file_bytes(layout: Layout, logs: Counter[int]) -> int:
    """Length of a queue file: that of most files that fit their logs, else what is configured."""
    sizes = Counter[int]()
    for queue in queue_directories(layout.compaction_queues):
        with MappedFileQueue.open(queue.path) as files:
            sizes.update(file.size for file in files.files)
    whole = [(size, n) for size, n in sizes.items() if size and size % UNIT_BYTES == 0]
    if whole:
        return max(whole, key=lambda row: (sum(logs[n] for n in logs if n % row[0] == 0), row[1]))[
            0
        ]
    for size in sizes:
        for length in logs:
            times, rest = divmod(length, max(1, round(length / max(1, size))))
            if not rest and times % UNIT_BYTES == 0:
                return times
    wanted = layout.broker_config.get_int("compactionCqMappedFileSize") or _DEFAULT_BYTES
    return max(1, wanted // UNIT_BYTES) * UNIT_BYTES


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
        tags = Items(columns.ragged("properties")).find(names.TAGS)
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
    """position-checkpoint, or its .bak, names no offset that its queue does not have."""
    path = layout.compaction_log.parent / "position-checkpoint"
    content, reasons = _content(path), list[str]()
    if content is None and path.is_file():
        backup = path.with_name(path.name + BACKUP)
        content, reasons = _content(backup), [f"taken from {backup.name}: it cannot be read"]
    table = content.get(_POSITIONS) if content is not None else None
    if content is None or not isinstance(table, dict):
        return
    highest: Mapping[str, int] = {
        f"{queue.topic}_{queue.queue_id}": bounds[1] - 1 for queue, bounds in ranges.items()
    }
    wrong = {
        name: highest[name]
        for name, offset in table.items()
        if name in highest and isinstance(offset, int) and offset > max(highest[name], 0)
    }
    if wrong:
        table.update(wrong)
        reasons.append(f"{counted(len(wrong), 'position')} behind the end of their queue")
    if reasons:
        data = dumps(content).encode("utf-8", "surrogatepass")
        pieces = ((0, data),)
        reason = "; ".join(reasons)
        yield Edit("create", os.fspath(path), reason, ("I-165",), length=len(data), pieces=pieces)


def _content(path: Path) -> dict[str, object] | None:
    if not path.is_file():
        return None
    try:
        found = loads(read_regular(path, _LARGEST_BYTES).decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
