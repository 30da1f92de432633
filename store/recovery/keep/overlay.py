"""The commit log as it will be: the files on disk, and over them what a plan writes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from ...mapped_file_queue import MappedFile, MappedFileQueue
from .records import Piece


def _apart(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces by position; of one that reaches into the next, what lies around that stays."""
    found: list[Piece] = []
    for begin, data in sorted(pieces, key=lambda piece: piece[0]):
        if not found or found[-1][0] + len(found[-1][1]) <= begin:
            found.append((begin, data))
            continue
        before, under = found.pop()
        around = [(before, under[: begin - before]), (begin, data)]
        around.append((begin + len(data), under[begin + len(data) - before :]))
        found += [piece for piece in around if len(piece[1])]
    return found


class PatchedQueue(MappedFileQueue):
    """Files of a log with pieces laid over them; bytes that no file has read as zeros.

    present: paths of the files that are there.
    """

    def __init__(
        self,
        base: MappedFileQueue,
        files: list[MappedFile],
        present: dict[str, int],
        pieces: Iterable[Piece],
    ) -> None:
        super().__init__(base.directories, files, base.file_size, [])
        self._base = base
        self._present = present
        self._pieces = _apart(pieces)
        self._begins = [position for position, _ in self._pieces]

    def read_file(self, file: MappedFile, offset: int, size: int) -> bytes:
        """As for any queue, with the pieces laid over it."""
        size = max(0, min(size, file.size - offset))
        return bytes(self._patched(file, offset, size))

    def read_into(self, file: MappedFile, offset: int, buffer: memoryview) -> int:
        """As for any queue, with the pieces laid over it."""
        size = max(0, min(len(buffer), file.size - offset))
        if self._is_plain(file, offset, size):
            whole = file._replace(size=self._present[file.path])
            return self._base.read_into(whole, offset, buffer[:size])
        buffer[:size] = self._patched(file, offset, size)
        return size

    def _is_plain(self, file: MappedFile, offset: int, size: int) -> bool:
        """Nothing lies over this range, and the file has all of it."""
        if self._present.get(file.path, 0) < offset + size:
            return False
        number = bisect_right(self._begins, file.start + offset + size) - 1
        if number < 0:
            return True
        position, piece = self._pieces[number]
        return position + len(piece) <= file.start + offset

    def next_data(self, file: MappedFile, offset: int) -> int | None:
        """Holes are no help where something may lie over them."""
        return offset if offset < file.size else None

    def _patched(self, file: MappedFile, offset: int, size: int) -> bytearray:
        data = bytearray(size)
        there = min(size, max(0, self._present.get(file.path, 0) - offset))
        if there:
            whole = file._replace(size=self._present[file.path])
            data[:there] = self._base.read_file(whole, offset, there)
        begin = file.start + offset
        number = max(0, bisect_right(self._begins, begin) - 1)
        for position, piece in self._pieces[number:]:
            if position >= begin + size:
                break
            first, behind = max(begin, position), min(begin + size, position + len(piece))
            if first < behind:
                data[first - begin : behind - begin] = piece[first - position : behind - position]
        return data
