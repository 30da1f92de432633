"""Slots and chains of an index file (I-093 … I-098).

A broker links each item to the one before it in its slot, and the slot to the newest. So the
chains of a sound file follow from the hashes of its items alone: they are made again, window by
window, and compared as columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats.index_file import ITEM_BYTES, SLOT_BYTES, items_offset, slots_offset
from ..counted import counted
from ..errors import Missing
from ..findings.catalogue import Severity
from ..findings.findings import Flags
from ..index.files import IndexFile, cannot_follow, is_outside
from .context import Scene
from .index_files import add, header_only, index_files
from .register import before

Ints = npt.NDArray[np.int64]
_LARGEST_HASH = (1 << 31) - 1
_SHARED = -1
"""Stands for a moment where several items of a window have one slot."""
_TOLD_APART = 4096
"""More wrong links in one window are not told one by one."""
_WALKED = 1000
"""Items that are followed to see whether a chain comes back to where it was."""


@before("I-093", "I-094", "I-095", "I-096", "I-097", "I-098")
def chains(scene: Scene) -> None:
    """Each item is in the chain of its slot, once, behind all older ones of it."""
    if scene.scope.quick or scene.scope.topic is not None:
        return
    for file in index_files(scene):
        if file.slots <= 0:
            continue
        try:
            _Chains(scene, file).run()
        except Missing:
            continue  # expired while it was read


class _Chains:
    """One file. newest: number of the newest item so far by slot, int32[slots]."""

    def __init__(self, scene: Scene, file: IndexFile) -> None:
        self._scene = scene
        self._file = file
        self._newest = np.zeros(file.slots, np.int32)
        self._position = file.header.begin_physical_offset
        self._settled = not scene.live

    def run(self) -> None:
        """Look at all items, then at all slots."""
        for first, items in self._file.columns():
            self._window(first, items)
        if self._settled:
            self._slots()

    def _window(self, first: int, items: npt.NDArray[np.void]) -> None:
        numbers = np.arange(first, first + len(items), dtype=np.int64)
        hashes = items["key_hash"].astype(np.int32)
        previous = items["previous"].astype(np.int32)
        good = hashes >= 0
        if good.all():
            slots = _remainder(hashes, self._file.slots)
            expected = self._expected(numbers, slots)
        else:
            self._report("I-095", numbers, ~good, lambda row: f"its hash {hashes[row]} is negative")
            slots, expected = np.zeros(len(items), np.int64), np.zeros(len(items), np.int32)
            slots[good] = _remainder(hashes[good], self._file.slots)
            expected[good] = self._expected(numbers[good], slots[good])
        wrong = previous != expected
        wrong &= good
        if wrong.any():
            links = previous[wrong].astype(np.int64)
            self._links(numbers[wrong], slots[wrong], links, expected[wrong].astype(np.int64))
        self._positions(numbers, items["physical_offset"].astype(np.int64))

    def _expected(self, numbers: Ints, slots: Ints) -> npt.NDArray[np.int32]:
        """int32[n]: the item before each one in its slot, 0 without one.

        Few items of a window share a slot: those alone are put in order.
        """
        newest, own = self._newest, numbers.astype(np.int32)
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

    def _links(self, numbers: Ints, slots: Ints, previous: Ints, expected: Ints) -> None:
        """Items whose `previous` is not the item before them in their slot."""
        impossible = cannot_follow(numbers, previous)
        if len(numbers) > _TOLD_APART:
            self._all_wrong(numbers, impossible)
            return
        for row in np.flatnonzero(impossible).tolist():
            self._no_way_back(int(numbers[row]), int(previous[row]))
        rows = np.flatnonzero(~impossible)
        other = (previous[rows] > 0) & (self._slots_of(previous[rows]) != slots[rows])
        for row in rows[other].tolist():
            text = f"its chain goes on with item {previous[row]} of another slot"
            self._add("I-095", int(numbers[row]), text)
        for row in np.flatnonzero(expected > 0).tolist():
            text = f"it is in no chain: item {numbers[row]} passes over it"
            self._add("I-097", int(expected[row]), text)

    def _all_wrong(self, numbers: Ints, impossible: Flags) -> None:
        """Nearly all links of a window are wrong: one is as good as the other."""
        self._report("I-096", numbers, impossible, lambda _: "its chain goes on with none older")
        self._report("I-097", numbers, ~impossible, lambda _: "its chain passes over items")

    def _no_way_back(self, number: int, link: int) -> None:
        text = f"its chain goes on with item {link}, which is not older"
        severity = None
        if self._is_loop(number, link):
            text = f"its chain goes round through item {link}: a query never ends (B17)"
            severity = Severity.FATAL
        self._add("I-096", number, text, severity)

    def _is_loop(self, number: int, link: int) -> bool:
        """A chain of at least two items comes back to `number`."""
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
        """int64[n]: slots of items, read one by one: they are few; -1 of a negative hash."""
        found = [self._file.item(number).key_hash for number in numbers.tolist()]
        hashes = np.array(found, np.int64)
        return np.where(hashes >= 0, hashes % self._file.slots, -1)

    def _positions(self, numbers: Ints, positions: Ints) -> None:
        """Records of items lie in the header's range and do not go back."""
        header = self._file.header
        begin, end = header.begin_physical_offset, header.end_physical_offset
        before = np.empty_like(positions)
        before[0], before[1:] = self._position, positions[:-1]
        outside = is_outside(positions, header) if self._settled else positions < begin
        back = positions < before

        def told(row: int) -> str:
            if outside[row]:
                return f"its record {positions[row]} is outside of {begin} … {end}"
            return f"its record {positions[row]} lies before {before[row]} of the item before it"

        self._report("I-098", numbers, outside | back, told)
        self._position = int(positions[-1])

    def _slots(self) -> None:
        """Each slot names the newest item of it."""
        file, count = self._file, self._file.header.index_count
        used = 0
        for first, items in file.slot_columns():
            used += int((items != 0).sum())
            newest = self._newest[first : first + len(items)]
            for row in np.flatnonzero(items != newest)[:_TOLD_APART].tolist():
                self._slot(first + row, int(items[row]), int(newest[row]), count)
        told = file.header.hash_slot_count
        if told not in (used, file.last):  # up to 4.7.0 a broker counts puts
            text = f"its header counts {counted(told, 'slot')} in use, not {used}"
            header_only(self._scene, "I-093", file, text)

    def _slot(self, slot: int, item: int, newest: int, count: int) -> None:
        """A slot that names another item than its newest."""
        at = slots_offset() + slot * SLOT_BYTES
        file = self._file

        def tell(code: str, text: str, **more: Any) -> None:
            text = f"slot {slot}: {text}"
            add(self._scene, code, file, text, offset=at, length=SLOT_BYTES, **more)

        if item == count and self._scene.crashed:
            text = f"it names item {item}, which was being put when the broker died"
            tell("I-094", text, severity=Severity.INFO, unclean=True)
            return
        if not 0 <= item < count:
            tell("I-094", f"it names item {item}, the next new one is {count}")
        elif item and file.item(item).key_hash % file.slots != slot:
            tell("I-095", f"it names item {item}, which is of another slot")
        if newest and item != newest:
            text = f"it is in no chain: slot {slot} names item {item}"
            self._add("I-097", newest, text)

    def _report(
        self, code: str, numbers: Ints, wrong: Flags, message: Callable[[int], str]
    ) -> None:
        """Findings about items in a row."""
        if not wrong.any():
            return
        starts = items_offset(self._file.slots) + numbers * ITEM_BYTES
        name = self._file.path.rpartition("/")[2]
        self._scene.findings.add_rows(
            code,
            self._file.path,
            wrong,
            starts,
            starts + ITEM_BYTES,
            lambda row: f"index file {name}: item {numbers[row]}: {message(row)}",
        )

    def _add(self, code: str, number: int, text: str, severity: Severity | None = None) -> None:
        more: dict[str, Any] = {} if severity is None else {"severity": severity}
        at = items_offset(self._file.slots) + number * ITEM_BYTES
        text = f"item {number}: {text}"
        add(self._scene, code, self._file, text, offset=at, length=ITEM_BYTES, **more)


def _remainder(hashes: npt.NDArray[np.int32], slots: int) -> Ints:
    """int64[n]: hashes, none of them negative, modulo slots. numpy is quicker at quotients."""
    if slots > _LARGEST_HASH:
        return hashes.astype(np.int64)
    quotient = hashes // np.int32(slots)
    return (hashes - quotient * np.int32(slots)).astype(np.int64)
