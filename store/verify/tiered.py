"""Segments of the tiered store against `tieredStoreMetadata.json` and the local log (I-153, I-157, I-158).

A segment lies at `HASH_CLUSTER/PATH/KIND/` below tieredStoreFilePath with the POSIX provider (spec 05, 5.3).
With any other one the segments are in an object storage: what is not on this machine is not looked at.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from glob import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.consume_queue import UNIT_BYTES
from ..broker.snapshot import QueueId
from ..counted import counted
from ..disk.file_queue import start_of
from ..findings.catalogue import Severity
from ..tiered.segments import MEMBERS, open_segments, tiered_roots
from .config_files import Told, config_tables
from .context import VerifyContext
from .register import after, before

_NEW, _SEALED, _DELETED = 0, 1, 2
_QUEUE, _LOG = "CONSUME_QUEUE", "COMMIT_LOG"


class FlatFile(NamedTuple):
    """What the metadata says of one tiered file, and what is there of it.

    source: the metadata file. path: BROKER/TOPIC/QUEUE. segments: rows by position, those marked
    deleted apart. there: bytes of the segment files by position, None where no directory is on this machine.
    """

    source: str
    path: str
    kind: str
    directory: Path
    segments: list[dict[str, Any]]
    deleted: frozenset[int]
    there: dict[int, int] | None

    @property
    def queue(self) -> QueueId | None:
        """The queue of a log or of units; None where the path names none."""
        _, _, rest = self.path.partition("/")
        topic, _, number = rest.rpartition("/")
        return QueueId(topic, int(number)) if topic and start_of(number) is not None else None


def flat_files(context: VerifyContext) -> list[FlatFile]:
    """Those of the metadata, read once for a run. Raises Unreadable."""
    return context.kept("tiered files", lambda: list(_flat_files(context)))


def _flat_files(context: VerifyContext) -> Iterator[FlatFile]:
    rows: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in config_tables(context).entries("tiered_segment"):
        kind = MEMBERS.get(str(row.values.get("table")))
        if kind is not None:
            rows[row.path, row.values["path"], kind].append(row.values)
    roots = tiered_roots(context.store.layout.root, context.store.config)
    for (source, path, kind), found in rows.items():
        place = f"*_*/{escape(path)}/{kind}"
        directories = sorted(one for root in roots for one in root.glob(place) if one.is_dir())
        there = None
        for directory in directories:
            with open_segments(directory) as files:
                there = (there or {}) | {file.start: file.size for file in files.files}
        found.sort(key=lambda segment: int(segment["base_offset"]))
        used = [segment for segment in found if segment.get("status") != _DELETED]
        deleted = {s["base_offset"] for s in found if s.get("status") == _DELETED}
        directory = directories[0] if directories else Path(path) / kind
        yield FlatFile(source, path, kind, directory, used, frozenset(deleted), there)


@before("I-153")
def tiered_segments_are_contiguous(context: VerifyContext) -> None:
    """Segments of one tiered file follow one another, and none is sealed behind an open one.

    5.1 seals a segment when the next one begins, the classes of 5.3 to 5.5 seal none.
    """
    told = Told(context, "I-153")
    for file in flat_files(context):
        for one, later in pairwise(file.segments):
            end, begin = one["base_offset"] + one.get("size", 0), later["base_offset"]
            if end != begin:
                text = f"{file.path}: a segment ends at {end}, the next begins at {begin}"
                told.add(file.source, text)
            elif (one.get("status"), later.get("status")) == (_NEW, _SEALED):
                text = f"{file.path}: the segment at {one['base_offset']} is open, the next sealed"
                told.add(file.source, text)
    told.tell()


@before("I-157")
def tiered_segments_are_there(context: VerifyContext) -> None:
    """Each segment of the metadata has a file that holds its bytes, and each file a row."""
    files = flat_files(context)
    away = sum(len(file.segments) for file in files if file.there is None)
    local = any(file.there is not None for file in files)
    if context.live and local:
        context.unread.append("tiered segments: a broker adds to them")
        return
    if not local:
        if away:
            text = f"{counted(away, 'tiered segment')}: not on this machine"
            context.unread.append(f"{text} (--set tieredStoreFilePath=DIR)")
        return
    told = Told(context, "I-157")
    for file in files:
        for text in _odd_segments(file):
            told.add(os.fspath(file.directory), f"{file.path}: {text}")
    told.tell()


def _odd_segments(file: FlatFile) -> Iterator[str]:
    """What is wrong with the segments of one file, those of a last one that is still open apart."""
    there = file.there or {}
    for number, segment in enumerate(file.segments):
        base, size = segment["base_offset"], segment.get("size", 0)
        grows = number == len(file.segments) - 1 and segment.get("status") != _SEALED
        found = there.get(base)
        if found is None and size:
            yield f"the segment at {base}, {counted(size, 'byte')}, is not there"
        elif found is not None and (found < size or (found > size and not grows)):
            yield f"the segment at {base} has {counted(found, 'byte')}, the metadata says {size}"
    known = {segment["base_offset"] for segment in file.segments} | file.deleted
    for base in sorted(there.keys() - known):
        yield f"the segment at {base} is not in the metadata: a broker does not see it"


@after("I-158")
def nothing_is_between_tier_and_log(context: VerifyContext) -> None:
    """The tiered queue reaches to where the queue begins in the local log."""
    if not context.log.complete:
        return
    told = Told(context, "I-158")
    for file in flat_files(context):
        queue = file.queue
        if file.kind != _QUEUE or queue is None or not file.segments:
            continue
        scope = context.scope
        if scope.topic not in (None, queue.topic) or scope.queue_id not in (None, queue.queue_id):
            continue
        first, last = context.log.first_offset.get(queue), file.segments[-1]
        found = (file.there or {}).get(last["base_offset"])
        end = (last["base_offset"] + max(last.get("size", 0), found or 0)) // UNIT_BYTES
        if first is None or end >= first:
            continue
        text = (
            f"{queue.topic}/{queue.queue_id}: the tier ends at queue offset {end}, the log begins at "
            f"{first}: {counted(first - end, 'message')} in neither"
        )
        # what the metadata says of a segment is older than the segment while it is written
        told.add(file.source, text, Severity.WARNING if found is None else None)
    told.tell()
