"""Sizes of the files of a store, and where each comes from.

A broker knows file sizes only from its configuration; no file states them. Here they are learned from the files
themselves; a configuration overrides that; without either, the broker's default is used.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from .file_queue import MappedFileQueue, size_of
from .layout import Layout, queue_directories

Origin = Literal["files", "configuration", "default"]
_QUEUES_LOOKED_AT = 64
"""Queues whose files are examined for the size of a consume queue file."""


class Size(NamedTuple):
    """A number of bytes, slots or items, and where it comes from."""

    value: int
    origin: Origin


def commit_log_size(layout: Layout) -> Size:
    """Size of a commit log file in bytes."""
    return _size(layout, "mappedFileSizeCommitLog", layout.commit_log_files())


def timer_log_size(layout: Layout) -> Size:
    """Size of a timer log file in bytes."""
    return _size(layout, "mappedFileSizeTimerLog", MappedFileQueue.open(layout.timer_log))


def _size(layout: Layout, option: str, queue: MappedFileQueue) -> Size:
    value, origin = layout.broker_config.size(option)
    if origin == "configuration":
        return Size(value, "configuration")
    return Size(queue.file_size, "files") if queue.file_size else Size(value, "default")


def consume_queue_size(layout: Layout) -> Size:
    """Size of a consume queue file in bytes: the commonest size among the first queues."""
    from ...formats.consume_queue import UNIT_BYTES

    value, origin = layout.broker_config.size("mappedFileSizeConsumeQueue")
    if origin == "configuration":
        return Size(-(-value // UNIT_BYTES) * UNIT_BYTES, "configuration")
    found = size_of_queues(layout.consume_queue, UNIT_BYTES)
    return Size(found, "files") if found else Size(value, "default")


def size_of_queues(directory: Path, unit_bytes: int = 1) -> int:
    """The commonest size of a file among the first queues below a directory, a multiple of `unit_bytes` as those of
    whole files are; 0 without one.
    """
    queues = islice(queue_directories(directory), _QUEUES_LOOKED_AT)
    found = Counter(size_of(MappedFileQueue.open(queue.path).files) for queue in queues)
    sizes = (size for size in found if size and size % unit_bytes == 0)
    return max(sizes, key=lambda size: (found[size], size), default=0)
