"""A forecast of which log files expire next, as a broker decides (spec 7.8), when its disk is full, and which groups
lose unconsumed messages.

A file is deleted when its last change is `fileReservedTime` ago and the hour is one of `deleteWhen`, or when the disk
is fuller than `diskMaxUsedSpaceRatio`. Above 85 % age no longer counts, above 90 % nothing is written. If a broker
cannot parse `deleteWhen`, nothing is deleted. The oldest file goes first, and never the last one. The log is assumed to
grow as in its last hours; the space for queues and index grows and shrinks with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...formats.broker_properties import FILE as BROKER_PROPERTIES
from ...formats.hashing import java_integer
from ...formats.index_file import ITEM
from ...formats.quick import UNIT_BYTES
from ..counted import counted
from ..disk.broker_conf import LARGEST_FILE_BYTES, BrokerConfig
from ..disk.compressed import read_regular
from ..disk.file_queue import MappedFile
from ..disk.layout import Layout
from ..errors import InvalidInput, Missing, StoreError, os_errors
from ..inspect.own_topics import waiting_of_levels
from ..inspect.timers import waiting_in_wheel
from ..queues.read import QueueSummary, first_at
from ..queues.units import is_used, is_valid
from ..search.queue_search import open_batch_queue
from ..search.store import Note, StoreReader
from ..settings.generation import file_rules_of_any
from ..settings.options import FILE_RESERVED_HOURS
from ..settings.rocksdb import stand_ins
from ..start.config_load import LMQ_OFFSETS, OFFSETS
from .lag import Ends, Lag, behind_log, behind_text, lags_of, queue_ends
from .positions import DELAYED, PULLED, Positions, groups_of, positions_of

HOUR_MS = 3_600_000
_HOURS_OF_DAY = 24
_DELETIONS_MAX = 100_000
"""Files deleted in one forecast; nobody reads further."""
_PERCENT = 100
_QUEUES_ASKED = 8
_ITEM_BYTES = ITEM.sizeof()
_LATEST_MS = 4e12
"""Later than any forecast; calendars end at some time."""


class Why(StrEnum):
    """Why a file is deleted."""

    TIME = "time"
    DISK = "disk"
    FORCED = "forced"


class ExpiryRules(NamedTuple):
    """A broker's options for deleting files. Percentages are of the disk; hours are hours of the day, local time.

    forced_percent: None if cleanFileForciblyEnable is off. failing_hour: the part of `deleteWhen` that a broker cannot
    parse, None without one. Each round of its cleaning checks the hour first, and fails there with an exception unless
    an hour listed before that part matches: so at other hours nothing is deleted, however full the disk is.

    given: names of the options that are set; the others are defaults. notes: invalid values in the store's own
    configuration.
    """

    reserved_ms: int
    hours: tuple[int, ...]
    delete_percent: int
    forced_percent: int | None
    full_percent: int
    given: tuple[str, ...]
    notes: tuple[str, ...] = ()
    failing_hour: str | None = None


_DEFAULTS = {
    "fileReservedTime": FILE_RESERVED_HOURS,
    "diskMaxUsedSpaceRatio": 75,
    "diskSpaceCleanForciblyRatio": 85,
    "diskSpaceWarningLevelRatio": 90,
}
_RATIO_LIMITS = {
    "diskMaxUsedSpaceRatio": (10, 95),
    "diskSpaceCleanForciblyRatio": (30, 85),
    "diskSpaceWarningLevelRatio": (35, 90),
}
"""The lowest and highest value of a ratio that a broker uses."""
_WHEN, _FORCIBLY = "deleteWhen", "cleanFileForciblyEnable"


def rules_of(layout: Layout) -> ExpiryRules:
    """From the configuration that was given, else from config/broker.properties, else the defaults.

    In config/broker.properties, values that brokers reject are skipped with a note. Raises InvalidInput, Unreadable.
    """
    config, notes = layout.broker_config, list[str]()
    names = (*_DEFAULTS, _WHEN, _FORCIBLY)
    if not any(name in config for name in names):
        config, notes = _own_config(layout, names)
    numbers = {name: _number(config, name) for name in _DEFAULTS}
    delete, forced, full = (min(max(numbers[name], least), most) for name, (least, most) in _RATIO_LIMITS.items())
    # DLedgerCommitLog keeps files an hour longer
    reserved_ms = (numbers["fileReservedTime"] + (layout.dledger is not None)) * HOUR_MS
    hours, failing = _hours(config.get(_WHEN, "04"))
    notes += [f"{_WHEN}: {hour} is not an hour of the day and never comes" for hour in hours if not _is_hour(hour)]
    given = tuple(name for name in names if name in config)
    forced_percent = forced if config.get_bool(_FORCIBLY, True) else None
    valid_hours = tuple(filter(_is_hour, hours))
    return ExpiryRules(reserved_ms, valid_hours, delete, forced_percent, full, given, tuple(notes), failing)


def _number(config: BrokerConfig, name: str) -> int:
    value = config.get_int(name, _DEFAULTS[name])
    if value < 0:
        raise InvalidInput(f"{name} must not be negative: {value}")
    return value


def _own_config(layout: Layout, names: Sequence[str]) -> tuple[BrokerConfig, list[str]]:
    """The valid values in the store's own file, and notes about the others."""
    path = layout.config / BROKER_PROPERTIES
    try:
        data = read_regular(path, LARGEST_FILE_BYTES)
        config = BrokerConfig.from_bytes(data, path, file_rules_of_any([layout]))
    except Missing:
        return BrokerConfig(), []
    except StoreError as error:
        return BrokerConfig(), [f"{error}; the defaults count"]
    notes = [f"{path}: {why}" for name, why in config.untaken.items() if name in names]
    sound = {name: config[name] for name in names if name in config}
    for name in _DEFAULTS:
        try:
            _number(config, name)
        except InvalidInput as error:
            notes.append(f"{path}: {error.message}; the default counts")
            del sound[name]
    return BrokerConfig(sound), notes


def _hours(text: str) -> tuple[tuple[int, ...], str | None]:
    """The numbers in `04;16` up to the first part that is not one, and that part, split and parsed as in Java."""
    parts = text.split(";")
    while len(parts) > 1 and not parts[-1]:  # Java drops empty parts at the end, unless the text itself is empty
        parts.pop()
    if parts == [""] and text:
        parts = []
    numbers = [java_integer(part, 32) for part in parts]
    failing = numbers.index(None) if None in numbers else None
    found = {number for number in numbers[:failing] if number is not None}
    return tuple(sorted(found)), None if failing is None else parts[failing]


def _is_hour(number: int) -> bool:
    return 0 <= number < _HOURS_OF_DAY


class Disk(NamedTuple):
    """A file system: its size and used space. here: the log is on it."""

    total_bytes: int
    used_bytes: int
    here: bool = True

    def at(self, percent: int) -> float:
        """The bytes that a percentage of the disk is."""
        return self.total_bytes * percent / _PERCENT


def disk_of(layout: Layout) -> Disk:
    """The file system of the newest log directory, with the ratio that a broker computes. Raises Unreadable."""
    path = layout.commit_log_directories[-1]
    with os_errors(path):
        status = os.statvfs(path)
    total = status.f_blocks * status.f_frsize
    # Java: total minus usable space, which excludes blocks reserved for root
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    return Disk(used + status.f_bavail * status.f_frsize or total, used)


class LogFile(NamedTuple):
    """A file of the log. changed_ms: of its last change. full_ms: when it will be full, 0 if it is; then its last
    change is.
    """

    path: str
    start: int
    size: int
    changed_ms: int
    full_ms: int = 0


class ExpiringFile(NamedTuple):
    """A file to be deleted. due_ms: when it is old enough. goes_ms: when it is deleted. now_ms: of the forecast."""

    file: LogFile
    due_ms: int
    goes_ms: int
    why: Why
    now_ms: int

    @property
    def kept_ms(self) -> int:
        """How long after its last change it is deleted; 0 if its time is later."""
        return max(0, self.goes_ms - self.file.changed_ms)

    def to_json(self) -> dict[str, Any]:
        return {
            "file": Path(self.file.path).name,
            "size": self.file.size,
            "changed_timestamp": self.file.changed_ms,
            "due_timestamp": self.due_ms,
            "goes_timestamp": self.goes_ms,
            "in_ms": self.goes_ms - self.now_ms,
            "why": str(self.why),
            "kept_ms": self.kept_ms,
        }


@dataclass
class Forecast:
    """The future of a log. going: existing files deleted before `until_ms`, oldest first. kept_ms: least age of one.

    rate: bytes of log per ms. factor: bytes of disk per byte of log. ahead: files with a time in the future. over_ms,
    forced_ms, refuses_ms, full_ms: when the disk exceeds the ratios of the rules, and is full; None: not before
    `until_ms`.
    """

    rules: ExpiryRules
    disk: Disk
    now_ms: int
    until_ms: int
    rate: float
    factor: float
    rate_since_ms: int | None
    going: list[ExpiringFile] = field(default_factory=list)
    ahead: list[LogFile] = field(default_factory=list)
    over_ms: int | None = None
    forced_ms: int | None = None
    refuses_ms: int | None = None
    full_ms: int | None = None
    kept_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "now_timestamp": self.now_ms,
            "until_timestamp": self.until_ms,
            "reserved_ms": self.rules.reserved_ms,
            "delete_hours": list(self.rules.hours),
            "failing_hour": self.rules.failing_hour,
            "delete_percent": self.rules.delete_percent,
            "forced_percent": self.rules.forced_percent,
            "refuses_percent": self.rules.full_percent,
            "options_given": list(self.rules.given),
            "disk_bytes": self.disk.total_bytes,
            "disk_used_bytes": self.disk.used_bytes,
            "log_bytes_per_second": round(self.rate * 1000, 3),
            "disk_bytes_per_second": round(self.rate * self.factor * 1000, 3),
            "rate_since_timestamp": self.rate_since_ms,
            "files_going": len(self.going),
            "bytes_going": sum(one.file.size for one in self.going),
            "over_timestamp": self.over_ms,
            "forced_timestamp": self.forced_ms,
            "refuses_timestamp": self.refuses_ms,
            "full_timestamp": self.full_ms,
            "shortest_kept_ms": self.kept_ms,
        }


def forecast(store: StoreReader, disk: Disk | None, now_ms: int, until_ms: int, last_ms: int) -> Forecast:
    """Make a forecast. disk: None for that of the log. last_ms: the span before the last record that gives the growth.

    Raises InvalidInput, Unreadable.
    """
    layout = store.layout
    rules, disk = rules_of(layout), disk or disk_of(layout)
    files = [_log_file(file) for file in store.log_files.files]
    rate, since = _rate(store, last_ms)
    log_bytes = max(1, store.log_end.position - store.log_files.start)
    factor = 1 + _derived_bytes(store) / log_bytes
    found = Forecast(rules, disk, now_ms, until_ms, rate, factor, since)
    clock_ms = max(now_ms, time.time_ns() // 1_000_000)  # a forecast may begin in the past
    found.ahead = [file for file in files if file.changed_ms > clock_ms + HOUR_MS]
    _simulate(found, files, store.log_end.position)
    return found


def _log_file(file: MappedFile) -> LogFile:
    changed = os.stat(file.path).st_mtime_ns // 1_000_000  # noqa: PTH116
    return LogFile(os.fspath(file.path), file.start, file.size, changed)


def _rate(store: StoreReader, last_ms: int) -> tuple[float, int | None]:
    """(bytes of log per millisecond in the `last_ms` before its newest record, start of that span); 0 and None if
    unknown. The longest queues tell where the log was then.
    """
    end = store.log_end
    if end.store_timestamp is None:
        return 0.0, None
    since_ms = end.store_timestamp - last_ms
    queues = sorted(store.queue_summaries, key=lambda q: q.min_offset - q.max_offset)[:_QUEUES_ASKED]
    places = [_first_stored_since(store, queue, since_ms) for queue in queues]
    if not any(places):  # else use the first records of the files
        starts = [(file.start, store.store_time(file.start)) for file in store.log_files.files]
        places = [(start, stored_ms) for start, stored_ms in starts if stored_ms is not None and stored_ms >= since_ms]
    found = min((place for place in places if place is not None), default=None)
    if found is None or end.store_timestamp <= found[1] or end.position <= found[0]:
        return 0.0, None
    return (end.position - found[0]) / (end.store_timestamp - found[1]), found[1]


def _first_stored_since(store: StoreReader, queue: QueueSummary, time_ms: int) -> tuple[int, int] | None:
    """Position and store time of the first record of a queue stored at `time_ms` or later."""
    with store.queues.open(queue.topic, queue.queue_id) as opened:
        unit = opened.unit(first_at(opened, queue, time_ms, store.store_time)[1])
    if unit is None or not unit.valid:
        return None
    stored_ms = store.store_time(unit.physical_offset)
    return None if stored_ms is None else (unit.physical_offset, stored_ms)


def _derived_bytes(store: StoreReader) -> int:
    """Bytes of units and index items for the whole log, which grow and shrink with it."""
    units = sum(queue.max_offset - queue.min_offset for queue in store.queue_summaries)
    items = sum(max(0, file.header.index_count - 1) for file in store.index.files)
    return units * UNIT_BYTES + items * _ITEM_BYTES


def _simulate(found: Forecast, files: list[LogFile], log_end: int) -> None:
    """Simulate time, from one deleted file to the next."""
    now, used, grows = float(found.now_ms), float(found.disk.used_bytes), found.rate * found.factor
    for file in islice(_files_to_come(found, files, log_end), _DELETIONS_MAX):
        event = _next_deletion(found, file, now, used, grows)
        stop = min(float(found.until_ms), event[0])
        _note_levels(found, now, stop, used, grows)
        if event[0] > found.until_ms:
            return
        used += grows * (stop - now) - file.size * found.factor
        now = stop
        due_ms = file.changed_ms + found.rules.reserved_ms
        going = ExpiringFile(file, due_ms, int(stop), event[1], found.now_ms)
        if file.path:
            found.going.append(going)
        if file not in found.ahead:
            found.kept_ms = going.kept_ms if found.kept_ms is None else min(found.kept_ms, going.kept_ms)
    _note_levels(found, now, float(found.until_ms), used, grows)


def _files_to_come(found: Forecast, files: list[LogFile], log_end: int) -> Iterator[LogFile]:
    """The files that can be deleted, each once another follows it; files still to be written have no path."""
    for file in files:
        if file.start + file.size <= log_end:
            yield file
    last = next((file for file in files if file.start <= log_end < file.start + file.size), None)
    if last is None or found.rate <= 0:
        return
    full_ms = found.now_ms + (last.start + last.size - log_end) / found.rate
    while full_ms <= found.until_ms:
        yield last._replace(changed_ms=int(full_ms), full_ms=int(full_ms))
        last = last._replace(path="", start=last.start + last.size)
        full_ms += last.size / found.rate


def _next_deletion(found: Forecast, file: LogFile, now: float, used: float, grows: float) -> tuple[float, Why]:
    """When the oldest file is deleted, and why."""
    rules = found.rules
    earliest = max(now, float(file.full_ms))
    old = max(earliest, float(file.changed_ms + rules.reserved_ms))
    ways = [(_in_hours(old, rules.hours), Why.TIME)]
    if rules.failing_hour is None:
        ways.append((max(old, _crosses(found.disk.at(rules.delete_percent), now, used, grows)), Why.DISK))
    if rules.forced_percent is not None:
        forced = max(earliest, _crosses(found.disk.at(rules.forced_percent), now, used, grows))
        ways.append((forced if rules.failing_hour is None else _in_hours(forced, rules.hours), Why.FORCED))
    return min(ways)


def _crosses(level: float, now: float, used: float, grows: float) -> float:
    """When the used bytes exceed a level."""
    if used > level:
        return now
    return now + (level - used) / grows if grows > 0 else inf


def _in_hours(time_ms: float, hours: tuple[int, ...]) -> float:
    """The first moment from this one on that is in one of the hours of the day, in local time."""
    if time_ms > _LATEST_MS or not hours:
        return inf
    moment = datetime.fromtimestamp(time_ms / 1000)
    if moment.hour in hours:
        return time_ms
    later = (
        moment.replace(hour=hour, minute=0, second=0, microsecond=0) + timedelta(days)
        for days in (0, 1)
        for hour in hours
    )
    return min(each.timestamp() * 1000 for each in later if each > moment)


def _note_levels(found: Forecast, now: float, stop: float, used: float, grows: float) -> None:
    """Note when the disk exceeds each ratio, if that is before `stop`."""

    def first(noted: int | None, percent: int | None) -> int | None:
        if percent is None:
            return None
        when = _crosses(found.disk.at(percent), now, used, grows)
        return int(when) if noted is None and when <= stop else noted

    found.over_ms = first(found.over_ms, found.rules.delete_percent)
    found.forced_ms = first(found.forced_ms, found.rules.forced_percent)
    found.refuses_ms = first(found.refuses_ms, found.rules.full_percent)
    found.full_ms = first(found.full_ms, _PERCENT)


class Losing(NamedTuple):
    """A group that loses messages of a topic. unread: all it has not consumed. first_timestamp: when the first is
    lost.
    """

    group: str
    topic: str
    queues: int
    messages: int
    unread: int
    first_timestamp: int


class Losses(NamedTuple):
    """Groups that lose messages. unknown: why there may be more. notes: other remarks."""

    rows: list[Losing]
    unknown: list[str]
    notes: list[str]


def losing(store: StoreReader, going: Sequence[ExpiringFile]) -> Losses:
    """The groups that lose messages, most first; if they continue to consume, they lose fewer. Raises Unreadable."""
    layout, version = store.layout, store.generation.version
    if not going:
        return Losses([], [], [])
    if not layout.config.is_dir():
        return Losses([], ["there is no config/: the positions of groups are not known"], [])
    found = positions_of(layout, version)
    ends, boundary = queue_ends(store), max(one.file.start + one.file.size for one in going)
    rows: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    groups = groups_of(layout, version)
    for lag in lags_of(found.rows, ends, groups):
        if lag.committed and lag.position.table not in (DELAYED, PULLED):
            lost = _of_queue(store, lag, boundary, going)
            if lost is not None:
                key = lag.position.group, lag.position.topic
                rows.setdefault(key, []).append(lost)
    made = []
    for (group, topic), queues in rows.items():
        messages, unread, times = zip(*queues, strict=True)
        made.append(Losing(group, topic, len(queues), sum(messages), sum(unread), min(times)))
    made.sort(key=lambda one: (-one.messages, one.group, one.topic))
    unknown = list(_unknown(store, found, ends, boundary))
    if found.lacking:
        return Losses(made, [*found.notes, *unknown], [])
    return Losses(made, unknown, found.notes)


def _unknown(store: StoreReader, found: Positions, ends: Ends, boundary: int) -> Iterator[str]:
    """Why other groups may lose messages that lie before `boundary`."""
    if store.queues_unread and not ends:
        yield store.queues_unread
    elif (behind := behind_log(store)) is not None and behind < boundary:
        yield behind_text(behind)
    config = store.layout.config
    has_source = OFFSETS in stand_ins(config, store.layout.broker_config)
    has_source |= any((config / name).exists() for name in (OFFSETS, LMQ_OFFSETS))
    has_positions = any(one.table not in (DELAYED, PULLED) for one in found.rows)
    if not has_positions and not has_source:
        yield "config/ has no positions of groups"


def _of_queue(
    store: StoreReader, lag: Lag, boundary: int, going: Sequence[ExpiringFile]
) -> tuple[int, int, int] | None:
    """(messages lost, all unconsumed messages, when the first is lost); None if none is lost."""
    first = lag.first_unread
    if first is None or lag.queue is None:
        return None
    batched = store.has_batch_queues(lag.position.topic)
    behind, place = (_batches if batched else _units)(store, lag.queue, first, boundary)
    if behind <= first or place is None:
        return None
    times = (one.goes_ms for one in going if place < one.file.start + one.file.size)
    goes_ms = next(times, going[-1].goes_ms)
    return min(behind, lag.queue.max_offset) - first, lag.queue.max_offset - first, goes_ms


def _units(store: StoreReader, queue: QueueSummary, first: int, boundary: int) -> tuple[int, int | None]:
    """The first queue offset whose record is at or after `boundary`, and the position of the record of `first`, or of
    the next valid unit if that one is damaged.
    """
    behind, place = first, None
    start, end = store.log_files.start, store.log_end.position
    with store.queues.open(queue.topic, queue.queue_id) as opened:
        for number, units in opened.units(first, queue.max_offset):
            at = units["physical_offset"]
            sound = is_used(units) & (at >= start) & (at < end)
            if place is None and sound.any():
                place = int(at[sound.argmax()])
            gone = np.flatnonzero(sound & (at < boundary))
            if len(gone):
                behind = number + int(gone[-1]) + 1
            if sound.any() and not len(gone):
                break  # units are in log order
    return behind, place


def _batches(store: StoreReader, queue: QueueSummary, first: int, boundary: int) -> tuple[int, int | None]:
    """`_units` for a batch queue."""
    behind = queue.min_offset
    with open_batch_queue(store, queue.topic, queue.queue_id) as batches:
        for _, units in batches.units(batches.first, batches.stop):
            gone = units[is_valid(units) & (units["physical_offset"] < boundary)]
            if len(gone):
                ends = gone["msg_base_offset"].astype(np.int64) + gone["batch_size"]
                behind = max(behind, int(ends.max()))
        batch = batches.find(first)
    return behind, None if batch is None else batch.physical_offset


class Undelivered(NamedTuple):
    """Waiting messages that are deleted before they are due. delay_level: None for timed messages. first_timestamp: of
    the first loss. next_timestamp: when a broker would read the last one next, to deliver it or store it again.
    """

    delay_level: int | None
    messages: int
    first_timestamp: int
    next_timestamp: int


def undelivered(
    store: StoreReader, going: Sequence[ExpiringFile], now_ms: int, note: Note, lacks: Note
) -> list[Undelivered]:
    """What brokers lose of delay levels and timers: they read a record once its time has come. By units and entries,
    without the log: also what will be cancelled. A timed message that is stored again before is not lost. lacks: gets
    why more timed messages may be; a broker that runs reads those of its queue soon. Raises Unreadable.
    """
    if not going:
        return []
    goes, begins = np.array([(one.goes_ms, one.file.start) for one in going], np.int64).T
    end = going[-1].file.start + going[-1].file.size
    found: dict[int | None, Undelivered] = {}
    timed = waiting_in_wheel(store, now_ms, note, lacks)
    for level, position, due in (*waiting_of_levels(store, now_ms), (None, timed.position, timed.next_ms)):
        inside = (position >= begins[0]) & (position < end)
        gone = goes[np.searchsorted(begins, position[inside], "right") - 1]
        late = due[inside] > gone
        if late.any():
            known = found.get(level, Undelivered(level, 0, int(gone[late].min()), 0))  # files go in their order
            last = max(known.next_timestamp, int(due[inside][late].max()))
            found[level] = known._replace(messages=known.messages + int(late.sum()), next_timestamp=last)
    unread = int(((timed.unread >= begins[0]) & (timed.unread < end)).sum())
    if unread and not (store.in_use and store.config.get_bool("timerWheelEnable", True)):
        lacks(f"the timer has still to read {counted(unread, 'message', form=',')}")
    return list(found.values())
