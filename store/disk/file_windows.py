"""Reading files of a queue in windows: around holes of sparse files, and what cannot be read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import byte_reader
from .byte_reader import Unread

if TYPE_CHECKING:
    from .file_queue import MappedFile

_ZEROS = bytes(1 << 16)


class Windows(ABC):
    """What can be read of files, in the ways that readers need it."""

    @abstractmethod
    def fill(self, file: MappedFile, offset: int, buffer: memoryview) -> tuple[int, list[Unread]]:
        """Fill `buffer` from byte `offset` of a file on: the bytes there were, and ranges of the file
        that cannot be read, for which there are zeros. Nothing is noted here. Raises Unreadable.
        """

    @abstractmethod
    def next_data(self, file: MappedFile, offset: int) -> int | None:
        """First byte from `offset` on that is not in a hole of a sparse file, None if all is."""

    @abstractmethod
    def data_end(self, file: MappedFile, offset: int) -> int:
        """Where the data at `offset` ends and a hole begins, or the file ends."""

    def read_into(self, file: MappedFile, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` from byte `offset` of one file on; returns the bytes there were.

        Raises UnreadableRange, Unreadable.
        """
        got, unread = self.fill(file, offset, buffer)
        if unread:
            raise byte_reader.failed(unread[0])
        return got

    def read_around(
        self, file: MappedFile, offset: int, buffer: memoryview
    ) -> tuple[int, list[Unread]]:
        """As `read_into`, with zeros for what cannot be read, and those ranges of the file.

        Raises UnreadableRange where nobody notes them (`byte_reader.noting`), Unreadable.
        """
        got, unread = self.fill(file, offset, buffer)
        for each in unread:
            byte_reader.note(each)
        return got, unread

    def readable(self, file: MappedFile, offset: int, size: int, needed: int) -> bytes:
        """Up to `size` bytes from byte `offset` on, as far as they can be read.

        What is unreadable is noted where it is among the first `needed` bytes. Raises as `read_around`.
        """
        data = bytearray(max(0, min(size, file.size - offset)))
        got, unread = self.fill(file, offset, memoryview(data))
        for each in unread:
            if each.offset < offset + needed:
                byte_reader.note(each)
        return bytes(data[: min([got, *(each.offset - offset for each in unread)])])

    def parts(
        self, file: MappedFile, offset: int, size: int, unit_bytes: int
    ) -> Iterator[tuple[int, bytes | bytearray]]:
        """(byte of the file, units from there on) of a range: one, but for units that cannot be read.

        Those are noted. Raises UnreadableRange where nobody notes them, Unreadable.
        """
        data = bytearray(max(0, min(size, file.size - offset)))
        got, unread = self.read_around(file, offset, memoryview(data))
        if unread:
            yield from _apart(offset, memoryview(data)[:got], unread, unit_bytes)
        elif got:
            del data[got:]
            yield offset, data

    def windows(
        self, file: MappedFile, begin: int, end: int, window_bytes: int, unit_bytes: int = 1
    ) -> Iterator[tuple[int, bytes | bytearray]]:
        """(byte of the file, whole units from there on), in order, up to byte `end`.

        begin: where a unit begins. The bytes behind the last whole unit come along with it. Holes of
        a sparse file are left out, and units that cannot be read in whole, which are noted. Raises
        UnreadableRange where nobody notes them, Unreadable.
        """
        at, end = begin, min(end, file.size)
        while at < end and (data_at := self.next_data(file, at)) is not None and data_at < end:
            at = max(at, data_at - (data_at - begin) % unit_bytes)
            stop = max(self.data_end(file, data_at), at + unit_bytes)
            stop += -(stop - begin) % unit_bytes
            size = min(window_bytes, stop - at, end - at)
            yield from self.parts(file, at, size, unit_bytes)
            at += size


def parts_of(
    descriptor: int, size: int, offset: int, path: str, unit_bytes: int
) -> Iterator[tuple[int, bytes | bytearray]]:
    """(byte, units from there on) of `size` bytes of an open file, without units that cannot be read.

    Those are noted. Raises UnreadableRange where nobody notes them, Unreadable.
    """
    data = bytearray(size)
    got, unread = byte_reader.fill_any(descriptor, memoryview(data), offset, path)
    for each in unread:
        byte_reader.note(each)
    if unread:
        yield from _apart(offset, memoryview(data)[:got], unread, unit_bytes)
    elif got:
        del data[got:]
        yield offset, data


def _apart(
    at: int, data: memoryview, unread: list[Unread], unit_bytes: int
) -> Iterator[tuple[int, bytes | bytearray]]:
    """A window that begins at byte `at`, without units that cannot be read in whole."""
    begin = 0
    for each in unread:
        first = (each.offset - at) // unit_bytes * unit_bytes
        if first > begin:
            yield at + begin, bytes(data[begin:first])
        begin = max(begin, -(-(each.end - at) // unit_bytes) * unit_bytes)
    if begin < len(data):
        yield at + begin, bytes(data[begin:])


def is_zero(data: bytes | bytearray | memoryview) -> bool:
    """All bytes are zero."""
    view = memoryview(data)
    return all(
        bytes(piece) == _ZEROS[: len(piece)]
        for piece in (view[at : at + len(_ZEROS)] for at in range(0, len(view), len(_ZEROS)))
    )
