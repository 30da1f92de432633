"""Where records have gone: pairs of old and new positions, in log order, in an unnamed file beside memory.

A pair has 16 bytes; of a log with ten million records that is more than a command may hold.
"""

from __future__ import annotations

from tempfile import TemporaryFile
from types import TracebackType
from typing import Self

import numpy as np

from ...formats.derive.ragged import Ints
from ..disk.byte_reader import read

NOWHERE = -1
_PAIR = np.dtype(np.int64).itemsize * 2


class Moved:
    """Old and new positions of records. A context manager: the file goes with it."""

    def __init__(self) -> None:
        self._file = TemporaryFile(prefix="mqstore-")  # noqa: SIM115 - closed by __exit__
        #: Of each block of pairs: the first old position, the byte where it begins, its pairs.
        self._first: list[int] = []
        self._blocks: list[tuple[int, int]] = []
        self._bytes = 0

    def add(self, old: Ints, new: Ints) -> None:
        """Records at `old` (rising, behind all before) lie at `new` now: int64[n] each."""
        if not len(old):
            return
        self._file.write(np.concatenate([old, new]).astype(np.int64).data)
        self._first.append(int(old[0]))
        self._blocks.append((self._bytes, len(old)))
        self._bytes += len(old) * _PAIR

    def places(self, old: Ints) -> Ints:
        """The new positions of records, int64[n]; NOWHERE where no record was at `old`."""
        found = np.full(len(old), NOWHERE, np.int64)
        self._file.flush()
        block = np.searchsorted(np.array(self._first, np.int64), old, "right") - 1
        for number in np.unique(block[block >= 0]).tolist():
            rows = np.flatnonzero(block == number)
            at, count = self._blocks[number]
            pairs = read(self._file.fileno(), count * _PAIR, at, "", end=self._bytes)
            known, new = np.frombuffer(pairs, np.int64).reshape(2, count)
            place = np.minimum(np.searchsorted(known, old[rows]), count - 1)
            found[rows] = np.where(known[place] == old[rows], new[place], NOWHERE)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
