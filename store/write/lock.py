"""Taking a store's lock: the one that its broker takes (spec/04-checkpoint-timer.md, 4.3).

The lock belongs to the process: closing any descriptor of the file drops it. So the file is opened
once, last, and stays open until the lock is released; nothing else may open it meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from ...formats.lock import CONTENT, LOCKED_RANGE
from ..errors import InUse
from ..lock import held_here, holder, identity, note_held, note_released
from .files import Files, OpenFile, told

_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.05


class StoreLock:
    """The lock of one store, held from `take` to `release`; a context manager."""

    def __init__(self, file: OpenFile, key: tuple[int, int]) -> None:
        self._file = file
        self._key = key

    @classmethod
    def take(cls, path: Path, files: Files, *, wait_seconds: float = 0) -> StoreLock:
        """Take the lock file at `path`, created where it is missing.

        Waits up to `wait_seconds` for another holder. Raises InUse, Unreadable, NoSpace; then
        nothing was changed but the lock file created.
        """
        end = time.monotonic() + wait_seconds
        pause = _FIRST_PAUSE_S
        while True:
            lock = cls._try(path, files)
            if lock is not None:
                return lock
            left = end - time.monotonic()
            if left <= 0:
                raise _in_use(path, wait_seconds)
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    @classmethod
    def _try(cls, path: Path, files: Files) -> StoreLock | None:
        """The lock, or None if somebody has it."""
        if held_here(path):
            return None
        file = files.open_or_create(path)
        try:
            key = _lock(file)
            if key is not None and file.pread(len(CONTENT) + 1, 0) != CONTENT:
                file.truncate(len(CONTENT))
                file.pwrite(CONTENT, 0)
        except BaseException:
            file.close()
            raise
        if key is None or not note_held(key):
            file.close()
            return None
        return cls(file, key)

    def release(self) -> None:
        """Give the lock back; the file stays, as a broker leaves it. Twice is fine."""
        if self._file.descriptor >= 0:
            note_released(self._key)
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _lock(file: OpenFile) -> tuple[int, int] | None:
    """Lock the file: its identity, or None if it is locked or no longer the one of its name."""
    start, length = LOCKED_RANGE
    with told(file.path, "cannot lock"):
        try:
            fcntl.lockf(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except (BlockingIOError, PermissionError):
            return None
        key = identity(os.fstat(file.descriptor))
        return key if key == identity(file.path.stat()) else None


def _in_use(path: Path, wait_seconds: float) -> InUse:
    pid = holder(path)
    who = f"process {pid}" if pid else "another process"
    waited = f" for {wait_seconds:g} s" if wait_seconds else ""
    return InUse(
        f"in use by {who}{waited}: a broker, or another mqstore",
        path=path.parent,
        hint="stop the broker, or wait longer with --wait SECONDS",
    )
