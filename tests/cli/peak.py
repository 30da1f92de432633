"""The most memory that a command has had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
"""Of a process of its own: `mqstore` is this checkout's."""
_PEAK = (
    "import resource, subprocess, sys; "
    "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode; "
    "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def peak_bytes(*arguments: str, code: int = 0) -> int:
    """That of one command in a process of its own, which ends with an exit code."""
    command = [sys.executable, "-c", _PEAK, sys.executable, "-m", "mqstore", *arguments]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=1800)
    ended, kib = map(int, done.stdout.split())
    assert ended == code, done.stderr
    return kib << 10
