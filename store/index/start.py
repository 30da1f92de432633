"""What a load does to the index files (spec 3.4).

A file whose name is no number is skipped. After a crash every file whose end time lies behind the
checkpoint's is deleted; what is dispatched later goes behind the newest file that is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..broker.snapshot import Entry
from .files import Geometry, Header, IndexFile


class StoredIndex(NamedTuple):
    """One index file: its entry and its header."""

    entry: Entry
    header: Header

    def open(self, geometry: Geometry) -> IndexFile:
        """The file, for reading."""
        return IndexFile(self.entry.path, geometry)


@dataclass(frozen=True)
class IndexState:
    """The index files after load."""

    kept: list[StoredIndex]
    deleted: list[StoredIndex]

    @property
    def end_physical_offset(self) -> int:
        """Records before this position count as indexed."""
        return self.kept[-1].header.end_physical_offset if self.kept else 0


def stored_files(entries: Sequence[Entry]) -> Iterator[StoredIndex]:
    """Those whose name is a number, in the order of the entries. Raises Unreadable."""
    for entry in entries:
        if not entry.directory and entry.name.isascii() and entry.name.isdigit():
            with IndexFile(entry.path, Geometry(0, 0)) as file:
                yield StoredIndex(entry, file.read_header())


def load_index(entries: Sequence[Entry], crashed: bool, index_time: int) -> IndexState:
    """Load index files; `index_time` is the checkpoint's indexMsgTimestamp."""
    found = IndexState([], [])
    for file in stored_files(entries):
        gone = crashed and file.header.end_timestamp > index_time
        (found.deleted if gone else found.kept).append(file)
    return found
