"""One pass over the commit log: chains of records, and what lies where a chain stops.

`CommitLog.scan` is the way in.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..formats.commit_log import HEAD_BYTES, Frame
from .batch import Batch, Extent, ExtentKind
from .mapped_file_queue import MappedFile
from .mark import Mark
from .recent import Recent
from .scan import Checked, Window, check, find_item, number_at, walk

if TYPE_CHECKING:
    from .commit_log import CommitLog

WINDOW_BYTES = 8 << 20
#: What is read to look at one record; more only where its size asks for it.
_PEEK_BYTES = 4096
#: Records that are looked at to judge a chain.
_SAMPLE = 64


class LogScan:
    """One pass over the log: state between files and chains."""

    def __init__(self, log: CommitLog, start: int | None, stop: int | None, crc: bool) -> None:
        self._log = log
        self._start = log.min_offset if start is None else start
        self._stop = log.max_file_end if stop is None else stop
        self._crc = crc
        self._buffer = bytearray(0)
        self._mark = Mark.NONE
        self._recent = Recent()

    def run(self) -> Iterator[Batch | Extent]:
        files = [f for f in self._log.files if f.end > self._start and f.start < self._stop]
        previous: MappedFile | None = None
        for number, file in enumerate(files):
            if previous is not None and previous.end < file.start:
                size = file.start - previous.end
                yield Extent(ExtentKind.MISSING, previous.end, size, "no file holds this range")
                self._mark = max(self._mark, Mark.AFTER_DAMAGE)
            previous = file
            yield from self._file(file, max(0, self._start - file.start), files[number + 1 :])

    def _file(self, file: MappedFile, at: int, later: list[MappedFile]) -> Iterator[Batch | Extent]:
        """One file from byte `at` on."""
        while at < file.size and file.start + at < self._stop:
            at = yield from self._chain(file, at)
            if at >= file.size or file.start + at >= self._stop:
                break
            blank = self._blank(file, at)
            if blank is not None:
                yield blank
                found = self._search(file, at + HEAD_BYTES) if self._roomy(file, at) else None
                if found is None:
                    break
                reason = "records stand behind a BLANK"
                yield Extent(ExtentKind.DAMAGE, blank.position, found - at, reason)
                self._begin_chain(file, found)
                at = found
                continue
            at = yield from self._broken(file, at, later)

    def _broken(
        self, file: MappedFile, at: int, later: list[MappedFile]
    ) -> Generator[Batch | Extent, None, int]:
        """The chain stops at byte `at`: tell why; returns where it goes on."""
        stale = yield from self._earlier_life(file, at)
        if stale > at:
            return stale
        boundary = self._boundary(file, at)
        found = self._search(file, at + 1)
        while found is not None and boundary is not None and found < boundary:
            landed = self._landing(file, found)
            if landed >= boundary:
                break
            inner = self._one(file, found, Mark.EMBEDDED)
            if inner is not None:
                yield inner
            found = self._search(file, max(landed, found + 1))
        end = file.size if found is None else found
        at_end = found is None and not any(self._any_record(other) for other in later)
        yield self._extent(file, at, end, at_end)
        if found is None:
            if not at_end:
                self._mark = max(self._mark, Mark.AFTER_DAMAGE)
            return file.size
        self._begin_chain(file, found)
        return found

    # -- chains ---------------------------------------------------------------------------------

    def _chain(self, file: MappedFile, at: int) -> Generator[Batch | Extent, None, int]:
        """Batches of the chain from byte `at` on; returns the byte where it stops."""
        frame = self._log.frame_of(file)
        wanted = WINDOW_BYTES
        while at + frame.smallest <= file.size and file.start + at < self._stop:
            window = self._window(file, at, wanted)
            starts, _ = walk(window, frame)
            checked = check(window, frame, starts, crc=self._crc)
            good = _chained(checked)
            if good:
                batch = self._batch(checked.take(slice(0, good)))
                if len(batch):
                    yield batch
                at += int(starts[good - 1]) + number_at(
                    window, int(starts[good - 1]) + frame.size_offset
                )
                wanted = WINDOW_BYTES
            if good < len(checked) and not 0 < good == len(checked) - 1:
                break  # the last of a window is looked at again, with what follows it
            size = self._size_at(file, at, frame)
            if size is None:
                break
            if at + size > window.position - file.start + window.size:
                wanted = max(WINDOW_BYTES, size)
        return at

    def _batch(self, checked: Checked) -> Batch:
        batch = Batch(checked.columns, checked.position, self._mark, checked.body_crc_ok)
        if self._mark <= Mark.AFTER_DAMAGE and len(batch):
            self._recent.note(batch.position, batch.columns)
        if len(batch) and int(batch.position[-1]) >= self._stop:
            batch = batch.take(batch.position < self._stop)
        return batch

    def _begin_chain(self, file: MappedFile, at: int) -> None:
        """Good records go on at byte `at` behind something else: of this log, or dead?"""
        self._mark = Mark.AFTER_DAMAGE
        batch = self._one(file, at, Mark.AFTER_DAMAGE, count=_SAMPLE)
        if batch is not None and self._recent.is_dead(batch.columns, self._log):
            self._mark = Mark.DEAD_TAIL

    def _one(self, file: MappedFile, at: int, mark: Mark, count: int = 1) -> Batch | None:
        """Up to `count` records of the chain at byte `at`, in a buffer of their own."""
        frame = self._log.frame_of(file)
        size = self._size_at(file, at, frame)
        if size is None:
            return None
        window = self._small_window(file, at, max(size, _PEEK_BYTES * 16 if count > 1 else 0))
        starts, _ = walk(window, frame)
        if not len(starts):
            return None
        checked = check(window, frame, starts[:count])
        checked = checked.take(slice(0, int(checked.whole.sum())))
        if not len(checked):
            return None
        return Batch(checked.columns, checked.position, mark, checked.body_crc_ok)

    def _earlier_life(self, file: MappedFile, at: int) -> Generator[Batch | Extent, None, int]:
        """Whole records from byte `at` on that name other positions; returns the byte behind."""
        frame = self._log.frame_of(file)
        while True:
            window = self._window(file, at, WINDOW_BYTES)
            starts, _ = walk(window, frame)
            checked = check(window, frame, starts, crc=True)
            stale = checked.whole & ~checked.in_place
            if checked.body_crc_ok is not None:
                stale &= checked.body_crc_ok
            count = len(stale) if stale.all() else int(np.argmin(stale))
            if not count:
                return at
            part = checked.take(slice(0, count))
            yield Batch(part.columns, part.position, Mark.EARLIER_LIFE, part.body_crc_ok)
            last = int(starts[count - 1])
            at += last + number_at(window, last + frame.size_offset)
            if count < len(starts):
                return at

    # -- what is not a record -------------------------------------------------------------------

    def _blank(self, file: MappedFile, at: int) -> Extent | None:
        frame = self._log.frame_of(file)
        head = self._log.queue.read_file(file, at, HEAD_BYTES)
        if len(head) < HEAD_BYTES:
            return None
        magic = int.from_bytes(head[frame.magic_offset : frame.magic_offset + 4], "big")
        if magic != frame.blank_magic:
            return None
        size = int.from_bytes(
            head[frame.blank_size_offset : frame.blank_size_offset + 4], "big", signed=True
        )
        rest = file.size - at
        whole = max(rest, self._log.queue.file_size - at)
        reason = "" if size in (rest, whole) else f"its size is {size}, not {rest}"
        return Extent(ExtentKind.BLANK, file.start + at, rest, reason)

    def _roomy(self, file: MappedFile, at: int) -> bool:
        """A whole record could stand behind a BLANK at byte `at`."""
        frame = self._log.frame_of(file)
        return file.size - at >= HEAD_BYTES + frame.smallest + frame.spare

    def _extent(self, file: MappedFile, at: int, end: int, at_end: bool) -> Extent:
        """Name what lies in bytes [at, end); `at_end`: nothing good follows anywhere."""
        position, size = file.start + at, end - at
        if self._is_zero(file, at, end):
            if at_end:
                return Extent(ExtentKind.ZEROS, position, size, "zeros: never written")
            return Extent(ExtentKind.DAMAGE, position, size, "zeros")
        reason = self._reason(file, at)
        if not at_end:
            return Extent(ExtentKind.DAMAGE, position, size, reason)
        if self._own(file, at):
            return Extent(ExtentKind.TORN_TAIL, position, size, reason)
        return Extent(ExtentKind.STALE_BYTES, position, size, reason)

    def _own(self, file: MappedFile, at: int) -> bool:
        """A record of this log begins at byte `at`: it names its own position."""
        frame = self._log.frame_of(file)
        window = self._small_window(file, at, _PEEK_BYTES)
        return find_item(window, frame, 0, 1) == 0

    def _reason(self, file: MappedFile, at: int) -> str:
        frame = self._log.frame_of(file)
        window = self._small_window(file, at, _PEEK_BYTES)
        if window.size < frame.smallest:
            return f"{window.size} bytes are left: the file does not end with a BLANK"
        magic = number_at(window, frame.magic_offset)
        if magic not in frame.magics:
            return f"no magic code: {magic:08x}"
        size = number_at(window, frame.size_offset)
        if size < frame.smallest or size > file.size - at:
            return f"impossible size {size}"
        return f"the fields do not add up to the size {size}"

    def _is_zero(self, file: MappedFile, at: int, end: int) -> bool:
        while at < end:
            data = self._log.queue.next_data(file, at)
            if data is None or data >= end:
                return True
            at = data
            window = self._window(file, at, min(WINDOW_BYTES, end - at))
            if window.array.any():
                return False
            at += max(1, window.size)
        return True

    def _any_record(self, file: MappedFile) -> bool:
        return self._search(file, 0) is not None

    # -- finding records ------------------------------------------------------------------------

    def _search(self, file: MappedFile, at: int) -> int | None:
        """Byte of the next good record that names its own position, None if there is none."""
        frame = self._log.frame_of(file)
        overlap = frame.position_offset + 8
        while at + frame.smallest <= file.size:
            data = self._log.queue.next_data(file, at)
            if data is None:
                return None
            at = max(at, data - overlap)
            window = self._window(file, at, WINDOW_BYTES)
            found = find_item(window, frame, 0, window.size)
            while found is not None:
                if self._acceptable(file, at + found):
                    return at + found
                found = find_item(window, frame, found + 1, window.size)
            if window.size < WINDOW_BYTES:
                return None
            at += window.size - overlap
        return None

    def _acceptable(self, file: MappedFile, at: int) -> bool:
        """The record is whole and its body fits, or the chain goes on with another in place."""
        batch = self._one(file, at, Mark.AFTER_DAMAGE)
        if batch is None or batch.body_crc_ok is None:
            return False
        return bool(batch.body_crc_ok[0]) or self._own(file, batch.end - file.start)

    def _boundary(self, file: MappedFile, at: int) -> int | None:
        """Where the broken item at byte `at` ends, if its size leads to another item or a BLANK."""
        frame = self._log.frame_of(file)
        size = self._size_at(file, at, frame)
        if size is None or not self._own(file, at):
            return None
        end = at + size
        good = self._own(file, end) or self._blank(file, end) is not None
        return end if good else None

    def _landing(self, file: MappedFile, at: int) -> int:
        """Byte where the chain from byte `at` stops."""
        frame = self._log.frame_of(file)
        while True:
            batch = self._one(file, at, Mark.AFTER_DAMAGE, count=_SAMPLE)
            if batch is None:
                return at
            at = batch.end - file.start
            if len(batch) < _SAMPLE and not self._own(file, at):
                return at
            if self._size_at(file, at, frame) is None:
                return at

    def _size_at(self, file: MappedFile, at: int, frame: Frame) -> int | None:
        """Size of the item at byte `at` if it is one by magic code and size, else None."""
        window = self._small_window(file, at, HEAD_BYTES)
        if window.size < HEAD_BYTES or number_at(window, frame.magic_offset) not in frame.magics:
            return None
        size = number_at(window, frame.size_offset)
        return size if frame.smallest <= size <= file.size - at else None

    # -- reading --------------------------------------------------------------------------------

    def _window(self, file: MappedFile, at: int, size: int) -> Window:
        """Up to `size` bytes from byte `at` in the buffer of the scan; the last window is gone."""
        size = min(size, file.size - at)
        if len(self._buffer) < size or len(self._buffer) > max(size, 2 * WINDOW_BYTES):
            self._buffer = bytearray(min(max(size, WINDOW_BYTES), max(size, file.size)))
        got = self._log.read_into(self._buffer, file, at)
        return Window(self._buffer, min(got, size), file.start + at)

    def _small_window(self, file: MappedFile, at: int, size: int) -> Window:
        """A few bytes in a buffer of their own."""
        data = bytearray(self._log.queue.read_file(file, at, size))
        return Window(data, len(data), file.start + at)


def _chained(checked: Checked) -> int:
    """How many of the records belong to the chain of this log.

    A record that names another position belongs to it if the one behind it names its own.
    """
    whole = len(checked) if not len(checked) or checked.whole[-1] else len(checked) - 1
    if checked.in_place[:whole].all():
        return whole
    lost = np.flatnonzero(~checked.in_place[:whole])
    followed = np.zeros(whole, np.bool_)
    followed[: whole - 1] = checked.in_place[1:whole]
    alone = lost[~followed[lost]]
    return int(alone[0]) if len(alone) else whole
