"""Archives of stores and of the project, unpacked alike by every Python that the project runs on."""

from __future__ import annotations

import functools
import os
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

#: So many archives stay in memory: most tests unpack a store, and few stores are unpacked by most.
KEPT = 64
#: A larger file is read again each time.
LARGEST_KEPT = 4 << 20


class _Member(NamedTuple):
    """A file or directory of an archive."""

    name: str
    mode: int
    modified: float
    size: int
    parts: tuple[tuple[int, bytes], ...] | None
    """Where what lies, holes between them; None: a directory."""


def extract(path: Path, target: Path) -> None:
    """Unpack a .tar.gz of files and directories into `target`: holes and mtimes kept, no owner."""
    members = _kept(path) if path.stat().st_size < LARGEST_KEPT else _members(path)
    directories = [member for member in members if member.parts is None]
    made: set[str] = set()
    root = os.fspath(target)
    for member in members:
        place = f"{root}/{member.name}"
        parent = place if member.parts is None else place.rpartition("/")[0]
        if parent not in made:
            os.makedirs(parent, exist_ok=True)  # noqa: PTH103
            made.add(parent)
        if member.parts is not None:
            _write(place, member)
    for directory in sorted(directories, reverse=True):  # what is made in one changes its time
        os.utime(f"{root}/{directory.name}", (directory.modified, directory.modified))


def _write(place: str, member: _Member) -> None:
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
    try:
        for offset, data in member.parts or ():
            assert os.pwrite(descriptor, data, offset) == len(data)
        os.ftruncate(descriptor, member.size)
        os.fchmod(descriptor, member.mode)
        os.utime(descriptor, (member.modified, member.modified))
    finally:
        os.close(descriptor)


@functools.lru_cache(KEPT)
def _kept(path: Path) -> list[_Member]:
    return _members(path)


def _members(path: Path) -> list[_Member]:
    with tarfile.open(path) as archive:
        return [_member(archive, info) for info in archive]


def _member(archive: tarfile.TarFile, info: tarfile.TarInfo) -> _Member:
    name = PurePosixPath(info.name)
    assert not name.is_absolute() and ".." not in name.parts, info.name
    assert info.isreg() or info.isdir(), f"{info.name}: neither a file nor a directory"
    parts = None if info.isdir() else tuple(_parts(archive, info))
    mode = (info.mode & 0o755) | 0o600  # nobody else may write, as with the "data" filter
    return _Member(str(name), mode, info.mtime, info.size, parts)


def _parts(archive: tarfile.TarFile, info: tarfile.TarInfo) -> list[tuple[int, bytes]]:
    file = archive.fileobj
    assert file is not None
    file.seek(info.offset_data)
    sparse: Any = info.sparse  # pairs, whatever the stubs say
    runs = sparse if sparse is not None else [(0, info.size)]
    return [(offset, file.read(size)) for offset, size in runs if size]
