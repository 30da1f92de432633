"""Opening one file that is a stream, or a record, of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...store.mapped_file_queue import MappedFileQueue


def single_file(path: Path) -> MappedFileQueue:
    """One file as a stream of its own: its name tells where it begins, if it is a number."""
    from ...store.mapped_file_queue import MappedFile, MappedFileQueue, start_of

    size = path.stat().st_size
    file = MappedFile(str(path), start_of(path.name) or 0, size)
    return MappedFileQueue((str(path.parent),), [file], size, [])


def read_head(path: Path, limit: int) -> bytes:
    from ...store.regular_file import read_regular

    return read_regular(path, limit)
