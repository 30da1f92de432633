"""A store whose lock another process holds, as a broker does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0); "
    "print('held', flush=True); sys.stdin.read()"
)


@contextmanager
def held(root: Path) -> Iterator[int]:
    """Process id of the holder."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(root / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdin is not None
        assert broker.stdout.readline() == "held\n"
        yield broker.pid
        broker.stdin.close()
