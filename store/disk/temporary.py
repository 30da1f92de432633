"""Unnamed temporary files for data too large for memory; they disappear with the process that holds them.

Arrays that cover a whole log are kept there once they are many (`Spill`): mapped pages belong to the page cache, which
the system reclaims when it needs memory (not on a tmpfs).
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
    """In this block, turn a failed write to the directory for temporary files into NoSpace, which names that."""
    try:
        yield
    except Exception as error:  # the RocksDB library raises plain Exception
        if type(error) is not Exception and not isinstance(error, OSError):
            raise
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise NoSpace(
            f"cannot write in the directory for temporary files ({reason})",
            path=gettempdir(),
            hint="set TMPDIR to a directory with free space",
        ) from error


class TemporaryBytes:
    """A temporary file: bytes are appended, and read or mapped anywhere.

    size: initial length of the file; disk space is used only as bytes are written. Raises NoSpace.
    """

    def __init__(self, size: int = 0) -> None:
        self._size, self.end = size, 0
        with temporary_files():
            self._file = TemporaryFile(prefix="mqstore-", buffering=0)  # noqa: SIM115
            self._close = weakref.finalize(self, self._file.close)
            if size:
                os.ftruncate(self._file.fileno(), size)

    def append(self, data: bytes | memoryview) -> int:
        """Append bytes; return where they begin. After a failure none of them stays. Raises NoSpace."""
        begin, rest = self.end, memoryview(data)
        try:
            with temporary_files():
                while rest:
                    done = os.pwrite(self._file.fileno(), rest, self.end)
                    rest, self.end = rest[done:], self.end + done
        except NoSpace:
            self.end = begin
            os.ftruncate(self._file.fileno(), begin)
            os.ftruncate(self._file.fileno(), max(begin, self._size))
            raise
        return begin

    def read(self, begin: int, size: int) -> bytes:
        """`size` bytes from `begin` on. Raises Unreadable."""
        return read(self._file.fileno(), size, begin, "a temporary file")

    def mapped(self, *, private: bool = False) -> memoryview:
        """All bytes, including those that another process appended, mapped as long as the result is referenced.

        private: changes of the mapped bytes are visible to this process only. Raises NoSpace.
        """
        access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
        with temporary_files():
            if not os.fstat(self._file.fileno()).st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(self._file.fileno(), 0, access=access))


def mapped(stretches: Iterable[bytes]) -> memoryview:
    """Map bytes that may be more than memory can hold. Raises NoSpace, and what `stretches` raises."""
    there = TemporaryBytes()
    for data in stretches:
        there.append(data)
    return there.mapped()


T = TypeVar("T", bound="npt.NDArray[Any]")

_IN_MEMORY_BYTES = 2 << 20
_PIECE_BYTES = 256 << 20
"""Bytes mapped at once: each piece keeps a descriptor, and its disk space until no array in it is referenced."""
_ALIGNED = 16
_SMALL_BYTES = 1024
"""Smaller arrays need less memory than the means to find them again."""
_NEVER = 1 << 62


class Spill:
    """Keeps arrays for one process: the first ones in memory, later ones in the directory for temporary files.

    If that has no space, they stay in memory.
    """

    def __init__(self) -> None:
        self._owner, self._memory_left = os.getpid(), _IN_MEMORY_BYTES
        self._file: TemporaryBytes | None = None
        self._room = memoryview(b"")

    def keep(self, array: T) -> T:
        """The array or a copy in the file; the caller must not write to either."""
        if os.getpid() != self._owner:
            return array
        if array.nbytes < _SMALL_BYTES:  # a view would keep its whole base array in memory
            return array if array.base is None else array.copy()
        self._memory_left -= array.nbytes
        if self._memory_left >= 0:
            return array
        try:
            return self._written(array)
        except NoSpace:
            self._memory_left = _NEVER
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
