"""What a part of a log adds, in memory and in files: sorted by file of a queue, or told to be short."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.pipeline.log_part import ITEM, ROW, FileKey, PartRows, SavedPart, keys_of
from mqstore.store.disk.files import Files
from mqstore.store.errors import Missing, Unreadable

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


QUEUES = st.tuples(st.sampled_from("ab"), st.sampled_from((0, 1, 70_000)), st.integers(0, 45))


@given(st.lists(st.lists(QUEUES, max_size=12), min_size=1, max_size=4))
def test_units_lie_by_file_of_a_queue_in_the_order_of_the_log(batches: list[list[tuple[str, int, int]]]) -> None:
    """Whatever came between them."""
    made, position, wanted = PartRows(UNITS_PER_FILE), 0, dict[FileKey, list[tuple[int, int]]]()
    for batch in batches:
        topics = sorted({topic for topic, _, _ in batch})
        rows = np.zeros(len(batch), ROW)
        for row, (topic, queue_id, offset) in enumerate(batch):
            rows["queue_offset"][row], rows["physical_offset"][row] = offset, position
            key = FileKey(topic, queue_id, offset // UNITS_PER_FILE)
            wanted.setdefault(key, []).append((offset, position))
            position += 1
        ids = np.array([topics.index(topic) for topic, _, _ in batch], np.int64)
        made.add(topics, ids, np.array([queue_id for _, queue_id, _ in batch], np.int64), rows)
    part = made.part()
    assert keys_of([part]) == sorted(wanted)
    for key, units in wanted.items():
        assert part.of(key)[["queue_offset", "physical_offset"]].tolist() == units
    assert len(made.part().rows) == 0, "it starts over"


def test_a_part_without_places_is_told(tmp_path: Path) -> None:
    with pytest.raises(Missing, match=r"places\.json"):
        SavedPart.open(tmp_path)
