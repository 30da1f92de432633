"""Reading that leaves the page cache as it was, for machines on which a broker works.

What is cached already stays, everything else is read and dropped again: a broker that reads old
messages finds in memory what it had there.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

_PIECE_BYTES = 1 << 20
_PAGE = mmap.PAGESIZE
_ASIDE = ContextVar("aside", default=False)


@contextmanager
def aside(wanted: bool) -> Iterator[None]:
    """Whether all reading of files of a store in this block leaves the page cache as it was."""
    token = _ASIDE.set(wanted)
    try:
        yield
    finally:
        _ASIDE.reset(token)


_RATE: ContextVar[int | None] = ContextVar("rate", default=None)


@contextmanager
def at_rate(rate_bytes: int | None) -> Iterator[None]:
    """Logs that are opened in this block are read at so many bytes a second at most, by this process
    and by those that it forks; the page cache is then left as it was. None: as fast as it goes.
    """
    token = _RATE.set(rate_bytes)
    try:
        with aside(rate_bytes is not None):
            yield
    finally:
        _RATE.reset(token)


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
