"""A copy of a store's directory: holes stay holes, times stay times, links become what they name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ..disk.byte_reader import data_ranges, read
from ..disk.file_queue import is_directory, is_file
from ..disk.files import Files, OpenFile
from ..disk.layout import JOURNAL
from ..disk.regular_file import open_regular
from ..errors import InvalidInput, NotAStore, Refused, from_os_error

_CHUNK_BYTES = 4 << 20


def check_target(source: Path, target: Path) -> None:
    """Raises Refused for a target inside the source, InvalidInput for one that holds something."""
    inner, outer = target.resolve(), source.resolve()
    if inner == outer or inner.is_relative_to(outer) or outer.is_relative_to(inner):
        raise Refused("the copy would lie in the store or around it", path=target)
    check_empty(target)


def check_empty(target: Path) -> None:
    """Raises InvalidInput for a directory that holds something, NotAStore for a file."""
    try:
        if target.exists() and not target.is_dir():
            raise NotAStore("not a directory", path=target)
        if target.is_dir() and any(target.iterdir()):
            raise InvalidInput("not empty", path=target, hint="name a new directory")
    except OSError as error:
        raise from_os_error(error, target) from error


def copy_store(source: Path, target: Path, files: Files, told: Callable[[int], None]) -> list[str]:
    """Copy all files and directories; `told` hears of so many more bytes.

    Sessions of mqstore are left out. Returns what was left out otherwise: neither file nor
    directory. Raises Unreadable, NoSpace: part of the copy is there then.
    """
    files.make_directory(target)
    left_out: list[str] = []
    for path, relative, directory in _entries(source, left_out):
        if directory:
            files.make_directory(target / relative)
        else:
            _copy_file(path, target / relative, files, told)
    files.sync_directory(target)
    return left_out


def _entries(source: Path, left_out: list[str]) -> Iterator[tuple[Path, Path, bool]]:
    """Everything below `source`, directories before what is in them; a loop of links ends."""
    pending = [(source, Path(), {os.path.realpath(source)})]
    while pending:
        folder, relative, above = pending.pop()
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise from_os_error(error, folder) from error
        for entry in found:
            path, place = Path(entry.path), relative / entry.name
            real = os.path.realpath(path)
            if place.parts[0] == JOURNAL:
                continue
            if is_directory(entry) and real not in above:
                yield path, place, True
                pending.append((path, place, above | {real}))
            elif is_file(entry):
                yield path, place, False
            else:
                left_out.append(str(place))


def _copy_file(source: Path, target: Path, files: Files, told: Callable[[int], None]) -> None:
    descriptor = open_regular(source)
    try:
        status = os.fstat(descriptor)
        with files.create(target, like=source) as file:
            file.truncate(status.st_size)
            for begin, end in data_ranges(descriptor, 0, status.st_size):
                _copy_range(descriptor, str(source), file, begin, end)
            file.sync()
        files.set_times(target, status.st_atime_ns, status.st_mtime_ns)
        told(status.st_size)
    except OSError as error:
        raise from_os_error(error, source) from error
    finally:
        os.close(descriptor)


def _copy_range(descriptor: int, source: str, file: OpenFile, begin: int, end: int) -> None:
    for at in range(begin, end, _CHUNK_BYTES):
        file.pwrite(read(descriptor, min(_CHUNK_BYTES, end - at), at, source, end=end), at)
