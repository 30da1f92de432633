"""Stores in object storage whose files must lie in a directory to be read: copied to scratch.

Logs are read where they are, by ranges (`remote.py`). Queues, index, timer log and configuration are
small beside them, and findings need all of a store: these are copied for as long as a task reads.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyarrow import fs

from ..counted import counted
from ..disk.layout import is_uri
from ..errors import Missing, NoSpace, StoreError, Unreadable, from_os_error

_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Place:
    """Where the files of a store can be read. root: what the store is called."""

    root: str
    folder: Path

    def text(self, text: str) -> str:
        """A text with the store's own name for a path in it."""
        return text.replace(str(self.folder), self.root)

    def named(self, value: Any) -> Any:
        """A value, or values in a list or by name, whose texts have the store's own name."""
        if str(self.folder) == self.root:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.named(one) for one in value]
        if isinstance(value, Mapping):
            return {name: self.named(one) for name, one in value.items()}
        return value


@contextmanager
def in_directory(root: str, parts: Collection[str] | None = None) -> Iterator[Place]:
    """A store as a directory: itself, or what was copied from object storage.

    parts: names in the store's directory whose files are needed, None for all. Raises Missing,
    Unreadable, NoSpace where it does not fit; what the block raises has the store's own name in it.
    """
    if not is_uri(root):
        yield Place(root, Path(root))
        return
    with TemporaryDirectory(prefix="mqstore-store-") as name:
        place = Place(root, Path(name))
        try:
            _copy(root, place.folder, parts)
            yield place
        except StoreError as error:
            raise type(error)(place.text(str(error))) from error


def _copy(root: str, target: Path, parts: Collection[str] | None) -> None:
    place, base, found = _listed(root)
    files = []
    for info in found:
        inside = PurePosixPath(info.path).relative_to(base)
        if ".." in inside.parts:
            continue
        path = target.joinpath(*inside.parts)
        is_file = info.type is fs.FileType.File
        try:
            (path.parent if is_file else path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise from_os_error(error, path, "cannot write") from error
        if is_file and (parts is None or inside.parts[0] in parts):
            files.append((info, path))
    needed = sum(info.size for info, _ in files)
    if needed > shutil.disk_usage(target).free:
        raise NoSpace(f"no room for a copy of {counted(needed, 'byte')}", path=root)
    for info, path in files:
        _fetch(place, info, path)


def _listed(root: str) -> tuple[fs.FileSystem, str, list[fs.FileInfo]]:
    """All that lies below a URI. Raises Missing, Unreadable."""
    try:
        place, path = fs.FileSystem.from_uri(root)
        base = path.rstrip("/")
        found = place.get_file_info(fs.FileSelector(base, recursive=True))
    except FileNotFoundError:
        raise Missing("no such directory", path=root) from None
    except (OSError, pa.ArrowException) as error:
        raise Unreadable(f"cannot list ({error})", path=root) from error
    if not found:
        raise Missing("no such directory", path=root)
    return place, base, found


def _fetch(place: fs.FileSystem, info: fs.FileInfo, path: Path) -> None:
    """One file, with the time of its last change."""
    try:
        source = place.open_input_stream(info.path)
    except OSError as error:
        raise Unreadable(f"cannot read ({error})", path=info.path) from error
    try:
        with source, path.open("xb") as copy:
            while data := _read(source, info.path):
                copy.write(data)
        if info.mtime_ns is not None:
            os.utime(path, ns=(info.mtime_ns, info.mtime_ns))
    except OSError as error:
        raise from_os_error(error, path, "cannot write") from error


def _read(source: pa.NativeFile, path: str) -> bytes:
    try:
        data: bytes = source.read(_COPY_BYTES)
    except OSError as error:
        raise Unreadable(f"cannot read ({error})", path=path) from error
    return data
