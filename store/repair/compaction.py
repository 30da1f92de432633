"""Repair compaction topics: rebuild their sparse queues from their logs, and move away what a compaction left behind.

Queue and log of a compaction topic have files of the same names; a broker refuses to start if one of a pair is missing.
The queue follows from the log. Spec 06, 6.1; I-160, I-161, I-163 to I-166.

A record that is damaged, or that only its unit still names, is taken from the commit log, if that has its message
whole; messages of units that neither log has are lost. I-023, I-055, I-161 to I-164. If the compaction log lacks
messages that the commit log has, all files of the queue are made from the commit log. I-182.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import pairwise, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...formats import message_properties as names
from ...formats.blank import BLANK, MAGIC_BLANK
from ...formats.derive import Ragged, decode, dtype_of, offset_of
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import utf8
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
from ..queues.units import Units, joined
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
_BODY_FIELDS = frozenset(("total_size", "body_crc", "body_length"))
_PLACE_AT = offset_of(MESSAGE, "physical_offset")
_UNIT = dtype_of(UNIT)
_NO_END = np.iinfo(np.int64).max


class DamagedRecord(NamedTuple):
    """A damaged place of a compaction log. queue_offset: of its message. store_time: by its unit, None: not compared.
    same: fields in which the record agrees with the message, None if no record can be read.
    """

    position: int
    size: int
    queue_offset: int
    store_time: int | None
    same: frozenset[str] | None
    code: str


class RestoredRecord(NamedTuple):
    """A record of the commit log, with its position in the compaction log. code: what is wrong with the old record."""

    data: bytes
    code: str


def sizes_below(folder: Path) -> Counter[int]:
    """Return the number of files of each length in the queues of a folder. Raises Unreadable."""
    sizes: Counter[int] = Counter()
    for queue in queue_directories(folder):
        with MappedFileQueue.open(queue.path) as files:
            sizes.update(file.size for file in files.files)
    return sizes


def restored(
    store: StoreReader, queue: CompactedQueue, lengths: Mapping[int, Edit]
) -> tuple[dict[int, RestoredRecord], CompactedUnits]:
    """Return damaged records as the commit log has them, by position in the compaction log, and the units of messages
    that neither log has. lengths: as `log_lengths`. Raises Unreadable.
    """
    found: dict[int, RestoredRecord] = {}
    offsets = queue.records.queue_offset.copy()
    damaged, missing = list(_damaged(queue)), _without_record(queue, offsets)
    if not damaged and not missing.any():
        return found, CompactedUnits(*(column[missing] for column in queue.units))
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
            each = _by_unit(queue.units, row)
            missing[row] = not (_has_room(queue, lengths, each) and take(each))
    return found, CompactedUnits(*(column[missing] for column in queue.units))


def _damaged(queue: CompactedQueue) -> Iterator[tuple[int, DamagedRecord]]:
    """Yield (row, place) of damaged records, by their rest and by their units; then of those that contradict a unit."""
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
    named &= ~same | np.isin(row, list(codes))  # records that agree with their unit need nothing
    for unit, at in zip(np.flatnonzero(named).tolist(), row[named].tolist(), strict=True):
        if at in codes:
            yield at, _by_unit(units, unit)._replace(code=codes[at])
        else:
            yield at, _by_unit(units, unit)._replace(same=_BODY_FIELDS)


def _by_unit(units: CompactedUnits, row: int) -> DamagedRecord:
    """Describe a place without a readable record by its unit alone."""
    position, size, base = (int(column[row]) for column in (units.physical_offset, units.size, units.base))
    return DamagedRecord(position, size, base, int(units.store_time[row]), None, "I-163")


def _without_record(queue: CompactedQueue, offsets: Ints) -> Flags:
    """bool[n]: the unit names a place without a record, between records with lower and higher queue offsets.

    offsets: of the records. A unit that is damaged itself, or that a compaction left behind, does not fit there.
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
    """Whether the record lies inside one file of the log, with the file's corrected length."""
    file = _file_of(queue.log_files, damaged.position)
    if file is None:
        return False
    edit = lengths.get(file.start)
    return damaged.position + damaged.size <= (file.end if edit is None else file.start + edit.length)


def log_lengths(store: StoreReader, queue: CompactedQueue, queue_bytes: int, sizes: Counter[int]) -> dict[int, Edit]:
    """Return the edits that correct lengths of log files, by start of the file. Raises Unreadable.

    queue_bytes: length of the queue's files. sizes: as `sizes_below` the logs.
    """
    found: dict[int, Edit] = {}
    for file, behind in zip_longest(queue.log_files, queue.log_files[1:]):
        for edit in _length_edit(file, behind, _right_length(store, sizes, file, queue_bytes)):
            found[file.start] = edit
    return found


def closed_files(queue: CompactedQueue, lengths: Mapping[int, Edit]) -> dict[int, int]:
    """Return the ends, by start, of log files that the next file follows directly, with corrected lengths."""
    ends = {
        file.start: file.start + lengths[file.start].length if file.start in lengths else file.end
        for file in queue.log_files
    }
    return {start: end for start, end in ends.items() if end in ends}


def log_edits(
    queue: CompactedQueue, lengths: Mapping[int, Edit], whole: Mapping[int, RestoredRecord]
) -> Iterator[Edit]:
    """Yield the edits of a queue's log. lengths: as `log_lengths`. whole: as `restored`."""
    closed = closed_files(queue, lengths)
    for file in queue.log_files:
        if file.start in lengths:
            yield lengths[file.start]
        if file.start in closed:
            yield from _blank_edit(queue, file, closed[file.start], whole)
    yield from _record_edits(queue, whole)


def _right_length(store: StoreReader, sizes: Counter[int], file: MappedFile, queue_bytes: int) -> int:
    """Return the right length of a log file: as configured, else that of most files, else the nearest possible one.

    If no file has the configured length and several agree on another, the option was changed later.
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


def _length_edit(file: MappedFile, behind: MappedFile | None, size: int) -> Iterator[Edit]:
    """Yield the edit that corrects the length of a file, if the next file can stay in place."""
    if file.size == size:
        return
    if behind is not None and (file.end == behind.start or file.start + size > behind.start):
        return  # only the option differs from the one that the files were made with
    with MappedFileQueue.of_file(file.path, file.start) as files:
        if file.size > size and files.next_data(files.files[0], size) is not None:
            return  # the file has data there, which must stay
    reason = f"{counted(file.size, 'byte')}, not {size}: its length does not fit its queue file"
    yield Edit("truncate", file.path, reason, ("I-161",), length=size)


def _blank_edit(
    queue: CompactedQueue, file: MappedFile, file_end: int, whole: Mapping[int, RestoredRecord]
) -> Iterator[Edit]:
    """Yield the BLANK behind the last record of a full file. file_end: the corrected end of the file."""
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


def _record_edits(queue: CompactedQueue, whole: Mapping[int, RestoredRecord]) -> Iterator[Edit]:
    """Yield edits of damaged records, and of records that name another position than their own."""
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
    """Return the record as the commit log has it, with its position here; None if it is not there whole.

    units: of the queue for the commit log, None if it is lost. log: the queue's own.
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
    return _placed(data, damaged.position)


def _placed(record: bytes, position: int) -> bytes:
    place: bytes = MESSAGE.physical_offset.build(position)
    return record[:_PLACE_AT] + place + record[_PLACE_AT + len(place) :]


def _is_message(record: Batch, damaged: DamagedRecord, queue: CompactedQueue, log: CommitLog) -> bool:
    """Whether a record of the commit log is the message of the queue, and undamaged.

    A tombstone has the same queue offset and size, but not the same time and body.
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
    topic = columns.ragged("topic")[0] == utf8(queue.topic)
    sound = record.body_crc_ok is not None and bool(record.body_crc_ok[0]) and not tombstones(columns).any()
    return same and topic and sound and b"\0" not in columns.ragged("properties")[0]


def _file_of(files: Iterable[MappedFile], position: int) -> MappedFile | None:
    """Return the file with a position, or the one that the position will extend."""
    return max((file for file in files if file.start <= position), key=lambda file: file.start, default=None)


_DEFAULT_BYTES, _DEFAULT_LOG_BYTES = 10 << 20, 100 << 20
_END_UNIT = UNIT.build(END)
_CLOSED = -1


def compaction_repair(
    layout: Layout,
    ranges: Mapping[QueueId, tuple[int, int]],
    lost_of_log: Collection[tuple[QueueId, int]] = (),
    topics: Collection[str] = (),
) -> tuple[list[Edit], Tally]:
    """Return the edits, and the lost messages. ranges: (min, max) offset of each repaired queue. lost_of_log: messages
    that the commit log has lost, which are counted there. topics: served from compaction logs. Raises Unreadable.
    """
    edits, lost = list[Edit](), Tally()
    with StoreReader(layout) as store:
        lacking = _lacking(store, {queue: bounds for queue, bounds in ranges.items() if queue.topic in topics})
        scene = VerifyContext(store, Scope())
        edits += (Edit("move", os.fspath(path), "left over from a compaction", ("I-166",)) for path in leftovers(scene))
        sizes = sizes_below(layout.compaction_log)
        queues = compacted_queues(scene)
        steps = (behind.start - file.start for queue in queues for file, behind in pairwise(queue.log_files))
        size = _queue_file_bytes(layout, sizes, min(steps, default=None))
        edits += _rebuilt_files(scene, lacking, sizes, size)
        for queue in queues:
            name = queue.name
            elsewhere = np.array([offset for of_queue, offset in lost_of_log if of_queue == name], np.int64)
            if name in lacking:
                gone, elsewhere = queue.units, np.concatenate([elsewhere, lacking[name][0], queue.records.queue_offset])
            else:
                lengths = {} if size is None else log_lengths(store, queue, size, sizes)
                whole, gone = restored(store, queue, lengths)
                edits += log_edits(queue, lengths, whole)
                if size is None:
                    continue
                edits += _queue_edits(layout, queue, size, closed_files(queue, lengths), whole)
            mine = (gone.base < ranges.get(name, (0, _NO_END))[1]) & ~np.isin(gone.base, elsewhere)
            codes = np.zeros_like(gone.base)
            columns = (gone.base, gone.physical_offset, gone.size, codes, gone.store_time, mine, ~mine)
            lost.add(Messages(name, *columns).take(mine))
    return [*edits, *compaction_positions(layout, ranges, lacking)], lost


class _Latest(LogObserver):
    """Collects the last message at each queue offset of some queues. ranges: (min, max) offset of each."""

    def __init__(self, ranges: Mapping[QueueId, tuple[int, int]]) -> None:
        self._ranges, self.parts = ranges, defaultdict[QueueId, list[Ints]](list)

    def messages(self, messages: Messages) -> None:
        first, end = self._ranges.get(messages.queue, (0, 0))
        wanted = messages.good & (messages.offset >= first) & (messages.offset < end)
        if wanted.any():
            columns = (messages.offset, messages.position, messages.size, messages.store_timestamp)
            self.parts[messages.queue].append(np.stack([column[wanted] for column in columns]))


def _lacking(store: StoreReader, ranges: Mapping[QueueId, tuple[int, int]]) -> dict[QueueId, Ints]:
    """Return (queue offset, position, size, store time) of the messages, int64[4, n] by offset, in the commit log of
    queues whose compaction log lacks some of them. Raises Unreadable.
    """
    latest = _Latest(ranges)
    if ranges:
        scan_messages(store.log, [latest], Dispatching(multi_dispatch=False))
    found: dict[QueueId, Ints] = {}
    for queue, parts in latest.parts.items():
        rows = np.concatenate(parts, axis=1)[:, ::-1]
        rows = rows[:, np.unique(rows[0], return_index=True)[1]]
        if CompactedMessages(store.layout, queue).lacks(rows[0], rows[3]).any():
            found[queue] = rows
    return found


def _rebuilt_files(
    scene: VerifyContext, lacking: Mapping[QueueId, Ints], sizes: Counter[int], size: int | None
) -> Iterator[Edit]:
    """Yield the files of queues made of all their messages in the commit log, and of further ones in their own log.
    sizes: as `sizes_below` the logs. size: of queue files, None: unknown.
    """
    size = size or _configured_queue_bytes(scene.store.layout)
    usual = next((n for n, _ in sizes.most_common() if n % size == 0), None)
    note = (
        "" if usual else " (no file shows their length: --set compactionMappedFileSize=…, compactionCqMappedFileSize=…)"
    )
    wanted = scene.store.config.get_int("compactionMappedFileSize") or _DEFAULT_LOG_BYTES
    length = usual or log_bytes(wanted, size)
    for queue, rows in lacking.items():
        there = CompactedQueue(scene, *queue)
        unused = {file.path for file in (*there.log_files, *there.queue_files)}
        with there.log.queue:
            for start, records in _by_file(_message_places(there, scene.store.log.queue, rows), length, size):
                blank = records.pop(_CLOSED, b"")
                units = joined([*log_units([_batch(records)])], _UNIT)
                of_queue = _queue_file(units, b"", size, closed=bool(blank)) or b""
                reason = f"{counted(len(records), 'message')} of the commit log{note}"
                data: Content = mapped([*records.values(), blank])
                for place, bytes_, content in ((there.log_path, length, data), (there.queue_path, size, of_queue)):
                    path = os.fspath(place / file_name(start))
                    unused.discard(path)
                    yield Edit.create(path, content, reason, ("I-182",), bytes_)
        for path in sorted(unused):
            yield Edit("move", path, "rebuilt, or of a deleted topic", ("I-182",))


def _message_places(queue: CompactedQueue, log: MappedFileQueue, rows: Ints) -> list[tuple[MappedFileQueue, int, int]]:
    """Return (log, position, size) of all messages of a queue, by queue offset. rows: those of the commit log.

    If the logs have different messages at the same offsets, the queue's own log is of a deleted topic and not used.
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
    """Yield (start, records by position) of each file of a log, as a broker writes it; its BLANK is at `_CLOSED`."""
    start, at, records, room = 0, 0, dict[int, bytes](), BLANK.sizeof()
    for log, position, size in places:
        if size + room > length:
            continue  # no broker takes such a record either
        if at + size + room > start + length or len(records) == queue_bytes // UNIT_BYTES - 1:
            yield (
                start,
                records | {_CLOSED: BLANK.build({"total_size": start + length - at, "magic_code": MAGIC_BLANK})},
            )
            start = at = start + length
            records = {}
        records[at] = _placed(log.read(position, size), at)
        at += size
    yield start, records


def _configured_queue_bytes(layout: Layout) -> int:
    configured = layout.broker_config.get_int("compactionCqMappedFileSize")
    return max(1, (configured or _DEFAULT_BYTES) // UNIT_BYTES) * UNIT_BYTES


def _queue_file_bytes(layout: Layout, logs: Counter[int], step: int | None) -> int | None:
    """Return the length of a queue file: that of most files that fit their logs, else the configured one, else the
    default, if the logs fit it. None: unknown.

    step: the shortest distance between the starts of neighbouring log files, None for a single file: longer files
    would cover the next ones.
    """
    sizes = sizes_below(layout.compaction_queues)

    def has_room(size: int) -> bool:
        return step is None or size * FEWEST_QUEUE_FILES <= step

    whole = [(size, n) for size, n in sizes.items() if size and size % UNIT_BYTES == 0 and has_room(size)]
    if whole:
        return max(whole, key=lambda row: (sum(logs[n] for n in logs if n % row[0] == 0), row[1]))[0]
    configured = layout.broker_config.get_int("compactionCqMappedFileSize")
    wanted = _configured_queue_bytes(layout)
    if has_room(wanted) and any(n % wanted == 0 and n >= FEWEST_QUEUE_FILES * wanted for n in logs):
        return wanted
    for size in sizes:
        for length in logs:
            times = round(length / max(1, size))
            if times >= FEWEST_QUEUE_FILES and length % (times * UNIT_BYTES) == 0 and has_room(length // times):
                return length // times
    return wanted if configured and has_room(wanted) else None


def _queue_edits(
    layout: Layout, queue: CompactedQueue, size: int, closed: Container[int], whole: Mapping[int, RestoredRecord]
) -> Iterator[Edit]:
    """Yield the edits of the queue files. closed: starts of files that others directly follow. whole: as `restored`."""
    there = {file.start: file for file in queue.queue_files}
    restored_of: dict[int, dict[int, bytes]] = {file.start: {} for file in queue.log_files}
    for at, record in whole.items():
        if (of_log := _file_of(queue.log_files, at)) is not None:
            restored_of[of_log.start][at] = record.data
    log = open_log(layout, queue.topic, queue.queue_id)
    with log.queue:
        for file in log.queue.files:
            units = joined([*log_units(log.scan(file.start, file.end, crc=False, reuse=True))], _UNIT)
            if mine := restored_of[file.start]:
                stay = units[~np.isin(units["physical_offset"], list(mine))]
                units = joined([stay, *log_units([_batch(mine)])], _UNIT)
                units = units[np.argsort(units["physical_offset"])]
            known = there.pop(file.start, None)
            old = b"" if known is None else read_regular(known.path, size)
            data = _queue_file(units, old, size, closed=file.start in closed)
            cut = known is not None and known.size != size
            if data is not None and (cut or data != old):
                path = os.fspath(queue.queue_path / file_name(file.start))
                reason = f"{counted(len(units), 'unit')} of records in the compaction log"
                yield Edit.create(path, data.rstrip(b"\0"), reason, ("I-163",), size)
    for stray in there.values():
        yield Edit("move", stray.path, "it has no file of the compaction log", ("I-160",))


def log_units(items: Iterable[object]) -> Iterator[Units]:
    """Yield the units of records of a compaction log, batch by batch."""
    for item in items:
        if not isinstance(item, Batch) or item.mark is Mark.EMBEDDED:
            continue
        columns = item.columns
        units = np.zeros(len(item), _UNIT)
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
    texts = Ragged.of(records.values())
    columns = decode(MESSAGE, texts.buffer, texts.start)
    return Batch(columns, np.array(list(records), np.int64), Mark.NONE, None)


def _queue_file(units: Units, old: bytes, size: int, *, closed: bool) -> bytes | None:
    """Return the content of a queue file; None if its units do not fit: then the file stays."""
    data = units.tobytes()
    ends = closed or old[len(data) : len(data) + UNIT_BYTES] == _END_UNIT
    data += _END_UNIT if ends else b""
    return data.ljust(size, b"\0") if len(data) <= size else None
