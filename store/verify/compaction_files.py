"""One queue of a compaction topic as columns: units of its queue, records of its log (spec 06, 6.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...formats import message_properties as names
from ...formats.hashing_columns import java_hash_column
from ...formats.property_columns import Items
from ...formats.sparse_consume_queue import END, UNIT_BYTES
from ..disk.file_queue import MappedFile, MappedFileQueue
from ..log.commit_log import Batch, CommitLog, ExtentKind
from ..log.record_status import Mark
from ..queues.read import queue_directories
from ..queues.read_batches import Units, is_valid
from ..queues.read_sparse import SparseRange, sparse_units
from ..search.compaction import open_log
from .context import Scene

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_NO_KEYS = -1


@dataclass(frozen=True)
class CompactedRecords:
    """n records of a compaction log. keys: hash of KEYS, _NO_KEYS without any. torn: a NUL byte is
    in the properties, 0 or 1."""

    position: Ints
    physical_offset: Ints
    size: Ints
    queue_offset: Ints
    store_timestamp: Ints
    keys: Ints
    torn: Ints


@dataclass(frozen=True)
class CompactedUnits:
    """n units that name a record. place: number in the file's name plus the byte in it."""

    place: Ints
    physical_offset: Ints
    size: Ints
    base: Ints
    store_time: Ints


class CompactedQueue:
    """The files of one queue; each part is read when it is asked for."""

    def __init__(self, scene: Scene, topic: str, queue_id: int) -> None:
        layout = scene.store.layout
        self.topic, self.queue_id = topic, queue_id
        self.queue_path = layout.compaction_queues / topic / str(queue_id)
        self.log_path = layout.compaction_log / topic / str(queue_id)
        self._layout = layout
        self.blank_ends: set[int] = set()
        self.closed: set[int] = set()
        self.odd_units: list[SparseRange] = []

    @cached_property
    def queue_files(self) -> list[MappedFile]:
        """The files of the queue."""
        with MappedFileQueue.open(self.queue_path) as files:
            return list(files.files)

    @cached_property
    def log_files(self) -> list[MappedFile]:
        """The files of the log."""
        return list(self._log.queue.files)

    @cached_property
    def _log(self) -> CommitLog:
        return open_log(self._layout, self.topic, self.queue_id)

    def before_gap(self, file: MappedFile) -> bool:
        """The file is the last that compaction wrote: behind it the names go on elsewhere."""
        log = next((one for one in self.log_files if one.start == file.start), None)
        return log is not None and all(one.start != log.end for one in self.log_files)

    @cached_property
    def records(self) -> CompactedRecords:
        """Memory: 56 bytes for each. Raises Unreadable."""
        parts = [np.zeros((7, 0), np.int64)]
        with self._log.queue:
            for item in self._log.scan(crc=False, reuse=True):
                if isinstance(item, Batch):
                    if item.mark is not Mark.EMBEDDED:
                        parts.append(_record_columns(item))
                elif item.kind is ExtentKind.BLANK:
                    self.blank_ends.add(item.end)
        found = np.concatenate(parts, axis=1)
        return CompactedRecords(*found[:, np.argsort(found[0], kind="stable")])

    @cached_property
    def units(self) -> CompactedUnits:
        """Memory: 40 bytes for each. Raises Unreadable."""
        parts = [np.zeros((5, 0), np.int64)]
        with MappedFileQueue.open(self.queue_path) as files:
            for part in sparse_units(files):
                if isinstance(part, SparseRange):
                    self.odd_units.append(part)
                    continue
                valid = is_valid(part.units)
                ends = _is_end(part.units)
                self.closed.update(part.position[ends].tolist())
                for place in part.position[~valid & ~ends].tolist():
                    self.odd_units.append(SparseRange(place, UNIT_BYTES, "a unit of no message"))
                parts.append(_unit_columns(part.position[valid], part.units[valid]))
        return CompactedUnits(*np.concatenate(parts, axis=1))


def _is_end(units: Units) -> Flags:
    found = np.ones(len(units), np.bool_)
    for name in ("physical_offset", "size", "compacted_offset"):
        found &= units[name] == END[name]
    return found


def _unit_columns(place: Ints, units: Units) -> Ints:
    names_ = ("physical_offset", "size", "msg_base_offset", "store_time")
    return np.stack([place, *(units[name].astype(np.int64) for name in names_)])


def _record_columns(batch: Batch) -> Ints:
    columns = batch.columns
    items = Items(columns.ragged("properties"))
    keys = items.find(names.KEYS)
    hashes = java_hash_column(keys).view(np.uint32).astype(np.int64)
    hashes = np.where(keys.length > 0, hashes, _NO_KEYS)
    stored = ("physical_offset", "total_size", "queue_offset", "store_timestamp")
    numbers = (columns.ints(name).astype(np.int64) for name in stored)
    return np.stack([batch.position, *numbers, hashes, items.has_nul().astype(np.int64)])


def compacted_queues(scene: Scene) -> list[CompactedQueue]:
    """Those that either directory has, of the topic and queue that are asked for."""

    def make() -> list[CompactedQueue]:
        layout, scope = scene.store.layout, scene.scope
        both = [*queue_directories(layout.compaction_queues)]
        both += queue_directories(layout.compaction_log)
        wanted = sorted({(queue.topic, queue.queue_id) for queue in both})
        return [
            CompactedQueue(scene, topic, queue_id)
            for topic, queue_id in wanted
            if scope.topic in (None, topic) and scope.queue_id in (None, queue_id)
        ]

    return scene.kept("compacted queues", make)


def leftovers(scene: Scene) -> Iterator[Path]:
    """What a compaction or a copy from the master has left in the queues' directories."""
    for queue in compacted_queues(scene):
        for directory in (queue.log_path, queue.queue_path):
            for path in sorted(directory.iterdir()) if directory.is_dir() else ():
                if path.suffix == ".delete" or path.name in ("compacting", "replicating"):
                    yield path
