"""Writers of stores, cut off at every step: the target is as it was, or whole the next time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mqstore.pipeline.publishing import publish_job
from mqstore.pipeline.sources import owner, spool
from mqstore.pipeline.sources.queue_writer import QueueUnitsWriter
from mqstore.pipeline.stage import Stage, one_job
from mqstore.store.errors import InUse, Refused
from mqstore.store.write.files import Files

from ..store.write.faults import CountingFiles, Killed, KilledFiles
from .test_rebuild import tree

UNITS = 40
QUEUES = 2
OPTIONS = {"broker_config": '{"mappedFileSizeConsumeQueue": "400"}'}


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The only task; `attempt` says which attempt at it."""
    task = SimpleNamespace(attempt=0, partitionId=lambda: 0)
    task.taskAttemptId = lambda: task.attempt
    monkeypatch.setattr(spool, "TaskContext", SimpleNamespace(get=lambda: task))
    return task


def units() -> pa.RecordBatch:
    queue = np.repeat(np.arange(QUEUES), UNITS)
    offset = np.tile(np.arange(UNITS), QUEUES)
    columns = {
        "topic": ["T"] * len(queue),
        "queue_id": queue,
        "queue_offset": offset,
        "physical_offset": offset * 100,
        "size": np.full(len(queue), 100),
        "tags_code": offset,
    }
    return pa.RecordBatch.from_pydict({k: pa.array(v) for k, v in columns.items()})


def writer(target: Path, files: Files, monkeypatch: pytest.MonkeyPatch) -> QueueUnitsWriter:
    """As Spark makes one when it plans a write."""
    monkeypatch.setattr(spool.SpoolWriter, "files", files)
    return QueueUnitsWriter({"path": str(target), **OPTIONS}, units().schema.names, False)


def whole_write(target: Path, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    made = writer(target, files, monkeypatch)
    made.commit([made.write(iter([units()]))])


def visible(target: Path) -> dict[str, bytes]:
    """What a user of the target sees, by path."""
    paths = [path for path in target.rglob("*") if path.is_file()]
    names = {path.relative_to(target) for path in paths}
    return {str(n): (target / n).read_bytes() for n in names if n.parts[0] != ".mqstore"}


def test_killed_at_every_step_and_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = CountingFiles()
    whole_write(tmp_path / "whole", counted, monkeypatch)
    wanted = visible(tmp_path / "whole")
    assert len(wanted) == UNITS * QUEUES // 20 and not (tmp_path / "whole/.mqstore").exists()
    published = counted.steps.index(("rename", "consumequeue"))
    finished = 0
    for at in range(len(counted.steps)):
        target = tmp_path / str(at)
        with pytest.raises(Killed):
            whole_write(target, KilledFiles(at), monkeypatch)
        if at <= published:
            assert not visible(target), f"something was visible after step {at}"
        with monkeypatch.context() as later:
            later.setattr(owner, "is_gone", lambda _: True)
            try:
                whole_write(target, Files(), later)
            except Refused as refused:
                finished += "finished now" in str(refused)
        assert visible(target) == wanted, f"killed at step {at}: {counted.steps[at]}"
        assert not (target / ".mqstore").exists(), f"killed at step {at}"
    assert finished, "some write was cut off while it published"


def test_the_last_attempt_counts(
    task: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt at a task fails half way, the second one is through."""
    made = writer(tmp_path / "new", Files(), monkeypatch)

    def failing() -> Any:
        yield units().slice(0, 3)
        raise RuntimeError("the first attempt")

    with pytest.raises(RuntimeError):
        made.write(failing())
    task.attempt = 1
    made.commit([made.write(iter([units()]))])
    whole_write(tmp_path / "whole", Files(), monkeypatch)
    assert tree(tmp_path / "new") == tree(tmp_path / "whole")


@pytest.mark.parametrize("existed", [False, True])
def test_a_task_that_fails_leaves_the_target_as_it_was(
    existed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "new"
    if existed:
        target.mkdir()
    made = writer(target, Files(), monkeypatch)
    made.write(iter([units()]))
    made.abort([])
    assert target.exists() is existed
    assert not existed or not list(target.iterdir())


def test_what_dies_while_it_publishes_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark lives on and tells the writer to abort: no half of the files may stay."""
    counted = CountingFiles()
    whole_write(tmp_path / "whole", counted, monkeypatch)
    renamed = counted.steps.index(("rename", "consumequeue")) + 1
    made = writer(tmp_path / "new", KilledFiles(renamed), monkeypatch)
    with pytest.raises(Killed):
        made.commit([made.write(iter([units()]))])
    monkeypatch.setattr(spool.SpoolWriter, "files", Files())
    made.abort([])
    assert tree(tmp_path / "new") == tree(tmp_path / "whole")


def test_what_another_session_writes_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = writer(tmp_path / "new", Files(), monkeypatch)
    with pytest.raises(InUse, match="another job writes here"):
        writer(tmp_path / "new", Files(), monkeypatch)
    made.commit([made.write(iter([units()]))])
    assert visible(tmp_path / "new")


def test_a_job_leaves_alone_what_a_session_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command of `pipeline` and a writer of a notebook meet in one directory."""

    def job(stage: Stage) -> None:
        stage.seal({})

    new = tmp_path / "new"
    made = writer(new, Files(), monkeypatch)
    with pytest.raises(InUse, match="another job writes here"):
        publish_job(new, job, lambda _: True)
    made.commit([made.write(iter([units()]))])
    whole_write(tmp_path / "whole", Files(), monkeypatch)
    assert tree(new) == tree(tmp_path / "whole")

    def other_job(stage: Stage) -> None:
        with pytest.raises(InUse):
            writer(tmp_path / "other", Files(), monkeypatch)
        stage.seal({"done": True})

    assert publish_job(tmp_path / "other", other_job, lambda _: False) == {"done": True}


def test_a_stage_is_begun_while_no_job_works_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even one that looked for stages a moment before."""
    begin, new = Stage.begin, tmp_path / "new"

    def meeting(*asked: Any) -> Stage:
        with pytest.raises(InUse), one_job(new, Files()):
            pass
        return begin(*asked)

    with monkeypatch.context() as patched:
        patched.setattr(Stage, "begin", meeting)
        made = writer(new, Files(), monkeypatch)
    made.commit([made.write(iter([units()]))])
    assert visible(new)


def test_who_is_gone() -> None:
    here = owner.this_session()
    assert not owner.is_gone(here)
    assert owner.is_gone(here | {"started": "1"}), "another process has its number now"
    assert owner.is_gone(here | {"process": 1 << 30})
    assert not owner.is_gone(here | {"machine": "elsewhere", "process": 1 << 30})
