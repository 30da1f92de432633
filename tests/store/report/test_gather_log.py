"""What is counted beside the checks: the same as the truth tells, however the log is cut into parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.findings.findings import Finding
from mqstore.store.findings.next_commands import NOTHING_GIVEN
from mqstore.store.inspect.stats import Stats
from mqstore.store.log.commit_log import Batch
from mqstore.store.log.message import Mark
from mqstore.store.report.gather import (
    ALL_QUEUES,
    MAP_COLUMNS,
    GroupedSums,
    LogPicture,
    LogPlaces,
    PlaceContent,
    Sums,
    _commands,
    summed,
)
from mqstore.store.search.store import StoreReader
from mqstore.store.verify import log_pass
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Status, Verdict

Unpack = Callable[[str], Path]


def picture_of(path: Path, jobs: int = 1) -> LogPicture:
    with StoreReader(path) as store:
        found = verify(store, Scope(watch=LogPicture), jobs=jobs).watched
    assert isinstance(found, LogPicture)
    return found.done()


def by_queue(picture: LogPicture) -> Counter[tuple[str, int]]:
    rows = picture.queues.rows()
    names = picture.names
    keys = zip(rows.group.tolist(), rows.cell.tolist(), strict=True)
    return Counter(
        {(names[group], cell): count for (group, cell), count in zip(keys, rows.records.tolist(), strict=True)}
    )


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["5.3.3-clean", "4.9.7-killed-page", "5.1.4-v2", "5.5.0-ipv6"])
def test_counts_are_those_of_stats(name: str, store: Unpack) -> None:
    root = store(name)
    picture = picture_of(root)
    stats = Stats(["topic", "queue_id"])
    with StoreReader(root) as opened:
        for item in opened.log.scan():
            if isinstance(item, Batch) and item.mark <= Mark.AFTER_DAMAGE:
                stats.add(item)
    wanted = {key: group.records for key, group in stats.groups.items()}
    assert by_queue(picture) == wanted
    size = sum(group.size_bytes for group in stats.groups.values())
    assert picture.state[PlaceContent.RECORDS].sum() == size == picture.size_bytes.sum()
    times = picture.times.rows()
    assert times.records.sum() == picture.sizes.sum() == picture.records_at.sum()
    assert times.bytes.sum() == size


def test_every_byte_of_the_log_has_a_place(store: Unpack) -> None:
    root = store("5.3.3-killed-page")
    picture = picture_of(root)
    with StoreReader(root) as opened:
        total = sum(file.size for file in opened.log_files.files)
    assert picture.state.sum() == total
    assert picture.state[PlaceContent.DAMAGE].sum() > 0 and picture.state[PlaceContent.ZEROS].sum() > 0


def test_parts_of_a_log_are_the_whole(store: Unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes, several parts: nothing is counted twice, or not at all."""
    monkeypatch.setattr(log_pass, "CUT_BYTES", 16 << 10)
    root = store("5.3.3-clean")
    alone, together = picture_of(root), picture_of(root, jobs=3)
    assert by_queue(alone) == by_queue(together)
    assert (alone.state == together.state).all()
    assert (alone.sizes == together.sizes).all() and (alone.age == together.age).all()
    assert alone.times.rows().records.sum() == together.times.rows().records.sum()
    assert alone.step == together.step


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1 << 33), st.integers(0, 9)), min_size=1))
def test_sums_are_sums(rows: list[tuple[int, int, int]]) -> None:
    """By sorting or without, added at once or one by one."""
    group, cell, size = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    position = np.arange(len(rows), dtype=np.int64)
    found = Sums(1 << 10, lambda rows: (rows.group, rows.cell))
    found.add(summed(group, cell, size, position))
    for n in range(len(rows)):
        one = slice(n, n + 1)
        found.add(summed(group[one], cell[one], size[one], position[one]))
    told = found.rows()
    keys = zip(told.group.tolist(), told.cell.tolist(), strict=True)
    counts = Counter((g, c) for g, c, _ in rows)
    assert dict(zip(keys, told.records.tolist(), strict=True)) == {k: 2 * n for k, n in counts.items()}
    assert told.bytes.sum() == 2 * size.sum()
    assert told.first.min() == 0 and told.last.max() == len(rows) - 1


def test_memory_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more sums than there is room for, times get coarser, then small topics one; queues at once."""
    picture = LogPicture(LogPlaces.of(0, 1 << 20, 1 << 20))
    picture.times._most, picture.queues._most = 500, 1000
    rng = np.random.default_rng(1)
    total = 0
    for step in range(20):
        count = 1000
        total += count
        group = rng.integers(1, 900, count)
        cell = rng.integers(0, 4_000_000, count) + step
        one = np.ones(count, np.int64)
        for sums in (picture.times, picture.queues):
            sums.add(GroupedSums(group, cell, one, one, one, one))
            sums._join()
    times, queues = picture.times.rows(), picture.queues.rows()
    assert len(times.group) <= 500 and times.records.sum() == total
    assert len(queues.group) <= 1000 and (queues.cell == ALL_QUEUES).all()


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 42), st.integers(1, 1 << 31))
def test_places_cover_the_log(start: int, size: int, file_bytes: int) -> None:
    places = LogPlaces.of(start, start + size, file_bytes)
    assert places.at(start) == 0 and places.at(start + size - 1) < places.total
    edges = places.edges(0, places.total - 1)
    assert edges[0] == start and edges[-1] >= start + size
    for place in (0, 1, MAP_COLUMNS - 1, places.total - 1):
        assert places.at(int(edges[place])) == place or edges[place] == edges[place + 1]


def test_no_command_tidies_a_store_that_no_plan_is_made_for() -> None:
    """As in the text of verify."""
    verdict = Verdict(Status.CLEAN, [Finding.of("I-102", "/s/index/1", "is odd")], 1, 1, 0.0)
    assert _commands(verdict, "/s", NOTHING_GIVEN)[0]
    for unfit in ({"unmendable": "a DLedger log beside a RocksDB"}, {"live": True}, {"unread": ["the index"]}):
        assert _commands(replace(verdict, **unfit), "/s", NOTHING_GIVEN) == ([], True)
