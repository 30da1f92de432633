"""The commit log as it will be: the files on disk, and over them what a plan writes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from ..disk.byte_reader import Unread
from ..disk.file_queue import MappedFile, MappedFileQueue
from .fill_records import Piece


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
        if self._is_plain(file, offset, size):
            return self._base.read_file(file._replace(size=self._present[file.path]), offset, size)
        return bytes(self._patched(file, offset, size))

    def fill(self, file: MappedFile, offset: int, buffer: memoryview) -> tuple[int, list[Unread]]:
        """As for any queue, with the pieces laid over it."""
        size = max(0, min(len(buffer), file.size - offset))
        if self._is_plain(file, offset, size):
            whole = file._replace(size=self._present[file.path])
            return self._base.fill(whole, offset, buffer[:size])
        buffer[:size] = self._patched(file, offset, size)
        return size, []

    def _is_plain(self, file: MappedFile, offset: int, size: int) -> bool:
        """Nothing lies over this range, and the file has all of it."""
        if self._present.get(file.path, 0) < offset + size:
            return False
        begin = file.start + offset
        return next(self._pieces_from(begin, begin + size), None) is None

    def next_data(self, file: MappedFile, offset: int) -> int | None:
        """As for any queue; what lies over a hole is data, too."""
        found, there = None, self._present.get(file.path, 0)
        if offset < there:
            found = self._base.next_data(file._replace(size=there), offset)
        begin, end = file.start + offset, file.start + file.size
        for position, _ in self._pieces_from(begin, end):
            laid = max(begin, position) - file.start
            return laid if found is None else min(found, laid)
        return found

    def _pieces_from(self, begin: int, end: int) -> Iterator[Piece]:
        """The pieces that lie over some of the bytes [begin, end)."""
        number = max(0, bisect_right(self._begins, begin) - 1)
        while number < len(self._pieces) and self._begins[number] < end:
            position, piece = self._pieces[number]
            if position + len(piece) > begin:
                yield position, piece
            number += 1

    def _patched(self, file: MappedFile, offset: int, size: int) -> bytearray:
        data = bytearray(size)
        there = min(size, max(0, self._present.get(file.path, 0) - offset))
        if there:
            whole = file._replace(size=self._present[file.path])
            data[:there] = self._base.read_file(whole, offset, there)
        begin = file.start + offset
        for position, piece in self._pieces_from(begin, begin + size):
            first, behind = max(begin, position), min(begin + size, position + len(piece))
            data[first - begin : behind - begin] = piece[first - position : behind - position]
        return data
