"""`rocketmq-log` as a stream: what brokers write, each message once, while they write it.

The offset of a stream is, for each store, the physical offset up to which everything was read, with a checksum of the
last bytes before it: a broker that starts may cut the log and write on, past that offset. A part of a log between two
offsets always gives the same rows, so a query that continues from its checkpoint has each message exactly once.

An offset keeps what it has of a store that is not there for a while, and names a store by its place: whatever links and
names lead to it later, it continues. A store that was moved is known by the checksum.

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

from ...store.arrow.data_set import changed_before, holds, last_bytes
from ...store.arrow.log_rows import LogSplit, rows_of
from ...store.arrow.stores import ALWAYS, ReadOptions, is_number, one_of, open_log, place_of
from ...store.counted import counted
from ...store.disk.byte_reader import each_noting, noting
from ...store.disk.layout import Layout, is_uri
from ...store.errors import InvalidInput, Missing, Refused
from ...store.log.commit_log import SPLIT_BYTES_MAX, CommitLog, splits
from ...store.search.follow import LiveEnd
from ...store.search.log_search import DamageWarning, time_bounds
from ...store.search.selection import TimeRange
from ...store.search.store import StoreReader
from .parts import PassedOver, StorePartition, each_at_rate, warn_of_bounds

EARLIEST, LATEST = "earliest", "latest"
OPTIONS = ("starting_offset", "max_bytes_per_trigger", "fail_on_data_loss")
"""Options of a stream alone."""

Offset = dict[str, dict[str, int]]
"""`place_of` a store → fields of `ReadTo`. In older checkpoints the store has the name that it was given."""


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
        if start not in (EARLIEST, LATEST) and not is_number(start):
            raise InvalidInput(f"option starting_offset: not earliest, latest or a number: {start!r}")
        most = given.get("max_bytes_per_trigger")
        if most is not None and (not is_number(most) or not int(most)):
            raise InvalidInput(f"option max_bytes_per_trigger: not a number above 0: {most!r}")
        fails = one_of(given, "fail_on_data_loss", ("true", "false")) == "true"
        number = int(start) if is_number(start) else start
        return cls(number, None if most is None else int(most), fails)


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
        self._names = {place_of(root): root for root in ask.stores}
        self._ends: dict[str, LiveEnd] = {}
        self._target: dict[str, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the ends out for workers: they do not follow a log."""
        return {**self.__dict__, "_ends": {}}

    def initialOffset(self) -> Offset:
        """Return where a new query begins. Raises StoreError for a store that cannot be read."""
        firsts = {place: self._first(place, self._how.start) for place in self._names}
        if not isinstance(self._how.start, int):
            return self._offset(firsts)
        for place, first in firsts.items():
            if (end := self._end(place).position()) < first:
                name = self._names[place]
                warnings.warn(f"{name}: the log ends at {end}, before starting_offset {first}", stacklevel=2)
        return {place: asdict(ReadTo(first)) for place, first in firsts.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._how.max_bytes
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Offset:
        """Return where the logs end, or how far the limit lets them be read. Raises StoreError."""
        ends = self._target or self._now()
        room = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        known = _known(start)
        found = {place: asdict(read) for place, read in known.items()}  # also of stores that are not there now
        for place, end in ends.items():
            read = self._begin(place, known)
            if (former := self._former(place, known)) != place:  # it may go back there
                found.pop(former, None)
            if end == read.position:
                found[place] = asdict(read)
                continue
            with self._open(place) as log:
                if read.position != self._how.start:  # a query at its start has read nothing
                    self._require_same(place, log, read, end)
                end = max(read.position, end)  # after a cut the broker rewrites these positions
                if room is not None:
                    end = min(end, max(read.position, log.min_offset) + room)
                    room = max(0, room - (end - read.position))
                found[place] = asdict(read) if end == read.position else _read_to(log, end)
        return found

    def reportLatestOffset(self) -> Offset:
        """Return the ends of the logs, for the progress of a query."""
        return self._offset(self._target or self._now())

    def prepareForTriggerAvailableNow(self) -> None:
        """Let this query read what is there now, also behind damage, and no more."""
        self._target = {place: self._end(place).settled() for place in self._names}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Return the parts of all logs between two offsets. Raises Refused if one has expired or was cut."""
        size = self._ask.split_bytes or SPLIT_BYTES_MAX
        found: list[InputPartition] = []
        known = _known(start)
        for place, stop in _known(end).items():
            if place not in self._names and known.get(place) == stop:  # it is not there now
                continue
            begin = self._begin(place, known).position
            with self._open(place) as log:
                self._require_same(place, log, stop, stop.position)
                first = log.min_offset
            if begin < min(first, stop.position):
                self._lost(place, begin, min(first, stop.position))
                begin = first
            parts = splits(begin, stop.position, size)
            found += [StorePartition(LogSplit(self._name(place), part)) for part in parts]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part. Raises Missing if its file expires meanwhile."""
        assert isinstance(partition, StorePartition)
        part, passed_over = partition.part, PassedOver()
        rows = each_noting(rows_of(self._ask, part, passed_over.add), passed_over.noted)
        yield from each_at_rate(rows, self._ask.rate_bytes)
        assert part.split is not None
        if self._how.fails and (first := self._start(part.store)) > part.split.start:
            message = f"log files before {first} expired while they were read"
            raise Missing(message, path=part.store)
        passed_over.tell()

    def _first(self, place: str, start: str | int) -> int:
        """Return where a new query begins in one store. start: as in `StreamAsk`."""
        first = self._start(place)
        if start == LATEST:
            return self._end(place).position()
        if isinstance(start, int):
            return max(start, first)
        if self._ask.times.since_ms > ALWAYS.since_ms:
            name = self._name(place)
            with noting(), StoreReader(name, self._ask.broker_config) as store:
                bounds = time_bounds(store, TimeRange(self._ask.times.since_ms))
            warn_of_bounds({name: bounds})
            return max(first, bounds.start)
        return first

    def _start(self, place: str) -> int:
        with self._open(place) as log:
            return log.min_offset

    def _begin(self, place: str, known: Mapping[str, ReadTo]) -> ReadTo:
        """Return how far one log was read, here or where the store was before.

        What is new while a query goes on is read from its start; `starting_offset` is for new queries.
        """
        own = known.get(self._former(place, known))
        return ReadTo(self._first(place, EARLIEST if known else self._how.start)) if own is None else own

    def _former(self, place: str, known: Mapping[str, ReadTo]) -> str:
        """Return the place of the entry that counts for a store: its own; without one that of a store which is not
        there now and whose bytes it has, as it was moved: the further one of several. Else `place`.
        """
        gone = [one for one in known if one not in self._names]
        if place in known or not gone:
            return place
        with self._open(place) as log:
            moved = [one for one in gone if holds(log.queue, (read := known[one]).position, (read.size, read.crc))]
        return max(moved, key=lambda one: known[one].position, default=place)

    @contextmanager
    def _open(self, place: str) -> Iterator[CommitLog]:
        log = open_log(self._name(place), self._ask.broker_config)
        with log.queue:
            yield log

    def _name(self, place: str) -> str:
        """Return the name that a store was given; messages and rows have that one."""
        return self._names.get(place, place)

    def _offset(self, positions: Mapping[str, int]) -> Offset:
        found: Offset = {}
        for place, position in positions.items():
            with self._open(place) as log:
                found[place] = _read_to(log, position)
        return found

    def _now(self) -> dict[str, int]:
        return {place: self._end(place).position() for place in self._names}

    def _end(self, place: str) -> LiveEnd:
        if place not in self._ends:
            self._ends[place] = LiveEnd(Layout.open(self._name(place), self._ask.broker_config))
        return self._ends[place]

    def _lost(self, place: str, begin: int, end: int) -> None:
        size = counted(end - begin, "byte")
        message = f"log files expired before they were read: positions {begin} to {end}, {size}"
        self._tell(place, message)

    def _require_same(self, place: str, log: CommitLog, read: ReadTo, end: int) -> None:
        """Report if the log, which ends at `end`, is not the one that was read. Raises Refused."""
        if changed := changed_before(log.queue, read.position, (read.size, read.crc), end, "read"):
            self._tell(place, changed)

    def _tell(self, place: str, message: str) -> None:
        name = self._name(place)
        if self._how.fails:
            raise Refused(message, path=name, hint="fail_on_data_loss=false continues without the lost data")
        warnings.warn(f"{name}: {message}", DamageWarning, stacklevel=2)


def _known(offset: Mapping[str, Any]) -> dict[str, ReadTo]:
    """Return the entries of an offset by the place of the store, in order; of two for one store the further one."""
    found: dict[str, ReadTo] = {}
    for name, fields in offset.items():
        read, place = ReadTo.of(fields), place_of(name)
        if place not in found or read.position > found[place].position:
            found[place] = read
    return found


def _read_to(log: CommitLog, position: int) -> dict[str, int]:
    """Return the fields of `ReadTo` for a position, with the checksum of what stands before it now."""
    return asdict(ReadTo(position, *last_bytes(log.queue, position)))
