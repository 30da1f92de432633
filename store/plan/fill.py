"""Close gaps of the commit log with tombstones, fillers and BLANKs, and read the log as if they were written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...formats.blank import BLANK, MAGIC_BLANK
from ...formats.derive import Ragged, encode, sizes
from ...formats.derive.ragged import Ints
from ...formats.hashing import crc31, utf8
from ...formats.message import MAGIC_V1, MAGIC_V2, MESSAGE, PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX_V1
from ...formats.message_properties import CRC_ITEM_BYTES, ITEM_SEPARATOR, with_crc_item, without_crc
from ...formats.tombstone import FILLER_BYTES_MAX, FILLER_SYS_FLAG, FILLER_TOPIC, LOST_ITEM, lost_item
from ..audit.messages import Messages
from ..broker.snapshot import NO_QUEUE, QueueId, Snapshot
from ..broker.system_topics import LMQ_PREFIX
from ..counted import counted
from ..disk.byte_reader import Unread
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..disk.files import Content
from ..errors import Refused
from .gaps import Forms, Gap, batch_text
from .lost_messages import LostUnits, units_at

_FILLERS = QueueId(LMQ_PREFIX, 0)
"""Stands for the queue of fillers: as of an LMQ, its records become fillers."""


class Fill(NamedTuple):
    """The records that close one whole gap.

    lost: records that become tombstones, with the size of these. fillers: (position, size) of each. blank: (position,
    size), None if the file continues. padding: bytes that the record before takes up. guessed: number of lost records
    whose places are guessed.
    """

    gap: Gap
    lost: LostUnits
    fillers: list[tuple[int, int]]
    blank: tuple[int, int] | None
    padding: int = 0
    guessed: int = 0


def _fill(gap: Gap, units: LostUnits, smallest: Ints, filler: int) -> Fill:
    """Close a gap in which `units` name lost records. smallest: bytes of the smallest tombstone of each, int64[n];
    filler: of the smallest filler.

    Space too small for a record goes to a tombstone beside it, or without one into the properties of the record before.
    Raises Refused if there is none: no broker has left such a gap.
    """
    units = units.take(units.size >= smallest)
    if gap.to_file_end:  # a tombstone up to the end of the file leaves no room for the BLANK
        units = units.take(units.end <= gap.end - BLANK.sizeof())
    begins = np.append(units.position, gap.end)
    ends = np.append(gap.begin, units.end)
    room = begins - ends
    tight = (room > 0) & (room < filler)
    if gap.to_file_end:
        tight[-1] = False
        if room[-1] < BLANK.sizeof():
            raise _too_small(gap)
    if tight.any() and not len(units):
        if gap.previous < 0:
            raise _too_small(gap)
        return Fill(gap, units, [], None, int(room[0]))
    if tight.any():
        more, position = np.where(tight, room, 0), units.position.copy()
        size = units.size + more[1:]  # each takes the bytes behind it, the first one also those before it
        position[0], size[0] = position[0] - more[0], size[0] + more[0]
        units, room = units.replace(position=position, size=size), room - more
    holes = list(zip(ends.tolist(), room.tolist(), strict=True))
    blank = holes.pop() if gap.to_file_end else None
    fillers = [part for begin, size in holes if size for part in _filler_ranges(begin, size, filler)]
    return Fill(gap, units, fillers, blank)


def unwritten(gap: Gap, units: LostUnits) -> Fill:
    """Return the lost records of a gap in which nothing is written, and as fillers the bytes that no unit names."""
    begins, ends = [*units.position.tolist(), gap.end], [gap.begin, *units.end.tolist()]
    free = [(end, begin - end) for end, begin in zip(ends, begins, strict=True) if begin > end]
    return Fill(gap, units, free, None)


def for_policy_broker(what: str, offset: int, path: str | None = None) -> Refused:
    """Return the refusal of a place in the log that only the other policy gets over."""
    return Refused(what, path=path, offset=offset, hint="recover with --policy broker")


def _too_small(gap: Gap) -> Refused:
    return for_policy_broker(f"{counted(gap.end - gap.begin, 'byte')} between records, too few for a record", gap.begin)


def _smallest(units: LostUnits, forms: Forms) -> Ints:
    """Return the bytes of the smallest tombstone of each unit, int64[n]."""
    lengths = [forms.smallest(queue.topic) for queue in units.queues]
    smallest = np.array(lengths or [0], np.int64)[units.queue]
    for row in np.flatnonzero(units.batch_sizes > 1).tolist():
        offset, messages = int(units.queue_offset[row]), int(units.batch_sizes[row])
        smallest[row] += len(batch_text(offset, messages))
    return smallest


def _filler_ranges(begin: int, size: int, smallest: int) -> Iterator[tuple[int, int]]:
    """Yield a range as fillers of sizes that brokers can allocate. smallest: bytes of the smallest."""
    while size > FILLER_BYTES_MAX:
        part = min(FILLER_BYTES_MAX, size - smallest)
        yield begin, part
        begin, size = begin + part, size - part
    yield begin, size


def fills(gaps: Sequence[Gap], units: LostUnits, forms: Forms) -> list[Fill]:
    """Close all gaps. Raises Refused."""
    found, smallest = list[Fill](), _smallest(units, forms)
    number, rows = rows_in(gaps, units.position)
    behind = np.searchsorted(number, np.arange(len(gaps)), side="right").tolist()
    begins, ends = (np.array([gap[at] for gap in gaps], np.int64)[number] for at in (0, 1))
    whole = (units.position[rows] == begins) & (units.end[rows] == ends)
    whole &= units.size[rows] >= smallest[rows]
    first = 0
    for gap, end in zip(gaps, behind, strict=True):
        mine = slice(int(rows[first]), int(rows[first]) + end - first) if first < end else slice(0)
        lost = units.take(mine)
        if end - first == 1 and whole[first] and not gap.to_file_end:
            found.append(Fill(gap, lost, [], None))  # the usual case: records damaged one by one
        else:
            found.append(_fill(gap, lost, smallest[mine], forms.smallest_filler))
        first = end
    return found


def rows_in(gaps: Sequence[Gap], positions: Ints) -> tuple[Ints, Ints]:
    """Return gap number and row of each position inside a gap, gap by gap. positions: int64[n], ascending."""
    limits = np.array([(gap.begin, gap.end) for gap in gaps], np.int64).reshape(-1, 2)
    first, behind = np.searchsorted(positions, limits).T
    counts = np.maximum(behind - first, 0)
    number = np.repeat(np.arange(len(gaps)), counts)
    before = np.cumsum(counts) - counts
    return number, np.arange(len(number)) - (before - first)[number]


_HOST = b"\x7f\0\0\1"
_CHUNK_BYTES = 4 << 20
Piece = tuple[int, Content]
"""Log position and bytes."""


_NOTHING: Mapping[int, bytes] = {}


def encoded(
    fills: Sequence[Fill], forms: Forms, bodies: Mapping[int, bytes], further: Mapping[int, bytes] = _NOTHING
) -> Iterator[Piece]:
    """Yield the bytes that close gaps, in pieces of some MiB: whole records, and the head of each BLANK.

    bodies: by position, bodies of tombstones that services read. further: by position, properties of tombstones that
    name further queues. Where no record gives a store time, the time of the plan is used: a record without a time would
    be damage itself.
    """
    times = np.array([fill.gap.store_timestamp or forms.made_ms for fill in fills], np.int64)
    lost = together([fill.lost for fill in fills])
    gap = np.repeat(np.arange(len(fills)), [len(fill.lost) for fill in fills])
    yield from _in_chunks(lost, times[gap], gap, forms, bodies, further)
    fillers = of_nobody([place for fill in fills for place in fill.fillers]).replace(queues=[_FILLERS])
    gap = np.repeat(np.arange(len(fills)), [len(fill.fillers) for fill in fills])
    yield from _in_chunks(fillers, times[gap], np.arange(len(fillers)), forms._replace(lost_tag=""), {}, {})
    for fill in fills:
        if fill.blank is not None:
            position, size = fill.blank
            yield position, BLANK.build({"total_size": size, "magic_code": MAGIC_BLANK})


def together(parts: Sequence[LostUnits]) -> LostUnits:
    """Return the units of several gaps as one."""
    names = list(parts[0].queues) if parts else []
    known = {name: number for number, name in enumerate(names)}
    renumbered = []
    for part in parts:
        queue = part.queue
        if part.queues is not parts[0].queues:
            for name in part.queues:
                if name not in known:
                    known[name] = len(names)
                    names.append(name)
            queue = np.array([known[name] for name in part.queues] or [0], np.int64)[queue]
        renumbered.append(part.replace(queues=names, queue=queue, batch_size=part.batch_sizes))
    return LostUnits.concat(renumbered) if renumbered else LostUnits([], *np.zeros((6, 0), np.int64))


def padded(record: bytes, count: int) -> bytes:
    """Return a record with `count` more bytes of property text, read the same. ValueError if it gets too long."""
    values = MESSAGE.parse(record)
    text, own_crc = without_crc(values.properties)
    text += ITEM_SEPARATOR * count
    if len(text) > PROPERTIES_BYTES_MAX - CRC_ITEM_BYTES * own_crc:
        raise ValueError(f"no room for {counted(count, 'byte')} more in the properties")
    made: bytes = MESSAGE.build({**values, "properties": text + bytes(CRC_ITEM_BYTES * own_crc)})
    return with_crc_item(made) if own_crc else made


def _in_chunks(
    lost: LostUnits, times: Ints, gap: Ints, forms: Forms, bodies: Mapping[int, bytes], further: Mapping[int, bytes]
) -> Iterator[Piece]:
    """Yield `_tombstones` of some MiB at a time."""
    ends = np.cumsum(lost.size) // _CHUNK_BYTES
    for rows in np.split(np.arange(len(lost)), np.flatnonzero(np.diff(ends)) + 1):
        if len(rows):
            yield from _tombstones(lost.take(rows), times[rows], gap[rows], forms, bodies, further)


def _tombstones(
    lost: LostUnits, times: Ints, gap: Ints, forms: Forms, bodies: Mapping[int, bytes], further: Mapping[int, bytes]
) -> Iterator[Piece]:
    """Yield tombstones, neighbours of a gap as one piece. times, gap: store time (ms) and gap number of each. An LMQ is
    never a record's own queue: a record that only an LMQ names becomes a filler.
    """
    names = [FILLER_TOPIC.decode() if q.topic.startswith(LMQ_PREFIX) else q.topic for q in lost.queues]
    light = np.array([name != q.topic for name, q in zip(names, lost.queues, strict=True)], np.bool_)[lost.queue]
    topics = [utf8(name) for name in names]
    shapes = [forms.of(name) for name in names]
    own_time = np.array([shape.born_timestamp is None for shape in shapes], np.bool_)[lost.queue]
    born = np.array([shape.born_timestamp or 0 for shape in shapes], np.int64)[lost.queue]
    queue_ids = [queue.queue_id for queue in lost.queues]
    long = np.array([len(topic) > TOPIC_BYTES_MAX_V1 for topic in topics])
    rows = lost.queue.tolist()
    hosts = ("born_host", "store_host")
    columns = {
        **{f"{host}.ip": _HOST for host in hosts},
        **{f"{host}.port": 0 for host in hosts},
        "flag": 0,
        "store_timestamp": times,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "magic_code": np.where(long, MAGIC_V2, MAGIC_V1)[lost.queue],
        "queue_id": np.array(queue_ids, np.int64)[lost.queue],
        "queue_offset": np.where(light, 0, lost.queue_offset),
        "physical_offset": lost.position,
        "sys_flag": np.where(light, FILLER_SYS_FLAG, 0),
        "born_timestamp": np.where(own_time, times, born),
        "topic": Ragged.of([topics[queue] for queue in rows]),
    }
    own = {row: bodies[at] for row, at in enumerate(lost.position.tolist()) if at in bodies}
    around = [forms.smallest(name) - len(shape.small) for name, shape in zip(names, shapes, strict=True)]
    room = [size - around[queue] for queue, size in zip(rows, lost.size.tolist(), strict=True)]
    names_of = (further.get(position, b"") for position in lost.position.tolist())
    texts = [shapes[queue].text(free, more) for queue, free, more in zip(rows, room, names_of, strict=True)]
    for row in np.flatnonzero(lost.batch_sizes > 1).tolist():
        text = batch_text(int(lost.queue_offset[row]), int(lost.batch_sizes[row]))
        both = texts[row] + text
        texts[row] = both if room[row] >= len(LOST_ITEM) + len(both) else text
    made = _records(columns, lost.size, texts, own, forms)
    apart = (lost.position[1:] != lost.end[:-1]) | (gap[1:] != gap[:-1])
    begins = np.flatnonzero(np.r_[True, apart])
    for part in np.split(np.arange(len(lost)), begins[1:]):
        yield int(lost.position[part[0]]), b"".join(made[row] for row in part.tolist())


def _records(
    columns: dict[str, Any], wanted: Ints, texts: Sequence[bytes], bodies: Mapping[int, bytes], forms: Forms
) -> list[bytes]:
    """Return records of exactly the `wanted` sizes: the mark if there is room, then `texts`.

    The body is zeros, or that of `bodies` by row; then the value of the mark fills the record.
    """
    count = len(wanted)
    bare = {**columns, "body": Ragged.repeat(b"", count), "body_crc": 0}
    crc = bytes(CRC_ITEM_BYTES if forms.append_crc else 0)
    room = wanted - sizes(MESSAGE, {**bare, "properties": Ragged.of([t + crc for t in texts])})
    properties, made_bodies = [], []
    for row, (text, free) in enumerate(zip(texts, room.tolist(), strict=True)):
        body = bodies.get(row)
        if body is not None:
            properties.append(lost_item(free - len(body)) + text + crc)
        else:
            mark = LOST_ITEM if free >= len(LOST_ITEM) else b""
            properties.append(mark + text + crc)
            body = bytes(free - len(mark))
        made_bodies.append(body)
    checksums = np.array([crc31(body) for body in made_bodies], np.int64)
    filled = {**columns, "properties": Ragged.of(properties), "body": Ragged.of(made_bodies), "body_crc": checksums}
    made = encode(MESSAGE, filled)
    records = Ragged(made.buffer, made.starts, made.sizes).tolist()
    return [*map(with_crc_item, records)] if forms.append_crc else records


def _cut_apart(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces by position, without overlaps: a later piece replaces the bytes that it covers."""
    found: list[Piece] = []
    for begin, data in sorted(pieces, key=lambda piece: piece[0]):
        if not found or found[-1][0] + len(found[-1][1]) <= begin:
            found.append((begin, data))
            continue
        before, under = found.pop()
        around = [(before, under[: begin - before]), (begin, data)]
        around.append((begin + len(data), under[begin + len(data) - before :]))
        found += [piece for piece in around if len(piece[1])]
    return found


class PatchedQueue(MappedFileQueue):
    """Files of a log with pieces laid over them, else zeros. present: length on disk of files that exist, by path."""

    def __init__(
        self, base: MappedFileQueue, files: list[MappedFile], present: dict[str, int], pieces: Iterable[Piece]
    ) -> None:
        super().__init__(base.directories, files, base.file_size, [])
        self._base = base
        self._present = present
        self._pieces = _cut_apart(pieces)
        self._begins = [position for position, _ in self._pieces]

    def read_file(self, file: MappedFile, offset: int, size: int) -> bytes:
        size = max(0, min(size, file.size - offset))
        if self._is_plain(file, offset, size):
            return self._base.read_file(file._replace(size=self._present[file.path]), offset, size)
        data = bytearray(size)
        return bytes(data[: self.read_into(file, offset, memoryview(data))])

    def fill(self, file: MappedFile, offset: int, buffer: memoryview) -> tuple[int, list[Unread]]:
        size = max(0, min(len(buffer), file.size - offset))
        if self._is_plain(file, offset, size):
            whole = file._replace(size=self._present[file.path])
            return self._base.fill(whole, offset, buffer[:size])
        there, unread = min(size, max(0, self._present.get(file.path, 0) - offset)), list[Unread]()
        if there:
            whole = file._replace(size=self._present[file.path])
            there, unread = self._base.fill(whole, offset, buffer[:there])
        buffer[there:size] = bytes(size - there)
        begin = file.start + offset
        for position, piece in self._pieces_from(begin, begin + size):
            first, behind = max(begin, position), min(begin + size, position + len(piece))
            buffer[first - begin : behind - begin] = piece[first - position : behind - position]
        return size, [part for each in unread for part in self._uncovered(file, each)]

    def _uncovered(self, file: MappedFile, unread: Unread) -> Iterator[Unread]:
        """Yield the parts of an unreadable range of a file that no piece covers."""
        at = unread.offset
        for position, piece in self._pieces_from(file.start + at, file.start + unread.end):
            begin = position - file.start
            if begin > at:
                yield unread._replace(offset=at, length=begin - at)
            at = begin + len(piece)
        if at < unread.end:
            yield unread._replace(offset=at, length=unread.end - at)

    def _is_plain(self, file: MappedFile, offset: int, size: int) -> bool:
        """Whether no piece covers the range and the file has all of it."""
        if self._present.get(file.path, 0) < offset + size:
            return False
        begin = file.start + offset
        return next(self._pieces_from(begin, begin + size), None) is None

    def next_data(self, file: MappedFile, offset: int) -> int | None:
        """As for any queue; a piece over a hole is data, too."""
        found, there = None, self._present.get(file.path, 0)
        if offset < there:
            found = self._base.next_data(file._replace(size=there), offset)
        begin, end = file.start + offset, file.start + file.size
        for position, _ in self._pieces_from(begin, end):
            laid = max(begin, position) - file.start
            return laid if found is None else min(found, laid)
        return found

    def _pieces_from(self, begin: int, end: int) -> Iterator[Piece]:
        number = max(0, bisect_right(self._begins, begin) - 1)
        while number < len(self._pieces) and self._begins[number] < end:
            position, piece = self._pieces[number]
            if position + len(piece) > begin:
                yield position, piece
            number += 1


def tombstoned(snapshot: Snapshot, fills: Sequence[Fill]) -> Iterator[Messages]:
    """Yield the messages that get a tombstone, by queue, and those of LMQs that name them. Raises Unreadable."""
    if not fills:
        return
    lost = together([fill.lost for fill in fills])
    counts = [len(fill.lost) for fill in fills]
    times = np.repeat([fill.gap.store_timestamp for fill in fills], counts)
    order = np.argsort(lost.queue, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(lost.queue[order])) + 1):
        if len(rows):
            mine = lost.take(rows)
            yield _messages(lost.queues[int(mine.queue[0])], mine, times[rows])
    light = (queue for queue in sorted(snapshot.queues) if queue.topic.startswith(LMQ_PREFIX))
    for queue, mine in units_beside(snapshot, lost, light):
        yield _messages(queue, mine, np.zeros(len(mine), np.int64))


def units_beside(snapshot: Snapshot, lost: LostUnits, queues: Iterable[QueueId]) -> Iterator[tuple[QueueId, LostUnits]]:
    """Yield the units of each queue that name lost records of other queues. Raises Unreadable."""
    own: dict[QueueId, set[int]] = {}
    for number, position in zip(lost.queue.tolist(), lost.position.tolist(), strict=True):
        own.setdefault(lost.queues[number], set()).add(position)
    positions = np.unique(lost.position)
    for queue in queues if len(positions) else ():
        others = np.setdiff1d(positions, list(own[queue])) if queue in own else positions
        mine = units_at(snapshot, queue, others)
        if len(mine):
            yield queue, mine


def of_nobody(places: Sequence[tuple[int, int]]) -> LostUnits:
    """Return records of messages whose queue is unknown. places: position and size of each."""
    position, size = np.array(places, np.int64).reshape(-1, 2).T
    zeros = np.zeros_like(position)
    return LostUnits([NO_QUEUE], position, size, zeros, zeros - 1, zeros)


def _messages(queue: QueueId, lost: LostUnits, times: np.ndarray) -> Messages:
    """Return lost units of one queue as messages that are not good."""
    nobody = np.zeros(len(lost), np.bool_)
    columns = (lost.queue_offset, lost.position, lost.size, lost.tags_code, times)
    return Messages(queue, *columns, nobody, ~nobody, lost.batch_sizes)
