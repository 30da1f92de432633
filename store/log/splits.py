"""Where a log may be cut, and reading it in parts, as many readers at once do.

A part owns the records and extents that begin in it. A record names its own position, so a reader
that starts in the middle of one finds the next. It starts so far before its part that it is in step
when it gets there: then all parts together give exactly what one walk over the log gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..disk.file_queue import MappedFile
from .batch import NO_FILE
from .commit_log import Batch, CommitLog, Extent, ExtentKind
from .scan import LogItems

LOOK_BACK_BYTES = (4 << 20) + (1 << 16)
"""Room for the largest record of a default broker (`maxMessageSize`, and what is around a body)."""


SPLIT_BYTES_MIN = 32 << 20
"""Below this a split costs more to start than to read."""
SPLIT_BYTES_MAX = 256 << 20
_STEP_BYTES = 1 << 16


class Split(NamedTuple):
    """Log positions start ≤ p < stop."""

    start: int
    stop: int


def splits(start: int, stop: int, split_bytes: int) -> Iterator[Split]:
    """Cut start ≤ p < stop at the multiples of `split_bytes`."""
    while start < stop:
        end = min(stop, start - start % split_bytes + split_bytes)
        yield Split(start, end)
        start = end


def split_bytes_for(total_bytes: int, cores: int) -> int:
    """The size of a split that gives every core work, within what pays."""
    return max(SPLIT_BYTES_MIN, min(SPLIT_BYTES_MAX, -(-total_bytes // max(1, cores))))


def scan_split(
    log: CommitLog, split: Split, look_back_bytes: int = LOOK_BACK_BYTES, *, crc: bool = False
) -> Iterator[Batch | Extent]:
    """What begins in a split; missing files first, then in log order. crc: as of `CommitLog.scan`.

    A reader of the middle of the log cannot see what a record is worth: whether it stands behind
    damage of another split, or behind the log's end (end the last split there). A batch is valid
    until the next one is asked for. Memory is that of `CommitLog.scan`. Raises Unreadable.
    """
    for gap in log.queue.gaps:
        if split.start <= gap.position < split.stop:
            yield Extent(ExtentKind.MISSING, gap.position, gap.size, NO_FILE)
    file = log.queue.file_at(split.start)
    begin = max(file.start, split.start - look_back_bytes) if file else split.start
    for item in log.scan(begin, split.stop, crc=crc, reuse=True):
        if isinstance(item, Extent):
            if item.position >= split.start and item.kind is not ExtentKind.MISSING:
                yield item
        elif item.position[0] >= split.start:
            yield item
        elif item.position[-1] >= split.start:
            yield item.take(item.position >= split.start)


def record_behind(log: CommitLog, position: int) -> int | None:
    """Log position of the first record from there on in the same file; None without one.

    Raises Unreadable.
    """
    file = log.queue.file_at(position)
    if file is None:
        return None
    found = LogItems(log, file).search(position - file.start)
    return None if found is None else file.start + found


def used_bytes(log: CommitLog, file: MappedFile) -> int:
    """About how much of a file is written: what lies behind is zeros. Raises Unreadable."""
    low, high = 0, file.size
    while high - low > _STEP_BYTES:
        middle = (low + high) // 2
        room = bytearray(min(_STEP_BYTES, file.size - middle))
        _, unread = log.queue.fill(file, middle, memoryview(room))
        if unread or any(room):  # who reads it all tells of what cannot be read
            low = middle
        else:
            high = middle
    return high
