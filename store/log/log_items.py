"""One item of a log file at a time: what stands at a byte, where the next good record is.

The careful half of a scan, for the places where a chain of records stops. No length is trusted:
what a size asks for is read only if the fields beside it say the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from ...formats.commit_log import HEAD_BYTES, POSITION_BYTES, Frame
from ...formats.derive import decode
from ...formats.derive.ragged import Bytes, Ints
from ...formats.message import BYTES_AROUND_BODY_MAX, MESSAGE
from ..counted import counted
from ..disk.byte_reader import Unread, noted_of
from ..disk.file_queue import MappedFile
from .batch import Batch, Extent, ExtentKind
from .record_status import Mark
from .window import Window, check, find_item, number_at, walk

if TYPE_CHECKING:
    from .commit_log import CommitLog

#: The largest window.
WINDOW_BYTES = 8 << 20
#: The first window behind a break, and what is read to judge a chain.
NARROW_BYTES = 1 << 16
#: How much larger the next window is.
WIDEN = 4
#: What is read to look at the head of an item.
PEEK_BYTES = 4096
#: An item up to this size is read whatever its lengths say.
SMALL_BYTES = 1 << 20
#: Records that are looked at to judge a chain.
SAMPLE = 64


class Fault(StrEnum):
    """Why no item stands somewhere."""

    NO_ROOM = "no room"
    NO_MAGIC = "no magic code"
    BAD_SIZE = "impossible size"
    UNEVEN = "uneven"


class LogItems:
    """Items of one file of the log; `frame` tells how they are chained."""

    def __init__(self, log: CommitLog, file: MappedFile) -> None:
        self._log = log
        self._file = file
        self.frame: Frame = log.frame_of(file)

    def peek(self, at: int, size: int = PEEK_BYTES) -> Window:
        """Up to `size` bytes from byte `at` in a buffer of their own."""
        data = bytearray(max(0, min(size, self._file.size - at)))
        got, unread = self._log.queue.read_around(self._file, at, memoryview(data))
        return Window(data, got, self._file.start + at, places_in(unread, at))

    def unread_in(self, at: int, end: int) -> list[Unread]:
        """Ranges of bytes [at, end) that were met and that cannot be read."""
        return [u for u in noted_of(self._file.path) if u.offset < end and u.end > at]

    def size(self, at: int) -> int | None:
        """Size of the item at byte `at`; None if its head is that of none."""
        head = self.peek(at, HEAD_BYTES)
        if head.size < HEAD_BYTES:
            return None
        if number_at(head, self.frame.magic_offset) not in self.frame.magics:
            return None
        size = number_at(head, self.frame.size_offset)
        if not self.frame.smallest <= size <= self._file.size - at:
            return None
        return size if size <= SMALL_BYTES or self._has_body(at, size) else None

    def _has_body(self, at: int, size: int) -> bool:
        return has_body(self.peek(at).array[self.frame.payload :], size - self.frame.payload)

    def find(self, at: int, end: int) -> int | None:
        """First byte in [at, end) where an item names its own position. Reads all of it."""
        found = find_item(self.peek(at, end - at + PEEK_BYTES), self.frame, 0, end - at)
        return None if found is None else at + found

    def in_place(self, at: int) -> bool:
        """An item of this log begins at byte `at`: it names its own position."""
        return self.find(at, at + 1) is not None

    def records(self, at: int, mark: Mark, count: int = 1) -> Batch | None:
        """Up to `count` whole records of the chain at byte `at`, in a buffer of their own."""
        size = self.size(at)
        if size is None:
            return None
        window = self.peek(at, max(size, NARROW_BYTES if count > 1 else 0))
        starts, _ = walk(window, self.frame)
        checked = check(window, self.frame, starts[:count])
        checked = checked.take(slice(0, int(checked.whole.sum())))
        if not len(checked):
            return None
        return Batch(checked.columns, checked.position, mark, checked.body_crc_ok)

    def blank(self, at: int) -> Extent | None:
        """The BLANK at byte `at`; the reason says what is wrong with its size."""
        head = self.peek(at, HEAD_BYTES)
        if head.size < HEAD_BYTES:
            return None
        if number_at(head, self.frame.magic_offset) != self.frame.blank_magic:
            return None
        size = number_at(head, self.frame.blank_size_offset)
        rest = self._file.size - at
        whole = max(rest, self._log.queue.file_size - at)
        reason = "" if size in (rest, whole) else f"its size is {size}, not {rest}"
        return Extent(ExtentKind.BLANK, self._file.start + at, rest, reason)

    def has_room(self, at: int) -> bool:
        """A whole record could stand behind a BLANK at byte `at`."""
        needed = HEAD_BYTES + self.frame.smallest + self.frame.spare
        return self._file.size - at >= needed

    def claimed_end(self, at: int) -> int | None:
        """Where the broken item at byte `at` ends, as far as it can be told.

        Its size or its lengths lead to another item or a BLANK; else, if its head is good, it
        reaches to the end of its body at least. What stands before is inside it.
        """
        head = self.peek(at)
        if head.size < self.frame.smallest:
            return None
        rest = self._file.size - at
        body = body_length(head.array[self.frame.payload :])
        fits = 0 <= body <= min(rest, WINDOW_BYTES)
        lengths = self._by_lengths(at, body + BYTES_AROUND_BODY_MAX) if fits else 0
        for size in (number_at(head, self.frame.size_offset), lengths):
            if self.frame.smallest <= size <= rest:
                end = at + size
                if self.in_place(end) or self.blank(end) is not None:
                    return end
        own_size = self.size(at)
        if own_size is None or not self._has_body(at, own_size) or not self.in_place(at):
            return None
        return at + self.frame.payload + body

    def _by_lengths(self, at: int, bound: int) -> int:
        """Size of the item by the lengths in it, 0 if they do not fit."""
        window = self.peek(at, self.frame.payload + bound)
        columns = decode(MESSAGE, window.array, _first(self.frame.payload))
        return int(columns.ends[0]) if columns.ok[0] else 0

    def chain_end(self, at: int, enough: int) -> int:
        """Byte where the chain from byte `at` on stops, or the first from `enough` on."""
        while at < enough:
            batch = self.records(at, Mark.AFTER_DAMAGE, SAMPLE)
            if batch is None:
                break
            at = batch.end - self._file.start
        return at

    def search(self, at: int) -> int | None:
        """Byte of the next good record that names its own position, None if there is none."""
        overlap = self.frame.position_offset + self.frame.payload + POSITION_BYTES
        reach = NARROW_BYTES
        while at + self.frame.smallest <= self._file.size:
            data = self._log.queue.next_data(self._file, at)
            if data is None:
                return None
            at = max(at, data - overlap)
            window = self.peek(at, reach)
            found = find_item(window, self.frame, 0, window.size)
            while found is not None:
                if self._is_good(at + found):
                    return at + found
                found = find_item(window, self.frame, found + 1, window.size)
            if window.size < reach:
                return None
            at += window.size - overlap
            reach = min(WINDOW_BYTES, reach * WIDEN)
        return None

    def _is_good(self, at: int) -> bool:
        """The record is whole and its body fits, or the chain goes on with another in place."""
        batch = self.records(at, Mark.AFTER_DAMAGE)
        if batch is None or batch.body_crc_ok is None:
            return False
        return bool(batch.body_crc_ok[0]) or self.in_place(batch.end - self._file.start)

    def is_zero(self, at: int, end: int) -> bool:
        """Bytes [at, end) are all zero; holes are not read."""
        reach = NARROW_BYTES
        while at < end:
            data = self._log.queue.next_data(self._file, at)
            if data is None or data >= end:
                return True
            window = self.peek(data, min(reach, end - data))
            if window.unread or window.array.any():
                return False
            at = data + max(1, window.size)
            reach = min(WINDOW_BYTES, reach * WIDEN)
        return True

    def fault(self, at: int) -> Fault:
        """Why no record stands at byte `at`."""
        return self._fault(at, self.peek(at))

    def _fault(self, at: int, window: Window) -> Fault:
        if window.size < self.frame.smallest:
            return Fault.NO_ROOM
        if number_at(window, self.frame.magic_offset) not in self.frame.magics:
            return Fault.NO_MAGIC
        size = number_at(window, self.frame.size_offset)
        fits = self.frame.smallest <= size <= self._file.size - at
        return Fault.UNEVEN if fits else Fault.BAD_SIZE

    def reason(self, at: int) -> str:
        """The same in words."""
        window = self.peek(at)
        fault = self._fault(at, window)
        if fault is Fault.NO_ROOM:
            left = counted(window.size, "byte is left", "bytes are left")
            return f"{left}: the file does not end with a BLANK"
        if fault is Fault.NO_MAGIC:
            return f"no magic code: {number_at(window, self.frame.magic_offset):08x}"
        size = number_at(window, self.frame.size_offset)
        if fault is Fault.BAD_SIZE:
            return f"impossible size {size - (size >> 31 << 32)}"  # the field has a sign
        return f"the fields do not add up to the size {size}"


def places_in(unread: Iterable[Unread], at: int) -> tuple[tuple[int, int], ...]:
    """Unreadable ranges of a file in the window that begins at its byte `at`."""
    return tuple((each.offset - at, each.end - at) for each in unread)


def has_body(head: Bytes, size: int) -> bool:
    """The body explains the size of the record that begins with `head`.

    Nobody reads 1 GiB for a flipped bit. `head`: PEEK_BYTES, or the whole record.
    """
    return 0 <= size - body_length(head) <= BYTES_AROUND_BODY_MAX


def body_length(head: Bytes) -> int:
    """What a record that begins with `head` says of its body."""
    return int(decode(MESSAGE, head, _first(0)).ints("body_length")[0])


def _first(at: int) -> Ints:
    return np.array([at], np.int64)
