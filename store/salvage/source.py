"""What is carved: files, block devices, all files of a directory. Read only, whatever is in them."""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from ..disk.byte_reader import fill_any, next_data
from ..disk.compressed import is_compressed, open_plain
from ..disk.file_queue import is_directory, is_file
from ..errors import Missing, Unreadable, from_os_error

OPEN_SOURCES = 32
"""Sources that are open at a time."""


class Source:
    """One file or device, open for reading; `close` it.

    size: bytes, of a device by seeking to its end. unreadable: ranges (begin, end) that the device
    did not give; they read as zeros.
    """

    def __init__(self, path: Path) -> None:
        """Raises Missing, Unreadable, LimitExceeded (a compressed file that is too large)."""
        self.path = path
        self.unreadable: list[tuple[int, int]] = []
        self._descriptor = _open(path)
        self.size = os.lseek(self._descriptor, 0, os.SEEK_END)

    def read(self, buffer: memoryview, at: int) -> int:
        """Fill `buffer` from byte `at` on; returns the bytes there were. Raises Unreadable."""
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
        """Up to `size` bytes from byte `at` on."""
        buffer = bytearray(max(0, min(size, self.size - at)))
        got = self.read(memoryview(buffer), at)
        return bytes(buffer[:got])

    def next_data(self, at: int) -> int:
        """The first byte from `at` on that is not in a hole; the size where all is."""
        found = next_data(self._descriptor, at)
        return self.size if found is None else min(self.size, found)

    def forget(self, at: int, size: int) -> None:
        """Leave the page cache as it was."""
        os.posix_fadvise(self._descriptor, at, size, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


class Pieces:
    """Bytes that lay apart in a source, read like one: from byte `at` of it on."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self.size = at + len(data)

    def read(self, buffer: memoryview, at: int) -> int:
        """As of a `Source`."""
        found = self.bytes_at(at, len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def bytes_at(self, at: int, size: int) -> bytes:
        """As of a `Source`."""
        return self._data[max(0, at - self._at) :][:size]


class Sources:
    """All that is carved, by number; few of them are open at a time. A context manager.

    Behind the files come records whose blocks lie apart, under the name of their file.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = list(paths)
        self._open: OrderedDict[int, Source] = OrderedDict()
        self._pieces: dict[int, Pieces] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def join(self, source: int, data: bytes, at: int) -> int:
        """Add a record that begins at byte `at` of a source and goes on elsewhere; its number."""
        number = len(self.paths)
        self.paths.append(self.paths[source])
        self._pieces[number] = Pieces(data, at)
        return number

    def __getitem__(self, number: int) -> Source | Pieces:
        """An open source, good until others are asked for."""
        if number in self._pieces:
            return self._pieces[number]
        source = self._open.get(number)
        if source is None:
            if len(self._open) >= OPEN_SOURCES:
                self._open.popitem(last=False)[1].close()
            source = self._open[number] = Source(self.paths[number])
        self._open.move_to_end(number)
        return source

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._open.popitem()[1].close()


def _open(path: Path) -> int:
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode) and is_compressed(path):
            return os.dup(open_plain(path))
        if not stat.S_ISREG(mode) and not stat.S_ISBLK(mode):
            raise Unreadable("neither a file, a directory nor a block device", path=path)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise from_os_error(error, path) from error


def paths_of(images: Iterable[Path]) -> list[Path]:
    """The files and devices to carve: those named, and all files of directories, by name.

    A link inside a directory is not followed. Raises Missing, Unreadable.
    """
    found: dict[Path, None] = {}
    for image in images:
        if not image.exists():
            raise Missing("no such file or directory", path=image)
        found.update(dict.fromkeys(_below(image) if image.is_dir() else [image]))
    return list(found)


def _below(directory: Path) -> Iterator[Path]:
    pending = [directory]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            raise from_os_error(error, folder) from error
        here = [entry for entry in entries if not entry.is_symlink()]
        yield from (Path(entry.path) for entry in here if is_file(entry))
        pending += [Path(entry.path) for entry in reversed(here) if is_directory(entry)]
