"""Many messages at once: the same store as one by one, in steps, with what a step refuses."""

from __future__ import annotations

from pathlib import Path
from time import sleep

import numpy as np
import pytest

from mqstore.formats.derive import Ragged
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput
from mqstore.store.log.write import LogWriter
from mqstore.store.put import bulk
from mqstore.store.put import message_columns as record_writer
from mqstore.store.put.message_columns import columns_of as message_columns
from mqstore.store.put.new_message import NewMessage

from ..real_log import columns_of, records_of
from .writing import NOW, TINY, VERSIONS, assert_whole, messages, put, store_contents, writer


@pytest.mark.parametrize("version", VERSIONS)
def test_any_way_of_appending_gives_the_same_store(version: str, tmp_path: Path) -> None:
    found = messages(90, ipv6=version != "4.3")
    put(tmp_path / "single", found, version)
    with writer(tmp_path / "mixed", version) as store:
        store.append_columns(message_columns(found[:40]))
        store.append(found[40])
        store.append(found[41])
        store.append_columns(message_columns(found[42:]))
    for part in (found[:1], found[1:33], found[33:]):
        with writer(tmp_path / "sessions", version) as store:
            store.append_columns(message_columns(part))
    expected = store_contents(tmp_path / "single")
    assert store_contents(tmp_path / "mixed") == expected
    sessions = store_contents(tmp_path / "sessions")
    if version == "4.3":
        # what an old broker fills a BLANK with is in its memory, which a new process has not
        for path in (tmp_path / "sessions", tmp_path / "single"):
            assert [r.body for r in records_of(Layout.open(path, TINY))] == [m.body for m in found]
    topics = "config/topics.json"
    for name in expected.keys() - {topics, topics + ".bak"}:
        if version != "4.3" or not name.startswith("commitlog"):
            assert sessions[name] == expected[name], name
    assert_whole(tmp_path / "sessions")


@pytest.mark.parametrize("buffer_bytes", [1, 700, 2000])
def test_a_log_that_is_slow(buffer_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are encoded far ahead of what is written, over the ends of many files."""
    found = messages(60)
    put(tmp_path / "single", found, "5.3")
    monkeypatch.setattr(bulk, "STEP_ROWS", 25)
    monkeypatch.setattr(record_writer, "BUFFER_BYTES", buffer_bytes)
    write = LogWriter.write

    def late(log: LogWriter, position: int, data: memoryview) -> None:
        sleep(0.002)
        write(log, position, data)

    monkeypatch.setattr(LogWriter, "write", late)
    with writer(tmp_path / "slow", "5.3") as store:
        store.append_columns(message_columns(found))
    assert len(list((tmp_path / "slow/commitlog").iterdir())) > 3
    assert store_contents(tmp_path / "slow") == store_contents(tmp_path / "single")


@pytest.mark.slow
def test_many_steps_and_buffers(tmp_path: Path) -> None:
    """More rows than one step, more bytes than one buffer, files that end inside of both."""
    config = BrokerConfig({"mappedFileSizeCommitLog": str(3 << 20), "maxIndexNum": "18000"})
    count = 24_000
    columns = {
        "topic": Ragged.of([b"T%d" % (n % 7) for n in range(count)]),
        "body": Ragged.of([b"%d" % n * (n % 60) for n in range(count)]),
        "properties": Ragged.of([b"UNIQ_KEY\1%d\2" % n for n in range(count)]),
        "queue_id": np.arange(count) % 4,
    }
    with writer(tmp_path, config=config) as store:
        stored = store.append_columns(columns)
    records = columns_of(Layout.open(tmp_path, config))
    assert records.ragged("body").tolist() == columns["body"].tolist()  # type: ignore[attr-defined]
    assert (records.ints("physical_offset") == stored.physical_offset).all()
    assert (records.ints("total_size") == stored.total_size).all()
    assert len(list((tmp_path / "commitlog").iterdir())) > 1
    assert_whole(tmp_path, config)


def test_what_is_refused_in_a_later_step_costs_no_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "STEP_ROWS", 8)
    found = messages(30)
    with writer(tmp_path) as store:
        with pytest.raises(InvalidInput, match="no broker accepts"):
            store.append_columns(message_columns([*found[:20], NewMessage(b"..", b"x")]))
        store.append(found[20])
    records = records_of(Layout.open(tmp_path, TINY))
    assert [r.body for r in records] == [m.body for m in [*found[:16], found[20]]]
    assert_whole(tmp_path)
    assert not (tmp_path / "abort").exists()


def test_what_is_cut_off_between_steps_is_left_for_recover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "STEP_ROWS", 8)
    times = iter([NOW, NOW])

    def clock() -> int:
        for time in times:
            return time
        raise KeyboardInterrupt

    store = writer(tmp_path)
    store.clock = clock
    with pytest.raises(KeyboardInterrupt), store:
        store.append_columns(message_columns(messages(30)))
    assert (tmp_path / "abort").exists()
