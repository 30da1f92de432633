"""Stores in memory: forcing every file to a disk is what takes the time of tests that write.

A `conftest.py` imports `tmp_path` from here for the tests beside it. `tmp_path_factory` stays on the disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM_BYTES = 1 << 30
"""A container may have a place in memory that holds next to nothing."""


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A directory of its own for a test, in memory where the machine has such a place."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ROOM_BYTES:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="mqstore-test-", dir=MEMORY) as folder:
        yield Path(folder)
