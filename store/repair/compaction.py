"""Compaction topics: their sparse queues made from their logs, and what a compaction left behind.

Queue and log of a compaction topic have files of the same names; a broker refuses to start where one
of a pair is missing. The queue follows from the log. Spec 06, 6.1; I-160, I-161, I-163 to I-166.

A record that is damaged, or that only its unit tells of any more, is taken from the commit log, where that still
has its message whole; messages of units that neither log has are lost. I-023, I-055, I-161 to I-164.
All files of a queue are made of the commit log where the compaction log lacks messages that it has. I-182.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import pairwise, zip_longest
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from ...formats import message_properties as names
from ...formats.blank import BLANK, MAGIC_BLANK
from ...formats.derive import Ragged, decode, dtype_of, offset_of
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing_columns import java_hash_column
from ...formats.message import MESSAGE
from ...formats.message_properties import crc_ok
from ...formats.property_columns import PropertyItems
from ...formats.sparse_consume_queue import END, UNIT, UNIT_BYTES
from ..audit.messages import LogObserver, Messages, Tally, scan_messages
from ..broker.dispatch_record import Dispatching
from ..broker.snapshot import QueueId
from ..columns import rows_of
from ..counted import counted
from ..disk.compressed import read_regular
from ..disk.file_queue import MappedFile, MappedFileQueue, file_name
from ..disk.files import Content, Edit
from ..disk.layout import Layout, queue_directories
from ..disk.temporary import mapped
from ..errors import NotFound
from ..log.commit_log import Batch, CommitLog
from ..log.message import Mark, tombstones
from ..queues.read import ConsumeQueue
from ..queues.units import Units
from ..recover.predict import FEWEST_OTHERS, CompactedMessages
from ..search.queue_search import open_log
from ..search.store import StoreReader
from ..verify.compaction import (
    FEWEST_QUEUE_FILES,
    CompactedQueue,
    CompactedUnits,
    compacted_queues,
    leftovers,
    log_bytes,
)
from ..verify.context import Scope, VerifyContext
from .config import compaction_positions

_SAME = frozenset(("total_size", "queue_offset", "body_crc", "body_length", "born_timestamp", "store_timestamp"))
"""Fields of a record that are the same in both logs."""
_BODY = frozenset(("total_size", "body_crc", "body_length"))
_PLACE_AT = offset_of(MESSAGE, "physical_offset")
_NO_END = np.iinfo(np.int64).max


class DamagedRecord(NamedTuple):
    """Where a record of a compaction log is damaged. queue_offset: of its message. store_time: as its unit has it,
    None: not asked for. same: fields in which it agrees with the message, None where no record can be read.
    """

    position: int
    size: int
    queue_offset: int
    store_time: int | None
    same: frozenset[str] | None
    code: str


class RestoredRecord(NamedTuple):
    """A record as the commit log has it, with its place in the compaction log. code: what is wrong with the old one."""

    data: bytes
    code: str


class RestoredQueue(NamedTuple):
    """What comes from the commit log, by position in the compaction log, and units of messages that neither has."""

    records: dict[int, RestoredRecord]
    lost: CompactedUnits


class CompactionRepair(NamedTuple):
    """The edits, and the messages that were in compaction logs and are lost."""

    edits: list[Edit]
    lost: Tally


def log_sizes(layout: Layout) -> Counter[int]:
    """How many log files there are of each length. Raises Unreadable."""
    sizes: Counter[int] = Counter()
    for queue in queue_directories(layout.compaction_log):
        with MappedFileQueue.open(queue.path) as files:
            sizes.update(file.size for file in files.files)
    return sizes


def restored(store: StoreReader, queue: CompactedQueue, lengths: Mapping[int, Edit]) -> RestoredQueue:
    """Records that are damaged, as the commit log has them. lengths: as `log_lengths`. Raises Unreadable."""
    found: dict[int, RestoredRecord] = {}
    offsets = queue.records.queue_offset.copy()
    damaged, missing = list(_damaged(queue)), _without_record(queue, offsets)
    if not damaged and not missing.any():
        return RestoredQueue(found, CompactedUnits(*(column[missing] for column in queue.units)))
    with ExitStack() as stack:
        log = CommitLog(stack.enter_context(open_log(store.layout, queue.topic, queue.queue_id).queue))
        units = None
        with suppress(NotFound):
            units = stack.enter_context(store.queues.open(queue.topic, queue.queue_id))

        def take(each: DamagedRecord) -> bool:
            data = _from_commit_log(store, queue, each, units, log)
            if data is not None:
                found[each.position] = RestoredRecord(data, each.code)
            return data is not None

        for row, each in damaged:
            if each.position in found:
                continue
            own = each._replace(queue_offset=int(offsets[row]), store_time=None, same=_SAME)
            if each.store_time is not None and _from_commit_log(store, queue, own, units, log) is not None:
                continue  # the record is right, and its unit wrong
            if take(each):
                offsets[row] = each.queue_offset
        missing = _without_record(queue, offsets)
        for row in np.flatnonzero(missing).tolist():
            each = _hole(queue.units, row)
            missing[row] = not (_has_room(queue, lengths, each) and take(each))
    return RestoredQueue(found, CompactedUnits(*(column[missing] for column in queue.units)))


def _damaged(queue: CompactedQueue) -> Iterator[tuple[int, DamagedRecord]]:
    """Rows of records that are not whole, by what is left of them and by their units; then those that their units tell
    something else of.
    """
    records, units = queue.records, queue.units
    wrong = {"I-055": records.torn, "I-162": records.foreign, "I-023": records.wrong_body}
    codes = {at: code for code, flags in wrong.items() for at in np.flatnonzero(flags).tolist()}
    for at, code in codes.items():
        place, size, offset = (int(column[at]) for column in (records.position, records.size, records.queue_offset))
        yield at, DamagedRecord(place, size, offset, None, _SAME - ({"body_crc"} if code == "I-023" else set()), code)
    row, named = rows_of(records.position, units.physical_offset)
    if not len(records.position):
        return
    same = records.queue_offset[row] == units.base
    named &= (records.size[row] == units.size) & (same | ~np.isin(units.base, records.queue_offset))
    same &= records.store_timestamp[row] == units.store_time
    named &= ~same | np.isin(row, list(codes))  # of the others there is nothing to say
    for unit, at in zip(np.flatnonzero(named).tolist(), row[named].tolist(), strict=True):
        if at in codes:
            yield at, _hole(units, unit)._replace(code=codes[at])
        else:
            yield at, _hole(units, unit)._replace(same=_BODY)


def _hole(units: CompactedUnits, row: int) -> DamagedRecord:
    """Where no record is that can be read: the unit alone tells of it."""
    position, size, base = (int(column[row]) for column in (units.physical_offset, units.size, units.base))
    return DamagedRecord(position, size, base, int(units.store_time[row]), None, "I-163")


def _without_record(queue: CompactedQueue, offsets: Ints) -> Flags:
    """bool[n]: the unit names a place where no record is, between records with lower and higher queue offsets.

    offsets: of the records. A unit that is itself damaged, or that a compaction left behind, does not fit there.
    """
    records, units = queue.records, queue.units
    end = units.physical_offset + units.size
    behind = np.searchsorted(records.position, units.physical_offset)
    ends = np.append(0, records.position + records.size)
    starts = np.append(records.position, _NO_END)
    free = (ends[behind] <= units.physical_offset) & (end <= starts[behind]) & (end > units.physical_offset)
    rises = (np.append(-1, offsets)[behind] < units.base) & (units.base < np.append(offsets, _NO_END)[behind])
    return np.asarray(free & rises, np.bool_)


def _has_room(queue: CompactedQueue, lengths: Mapping[int, Edit], damaged: DamagedRecord) -> bool:
    """The record is to lie in one file of the log, as long as that will be."""
    file = _file_of(queue.log_files, damaged.position)
    if file is None:
        return False
    edit = lengths.get(file.start)
    return damaged.position + damaged.size <= (file.end if edit is None else file.start + edit.length)


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


def log_edits(
    queue: CompactedQueue, lengths: Mapping[int, Edit], whole: Mapping[int, RestoredRecord]
) -> Iterator[Edit]:
    """What the log of a queue needs. lengths: as `log_lengths`. whole: as `restored`."""
    closed = closed_files(queue, lengths)
    for file in queue.log_files:
        if file.start in lengths:
            yield lengths[file.start]
        if file.start in closed:
            yield from _blank(queue, file, closed[file.start], whole)
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
    reason = f"{counted(file.size, 'byte')}, not {size}: its length does not fit its queue file"
    yield Edit("truncate", file.path, reason, ("I-161",), length=size)


def _blank(
    queue: CompactedQueue, file: MappedFile, file_end: int, whole: Mapping[int, RestoredRecord]
) -> Iterator[Edit]:
    """A full file is closed behind its last record. file_end: of the file as it will be."""
    records = queue.records
    mine = (records.position >= file.start) & (records.position < file.end)
    ends = (records.position[mine] + records.size[mine]).tolist()
    ends += [at + len(record.data) for at, record in whole.items() if file.start <= at < file_end]
    if not ends or (file_end == file.end and file_end in queue.blank_ends):
        return
    end = max(ends)
    data: bytes = BLANK.build({"total_size": file_end - end, "magic_code": MAGIC_BLANK})
    if end + len(data) > file_end:
        return
    with MappedFileQueue.of_file(file.path, file.start) as files:
        if files.read(end, len(data)) == data:
            return
    reason = "a BLANK: the log continues in the next file"
    yield Edit("write", file.path, reason, ("I-164",), end - file.start, len(data), data)


def _records(queue: CompactedQueue, whole: Mapping[int, RestoredRecord]) -> Iterator[Edit]:
    """Damaged records, and those that name another place than their own."""
    records = queue.records
    edits = [
        (position, MESSAGE.physical_offset.build(position), "the position of the record corrected", "I-162", _PLACE_AT)
        for position in records.position[records.physical_offset != records.position].tolist()
        if position not in whole
    ]
    reason = "damaged records, taken from the commit log"
    edits += [(position, record.data, reason, record.code, 0) for position, record in whole.items()]
    for position, data, reason, code, at in edits:
        file = _file_of(queue.log_files, position)
        if file is not None:
            yield Edit("write", file.path, reason, (code,), position - file.start + at, len(data), data)


def _from_commit_log(
    store: StoreReader, queue: CompactedQueue, damaged: DamagedRecord, units: ConsumeQueue | None, log: CommitLog
) -> bytes | None:
    """The record as the commit log has it, with its place here; None where it is not there whole.

    units: of the queue in front of the commit log, None where it is lost. log: the queue's own.
    """
    unit = units.unit(damaged.queue_offset) if units is not None else None
    if unit is None or unit.size != damaged.size:
        return None
    found = store.log.records(np.array([unit.physical_offset], np.int64))
    if not len(found) or not _is_message(found, damaged, queue, log):
        return None
    data = store.log.queue.read(unit.physical_offset, unit.size)
    if crc_ok(data) is False:
        return None
    place: bytes = MESSAGE.physical_offset.build(damaged.position)
    return data[:_PLACE_AT] + place + data[_PLACE_AT + len(place) :]


def _is_message(record: Batch, damaged: DamagedRecord, queue: CompactedQueue, log: CommitLog) -> bool:
    """A record of the commit log is the message of the queue, and nothing of it is damaged.

    A tombstone has its queue offset and its size, too, but not its time and its body.
    """
    columns = record.columns
    wanted = {"queue_id": queue.queue_id, "physical_offset": int(record.position[0])}
    wanted |= {"queue_offset": damaged.queue_offset, "total_size": damaged.size}
    if damaged.store_time is not None:
        wanted["store_timestamp"] = damaged.store_time
    if damaged.same is not None:
        torn = log.records(np.array([damaged.position], np.int64))
        if not len(torn):
            return False
        wanted |= {name: int(torn.columns.ints(name)[0]) for name in damaged.same}
    same = all(int(columns.ints(name)[0]) == value for name, value in wanted.items())
    topic = columns.ragged("topic")[0] == queue.topic.encode("utf-8", "surrogateescape")
    sound = record.body_crc_ok is not None and bool(record.body_crc_ok[0]) and not tombstones(columns).any()
    return same and topic and sound and b"\0" not in columns.ragged("properties")[0]


def _file_of(files: Iterable[MappedFile], position: int) -> MappedFile | None:
    """The file that the position is in, or behind whose end it will be."""
    return max((file for file in files if file.start <= position), key=lambda file: file.start, default=None)


_DEFAULT_BYTES, _DEFAULT_LOG_BYTES = 10 << 20, 100 << 20
_END_UNIT = UNIT.build(END)
_CLOSED = -1


def compaction_repair(
    layout: Layout,
    ranges: Mapping[QueueId, tuple[int, int]],
    lost_of_log: Collection[tuple[QueueId, int]] = (),
    topics: Collection[str] = (),
) -> CompactionRepair:
    """The edits, and what is lost. ranges: (min, max) offset of each queue once it is mended. lost_of_log: messages
    that the commit log has lost, which are counted there. topics: served from compaction logs. Raises Unreadable.
    """
    edits, lost = list[Edit](), Tally()
    with StoreReader(layout) as store:
        lacking = _lacking(store, {queue: bounds for queue, bounds in ranges.items() if queue.topic in topics})
        scene = VerifyContext(store, Scope())
        edits += (Edit("move", os.fspath(path), "left over from a compaction", ("I-166",)) for path in leftovers(scene))
        sizes = log_sizes(layout)
        queues = compacted_queues(scene)
        size = _queue_file_bytes(layout, sizes, _least_step(queues))
        edits += _made_anew(scene, lacking, sizes, size)
        for queue in queues:
            name = QueueId(queue.topic, queue.queue_id)
            told = np.array([offset for of_queue, offset in lost_of_log if of_queue == name], np.int64)
            if name in lacking:
                gone, told = queue.units, np.concatenate([told, lacking[name][0], queue.records.queue_offset])
            else:
                lengths = {} if size is None else log_lengths(store, queue, size, sizes)
                whole, gone = restored(store, queue, lengths)
                edits += log_edits(queue, lengths, whole)
                if size is None:
                    continue
                edits += _queue_edits(layout, queue, size, closed_files(queue, lengths), whole)
            mine = (gone.base < ranges.get(name, (0, _NO_END))[1]) & ~np.isin(gone.base, told)
            lost.add(name, "", gone.size[mine], gone.store_time[mine], gone.base[mine])
    return CompactionRepair([*edits, *compaction_positions(layout, ranges, lacking)], lost)


class _Latest(LogObserver):
    """The last message at each queue offset of some queues. ranges: (min, max) offset of each."""

    def __init__(self, ranges: Mapping[QueueId, tuple[int, int]]) -> None:
        self._ranges, self._parts = ranges, defaultdict[QueueId, list[Ints]](list)

    def messages(self, messages: Messages) -> None:
        """Messages of one queue."""
        first, end = self._ranges.get(messages.queue, (0, 0))
        wanted = messages.good & (messages.offset >= first) & (messages.offset < end)
        if wanted.any():
            columns = (messages.offset, messages.position, messages.size, messages.store_timestamp)
            self._parts[messages.queue].append(np.stack([column[wanted] for column in columns]))

    def of_each(self) -> Iterator[tuple[QueueId, Ints]]:
        """(queue offset, position, size, store time) of each queue, int64[4, n], by offset."""
        for queue, parts in self._parts.items():
            rows = np.concatenate(parts, axis=1)[:, ::-1]
            yield queue, rows[:, np.unique(rows[0], return_index=True)[1]]


def _lacking(store: StoreReader, ranges: Mapping[QueueId, tuple[int, int]]) -> dict[QueueId, Ints]:
    """What the commit log has of the queues whose compaction log lacks some of it. Raises Unreadable."""
    latest = _Latest(ranges)
    if ranges:
        scan_messages(store.log, [latest], Dispatching(multi_dispatch=False))
    known = {queue: (rows, CompactedMessages(store.layout, queue)) for queue, rows in latest.of_each()}
    return {queue: rows for queue, (rows, there) in known.items() if there.lacks(rows[0], rows[3]).any()}


def _made_anew(
    scene: VerifyContext, lacking: Mapping[QueueId, Ints], sizes: Counter[int], size: int | None
) -> Iterator[Edit]:
    """Files of queues with all that the commit log has of them, and what their own log has besides. sizes: as
    `log_sizes`. size: of queue files, None: nothing shows it.
    """
    size = size or _configured(scene.store.layout)
    usual = next((n for n, _ in sizes.most_common() if n % size == 0), None)
    told = (
        "" if usual else " (no file shows their length: --set compactionMappedFileSize=…, compactionCqMappedFileSize=…)"
    )
    wanted = scene.store.config.get_int("compactionMappedFileSize") or _DEFAULT_LOG_BYTES
    length = usual or log_bytes(wanted, size)
    for queue, rows in lacking.items():
        there = CompactedQueue(scene, *queue)
        left = {file.path for file in (*there.log_files, *there.queue_files)}
        with there.log.queue:
            for start, records in _by_file(_places(there, scene.store.log.queue, rows), length, size):
                blank = records.pop(_CLOSED, b"")
                units = _file(_units_of(log_units([_batch(records)])), b"", size, closed=bool(blank)) or b""
                reason = f"{counted(len(records), 'message')} of the commit log{told}"
                data: Content = mapped([*records.values(), blank])
                for place, bytes_, content in ((there.log_path, length, data), (there.queue_path, size, units)):
                    path = os.fspath(place / file_name(start))
                    left.discard(path)
                    yield Edit("create", path, reason, ("I-182",), length=bytes_, pieces=((0, content),))
        for path in sorted(left):
            yield Edit("move", path, "rebuilt, or of a deleted topic", ("I-182",))


def _places(queue: CompactedQueue, log: MappedFileQueue, rows: Ints) -> list[tuple[MappedFileQueue, int, int]]:
    """(log, position, size) of all messages of a queue, by queue offset. rows: those of the commit log.

    Where both logs have one of an offset, and they are not the same, the queue's own is of a topic that was deleted.
    """
    found = [(offset, log, at, size) for offset, at, size in rows[:3].T.tolist()]
    records = queue.records
    row, both = rows_of(rows[0], records.queue_offset)
    differs = (rows[3][row] != records.store_timestamp)[both]
    if not (len(differs) and differs[:FEWEST_OTHERS].all()):
        whole = ~both & (records.torn + records.foreign + records.wrong_body == 0)
        kept = np.stack([records.queue_offset, records.position, records.size])
        kept = kept[:, whole & (records.queue_offset < rows[0][-1])]
        found += [(offset, queue.log.queue, at, size) for offset, at, size in kept.T.tolist()]
    return [(log, at, size) for _, log, at, size in sorted(found, key=itemgetter(0))]


def _by_file(
    places: Iterable[tuple[MappedFileQueue, int, int]], length: int, queue_bytes: int
) -> Iterator[tuple[int, dict[int, bytes]]]:
    """(start, records by position) of each file of a log, as a broker writes it; its BLANK is at `_CLOSED`."""
    start, at, records, room = 0, 0, dict[int, bytes](), BLANK.sizeof()
    for log, position, size in places:
        if size + room > length:
            continue  # no broker takes it either
        if at + size + room > start + length or len(records) == queue_bytes // UNIT_BYTES - 1:
            yield (
                start,
                records | {_CLOSED: BLANK.build({"total_size": start + length - at, "magic_code": MAGIC_BLANK})},
            )
            start = at = start + length
            records = {}
        place: bytes = MESSAGE.physical_offset.build(at)
        data = log.read(position, size)
        records[at] = data[:_PLACE_AT] + place + data[_PLACE_AT + len(place) :]
        at += size
    yield start, records


def _configured(layout: Layout) -> int:
    """Length of a queue file by the options."""
    told = layout.broker_config.get_int("compactionCqMappedFileSize")
    return max(1, (told or _DEFAULT_BYTES) // UNIT_BYTES) * UNIT_BYTES


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
    wanted = _configured(layout)
    if has_room(wanted) and any(n % wanted == 0 and n >= FEWEST_QUEUE_FILES * wanted for n in logs):
        return wanted
    for size in sizes:
        for length in logs:
            times = round(length / max(1, size))
            if times >= FEWEST_QUEUE_FILES and length % (times * UNIT_BYTES) == 0 and has_room(length // times):
                return length // times
    return wanted if told and has_room(wanted) else None


def _queue_edits(
    layout: Layout, queue: CompactedQueue, size: int, closed: Container[int], whole: Mapping[int, RestoredRecord]
) -> Iterator[Edit]:
    """The queue files. closed: starts of those that others follow, but what compaction wrote. whole: as `restored`."""
    there = {file.start: file for file in queue.queue_files}
    restored_of: dict[int, dict[int, bytes]] = {file.start: {} for file in queue.log_files}
    for at, record in whole.items():
        if (of_log := _file_of(queue.log_files, at)) is not None:
            restored_of[of_log.start][at] = record.data
    log = open_log(layout, queue.topic, queue.queue_id)
    with log.queue:
        for file in log.queue.files:
            units = _units_of(log_units(log.scan(file.start, file.end, crc=False, reuse=True)))
            if mine := restored_of[file.start]:
                stay = units[~np.isin(units["physical_offset"], list(mine))]
                units = _units_of([stay, *log_units([_batch(mine)])])
                units = units[np.argsort(units["physical_offset"])]
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
        yield Edit("move", stray.path, "it has no file of the compaction log", ("I-160",))


def log_units(items: Iterable[object]) -> Iterator[Units]:
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


def _batch(records: Mapping[int, bytes]) -> Batch:
    """Records by position, decoded."""
    texts = Ragged.of(records.values())
    columns = decode(MESSAGE, texts.buffer, texts.start)
    return Batch(columns, np.array(list(records), np.int64), Mark.NONE, None)


def _units_of(parts: Iterable[Units]) -> Units:
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
