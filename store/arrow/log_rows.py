"""The messages in the commit logs of many stores as Arrow rows, and counts of them.

A row is a message that a broker would still find; records after the end of a log are not rows. What cannot be read is
reported beside the rows (`Damage`). A log can be cut into splits anywhere; together they give what a single scan gives.

`count_part` and `count_here` are `store.inspect.stats` over many logs: by part, on several cores or tasks, then added
up. `reader` makes the Arrow stream of `Store.to_arrow`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import islice
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
import pyarrow as pa

from ...formats.derive.program import Noting
from ...formats.derive.ragged import Flags
from ..broker.filter import Where
from ..disk.byte_reader import UnreadRanges, each_noting, note_expired, noting, reading_rate
from ..disk.layout import is_uri
from ..disk.workers import Forked, cores
from ..errors import InvalidInput, StoreError, Unreadable
from ..inspect.stats import Stats
from ..inspect.stats_dimensions import noting_of
from ..log.batch import DAMAGED
from ..log.commit_log import Batch, CommitLog, Extent, ExtentKind, Split, scan_split, split_bytes_for, splits
from ..log.message import Mark
from ..search.log_search import SMALL_LOG_BYTES, OnDamage, TimeBounds, selected, time_bounds
from ..search.selection import Selection, Time
from ..search.store import StoreReader
from .log_columns import CHECKED, COLUMNS, SCHEMA, STORE, USUAL, rows_of_batch
from .stores import BODY, NO_BODY, PLAIN_BODY, STORED_BODY, ReadOptions, changed, open_log, with_notes

_TAIL_KINDS = (*DAMAGED, ExtentKind.TORN_TAIL, ExtentKind.STALE_BYTES)
"""The kinds that become rows if what follows the last message is asked for too."""


@dataclass(frozen=True)
class Damage:
    """A range of a log that cannot be read; position and size are None for a whole store."""

    store: str
    position: int | None
    size: int | None
    reason: str


Tell = Callable[[Damage], None]
"""Called with each range that cannot be read."""
Advance = Callable[[int], None]
_WHOLE = 1 << 62
"""No log has so many bytes."""


class Condition(Protocol):
    """Selects records of a batch, for example a `Selection`."""

    def mask(self, batch: Batch) -> Flags:
        """bool[n]: the selected records."""


@dataclass(frozen=True)
class Pushed:
    """Filters that Spark pushes down: of each inner list at least one condition must hold. Default: no filter.

    A filter on store times leaves out no log file: after a clock that was wrong for a while its answer would be wrong.
    """

    conditions: list[list[Condition]] = field(default_factory=list)


NOTHING_PUSHED = Pushed()
_NO_LIMITS: Mapping[str, Split] = {}
Bounds = Callable[[str, TimeBounds], None]
"""Called with a store and the log files that are read for the times asked for, for `note_bounds`."""


def fields_of(ask: ReadOptions) -> tuple[str, ...]:
    """The columns asked for: those named, else the usual ones, and a body if the option `body` says so."""
    body = () if ask.body == NO_BODY else with_notes((BODY,), ask.body)
    return ask.columns(COLUMNS, (*USUAL, *body))


def ddl_of(ask: ReadOptions) -> str:
    """The schema of the columns asked for, as SQL DDL."""
    return ", ".join(f"{name} {COLUMNS[name].sql}" for name in fields_of(ask))


@dataclass(frozen=True)
class LogSplit:
    """A unit of reading: a split of the log of a store, or all of a small log (`split` None).

    behind: the split follows the end of the log: it may have damage, but no messages. bytes: of the log.
    """

    store: str
    split: Split | None
    behind: bool = False
    bytes: int = 0

    @classmethod
    def of(cls, told: Sequence[Any]) -> Self:
        """The inverse of `astuple`, also after a way through JSON."""
        store, split, *others = told
        return cls(store, None if split is None else Split(*split), *others)


def parts_of(
    ask: ReadOptions, within: Mapping[str, Split] = _NO_LIMITS, bounds: Bounds = lambda store, found: None
) -> list[LogSplit]:
    """The parts to read, one per task. Raises StoreError for a store that cannot be read.

    within: for some stores, where reading begins, and where the log ends. bounds: not called for a log that is read
    whole for its size, or because it is in object storage.
    """
    with noting():  # the bytes are read again, and reported then
        return _parts_of(ask, within, bounds)


def _parts_of(ask: ReadOptions, within: Mapping[str, Split], bounds: Bounds) -> list[LogSplit]:
    sizes: dict[str, int] = {}
    for root in ask.stores:
        log = open_log(root, ask.broker_config)
        with log.queue:
            sizes[root] = log.queue.size
    size = ask.split_bytes or split_bytes_for(sum(sizes.values()), os.cpu_count() or 1)
    whole = min(size, SMALL_LOG_BYTES) if ask.times.bounded else size
    found: list[LogSplit] = []
    for root, log_bytes in sizes.items():
        if root not in within and log_bytes <= whole:  # if its files are small, so is its data (`is_small`)
            found.append(LogSplit(root, None, bytes=log_bytes))
        else:
            found += _splits(root, size, ask, bounds, within.get(root))
    return found


def _splits(root: str, size: int, ask: ReadOptions, bounds: Bounds, within: Split | None) -> list[LogSplit]:
    if is_uri(root):
        return _remote_splits(root, size, ask)
    with StoreReader(root, ask.broker_config) as store:
        read = time_bounds(store, ask.times)
        bounds(root, read)
        start, stop = read.start if within is None else max(read.start, within.start), read.stop
        end = store.log_end.position if within is None else within.stop
        found = [_log_split(root, split) for split in splits(start, min(stop, end), size)]
        if stop > end:
            found.append(LogSplit(root, Split(max(start, end), stop), behind=True))
        return found


def _remote_splits(root: str, size: int, ask: ReadOptions) -> list[LogSplit]:
    """All files but the last in parts; the end of the log is in the last file, or there is none."""
    log = open_log(root, ask.broker_config)
    with log.queue:
        last = log.files[-1].start
        parts = [*splits(log.min_offset, last, size), Split(last, log.max_file_end)]
        return [_log_split(root, part) for part in parts]


def _log_split(root: str, split: Split) -> LogSplit:
    return LogSplit(root, split, bytes=split.stop - split.start)


def rows_of(ask: ReadOptions, part: LogSplit, tell: Tell, pushed: Pushed = NOTHING_PUSHED) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one part with the columns `ask.fields`.

    Raises StoreError if the log cannot be read any more, and for damage if damage ends the query.
    """
    fields = fields_of(ask)
    for batch in messages_of(ask, part, tell, pushed, crc=not CHECKED.isdisjoint(fields)):
        yield from rows_of_batch(part.store, batch, fields, raw=ask.body == STORED_BODY)


def messages_of(
    ask: ReadOptions,
    part: LogSplit,
    tell: Tell,
    pushed: Pushed = NOTHING_PUSHED,
    *,
    crc: bool = False,
    noting: Noting | None = None,
) -> Iterator[Batch]:
    """Yield the messages asked for of one part; a batch is valid until the next one is taken.

    crc, noting: as for `CommitLog.scan`. Raises what `rows_of` raises.
    """
    conditions = _conditions(ask, pushed)
    try:
        for item in items_of(ask, part, crc=crc, noting=noting):
            if isinstance(item, Damage):
                tell(item)
            elif len(wanted := _matching(item, conditions)):
                yield wanted
    except StoreError as error:
        error.store = part.store
        raise


def damage_of(ask: ReadOptions, part: LogSplit) -> Iterator[Damage]:
    """The damage in one part. Raises what `rows_of` raises."""
    return (item for item in items_of(ask, part, tails=ask.tails) if isinstance(item, Damage))


def items_of(
    ask: ReadOptions, part: LogSplit, *, crc: bool = False, noting: Noting | None = None, tails: bool = False
) -> Iterator[Batch | Damage]:
    """Yield the messages a broker would find in one part, and the damage; with `tails` also what follows the last
    message. Raises what `rows_of` raises.
    """
    if part.split is not None and part.split.start >= part.split.stop:
        return
    log = open_log(part.store, ask.broker_config)
    noted = UnreadRanges(around=True)
    with log.queue:
        if is_uri(part.store) and not _still_has(log, part):
            raise changed(part.store)
        if part.split is not None and part.split.start < log.min_offset:  # expired since the parts were made
            note_expired(log.queue.directories[0], log.min_offset)
        items = each_noting(_scan_all(log, part.split, crc, noting), noted)
        ends = part.split is None or part.behind or part.split.stop >= log.max_file_end
        for item in items if tails else _without_trailing_damage(items, goes_on=not ends):
            if not isinstance(item, Batch):
                if ask.fails and item.kind in DAMAGED:
                    raise Unreadable(item.reason, path=part.store, offset=item.position)
                if item.kind in (_TAIL_KINDS if tails else DAMAGED):
                    yield Damage(part.store, item.position, item.size, item.told)
            elif not part.behind and item.mark <= Mark.AFTER_DAMAGE:
                yield item
    for unread in noted:  # unread ranges are damage too
        if ask.fails_at(unread.error()):
            raise unread.error()


def _still_has(log: CommitLog, part: LogSplit) -> bool:
    """Whether the log still has the range of the part. Otherwise what is missing at its ends would go unnoticed."""
    if part.split is None:
        return log.queue.size >= part.bytes
    return log.min_offset <= part.split.start and part.split.stop <= log.max_file_end


def _without_trailing_damage(items: Iterator[Batch | Extent], *, goes_on: bool) -> Iterator[Batch | Extent]:
    """Drop damage after the last message: for a broker it is not damage, but the rest of a record at which a start
    truncated the log, followed by dead records. goes_on: messages follow these items.
    """
    waiting: list[Extent] = []
    for item in items:
        if isinstance(item, Extent):
            waiting.append(item)
            continue
        if item.mark <= Mark.AFTER_DAMAGE:
            yield from waiting
            waiting.clear()
        yield item
    yield from (one for one in waiting if goes_on or one.kind is not ExtentKind.DAMAGE or one.unread)


def _scan_all(log: CommitLog, split: Split | None, crc: bool, noting: Noting | None) -> Iterator[Batch | Extent]:
    """Scan a split, or all. Log files at its ends that are not read because of their name are MISSING extents."""
    size, names = log.queue.file_size, [(at, os.path.basename(path)) for at, path in log.misnamed]  # noqa: PTH119
    lost = [Extent(ExtentKind.MISSING, at, size, f"{name} is not read, because of its name") for at, name in names]
    if split is None or split.start <= log.min_offset:
        yield from (one for one in lost if one.position < log.min_offset)
    if split is None:
        yield from log.scan(crc=crc, reuse=True, noting=noting)
    else:
        yield from scan_split(log, split, crc=crc, noting=noting)
    if split is None or split.stop >= log.max_file_end:
        yield from (one for one in lost if one.position >= log.max_file_end)


def _conditions(ask: ReadOptions, pushed: Pushed) -> list[list[Condition]]:
    """The conditions of the read and those pushed down: of each list at least one must hold."""
    one = Selection(queue_id=ask.queue_id, times=ask.times)
    found: list[list[Condition]] = [[one]] if one.asks else []
    if ask.topics:
        found.append([Selection(topic=topic) for topic in ask.topics])
    return found + pushed.conditions


def _matching(batch: Batch, conditions: Sequence[Sequence[Condition]]) -> Batch:
    """The records of a batch that fulfil all conditions."""
    for either in conditions:
        if len(batch):
            mask = reduce(np.logical_or, [selection.mask(batch) for selection in either])
            batch = batch if mask.all() else batch.take(mask)
    return batch


@dataclass
class Counted:
    """Statistics of records, and the damage of the same logs. bounds: which log files were read, by store."""

    stats: Stats
    damage: list[Damage] = field(default_factory=list)
    bounds: dict[str, TimeBounds] = field(default_factory=dict)

    def add(self, other: Counted, store: str) -> None:
        """Add the counts of `other`, whose records are those of one store. If the groups here have one name more, the
        store becomes the first name. Raises LimitExceeded.
        """
        if len(self.stats.by) > len(other.stats.by):
            groups = other.stats.groups
            other.stats.groups = {(store, *key): group for key, group in groups.items()}
        self.stats.merge(other.stats)
        self.damage += other.damage

    def to_json(self) -> list[Any]:
        """All of it, for `from_json`."""
        places = [[one.position, one.size, one.reason] for one in self.damage]
        return [self.stats.to_json(), places]

    @classmethod
    def from_json(cls, store: str, by: Sequence[str], found: Sequence[Any]) -> Self:
        """The inverse of `to_json`, for a store."""
        stats, places = found
        return cls(Stats.from_json(by, stats), [Damage(store, *place) for place in places])


def count_part(ask: ReadOptions, part: LogSplit, by: Sequence[str], advance: Advance = lambda _: None) -> Counted:
    """Count the records of one part. by: names from `stats_dimensions.DIMENSIONS`. advance: called with the number of
    bytes done. Raises StoreError.
    """
    starts = _file_starts(ask, part) if "file" in by else ()
    found = Counted(Stats(by, starts=starts))
    rest = part.bytes
    for batch in messages_of(ask, part, found.damage.append, noting=noting_of(by)):
        found.stats.add(batch)
        done = batch.end - int(batch.position[0])
        advance(done)
        rest -= done
    advance(rest)
    return found


def _file_starts(ask: ReadOptions, part: LogSplit) -> list[int]:
    """Where the files of the log begin. Raises StoreError."""
    log = open_log(part.store, ask.broker_config)
    with log.queue:
        return [file.start for file in log.files]


def count_here(ask: ReadOptions, by: Sequence[str], jobs: int | None, advance: Advance) -> Counted:
    """Count all logs. jobs: processes, None for one per core. by: as for `count_part`, also with `store` first.
    advance: called with the number of bytes done. Raises StoreError.
    """
    jobs = 1 if reading_rate() else jobs or cores()  # several processes would exceed the rate
    total = Counted(Stats(by))
    inside = [name for name in by if name != STORE]
    if jobs == 1 and not ask.split_bytes:  # who reads a log whole need not look for its end before, in all queues
        ask = replace(ask, split_bytes=_WHOLE)
    parts = parts_of(ask, bounds=total.bounds.__setitem__)
    for part, found in zip(parts, _counted(ask, parts, inside, jobs, advance), strict=True):
        total.add(found, part.store)
    return total


def _counted(
    ask: ReadOptions, parts: Sequence[LogSplit], by: Sequence[str], jobs: int, advance: Advance
) -> Iterator[Counted]:
    """Yield the counts of each part in order, `jobs` parts at a time in child processes."""
    if min(jobs, len(parts)) < 2:
        yield from (count_part(ask, part, by, advance) for part in parts)
        return
    with ExitStack() as children:
        waiting = ((part, children.enter_context(Forked(partial(count_part, ask, part, by)))) for part in parts)
        at_work = deque(islice(waiting, jobs))
        while at_work:
            part, child = at_work.popleft()
            found = child.result()
            at_work.extend(islice(waiting, 1))
            if found is None:
                found = count_part(ask, part, by)
            advance(part.bytes)
            yield found


Reader: TypeAlias = pa.RecordBatchReader
_KNOWN = tuple(SCHEMA.names)


def _named_fields(fields: str | Sequence[str] | None) -> list[str]:
    """Check column names; None: all but the store and the columns of bodies. Raises InvalidInput."""
    if fields is None:
        return [name for name in USUAL if name != STORE]
    names = [fields] if isinstance(fields, str) else list(dict.fromkeys(fields))
    if unknown := [name for name in names if name not in _KNOWN]:
        raise InvalidInput(f"no column {unknown[0]!r}", hint=f"there are {', '.join(_KNOWN)}")
    if not names:  # a stream without columns would have no rows, whatever the store holds
        raise InvalidInput("no column is named", hint=f"there are {', '.join(_KNOWN)}")
    return list(with_notes(tuple(names), PLAIN_BODY))


def reader(
    store: StoreReader,
    fields: str | Sequence[str] | None = None,
    *,
    topics: str | Sequence[str] = (),
    since: Time = None,
    until: Time = None,
    where: str | Where | None = None,
    on_damage: OnDamage = "warn",
) -> Reader:
    """The records of `selected` as a stream of Arrow batches, some MiB in memory at a time.

    Bodies are decompressed; the columns beside a body say how it is stored, whether it is sound, and why it is shown as
    stored.
    """
    names = _named_fields(fields)
    wanted = selected(
        store,
        topics=topics,
        since=since,
        until=until,
        where=Where(where) if isinstance(where, str) else where,
        on_damage=on_damage,
        crc=not CHECKED.isdisjoint(names),
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in wanted:
            yield from rows_of_batch(str(store.layout.root), batch, names)

    schema = pa.schema([SCHEMA.field(name) for name in names])
    return Reader.from_batches(schema, batches())
