"""The one reader of files: it returns complete bytes, or names the range that cannot be read.

A read is repeated until it is complete. After a disk error the range is read again page by page, to find out which
pages are lost. If a file is shorter than it was when it was listed, its missing end is an unreadable range, too.
Nobody gets zeros in place of such bytes without being told: either the reader raises `UnreadableRange`, or the caller
goes around the range, which is then noted (`noting`) for the exit code and the verdict of the command. All reads are
pread(2): a fault in a mapped page that the disk does not return would kill the process.

Only regular files are opened: opening a FIFO waits for a writer that may never come, and opening a device may have
side effects. At a limited rate, as beside a running broker, the page cache is left unchanged: cached pages stay,
other pages are read and dropped again. Where nobody tells which pages are cached (`_is_cached`), none is dropped.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from os import PathLike
from threading import Event
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from ..counted import counted
from ..errors import StoreError, Unreadable, UnreadableRange, from_os_error, os_errors

if TYPE_CHECKING:
    import ctypes

_PIECE_BYTES = 1 << 20
_PAGE = mmap.PAGESIZE


def zeros(size: int) -> mmap.mmap:
    """So many zeros, to be changed, which take memory as they are used: a bytearray is filled at once."""
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class Closing(ABC):
    """An owner of open files or the like: a context manager that calls `close` at the end."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Pace:
    """The limit of an `at_rate` block. owed_seconds: what readers have not yet rested for what they have read."""

    def __init__(self, rate_bytes: int) -> None:
        self.rate_bytes = rate_bytes
        self.owed_seconds = 0.0
        self.given_up = Event()


_PACE: ContextVar[_Pace | None] = ContextVar("pace", default=None)
_NAP_SECONDS = 0.1
"""How often a waiting reader checks whether it is given up, in seconds."""
_LEAST_SECONDS = 0.001
"""Shorter rests are added up: each takes longer than asked for."""


@contextmanager
def at_rate(rate_bytes: int | None) -> Iterator[None]:
    """Files are read in this block at no more than `rate_bytes` per second by this process, and by each fork; the page
    cache is left unchanged. None: as in the enclosing block.
    """
    if rate_bytes is None or rate_bytes == reading_rate():
        yield
        return
    token = _PACE.set(_Pace(rate_bytes))
    try:
        yield
    finally:
        _PACE.reset(token)


def rest(seconds: float) -> None:
    """Sleep because more was read than the rate allows; end early if `give_up` was called for the `at_rate` block."""
    pace = _PACE.get()
    while seconds > 0 and not (pace is not None and pace.given_up.is_set()):
        time.sleep(min(seconds, _NAP_SECONDS))
        seconds -= _NAP_SECONDS


def _rest_for(size: int, began: float) -> None:
    """Rest for `size` bytes whose reading began at a time of the monotonic clock."""
    if (pace := _PACE.get()) is None:
        return
    owed = max(0.0, pace.owed_seconds + size / pace.rate_bytes - (time.monotonic() - began))
    pace.owed_seconds = owed if owed < _LEAST_SECONDS else 0.0
    rest(owed - pace.owed_seconds)


def give_up() -> None:
    """Make threads that wait in the enclosing `at_rate` block end soon: nobody needs what they read."""
    if (pace := _PACE.get()) is not None:
        pace.given_up.set()


def reading_rate() -> int | None:
    """Bytes per second that the enclosing `at_rate` block allows; None outside such a block."""
    pace = _PACE.get()
    return None if pace is None else pace.rate_bytes


def keeps_page_cache() -> bool:
    """Whether reads leave the page cache unchanged: the enclosing block is one of `at_rate`."""
    return _PACE.get() is not None


def read_keeping_cache(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Fill `buffer` from byte `offset` of a file on, leaving the page cache unchanged; return the number of bytes read.

    Raises OSError.
    """
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
    done = 0
    while done < len(buffer):
        at, piece = offset + done, buffer[done : done + _PIECE_BYTES]
        begin = at - at % _PAGE
        pages = -(-(at + len(piece) - begin) // _PAGE)
        before = _cached(descriptor, begin, pages)
        got = os.preadv(descriptor, [piece], at)
        _drop_pages(descriptor, begin, before)
        done += got
        if got < len(piece):
            break
    return done


def _cached(descriptor: int, begin: int, pages: int) -> bytes:
    """One byte per page from byte `begin` on: 1 if the page is in the cache or may be, else 0.

    mincore(2) tells only the owner of a file and root. Anybody else asks page by page (`_is_cached`).
    """
    status = os.fstat(descriptor)
    size = status.st_size or os.lseek(descriptor, 0, os.SEEK_END)  # a device has none in its status
    pages = min(pages, -(-(size - begin) // _PAGE))
    if pages <= 0:
        return b""
    if os.geteuid() not in (0, status.st_uid):
        return bytes(_is_cached(descriptor, begin + page * _PAGE) for page in range(pages))
    import ctypes

    libc, size = _libc(), pages * _PAGE
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, begin)
    if address == ctypes.c_void_p(-1).value:
        return b"\1" * pages
    flags = ctypes.create_string_buffer(pages)
    failed = libc.mincore(address, size, flags)
    libc.munmap(address, size)
    return b"\1" * pages if failed else bytes(flag & 1 for flag in flags.raw)


def _is_cached(descriptor: int, at: int) -> bool:
    """Whether the page at byte `at` can be read without waiting for the disk: cached, or the disk is fast. Also where
    the file system cannot tell: a page that is kept costs less than a page that a broker needs and no longer finds.
    """
    try:
        os.preadv(descriptor, [bytearray(1)], at, os.RWF_NOWAIT)  # one page: a kernel may begin to read what is asked
    except BlockingIOError:
        return False
    except (OSError, RuntimeError, AttributeError):  # the latter two where Python was built without the call
        return True
    return True


@cache
def _libc() -> ctypes.CDLL:
    """The C library with mmap, mincore and munmap declared; Python's mmap does not give its address."""
    import ctypes

    libc, size = ctypes.CDLL(None), ctypes.c_size_t
    libc.mmap.restype = ctypes.c_void_p
    numbers = [ctypes.c_int] * 3
    libc.mmap.argtypes = [ctypes.c_void_p, size, *numbers, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, size, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, size]
    return libc


def _drop_pages(descriptor: int, begin: int, before: bytes) -> None:
    """Drop from the cache the pages from byte `begin` on that are 0 in `before`, the answer of `_cached`."""
    first = before.find(0)
    while first >= 0:
        end = before.find(1, first)
        end = len(before) if end < 0 else end
        start, size = begin + first * _PAGE, (end - first) * _PAGE
        os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)
        first = before.find(0, end)


COMPRESSED = (".gz", ".zst")
"""Name suffixes of compressed files."""


def open_regular(path: str | PathLike[str]) -> int:
    """Open the regular file at `path`, or the one that a link points at, for reading; return the descriptor.

    Raises Missing, and Unreadable, also for a directory, FIFO, socket or device.
    """
    with os_errors(path):
        check_regular(os.stat(path), path)  # noqa: PTH116
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def check_regular(status: os.stat_result, path: str | PathLike[str]) -> None:
    """Raise Unreadable for anything but a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(f"not a file but {_kind(status.st_mode)}", path=path)


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


T = TypeVar("T")
PAGE_BYTES = 4096
"""The bytes given up for one bad block: the smallest unit that the page cache reads."""
UNREADABLE = frozenset(
    getattr(errno, name)
    for name in (
        *("EIO", "ESTALE", "EUCLEAN", "EBADMSG", "ENODATA", "EREMOTEIO", "ETIMEDOUT", "ENXIO"),
        *("EILSEQ", "EHWPOISON"),
    )
    if hasattr(errno, name)
)
"""Error numbers of reads that fail because the disk, or the machine that has the disk, does not return bytes."""
SHORTER = "the file has become shorter"
COPY_FIRST = "copy the disk first (ddrescue, see docs/guides/failing-disk.md)"
"""Hint for a disk with unreadable bytes."""


class Unread(NamedTuple):
    """A range of a file that cannot be read, and the system's error text."""

    path: str
    offset: int
    length: int
    reason: str

    @property
    def end(self) -> int:
        return self.offset + self.length

    def error(self) -> UnreadableRange:
        return UnreadableRange(
            f"cannot read {counted(self.length, 'byte')} ({self.reason})",
            path=self.path,
            offset=self.offset,
            length=self.length,
            reason=self.reason,
            hint=COPY_FIRST,
        )


class UnreadRanges:
    """The unreadable ranges found so far; false if there are none.

    around: callers that can go around a range do so; otherwise a range is an error at once. expired: by directory, the
    position before which a broker deleted files while they were read; their bytes are not unreadable, but no longer
    asked for.
    """

    def __init__(self, *, around: bool) -> None:
        self.around = around
        self.expired: dict[str, int] = {}
        self._of_path: dict[str, list[Unread]] = {}

    def add(self, unread: Unread) -> None:
        """Add a range; it may overlap others."""
        known = self._of_path.setdefault(unread.path, [])
        if unread not in known:
            known.append(unread)
            known.sort(key=lambda each: each.offset)

    def add_expired(self, directory: str, begin: int) -> None:
        """Add that files before position `begin` were deleted."""
        self.expired[directory] = max(begin, self.expired.get(directory, 0))

    def __bool__(self) -> bool:
        return bool(self._of_path)

    def __iter__(self) -> Iterator[Unread]:
        """Yield the ranges by path and offset; adjacent ranges are joined."""
        for path in sorted(self._of_path):
            yield from self.of(path)

    def of(self, path: str) -> list[Unread]:
        found: list[Unread] = []
        for unread in self._of_path.get(path, ()):
            _append(found, unread)
        return found


_NOTED: ContextVar[UnreadRanges | None] = ContextVar("noted", default=None)


@contextmanager
def noting(*, around: bool = True) -> Iterator[UnreadRanges]:
    """Collect the unreadable ranges found in this block, including those of inner blocks."""
    outer = _NOTED.get()
    own = outer if outer is not None and outer.around == around else UnreadRanges(around=around)
    with _collected(own):
        yield own


@contextmanager
def _collected(own: UnreadRanges) -> Iterator[None]:
    """Collect the ranges found in this block in `own`, and at its end also in those of the enclosing block."""
    outer = _NOTED.get()
    token = _NOTED.set(own)
    try:
        yield
    finally:
        _NOTED.reset(token)
        if outer is not None and outer is not own:
            for unread in own:
                outer.add(unread)
            for directory, begin in own.expired.items():
                outer.add_expired(directory, begin)


def each_noting(items: Iterator[T], own: UnreadRanges) -> Iterator[T]:
    """Yield the items of an iterator; the ranges found while an item is made are added to `own`.

    For generators: a `noting` block that stays open across a `yield` would apply to the code that runs meanwhile, and
    of two interleaved generators one would end the block of the other.
    """
    while True:
        with _collected(own):
            if (item := next(items, None)) is None:
                return
        yield item


@contextmanager
def refusing() -> Iterator[UnreadRanges]:
    """Refuse to build on unreadable bytes: raise UnreadableRange at the end of this block at the latest, even if code
    inside went on without the bytes.
    """
    own = UnreadRanges(around=False)
    with _collected(own):
        yield own
    for unread in own:
        raise unread.error()


def note(unread: Unread) -> None:
    """Note a range that the caller goes around. Raises UnreadableRange if going around is not allowed here."""
    found = _NOTED.get()
    if found is None or not found.around:
        raise failed(unread)
    found.add(unread)


def note_expired(directory: str, begin: int) -> None:
    """Note that a broker deleted the files before position `begin` while they were read."""
    if (found := _NOTED.get()) is not None:
        found.add_expired(directory, begin)


def expired_text(begin: int) -> str:
    """What was noted by `note_expired`, as a sentence."""
    return f"the broker deleted the files before {begin} during this command; what was not read of them is left out"


def failed(unread: Unread) -> UnreadableRange:
    """Note a range and return its error, so that the range is known even if the error is caught."""
    found = _NOTED.get()
    if found is not None:
        found.add(unread)
    return unread.error()


def unread_of(error: UnreadableRange) -> Unread:
    """The range that an error is about."""
    return Unread(error.path or "", error.offset or 0, error.length, error.reason)


def not_opened(error: OSError, path: str, size: int) -> StoreError:
    """The error for a file of `size` bytes that the system cannot open or read."""
    if error.errno in UNREADABLE:
        return Unread(path, 0, size, os.strerror(error.errno or 0)).error()
    return from_os_error(error, path)


def noted() -> list[Unread]:
    """All ranges found so far, by path and offset."""
    return list(_NOTED.get() or ())


def noted_of(path: str) -> list[Unread]:
    """The ranges of a file found so far."""
    found = _NOTED.get()
    return found.of(path) if found else []


def read(descriptor: int, size: int, offset: int, path: str, *, end: int | None = None) -> bytes:
    """Read `size` bytes from byte `offset` on; fewer only at the end of the file.

    end: the file is known to have had all bytes before this one. Raises UnreadableRange, Unreadable.
    """
    if not keeps_page_cache():
        try:
            data = os.pread(descriptor, size, offset)
        except OSError:
            data = b""
        if len(data) == size:
            return data
    room = bytearray(size)
    return bytes(room[: fill(descriptor, memoryview(room), offset, path, end=end)])


def fill(descriptor: int, room: memoryview, offset: int, path: str, *, end: int | None = None) -> int:
    """As `read`, into `room`; return the number of bytes."""
    got, unread = fill_any(descriptor, room, offset, path, end=end)
    if unread:
        raise failed(unread[0])
    return got


def fill_any(
    descriptor: int, room: memoryview, offset: int, path: str, *, end: int | None = None, aside: bool = False
) -> tuple[int, list[Unread]]:
    """As `fill`, with zeros for unreadable ranges, which are returned and not noted: the caller has to note them.
    Rests as long as the rate of an `at_rate` block asks for.

    aside: leave the page cache unchanged. Raises Unreadable.
    """
    began = time.monotonic()
    once: Callable[[int, memoryview, int], int] = _pread_once
    if aside or keeps_page_cache():
        once = read_keeping_cache
    done, chunk = 0, len(room)
    unread: list[Unread] = []
    while done < len(room):
        at = offset + done
        part = room[done : done + chunk]
        try:
            got = once(descriptor, part, at)
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise from_os_error(error, path) from error
            page = min(len(room) - done, PAGE_BYTES - at % PAGE_BYTES)
            chunk = page
            if len(part) <= page:  # the failed read was within this one page
                part[:] = bytes(len(part))
                _append(unread, Unread(path, at, len(part), os.strerror(error.errno or 0)))
                done += len(part)
                chunk = PAGE_BYTES
            continue
        if not got:
            break
        done += got
        chunk = min(len(room), 2 * chunk)
    known = len(room) if end is None else min(len(room), end - offset)
    if end is not None and done < known:
        room[done:known] = bytes(known - done)
        _append(unread, Unread(path, offset + done, known - done, SHORTER))
        done = known
    _rest_for(done, began)
    return done, unread


@contextmanager
def opened(path: str | PathLike[str]) -> Iterator[int]:
    """A descriptor of a regular file, closed after the block. Raises Missing, Unreadable."""
    descriptor = open_regular(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_at(path: str | PathLike[str], size: int, offset: int) -> bytes:
    """Read `size` bytes at byte `offset` of a regular file, fewer at its end. Raises as `opened` and `read`."""
    with opened(path) as descriptor:
        return read(descriptor, size, offset, os.fspath(path))


def pieces(
    path: str | PathLike[str], offset: int = 0, size: int | None = None, *, piece_bytes: int = 1 << 20
) -> Iterator[bytes]:
    """Yield `size` bytes (None: all) of a regular file from byte `offset` on, in pieces, at most up to its end.

    Raises as `opened` and `read`.
    """
    with opened(path) as descriptor:
        end = os.fstat(descriptor).st_size
        end = end if size is None else min(end, offset + size)
        for at in range(offset, end, piece_bytes):
            yield read(descriptor, min(piece_bytes, end - at), at, os.fspath(path), end=end)


def _pread_once(descriptor: int, room: memoryview, offset: int) -> int:
    return os.preadv(descriptor, [room], offset)


def _append(found: list[Unread], unread: Unread) -> None:
    """Append a range that begins no earlier than the last one; join it with the last one if they touch."""
    last = found[-1] if found else None
    if last is None or unread.offset > last.end or unread.reason != last.reason:
        found.append(unread)
    elif unread.end > last.end:
        found[-1] = last._replace(length=unread.end - last.offset)


def parts_of(
    descriptor: int, size: int, offset: int, path: str, unit_bytes: int
) -> Iterator[tuple[int, bytes | bytearray]]:
    """Yield (byte, units from there on) for `size` bytes of an open file, without units that are not wholly readable.

    Unreadable ranges are noted. Raises UnreadableRange where going around is not allowed, Unreadable.
    """
    data = bytearray(size)
    got, unread = fill_any(descriptor, memoryview(data), offset, path)
    for each in unread:
        note(each)
    yield from whole_units(offset, data, got, unread, unit_bytes)


def whole_units(
    at: int, data: bytearray, got: int, unread: list[Unread], unit_bytes: int
) -> Iterator[tuple[int, bytes | bytearray]]:
    """Yield the parts of a window of `got` bytes from byte `at` on, without units that are not wholly readable.

    unread: the unreadable ranges in it.
    """
    if not unread:
        del data[got:]
        if data:
            yield at, data
        return
    begin, window = 0, memoryview(data)[:got]
    for each in unread:
        first = (each.offset - at) // unit_bytes * unit_bytes
        if first > begin:
            yield at + begin, bytes(window[begin:first])
        begin = max(begin, -(-(each.end - at) // unit_bytes) * unit_bytes)
    if begin < len(window):
        yield at + begin, bytes(window[begin:])


# -- holes of sparse files --------------------------------------------------------------------------


def next_data(descriptor: int, offset: int) -> int | None:
    """First byte from `offset` on that is not in a hole, None if there is none.

    `offset` itself if the file system cannot tell.
    """
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        return None if error.errno == errno.ENXIO else offset


def data_end(descriptor: int, offset: int, end: int) -> int:
    """Where the data at `offset` ends and a hole begins, at most `end`; `end` if the file system cannot tell."""
    try:
        return min(end, os.lseek(descriptor, offset, os.SEEK_HOLE))
    except OSError:
        return end


def data_ranges(descriptor: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges (begin, end) between `begin` and `end` that are not holes, in order."""
    while begin < end:
        start = next_data(descriptor, begin)
        if start is None or start >= end:
            return
        begin = max(start + 1, data_end(descriptor, start, end))
        yield start, begin
