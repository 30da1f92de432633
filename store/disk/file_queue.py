"""A directory of equally sized files that form one endless stream (spec README, "MF-queue").

Each file is named by the position of its first byte, in 20 decimal digits. Commit log, consume
queues, timer log and DLedger data are such queues. Nothing here writes.

Real directories are not always in order: a file cut short, an empty last file, a stray name, a hole. A reader must get
at everything that is there, so a position is looked up in the file that holds it, not computed from one size. A file
that somebody compressed (`.gz`, `.zst`) counts as the one that it was.

Reading files of a queue in windows: around holes of sparse files, and what cannot be read.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from ..counted import counted
from ..errors import UnreadableRange, from_os_error
from . import byte_reader
from .byte_reader import Closing, Unread
from .compressed import (
    AnyPacked,
    Plain,
    claimed_size,
    is_compressed,
    is_compressed_name,
    open_plain,
    plain_name,
    plain_of,
    whole_size,
)

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

    def read_around(self, file: MappedFile, offset: int, buffer: memoryview) -> tuple[int, list[Unread]]:
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


def _apart(at: int, data: memoryview, unread: list[Unread], unit_bytes: int) -> Iterator[tuple[int, bytes | bytearray]]:
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


NAME_DIGITS = 20
LARGEST_START = (1 << 63) - 1
OPEN_FILES = 32
"""Files that one queue keeps open for reading."""
OPEN_PLAIN = 2
"""Compressed ones of them: what they unpack to takes place while it is open."""


class MappedFile(NamedTuple):
    """One file: its path, the stream position of its first byte, its length in bytes.

    compressed: the length is that of its content, as far as it is known: see `content`.
    """

    path: str
    start: int
    size: int
    compressed: bool = False

    @property
    def end(self) -> int:
        """Stream position behind the last byte."""
        return self.start + self.size


class Foreign(NamedTuple):
    """Something in a directory of the store that does not belong to it, and why."""

    path: str
    reason: str


class StreamGap(NamedTuple):
    """A range of the stream that no file holds."""

    position: int
    size: int


def file_name(start: int) -> str:
    """Name of the file whose first byte has the stream position `start`."""
    return f"{start:0{NAME_DIGITS}d}"


def _is_usual(file: MappedFile) -> bool:
    """Its name has as many digits as a broker gives it."""
    return len(plain_name(os.path.basename(file.path))) == NAME_DIGITS  # noqa: PTH119


def start_of(name: str) -> int | None:
    """Stream position that a file's name stands for, None where it is no decimal number."""
    if name.isascii() and name.isdigit() and len(name) <= NAME_DIGITS:
        start = int(name)
        return start if start <= LARGEST_START else None
    return None


class MappedFileQueue(Closing, Windows):
    """The files of one stream, sorted by position. Open with `MappedFileQueue.open`.

    files: those that hold the stream. file_size: bytes of a whole file, as configured or as the
    files tell; 0 where nothing tells. foreign: entries that are no file of this stream.
    aside: reading leaves the page cache as it was. stop: from this position of the stream on somebody
    writes: it is read as zeros, whatever is there by now; None: nobody does.
    """

    aside = False
    stop: int | None = None

    def __init__(
        self, directories: tuple[str, ...], files: list[MappedFile], file_size: int, foreign: list[Foreign]
    ) -> None:
        self.directories = directories
        self.files = files
        self.file_size = file_size
        self.foreign = foreign

    @classmethod
    def open(
        cls,
        directories: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        file_size: int | None = None,
        start_of: Callable[[str], int | None] = start_of,
        learn: Callable[[Sequence[MappedFile]], int] | None = None,
    ) -> MappedFileQueue:
        """List the files of one or several directories; a directory that is missing has none.

        file_size overrides what the files tell. start_of: what their names mean. learn: what else than `size_of` tells
        the size of a whole file. Raises Unreadable.
        """
        if isinstance(directories, str | os.PathLike):
            directories = [directories]
        paths = tuple(os.fspath(directory) for directory in directories)
        found: list[MappedFile] = []
        foreign: list[Foreign] = []
        for path in paths:
            _list(path, start_of, found, foreign)
        found = in_order(found)
        size = file_size or (learn or size_of)(found)
        return cls(paths, without_overlaps(found, size, foreign), size, foreign)

    @classmethod
    def of_file(cls, path: str | os.PathLike[str], start: int) -> MappedFileQueue:
        """One file, wherever it lies, as a stream that begins at `start`.

        Whether it is compressed is told by its content. Raises Missing, Unreadable, LimitExceeded.
        """
        path = os.fspath(path)
        compressed, size = is_compressed(path), whole_size(path)
        file = MappedFile(path, start, size, compressed)
        return cls((os.path.dirname(path),), [file], size, [])  # noqa: PTH120

    @property
    def size(self) -> int:
        """Bytes of all files; what is missing between two of them does not count."""
        return sum(file.size for file in self.files)

    @property
    def start(self) -> int:
        """Position of the first byte there is; 0 for an empty queue."""
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        """Position behind the last byte there is; 0 for an empty queue."""
        return self.files[-1].end if self.files else 0

    @property
    def gaps(self) -> list[StreamGap]:
        """Ranges between the files that no file holds: missing files, files cut short."""
        return [StreamGap(a.end, b.start - a.end) for a, b in pairwise(self.files) if a.end < b.start]

    @cached_property
    def _starts(self) -> list[int]:
        return [file.start for file in self.files]

    def hold_still(self, stop: int) -> None:
        """Somebody writes from `stop` on: files behind it are none, what is there reads as zeros."""
        self.stop = stop
        self.files = [file for file in self.files if file.start <= stop]

    def file_at(self, position: int) -> MappedFile | None:
        """The file that holds the byte at `position`, None where no file does."""
        index = bisect_right(self._starts, position) - 1
        if index < 0 or position >= self.files[index].end:
            return None
        return self.files[index]

    def files_in(self, begin: int, end: int) -> list[MappedFile]:
        """The files that hold some byte of begin ≤ p < end, or might, if they were longer."""
        first = max(0, bisect_right(self._starts, begin) - 1)
        return self.files[first : bisect_left(self._starts, end)]

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position` on, all from one file.

        Shorter where the file ends, empty where no file holds the position. Raises Unreadable.
        """
        file = self.file_at(position)
        if file is None or size <= 0:
            return b""
        return self.read_file(file, position - file.start, size)

    def read_file(self, file: MappedFile, offset: int, size: int) -> bytes:
        """Up to `size` bytes of one file of this queue from its byte `offset` on.

        Raises UnreadableRange, Unreadable.
        """
        size = max(0, min(size, file.size - offset))
        if (self.aside or self.stop is not None) and not file.compressed:
            data = bytearray(size)
            return bytes(data[: self.read_into(file, offset, memoryview(data))])
        end = _known_end(file)
        return byte_reader.read(self.descriptor(file), size, offset, file.path, end=end)

    def fill(self, file: MappedFile, offset: int, buffer: memoryview) -> tuple[int, list[Unread]]:
        """The same for those two; nothing is noted here. Queues that read elsewhere override it."""
        room = buffer[: max(0, min(len(buffer), file.size - offset))]
        try:
            descriptor = self.descriptor(file)
        except UnreadableRange as error:  # it cannot even be opened
            room[:] = bytes(len(room))
            return len(room), [Unread(file.path, offset, len(room), error.reason)]
        aside = self.aside and not file.compressed
        end = _known_end(file)
        got = byte_reader.fill_any(descriptor, room, offset, file.path, end=end, aside=aside)
        if self.stop is not None:
            still(room, file.start + offset, self.stop)
        return got

    def content(self, file: MappedFile) -> Plain:
        """The bytes of a file that can be read, and why there are not more; all of a plain file.

        A compressed file is unpacked for it. Raises Missing, Unreadable, NoSpace, LimitExceeded.
        """
        if not file.compressed:
            return Plain(file.size, "")
        found = plain_of(self.packed(file))
        problem = found.problem
        if found.size != file.size and not problem:
            problem = f"it has {counted(found.size, 'byte')}, but the compressed file says {file.size}"
        return Plain(min(file.size, found.size), problem)

    def packed(self, file: MappedFile) -> AnyPacked:
        """Where a compressed file lies. Queues that read elsewhere override it."""
        return file.path

    def next_data(self, file: MappedFile, offset: int) -> int | None:
        """First byte from `offset` on that is not in a hole of a sparse file, None if all is.

        Where the file system cannot tell, `offset` itself.
        """
        found = byte_reader.next_data(self.descriptor(file), offset)
        return found if found is not None and found < file.size else None

    def data_end(self, file: MappedFile, offset: int) -> int:
        """Where the data at `offset` ends and a hole of a sparse file begins, or the file ends.

        Where the file system cannot tell, the end of the file.
        """
        return byte_reader.data_end(self.descriptor(file), offset, file.size)

    def grown_bytes(self, file: MappedFile) -> int:
        """How much longer the file is than it was listed; below 0: another one was made in its place.

        Raises Missing, Unreadable.
        """
        return 0 if file.compressed else os.fstat(self.descriptor(file)).st_size - file.size

    def is_deleted(self, file: MappedFile) -> bool:
        """What is read of the file is kept by nothing but its descriptor. Raises as `grown_bytes`."""
        return not file.compressed and not os.fstat(self.descriptor(file)).st_nlink

    @cached_property
    def _descriptors(self) -> OrderedDict[str, int]:
        return OrderedDict()

    @cached_property
    def _plain_descriptors(self) -> OrderedDict[str, int]:
        """Of what compressed files unpack to."""
        return OrderedDict()

    def descriptor(self, file: MappedFile) -> int:
        """An open descriptor of the file, good until another file is read. Raises Missing, Unreadable."""
        if file.compressed:
            opened, most = self._plain_descriptors, OPEN_PLAIN
        else:
            opened, most = self._descriptors, OPEN_FILES
        descriptor = opened.get(file.path)
        if descriptor is None:
            if len(opened) >= most:
                os.close(opened.popitem(last=False)[1])
            descriptor = opened[file.path] = open_plain(self.packed(file)) if file.compressed else _open(file)
        else:
            opened.move_to_end(file.path)
        return descriptor

    def close(self) -> None:
        """Close the files; a later read opens them again."""
        for opened in (self._descriptors, self._plain_descriptors):
            while opened:
                os.close(opened.popitem()[1])

    def __getstate__(self) -> dict[str, Any]:
        """A copy opens its own files: these numbers may mean others where it is used, and are closed here."""
        return {name: value for name, value in self.__dict__.items() if name not in _DESCRIPTORS}

    def __del__(self) -> None:
        if self.__dict__.keys() & _DESCRIPTORS:
            self.close()


_DESCRIPTORS = {"_descriptors", "_plain_descriptors"}


def still(room: memoryview, position: int, stop: int) -> None:
    """Make zeros of what a window of a stream has from `stop` on. position: of its first byte."""
    begin = min(len(room), max(0, stop - position))
    room[begin:] = bytes(len(room) - begin)


def _known_end(file: MappedFile) -> int | None:
    """What the listing says of the file is there; of a compressed one `content` tells it."""
    return None if file.compressed else file.size


def _open(file: MappedFile) -> int:
    try:
        return os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise byte_reader.not_opened(error, file.path, file.size) from error


def _list(
    directory: str, start_of: Callable[[str], int | None], files: list[MappedFile], foreign: list[Foreign]
) -> None:
    """Sort the entries of one directory into `files` and `foreign`."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                start = start_of(plain_name(entry.name))
                if start is None:
                    foreign.append(Foreign(entry.path, "its name is not a number"))
                elif not is_file(entry):
                    foreign.append(Foreign(entry.path, "not a file"))
                else:
                    compressed = is_compressed_name(entry.name)
                    files.append(MappedFile(entry.path, start, entry.stat().st_size, compressed))
    except FileNotFoundError:
        return
    except OSError as error:
        raise from_os_error(error, directory) from error


def in_order(
    found: list[MappedFile], packed: Callable[[MappedFile], AnyPacked] = attrgetter("path")
) -> list[MappedFile]:
    """Files of one stream by position; of two of one name the usual one first. packed: where a compressed one lies."""
    found.sort(key=lambda file: (file.start, file.compressed, not _is_usual(file), file.path))
    return list(_with_sizes(found, packed)) if any(file.compressed for file in found) else found


def _with_sizes(found: list[MappedFile], packed: Callable[[MappedFile], AnyPacked]) -> Iterator[MappedFile]:
    """The files, sorted, with the sizes of what compressed ones unpack to.

    What such a file says of its size may be wrong, or that of a part. It is believed where it
    ends at the next file's beginning: nothing has to be unpacked to list a log. `content` checks it.
    """
    for number, file in enumerate(found):
        if not file.compressed or (number and found[number - 1].start == file.start):
            yield file  # of two files of one name the first counts
            continue
        room = next((later.start for later in found[number:] if later.start > file.start), None)
        claimed = claimed_size(packed(file)) if room is not None else None
        fits = claimed is not None and file.start + claimed == room
        yield file._replace(size=claimed if fits and claimed else whole_size(packed(file)))


def is_file(entry: os.DirEntry[str]) -> bool:
    """Whether the entry is, or points at, a regular file; a symlink loop is none."""
    try:
        return entry.is_file()
    except OSError:
        return False


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Whether the entry is, or points at, a directory; a symlink loop is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def step_of(starts: Iterable[int]) -> int:
    """The least distance between places where files begin; 0 for fewer than two."""
    return min((behind - start for start, behind in pairwise(sorted(set(starts)))), default=0)


def size_of(files: Sequence[MappedFile]) -> int:
    """The size of a whole file: the distance of neighbouring names, else the commonest length.

    A length that is also the smallest distance between names is taken even if it is rare: the
    other files were cut short. 0 where there is no file with content.
    """
    lengths = Counter(file.size for file in files if file.size)
    if not lengths:
        return 0
    distance = step_of(file.start for file in files)
    if distance in lengths:
        return distance
    return max(lengths, key=lambda length: (lengths[length], length))


def size_of_log(files: Sequence[MappedFile]) -> int:
    """The same of a commit log: where all files were cut short or grew, the steps between the names of those files
    tell whose first record names their place.
    """
    size = size_of(files)
    if not size or all(file.start % size == 0 for file in files):
        return size
    starts = [file.start for file in files if _begins_in_place(file)]
    step = step_of(starts)
    told = step and all(start % step == 0 for start in starts)
    return step if told and any(start % size for start in starts) else size


def _begins_in_place(file: MappedFile) -> bool:
    """A file begins with a record that names the place of the file. Raises Unreadable."""
    from ...formats.derive import decode_one
    from ...formats.message import MAGIC_V1, MAGIC_V2, MESSAGE, SMALLEST

    data = bytearray(SMALLEST)
    if file.compressed or file.size < len(data):
        return False
    with byte_reader.opened(file.path) as descriptor:
        _, unread = byte_reader.fill_any(descriptor, memoryview(data), 0, file.path)
    head = decode_one(MESSAGE, data)
    magic = int(head.ints("magic_code")[0]) in (MAGIC_V1, MAGIC_V2)
    return not unread and magic and int(head.ints("physical_offset")[0]) == file.start


def without_overlaps(found: list[MappedFile], size: int, foreign: list[Foreign]) -> list[MappedFile]:
    """The files of one stream; what lies inside another file's range is foreign.

    A broker loads a file `123` beside `000…0` and starts it at 123 (spec 07, B18); its bytes are
    no part of the log. Of two files of one name the first found is taken.
    """
    files: list[MappedFile] = []
    for file in found:
        before = files[-1] if files else None
        if before is not None and before.start == file.start:
            foreign.append(Foreign(file.path, f"the same position as {before.path}"))
        elif before is not None and file.start < before.end and size and file.start % size:
            foreign.append(Foreign(file.path, f"its position lies inside {before.path}"))
        else:
            files.append(file)
    return files
