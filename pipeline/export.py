"""`export`: the messages of many stores as files, in this process or by tasks of Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, astuple, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ..store.arrow.data_set import NOTE_FILE, DataSet, LogRange, Mode, Note, ranges_of, require_like
from ..store.arrow.export_files import ExportHow, export_parts, schema_of, write_empty
from ..store.arrow.export_formats import ExportFormat, holds_note
from ..store.arrow.log_rows import LogSplit, parts_of
from ..store.arrow.stores import ReadOptions, place_of
from ..store.disk.files import Files, write_new
from ..store.log.commit_log import split_bytes_for
from ..store.output.stage import DRAFT, REPLACES, Into, Stage, publish_job
from ..store.put.on_damage import OnDamage
from ..store.search.log_search import TimeBounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .tasks import Task

Asked = Mapping[str, str]
"""Options of a read of `rocketmq-log`."""
Written = Mapping[str, Any]
"""What one writer has done: its `attempt`, `files`, `damage`, numbers of bodies `skipped` and `marked`."""
Job = Callable[[Asked, ExportHow, Stage, Sequence[LogSplit]], Sequence[Written]]
"""Writes the messages of some parts of logs as files into a stage."""


def export(
    stores: Sequence[str],
    options: Asked,
    how: ExportHow,
    target: Path,
    job: Job,
    files: Files | None = None,
    mode: Mode = Mode.NEW,
) -> dict[str, Any]:
    """Write messages as files below `target`; return the manifest.

    options: those of a read except for the stores. mode: what happens to an existing export. The files appear as in
    `publish_job`, which also raises its errors. Raises Unsupported and InvalidInput for files that cannot be written.
    """
    how.kind.require()
    asked = {"paths": json.dumps(list(stores)), **options}
    ask = ReadOptions.of(asked)
    wanted = schema_of(ask, how)  # raises for an unknown column before anything is written
    what = {"asked": dict(asked), "how": asdict(how), "mode": mode.value}
    adds, overwrites = mode is not Mode.NEW, mode is Mode.OVERWRITE
    target = Path(os.path.realpath(target)) if adds else target

    def fill(stage: Stage) -> None:
        found = DataSet.at(stage.target, note=not overwrites)
        if not overwrites:
            require_like(found, Note.of(how, wanted, {}), stage.target)
        kept = found.note.ended if found.note else {}
        ranges = dict(ranges_of(ask, kept, append=mode is Mode.APPEND))
        ended = {**kept, **{place_of(root): one.ended for root, one in ranges.items()}}
        note = Note.of(how, wanted, ended).to_text()
        beside = bool(found.files) and not overwrites
        made = replace(how, series=found.newest + 1 if beside else 0, note=note)
        bounds: dict[str, TimeBounds] = {}
        within = {root: one.split for root, one in ranges.items() if one.split}
        parts = parts_of(ask, within, bounds.__setitem__)
        done = list(job(asked, made, stage, parts))
        telling = not beside or any(one.moved for one in ranges.values())
        if telling and not any(one["files"] for one in done):
            empty = write_empty(ask, made, stage.attempt(_EMPTY), stage.files)
            done.append({**_NOTHING, "attempt": _EMPTY, "files": [asdict(file) for file in empty]})
        _collect(stage, done, made)
        damage = [asdict(lost) for one in ranges.values() for lost in one.lost]
        damage += (lost for one in done for lost in one["damage"])
        stage.seal(
            {
                "job": what,
                REPLACES: bool(found.files) and overwrites,
                "files": sorted((file for one in done for file in one["files"]), key=itemgetter("path")),
                "damage": sorted(damage, key=itemgetter("store", "position")),
                "skipped": sum(one["skipped"] for one in done),
                "marked": sum(one["marked"] for one in done),
                "ranges": [_range(root, one, bounds.get(root)) for root, one in ranges.items()],
            }
        )

    into = Into(adds, _HINT)
    if mode is Mode.APPEND:
        into = into._replace(again=_may_be_again)
    return publish_job(target, fill, lambda found: found.get("job") == what, files, into=into)


def _may_be_again(finished: Mapping[str, Any]) -> str:
    """Return a hint if what was finished is an append, too: the same command means other times (`--since -1d`), or
    other stores of a pattern, when it is run again.
    """
    job = finished.get("job")
    return _AGAIN if isinstance(job, dict) and job.get("mode") == Mode.APPEND.value else ""


def _collect(stage: Stage, done: Sequence[Written], how: ExportHow) -> None:
    """Move all files that were written into the tree; write the note if the files have no room for it."""
    written = [(one["attempt"], file["path"]) for one in done for file in one["files"]]
    stage.collect((attempt, f"{path}{DRAFT}") for attempt, path in written)
    if not holds_note(how.kind.form):
        write_new(stage.files, stage.tree / f"{NOTE_FILE}{DRAFT}", how.note.encode())


def _range(root: str, one: LogRange, bounds: TimeBounds | None) -> dict[str, Any]:
    begin, end = one.split or (None, None)
    files, left_out, steps_back, doubtful = bounds[2:] if bounds is not None else (None, 0, False, False)
    found = {"store": root, "begin": begin, "end": end, "log_files": files, "left_out": left_out}
    return found | {"steps_back": steps_back, "doubtful": doubtful}


_HINT = "--to takes a new directory; --append adds to an export, --overwrite replaces it"
_AGAIN = "if this is the same command, its messages are here; run it again only to add messages once more"
_EMPTY = "empty"
_NOTHING: Written = {"files": [], "damage": [], "skipped": 0, "marked": 0}


def here(note: Callable[[int], None]) -> Job:
    """Return the job in this process. note: called with the number of log bytes read. Raises as `parts_of`."""

    def job(asked: Asked, how: ExportHow, stage: Stage, parts: Sequence[LogSplit]) -> list[Written]:
        return [_written(ReadOptions.of(asked), parts, how, stage, 0, note)]

    return job


def _written(
    ask: ReadOptions,
    parts: Sequence[LogSplit],
    how: ExportHow,
    stage: Stage,
    number: int,
    note: Callable[[int], None] = lambda size: None,
) -> Written:
    """Run one writer: a task that is tried again writes elsewhere."""
    attempt = f"{number}-{uuid4().hex}"
    folder = stage.attempt(attempt)
    done = export_parts(ask, parts, how, folder, f"{number:05}", stage.files, note)
    return {
        "attempt": attempt,
        "files": [asdict(file) for file in done.files],
        "damage": [asdict(lost) for lost in done.damage],
        "skipped": done.corrupted.skipped,
        "marked": done.corrupted.marked,
    }


STAGES = 1
"""Spark runs one stage: a task reads and writes."""


def on_spark(session: Callable[[], AbstractContextManager[SparkSession]]) -> Job:
    """Return the job as tasks of a session, which is opened for it. Raises what a task met, or JobFailed."""

    def job(asked: Asked, how: ExportHow, stage: Stage, parts: Sequence[LogSplit]) -> list[Written]:
        from .tasks import run_tasks, whole

        with session() as spark:
            answers = run_tasks(spark, "export:write", tasks_of(asked, how, stage, parts))
        return whole(answers)

    return job


def tasks_of(asked: Asked, how: ExportHow, stage: Stage, parts: Sequence[LogSplit]) -> list[Task]:
    """Return a task for each large part of a log, and for groups of small parts that are as large together."""
    most = split_bytes_for(sum(part.bytes for part in parts), os.cpu_count() or 1)
    groups: list[list[LogSplit]] = []
    filled = 0
    for part in parts:
        if not groups or filled + part.bytes > most:
            groups.append([])
            filled = 0
        groups[-1].append(part)
        filled += part.bytes
    return [
        {
            "root": group[0].store,
            "number": number,
            "asked": {**asked, "paths": json.dumps([group[0].store])},
            "how": asdict(how),
            "parts": [astuple(part) for part in group],
            "stage": str(stage.folder),
        }
        for number, group in enumerate(groups)
    ]


def write(task: Task) -> Written:
    """Run one task, on a worker. Raises StoreError."""
    how = dict(task["how"])
    made = ExportHow(**how | {"kind": ExportFormat(**how["kind"]), "on_damage": OnDamage(how["on_damage"])})
    parts = [LogSplit.of(part) for part in task["parts"]]
    stage = Stage(Path(task["stage"]), Files())
    return _written(ReadOptions.of(task["asked"]), parts, made, stage, task["number"])
