"""The folder of a session, for all temporary files of Spark, its JVM and local Python workers.

It is removed with the session. What a killed process has left is removed by the next session of this user: a lock,
which dies with its process, shows which folders are in use.
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
        # a folder that is just made has no such file; one of another user cannot be opened
        with suppress(OSError), (folder / _LOCK).open("rb") as lock:
            if os.fstat(lock.fileno()).st_uid != os.getuid():
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
