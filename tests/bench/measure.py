"""Processes and their cost: CPU seconds, seconds to the exit, peak of anonymous memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

_POLL_S = 0.002
#: CPU time of zlib.crc32 over the mapped files, nothing else imported.
_CRC = """import mmap, os, sys, time, zlib
maps = [mmap.mmap(os.open(p, os.O_RDONLY), 0, prot=mmap.PROT_READ) for p in sys.argv[1:]]
start = time.process_time()
for m in maps: zlib.crc32(m)
print(time.process_time() - start)"""


@dataclass(frozen=True)
class Cost:
    """What one process took. `cpu_s`: user and system; `peak_bytes`: anonymous memory, that of its children too."""

    cpu_s: float
    wall_s: float
    peak_bytes: int
    output: str


def run(command: Sequence[str | Path], *, codes: Sequence[int] = (0,), memory: bool = False) -> Cost:
    """Run a process to its end; `memory` polls its anonymous memory (and so costs the machine).

    Raises RuntimeError when it exits with another code.
    """
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment()
    )
    peak = _watch(process) if memory else 0
    assert process.stdout and process.stderr
    output, errors = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    process.stderr.close()
    if process.returncode not in codes:
        raise RuntimeError(f"{' '.join(map(str, command))}: {process.returncode}\n{errors[-2000:]}")
    return Cost(usage.ru_utime + usage.ru_stime, wall_s, peak, output)


def _environment() -> dict[str, str]:
    """That of an installed package: its modules are compiled once, not at each start."""
    environment = dict(os.environ, PYTHONPYCACHEPREFIX=str(Path(tempfile.gettempdir(), "mqstore-pyc")))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _watch(process: subprocess.Popen[str]) -> int:
    """The most anonymous memory that the process and those it started had together, until it has nothing
    mapped any more. What n of them share counts once: an nth part in each.
    """
    peak = 0
    while True:
        own = _anonymous_kb(process.pid)
        if not own:  # a zombie
            return peak * 1024
        peak = max(peak, own + sum(map(_anonymous_kb, _started_by(process.pid))))


def _anonymous_kb(pid: int) -> int:
    """0 of a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def _started_by(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    found = list[int]()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            started = [int(child) for child in children.read_text().split()]
            found += [*started, *chain.from_iterable(map(_started_by, started))]
    return found


def python(*words: str | Path) -> list[str | Path]:
    """The start of a command line: this Python."""
    return [sys.executable, *words]


def subject(name: str, *arguments: str | Path, memory: bool = False) -> dict[str, Any]:
    """Run a subject in a fresh process; its own JSON result, and `peak_bytes`."""
    cost = run(python("-m", "tests.bench.subjects", name, *arguments), memory=memory)
    result: dict[str, Any] = json.loads(cost.output)
    return result | {"peak_bytes": cost.peak_bytes}


def crc_cpu_s(paths: Sequence[Path]) -> float:
    """The unit *crc*: CPU seconds of zlib.crc32 over these files in a fresh Python."""
    return float(run(python("-I", "-c", _CRC, *paths)).output)


def least(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """The least of each measure over rounds in which they take turns."""
    table = [[measure() for measure in measures] for _ in range(rounds)]
    return [min(column) for column in zip(*table, strict=True)]
