"""Which queue units name records that lie in gaps: the lost messages that are known one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...formats.batch_consume_queue import UNIT_BYTES as BATCH_UNIT_BYTES
from ...formats.consume_queue import PRE_FILL
from ...formats.derive import decode
from ...formats.derive.ragged import Flags, Ints
from ...formats.message import MESSAGE, SMALLEST, TRANSACTION_MASK, SysFlag
from ..audit.verified import VerifiedLog
from ..broker.snapshot import Entry, QueueId, Snapshot
from ..broker.system_topics import LMQ_PREFIX
from ..columns import Rows
from ..disk.file_queue import MappedFileQueue
from ..queues.start_batches import BATCH_UNIT_DTYPE
from ..queues.units import FileUnits, is_pre_fill, is_used, is_valid, is_whole_file, read_units
from .gaps import Gap, TornRecord

_WINDOW_UNITS = 1 << 13
RECORD_BYTES_MAX = 64 << 20
"""A unit that names more is not read for: its size is wrong, and may be that of a whole gap."""


class LostUnits(Rows):
    """Lost records, int64[n] each, by position; `queue` counts `queues`.

    batch_size: messages in the record, where the queue is one of batches; None: no queue is.
    """

    queues: list[QueueId]
    position: Ints
    size: Ints
    queue: Ints
    queue_offset: Ints
    tags_code: Ints
    batch_size: Ints | None = None

    @property
    def end(self) -> Ints:
        """Positions behind the records."""
        return self.position + self.size

    @property
    def batch_sizes(self) -> Ints:
        """Messages of each record."""
        return np.ones(len(self), np.int64) if self.batch_size is None else self.batch_size


def lost_units(
    snapshot: Snapshot,
    gaps: Sequence[Gap],
    torn: Sequence[TornRecord],
    dead: Ints,
    ends: Mapping[QueueId, int],
    sound: VerifiedLog | None = None,
) -> LostUnits:
    """The units that name a record inside a gap; each record once, none over another.

    torn: records that tell their own queue, for those that no unit names. dead: positions of
    records that are no loss. ends: behind the last message of each queue in the log. sound: what is
    in order: its units are not read. Raises Unreadable.
    """
    proved = sound.offsets() if sound and gaps and sound.end <= gaps[0].begin else {}
    queues = sorted(snapshot.queues, key=lambda q: (q.topic.startswith(LMQ_PREFIX), q))
    parts: list[Ints] = []
    for number, name in enumerate(queues if gaps else ()):
        stream = FileUnits.of(snapshot.queues[name], snapshot.queue_file_bytes)
        parts += _of_queue(stream, number, gaps, ends.get(name, 0), proved.get(name, (0, 0)))
    for name in sorted(snapshot.batch_queues) if gaps else ():
        queues.append(name)
        size = snapshot.batch_file_bytes
        entries = [e for e in snapshot.batch_queues[name] if is_whole_file(e, size)]
        parts += _of_batches(entries, len(queues) - 1, gaps)
    parts.append(_of_torn(torn, queues))
    position, size, queue, offset, tags, messages = np.concatenate(parts, axis=1)
    order = np.lexsort((queue, position))
    found = LostUnits(queues, position, size, queue, offset, tags, messages).take(order)
    found = _own_queue_first(snapshot, found.take(~np.isin(found.position, dead)))
    first = np.ones(len(found), np.bool_)
    first[1:] = found.position[1:] != found.position[:-1]
    return _without_overlaps(found.take(first))


def _own_queue_first(snapshot: Snapshot, units: LostUnits) -> LostUnits:
    """Of the units of one record that of its own topic is the first: a message may name any queue as a
    further one (spec 2.9). What the record says of its topic decides, as far as it can be read.
    """
    light = np.array([queue.topic.startswith(LMQ_PREFIX) for queue in units.queues], np.bool_)
    again = (
        np.flatnonzero((units.position[1:] == units.position[:-1]) & ~light[units.queue[1:]]) + 1
    )
    if not len(again):
        return units
    log = snapshot.layout.commit_log_files()
    further = np.zeros(len(units), np.bool_)
    for position in np.unique(units.position[again]).tolist():
        first, behind = np.searchsorted(units.position, [position, position + 1])
        rows = np.arange(first, behind)
        names = [units.queues[int(units.queue[row])] for row in rows]
        if len(set(names)) == 1:
            continue
        topic = _topic_at(log, position, int(units.size[first]))
        own = [name.topic == topic and name in snapshot.queues for name in names]
        further[rows] = ~np.array(own, np.bool_) & any(own)
    return units.take(np.lexsort((units.queue, further, units.position)))


def _topic_at(log: MappedFileQueue, position: int, size: int) -> str:
    """The topic that a record says it has, whatever else is wrong with it; "" where it cannot be read."""
    file = log.file_at(position)
    if file is None or size > RECORD_BYTES_MAX:
        return ""
    data = np.frombuffer(log.read_file(file, position - file.start, size), np.uint8)
    columns = decode(MESSAGE, data, np.zeros(1, np.int64), np.full(1, len(data), np.int64))
    return columns.ragged("topic")[0].decode("utf-8", "surrogateescape")


def _of_queue(
    stream: FileUnits,
    number: int,
    gaps: Sequence[Gap],
    known: int,
    proved: tuple[int, int],
) -> Iterator[Ints]:
    """int64[6, n]: the units of one queue that lie in gaps, while positions rise.

    known: behind the offsets of all its messages in the log. proved: offsets, first and behind the
    last, of units that name good records before the gaps.
    """
    reach = -1
    for file in stream.files.files:
        for first, count in stream.data(file, _WINDOW_UNITS):
            left_out = min(count, proved[1] - first) if proved[0] <= first else 0
            begin = first + max(0, left_out)
            if begin == first + count:
                continue
            units = stream.read(begin, first + count - begin)
            valid = is_valid(units)
            most = int(units["physical_offset"][valid].max(initial=-1))
            if PRE_FILL["physical_offset"] < most < gaps[0].begin:
                reach = max(reach, most)
                continue
            used = np.flatnonzero(valid & ~is_pre_fill(units))
            position = units["physical_offset"][used].astype(np.int64)
            if not len(position):
                if first >= known:
                    break  # behind all messages of the log, and nothing is there
                continue
            highest = np.maximum.accumulate(np.concatenate([np.array([reach]), position]))
            rising = position > highest[:-1]
            reach = int(highest[-1])
            size = units["size"][used].astype(np.int64)
            rows = np.flatnonzero(rising & _inside(gaps, position, size))
            offset = begin + used[rows]
            tags = units["tags_code"][used[rows]].astype(np.int64)
            same = np.full(len(rows), number, np.int64)
            yield np.stack([position[rows], size[rows], same, offset, tags, np.ones_like(same)])


def _inside(gaps: Sequence[Gap], position: Ints, size: Ints) -> Flags:
    """bool[n]: a record of this size at that position lies in a gap."""
    if not gaps:
        return np.zeros(len(position), np.bool_)
    begins = np.array([gap.begin for gap in gaps], np.int64)
    ends = np.array([gap.end for gap in gaps], np.int64)
    gap = np.searchsorted(begins, position, side="right") - 1
    inside: Flags = (gap >= 0) & (size >= SMALLEST)
    return inside & (position + size <= ends[np.maximum(gap, 0)])


def _of_batches(entries: Sequence[Entry], number: int, gaps: Sequence[Gap]) -> Iterator[Ints]:
    """int64[6, n]: the same for a queue of batches, whose units name their offsets."""
    names = ("physical_offset", "size", "msg_base_offset", "tags_code", "batch_size")
    offset = -1
    for entry in sorted(entries, key=lambda e: int(e.name)):
        for first in range(0, entry.size // BATCH_UNIT_BYTES, _WINDOW_UNITS):
            units = read_units(entry, first, _WINDOW_UNITS, BATCH_UNIT_DTYPE)
            used = is_valid(units)
            if not used.any():
                break
            columns = (units[used][name].astype(np.int64) for name in names)
            position, size, base, tags, messages = columns
            behind = np.maximum.accumulate(np.append(offset, base + messages))
            offset = int(behind[-1])
            rows = np.flatnonzero(_inside(gaps, position, size) & (base >= behind[:-1]))
            same = np.full(len(rows), number, np.int64)
            found = (position, size, base, tags, messages)
            position, size, base, tags, messages = (column[rows] for column in found)
            yield np.stack([position, size, same, base, tags, messages])


def _of_torn(torn: Sequence[TornRecord], queues: list[QueueId]) -> Ints:
    """int64[6, n]: what damaged records say of themselves; queues they name are added.

    They come behind all units of queues: those tell what was dispatched.
    """
    rows = []
    for record in torn:
        if record.sys_flag & TRANSACTION_MASK & SysFlag.PREPARED:
            continue
        name = QueueId(record.topic.decode("utf-8", "surrogateescape"), record.queue_id)
        queues.append(name)
        rows.append((record.position, record.size, len(queues) - 1, record.queue_offset, 0, 1))
    return np.array(rows, np.int64).reshape(-1, 6).T


def _without_overlaps(units: LostUnits) -> LostUnits:
    """Without units that begin inside the record of the one before."""
    if not len(units) or (units.position[1:] >= units.end[:-1]).all():
        return units
    kept, reach = [], -1
    for row, (begin, end) in enumerate(zip(units.position, units.end, strict=True)):
        if begin >= reach:
            kept.append(row)
            reach = int(end)
    return units.take(np.array(kept, np.int64))


def units_at(snapshot: Snapshot, queue: QueueId, positions: Ints) -> LostUnits:
    """The units of one queue that name a record at one of `positions`. Raises Unreadable."""
    size = snapshot.queue_file_bytes
    parts = [np.zeros((5, 0), np.int64)]
    for first, units in FileUnits.of(snapshot.queues[queue], size).written():
        named = is_used(units) & np.isin(units["physical_offset"].astype(np.int64), positions)
        rows = np.flatnonzero(named)
        position, size_of, tags = (
            units[name][rows].astype(np.int64) for name in ("physical_offset", "size", "tags_code")
        )
        parts.append(np.stack([position, size_of, np.zeros_like(rows), first + rows, tags]))
    return LostUnits([queue], *np.concatenate(parts, axis=1))
