"""The file of `--output`: complete at the end, or as it was before.

Data goes to a new file in the same folder, which replaces the old one at the end. What cannot be replaced is written
directly: a pipe, a device, a file in a folder without write permission. A file of a store is refused.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO

_MODE_BITS = 0o777


class OutputFile:
    """A file that is written from beginning to end; then call `finish` or `give_up`.

    growing: write directly, because others read the file while it grows and an incomplete file is valid. mode: its
    permissions; None for those of the existing file, or the default ones of a new file.
    """

    def __init__(self, path: Path, *, growing: bool = False, mode: int | None = None) -> None:
        """Raises OSError, and InvalidInput for a file of a store and for `-`."""
        self.target = Path(os.path.realpath(path))
        _refuse_a_store(path, self.target)
        self._beside: Path | None = None
        old = path.stat() if path.exists() else None  # not of target: /dev/stdout may have no name
        if growing or (old is not None and not stat.S_ISREG(old.st_mode)):
            self.stream: IO[bytes] = path.open("wb")
            return
        try:
            descriptor, beside = _made_beside(path, self.target)
        except PermissionError:
            self.stream = path.open("wb")
            return
        self.stream, self._beside = os.fdopen(descriptor, "wb"), beside
        if old is not None or mode is not None:
            kept = old.st_mode & _MODE_BITS if old is not None else 0
            os.fchmod(descriptor, kept if mode is None else mode)

    def finish(self) -> None:
        """Replace the file with the complete data. Raises OSError; then the file is as it was."""
        try:
            self.stream.close()
            if self._beside is not None:
                self._beside.replace(self.target)
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        with suppress(OSError):  # on a full disk this fails, too
            self.stream.close()
        if self._beside is not None:
            self._beside.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Raises OSError or InvalidInput if a file could not be written. Changes nothing."""
    target = Path(os.path.realpath(path))
    _refuse_a_store(path, target)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        return
    try:
        descriptor, beside = _made_beside(path, target)
    except PermissionError:
        if not os.access(path, os.W_OK):
            raise
    else:
        os.close(descriptor)
        beside.unlink()


def _made_beside(path: Path, target: Path) -> tuple[int, Path]:
    """Open a new file that will replace `target`. Raises OSError with the name `path`."""
    import secrets

    beside = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}")
    try:
        return os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), beside
    except OSError as error:
        error.filename = str(path)
        raise


def _refuse_a_store(path: Path, target: Path) -> None:
    """Raises InvalidInput for a file of a store, which is input, and for `-`, which elsewhere means stdout."""
    from ..store.errors import InvalidInput

    if str(path) == "-":
        raise InvalidInput("- is not accepted as a path", hint="name one")
    if is_file_of_store(target):
        what = (
            "this is a file of a store and would be lost"
            if target.exists()
            else "the broker uses this path for its own files"
        )
        raise InvalidInput(what, path=path, hint="name another")


def is_file_of_store(path: Path) -> bool:
    """Whether a file, by its name and place, is one that brokers write, so that no other file may take its place.

    The name alone decides for an existing file of a log or queue, whatever directory a link leads to. Any other path
    is decided by the part of a store that it lies in, existing or not: a broker does not start beside a name that it
    does not know.
    """
    from ..store.disk.broker_conf import BrokerConfig
    from ..store.disk.file_queue import NAME_DIGITS
    from ..store.disk.layout import COMMIT_LOG, CONSUME_QUEUE, DIRECTORIES, DLEDGER_PREFIX, FILES

    if path.is_dir():
        return False
    if len(path.name) == NAME_DIGITS and path.name.isdecimal() and path.is_file():
        return True
    for root in path.parents:
        if any((root / part).is_dir() for part in (COMMIT_LOG, CONSUME_QUEUE)):
            first = path.relative_to(root).parts[0]
            known = first in DIRECTORIES or first in FILES or first.startswith(DLEDGER_PREFIX)
            return known or first in BrokerConfig().controller_files(root)
    return False
