"""The same counts from the units of queues alone: a fiftieth of the bytes of the log, or less.

A unit tells topic, queue, place and size of a record; what is inside of records it does not tell. A
message that several queues name, as light queues do, counts in each; one that no queue names in none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...formats.derive.ragged import Ints
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import queue_directories
from ..errors import InvalidInput
from ..queues.read import QueueSummary
from ..queues.read_batches import BatchConsumeQueue
from ..queues.units import is_used, is_valid
from ..search.store import Store
from .stats import QUEUES, Measured, Stats
from .stats_dimensions import OF_UNITS, Columns

Advance = Callable[[int], None]
Units = Iterator[tuple[int, Any]]
_ANYWHERE = 1 << 62
_OF_A_QUEUE = frozenset({"topic", "queue_id", "group", "kind"})
"""Where a group has all of a queue, the first and last record of that tell the times."""


def check_units_tell(by: Sequence[str]) -> None:
    """Raises InvalidInput for what the log alone tells."""
    if others := [name for name in by if name not in OF_UNITS]:
        raise InvalidInput(
            f"--quick: queues do not tell {', '.join(others)}",
            hint=f"they tell {', '.join(OF_UNITS)}; leave --quick away",
        )


def stats_of_queues(store: Store, by: Sequence[str], advance: Advance) -> Stats:
    """Count the units of all queues. by: of `OF_UNITS`. advance: is told of units that are done.

    Raises InvalidInput, LimitExceeded, Unreadable.
    """
    check_units_tell(by)
    with_log = store.has_log
    starts = [file.start for file in store.log_files.files] if with_log else []
    if "file" in by and not starts:
        raise InvalidInput("no commit log here: no file", path=store.layout.root)
    stats = Stats(by, QUEUES, starts)
    timed = with_log and _OF_A_QUEUE.issuperset(by)
    queues = store.queue_summaries if with_log else store.queues.summaries()
    within = (store.log_files.start, store.log_end.position) if with_log else (0, _ANYWHERE)
    for queue in queues:
        _add_queue(stats, store, queue, within, advance, timed=timed)
    for topic, queue_id, path in queue_directories(store.layout.batch_consume_queue):
        with BatchConsumeQueue(topic, queue_id, MappedFileQueue.open(path)) as batches:
            for _, units in batches.units(batches.first, batches.stop):
                advance(len(units))
                _add(stats, topic, queue_id, units[is_valid(units)])
    return stats


def _add_queue(
    stats: Stats,
    store: Store,
    queue: QueueSummary,
    within: tuple[int, int],
    advance: Advance,
    *,
    timed: bool,
) -> None:
    """within: the bytes that the log has; a queue whose records are all gone has units before them."""
    with store.queues.open(queue.topic, queue.queue_id) as opened:
        ends: list[int | None] = []
        if timed and queue.max_offset > queue.min_offset:
            for number in (queue.min_offset, queue.max_offset - 1):
                unit = opened.unit(number)
                there = unit is not None and unit.valid
                ends.append(store.store_time(unit.physical_offset) if unit and there else None)
        for _, units in opened.units(queue.min_offset, queue.max_offset):
            advance(len(units))
            position = units["physical_offset"]
            kept = is_used(units) & (position >= within[0]) & (position < within[1])
            _add(stats, queue.topic, queue.queue_id, units[kept], ends)


def _add(
    stats: Stats, topic: str, queue_id: int, units: Any, ends: Sequence[int | None] = ()
) -> None:
    count = len(units)
    if not count:
        return
    size, none = units["size"].astype(np.int64), np.zeros(count, np.int64)
    batched = "batch_size" in (units.dtype.names or ())
    messages = units["batch_size"].astype(np.int64) if batched else none + 1
    times = units["store_time"].astype(np.int64) if batched else _times(ends, none)
    position = units["physical_offset"].astype(np.int64)
    columns = Columns((none, [topic]), position, size, none + queue_id, stats.starts)
    stats.add_columns(columns, Measured(size, messages, time_ms=times))


def _times(ends: Sequence[int | None], none: Ints) -> Ints | None:
    """A column whose least and greatest are the times of a queue's ends."""
    known = [time for time in ends if time is not None]
    if not known:
        return None
    times = none + known[0]
    times[-1] = known[-1]
    if len(times) == 1:
        times[0] = known[0]
    return times
