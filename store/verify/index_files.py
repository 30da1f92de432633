"""Checks of index files without the log: names, lengths, headers, slots and chains (spec 3.1 … 3.4; I-090 … I-107).

A broker links each item to the one before it in its slot, and the slot to the newest. So the chains of a sound file
follow from the hashes of its items alone: they are computed again, window by window, and compared as columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats import kernel
from ...formats.derive.ragged import Flags, Ints, Structs
from ...formats.hashing import java_integer
from ...formats.index_file import (
    HEADER_BYTES,
    ITEM_BYTES,
    NAME_DIGITS,
    SLOT_BYTES,
    file_size,
    items_offset,
    slots_offset,
)
from ..columns import runs
from ..counted import counted
from ..disk.compressed import is_compressed_name
from ..disk.file_queue import MappedFileQueue
from ..errors import Missing, StoreError, broken_link
from ..findings.catalogue import Severity
from ..findings.next_commands import RECOVER
from ..index.compare import times_match_records
from ..index.read import IndexFile, Sizes, cannot_follow, is_outside, sizes_of
from .context import VerifyContext
from .layout import COMPRESSED, unpacking
from .register import after, before


def index_files(context: VerifyContext) -> list[IndexFile]:
    """Return the index files that are not empty, oldest first."""
    return context.kept("index files", lambda: [file for file in context.store.index.files if file.size])


def add(context: VerifyContext, code: str, file: IndexFile, text: str, **more: Any) -> None:
    name = file.path.rpartition("/")[2]
    context.findings.add(code, file.path, f"index file {name}: {text}", **more)


def add_items(
    context: VerifyContext, code: str, file: IndexFile, number: int, text: str, count: int = 1, **more: Any
) -> None:
    """Add a finding about items of an index file, from this number on; the text is about the first."""
    at = items_offset(file.slots) + number * ITEM_BYTES
    add(context, code, file, f"item {number}: {text}", offset=at, length=count * ITEM_BYTES, count=count, **more)


def header_only(context: VerifyContext, code: str, file: IndexFile, text: str, **more: Any) -> None:
    add(context, code, file, text, offset=0, length=HEADER_BYTES, **more)


@before("I-090", "I-091", "I-109")
def names_and_lengths(context: VerifyContext) -> None:
    if context.scope.topic is not None:
        return
    index = context.store.index
    for foreign in index.foreign:
        if (broken := broken_link(foreign.path)) is not None:
            text = f"{broken.message}; {broken.hint}"
            context.findings.add("I-091", foreign.path, text, severity=Severity.ERROR, repair="")
            continue
        name = os.path.basename(foreign.path)  # noqa: PTH119
        text = f"{name}: {foreign.reason}, a broker skips it"
        level: Severity | None = None
        mend: str | None = None
        if os.path.isdir(foreign.path):  # noqa: PTH112
            mend = "mv {path} {aside}"
            if java_integer(name, 64) is not None:
                level, mend = (Severity.ERROR if context.profile.load.needs_files else None), RECOVER
                does = "does not start" if level else "reads no index file whose name comes behind"
                text = f"a directory, not a file: a broker {does}"
        context.findings.add("I-091", foreign.path, text, severity=level, repair=mend)
    lengths = [file_size(file.slots, file.items) for file in index.files if file.size]
    usual = max(set(lengths), key=lengths.count, default=0)
    sizes = sizes_of(context.store.layout)
    for number, file in enumerate(index.files):
        name = os.path.basename(file.path)  # noqa: PTH119
        if is_compressed_name(name):
            add(context, "I-091", file, COMPRESSED, severity=Severity.ERROR, repair=unpacking(name))
        elif len(name) != NAME_DIGITS:
            add(context, "I-091", file, f"its name does not have the {NAME_DIGITS} digits of a time")
        if not file.size:
            newest = number == len(index.files) - 1 and context.crashed
            text = "it is empty: the next start indexes records a second time (B20)"
            add(context, "I-109", file, text, severity=Severity.WARNING if newest else None)
        elif file.size != usual:
            text = f"{counted(file.size, 'byte')}, but {usual} with its numbers of slots and items"
            add(context, "I-090", file, text)
        else:
            _hold_against_options(context, file, sizes)


def _hold_against_options(context: VerifyContext, file: IndexFile, sizes: Sizes) -> None:
    """Compare a file with the broker's options: with other slots, or fewer items than put, a broker finds no key."""
    slots, items = sizes.index_slots, sizes.index_items
    if "configuration" not in (slots.origin, items.origin) or sizes.of_index == (file.slots, file.items):
        return
    own, taken = (
        f"{counted(n, 'slot')} and {counted(m, 'item')}" for n, m in ((file.slots, file.items), sizes.of_index)
    )
    text = f"it has {own}, but a broker with these options assumes {taken}"
    if file.slots == slots.value and file.header.index_count <= items.value:
        add(context, "I-090", file, f"{text} and still writes into it", severity=Severity.WARNING)
    else:
        add(context, "I-090", file, f"{text} and finds no key in it")


@before("I-092", "I-103", "I-104")
def headers(context: VerifyContext) -> None:
    if context.scope.topic is not None:
        return
    files = index_files(context)
    for file in files:
        header = file.header
        if not 1 <= header.index_count <= file.items:
            fresh = file is files[-1] and _is_new(context, file)
            items = counted(header.index_count, "item")
            text = f"its header counts {items}, it has room for {file.items}"
            text += ": it is new and has no item yet" if fresh else ""
            header_only(context, "I-092", file, text, severity=Severity.INFO if fresh else None)
        for name in ("timestamp", "physical_offset"):
            begin, end = getattr(header, f"begin_{name}"), getattr(header, f"end_{name}")
            if begin > end:
                text = f"begin_{name} {begin} is greater than end_{name} {end}"
                back = name == "timestamp" and _clock_went_back(context, file)
                text += ": the clock was set back between its messages" if back else ""
                severity = Severity.INFO if back else None
                header_only(context, "I-092", file, text, severity=severity)
    for file in files[:-1]:
        if not file.full:
            count = file.header.index_count
            text = f"it has room ({count} of {file.items}), but a newer file follows"
            header_only(context, "I-103", file, text)
    for older, newer in pairwise(files):
        if newer is files[-1] and _is_new(context, newer):
            continue
        again = newer.header.begin_physical_offset < older.header.end_physical_offset
        for name in ("timestamp", "physical_offset"):
            end = getattr(older.header, f"end_{name}")
            begin = getattr(newer.header, f"begin_{name}")
            if begin < end:
                text = f"begin_{name} {begin} is less than end_{name} {end} of the file before it"
                back = not again and all(_clock_went_back(context, file) for file in (older, newer))
                text += ": the clock was set back between their messages" if back else ""
                header_only(context, "I-104", newer, text, severity=Severity.INFO if back else None)


def _is_new(context: VerifyContext, file: IndexFile) -> bool:
    """Return whether a file has no item yet: a writer adds the first item a moment after it makes the file."""
    return file.header.index_count == 0 and (context.live or not any(file.item(1)))


def _clock_went_back(context: VerifyContext, file: IndexFile) -> bool:
    """Return whether the first and the last message of the file were stored at the times in its header."""
    try:
        return times_match_records(file.header, context.store.log)
    except StoreError:
        return False  # the pass over the log reports it


@before("I-107")
def unused_items(context: VerifyContext) -> None:
    if context.scope.quick or context.scope.topic is not None or context.live:
        return
    for file in index_files(context):
        with suppress(Missing), MappedFileQueue.of_file(file.path, 0) as files:  # it may expire while it is read
            at = files.first_data(files.files[0], file_size(file.slots, max(1, file.last + 1)))
            if at is not None:
                add(context, "I-107", file, "bytes behind its last item are not zero", offset=at)


@after("I-105")
def index_end(context: VerifyContext) -> None:
    """An index that reaches beyond the log takes no message until the log is as long (B30)."""
    files = index_files(context)
    if context.scope.topic is not None or context.live or not context.log.complete or not files:
        return
    for file in files:
        end = file.header.end_physical_offset
        if end >= context.log.end:
            text = f"it ends with the record at {end}, but the log ends at {context.log.end}"
            text += context.again or ": new messages up to there are not indexed (B30)"
            header_only(context, "I-105", file, text, severity=context.behind_the_end.get("severity"))


_SHARED = -1
"""Temporary mark of slots that have several items of a window."""
_REPORTED_APART = 4096
"""If a window has more wrong links, they are not reported one by one."""
_WALKED = 1000
"""Number of items to follow in search of a loop in a chain."""


@before("I-093", "I-094", "I-095", "I-096", "I-097", "I-098")
def chains(context: VerifyContext) -> None:
    if context.scope.quick or context.scope.topic is not None:
        return
    for file in index_files(context):
        with suppress(Missing):  # it may expire while it is read
            if file.slots > 0:
                _Chains(context, file).run()


class _Chains:
    """The chains of one file. _newest: number of the newest item so far by slot, int32[slots]."""

    def __init__(self, context: VerifyContext, file: IndexFile) -> None:
        self._context = context
        self._file = file
        self._newest = np.zeros(file.slots, np.int32)
        self._position = file.header.begin_physical_offset
        self._settled = not context.live

    def run(self) -> None:
        for first, items in self._file.columns():
            self._check_window(first, items)
        if self._settled:
            self._check_slots()

    def _check_window(self, first: int, items: Structs) -> None:
        hashes = items["key_hash"].astype(np.int32)
        previous = items["previous"].astype(np.int32)
        follow = 0
        if kernel.is_wanted(len(items)):
            arrays = hashes, previous, self._newest
            follow = kernel.run(kernel.Operation.LINK, arrays, (first,))
        if follow < len(items):
            self._check_links(first + follow, hashes[follow:], previous[follow:])
        self._check_positions(first, items["physical_offset"].astype(np.int64))

    def _check_links(self, first: int, hashes: npt.NDArray[np.int32], previous: npt.NDArray[np.int32]) -> None:
        """Check the links of items, from the first that may be wrong on."""
        numbers = np.arange(first, first + len(hashes), dtype=np.int64)
        good = hashes >= 0
        if good.all():
            slots = hashes.astype(np.int64) % self._file.slots
            expected = links_of(self._newest, numbers, slots)
        else:
            self._report("I-095", numbers, ~good, lambda row: f"its hash {hashes[row]} is negative")
            slots, expected = np.zeros(len(hashes), np.int64), np.zeros(len(hashes), np.int32)
            slots[good] = hashes[good].astype(np.int64) % self._file.slots
            expected[good] = links_of(self._newest, numbers[good], slots[good])
        wrong = previous != expected
        wrong &= good
        if wrong.any():
            links = previous[wrong].astype(np.int64)
            self._report_links(numbers[wrong], slots[wrong], links, expected[wrong].astype(np.int64))

    def _report_links(self, numbers: Ints, slots: Ints, previous: Ints, expected: Ints) -> None:
        """Report items whose `previous` is not the item before them in their slot."""
        impossible = cannot_follow(numbers, previous)
        if len(numbers) > _REPORTED_APART:
            self._report("I-096", numbers, impossible, lambda _: "its link does not lead to an older item")
            self._report("I-097", numbers, ~impossible, lambda _: "its chain skips items")
            return
        for row in np.flatnonzero(impossible).tolist():
            self._report_not_older(int(numbers[row]), int(previous[row]))
        rows = np.flatnonzero(~impossible)
        other = (previous[rows] > 0) & (self._slots_of(previous[rows]) != slots[rows])
        for row in rows[other].tolist():
            text = f"its link leads to item {previous[row]} of another slot"
            self._add("I-095", int(numbers[row]), text)
        for row in np.flatnonzero(expected > 0).tolist():
            text = f"it is in no chain: the link of item {numbers[row]} skips it"
            self._add("I-097", int(expected[row]), text)

    def _report_not_older(self, number: int, link: int) -> None:
        if self._is_loop(number, link):
            text = f"its chain is a loop through item {link}: a query never ends (B17)"
            self._add("I-096", number, text, severity=Severity.FATAL)
        else:
            self._add("I-096", number, f"its link leads to item {link}, which is not older")

    def _is_loop(self, number: int, link: int) -> bool:
        """Return whether a chain of at least two items comes back to `number`."""
        if link == number:
            return False
        for _ in range(_WALKED):
            if not 0 < link <= self._file.last:
                return False
            link = self._file.item(link).previous
            if link == number:
                return True
        return False

    def _slots_of(self, numbers: Ints) -> Ints:
        """Return the slots of a few items, int64[n], read one by one; -1 for a negative hash."""
        found = [self._file.item(number).key_hash for number in numbers.tolist()]
        hashes = np.array(found, np.int64)
        return np.where(hashes >= 0, hashes % self._file.slots, -1)

    def _check_positions(self, first: int, positions: Ints) -> None:
        """Check that the records of items lie in the range of the header, in increasing order."""
        header = self._file.header
        begin, end = header.begin_physical_offset, header.end_physical_offset
        before = np.empty_like(positions)
        before[0], before[1:] = self._position, positions[:-1]
        outside = is_outside(positions, header) if self._settled else positions < begin
        back = positions < before

        def message(row: int) -> str:
            if outside[row]:
                return f"its record {positions[row]} is outside {begin} … {end}"
            return f"its record {positions[row]} lies before {before[row]}, the record of the item before it"

        wrong = outside | back
        if wrong.any():
            numbers = np.arange(first, first + len(positions), dtype=np.int64)
            self._report("I-098", numbers, wrong, message)
        self._position = int(positions[-1])

    def _check_slots(self) -> None:
        file, count = self._file, self._file.header.index_count
        used = 0
        for first, items in file.slot_columns():
            used += int(np.count_nonzero(items))
            newest = self._newest[first : first + len(items)]
            for row in np.flatnonzero(items != newest)[:_REPORTED_APART].tolist():
                self._report_slot(first + row, int(items[row]), int(newest[row]), count)
        stored = file.header.hash_slot_count
        if stored not in (used, file.last):  # up to 4.7.0 a broker counts puts
            text = f"its header counts {counted(stored, 'slot')} in use, not {used}"
            header_only(self._context, "I-093", file, text)

    def _report_slot(self, slot: int, item: int, newest: int, count: int) -> None:
        """Report a slot that does not name its newest item."""
        at = slots_offset() + slot * SLOT_BYTES
        file = self._file

        def report(code: str, text: str, **more: Any) -> None:
            text = f"slot {slot}: {text}"
            add(self._context, code, file, text, offset=at, length=SLOT_BYTES, **more)

        if item == count and self._context.crashed:
            text = f"it names item {item}, which the broker was writing when it died"
            report("I-094", text, severity=Severity.INFO, unclean=True)
            return
        if not 0 <= item < count:
            report("I-094", f"it names item {item}, but the next new item is {count}")
        elif item and file.item(item).key_hash % file.slots != slot:
            report("I-095", f"it names item {item}, which is of another slot")
        if newest and item != newest:
            text = f"it is in no chain: slot {slot} names item {item}"
            self._add("I-097", newest, text)

    def _report(self, code: str, numbers: Ints, wrong: Flags, message: Callable[[int], str]) -> None:
        rows = np.flatnonzero(wrong)
        for begin, end in runs(rows):
            first = int(rows[begin])
            self._add(code, int(numbers[first]), message(first), end - begin)

    def _add(self, code: str, number: int, text: str, count: int = 1, **more: Any) -> None:
        add_items(self._context, code, self._file, number, text, count, **more)


def links_of(newest: npt.NDArray[np.int32], numbers: Ints, slots: Ints) -> npt.NDArray[np.int32]:
    """Return the number of the item before each item in its slot, int32[n], 0 without one; update `newest`, by slot.

    Few items of a window share a slot: only those are sorted.
    """
    own = numbers.astype(np.int32)
    expected = newest[slots]
    newest[slots] = own  # numpy assigns in order: the last one of a slot stays
    older = np.flatnonzero(newest[slots] != own)
    if not len(older):
        return expected
    shared = slots[older]
    last = newest[shared]
    newest[shared] = _SHARED
    rows = np.flatnonzero(newest[slots] == _SHARED)
    newest[shared] = last
    rows = rows[np.argsort(slots[rows], kind="stable")]
    follows = np.flatnonzero(slots[rows[1:]] == slots[rows[:-1]])
    expected[rows[follows + 1]] = own[rows[follows]]
    return expected
