"""The items of index files in the order of the log, a batch at a time.

The items that records ask for: what an index of them has. Spec 3.3.
"""

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
_BUFFERED_ITEMS = 1 << 20
"""More are not held back for a later batch: they are damaged."""


class Picked(Rows):
    """n items, int64[n] each. file: which of the files. base_ms: what time_diff counts from, -1 where that is not
    known.
    """

    file: Ints
    number: Ints
    key_hash: Ints
    position: Ints
    time_diff: Ints
    base_ms: Ints

    def seconds(self, stored: Ints) -> Ints:
        """int64[n]: the time_diff of records stored at these times (ms); -1 where nobody knows."""
        base = self.base_ms
        if len(base) and base[0] > 0 and (base == base[0]).all():
            since: Ints = (stored - base[0]) // _SECOND_MS
            return since.clip(0, _LARGEST_DIFF)
        diff = np.clip((stored - base) // _SECOND_MS, 0, _LARGEST_DIFF)
        return np.where(base < 0, -1, np.where(base == 0, 0, diff))


class ItemCursor:
    """One file, read from one of its items on.

    number: of the file. base_ms: what the first item's time counts from, None where the file
    before it is not there. first: the item to begin with.
    """

    def __init__(self, file: IndexFile, number: int, base_ms: int | None, first: int = _FIRST_ITEM) -> None:
        self.file = file
        self.first = first
        self._number = number
        self._base_ms = -1 if base_ms is None else max(0, base_ms)
        self._behind = first
        self._windows: Iterator[tuple[int, Structs]] | None = file.columns(first)
        #: The least position in the first window, once that has been looked at.
        self._least: int | None = None
        self._held = Picked.concat([])
        self._rising = True
        self._middle = -1

    @property
    def next(self) -> int | None:
        """Number of the first item that was not taken; None where items are out of order."""
        if not len(self._held):
            return self._behind
        return int(self._held.number[0]) if self._rising else None

    def from_item(self, first: int) -> ItemCursor:
        """The same file, to be read from another item on."""
        self.file.close()
        return ItemCursor(self.file, self._number, self._base_ms, first)

    def take(self, begin: int, end: int, stray: Callable[[Picked], None]) -> Picked:
        """Items of records before `end` that were not taken yet. stray: is given items of records before
        `begin` as they are read: a broker that starts over puts all items of a log into its index again.

        Items need not be in order: what lies far ahead of its neighbours is held back. Raises
        Missing, Unreadable.
        """
        if self._is_ahead_of(end):
            return self._held
        while self._windows is not None and self._middle < end:
            self._read(begin, stray)
        if not len(self._held):
            return self._held
        if self._rising:
            cut = int(np.searchsorted(self._held.position, end))
            taken, left = self._held.take(slice(0, cut)), self._held.take(slice(cut, None))
            self._held = left if len(left) else Picked.concat([])  # a view would keep the window
            return taken
        now = self._held.position < end
        if len(self._held) > _BUFFERED_ITEMS:
            now[:] = True
        taken, self._held = self._held.take(now), self._held.take(~now)
        return taken

    def rest(self) -> Iterator[Picked]:
        """All items that were not taken yet, whatever their records. Raises Missing, Unreadable."""
        while len(self._held) or self._windows is not None:
            taken, self._held = self._held, Picked.concat([])
            if len(taken):
                yield taken
            self._read()

    def _is_ahead_of(self, end: int) -> bool:
        """The first window has items of records from `end` on alone: until the log gets there nothing of the
        file is held. There may be many such files.
        """
        if self._least is None:
            windows = self.file.columns(self.first)
            try:
                found = list(islice(windows, 1))
            except Missing:  # a running broker has deleted it: it is not asked again
                self._least, self._windows = -1, None
                raise
            self._least = min((int(items["physical_offset"].min()) for _, items in found), default=-1)
            if self._least >= end:
                self.file.close()
            else:
                self._windows = chain(found, windows)
        return self._least >= end

    def _read(self, begin: int = 0, stray: Callable[[Picked], None] | None = None) -> None:
        """Hold the next window, too, but for items of records before `begin`."""
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
        """Items of the file from the number `first` on."""
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
    """No item is of a record before that of the item before it."""
    return bool((position[1:] >= position[:-1]).all())


def item_from(file: IndexFile, position: int) -> int:
    """The first item of a record at or behind a position, in a file whose items are in order."""
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
    """int64[n]: position in a batch and hash as one number."""
    return relative << _HASH_BITS | key_hash & ((1 << _HASH_BITS) - 1)


def among(some: Ints, known: Ints) -> Flags:
    """bool[n]: which of the numbers are among the known ones."""
    ordered = np.sort(known)
    if not len(ordered):
        return np.zeros(len(some), np.bool_)
    at = np.minimum(np.searchsorted(ordered, some), len(ordered) - 1)
    found: Flags = ordered[at] == some
    return found


def surplus(one: Ints, other: Ints) -> Flags:
    """bool[n]: which numbers of `one` it has more often than `other`; the later ones of equals."""
    order = np.argsort(one, kind="stable")
    ordered = one[order]
    rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered, side="left")
    known = np.sort(other)
    there = np.searchsorted(known, ordered, side="right") - np.searchsorted(known, ordered)
    found = np.zeros(len(one), np.bool_)
    found[order] = rank >= there
    return found


class ExpectedItems(Rows):
    """Items that a batch of records asks for, int64[n] each, in the order of a broker."""

    record: Ints
    position: Ints
    key_hash: Ints
    store_timestamp: Ints

    @classmethod
    def of(cls, records: Records, *, tags: bool | None = None) -> ExpectedItems:
        """Those of records. tags: as the dispatch of the pass has it, or with and without them."""
        dispatched = records.dispatched
        if tags is not None or dispatched is None:
            dispatched = dispatch(records.batch, Dispatching(bool(tags), multi_dispatch=False))
        items = dispatched.items
        position = records.position[items.record]
        return cls(items.record, position, items.key_hash, items.store_timestamp)


def asked_for(log: CommitLog, picked: Picked) -> Flags:
    """bool[n]: items that the record at their position asks for."""
    records = Records(log.records(np.unique(picked.position)))
    if not len(records):
        return np.zeros(len(picked), np.bool_)
    wanted = ExpectedItems.of(records, tags=True)
    pairs = set(zip(wanted.position.tolist(), wanted.key_hash.tolist(), strict=True))
    items = zip(picked.position.tolist(), picked.key_hash.tolist(), strict=True)
    return np.array([pair in pairs for pair in items], np.bool_)
