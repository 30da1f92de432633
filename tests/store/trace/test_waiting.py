"""Messages that are not in their topic: open and ended transactions, delays, timers, what is left of expired ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.formats.message import MESSAGE
from mqstore.store.broker.system_topics import TIMER_TOPIC
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import read_timer_check
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.inspect.own_topics import delays
from mqstore.store.inspect.timers import WAITING, timers
from mqstore.store.inspect.transactions import TransactionState, transactions
from mqstore.store.log.commit_log import Batch, CommitLog
from mqstore.store.put.message_columns import columns_of as message_columns
from mqstore.store.put.new_message import NewMessage
from mqstore.store.search.store import StoreReader, silent
from mqstore.store.settings import rocksdb
from mqstore.store.trace.answer import By, DeliveryVerdict, EventKind, Fate
from mqstore.store.trace.waiting import left_out

from ... import stores
from ...cli.datadriven import run_here
from ...stores import messages, unpack
from ..put.writing import writer
from ..verify.mutations.edit import set_field
from .asked import config, end_transaction, one, put, verdict

HOUR_MS = 3_600_000


def test_transactions_of_our_own(tmp_path: Path) -> None:
    """Open, committed, rolled back."""
    root = tmp_path / "store"
    half = ["--transaction", "half", "--property", "PGROUP=shop"]
    halves = [put(root, "orders", *half) for _ in range(3)]
    found = one(root, halves[0]["unique_key"])
    assert found.for_all is not None and "open" in found.for_all.reason
    for end, message in zip(("commit", "rollback"), halves[1:], strict=True):
        end_transaction(root, end, message["message_id"])
    committed = one(root, halves[1]["unique_key"])
    assert committed.for_all is None
    kinds = {event.event for event in committed.events}
    assert {EventKind.HALF, EventKind.COMMITTED, EventKind.DECIDED} <= kinds
    rolled_back = one(root, halves[2]["unique_key"])
    assert rolled_back.for_all is not None
    assert rolled_back.for_all.verdict is DeliveryVerdict.TRANSACTION
    assert "rolled back" in rolled_back.for_all.reason


def test_transactions_that_a_rocksdb_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open; without the RocksDB that tells it nobody knows."""
    root = unpack("5.5.1-rocks-trans-open", tmp_path)
    with StoreReader(root) as store:
        rows = transactions(store, lambda _: None).rows
    key = next(row.unique_key for row in rows if row.state is TransactionState.OPEN)
    found = one(root, key)
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.TRANSACTION
    assert "its transaction is open" in found.for_all.reason
    found = one(root, key, start="5.3")
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.NEVER_DELIVERED
    assert found.for_all.reason.endswith("stays so: 5.3 reads no transactions in rocksdbstore")
    assert found.next_commands == [f"mqstore verify {root} --broker-version 5.3"]
    with monkeypatch.context() as patched:
        patched.setattr("mqstore.store.inspect.own_topics.holder", lambda _: 1)  # a broker runs
        running = one(root, key, start="5.3").for_all
    assert running is not None and running.verdict is DeliveryVerdict.NEVER_DELIVERED
    assert running.reason.endswith("rocksdbstore; the broker that runs may be another, or have other options")
    next((root / "rocksdbstore").glob("*.log")).unlink()  # it may have had others
    with monkeypatch.context() as patched:
        patched.setattr(rocksdb, "transaction_is_open", lambda *_: False)
        found = one(root, key)
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.UNKNOWN
    assert "a write-ahead log of MANIFEST-000005 is missing" in found.for_all.reason
    shutil.rmtree(root / "rocksdbstore")
    found = one(root, key)
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.UNKNOWN
    assert "rocksdbstore is missing" in found.for_all.reason


def test_a_committed_record_that_cannot_be_read(tmp_path: Path) -> None:
    """It is not called rolled back: the index still knows the record of its topic."""
    root = tmp_path / "store"
    half = put(root, "orders", "--transaction", "half", "--property", "PGROUP=shop")
    put(root, "orders")
    end_transaction(root, "commit", half["message_id"])
    before = one(root, half["unique_key"])
    [log] = (root / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(before.position or 0)
        file.write(bytes(40))
    found = one(root, half["unique_key"])
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.UNREADABLE


@pytest.mark.parametrize("option", [("--delay-level", "17"), ("--deliver-at", "+1h")])
def test_what_is_not_due(option: tuple[str, str], tmp_path: Path) -> None:
    root = tmp_path / "store"
    answer = put(root, "orders", *option)
    found = one(root, answer["unique_key"])
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.NOT_DUE
    due = found.for_all.until_timestamp
    assert due is not None
    assert abs(due - found.store_timestamp - HOUR_MS) < 2000  # type: ignore[operator]
    assert [event.timestamp for event in found.events if event.event is EventKind.DUE] == [due]
    late = one(root, answer["unique_key"], now_ms=due + 1)
    assert late.for_all is not None and late.for_all.verdict is DeliveryVerdict.NOT_DUE
    assert "the message is due" in late.for_all.reason
    view = "--timers" if option[0] == "--deliver-at" else "--delays"
    assert found.next_commands == [f"mqstore inspect {root} {view}"]


def test_a_delay_that_the_broker_has_done_with(tmp_path: Path) -> None:
    """Delivered by its count, and not in the log: nobody knows."""
    root = tmp_path / "store"
    answer = put(root, "orders", "--delay-level", "3")
    config(root, "delayOffset.json", {"offsetTable": {"3": 1}})
    found = one(root, answer["unique_key"])
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.UNKNOWN
    for text in ("{", '{"offsetTable":{3:1,"x":2}}'):
        (root / "config" / "delayOffset.json").write_text(text)
        found = one(root, answer["unique_key"])
        assert found.for_all is not None and "cannot be read" in found.for_all.reason


def pending(name: str) -> str:
    """A timer message that waits for long."""
    known = {m["properties"].get("UNIQ_KEY") for m in messages(name) if m["topic"] != TIMER_TOPIC}
    every = [m for m in messages(name) if m["topic"] == TIMER_TOPIC]
    waits = [m for m in every if m["properties"]["UNIQ_KEY"] not in known]
    found: str = waits[0]["properties"]["UNIQ_KEY"]
    return found


def test_timers_that_never_fire(tmp_path: Path) -> None:
    """The wheel is lost (B33), or the timer log."""
    name = "5.3.3-timer-roll"
    root = unpack(name, tmp_path)
    key = pending(name)
    now_ms = max(m["store_timestamp"] for m in messages(name))
    before = one(root, key, now_ms=now_ms)
    assert before.for_all is not None and before.for_all.verdict is DeliveryVerdict.NOT_DUE
    shutil.copytree(root / "timerlog", tmp_path / "kept")
    shutil.rmtree(root / "timerlog")
    lost = one(root, key, now_ms=now_ms)
    assert lost.for_all is not None and lost.for_all.verdict is DeliveryVerdict.NEVER_FIRES
    assert lost.next_commands == [f"mqstore inspect {root} --timers"]


@pytest.mark.parametrize(
    ("name", "version", "reason"),
    [
        ("5.3.3-timer-roll", "4.9", "a broker 4.9 has no timer"),
        ("5.5.1-rocks-timer", "4.3", "a broker 4.3 has no timer"),
        ("5.5.1-rocks-timer", "5.3", "not in the wheel yet"),
        ("5.5.1-rocks-timer", "5.5.1", "its timer has not ended"),
    ],
)
def test_the_version_that_starts_decides_what_a_timer_does(
    name: str, version: str, reason: str, tmp_path: Path
) -> None:
    """Before 5.0 no broker has one, before 5.4 none in a RocksDB."""
    if "rocks" in name:
        pytest.importorskip("rocksdict")
    root = stores.unpack(name, tmp_path)
    check = read_timer_check(root / "config" / "timercheck")
    assert check is not None
    with StoreReader(root) as store:
        rows = timers(store, check.last_read_time_ms + 1000, silent).rows
    key = next(row.unique_key for row in rows if row.state in WAITING)
    found = one(root, key, now_ms=check.last_read_time_ms + 1000, start=version)
    assert found.for_all is not None and found.for_all.reason == reason
    never = found.for_all.verdict is DeliveryVerdict.NEVER_FIRES
    assert never is ("has no timer" in reason)
    assert found.next_commands == [f"mqstore verify {root} --broker-version {version}"] or not never


def test_what_has_expired_and_was_given_back(tmp_path: Path) -> None:
    """The retries of a group are there, the message itself is not."""
    root = unpack("5.3.3-clean", tmp_path)
    (root / "commitlog" / f"{0:020d}").unlink()
    config(root, "subscriptionGroup.json", {"subscriptionGroupTable": {}})
    found = one(root, "key200")
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.GONE
    assert found.topic == "orders"
    assert verdict(found, "group-a-retry") is DeliveryVerdict.PASSED
    assert verdict(one(root, "key200", group="billing"), "billing") is DeliveryVerdict.GONE


def test_a_message_that_compaction_left_out(tmp_path: Path) -> None:
    """The newest of a key stays; it superseded all others."""
    name = "5.3.3-compaction"
    root = stores.unpack(name, tmp_path)
    topic = next(iter(stores.truth(name)["topics"]))
    mine = [m for m in stores.messages(name) if m["topic"] == topic and m["queue_id"] == 0]
    last = {m["properties"]["KEYS"]: m["physical_offset"] for m in mine}
    for message in mine[::40]:
        at, key = message["physical_offset"], message["properties"]["KEYS"]
        trace = one(root, str(at), by=By.POSITION)
        newer = [e.position for e in trace.events if e.event is EventKind.SUPERSEDED]
        assert newer == ([] if last[key] == at else [last[key]])
        if last[key] != at:  # its unit is still there: nothing has to be scanned
            notes: list[str] = []
            trace = one(root, f"{topic}/0/{message['queue_offset']}", notes=notes)
            assert (trace.position, trace.found_by, trace.via, notes) == (at, "queue", "queue", [])
            assert EventKind.NAMED in {e.event for e in trace.events}


@pytest.mark.parametrize("gone", ["compaction", ""])
def test_a_compaction_topic_is_served_from_its_log_alone(gone: str, tmp_path: Path) -> None:
    """Without one, or where that has a message of a deleted topic at the number, no pull gives the message."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    mine = [m for m in stores.messages("5.3.3-compaction") if m["topic"] == "state" and m["queue_id"] == 0]
    if gone:
        shutil.rmtree(root / gone)
    else:
        path = max((root / "compaction/compactionLog/state/0").iterdir())
        with MappedFileQueue.of_file(path, int(path.name)) as files:
            at = [item.position for item in CommitLog(files).scan() if isinstance(item, Batch)][-1][-1]
        set_field(path, int(at) - int(path.name), MESSAGE, "store_timestamp", 1)
    found = one(root, str(mine[-1]["physical_offset"]), by=By.POSITION).for_all
    assert found is not None
    assert (found.verdict, found.code) == (DeliveryVerdict.NOT_SERVED, "I-182")


def test_what_compaction_has_not_seen_it_has_not_left_out(tmp_path: Path) -> None:
    """The key is all of KEYS. Of messages behind its log nothing is said, a newer one with their key or not."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    keys = ("alpha beta", "alpha gamma", "alpha", "", "alpha beta")
    anyway = ("--set", "enableCompaction=false")
    for text in keys:
        words = ["--keys", text] if text else []
        assert run_here(["put", str(root), "state", "a body", *words, *anyway]).code == 0
    behind = 1 + max(m["queue_offset"] for m in stores.messages("5.3.3-compaction") if m["queue_id"] == 0)
    made = [one(root, f"state/0/{behind + number}") for number in range(len(keys))]
    assert [trace.for_all for trace in made] == [None] * len(keys)
    newer = [[e.position for e in trace.events if e.event is EventKind.SUPERSEDED] for trace in made]
    stored = [next(e.position for e in trace.events if e.event is EventKind.STORED) for trace in made]
    assert newer == [[stored[-1]], [], [], [], []]


@pytest.mark.parametrize(
    ("keys", "body", "newer", "end", "reason"),
    [
        ("", b"b", [], 8, "it has no KEYS"),
        (" ", b"b", [], 8, "it has no KEYS"),
        ("a", b"b", [7], 8, "a newer message has its key"),
        ("a", b"", [], 8, "its body is empty: that deletes the key"),
        ("a", b"b", [8], 8, ""),
        ("a", b"b", [], 8, ""),
        ("", b"b", [], 5, ""),
        ("a", b"b", [7], 5, ""),
    ],
)
def test_why_compaction_leaves_a_message_out(
    keys: str, body: bytes, newer: list[int], end: int, reason: str, tmp_path: Path
) -> None:
    """Of the message with queue offset 5, whose compaction log has all before `end` (spec 6.1)."""
    root = tmp_path / "store"
    put(root, "state")
    with StoreReader(root) as store:
        made = store.message_at(0)
    mine = made._replace(queue_offset=5, raw_properties=f"KEYS\x01{keys}\x02".encode(), stored_body=body)
    found = left_out(mine, [mine._replace(queue_offset=offset) for offset in newer], end)
    assert (found.reason if found else "") == (f"compaction removed the message: {reason}" if reason else "")


def test_a_delayed_message_that_its_delay_queue_does_not_name(tmp_path: Path) -> None:
    """Brokers deliver by units: a real 5.3.3 has 0 … 1 of that queue after its start."""
    root = unpack("5.3.3-killed-page", tmp_path)
    asked = "SCHEDULE_TOPIC_XXXX/17/1"
    found = one(root, asked)
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.NOT_DUE
    [queue] = (root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "17").iterdir()
    data = queue.read_bytes()
    queue.write_bytes(data[:20] + bytes(len(data) - 20))
    found = one(root, asked)
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.NOT_DISPATCHED
    assert found.for_all.until_timestamp is None
    assert found.next_start is not None and found.next_start.fate is Fate.NOT_DISPATCHED
    assert found.next_commands == [f"mqstore recover {root}"]
    (root / "abort").unlink()
    assert one(root, asked).next_commands == [f"mqstore repair {root} --queue SCHEDULE_TOPIC_XXXX/17"]


@pytest.mark.parametrize(
    ("version", "verdicts"),
    [
        ("4.9", ["never_delivered", "never_delivered", "not_yet_due"]),
        ("5.3", ["never_delivered"] + 2 * ["not_yet_due"]),
    ],
)
def test_a_delay_level_that_stands_still(version: str, verdicts: list[str], tmp_path: Path) -> None:
    """Of 4.9 it delivers nothing behind a message without a real topic; level 2 goes on. Verify says what helps."""
    place, topic = b"REAL_TOPIC\1orders\2REAL_QID\x010\2", b"SCHEDULE_TOPIC_XXXX"
    with writer(tmp_path, version) as store:
        for level, properties in ((1, b""), (1, place), (2, place)):
            text = b"DELAY\x01%d\2" % level + properties
            store.append_columns(message_columns([NewMessage(topic, b"x", level - 1, properties=text)]))
    places = [f"{topic.decode()}/{queue}" for queue in ("0/0", "0/1", "1/0")]
    found = [one(tmp_path, place, start=version) for place in places]
    judged = [each.for_all for each in found if each.for_all is not None]
    assert [each.verdict.value for each in judged] == verdicts
    assert judged[0].reason == "no broker can deliver it: it has no valid REAL_TOPIC and REAL_QID"
    if version == "4.9":
        assert judged[1].reason.startswith("delay level 1 stands still before the message: ")
        assert found[1].next_commands[0].startswith("mqstore verify ")


def test_a_delay_level_that_the_option_no_longer_has(tmp_path: Path) -> None:
    """Nothing is damaged: the message is delivered once the option has the level again."""
    root = tmp_path / "store"
    answer = put(root, "orders", "--delay-level", "3")
    short = {"messageDelayLevel": "1s 5s"}
    judged = one(root, answer["unique_key"], short).for_all
    assert judged is not None and judged.verdict is DeliveryVerdict.NEVER_DELIVERED
    assert judged.until_timestamp is None and "ends before delay level 3" in judged.reason
    option = ["--set", "messageDelayLevel=1s 5s"]
    told = run_here(["inspect", str(root), "--delays", *option]).stdout
    assert "level  3 (not in messageDelayLevel): 1 message, 1 pending, never delivered" in told
    assert "0 of them overdue" in told and "due 2" not in told
    told = run_here(["verify", str(root), "--only", "config,commit_log", *option]).stdout
    assert "[I-146]" in told and "I-045" not in told and "Damaged" not in told
    for command, *parts in (["verify"], ["recover"], ["repair", "--all"]):
        done = run_here([command, str(root), *parts, *option, "--broker-version", "5.3"])
        assert done.code == 0, done.stdout
        assert "1 message waits in delay levels that no broker serves until messageDelayLevel has 3 " in done.stdout
        last = done.stdout.rstrip().rpartition("\n")[2]
        give = "give messageDelayLevel 3 levels: 1 message waits in levels that it does not have."
        wanted = {"verify": f"What now: {give}", "recover": f"Next: {give} Then start the broker."}
        assert last.startswith(wanted.get(command, "Safe to start, but 1 message waits"))
    assert "mqstore repair" not in run_here(["explain", "I-146"]).stdout
    config(root, "delayOffset.json", {"offsetTable": {"3": 1}})
    assert "I-146" not in run_here(["verify", str(root), "--only", "config", *option]).stdout
    config(root, "delayOffset.json", {"offsetTable": {"3": 1, "x": 1}})  # brokers refuse the whole file
    assert "1 message waits in delay level 3" in run_here(["verify", str(root), "--only", "config", *option]).stdout


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("levels", "ahead_ms", "wait_ms"),
    [("1s 5s 2h", 0, 10_000), ("1s 5s 1s", 0, None), ("1s 5s 10s", DAY_MS, None), ("1s 5s 25h", DAY_MS, 10_000)],
)
def test_a_delay_that_the_option_has_changed_since(
    levels: str, ahead_ms: int, wait_ms: int | None, tmp_path: Path
) -> None:
    """A broker goes by the time in the unit, and delivers at once what waits longer than its level does now: a real
    5.3.3 did so with what was stored by a clock that was ahead, too.
    """
    root = tmp_path / "store"
    answer = put(root, "orders", "--delay-level", "3")
    stored = one(root, answer["unique_key"]).store_timestamp or 0
    now_ms, option = stored + 2_000 - ahead_ms, {"messageDelayLevel": levels}
    found = one(root, answer["unique_key"], option, now_ms=now_ms)
    due = now_ms if wait_ms is None else stored + wait_ms
    assert found.for_all is not None and found.for_all.until_timestamp == due
    assert found.for_all.verdict is DeliveryVerdict.NOT_DUE
    assert next(event.timestamp for event in found.events if event.event is EventKind.DUE) == due
    with StoreReader(root, BrokerConfig(option)) as store:
        [level] = delays(store, now_ms, lambda _: None).levels
    assert (level.first_deliver_timestamp, level.last_deliver_timestamp, level.overdue) == (due, due, wait_ms is None)
