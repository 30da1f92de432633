"""The folder of a session: all that Spark, its JVM and local Python workers keep for a while lies in it.

It goes with the session. What a killed process has left is removed by the next session that this user
starts: a lock, which dies with its process, tells which folders are in use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "mqstore-spark-"
_LOCK = "in-use"


@contextmanager
def session_folder() -> Iterator[Path]:
    """A new folder in the directory for temporary files, removed at the end with all in it."""
    remove_left(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # locked under another name: whoever finds it under its own finds it locked
        with (folder / "lock").open("xb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "lock").rename(folder / _LOCK)
            (folder / "tmp").mkdir()
            yield folder


def remove_left(place: Path) -> None:
    """Remove folders of sessions that are gone, as far as this user may."""
    for folder in place.glob(_PREFIX + "*"):
        # one that begins, or of somebody else: then it is not there, or not to be opened
        with suppress(OSError), (folder / _LOCK).open("rb") as lock:
            if os.fstat(lock.fileno()).st_uid != os.getuid():
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
