"""One pass over the commit log: chains of records, and what lies where a chain breaks off.

`CommitLog.scan` is the way in. `LogScan` is the pass; `LogItems` looks at single items of a file: which item begins at
a byte, and where the next good record is. `LogItems` is the careful half, for the places where a chain breaks off. It
trusts no length: what a size asks for is read only if the fields beside it agree.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from ...formats import kernel
from ...formats.commit_log import HEAD_BYTES, POSITION_BYTES, Frame
from ...formats.derive import decode
from ...formats.derive.program import Noting
from ...formats.derive.ragged import Bytes, Ints
from ...formats.message import BYTES_AROUND_BODY_MAX, MESSAGE
from ..counted import counted
from ..disk.byte_reader import Unread, noted_of
from ..disk.file_queue import MappedFile
from .batch import NO_FILE, Batch, Extent, ExtentKind, ScannedLog, TailHistory
from .message import Mark
from .window import CheckedRecords, PlainChain, Window, check, find_item, number_at, walk

#: The usual size of a window.
WINDOW_BYTES = 8 << 20
#: The largest window: wide enough for large records to be worth a step of Python.
_WIDEST_BYTES = 32 << 20
_RECORDS_AT_ONCE = 1 << 14
#: Size of the first window behind a break, and of what is read to judge a chain.
NARROW_BYTES = 1 << 16
#: Factor by which the next window grows.
WIDEN = 4
#: Size of the read that looks at the head of an item.
PEEK_BYTES = 4096
#: An item up to this size is read whatever its lengths say.
SMALL_BYTES = 1 << 20
#: Number of records that are looked at to judge a chain.
SAMPLE = 64


class Fault(StrEnum):
    """Why no item stands at a byte."""

    NO_ROOM = "no room"
    NO_MAGIC = "no magic code"
    BAD_SIZE = "impossible size"
    UNEVEN = "uneven"


class LogItems:
    """Items of one file of the log; `frame` says how they are chained."""

    def __init__(self, log: ScannedLog, file: MappedFile) -> None:
        self._log = log
        self._file = file
        self.frame: Frame = log.frame_of(file)

    def peek(self, at: int, size: int = PEEK_BYTES) -> Window:
        """Up to `size` bytes from byte `at`, in their own buffer."""
        data = bytearray(max(0, min(size, self._file.size - at)))
        got, unread = self._log.queue.read_around(self._file, at, memoryview(data))
        return Window(data, got, self._file.start + at, places_in(unread, at))

    def unread_in(self, at: int, end: int) -> list[Unread]:
        """The unreadable ranges that earlier reads have found in bytes [at, end)."""
        return [u for u in noted_of(self._file.path) if u.offset < end and u.end > at]

    def size(self, at: int) -> int | None:
        """Size of the item at byte `at`; None if no item has such a head."""
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
        """First byte in [at, end) where an item names its own position. Reads the whole range."""
        found = find_item(self.peek(at, end - at + PEEK_BYTES), self.frame, 0, end - at)
        return None if found is None else at + found

    def in_place(self, at: int) -> bool:
        """Whether an item at byte `at` names its own position."""
        return self.find(at, at + 1) is not None

    def records(self, at: int, mark: Mark, count: int = 1) -> Batch | None:
        """Up to `count` whole records of the chain at byte `at`, in their own buffer; None if there is none."""
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
        """The BLANK at byte `at`, None if there is none; `reason` says what is wrong with its size."""
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
        """Whether a BLANK and a whole record behind it fit from byte `at` on."""
        needed = HEAD_BYTES + self.frame.smallest + self.frame.spare
        return self._file.size - at >= needed

    def claimed_end(self, at: int) -> int | None:
        """Where the broken item at byte `at` ends, as far as anyone can know; None if not.

        Its size, or the sum of its lengths, leads to another item or a BLANK; else, if its head is good, it reaches at
        least to the end of its body. Whatever stands before this end lies inside the item.
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
        """Size of the item as the sum of its lengths; 0 if they do not fit into `bound` bytes."""
        window = self.peek(at, self.frame.payload + bound)
        columns = decode(MESSAGE, window.array, _first(self.frame.payload))
        return int(columns.ends[0]) if columns.ok[0] else 0

    def chain_end(self, at: int, enough: int) -> int:
        """Byte where the chain from byte `at` on breaks off; the walk may end early, at or behind byte `enough`."""
        while at < enough:
            batch = self.records(at, Mark.AFTER_DAMAGE, SAMPLE)
            if batch is None:
                break
            at = batch.end - self._file.start
        return at

    def search(self, at: int, end: int | None = None) -> int | None:
        """Byte of the next good record that names its own position, before byte `end`; None without one."""
        end = self._file.size if end is None else end
        overlap = self.frame.position_offset + self.frame.payload + POSITION_BYTES
        reach = NARROW_BYTES
        while at + self.frame.smallest <= self._file.size:
            data = self._log.queue.next_data(self._file, at)
            if data is None:
                return None
            at = max(at, data - overlap)
            if at >= end:
                return None
            window = self.peek(at, min(reach, end - at + overlap))
            found = find_item(window, self.frame, 0, end - at)
            while found is not None:
                if self._is_good(at + found):
                    return at + found
                found = find_item(window, self.frame, found + 1, end - at)
            if window.size < reach:
                return None
            at += window.size - overlap
            reach = min(WINDOW_BYTES, reach * WIDEN)
        return None

    def _is_good(self, at: int) -> bool:
        """Whether the record is whole, and its body's CRC is right or another item in place follows it."""
        batch = self.records(at, Mark.AFTER_DAMAGE)
        if batch is None or batch.body_crc_ok is None:
            return False
        return bool(batch.body_crc_ok[0]) or self.in_place(batch.end - self._file.start)

    def is_zero(self, at: int, end: int) -> bool:
        """Whether bytes [at, end) are all zero; holes are not read."""
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

    def fault(self, at: int) -> tuple[Fault, str]:
        """Why no record stands at byte `at`, and that in words."""
        window = self.peek(at)
        if window.size < self.frame.smallest:
            remaining = counted(window.size, "byte is left", "bytes are left")
            return Fault.NO_ROOM, f"{remaining}: the file does not end with a BLANK"
        magic, size = (number_at(window, at) for at in (self.frame.magic_offset, self.frame.size_offset))
        if magic not in self.frame.magics:
            return Fault.NO_MAGIC, f"no magic code: {magic:08x}"
        if not self.frame.smallest <= size <= self._file.size - at:
            return Fault.BAD_SIZE, f"impossible size {size - (size >> 31 << 32)}"  # the field has a sign
        return Fault.UNEVEN, f"the fields do not add up to the size {size}"


def places_in(unread: Iterable[Unread], at: int) -> tuple[tuple[int, int], ...]:
    """Unreadable ranges of a file, relative to a window that begins at byte `at`."""
    return tuple((each.offset - at, each.end - at) for each in unread)


def has_body(head: Bytes, size: int) -> bool:
    """Whether the body explains the size of the record that begins with `head`.

    Prevents that 1 GiB is read because of a flipped bit. `head`: PEEK_BYTES, or the whole record.
    """
    return 0 <= size - body_length(head) <= BYTES_AROUND_BODY_MAX


def body_length(head: Bytes) -> int:
    """The body length that a record names. `head`: its first bytes."""
    return int(decode(MESSAGE, head, _first(0)).ints("body_length")[0])


def _first(at: int) -> Ints:
    return np.array([at], np.int64)


class LogScan:
    """One pass over the log, with the state that goes from chain to chain and file to file."""

    def __init__(
        self,
        log: ScannedLog,
        start: int | None,
        stop: int | None,
        crc: bool,
        recent: TailHistory | None = None,
        cut_bytes: int | None = None,
        *,
        noting: Noting | None = None,
    ) -> None:
        self._log = log
        self._cut_bytes = cut_bytes
        self._start = log.min_offset if start is None else start
        self._stop = log.max_file_end if stop is None else stop
        self._to_the_end = stop is None
        self._crc = crc
        self._buffer = bytearray(0)
        #: Size of the next window: small behind a break, since the next break may be near.
        self._reach = WINDOW_BYTES
        self._mark = Mark.NONE
        #: The mark for the next file, if this file has records behind its BLANK.
        self._mark_behind_blank: Mark | None = None
        #: The previous file ended without a BLANK.
        self._ended_without_blank = False
        #: Log position where the last chain broke off.
        self._stopped = 0
        self._recent = recent or TailHistory()
        self._plain = PlainChain(noting=noting)
        self._good_record_in: dict[str, bool] = {}

    def run(self) -> Iterator[Batch | Extent]:
        files = self._log.files
        previous: MappedFile | None = None
        for number, whole in enumerate(files):
            # a broken compressed file may be empty: it counts if its place is asked for
            asked = whole.start < self._stop or (self._to_the_end and whole.compressed)
            if self._is_gone(whole) or not (asked and (whole.end > self._start or self._start <= whole.start)):
                continue
            later = files[number + 1 :]  # behind the end of the scan, too: they decide what a break is
            # a file that is too long reaches into the place of the next file, which counts there
            room = later[0].start - whole.start if later else None
            content = self._log.queue.content(whole)
            file = whole._replace(size=min(content.size, room or content.size))
            if previous is not None and previous.end < file.start:
                size = file.start - previous.end
                yield Extent(ExtentKind.MISSING, previous.end, size, NO_FILE)
                self._mark = Mark.AFTER_DAMAGE
                self._ended_without_blank = False
            yield from self._file(file, max(0, self._start - file.start), later)
            if self._is_gone(file):
                previous, self._mark, self._ended_without_blank = None, Mark.NONE, False
                continue
            previous = file
            if content.problem and (file.end < self._stop or self._to_the_end):
                expected = max(whole.size, self._log.queue.file_size)
                lost = _broken_rest(file, content.problem, min(expected, room or expected))
                previous = file._replace(size=file.size + lost.size)
                yield lost
                self._mark = Mark.AFTER_DAMAGE if lost.size else self._mark

    def _is_gone(self, file: MappedFile) -> bool:
        """Whether the file has expired meanwhile: then the log begins behind it, and what is not read is no damage."""
        return file.start < self._log.queue.gone_before

    def _file(self, file: MappedFile, at: int, later: list[MappedFile]) -> Iterator[Batch | Extent]:
        """Yield what is in one file from byte `at` on. later: the files behind it."""
        items = LogItems(self._log, file)
        self._begin_file(items, at)
        while at < file.size and file.start + at < self._stop:
            at = yield from self._chain(file, items, at)
            self._stopped = file.start + at
            if at >= file.size or file.start + at >= self._stop or self._is_gone(file):
                break
            blank = items.blank(at)
            if blank is None:
                at = yield from self._handle_break(file, items, at, later)
                continue
            found = items.search(at + HEAD_BYTES) if items.has_room(at) else None
            if found is None:
                yield blank
                break
            # a broker continues in the next file, whatever stands here
            before = self._mark
            self._begin_chain(items, found)
            yield _blank_before_records(blank, found - at, dead=self._mark is Mark.DEAD_TAIL)
            if self._mark_behind_blank is None:
                self._mark_behind_blank = before
            at = found

    def _begin_file(self, items: LogItems, at: int) -> None:
        """Set the mark for the records of a file, by the end of the file before."""
        if self._mark_behind_blank is not None:
            self._mark, self._mark_behind_blank = self._mark_behind_blank, None
        elif (self._ended_without_blank or self._mark is Mark.DEAD_TAIL) and items.in_place(at):
            self._begin_chain(items, at)
        self._ended_without_blank = False

    def _handle_break(
        self, file: MappedFile, items: LogItems, at: int, later: list[MappedFile]
    ) -> Generator[Batch | Extent, None, int]:
        """The chain breaks off at byte `at`: yield what lies there, and return where it continues."""
        self._reach = NARROW_BYTES
        stale = yield from self._earlier_life(file, items, at)
        if stale > at:
            return stale
        claimed_end = items.claimed_end(at)
        found = items.search(at + 1)
        while found is not None and claimed_end is not None and found < claimed_end:
            end = items.chain_end(found, claimed_end)
            if end >= claimed_end:
                break
            inner = items.records(found, Mark.EMBEDDED)
            if inner is not None:
                yield inner
            found = items.search(max(end, found + 1))
        if found is not None:
            yield self._extent(file, items, at, found, at_end=False)
            self._begin_chain(items, found)
            return found
        at_end = not any(self._has_good_record(other) for other in later)
        if self._is_gone(file):  # a later file, too: nobody can tell any more what the break was
            return file.size
        yield from self._up_to_the_end(file, items, at, at_end)
        if not at_end:
            self._mark = Mark.AFTER_DAMAGE
            self._ended_without_blank = True
        return file.size

    # -- chains ---------------------------------------------------------------------------------

    def _chain(self, file: MappedFile, items: LogItems, at: int) -> Generator[Batch | Extent, None, int]:
        """Yield batches of the chain from byte `at` on; return the byte where it breaks off."""
        seen_bytes = 0
        while file.start + at < self._stop and (size := items.size(at)) is not None:
            if seen_bytes >= size:  # the kernel saw the whole item and ended there: judge it in small windows
                self._reach = NARROW_BYTES
            window, begin = self._window(file, at, max(self._up_to_cut(at), size)), at
            checked, goes_on = self._plain.checked(window, items.frame, crc=self._crc), True
            is_plain = checked is not None
            if checked is None:
                checked, goes_on = self._judge(window, items, at, size)
            if not len(checked):
                break
            batch = self._batch(checked)
            last = int(checked.position[-1]) - items.frame.payload - window.position
            at += last + number_at(window, last + items.frame.size_offset)
            seen_bytes = begin + window.size - at if is_plain else 0
            if len(batch):
                yield batch
            del checked, batch, window  # frees room for the next window
            if not goes_on:
                break
            if is_plain or not kernel.is_wanted():
                self._widen_reach()
        return at

    def _widen_reach(self) -> None:
        """Let the next window be larger: columns of few large records take little memory."""
        enough = self._plain.record_bytes * _RECORDS_AT_ONCE
        enough -= enough % WINDOW_BYTES  # else the buffer is reallocated for a few bytes more
        most = max(WINDOW_BYTES, min(enough, _WIDEST_BYTES))
        self._reach = min(most, self._reach * WIDEN)

    def _judge(self, window: Window, items: LogItems, at: int, size: int) -> tuple[CheckedRecords, bool]:
        """The records of a window that belong to the chain, and whether the chain may continue behind them."""
        window = self._plain.narrowed(window, max(NARROW_BYTES, size))
        starts, _ = walk(window, items.frame)
        checked = check(window, items.frame, starts, crc=self._crc)
        good = _chained(checked)
        if not good and len(checked) == 1 and checked.whole[0] and items.in_place(at + size):
            good = 1  # the record fills the window, so the record behind it was not seen
        # the last record of a window is judged once more, together with what follows it
        return checked.take(slice(0, good)), good >= len(checked) - 1

    def _up_to_cut(self, at: int) -> int:
        """Bytes of the next window of a chain at byte `at`, which crosses no multiple of `cut_bytes`."""
        cut = self._cut_bytes
        return self._reach if cut is None else min(self._reach, cut - at % cut)

    def _batch(self, checked: CheckedRecords) -> Batch:
        batch = Batch(checked.columns, checked.position, self._mark, checked.body_crc_ok)
        if self._mark <= Mark.AFTER_DAMAGE:
            self._recent.note(batch.position, batch.columns)
        if int(batch.position[-1]) >= self._stop:
            batch = batch.take(batch.position < self._stop)
        return batch

    def _begin_chain(self, items: LogItems, at: int) -> None:
        """Set the mark for good records from byte `at` on, behind something else: of this log, or dead."""
        self._mark = Mark.AFTER_DAMAGE
        batch = items.records(at, Mark.AFTER_DAMAGE, SAMPLE)
        if batch is None:
            return
        gap = self._stopped + items.frame.payload, int(batch.position[0])
        if self._recent.is_dead(batch.columns, self._log, gap):
            self._mark = Mark.DEAD_TAIL

    def _earlier_life(self, file: MappedFile, items: LogItems, at: int) -> Generator[Batch | Extent, None, int]:
        """Yield whole records from byte `at` on that name other positions; return the byte behind them."""
        while (size := items.size(at)) is not None:
            window = self._window(file, at, max(self._reach, size))
            starts, _ = walk(window, items.frame)
            checked = check(window, items.frame, starts, crc=True)
            stale = checked.whole & ~checked.in_place
            if checked.body_crc_ok is not None:
                stale &= checked.body_crc_ok
            count = len(stale) if stale.all() else int(np.argmin(stale))
            if count and _runs_into_a_record(items, at, checked, count - 1):
                count -= 1
            if not count:
                break
            part = checked.take(slice(0, count))
            last = int(starts[count - 1])
            at += last + number_at(window, last + items.frame.size_offset)
            yield Batch(part.columns, part.position, Mark.EARLIER_LIFE, part.body_crc_ok)
            if count < len(starts):
                break
            self._widen_reach()
        return at

    # -- what is not a record -------------------------------------------------------------------

    def _up_to_the_end(self, file: MappedFile, items: LogItems, at: int, at_end: bool) -> Iterator[Extent]:
        """Yield extents for the rest of a file from byte `at` on, in which no good record begins."""
        for unread in items.unread_in(at, file.size) if at_end else ():
            if unread.offset > at and items.is_zero(at, unread.offset):
                yield self._extent(file, items, at, unread.offset, at_end)
                at = unread.offset
            if unread.end > at:
                yield self._extent(file, items, at, min(unread.end, file.size), at_end)
                at = min(unread.end, file.size)
        if at < file.size:
            yield self._extent(file, items, at, file.size, at_end)

    def _extent(self, file: MappedFile, items: LogItems, at: int, end: int, at_end: bool) -> Extent:
        """The extent for bytes [at, end). `at_end`: no good record follows anywhere in the log."""
        position, size = file.start + at, end - at
        if unread := items.unread_in(at, end):
            lost = sum(min(each.end, end) - max(each.offset, at) for each in unread)
            reason = f"unreadable: {unread[0].reason}"
            return Extent(ExtentKind.DAMAGE, position, size, reason, lost)
        if items.is_zero(at, end):
            if at_end:
                return Extent(ExtentKind.ZEROS, position, size, "zeros: never written")
            return Extent(ExtentKind.DAMAGE, position, size, "zeros")
        _, reason = items.fault(at)
        if not at_end:
            return Extent(ExtentKind.DAMAGE, position, size, reason)
        kind = ExtentKind.TORN_TAIL if items.in_place(at) else ExtentKind.STALE_BYTES
        return Extent(kind, position, size, reason)

    def _has_good_record(self, file: MappedFile) -> bool:
        """Whether the file has a good record that names its own position; each file is searched once."""
        if file.path not in self._good_record_in:
            self._good_record_in[file.path] = LogItems(self._log, file).search(0) is not None
        return self._good_record_in[file.path]

    def _window(self, file: MappedFile, at: int, size: int) -> Window:
        """Up to `size` bytes from byte `at`, in the scan's buffer; this overwrites the window before."""
        size = min(size, file.size - at)
        if not size <= len(self._buffer) <= max(size, 2 * _WIDEST_BYTES):
            self._buffer = bytearray()  # frees the old buffer first
            self._buffer = bytearray(max(size, min(WINDOW_BYTES, file.size)))
        got, unread = self._log.read_around(memoryview(self._buffer)[:size], file, at)
        return Window(self._buffer, got, file.start + at, places_in(unread, at))


def _broken_rest(file: MappedFile, problem: str, whole_bytes: int) -> Extent:
    """The rest of a broken compressed file; 0 bytes if nobody can know its size.

    file: the part that decompresses. whole_bytes: the size that the file should have.
    """
    size = max(0, whole_bytes - file.size)
    reason = f"{Path(file.path).name} does not decompress: {problem}"
    return Extent(ExtentKind.DAMAGE, file.end, size, reason)


def _blank_before_records(blank: Extent, size: int, *, dead: bool) -> Extent:
    """The BLANK with good records behind it, up to these; it does not reach to the end of its file.

    If the records are dead, the broker has written the BLANK over others of them; otherwise it is misplaced.
    """
    if dead and not blank.reason:
        return replace(blank, size=size, reason="dead records follow it")
    reason = "records follow a BLANK"
    return replace(blank, kind=ExtentKind.DAMAGE, size=size, reason=reason)


def _runs_into_a_record(items: LogItems, at: int, checked: CheckedRecords, i: int) -> bool:
    """Whether a record in place begins behind the body of record i, inside that record: then only the inner one is
    whole, and has overwritten the end of stale record i. The CRC does not show this: it covers the body only. `at`:
    byte of the file where the window of `checked` begins.
    """
    body = checked.columns.ragged("body")[i : i + 1]
    begin = at + int(body.start[0] + body.length[0])
    return items.find(begin, at + int(checked.columns.ends[i])) is not None


def _chained(checked: CheckedRecords) -> int:
    """How many of the first records belong to the chain of this log.

    A record that names another position belongs to the chain if the record behind it names its own.
    """
    whole = len(checked) if not len(checked) or checked.whole[-1] else len(checked) - 1
    if checked.in_place[:whole].all():
        return whole
    lost = np.flatnonzero(~checked.in_place[:whole])
    followed = np.zeros(whole, np.bool_)
    followed[: whole - 1] = checked.in_place[1:whole]
    alone = lost[~followed[lost]]
    return int(alone[0]) if len(alone) else whole
