"""The broker's lock, against other processes and against ourselves."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqstore.store.disk.files import Files
from mqstore.store.disk.lock import StoreLock, holder
from mqstore.store.errors import InUse

from ..put.faults import CountingFiles

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def other_process(lock: Path) -> Iterator[int]:
    """Another process holds the lock as a broker does; its process id."""
    lock.touch()
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"held\n"
    try:
        yield process.pid
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def test_taking_and_giving_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert holder(path) is None
    with StoreLock.take(path, Files()):
        assert path.read_bytes() == b"lock"
    with StoreLock.take(path, Files()):
        assert holder(path) == os.getpid()
    assert holder(path) is None


def test_another_process_is_respected_and_named(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with other_process(path) as pid:
        assert holder(path) == pid
        before = path.stat().st_mtime_ns
        with pytest.raises(InUse, match=f"in use by process {pid}.*{tmp_path}.*--wait"):
            StoreLock.take(path, Files(), wait_seconds=0.02)
        assert path.stat().st_mtime_ns == before
    StoreLock.take(path, Files()).release()


def test_nobody_waits_for_no_number_of_seconds(tmp_path: Path) -> None:
    """`--wait nan` waited for ever."""
    path = tmp_path / "lock"
    with StoreLock.take(path, Files()), pytest.raises(InUse):
        StoreLock.take(path, Files(), wait_seconds=float("nan"))


def test_the_other_process_sees_ours(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    ask = "import sys; from pathlib import Path; from mqstore.store.disk.lock import holder;"
    ask += "print(holder(Path(sys.argv[1])))"
    with StoreLock.take(path, Files()):
        said = subprocess.check_output([sys.executable, "-c", ask, str(path)], text=True)
    assert said.strip() == str(os.getpid())


def test_one_process_takes_it_once(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = StoreLock.take(path, Files())
    with pytest.raises(InUse):
        StoreLock.take(path, Files())
    assert holder(path) == os.getpid(), "the second try dropped the lock of the first"
    lock.release()
    lock.release()
    StoreLock.take(path, Files()).release()


def test_waiting_ends_when_the_holder_goes(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = StoreLock.take(path, Files())
    taken: list[StoreLock] = []
    waiter = threading.Thread(target=lambda: taken.append(StoreLock.take(path, Files(), wait_seconds=30)))
    waiter.start()
    time.sleep(0.02)
    assert not taken
    lock.release()
    waiter.join(30)
    assert taken
    taken[0].release()


def test_a_lock_file_that_is_there_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    files = CountingFiles()
    StoreLock.take(path, files).release()
    assert files.steps == [("open", "lock")]


@pytest.mark.parametrize("content", [None, b"", b"lock", b"something else"])
def test_it_can_be_left_as_it_was(content: bytes | None, tmp_path: Path) -> None:
    """With its bytes and its time, and away where there was none."""
    path = tmp_path / "lock"
    if content is not None:
        path.write_bytes(content)
        os.utime(path, ns=(1_000_000_000, 2_000_000_000))
    with StoreLock.take(path, Files()) as lock:
        assert path.read_bytes() == b"lock"
        lock.leave = lock.was
    assert (path.read_bytes() if path.exists() else None) == content
    if content is not None:
        assert path.stat().st_mtime_ns == 2_000_000_000
    with StoreLock.take(path, Files()):
        assert holder(path) == os.getpid()


def test_a_lock_that_is_taken_away_is_waited_for_no_longer(tmp_path: Path) -> None:
    """Whoever waits for it gets the next one."""
    path = tmp_path / "lock"
    lock = StoreLock.take(path, Files())
    lock.leave = lock.was
    taken: list[StoreLock] = []
    waiter = threading.Thread(target=lambda: taken.append(StoreLock.take(path, Files(), wait_seconds=30)))
    waiter.start()
    lock.release()
    waiter.join(30)
    with taken[0]:
        assert holder(path) == os.getpid()


def test_wrong_content_is_put_right(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"something else")
    StoreLock.take(path, Files()).release()
    assert path.read_bytes() == b"lock"
