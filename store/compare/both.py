"""Two stores compared: one answer.

A part of a store that cannot be read is no difference: it is reported, and the other parts are compared.

Parts beside the log (queues, index, offsets of groups, configuration, timers, epochs) are compared by their contents,
not by their bytes: names of index files are times, slots of a wheel are used in any order, and a `dataVersion` counts
how often a file was written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...formats.derive.ragged import Ints
from ...formats.digest_columns import mixed
from ...formats.json_table import DATA_VERSION, TIME_STAMP
from ..disk.byte_reader import noting
from ..disk.layout import Layout
from ..errors import StoreError, Unreadable, Unsupported
from ..offsets.lag import queue_ends
from ..offsets.move import Ahead, side_of
from ..offsets.move import compare as positions
from ..offsets.positions import offset_files
from ..queues.batches import BatchConsumeQueue
from ..queues.read import QueueSummary
from ..queues.rocksdb import RocksDb
from ..search.queue_search import open_queue
from ..search.store import StoreReader
from ..settings.read import FILES, config_files, databases, read_config_file, read_epochs
from ..settings.rocksdb import read_entries
from ..start.config_load import OFFSETS
from .logs import LogsCompared, Note, PositionRange, compare_logs, differing_fields

ONLY_A, ONLY_B, CHANGED = "only_a", "only_b", "changed"
_UNITS_AT_ONCE = 1 << 16
_BLOCKS = 1024
_OF_WRITING = frozenset({DATA_VERSION.member, TIME_STAMP.name})
"""Members that say how often, or when, a file was written."""
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Differs:
    """One difference. part: of the store. name: what differs, as commands name it. a, b: what each side has.

    position: in the log, or None. count: number of units, items or ticks.
    """

    part: str
    name: str
    how: str
    a: Any = None
    b: Any = None
    position: int | None = None
    count: int = 1


def _differs(part: str, name: str, a: Any, b: Any, position: int | None = None) -> Differs:
    """Return how two different values differ: one side, without any, has None."""
    how = ONLY_A if b is None else ONLY_B if a is None else CHANGED
    return Differs(part, name, how, a, b, position)


def queues(a: StoreReader, b: StoreReader, *, units: bool) -> Iterator[Differs]:
    """Yield queues that only one side has, or whose ends differ. units: the logs are the same, so compare units, too.

    Raise Unreadable.
    """
    for store in (a, b):
        if store.queues_problem:  # even of both sides: nothing says that they are the same
            raise Unreadable(store.queues_problem)
    mine, other = queue_ends(a), queue_ends(b)
    if bool(mine) != bool(other):  # one side is a copy without this part
        yield _differs("queue", "all queues", len(mine) or None, len(other) or None)
        return
    for key in sorted(mine.keys() | other.keys()):
        one, two = mine.get(key), other.get(key)
        name = f"{key[0]}/{key[1]}"
        if one is None or two is None or one.max_offset != two.max_offset:
            yield _differs("queue", name, one and one.max_offset, two and two.max_offset)
        if one is not None and two is not None and units:
            yield from _units(a, b, one, two, name)


_BATCHES, _MESSAGES = "a queue of batches", "a queue of messages"


def _units(a: StoreReader, b: StoreReader, one: QueueSummary, two: QueueSummary, name: str) -> Iterator[Differs]:
    """Yield the first different unit of offsets that both have, and how many differ; or that the queues are of two
    kinds.
    """
    start, stop = max(one.min_offset, two.min_offset), min(one.max_offset, two.max_offset)
    first, count = None, 0
    with open_queue(a, one.topic, one.queue_id) as queue_a, open_queue(b, one.topic, one.queue_id) as queue_b:
        begins, size, batches = (start, start), stop - start, isinstance(queue_a, BatchConsumeQueue)
        if isinstance(queue_a, BatchConsumeQueue) and isinstance(queue_b, BatchConsumeQueue):
            begins, size = _common(queue_a, queue_b, start)
        elif batches or isinstance(queue_b, BatchConsumeQueue):
            mine, other = (_BATCHES, _MESSAGES) if batches else (_MESSAGES, _BATCHES)
            yield Differs("queue", f"kind of {name}", CHANGED, mine, other)
            return
        for at in range(0, size, _UNITS_AT_ONCE):
            some = min(_UNITS_AT_ONCE, size - at)
            found = queue_a.stream.read(begins[0] + at, some), queue_b.stream.read(begins[1] + at, some)
            wrong = np.flatnonzero(found[0] != found[1])
            if len(wrong) and first is None:
                row = int(wrong[0])
                number = int(found[0]["msg_base_offset"][row]) if batches else start + at + row
                first = number, str(found[0][row]), str(found[1][row])
            count += len(wrong)
    if first is not None:
        number, mine, other = first
        yield Differs("unit", f"{name} @{number}", CHANGED, mine, other, count=count)


def _common(a: BatchConsumeQueue, b: BatchConsumeQueue, start: int) -> tuple[tuple[int, int], int]:
    """(number of the unit from which each is compared; number of units). A queue that was made anew counts its units
    from another number: then they begin with that of queue offset `start`.
    """
    begins = a.first, b.first
    if a.first != b.first and (mine := a.find(start)) is not None and (other := b.find(start)) is not None:
        begins = mine.number, other.number
    return begins, min(a.stop - begins[0], b.stop - begins[1])


def index(a: StoreReader, b: StoreReader, common: PositionRange | None) -> Iterator[Differs]:
    """Compare index items of records that both logs have, by blocks of the log. Raise Unreadable; raise Unsupported if
    the logs have nothing in common.

    Which file and slot has an item does not matter.
    """
    if common is None:
        if a.index.files or b.index.files:
            raise Unsupported("the logs have no records in common, so items cannot be compared")
        return
    one, two = _items(a, common), _items(b, common)
    if one is None or two is None:
        counts = tuple(None if side is None else int(side[0].sum()) for side in (one, two))
        if counts[0] != counts[1]:
            yield _differs("index", "all items", *counts)
        return
    (count_a, sum_a), (count_b, sum_b) = one, two
    step = -(-common.size // _BLOCKS)
    for block in np.flatnonzero((count_a != count_b) | (sum_a != sum_b)).tolist():
        start = common.start + block * step
        numbers = int(count_a[block]), int(count_b[block])
        name = f"items of records from {start} to {min(common.stop, start + step)}"
        yield Differs("index", name, CHANGED, *numbers, start)


def _items(store: StoreReader, common: PositionRange) -> tuple[Ints, Any] | None:
    """Return the number of items in each block of the log, and the sum of their digests; None without an index."""
    count, total = np.zeros(_BLOCKS, np.int64), np.zeros(_BLOCKS, np.uint64)
    step = -(-common.size // _BLOCKS)
    if not store.index.files:
        return None
    for file in store.index.files:
        for _, items in file.columns():
            position = items["physical_offset"].astype(np.int64)
            inside = (position >= common.start) & (position < common.stop)
            position, key = position[inside], items["key_hash"][inside].astype(np.int64)
            block = (position - common.start) // step
            np.add.at(count, block, 1)
            np.add.at(total, block, mixed([key, position]))
    return count, total


def offsets(a: StoreReader, b: StoreReader) -> Iterator[Differs]:
    """Compare the offsets of groups and delay levels. Raise Unreadable."""
    if not (a.layout.config.is_dir() and b.layout.config.is_dir()):
        return  # `config` reports that one has none
    for each in positions(side_of(a), side_of(b)):
        if each.ahead is not Ahead.SAME:
            _, group, topic, queue_id = each.key
            name = f"{group or 'delay level'} of {topic}/{queue_id}"
            yield _differs("offset", name, each.offset, each.other_offset)


def config(a: StoreReader, b: StoreReader) -> Iterator[Differs]:
    """Compare members of the files of config/ except offsets, and entries of its RocksDBs. Raise Unreadable."""
    there = [store.layout.config.is_dir() or None for store in (a, b)]
    if None in there:
        if any(there):
            yield _differs("config", "all of config/", *there)
        return
    unread: dict[str, StoreError] = {}
    files = [_files(store.layout, unread) for store in (a, b)]
    yield from _differing("config", "", *({name: one[name] for name in one.keys() - unread.keys()} for one in files))
    bases = [{path.name: path for path in databases(store.layout.config)} for store in (a, b)]
    for name in sorted(bases[0].keys() | bases[1].keys()):
        one, two = (_entries(base[name]) if name in base else None for base in bases)
        if one is None or two is None:
            counts = (None if each is None else len(each) for each in (one, two))
            yield _differs("config", name, *counts)
        else:
            yield from _differing("config", "", one, two)
    for error in unread.values():
        raise error  # all that can be read has been compared


def _files(layout: Layout, unread: dict[str, StoreError]) -> dict[str, Any]:
    """Return the values of every file, by name; put files that cannot be read into `unread`."""
    found: dict[str, Any] = {}
    left_out = {*offset_files(layout)}
    for kind, path, plain in config_files(layout.config):
        if path.name == plain and plain not in left_out:
            try:
                found[plain] = read_config_file(path, kind).value
            except StoreError as error:
                unread.setdefault(plain, error)
    return found


def _differing(part: str, name: str, a: Any, b: Any) -> Iterator[Differs]:
    """Yield members that differ, as deep as both sides have them."""
    if not (isinstance(a, Mapping) and isinstance(b, Mapping)):
        if a != b:
            yield _differs(part, name, a, b)
        return
    for key in sorted({*a, *b} - _OF_WRITING, key=str):
        place = f"{name}{': ' if name in FILES else '.'}{key}" if name else str(key)
        if key in a and key in b:
            yield from _differing(part, place, a[key], b[key])
        else:
            yield Differs(part, place, ONLY_A if key in a else ONLY_B, a.get(key), b.get(key))


def _entries(path: Path) -> dict[str, Any]:
    try:
        with RocksDb.open(path) as database:
            return {
                f"{path.name}: {each.family} {each.key!r}": each.value.hex()
                for each in read_entries(database)
                if each.file != OFFSETS and all(record["type"] != "data_version" for record in each.records)
            }
    except StoreError as error:
        return {path.name: str(error)}


def timers(a: StoreReader, b: StoreReader) -> Iterator[Differs]:
    """Compare the number of waiting messages in the wheel, by the hour in which they are due. Raise Unreadable."""
    sides = [_ticks(store) for store in (a, b)]
    for hour in sorted(sides[0].keys() | sides[1].keys()):
        one, two = sides[0].get(hour), sides[1].get(hour)
        if one != two:
            yield _differs("timer", f"hour {hour * _HOUR_MS}", one, two)


def _ticks(store: StoreReader) -> Mapping[int, int]:
    from ..timer.wheel import waiting

    found = Counter[int]()
    for hours, messages in waiting(store.layout) if store.layout.timer_wheel.exists() else ():
        several, row = np.unique(hours, return_inverse=True)
        numbers = np.bincount(row, messages, minlength=len(several)).astype(np.int64)
        found.update(dict(zip(several.tolist(), numbers.tolist(), strict=True)))
    return found


def epochs(a: StoreReader, b: StoreReader) -> Iterator[Differs]:
    """Compare where terms of masters begin (spec 06, 6.2), in stores with a controller. Raise Unreadable."""
    yield from _differing("epoch", "", _epochs(a.layout), _epochs(b.layout))


def _epochs(layout: Layout) -> dict[str, Any]:
    _, taken = read_epochs(layout.broker_config.epoch_file(layout.root))
    records = taken.records() if taken is not None else ()
    return {f"epoch {r['epoch']}": r["start_offset"] for r in records if r["type"] == "epoch"}


SHOWN = 1000
"""Most differences of a part to keep; all of them are counted."""
WHAT = frozenset({"log", "queues", "index", "offsets", "config", "timers"})
"""What can be compared."""
_READ_LOGS = frozenset({"log", "queues", "index", "messages"})
"""Parts for which the logs are read; for the rest it is enough to know whether the logs are the same."""


@dataclass
class Comparison:
    """The answer. differs: the first `SHOWN` of each part. counts: of all differences. unread: what could not be
    compared, and why. quick: only ends, starts of files and samples were compared.
    """

    logs: LogsCompared
    quick: bool
    differs: list[Differs] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    unread: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether nothing differs of what was asked for, and all of it could be compared."""
        return not self.counts and not self.unread

    def add(self, one: Differs) -> None:
        self.counts[one.part] += 1
        if self.counts[one.part] <= SHOWN:
            self.differs.append(one)


def compare_stores(
    a: StoreReader, b: StoreReader, only: frozenset[str] = WHAT, *, quick: bool = False, note: Note
) -> Comparison:
    """Compare everything except single messages. only: parts of `WHAT`; with `messages` the logs are read for those.
    note: called with the number of bytes of both logs that were read. Raise Unreadable if a log cannot be read.

    Bytes that a disk does not return are noted, and count as different.
    """
    with noting():
        return _compared(a, b, only, quick, note)


def _compared(a: StoreReader, b: StoreReader, only: frozenset[str], quick: bool, note: Note) -> Comparison:
    logs = compare_logs(a, b, quick=quick, heads=not only & _READ_LOGS, note=note)
    found = Comparison(logs, quick)
    asked: dict[str, Callable[[], Iterator[Differs]]] = {
        "log": partial(_of_log, a, b, logs, fields=not quick),
        "queues": partial(queues, a, b, units=bool(logs.same) and not quick),
        "index": partial(index, a, b, logs.common),
        "offsets": partial(offsets, a, b),
        "config": partial(config, a, b),
        "timers": partial(timers, a, b),
    }
    if quick:
        del asked["index"]
    for name in sorted(asked.keys() & only, key=list(asked).index):
        try:
            for each in asked[name]():
                found.add(each)
        except StoreError as error:
            found.unread.append(f"{name}: {error}")
    return found


def _of_log(a: StoreReader, b: StoreReader, logs: LogsCompared, *, fields: bool) -> Iterator[Differs]:
    """Yield ranges, fields of records, and epochs that differ."""
    yield from _ranges(logs)
    if logs.same and fields:
        yield from _records(a, b, logs)
    yield from epochs(a, b)


def _ranges(logs: LogsCompared) -> Iterator[Differs]:
    own, other = (None if side is None else f"{side.start} to {side.stop}" for side in (logs.a, logs.b))
    if logs.same is False:
        yield Differs("log", "another log: the first common bytes differ", CHANGED, own, other)
    elif logs.same is None and own != other:
        yield _differs("log", "no bytes that both have", own, other)
    for ranges, in_a, in_b in ((logs.differing, True, True), (logs.only_a, True, False), (logs.only_b, False, True)):
        for each in ranges:
            a, b = (each.size if there else None for there in (in_a, in_b))
            yield _differs("log", f"{each.start} to {each.stop}", a, b, each.start)


def _records(a: StoreReader, b: StoreReader, logs: LogsCompared) -> Iterator[Differs]:
    for one in differing_fields(a, b, logs.differing):
        name = f"{one.position}{f' {one.name}' if one.name else ''}"
        yield _differs("record", name, one.a, one.b, one.position)
