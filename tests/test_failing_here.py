"""A range that cannot be read is one of its test alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .failing_disk import fail_here

BEFORE = os.pread


@pytest.mark.parametrize("times", [1, 2])
def test_each_test_begins_with_a_whole_disk(times: int, tmp_path: Path) -> None:
    assert os.pread is BEFORE
    path = tmp_path / "file"
    path.write_bytes(b"12")
    fail_here(path, 0, 1)
    with path.open("rb") as file, pytest.raises(OSError, match="Input/output"):
        os.pread(file.fileno(), 2, 0)
