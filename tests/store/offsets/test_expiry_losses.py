"""Messages that groups lose with files of the log, against the places of the messages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.offsets.expiry import ExpiringFile, LogFile, Losses, Why, losing, undelivered
from mqstore.store.offsets.lag import behind_log
from mqstore.store.search.find import find
from mqstore.store.search.selection import Selection
from mqstore.store.search.store import StoreReader, silent
from mqstore.store.start import simulate

from ... import stores
from ..disk.test_lock import other_process


@pytest.mark.parametrize(("name", "topic"), [("5.3.3-clean", "orders"), ("5.1.4-batchcq", "BatchTopic")])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_messages_before_the_boundary_are_lost(name: str, topic: str, share: float, tmp_path: Path) -> None:
    """Those at offset 5 and later of each queue whose records begin in what goes."""
    root = stores.unpack(name, tmp_path)
    table = ",".join(f"{queue}:5" for queue in range(2))
    text = f'{{"offsetTable":{{"{topic}@late":{{{table}}},"{topic}@done":{{0:9999}}}}}}'
    (root / "config" / "consumerOffset.json").write_text(text)
    with StoreReader(root) as store:
        end = int(store.log_end.position * share)
        file = LogFile("f", 0, end, 0)
        found = losing(store, [ExpiringFile(file, 0, 77, Why.TIME, 0)]).rows
        lost = [
            one.message
            for one in find(store, Selection(topic=topic))
            if one.message.position < end and one.message.queue_id < 2
        ]
        wanted = sum(message.queue_offset >= 5 for message in lost)
    if name.endswith("clean"):
        assert sum(row.messages for row in found) == wanted
    assert bool(found) == bool(wanted)
    for row in found:
        assert (row.group, row.topic, row.first_timestamp) == ("late", topic, 77)
        assert 0 < row.messages <= row.unread
        assert share < 1 or row.messages == row.unread


Waiting = dict[int | None, int]


def waiting(root: Path, after_ms: int = 0, config: BrokerConfig | None = None) -> tuple[Waiting, list[str]]:
    """What brokers lose if the whole log goes some time after its newest record, and why it may be more."""
    lacks: list[str] = []
    with StoreReader(root, config) as store:
        now_ms = store.log_end.store_timestamp or 0
        going = ExpiringFile(LogFile("f", 0, store.log_end.position, 0), 0, now_ms + after_ms, Why.TIME, now_ms)
        found = undelivered(store, [going], now_ms, silent, lacks.append)
        assert not undelivered(store, [going._replace(file=LogFile("f", 0, 0, 0))], now_ms, silent, silent)
    assert all(row.first_timestamp == going.goes_ms < row.next_timestamp for row in found)
    return {row.delay_level: row.messages for row in found}, lacks


@pytest.mark.parametrize(
    ("name", "after_ms", "wanted"),
    [
        ("5.3.3-clean", 0, {5: 2, 14: 1, 16: 1, 18: 2}),
        ("5.3.3-clean", 700_000, {16: 1, 18: 2}),
        ("5.3.3-timer-clean", 0, {None: 22}),
        ("5.3.3-timer-clean", 172_781_000, {}),
    ],
)
def test_what_waits_and_is_due_after_its_file_goes(name: str, after_ms: int, wanted: Waiting, tmp_path: Path) -> None:
    assert waiting(stores.unpack(name, tmp_path), after_ms) == (wanted, [])


def test_what_the_timer_has_not_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill the wheel lacks what the end of the timer log has; no start is simulated for that."""
    monkeypatch.setattr(simulate, "simulate", None)
    root = stores.unpack("5.3.3-timer-killed", tmp_path)
    assert waiting(root) == ({None: 166}, ["the timer has still to read 12 messages"])
    with other_process(root / "lock"):  # it reads them soon
        assert waiting(root) == ({None: 166}, [])
        off = BrokerConfig({"timerWheelEnable": "false"})
        assert waiting(root, config=off) == ({None: 166}, ["the timer has still to read 12 messages"])


@pytest.mark.parametrize(
    ("without", "wanted"),
    [
        ("timerwheel", "timers: no chain of the wheel leads to 22 entries of the timer log"),
        ("timerlog", "timers: a wheel slot leads into a loop or beyond the end of the timer log"),
    ],
)
def test_what_timer_files_lack_is_said(without: str, wanted: str, tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-timer-clean", tmp_path)
    path = root / without
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    found, (why, *_) = waiting(root)
    assert why.startswith(wanted), (found, why)


def test_timers_in_a_database_that_cannot_be_read_may_be_lost(tmp_path: Path) -> None:
    root = stores.unpack("5.5.1-rocks-timer", tmp_path)
    assert waiting(root) == ({None: 19}, [])
    (root / "rocksdbstore" / "CURRENT").unlink()
    assert waiting(root) == ({}, ["the timer has still to read 37 messages"])


def lost(root: Path) -> Losses:
    with StoreReader(root) as store:
        file = LogFile("f", 0, store.log_end.position, 0)
        return losing(store, [ExpiringFile(file, 0, 77, Why.TIME, 0)])


def test_records_that_have_no_unit_yet_and_stay(tmp_path: Path) -> None:
    """A broker writes units right behind the newest records: files before these have all of theirs."""
    with StoreReader(stores.unpack("4.9.7-killed", tmp_path)) as store:
        behind = behind_log(store) or 0
        for size, unknown in ((behind, []), (behind + 1, [f"the queues are behind the log, from {behind} on"])):
            assert losing(store, [ExpiringFile(LogFile("f", 0, size, 0), 0, 77, Why.TIME, 0)]).unknown == unknown


@pytest.mark.parametrize("without", ["config", "consumequeue", "config/consumerOffset.json", "a position", "a unit"])
def test_what_is_not_known_is_said(without: str, tmp_path: Path) -> None:
    """Nobody is told to lose nothing because positions or queues are not there."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    (root / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    table, unit = root / "config" / "consumerOffset.json", root / "consumequeue" / "orders" / "1"
    assert lost(root).unknown == []
    if without == "a position":
        table.write_text('{"offsetTable":{"orders@g":{0:"x",1:3}}}')
    elif without == "a unit":
        for path in (root / "consumequeue").iterdir():
            if path != unit.parent:
                shutil.rmtree(path)
        file = unit / f"{0:020}"
        file.write_bytes(file.read_bytes()[:40] + bytes(file.stat().st_size - 40))
        for path in unit.parent.iterdir():
            if path != unit:
                shutil.rmtree(path)
    elif (root / without).is_dir():
        shutil.rmtree(root / without)
    else:
        table.unlink()
    assert lost(root).unknown


def test_a_damaged_unit_hides_no_losses(tmp_path: Path) -> None:
    """Neither the first that is not consumed, nor one that points far behind the log."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@g":{1:5}}}')
    (before,) = lost(root).rows
    path = root / "consumequeue" / "orders" / "1" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[5 * 20 : 6 * 20] = bytes(20)
    data[12 * 20 : 12 * 20 + 8] = (1 << 50).to_bytes(8)
    path.write_bytes(data)
    assert lost(root).rows == [before]
