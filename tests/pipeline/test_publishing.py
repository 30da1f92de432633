"""A job's directory appears at once: cut off at every step, and as programs that are killed."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mqstore.store.disk.files import Files, write_new
from mqstore.store.errors import Missing, NoSpace, Refused
from mqstore.store.output.stage import Stage, publish_job

from ..spark_processes import FAST_START
from ..store.put.faults import CountingFiles, FailingFiles, Killed, KilledFiles
from ..stores import unpack

WANTED = {"commitlog/0": b"log", "index/1": b"index", "checkpoint": b""}
ME = {"job": "mine"}


def publish(target: Path, files: Files, me: dict[str, str] = ME) -> None:
    def job(stage: Stage) -> None:
        for path, content in WANTED.items():
            files.make_directory((stage.tree / path).parent)
            write_new(files, stage.tree / path, content)
        stage.seal(me)

    publish_job(target, job, lambda found: found == me, files)


def visible(target: Path) -> dict[str, bytes]:
    """What a user of the target sees, by path."""
    paths = [path for path in target.rglob("*") if path.is_file()]
    names = {path.relative_to(target) for path in paths}
    return {str(n): (target / n).read_bytes() for n in names if n.parts[0] != ".mqstore"}


@pytest.mark.few(1)
@pytest.mark.parametrize("existed", [False, True])
def test_killed_at_every_step_and_run_again(existed: bool, tmp_path: Path) -> None:
    """The same command finishes or starts again; only what had ended before finds its output."""
    counted = CountingFiles()
    publish(tmp_path / "count", counted)
    sealed = counted.steps.index(("rename", "manifest.draft"))
    for at in range(len(counted.steps) + existed):
        target = tmp_path / str(at)
        if existed:
            target.mkdir()
        try:
            publish(target, KilledFiles(at))
        except Killed:
            assert at > sealed or not visible(target), f"visible after step {at}"
            assert existed or not target.exists() or visible(target) == WANTED, f"half of it after step {at}"
            try:
                publish(target, Files())
            except Refused:
                assert at > sealed and visible(target) == WANTED, f"refused after step {at}"
        assert visible(target) == WANTED, f"killed at step {at} of {counted.steps}"
        assert not list(tmp_path.glob(".*"))


@pytest.mark.few(1)
@pytest.mark.parametrize("existed", [False, True])
def test_a_full_disk_leaves_nothing(existed: bool, tmp_path: Path) -> None:
    counted = CountingFiles()
    publish(tmp_path / "count", counted)
    sealed = counted.steps.index(("rename", "manifest.draft"))
    refused = 0
    for at in range(sealed - 2 * existed):  # without the directory itself
        target = tmp_path / str(at)
        if existed:
            target.mkdir()
        try:
            publish(target, FailingFiles(at, errno.ENOSPC))
        except NoSpace:
            refused += 1
            assert target.exists() == existed, f"left by step {at}: {counted.steps[at]}"
            assert not existed or not list(target.iterdir()), f"step {at}"
    assert refused > len(WANTED)


@pytest.mark.parametrize("existed", [False, True])
def test_another_job_finishes_first_what_was_cut_off(existed: bool, tmp_path: Path) -> None:
    """As the same command does whose input has changed since: half of it never stays."""
    counted = CountingFiles()
    publish(tmp_path / "count", counted)
    published = counted.steps.index(("rename", "checkpoint"))
    target = tmp_path / "new"
    if existed:
        target.mkdir()
    with pytest.raises(Killed):
        publish(target, KilledFiles(published + 1))
    assert target.exists() is existed
    with pytest.raises(Refused, match="the job that was interrupted here is finished now"):
        publish(target, Files(), {"job": "other"})
    assert visible(target) == WANTED
    assert {path.name for path in tmp_path.iterdir()} == {"count", "new"}
    with pytest.raises(Refused, match="not empty"):
        publish(target, Files())


def test_a_directory_that_is_there_stays_the_same_one(tmp_path: Path) -> None:
    """It may be a mount point, or one of somebody else with a right to write in it alone."""
    (tmp_path / "new").mkdir()
    before = (tmp_path / "new").stat().st_ino
    publish(tmp_path / "new", Files())
    assert (tmp_path / "new").stat().st_ino == before


def test_a_link_to_nothing_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "new").symlink_to(tmp_path / "none")
    with pytest.raises(Missing, match=r"a link to \S+, where nothing is: \S+; mount its disk"):
        publish(tmp_path / "new", Files())


@pytest.mark.parametrize("part", ["commitlog", "consumequeue"])
def test_nothing_is_made_inside_a_store(part: str, tmp_path: Path) -> None:
    (tmp_path / "store" / part).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    for target in (tmp_path / "store" / "new", tmp_path / "link" / part / "new"):
        with pytest.raises(Refused, match="the target lies in a store"):
            publish(target, Files())
        assert not target.exists()


def commands(folder: Path) -> dict[str, list[str]]:
    """A call of each command that writes, on Spark if it may be. `rebuild`: tests/cli/test_pipeline_rebuild.py."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    root = str(unpack("5.3.3-compaction", folder))
    messages = {"topic": ["T"] * 50, "body": [b"body"] * 50, "store_timestamp": list(range(1, 51))}
    pq.write_table(pa.table(messages), folder / "messages.parquet")
    sizes = ("--set", "mappedFileSizeCommitLog=262144", "--set", "maxHashSlotNum=1000")
    small = (*sizes, "--set", "maxIndexNum=4000")
    return {
        "export": ["export", root, "--master", "local[2]", *FAST_START],
        "compact": ["compact", root, "--topic", "*", "--as-broker", "5.3", *small],
        "import": ["import", str(folder / "messages.parquet"), "--as-broker", "5.3", *small],
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["export", "compact", "import"])
def test_a_program_that_is_killed_and_run_again(name: str, tmp_path: Path) -> None:
    """SIGKILL for it alone while it writes, or its tasks: its JVM ends, the next run does it all."""
    new = tmp_path / "new"
    words = [sys.executable, "-m", "mqstore", "pipeline", *commands(tmp_path)[name]]
    words += ["--to", str(new)]
    killed = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob(".new.mqstore-unfinished/.mqstore/*/*/*")):
        assert killed.poll() is None, "it ended too soon"
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not new.exists()
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert visible(new) and not (new / ".mqstore").exists() and not list(tmp_path.glob(".new*"))


@pytest.mark.slow
def test_compact_of_a_fleet(tmp_path: Path) -> None:
    """A folder for each store; one that is not there, and damage, are told, the rest is done."""
    roots = [unpack(name, tmp_path) for name in ("5.3.3-compaction", "4.9.7-killed-page")]
    command = [*commands(tmp_path)["compact"], *map(str, roots[1:]), str(tmp_path / "none")]
    words = ["pipeline", *command, "--to", str(tmp_path / "new"), "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "mqstore", *words], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 5, done.stderr
    said = done.stderr.splitlines()
    assert len(said) == 2 and "no such directory" in said[0] and "not read: " in said[1]
    rows = json.loads(done.stdout)
    assert [row["to"] for row in rows] == [str(tmp_path / "new" / root.name) for root in roots]
    assert [bool(row["damage"]) for row in rows] == [False, True]
    assert rows[0]["messages"] > rows[0]["kept"] > 0
    assert (tmp_path / "new" / roots[0].name / "commitlog").is_dir()
