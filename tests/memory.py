"""Stores in memory: making files on a disk, and forcing them to it, is what takes the time of tests that write.

All fast tests have their `tmp_path` there (`tests/conftest.py`). Of slow ones, which may write more, those beside a
`conftest.py` that imports `tmp_path` from here. `tmp_path_factory` stays on the disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM_BYTES = 1 << 30
"""A container may have a place in memory that holds next to nothing."""


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory of its own for a test, in memory where the machine has such a place."""
    if has_room():
        with folder() as place:
            yield place
    else:
        yield request.getfixturevalue("tmp_path")


def has_room() -> bool:
    """Whether the machine has a place in memory where programs may lie, and room there."""
    if not os.access(MEMORY, os.W_OK) or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(MEMORY).free >= ROOM_BYTES


@contextmanager
def folder() -> Iterator[Path]:
    """A directory in memory, gone behind the block."""
    with tempfile.TemporaryDirectory(prefix="mqstore-test-", dir=MEMORY) as place:
        yield Path(place)
