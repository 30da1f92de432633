"""Make a tree of what the tasks of `pipeline rebuild` have written. No Spark.

Collect the files, add checkpoint and timer wheel, of which a store has one each, and seal the stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from ..store.broker.profiles import profile_of
from ..store.broker.snapshot import Snapshot
from ..store.disk.checkpoint import Checkpoint, read_checkpoint
from ..store.disk.files import Edit
from ..store.log.batch import NO_FILE
from ..store.output.stage import Stage
from ..store.plan.plan import checkpoint_edit, new_checkpoint
from ..store.timer.start import is_timer_file, new_wheel
from .index_files import IndexPart, index_times, named
from .plan import JobPlan, StorePlan
from .queue_files import AttemptFolder, QueueFile, close_gaps


@dataclass
class RebuiltFiles:
    """What the tasks of a job have made. found: `log_units.FoundInPart` of each part of each log, with `store`. others:
    files that `queues` does not name, by attempt. whole: attempts that made all queues of a store → number of the
    store."""

    queues: list[QueueFile] = field(default_factory=list)
    index: list[IndexPart] = field(default_factory=list)
    found: list[dict[str, Any]] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)
    whole: dict[str, int] = field(default_factory=dict)

    def add(self, store: int, answer: Mapping[str, Any]) -> None:
        self.queues += [QueueFile(**file) for file in answer["files"]]
        self.index += [IndexPart(**file) for file in answer["index"]]
        self.found += [{"store": store, **found} for found in answer.get("found", ())]
        self.others += [(answer["attempt"], path) for path in answer.get("others", ())]
        if answer.get("whole"):
            self.whole[answer["attempt"]] = store


def complete(stage: Stage, plan: JobPlan, made: RebuiltFiles) -> None:
    """Collect the files, add what a store has one of, and seal the stage: the job has succeeded.

    Raises NoSpace, Unreadable.
    """
    queues = _queues(stage, plan, made)
    index = named(made.index, plan)
    stage.collect((part.attempt, part.path, path) for part, path in index)
    times = index_times(made.index)
    singles: list[list[str]] = []
    for number, store in enumerate(plan.stores):
        tallies = [found for found in made.found if found["store"] == number]
        folder = store.output(stage.tree).root
        stage.files.make_directory(folder)  # also where there is nothing to make
        edits = [*_checkpoint(store, folder, tallies, times.get(number, 0)), *_wheel(store, folder)]
        for edit in edits:
            _make(stage, edit)
        singles.append([Path(edit.path).name for edit in edits])
    stage.seal(
        {
            "plan": asdict(plan),
            "queues": queues,
            "damage": _damage(plan, made.found),
            "index": [{"store": part.store, "path": path, "items": part.items} for part, path in index],
            "singles": singles,
        }
    )


def _queues(stage: Stage, plan: JobPlan, made: RebuiltFiles) -> list[dict[str, Any]]:
    """Complete the files of queues and collect them; return what the manifest says of each queue."""

    def place(file: QueueFile) -> AttemptFolder:
        folder = stage.attempt(file.attempt)
        return AttemptFolder(plan.stores[file.store], file.store, folder, file.attempt, stage.files)

    files, others = close_gaps(made.queues, place), sorted(made.others)
    written = [*((file.attempt, file.path) for file in files if file.path), *others]
    stage.collect(one for one in written if one[0] not in made.whole)
    for attempt, number in made.whole.items():
        output = plan.stores[number].output(stage.attempt(attempt))
        folders = (output.consume_queue, output.batch_consume_queue, output.consume_queue_ext)
        paths = [path.relative_to(stage.attempt(attempt)) for path in folders if path.exists()]
        stage.collect((attempt, path.as_posix()) for path in paths)
    return [summary(list(group), others) for _, group in groupby(files, attrgetter("queue"))]


def _damage(plan: JobPlan, found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the ranges of the logs that are in no queue, and what no file holds behind their ends."""
    damage = [{"store": one["store"], **row} for one in found for row in one["damage"]]
    damage += [
        {"store": number, "position": position, "size": size, "reason": NO_FILE}
        for number, store in enumerate(plan.stores)
        for position, size in store.missing
    ]
    return sorted(damage, key=itemgetter("store", "position"))


def summary(files: Sequence[QueueFile], others: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return what the manifest says of a queue, by its files in order; those of a batch queue are `others`."""
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
        "without_unit": sum(file.without_unit for file in files),
    }


def _checkpoint(
    store: StorePlan, folder: Path, tallies: Sequence[Mapping[str, Any]], index_time: int
) -> Iterable[Edit]:
    """Yield the checkpoint of a complete store, as `repair` writes it (spec 7.11); none without a record."""
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
    """Yield the timer wheel, made from the timer log, which cannot be made from messages (spec 04, 4.6)."""
    layout = store.layout
    if layout.dledger is not None:
        return
    snapshot = Snapshot.listed(layout)  # a compressed log serves as well
    files = [one for one in snapshot.timer_log if is_timer_file(one, snapshot.timer_file_bytes)]
    if files:
        edit = new_wheel(snapshot, files)
        yield Edit(
            "create",
            str(folder / layout.timer_wheel.name),
            edit.reason,
            edit.codes,
            length=edit.length,
            pieces=edit.pieces,
        )


def _make(stage: Stage, edit: Edit) -> None:
    path = Path(edit.path)
    stage.files.make_directory(path.parent)
    with stage.files.create(path) as file:
        file.truncate(edit.length)
        for offset, data in edit.pieces:
            file.pwrite(data, offset)
        file.sync()
    stage.files.sync_directory(path.parent)
