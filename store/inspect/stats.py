"""Who fills the log: bytes, records, sizes and times by topic, queue, tag, host or hour.

Counts of parts of a log add up: a part is counted anywhere, `Stats.merge` joins what was found. A
record's bytes are those of the log, head, properties and body as stored; queues and index have
about 20 and 40 bytes more of each message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from ...formats import message_properties as names
from ...formats.derive.ragged import Ints, Ragged
from ...formats.hashing import java_string
from ...formats.host import host_text
from ...formats.property_columns import find
from ..columns.dictionary import dictionary
from ..errors import LimitExceeded
from ..log.batch import Batch
from ..search.inner_batch import messages_in

DIMENSIONS = ("topic", "queue_id", "tag", "host", "hour")
"""What records can be grouped by. host: the producer's address; hour: of storing, ms since 1970."""
GROUPS_MAX = 200_000
PERCENTILES = (50, 90, 99)
COUNTS = (
    *("records", "messages", "bytes", "share", "body_bytes", "average_bytes"),
    *(f"p{percent}_bytes" for percent in PERCENTILES),
    *("largest_bytes", "first_timestamp", "last_timestamp"),
)
"""What `Stats.rows` tells of each group. messages: with each of those inside of a batch record."""
_HOUR_MS = 3_600_000
_FINE_BITS = 4
"""Sizes are told apart by their first 5 binary digits: a percentile is at most 1/16 too low."""

BIN_BITS = 10
"""Bins of all sizes of 32 bits, and more, have numbers below this power of 2."""

Key = tuple[str | int, ...]


@dataclass
class Group:
    """What some records have in common, counted. Times in ms since 1970; sizes: records by bin.

    messages: as consumers get them; a batch record has several.
    """

    records: int = 0
    messages: int = 0
    size_bytes: int = 0
    body_bytes: int = 0
    largest_bytes: int = 0
    first_ms: int = (1 << 63) - 1
    last_ms: int = -(1 << 63)
    sizes: dict[int, int] = field(default_factory=dict)

    def merge(self, other: Group) -> None:
        """Count the records of `other`, too."""
        self.records += other.records
        self.messages += other.messages
        self.size_bytes += other.size_bytes
        self.body_bytes += other.body_bytes
        self.largest_bytes = max(self.largest_bytes, other.largest_bytes)
        self.first_ms = min(self.first_ms, other.first_ms)
        self.last_ms = max(self.last_ms, other.last_ms)
        for number, count in other.sizes.items():
            self.sizes[number] = self.sizes.get(number, 0) + count

    def percentile_bytes(self, percent: int) -> int:
        """So many percent of the records are not larger, to 1/16."""
        wanted, seen = -(-self.records * percent // 100), 0
        for number in sorted(self.sizes):
            seen += self.sizes[number]
            if seen >= wanted:
                return least_of_bin(number)
        return 0

    def counts(self, total_bytes: int) -> tuple[float, ...]:
        """The values of `COUNTS`; total_bytes: of all groups."""
        return (
            self.records,
            self.messages,
            self.size_bytes,
            round(self.size_bytes / total_bytes, 6) if total_bytes else 0.0,
            self.body_bytes,
            self.size_bytes // max(1, self.records),
            *map(self.percentile_bytes, PERCENTILES),
            self.largest_bytes,
            self.first_ms,
            self.last_ms,
        )

    def to_json(self) -> list[Any]:
        """All of it, for `from_json`."""
        sizes = [list(pair) for pair in sorted(self.sizes.items())]
        counts = [self.records, self.messages, self.size_bytes, self.body_bytes, self.largest_bytes]
        return [*counts, self.first_ms, self.last_ms, sizes]

    @classmethod
    def from_json(cls, found: Sequence[Any]) -> Self:
        records, inside, size, body, largest, first, last, sizes = found
        return cls(records, inside, size, body, largest, first, last, dict(sizes))


class Stats:
    """Records counted in groups. by: some of `DIMENSIONS`; none of them: all are one group."""

    def __init__(self, by: Sequence[str]) -> None:
        self.by = tuple(by)
        self.groups: dict[Key, Group] = {}

    def add(self, batch: Batch) -> None:
        """Count the records of a batch. Raises LimitExceeded for more than `GROUPS_MAX` groups."""
        if not len(batch):
            return
        found = [_DIMENSION[name](batch) for name in self.by]
        group = np.zeros(len(batch), np.int64)
        for ids, values in found:
            group = np.unique(group * len(values) + ids, return_inverse=True)[1]
        order = np.argsort(group, kind="stable")
        begins = np.flatnonzero(np.diff(group[order], prepend=-1))
        rows = order[begins].tolist()
        counted = _counted(batch, group, order, begins)
        for row, one in zip(rows, counted, strict=True):
            self._merge(tuple(values[int(ids[row])] for ids, values in found), one)

    def merge(self, other: Stats) -> None:
        """Count what `other`, by the same, has counted. Raises LimitExceeded."""
        for key, group in other.groups.items():
            self._merge(key, group)

    def _merge(self, key: Key, group: Group) -> None:
        mine = self.groups.get(key)
        if mine is None:
            if len(self.groups) >= GROUPS_MAX:
                raise LimitExceeded(f"more than {GROUPS_MAX} groups", hint="group by less")
            self.groups[key] = mine = Group()
        mine.merge(group)

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The groups as records, those with most bytes first."""
        order = sorted(self.groups.items(), key=lambda pair: (-pair[1].size_bytes, str(pair[0])))
        total = sum(group.size_bytes for _, group in order)
        return [
            dict(zip((*self.by, *COUNTS), (*key, *group.counts(total)), strict=True))
            for key, group in order[:limit]
        ]

    def to_json(self) -> list[Any]:
        """The groups, for `from_json`."""
        return [[list(key), group.to_json()] for key, group in self.groups.items()]

    @classmethod
    def from_json(cls, by: Sequence[str], found: Iterable[Any]) -> Self:
        """What `to_json` gave."""
        stats = cls(by)
        stats.groups = {tuple(key): Group.from_json(group) for key, group in found}
        return stats


def _counted(batch: Batch, group: Ints, order: Ints, begins: Ints) -> list[Group]:
    """Groups in the order of their numbers. order: rows by group, which begin at `begins`."""
    columns = batch.columns
    size, body, time = (
        columns.ints(name).astype(np.int64)[order]
        for name in ("total_size", "body_length", "store_timestamp")
    )
    bins, counts = np.unique(group[order] << BIN_BITS | size_bin(size), return_counts=True)
    sums = np.column_stack(
        [
            np.diff(np.append(begins, len(order))),
            np.add.reduceat(messages_in(batch)[order], begins),
            np.add.reduceat(size, begins),
            np.add.reduceat(body, begins),
            np.maximum.reduceat(size, begins),
            np.minimum.reduceat(time, begins),
            np.maximum.reduceat(time, begins),
        ]
    )
    groups = [Group(*row) for row in sums.tolist()]
    for number, count in zip(bins.tolist(), counts.tolist(), strict=True):
        groups[number >> BIN_BITS].sizes[number & ((1 << BIN_BITS) - 1)] = count
    return groups


def size_bin(size: Ints) -> Ints:
    """Number of the bin of each size: sizes below 32 have one each, above it grows with them."""
    # a float64 holds a size exactly: its exponent is that of the highest bit
    exponent = np.frexp(np.maximum(size, 1).astype(np.float64))[1].astype(np.int64) - 1
    shift = np.maximum(exponent - _FINE_BITS, 0)
    return (shift << _FINE_BITS) + (np.maximum(size, 0) >> shift)


def least_of_bin(number: int) -> int:
    """The smallest size of a bin."""
    shift = max((number >> _FINE_BITS) - 1, 0)
    return number - (shift << _FINE_BITS) << shift


def _texts(strings: Ragged) -> tuple[Ints, list[str | int]]:
    found = dictionary(strings)
    return found.ids, [java_string(value) for value in found.values]


def _numbers(values: Ints) -> tuple[Ints, list[str | int]]:
    different, ids = np.unique(values, return_inverse=True)
    return ids, different.tolist()


def _hosts(batch: Batch) -> tuple[Ints, list[str | int]]:
    found = dictionary(batch.columns.ragged("born_host.ip"))
    return found.ids, [host_text(ip, 0).rpartition(":")[0] for ip in found.values]


_DIMENSION: Mapping[str, Any] = {
    "topic": lambda batch: _texts(batch.columns.ragged("topic")),
    "queue_id": lambda batch: _numbers(batch.columns.ints("queue_id")),
    "tag": lambda batch: _texts(find(batch.columns.ragged("properties"), names.TAGS)),
    "host": _hosts,
    "hour": lambda batch: _numbers(
        batch.columns.ints("store_timestamp").astype(np.int64) // _HOUR_MS * _HOUR_MS
    ),
}
