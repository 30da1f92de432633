"""Transactions of real brokers, decided, open and given up."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.store.broker.system_topics import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from mqstore.store.broker.topics import json_bytes, read_json
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.inspect import transactions as module
from mqstore.store.inspect.transactions import (
    OpRecords,
    TransactionPositions,
    TransactionQueues,
    TransactionState,
    stored_positions,
    transaction_queues,
    transactions,
)
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.recover.recovery import analyze
from mqstore.store.search.store import StoreReader, silent
from mqstore.store.session.apply import apply
from mqstore.store.trace import waiting
from mqstore.store.trace.locate import TraceTarget
from mqstore.store.trace.trace import TraceQuestion, trace
from mqstore.store.verify.run import verify

from ...cli.datadriven import run_here
from ...stores import sent, truth, unpack

#: What a broker may have made of what the producer said, and answered when it was asked.
EXPECTED = {
    ("COMMIT_MESSAGE", None): {TransactionState.COMMITTED},
    ("ROLLBACK_MESSAGE", None): {TransactionState.ROLLED_BACK},
    ("UNKNOW", "COMMIT_MESSAGE"): {TransactionState.COMMITTED, TransactionState.OPEN},
    ("UNKNOW", "ROLLBACK_MESSAGE"): {TransactionState.ROLLED_BACK, TransactionState.OPEN},
    ("UNKNOW", "UNKNOW"): {TransactionState.OPEN, TransactionState.GIVEN_UP},
}


def test_transactions(name: str, store: StoreReader) -> None:
    """Each half message that a producer sent, and its end."""
    found = {row.unique_key: row for row in transactions(store, silent).rows}
    known = [one for one in sent(name) if one.get("transaction_state")]
    assert {one["msg_id"] for one in known} <= set(found)
    for one in known:
        row = found[one["msg_id"]]
        state, answer = one["transaction_state"], one.get("check_answer")
        allowed = EXPECTED[(state, answer if state == "UNKNOW" else None)]
        if answer == "COMMIT_MESSAGE":  # it may have been asked although it had decided
            allowed = allowed | {TransactionState.COMMITTED}
        assert row.state in allowed, one
        assert (row.topic, row.queue_id) == (one["topic"], one["queue_id"])


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-clean", "5.1.4-clean", "5.5.0-clean"])
def test_positions_of_transactions_are_those_of_the_broker(
    name: str, store: StoreReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = transaction_queues(store)
    assert queues and queues.fitting() == stored_positions(store) and not queues.told(queues.fitting())
    monkeypatch.setattr(module, "_MOST_READ", len(queues.ops.decided))
    assert transaction_queues(store) is None


def test_a_broker_of_4_3_gives_up_without_a_record(tmp_path: Path) -> None:
    with StoreReader(unpack("4.3.1-killed-restarted", tmp_path)) as store:
        queues, at = transaction_queues(store), stored_positions(store)
        assert queues and not queues.told(at) and queues._replace(given_up_noted=True).told(at)


def test_what_lost_op_records_decided_the_broker_has_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its position lies behind that, and no open transaction is in front of it."""
    notes: list[str] = []
    monkeypatch.setattr(module, "offsets_in", lambda _: set())
    with StoreReader(unpack("4.9.7-clean", tmp_path)) as store:
        ops = module._op_records(store, silent)
        monkeypatch.setattr(module, "_op_records", lambda *_: replace(ops, lost=10))
        states = Counter(row.state for row in transactions(store, notes.append).rows)
    assert states[TransactionState.OPEN] == 2 and states[TransactionState.ROLLED_BACK] == 4
    assert [note.partition(" as rolled back")[0] for note in notes] == [
        "transactions: 10 op records are lost or damaged: 4 transactions count"
    ]


@pytest.mark.parametrize("named", [True, False])
def test_committed_transactions_that_a_start_asks_for_again(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real 5.3.3 asked for all whose op records it had not written when it was killed, or had passed, and delivered
    the messages again: no op record from its position on names their half messages.
    """
    root = unpack("5.3.3-clean", tmp_path)
    path = root / "config" / "consumerOffset.json"
    half = f"{HALF_TOPIC}@{TRANSACTION_GROUP}"
    assert analyze(Layout.open(root), "5.3").prediction.again.asked_again == 0
    content = read_json(path) or {}
    content["offsetTable"][half] = {0: 0}
    if not named:
        content["offsetTable"][f"{OP_TOPIC}@{TRANSACTION_GROUP}"] = {0: 0}
        monkeypatch.setattr(module, "offsets_in", lambda _: set())
        monkeypatch.setattr(waiting, "offsets_in", lambda _: set())
    path.write_bytes(json_bytes(content))
    with StoreReader(root) as store:
        rows = [row for row in transactions(store, silent).rows if row.state is TransactionState.COMMITTED]
        assert rows and all(row.asked_again for row in rows)
        found = next(trace(store, TraceQuestion(TraceTarget(rows[0].unique_key), 0), silent))
        assert found.next_start and "asks the producer" in found.next_start.reason
    assert analyze(Layout.open(root), "5.3").prediction.again.asked_again == len(rows)
    slave = BrokerConfig({"brokerRole": "SLAVE"})
    assert analyze(Layout.open(root, slave), "5.3").prediction.again.asked_again == 0
    shutil.rmtree(root / "consumequeue")  # a start makes it again
    assert analyze(Layout.open(root), "5.3").prediction.again.asked_again == len(rows)


def test_transactions_in_a_rocksdb_are_those_that_were_sent(tmp_path: Path) -> None:
    """5.4+ with transRocksDBEnable: half messages and op records have topics of their own."""
    name = "5.5.1-rocks-trans-open"
    states = Counter(row.get("transaction_state") for row in sent(name))
    root = unpack(name, tmp_path)
    with StoreReader(root) as store:
        found = transactions(store, silent)
        assert Counter(row.state for row in found.rows) == {
            TransactionState.OPEN: states["UNKNOW"],
            TransactionState.COMMITTED: states["COMMIT_MESSAGE"],
            TransactionState.ROLLED_BACK: states["ROLLBACK_MESSAGE"],
        }
        assert "I-047" not in {finding.code for finding in verify(store).findings}


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
def test_transactions_that_no_broker_asks_for_are_told(role: str, tmp_path: Path) -> None:
    """A slave asks nobody: its master does."""
    notes: list[str] = []
    options = BrokerConfig({"transRocksDBEnable": "false", "brokerRole": role})
    with StoreReader(unpack("5.5.1-rocks-trans-open", tmp_path), options) as store:
        transactions(store, notes.append)
    why = "without transRocksDBEnable no broker reads transactions in rocksdbstore"
    told = [f"transactions: no broker asks for the decision of 10 open ones: {why}"]
    assert notes == (told if role != "SLAVE" else [])


@pytest.mark.parametrize("gone", ["*", "*.sst", "*.log"])
def test_without_their_rocksdb_nobody_knows_which_are_open(gone: str, tmp_path: Path) -> None:
    """A broker asks for those that it has there. Here the write-ahead log is empty: what is in the tables is known."""
    root = unpack("5.5.1-rocks-trans-open", tmp_path)
    waits = sum(row.get("transaction_state") == "UNKNOW" for row in sent("5.5.1-rocks-trans-open"))
    for path in (root / "rocksdbstore").glob(gone):
        path.unlink()
    with StoreReader(root) as store:
        found = transactions(store, silent).to_json(0)
    assert (found["open"], found["unknown"]) == ((waits, 0) if gone == "*.log" else (0, waits))


@pytest.mark.parametrize("name", ["5.5.1-rocks-trans-open", "4.9.7-clean"])
def test_a_tombstone_of_a_half_message_is_no_transaction(name: str, tmp_path: Path) -> None:
    """Nobody is asked for what it stands for: a broker passes it."""
    root = unpack(name, tmp_path)
    with StoreReader(root) as store:
        before = transactions(store, silent).rows
        lost = next(row for row in before if row.state is TransactionState.OPEN)
        sizes = [int(store.log.record(at).columns.ints("total_size")[0]) for at in lost.positions]
    file_bytes = (root / "commitlog" / file_name(0)).stat().st_size
    for at, size in zip(lost.positions, sizes, strict=True):
        with (root / "commitlog" / file_name(at // file_bytes * file_bytes)).open("r+b") as file:
            file.seek(at % file_bytes)
            file.write(bytes(size))
    layout = Layout.open(root)
    options = RecoveryOptions(Policy.KEEP)
    plan = analyze(layout, truth(name)["broker_version"].rpartition(".")[0], options=options).plan
    assert plan is not None and plan.lost.messages == len(sizes)
    apply(layout, plan, lambda: plan, Files())
    with StoreReader(root) as store:
        rows = transactions(store, silent).rows
    assert [row.unique_key for row in rows] == [row.unique_key for row in before if row is not lost]


def test_a_queue_whose_units_moved_up_settles_nothing(tmp_path: Path) -> None:
    """One unit of the op records is lost, those behind it have its number and the next ones: which half messages are
    decided does not follow from the queue, nor where a broker's position should be. No position tells of it.
    """
    root = unpack("4.9.7-clean", tmp_path)
    for path in (root / "config").glob("consumerOffset*"):
        path.unlink()
    (path,) = (root / "consumequeue" / OP_TOPIC / "0").iterdir()
    data, gone = path.read_bytes(), 4 * UNIT_BYTES
    path.write_bytes(data[:gone] + data[gone + UNIT_BYTES :] + bytes(UNIT_BYTES))
    notes: list[str] = []
    with StoreReader(root) as store:
        assert transaction_queues(store) is None
        transactions(store, notes.append)
        (units,) = store.queues.of_topic(OP_TOPIC)
        with store.queues.open(*units[:2]) as queue:
            moved = queue.summary().max_offset - 4
    assert f"{moved} units of {OP_TOPIC} point at messages of other numbers" in notes


def test_where_all_half_messages_are_gone_the_broker_has_passed_both_queues() -> None:
    ends = TransactionPositions(3, 5)
    assert TransactionQueues([], OpRecords(), True, ends).fitting() == ends


def test_op_records_in_a_part_of_the_log_that_is_gone_leave_nothing_open(tmp_path: Path) -> None:
    """The broker had passed their half messages; the two that are open lie in that part."""
    notes = list[str]()
    with StoreReader(unpack("5.3.3-killed-hole", tmp_path)) as store:
        found = transactions(store, notes.append)
    assert not [row for row in found.rows if row.state is TransactionState.OPEN]
    told = "transactions: 2 op records are lost or damaged: 7 transactions count as rolled back"
    assert [text.partition(",")[0] for text in notes if text.startswith("transactions: ")] == [told]


def test_an_open_transaction_that_a_check_gives_up_for_its_age(tmp_path: Path) -> None:
    """Brokers go by the time when the producer sent the message; none in a RocksDB is given up for its age."""
    root = unpack("4.9.7-clean", tmp_path)
    with StoreReader(root, BrokerConfig({"fileReservedTime": "1"})) as store:
        rows = [row for row in transactions(store, silent).rows if row.state is TransactionState.OPEN]
    assert len(rows) == 2 and all(row.give_up_timestamp == row.born_timestamp + 3_600_000 for row in rows)
    key, at_ms = rows[0].unique_key, rows[0].give_up_timestamp or 0
    option, times = ["--set", "fileReservedTime=1"], (at_ms, at_ms + 60_000)
    views = [run_here(["inspect", str(root), "--transactions", "--now", str(ms), *option]).stdout for ms in times]
    assert [f"open (too old)  {key}" in text for text in views] == [False, True]
    assert "2 of the open ones are too old: sent more than 1 hour (fileReservedTime) ago" in views[1]
    told = [run_here(["trace", str(root), key, "--now", str(ms), *option]).stdout for ms in times]
    age = "sent more than 1 hour (fileReservedTime) ago, so the first check of a broker gives it up"
    assert [age in text for text in told] == [False, True]
    with StoreReader(unpack("5.5.1-rocks-trans-open", tmp_path)) as store:
        assert not any(row.give_up_timestamp for row in transactions(store, silent).rows)
