"""One consume queue: units to file bytes, and appending them (spec 02, 2.1 and 2.2).

A unit's place follows from its queue offset: byte 20·k of the endless stream. Files have their full
size from the start, sparse. Where the first file of a queue begins with a queue offset k that is
not its first, the units before k are pre-filled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...formats.consume_queue import PRE_FILL, UNIT, UNIT_BYTES
from ...formats.fixed import numbers_of
from ..disk.file_queue import file_name
from ..disk.files import Files
from ..errors import InvalidInput, Refused

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ..broker.snapshot import QueueId

_PRE_FILL_BYTES = UNIT.build(PRE_FILL)
_NO_NAMES = frozenset({"", ".", ".."})


class Piece(NamedTuple):
    """Bytes of one queue file: where the file begins in the stream, and where the bytes go."""

    file_start: int
    offset: int
    data: Buffer


def unit_bytes(physical_offset: int, size: int, tags_code: int) -> bytes:
    """One unit."""
    return numbers_of(UNIT).pack(physical_offset, size, tags_code)


def pieces(first: int, units: Buffer, file_size: int, *, begins: bool) -> Iterator[Piece]:
    """Lay units `first`, `first` + 1, … into files of `file_size` bytes (a multiple of 20).

    units: their bytes, back to back. begins: they are the first of their queue; then the front of
    the first file is pre-filled. Pieces come in stream order, one per file.
    """
    rest = memoryview(units).cast("B")
    position = first * UNIT_BYTES
    while rest:
        offset = position % file_size
        room = file_size - offset
        data: Buffer = rest[:room]
        written = min(room, len(rest))
        if begins and offset:
            data = _PRE_FILL_BYTES * (offset // UNIT_BYTES) + bytes(rest[:room])
            yield Piece(position - offset, 0, data)
        else:
            yield Piece(position - offset, offset, data)
        begins = False
        position += written
        rest = rest[written:]


def queue_directory(consume_queue: Path, topic: str, queue_id: int) -> Path:
    """Directory of a topic-queue below `consume_queue`.

    Raises InvalidInput for a topic that cannot be a directory there. A name with `/`, which 4.9
    takes for an LMQ, makes a directory inside another one (spec 2.9).
    """
    if "\0" in topic or _NO_NAMES & set(topic.split("/")) or len(os.fsencode(topic)) > 255:
        raise InvalidInput(f"topic cannot be the name of a directory: {topic!r}")
    if queue_id < 0:
        raise InvalidInput(f"queue id must not be negative: {queue_id}")
    return consume_queue / topic / str(queue_id)


def can_have_files(queue: QueueId) -> bool:
    """Whether a topic-queue can be a directory; a damaged record can name any text (B24)."""
    try:
        queue_directory(Path(), queue.topic, queue.queue_id)
    except InvalidInput:
        return False
    return "/" not in queue.topic


class QueueWriter:
    """Appends units to the files of one topic-queue, and leaves zeros behind them.

    next_offset: queue offset of the next unit; None for a queue without a unit, which then may
    begin with any.
    """

    def __init__(
        self, files: Files, directory: Path, file_size: int, next_offset: int | None
    ) -> None:
        if file_size <= 0 or file_size % UNIT_BYTES:
            raise InvalidInput(f"consume queue file size {file_size} is no multiple of 20")
        self.directory = directory
        self.next_offset = next_offset
        self._files = files
        self._file_size = file_size
        self._touched: set[Path] = set()
        self._created: bool = False

    def append(self, first: int, units: Buffer) -> None:
        """Write the bytes of units `first`, `first` + 1, …

        Raises Refused if they are not the next ones, NoSpace, Unreadable.
        """
        if self.next_offset is not None and first != self.next_offset:
            raise Refused(
                f"unit {first} does not follow: the queue's next is {self.next_offset}",
                path=self.directory,
            )
        begins = self.next_offset is None
        for piece in pieces(first, units, self._file_size, begins=begins):
            self._write(piece)
        self.next_offset = first + len(memoryview(units).cast("B")) // UNIT_BYTES

    def _write(self, piece: Piece) -> None:
        path = self.directory / file_name(piece.file_start)
        end = piece.offset + len(memoryview(piece.data).cast("B"))
        if path.exists():
            file = self._files.open(path)
        else:
            self._files.make_directory(self.directory)
            file = self._files.create(path)
            self._created = True
        self._touched.add(path)
        with file:
            if file.size < self._file_size:
                file.truncate(self._file_size)
            file.pwrite(piece.data, piece.offset)
            if any(file.pread(UNIT_BYTES, end)):
                # units of an earlier life: they would count as soon as the log reaches them (B21)
                stale = file.pread(self._file_size - end, end).rstrip(b"\0")
                file.pwrite(bytes(len(stale)), end)

    def sync(self) -> None:
        """Bring what was written to the disk, names included."""
        for path in sorted(self._touched):
            with self._files.open(path) as file:
                file.sync()
        if self._created:
            self._files.sync_directory(self.directory)
        self._touched.clear()
        self._created = False
