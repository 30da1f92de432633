"""Batches of records and the extents between them, as a scan of the commit log yields them.

This module also tells torn, dead and contradictory records, which the checks of a single record cannot. *Torn*: body
and header are good, keys and tags are not. No broker checks properties (spec 01, 1.6; 7.12, B27): a page that never
reached the disk leaves zero bytes there, which no writer does. *Dead* (spec 7.4, step 4): a broker that cuts the log
leaves the bytes behind the cut, then overwrites the first of them. The remaining records are whole and in place, but
older than the records before them, or their queue offsets have been given again. A clock that was set back makes good
records behind damage look old, too, and a spoilt queue offset before them makes them look given again. In these cases a
queue still names the record that stood where the damage begins; nothing names what a broker has overwritten
(`references.py`). *Contradictory*: fields without a checksum disagree, or have values that no writer gives.

Messages inside of batch records are shown as consumers get them (spec 01, 1.9). In a topic with queue.type=BatchCQ a
broker stores what a client sent together as one record. A client of 5.x takes it apart: each message has its own flag,
body and properties, and the record's queue offset plus its number in the batch. Everything else, position and message
id included, is the record's. A record whose body is no such batch stays as it is, as clients pass it on.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from ...formats import message_properties as names
from ...formats.derive import Columns, Ragged, decode
from ...formats.derive.ragged import Flags, Ints
from ...formats.hashing import java_integer, java_string
from ...formats.hashing_columns import crc31_column
from ...formats.host import PORT_MAX
from ...formats.message import COMPRESSION_MASK, MESSAGE, SMALLEST, TRANSACTION_MASK, SysFlag
from ...formats.property_columns import PropertyItems, crc_values, ends_with_crc_item
from ...formats.property_columns import find as find_property
from ..columns import Key, Rows, dictionary, distinct, runs
from ..counted import counted
from .message import MAX_BODY_BYTES, InnerMessage, Mark, Message, is_batch_record, unpack
from .window import body_crc_ok

if TYPE_CHECKING:
    from ...formats.commit_log import Frame
    from ..disk.byte_reader import Unread
    from ..disk.file_queue import MappedFile, MappedFileQueue


class ExtentKind(StrEnum):
    """What lies between records."""

    BLANK = "blank"
    DAMAGE = "damage"
    MISSING = "missing"
    TORN_TAIL = "torn_tail"
    ZEROS = "zeros"
    STALE_BYTES = "stale_bytes"


DAMAGED = (ExtentKind.DAMAGE, ExtentKind.MISSING)
"""Kinds of what may have held messages."""
NO_FILE = "no file holds this range"
"""The reason of what is MISSING."""


@dataclass(frozen=True)
class Extent:
    """`size` bytes from log position `position` that are not records, and why.

    unread: how many of these bytes the disk does not give.
    """

    kind: ExtentKind
    position: int
    size: int
    reason: str = ""
    unread: int = 0

    @property
    def end(self) -> int:
        """Log position behind the last byte."""
        return self.position + self.size

    @property
    def told(self) -> str:
        """The reason as answers show it, with the kind in front unless it is damage, BLANK or zeros."""
        return ": ".join(part for part in (_KIND_TEXTS.get(self.kind), self.reason) if part)


_KIND_TEXTS = {ExtentKind.TORN_TAIL: "torn tail", ExtentKind.STALE_BYTES: "stale bytes", ExtentKind.MISSING: "missing"}


class Inner(Rows):
    """Which rows of a batch are messages inside of records (made by `unwrapped`).

    records: the records as stored. row int64[n]: index of the record that each row is, or lies in. number int64[n]:
    index of the message in its record; -1: the row is the record itself. count int64[n]: messages in the record.
    """

    records: Batch
    row: Ints
    number: Ints
    count: Ints

    def __len__(self) -> int:
        return len(self.row)

    def take(self, key: Key) -> Self:
        """Select rows; `records` stays complete."""
        return type(self)(self.records, self.row[key], self.number[key], self.count[key])


class Batch(Rows):
    """n records in log order; `columns` of MESSAGE point into a buffer.

    A batch of a scan that reuses its buffer is valid until the next batch is asked for; `copy` makes a lasting one.
    `position` int64[n]; `mark` is the same for all rows; `body_crc_ok` bool[n], None if not computed. `inner`: None if
    each row is a record; otherwise rows may be messages inside of records.
    """

    columns: Columns
    position: Ints
    mark: Mark
    body_crc_ok: Flags | None
    inner: Inner | None = None

    @property
    def end(self) -> int:
        """Log position behind the last record."""
        return int(self.position[-1]) + int(self.columns.ints("total_size")[-1])

    @property
    def taken(self) -> Iterator[tuple[int, int]]:
        """Yield the log ranges (begin, end) that the records occupy, without placeholders for lost records (store host
        port 0): whatever else names a place inside these ranges names no message.
        """
        is_stored = self.columns.ints("store_host.port") != 0
        if is_stored.all():
            yield int(self.position[0]), self.end
            return
        ends = self.position + self.columns.ints("total_size")
        for begin, end in runs(np.flatnonzero(is_stored)):
            yield int(self.position[begin]), int(ends[end - 1])

    def hosts(self, field: str) -> tuple[Ints, list[tuple[bytes, int]]]:
        """For each record the index of its host, and the hosts as (ip, port), which are few."""
        ports, ips = self.columns.ints(f"{field}.port"), dictionary(self.columns.ragged(f"{field}.ip"))
        which, found = distinct(ports.astype(np.int64) * len(ips.values) + ips.ids)
        both = (divmod(number, len(ips.values)) for number in found)
        return which, [(ips.values[ip], port) for port, ip in both]

    def copy(self) -> Batch:
        """The same records in their own buffer."""
        total = self.columns.ints("total_size").astype(np.int64)
        source = self.columns.ragged("body").buffer
        packed = Ragged(source, self.columns.starts, total).packed()
        crc_ok = None if self.body_crc_ok is None else self.body_crc_ok.copy()
        columns = decode(MESSAGE, packed.buffer, packed.start)
        return self.replace(columns=columns, position=self.position.copy(), body_crc_ok=crc_ok)

    def checked(self) -> Batch:
        """The batch with the CRC of its bodies computed; a message inside of a record has the result of the record."""
        if self.body_crc_ok is not None:
            return self
        if self.inner is None:
            every = np.ones(len(self), np.bool_)
            return self.replace(body_crc_ok=body_crc_ok(self.columns, every))
        records = self.inner.records.checked()
        assert records.body_crc_ok is not None
        inner = self.inner.replace(records=records)
        return self.replace(body_crc_ok=records.body_crc_ok[self.inner.row], inner=inner)

    def __repr__(self) -> str:
        if not len(self):
            return "Batch(no record)"
        first, last = int(self.position[0]), int(self.position[-1])
        return f"Batch({counted(len(self), 'record')} at {first} to {last})"


class LogEnd(NamedTuple):
    """Where the log ends and what lies behind the end. reason: the first thing there.

    store_timestamp: of the last record (ms). damaged_ranges, damaged_bytes, first_damage: damage and missing files
    before the end. torn: a torn record behind the end. damaged_behind: damage or a missing file is behind the end.
    """

    position: int
    reason: str
    store_timestamp: int | None = None
    damaged_ranges: int = 0
    damaged_bytes: int = 0
    first_damage: Extent | None = None
    torn: Extent | None = None
    damaged_behind: bool = False


#: How many records before a gap have their queue offsets compared with those behind the gap.
LOOK_BACK = 512


class NamesRecords(Protocol):
    """The queues of a store, as names of log records."""

    @property
    def known(self) -> bool:
        """Whether there are queues."""

    def names(self, begin: int, end: int, *, unknown: bool = True) -> bool:
        """Whether a unit names a record at log position `begin` that ends at or before `end`. unknown: the answer where
        no queue has a unit.
        """

    def has_unit(self, record: Batch) -> bool:
        """Whether the unit at the record's own queue and queue offset names the record's position."""


class ScannedLog(Protocol):
    """What a scan needs of a commit log."""

    queue: MappedFileQueue

    @property
    def naming(self) -> NamesRecords | None: ...
    @property
    def files(self) -> list[MappedFile]: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def max_file_end(self) -> int: ...
    def frame_of(self, file: MappedFile) -> Frame: ...
    def read_around(self, buffer: memoryview, file: MappedFile, offset: int) -> tuple[int, list[Unread]]: ...
    def records(self, positions: Ints) -> Batch: ...


class ItemObserver(Protocol):
    """Receiver of everything in a log but its good records; subclasses override only the methods they need."""

    def extent(self, extent: Extent) -> None:
        """Take an extent between records."""
        return  # a body: no method is abstract

    def stale(self, batch: Batch) -> None:
        """Take whole records that do not, or no longer, belong to this log."""
        return


def good_records(
    items: Iterable[Batch | Extent],
    observers: Sequence[ItemObserver] = (),
    progress: Callable[[int], None] | None = None,
) -> Iterator[Batch]:
    """Yield the good records of a scan; pass everything else to the observers.

    progress: called with the log position reached. Raises what the scan raises.
    """
    for item in items:
        if isinstance(item, Extent):
            for observer in observers:
                observer.extent(item)
            continue
        if progress is not None:
            progress(item.end)
        if item.mark > Mark.AFTER_DAMAGE:
            for observer in observers:
                observer.stale(item)
            continue
        only = [item]
        del item  # keep no reference: the consumer decides how long the columns live
        yield only.pop()


class TailHistory:
    """Store time of the last good record, and positions of the last LOOK_BACK records."""

    def __init__(self) -> None:
        self._store_timestamp = 0
        self._position: Ints = np.empty(0, np.int64)
        #: What records say of their queues, by position: each is read once, however many gaps there are.
        self._numbers: dict[int, _Number | None] = {}

    def note(self, position: Ints, columns: Columns) -> None:
        """Remember the last records of a batch."""
        self.remember(position, int(columns.ints("store_timestamp")[-1]))

    def remember(self, position: Ints, store_timestamp: int) -> None:
        """Remember the last LOOK_BACK records: those at `position`, then earlier ones. store_timestamp: of the last
        record (ms).
        """
        self._store_timestamp = store_timestamp
        self._position = last_of(self._position, position)

    def is_dead(self, columns: Columns, log: ScannedLog, gap: tuple[int, int]) -> bool:
        """Whether a broker has cut off the records behind a gap: they are older than the records before the gap, or
        repeat queue offsets of those. gap: its log positions. If a unit still names a lost record in the gap, a record
        before the gap has a spoilt time or queue offset, which proves nothing.
        """
        if not len(self._position):
            return False
        older = int(columns.ints("store_timestamp")[0]) < self._store_timestamp
        if older and not (log.naming and log.naming.names(*gap)):
            return True
        highest = dict[_Queue, int]()
        for _, queue, offset in _queue_offsets(columns):
            highest[queue] = max(offset, highest.get(queue, -1))
        last_offsets = self._last_queue_offsets(log, highest)
        repeats = any(offset <= last_offsets.get(queue, -1) for queue, offset in highest.items())
        return repeats and not (log.naming and log.naming.names(*gap, unknown=False))

    def _last_queue_offsets(self, log: ScannedLog, queues: Container[_Queue]) -> dict[_Queue, int]:
        """The last plausible queue offset of each of `queues`. An offset is plausible if the log has room for so many
        messages since the queue's previous plausible record. An offset that is too high is replaced by the next one.
        """
        known, places = self._numbers, self._position.tolist()
        new = [place for place in places if place not in known]
        if len(known) > 8 * LOOK_BACK:
            known = self._numbers = {place: known[place] for place in places if place in known}
        if new:
            known |= dict.fromkeys(new) | _numbers(log.records(np.array(new, np.int64)))
        found, at = dict[_Queue, int](), dict[_Queue, int]()
        for place in places:
            number = known[place]
            if number is None or number.queue not in queues:
                continue
            queue, offset, least = number
            if queue not in found or offset - found[queue] <= (place - at[queue]) // least:
                found[queue], at[queue] = offset, place
        return found


_Queue = tuple[bytes, int]
"""Topic and queue id."""


class _Number(NamedTuple):
    """What a record says of its queue. least: the least number of bytes that a message of the record takes."""

    queue: _Queue
    offset: int
    least: int


def _numbers(records: Batch) -> dict[int, _Number | None]:
    """What records say of their queues, by position; only records that have a queue offset of their own."""
    places = records.position.tolist()
    several = is_batch_record(records.columns.ints("sys_flag")).tolist()
    return {
        places[row]: _Number(queue, offset, 1 if several[row] else SMALLEST)
        for row, queue, offset in _queue_offsets(records.columns)
    }


def last_of(before: Ints, position: Ints) -> Ints:
    """Positions of the last LOOK_BACK records: the last of `position`, and of `before` if there is room."""
    if len(position) >= LOOK_BACK:
        return position[-LOOK_BACK:].copy()
    return np.concatenate([before[before < position[0]], position])[-LOOK_BACK:]


def _queue_offsets(columns: Columns) -> Iterator[tuple[int, _Queue, int]]:
    """Yield row, queue and queue offset of the records with a queue offset: neither prepared nor rolled back."""
    state = columns.ints("sys_flag") & TRANSACTION_MASK
    rows = np.flatnonzero((state == 0) | (state == SysFlag.COMMIT))
    topics, queue_ids = columns.ragged("topic")[rows].tolist(), columns.ints("queue_id")[rows]
    offsets = columns.ints("queue_offset")[rows].tolist()
    queues = zip(topics, queue_ids.tolist(), strict=True)
    return zip(rows.tolist(), queues, offsets, strict=True)


def unwrapped(batch: Batch, max_bytes: int = MAX_BODY_BYTES) -> Batch:
    """Replace each record that holds several messages by these messages.

    max_bytes: a record whose body is larger when decompressed stays. A message has its own `flag`, `queue_offset`,
    `body`, `properties` and their lengths; other columns are the record's.
    """
    rows = np.flatnonzero(is_batch_record(batch.columns.ints("sys_flag")))
    if batch.inner is not None or not len(rows):
        return batch
    from ...formats.client_batch import MESSAGE as CLIENT_MESSAGE

    bodies = _bodies(batch, rows, max_bytes)
    starts = [_starts(body) for body in bodies.tolist()]
    counts = np.array([len(found) for found in starts], np.int64)
    message_starts = np.repeat(bodies.start, counts) + np.array([*chain.from_iterable(starts)], np.int64)
    ends = np.repeat(bodies.start + bodies.length, counts)
    copies = np.ones(len(batch), np.int64)
    copies[rows] = np.maximum(counts, 1)
    is_split = np.zeros(len(batch), np.bool_)
    is_split[rows[counts > 0]] = True
    row = np.repeat(np.arange(len(batch)), copies)
    number = np.arange(len(row)) - (np.cumsum(copies) - copies)[row]
    inside = is_split[row]
    repeated = batch.take(row)
    own = decode(CLIENT_MESSAGE, bodies.buffer, message_starts, ends)
    _set_inner_columns(repeated.columns, own, inside, number)
    inner = Inner(batch, row, np.where(inside, number, -1), copies[row])
    return repeated.replace(inner=inner)


def _starts(body: bytes) -> list[int]:
    """Where the messages of a body begin; none if the body is no batch."""
    from ...formats.client_batch import starts_of

    try:
        return starts_of(body)
    except ValueError:
        return []


def _bodies(batch: Batch, rows: Ints, max_bytes: int) -> Ragged:
    """The bodies of some records in one buffer, decompressed; empty where that fails.

    The buffer of the batch comes first, then the decompressed bodies.
    """
    bodies = batch.columns.ragged("body")[rows]
    start, length = bodies.start.copy(), bodies.length.copy()
    buffers = [bodies.buffer]
    size = len(bodies.buffer)
    for at, sys_flag in enumerate(batch.columns.ints("sys_flag")[rows].tolist()):
        if sys_flag & SysFlag.COMPRESSED:
            body = unpack(bodies[at], sys_flag, max_bytes)
            data = b"" if body.error else body.data
            buffers.append(np.frombuffer(data, np.uint8))
            start[at], length[at] = size, len(data)
            size += len(data)
    buffer = buffers[0] if len(buffers) == 1 else np.concatenate(buffers)
    return Ragged(buffer, start, length)


def _set_inner_columns(columns: Columns, own: Columns, inside: Flags, number: Ints) -> None:
    """Set the columns that messages have of their own in the rows `inside`. own: these messages, in row order."""
    for name in ("flag", "body_length", "properties_length"):
        column = columns.ints(name).copy()
        column[inside] = own.ints(name)
        columns.set(name, column)
    columns.set("queue_offset", columns.ints("queue_offset") + np.where(inside, number, 0))
    for name in ("body", "properties"):
        text, own_text = columns.ragged(name), own.ragged(name)
        start, length = text.start.copy(), text.length.copy()
        start[inside], length[inside] = own_text.start, own_text.length
        columns.set(name, Ragged(own_text.buffer, start, length))


def messages_in(batch: Batch) -> Ints:
    """How many queue offsets each row takes, int64[n]: INNER_NUM of a whole batch record, else 1."""
    number = np.ones(len(batch), np.int64)
    whole = is_batch_record(batch.columns.ints("sys_flag"))
    if batch.inner is not None:
        whole &= batch.inner.number < 0
    rows = np.flatnonzero(whole)
    if len(rows):
        number[rows] = inner_numbers(find_property(batch.columns.ragged("properties")[rows], names.INNER_NUM))
    return number


def dispatched_messages(properties: PropertyItems, count: int) -> Ints:
    """How many messages a broker dispatches for each of `count` records: INNER_NUM, if there is INNER_BASE, too."""
    number = np.ones(count, np.int64)
    if properties.has_name(names.INNER_NUM):
        texts = properties.find(names.INNER_NUM)
        rows = np.flatnonzero((texts.length > 0) & (properties.find(names.INNER_BASE).length > 0))
        number[rows] = inner_numbers(texts[rows])
    return number


def inner_numbers(texts: Ragged) -> Ints:
    """INNER_NUM of n batch records as a broker reads it, int64[n]; 1 if it is no number or less than 1."""
    values = [java_integer(java_string(text), 16) for text in texts.tolist()]
    return np.array([max(1, value or 1) for value in values], np.int64)


_KNOWN_BITS = 0x7FF
_BATCH_BITS = int(SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH)


def odd_flags(columns: Columns, properties: PropertyItems) -> Flags:
    """bool[n]: sys_flag has unknown bits, a compression type without COMPRESSED, or a batch bit without INNER_NUM."""
    flags = columns.ints("sys_flag")
    odd: Flags = flags & ~_KNOWN_BITS != 0
    odd |= (flags & COMPRESSION_MASK != 0) & (flags & SysFlag.COMPRESSED == 0)
    batches = np.flatnonzero(flags & _BATCH_BITS)
    if len(batches):
        odd[batches] |= properties.find(names.INNER_NUM).length[batches] < 0
    return odd


def numbered_halves(columns: Columns) -> Flags:
    """bool[n]: prepared or rolled back, but with a queue offset other than 0."""
    found: Flags = (columns.ints("sys_flag") & SysFlag.PREPARED != 0) & (columns.ints("queue_offset") != 0)
    return found


def odd_ports(columns: Columns, host: str) -> Flags:
    """bool[n]: the port of `host` is out of range."""
    port = columns.ints(f"{host}.port")
    found: Flags = (port < 0) | (port > PORT_MAX)
    return found


def odd_crc_items(columns: Columns, properties: PropertyItems) -> Flags:
    """bool[n]: `__CRC32#` is not the last property, or not the CRC of the record."""
    if not properties.has_name(names.CRC32):
        return np.zeros(len(columns.starts), np.bool_)
    texts = columns.ragged("properties")
    last = ends_with_crc_item(texts)
    odd: Flags = (properties.find(names.CRC32).length >= 0) & ~last
    rows = np.flatnonzero(last)
    start, total = columns.starts[rows], columns.ints("total_size").astype(np.int64)[rows]
    before = Ragged(texts.buffer, start, total - names.CRC_ITEM_BYTES)
    odd[rows] = crc31_column(before) != crc_values(texts[rows])
    return odd


def contradictory(batch: Batch, properties: PropertyItems) -> Flags:
    """bool[n]: fields that the body's checksum does not cover are damaged."""
    columns = batch.columns
    found: Flags = (columns.ints("physical_offset") != batch.position) | properties.has_lost_items()
    found |= odd_flags(columns, properties) | numbered_halves(columns) | odd_crc_items(columns, properties)
    found |= odd_ports(columns, "born_host") | odd_ports(columns, "store_host")
    return found


def backwards(batch: Batch) -> Batch:
    """Reverse the messages inside of each record; the records keep their order."""
    if batch.inner is None:
        return batch
    row = batch.inner.row
    begins = np.flatnonzero(np.diff(row, prepend=-1))
    ends = np.append(begins[1:], len(row))
    times = ends - begins
    order = np.repeat(begins + ends - 1, times) - np.arange(len(row))
    return batch.take(order)


def messages(batch: Batch) -> Iterator[Message]:
    """Yield the records of a batch as `Message`s, which stay valid.

    Takes the batch in parts of _MESSAGES_AT_ONCE: a batch of small records has many.
    """
    for first in range(0, len(batch), _MESSAGES_AT_ONCE):
        yield from _messages(batch.take(slice(first, first + _MESSAGES_AT_ONCE)))


def _messages(batch: Batch) -> Iterator[Message]:
    columns = batch.columns
    count = len(batch)

    def hosts(name: str) -> Iterator[tuple[bytes, int]]:
        ips = columns.ragged(f"{name}.ip").tolist()
        return zip(ips, columns.ints(f"{name}.port").tolist(), strict=True)

    crc_ok = [None] * count if batch.body_crc_ok is None else batch.body_crc_ok.tolist()
    rows: Iterator[tuple[Any, ...]] = zip(
        batch.position.tolist(),
        *(columns.ints(name).tolist() for name in _BEFORE_BORN_HOST),
        hosts("born_host"),
        columns.ints("store_timestamp").tolist(),
        hosts("store_host"),
        columns.ints("reconsume_times").tolist(),
        columns.ints("prepared_transaction_offset").tolist(),
        columns.ragged("body").tolist(),
        columns.ragged("topic").tolist(),
        columns.ragged("properties").tolist(),
        crc_ok,
        strict=True,
    )
    if batch.inner is None:
        for row in rows:
            yield Message(*(*row, batch.mark))
        return
    for row, inner in zip(rows, _inner_of(batch.inner), strict=True):
        yield Message(*(*row, batch.mark, inner))


def _inner_of(inner: Inner) -> Iterator[InnerMessage | None]:
    """Yield for each row its place inside of a record, None if the row is a record."""
    needed = np.unique(inner.row[inner.number >= 0])
    records = dict(zip(needed.tolist(), messages(inner.records.take(needed)), strict=True))
    columns = (inner.row, inner.number, inner.count)
    for row, number, count in zip(*(column.tolist() for column in columns), strict=True):
        yield InnerMessage(records[row], number, count) if number >= 0 else None


_MESSAGES_AT_ONCE = 1024
_BEFORE_BORN_HOST: tuple[str, ...] = Message._fields[1 : Message._fields.index("born_host")]
