"""`mqstore get --follow` as a process: while others write, to its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..slices import share
from .datadriven import run_here

SIZES = ("--set", "mappedFileSizeCommitLog=262144")


def following(root: Path, *options: str) -> subprocess.Popen[bytes]:
    """A process that follows a store, once it has begun."""
    command = [sys.executable, "-m", "mqstore", "get", str(root), "--follow", *SIZES, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(200):
        if _watches(process.pid):
            return process
        time.sleep(0.05)
    raise AssertionError(f"it did not begin: {process.communicate()}")


def _watches(pid: int) -> bool:
    """It has an inotify descriptor."""
    for path in Path(f"/proc/{pid}/fdinfo").glob("*"):
        try:
            if "inotify" in path.read_text():
                return True
        except FileNotFoundError:  # closed meanwhile
            continue
    return False


def put(root: Path, first: int, count: int) -> None:
    """Messages numbered from `first` on."""
    lines = root.parent / "lines"
    rows = ({"topic": f"T{n % 3}", "body": str(n), "tags": f"t{n % 2}"} for n in range(first, count))
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = run_here(["put", str(root), "--from", str(lines), *SIZES])
    assert said.code == 0, said.stderr


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "store", 0, 10)
    return tmp_path / "store"


def check_all_come(root: Path, count: int) -> None:
    """Every message that is put meanwhile, once, in order."""
    process = following(root, "--limit", str(count), "--format", "ndjson")
    put(root, 10, 10 + count)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and err == b""
    assert [json.loads(line)["body"] for line in out.splitlines()] == [str(number) for number in range(10, 10 + count)]


def test_all_come(root: Path) -> None:
    check_all_come(root, 3_000)


@pytest.mark.slow
def test_a_hundred_thousand(root: Path) -> None:
    check_all_come(root, share(100_000))


def test_conditions_and_what_was_before(root: Path) -> None:
    options = ("--topic", "T1", "--tag", "t0", "--since", "-1h", "--limit", "5", "--format", "ndjson")
    process = following(root, *options)
    put(root, 10, 30)
    out, _ = process.communicate(timeout=60)
    assert [json.loads(line)["body"] for line in out.splitlines()] == ["4", "10", "16", "22", "28"]


def test_from_the_beginning_of_time_on(root: Path) -> None:
    """0 is a time like any other: 1970, and all that the log has is later."""
    process = following(root, "--since", "0", "--limit", "12", "--format", "ndjson")
    put(root, 10, 12)
    out, _ = process.communicate(timeout=60)
    assert [json.loads(line)["body"] for line in out.splitlines()] == [str(number) for number in range(12)]


def test_ctrl_c(root: Path) -> None:
    process = following(root)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, b"")
    assert err in (b"", b"mqstore: interrupted\n")


def test_a_pipe_that_nobody_reads(root: Path) -> None:
    """It ends although there is nothing to write."""
    process = following(root)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=20) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.slow
def test_idle_costs_next_to_nothing(root: Path) -> None:
    """Less than 3 % of a core once the pauses have grown."""
    process = following(root)
    time.sleep(2)
    before = _cpu_seconds(process.pid)
    time.sleep(2)
    used = _cpu_seconds(process.pid) - before
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert used < 0.06


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    "options",
    [
        ("--reverse",),
        ("--at", "5"),
        ("--until", "now"),
        ("--count", "3"),
        ("--offset-at", "now", "--topic", "T", "--queue", "0"),
    ],
)
def test_what_does_not_go_with_it(root: Path, options: tuple[str, ...]) -> None:
    said = run_here(["get", str(root), "--follow", *options])
    assert said.code == 2 and said.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True], ids=["end", "torn"])
def test_an_idle_follower_uses_next_to_nothing(root: Path, broken: bool) -> None:
    """Of processor time, while nothing comes: at the end of the log, and before a torn record."""
    seconds = max(5, share(20))
    if broken:
        log = root / "commitlog" / f"{0:020d}"
        data = log.read_bytes()
        end = len(data.rstrip(b"\0"))
        with log.open("r+b") as file:
            file.seek(end)
            file.write(data[:60])  # the head of a record, in the wrong place
    process = following(root)
    try:
        time.sleep(3)  # the pauses grow to their longest, what is broken is looked at in full
        before = _cpu_seconds(process.pid)
        time.sleep(seconds)
        used = _cpu_seconds(process.pid) - before
        assert used <= 0.05 * seconds, f"{used} s of {seconds}"
    finally:
        process.kill()
        process.communicate()
