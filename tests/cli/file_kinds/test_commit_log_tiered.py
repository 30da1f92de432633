"""`dump` of tiered segments of a log that have lost their place, or their names."""

from __future__ import annotations

import shutil
from pathlib import Path

from ... import tiered
from ..printed import queue_offsets


def test_a_log_elsewhere(tmp_path: Path) -> None:
    """The directory under another name, one segment, a segment under another name."""
    root = tiered.unpack("5.3.3", tmp_path)
    path = tiered.queue_path(root, 0, "COMMIT_LOG")
    whole = queue_offsets(path)
    moved = tmp_path / "copy"
    shutil.copytree(path, moved)
    assert queue_offsets(moved, "--as", "tiered-commit-log") == whole
    segment = max(moved.iterdir(), key=lambda one: one.name[8:])
    last = queue_offsets(segment, "--as", "tiered-commit-log")
    assert whole[-len(last) :] == last
    segment.rename(tmp_path / "segment.bin")
    assert queue_offsets(tmp_path / "segment.bin", "--as", "tiered-commit-log") == last
    assert queue_offsets(tmp_path / "segment.bin") == last
