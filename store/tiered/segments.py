"""Where the segments of a tiered store lie and how they are named (POSIX provider, 5.1+).

A flat file is a row of segments without gaps, one directory for each kind of it. Sizes differ:
a segment is closed when the next one begins.
"""

from __future__ import annotations

import os
from hashlib import md5
from pathlib import Path

from ..disk.file_queue import NAME_DIGITS, MappedFileQueue, start_of

SEGMENTS = {
    "COMMIT_LOG": "tiered-commit-log",
    "CONSUME_QUEUE": "tiered-consume-queue",
    "INDEX": "tiered-index",
}
"""Directories of segments, and the kind of the files in them."""
_HASH_DIGITS = 8


def segment_name(start: int) -> str:
    """Name of the segment whose first byte has the position `start`."""
    return _hash(str(start)) + f"{start:0{NAME_DIGITS}d}"


def segment_start(name: str) -> int | None:
    """Position that a segment's name stands for, None where it is no such name."""
    start = start_of(name[_HASH_DIGITS:]) if len(name) == _HASH_DIGITS + NAME_DIGITS else None
    return start if start is not None and segment_name(start) == name else None


def _hash(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]


def kind_of_place(path: Path) -> str | None:
    """The kind of a segment, or of a directory of them, by place and name."""
    if path.is_dir():
        kind = SEGMENTS.get(path.name)
        names = os.listdir(path) if kind else []  # noqa: PTH208
        return kind if any(segment_start(name) is not None for name in names) else None
    return SEGMENTS.get(path.parent.name) if segment_start(path.name) is not None else None


def queue_of_place(path: Path) -> tuple[str, int] | None:
    """Topic and queue id by the place of segments; None where it names none."""
    above = path if path.name in SEGMENTS else path.parent
    if above.name not in SEGMENTS or start_of(above.parent.name) is None:
        return None
    return above.parent.parent.name, int(above.parent.name)


def open_segments(path: Path) -> MappedFileQueue:
    """The segments of a directory, or one of them, wherever it lies. Raises Unreadable."""
    if path.is_dir():
        return MappedFileQueue.open(path, start_of=segment_start)
    return MappedFileQueue.of_file(path, segment_start(path.name) or 0)
