"""What `inspect` counts in a commit log."""

from __future__ import annotations

from pathlib import Path

from ... import stores
from ..printed import inspected


def test_the_log_of_a_directory_is_counted(tmp_path: Path) -> None:
    """As the truth counts it."""
    found = inspected(stores.unpack("4.9.7-clean", tmp_path) / "commitlog")
    truth = stores.truth("4.9.7-clean")
    assert found["messages"] == truth["message_count"]
    assert found["log_end"] == truth["load"]["after_load"]["max_phy_offset"]
    assert found["damaged_bytes"] == 0
