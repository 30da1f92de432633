"""What differs between two logs, however little memory there is for it."""

from __future__ import annotations

import numpy as np
import pytest

from mqstore.store.arrow import differences
from mqstore.store.arrow.differences import compare
from mqstore.store.arrow.stores import ReadOptions

from .shuffled import shuffled

__all__ = ["shuffled"]


@pytest.mark.parametrize(("step", "most"), [(1 << 18, 3_000_000), (100, 3_000_000), (50, 700)])
def test_another_order_and_little_memory(
    shuffled: tuple[str, str], step: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much waits for its like at once, and where the logs are read for a part at a time."""
    monkeypatch.setattr(differences, "_STEP", step)
    monkeypatch.setattr(differences, "WAITING_MAX", most)
    monkeypatch.setattr(differences, "_BLOCK_BITS", 2)
    a, b = (ReadOptions.of({"path": path, "split_bytes": "70000"}) for path in shuffled)
    found = compare(a, b, "x")
    rows = {(r["topic"], r["queue_id"]): tuple(r.values())[1:] for r in found.rows}
    assert rows == {("t1", 1): ("t1", 1, 2, "changed", 0, 0, 1), ("t2", 2): ("t2", 2, 3, "changed", 0, 1, 1)}
    assert not found.unsound


def test_a_queue_offset_that_a_log_has_twice() -> None:
    """A copy too many is one that only this side has; two others are a change."""
    waiting = differences.UnmatchedMessages()

    def add(weight: int, *rows: tuple[int, int, int]) -> None:
        queue, offset, digest = np.array(rows, np.int64).T
        waiting.add((queue, offset, digest), weight)

    add(1, (0, 5, 100), (0, 5, 100), (0, 6, 7))
    add(-1, (0, 6, 8), (0, 5, 100), (0, 7, 1))
    (queue, offset, digest), weight = waiting.all()
    found = zip(queue.tolist(), offset.tolist(), digest.tolist(), weight.tolist(), strict=True)
    assert sorted(found) == [(0, 5, 100, 1), (0, 6, 7, 1), (0, 6, 8, -1), (0, 7, 1, -1)]
