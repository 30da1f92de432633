"""The content of a file as slices: read when they are asked for, never mapped.

A page of a mapped file that its disk does not give kills the process; here it is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from .byte_reader import data_ranges, fill
from .regular_file import open_regular

Bytes = npt.NDArray[np.uint8]


class FileBytes:
    """A file, or what it unpacks to: `content[begin:end]` are bytes of it as uint8[end - begin].

    Each slice is read anew, and belongs to whoever asked. open_file: gives the descriptor. Raises
    Missing, Unreadable, at once or with a slice.
    """

    def __init__(self, path: str, open_file: Callable[[str], int] = open_regular) -> None:
        self.path = path
        self._open_file = open_file
        with self._opened() as descriptor:
            self._size = os.fstat(descriptor).st_size

    @contextmanager
    def _opened(self) -> Iterator[int]:
        descriptor = self._open_file(self.path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> Bytes:
        begin, end, _ = part.indices(self._size)
        data = np.empty(max(0, end - begin), np.uint8)
        if len(data):
            with self._opened() as descriptor:
                fill(descriptor, data.data, begin, self.path, end=self._size)
        return data

    def sparse(self) -> Bytes:
        """All of it, uint8[size]; holes of a sparse file are not read, and take no memory."""
        found = np.zeros(self._size, np.uint8)
        with self._opened() as descriptor:
            for begin, end in data_ranges(descriptor, 0, self._size):
                fill(descriptor, found[begin:end].data, begin, self.path, end=self._size)
        return found
