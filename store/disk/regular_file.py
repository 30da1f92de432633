"""Opening a file of a store for reading: a regular one, and nothing else.

What stands under a file's name may be anything. To open a FIFO waits for a writer that never comes,
and to open a device can do things by itself.
"""

from __future__ import annotations

import os
import stat
from os import PathLike

from ..errors import Unreadable, from_os_error

_SMALL_BYTES = 1 << 20
COMPRESSED = (".gz", ".zst")
"""How the names of files end that somebody compressed."""


def open_regular(path: str | PathLike[str]) -> int:
    """A descriptor of the file at `path`, or where a link leads, for reading.

    Raises Missing, Unreadable, the latter also for a directory, FIFO, socket or device.
    """
    try:
        check_regular(os.stat(path), path)  # noqa: PTH116
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise from_os_error(error, path) from error


def read_regular(path: str | PathLike[str], limit_bytes: int) -> bytes:
    """The first `limit_bytes` of a file, or of what it unpacks to. Raises as `open_regular`.

    Holes of a large sparse file are not read.
    """
    from .byte_reader import data_ranges, fill, read

    descriptor = _open_any(path)
    try:
        size = min(limit_bytes, os.fstat(descriptor).st_size)
        if size <= _SMALL_BYTES:
            return read(descriptor, size, 0, os.fspath(path))
        room = bytearray(size)
        for begin, end in data_ranges(descriptor, 0, size):
            part = memoryview(room)[begin:end]
            got = fill(descriptor, part, begin, os.fspath(path))
            if got < len(part):  # somebody has cut it
                return bytes(room[: begin + got])
        return bytes(room)
    finally:
        os.close(descriptor)


def _open_any(path: str | PathLike[str]) -> int:
    if not os.fspath(path).endswith(COMPRESSED):
        return open_regular(path)
    from .compressed import open_any

    return open_any(path)


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
