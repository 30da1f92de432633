"""How the steps of `pipeline rebuild` end, and what it makes of them. No Spark.

Each step leaves files in the stage and a note of what it found; the last one adds what a store has
only one of, the checkpoint and the timer wheel, and decides that the job has succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from ..store.batch import NO_FILE
from ..store.checkpoint import Checkpoint, read_checkpoint
from ..store.recovery.checkpoint_edit import checkpoint_edit, new_checkpoint
from ..store.recovery.edits import Edit
from ..store.recovery.profiles import profile_of
from ..store.recovery.snapshot import Snapshot, list_entries
from ..store.recovery.timer_edits import new_wheel
from .index_files import IndexPart, index_times, named
from .plan import Plan, StorePlan
from .queue_files import QueueFile, fill_up
from .stage import Stage

QUEUES = "queues"
INDEX = "index"


def finish_queues(
    stage: Stage,
    plan: Plan,
    files: Iterable[QueueFile],
    others: Iterable[tuple[str, str]],
    damage: Sequence[dict[str, Any]],
    tallies: Sequence[dict[str, Any]],
) -> None:
    """Complete the files of queues and collect them. others: further ones, as `Stage.collect`.

    A queue goes on behind a file that lacks its last units: they get the pre-fill too, since a
    broker takes an empty unit for the end of the queue.
    """
    behind = [
        {"store": number, "position": position, "size": size, "reason": NO_FILE}
        for number, store in enumerate(plan.stores)
        for position, size in store.missing
    ]
    files = sorted(files, key=attrgetter("queue", "start"))
    for before, after in pairwise(files):
        if before.path and before.queue == after.queue and before.end < after.first:
            after.missing += after.first - before.end
            file_bytes = plan.stores[before.store].file_bytes
            fill_up(stage.files, stage.attempt(before.attempt), before, file_bytes)
    others = sorted(others)
    stage.collect((file.attempt, file.path) for file in files if file.path)
    stage.collect(others)
    queues = [summary(list(group), others) for _, group in groupby(files, attrgetter("queue"))]
    stage.leave(
        QUEUES,
        {
            "queues": queues,
            "damage": sorted([*damage, *behind], key=itemgetter("store", "position")),
            "tallies": sorted(tallies, key=itemgetter("store", "start")),
        },
    )


def finish_index(stage: Stage, plan: Plan, parts: Iterable[IndexPart]) -> None:
    """Name the index files and collect them."""
    files = named(parts, plan)
    stage.collect((part.attempt, part.path, path) for part, path in files)
    stage.leave(INDEX, {"files": [{**asdict(part), "path": path} for part, path in files]})


def complete(stage: Stage, plan: Plan) -> None:
    """Add what there is one of in a store, and decide that the job has succeeded.

    Raises NoSpace, Unreadable.
    """
    found, index = stage.left(QUEUES), stage.left(INDEX)["files"]
    times = index_times(index)
    singles: dict[int, list[str]] = {}
    for number, store in enumerate(plan.stores):
        tallies = [tally for tally in found["tallies"] if tally["store"] == number]
        folder = store.output(stage.tree).root
        edits = [*_checkpoint(store, folder, tallies, times.get(number, 0)), *_wheel(store, folder)]
        for edit in edits:
            _make(stage, edit)
        singles[number] = [Path(edit.path).name for edit in edits]
    stage.seal(
        {
            "plan": asdict(plan),
            "queues": found["queues"],
            "damage": found["damage"],
            "index": [{name: part[name] for name in ("store", "path", "items")} for part in index],
            "singles": [singles[number] for number in range(len(plan.stores))],
        }
    )


def summary(files: Sequence[QueueFile], others: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """What the manifest says of a queue, by its files in order; those of a batch queue are `others`."""
    count = len(files)
    if not files[0].path:
        place = f"batchconsumequeue/{files[0].topic}/{files[0].queue_id}/"
        count = sum(place in path for _, path in others)
    return {
        "store": files[0].store,
        "topic": files[0].topic,
        "queue_id": files[0].queue_id,
        "min_offset": files[0].first,
        "max_offset": files[-1].end,
        "files": count,
        "units": sum(file.units for file in files),
        "missing": sum(file.missing for file in files),
        "duplicates": sum(file.duplicates for file in files),
    }


def _checkpoint(
    store: StorePlan, folder: Path, tallies: Sequence[Mapping[str, Any]], index_time: int
) -> Iterable[Edit]:
    """The checkpoint of a complete store, as `repair` writes it (spec 7.11); none without a record."""
    holding = [tally for tally in tallies if tally["last_record"] >= 0]
    if not holding:
        return
    last = holding[-1]
    checkpoint = new_checkpoint(
        read_checkpoint(store.layout.checkpoint) or Checkpoint(),
        profile_of(store.broker_version),
        last["last_record"],
        last["last_timestamp"],
        index_time,
    )
    yield checkpoint_edit(folder / store.layout.checkpoint.name, checkpoint)


def _wheel(store: StorePlan, folder: Path) -> Iterable[Edit]:
    """The timer wheel from the timer log: that one cannot be made from messages (spec 04, 4.6)."""
    layout = store.layout
    files = [entry for entry in list_entries(layout.timer_log) if not entry.directory]
    if files and layout.dledger is None:
        edit = new_wheel(Snapshot.of(layout), files)
        yield Edit(
            "create",
            str(folder / layout.timer_wheel.name),
            edit.reason,
            edit.codes,
            length=edit.length,
            pieces=edit.pieces,
        )


def _make(stage: Stage, edit: Edit) -> None:
    """Create the file of an edit."""
    path = Path(edit.path)
    stage.files.make_directory(path.parent)
    with stage.files.create(path) as file:
        file.truncate(edit.length)
        for offset, data in edit.pieces:
            file.pwrite(data, offset)
        file.sync()
    stage.files.sync_directory(path.parent)
