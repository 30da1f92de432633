"""Delays, retries, transactions: what real stores hold, told as their producers know it."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.broker.system_topics import SCHEDULE_TOPIC, delay_ms, parse_levels
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput
from mqstore.store.inspect.own_topics import delays, queue_records
from mqstore.store.inspect.pop import pop
from mqstore.store.inspect.stats_dimensions import CountKey, _of_pop, retries
from mqstore.store.inspect.transactions import TransactionState, transactions
from mqstore.store.recover.recovery import analyze
from mqstore.store.search.store import StoreReader, silent

from ...archives import extract
from ...cli.datadriven import run_here
from ...stores import messages, truth, unpack
from .test_pop import POP


def test_delays(name: str, store: StoreReader) -> None:
    levels = parse_levels()
    every = [*messages(name)]
    scheduled = [m for m in every if m["topic"] == SCHEDULE_TOPIC]
    copied = {(m["topic"], m["properties"].get("UNIQ_KEY"), m["reconsume_times"]) for m in every}
    now_ms = max((m["store_timestamp"] for m in scheduled), default=0) + 60_000
    found = delays(store, now_ms, silent)
    counts = Counter(m["queue_id"] + 1 for m in scheduled)
    assert {level.level: level.messages for level in found.levels} == dict(counts)
    for level in found.levels:
        behind = [
            m for m in scheduled if m["queue_id"] + 1 == level.level and m["queue_offset"] >= (level.delivered or 0)
        ]
        waiting = [m["store_timestamp"] + levels[level.level - 1] for m in behind if _delivered(m) not in copied]
        assert level.again == len(behind) - len(waiting)
        assert level.pending == len(waiting)
        assert level.overdue == sum(due <= now_ms for due in waiting)
        ends = (level.first_deliver_timestamp, level.last_deliver_timestamp)
        assert ends == (min(waiting, default=None), max(waiting, default=None))


def _delivered(message: dict[str, Any]) -> tuple[str, str, int]:
    """What a delivered copy of a message of a delay level would be."""
    properties = message["properties"]
    return properties["REAL_TOPIC"], properties["UNIQ_KEY"], message["reconsume_times"]


def test_what_a_killed_broker_delivered_and_did_not_note_comes_again(tmp_path: Path) -> None:
    """As its real restart did: the message is then twice in its topic."""
    key = "C00002024E6C4E0E2F2A667C06FE00FB"
    copies = {
        name: sum(m["topic"] == "later" and m["properties"].get("UNIQ_KEY") == key for m in messages(name))
        for name in ("5.1.4-killed", "5.1.4-killed-restarted")
    }
    assert copies == {"5.1.4-killed": 1, "5.1.4-killed-restarted": 2}
    root = unpack("5.1.4-killed", tmp_path)
    with StoreReader(root) as store:
        (level,) = [level for level in delays(store, 0, silent).levels if level.level == 3]
        assert (level.pending, level.again) == (0, 1)
    found = analyze(Layout.open(root), "5.1")
    assert found.prediction.again.delayed_again == 1
    trace = run_here(["trace", str(root), key, "--next-start"]).stdout
    assert "its delay level delivers it again: delayOffset.json does not have that it was delivered" in trace
    path = root / "config" / "delayOffset.json"
    path.write_text(path.read_text().replace("3:7", "3:8"))
    assert analyze(Layout.open(root), "5.1").prediction.again.delayed_again == 0
    assert "delivers it again" not in run_here(["trace", str(root), key, "--next-start"]).stdout


def test_queues_in_a_rocksdb_that_a_kill_has_left_behind(tmp_path: Path) -> None:
    """The real restart delivered one message a second time."""
    root = unpack("5.5.0-rocksdb-killed", tmp_path)
    assert analyze(Layout.open(root), "5.5").prediction.again.delayed_again == 1


@pytest.mark.parametrize(("offsets", "count"), [('{"offsetTable":{18:0}}', 21), ('{"offsetTable":{}}', 21), (None, 21)])
def test_levels_that_begin_anew_come_again(offsets: str | None, count: int, tmp_path: Path) -> None:
    """Without an entry in delayOffset.json a broker begins a level at 0."""
    root = unpack("5.1.4-killed", tmp_path)
    for path in (root / "config").glob("delayOffset.json*"):
        path.unlink()
        if offsets is not None:
            path.write_text(offsets)
    assert analyze(Layout.open(root), "5.1").prediction.again.delayed_again == count
    with StoreReader(root) as store:
        assert sum(level.again for level in delays(store, 0, silent).levels) == count


def test_delayed_messages_come_again_whatever_the_queues_have_lost(tmp_path: Path) -> None:
    """A start makes the queues of the log; a slave delivers nothing."""
    root = unpack("5.1.4-killed", tmp_path)
    shutil.rmtree(root / "consumequeue" / "SCHEDULE_TOPIC_XXXX")
    assert analyze(Layout.open(root), "5.1").prediction.again.delayed_again == 1
    slave = BrokerConfig({"brokerRole": "SLAVE"})
    assert analyze(Layout.open(root, slave), "5.1").prediction.again.delayed_again == 0
    with StoreReader(root, slave) as store:
        assert sum(level.again for level in delays(store, 0, silent).levels) == 0


def test_retries(name: str, store: StoreReader) -> None:
    expected = Counter(
        (m["topic"], m["properties"].get("RETRY_TOPIC", ""))
        for m in messages(name)
        if m["topic"].startswith(("%RETRY%", "%DLQ%"))
    )
    prefix = {"retry": "%RETRY%", "dead_letter": "%DLQ%"}
    counts = retries(store, silent).counts
    assert {(prefix[key.kind] + key.group, key.original_topic): row.messages for key, row in counts.items()} == dict(
        expected
    )


def test_a_retry_topic_of_two_groups_is_told_apart_by_its_records(tmp_path: Path) -> None:
    """Of g on a_work and of g_a on work, with the names of V1: the records of 5.5.1 say whose they are."""
    extract(POP / "5.5.1-retries-v1.tar.gz", tmp_path)
    with StoreReader(tmp_path) as store:
        found = retries(store, lambda _: None).counts
    popped = {(key.group, key.original_topic): row.messages for key, row in found.items() if key.group != "plain"}
    assert popped == {("g", "work"): 2, ("g", "a_work"): 4, ("g_a", "work"): 2}
    assert all(row.not_consumed == 0 for key, row in found.items() if key.group == "g_a")


@pytest.mark.parametrize("name", ["5.3.3-pop"])
def test_retries_of_pop_consumers(name: str, store: StoreReader) -> None:
    """The group is not that of the retry topic's name; its progress counts."""
    counts = retries(store, silent).counts
    assert {key: (row.messages, row.not_consumed) for key, row in counts.items()} == {
        CountKey("retry", "pop_a", "work"): (15, 5),
        CountKey("retry", "pop_b", "work"): (15, 5),
    }


@pytest.mark.parametrize(
    ("name", "topics", "groups", "expected"),
    [
        ("g_t", ["t"], [], ("g", "t")),
        ("g+t", ["t"], [], ("g", "t")),
        ("g_a_t", ["t", "a_t"], [], None),
        ("g_a_t", ["t", "a_t"], ["g_a"], ("g_a", "t")),
        ("g_a_t", ["t", "a_t"], ["g", "g_a"], None),
        ("t", ["t"], [], None),
        ("_t", ["t"], [], None),
        ("g_t", ["%RETRY%g_t"], ["g"], None),
    ],
)
def test_whose_retry_topic_it_is(
    name: str, topics: list[str], groups: list[str], expected: tuple[str, str] | None
) -> None:
    key = expected and CountKey("retry", *expected)
    assert _of_pop(f"%RETRY%{name}", topics, groups) == key


def test_numbers_that_no_broker_reads() -> None:
    """Python refuses to convert some thousand digits, and arrays to hold twenty."""
    many = "9" * 5000
    assert delay_ms(many, parse_levels()) is None
    assert delay_ms("0" * 5000 + "2", parse_levels()) == 5000
    with pytest.raises(InvalidInput, match="too large"):
        parse_levels(f"1s {many}d")


@pytest.mark.parametrize("offset", [1, 99])
def test_delayed_messages_that_are_due_after_the_end_of_the_log_are_pending(offset: int, tmp_path: Path) -> None:
    root, notes = unpack("5.3.3-clean", tmp_path), list[str]()
    path = root / "config" / "delayOffset.json"
    path.write_text(path.read_text().replace("18:0", f"18:{offset}"))
    with StoreReader(root) as store:
        level = next(level for level in delays(store, 0, notes.append).levels if level.level == 18)
    assert (level.delivered, level.pending) == (0, level.messages) and "after the end of the log, of level 18" in notes[
        0
    ]


@pytest.mark.parametrize("text", ["no JSON", '{"offsetTable":{3:9,"x":2}}'])
def test_delays_without_progress_say_so(text: str, tmp_path: Path) -> None:
    """Brokers refuse a whole file for one key, and begin each level anew."""
    notes: list[str] = []
    root = unpack("5.3.3-clean", tmp_path)
    for path in (root / "config").glob("delayOffset.json*"):
        path.write_text(text)
    with StoreReader(root) as store:
        levels = delays(store, 0, notes.append).levels
    assert {level.level: level.pending for level in levels if level.pending} == {5: 2, 14: 1, 16: 1, 18: 2}
    assert {level.level: level.again for level in levels if level.again} == {1: 12, 2: 1, 3: 8, 4: 4}
    assert all(level.delivered is None and level.pending + level.again == level.messages for level in levels)
    assert notes == ["delayOffset.json cannot be read: the delay levels are counted from their beginning"]


def test_a_store_of_4_9_in_numbers(tmp_path: Path) -> None:
    """Two asked for in vain are still open, one was given up after three checks."""
    with StoreReader(unpack("4.9.7-clean", tmp_path)) as store:
        states = Counter(row.state for row in transactions(store, silent).rows)
        progress = {level.level: level.delivered for level in delays(store, 0, silent).levels}
    assert states == {
        TransactionState.COMMITTED: 6,
        TransactionState.ROLLED_BACK: 4,
        TransactionState.OPEN: 2,
        TransactionState.GIVEN_UP: 1,
    }
    assert progress[1] == 12 and progress[18] is None
    assert truth("4.9.7-clean")["exit"] == "clean"


def test_without_queues_the_log_is_scanned(tmp_path: Path) -> None:
    notes: list[str] = []
    with StoreReader(unpack("4.9.7-clean-no-queues", tmp_path)) as store:
        assert len(transactions(store, notes.append).rows) == 13
    assert notes and all("scanning the log" in note for note in notes)


def _views(root: Path, notes: list[str]) -> list[Any]:
    """What is told of a store: delays, transactions, retries, POP."""
    now_ms = 1_795_300_000_000
    with StoreReader(root) as store:
        note = notes.append
        views = (delays(store, now_ms, note), retries(store, note), pop(store, now_ms, note))
        return [transactions(store, note).to_json(now_ms), *(view.to_json() for view in views)]


def _gone(queue: Path) -> None:
    shutil.rmtree(queue)


def _zeros(queue: Path) -> None:
    for path in queue.iterdir():
        path.write_bytes(bytes(path.stat().st_size))


def _hole(queue: Path) -> None:
    """Its first unit is zeros."""
    for path in queue.iterdir():
        path.write_bytes(bytes(20) + path.read_bytes()[20:])


def _cut(queue: Path) -> None:
    """It ends behind its first unit."""
    for path in queue.iterdir():
        size = path.stat().st_size
        path.write_bytes(path.read_bytes()[:20] + bytes(size - 20))


_DELIVERED = ("SCHEDULE_TOPIC_XXXX/0", "SCHEDULE_TOPIC_XXXX/2")
_CONSUMED = (
    *("RMQ_SYS_TRANS_HALF_TOPIC/0", "RMQ_SYS_TRANS_OP_HALF_TOPIC/0"),
    *("%RETRY%group-a_tags/0", "%RETRY%group-a-retry/0"),
)


@pytest.mark.parametrize(
    ("name", "queue"),
    [
        *(("4.9.7-clean", queue) for queue in (*_DELIVERED, *_CONSUMED)),
        *(("4.9.7-clean", queue) for queue in ("%DLQ%group-a-retry/0", "TRANS_CHECK_MAX_TIME_TOPIC/0")),
        *(("5.3.3-pop", queue) for queue in ("rmq_sys_REVIVE_LOG_TestCluster/0", "%RETRY%pop_a_work/0")),
    ],
)
def test_a_queue_of_a_stopped_broker_that_lacks_units(name: str, queue: str, tmp_path: Path) -> None:
    """Whatever became of one queue, what is told stays the same: the log is scanned."""
    root = unpack(name, tmp_path / "store")
    expected = _views(root, [])
    path = root / "consumequeue" / queue
    kept = tmp_path / "kept"
    shutil.copytree(path, kept)
    for damage in (_gone, _zeros, _hole, _cut):
        notes: list[str] = []
        damage(path)
        many = sum(len(file.read_bytes().rstrip(b"\0")) for file in kept.iterdir()) > 40
        if damage is not _cut or (many and queue in _DELIVERED + _CONSUMED):
            assert _views(root, notes) == expected, (damage.__name__, notes)
            assert any("scanning the log" in note for note in notes), damage.__name__
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(kept, path)
    notes = []
    assert (_views(root, notes), notes) == (expected, [])


def test_retries_without_queues(tmp_path: Path) -> None:
    with StoreReader(unpack("4.9.7-clean-no-queues", tmp_path)) as store:
        counts = retries(store, silent).counts
    expected = Counter(m["topic"] for m in messages("4.9.7-clean") if m["topic"].startswith(("%RETRY%", "%DLQ%")))
    prefix = {"retry": "%RETRY%", "dead_letter": "%DLQ%"}
    found = Counter[str]()
    for key, row in counts.items():
        found[prefix[key.kind] + key.group] += row.messages
    assert found == expected


def test_a_queue_that_nobody_has_read_and_that_is_cut(tmp_path: Path) -> None:
    """Its last file has no room for another unit: the log is asked whether it has more of the queue."""
    root = unpack("4.9.7-clean", tmp_path)
    for path in (root / "config").glob("consumerOffset*"):
        path.unlink()
    expected = _views(root, [])
    (path,) = (root / "consumequeue" / "RMQ_SYS_TRANS_OP_HALF_TOPIC" / "0").iterdir()
    path.write_bytes(path.read_bytes()[:20])
    notes: list[str] = []
    assert _views(root, notes) == expected
    assert [note for note in notes if ": queue 0 ends at 1, but the log has more of its messages, from" in note]


def test_records_that_went_with_the_end_of_the_log_are_told(tmp_path: Path) -> None:
    """The file ends inside the first half message of a transaction that is open; the queues name all of them."""
    root = unpack("5.5.1-rocks-trans-open", tmp_path)
    (log,) = (root / "commitlog").iterdir()
    log.write_bytes(log.read_bytes()[:27282])
    half, op = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
    told = [f"13 units of {half} point at no record", f"3 units of {op} point at no record"]
    notes: list[str] = []
    with StoreReader(root) as store:
        transactions(store, notes.append)
    assert notes == told
    (root / "abort").touch()  # then the log is scanned
    notes = []
    _views(root, notes)
    assert [note for note in notes if "no record" in note] == told


def test_what_a_cut_of_the_log_has_left_is_not_told(tmp_path: Path) -> None:
    """A broker cut off two half messages, among others: their units stay where they were."""
    root = unpack("4.9.7-killed-page-restarted", tmp_path)
    notes: list[str] = []
    _views(root, notes)
    assert not [note for note in notes if "no record" in note]


def test_the_newest_of_each_queue_alone(tmp_path: Path) -> None:
    with StoreReader(unpack("5.3.3-clean", tmp_path)) as store:
        every = [batch.columns.ints("physical_offset").tolist() for batch in queue_records(store, "orders", silent)]
        some = queue_records(store, "orders", silent, newest=3)
        assert [batch.columns.ints("physical_offset").tolist() for batch in some] == [each[-3:] for each in every]
        assert len(every) > 1 and min(map(len, every)) > 3
