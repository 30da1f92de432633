"""What the machine gives at the most, in the unit of the figure beside it. Nothing of mqstore runs here.

A figure cannot get below the limit that stands beside it, or above it where more is better; what is left
between the two is ours.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from .measure import Cost, crc_cpu_s, least, python, run

_ROUNDS = 3
_PIECE = os.urandom(1 << 20)
_MAPPED = """import mmap, os, sys, time
maps = [mmap.mmap(os.open(p, os.O_RDONLY), 0, prot=mmap.PROT_READ) for p in sys.argv[1:]]
"""
_BEST_CRC = (
    "from isal.isal_zlib import crc32\n"
    + _MAPPED
    + "start = time.process_time()\nfor m in maps: crc32(m)\nprint(time.process_time() - start)"
)
_COPY = (
    "import numpy\n"
    + _MAPPED
    + """arrays = [numpy.frombuffer(m, numpy.uint8) for m in maps]
there = numpy.ones(max(map(len, arrays)), numpy.uint8)
start = time.process_time()
for a in arrays: there[: len(a)] = a
print(time.process_time() - start)"""
)


class Limit(NamedTuple):
    """ratio: in the unit of a figure; what: the thing that takes it."""

    ratio: float
    what: str

    def __str__(self) -> str:
        return f"{self.ratio:.2f} {self.what}"


@lru_cache
def crc(files: tuple[Path, ...]) -> Limit:
    """CRC-32 by the quickest library there is, against the unit *crc*."""
    best, unit = least(_ROUNDS, lambda: _told_s(_BEST_CRC, files), lambda: crc_cpu_s(files))
    return Limit(min(best, unit) / unit, "isal crc32")


@lru_cache
def cat(files: tuple[Path, ...]) -> Limit:
    """`cat` to nowhere, against the unit *crc*."""
    ours, unit = least(_ROUNDS, lambda: _cat(files).cpu_s, lambda: crc_cpu_s(files))
    return Limit(ours / unit, "cat")


@lru_cache
def copy_s(files: tuple[Path, ...]) -> float:
    """CPU seconds of copying the bytes once in memory."""
    return least(_ROUNDS, lambda: _told_s(_COPY, files))[0]


@lru_cache
def cat_s(files: tuple[Path, ...]) -> float:
    """Seconds by the clock of `cat` to nowhere."""
    return least(_ROUNDS, lambda: _cat(files).wall_s)[0]


@lru_cache
def write_s(folder: Path, size: int, *, fsync: bool) -> float:
    """Seconds by the clock of writing so many bytes into a new file of a folder."""
    path = folder / "limit"
    took = []
    for _ in range(_ROUNDS):
        path.unlink(missing_ok=True)
        start = time.perf_counter()
        with path.open("wb", buffering=0) as file:
            for at in range(0, size, len(_PIECE)):
                file.write(_PIECE[: size - at])
            if fsync:
                os.fsync(file.fileno())
        took.append(time.perf_counter() - start)
    path.unlink()
    return min(took)


@lru_cache
def start_s() -> float:
    """Seconds by the clock of a Python that does nothing."""
    return least(_ROUNDS * 3, lambda: run(python("-c", "pass")).wall_s)[0]


@lru_cache
def two_processes(files: tuple[Path, ...]) -> Limit:
    """How much sooner two processes are done with twice what one of them does, by the clock."""
    command = [str(word) for word in python("-I", "-c", _BEST_CRC, *files)]

    def clock(count: int) -> float:
        start = time.perf_counter()
        running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(count)]
        assert not any(process.wait() for process in running)
        return time.perf_counter() - start

    one, two = least(_ROUNDS, lambda: clock(1), lambda: clock(2))
    return Limit(2 * one / two, "two that share nothing")


def bytes_of(paths: Iterable[Path]) -> int:
    """Bytes that files and all that is in folders have on the disk: holes are none."""
    found = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    return sum(file.stat().st_blocks * 512 for file in found if file.is_file())


def files_of(*paths: Path) -> tuple[Path, ...]:
    """All files in folders."""
    return tuple(sorted(file for path in paths for file in path.rglob("*") if file.is_file()))


def _cat(files: Sequence[Path]) -> Cost:
    return run(["sh", "-c", 'cat -- "$@" > /dev/null', "cat", *files])


def _told_s(code: str, files: Sequence[Path]) -> float:
    return float(run(python("-I", "-c", code, *files)).output)
