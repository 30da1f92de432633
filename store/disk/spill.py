"""Arrays that somebody needs of a whole log, in a temporary file once they are many.

Mapped pages are the page cache's, which the system takes back when it needs memory.
"""

from __future__ import annotations

import mmap
import os
import weakref
from tempfile import TemporaryFile
from typing import IO, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=npt.NDArray[Any])

_IN_MEMORY_BYTES = 8 << 20
_PIECE_BYTES = 256 << 20
"""Mapped at once: each piece keeps a descriptor, and its room on the disk until nobody has an array of it."""
_ALIGNED = 16
_NEVER = 1 << 62


class Spill:
    """Keeps arrays for one process: the first ones in memory, then in the directory for temporary files.

    Where that has no room they stay in memory.
    """

    def __init__(self) -> None:
        self._owner, self._left = os.getpid(), _IN_MEMORY_BYTES
        self._file: IO[bytes] | None = None
        self._close: weakref.finalize[..., Any] | None = None
        self._piece: mmap.mmap | None = None
        self._end = 0

    def keep(self, array: T) -> T:
        """The array, or the same in the file: nobody is to write to either."""
        self._left -= array.nbytes
        if self._left >= 0 or not array.nbytes or os.getpid() != self._owner:
            return array
        try:
            return self._written(array)
        except OSError:
            self._left = _NEVER
            return array

    def _written(self, array: T) -> T:
        if self._piece is None or self._end + array.nbytes > len(self._piece):
            self._begin(max(_PIECE_BYTES, array.nbytes))
        assert self._piece is not None and self._file is not None
        begin, data = self._end, memoryview(array.tobytes())
        while data:
            done = os.pwrite(self._file.fileno(), data, begin + array.nbytes - len(data))
            data = data[done:]
        self._end += -(-array.nbytes // _ALIGNED) * _ALIGNED
        there = np.frombuffer(self._piece, array.dtype, array.size, begin)
        return cast(T, there.reshape(array.shape))

    def _begin(self, size: int) -> None:
        """A file with room for so many bytes, which it takes as they are written."""
        self._piece, self._end = None, 0
        if self._close is not None:
            self._close()  # what is mapped stays
        self._file = TemporaryFile(prefix="mqstore-arrays-", buffering=0)  # noqa: SIM115
        self._close = weakref.finalize(self, self._file.close)
        os.ftruncate(self._file.fileno(), size)
        self._piece = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ)
