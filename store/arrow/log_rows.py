"""The messages in the commit logs of many stores as rows of Arrow.

A row is a message that a broker would still find; records behind the end of a log are none. What
cannot be read is told beside the rows (`Damage`). A log is cut anywhere into splits; all of them
together give what one walk over it gives.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..disk.byte_reader import Noted, each_noting, noting
from ..disk.layout import is_uri
from ..errors import Unreadable
from ..log.commit_log import Batch, CommitLog, Extent, ExtentKind
from ..log.record_status import Mark
from ..log.splits import Split, scan_split, split_bytes_for, splits
from ..search.log_search import time_bounds
from ..search.selection import Selection
from ..search.store import Store
from ..search.time_range import TimeRange
from .ask import ALWAYS, BODY, NO_BODY, STORED_BODY, Ask, with_notes
from .log_columns import CHECKED, COLUMNS, USUAL, rows_of_batch
from .remote import open_log

_DAMAGE_KINDS = (ExtentKind.DAMAGE, ExtentKind.MISSING)


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

    def mask(self, batch: Batch) -> npt.NDArray[np.bool_]:
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
class LogPart:
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


def parts_of(ask: Ask, within: Mapping[str, Split] = _ALL_OF_THEM) -> list[LogPart]:
    """What the tasks of a read are. Raises StoreError for a store that cannot be read.

    within: of some stores, where their messages are read from, and where their log is to end.
    """
    with noting():  # whoever reads these bytes tells of them
        return _parts_of(ask, within)


def _parts_of(ask: Ask, within: Mapping[str, Split]) -> list[LogPart]:
    sizes: dict[str, int] = {}
    for root in ask.stores:
        log = open_log(root, ask.broker_config)
        with log.queue:
            sizes[root] = sum(file.size for file in log.files)
    size = ask.split_bytes or split_bytes_for(sum(sizes.values()), os.cpu_count() or 1)
    found: list[LogPart] = []
    for root, log_bytes in sizes.items():
        if root in within:
            found += _splits(root, size, ask, within[root])
        elif log_bytes <= size:
            found.append(LogPart(root, None, bytes=log_bytes))
        else:
            found += _splits(root, size, ask)
    return found


def _splits(root: str, size: int, ask: Ask, within: Split | None = None) -> list[LogPart]:
    if is_uri(root):
        return _remote_splits(root, size, ask)
    with Store(root, ask.broker_config) as store:
        start, stop = time_bounds(store, ask.times)
        start = start if within is None else max(start, within.start)
        end = store.log_end.position if within is None else within.stop
        found = [_part(root, split) for split in splits(start, min(stop, end), size)]
        if stop > end:
            found.append(LogPart(root, Split(max(start, end), stop), behind=True))
        return found


def _remote_splits(root: str, size: int, ask: Ask) -> list[LogPart]:
    """All files but the last one in parts; the end of the log lies in the last, or in none."""
    log = open_log(root, ask.broker_config)
    with log.queue:
        last = log.files[-1].start
        parts = [*splits(log.min_offset, last, size), Split(last, log.max_file_end)]
        return [_part(root, part) for part in parts]


def _part(root: str, split: Split) -> LogPart:
    return LogPart(root, split, bytes=split.stop - split.start)


def rows_of(
    ask: Ask, part: LogPart, tell: Tell, pushed: Pushed = NOTHING_PUSHED
) -> Iterator[pa.RecordBatch]:
    """The rows of one split, of the columns `ask.fields`.

    Raises StoreError where the log cannot be read any more; for damage, if that is to end the query.
    """
    fields = fields_of(ask)
    for some in messages_of(ask, part, tell, pushed, crc=not CHECKED.isdisjoint(fields)):
        yield from rows_of_batch(part.store, some, fields, raw=ask.body == STORED_BODY)


def messages_of(
    ask: Ask, part: LogPart, tell: Tell, pushed: Pushed = NOTHING_PUSHED, *, crc: bool = False
) -> Iterator[Batch]:
    """The messages of one split that are asked for; a batch is valid until the next one is asked for.

    Raises as `rows_of`.
    """
    conditions = _conditions(ask, pushed)
    for item in items_of(ask, part, crc=crc):
        if isinstance(item, Damage):
            tell(item)
        elif len(wanted := _wanted(item, conditions)):
            yield wanted


def damage_of(ask: Ask, part: LogPart) -> Iterator[Damage]:
    """What of one split cannot be read. Raises as `rows_of`."""
    return (item for item in items_of(ask, part, crc=False) if isinstance(item, Damage))


def items_of(ask: Ask, part: LogPart, *, crc: bool = False) -> Iterator[Batch | Damage]:
    """Messages that a broker would find, and damage, of one split. Raises as `rows_of`."""
    if part.split is not None and part.split.start >= part.split.stop:
        return
    log = open_log(part.store, ask.broker_config)
    noted = Noted(around=True)
    with log.queue:
        for item in each_noting(_scan(log, part.split, crc=crc), noted):
            if not isinstance(item, Batch):
                if item.kind in _DAMAGE_KINDS:
                    if ask.fails:
                        raise Unreadable(item.reason, path=part.store, offset=item.position)
                    yield Damage(part.store, item.position, item.size, item.reason)
            elif not part.behind and item.mark <= Mark.AFTER_DAMAGE:
                yield item
    for unread in noted:  # each is damage, too
        if ask.fails_at(unread.error()):
            raise unread.error()


def _scan(log: CommitLog, split: Split | None, *, crc: bool) -> Iterator[Batch | Extent]:
    if split is None:
        return log.scan(crc=crc, reuse=True)
    return scan_split(log, split, crc=crc)


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
