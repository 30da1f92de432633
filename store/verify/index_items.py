"""Items of index files in the order of the log, a batch at a time, and the items that records ask for (spec 3.3)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import chain, islice

import numpy as np

from ...formats.derive.ragged import Flags, Ints, Structs
from ..broker.dispatch import dispatch
from ..broker.dispatch_record import Dispatching
from ..columns import Rows
from ..errors import Missing
from ..index.read import IndexFile
from ..log.commit_log import CommitLog
from .context import Records

_HASH_BITS = 31
_SECOND_MS = 1000
_LARGEST_DIFF = (1 << 31) - 1
_FIRST_ITEM = 1
LAST_POSITION = int(np.iinfo(np.int64).max) - 1
_BUFFERED_ITEMS = 1 << 20
"""Items to hold back for later batches at most: more are damaged."""


class Picked(Rows):
    """n items, int64[n] each. file: number of the index file. number: of the item. base_ms: what time_diff counts from,
    -1 if that is not known.
    """

    file: Ints
    number: Ints
    key_hash: Ints
    position: Ints
    time_diff: Ints
    base_ms: Ints

    def seconds(self, stored: Ints) -> Ints:
        """Return the time_diff of records stored at these times (ms): int64[n], -1 where it is not known."""
        diff = np.clip((stored - self.base_ms) // _SECOND_MS, 0, _LARGEST_DIFF)
        return np.where(self.base_ms < 0, -1, np.where(self.base_ms == 0, 0, diff))


class ItemCursor:
    """Reads one index file from one of its items on.

    number: of the file. base_ms: what the time of the file's first item counts from, None if the file before it is
    missing. first: number of the item to begin with.
    """

    def __init__(self, file: IndexFile, number: int, base_ms: int | None, first: int = _FIRST_ITEM) -> None:
        self.file = file
        self.first = first
        self._number = number
        self._base_ms = -1 if base_ms is None else max(0, base_ms)
        self._behind = first
        self._windows: Iterator[tuple[int, Structs]] | None = file.columns(first)
        #: The least log position in the first window, once that was read.
        self._least: int | None = None
        self._held = Picked.concat([])
        self._rising = True
        self._middle = -1
        #: `take` has nothing up to this log position, and reads nothing.
        self.idle_until = 0

    @property
    def next(self) -> int | None:
        """Number of the first item that was not taken; None if items are out of order."""
        if not len(self._held):
            return self._behind
        return int(self._held.number[0]) if self._rising else None

    def from_item(self, first: int) -> ItemCursor:
        """Return a cursor of the same file from another item on; close this one."""
        self.file.close()
        return ItemCursor(self.file, self._number, self._base_ms, first)

    def take(self, begin: int, end: int, stray: Callable[[Picked], None]) -> Picked:
        """Return the items of records before `end` that were not taken yet. stray: called with items of records before
        `begin` as they are read: a broker that starts over puts all items of a log into its index again.

        Items may be out of order: those far ahead of their neighbours are held back. Raise Missing, Unreadable.
        """
        if self._is_ahead_of(end):
            self.idle_until = self._least or 0
            return self._held
        while self._windows is not None and self._middle < end:
            self._read(begin, stray)
        taken = self._take_held(end)
        least = int(self._held.position.min(initial=LAST_POSITION))
        self.idle_until = least if self._windows is None else min(least, self._middle)
        return taken

    def _take_held(self, end: int) -> Picked:
        """Return the items that are held of records before `end`, and hold the others."""
        if not len(self._held):
            return self._held
        if self._rising:
            cut = int(np.searchsorted(self._held.position, end))
            taken, later = self._held.take(slice(0, cut)), self._held.take(slice(cut, None))
            self._held = later if len(later) else Picked.concat([])  # a view would keep the window
            return taken
        now = self._held.position < end
        if len(self._held) > _BUFFERED_ITEMS:
            now[:] = True
        taken, self._held = self._held.take(now), self._held.take(~now)
        return taken

    def rest(self) -> Iterator[Picked]:
        """Yield all items that were not taken yet, whatever their records. Raise Missing, Unreadable."""
        while len(self._held) or self._windows is not None:
            taken, self._held = self._held, Picked.concat([])
            if len(taken):
                yield taken
            self._read()

    def _is_ahead_of(self, end: int) -> bool:
        """Return whether all items of the first window are of records from `end` on. Until the log gets there, nothing
        of the file is held: there may be many such files.
        """
        if self._least is None:
            windows = self.file.columns(self.first)
            try:
                found = list(islice(windows, 1))
            except Missing:  # a running broker has deleted the file: do not try again
                self._least, self._windows = -1, None
                raise
            self._least = min((int(items["physical_offset"].min()) for _, items in found), default=-1)
            if self._least >= end:
                self.file.close()
            else:
                self._windows = chain(found, windows)
        return self._least >= end

    def _read(self, begin: int = 0, stray: Callable[[Picked], None] | None = None) -> None:
        """Hold the next window, too, except items of records before `begin` if `stray` takes them."""
        found = next(self._windows, None) if self._windows is not None else None
        if found is None:
            self._windows = None
            self.file.close()
            return
        first, items = found
        self._behind = first + len(items)
        window = self._picked(first, items)
        position = window.position
        middle = position if _is_rising(position) else np.partition(position, len(items) // 2)
        self._middle = int(middle[len(items) // 2])
        early = position < begin
        if stray is not None and early.any():
            stray(window.take(early))
            window = window.take(~early)
            if not len(window):
                return
        rising = _is_rising(window.position)
        if len(self._held):
            rising &= self._rising and bool(window.position[0] >= self._held.position[-1])
        self._rising = rising
        self._held = Picked.concat([self._held, window]) if len(self._held) else window

    def _picked(self, first: int, items: Structs) -> Picked:
        """Return the items of a window; first: number of its first item."""
        count = len(items)
        base = np.full(count, max(0, self.file.header.begin_timestamp), np.int64)
        if first == _FIRST_ITEM:
            base[0] = self._base_ms
        return Picked(
            np.full(count, self._number, np.int64),
            np.arange(first, first + count, dtype=np.int64),
            items["key_hash"].astype(np.int64),
            items["physical_offset"].astype(np.int64),
            items["time_diff"].astype(np.int64),
            base,
        )


def _is_rising(position: Ints) -> bool:
    """Return whether log positions never decrease."""
    return bool((position[1:] >= position[:-1]).all())


def item_from(file: IndexFile, position: int) -> int:
    """Return the first item of a record at or behind a position, in a file whose items are in order."""
    header, end = file.header, file.last + 1
    if position <= header.begin_physical_offset:
        return _FIRST_ITEM
    if position > header.end_physical_offset:
        return end
    numbers = range(_FIRST_ITEM, end)
    at = bisect_left(numbers, position, key=lambda number: file.item(number).physical_offset)
    file.close()
    return _FIRST_ITEM + at


def key_of(relative: Ints, key_hash: Ints) -> Ints:
    """Return position in a batch and hash as one number: int64[n]."""
    return relative << _HASH_BITS | key_hash & ((1 << _HASH_BITS) - 1)


def surplus(one: Ints, other: Ints) -> Flags:
    """Return which numbers `one` has more often than `other`, bool[n]; of equal numbers the last ones."""
    order = np.argsort(one, kind="stable")
    ordered = one[order]
    rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered, side="left")
    known = np.sort(other)
    there = np.searchsorted(known, ordered, side="right") - np.searchsorted(known, ordered)
    found = np.zeros(len(one), np.bool_)
    found[order] = rank >= there
    return found


class ExpectedItems(Rows):
    """Items that a batch of records asks for, int64[n] each, in the order in which a broker puts them."""

    record: Ints
    position: Ints
    key_hash: Ints
    store_timestamp: Ints

    @classmethod
    def of(cls, records: Records, *, tags: bool | None = None) -> ExpectedItems:
        """Return the items of records. tags: with or without items of tags; None: as in the dispatch of the pass."""
        dispatched = records.dispatched
        if tags is not None or dispatched is None:
            dispatched = dispatch(records.batch, Dispatching(bool(tags), multi_dispatch=False))
        items = dispatched.items
        position = records.position[items.record]
        return cls(items.record, position, items.key_hash, items.store_timestamp)


def asked_for(log: CommitLog, picked: Picked) -> Flags:
    """Return which items the record at their position asks for: bool[n]."""
    records = Records(log.records(np.unique(picked.position)))
    if not len(records):
        return np.zeros(len(picked), np.bool_)
    wanted = ExpectedItems.of(records, tags=True)
    pairs = set(zip(wanted.position.tolist(), wanted.key_hash.tolist(), strict=True))
    items = zip(picked.position.tolist(), picked.key_hash.tolist(), strict=True)
    return np.array([pair in pairs for pair in items], np.bool_)
