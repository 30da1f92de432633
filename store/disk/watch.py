"""Waiting for a directory to change, or for some time.

Where the system has inotify a change of a file's length or name ends the wait at once. A broker
writes through memory maps, which nobody is told of: so the wait is short at first, and doubles while
nothing happens.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from collections.abc import Iterable
from typing import Self

SHORTEST_SECONDS = 0.02
LONGEST_SECONDS = 0.5
_CREATE, _MOVED_TO, _MODIFY, _DELETE = 0x100, 0x80, 0x2, 0x200
_EVENTS = _CREATE | _MOVED_TO | _MODIFY | _DELETE
_READ_BYTES = 1 << 16


class Watch:
    """Waits for changes in some directories; a context manager."""

    def __init__(self, directories: Iterable[str | os.PathLike[str]]) -> None:
        self._pause = SHORTEST_SECONDS
        self._descriptor = _inotify(directories)

    def active(self) -> None:
        """Something happened: wait only shortly again."""
        self._pause = SHORTEST_SECONDS

    def wait(self) -> None:
        """Until something changes, or the pause is over; each is twice as long as the last."""
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_SECONDS)
        if self._descriptor < 0:
            time.sleep(pause)
            return
        ready, _, _ = select.select([self._descriptor], [], [], pause)
        if ready:
            os.read(self._descriptor, _READ_BYTES)  # which change does not matter

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _inotify(directories: Iterable[str | os.PathLike[str]]) -> int:
    """A descriptor that can be read once something changes, -1 where there is no inotify."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        descriptor = int(library.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    except (OSError, AttributeError):
        return -1
    if descriptor >= 0:
        for directory in directories:
            library.inotify_add_watch(descriptor, os.fsencode(directory), _EVENTS)
    return descriptor
