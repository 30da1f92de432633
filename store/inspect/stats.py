"""Counts of bytes, records, sizes and times by topic, queue, tag, host, hour, file and more: who fills the log.

Counts of parts of a log add up: each part can be counted anywhere, `Stats.merge` joins the results. The bytes of a
record are those in the log: head, properties and body as stored. Queues and index take about 20 and 40 bytes more for
each message.

`stats_of_queues` counts the units of the queues alone, a fiftieth of the bytes of the log or less. A unit holds topic,
queue, position and size of a record; what is inside of records is None then. A message counts once for each queue but
LMQs that names it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np

from ...formats import kernel
from ...formats.derive.ragged import Ints
from ...formats.message import SysFlag
from ..broker.system_topics import LMQ_PREFIX
from ..disk.byte_reader import reading_rate, rest
from ..disk.layout import queue_directories
from ..disk.lock import stream_of
from ..errors import InvalidInput, LimitExceeded, Unreadable
from ..log.batch import Batch, messages_in
from ..queues.batches import BatchConsumeQueue
from ..queues.read import QueueSummary
from ..queues.units import is_used, is_valid
from ..search.store import StoreReader
from .stats_dimensions import DEAD_LETTER, OF_UNITS, RETRY, USER, DimensionColumns, highest_bit

GROUPS_MAX = 200_000
PERCENTILES = (50, 90, 99)
COUNTS = (
    *("records", "messages", "bytes", "share", "body_bytes", "properties_bytes", "average_bytes"),
    *(f"p{percent}_bytes" for percent in PERCENTILES),
    *("largest_bytes", "compressed_records", "compressed_bytes", "retry_bytes", "system_bytes"),
    *("first_timestamp", "last_timestamp", "messages_per_second", "bytes_per_second", "source"),
)
"""The values that `Stats.rows` gives for each group. messages: those inside of a batch record count one by one.

retry_bytes: of records of retry and dead letter topics; system_bytes: of records of a broker's own topics. Rates are
those between the first and the last time. source: `log` or `queues`.
"""
LOG, QUEUES = "log", "queues"
_COMPRESSED = int(SysFlag.COMPRESSED)
_NOT_IN_UNITS = ("body_bytes", "properties_bytes", "compressed_records", "compressed_bytes")
_SECOND_MS = 1000
_NEITHER, _AGAIN, _OF_BROKER = 0, 1, 2
_SPECIAL = {USER: _NEITHER, RETRY: _AGAIN, DEAD_LETTER: _AGAIN}
"""What else the records of a kind of topic count as; all kinds not named here are a broker's own."""
_ROWS_AT_ONCE = 1 << 17
"""Rows that are grouped together: some MB."""
_WIDEST, _WIDEST_TALLY, _SMALL = 1 << 40, 1 << 22, 1 << 16
_FINE_BITS = 4
"""Sizes are distinguished by their first 5 binary digits: a percentile is at most 1/16 too low."""

BIN_BITS = 10
"""The bins of all sizes of 32 bits, and more, have numbers below `1 << BIN_BITS`."""

NEVER_FIRST_MS, NEVER_LAST_MS = (1 << 63) - 1, -(1 << 63)
"""First and last time of a group without a known time."""
Key = tuple[str | int, ...]


@dataclass
class StatsGroup:
    """The counts of a group of records. Times in ms since 1970. sizes: bin → records.

    messages: as consumers get them; a batch record has several.
    """

    records: int = 0
    messages: int = 0
    size_bytes: int = 0
    body_bytes: int = 0
    properties_bytes: int = 0
    compressed_records: int = 0
    compressed_bytes: int = 0
    retry_bytes: int = 0
    system_bytes: int = 0
    largest_bytes: int = 0
    first_ms: int = NEVER_FIRST_MS
    last_ms: int = NEVER_LAST_MS
    sizes: dict[int, int] = field(default_factory=dict)

    def merge(self, other: StatsGroup) -> None:
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.largest_bytes = max(self.largest_bytes, other.largest_bytes)
        self.first_ms = min(self.first_ms, other.first_ms)
        self.last_ms = max(self.last_ms, other.last_ms)
        for number, count in other.sizes.items():
            self.sizes[number] = self.sizes.get(number, 0) + count

    def percentile_bytes(self, percent: int) -> int:
        """Return the size that `percent` % of the records do not exceed, at most 1/16 too low."""
        wanted, seen = -(-self.records * percent // 100), 0
        for number in sorted(self.sizes):
            seen += self.sizes[number]
            if seen >= wanted:
                return least_of_bin(number)
        return 0

    def counts(self, total_bytes: int, source: str) -> dict[str, Any]:
        """Return the values of `COUNTS`. total_bytes: of all groups. source: `LOG` or `QUEUES`."""
        known = self.first_ms <= self.last_ms
        span_ms = self.last_ms - self.first_ms if known else 0
        values = (
            self.records,
            self.messages,
            self.size_bytes,
            round(self.size_bytes / total_bytes, 6) if total_bytes else 0.0,
            self.body_bytes,
            self.properties_bytes,
            self.size_bytes // max(1, self.records),
            *map(self.percentile_bytes, PERCENTILES),
            self.largest_bytes,
            self.compressed_records,
            self.compressed_bytes,
            self.retry_bytes,
            self.system_bytes,
            self.first_ms if known else None,
            self.last_ms if known else None,
            *(
                round(count * _SECOND_MS / span_ms, 3) if span_ms > 0 else None
                for count in (self.messages, self.size_bytes)
            ),
            source,
        )
        row = dict(zip(COUNTS, values, strict=True))
        return row if source == LOG else {**row, **dict.fromkeys(_NOT_IN_UNITS)}

    def to_json(self) -> list[Any]:
        """Return all values, for `from_json`."""
        sizes = [list(pair) for pair in sorted(self.sizes.items())]
        counts = [getattr(self, name) for name in _ADDED]
        return [*counts, self.largest_bytes, self.first_ms, self.last_ms, sizes]

    @classmethod
    def from_json(cls, found: Sequence[Any]) -> Self:
        *counts, sizes = found
        names = (*_ADDED, "largest_bytes", "first_ms", "last_ms")
        return cls(**dict(zip(names, counts, strict=True)), sizes=dict(sizes))


_ADDED = (
    *("records", "messages", "size_bytes", "body_bytes", "properties_bytes"),
    *("compressed_records", "compressed_bytes", "retry_bytes", "system_bytes"),
)
"""Fields of a group that are sums, in the order of `to_json`."""


class Measured(NamedTuple):
    """What is counted of some records: int64[n] each; None for all zeros, or if the source does not tell.

    body, properties, compressed_body: bytes. compressed: 1 for a record with a compressed body.
    """

    size: Ints
    messages: Ints
    body: Ints | None = None
    properties: Ints | None = None
    compressed: Ints | None = None
    compressed_body: Ints | None = None
    time_ms: Ints | None = None


class _PendingRows(NamedTuple):
    """Rows that wait to be counted with others: grouping many at once costs little more than grouping a few.

    numbers: of each dimension, by the numbers that `Stats` gives its values. special: 1 for retries, 2 for a broker's
    own topics; None if there are no such records.
    """

    numbers: tuple[Ints, ...]
    special: Ints | None
    measured: Measured


class Stats:
    """Records counted in groups. by: some of `stats_dimensions.DIMENSIONS`; without any, all records are one group.
    source: `LOG` or `QUEUES`. starts: where the log's files begin, for the dimension `file`.
    """

    def __init__(self, by: Sequence[str], source: str = LOG, starts: Sequence[int] = ()) -> None:
        self.by = tuple(by)
        self.source = source
        self.starts = np.array(starts, np.int64)
        self._groups: dict[Key, StatsGroup] = {}
        self._numbers: list[dict[str | int, int]] = [{} for _ in self.by]
        self._pending: list[_PendingRows] = []
        self._waiting = 0

    @property
    def groups(self) -> dict[Key, StatsGroup]:
        """Groups by their values of `by`. Raises LimitExceeded."""
        self._count()
        return self._groups

    @groups.setter
    def groups(self, groups: dict[Key, StatsGroup]) -> None:
        self._pending.clear()
        self._waiting = 0
        self._groups = groups

    def add(self, batch: Batch) -> None:
        """Count the records of a batch. Raises LimitExceeded for more than `GROUPS_MAX` groups."""
        columns = batch.columns
        body = _wide(columns.ints("body_length"))
        compressed = columns.ints("sys_flag") & _COMPRESSED != 0
        some = bool(compressed.any())
        measured = Measured(
            _wide(columns.ints("total_size")),
            messages_in(batch),
            body,
            _wide(columns.ints("properties_length")),
            compressed.astype(np.int64) if some else None,
            np.where(compressed, body, 0) if some else None,
            _wide(columns.ints("store_timestamp")),
        )
        self.add_columns(DimensionColumns.of_batch(batch, self.starts), measured)

    def add_columns(self, columns: DimensionColumns, measured: Measured) -> None:
        """Count records, or units, whose columns are known. Raises LimitExceeded."""
        count = len(measured.size)
        if not count:
            return
        numbers = []
        for name, known in zip(self.by, self._numbers, strict=True):
            ids, values = columns.dimension(name)
            numbered = np.array([known.setdefault(one, len(known)) for one in values], np.int64)
            numbers.append(numbered[ids])
        ids, kinds = columns.kinds()
        of_kinds = np.array([_SPECIAL.get(kind, _OF_BROKER) for kind in kinds], np.int64)
        special = of_kinds[ids] if of_kinds.any() else None
        self._pending.append(_PendingRows(tuple(numbers), special, measured))
        self._waiting += count
        if self._waiting >= _ROWS_AT_ONCE:
            self._count()

    def _count(self) -> None:
        """Count the pending rows. Raises LimitExceeded."""
        pending, self._pending, self._waiting = self._pending, [], 0
        if not pending:
            return
        numbers = [np.concatenate([one.numbers[place] for one in pending]) for place in range(len(self.by))]
        measured = _joined([one.measured for one in pending])
        special = _column([one.special for one in pending], [len(one.measured.size) for one in pending])
        group, span = _grouped(numbers, [len(known) for known in self._numbers], len(measured.size))
        values = [list(known) for known in self._numbers]
        rows, counted = _counted(measured, special, group, span)
        keys = zip(*([v[n] for n in ns[rows].tolist()] for v, ns in zip(values, numbers, strict=True)), strict=True)
        for key, one in zip(keys if self.by else [()], counted, strict=True):
            self._merge(key, one)

    def merge(self, other: Stats) -> None:
        """Add the counts of `other`, which has the same `by`. Raises LimitExceeded."""
        for key, group in other.groups.items():
            self._merge(key, group)

    def _merge(self, key: Key, group: StatsGroup) -> None:
        mine = self._groups.get(key)
        if mine is None:
            if len(self._groups) >= GROUPS_MAX:
                raise LimitExceeded(f"more than {GROUPS_MAX} groups", hint="group by less")
            self._groups[key] = mine = StatsGroup()
        mine.merge(group)

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the groups as records, those with the most bytes first."""
        order = sorted(self.groups.items(), key=lambda pair: (-pair[1].size_bytes, str(pair[0])))
        total = sum(group.size_bytes for _, group in order)
        return [
            {**dict(zip(self.by, key, strict=True)), **group.counts(total, self.source)} for key, group in order[:limit]
        ]

    def to_json(self) -> list[Any]:
        """Return the groups, for `from_json`."""
        return [[list(key), group.to_json()] for key, group in self.groups.items()]

    @classmethod
    def from_json(cls, by: Sequence[str], found: Iterable[Any]) -> Self:
        """Return the Stats whose `to_json` gave `found`."""
        stats = cls(by)
        stats.groups = {tuple(key): StatsGroup.from_json(group) for key, group in found}
        return stats


def _joined(parts: Sequence[Measured]) -> Measured:
    """Concatenate the parts. A column that some parts lack is zero there; a missing time is NEVER_FIRST_MS."""
    sizes = [len(part.size) for part in parts]

    def column(name: str) -> Ints | None:
        nothing = 0 if name != "time_ms" else NEVER_FIRST_MS
        return _column([getattr(part, name) for part in parts], sizes, nothing)

    return Measured(*map(column, Measured._fields))  # type: ignore[arg-type]


def _column(parts: Sequence[Ints | None], sizes: Sequence[int], nothing: int = 0) -> Ints | None:
    """Concatenate parts of these sizes, `nothing` for a part that is None. Return None if all are None."""
    if all(one is None for one in parts):
        return None
    return np.concatenate(
        [np.full(size, nothing, np.int64) if one is None else one for one, size in zip(parts, sizes, strict=True)]
    )


def _grouped(numbers: Sequence[Ints], counts: Sequence[int], rows: int) -> tuple[Ints, int]:
    """Return a number for each row, equal for rows that agree in all dimensions, and a bound above all numbers."""
    key, span = np.zeros(rows, np.int64), 1
    for number, count in zip(numbers, counts, strict=True):
        if span * count > _WIDEST:
            key = np.unique(key, return_inverse=True)[1]
            span = int(key.max()) + 1
        key, span = key * count + number, span * count
    if span > rows:
        key = np.unique(key, return_inverse=True)[1]
        span = int(key.max()) + 1
    return key, span


def _counted(measured: Measured, special: Ints | None, group: Ints, span: int) -> tuple[Ints, list[StatsGroup]]:
    """Return one row of each group, in the order of the group numbers, and the groups."""
    size, time_ms = measured.size, measured.time_ms
    parts = (_AGAIN, _OF_BROKER)
    added = [measured.messages, size, measured.body, measured.properties]
    added += [measured.compressed, measured.compressed_body]
    added += [None if special is None else np.where(special == one, size, 0) for one in parts]
    ended = [size]
    if time_ms is not None:
        ended.append(time_ms)
        if int(time_ms.max()) == NEVER_FIRST_MS:  # some times are not known
            ended.append(np.where(time_ms == NEVER_FIRST_MS, NEVER_LAST_MS, time_ms))
    tally = _tally_natively if kernel.is_wanted(len(group)) else _tally
    rows, lengths, sums, least, greatest = tally(group, span, [one for one in added if one is not None], ended)
    of_columns = iter(sums)
    none = np.zeros(len(rows), np.int64)
    first, last = none + NEVER_FIRST_MS, none + NEVER_LAST_MS
    if time_ms is not None:
        first, last = least[1], greatest[-1]
    table = np.column_stack(
        [lengths, *(none if one is None else next(of_columns) for one in added), *(greatest[0], first, last)]
    )
    groups = [StatsGroup(*row) for row in table.tolist()]
    place = np.zeros(span, np.int64)
    place[group[rows]] = np.arange(len(rows))
    bins, counts = _tallied(place[group] << BIN_BITS | _bins(size), len(rows) << BIN_BITS)
    for number, count in zip(bins.tolist(), counts.tolist(), strict=True):
        groups[number >> BIN_BITS].sizes[number & ((1 << BIN_BITS) - 1)] = count
    return rows, groups


class _Tally(NamedTuple):
    """Of each group that has rows: one of its rows, the number of rows, sums, minima and maxima of columns."""

    rows: Ints
    lengths: Ints
    sums: Sequence[Ints]
    least: Sequence[Ints]
    greatest: Sequence[Ints]


def _tally(group: Ints, span: int, added: Sequence[Ints], ended: Sequence[Ints]) -> _Tally:
    # numpy sorts small numbers without comparing them
    order = np.argsort(group.astype(np.uint16) if span <= _SMALL else group, kind="stable")
    begins = np.flatnonzero(np.diff(group[order], prepend=-1))
    ends = [one[order] for one in ended]
    return _Tally(
        order[begins],
        np.diff(np.append(begins, len(order))),
        [np.add.reduceat(one[order], begins) for one in added],
        [np.minimum.reduceat(one, begins) for one in ends],
        [np.maximum.reduceat(one, begins) for one in ends],
    )


def _tally_natively(group: Ints, span: int, added: Sequence[Ints], ended: Sequence[Ints]) -> _Tally:
    """Do the same as `_tally` in one pass of the kernel, perhaps with another row of a group."""
    sums = 1 + len(added)
    out = np.zeros((span, sums + 2 * len(ended)), np.int64)
    out[:, sums::2], out[:, sums + 1 :: 2] = NEVER_FIRST_MS, NEVER_LAST_MS
    arrays = (group, np.concatenate(added), np.concatenate(ended), out.reshape(-1))
    kernel.run(kernel.Operation.TALLY, arrays, (span,))
    row = np.zeros(span, np.int64)
    row[group] = np.arange(len(group))
    there = np.flatnonzero(out[:, 0])
    found = out[there].T
    ends = [*found[sums::2]], [*found[sums + 1 :: 2]]
    return _Tally(row[there], found[0], [*found[1:sums]], *ends)


def _tallied(numbers: Ints, span: int) -> tuple[Ints, Ints]:
    """Return the numbers that occur, all below `span`, and how often."""
    if span > _WIDEST_TALLY:
        return np.unique(numbers, return_counts=True)
    counts = np.bincount(numbers)
    there = np.flatnonzero(counts)
    return there, counts[there]


def _wide(values: Ints) -> Ints:
    return values.astype(np.int64)


def _bins(size: Ints) -> Ints:
    """Return the bin of each size; a table holds the bins of small sizes, which most records have."""
    if int(size.min()) < 0 or int(size.max()) >= _SMALL:
        return size_bin(size)
    return _bins_of_small()[size]


@cache
def _bins_of_small() -> Ints:
    return size_bin(np.arange(_SMALL))


def size_bin(size: Ints) -> Ints:
    """Return the bin of each size: sizes below 32 have one each, above that the bins grow with the size."""
    shift = np.maximum(highest_bit(size) - _FINE_BITS, 0)
    return (shift << _FINE_BITS) + (np.maximum(size, 0) >> shift)


def least_of_bin(number: int) -> int:
    """Return the smallest size of a bin."""
    shift = max((number >> _FINE_BITS) - 1, 0)
    return number - (shift << _FINE_BITS) << shift


Advance = Callable[[int], None]
Units = Iterator[tuple[int, Any]]
_ANYWHERE = 1 << 62
_OF_A_QUEUE = frozenset({"topic", "queue_id", "group", "kind"})
"""With these dimensions alone a queue is in one group: its first and last record tell the times."""


def check_units_tell(by: Sequence[str]) -> None:
    """Raise InvalidInput for dimensions that only the log tells."""
    if others := [name for name in by if name not in OF_UNITS]:
        raise InvalidInput(
            f"--quick: queues do not tell {', '.join(others)}",
            hint=f"they tell {', '.join(OF_UNITS)}; leave --quick away",
        )


def check_queues(store: StoreReader) -> None:
    """Raise Unreadable for a store whose queues cannot be counted; an empty log needs no queues."""
    if store.queues_problem:
        raise Unreadable(store.queues_problem, path=store.layout.root)
    empty = store.has_log and store.log_end.position <= store.log_files.start
    if not (store.topics or empty):
        raise Unreadable("there are no consume queues", path=store.layout.root)


def stats_of_queues(store: StoreReader, by: Sequence[str], advance: Advance) -> Stats:
    """Count the units of all queues except LMQs, which name records that other queues name, too.

    by: some of `OF_UNITS`. advance: called with the units done. Raises InvalidInput, LimitExceeded, Unreadable.
    """
    check_units_tell(by)
    with_log = store.has_log
    starts = [file.start for file in store.log_files.files] if with_log else []
    if "file" in by and not starts:
        raise InvalidInput("no commit log here: no file", path=store.layout.root)
    stats = Stats(by, QUEUES, starts)
    timed = with_log and _OF_A_QUEUE.issuperset(by)
    queues = store.queue_summaries if with_log else store.queues.summaries()
    within = (store.log_files.start, store.log_end.position) if with_log else (0, _ANYWHERE)
    for queue in queues:
        if queue.topic.startswith(LMQ_PREFIX):
            continue
        _add_queue(stats, store, queue, within, advance, timed=timed)
    for topic, queue_id, path in queue_directories(store.layout.batch_consume_queue):
        with BatchConsumeQueue(topic, queue_id, stream_of(store.layout, path)) as batches:
            for _, units in batches.units(batches.first, batches.stop):
                advance(len(units))
                _add(stats, topic, queue_id, units[is_valid(units)])
    return stats


def _at_rate(windows: Units) -> Units:
    """Yield the windows no faster than the surrounding block of `at_rate` allows: those of a RocksDB, too."""
    rate_bytes, began = reading_rate(), time.monotonic()
    for first, units in windows:
        if rate_bytes:
            rest(units.nbytes / rate_bytes - (time.monotonic() - began))
        yield first, units
        began = time.monotonic()


def _add_queue(
    stats: Stats, store: StoreReader, queue: QueueSummary, within: tuple[int, int], advance: Advance, *, timed: bool
) -> None:
    """Count a queue. within: the bytes that the log has; a queue whose records are all gone has units before them."""
    with store.queues.open(queue.topic, queue.queue_id) as opened:
        ends: list[int | None] = []
        if timed and queue.max_offset > queue.min_offset:
            for number in sorted({queue.min_offset, queue.max_offset - 1}):
                unit = opened.unit(number)
                there = unit is not None and unit.valid
                ends.append(store.store_time(unit.physical_offset) if unit and there else None)
        for _, units in _at_rate(opened.units(queue.min_offset, queue.max_offset)):
            advance(len(units))
            position = units["physical_offset"]
            kept = is_used(units) & (position >= within[0]) & (position < within[1])
            _add(stats, queue.topic, queue.queue_id, units[kept], ends)


def _add(stats: Stats, topic: str, queue_id: int, units: Any, ends: Sequence[int | None] = ()) -> None:
    count = len(units)
    if not count:
        return
    size, none = units["size"].astype(np.int64), np.zeros(count, np.int64)
    batched = "batch_size" in (units.dtype.names or ())
    messages = units["batch_size"].astype(np.int64) if batched else none + 1
    times = units["store_time"].astype(np.int64) if batched else _store_times(ends, none)
    position = units["physical_offset"].astype(np.int64)
    columns = DimensionColumns((none, [topic]), position, size, none + queue_id, stats.starts)
    stats.add_columns(columns, Measured(size, messages, time_ms=times))


def _store_times(ends: Sequence[int | None], none: Ints) -> Ints | None:
    """Return a column whose minimum and maximum are the times of a queue's ends; None if no time is known."""
    known = [time for time in ends if time is not None]
    if not known:
        return None
    times = none + known[0]
    if len(times) > 1:
        times[-1] = known[-1]
    return times
