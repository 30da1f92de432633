"""Who holds the lock of a store (spec/04-checkpoint-timer.md, 4.3). Reads only.

A broker holds a POSIX record lock on the first byte of `STORE/lock` from start to the end of its
shutdown, but not while it loads and recovers. `store/disk/take_lock.py` takes the same lock.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ...formats.lock import LOCKED_RANGE
from ..errors import Missing, from_os_error
from .byte_reader import open_regular

_held_here: set[tuple[int, int]] = set()
"""Device and inode of every lock file that this process holds."""


def identity(status: os.stat_result) -> tuple[int, int]:
    """What tells one file from every other on this machine."""
    return status.st_dev, status.st_ino


def held_here(path: Path) -> bool:
    """Whether this process holds the lock file at `path`."""
    try:
        return identity(path.stat()) in _held_here
    except OSError:
        return False


def holder(path: Path) -> int | None:
    """Process id of the holder of the lock file at `path`, None where it is free or not there.

    0 where the holder cannot be named (another machine, another container). A process that holds
    the lock itself gets its own id; the file is not opened then, since closing any descriptor of
    it would drop the lock. Raises Unreadable.
    """
    if held_here(path):
        return os.getpid()
    try:
        descriptor = open_regular(path)
    except Missing:
        return None
    try:
        return _ask(descriptor)
    except OSError as error:
        raise from_os_error(error, path) from error
    finally:
        os.close(descriptor)


def _ask(descriptor: int) -> int | None:
    """Ask the system for the holder of the lock; its `struct flock` (fcntl(2)) is no store format.

    ctypes is imported here, since a `put` that meets no other holder does without it.
    """
    from ctypes import Structure, c_int, c_longlong, c_short

    class Flock(Structure):
        _fields_ = (
            ("type", c_short),
            ("whence", c_short),
            ("start", c_longlong),
            ("length", c_longlong),
            ("pid", c_int),
        )

    question = bytes(Flock(fcntl.F_WRLCK, os.SEEK_SET, *LOCKED_RANGE, 0))
    found = Flock.from_buffer_copy(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    return None if found.type == fcntl.F_UNLCK else max(0, found.pid)


def note_held(key: tuple[int, int]) -> bool:
    """Remember that this process holds a lock file; False if it does so already."""
    if key in _held_here:
        return False
    _held_here.add(key)
    return True


def note_released(key: tuple[int, int]) -> None:
    """Forget it again."""
    _held_here.discard(key)
