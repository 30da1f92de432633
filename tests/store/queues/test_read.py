"""Consume queues: ends and beginnings against the truth; holes, pre-fill, dead units, large files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.consume_queue import PRE_FILL, UNIT, UNIT_BYTES
from mqstore.formats.derive import dtype_of
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.layout import Layout, queue_directories
from mqstore.store.errors import NotFound
from mqstore.store.index.read import sizes_of
from mqstore.store.queues.read import ConsumeQueue, ConsumeQueues, QueueSummary, Unit, offset_at
from mqstore.store.queues.units import WINDOW_UNITS

from ...stores import truth
from ..choices import clean_where

LARGE_UNITS = 300_000

# Stores whose queues are no files, or of another kind: the log is asked instead.
OTHER_QUEUES = {"rocksdb", "batchcq"}
CLEAN = clean_where(lambda t: "queues" in t and not OTHER_QUEUES & set(t["name"].split("-")))


def unit(physical_offset: int, size: int = 100, tags_code: int = 0) -> bytes:
    return UNIT.build({"physical_offset": physical_offset, "size": size, "tags_code": tags_code})


def units(numbers: Iterable[int]) -> bytes:
    return b"".join(unit(100 * number) for number in numbers)


PRE = UNIT.build(PRE_FILL)
NONE = bytes(UNIT_BYTES)


def make(root: Path, files: dict[int, bytes], size_units: int = 10) -> ConsumeQueue:
    directory = root / "consumequeue" / "T" / "0"
    directory.mkdir(parents=True)
    for first, content in files.items():
        with (directory / file_name(first * UNIT_BYTES)).open("wb") as file:
            file.write(content)
            file.truncate(size_units * UNIT_BYTES)
    return ConsumeQueue.open(Layout.open(root), "T", 0)


@pytest.mark.few(10)
@pytest.mark.parametrize("name", CLEAN)
def test_summaries_are_what_the_broker_says(name: str, store: Callable[[str], Path]) -> None:
    known = truth(name)
    loaded = known["load"]["after_load"]
    queues, broker_4 = ConsumeQueues(Layout.open(store(name))), known["broker_version"].startswith("4.")
    found = [
        queue.summary(loaded["min_phy_offset"], loaded["max_phy_offset"], broker_4=broker_4)
        for queue in (queues.open(each.topic, each.queue_id) for each in queues)
    ]
    # An LMQ with "/" in its name: the broker answers for it, but keeps (4.9) or makes (5.x) no
    # directory where a start would find it (spec 2.9, B12).
    expected = {
        key: (bounds["min_offset"], bounds["max_offset"])
        for key, bounds in known["queues"].items()
        if key.count("/") == 1
    }
    assert {f"{q.topic}/{q.queue_id}": (q.min_offset, q.max_offset) for q in found} == expected


@pytest.mark.few(10)
@pytest.mark.parametrize("name", CLEAN)
def test_units_are_the_broker_s(name: str, store: Callable[[str], Path]) -> None:
    queues = ConsumeQueues(Layout.open(store(name)))
    for query in truth(name)["get_queries"]:
        if "compaction" in name or not query["physical_offsets"]:
            continue
        with queues.open(query["topic"], query["queue_id"]) as queue:
            first = query["queue_offsets"][0]
            found = [queue.unit(first + i) for i in range(len(query["physical_offsets"]))]
        assert [u and u.physical_offset for u in found] == query["physical_offsets"], query


def test_columns_and_units_agree(store: Callable[[str], Path]) -> None:
    layout = Layout.open(store("4.3.1-clean"))
    for name in queue_directories(layout.consume_queue):
        with ConsumeQueue.open(layout, name.topic, name.queue_id) as queue:
            for first, window in queue.units(0, 1 << 40):
                assert [queue.unit(first + i) for i in range(len(window))] == [
                    Unit(first + i, *row) for i, row in enumerate(window.tolist())
                ]


def test_where_a_queue_ends(tmp_path: Path) -> None:
    queue = make(tmp_path, {0: units(range(10)), 10: units(range(10, 14))})
    assert queue.summary() == QueueSummary("T", 0, 0, 14, 1300, 1400)
    assert queue.summary(log_start=450) == QueueSummary("T", 0, 5, 14, 1300, 1400)
    assert queue.summary(log_start=1300).min_offset == 13
    assert queue.summary(log_start=1301).min_offset == 14
    assert queue.summary(log_start=1301, broker_4=True).min_offset == 0
    assert queue.unit(13) == Unit(13, 1300, 100, 0)
    missing = queue.unit(14)
    assert missing is not None and not missing.valid
    assert queue.unit(20) is queue.unit(-1) is None


def test_dead_units_behind_the_log_s_end_do_not_count(tmp_path: Path) -> None:
    queue = make(tmp_path, {0: units(range(10)), 10: units(range(10, 14))})
    ends = {end: queue.summary(0, end).max_offset for end in (0, 1, 900, 901, 1000, 1200, 1301)}
    assert ends == {0: 0, 1: 1, 900: 9, 901: 10, 1000: 10, 1200: 12, 1301: 14}


def test_an_empty_last_file_holds_nothing(tmp_path: Path) -> None:
    queue = make(tmp_path, {0: units(range(10)), 10: b""})
    assert queue.summary().max_offset == 10


def test_a_queue_without_a_unit(tmp_path: Path) -> None:
    assert make(tmp_path, {30: b""}).summary() == QueueSummary("T", 0, 30, 30)


def test_pre_fill_is_no_message(tmp_path: Path) -> None:
    queue = make(tmp_path, {10: PRE * 4 + units([70, 71])})
    assert queue.summary() == QueueSummary("T", 0, 14, 16, 7100, 7200)
    assert queue.summary(log_start=7050).min_offset == 15


def test_pre_fill_alone_ends_nowhere(tmp_path: Path) -> None:
    assert make(tmp_path, {10: PRE * 4}).summary() == QueueSummary("T", 0, 14, 14)


def test_a_hole_does_not_end_a_queue(tmp_path: Path) -> None:
    content = units(range(3)) + NONE * 3 + units(range(6, 9)) + unit(5, -5) + b""
    assert make(tmp_path, {0: content}).summary().max_offset == 9


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("count", [0, 1, 3276, 3277, 100_000, LARGE_UNITS - 1, LARGE_UNITS])
def test_the_end_of_a_large_file(tmp_path: Path, count: int, sparse: bool) -> None:
    content = np.zeros(count, dtype_of(UNIT))
    content["physical_offset"], content["size"] = np.arange(count) * 100, 100
    rest = b"" if sparse else bytes((LARGE_UNITS - count) * UNIT_BYTES)
    queue = make(tmp_path, {0: content.tobytes() + rest}, LARGE_UNITS)
    summary = queue.summary()
    assert (summary.min_offset, summary.max_offset) == (0, count)
    windows = list(queue.units(0, count))
    assert sum(len(window) for _, window in windows) == count
    assert all(len(window) <= WINDOW_UNITS for _, window in windows)


def test_a_hole_in_a_large_sparse_file_does_not_end_it(tmp_path: Path) -> None:
    content = bytearray(units(range(20_000)))
    content[100_000:300_000] = bytes(200_000)
    assert make(tmp_path, {0: bytes(content)}, LARGE_UNITS).summary().max_offset == 20_000


BACK_AND_FORTH = [
    *(96, 98, 101, 103, 106, 109, 112, 108, 108, 110, 111, 114, 114, 115, 115, 117, 119, 120, 122, 118),
    *(118, 114, 115, 115, 118, 119, 121, 123, 124, 126, 127, 127, 128, 124, 120, 122, 123, 124, 124, 124),
    *(125, 126, 127, 128, 130, 132, 133, 129, 132, 135),
]
ANSWERS = [
    *(0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 9, 10, 11, 11, 11, 13, 15, 15, 16, 25, 26, 26, 27, 27, 28),
    *(40, 41, 42, 43, 44, 44, 48, 48, 49, 49, 49, 50, 50),
]
"""Of 5.1.4, 5.3.3 and 5.5.1 to the times from 95 on."""


def test_where_times_go_back_the_file_and_the_way_of_the_bisection_decide(tmp_path: Path) -> None:
    files = {first: units(range(first, min(50, first + 20))) for first in (0, 20, 40)}
    with make(tmp_path, files, 20) as queue:
        summary = queue.summary()

        def stored(position: int) -> int | None:
            return BACK_AND_FORTH[position // 100]

        assert [offset_at(queue, summary, time_ms, stored) for time_ms in range(95, 138)] == ANSWERS
        expired = queue.summary(2500)

        def left(position: int) -> int | None:
            return None if position < 2500 else stored(position)

        assert [offset_at(queue, expired, time_ms, left) for time_ms in (95, 110, 121, 200)] == [25, 25, 26, 50]


def test_only_numbers_are_queues(tmp_path: Path) -> None:
    base = tmp_path / "consumequeue"
    for path in ("B/10", "B/9", "B/x", "B/-1", "B/007", f"B/{1 << 31}", "A/0", "%LMQ%a/b/0", "C"):
        (base / path).mkdir(parents=True)
    (base / "file").write_bytes(b"")
    (base / "B" / "3").write_bytes(b"")
    found = [(q.topic, q.queue_id) for q in queue_directories(base)]
    assert found == [("A", 0), ("B", 9), ("B", 10)]
    assert list(queue_directories(tmp_path / "none")) == []


def test_a_queue_that_is_not_there(tmp_path: Path) -> None:
    make(tmp_path, {0: b""})
    queues = ConsumeQueues(Layout.open(tmp_path))
    with pytest.raises(NotFound, match="no queue 1 of topic T"):
        queues.open("T", 1)
    for topic in ("U", "", "..", "T/../T", "/", "T\0", ".", "a" * 5000):
        with pytest.raises(NotFound, match="no such topic"):
            queues.open(topic, 0)


def test_a_slash_in_a_name_can_be_opened_by_name(tmp_path: Path) -> None:
    make(tmp_path, {0: units(range(2))})
    (tmp_path / "consumequeue" / "T").rename(tmp_path / "consumequeue" / "b")
    (tmp_path / "consumequeue" / "%LMQ%a").mkdir()
    (tmp_path / "consumequeue" / "b").rename(tmp_path / "consumequeue" / "%LMQ%a" / "b")
    assert ConsumeQueues(Layout.open(tmp_path)).open("%LMQ%a/b", 0).summary().max_offset == 2


def test_sizes_are_the_files_or_the_configuration_s(store: Callable[[str], Path]) -> None:
    root = store("4.3.1-clean")
    sizes = sizes_of(Layout.open(root))
    assert sizes.commit_log == (262144, "files")
    assert sizes.consume_queue == (1000, "files")
    assert (sizes.index_slots, sizes.index_items) == ((97, "files"), (400, "files"))
    assert sizes.timer_log == (104857600, "default")
    config = BrokerConfig().with_set(
        ["mapedFileSizeCommitLog=1024", "mappedFileSizeConsumeQueue=1001", "maxHashSlotNum=5"]
    )
    sizes = sizes_of(Layout.open(root, config))
    assert sizes.commit_log == (1024, "configuration")
    assert sizes.consume_queue == (1020, "configuration")
    assert sizes.index_slots == (5, "configuration")


def test_a_torn_file_is_no_size(tmp_path: Path) -> None:
    """A file that ends inside a unit; a recovery that took its length for a file's had no end."""
    path = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(93))
    assert sizes_of(Layout.open(tmp_path)).consume_queue == (6_000_000, "default")
