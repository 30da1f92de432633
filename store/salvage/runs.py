"""Runs: records that follow one another both in a source and in the log.

A source is a file, also one of a directory, or a block device; it is only read, whatever is in it. This module finds
where a record may begin (magic codes in a window), grades what is proven of it (structure, body, all), makes runs of
records, reads the records of a run window by window, and keeps runs in layers.
"""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.commit_log import HEAD, PLAIN
from ...formats.derive import Columns, Ragged, decode
from ...formats.derive.ragged import Flags, Ints, overlapping
from ...formats.message import LATEST_MS, MESSAGE, SMALLEST
from ...formats.message_properties import crc_ok, is_torn
from ..broker.snapshot import each_directory
from ..disk.byte_reader import Closing, fill_any, next_data
from ..disk.compressed import is_compressed, open_plain, plain_name
from ..disk.file_queue import MappedFileQueue, start_of
from ..disk.layout import Layout
from ..disk.lock import holder
from ..errors import Missing, Unreadable, os_errors
from ..log.scan import WINDOW_BYTES
from ..log.window import Window, body_crc_ok, walk
from ..put.message_columns import rows_with_crc

OPEN_SOURCES = 32
"""Limit of sources that are open at a time."""
LARGEST_GAP_FILES = 1000
"""Limit of log files missing in a row; what is farther away is another log."""
LARGEST_RECORD = 64 << 20
"""A broker's limit is 4 MiB by default; what claims to be larger than this is no record."""
_LARGEST_POSITION = 1 << 62
_BLOCK_BYTES = 512
_WORD = np.dtype(np.uint64)
_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_SPACE = 0x20
_DEEPEST = 5
"""The files of a store lie at most so many directories deep."""


class SalvageSource:
    """One file or device, open for reading; `close` it.

    size: bytes; of a device found by seeking to its end. unreadable: ranges (begin, end) that the device did not give;
    they read as zeros.
    """

    def __init__(self, path: Path) -> None:
        """Raises Missing, Unreadable, LimitExceeded (a compressed file that is too large)."""
        self.path = path
        self.unreadable: list[tuple[int, int]] = []
        self._descriptor = _open(path)
        self.size = os.lseek(self._descriptor, 0, os.SEEK_END)

    def read(self, buffer: memoryview, at: int) -> int:
        """Fill `buffer` from byte `at` on; return how many bytes there were. Raises Unreadable."""
        room = buffer[: max(0, min(len(buffer), self.size - at))]
        got, unread = fill_any(self._descriptor, room, at, os.fspath(self.path))
        for each in unread:
            begin, end = each.offset, each.end
            if self.unreadable and self.unreadable[-1][1] >= begin >= self.unreadable[-1][0]:
                begin, known = self.unreadable.pop()
                end = max(end, known)
            self.unreadable.append((begin, end))
        return got

    def bytes_at(self, at: int, size: int) -> bytes:
        """Return up to `size` bytes from byte `at` on. Raises Unreadable."""
        buffer = bytearray(max(0, min(size, self.size - at)))
        got = self.read(memoryview(buffer), at)
        return bytes(buffer[:got])

    def next_data(self, at: int) -> int:
        """Return the first byte from `at` on that is not in a hole, `size` if there is none."""
        found = next_data(self._descriptor, at)
        return self.size if found is None else min(self.size, found)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


class Pieces:
    """Bytes of a record that lie apart in a source, read like a source that has them from byte `at` on."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self.size = at + len(data)

    def read(self, buffer: memoryview, at: int) -> int:
        """Fill `buffer` as `SalvageSource.read` does."""
        found = self.bytes_at(at, len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def bytes_at(self, at: int, size: int) -> bytes:
        """Return bytes as `SalvageSource.bytes_at` does."""
        return self._data[max(0, at - self._at) :][:size]


class Sources(Closing):
    """All that is carved, by number; few sources are open at a time.

    Behind the files come records whose blocks lie apart, under the name of their file. expired: numbers of the files
    that a running broker has deleted before they were read.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = list(paths)
        self.expired: set[int] = set()
        self._open: OrderedDict[int, SalvageSource] = OrderedDict()
        self._pieces: dict[int, Pieces] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def join(self, source: int, data: bytes, at: int) -> int:
        """Add a record that begins at byte `at` of a source and continues elsewhere; return its number."""
        number = len(self.paths)
        self.paths.append(self.paths[source])
        self._pieces[number] = Pieces(data, at)
        return number

    def __getitem__(self, number: int) -> SalvageSource | Pieces:
        """Return an open source, valid until others are asked for."""
        if number in self._pieces:
            return self._pieces[number]
        source = self._open.get(number)
        if source is None:
            if len(self._open) >= OPEN_SOURCES:
                self._open.popitem(last=False)[1].close()
            source = self._open[number] = SalvageSource(self.paths[number])
        self._open.move_to_end(number)
        return source

    def lose(self, error: Missing) -> None:
        """Go on without the file that an error is about. Raises the error unless a running broker deleted the file."""
        lost = {n for n, path in enumerate(self.paths) if os.fspath(path) == error.path and n not in self._pieces}
        if not lost - self.expired or not _is_expired(Path(error.path or "")):
            raise error
        self.expired |= lost

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


def _open(path: Path) -> int:
    with os_errors(path):
        mode = path.stat().st_mode
        if stat.S_ISREG(mode) and is_compressed(path):
            return os.dup(open_plain(path))
        if not stat.S_ISREG(mode) and not stat.S_ISBLK(mode):
            raise Unreadable("neither a file, a directory nor a block device", path=path)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _is_expired(path: Path) -> bool:
    """Whether a running broker has deleted a file of its store: a file before which none is left in its directory, or
    one that it replaces all the time. Raises Unreadable.
    """
    start = start_of(plain_name(path.name))
    used = any(holder(Layout.of(above).lock) not in (None, os.getpid()) for above in path.parents[:_DEEPEST])
    return used and (start is None or all(file.start > start for file in MappedFileQueue.open(path.parent).files))


class Images(NamedTuple):
    """What is carved: files and devices, and the directories where files were found."""

    files: list[Path]
    folders: list[Path]


def images_of(named: Iterable[Path], tell: Callable[[str], None] = lambda _: None) -> Images:
    """Return the files and devices to carve: those named, and all files of directories, by name; links are followed.

    A file with several names counts once, by a name that is no link if it has one. tell: called for links that lead to
    no file or directory. Raises Missing, Unreadable.
    """
    named = list(named)
    found, links, folders = [path for path in named if not path.is_dir()], list[Path](), list[Path]()
    for folder, entries in each_directory(path for path in named if path.is_dir()):
        folders.append(Path(folder))
        for path in (Path(entry.path) for entry in entries if not entry.directory):
            with os_errors(path):
                if path.is_file():
                    (links if path.is_symlink() else found).append(path)
                elif path.is_symlink():
                    tell(f"left out, a link that leads to no file or directory: {path}")
    files: dict[tuple[int, int], Path] = {}
    for path in (*found, *links):
        with os_errors(path):
            status = path.stat()
        files.setdefault((status.st_dev, status.st_ino), path)
    return Images(list(files.values()), folders)


class Grade(IntEnum):
    """What is proven of a record, the best first."""

    WHOLE = 0
    """Lengths, body CRC, and the CRC of the whole record if it has one."""
    BODY = 1
    """The body fits its CRC; the properties are torn or contradict theirs."""
    STRUCTURE = 2
    """All lengths fit; the body does not fit its CRC."""

    @property
    def label(self) -> str:
        """The name in JSON."""
        return self.name.lower()


def plausible(columns: Columns) -> Flags:
    """bool[n]: the fields before the body have values that a broker may write."""
    size, body = columns.ints("total_size"), columns.ints("body_length")
    found: Flags = (size >= SMALLEST) & (size <= LARGEST_RECORD)
    found &= (body >= 0) & (body <= size - SMALLEST)
    found &= (columns.ints("queue_id") >= 0) & (columns.ints("queue_offset") >= 0)
    time = columns.ints("store_timestamp")
    found &= (time >= 0) & (time < LATEST_MS)
    position = columns.ints("physical_offset")
    found &= (position >= 0) & (position < _LARGEST_POSITION)
    return found


def structural(columns: Columns) -> Flags:
    """bool[n]: plausible, and all lengths fit and add up to the size in the record."""
    found = plausible(columns) & columns.ok
    found &= columns.ends - columns.starts == columns.ints("total_size")
    topic = columns.ragged("topic")
    found &= topic.length > 0
    found &= topic.buffer[np.where(found, topic.start, 0)] > _SPACE
    return found


def grades(columns: Columns, body_fits: Flags | None = None) -> Ints:
    """Return the `Grade` of each of the records, which must be structural, int64[n]. body_fits: whether the body CRC
    fits, of these or more records; None: check it here.
    """
    count = len(columns)
    if body_fits is None:
        body_fits = body_crc_ok(columns, np.ones(count, np.bool_))
    # an empty body has no CRC, and a broker writes 0
    odd = (columns.ints("body_length") <= 0) & (columns.ints("body_crc") != 0)
    body = body_fits[:count] & ~odd
    torn = _torn(columns.ragged("properties"))
    data = columns.ragged("body").buffer
    for row in rows_with_crc(columns.ragged("properties")).tolist():
        torn[row] |= crc_ok(data[int(columns.starts[row]) : int(columns.ends[row])].tobytes()) is False
    found = np.where(torn, Grade.BODY, Grade.WHOLE)
    return np.where(body, found, Grade.STRUCTURE).astype(np.int64)


def _torn(properties: Ragged) -> Flags:
    """bool[n]: not text of a broker: zeros where a block was not written, or invalid UTF-8.

    A disk loses whole blocks: properties shorter than a block lose their end, if anything, so their last word tells.
    """
    words = overlapping(properties.buffer, _WORD)
    length = properties.length
    if not len(words):
        odd = length > 0
    else:
        last = properties.start + (length - _WORD.itemsize)
        if int(last.min(initial=0)) < 0 or int(last.max(initial=0)) >= len(words):
            last = np.clip(last, 0, len(words) - 1)
        odd = _not_plain(words[last])
        odd |= length > _BLOCK_BYTES
        odd &= length > 0
    found = np.zeros(len(properties), np.bool_)
    for row in np.flatnonzero(odd).tolist():
        found[row] = not _is_text(properties[row])
    return found


def _not_plain(words: npt.NDArray[np.uint64]) -> Flags:
    """bool[n]: one of the eight bytes is 0 or not ASCII."""
    tops = words - _ONES
    tops |= words
    tops &= _TOPS
    found: Flags = tops != 0
    return found


def _is_text(data: bytes) -> bool:
    try:
        return bool(data.decode()) and not is_torn(data)
    except UnicodeDecodeError:
        return False


class SalvageRun(NamedTuple):
    """`records` records in `length` bytes: from byte `at` of a source, from log position `position` on.

    source: its number. All records have the same grade. odd: the run contradicts what lies around it.
    """

    source: int
    at: int
    position: int
    length: int
    records: int
    grade: Grade
    odd: bool = False

    @property
    def end(self) -> int:
        """Log position behind the last byte."""
        return self.position + self.length

    @property
    def at_end(self) -> int:
        """Byte of the source behind the run."""
        return self.at + self.length

    @property
    def shift(self) -> int:
        """Log position minus byte of the source."""
        return self.position - self.at

    def part(self, position: int, end: int, records: int) -> SalvageRun:
        """Return the records at log positions [position, end) as a run."""
        at = self.at + position - self.position
        return self._replace(at=at, position=position, length=end - position, records=records)

    def followed_by(self, other: SalvageRun) -> bool:
        """Whether the other run continues where this one ends."""
        here = (self.source, self.at_end, self.end, self.grade, self.odd)
        return here == (other.source, other.at, other.position, other.grade, other.odd)


def runs_of(source: int, at: Ints, position: Ints, size: Ints, grade: Ints) -> list[SalvageRun]:
    """Return the runs of n records, given in the order of the source: int64[n] each."""
    if not len(at):
        return []
    breaks = (at[1:] != at[:-1] + size[:-1]) | (position[1:] != position[:-1] + size[:-1])
    breaks |= grade[1:] != grade[:-1]
    first = np.flatnonzero(np.append(True, breaks))
    last = np.append(first[1:], len(at)) - 1
    length = at[last] + size[last] - at[first]
    rows = zip(
        at[first].tolist(),
        position[first].tolist(),
        length.tolist(),
        (last - first + 1).tolist(),
        grade[first].tolist(),
        strict=True,
    )
    return [SalvageRun(source, a, p, n, records, Grade(g)) for a, p, n, records, g in rows]


def append(runs: list[SalvageRun], more: list[SalvageRun]) -> None:
    """Add runs; join the first of them to the last run if it continues that."""
    if runs and more and runs[-1].followed_by(more[0]):
        last = runs[-1]
        runs[-1] = last._replace(length=last.length + more[0].length, records=last.records + more[0].records)
        more = more[1:]
    runs += more


def mark_odd(runs: list[SalvageRun]) -> None:
    """Mark runs that lie in a hole of another one, in the order of a source, in place.

    The runs before and behind it in the source belong together, but it belongs elsewhere in the log: it may come from
    the body of a message whose head is damaged.
    """
    for i in range(1, len(runs) - 1):
        before, run, after = runs[i - 1], runs[i], runs[i + 1]
        together = before.source == run.source == after.source and before.shift == after.shift
        if together and run.shift != before.shift:
            runs[i] = run._replace(odd=True)


def _pattern() -> re.Pattern[bytes]:
    """Return a pattern for all magic codes of records: their common front, then a class of bytes."""
    codes = [HEAD.magic_code.build(magic) for magic in PLAIN.magics]
    shared, last = codes[0][:-1], b"".join(re.escape(code[-1:]) for code in codes)
    assert all(code.startswith(shared) for code in codes)
    return re.compile(re.escape(shared) + b"[" + last + b"]", re.DOTALL)


_MAGIC = _pattern()
OVERLAP_BYTES = HEAD.sizeof() - 1
"""This many bytes at the end of a window may be the front of a head."""


def first(data: bytearray, begin: int, end: int) -> int | None:
    """Return the first byte from `begin` on where a record may begin, or None."""
    found = _MAGIC.search(data, begin + PLAIN.magic_offset, end)
    return None if found is None else found.start() - PLAIN.magic_offset


def every(data: bytearray, begin: int, end: int) -> Ints:
    """Return all bytes where a record may begin, int64[n]."""
    found = _MAGIC.finditer(data, begin + PLAIN.magic_offset, end)
    return np.fromiter((hit.start() for hit in found), np.int64) - PLAIN.magic_offset


def windows_of(run: SalvageRun, sources: Sources) -> Iterator[tuple[Window, Ints, int]]:
    """Yield windows in a buffer that is used again, the bytes where whole records begin, and where they end.

    Ends early if the source has changed. Raises Unreadable.
    """
    at, buffer, need = run.at, bytearray(0), WINDOW_BYTES
    while at < run.at_end:
        size = min(need, run.at_end - at)
        if len(buffer) < size:
            buffer = bytearray(size)
        got = sources[run.source].read(memoryview(buffer)[:size], at)
        window = Window(buffer, got, at + run.shift)
        starts, stop = walk(window, PLAIN)
        if len(starts):
            yield window, starts, stop
            at, need = at + stop, WINDOW_BYTES
        elif got < run.at_end - at and need < LARGEST_RECORD:
            need = LARGEST_RECORD
        else:
            return


def batches_of(run: SalvageRun, sources: Sources) -> Iterator[Columns]:
    """Yield the records of a run as columns, valid until the next ones are asked for."""
    for window, starts, _ in windows_of(run, sources):
        yield decode(MESSAGE, window.array, starts)


def record_places(run: SalvageRun, sources: Sources) -> Iterator[tuple[Ints, Ints]]:
    """Yield where the records of a run begin and end in the log, int64[n] each, window by window."""
    for window, starts, stop in windows_of(run, sources):
        positions = starts + window.position
        yield positions, np.append(positions[1:], stop + window.position)


class Layer:
    """Runs that do not overlap, by log position."""

    def __init__(self) -> None:
        self.runs: list[SalvageRun] = []
        self._starts: list[int] = []

    def overlapping(self, position: int, end: int) -> list[SalvageRun]:
        """Return the runs that share a byte with [position, end)."""
        first = bisect_left(self._starts, position)
        if first and self.runs[first - 1].end > position:
            first -= 1
        return self.runs[first : bisect_left(self._starts, end)]

    def add(self, run: SalvageRun) -> None:
        """Add a run that overlaps no other."""
        at = bisect_left(self._starts, run.position)
        self._starts.insert(at, run.position)
        self.runs.insert(at, run)

    @property
    def records(self) -> int:
        return sum(run.records for run in self.runs)


def split_far(layer: Layer, file_bytes: int) -> tuple[Layer, list[Layer]]:
    """Split a layer whose runs are far apart: return the part with most records, and the others."""
    groups, reach = list[Layer](), None
    for run in layer.runs:
        if reach is None or run.position - reach > LARGEST_GAP_FILES * file_bytes:
            groups.append(Layer())
        groups[-1].add(run)
        reach = run.end
    groups.sort(key=lambda each: -each.records)
    return (groups[0] if groups else layer), groups[1:]
