"""Checks of the index against the log, in lock step: each key of each record has its item, each item its record.

Items lie in the order of the log, so the items of a batch of records are consecutive, and normally equal the columns
that the records ask for. If they differ, both sides are sorted and compared as multisets of (position, hash). Spec 3.2,
3.3; I-099 … I-102, I-106.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from ...formats import message_properties as names
from ...formats.derive.ragged import Flags, Ints
from ...formats.message import SysFlag
from ..columns import Ranges, runs
from ..counted import counted
from ..errors import Missing
from ..findings.catalogue import Severity
from ..index.read import IndexFile
from ..log.message import tombstones
from ..settings.options import options_of
from .context import Mergeable, Records, VerifyContext, add_rows, covered_of
from .index_files import add_items, index_files
from .index_items import LAST_POSITION, ExpectedItems, ItemCursor, Picked, asked_for, item_from, key_of, surplus
from .register import after, of_records

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
            ItemCursor(file, number, ends[number] if number else None, self._first_item_of(file))
            for number, file in enumerate(files)
        ]
        ranges = [(file.header.begin_physical_offset, file.header.end_physical_offset) for file in files]
        self.first = min((begin for begin, _ in ranges), default=-1)
        self.last = max((end for _, end in ranges), default=-1)
        self._in_files = Ranges()
        for begin, end in ranges:
            self._in_files.add_range(begin, min(end, LAST_POSITION) + 1)
        #: The first record whose tag is indexed; a broker before 5.4 may have indexed those before it.
        self._tags_from: int | None = None
        self._unlike = False
        self._with_keys = 0
        self._strays: list[Picked] = []
        self._strayed = False

    def _first_item_of(self, file: IndexFile) -> int:
        """Return the number of the first item that this run compares."""
        return 1 if self._context.behind is None else item_from(file, self._context.behind)

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
        lacking = [plain.take(surplus(required, keys))]
        tag_items = surplus(allowed, required)
        if tag_items.any():
            missing = surplus(allowed, keys)
            self._note_tags(tagged.position[tag_items & ~missing])
            if self._tags_from is not None and self._context.profile.dispatch.index_tags:
                lacking.append(tagged.take(tag_items & missing & (tagged.position >= self._tags_from)))
        self._report_lacking(records, ExpectedItems.concat(lacking))
        if self._context.scope.topic is not None:
            return
        extra = surplus(keys, allowed)
        known = np.isin(keys, allowed)
        twice = picked.take(extra & known)
        self._report_items("I-102", twice, _twice(len(np.unique(twice.position))))
        self._report_unasked(records, picked.take(extra & ~known))
        self._check_matched_times(picked.take(known), keys[known], tagged, allowed)

    def _note_tags(self, position: Ints) -> None:
        if self._tags_from is None and len(position):
            self._tags_from = int(position.min())

    def _check_matched_times(self, picked: Picked, keys: Ints, wanted: ExpectedItems, asked: Ints) -> None:
        order = np.argsort(asked, kind="stable")
        at = order[np.searchsorted(asked[order], keys)]
        self._check_times(picked, wanted.store_timestamp[at])

    def _check_times(self, picked: Picked, stored: Ints) -> None:
        """Check that items have the seconds since their file began (I-099)."""
        expected = picked.seconds(stored)
        wrong = picked.time_diff != expected
        if not wrong.any():
            return
        wrong &= expected >= 0
        if wrong.any():
            some, right = picked.take(wrong), expected[wrong]
            text = "{} s since the file began, but it should be {} s"
            self._report_items("I-099", some, lambda row: text.format(some.time_diff[row], right[row]))

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
