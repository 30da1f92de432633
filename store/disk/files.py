"""The only code of the project that changes the file system.

Everything that writes does it through one `Files` object. Tests put another in its place that
counts the steps, fails at any of them or stops for good there, so that every crash and every full
disk can be tried. `Files` holds nothing but where it may write (`confine.py`): one object serves any
number of stores and threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ..errors import Refused, StoreError, from_os_error
from .byte_reader import read
from .exchange import exchange
from .regular_file import check_regular

if TYPE_CHECKING:
    from typing_extensions import Buffer

_FILE_BITS = 0o666
_MODE_BITS = 0o7777
_MOST_LOOKS = 8


class Files:
    """Creates, writes, flushes, renames and removes files and directories.

    Every method makes one change, names it to `step` first, and raises an error of
    `store.errors` with the path where the system refuses it.
    """

    _roots: tuple[str, ...] = ()

    def confine(self, roots: Iterable[Path]) -> None:
        """From now on change nothing outside these directories, and those named before."""
        self._roots += tuple(os.path.realpath(root) for root in roots)

    def is_inside(self, path: Path) -> bool:
        """Whether `path`, with all links followed, lies where changes are allowed."""
        real = os.path.realpath(path)
        return not self._roots or any(
            real == root or real.startswith(root.rstrip("/") + "/") for root in self._roots
        )

    def check_inside(self, path: Path) -> None:
        """Raises Refused for a path that leads elsewhere. A name with NUL leads nowhere."""
        if "\0" in str(path) or not self.is_inside(path):
            raise Refused(
                f"leads out of the store, to {os.path.realpath(path)}",
                path=path,
                hint="--follow-links trusts links of the store's own directories",
            )

    def step(self, change: str, path: Path, size_bytes: int = 0) -> None:
        """Called before every change. Tests override it: what it raises happens instead.

        change: create open write truncate sync sync_directory rename exchange unlink make_directory
        remove_directory set_times. size_bytes: of a write, or the length that a file gets.
        """

    def write_at(self, descriptor: int, data: memoryview, offset: int) -> int:
        """One write to the system, which may be short. Tests override it to tear a write."""
        return os.pwrite(descriptor, data, offset)

    def open(self, path: Path) -> OpenFile:
        """Open a file that exists for reading and writing. Raises Missing, Unreadable."""
        self.check_inside(path)
        with told(path, "cannot write"):
            check_regular(path.stat(), path)
            self.step("open", path)
            return OpenFile(self, path, os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def create(self, path: Path, *, like: Path | None = None) -> OpenFile:
        """Create an empty file, open for reading and writing; it must not exist.

        It takes mode and owner of `like`, by default of its directory: a store that root repairs
        stays one that its broker can write. Raises NoSpace, Unreadable, Missing.
        """
        self.check_inside(path.parent)
        with told(path, "cannot create"):
            self.step("create", path)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            model = (like or path.parent).stat()
            descriptor = os.open(path, flags, model.st_mode & _FILE_BITS)
            file = OpenFile(self, path, descriptor)
            try:
                os.fchmod(descriptor, model.st_mode & _FILE_BITS)
                _give(descriptor, model)
            except BaseException:
                file.close()
                raise
            return file

    def open_or_create(self, path: Path) -> OpenFile:
        """Open a file, create it where it does not exist. Raises as `open` and `create`.

        Another process may create or remove it between the look and the call: it is looked at again.
        """
        for _ in range(_MOST_LOOKS):
            try:
                return self.open(path) if path.exists() else self.create(path)
            except StoreError as error:
                if not isinstance(error.__cause__, FileExistsError | FileNotFoundError):
                    raise
                passed_by = error
        raise passed_by

    def make_directory(self, path: Path) -> None:
        """Create a directory with its parents, each like the one above it, and flush them."""
        missing = [path, *path.parents]
        missing = missing[: next(i for i, p in enumerate(missing) if p.exists())]
        self.check_inside(path)
        for directory in reversed(missing):
            with told(directory, "cannot create"):
                self.step("make_directory", directory)
                model = directory.parent.stat()
                directory.mkdir(mode=model.st_mode & _MODE_BITS, exist_ok=True)
                _give(directory, model)
            self.sync_directory(directory.parent)

    def sync_directory(self, path: Path) -> None:
        """Bring the names in a directory to the disk."""
        with told(path, "cannot flush"):
            self.step("sync_directory", path)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Rename inside one file system; a file at `target` is replaced."""
        self.check_inside(source.parent)
        self.check_inside(target.parent)
        with told(source, f"cannot rename to {target}"):
            self.step("rename", source)
            source.rename(target)

    def exchange(self, one: Path, other: Path) -> bool:
        """Let two paths of one file system change places at once; False where it cannot do that."""
        self.check_inside(one.parent)
        self.check_inside(other.parent)
        with told(other, f"cannot change places with {one}"):
            self.step("exchange", other)
            return exchange(one, other)

    def unlink(self, path: Path) -> None:
        """Remove a file. Raises Missing where there is none."""
        self.check_inside(path.parent)
        with told(path, "cannot remove"):
            self.step("unlink", path)
            path.unlink()

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        self.check_inside(path.parent)
        with told(path, "cannot remove"):
            self.step("remove_directory", path)
            path.rmdir()

    def set_times(self, path: Path, accessed_ns: int, modified_ns: int) -> None:
        """Set the times of a file or directory, in ns since 1970 (they drive a broker's expiry)."""
        self.check_inside(path)
        with told(path, "cannot set the times"):
            self.step("set_times", path)
            os.utime(path, ns=(accessed_ns, modified_ns))


class OpenFile:
    """One file open for reading and writing; a context manager that closes it."""

    def __init__(self, files: Files, path: Path, descriptor: int) -> None:
        self.path = path
        self._files = files
        self._descriptor = descriptor

    @property
    def descriptor(self) -> int:
        """The file descriptor; -1 when closed."""
        return self._descriptor

    @property
    def size(self) -> int:
        """Length in bytes."""
        with told(self.path, "cannot read"):
            return os.fstat(self._descriptor).st_size

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; short at the end of the file only."""
        return read(self._descriptor, size, offset, os.fspath(self.path))

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`. Raises NoSpace, Unreadable: part may be written."""
        rest = memoryview(data).cast("B")
        with told(self.path, "cannot write", offset):
            self._files.step("write", self.path, len(rest))
            while rest:
                written = self._files.write_at(self._descriptor, rest, offset)
                rest = rest[written:]
                offset += written

    def truncate(self, size: int) -> None:
        """Make the file `size` bytes long; what is added reads as zeros and takes no space."""
        with told(self.path, "cannot resize"):
            self._files.step("truncate", self.path, size)
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Bring the content to the disk (not the times)."""
        with told(self.path, "cannot flush"):
            self._files.step("sync", self.path)
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file without flushing it; closing twice is fine."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def told(path: Path, doing: str, offset: int | None = None) -> Iterator[None]:
    """Turn an `OSError` into an error of `store.errors` that names path, offset and intent."""
    try:
        yield
    except OSError as error:
        translated = from_os_error(error, path, doing)
        translated.offset = offset
        raise translated from error


def _give(target: int | Path, model: os.stat_result) -> None:
    """Give a new file or directory the owner of its model; only root can, and need."""
    if os.geteuid() == 0:
        os.chown(target, model.st_uid, model.st_gid)


def write_new(files: Files, path: Path, data: Buffer, *, like: Path | None = None) -> None:
    """Create `path` with `data` and flush both the file and its name; `like` as for `create`."""
    with files.create(path, like=like) as file:
        if len(memoryview(data)):
            file.pwrite(data, 0)
        file.sync()
    files.sync_directory(path.parent)
