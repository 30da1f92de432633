"""Index files from numbered items, each through the writer that `put` has. No Spark.

All items of a file come to one task, in order. A file is named at the end of the job, when the one
before it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..formats.fixed import numbers_of
from ..formats.index_file import HEADER, file_size
from ..store.dispatch import IndexItems
from ..store.index_file import Geometry, Header
from ..store.layout import INDEX
from ..store.recovery.profiles import profile_of
from ..store.write.files import Files
from ..store.write.index import NAME_DIGITS, IndexWriter, file_name
from .plan import Plan
from .rebuild_rows import BEFORE, split_key

ITEMS_PARTITIONED_BY = ("store", "file")
ITEMS_SORTED_BY = (*ITEMS_PARTITIONED_BY, "number")
_STUB = "0" * NAME_DIGITS


@dataclass
class IndexPart:
    """One file that a task writes: number `file` of the store.

    begin_timestamp: of its first item. full_end_timestamp: of its last one where it is full, else 0.
    """

    attempt: str
    path: str
    store: int
    file: int
    begin_timestamp: int
    items: int = 0
    full_end_timestamp: int = 0


class IndexFiles:
    """Writes rows, sorted by `ITEMS_SORTED_BY`, as the index files of one attempt below `folder`."""

    def __init__(self, folder: Path, attempt: str, plan: Plan, files: Files) -> None:
        self.written: list[IndexPart] = []
        self._folder = folder
        self._attempt = attempt
        self._plan = plan
        self._files = files
        self._writer: IndexWriter | None = None
        self._before: dict[tuple[int, int], Header] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows that sort behind all rows before. Raises NoSpace, Unreadable."""
        keys = [rows.column(name).to_numpy() for name in ITEMS_PARTITIONED_BY]
        changed = np.logical_or.reduce([np.diff(key) != 0 for key in keys])
        cuts = [0, *(np.flatnonzero(changed) + 1).tolist(), rows.num_rows]
        for begin, end in pairwise(cuts) if rows.num_rows else ():
            store, file = (int(key[begin]) for key in keys)
            self._add_to_file(store, file, rows.slice(begin, end - begin))

    def close(self) -> None:
        """Bring the last file to the disk."""
        if self._writer is not None:
            self._writer.sync()
            self._writer.close()
            if (self._writer.directory / _STUB).exists():
                self._files.unlink(self._writer.directory / _STUB)
            self.written[-1].full_end_timestamp = self._writer.full_end_timestamp or 0
            (path,) = self._writer.directory.iterdir()
            self.written[-1].path = path.relative_to(self._folder).as_posix()
            self._writer = None

    def _add_to_file(self, store: int, file: int, rows: pa.RecordBatch) -> None:
        items = IndexItems(
            record=np.arange(rows.num_rows),
            **{
                name: rows.column(name).to_numpy().astype(np.int64)
                for name in ("key_hash", "physical_offset", "store_timestamp")
            },
        )
        now = self.written[-1] if self._writer else None
        if now is None or (now.store, now.file) != (store, file):
            self.close()
            before = self._before.pop((store, file), None)
            if rows.column("number")[0].as_py() == BEFORE:
                time, position = int(items.store_timestamp[0]), int(items.physical_offset[0])
                before = Header(time, time, position, position, 0, 0)
                items = items.take(slice(1, None))
            if before is not None and not len(items):
                self._before[store, file] = before
                return
            now = IndexPart(self._attempt, "", store, file, int(items.store_timestamp[0]))
            self._writer = self._begin(now, before)
            self.written.append(now)
        assert self._writer is not None
        self._writer.append(items, len(items))
        now.items += len(items)

    def _begin(self, part: IndexPart, before: Header | None) -> IndexWriter:
        """A writer for one file. before: the end of the one before."""
        store = self._plan.stores[part.store]
        directory = store.output(self._folder).index / str(part.file)
        geometry = Geometry(store.index_slots, store.index_items)
        if before is not None:
            # the writer goes on behind the newest file: a hole with the header of a full one
            self._files.make_directory(directory)
            with self._files.create(directory / _STUB) as stub:
                stub.truncate(file_size(*geometry))
                full = before._replace(index_count=geometry.items)
                stub.pwrite(numbers_of(HEADER).pack(*full), 0)
        return IndexWriter(
            self._files,
            directory,
            geometry,
            now=partial(_local_time, part.begin_timestamp),
            count_every_put=profile_of(store.broker_version).dispatch.counts_puts,
        )


def first_items(tallies: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Number of the first index item of each split, counted through its store from 0."""
    firsts: dict[str, int] = {}
    totals: dict[int, int] = {}
    for tally in sorted(tallies, key=itemgetter("store", "start")):
        store = tally["store"]
        firsts[split_key(store, tally["start"])] = totals.get(store, 0)
        totals[store] = totals.get(store, 0) + tally["items"]
    return firsts


def named(parts: Iterable[IndexPart], plan: Plan) -> list[tuple[IndexPart, str]]:
    """Each file with its path below the target: named by its first item, behind the one before."""
    found: list[tuple[IndexPart, str]] = []
    last: dict[int, str] = {}
    for part in sorted(parts, key=attrgetter("store", "file")):
        name = file_name(_local_time(part.begin_timestamp), last.get(part.store, ""))
        last[part.store] = name
        found.append((part, Path(plan.stores[part.store].folder, INDEX, name).as_posix()))
    return found


def index_times(parts: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """End time of the newest full index file of each store that has one."""
    full = [part for part in parts if part["full_end_timestamp"]]
    return {p["store"]: p["full_end_timestamp"] for p in sorted(full, key=itemgetter("file"))}


def _local_time(time_ms: int) -> datetime:
    """Local time, as a broker names its files; times that no calendar has count as the first."""
    try:
        return datetime.fromtimestamp(time_ms / 1000)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0)
