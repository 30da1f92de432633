"""Counts of a log: against one record at a time, in parts, and the bins of sizes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.errors import LimitExceeded
from mqstore.store.inspect.stats import COUNTS, Stats, StatsGroup

from ...stores import unpack
from .batches import batches


def test_messages_inside_of_batch_records_are_counted(tmp_path: Path) -> None:
    """As many as consumers get; the records are told apart."""
    stats = Stats(["topic"])
    for batch in batches(unpack("5.3.3-batchcq", tmp_path)):
        stats.add(batch)
    counts = {row["topic"]: (row["records"], row["messages"]) for row in stats.rows()}
    assert counts == {"BatchTopic": (60, 162), "TopicA": (20, 20)}
    assert Stats.from_json(["topic"], json.loads(json.dumps(stats.to_json()))).rows() == stats.rows()


def test_parts_add_up_through_json(tmp_path: Path) -> None:
    found = batches(unpack("4.9.7-clean", tmp_path))
    whole, parts = Stats(["topic"]), Stats(["topic"])
    for batch in found:
        whole.add(batch)
        for rows in np.split(np.arange(len(batch)), [7]):
            part = Stats(["topic"])
            part.add(batch.take(rows))
            parts.merge(Stats.from_json(["topic"], json.loads(json.dumps(part.to_json()))))
    assert parts.groups == whole.groups
    told = whole.rows()
    assert [set(row) for row in told] == [{"topic", *COUNTS}] * len(told)
    assert [row["bytes"] for row in told] == sorted((r["bytes"] for r in told), reverse=True)
    assert sum(row["share"] for row in told) == pytest.approx(1, abs=1e-4)
    assert whole.rows(2) == told[:2]


@given(st.lists(st.integers(0, (1 << 40)), min_size=1, max_size=50))
def test_a_bin_holds_sizes_that_are_close(sizes: list[int]) -> None:
    from mqstore.store.inspect.stats import least_of_bin, size_bin

    numbers = size_bin(np.array(sizes, np.int64)).tolist()
    for size, number in zip(sizes, numbers, strict=True):
        assert 0 <= number < 1 << 10
        assert size * 15 // 16 <= least_of_bin(number) <= size
        assert size >= 32 or least_of_bin(number) == size


def test_too_many_groups_end_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqstore.store.inspect.stats.GROUPS_MAX", 2)
    stats, other = Stats(["topic"]), Stats(["topic"])
    other.groups = {(name,): StatsGroup() for name in "abc"}
    with pytest.raises(LimitExceeded, match="more than 2 groups"):
        stats.merge(other)
