"""The writer of `rocketmq-log`, cut off at every step: the target is as it was, or whole the next time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from mqstore.pipeline.sources import log_writer
from mqstore.pipeline.sources.log_writer import LogSourceWriter
from mqstore.store.disk.files import Files
from mqstore.store.errors import Corrupted, InUse, InvalidInput, Refused
from mqstore.store.output.stage import Stage, publish_job

from ...store.arrow.rows import table_of
from ...store.put.faults import CountingFiles, Killed, KilledFiles

OPTIONS = {"broker_config": '{"mappedFileSizeCommitLog": "65536", "messageIndexEnable": "false"}', "keep_times": "true"}


TIMED = ("checkpoint", "topics.json")
"""Files that say when they were written."""


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The only task; `attempt` says which attempt at it, `partition` which rows."""
    task = SimpleNamespace(attempt=0, partition=0)
    task.taskAttemptId = lambda: task.attempt
    task.partitionId = lambda: task.partition
    monkeypatch.setattr(log_writer, "TaskContext", SimpleNamespace(get=lambda: task))
    return task


def messages(first: int = 0, **more: list[Any]) -> pa.RecordBatch:
    columns = {
        "topic": ["T"] * 3,
        "body": [b"%d" % number for number in range(first, first + 3)],
        "born_timestamp": [1] * 3,
        "store_timestamp": [2] * 3,
        "unique_key": ["K"] * 3,
    }
    return pa.RecordBatch.from_pydict(columns | more)


def writer(
    target: Path, monkeypatch: pytest.MonkeyPatch, files: Files | None = None, **options: str
) -> LogSourceWriter:
    """As Spark makes one when it plans a write."""
    monkeypatch.setattr(LogSourceWriter, "files", files or Files())
    given = {"path": str(target), **OPTIONS, **options}
    return LogSourceWriter(given, messages().schema.names, False)


def whole_write(target: Path, monkeypatch: pytest.MonkeyPatch, files: Files | None = None) -> None:
    made = writer(target, monkeypatch, files)
    made.commit([made.write(iter([messages()]))])


def visible(target: Path) -> dict[str, bytes]:
    """What a user of the target sees, by path."""
    paths = [path for path in target.rglob("*") if path.is_file()]
    names = {path.relative_to(target) for path in paths}
    return {str(n): b"" if n.name in TIMED else (target / n).read_bytes() for n in names if n.parts[0] != ".mqstore"}


def bodies(target: Path) -> list[bytes]:
    return [bytes(row) for row in table_of(target, body="plain").column("body").to_pylist()]


@pytest.mark.slow
def test_killed_at_every_step_and_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = CountingFiles()
    whole_write(tmp_path / "whole", monkeypatch, counted)
    wanted = visible(tmp_path / "whole")
    assert "checkpoint" in wanted and not (tmp_path / "whole/.mqstore").exists()
    published = counted.steps.index(("rename", "checkpoint"))
    finished = 0
    for at in range(len(counted.steps)):
        target = tmp_path / str(at)
        with pytest.raises(Killed):
            whole_write(target, monkeypatch, KilledFiles(at))
        if at <= published:
            assert not visible(target), f"something was visible after step {at}"
        try:
            whole_write(target, monkeypatch)
        except Refused as refused:
            finished += "finished now" in str(refused)
        assert visible(target) == wanted, f"killed at step {at}: {counted.steps[at]}"
        assert not (target / ".mqstore").exists(), f"killed at step {at}"
    assert finished, "some write was cut off while it published"


def test_partitions_and_attempts(task: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come in the order of the partitions, from the attempt that was through."""
    made = writer(tmp_path / "new", monkeypatch)

    def failing() -> Any:
        yield messages(100)
        raise RuntimeError("the first attempt")

    with pytest.raises(RuntimeError):
        made.write(failing())
    kept = []
    for task.attempt, task.partition in ((1, 2), (2, 0), (3, 1)):
        rows = [] if task.partition == 1 else [messages(10 * task.partition), messages(99)]
        kept.append(made.write(iter(rows)))
    made.commit(kept)
    wanted = [*range(3), *range(99, 102), *range(20, 23), *range(99, 102)]
    assert bodies(tmp_path / "new") == [b"%d" % number for number in wanted]


@pytest.mark.parametrize("existed", [False, True])
def test_a_task_that_fails_leaves_the_target_as_it_was(
    existed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "new"
    if existed:
        target.mkdir()
    made = writer(target, monkeypatch)
    made.write(iter([messages()]))
    made.abort([])
    assert target.exists() is existed
    assert not existed or not list(target.iterdir())


def test_what_dies_while_it_publishes_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark lives on and tells the writer to abort: no half of the files may stay."""
    counted = CountingFiles()
    whole_write(tmp_path / "whole", monkeypatch, counted)
    renamed = counted.steps.index(("rename", "checkpoint")) + 1
    made = writer(tmp_path / "new", monkeypatch, KilledFiles(renamed))
    with pytest.raises(Killed):
        made.commit([made.write(iter([messages()]))])
    monkeypatch.setattr(LogSourceWriter, "files", Files())
    made.abort([])
    assert visible(tmp_path / "new") == visible(tmp_path / "whole")
    assert not (tmp_path / "new/.mqstore").exists()


def test_the_session_that_began_last_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one fails where it goes on, and takes nothing away from it."""
    target = tmp_path / "new"
    first = writer(target, monkeypatch)
    kept = first.write(iter([messages()]))
    last = writer(target, monkeypatch)
    with pytest.raises(Refused, match="a later write to this directory has begun"):
        first.write(iter([messages()]))
    with pytest.raises(Refused, match="a later write to this directory has begun"):
        first.commit([kept])
    first.abort([])
    last.commit([last.write(iter([messages(7)]))])
    assert bodies(target) == [b"7", b"8", b"9"]
    with pytest.raises(Refused, match="not empty"):
        writer(target, monkeypatch)


def test_a_job_and_a_session_in_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No write begins while a job works; the job that comes later goes on."""
    made = writer(tmp_path / "new", monkeypatch)
    kept = made.write(iter([messages()]))

    def job(stage: Stage) -> None:
        with pytest.raises(InUse):
            writer(tmp_path / "new", monkeypatch)
        stage.seal({"done": True})

    assert publish_job(tmp_path / "new", job, lambda _: False) == {"done": True}
    with pytest.raises(Refused):
        made.commit([kept])
    assert not (tmp_path / "new/.mqstore").exists()


def test_corrupted_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = messages(body_crc_ok=[True, False, True])
    made = writer(tmp_path / "fail", monkeypatch)
    with pytest.raises(Corrupted, match="row 2: the body failed its checksum"):
        made.commit([made.write(iter([rows]))])
    made.abort([])
    assert not (tmp_path / "fail").exists()
    for on_damage, sound in (("skip", [True, True]), ("mark", [True, False, True])):
        made = writer(tmp_path / on_damage, monkeypatch, on_damage=on_damage)
        with pytest.warns(UserWarning, match="1 body failed its"):
            made.commit([made.write(iter([rows]))])
        found = table_of(tmp_path / on_damage, fields="topic,body_crc_ok")
        assert found.column("body_crc_ok").to_pylist() == sound


def test_a_message_at_which_a_broker_would_stop_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = writer(tmp_path / "new", monkeypatch, as_broker="4.9")
    with pytest.raises(InvalidInput, match="row 1: this message has no valid REAL_TOPIC"):
        made.commit([made.write(iter([messages(topic=["SCHEDULE_TOPIC_XXXX"] * 3)]))])
    made.abort([])
    assert not (tmp_path / "new").exists()


def test_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrongs: list[dict[str, Any]]
    wrongs = [{"on_damage": "x"}, {"keep_times": "yes"}, {"as_broker": "x.y"}, {"other": "1"}, {"path": "s3://a/b"}]
    for wrong in wrongs:
        with pytest.raises(InvalidInput):
            writer(tmp_path / "new", monkeypatch, **wrong)
    with pytest.raises(InvalidInput, match="no column 'body'"):
        LogSourceWriter({"path": str(tmp_path / "new")}, ["topic"], False)
    with pytest.raises(InvalidInput, match="not overwritten"):
        LogSourceWriter({"path": str(tmp_path / "new")}, ["topic", "body"], True)
    assert not (tmp_path / "new").exists()
