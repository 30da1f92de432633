"""What all sources share: they read part by part, a task for each, and skip damage."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...store.arrow.log_rows import Damage
from ...store.arrow.stores import ReadOptions
from ...store.counted import counted
from ...store.disk.byte_reader import UnreadRanges, at_rate, expired_text
from ...store.search.log_search import DamageWarning, TimeBounds, note_bounds

T = TypeVar("T")


class StorePartition(InputPartition):
    """What one task reads; None for nothing."""

    def __init__(self, part: Any) -> None:
        super().__init__(part)
        self.part = part


class PartsReader(DataSourceReader):
    """parts: returns what there is to read; rows: yields the rows of one part. Both run in processes of Spark.

    ask: its `rate_bytes` limits the reading of a part.
    """

    def __init__(
        self, ask: ReadOptions, parts: Callable[[], Sequence[Any]], rows: Callable[[Any], Iterator[pa.RecordBatch]]
    ) -> None:
        self._rate_bytes = ask.rate_bytes
        self._parts = parts
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        """Return all parts; not an empty list, since Spark would then read None."""
        return [StorePartition(part) for part in self._parts() or [None]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StorePartition)
        return iter(()) if partition.part is None else each_at_rate(self._rows(partition.part), self._rate_bytes)


def each_at_rate(items: Iterator[T], rate_bytes: int | None) -> Iterator[T]:
    """Yield the items of an iterator; what it reads for an item has the limit of `at_rate`."""
    while True:
        with at_rate(rate_bytes):
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def parts_told(parts: Callable[..., Sequence[T]], ask: ReadOptions) -> Sequence[T]:
    """Return the parts to read, and warn of log files that are not among them. Raises StoreError."""
    bounds: dict[str, TimeBounds] = {}
    found = parts(ask, bounds=bounds.__setitem__)
    warn_of_bounds(bounds)
    return found


def warn_of_bounds(found: Mapping[str, TimeBounds]) -> None:
    note_bounds([*found.values()], lambda text: warnings.warn(text, UserWarning, stacklevel=4))


class PassedOver:
    """What one task has not read of a log. first: the first range of it. noted: what a broker has deleted meanwhile."""

    def __init__(self) -> None:
        self.noted = UnreadRanges(around=False)
        self.places = 0
        self.bytes = 0
        self.first: Damage | None = None

    def add(self, damage: Damage) -> None:
        self.first = self.first or damage
        self.places += 1
        self.bytes += damage.size or 0

    def tell(self) -> None:
        """Warn, if anything was skipped; Spark prints warnings on the stderr of the task."""
        for directory, begin in self.noted.expired.items():
            warnings.warn(f"{directory}: {expired_text(begin)}", DamageWarning, stacklevel=1)
        if self.first is None:
            return
        much = f"{counted(self.bytes, 'byte')} in {counted(self.places, 'place')} passed over"
        at, why = self.first.position, self.first.reason
        message = f"{self.first.store}: {much}, from {at} on ({why}); rocketmq-damage has all of them"
        warnings.warn(message, DamageWarning, stacklevel=1)
