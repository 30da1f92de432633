"""The lock of a store: who holds it, and taking it as a broker does (spec/04-checkpoint-timer.md, 4.3).

A broker holds a POSIX record lock on the first byte of `STORE/lock` from start to the end of its shutdown, but not
while it loads and recovers. `holder` only asks; `StoreLock` takes the lock.

The lock belongs to the process: closing any descriptor of the file releases it. So the file is opened once, last, and
stays open until the lock is released; nothing else may open it meanwhile.

A directory that is being created has such a lock, too (`new_directory`).
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from ...formats.locked_range import CONTENT, LOCKED_RANGE
from ..errors import InUse, InvalidInput, Missing, NoSpace, NotAStore, StoreError, broken_link, from_os_error, os_errors
from .byte_reader import note_expired, open_regular
from .file_queue import MappedFile, MappedFileQueue
from .files import Files, OpenFile, empty
from .layout import JOURNAL, Layout, where_instead

_held_here: set[tuple[int, int]] = set()
"""Device and inode of every lock file that this process holds."""


def identity(status: os.stat_result) -> tuple[int, int]:
    """Device and inode, which distinguish a file from every other on this machine."""
    return status.st_dev, status.st_ino


def held_here(path: Path) -> bool:
    """Whether this process holds the lock file at `path`."""
    try:
        return identity(path.stat()) in _held_here
    except OSError:
        return False


def holder(path: Path) -> int | None:
    """Process id of the holder of the lock file at `path`; None if the lock is free, or `path` is no file.

    0 if the holder's id is not known (another machine, another container). For a lock that this process holds, its own
    id; the file is not opened then, since closing any descriptor of it would release the lock. Raises Unreadable.
    """
    if held_here(path):
        return os.getpid()
    if path.is_dir():
        return None  # no broker starts with a directory there
    try:
        descriptor = open_regular(path)
    except Missing:
        return None
    try:
        return _ask(descriptor)
    except OSError as error:
        raise from_os_error(error, path) from error
    finally:
        os.close(descriptor)


def _ask(descriptor: int) -> int | None:
    """Ask the system for the holder of the lock. `struct flock` (fcntl(2)) is not a store format.

    ctypes is imported late: a `put` that finds no other holder does not need it.
    """
    from ctypes import Structure, c_int, c_longlong, c_short

    class Flock(Structure):
        _fields_ = (
            ("type", c_short),
            ("whence", c_short),
            ("start", c_longlong),
            ("length", c_longlong),
            ("pid", c_int),
        )

    question = bytes(Flock(fcntl.F_WRLCK, os.SEEK_SET, *LOCKED_RANGE, 0))
    found = Flock.from_buffer_copy(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    return None if found.type == fcntl.F_UNLCK else max(0, found.pid)


def expiring(queue: MappedFileQueue, lock: Path, *, told: bool = False) -> MappedFileQueue:
    """Return the queue; files that a broker deletes after the listing, while it holds the lock, hold nothing from then
    on. A broker deletes the oldest ones: any other file that is gone stays an error.

    told: note it for the user (`byte_reader.note_expired`).
    """
    queue.begins_now = partial(_begins_now, queue.directories, lock, told)
    return queue


def stream_of(
    layout: Layout, directory: str | os.PathLike[str], file_size: int | None = None, *, told: bool = False
) -> MappedFileQueue:
    """The files of a directory of a store, `expiring`. file_size: as for `MappedFileQueue.open`. Raises Unreadable."""
    return expiring(MappedFileQueue.open(directory, file_size), layout.lock, told=told)


def _begins_now(directories: tuple[str, ...], lock: Path, told: bool, file: MappedFile) -> int:
    """See `MappedFileQueue.begins_now`."""
    used = holder(lock) not in (None, os.getpid())
    begin = MappedFileQueue.open(directories).start if used else 0
    if begin <= file.start:
        return 0
    if told:
        note_expired(directories[0], begin)
    return begin


_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.05
_HINT = "stop the broker, or wait longer: --wait SECONDS"
_LARGEST_KEPT = 1 << 16


class LockState(NamedTuple):
    """A lock file before it was taken: its bytes (None if it did not exist) and its modification time in ns."""

    content: bytes | None
    modified_ns: int


class StoreLock:
    """The lock of one store, held from `take` to `release`; a context manager."""

    def __init__(self, files: Files, file: OpenFile, key: tuple[int, int], was: LockState) -> None:
        self._files, self._file, self._key = files, file, key
        self.was = was
        #: State that `release` gives the file; None: the file stays as it is, as after a broker.
        self.leave: LockState | None = None

    @classmethod
    def take(cls, path: Path, files: Files, *, wait_seconds: float = 0, hint: str = _HINT) -> StoreLock:
        """Take the lock file at `path`; create it if it is missing.

        Wait up to `wait_seconds` for another holder. Raises InUse with `hint`, Unreadable, NoSpace; then nothing was
        changed, except that the lock file may have been created.
        """
        end = time.monotonic() + wait_seconds
        pause = _FIRST_PAUSE_S
        while True:
            lock = cls._try(path, files)
            if lock is not None:
                return lock
            remaining = end - time.monotonic()
            if not remaining > 0:  # also true for NaN
                raise _in_use(path, wait_seconds, hint)
            time.sleep(min(pause, remaining))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    @classmethod
    def _try(cls, path: Path, files: Files) -> StoreLock | None:
        """The lock, or None if somebody else holds it."""
        if held_here(path):
            return None
        there = path.exists()
        file, key = files.open_or_create(path), None
        try:
            key = _lock(file)
            content = file.pread(_LARGEST_KEPT, 0)
            was = LockState(content if there else None, os.fstat(file.descriptor).st_mtime_ns)
            if key is not None and content != CONTENT:
                _write_content(file)
        except BaseException:
            if key is not None and not there:
                files.unlink(path)
            file.close()
            raise
        if key is None or key in _held_here:
            file.close()
            return None
        _held_here.add(key)
        return cls(files, file, key, was)

    def is_at(self, path: Path) -> bool:
        """Whether `path` names the lock file; its directory may have been replaced or renamed."""
        try:
            return identity(path.stat()) == self._key
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock and give the file the state of `leave`. A second call does nothing."""
        if self._file.descriptor < 0:
            return
        try:
            if self.leave is not None:
                self._put_back(self.leave)
        finally:
            _held_here.discard(self._key)
            self._file.close()

    def _put_back(self, was: LockState) -> None:
        path = self._file.path
        if was.content is None:
            self._files.unlink(path)
            self._files.sync_directory(path.parent)
            return
        if self._file.pread(_LARGEST_KEPT, 0) != was.content:
            self._file.truncate(len(was.content))
            self._file.pwrite(was.content, 0)
            self._file.sync()
        status = path.stat()
        if status.st_mtime_ns != was.modified_ns:
            self._files.set_times(path, status.st_atime_ns, was.modified_ns)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def mark_of(target: Path) -> Path:
    """The mark file in a directory that is not complete; it exists before any other content. The process that creates
    the directory holds the lock of the mark: if nobody does, that process was killed.
    """
    return target / JOURNAL / "half-made"


def creator_of(target: Path) -> int | None:
    """The process that is creating a directory with a mark, as `holder`; None if the lock cannot be asked for."""
    with suppress(StoreError):
        return holder(mark_of(target))
    return None


@contextmanager
def new_directory(target: Path, files: Files, *, like: Path | None = None) -> Iterator[None]:
    """Create `target`, or take an empty directory, and confine `files` to it in this block. If the block ends with an
    error or an interrupt, everything is removed again; the error says so, or names what could not be removed.

    like: a new directory gets the owner and mode of this one, so that the same broker can use the store in it.
    A killed process leaves a mark (`mark_of`). Raises InvalidInput, NotAStore, InUse if the directory is not new or
    empty, NoSpace, Unreadable, Missing.
    """
    check_empty(target)
    mark = mark_of(target)
    made = [path for path in (mark.parent, target, *target.parents) if not path.exists()]
    with _marked(target, made, files, like):
        try:
            files.sync_directory(mark.parent)
            yield
            files.unlink(mark)
            if not any(mark.parent.iterdir()):
                files.remove_directory(mark.parent)
            files.sync_directory(target)
        except BaseException as error:
            error.__notes__ = []  # they are about a session in the directory, which is removed
            outcome = f"{target} was removed again"
            try:
                _clear(target, made, files)
            except StoreError as kept:
                outcome = f"{target} is not complete and stays there: {kept}"
            _add_hint(error, outcome)
            raise


def _add_hint(error: BaseException, outcome: str) -> None:
    if isinstance(error, StoreError):
        error.hint = "; ".join(filter(None, (error.hint, outcome)))
    else:
        error.add_note(outcome)


def check_empty(target: Path) -> None:
    """Raise InvalidInput for a directory with content, or one that a job has begun to make, NotAStore for a file,
    Missing for a link to nothing, InUse as `is_incomplete`.
    """
    with os_errors(target):
        if (broken := broken_link(target)) is not None:
            raise broken
        if target.exists() and not target.is_dir():
            raise NotAStore("not a directory", path=target)
        if not target.exists() and (hint := where_instead(target, "")):
            raise InvalidInput("a job has begun to make this directory", path=target, hint=hint)
        prefix = f"{HALF_MADE}: remove it, or " if is_incomplete(target) else ""
        if target.is_dir() and any(target.iterdir()):
            raise InvalidInput("not empty", path=target, hint=f"{prefix}{_ANOTHER}")


HALF_MADE = "the command that was making it was interrupted"
_ANOTHER = "name a new directory"


def is_incomplete(target: Path) -> bool:
    """Whether the creation of a directory was interrupted. Raises InUse if another process is creating it now."""
    if not os.path.lexists(mark_of(target)):
        return False
    pid = creator_of(target)
    if pid is not None:
        who = f"process {pid}" if pid else "another process"
        raise InUse(f"in use: {who} is making it", path=target, hint=_ANOTHER)
    return True


def _marked(target: Path, made: list[Path], files: Files, like: Path | None) -> StoreLock:
    """Create a directory and its mark; return the lock of the mark. Raises InvalidInput if somebody else has put
    something there since the check; that stays as it is.
    """
    mark, lock = mark_of(target), None
    try:
        files.make_directory(target, like=like)
        files.confine([target])
        files.make_directory(mark.parent)
        lock = StoreLock.take(mark, files, hint=_ANOTHER)
        with os_errors(target):
            if {*target.iterdir(), *mark.parent.iterdir()} != {mark.parent, mark}:
                raise InvalidInput("not empty", path=target, hint=_ANOTHER)
    except BaseException as error:
        if lock is not None:
            lock.leave = lock.was
            lock.release()
        for path in made:
            with suppress(StoreError):  # it is not empty, or does not exist
                Files().remove_directory(path)
        if not (target.exists() and any(target.iterdir())):
            _add_hint(error, f"{target} was removed again")
        raise
    return lock


def _clear(target: Path, made: list[Path], files: Files) -> None:
    """Remove the content of a directory, the mark last, then the directories that were created."""
    if target.is_dir():
        empty(target, files)
    outside = Files()  # `files` is confined to the target
    for path in made:
        if path.is_dir():
            outside.remove_directory(path)


def _write_content(file: OpenFile) -> None:
    """Write the content that a broker writes into its lock file. On a full disk the file stays empty and locks, too."""
    file.truncate(len(CONTENT))
    try:
        file.pwrite(CONTENT, 0)
    except NoSpace:
        file.truncate(0)


def _lock(file: OpenFile) -> tuple[int, int] | None:
    """Lock the file. Return its identity, None if it is locked or its path now names another file."""
    start, length = LOCKED_RANGE
    with os_errors(file.path, "cannot lock"):
        try:
            fcntl.lockf(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except (BlockingIOError, PermissionError):
            return None
        key = identity(os.fstat(file.descriptor))
        try:
            return key if key == identity(file.path.stat()) else None
        except FileNotFoundError:  # an undo has removed the file meanwhile
            return None


def _in_use(path: Path, wait_seconds: float, hint: str) -> InUse:
    pid = holder(path)
    who = f"process {pid}" if pid else "another process"
    waited = f" for {wait_seconds:g} s" if wait_seconds else ""
    return InUse(f"in use by {who}{waited}: a broker or another mqstore", path=path.parent, hint=hint)
