"""The messages in the commit logs of many stores as rows of Arrow.

A row is a message that a broker would still find; records behind the end of a log are none. Where
something cannot be read there is a row with `damage` and nothing else but the store: a range of the
log, or a whole store. A log is cut anywhere into splits; all of them together give what one walk
over it gives.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import pyarrow as pa

from ..byte_reader import noting
from ..commit_log import Batch, CommitLog, Extent, ExtentKind
from ..errors import StoreError, Unreadable
from ..layout import is_uri
from ..log_search import time_bounds
from ..mark import Mark
from ..selection import Selection
from ..split import Split, scan_split, split_bytes_for, splits
from ..store import Store
from ..time_range import TimeRange
from .ask import ALWAYS, BODY, BODY_CRC_OK, NO_BODY, STORED_BODY, Ask, with_notes
from .log_columns import COLUMNS, DAMAGE, USUAL, damage_row, rows_of_batch
from .remote import open_log

_DAMAGE_KINDS = (ExtentKind.DAMAGE, ExtentKind.MISSING)


@dataclass(frozen=True)
class Pushed:
    """Conditions of which all must hold, of each list one, and store times. Default: none."""

    conditions: list[list[Selection]] = field(default_factory=list)
    times: TimeRange = ALWAYS

    def within(self, times: TimeRange) -> TimeRange:
        """The times that are wanted both ways; none is a range that ends where it begins."""
        since = max(times.since_ms, self.times.since_ms)
        return TimeRange(since, max(since, min(times.until_ms, self.times.until_ms)))


def fields_of(ask: Ask) -> tuple[str, ...]:
    """The columns asked for: those named, else the usual ones and a body if the option says so."""
    body = () if ask.body == NO_BODY else with_notes((BODY,), ask.body)
    return ask.columns(COLUMNS, (*(name for name in USUAL if name != DAMAGE), *body, DAMAGE))


def ddl_of(ask: Ask) -> str:
    """The schema of the columns asked for, in SQL."""
    return ", ".join(f"{name} {COLUMNS[name].sql}" for name in fields_of(ask))


@dataclass(frozen=True)
class LogPart:
    """What is read at once: a split of the log of a store, or all of a small log (`split` None).

    problem: why the store cannot be read. behind: the log has ended; there may be damage, but no
    message.
    """

    store: str
    split: Split | None
    problem: str = ""
    behind: bool = False


def parts_of(ask: Ask) -> list[LogPart]:
    """What the tasks of a read are. Raises StoreError if the query is to fail."""
    with noting():  # whoever reads these bytes tells of them
        return _parts_of(ask)


def _parts_of(ask: Ask) -> list[LogPart]:
    found: list[LogPart] = []
    sizes: dict[str, int] = {}
    for root in ask.stores:
        try:
            log = open_log(root, ask.broker_config)
            with log.queue:
                sizes[root] = sum(file.size for file in log.files)
        except StoreError as error:
            if ask.fails_at(error):
                raise
            found.append(LogPart(root, None, str(error)))
    size = ask.split_bytes or split_bytes_for(sum(sizes.values()), os.cpu_count() or 1)
    for root, log_bytes in sizes.items():
        if log_bytes <= size:
            found.append(LogPart(root, None))
            continue
        try:
            found += _splits(root, size, ask)
        except StoreError as error:
            if ask.fails_at(error):
                raise
            found.append(LogPart(root, None, str(error)))
    return found


def _splits(root: str, size: int, ask: Ask) -> list[LogPart]:
    if is_uri(root):
        return _remote_splits(root, size, ask)
    with Store(root, ask.broker_config) as store:
        start, stop = time_bounds(store, ask.times)
        end = store.log_end.position
        found = [LogPart(root, split) for split in splits(start, min(stop, end), size)]
        if stop > end:
            found.append(LogPart(root, Split(max(start, end), stop), behind=True))
        return found


def _remote_splits(root: str, size: int, ask: Ask) -> list[LogPart]:
    """All files but the last one in parts; the end of the log lies in the last, or in none."""
    log = open_log(root, ask.broker_config)
    with log.queue:
        last = log.files[-1].start
        parts = [*splits(log.min_offset, last, size), Split(last, log.max_file_end)]
        return [LogPart(root, part) for part in parts]


def rows_of(ask: Ask, part: LogPart, pushed: Pushed) -> Iterator[pa.RecordBatch]:
    """The rows of one split, of the columns `ask.fields`. Raises Unreadable if it is to fail."""
    fields, store = fields_of(ask), part.store
    if part.problem:
        yield from _report(ask, part, None, None, part.problem)
        return
    if part.split is not None and part.split.start >= part.split.stop:
        return
    try:
        conditions = _conditions(ask, pushed)
        log = open_log(store, ask.broker_config)
        with noting() as noted, log.queue:
            for item in _items(log, part.split, crc=BODY_CRC_OK in fields):
                if not isinstance(item, Batch):
                    if item.kind in _DAMAGE_KINDS:
                        yield from _report(ask, part, item.position, item.size, item.reason)
                    continue
                if part.behind or item.mark > Mark.AFTER_DAMAGE:
                    continue
                if len(wanted := _wanted(item, conditions)):
                    yield from rows_of_batch(store, wanted, fields, raw=ask.body == STORED_BODY)
        for unread in noted:  # each is damage, too
            if ask.fails_at(unread.error()):
                raise unread.error()
    except StoreError as error:
        if ask.fails_at(error):
            raise
        yield from _report(ask, part, None, None, str(error))


def _items(log: CommitLog, split: Split | None, *, crc: bool) -> Iterator[Batch | Extent]:
    if split is None:
        return log.scan(crc=crc, reuse=True)
    return scan_split(log, split, crc=crc)


def _conditions(ask: Ask, pushed: Pushed) -> list[list[Selection]]:
    """Conditions that must hold together: of each list one is enough."""
    one = Selection(queue_id=ask.queue_id, times=ask.times)
    found = [[one]] if one.asks else []
    if ask.topics:
        found.append([Selection(topic=topic) for topic in ask.topics])
    return found + pushed.conditions


def _wanted(batch: Batch, conditions: Sequence[Sequence[Selection]]) -> Batch:
    """The records of a batch that all conditions take."""
    for either in conditions:
        if len(batch):
            mask = reduce(np.logical_or, [selection.mask(batch) for selection in either])
            batch = batch if mask.all() else batch.take(mask)
    return batch


def _report(
    ask: Ask, part: LogPart, position: int | None, size: int | None, reason: str
) -> Iterator[pa.RecordBatch]:
    """What cannot be read as a row, where the column is asked for. Raises Unreadable."""
    if ask.fails:
        raise Unreadable(reason, path=part.store, offset=position)
    if DAMAGE in fields_of(ask):
        yield damage_row(part.store, fields_of(ask), position, size, reason)
