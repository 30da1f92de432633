"""Tasks that go together, and what they answer, without Spark."""

from __future__ import annotations

from mqstore.pipeline.tasks import shares_of


def test_small_tasks_share_one_and_large_ones_come_first() -> None:
    sizes = [*([1 << 20] * 145), 3 << 30, 700 << 20]
    shares = shares_of(sizes, 2)
    assert shares[:2] == [[145], [146]], "large ones first, each alone"
    assert sorted(number for some in shares for number in some) == list(range(147))
    assert len(shares) < 10
    assert shares_of([], 2) == []
