"""File layers that fail: at any step, with any error, or for good as a killed process does.

    files = CountingFiles()          # a run that works: how many steps are there?
    files = FailingFiles(7, errno.ENOSPC)   # step 7 fails, the later ones work
    files = KilledFiles(7)           # step 7 and everything behind it never happens
    files = PowerLossFiles(7)        # as killed, and what was not flushed is gone

Steps count from 0. A step that writes is torn: a seeded part of it reaches the file. Disks write
whole sectors, so a tear lies on a multiple of 512 bytes of the file.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from pathlib import Path

from mqstore.store.disk.files import Files

SECTOR_BYTES = 512


class Killed(BaseException):
    """The process is gone; no handler may catch this."""


class CountingFiles(Files):
    """Counts the steps and remembers them: (change, file name)."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []
        self._count = threading.Lock()

    def step(self, change: str, path: Path, size_bytes: int = 0) -> None:
        with self._count:
            number = len(self.steps)
            self.steps.append((change, path.name))
        self.arrived(number, change, path)

    def arrived(self, number: int, change: str, path: Path) -> None:
        """Called at each step before it happens."""


class FailingFiles(CountingFiles):
    """One step is refused with an errno; a write puts half of its bytes before."""

    def __init__(self, at: int, error: int) -> None:
        super().__init__()
        self.at, self.error = at, error
        self._own = threading.local()

    def arrived(self, number: int, change: str, path: Path) -> None:
        self._own.tear = number == self.at and change == "write"
        if number == self.at and not self._own.tear:
            raise OSError(self.error, os.strerror(self.error), str(path))

    def write_at(self, descriptor: int, data: memoryview, offset: int) -> int:
        if not self._own.tear:
            return super().write_at(descriptor, data, offset)
        super().write_at(descriptor, data[: len(data) // 2], offset)
        raise OSError(self.error, os.strerror(self.error))


class KilledFiles(CountingFiles):
    """The process dies at a step: it and all later ones do not happen, a write is torn."""

    def __init__(self, at: int, seed: int = 0) -> None:
        super().__init__()
        self.at = at
        self._random = random.Random(f"{at} {seed}")
        self._own = threading.local()

    def arrived(self, number: int, change: str, path: Path) -> None:
        self._own.tear = number == self.at and change == "write"
        if number >= self.at and not self._own.tear:
            raise Killed(f"step {number}: {change} {path.name}")

    def write_at(self, descriptor: int, data: memoryview, offset: int) -> int:
        if not self._own.tear:
            return super().write_at(descriptor, data, offset)
        end = self._random.randint(offset, offset + len(data))
        whole = end == offset + len(data)
        kept = len(data) if whole else max(0, end - end % SECTOR_BYTES - offset)
        super().write_at(descriptor, data[:kept], offset)
        raise Killed(f"torn write: {kept} of {len(data)} bytes")


class PowerLossFiles(KilledFiles):
    """As killed, and the disk keeps only what was flushed: file by file, name by name.

    Call `lose()` after the kill. Of each file the content of its last `sync` survives, or of
    a seeded choice of files all that was written: the system may have written them back itself.
    Names reach the disk in the order in which they were made, as journals of file systems have it.
    """

    def __init__(self, at: int, seed: int = 0) -> None:
        super().__init__(at, seed)
        self._flushed: dict[Path, bytes | None] = {}
        self._named: list[Path] = []

    def arrived(self, number: int, change: str, path: Path) -> None:
        super().arrived(number, change, path)
        if change == "sync":
            self._flushed[path] = path.read_bytes()
        elif change in ("write", "truncate", "open"):
            if path not in self._flushed:
                self._flushed[path] = path.read_bytes()
        elif change == "create":
            self._flushed[path] = b""
            self._named.append(path)
        elif change == "unlink":
            self._flushed.setdefault(path, path.read_bytes())
        elif change == "sync_directory":
            self._named = [p for p in self._named if p.parent != path]

    def lose(self) -> None:
        """Put every file into the state that the disk had."""
        lost = self._named[self._random.randint(0, len(self._named)) :]
        for path, content in self._flushed.items():
            if path in lost:
                path.unlink(missing_ok=True)
                continue
            stays = not path.exists() or content is None or self._random.random() >= 0.5
            if not stays and path.read_bytes() != content:  # what was flushed keeps its times, too
                path.write_bytes(content or b"")


def copy_tree(source: Path, target: Path) -> Path:
    """A copy of a store to break."""
    shutil.copytree(source, target)
    return target
