"""Temporary files without a name, for what memory should not hold. They are gone with whoever holds them.

Arrays that somebody needs of a whole log go there once they are many (`Spill`): mapped pages are the page
cache's, which the system takes back when it needs memory; not so on a tmpfs.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile, gettempdir
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..errors import NoSpace
from .byte_reader import read

if TYPE_CHECKING:
    import numpy.typing as npt


@contextmanager
def temporary_files() -> Iterator[None]:
    """While files are written in the directory for temporary ones. Raises NoSpace, which names that."""
    try:
        yield
    except Exception as error:  # the library of RocksDB raises nothing narrower
        if type(error) is not Exception and not isinstance(error, OSError):
            raise
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise NoSpace(
            f"cannot write in the directory for temporary files ({said})",
            path=gettempdir(),
            hint="set TMPDIR to a directory with free space",
        ) from error


class TemporaryBytes:
    """Bytes that are added at the end, and read or mapped from anywhere.

    size: bytes that the file is to have from the beginning; room on the disk it takes as they are written.
    Raises NoSpace.
    """

    def __init__(self, size: int = 0) -> None:
        self._size, self.end = size, 0
        with temporary_files():
            self._file = TemporaryFile(prefix="mqstore-", buffering=0)  # noqa: SIM115
            self._close = weakref.finalize(self, self._file.close)
            if size:
                os.ftruncate(self._file.fileno(), size)

    def append(self, data: bytes | memoryview) -> int:
        """Add bytes; where they begin. What had no room takes none. Raises NoSpace."""
        begin, left = self.end, memoryview(data)
        try:
            with temporary_files():
                while left:
                    done = os.pwrite(self._file.fileno(), left, self.end)
                    left, self.end = left[done:], self.end + done
        except NoSpace:
            self.end = begin
            os.ftruncate(self._file.fileno(), begin)
            os.ftruncate(self._file.fileno(), max(begin, self._size))
            raise
        return begin

    def read(self, begin: int, size: int) -> bytes:
        """So many bytes. Raises Unreadable."""
        return read(self._file.fileno(), size, begin, "a temporary file")

    def mapped(self, *, private: bool = False) -> memoryview:
        """All of them, those that another process has added, too; they stay as long as somebody holds this.
        private: what is written there is for this process alone. Raises NoSpace.
        """
        access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
        with temporary_files():
            if not os.fstat(self._file.fileno()).st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(self._file.fileno(), 0, access=access))


def mapped(stretches: Iterable[bytes]) -> memoryview:
    """Bytes that may be more than memory holds, mapped. Raises NoSpace, and what the stretches raise."""
    there = TemporaryBytes()
    for data in stretches:
        there.append(data)
    return there.mapped()


T = TypeVar("T", bound="npt.NDArray[Any]")

_IN_MEMORY_BYTES = 2 << 20
_PIECE_BYTES = 256 << 20
"""Mapped at once: each piece keeps a descriptor, and its room on the disk until nobody has an array of it."""
_ALIGNED = 16
_SMALL_BYTES = 1024
"""Smaller ones take less in memory than to be found again."""
_NEVER = 1 << 62


class Spill:
    """Keeps arrays for one process: the first ones in memory, then in the directory for temporary files.

    Where that has no room they stay in memory.
    """

    def __init__(self) -> None:
        self._owner, self._left = os.getpid(), _IN_MEMORY_BYTES
        self._file: TemporaryBytes | None = None
        self._room = memoryview(b"")

    def keep(self, array: T) -> T:
        """The array, or the same in the file: nobody is to write to either."""
        if os.getpid() != self._owner:
            return array
        if array.nbytes < _SMALL_BYTES:  # a view would keep all of its array
            return array if array.base is None else array.copy()
        self._left -= array.nbytes
        if self._left >= 0:
            return array
        try:
            return self._written(array)
        except NoSpace:
            self._left = _NEVER
            return array

    def _written(self, array: T) -> T:
        file, room = self._file, self._room
        if file is None or file.end + array.nbytes + _ALIGNED > len(room):
            file = TemporaryBytes(max(_PIECE_BYTES, array.nbytes + _ALIGNED))
            self._file, self._room = file, file.mapped()
        begin = file.append(array.tobytes() + bytes(-array.nbytes % _ALIGNED))
        import numpy as np

        there = np.frombuffer(self._room, array.dtype, array.size, begin)
        return cast(T, there.reshape(array.shape))
