"""What a session keeps on disk goes with it, and what a killed one has left with the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from mqstore.pipeline.scratch import remove_left, session_folder

from ..spark_processes import jvm_below

HOLD = """
import sys, time
from mqstore.pipeline.scratch import session_folder
with session_folder() as folder:
    (folder / "tmp" / "spilled").write_bytes(b"x")
    print(folder, flush=True)
    time.sleep(600)
"""
SESSION = """
import time
from mqstore.pipeline import session
with session("local[2]") as spark:
    print(spark.range(100).repartition(3).mapInArrow(lambda rows: rows, "id long").count(), flush=True)
    if {stays}:
        time.sleep(600)
"""


def started(text: str, place: Path) -> tuple[subprocess.Popen[str], str]:
    """A process with a place of its own for temporary files, and its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(place)}
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_what_a_killed_process_has_left_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    process, name = started(HOLD, tmp_path)
    begins = tmp_path / "mqstore-spark-begins"
    begins.mkdir()
    with session_folder() as other:
        assert Path(name, "tmp", "spilled").exists(), "it is in use"
        process.send_signal(signal.SIGKILL)
        process.communicate()
        remove_left(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([begins, other])
    assert list(tmp_path.iterdir()) == [begins], "one that has no lock yet stays"


def test_a_folder_that_has_lost_its_lock_goes_later(tmp_path: Path) -> None:
    """As one that was removed while a JVM still wrote into it."""
    left = tmp_path / "mqstore-spark-left"
    (left / "scratch").mkdir(parents=True)
    remove_left(tmp_path)
    assert left.exists()
    hours_ago = time.time() - 7200
    os.utime(left, (hours_ago, hours_ago))
    remove_left(tmp_path)
    assert not left.exists()


@pytest.mark.slow
def test_a_session_that_is_killed_leaves_one_folder_and_no_process(tmp_path: Path) -> None:
    """JVM and workers end by themselves; the next session removes the folder, and its own."""
    process, line = started(SESSION.format(stays=True), tmp_path)
    assert line == "100"
    jvm = jvm_below(process.pid)
    assert jvm is not None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{jvm}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{jvm}").exists()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith("mqstore-spark-")
    process, line = started(SESSION.format(stays=False), tmp_path)
    assert line == "100" and process.wait(60) == 0
    process.communicate()
    assert list(tmp_path.iterdir()) == []
