"""The processes of a Spark job on this machine: the JVM, and the Python workers below it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

FAST_START = ("--conf", "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
"""Options of a command of `pipeline`: its JVM starts faster, and works slower."""
_TICKS_A_S = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> Iterator[int]:
    """A process and all below it; those that end meanwhile are left out."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _text(task).split():
            yield from tree(int(child))


def jvm_below(pid: int) -> int | None:
    """The first `java` of a process tree."""
    return next((one for one in tree(pid) if _name(one) == "java"), None)


def cpu_s(pid: int) -> float:
    """User and system time of a process tree, and of what has ended in it."""
    total = 0
    for one in tree(pid):
        fields = _text(Path(f"/proc/{one}/stat")).rpartition(")")[2].split()
        total += sum(map(int, fields[11:15]))
    return total / _TICKS_A_S


def own_cpu_s(pid: int) -> float:
    """User and system time of one process."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / _TICKS_A_S


def worker_peaks(jvm: int) -> dict[int, int]:
    """By process id the most memory (VmHWM, bytes) that each Python worker has had."""
    peaks = {}
    for pid in tree(jvm):
        if pid != jvm and _name(pid) != "java":
            lines = _text(Path(f"/proc/{pid}/status")).splitlines()
            for line in lines:
                if line.startswith("VmHWM:"):
                    peaks[pid] = int(line.split()[1]) << 10
    return peaks


def _name(pid: int) -> str:
    return _text(Path(f"/proc/{pid}/comm")).strip()


def _text(path: Path) -> str:
    """A file of /proc; nothing where the process has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
