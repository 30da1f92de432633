"""The queue offset that a broker answers for a time (`getOffsetInQueueByTime`).

A 5.x broker answers the first message stored at the time or later; behind the last, the end of the
queue. A 4.x broker picks a queue file by its modification time (the first one changed at the time
or later, else the last), searches only that one, and answers the message stored nearest to the
time; of several with one time, the one its bisection meets. Seen in the answers of real brokers of
4.3.1, 4.9.7, 5.1.4, 5.3.3 and 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...formats.consume_queue import UNIT_BYTES
from ..errors import from_os_error
from .read import ConsumeQueue, QueueSummary

StoreTime = Callable[[int], int | None]
"""Store timestamp in ms of the record at a physical offset, None where there is no record."""


def offset_at(
    queue: ConsumeQueue,
    summary: QueueSummary,
    time_ms: int,
    store_time: StoreTime,
    *,
    log_start: int = 0,
    broker_4: bool = False,
) -> int:
    """Queue offset for a time, as a broker of 5.x or of 4.x answers. Raises Unreadable."""
    if broker_4:
        return _nearest(queue, summary, time_ms, store_time, log_start)
    return first_at(queue, summary, time_ms, store_time)


def first_at(
    queue: ConsumeQueue, summary: QueueSummary, time_ms: int, store_time: StoreTime
) -> int:
    """First offset of the queue stored at `time_ms` or later, by bisection; else its end.

    Units without a record count as earlier.
    """
    low, high = summary.min_offset, summary.max_offset
    while low < high:
        middle = (low + high) // 2
        stored_ms = _stored(queue, middle, store_time)
        if stored_ms is None or stored_ms < time_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _stored(queue: ConsumeQueue, offset: int, store_time: StoreTime) -> int | None:
    unit = queue.unit(offset)
    return store_time(unit.physical_offset) if unit is not None and unit.valid else None


def _nearest(
    queue: ConsumeQueue, summary: QueueSummary, time_ms: int, store_time: StoreTime, log_start: int
) -> int:
    """The bisection of a 4.x broker in the one file it looks at."""
    first, last = _file_units(queue, summary, time_ms)
    low, high = max(summary.min_offset, first), last
    before = after = before_ms = after_ms = None
    while low <= high:
        middle = first + (low - first + high - first) // 2
        unit = queue.unit(middle)
        if unit is not None and unit.physical_offset < log_start:
            low = middle + 1
            continue
        stored_ms = _stored(queue, middle, store_time)
        if stored_ms is None:
            return 0
        if stored_ms == time_ms:
            return middle
        if stored_ms > time_ms:
            after, after_ms, high = middle, stored_ms, middle - 1
        else:
            before, before_ms, low = middle, stored_ms, middle + 1
    if before is None or before_ms is None:
        return after if after is not None else max(first - 1, 0)
    if after is None or after_ms is None:
        return before
    return after if time_ms - before_ms > after_ms - time_ms else before


def _file_units(queue: ConsumeQueue, summary: QueueSummary, time_ms: int) -> tuple[int, int]:
    """First and last unit of the file that a 4.x broker looks at."""
    files = [file for file in queue.files.files if file.start < summary.max_offset * UNIT_BYTES]
    if not files:
        return summary.min_offset, summary.max_offset - 1
    file = next((file for file in files if _changed_ms(file.path) >= time_ms), files[-1])
    first = -(-file.start // UNIT_BYTES)
    return first, min(file.end // UNIT_BYTES, summary.max_offset) - 1


def _changed_ms(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns // 1_000_000
    except OSError as error:
        raise from_os_error(error, path) from error
