"""Stores in memory: every file of a new store is forced to the disk, which is what takes time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A directory of its own for a test, in memory where the machine has such a place."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="mqstore-salvage-", dir=MEMORY) as folder:
        yield Path(folder)
