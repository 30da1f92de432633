"""A disk with bad blocks: commands run with `failing_disk.c` loaded, which fails reads as a kernel does.

    answers = run([["dump", str(store)]], [Bad(path, 8192, 4096)], tmp_path)

All commands of one call run in one process, a fork of one that is kept. `fail_here` does the same to this process, for
reads by pread(2) alone.
"""

from __future__ import annotations

import atexit
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import pytest

_SOURCE = Path(__file__).with_suffix(".c")
_SERVE = """
import contextlib, ctypes, io, json, os, sys
from mqstore.cli import app
# imported once, not by each child
from mqstore.store.inspect import description
from mqstore.store.recover import recovery
from mqstore.store.repair import repair
from mqstore.store.verify.run import load_checks
load_checks()

class Stream(io.TextIOWrapper):
    def __init__(self):
        super().__init__(io.BytesIO(), encoding="utf-8", errors="surrogateescape", write_through=True)

def answer(environment, commands):
    os.environ.clear()
    os.environ.update(environment)
    ctypes.CDLL(None).failing_disk_load()
    sys.stdin = open(os.devnull)
    for command in commands:
        out, err = Stream(), Stream()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = app.run(command)
        texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
        print(json.dumps([code, *texts]), flush=True)

for line in sys.stdin:
    if not os.fork():
        try:
            answer(*json.loads(line))
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


class Bad(NamedTuple):
    """A range of a file that the disk does not give."""

    path: Path
    offset: int
    length: int
    error: int = errno.EIO


class Answer(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its NDJSON."""
        return [json.loads(line) for line in self.out.splitlines()]


@cache
def library() -> Path:
    """The shim, compiled once; skips the test where there is no C compiler."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    made = Path(mkdtemp(prefix="mqstore-failing-disk-")) / "failing_disk.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(made), str(_SOURCE)]
    subprocess.run(command, check=True)
    return made


def run(commands: Iterable[Sequence[str]], bad: Iterable[Bad], folder: Path, below: Path | None = None) -> list[Answer]:
    """Run command lines on a disk with bad ranges. below: count what is read in it: see `counted`."""
    ranges = folder / "bad"
    ranges.write_text("".join(f"{b.offset} {b.length} {b.error} {b.path.resolve()}\n" for b in bad))
    environment = {**os.environ, "LD_PRELOAD": str(library()), "FAILING_DISK": str(ranges)}
    if below is not None:
        environment |= {"COUNTED_READS": str(folder / "reads"), "COUNTED_BELOW": str(below.resolve())}
        (folder / "reads").write_text("")
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps([environment, [list(command) for command in commands]]) + "\n")
    server.stdin.flush()
    answers = []
    while isinstance(said := json.loads(server.stdout.readline()), list):
        answers.append(Answer(*said))
    assert said == 0, said  # a mapped page that fails kills
    return answers


@cache
def _server() -> subprocess.Popen[str]:
    """Forks for each call of `run`, until this process ends."""
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVE],
        env={**os.environ, "LD_PRELOAD": str(library())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    atexit.register(server.wait)
    atexit.register(server.stdin.close)
    return server


def counted(folder: Path) -> int:
    """Bytes that the commands of the last `run` have read."""
    return sum(map(int, (folder / "reads").read_text().split()))


_failing: dict[str, tuple[int, int]] = {}


def fail_here(path: Path, offset: int, length: int) -> None:
    """From now on, until `mend_here`, this process cannot read a range of a file."""
    if not _failing:
        os.pread = _failing_pread
        os.preadv = _failing_preadv  # type: ignore[assignment]
    _failing[os.path.realpath(path)] = (offset, offset + length)


def mend_here() -> None:
    """All can be read again."""
    _failing.clear()
    os.pread, os.preadv = _pread, _preadv


_pread, _preadv = os.pread, os.preadv


def _allowed(descriptor: int, size: int, offset: int) -> int:
    begin, end = _failing.get(str(Path(f"/proc/self/fd/{descriptor}").readlink()), (0, 0))
    if begin <= offset < end:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return min(size, begin - offset) if offset < begin else size


def _failing_pread(descriptor: int, size: int, offset: int) -> bytes:
    return _pread(descriptor, _allowed(descriptor, size, offset), offset)


def _failing_preadv(descriptor: int, rooms: Sequence[Any], offset: int, flags: int = 0) -> int:
    (room,) = rooms
    part = memoryview(room)[: _allowed(descriptor, len(room), offset)]
    return _preadv(descriptor, [part], offset, flags)
