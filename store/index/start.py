"""What a load does to the index files (spec 3.4).

A file whose name is no number is skipped. After a crash every file whose end time lies behind the
checkpoint's is deleted; what is dispatched later goes behind the newest file that is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...formats.derive import dtype_of
from ...formats.index_file import HEADER, HEADER_BYTES
from ..disk.byte_reader import read_at
from ..disk.snapshot import Entry

_HEADER_DTYPE = dtype_of(HEADER)


@dataclass(frozen=True)
class IndexHeader:
    """One index file: its entry and what its header says (zeros where it is shorter)."""

    entry: Entry
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    index_count: int


@dataclass(frozen=True)
class IndexState:
    """The index files after load."""

    kept: list[IndexHeader]
    deleted: list[IndexHeader]

    @property
    def end_physical_offset(self) -> int:
        """Records before this position count as indexed."""
        return self.kept[-1].end_physical_offset if self.kept else 0


def read_header(entry: Entry) -> IndexHeader:
    """The header of an index file. Raises Unreadable."""
    data = read_at(entry.path, HEADER_BYTES, 0)
    header = np.frombuffer(data.ljust(HEADER_BYTES, b"\0"), _HEADER_DTYPE)[0]
    names = (
        "begin_timestamp",
        "end_timestamp",
        "begin_physical_offset",
        "end_physical_offset",
        "index_count",
    )
    return IndexHeader(entry, *(int(header[name]) for name in names))


def load_index(entries: Sequence[Entry], crashed: bool, index_time: int) -> IndexState:
    """Load index files; `index_time` is the checkpoint's indexMsgTimestamp."""
    kept: list[IndexHeader] = []
    deleted: list[IndexHeader] = []
    for entry in entries:
        if entry.directory or not (entry.name.isascii() and entry.name.isdigit()):
            continue
        header = read_header(entry)
        gone = crashed and header.end_timestamp > index_time
        (deleted if gone else kept).append(header)
    return IndexState(kept, deleted)
