"""A directory of equally sized files that form one endless stream (spec README, "MF-queue").

Each file is named by the stream position of its first byte, in 20 decimal digits. Commit log, consume queues, timer
log and DLedger data are such queues. Nothing here writes.

Real directories are not always in order: a file cut short, an empty last file, a stray name, a missing file. Readers
must reach all bytes that exist, so a position is looked up among the files, not computed from one file size. A
compressed file (`.gz`, `.zst`) stands for its content.

Files are read in windows that leave out holes of sparse files and unreadable ranges.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from ..counted import counted
from ..errors import Missing, UnreadableRange, from_os_error
from . import byte_reader
from .byte_reader import Closing, Unread
from .compressed import (
    AnyPacked,
    OpenFiles,
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
_FIRST_LOOK_BYTES, _LOOK_BYTES = 1 << 12, 1 << 20
"""Bytes that a search for data reads at once; most files have some at their front."""


def is_zero(data: bytes | bytearray | memoryview) -> bool:
    view = memoryview(data)
    return all(
        bytes(piece) == _ZEROS[: len(piece)]
        for piece in (view[at : at + len(_ZEROS)] for at in range(0, len(view), len(_ZEROS)))
    )


NAME_DIGITS = 20
LARGEST_START = (1 << 63) - 1
LARGEST_FILE_BYTES = (1 << 31) - 1
"""The options for sizes of files are ints, and so is the size of a filler."""
OPEN_FILES = 32
"""Files that one queue keeps open for reading."""
OPEN_PLAIN = 2
"""The same for compressed files: their unpacked content takes space while it is open."""


class MappedFile(NamedTuple):
    """One file: its path, the stream position of its first byte, its length in bytes.

    compressed: the file is compressed; `size` is the length of its content as far as it is known (see `content`).
    """

    path: str
    start: int
    size: int
    compressed: bool = False

    @property
    def end(self) -> int:
        """Stream position behind the last byte."""
        return self.start + self.size


class ForeignEntry(NamedTuple):
    """An entry of a store's directory that does not belong to the store, and why."""

    path: str
    reason: str


class StreamGap(NamedTuple):
    """A range of the stream that no file holds."""

    position: int
    size: int


def file_name(start: int) -> str:
    """Name of the file whose first byte has the stream position `start`."""
    return f"{start:0{NAME_DIGITS}d}"


def in_files(begin: int, end: int, file_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the parts (begin, end) of a range of the stream that lie in one file each."""
    while begin < end:
        behind = min(end, (begin // file_bytes + 1) * file_bytes)
        yield begin, behind
        begin = behind


def _has_usual_name(file: MappedFile) -> bool:
    """Whether the name has as many digits as the names that brokers give."""
    return len(plain_name(os.path.basename(file.path))) == NAME_DIGITS  # noqa: PTH119


def start_of(name: str) -> int | None:
    """Stream position that a file name stands for, None if the name is not a decimal number."""
    if name.isascii() and name.isdigit() and len(name) <= NAME_DIGITS:
        start = int(name)
        return start if start <= LARGEST_START else None
    return None


class MappedFileQueue(Closing):
    """The files of one stream, sorted by position. Open with `MappedFileQueue.open`.

    files: the files that hold the stream. file_size: bytes of a whole file, as configured or learned from the files; 0
    if unknown. foreign: entries that are not files of this stream. aside: reading leaves the page cache unchanged.
    stop: from this stream position on another process writes, so the bytes are read as zeros; None: nobody writes.
    begins_now: says where the stream begins once a file is gone (`lock.expiring`); gone_before: what it said last.
    """

    aside = False
    stop: int | None = None
    begins_now: Callable[[MappedFile], int] | None = None
    gone_before = 0

    def __init__(
        self, directories: tuple[str, ...], files: list[MappedFile], file_size: int, foreign: list[ForeignEntry]
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
        """List the files of one or several directories; a missing directory has none.

        file_size: size of a whole file; None: `learn`, by default `size_of`, finds it from the files. start_of: the
        stream position that a name stands for. Raises Unreadable.
        """
        if isinstance(directories, str | os.PathLike):
            directories = [directories]
        paths = tuple(os.fspath(directory) for directory in directories)
        found: list[MappedFile] = []
        foreign: list[ForeignEntry] = []
        for path in paths:
            _list(path, start_of, found, foreign)
        found = in_order(found)
        size = file_size or (learn or size_of)(found)
        return cls(paths, without_overlaps(found, size, foreign), size, foreign)

    @classmethod
    def of_file(cls, path: str | os.PathLike[str], start: int) -> MappedFileQueue:
        """A stream that consists of one file, wherever the file lies, and begins at `start`.

        The content tells whether the file is compressed. Raises Missing, Unreadable, NoSpace, LimitExceeded.
        """
        path = os.fspath(path)
        compressed, size = is_compressed(path), whole_size(path)
        file = MappedFile(path, start, size, compressed)
        return cls((os.path.dirname(path),), [file], size, [])  # noqa: PTH120

    @property
    def size(self) -> int:
        """Total bytes of the files; gaps between them do not count."""
        return sum(file.size for file in self.files)

    @property
    def start(self) -> int:
        """Position of the first byte; of an empty queue 0, or where it began last."""
        return self.files[0].start if self.files else self.gone_before

    @property
    def end(self) -> int:
        """Position behind the last byte; `start` for an empty queue."""
        return self.files[-1].end if self.files else self.start

    @property
    def gaps(self) -> list[StreamGap]:
        """Ranges between the files that no file holds, where files are missing or cut short."""
        return [StreamGap(a.end, b.start - a.end) for a, b in pairwise(self.files) if a.end < b.start]

    @cached_property
    def _starts(self) -> list[int]:
        return [file.start for file in self.files]

    def hold_still(self, stop: int) -> None:
        """Ignore what another process writes from `stop` on: files behind it are dropped, bytes read as zeros."""
        self.stop = stop
        self.files = [file for file in self.files if file.start <= stop]

    def file_at(self, position: int) -> MappedFile | None:
        """The file that holds the byte at `position`, None if no file does."""
        index = bisect_right(self._starts, position) - 1
        if index < 0 or position >= self.files[index].end:
            return None
        return self.files[index]

    def files_in(self, begin: int, end: int) -> list[MappedFile]:
        """The files that hold bytes of begin ≤ p < end, or would hold some if they were longer."""
        first = max(0, bisect_right(self._starts, begin) - 1)
        return self.files[first : bisect_left(self._starts, end)]

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position` on, all from one file.

        Fewer at the end of the file, none if no file holds the position. Raises UnreadableRange, Unreadable.
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
        try:
            return byte_reader.read(self.descriptor(file), size, offset, file.path, end=_known_end(file))
        except Missing:
            if self.has_expired(file):
                return b""
            raise

    def fill(self, file: MappedFile, offset: int, buffer: memoryview) -> tuple[int, list[Unread]]:
        """Fill `buffer` from byte `offset` of a file on; return the number of bytes and the unreadable ranges, which
        are zeros in the buffer. Notes nothing. Raises Unreadable. Queues that read from elsewhere override it.
        """
        room = buffer[: max(0, min(len(buffer), file.size - offset))]
        try:
            descriptor = self.descriptor(file)
        except UnreadableRange as error:  # the file cannot even be opened
            room[:] = bytes(len(room))
            return len(room), [Unread(file.path, offset, len(room), error.reason)]
        except Missing:
            if self.has_expired(file):
                return 0, []
            raise
        aside = self.aside and not file.compressed
        end = _known_end(file)
        got = byte_reader.fill_any(descriptor, room, offset, file.path, end=end, aside=aside)
        if self.stop is not None:
            still(room, file.start + offset, self.stop)
        return got

    def read_into(self, file: MappedFile, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` from byte `offset` of one file on; return the number of bytes.

        Raises UnreadableRange, Unreadable.
        """
        got, unread = self.fill(file, offset, buffer)
        if unread:
            raise byte_reader.failed(unread[0])
        return got

    def read_around(self, file: MappedFile, offset: int, buffer: memoryview) -> tuple[int, list[Unread]]:
        """As `read_into`, but unreadable ranges become zeros; they are noted and returned.

        Raises UnreadableRange where going around is not allowed (`byte_reader.noting`), Unreadable.
        """
        got, unread = self.fill(file, offset, buffer)
        for each in unread:
            byte_reader.note(each)
        return got, unread

    def readable(self, file: MappedFile, offset: int, size: int, needed: int) -> bytes:
        """Up to `size` bytes from byte `offset` on, ending at the first unreadable one.

        Unreadable ranges are noted if they begin within the first `needed` bytes. Raises as `read_around`.
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
        """Yield (byte of the file, units from there on) for a range: one item, or several around unreadable units.

        Unreadable ranges are noted. Raises as `read_around`.
        """
        data = bytearray(max(0, min(size, file.size - offset)))
        got, unread = self.read_around(file, offset, memoryview(data))
        yield from byte_reader.whole_units(offset, data, got, unread, unit_bytes)

    def windows(
        self, file: MappedFile, begin: int, end: int, window_bytes: int, unit_bytes: int = 1
    ) -> Iterator[tuple[int, bytes | bytearray]]:
        """Yield (byte of the file, whole units from there on), in order, up to byte `end`.

        begin: where a unit begins. Bytes behind the last whole unit are included. Holes of a sparse file and units
        that are not wholly readable are left out; unreadable ranges are noted. Raises as `read_around`.
        """
        at, end = begin, min(end, file.size)
        while at < end and (data_at := self.next_data(file, at)) is not None and data_at < end:
            at = max(at, data_at - (data_at - begin) % unit_bytes)
            stop = max(self.data_end(file, data_at), at + unit_bytes)
            stop += -(stop - begin) % unit_bytes
            size = min(window_bytes, stop - at, end - at)
            yield from self.parts(file, at, size, unit_bytes)
            at += size

    def content(self, file: MappedFile) -> Plain:
        """The bytes of a file that can be read, and why there are no more; for a plain file, all.

        A compressed file is unpacked. Raises Missing, Unreadable, NoSpace, LimitExceeded.
        """
        if not file.compressed:
            return Plain(file.size, "")
        found = plain_of(self.packed(file))
        problem = found.problem
        if found.size != file.size and not problem:
            problem = f"it has {counted(found.size, 'byte')}, but the compressed file says {file.size}"
        return Plain(min(file.size, found.size), problem)

    def packed(self, file: MappedFile) -> AnyPacked:
        """What to unpack for a compressed file. Queues that read from elsewhere override it."""
        return file.path

    def next_data(self, file: MappedFile, offset: int) -> int | None:
        """First byte from `offset` on that is not in a hole of a sparse file, None if there is none.

        `offset` itself if the file system cannot tell.
        """
        try:
            found = byte_reader.next_data(self.descriptor(file), offset)
        except Missing:
            if self.has_expired(file):
                return None
            raise
        return found if found is not None and found < file.size else None

    def first_data(self, file: MappedFile, offset: int = 0) -> int | None:
        """First byte from `offset` on that is not zero, None if there is none. Holes are not read. Raises as `read`."""
        at, size = self.next_data(file, offset), _FIRST_LOOK_BYTES
        while at is not None:
            data = self.read_file(file, at, size)
            if not is_zero(data):
                return at + len(data) - len(data.lstrip(b"\0"))
            at, size = self.next_data(file, at + len(data)) if data else None, _LOOK_BYTES
        return None

    def data_end(self, file: MappedFile, offset: int) -> int:
        """Where the data at `offset` ends: at a hole of a sparse file or the end of the file.

        The end of the file if the file system cannot tell.
        """
        return byte_reader.data_end(self.descriptor(file), offset, file.size)

    def grown_bytes(self, file: MappedFile) -> int:
        """Bytes that the file has grown since it was listed; negative if it was cut, or replaced by a shorter one.

        Raises Missing, Unreadable.
        """
        return 0 if file.compressed else os.fstat(self.descriptor(file)).st_size - file.size

    def is_deleted(self, file: MappedFile) -> bool:
        """Whether the file was deleted, so that only the open descriptor keeps its bytes. Raises as `grown_bytes`."""
        return not file.compressed and not os.fstat(self.descriptor(file)).st_nlink

    def has_expired(self, file: MappedFile) -> bool:
        """Whether a broker has deleted a listed file, and all before it: the stream begins later now."""
        if self.begins_now and (begin := self.begins_now(file)):
            self.files, self.gone_before = [one for one in self.files if one.start >= begin], begin
            self.__dict__.pop("_starts", None)
        return file.start < self.gone_before

    @cached_property
    def _descriptors(self) -> OpenFiles:
        return OpenFiles(OPEN_FILES)

    @cached_property
    def _plain_descriptors(self) -> OpenFiles:
        """Descriptors of the unpacked content of compressed files."""
        return OpenFiles(OPEN_PLAIN)

    def descriptor(self, file: MappedFile) -> int:
        """An open descriptor of the file, valid until another file is read. Raises Missing, Unreadable."""
        if file.compressed:
            return self._plain_descriptors.descriptor(file.path, lambda: open_plain(self.packed(file)))
        return self._descriptors.descriptor(file.path, lambda: _open(file))

    def close(self) -> None:
        """Close the files; a later read opens them again."""
        self._descriptors.close()
        self._plain_descriptors.close()


def still(room: memoryview, position: int, stop: int) -> None:
    """Zero the bytes of a window from stream position `stop` on. position: stream position of its first byte."""
    begin = min(len(room), max(0, stop - position))
    room[begin:] = bytes(len(room) - begin)


def _known_end(file: MappedFile) -> int | None:
    """The end of the bytes that the listing promises; unknown for a compressed file (see `content`)."""
    return None if file.compressed else file.size


def _open(file: MappedFile) -> int:
    try:
        return os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise byte_reader.not_opened(error, file.path, file.size) from error


def _list(
    directory: str, start_of: Callable[[str], int | None], files: list[MappedFile], foreign: list[ForeignEntry]
) -> None:
    """Sort the entries of one directory into `files` and `foreign`."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                start = start_of(plain_name(entry.name))
                if start is None:
                    foreign.append(ForeignEntry(entry.path, "its name is not a number"))
                elif not is_file(entry):
                    foreign.append(ForeignEntry(entry.path, "not a file"))
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
    """Files of one stream by position; of two files with one position the usual name comes first.

    packed: what to unpack for a compressed file.
    """
    found.sort(key=lambda file: (file.start, file.compressed, not _has_usual_name(file), file.path))
    return list(_with_sizes(found, packed)) if any(file.compressed for file in found) else found


def _with_sizes(found: list[MappedFile], packed: Callable[[MappedFile], AnyPacked]) -> Iterator[MappedFile]:
    """Yield the sorted files, compressed ones with the size of their content.

    The size that a compressed file states may be wrong or that of a part. It is believed if the file then ends where
    the next one begins, so that a log can be listed without unpacking; `content` checks it.
    """
    for number, file in enumerate(found):
        if not file.compressed or (number and found[number - 1].start == file.start):
            yield file  # of two files with one position only the first is used
            continue
        room = next((later.start for later in found[number:] if later.start > file.start), None)
        claimed = claimed_size(packed(file)) if room is not None else None
        fits = claimed is not None and file.start + claimed == room
        yield file._replace(size=claimed if fits and claimed else whole_size(packed(file)))


def is_file(entry: os.DirEntry[str]) -> bool:
    """Whether the entry is a regular file or a link to one; False for a symlink loop."""
    try:
        return entry.is_file()
    except OSError:
        return False


def links_below(directory: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the links in a directory and in the directories in it, also those that lead nowhere."""
    pending = [(os.fspath(directory), True)]
    while pending:
        above, top = pending.pop()
        with suppress(OSError), os.scandir(above) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield entry.path
                if top and is_directory(entry):
                    pending.append((entry.path, False))


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Whether the entry is a directory or a link to one; False for a symlink loop."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def step_of(starts: Iterable[int]) -> int:
    """The smallest distance between two of the positions; 0 for fewer than two."""
    return min((behind - start for start, behind in pairwise(sorted(set(starts)))), default=0)


def size_of(files: Sequence[MappedFile]) -> int:
    """The size of a whole file: the smallest distance between names if a file has that length, else the commonest
    length. The first rule covers files cut short. 0 if no file has content.
    """
    lengths = Counter(file.size for file in files if file.size)
    if not lengths:
        return 0
    distance = step_of(file.start for file in files)
    if distance in lengths:
        return distance
    return max(lengths, key=lambda length: (lengths[length], length))


def size_of_log(files: Sequence[MappedFile]) -> int:
    """As `size_of`, for a commit log. If all files were cut short or grew, the names of those files whose first record
    states the position of the file tell the size.
    """
    size = size_of(files)
    if not size or all(file.start % size == 0 for file in files):
        return size
    starts = [file.start for file in files if _begins_in_place(file)]
    step = step_of(starts)
    told = step and all(start % step == 0 for start in starts)
    return step if told and any(start % size for start in starts) else size


def _begins_in_place(file: MappedFile) -> bool:
    """Whether a file begins with a record that states the position of the file. Raises Missing, Unreadable."""
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


def without_overlaps(found: list[MappedFile], size: int, foreign: list[ForeignEntry]) -> list[MappedFile]:
    """The files of one stream; files that begin inside another file's range become foreign.

    A broker loads a file `123` beside `000…0` and starts it at 123 (spec 07, B18); its bytes are no part of the log.
    Of two files with one position the first is taken.
    """
    files: list[MappedFile] = []
    for file in found:
        before = files[-1] if files else None
        if before is not None and before.start == file.start:
            foreign.append(ForeignEntry(file.path, f"the same position as {before.path}"))
        elif before is not None and file.start < before.end and size and file.start % size:
            foreign.append(ForeignEntry(file.path, f"its position lies inside {before.path}"))
        else:
            files.append(file)
    return files
