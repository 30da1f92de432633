"""What a part of a log adds, in memory and in files: sorted by file of a queue, or told to be short."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mqstore.pipeline.log_part import ITEM, PartRows, SavedPart
from mqstore.store.disk.files import Files
from mqstore.store.errors import Unreadable

from .queue_parts import UNITS_PER_FILE


def test_a_part_that_was_cut_short_is_told(tmp_path: Path) -> None:
    made = PartRows(UNITS_PER_FILE)
    made.add_items(np.zeros(3, ITEM))
    made.part().save(Files(), tmp_path / "part")
    saved = SavedPart.open(tmp_path / "part")
    assert len(saved.items_from(1, 3)) == 2
    with pytest.raises(Unreadable, match=r"shorter than it was written: .*/items"):
        saved.items_from(1, 4)
    with pytest.raises(Unreadable):
        SavedPart.open(tmp_path / "part" / "rows")
