"""`put --from` and the disk: no answer before its fsync, one fsync for what comes together."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest

from mqstore.cli import ndjson_input
from mqstore.cli.output import Output
from mqstore.store.disk.files import Files
from mqstore.store.put import open_store as put_module

from .datadriven import run_here
from .putting import bodies, ended, line, process

pytestmark = pytest.mark.long

SIZE = 1 << 20
SMALL = ["--set", f"mappedFileSizeCommitLog={SIZE}"]


class WatchedFiles(Files):
    """Knows how far the commit log has reached the disk, and can refuse the n-th flush of it."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.flushed = 0
        self.flushes = 0
        self._fail_at = fail_at
        self._written = 0
        self._at = Path()

    def step(self, change: str, path: Path, size_bytes: int = 0) -> None:
        if path.parent.name != "commitlog" or not path.name.isdigit():
            return
        self._at = path
        if change == "sync":
            if self.flushes == self._fail_at:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            self.flushes += 1
            self.flushed = self._written

    def write_at(self, descriptor: int, data: memoryview, offset: int) -> int:
        written = super().write_at(descriptor, data, offset)
        if os.fstat(descriptor).st_ino == (self._at.stat().st_ino if self._at.exists() else 0):
            self._written = int(self._at.name) + offset + written
        return written


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> WatchedFiles:
    """Every change of a store goes through it; little is taken at once."""
    files = WatchedFiles()
    monkeypatch.setattr(put_module, "Files", lambda: files)
    monkeypatch.setattr(ndjson_input, "PORTION_BYTES", 4096)
    return files


@pytest.mark.few(1)
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_no_answer_before_its_fsync(
    flush: str, watched: WatchedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = []
    written = Output._write

    def watch(out: Output, data: bytes | memoryview) -> None:
        for row in map(json.loads, bytes(data).splitlines()):
            assert row["type"] == "stored"
            end = row["physical_offset"] + row["total_size"]
            assert end <= watched.flushed, f"answered {end}, on disk are {watched.flushed}"
            answered.append(watched.flushes)
        written(out, data)

    monkeypatch.setattr(Output, "_write", watch)
    count = 3000
    (tmp_path / "in").write_text("".join(line(n, body="x" * 500) for n in range(count)))
    words = ["--from", str(tmp_path / "in"), "--flush", flush, "--format", "ndjson", *SMALL]
    result = run_here(["put", str(tmp_path / "new"), *words])
    assert result.code == 0, result.stderr
    assert len(answered) == count and len(list((tmp_path / "new" / "commitlog").iterdir())) > 1
    groups = len(set(answered))
    if flush == "sync":
        assert count / 10 < groups < count / 2, "each portion that came is one group"
    else:
        assert groups < 20


@pytest.mark.parametrize("fail_at", [1, 40])
def test_a_flush_that_fails_is_no_answer(fail_at: int, watched: WatchedFiles, tmp_path: Path) -> None:
    watched._fail_at = fail_at
    (tmp_path / "in").write_text("".join(line(n, body="x" * 500) for n in range(1000)))
    words = ["--from", str(tmp_path / "in"), "--flush", "sync", "--format", "ndjson", *SMALL]
    result = run_here(["put", str(tmp_path / "new"), *words])
    assert result.code == 5 and "cannot flush" in result.stderr
    ends = [row["physical_offset"] + row["total_size"] for row in map(json.loads, result.stdout.splitlines())]
    assert max(ends, default=0) <= watched.flushed
    assert (tmp_path / "new" / "abort").exists()


@pytest.mark.slow
def test_a_slow_producer_is_answered_at_once_a_second_later_at_the_latest(tmp_path: Path) -> None:
    """A coprocess that waits for each answer before it goes on."""
    for flush in ("sync", "async"):
        root = tmp_path / flush
        running = process("put", root, "--from", "-", "--flush", flush, "--format", "ndjson")
        assert running.stdin and running.stdout
        for number in range(3):
            running.stdin.write(line(number).encode())
            running.stdin.flush()
            answer = json.loads(running.stdout.readline())
            assert answer["queue_offset"] == number
        assert ended(running) == ""
        assert bodies(root) == ["b0", "b1", "b2"]


def test_what_comes_while_the_disk_is_busy_is_one_group(
    watched: WatchedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe takes in what a fast producer writes meanwhile; then one fsync serves all of it."""
    monkeypatch.setattr(ndjson_input, "PORTION_BYTES", 1 << 20)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    lines = "".join(map(line, range(2000)))
    producer = threading.Thread(target=lambda: fifo.write_text(lines))
    producer.start()
    words = ["--from", str(fifo), "--flush", "sync", "--format", "ndjson"]
    result = run_here(["put", str(tmp_path / "new"), *words])
    producer.join()
    assert result.code == 0 and len(result.stdout.splitlines()) == 2000
    assert watched.flushes < 200
