"""Messages put into stores whose queues are in a RocksDB, alone or besides files."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.formats.message import SysFlag
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput, StoreError, Unclean
from mqstore.store.log.message import read_message
from mqstore.store.put import database as database_module
from mqstore.store.put.message_columns import columns_of
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.producer import ProducerOptions, as_stored
from mqstore.store.put.writer import Stored, StoreWriter, WriterOptions
from mqstore.store.queues.hybrid import open_queues
from mqstore.store.queues.rocksdb import RocksdbConsumeQueues

from ... import slices
from ...stores import config, unpack
from ...verdict import apply_recovery, said_of
from .faults import CountingFiles, FailingFiles, Killed, KilledFiles, PowerLossFiles

pytestmark = pytest.mark.long

ALONE, BESIDE, ASIDE = "5.3.3-rocksdb", "5.5.1-combine-same", "5.5.1-combine-lmq"
VERSIONS = {ALONE: "5.3", BESIDE: "5.5.1", ASIDE: "5.5.1"}
STORES = pytest.mark.parametrize("name", list(VERSIONS))
NOW = 1_795_400_000_000


def opened(root: Path, options: BrokerConfig, files: Files | None = None) -> StoreWriter:
    return StoreWriter.open(root, options, WriterOptions(wait_seconds=0), files=files, clock=lambda: NOW)


def some(count: int, body: bytes = b"x" * 300) -> list[NewMessage]:
    return [
        NewMessage(b"TopicA", body + b"%d" % n, queue_id=n % 2, properties=b"TAGS\1t\2", store_timestamp=NOW)
        for n in range(count)
    ]


def append(root: Path, options: BrokerConfig, files: Files | None, done: list[Stored]) -> None:
    """Some one by one, then many at once; what is acknowledged is in `done`."""
    with opened(root, options, files) as store:
        for message in some(3):
            stored = store.append(message)
            store.sync()
            done.append(stored)
        rows = store.append_columns(columns_of(some(40, b"y" * 200))).rows()
        store.sync()
        done += rows


def assert_there(root: Path, options: BrokerConfig, stored: list[Stored]) -> None:
    """Each message is in its queue, in the database too, and verify finds nothing."""
    layout = Layout.open(root, options)
    queues, problem = open_queues(layout)
    assert not problem
    database = RocksdbConsumeQueues(layout)
    with layout.commit_log_files() as log:
        for row in stored:
            for there in (queues, database):
                unit = there.open(row.topic, row.queue_id).unit(row.queue_offset)
                assert unit is not None
                assert (unit.physical_offset, unit.size) == (row.physical_offset, row.total_size)
            assert read_message(log, row.physical_offset).queue_offset == row.queue_offset
    queues.close()
    database.close()


def ends(root: Path, options: BrokerConfig) -> dict[tuple[str, int], int]:
    queues, _ = open_queues(Layout.open(root, options))
    found = {(each.topic, each.queue_id): each.max_offset for each in queues.summaries()}
    queues.close()
    return found


@STORES
def test_put_and_put_again(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    options = BrokerConfig(config(name, root))
    before = ends(root, options)
    done: list[Stored] = []
    append(root, options, None, done)
    append(root, options, None, done)
    assert_there(root, options, done)
    for queue in (0, 1):
        numbers = [row.queue_offset for row in done if row.queue_id == queue]
        assert numbers == list(range(before["TopicA", queue], ends(root, options)["TopicA", queue]))
    assert not (root / "abort").exists()
    said = said_of(root, options, VERSIONS[name])
    assert not said.verdict.findings, [f.message for f in said.verdict.findings]


def test_the_database_follows_a_long_put(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Units go into the database before many log files, or units, have come together."""
    root = unpack(BESIDE, tmp_path)
    options = BrokerConfig(config(BESIDE, root))
    monkeypatch.setattr(database_module, "_UNITS_MAX", 50)
    files = CountingFiles()
    with opened(root, options, files) as store:
        for _ in range(3):
            store.append_columns(columns_of(some(60)))
        switched = [step for step in files.steps if step == ("rename", "000000.dbtmp")]
        assert len(switched) >= 2
    assert not said_of(root, options, "5.5.1").verdict.findings


def test_light_queues_of_the_database_go_on(tmp_path: Path) -> None:
    root = unpack(ASIDE, tmp_path)
    options = BrokerConfig(config(ASIDE, root))
    before = ends(root, options)
    name, number = next((t, n) for (t, _), n in before.items() if t.startswith("%LMQ%"))
    named = f"INNER_MULTI_DISPATCH\1{name}\2".encode()
    with opened(root, options) as store:
        for message in some(2):
            store.append(replace(message, properties=named))
    assert ends(root, options)[name, 0] == number + 2
    assert not (root / "consumequeue" / name).exists()
    assert not said_of(root, options, "5.5.1").verdict.findings


def test_what_is_refused(tmp_path: Path) -> None:
    root = unpack(ALONE, tmp_path)
    options = BrokerConfig(config(ALONE, root))
    with opened(root, options) as store:
        with pytest.raises(InvalidInput, match="no topic nobody in the RocksDB of topics"):
            store.append(NewMessage(b"nobody", b"x"))
        for asked in (ProducerOptions(delay_level=3), ProducerOptions(half=True)):
            with pytest.raises(InvalidInput, match="no topic nobody in the RocksDB of topics"):
                as_stored(NewMessage(b"nobody", b"x", properties=b"PGROUP\1g\2"), asked, store)
        inner = NewMessage(b"TopicA", b"x", sys_flag=SysFlag.INNER_BATCH, properties=b"INNER_NUM\0011\2")
        with pytest.raises(InvalidInput, match="batch"):
            store.append(inner)
    assert not (root / "abort").exists()
    with pytest.raises(StoreError, match="do not use that directory"):
        StoreWriter.open(root, options, WriterOptions(as_broker="4.9", wait_seconds=0))


@STORES
def test_a_database_behind_the_log(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    options = BrokerConfig(config(name, root))
    place = Layout.open(root, options).queue_database
    assert place is not None
    old = tmp_path / "old"
    shutil.copytree(place, old)
    append(root, options, None, [])
    for path in place.iterdir():
        if path.is_file():
            path.unlink()
    for path in old.iterdir():
        if path.is_file():
            shutil.copy2(path, place / path.name)
    with pytest.raises(Unclean, match=r"behind the log|ends at") as caught:
        opened(root, options)
    assert "run: mqstore re" in str(caught.value)


THOROUGHLY = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"])


def chosen(steps: list[tuple[str, str]], every: int) -> list[int]:
    """Steps to try: all of a slice, or two, one of them where the database is written."""
    if every == 1:
        return list(slices.pick(range(len(steps)), "steps of put into a RocksDB"))
    switch = steps.index(("rename", "000000.dbtmp"))
    return [len(steps) // 3, switch]


def assert_nothing_lost(root: Path, options: BrokerConfig, done: list[Stored], version: str) -> None:
    try:
        opened(root, options).close()
    except Unclean:
        apply_recovery(said_of(root, options, version), options)
    assert_there(root, options, done)
    with opened(root, options) as store:
        after = store.append(some(1)[0])
    assert_there(root, options, [*done, after])
    assert not said_of(root, options, version).verdict.findings


@pytest.mark.few(1)
@THOROUGHLY
@STORES
@pytest.mark.parametrize("layer", [KilledFiles, PowerLossFiles])
def test_killed_at_each_step(layer: Callable[[int, int], KilledFiles], name: str, every: int, tmp_path: Path) -> None:
    before = unpack(name, tmp_path / "before")
    files = CountingFiles()
    whole = tmp_path / "whole" / name
    shutil.copytree(before, whole)
    append(whole, BrokerConfig(config(name, whole)), files, [])
    for number in chosen(files.steps, every):
        root = tmp_path / str(number) / name
        shutil.copytree(before, root)
        options, done = BrokerConfig(config(name, root)), list[Stored]()
        killed = layer(number, slices.SEED)
        with pytest.raises(Killed):
            append(root, options, killed, done)
        if isinstance(killed, PowerLossFiles):
            killed.lose()
        assert_nothing_lost(root, options, done, VERSIONS[name])
        shutil.rmtree(root)


def test_a_full_disk_while_the_database_is_written(tmp_path: Path) -> None:
    before = unpack(BESIDE, tmp_path / "before")
    whole = tmp_path / "whole" / BESIDE
    shutil.copytree(before, whole)
    files = CountingFiles()
    append(whole, BrokerConfig(config(BESIDE, whole)), files, [])
    steps = [n for n, (_, file) in enumerate(files.steps) if file.endswith((".sst", ".dbtmp"))]
    for number in (steps[0], steps[-1]):
        root = tmp_path / str(number) / BESIDE
        shutil.copytree(before, root)
        options, done = BrokerConfig(config(BESIDE, root)), list[Stored]()
        with pytest.raises(StoreError):
            append(root, options, FailingFiles(number, errno.ENOSPC), done)
        assert (root / "abort").exists()
        assert_nothing_lost(root, options, done, "5.5.1")
