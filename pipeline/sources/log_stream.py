"""`rocketmq-log` as a stream: what brokers write, each message once, while they write it.

The offset of a stream is, for each store, the physical offset up to which everything was read, with a checksum of the
last bytes before it: a broker that starts may cut the log and write on, past that offset. A part of a log between two
offsets always gives the same rows, so a query that continues from its checkpoint has each message exactly once.
`Follower` tells where a log ends while a broker writes it: before the first record that is not whole yet.

Log files expire. A stream that comes too late for a file ends with the positions that it has not read, or continues
behind them if `fail_on_data_loss` is false.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from ...store.arrow.data_set import changed_before, last_bytes
from ...store.arrow.log_rows import LogSplit, rows_of
from ...store.arrow.stores import ALWAYS, ReadOptions, open_log
from ...store.counted import counted
from ...store.disk.byte_reader import each_noting, noting
from ...store.disk.layout import Layout, is_uri
from ...store.errors import InvalidInput, Missing, Refused
from ...store.log.commit_log import SPLIT_BYTES_MAX, CommitLog, splits
from ...store.search.follow import LiveEnd
from ...store.search.log_search import DamageWarning, time_bounds
from ...store.search.selection import TimeRange
from ...store.search.store import StoreReader
from .parts import PassedOver, StorePartition, warn_of_bounds

EARLIEST, LATEST = "earliest", "latest"
OPTIONS = ("starting_offset", "max_bytes_per_trigger", "fail_on_data_loss")
"""Options of a stream alone."""
_DIGITS_MAX = 19

Offset = dict[str, dict[str, int]]
"""Store → fields of `ReadTo`."""


@dataclass(frozen=True)
class ReadTo:
    """How far a log was read. size, crc: of the last bytes before; 0 if none were read, and in older checkpoints."""

    position: int
    size: int = 0
    crc: int = 0

    @classmethod
    def of(cls, found: int | Mapping[str, int]) -> Self:
        """Return what an offset has for one store; in older checkpoints that is the position alone."""
        return cls(found) if isinstance(found, int) else cls(**found)


@dataclass(frozen=True)
class StreamAsk:
    """The options of a stream. start: `earliest`, `latest`, or a physical offset, of each store.

    max_bytes: of the logs in one micro-batch, None for no limit. fails: if log files have expired before they were
    read, or a log was cut.
    """

    start: str | int
    max_bytes: int | None
    fails: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Parse the options. Raises InvalidInput."""
        given = {name.lower(): value for name, value in options.items()}
        start = given.get("starting_offset", EARLIEST).lower()
        if start not in (EARLIEST, LATEST) and not _is_number(start):
            raise InvalidInput(f"option starting_offset: not earliest, latest or a number: {start!r}")
        most = given.get("max_bytes_per_trigger")
        if most is not None and (not _is_number(most) or not int(most)):
            raise InvalidInput(f"option max_bytes_per_trigger: not a number above 0: {most!r}")
        fails = given.get("fail_on_data_loss", "true").lower()
        if fails not in ("true", "false"):
            raise InvalidInput(f"option fail_on_data_loss: not true or false: {fails!r}")
        number = int(start) if _is_number(start) else start
        return cls(number, None if most is None else int(most), fails == "true")


def without_stream_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that `ReadOptions` knows."""
    return {name: value for name, value in options.items() if name.lower() not in OPTIONS}


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs of stores. `ask.fields`: the columns of the schema."""

    def __init__(self, ask: ReadOptions, how: StreamAsk) -> None:
        if remote := [root for root in ask.stores if is_uri(root)]:
            raise InvalidInput(f"only directories can be followed: {remote[0]}")
        self._ask = ask
        self._how = how
        self._ends: dict[str, LiveEnd] = {}
        self._target: dict[str, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the ends out for workers: they do not follow a log."""
        return {**self.__dict__, "_ends": {}}

    def initialOffset(self) -> Offset:
        """Return where a new query begins. Raises StoreError for a store that cannot be read."""
        firsts = {root: self._first(root) for root in self._ask.stores}
        if not isinstance(self._how.start, int):
            return self._offset(firsts)
        for root, first in firsts.items():
            if (end := self._end(root).position()) < first:
                warnings.warn(f"{root}: the log ends at {end}, before starting_offset {first}", stacklevel=2)
        return {root: asdict(ReadTo(first)) for root, first in firsts.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that `max_bytes_per_trigger` sets."""
        most = self._how.max_bytes
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Offset:
        """Return where the logs end, or how far the limit lets them be read. Raises StoreError."""
        ends = self._target or self._now()
        room = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        found: Offset = {}
        for root, end in ends.items():
            read = self._begin(root, start)
            if end == read.position:
                found[root] = asdict(read)
                continue
            with self._open(root) as log:
                if read.position != self._how.start:  # a query at its start has read nothing
                    self._require_same(root, log, read, end)
                end = max(read.position, end)  # after a cut the broker rewrites these positions
                if room is not None:
                    end = min(end, max(read.position, log.min_offset) + room)
                    room = max(0, room - (end - read.position))
                found[root] = asdict(read) if end == read.position else _read_to(log, end)
        return found

    def reportLatestOffset(self) -> Offset:
        """Return the ends of the logs, for the progress of a query."""
        return self._offset(self._target or self._now())

    def prepareForTriggerAvailableNow(self) -> None:
        """Let this query read what is there now, also behind damage, and no more."""
        self._target = {root: self._end(root).settled() for root in self._ask.stores}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Return the parts of all logs between two offsets. Raises Refused if one has expired or was cut."""
        size = self._ask.split_bytes or SPLIT_BYTES_MAX
        found: list[InputPartition] = []
        for root, read_to in end.items():
            begin, stop = self._begin(root, start).position, ReadTo.of(read_to)
            with self._open(root) as log:
                self._require_same(root, log, stop, stop.position)
                first = log.min_offset
            if begin < min(first, stop.position):
                self._lost(root, begin, min(first, stop.position))
                begin = first
            parts = splits(begin, stop.position, size)
            found += [StorePartition(LogSplit(root, part)) for part in parts]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part. Raises Missing if its file expires meanwhile."""
        assert isinstance(partition, StorePartition)
        part, passed_over = partition.part, PassedOver()
        yield from each_noting(rows_of(self._ask, part, passed_over.add), passed_over.noted)
        assert part.split is not None
        if self._how.fails and (first := self._start(part.store)) > part.split.start:
            message = f"log files before {first} expired while they were read"
            raise Missing(message, path=part.store)
        passed_over.tell()

    def _first(self, root: str) -> int:
        """Return where a new query begins in one store."""
        first, start = self._start(root), self._how.start
        if start == LATEST:
            return self._end(root).position()
        if isinstance(start, int):
            return max(start, first)
        if self._ask.times.since_ms > ALWAYS.since_ms:
            with noting(), StoreReader(root, self._ask.broker_config) as store:
                bounds = time_bounds(store, TimeRange(self._ask.times.since_ms))
            warn_of_bounds({root: bounds})
            return max(first, bounds.start)
        return first

    def _start(self, root: str) -> int:
        """Return where the log begins now."""
        with self._open(root) as log:
            return log.min_offset

    def _begin(self, root: str, start: Mapping[str, Any]) -> ReadTo:
        """Return how far one store was read; for a store that was not there then, where a new query begins."""
        return ReadTo.of(start[root] if root in start else self._first(root))

    @contextmanager
    def _open(self, root: str) -> Iterator[CommitLog]:
        log = open_log(root, self._ask.broker_config)
        with log.queue:
            yield log

    def _offset(self, positions: Mapping[str, int]) -> Offset:
        found: Offset = {}
        for root, position in positions.items():
            with self._open(root) as log:
                found[root] = _read_to(log, position)
        return found

    def _now(self) -> dict[str, int]:
        return {root: self._end(root).position() for root in self._ask.stores}

    def _end(self, root: str) -> LiveEnd:
        if root not in self._ends:
            self._ends[root] = LiveEnd(Layout.open(root, self._ask.broker_config))
        return self._ends[root]

    def _lost(self, root: str, begin: int, end: int) -> None:
        size = counted(end - begin, "byte")
        message = f"log files expired before they were read: positions {begin} to {end}, {size}"
        self._tell(root, message)

    def _require_same(self, root: str, log: CommitLog, read: ReadTo, end: int) -> None:
        """Report if the log, which ends at `end`, is not the one that was read. Raises Refused."""
        if changed := changed_before(log.queue, read.position, (read.size, read.crc), end, "read"):
            self._tell(root, changed)

    def _tell(self, root: str, message: str) -> None:
        if self._how.fails:
            raise Refused(message, path=root, hint="fail_on_data_loss=false continues without the lost data")
        warnings.warn(f"{root}: {message}", DamageWarning, stacklevel=2)


def _read_to(log: CommitLog, position: int) -> dict[str, int]:
    """Return the fields of `ReadTo` for a position, with the checksum of what stands before it now."""
    return asdict(ReadTo(position, *last_bytes(log.queue, position)))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX
