"""What the kinds with a directory `TOPIC/QUEUE_ID/` per queue share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...store.disk.file_queue import MappedFileQueue
from ...store.disk.layout import queue_directories
from ...store.inspect.recognise import QUEUES, Recognised
from ...store.queues.read import QueueSummary
from ...store.tiered.segments import SEGMENTS, open_segments
from .one_file import files_at


def ends(found: Sequence[QueueSummary]) -> dict[str, Any]:
    """The ends of one queue, or the sums of several."""
    if len(found) == 1:
        (one,) = found
        unit = {} if one.end_position is None else {"highest_position": one.end_position}
        return {
            "topic": one.topic or None,
            "queue_id": one.queue_id if one.topic else None,
            "min_offset": one.min_offset,
            "max_offset": one.max_offset,
            **unit,
        }
    return sums(found)


def sums(found: Sequence[QueueSummary]) -> dict[str, Any]:
    return {
        "topics": len({queue.topic for queue in found}),
        "queues": len(found),
        "messages": sum(queue.max_offset - queue.min_offset for queue in found),
        "highest_position": max((q.end_position for q in found if q.end_position), default=0),
    }


def queue_files(what: Recognised) -> Iterator[tuple[str | None, int | None, MappedFileQueue]]:
    """The queues at or below a path; topic and queue id are None if the path does not name them."""
    if what.kind in SEGMENTS.values():
        yield *(what.queue or (None, None)), open_segments(what.path)
        return
    for topic, queue_id, path in _queues(what):
        yield topic, queue_id, files_at(path)


def beside(what: Recognised, name: str, topic: str | None, queue_id: int | None) -> Path | None:
    """The directory of the same queue in the directory `name` of the store.

    None if the path does not name the queue, or if there is no such directory.
    """
    if topic is None or queue_id is None:
        return None
    path = what.path.absolute()
    above = next((p for p in (path, *path.parents) if QUEUES.get(p.name) == what.kind), None)
    found = above.parent / name / topic / str(queue_id) if above is not None else None
    return found if found is not None and found.is_dir() else None


def _queues(what: Recognised) -> Iterator[tuple[str | None, int | None, Path]]:
    """The queues at or below a path, with their directories; for a file, its queue and the file."""
    if what.queue is not None or what.path.is_file():
        topic, queue_id = what.queue or (None, None)
        yield topic, queue_id, what.path
        return
    if what.path.absolute().name in QUEUES:
        for found in queue_directories(what.path):
            yield found.topic, found.queue_id, Path(found.path)
        return
    numbers = [child for child in what.path.iterdir() if child.is_dir() and child.name.isdecimal()]
    for path in sorted(numbers, key=lambda child: int(child.name)):
        topic, queue_id = Recognised(path, what.kind, "").queue or (what.path.name, int(path.name))
        yield topic, queue_id, path
    if not numbers:
        yield None, None, what.path
