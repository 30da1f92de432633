"""`stats`: parts of many logs, counted apart and added up, here and in tasks; what is in no count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mqstore.cli.record_types import schema_of
from mqstore.pipeline import stats as job
from mqstore.pipeline.tasks import answer_of, told
from mqstore.store.arrow import log_columns, log_rows
from mqstore.store.arrow.log_rows import Counted, Damage, count_here
from mqstore.store.arrow.stores import FAIL_UNREADABLE, ReadOptions
from mqstore.store.disk.byte_reader import at_rate
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Refused, StoreError, Unreadable
from mqstore.store.log.commit_log import Batch
from mqstore.store.queues.references import commit_log_of
from mqstore.store.search.selection import LATEST_MS, TimeRange

from ..cli.json_schema import errors
from ..failing_disk import fail_here
from ..stores import unpack


def in_tasks(ask: ReadOptions, by: list[str]) -> tuple[Counted, dict[str, StoreError]]:
    tasks = job.tasks_of(ask, by)
    return job.joined(tasks, [told(answer_of(job.count, task)) for task in tasks], by)


def here(ask: ReadOptions, by: list[str], jobs: int = 1) -> Counted:
    return count_here(ask, by, jobs, lambda _: None)


def all_of(found: Counted) -> tuple[object, ...]:
    return found.stats.by, found.stats.groups, found.damage


@pytest.mark.slow
def test_parts_of_a_log_are_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted here, on two cores, in tasks."""
    roots = [unpack(name, tmp_path) for name in ("4.9.7-killed-page", "5.3.3-v2")]
    ask = ReadOptions(tuple(map(str, roots)))
    monkeypatch.setattr(job, "SPLIT_BYTES", 30_000)
    monkeypatch.setattr(log_rows, "split_bytes_for", lambda *_: 30_000)
    found, unread = in_tasks(ask, ["store"])
    assert not unread
    for jobs in (1, 2):
        assert all_of(here(ask, ["store"], jobs)) == all_of(found)
    (lost,) = found.damage
    assert (lost.store, lost.size) == (str(roots[0]), 4109)
    for root in roots:
        log = commit_log_of(Layout.open(root))
        with log.queue:
            records = sum(len(item) for item in log.scan() if isinstance(item, Batch))
        assert found.stats.groups[(str(root),)].records == records
    for row in found.stats.rows():
        assert list(errors(schema_of("stats"), {"type": "stats", **row})) == []


def test_at_a_rate_one_process_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several would read so much each."""
    ask = ReadOptions((str(unpack("5.3.3-v2", tmp_path)),))
    monkeypatch.setattr(log_rows, "split_bytes_for", lambda *_: 30_000)
    monkeypatch.setattr(log_rows, "Forked", None)
    with at_rate(1 << 40):
        assert here(ask, [], 2).stats.groups[()].records


def test_a_range_of_times(tmp_path: Path) -> None:
    root = (str(unpack("5.3.3-v2", tmp_path)),)
    (whole,) = here(ReadOptions(root), []).stats.groups.values()
    middle = int(np.mean([whole.first_ms, whole.last_ms]))
    before = here(ReadOptions(root, times=TimeRange(0, middle)), [])
    behind, _ = in_tasks(ReadOptions(root, times=TimeRange(middle, LATEST_MS)), [])
    before.stats.merge(behind.stats)
    assert before.stats.groups == {(): whole}


def test_a_store_that_is_gone_meanwhile_is_no_store_without_records(tmp_path: Path) -> None:
    root = unpack("5.3.3-v2", tmp_path)
    tasks = job.tasks_of(ReadOptions((str(root),)), ["topic"])
    (root / "commitlog").rename(tmp_path / "elsewhere")
    found, unread = job.joined(tasks, [told(answer_of(job.count, t)) for t in tasks], ["topic"])
    assert (found.stats.groups, [type(error) for error in unread.values()]) == ({}, [Refused])
    with pytest.raises(Refused):
        here(ReadOptions((str(root),)), ["topic"])


def test_bytes_that_the_disk_does_not_give_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On two cores, too, where another process has met them."""
    root = unpack("5.3.3-v2", tmp_path)
    monkeypatch.setattr(log_rows, "split_bytes_for", lambda *_: 30_000)
    fail_here(min((root / "commitlog").iterdir()), 4096, 512)
    for jobs in (1, 2):
        with pytest.raises(Unreadable):
            here(ReadOptions((str(root),), on_damage=FAIL_UNREADABLE), ["topic"], jobs)


def test_counts_with_damage_survive_their_way(tmp_path: Path) -> None:
    root = str(unpack("4.9.7-killed-page", tmp_path))
    found = here(ReadOptions((root,)), ["topic", "hour"])
    assert found.damage == [Damage(root, 364632, 4109, found.damage[0].reason)]
    again = Counted.from_json(root, ["topic", "hour"], found.to_json())
    assert all_of(again) == all_of(found)
    assert log_columns.STORE not in found.stats.by
