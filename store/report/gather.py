"""All that a report says of one store: the verdict of `verify`, what is in the log, groups, timers.

The log is counted by topic, queue, time, size, and place, in the pass of the checks. Memory has a bound, whatever the
log holds (`Sums`): topics behind the first `TOPICS_MAX` count as one; times are as fine as the number of sums allows,
places as fine as a picture shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from os import fspath
from typing import Any, NamedTuple, Self

import numpy as np

from ...formats.derive.ragged import Ints
from ...formats.hashing import java_string
from ..counted import bytes_text, counted
from ..disk.lock import holder
from ..errors import Missing, StoreError
from ..findings.next_commands import Given, NextCommand, calls_for_something
from ..inspect.description import last_exit
from ..inspect.stats import BIN_BITS, size_bin
from ..log.commit_log import Extent, ExtentKind
from ..offsets.lag import LagQuery, offsets_of, queue_ends
from ..queues.read import QueueSummary
from ..search.store import StoreReader
from ..settings.options import options_of
from ..timer.wheel import waiting
from ..verify.context import LogWatcher, Records, Scope, VerifyContext
from ..verify.run import verify
from ..verify.verdict import Status, Verdict, commands_of, first_sentence, tidying_of

_HOUR_MS = 3_600_000
HOURS_MAX = 24 * 15
"""The wheel turns in two weeks; what is due later, or was due before, is one number each."""
_PENDING = 1 << 16
"""Limit of new rows that wait to be added up."""
_CELL_BITS = 34
CELL_MAX = (1 << _CELL_BITS) - 1


class Due(NamedTuple):
    """Timed messages that wait in the wheel, by the hour (ms) in which their tick is due. past: due before all of
    these; later: due behind them.
    """

    hours: list[tuple[int, int]]
    past: int
    later: int

    @property
    def messages(self) -> int:
        return self.past + self.later + sum(number for _, number in self.hours)


@dataclass(frozen=True)
class Seen:
    """One store as a report shows it. facts: lines with a label each.

    commands: what to do next, in this order. tidy: the commands mend warnings only. queues: what their units say. lags:
    records of `offsets_of` by group and topic, the farthest behind first. notes: what could not be shown, and why.
    """

    root: str
    verdict: Verdict
    facts: list[tuple[str, str]]
    commands: list[NextCommand]
    tidy: bool
    picture: LogPicture
    queues: Mapping[tuple[str, int], QueueSummary]
    lags: list[dict[str, Any]]
    due: Due
    now_ms: int
    notes: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """The verdict, as every command says it."""
        return first_sentence(self.verdict, self.root)


def look(
    store: StoreReader,
    scope: Scope,
    given: Given,
    *,
    now_ms: int,
    progress: Callable[[int], None] | None = None,
    jobs: int = 1,
    judge: Callable[[Verdict], Verdict] | None = None,
) -> Seen:
    """Verify a store and count what is in it, in one pass over its log. Raises Unreadable.

    given: options that next commands need. judge: adds to the verdict what repairs would do. The other parameters are
    those of `verify`.
    """
    verdict = verify(store, scope._replace(watch=LogPicture), now_ms=now_ms, progress=progress, jobs=jobs)
    picture = verdict.watched
    verdict = judge(verdict) if judge is not None else verdict
    assert isinstance(picture, LogPicture)
    notes: list[str] = []
    commands, tidy = _commands(verdict, fspath(store.layout.root), given)
    return Seen(
        fspath(store.layout.root),
        verdict,
        list(_facts(store, verdict, picture.done())),
        commands,
        tidy,
        picture,
        _queues(store, notes),
        _lags(store, now_ms, notes),
        _due(store, now_ms, notes),
        now_ms,
        notes,
    )


def _commands(verdict: Verdict, root: str, given: Given) -> tuple[list[NextCommand], bool]:
    """Return what mends a store, else what tidies it up, and whether it only needs tidying."""
    about = [finding for finding in verdict.findings if calls_for_something(finding)]
    if not about:
        return tidying_of(verdict, root, given), True
    return commands_of(verdict, about, root, given), False


def _facts(store: StoreReader, verdict: Verdict, picture: LogPicture) -> Iterator[tuple[str, str]]:
    """Yield what the store is."""
    layout, generation, files = store.layout, store.generation, store.log_files
    yield "broker", f"{generation.told}: {generation.reason}"
    exit_kind, why = last_exit(layout.abort, holder(layout.lock))
    yield "last exit", f"{exit_kind}: {why}"
    size = bytes_text(files.size)
    number = counted(len(files.files), "file")
    yield "log", f"{number}, {size}, from {files.start:,} to {verdict.facts.end:,}"
    yield "in", ", ".join(map(fspath, layout.commit_log_directories))
    rows = picture.queues.rows()
    topics = counted(len(np.unique(rows.group)), "topic", form=",")
    queues = counted(len(rows.group), "queue", form=",")
    dead = f"; {picture.dead:,} more are cut off" if picture.dead else ""
    yield "records", f"{verdict.records:,} of {topics}, in {queues}{dead}"
    if compressed := sum(file.compressed for file in files.files):
        yield "compressed", f"{counted(compressed, 'log file')}: no broker reads these so"
    if missing := sum(gap.size for gap in files.gaps):
        yield "partial", f"{bytes_text(missing)} of the log are missing: no file has them"
    for note in options_of(layout).notes():
        yield "options", note


def _queues(store: StoreReader, notes: list[str]) -> Mapping[tuple[str, int], QueueSummary]:
    """Return what the units of all queues say, those in a RocksDB included."""
    if store.queues_unread:
        notes.append(f"queues: {store.queues_unread}")
    try:
        return queue_ends(store)
    except StoreError as error:
        notes.append(f"queues: {error}")
        return {}


def _lags(store: StoreReader, now_ms: int, notes: list[str]) -> list[dict[str, Any]]:
    try:
        found = offsets_of(store, "", LagQuery(now_ms))
    except StoreError as error:
        notes.append(f"groups: {error}")
        return []
    notes += [f"groups: {note}" for note in found.notes]
    return found.rows


def _due(store: StoreReader, now_ms: int, notes: list[str]) -> Due:
    """Count what waits in the wheel (spec 04, 4.5)."""
    if store.config.get_bool("timerRocksDBEnable"):
        notes.append("timers: timerRocksDBEnable is on: timers that wait in rocksdbstore are not shown")
    hour = now_ms // _HOUR_MS
    counts: Ints = np.zeros(HOURS_MAX, np.int64)
    past = later = 0
    try:
        for hours, number in waiting(store.layout):
            hours -= hour
            inside = (hours >= 0) & (hours < HOURS_MAX)
            np.add.at(counts, hours[inside], number[inside])
            past += int(number[hours < 0].sum())
            later += int(number[hours >= HOURS_MAX].sum())
    except Missing:
        return Due([], 0, 0)
    except StoreError as error:
        notes.append(f"timers: {error}")
    some = np.flatnonzero(counts)
    last = int(some[-1]) + 1 if len(some) else 0
    hours_ms = [((hour + n) * _HOUR_MS, int(counts[n])) for n in range(last)]
    return Due(hours_ms, past, later)


STATUS = {Status.CLEAN: "in order", Status.UNCLEAN: "not shut down cleanly", Status.DAMAGED: "damaged"}
"""Names of the statuses on the page."""


class GroupedSums(NamedTuple):
    """n sums, int64[n] each, by group and cell. first, last: the least and the greatest log position."""

    group: Ints
    cell: Ints
    records: Ints
    bytes: Ints
    first: Ints
    last: Ints


Fold = Callable[[GroupedSums], tuple[Ints, Ints]]
"""Returns the groups and cells that too many sums are folded into: fewer groups, or fewer cells."""


class Sums:
    """Sums by group (below 2^29) and cell (0 … CELL_MAX). most: as many are kept. fold: makes them fewer."""

    def __init__(self, most: int, fold: Fold) -> None:
        self._most = most
        self._fold = fold
        self._kept: list[GroupedSums] = []
        self._new = 0

    def add(self, rows: GroupedSums) -> None:
        """Add rows; several may have the same group and cell."""
        self._kept.append(rows)
        self._new += len(rows.group)
        if self._new > _PENDING:
            self._join()

    def rows(self) -> GroupedSums:
        """Return all sums in order, each group and cell once."""
        self._join()
        return self._kept[0]

    def coarser(self, factor: int) -> None:
        """Move all sums to cells that are larger by a factor, and add them up."""
        rows = self.rows()
        self._kept = [_added(rows._replace(cell=rows.cell // factor))]

    def _join(self) -> None:
        columns = zip(*self._kept, strict=True) if self._kept else [[np.zeros(0, np.int64)]] * 6
        rows = _added(GroupedSums(*(np.concatenate(column) for column in columns)))
        while len(rows.group) > self._most:
            group, cell = self._fold(rows)
            if np.array_equal(group, rows.group) and np.array_equal(cell, rows.cell):
                break  # as few as they can be
            rows = _added(rows._replace(group=group, cell=cell))
        self._kept, self._new = [rows], 0


def _added(rows: GroupedSums) -> GroupedSums:
    """Add up rows of one group and cell."""
    if not len(rows.group):
        return rows
    key = rows.group << _CELL_BITS | rows.cell
    order = np.argsort(key, kind="stable")
    key = key[order]
    begins = np.flatnonzero(np.diff(key, prepend=key[0] - 1))
    joins = (np.add, np.add, np.minimum, np.maximum)
    found = (j.reduceat(c[order], begins) for j, c in zip(joins, rows[2:], strict=True))
    return GroupedSums(key[begins] >> _CELL_BITS, key[begins] & CELL_MAX, *found)


def summed(group: Ints, cell: Ints, size: Ints, position: Ints) -> GroupedSums:
    """Sum n records by group and cell: sizes in bytes, and log positions in ascending order, int64[n] each.

    Does not sort if groups and cells are near each other, as those of a batch mostly are.
    """
    low = int(cell.min())
    width = int(cell.max()) - low + 1
    keys = (int(group.max()) + 1) * width
    if keys <= 4 * len(cell) + 4096:
        number = group * width + (cell - low)
        groups, cells = np.divmod(np.arange(keys, dtype=np.int64), width)
        cells += low
    else:
        several, number = np.unique(group << _CELL_BITS | cell, return_inverse=True)
        groups, cells = several >> _CELL_BITS, several & CELL_MAX
    count = np.bincount(number, minlength=len(groups))
    total = np.bincount(number, size, minlength=len(groups)).astype(np.int64)
    first, last = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
    first[number[::-1]] = position[::-1]
    last[number] = position
    some = np.flatnonzero(count)
    columns = (groups, cells, count, total, first, last)
    return GroupedSums(*(column[some] for column in columns))


TOPICS_MAX = 1 << 16
OTHERS = 0
"""Number that stands for all topics behind the first `TOPICS_MAX`, and for small ones in `times`."""
SUMS_MAX = 1 << 17
ALL_QUEUES = (1 << 32) - 1
"""Stands for all queues of a topic if there are more than `SUMS_MAX` sums."""
MAP_ROWS, MAP_COLUMNS = 40, 96
TIME_STEPS_S = (1, 2, 10, 60, 120, 600, 3600, 7200, 21600, 86400, 604800, 2419200)
"""Possible lengths of a step of time: each is a multiple of the one before."""
_TIME_MAX_MS = 4_000_000_000_000
"""Store times are clipped to between 1970 and this time, in 2096."""
_TIMES_ENOUGH = 256
"""With so few different times the step does not grow: small topics become one instead."""
_SMALL_BYTES = 1 << 14


class PlaceContent(IntEnum):
    """What a place of the log holds."""

    RECORDS = 0
    DEAD = 1
    DAMAGE = 2
    MISSING = 3
    BLANK = 4
    ZEROS = 5


_OF_EXTENT = {
    ExtentKind.BLANK: PlaceContent.BLANK,
    ExtentKind.DAMAGE: PlaceContent.DAMAGE,
    ExtentKind.MISSING: PlaceContent.MISSING,
    ExtentKind.TORN_TAIL: PlaceContent.DAMAGE,
    ExtentKind.ZEROS: PlaceContent.ZEROS,
    ExtentKind.STALE_BYTES: PlaceContent.DEAD,
}


class LogPlaces(NamedTuple):
    """How the log is cut into places: rows of one length from `start` on, `MAP_COLUMNS` places in each.

    files: number of log files in a row.
    """

    start: int
    file_bytes: int
    files: int
    rows: int

    @classmethod
    def of(cls, start: int, end: int, file_bytes: int) -> Self:
        """Cut the log between two positions: a row is one file, or several if there are many."""
        file_bytes = max(MAP_COLUMNS, file_bytes)
        files = max(1, -(-(end - start) // file_bytes))
        several = -(-files // MAP_ROWS)
        return cls(start, file_bytes, several, -(-files // several))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.files * self.file_bytes

    @property
    def total(self) -> int:
        return self.rows * MAP_COLUMNS

    def at(self, position: int) -> int:
        """Return the place of a log position."""
        row, rest = divmod(position - self.start, self.row_bytes)
        place = row * MAP_COLUMNS + rest * MAP_COLUMNS // self.row_bytes
        return min(max(0, place), self.total - 1)

    def edges(self, first: int, last: int) -> Ints:
        """Return where places begin in the log, and the end of the last one, int64[last - first + 2]."""
        row, column = np.divmod(np.arange(first, last + 2, dtype=np.int64), MAP_COLUMNS)
        edges: Ints = self.start + row * self.row_bytes - (-column * self.row_bytes // MAP_COLUMNS)
        return edges


class LogPicture(LogWatcher):
    """What `verify` has met in a log, added up.

    topics: stored name → number, from 1 on. queues: sums by topic and queue id. times: sums by topic and store time in
    steps of `TIME_STEPS_S[step]`. sizes, size_bytes: records and bytes by `size_bin`. state: bytes by `PlaceContent`
    and place. top: the topic with most bytes of each place, -1 for none. records_at, age: records by place, and the sum
    of their store times in ms. dead: number of records that are cut off.
    """

    def __init__(self, places: LogPlaces) -> None:
        self.places = places
        self.topics: dict[bytes, int] = {}
        self.queues = Sums(SUMS_MAX, _all_queues)
        self.times = Sums(SUMS_MAX, self._fewer_times)
        self.step = 0
        self.sizes = np.zeros(1 << BIN_BITS, np.int64)
        self.size_bytes = np.zeros(1 << BIN_BITS, np.int64)
        self.state = np.zeros((len(PlaceContent), places.total), np.int64)
        self.top = np.full(places.total, -1, np.int64)
        self.top_bytes = np.zeros(places.total, np.int64)
        self.records_at = np.zeros(places.total, np.int64)
        self.age = np.zeros(places.total, np.float64)
        self.dead = 0
        self._place = -1
        self._of_place = np.zeros(0, np.int64)

    @classmethod
    def fresh(cls, context: VerifyContext) -> Self:
        files = context.store.log_files
        return cls(LogPlaces.of(files.start, files.end, files.file_size or 0))

    @property
    def names(self) -> list[str]:
        """The topics by their numbers."""
        return ["", *map(java_string, self.topics)]

    def records(self, records: Records) -> None:
        size = records.ints("total_size")
        time = np.clip(records.ints("store_timestamp"), 0, _TIME_MAX_MS)
        local = records.topics.ids
        numbers = self._numbers(records.topics.values)
        topic = numbers[local]
        queue = records.ints("queue_id") & ALL_QUEUES
        self._add(self.queues, numbers, local, queue, size, records.position)
        cell = time // (TIME_STEPS_S[self.step] * 1000)
        self._add(self.times, numbers, local, cell, size, records.position)
        self._count_sizes(size)
        self._put(records.position, size, time, topic)

    def stale(self, records: Records) -> None:
        self.dead += len(records)
        size = records.ints("total_size")
        for begin, each in zip(records.position.tolist(), size.tolist(), strict=True):
            self._put_range(PlaceContent.DEAD, begin, begin + each)

    def extent(self, extent: Extent) -> None:
        self._put_range(_OF_EXTENT[extent.kind], extent.position, extent.end)

    def merge(self, context: VerifyContext, left: Self) -> None:
        numbers = np.append(0, self._numbers(list(left.topics)))
        self._coarser(max(self.step, left.step))
        left._coarser(self.step)
        for mine, other in ((self.queues, left.queues), (self.times, left.times)):
            rows = other.rows()
            mine.add(rows._replace(group=numbers[rows.group]))
        self.sizes += left.sizes
        self.size_bytes += left.size_bytes
        self.state += left.state
        self.records_at += left.records_at
        self.age += left.age
        self.dead += left.dead
        self._close_place()
        left._close_place()
        more = left.top_bytes > self.top_bytes
        self.top[more] = numbers[left.top[more]]
        self.top_bytes[more] = left.top_bytes[more]

    def done(self) -> Self:
        """Finish the last place, and return the picture."""
        self._close_place()
        return self

    def _numbers(self, topics: list[bytes]) -> Ints:
        """Return the number of each topic, int64[n]; new topics get one."""
        known, found = self.topics, []
        for topic in topics:
            number = known.get(topic)
            if number is None:
                number = len(known) + 1 if len(known) < TOPICS_MAX else OTHERS
                if number:
                    known[topic] = number
            found.append(number)
        return np.array(found, np.int64)

    def _add(self, sums: Sums, numbers: Ints, local: Ints, cell: Ints, size: Ints, position: Ints) -> None:
        rows = summed(local, cell, size, position)
        sums.add(rows._replace(group=numbers[rows.group]))

    def _count_sizes(self, size: Ints) -> None:
        """Count records and bytes by bin; small records are counted by size first."""
        counts = np.bincount(np.minimum(size, _SMALL_BYTES), minlength=_SMALL_BYTES + 1)
        some = np.flatnonzero(counts[:_SMALL_BYTES])
        large = size[size >= _SMALL_BYTES] if counts[_SMALL_BYTES] else size[:0]
        sizes, weights = np.append(some, large), np.append(counts[some], np.ones_like(large))
        number = size_bin(sizes)
        np.add.at(self.sizes, number, weights)
        np.add.at(self.size_bytes, number, weights * sizes)

    def _put(self, position: Ints, size: Ints, time: Ints, topic: Ints) -> None:
        behind = int(position[-1] + size[-1])
        first, last = self.places.at(int(position[0])), self.places.at(int(position[-1]))
        edges = self.places.edges(first, last)
        cuts = [0, *np.searchsorted(position, edges[1:-1]).tolist(), len(position)]
        for place in range(first, last + 1):
            begin, end = cuts[place - first], cuts[place - first + 1]
            if begin == end:
                continue
            if place != self._place:
                self._close_place()
                self._place = place
            here = slice(begin, end)
            added = np.bincount(topic[here], size[here]).astype(np.int64)
            if len(added) > len(self._of_place):
                self._of_place = np.append(self._of_place, np.zeros(len(added) - len(self._of_place), np.int64))
            self._of_place[: len(added)] += added
            self.records_at[place] += end - begin
            self.age[place] += float(time[here].sum(dtype=np.float64))
            reach = int(position[end - 1] + size[end - 1])
            over = max(0, min(reach, behind) - int(edges[place - first + 1]))
            self.state[PlaceContent.RECORDS, place] += int(size[here].sum()) - over
            if over:
                self._put_range(PlaceContent.RECORDS, reach - over, reach)
                self._put_over(place, reach, int(topic[end - 1]))

    def _put_over(self, place: int, reach: int, topic: int) -> None:
        """Let a record of a topic that begins in a place count for the topics of the places that it fills behind it."""
        last = self.places.at(reach - 1)
        edges = np.minimum(self.places.edges(place + 1, last), reach)
        filled = np.diff(edges)
        here = slice(place + 1, last + 1)
        more = filled > self.top_bytes[here]
        self.top[here][more], self.top_bytes[here][more] = topic, filled[more]

    def _put_range(self, state: PlaceContent, begin: int, end: int) -> None:
        if end <= begin:
            return
        first, last = self.places.at(begin), self.places.at(end - 1)
        if first == last:
            self.state[state, first] += end - begin
            return
        edges = np.clip(self.places.edges(first, last), begin, end)
        self.state[state, first : last + 1] += np.diff(edges)

    def _close_place(self) -> None:
        """Settle the top topic of the place that was filled last."""
        if self._place >= 0 and len(self._of_place):
            top = int(self._of_place.argmax())
            if self._of_place[top] > self.top_bytes[self._place]:
                self.top[self._place], self.top_bytes[self._place] = top, self._of_place[top]
        self._place, self._of_place = -1, np.zeros(0, np.int64)

    def _coarser(self, step: int) -> None:
        """Make the steps of time as long as those of this number."""
        while self.step < step:
            factor = TIME_STEPS_S[self.step + 1] // TIME_STEPS_S[self.step]
            self.step += 1
            self.times.coarser(factor)

    def _fewer_times(self, rows: GroupedSums) -> tuple[Ints, Ints]:
        """Fold to longer steps; if times are few, or steps at their longest, fold the smaller half of topics to one."""
        if self.step + 1 < len(TIME_STEPS_S) and len(np.unique(rows.cell)) > _TIMES_ENOUGH:
            factor = TIME_STEPS_S[self.step + 1] // TIME_STEPS_S[self.step]
            self.step += 1
            return rows.group, rows.cell // factor
        of_topic = np.bincount(rows.group, rows.bytes)
        of_topic[OTHERS] = 0
        some = np.flatnonzero(of_topic)
        small = some[np.argsort(of_topic[some])][: (len(some) + 1) // 2]
        group = np.where(np.isin(rows.group, small), OTHERS, rows.group)
        return group, rows.cell if len(some) > 1 else np.zeros_like(rows.cell)


def _all_queues(rows: GroupedSums) -> tuple[Ints, Ints]:
    return rows.group, np.full_like(rows.cell, ALL_QUEUES)
