"""What a plan was made from: enough to tell, under the lock, that it need not be made again.

Names, inodes, lengths and times of all files tell, as long as nobody wrote into a mapping: such a
write has the time of the first one into its page (mmap(2)), or none at all on tmpfs. So a store that
somebody holds has no fingerprint. Whoever takes it later writes the file `lock` (spec 04, 4.3) and
maps again. Nor has one that was changed a moment ago: the next change may get the same time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..disk.layout import BARRIER_PREFIX, Layout
from ..disk.lock import holder
from ..errors import StoreError

_SETTLED_NS = 3 * 10**9
"""Longer than the steps of any file system's clock."""
_TIMES = 2


class Fingerprint(NamedTuple):
    """All files of a store, by path: device, inode, length, times of content and inode (ns)."""

    files: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, layout: Layout) -> Fingerprint | None:
        """That of a store, to be taken before a plan is made; None: no plan of it would keep."""
        try:
            if holder(layout.lock) is not None:
                return None
            found = cls.now(layout)
        except StoreError:  # whoever makes the plan meets it, too, and tells it
            return None
        if found is None:
            return None
        newest = max((max(told[-_TIMES:]) for told in found.files.values()), default=0)
        return found if newest < time.time_ns() - _SETTLED_NS else None

    @classmethod
    def now(cls, layout: Layout) -> Fingerprint | None:
        """That of a store at this moment, changed a moment ago or not; None where it cannot be told."""
        try:
            return cls(dict(_files(layout)))
        except (StoreError, OSError):
            return None

    def still_holds(self, layout: Layout) -> bool:
        """Nothing has changed; for whoever has the lock."""
        try:
            return self.files == dict(_files(layout))
        except OSError:
            return False


def _files(layout: Layout) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Files below the root and in log directories elsewhere, but barriers and sessions. Raises OSError.

    Links lead to disks of a store's own; one that is no part of a store may lead anywhere, and stays.
    """
    foreign = {_identity(Path(one.path).lstat()) for one in layout.foreign}
    parts = (layout.root, *layout.commit_log_directories, layout.config, layout.consume_queue)
    waiting, seen = [str(path) for path in parts if path.is_dir()], set[tuple[int, int]]()
    while waiting:
        directory = waiting.pop()
        key = _identity(os.stat(directory))  # noqa: PTH116
        if key in seen:
            continue
        seen.add(key)
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_symlink() and _identity(entry.stat(follow_symlinks=False)) in foreign:
                    continue
                if entry.is_dir():
                    waiting += [entry.path] if entry.name != layout.journal.name else []
                elif not entry.name.startswith(BARRIER_PREFIX):
                    link = entry.is_symlink() and not Path(entry.path).exists()
                    own = entry.stat(follow_symlinks=not link)
                    told = (own.st_dev, own.st_ino, own.st_size, own.st_mtime_ns, own.st_ctime_ns)
                    yield entry.path, told


def _identity(status: os.stat_result) -> tuple[int, int]:
    """What a file is by whatever path it was met: a link may lead back into the store."""
    return status.st_dev, status.st_ino
