"""The messages in the commit logs of many stores as rows of Arrow.

A row is a message that a broker would still find; records behind the end of a log are none. What cannot be read is told
beside the rows (`Damage`). A log is cut anywhere into splits; all of them together give what one walk over it gives.

`store.inspect.stats` of many logs: part by part, on several cores or tasks, added up in the end.

The messages of a store as a stream of Arrow: what `Store.to_arrow` gives.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
import pyarrow as pa

from ...formats.derive.program import Noting
from ...formats.derive.ragged import Flags
from ..broker.filter import Where
from ..disk.byte_reader import UnreadRanges, each_noting, noting, reading_rate
from ..disk.layout import is_uri
from ..disk.workers import Forked, cores
from ..errors import InvalidInput, StoreError, Unreadable
from ..inspect.stats import Stats
from ..inspect.stats_dimensions import noting_of
from ..log.commit_log import Batch, CommitLog, Extent, ExtentKind, Split, scan_split, split_bytes_for, splits
from ..log.message import Mark
from ..search.log_search import OnDamage, Time, selected, time_bounds
from ..search.selection import Selection, TimeRange
from ..search.store import StoreReader
from .log_columns import CHECKED, COLUMNS, SCHEMA, STORE, USUAL, rows_of_batch
from .stores import ALWAYS, BODY, NO_BODY, PLAIN_BODY, STORED_BODY, Ask, changed, open_log, with_notes

_DAMAGE_KINDS = (ExtentKind.DAMAGE, ExtentKind.MISSING)
_TAIL_KINDS = (*_DAMAGE_KINDS, ExtentKind.TORN_TAIL, ExtentKind.STALE_BYTES)
"""What is a row where what lies behind the last message is asked for, too."""


@dataclass(frozen=True)
class Damage:
    """A range of a log that cannot be read; position and size are None for a whole store."""

    store: str
    position: int | None
    size: int | None
    reason: str


Tell = Callable[[Damage], None]
"""Is told what cannot be read."""


class Condition(Protocol):
    """What takes some records of a batch: a `Selection`, say."""

    def mask(self, batch: Batch) -> Flags:
        """bool[n]: those that it takes."""


@dataclass(frozen=True)
class Pushed:
    """Conditions of which all must hold, of each list one, and store times. Default: none."""

    conditions: list[list[Condition]] = field(default_factory=list)
    times: TimeRange = ALWAYS

    def within(self, times: TimeRange) -> TimeRange:
        """The times that are wanted both ways; none is a range that ends where it begins."""
        since = max(times.since_ms, self.times.since_ms)
        return TimeRange(since, max(since, min(times.until_ms, self.times.until_ms)))


NOTHING_PUSHED = Pushed()
_ALL_OF_THEM: Mapping[str, Split] = {}


def fields_of(ask: Ask) -> tuple[str, ...]:
    """The columns asked for: those named, else the usual ones and a body if the option says so."""
    body = () if ask.body == NO_BODY else with_notes((BODY,), ask.body)
    return ask.columns(COLUMNS, (*USUAL, *body))


def ddl_of(ask: Ask) -> str:
    """The schema of the columns asked for, in SQL."""
    return ", ".join(f"{name} {COLUMNS[name].sql}" for name in fields_of(ask))


@dataclass(frozen=True)
class LogSplit:
    """What is read at once: a split of the log of a store, or all of a small log (`split` None).

    behind: the log has ended; there may be damage, but no message. bytes: of the log.
    """

    store: str
    split: Split | None
    behind: bool = False
    bytes: int = 0

    @classmethod
    def of(cls, told: Sequence[Any]) -> Self:
        """From what `astuple` makes of one, through JSON or not."""
        store, split, *others = told
        return cls(store, None if split is None else Split(*split), *others)


def parts_of(ask: Ask, within: Mapping[str, Split] = _ALL_OF_THEM) -> list[LogSplit]:
    """What the tasks of a read are. Raises StoreError for a store that cannot be read.

    within: of some stores, where their messages are read from, and where their log is to end.
    """
    with noting():  # whoever reads these bytes tells of them
        return _parts_of(ask, within)


def _parts_of(ask: Ask, within: Mapping[str, Split]) -> list[LogSplit]:
    sizes: dict[str, int] = {}
    for root in ask.stores:
        log = open_log(root, ask.broker_config)
        with log.queue:
            sizes[root] = log.queue.size
    size = ask.split_bytes or split_bytes_for(sum(sizes.values()), os.cpu_count() or 1)
    found: list[LogSplit] = []
    for root, log_bytes in sizes.items():
        if root in within:
            found += _splits(root, size, ask, within[root])
        elif log_bytes <= size:
            found.append(LogSplit(root, None, bytes=log_bytes))
        else:
            found += _splits(root, size, ask)
    return found


def _splits(root: str, size: int, ask: Ask, within: Split | None = None) -> list[LogSplit]:
    if is_uri(root):
        return _remote_splits(root, size, ask)
    with StoreReader(root, ask.broker_config) as store:
        start, stop = time_bounds(store, ask.times)
        start = start if within is None else max(start, within.start)
        end = store.log_end.position if within is None else within.stop
        found = [_part(root, split) for split in splits(start, min(stop, end), size)]
        if stop > end:
            found.append(LogSplit(root, Split(max(start, end), stop), behind=True))
        return found


def _remote_splits(root: str, size: int, ask: Ask) -> list[LogSplit]:
    """All files but the last one in parts; the end of the log lies in the last, or in none."""
    log = open_log(root, ask.broker_config)
    with log.queue:
        last = log.files[-1].start
        parts = [*splits(log.min_offset, last, size), Split(last, log.max_file_end)]
        return [_part(root, part) for part in parts]


def _part(root: str, split: Split) -> LogSplit:
    return LogSplit(root, split, bytes=split.stop - split.start)


def rows_of(ask: Ask, part: LogSplit, tell: Tell, pushed: Pushed = NOTHING_PUSHED) -> Iterator[pa.RecordBatch]:
    """The rows of one split, of the columns `ask.fields`.

    Raises StoreError where the log cannot be read any more; for damage, if that is to end the query.
    """
    fields = fields_of(ask)
    for some in messages_of(ask, part, tell, pushed, crc=not CHECKED.isdisjoint(fields)):
        yield from rows_of_batch(part.store, some, fields, raw=ask.body == STORED_BODY)


def messages_of(
    ask: Ask,
    part: LogSplit,
    tell: Tell,
    pushed: Pushed = NOTHING_PUSHED,
    *,
    crc: bool = False,
    noting: Noting | None = None,
) -> Iterator[Batch]:
    """The messages of one split that are asked for; a batch is valid until the next one is asked for.

    crc, noting: as of `CommitLog.scan`. Raises as `rows_of`.
    """
    conditions = _conditions(ask, pushed)
    try:
        for item in items_of(ask, part, crc=crc, noting=noting):
            if isinstance(item, Damage):
                tell(item)
            elif len(wanted := _wanted(item, conditions)):
                yield wanted
    except StoreError as error:
        error.store = part.store
        raise


def damage_of(ask: Ask, part: LogSplit) -> Iterator[Damage]:
    """What of one split cannot be read. Raises as `rows_of`."""
    return (item for item in items_of(ask, part, tails=ask.tails) if isinstance(item, Damage))


def items_of(
    ask: Ask, part: LogSplit, *, crc: bool = False, noting: Noting | None = None, tails: bool = False
) -> Iterator[Batch | Damage]:
    """Messages that a broker would find, and what of one split is damage; with `tails` also what lies behind the
    last message. Raises as `rows_of`.
    """
    if part.split is not None and part.split.start >= part.split.stop:
        return
    log = open_log(part.store, ask.broker_config)
    noted = UnreadRanges(around=True)
    with log.queue:
        if is_uri(part.store) and not _has_all(log, part):
            raise changed(part.store)
        items = each_noting(_scan(log, part.split, crc, noting), noted)
        ends = part.split is None or part.behind or part.split.stop >= log.max_file_end
        for item in items if tails else _before_the_end(items, goes_on=not ends):
            if not isinstance(item, Batch):
                if ask.fails and item.kind in _DAMAGE_KINDS:
                    raise Unreadable(item.reason, path=part.store, offset=item.position)
                if item.kind in (_TAIL_KINDS if tails else _DAMAGE_KINDS):
                    yield Damage(part.store, item.position, item.size, item.told)
            elif not part.behind and item.mark <= Mark.AFTER_DAMAGE:
                yield item
    for unread in noted:  # each is damage, too
        if ask.fails_at(unread.error()):
            raise unread.error()


def _has_all(log: CommitLog, part: LogSplit) -> bool:
    """The log reaches as far as when the part was made of it: what is missing at its ends nobody sees otherwise."""
    if part.split is None:
        return log.queue.size >= part.bytes
    return log.min_offset <= part.split.start and part.split.stop <= log.max_file_end


def _before_the_end(items: Iterator[Batch | Extent], *, goes_on: bool) -> Iterator[Batch | Extent]:
    """All but damage behind the last message, which is none, as for a broker: the rest of a record at which a start
    has cut the log, with dead records behind it. goes_on: messages follow behind these items.
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


def _scan(log: CommitLog, split: Split | None, crc: bool, noting: Noting | None) -> Iterator[Batch | Extent]:
    """Nobody sees otherwise that a file in front of the log, or behind it, is not read because of its name."""
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


def _conditions(ask: Ask, pushed: Pushed) -> list[list[Condition]]:
    """Conditions that must hold together: of each list one is enough."""
    one = Selection(queue_id=ask.queue_id, times=ask.times)
    found: list[list[Condition]] = [[one]] if one.asks else []
    if ask.topics:
        found.append([Selection(topic=topic) for topic in ask.topics])
    return found + pushed.conditions


def _wanted(batch: Batch, conditions: Sequence[Sequence[Condition]]) -> Batch:
    """The records of a batch that all conditions take."""
    for either in conditions:
        if len(batch):
            mask = reduce(np.logical_or, [selection.mask(batch) for selection in either])
            batch = batch if mask.all() else batch.take(mask)
    return batch


@dataclass
class Counted:
    """Records of some logs in groups, and what of the logs is in none of them."""

    stats: Stats
    damage: list[Damage] = field(default_factory=list)

    def add(self, other: Counted, store: str) -> None:
        """Count what `other` has, whose records are those of a store: first of the groups' names, if
        this one has one more. Raises LimitExceeded.
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
        """What `to_json` gave of a store."""
        stats, places = found
        return cls(Stats.from_json(by, stats), [Damage(store, *place) for place in places])


def count_part(ask: Ask, part: LogSplit, by: Sequence[str]) -> Counted:
    """The records of one part in the times asked for. by: of `stats_dimensions.DIMENSIONS`.

    Raises StoreError.
    """
    starts = _file_starts(ask, part) if "file" in by else ()
    found = Counted(Stats(by, starts=starts))
    for batch in messages_of(ask, part, found.damage.append, noting=noting_of(by)):
        found.stats.add(batch)
    return found


def _file_starts(ask: Ask, part: LogSplit) -> list[int]:
    """Where the files of the log begin. Raises StoreError."""
    log = open_log(part.store, ask.broker_config)
    with log.queue:
        return [file.start for file in log.files]


def count_here(ask: Ask, by: Sequence[str], jobs: int | None, advance: Callable[[int], None]) -> Counted:
    """All logs, on so many cores. by: as above, with `store` before it or not; advance: is told of
    bytes that are done. Raises StoreError.
    """
    jobs = 1 if reading_rate() else jobs or cores()  # several would read more
    total = Counted(Stats(by))
    inside = [name for name in by if name != STORE]
    parts = parts_of(ask)
    for part, found in zip(parts, _counted(ask, parts, inside, jobs), strict=True):
        total.add(found, part.store)
        advance(part.bytes)
    return total


def _counted(ask: Ask, parts: Sequence[LogSplit], by: Sequence[str], jobs: int) -> Iterator[Counted]:
    """The counts of each part, so many at a time in processes of their own."""
    if min(jobs, len(parts)) < 2:
        yield from (count_part(ask, part, by) for part in parts)
        return
    with ExitStack() as children:
        at_work: deque[tuple[LogSplit, Forked[Counted]]] = deque()
        left = iter(parts)
        for part in left:
            at_work.append((part, children.enter_context(_forked(ask, part, by))))
            if len(at_work) == jobs:
                break
        while at_work:
            part, child = at_work.popleft()
            found = child.result()
            for following in left:
                at_work.append((following, children.enter_context(_forked(ask, following, by))))
                break
            yield count_part(ask, part, by) if found is None else found


def _forked(ask: Ask, part: LogSplit, by: Sequence[str]) -> Forked[Counted]:
    return Forked(lambda: count_part(ask, part, by))


Reader: TypeAlias = pa.RecordBatchReader
_KNOWN = tuple(SCHEMA.names)


def _named_fields(fields: str | Sequence[str] | None) -> list[str]:
    """Columns by name; None: all but the store and what is made of bodies. Raises InvalidInput."""
    if fields is None:
        return [name for name in USUAL if name != STORE]
    names = [fields] if isinstance(fields, str) else list(dict.fromkeys(fields))
    if unknown := [name for name in names if name not in _KNOWN]:
        raise InvalidInput(f"no column {unknown[0]!r}", hint=f"there are {', '.join(_KNOWN)}")
    if not names:  # a stream without columns has no rows either, whatever is in the store
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
    """The records that `selected` gives as batches of Arrow, some MiB of them in memory at a time.

    A body is decompressed; what stands beside it says how it is stored, whether it is sound, and
    why one is shown as it is stored.
    """
    names = _named_fields(fields)
    wanted = selected(
        store,
        topics=topics,
        since=since,
        until=until,
        where=where,
        on_damage=on_damage,
        crc=not CHECKED.isdisjoint(names),
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in wanted:
            yield from rows_of_batch(str(store.layout.root), batch, names)

    schema = pa.schema([SCHEMA.field(name) for name in names])
    return Reader.from_batches(schema, batches())
