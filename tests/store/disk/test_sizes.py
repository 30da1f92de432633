"""Sizes of files: what is configured, else what the files have, else the default."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.layout import Layout
from mqstore.store.disk.sizes import Size, commit_log_size, consume_queue_size, timer_log_size


def queue_of(root: Path, number: int, *sizes: int) -> None:
    """A queue with files of these sizes, one behind the other."""
    folder = root / "consumequeue" / "T" / str(number)
    folder.mkdir(parents=True)
    start = 0
    for size in sizes:
        (folder / file_name(start)).write_bytes(bytes(size))
        start += size


def test_a_store_without_files_has_the_default_sizes(tmp_path: Path) -> None:
    for layout in (Layout.of(tmp_path), Layout.of(tmp_path / "nowhere")):
        assert commit_log_size(layout) == Size(1 << 30, "default")
        assert consume_queue_size(layout) == Size(300_000 * 20, "default")
        assert timer_log_size(layout) == Size(100 << 20, "default")


@pytest.mark.parametrize(
    ("queues", "wanted"),
    [
        ([(400,), (400, 400), (600,)], Size(400, "files")),
        ([(600,), (400,)], Size(600, "files")),  # of two that are as frequent the larger one
        ([(400,), (600,)], Size(600, "files")),
        ([(399,), (401,), (0,)], Size(6_000_000, "default")),  # none of whole units
        ([(399,), (400,)], Size(400, "files")),
        ([()], Size(6_000_000, "default")),
    ],
)
def test_what_most_queues_have_is_their_size(queues: list[tuple[int, ...]], wanted: Size, tmp_path: Path) -> None:
    """A file of half a unit was cut, or is none: it says nothing."""
    for number, sizes in enumerate(queues):
        queue_of(tmp_path, number, *sizes)
    assert consume_queue_size(Layout.of(tmp_path)) == wanted


def test_a_configuration_holds_whatever_the_files_have(tmp_path: Path) -> None:
    """Of a queue in whole units, as a broker rounds it up."""
    queue_of(tmp_path, 0, 400)
    for folder in ("commitlog", "timerlog"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file_name(0)).write_bytes(bytes(100))
    names = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mappedFileSizeTimerLog")
    layout = Layout.of(tmp_path, BrokerConfig(dict.fromkeys(names, "510")))
    assert commit_log_size(layout) == timer_log_size(layout) == Size(510, "configuration")
    assert consume_queue_size(layout) == Size(520, "configuration")
    plain = Layout.of(tmp_path)
    assert commit_log_size(plain) == timer_log_size(plain) == Size(100, "files")
