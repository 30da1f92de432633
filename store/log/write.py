"""Appending to the commit log: places, roll-over, BLANK, files (spec 01, 1.1, 1.5, 1.12, 1.15).

A record never crosses the end of a file, and 8 bytes behind it stay free for the BLANK that closes the file. Files have
their full size from the start, and are sparse.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...formats.blank import BLANK, BLANK_BYTES, MAGIC_BLANK
from ...formats.message import MAGIC_V1, MAGIC_V2
from ..counted import counted
from ..disk.file_queue import file_name
from ..disk.files import Files, OpenFile
from ..errors import LimitExceeded, Refused

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ...formats.derive.ragged import Ints


_BLOCK_BYTES = 4096
"""Disk block size: a disk gives room in blocks of at least this size."""


class Blank(NamedTuple):
    """The BLANK that closes a file: its log position, and its size up to the end of the file."""

    position: int
    size: int


class Placement(NamedTuple):
    """Where n records go: positions int64[n], the BLANKs between them, and the end of the last record."""

    positions: Ints
    blanks: list[Blank]
    end: int


def place(position: int, size: int, file_size: int) -> tuple[int, Blank | None]:
    """Where a record of `size` bytes goes if the log ends at `position`, and the BLANK before it, if any.

    Raises LimitExceeded for a record that is too large for a file.
    """
    if size + BLANK_BYTES > file_size:
        raise LimitExceeded(f"a record of {counted(size, 'byte')} does not fit into a commit log file of {file_size}")
    room = file_size - position % file_size
    if size + BLANK_BYTES <= room:
        return position, None
    return position + room, Blank(position, room)


def place_columns(position: int, sizes: Ints, file_size: int) -> Placement:
    """`place` for consecutive records: sizes int64[n]."""
    import numpy as np

    positions = np.empty(len(sizes), np.int64)
    blanks: list[Blank] = []
    ends = np.cumsum(sizes)
    first, before = 0, 0
    while first < len(sizes):
        start, blank = place(position, int(sizes[first]), file_size)
        if blank is not None:
            blanks.append(blank)
        # a record fits if room for a BLANK remains behind it
        room = file_size - start % file_size - BLANK_BYTES
        stop = int(np.searchsorted(ends, before + room, side="right"))
        positions[first:stop] = start + ends[first:stop] - sizes[first:stop] - before
        position = start + int(ends[stop - 1]) - before
        first, before = stop, int(ends[stop - 1])
    return Placement(positions, blanks, position)


def place_whole(position: int, sizes: Ints, file_size: int) -> Placement:
    """Places for records that have to lie in one file: sizes int64[n], n > 0. Raises LimitExceeded."""
    import numpy as np

    ends = np.cumsum(sizes)
    start, blank = place(position, int(ends[-1]), file_size)
    blanks = [] if blank is None else [blank]
    return Placement(start + ends - sizes, blanks, start + int(ends[-1]))


class LogWriter:
    """Writes records at the end of a log.

    position: where the next record goes, if it fits. directories: those of the log; new files go to them in turn,
    except to `read_only` ones. stale_blank: fill a BLANK with what an earlier record left in memory, as brokers up to
    4.9.0 do.
    """

    def __init__(
        self,
        files: Files,
        directories: Sequence[Path],
        file_size: int,
        position: int,
        *,
        read_only: Sequence[Path] = (),
        stale_blank: bool = False,
    ) -> None:
        self.position = position
        self.file_size = file_size
        self._files = files
        self._directories = tuple(directories)
        self._writable = sorted(set(directories) - set(read_only)) or sorted(set(directories))
        self._memory = bytearray() if stale_blank else None
        self._file: OpenFile | None = None
        self._file_start = -1
        self._synced = True
        self._new_names: set[Path] = set()
        #: by start of a file: its path, and the log range that was written in it
        self._written: dict[int, tuple[Path, int, int]] = {}
        self._new_files: set[int] = set()
        self._flushing = False

    def prepare(self) -> None:
        """Make the first file of an empty log, and bring the file and its name to the disk."""
        if self.position % self.file_size == 0:
            self._file_at(self.position)
            self.sync()
            self._new_files.clear()  # the file stays, even if the records are taken back

    def append(self, size: int) -> int:
        """Make room for a record of `size` bytes and return its position. Closes the file with a BLANK if needed."""
        position, blank = place(self.position, size, self.file_size)
        if blank is not None:
            self.write_blank(blank)
        self.position = position
        return position

    def write(self, position: int, data: Buffer) -> None:
        """Write whole records, back to back, that all lie in one file, and move the log's end behind them."""
        size = len(memoryview(data).cast("B"))
        self._write_bytes(position, data)
        self.position = position + size

    def _write_bytes(self, position: int, data: Buffer) -> None:
        file = self._file_at(position)
        _, first, end = self._written.get(self._file_start, (file.path, position, position))
        size = len(memoryview(data).cast("B"))
        self._written[self._file_start] = file.path, min(first, position), max(end, position + size)
        file.pwrite(data, position - self._file_start)

    def remember(self, record: bytes) -> None:
        """Keep the bytes of a record for the next BLANK, if BLANKs are to hold stale memory as of old brokers."""
        if self._memory is not None:
            self._memory[: len(record)] = record

    @property
    def remembers(self) -> bool:
        """Whether `remember` has an effect."""
        return self._memory is not None

    def write_blank(self, blank: Blank) -> None:
        """Close a file with a BLANK. Raises Refused if there is no room for it."""
        if blank.size < BLANK_BYTES:
            raise Refused(
                f"{counted(blank.size, 'byte is left', 'bytes are left')} in the commit log file: no room for a BLANK",
                offset=blank.position,
            )
        data = BLANK.build({"total_size": blank.size, "magic_code": MAGIC_BLANK})
        if self._memory is not None:
            self._memory[:BLANK_BYTES] = data
            data = bytes(self._memory[: blank.size]).ljust(blank.size, b"\0")
        self._write_bytes(blank.position, data)

    def clear_head(self) -> None:
        """Clear the bytes at the end of the log if a record or BLANK seems to begin there.

        A broker would take such a leftover of an earlier life of the log for a new record (B14).
        """
        offset = self.position % self.file_size
        if self._file is None or offset == 0:
            return
        file = self._file_at(self.position)
        head = file.pread(BLANK_BYTES, offset)
        magics = (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)
        if len(head) == BLANK_BYTES and BLANK.parse(head).magic_code in magics:
            file.pwrite(bytes(BLANK_BYTES), offset)

    def _file_at(self, position: int) -> OpenFile:
        """Open the file that holds a position; make it if there is none."""
        start = position - position % self.file_size
        if self._file is None or start != self._file_start:
            # flush first: a power loss may cut the log short, but must leave no hole between its files
            self.sync()
            self.close()
            self._file = self._open(start)
            self._file_start = start
        self._synced = False
        return self._file

    def _open(self, start: int) -> OpenFile:
        name = file_name(start)
        for directory in self._directories:
            if (directory / name).exists():
                file = self._files.open(directory / name)
                if file.size < self.file_size:
                    file.truncate(self.file_size)
                return file
        directory = self._writable[start // self.file_size % len(self._writable)]
        self._files.make_directory(directory)
        self._new_files.add(start)
        self._new_names.add(directory)
        file = self._files.create(directory / name)
        self._written[start] = file.path, start, start
        file.truncate(self.file_size)
        return file

    def take_back(self) -> bool:
        """Clear all that was written, and remove the files that were made for it. Returns False after a failed flush:
        nobody knows then what is on the disk. Raises NoSpace, Unreadable.
        """
        if self._flushing:
            return False
        self.close()
        for start, (path, first, end) in sorted(self._written.items(), reverse=True):
            if start in self._new_files:
                self._files.unlink(path)
                self._files.sync_directory(path.parent)
            elif first < end:
                with self._files.open(path) as file:
                    _clear(file, first - start, end - start)
                    file.sync()
        self._written.clear()
        return True

    def sync(self) -> None:
        """Flush what was written to the disk, names of new files included."""
        self._flushing = True
        if self._file is not None and not self._synced:  # earlier files were flushed before they were closed
            self._file.sync()
        for directory in sorted(self._new_names):
            self._files.sync_directory(directory)
        self._synced = True
        self._new_names.clear()
        self._flushing = False

    def close(self) -> None:
        """Close the current file, without flushing."""
        if self._file is not None:
            self._file.close()
            self._file = None


Pieces = dict[int, tuple[int, bytearray]]
"""By start of a file in its stream: byte of the file, and what is written there."""


class StreamFiles:
    """Writes to streams besides the log, whose files have their full size from the start, too. Bytes are in the files
    at once, and on disk after `sync`.
    """

    def __init__(self, files: Files, file_size: int) -> None:
        self.file_size = file_size
        self._files = files
        self._touched: set[Path] = set()
        self._new_names: set[Path] = set()

    def piece(self, pieces: Pieces, position: int) -> bytearray:
        """The bytes to append to the file that holds a position; new ones begin at that position."""
        offset = position % self.file_size
        return pieces.setdefault(position - offset, (offset, bytearray()))[1]

    def write(self, directory: Path, start: int, offset: int, data: Buffer, unit_bytes: int = 0) -> None:
        """Write to the file with first byte `start` in the stream of a directory.

        unit_bytes: of its units; those of an earlier life behind `data` are zeroed: they would count as soon as the log
        reaches them (B21).
        """
        path = directory / file_name(start)
        if not path.exists():
            self._files.make_directory(directory)
            self._new_names.add(directory)
        with self._files.open_or_create(path) as file:
            self._touched.add(path)
            if file.size < self.file_size:
                file.truncate(self.file_size)
            file.pwrite(data, offset)
            end = offset + len(memoryview(data).cast("B"))
            if unit_bytes and any(file.pread(unit_bytes, end)):
                stale = file.pread(self.file_size - end, end).rstrip(b"\0")
                file.pwrite(bytes(len(stale)), end)

    def sync(self) -> None:
        """Flush what was written to the disk, names of new files included."""
        for path in sorted(self._touched):
            with self._files.open(path) as file:
                file.sync()
        for directory in sorted(self._new_names):
            self._files.sync_directory(directory)
        self._touched.clear()
        self._new_names.clear()


def _clear(file: OpenFile, begin: int, end: int) -> None:
    """Overwrite a range of a file with zeros. Blocks of zeros are skipped: a full disk has no room to fill holes."""
    while begin < end:
        stop = min(begin - begin % _BLOCK_BYTES + _BLOCK_BYTES, end)
        data = file.pread(stop - begin, begin).rstrip(b"\0")
        used = data.lstrip(b"\0")
        if used:
            file.pwrite(bytes(len(used)), begin + len(data) - len(used))
        begin = stop
