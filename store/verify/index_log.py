"""Checks of the index against the log, in lock step: each key of each record has its item, each item its record.

Items lie in the order of the log, so the items of a batch of records are consecutive, and normally equal the columns
that the records ask for. If they differ, both sides are sorted and compared as multisets of (position, hash). Spec 3.2,
3.3; I-099 … I-102, I-106.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple, Self

import numpy as np

from ...formats import message_properties as names
from ...formats.derive.ragged import Flags, Ints, Structs
from ...formats.message import SysFlag
from ..broker.dispatch import dispatch
from ..broker.dispatch_record import Dispatching
from ..columns import Ranges, Rows, runs
from ..counted import counted
from ..errors import Missing
from ..findings.catalogue import Severity
from ..index.read import IndexFile
from ..log.commit_log import CommitLog
from ..log.message import tombstones
from ..settings.options import options_of
from .context import Mergeable, Records, VerifyContext, add_rows, covered_of
from .index_files import add_items, index_files
from .register import after, of_records

_HASH_BITS = 31
_SECOND_MS = 1000
_LARGEST_DIFF = (1 << 31) - 1
_FIRST_ITEM = 1
LAST_POSITION = int(np.iinfo(np.int64).max) - 1
_BUFFERED_ITEMS = 1 << 20
"""Items to hold back for later batches at most: more are damaged."""


class Picked(Rows):
    """n items, int64[n] each: number of the index file, of the item, and what time_diff counts from (-1: unknown)."""

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


def item_from(file: IndexFile, position: int | None) -> int:
    """Return the first item of a record at or behind a position, in a file whose items are in order; None: of all."""
    header, end = file.header, file.last + 1
    if position is None or position <= header.begin_physical_offset:
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


_STRAYS_AT_ONCE = 4096
_RECORDS_AT_ONCE = 256


class _IndexExport(NamedTuple):
    """State of a part of the log. items: path of each file, its first item in the part, and the item behind the part.

    tags_from: as in `IndexCompare`. unlike: some batch had other items than its records ask for. with_keys: number of
    records with a key, counted without an index.
    """

    items: list[tuple[str, int, int | None]]
    tags_from: int | None
    unlike: bool
    with_keys: int


class IndexCompare(Mergeable):
    """Compares the index with the log while that is read."""

    def __init__(self, context: VerifyContext) -> None:
        self._context = context
        files = index_files(context)
        ends = [0, *(file.header.end_timestamp for file in files)]
        self._cursors = [
            ItemCursor(file, number, ends[number] if number else None, item_from(file, context.behind))
            for number, file in enumerate(files)
        ]
        ranges = [(file.header.begin_physical_offset, file.header.end_physical_offset) for file in files]
        self.first = min((begin for begin, _ in ranges), default=-1)
        self.last = max((end for _, end in ranges), default=-1)
        self._ends = [end for _, end in ranges]
        self._in_files = Ranges()
        for begin, end in ranges:
            self._in_files.add_range(begin, min(end, LAST_POSITION) + 1)
        #: The first record whose tag is indexed; a broker before 5.4 may have indexed those before it.
        self._tags_from: int | None = None
        self._unlike = False
        self._with_keys = 0
        self._strays: list[Picked] = []
        self._strayed = False

    @classmethod
    def fresh(cls, context: VerifyContext) -> Self:
        return cls(context)

    def export(self) -> _IndexExport | None:
        """Return the state; None if items of no record were found, which may be of a record in front of the part."""
        if self._strayed:
            return None
        items = [(c.file.path, c.first, c.next) for c in self._cursors]
        return _IndexExport(items, self._tags_from, self._unlike, self._with_keys)

    def can_merge(self, exported: _IndexExport) -> bool:
        """Return whether the items of the part come directly behind those that were taken."""
        taken = [(cursor.file.path, cursor.next) for cursor in self._cursors]
        return (
            taken == [(path, first) for path, first, _ in exported.items]
            and all(behind is not None for *_, behind in exported.items)
            and not any(map(len, self._strays))
            and not (exported.unlike and self._tags_from is not None)
        )

    def merge(self, context: VerifyContext, exported: _IndexExport) -> None:
        """Continue with the items behind those of the part."""
        behind = [number for *_, number in exported.items if number is not None]
        self._cursors = [cursor.from_item(number) for cursor, number in zip(self._cursors, behind, strict=True)]
        self._tags_from = exported.tags_from if self._tags_from is None else self._tags_from
        self._unlike |= exported.unlike
        self._with_keys += exported.with_keys

    def compare(self, records: Records) -> None:
        if not self._cursors:
            lacking = ExpectedItems.of(records).record
            self._with_keys += len(np.unique(lacking[self._in_scope(records, lacking)]))
            return
        begin, end = int(records.position[0]), int(records.ends[-1])
        awake = (cursor for cursor in self._cursors if cursor.idle_until < end)  # there may be very many
        taken = (cursor.take(begin, end, self._add_strays) for cursor in awake)
        picked = Picked.concat([part for part in taken if len(part)])
        stray = picked.position < begin
        if stray.any():
            self._add_strays(picked.take(stray))
            picked = picked.take(~stray)
        wanted = ExpectedItems.of(records)
        alike = np.array_equal(wanted.position, picked.position) and np.array_equal(wanted.key_hash, picked.key_hash)
        if alike:
            self._check_times(picked, wanted.store_timestamp)
            if self._tags_from is None and self._context.profile.dispatch.index_tags:
                tagged = records.properties.find(names.TAGS).length > 0
                self._note_tags(records.position[tagged & (records.transaction != SysFlag.ROLLBACK)])
            return
        if not len(picked) and not 0 <= self.first < end:
            self._report_lacking(records, wanted)
        else:
            self._compare_multisets(records, picked, begin)

    def _compare_multisets(self, records: Records, picked: Picked, begin: int) -> None:
        self._unlike = True
        plain, tagged = (ExpectedItems.of(records, tags=tags) for tags in (False, True))
        keys = key_of(picked.position - begin, picked.key_hash)
        required = key_of(plain.position - begin, plain.key_hash)
        allowed = key_of(tagged.position - begin, tagged.key_hash)
        lacking = plain.take(surplus(required, keys))
        tag_items = surplus(allowed, required)
        if tag_items.any():
            missing = surplus(allowed, keys)
            self._note_tags(tagged.position[tag_items & ~missing])
            if self._tags_from is not None and self._context.profile.dispatch.index_tags:
                of_tags, bare = tagged.take(tag_items), missing[tag_items]
                keyed = bare & np.isin(of_tags.record, plain.record) & ~np.isin(of_tags.record, lacking.record)
                # what is beside the window is not known; the rest of a record at the end of a file is in the next one
                unknown = ~np.isin(of_tags.position[[0, -1]], self._ends)
                beside = np.concatenate([unknown[:1], keyed, unknown[1:]])
                older = keyed & (beside[:-2] | beside[2:])
                wanted = of_tags.position >= self._tags_from
                self._report_untagged(records, of_tags.record[wanted & older])
                lacking = ExpectedItems.concat([lacking, of_tags.take(wanted & bare & ~older)])
        self._report_lacking(records, lacking)
        if self._context.scope.topic is not None:
            return
        extra = surplus(keys, allowed)
        known = np.isin(keys, allowed)
        twice = picked.take(extra & known)
        self._report_items("I-102", twice, _twice(len(np.unique(twice.position))))
        self._report_unasked(records, picked.take(extra & ~known))
        order = np.argsort(allowed, kind="stable")
        at = order[np.searchsorted(allowed[order], keys[known])]
        self._check_times(picked.take(known), tagged.store_timestamp[at])

    def _note_tags(self, position: Ints) -> None:
        if self._tags_from is None and len(position):
            self._tags_from = int(position.min())

    def _check_times(self, picked: Picked, stored: Ints) -> None:
        """Check that items have the seconds since their file began (I-099)."""
        expected = picked.seconds(stored)
        wrong = (picked.time_diff != expected) & (expected >= 0)
        if wrong.any():
            some, right = picked.take(wrong), expected[wrong]
            text = "{} s since the file began, but it should be {} s"
            self._report_items("I-099", some, lambda row: text.format(some.time_diff[row], right[row]))

    def _report_untagged(self, records: Records, rows: Ints) -> None:
        """Report records whose keys are indexed and their tags not, several in a row: an older broker has stored them.
        One between others has lost its tag.
        """
        wrong = np.zeros(len(records), np.bool_)
        wrong[rows[self._in_scope(records, rows)]] = True
        add_rows(self._context, records, "I-101", wrong, _UNTAGGED, severity=Severity.INFO)

    def _report_lacking(self, records: Records, lacking: ExpectedItems) -> None:
        """Report records with a key that the index lacks (I-101), from the first indexed record on."""
        if not len(lacking.position):
            return
        kept = (lacking.position != self.first) & self._in_scope(records, lacking.record)
        kept &= ~tombstones(records.columns)[lacking.record]  # no query asks for these by their tag
        early = lacking.position < self.first
        late = ~early & (lacking.position >= self.last)
        between = ~early & ~late & ~self._in_files.has(lacking.position)
        context, waiting = self._context, lacking.position[late]
        waits = context.crashed or context.live or (len(waiting) and context.waits(int(waiting.min())))
        for rows, text, more in (
            (early, _NEVER_INDEXED, {"severity": Severity.INFO}),
            (late, _NOT_INDEXED, context.not_dispatched if waits else {}),
            (between, _NO_FILE, {}),
            (~early & ~late & ~between, _LACKING, {}),
        ):
            wrong = np.zeros(len(records), np.bool_)
            wrong[lacking.record[rows & kept]] = True
            add_rows(self._context, records, "I-101", wrong, text, **more)

    def _in_scope(self, records: Records, rows: Ints) -> Flags:
        """Return which records are of the topic and queue of this run: bool[n]."""
        scope, kept = self._context.scope, np.ones(len(rows), np.bool_)
        if scope.topic is not None:
            kept &= np.isin(rows, records.of_topic(scope.topic))
            if scope.queue_id is not None:
                kept &= records.ints("queue_id")[rows] == scope.queue_id
        return kept

    def _report_unasked(self, records: Records, extra: Picked) -> None:
        """Report items that no record of the batch asks for."""
        if not len(extra):
            return
        at = np.searchsorted(records.position, extra.position, side="right") - 1
        begins = records.position[at] == extra.position
        lost = tombstones(records.columns)[at] & (extra.position < records.ends[at])
        self._report_items("I-100", extra.take(lost), lambda _: _LOST, Severity.INFO)
        rolled_back = begins & (records.transaction[at] == SysFlag.ROLLBACK) & ~lost
        self._report_items("I-106", extra.take(rolled_back), lambda _: _ROLLED_BACK)
        rest = extra.take(~rolled_back & ~lost)
        starts = begins[~rolled_back & ~lost]
        self._report_items(
            "I-100",
            rest,
            lambda row: (
                f"the record at {rest.position[row]} has no key with this hash"
                if starts[row]
                else f"no record begins at {rest.position[row]}"
            ),
        )

    def _add_strays(self, strays: Picked) -> None:
        """Keep items between batches, or out of order, for `_look_at_strays`, if the pass has read their positions."""
        self._strayed |= bool(len(strays))
        inside = strays.position >= self._context.log.start
        inside &= covered_of(self._context).has(strays.position)
        self._strays.append(strays.take(inside))
        if sum(map(len, self._strays)) >= _STRAYS_AT_ONCE:
            self._look_at_strays()

    def _look_at_strays(self) -> None:
        strays, self._strays = Picked.concat(self._strays), []
        if self._context.scope.topic is not None:
            return
        for begin in range(0, len(strays), _RECORDS_AT_ONCE):
            part = strays.take(np.arange(begin, min(begin + _RECORDS_AT_ONCE, len(strays))))
            part = part.take(~self._context.gone.has(part.position))
            wrong = part.take(~asked_for(self._context.store.log, part))
            self._report_items("I-100", wrong, _no_record(wrong))

    def finish(self) -> None:
        """Check the remaining items after the pass over the log."""
        self._look_at_strays()
        context = self._context
        if not self._cursors and self._with_keys:
            _report_no_index(context, self._with_keys)
        if context.live or context.scope.topic is not None or not context.log.complete:
            return
        for cursor in self._cursors:
            for rest in cursor.rest():
                inside = rest.position < context.log.end
                self._add_strays(rest.take(inside))
                dead = rest.take(~inside)
                level = context.behind_the_end.get("severity")
                self._report_items("I-100", dead, _behind(dead, context.log.end), level)
        self._look_at_strays()

    def _report_items(
        self, code: str, picked: Picked, message: Callable[[int], str], severity: Severity | None = None
    ) -> None:
        """Add findings about items; consecutive items of one file are one finding."""
        for file in np.unique(picked.file).tolist():
            rows = np.flatnonzero(picked.file == file)
            rows = rows[np.argsort(picked.number[rows], kind="stable")]
            for begin, end in runs(picked.number[rows]):
                number, text = int(picked.number[rows[begin]]), message(int(rows[begin]))
                add_items(self._context, code, self._cursors[file].file, number, text, end - begin, severity=severity)


def _report_no_index(context: VerifyContext, with_keys: int) -> None:
    """Report that there is no index, unless the options say that the broker has none."""
    config = context.store.config
    wanted = all(config.get_bool(option, True) for option in ("messageIndexEnable", _INDEX_FILES_OPTION))
    if not wanted:
        return
    many = counted(with_keys, "message has a key", "messages have keys", form=",")
    text = f"the index is missing: {many}, and no search by key finds them"
    more: dict[str, Any] = {}
    waits = context.crashed or context.live or context.waits(context.log.start)
    if waits and not context.log.dispatched:
        more |= context.not_dispatched
        text += ": not dispatched yet"
    elif options_of(context.store.layout).message_index.is_guess:
        more = {"severity": Severity.WARNING}
        text += "; if the broker has messageIndexEnable=false, say so with --set"
    context.findings.add("I-101", context.store.layout.index, text, **more)


_INDEX_FILES_OPTION = "indexFileWriteEnable"
"""Option since 5.4; false if the index is only in rocksdbstore."""
_NO_FILE = "the index file that had its keys is missing"
_LACKING = "the index lacks one of its keys"
_NEVER_INDEXED = "it is before the first indexed record"
_UNTAGGED = "its keys are indexed, its tag is not: brokers before 5.4 index no tags"
_NOT_INDEXED = "it and all messages behind it are not indexed"
_LOST = "its message is lost: a query finds the record in its place"
_ROLLED_BACK = "its record is a rollback, which is not indexed"


def _twice(records: int) -> Callable[[int], str]:
    """A start after a crash puts the items of one record again, a broker that starts over those of many."""
    why = "after a crash (B10)" if records == 1 else "that index old records again (B20)"
    return lambda _: f"this key of its record is indexed twice, as by brokers {why}"


def _no_record(picked: Picked) -> Callable[[int], str]:
    return lambda row: f"no good record at {picked.position[row]} has a key with this hash"


def _behind(picked: Picked, end: int) -> Callable[[int], str]:
    return lambda row: f"its record {picked.position[row]} is behind the log's end {end}"


def _compare_of(context: VerifyContext) -> IndexCompare:
    return context.kept(IndexCompare, lambda: IndexCompare(context))


@of_records("I-099", "I-100", "I-101", "I-102", "I-106")
def items_of_records(context: VerifyContext, records: Records) -> None:
    if context.scope.quick:
        return
    try:
        _compare_of(context).compare(records)
    except Missing:
        if not context.live:  # a running broker deletes index files of expired records
            raise


@after("I-100")
def items_left(context: VerifyContext) -> None:
    if not context.scope.quick:
        _compare_of(context).finish()
