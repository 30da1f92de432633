"""The options that every command shares."""

from __future__ import annotations

import pytest

from mqstore.cli import options


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("64K", 65536), ("10MB", 10 << 20), ("1gib/s", 1 << 30)])
def test_sizes_with_units(text: str, size: int) -> None:
    """Powers of 1024, whatever the unit is called."""
    assert options.parse_bytes(text) == size
