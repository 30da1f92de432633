"""What records are grouped by: against one record at a time."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.inspect.stats import Stats
from mqstore.store.log.batch import messages
from mqstore.store.log.commit_log import Batch

from ...stores import unpack
from .batches import batches


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
