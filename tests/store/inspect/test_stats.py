"""Counts of a log: against one record at a time, in parts, and the bins of sizes."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.disk.layout import Layout
from mqstore.store.errors import LimitExceeded
from mqstore.store.inspect.stats import COUNTS, Group, Stats
from mqstore.store.log.batch import messages
from mqstore.store.log.commit_log import Batch
from mqstore.store.log.message import Mark
from mqstore.store.queues.references import commit_log_of

from ...stores import unpack


def batches(root: Path) -> list[Batch]:
    log = commit_log_of(Layout.open(root))
    with log.queue:
        items = [item for item in log.scan() if isinstance(item, Batch)]
        return [item.take(np.arange(len(item))) for item in items if item.mark <= Mark.AFTER_DAMAGE]


def one_by_one(found: list[Batch]) -> dict[tuple[Any, ...], list[int]]:
    """Sizes of records by all dimensions."""
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for batch in found:
        for message in messages(batch):
            host = message.to_json()["born_host"].rpartition(":")[0]
            tag = message.properties.get("TAGS", "")
            hour = message.store_timestamp // 3_600_000 * 3_600_000
            key = (message.topic, message.queue_id, tag, host, hour)
            groups[key].append(message.total_size)
    return groups


@pytest.mark.parametrize("name", ["5.3.3-clean", "5.5.0-ipv6"])
def test_groups_are_those_of_the_records(name: str, tmp_path: Path) -> None:
    found = batches(unpack(name, tmp_path))
    stats = Stats(("topic", "queue_id", "tag", "host", "hour"))
    for batch in found:
        stats.add(batch)
    wanted = one_by_one(found)
    assert {key: group.records for key, group in stats.groups.items()} == {
        key: len(sizes) for key, sizes in wanted.items()
    }
    for key, sizes in wanted.items():
        group = stats.groups[key]
        assert (group.size_bytes, group.largest_bytes) == (sum(sizes), max(sizes))
        for percent in (50, 90, 99):
            exact = sorted(sizes)[-(-len(sizes) * percent // 100) - 1]
            assert exact * 15 / 16 <= group.percentile_bytes(percent) <= exact


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
    other.groups = {(name,): Group() for name in "abc"}
    with pytest.raises(LimitExceeded, match="more than 2 groups"):
        stats.merge(other)
