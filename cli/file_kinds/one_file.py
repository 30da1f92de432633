"""Open the file or files of a stream, and report what cannot be read of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...store.disk.byte_reader import noted_of
from ...store.disk.compressed import Plain, plain_name
from ...store.disk.file_queue import MappedFileQueue, start_of
from ...store.disk.layout import LOCK
from ...store.disk.lock import expiring
from .chunks import NonRecordRange


def single_file(path: Path) -> MappedFileQueue:
    """One file as a stream of its own; it begins at the position that is its name, or else at 0."""
    return MappedFileQueue.of_file(path, start_of(plain_name(path.name)) or 0)


def files_at(path: Path) -> MappedFileQueue:
    """The file at a path as a stream of its own, or the files of a directory as one stream, which goes on where a
    broker that uses the store deletes the oldest ones meanwhile.
    """
    if path.is_file():
        return single_file(path)
    lock = next((parent / LOCK for parent in path.absolute().parents if (parent / LOCK).is_file()), path / LOCK)
    return expiring(MappedFileQueue.open(path), lock, told=True)


def lacking(files: MappedFileQueue, *, silent: bool = False) -> Iterator[NonRecordRange]:
    """Damage records for what the disk does not give of some files, and for compressed files that are broken."""
    for file in files.files:
        yield from unreadable(file.path, file.start)
        content = files.content(file)
        if content.problem:
            size = max(file.size, files.file_size)
            yield broken(Path(file.path).name, file.start, size, content, silent=silent)


def unreadable(path: str, start: int = 0) -> Iterator[NonRecordRange]:
    """Damage records for ranges that could not be read so far. start: position of the file's first byte."""
    for unread in noted_of(path):
        yield NonRecordRange.damage(start + unread.offset, unread.length, f"unreadable: {unread.reason}")


def broken(name: str, start: int, size: int, content: Plain, *, silent: bool) -> NonRecordRange:
    """A damage record for the end of a compressed file that does not decompress. size: of the whole file, in bytes."""
    reason = f"{name} does not decompress: {content.problem}"
    return NonRecordRange.damage(start + content.size, max(0, size - content.size), reason, silent=silent)
