"""`pipeline stats`: parts of many logs, counted apart and added up; what the command prints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mqstore.cli.record_types import schema_of
from mqstore.pipeline import stats as job
from mqstore.pipeline.tasks import answer_of, told
from mqstore.store.commit_log import Batch, CommitLog
from mqstore.store.config import BrokerConfig
from mqstore.store.errors import Missing
from mqstore.store.layout import Layout
from mqstore.store.stats import Stats
from mqstore.store.time_range import LATEST_MS, TimeRange

from ..cli.json_schema import errors
from ..stores import unpack


def in_tasks(roots: list[str], by: list[str], times: TimeRange) -> tuple[Stats, list[object]]:
    inside = [name for name in by if name != "store"]
    tasks, unread = job.tasks_of(roots, BrokerConfig(), inside, times)
    total, failed = job.joined(tasks, [told(answer_of(job.count, task)) for task in tasks], by)
    return total, [*unread, *failed]


def test_parts_of_a_log_are_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = [unpack(name, tmp_path) for name in ("4.9.7-killed-page", "5.3.3-v2")]
    monkeypatch.setattr(job, "SPLIT_BYTES", 30_000)
    found, unread = in_tasks([*map(str, roots), str(tmp_path / "none")], ["store"], TimeRange())
    assert [type(error) for error in unread] == [Missing]
    for root in roots:
        log = CommitLog.open(Layout.open(root))
        with log.queue:
            records = sum(len(item) for item in log.scan() if isinstance(item, Batch))
        assert found.groups[(str(root),)].records == records
    for row in found.rows():
        assert list(errors(schema_of("stats"), {"type": "stats", **row})) == []


def test_a_range_of_times(tmp_path: Path) -> None:
    root = str(unpack("5.3.3-v2", tmp_path))
    (whole,) = in_tasks([root], [], TimeRange())[0].groups.values()
    middle = int(np.mean([whole.first_ms, whole.last_ms]))
    before, _ = in_tasks([root], [], TimeRange(0, middle))
    behind, _ = in_tasks([root], [], TimeRange(middle, LATEST_MS))
    before.merge(behind)
    assert before.groups == {(): whole}
