"""The tasks of `pipeline rebuild`, where they run: they read parts of a log, and make files. No Spark.

    read   a small store: all of its log, and make its files; a large one: a part, or, if it has queues
           whose units have no fixed place, one part after the other
    make   some files of queues of a large store, or one of the index

A task writes to a folder of its own: it may be tried more than once.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zlib import crc32

from ..store.disk.files import Files
from ..store.log.commit_log import Split
from ..store.output.stage import Stage, Unflushed
from .index_files import make_index_file, slices_of
from .log_part import AnyPart, FileKey, LogPart, SavedPart, keys_of
from .log_units import FoundInPart, LogReader
from .plan import StorePlan
from .queue_files import AttemptFolder, QueueFile, make_queue_file

if TYPE_CHECKING:
    from .tasks import Task


def part_folder(stage: Stage, number: int, part: int) -> Path:
    """Return where a part of the log of store `number` is kept, once its task has succeeded."""
    return stage.folder / "parts" / str(number) / str(part)


def read(task: Task) -> dict[str, Any]:
    """Read splits of a log. Raises Unreadable, NoSpace.

    task: `stage`; `store`, and its `number`; `splits`; `whole`: the splits are all of the log, whose files are made at
    once. Otherwise part k is kept in `part-k` of the attempt.
    """
    place = _place(task)
    reader = LogReader(place.store, place.folder, place.files)
    parts: list[LogPart] = []
    tallies: list[FoundInPart] = []
    for number, split in enumerate(task["splits"]):
        part, found = reader.read(Split(*split))
        tallies.append(found)
        if task["whole"]:
            parts.append(part)
        else:
            part.save(place.files, place.folder / f"part-{number}")
    others = [path.relative_to(place.folder).as_posix() for path in reader.close()]
    queues = [
        QueueFile(place.attempt, "", place.number, queue.topic, queue.queue_id, 0, queue.first, queue.end, queue.units)
        for queue in reader.batch_queues.values()
    ]
    files = [make_queue_file(place, key, parts) for key in keys_of(parts)]
    counts, per_file = [len(part.items) for part in parts], place.store.index_items - 1
    index = [
        make_index_file(place, file, slices, parts)
        for file, slices in enumerate(slices_of(counts, per_file) if sum(counts) else ())
    ]
    return {
        "attempt": place.attempt,
        "whole": task["whole"],
        "found": [asdict(found) for found in tallies],
        "others": others,
        "files": [asdict(file) for file in (*queues, *files)],
        "index": [asdict(file) for file in index],
    }


def make(task: Task) -> dict[str, Any]:
    """Make files of kept parts. Raises Unreadable, NoSpace.

    task: `stage`; `store`, and its `number`; `parts`: number of parts; then `bucket` of `buckets`, or `file` of the
    index and `slices`, the items in it.
    """
    place = _place(task)
    stage = Stage(Path(task["stage"]), place.files)
    folders = [part_folder(stage, place.number, part) for part in range(task["parts"])]
    files: list[QueueFile] = []
    index = []
    if "bucket" in task:
        parts: list[AnyPart] = [_some(SavedPart.open(folder), task["bucket"], task["buckets"]) for folder in folders]
        files = [make_queue_file(place, key, parts) for key in keys_of(parts)]
    else:
        unopened = [SavedPart(folder, {}) for folder in folders]
        index = [make_index_file(place, task["file"], task["slices"], unopened)]
    return {
        "attempt": place.attempt,
        "files": [asdict(file) for file in files],
        "index": [asdict(file) for file in index],
    }


def _some(part: SavedPart, bucket: int, buckets: int) -> SavedPart:
    mine = {key: ends for key, ends in part.places.items() if _bucket_of(key, buckets) == bucket}
    return SavedPart(part.folder, mine)


def _bucket_of(key: FileKey, buckets: int) -> int:
    return crc32(repr(key).encode("utf-8", "surrogatepass")) % buckets


def _place(task: Task) -> AttemptFolder:
    """Return a new folder for the files of this attempt."""
    files = Files() if task.get("whole") else Unflushed()
    stage, attempt = Stage(Path(task["stage"]), files), uuid4().hex
    folder = stage.attempt(attempt)
    return AttemptFolder(StorePlan.of(task["store"]), task["number"], folder, attempt, stage.files)
