"""The folder of a session, for all temporary files of Spark, its JVM and local Python workers.

It is removed with the session. What a killed process has left is removed by the next session of this user: a lock,
which dies with its process, shows which folders are in use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "mqstore-spark-"
_LOCK = "in-use"
_OLD_SECONDS = 3600.0
"""A folder without a lock that is older is not one that is just made."""


@contextmanager
def session_folder() -> Iterator[Path]:
    """Make a folder in the directory for temporary files, and remove it with its content at the end."""
    remove_left(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # locked under another name first: a folder with the final name is always locked
        with (folder / "lock").open("xb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "lock").rename(folder / _LOCK)
            (folder / "tmp").mkdir()
            yield folder


def remove_left(place: Path) -> None:
    """Remove folders of sessions that are gone, as far as this user may."""
    for folder in place.glob(_PREFIX + "*"):
        with suppress(OSError):
            if folder.lstat().st_uid != os.getuid():
                continue
            if not (folder / _LOCK).exists():
                # it has just been made; or a JVM wrote into it while it was removed
                if time.time() - folder.lstat().st_mtime > _OLD_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            with (folder / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
