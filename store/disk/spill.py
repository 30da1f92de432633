"""Arrays that somebody needs of a whole log, in a temporary file once they are many.

Mapped pages are the page cache's, which the system takes back when it needs memory; not so on a tmpfs.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ..errors import NoSpace
from .temporary import TemporaryBytes

T = TypeVar("T", bound=npt.NDArray[Any])

_IN_MEMORY_BYTES = 8 << 20
_PIECE_BYTES = 256 << 20
"""Mapped at once: each piece keeps a descriptor, and its room on the disk until nobody has an array of it."""
_ALIGNED = 16
_SMALL_BYTES = 4096
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
        if array.nbytes < _SMALL_BYTES or os.getpid() != self._owner:
            return array
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
        there = np.frombuffer(self._room, array.dtype, array.size, begin)
        return cast(T, there.reshape(array.shape))
