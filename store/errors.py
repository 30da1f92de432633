"""The exceptions of the library: one small class tree.

Every error says in one line what happened, where (path and offset) and what to do about it. Exit codes belong to the
command line: `cli/exit_codes.py` maps these classes to them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Self


class StoreError(Exception):
    """Base of all errors of the library.

    message: what happened. path: the file or directory. offset: the byte position in that file, or the physical offset
    if no single file is meant. hint: what the user can do, or a function that finds it when it is wanted. store: of
    several stores, the one that cannot be read to its end.

    >>> str(StoreError("cannot read", path="/s/abort", hint="check the permissions"))
    'cannot read: /s/abort; check the permissions'
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | PathLike[str] | None = None,
        offset: int | None = None,
        hint: str | Callable[[], str] = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = None if path is None else fspath(path)
        self.offset = offset
        self._hint = hint
        self.store: str | None = None

    @property
    def hint(self) -> str:
        return self._hint if isinstance(self._hint, str) else self._hint()

    @hint.setter
    def hint(self, hint: str) -> None:
        self._hint = hint

    def __str__(self) -> str:
        text = self.message
        if self.path is not None:
            text += f": {self.path}"
        if self.offset is not None:
            text += f" at {self.offset}" if self.path is not None else f": at {self.offset}"
        if self.hint:
            text += f"; {self.hint}"
        return one_line(text)

    @classmethod
    def because(cls, error: OSError, path: str | PathLike[str], doing: str = "cannot read") -> Self:
        """Create this error from an `OSError` that occurred at `path` while `doing`."""
        return cls(f"{doing} ({error.strerror or error})", path=path)


class Missing(StoreError):
    """The path does not exist."""


class NotAStore(StoreError):
    """The path exists, but is not a store (a file, an empty directory, something else)."""


class Unreadable(StoreError):
    """An I/O error, a symlink loop, or contents that make no sense."""


class Denied(StoreError):
    """No permission, which says nothing about the contents."""


class InTheWay(Unreadable):
    """A file stands where a directory belongs."""


class UnreadableRange(Unreadable):
    """The disk does not return `length` bytes at `offset` of the file. reason: what the system says."""

    def __init__(
        self,
        message: str,
        *,
        path: str | PathLike[str] | None = None,
        offset: int | None = None,
        hint: str = "",
        length: int = 0,
        reason: str = "",
    ) -> None:
        super().__init__(message, path=path, offset=offset, hint=hint)
        self.length = length
        self.reason = reason


class Unsupported(StoreError):
    """A layout or a format that this version does not handle."""


class InUse(StoreError):
    """A broker or another mqstore holds the store's lock."""


class NotFound(StoreError):
    """There is no such topic, queue, offset, key or record."""


class Corrupted(StoreError):
    """A body failed its checksum, or a range of the log is damaged, and the caller does not accept that."""


class Unclean(StoreError):
    """The store was not shut down cleanly and has to be recovered first."""


class Refused(StoreError):
    """Refused for safety."""


class LimitExceeded(StoreError):
    """A limit set by the user or by the formats is exceeded."""


class NoSpace(StoreError):
    """The disk or a quota is full."""


class InvalidInput(StoreError):
    """Input of the user that makes no sense: an option, a time, an address, a configuration."""


FULL = (errno.ENOSPC, errno.EDQUOT)
"""The error numbers of a full disk or quota."""


def did_you_mean(word: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return a hint for a name that does not exist: the most similar of these names, `otherwise` if none is similar."""
    from difflib import get_close_matches

    near = get_close_matches(word[:256], names, n=1)
    return f"did you mean {near[0]}?" if near else otherwise


def from_os_error(error: OSError, path: str | PathLike[str], doing: str = "cannot read") -> StoreError:
    """Return the matching error of this tree for an `OSError` that occurred at `path` while `doing`."""
    if error.errno == errno.ENOENT:
        return broken_link(path) or Missing("no such file or directory", path=path)
    if error.errno == errno.ENOTDIR:
        in_the_way = next((each for each in (Path(path), *Path(path).parents) if each.is_file()), None)
        if in_the_way is not None:
            hint = "if a directory belongs there, move the file away"
            return InTheWay("not a directory but a file", path=in_the_way, hint=hint)
    if error.errno in FULL:
        return NoSpace.because(error, path, doing)
    if isinstance(error, PermissionError):
        return Denied.because(error, path, doing)
    found = Unreadable.because(error, path, doing)
    if error.errno == errno.EMFILE:
        found.hint = "raise the limit of open files (ulimit -n)"
    return found


def broken_link(path: str | PathLike[str]) -> Missing | None:
    """Return the error for a path that is a link to nothing, or that such a link leads to; None for any other path. The
    link may lead to a disk that is not mounted.
    """
    for link in (Path(path), *Path(path).parents):
        if link.is_symlink() and not os.path.exists(link):  # noqa: PTH110  never raises
            hint = "mount its disk, or remove the link if the disk is gone"
            return Missing(f"a link to {link.readlink()}, where nothing is", path=link, hint=hint)
    return None


@contextmanager
def os_errors(path: str | PathLike[str], doing: str = "cannot read", offset: int | None = None) -> Iterator[None]:
    """Turn an `OSError` into an error of this tree with path, offset and what was being done."""
    try:
        yield
    except OSError as error:
        translated = from_os_error(error, path, doing)
        translated.offset = offset
        raise translated from error


def one_line(text: str) -> str:
    """Return `text` with control characters escaped: a path or a topic may contain any of them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
