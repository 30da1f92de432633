"""The one reader of files: bytes come complete, or are named as a range that cannot be read.

A read is repeated until it is complete. Where the disk gives an error, the range is read again in pages until it
is known which of them are lost; where a file has become shorter than it was listed, its end is such a range,
too. Nobody gets zeros for them without being told: either the reader raises `UnreadableRange`, or whoever goes
around them is told of the ranges, and so is the command (`noting`), whose exit code and verdict know of it. All
is read by pread(2): a mapped page that the disk does not give would kill the process.

Only regular files are opened, whatever stands under a name: to open a FIFO waits for a writer that never comes,
and to open a device can do things by itself. At a rate, as beside a working broker, the page cache stays as it
was: what is cached already stays, everything else is read and dropped again.
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
_ASIDE = ContextVar("aside", default=False)


class Closing(ABC):
    """What holds open files or the like: a context manager that calls `close` at the end."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def aside(wanted: bool) -> Iterator[None]:
    """Whether all reading of files of a store in this block leaves the page cache as it was."""
    token = _ASIDE.set(wanted)
    try:
        yield
    finally:
        _ASIDE.reset(token)


_RATE: ContextVar[int | None] = ContextVar("rate", default=None)
_GIVEN_UP: ContextVar[Event | None] = ContextVar("given_up", default=None)
_REST_S = 0.1
"""How long nobody is heard who gives up."""


@contextmanager
def at_rate(rate_bytes: int | None) -> Iterator[None]:
    """Logs that are opened in this block are read at so many bytes a second at most, by this process
    and by those that it forks; the page cache is then left as it was. None: as fast as it goes.
    """
    token, given_up = _RATE.set(rate_bytes), _GIVEN_UP.set(Event())
    try:
        with aside(rate_bytes is not None):
            yield
    finally:
        _RATE.reset(token)
        _GIVEN_UP.reset(given_up)


def rest(seconds: float) -> None:
    """Wait, since more was read than the rate allows; not where the block of `at_rate` was given up."""
    given_up = _GIVEN_UP.get()
    while seconds > 0 and not (given_up is not None and given_up.is_set()):
        time.sleep(min(seconds, _REST_S))
        seconds -= _REST_S


def give_up() -> None:
    """Nobody waits any more for what threads read in the block of `at_rate` around this: they end soon."""
    if (given_up := _GIVEN_UP.get()) is not None:
        given_up.set()


def reading_rate() -> int | None:
    """Most bytes a second that the block of `at_rate` around this allows, None outside of one."""
    return _RATE.get()


def is_aside() -> bool:
    """The block that runs is one of `aside`."""
    return _ASIDE.get()


def read_aside(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Fill `buffer` from byte `offset` of a file on; returns the bytes there were.

    Raises OSError.
    """
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
    done = 0
    while done < len(buffer):
        at, piece = offset + done, buffer[done : done + _PIECE_BYTES]
        begin = at - at % _PAGE
        pages = -(-(at + len(piece) - begin) // _PAGE)
        before = _cached(descriptor, begin, pages)
        got = os.preadv(descriptor, [piece], at)
        _drop(descriptor, begin, before)
        done += got
        if got < len(piece):
            break
    return done


def _cached(descriptor: int, begin: int, pages: int) -> bytes:
    """For each page from byte `begin` on, 1 where it is in the cache, 0 where it is not.

    The kernel tells only those who own a file or may write to it; to others nothing is cached.
    """
    nothing = bytes(pages)
    status = os.fstat(descriptor)
    told = os.geteuid() in (0, status.st_uid)
    pages = min(pages, -(-(status.st_size - begin) // _PAGE))
    if not told or pages <= 0:
        return nothing
    import ctypes

    libc, size = _libc(), pages * _PAGE
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, begin)
    if address == ctypes.c_void_p(-1).value:
        return nothing
    flags = ctypes.create_string_buffer(pages)
    failed = libc.mincore(address, size, flags)
    libc.munmap(address, size)
    return nothing if failed else bytes(flag & 1 for flag in flags.raw)


@cache
def _libc() -> ctypes.CDLL:
    """mmap, mincore and munmap of the C library; Python's own mmap does not tell its address."""
    import ctypes

    libc, size = ctypes.CDLL(None), ctypes.c_size_t
    libc.mmap.restype = ctypes.c_void_p
    numbers = [ctypes.c_int] * 3
    libc.mmap.argtypes = [ctypes.c_void_p, size, *numbers, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, size, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, size]
    return libc


def _drop(descriptor: int, begin: int, before: bytes) -> None:
    """Drop the pages that were not cached before."""
    first = before.find(0)
    while first >= 0:
        end = before.find(1, first)
        end = len(before) if end < 0 else end
        start, size = begin + first * _PAGE, (end - first) * _PAGE
        os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)
        first = before.find(0, end)


COMPRESSED = (".gz", ".zst")
"""How the names of files end that somebody compressed."""


def open_regular(path: str | PathLike[str]) -> int:
    """A descriptor of the file at `path`, or where a link leads, for reading.

    Raises Missing, Unreadable, the latter also for a directory, FIFO, socket or device.
    """
    with os_errors(path):
        check_regular(os.stat(path), path)  # noqa: PTH116
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def check_regular(status: os.stat_result, path: str | PathLike[str]) -> None:
    """Raises Unreadable for what is no regular file."""
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
"""What is given up for one bad block: the least that a page cache reads."""
UNREADABLE = frozenset(
    getattr(errno, name)
    for name in (
        *("EIO", "ESTALE", "EUCLEAN", "EBADMSG", "ENODATA", "EREMOTEIO", "ETIMEDOUT", "ENXIO"),
        *("EILSEQ", "EHWPOISON"),
    )
    if hasattr(errno, name)
)
"""What the system says of bytes that a disk, or the machine that has it, does not give."""
SHORTER = "the file has become shorter"
COPY_FIRST = "copy the disk first (ddrescue, see docs/guides/failing-disk.md)"
"""What to do with a disk that does not give all bytes."""


class Unread(NamedTuple):
    """Bytes of a file that cannot be read, and what the system says of them."""

    path: str
    offset: int
    length: int
    reason: str

    @property
    def end(self) -> int:
        """Byte behind the last one."""
        return self.offset + self.length

    def error(self) -> UnreadableRange:
        """It as an error."""
        return UnreadableRange(
            f"cannot read {counted(self.length, 'byte')} ({self.reason})",
            path=self.path,
            offset=self.offset,
            length=self.length,
            reason=self.reason,
            hint=COPY_FIRST,
        )


class UnreadRanges:
    """The unreadable ranges that were met; false without any.

    around: whoever can go around one does so; else it is an error at once.
    """

    def __init__(self, *, around: bool) -> None:
        self.around = around
        self._of_path: dict[str, list[Unread]] = {}

    def add(self, unread: Unread) -> None:
        """One more; it may overlap with others."""
        known = self._of_path.setdefault(unread.path, [])
        if unread not in known:
            known.append(unread)
            known.sort(key=lambda each: each.offset)

    def __bool__(self) -> bool:
        return bool(self._of_path)

    def __iter__(self) -> Iterator[Unread]:
        """By path and offset; what touches is one range."""
        for path in sorted(self._of_path):
            yield from self.of(path)

    def of(self, path: str) -> list[Unread]:
        """Those of one file."""
        found: list[Unread] = []
        for unread in self._of_path.get(path, ()):
            _append(found, unread)
        return found


_NOTED: ContextVar[UnreadRanges | None] = ContextVar("noted", default=None)


@contextmanager
def noting(*, around: bool = True) -> Iterator[UnreadRanges]:
    """Note the unreadable ranges that are met in this block; those of blocks inside of it, too."""
    outer = _NOTED.get()
    own = outer if outer is not None and outer.around == around else UnreadRanges(around=around)
    token = _NOTED.set(own)
    try:
        yield own
    finally:
        _NOTED.reset(token)
        if outer is not None and outer is not own:
            for unread in own:
                outer.add(unread)


def each_noting(items: Iterator[T], own: UnreadRanges) -> Iterator[T]:
    """The items of an iterator, each of which is made in a block that notes into `own`.

    For generators: a block that is open while one yields would be that of whoever runs meanwhile,
    and of two that take turns the one would end the block of the other.
    """
    while True:
        outer = _NOTED.get()
        token = _NOTED.set(own)
        try:
            item = next(items)
        except StopIteration:
            return
        finally:
            _NOTED.reset(token)
            if outer is not None and outer is not own:
                for unread in own:
                    outer.add(unread)
        yield item


@contextmanager
def refusing() -> Iterator[None]:
    """What is made in this block is not built on bytes that nobody has read.

    Raises UnreadableRange at the latest at its end, also where somebody inside did without them.
    """
    outer = _NOTED.get()
    own = UnreadRanges(around=False)
    token = _NOTED.set(own)
    try:
        yield
    finally:
        _NOTED.reset(token)
        if outer is not None:
            for unread in own:
                outer.add(unread)
    for unread in own:
        raise unread.error()


def note(unread: Unread) -> None:
    """Go around a range. Raises UnreadableRange where that is not wanted."""
    found = _NOTED.get()
    if found is None or not found.around:
        raise failed(unread)
    found.add(unread)


def failed(unread: Unread) -> UnreadableRange:
    """The error of a range, which is noted: whoever catches it is not the only one who knows."""
    found = _NOTED.get()
    if found is not None:
        found.add(unread)
    return unread.error()


def unread_of(error: UnreadableRange) -> Unread:
    """The range that an error is about."""
    return Unread(error.path or "", error.offset or 0, error.length, error.reason)


def not_opened(error: OSError, path: str, size: int) -> StoreError:
    """The error of a file of `size` bytes that the system does not open, or does not read."""
    if error.errno in UNREADABLE:
        return Unread(path, 0, size, os.strerror(error.errno or 0)).error()
    return from_os_error(error, path)


def noted() -> list[Unread]:
    """All ranges that were met so far, by path and offset."""
    return list(_NOTED.get() or ())


def noted_of(path: str) -> list[Unread]:
    """The ranges of a file that were met so far."""
    found = _NOTED.get()
    return found.of(path) if found else []


def read(descriptor: int, size: int, offset: int, path: str, *, end: int | None = None) -> bytes:
    """`size` bytes from byte `offset` on, fewer only behind the end of the file.

    end: the bytes before it are known to have been there. Raises UnreadableRange, Unreadable.
    """
    if not is_aside():
        try:
            data = os.pread(descriptor, size, offset)
        except OSError:
            data = b""
        if len(data) == size:
            return data
    room = bytearray(size)
    return bytes(room[: fill(descriptor, memoryview(room), offset, path, end=end)])


def fill(descriptor: int, room: memoryview, offset: int, path: str, *, end: int | None = None) -> int:
    """The same into `room`; returns the bytes there were."""
    got, unread = fill_any(descriptor, room, offset, path, end=end)
    if unread:
        raise failed(unread[0])
    return got


def fill_any(
    descriptor: int, room: memoryview, offset: int, path: str, *, end: int | None = None, aside: bool = False
) -> tuple[int, list[Unread]]:
    """As `fill`, with zeros for what cannot be read, and those ranges. Whoever asks notes them.

    aside: the page cache stays as it was. Raises Unreadable.
    """
    once: Callable[[int, memoryview, int], int] = _once
    if aside or is_aside():
        once = read_aside
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
            if len(part) <= page:  # it was this page
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
    return done, unread


@contextmanager
def opened(path: str | PathLike[str]) -> Iterator[int]:
    """A descriptor of a regular file, closed behind the block. Raises Missing, Unreadable."""
    descriptor = open_regular(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_at(path: str | PathLike[str], size: int, offset: int) -> bytes:
    """`size` bytes at byte `offset` of a regular file, fewer behind its end. Raises as `read`."""
    with opened(path) as descriptor:
        return read(descriptor, size, offset, os.fspath(path))


def pieces(
    path: str | PathLike[str], offset: int = 0, size: int | None = None, *, piece_bytes: int = 1 << 20
) -> Iterator[bytes]:
    """`size` bytes of a regular file from byte `offset` on, one piece behind the other; None: all.

    They end where the file ends. Raises as `read`.
    """
    with opened(path) as descriptor:
        end = os.fstat(descriptor).st_size
        end = end if size is None else min(end, offset + size)
        for at in range(offset, end, piece_bytes):
            yield read(descriptor, min(piece_bytes, end - at), at, os.fspath(path), end=end)


def _once(descriptor: int, room: memoryview, offset: int) -> int:
    return os.preadv(descriptor, [room], offset)


def _append(found: list[Unread], unread: Unread) -> None:
    """One more, which begins no earlier than the last: what touches becomes one."""
    last = found[-1] if found else None
    if last is None or unread.offset > last.end or unread.reason != last.reason:
        found.append(unread)
    elif unread.end > last.end:
        found[-1] = last._replace(length=unread.end - last.offset)


# -- holes of sparse files --------------------------------------------------------------------------


def next_data(descriptor: int, offset: int) -> int | None:
    """First byte from `offset` on that is not in a hole, None if all is one.

    Where the file system cannot tell, `offset` itself.
    """
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        return None if error.errno == errno.ENXIO else offset


def data_end(descriptor: int, offset: int, end: int) -> int:
    """Where the data at `offset` ends and a hole begins, `end` at most.

    Where the file system cannot tell, `end`.
    """
    try:
        return min(end, os.lseek(descriptor, offset, os.SEEK_HOLE))
    except OSError:
        return end


def data_ranges(descriptor: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges between `begin` and `end` that are not holes, in order."""
    while begin < end:
        start = next_data(descriptor, begin)
        if start is None or start >= end:
            return
        begin = max(start + 1, data_end(descriptor, start, end))
        yield start, begin
