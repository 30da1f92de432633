"""Index files from items, each written by `put`'s writer. No Spark.

At most a million items are in memory. A file gets its name at the end of the job, when the file before it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path

import numpy as np

from ..store.broker.dispatch import IndexItems
from ..store.broker.profiles import profile_of
from ..store.disk.layout import INDEX
from ..store.index.read import Geometry, Header
from ..store.index.write import IndexWriter, file_name
from .log_part import AnyPart
from .plan import JobPlan
from .queue_files import AttemptFolder

_AT_ONCE = 1 << 20
Slice = tuple[int, int, int]
"""Some items of a log in parts: number of the part, first item and end in it."""


@dataclass
class IndexPart:
    """One file that a task writes: number `file` of the store.

    begin_timestamp: of its first item. full_end_timestamp: of its last item if the file is full, else 0.
    """

    attempt: str
    path: str
    store: int
    file: int
    begin_timestamp: int
    items: int = 0
    full_end_timestamp: int = 0


def slices_of(counts: Sequence[int], items_per_file: int) -> Iterator[list[Slice]]:
    """Yield the items of each index file of a store, preceded by the last item of the file before. counts: items of
    each part of the log.

    >>> list(slices_of([3, 4], 5))
    [[(0, 0, 3), (1, 0, 2)], [(1, 1, 4)]]
    """
    begins = np.append(0, np.cumsum(counts)).tolist()
    for file_first in range(0, begins[-1], items_per_file):
        first, end = max(0, file_first - 1), min(begins[-1], file_first + items_per_file)
        yield [
            (number, max(first, begin) - begin, min(end, begin + count) - begin)
            for number, (begin, count) in enumerate(zip(begins, counts, strict=False))
            if begin < end and first < begin + count
        ]


def make_index_file(place: AttemptFolder, file: int, slices: Sequence[Slice], parts: Sequence[AnyPart]) -> IndexPart:
    """Write index file number `file` of a store from its items, as `slices_of` gives them.

    Raises NoSpace, Unreadable.
    """
    items = _items(slices, parts)
    head, before = next(items), None
    if file:
        time, position = int(head.store_timestamp[0]), int(head.physical_offset[0])
        before = Header(time, time, position, position, 0, place.store.index_items)
        head = next(items)
    made = IndexPart(place.attempt, "", place.number, file, int(head.store_timestamp[0]))
    writer = IndexWriter(
        place.files,
        place.store.output(place.folder).index / str(file),
        Geometry(place.store.index_slots, place.store.index_items),
        now=partial(_local_time, made.begin_timestamp),
        count_every_put=profile_of(place.store.broker_version).dispatch.counts_puts,
        before=before,
    )
    for some in chain([head], items):
        writer.append(some, len(some))
        made.items += len(some)
    writer.sync()
    writer.close()
    (path,) = writer.directory.iterdir()
    made.path = path.relative_to(place.folder).as_posix()
    made.full_end_timestamp = writer.full_end_timestamp or 0
    return made


def _items(slices: Sequence[Slice], parts: Sequence[AnyPart]) -> Iterator[IndexItems]:
    """Yield the items in chunks; the first item is a chunk of its own."""
    at_once = 1
    for number, first, end in slices:
        while first < end:
            rows = parts[number].items_from(first, min(end, first + at_once))
            names = ("key_hash", "physical_offset", "store_timestamp")
            columns = {name: rows[name].astype(np.int64) for name in names}
            yield IndexItems(record=np.arange(len(rows)), **columns)
            first, at_once = first + len(rows), _AT_ONCE


def named(parts: Iterable[IndexPart], plan: JobPlan) -> list[tuple[IndexPart, str]]:
    """Return each file with its path below the target: named by its first item, behind the file before."""
    found: list[tuple[IndexPart, str]] = []
    last: dict[int, str] = {}
    for part in sorted(parts, key=attrgetter("store", "file")):
        name = file_name(_local_time(part.begin_timestamp), last.get(part.store, ""))
        last[part.store] = name
        found.append((part, Path(plan.stores[part.store].folder, INDEX, name).as_posix()))
    return found


def index_times(parts: Iterable[IndexPart]) -> dict[int, int]:
    """Return the end time of the newest full index file of each store that has one."""
    full = [part for part in parts if part.full_end_timestamp]
    return {part.store: part.full_end_timestamp for part in sorted(full, key=attrgetter("file"))}


def _local_time(time_ms: int) -> datetime:
    """Return local time, as a broker names its files; a time outside of the calendar counts as 1970."""
    try:
        return datetime.fromtimestamp(time_ms / 1000)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0)
