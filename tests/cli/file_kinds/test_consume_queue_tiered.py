"""`dump` of tiered segments of a queue that have lost their place."""

from __future__ import annotations

import shutil
from pathlib import Path

from ... import tiered
from ..printed import queue_offsets


def test_a_queue_elsewhere(tmp_path: Path) -> None:
    root = tiered.unpack("5.5.0", tmp_path)
    path = tiered.queue_path(root, 0, "CONSUME_QUEUE")
    whole = queue_offsets(path)
    assert whole == list(range(len(whole))) != []
    moved = tmp_path / "copy"
    shutil.copytree(path, moved)
    assert queue_offsets(moved, "--as", "tiered-consume-queue") == whole
