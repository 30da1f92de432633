"""The log of a store as it is with what a replica gives, before anything else is planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..audit.messages import Auditor, Messages
from ..broker.dispatch import Dispatched
from ..disk.file_queue import MappedFile, MappedFileQueue, file_name
from ..disk.snapshot import QueueId, Snapshot
from ..log.commit_log import Batch, CommitLog, Extent
from .bring_back import Brought, Lack, Part, bring_back
from .overlay import PatchedQueue
from .replica import Replica
from .replica_holes import DamageFinder

Look = Callable[[CommitLog, list[Auditor]], None]


def with_replica(
    snapshot: Snapshot,
    queue: MappedFileQueue,
    name: str,
    *,
    verify: bool,
    look: Look,
    auditors: tuple[Auditor, ...],
) -> tuple[Brought, MappedFileQueue]:
    """What the replica `name` gives, and the log's files with that over them.

    look: makes a pass over a log; `auditors` see the log as it lies there. Raises Refused, Missing,
    NotAStore, Unreadable, Unsupported, InvalidInput.
    """
    replica = Replica.open(name, snapshot.layout, snapshot.log_file_bytes)
    starts = frozenset(int(entry.name) for entry in snapshot.log)
    finder = DamageFinder(snapshot.log_file_bytes, starts, min(starts), verify)
    look(CommitLog.of(snapshot.layout, queue), [finder, *auditors])
    brought = bring_back(snapshot, CommitLog.of(snapshot.layout, queue), finder, replica)
    while brought.parts:
        chain = QueueChain(brought.parts)
        patched = _patched(snapshot, queue, brought)
        look(CommitLog.of(snapshot.layout, patched), [chain])
        if not chain.broken:
            return brought, patched
        _drop(brought, chain.broken)
    return brought, queue


def _drop(brought: Brought, broken: set[Part]) -> None:
    """Leave parts out."""
    reason = "its queue offsets do not fit between those of this log"
    for part in broken:
        brought.parts.remove(part)
        brought.lacks.append(Lack(part.position, part.size, reason))
        end = part.position + part.size
        brought.pieces = [p for p in brought.pieces if not part.position <= p[0] < end]
    brought.lacks.sort()


def _patched(snapshot: Snapshot, queue: MappedFileQueue, brought: Brought) -> PatchedQueue:
    """The files as they are, those that get bytes at full length, new ones where there was none."""
    size = snapshot.log_file_bytes
    touched = {position // size * size for position, _ in brought.pieces}
    files, present = [], {}
    for entry in snapshot.log:
        start = int(entry.name)
        files.append(MappedFile(entry.path, start, size if start in touched else entry.size))
        present[entry.path] = min(entry.size, size)
        touched.discard(start)
    directory = Path(snapshot.layout.commit_log_directories[0])
    files += [MappedFile(str(directory / file_name(start)), start, size) for start in touched]
    files.sort(key=lambda file: file.start)
    return PatchedQueue(queue, files, present, brought.pieces)


@dataclass
class QueueChain:
    """Whether the queue offsets rise from what is this log's own into what was brought, and back.

    broken: parts where they do not.
    """

    parts: list[Part]
    broken: set[Part] = field(default_factory=set)
    #: Highest queue offset of each queue so far, and the position of that message.
    _last: dict[QueueId, tuple[int, int]] = field(default_factory=dict)

    def messages(self, messages: Messages) -> None:
        """Messages of one queue in log order."""
        if not len(messages.offset):
            return
        last, place = self._last.get(messages.queue, (-1, -1))
        offsets = np.concatenate([np.array([last], np.int64), messages.offset])
        places = np.concatenate([np.array([place], np.int64), messages.position])
        highest = np.maximum.accumulate(offsets)
        at = int(offsets.argmax())
        self._last[messages.queue] = int(offsets[at]), int(places[at])
        for row in np.flatnonzero(offsets[1:] <= highest[:-1]).tolist():
            before = int(np.flatnonzero(offsets[: row + 1] == highest[row])[0])
            sides = self._part_of(int(places[row + 1])), self._part_of(int(places[before]))
            if sides[0] != sides[1]:
                self.broken |= {part for part in sides if part is not None}

    def _part_of(self, position: int) -> Part | None:
        at = int(np.searchsorted([part.position for part in self.parts], position, side="right"))
        part = self.parts[at - 1] if at else None
        return part if part and position < part.position + part.size else None

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        """Nothing to note of records."""

    def extent(self, extent: Extent) -> None:
        """Nothing to note of what is no record."""

    def stale(self, batch: Batch) -> None:
        """Nothing to note of dead records."""
