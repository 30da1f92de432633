"""Timed messages that a start forgets, fires twice, or gets stuck at (spec 07, B31 to B36, B45)."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mqstore.formats import rocksdb_store
from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import read_timer_check
from mqstore.store.disk.layout import Layout
from mqstore.store.inspect.timer_records import DeliveredTimers, WheelPosition, entries_of, wheel_of
from mqstore.store.inspect.timers import timers
from mqstore.store.log.batch import Batch, Extent
from mqstore.store.log.commit_log import CommitLog
from mqstore.store.log.message import Mark
from mqstore.store.queues.references import commit_log_of
from mqstore.store.queues.rocksdb import RocksDb
from mqstore.store.recover.broker_bugs import TimerLoss, timer_loss
from mqstore.store.search.store import StoreReader, silent
from mqstore.store.start.config_load import TIMER_CHECK
from mqstore.store.start.outcome import Outcome
from mqstore.store.start.simulate import simulate
from mqstore.store.timer.start import QUEUE as TIMER_QUEUE

from ... import recovery_cases, stores
from ...conftest import STORES_LEFT_MS
from ...database_mishaps import put
from ...recovery_cases import CONFIG, config_of

SOON_MS = STORES_LEFT_MS
"""When a start comes: the wheel reaches back to when the store was left."""


def loss_of(outcome: Outcome, now_ms: int) -> TimerLoss | None:
    return timer_loss(outcome, now_ms, DeliveredTimers(StoreReader(outcome.snapshot.layout)))


def after_a_start(kind: str, work: Path, version: str = "") -> TimerLoss:
    """A shipped case of the timer, by the version that wrote it."""
    pool = [c for c in recovery_cases.feature_cases() if c["base"].startswith("timer")]
    pool = pool or [c for c in recovery_cases.feature_cases() if "timer" in c["base"]]
    case = next(c for c in pool if c["kind"] == kind)
    root = recovery_cases.damaged(case, work)
    snapshot = Snapshot.of(Layout.open(root, config_of(case, root)))
    found = loss_of(simulate(snapshot, profile_of(version or case["version"])), SOON_MS)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["none", "wheel_old", "metrics_missing", "entry_hash"])
def test_all_fire_once(kind: str, tmp_path: Path) -> None:
    found = after_a_start(kind, tmp_path)
    assert found.harmless and found.pending > 40 and found.bugs == []


@pytest.mark.parametrize(("kind", "least"), [("log_lost_last", 1), ("log_lost_tail", 1), ("log_and_check_missing", 2)])
def test_ticks_that_lead_to_themselves(kind: str, least: int, tmp_path: Path) -> None:
    """B31: the wheel knows of entries that the log has lost."""
    found = after_a_start(kind, tmp_path)
    assert found.loops >= least and "B31" in found.bugs


def test_slots_that_were_never_used_lead_nowhere(tmp_path: Path) -> None:
    """Log and timercheck are lost, and the wheel is empty: all is read again, and fires once."""
    root = stores.unpack("5.3.3-timer-clean", tmp_path)
    shutil.rmtree(root / "timerlog")
    for path in (root / "timerwheel", root / "config" / "timercheck"):
        size = path.stat().st_size
        path.write_bytes(b"")
        os.truncate(path, size)
    layout = Layout.open(root, BrokerConfig(stores.config("5.3.3-timer-clean", root)))
    found = loss_of(simulate(Snapshot.of(layout), profile_of("5.3.3")), SOON_MS)
    assert found == TimerLoss(fired_twice=12)  # what was delivered comes again


def test_an_empty_last_file(tmp_path: Path) -> None:
    """B32: its units are not read again. The specification has 3 to 25 of them."""
    found = after_a_start("log_zero_last", tmp_path)
    assert 3 <= found.never_fired <= 25 and found.bugs == ["B32"]


def test_a_lost_wheel(tmp_path: Path) -> None:
    """B33: rebuilt from the last files only. The specification has 14 to 40 of 46 to 59."""
    found = after_a_start("wheel_missing", tmp_path)
    assert 14 <= found.never_fired <= 40 and 46 <= found.pending <= 59
    assert found.bugs == ["B33"]


def test_a_message_that_was_rolled_or_cancelled_is_not_counted_for_each_record(tmp_path: Path) -> None:
    """The timer log is gone: 12 messages wait, with 6 records each, and two more that are cancelled."""
    name = "5.3.3-timer-roll"
    root = stores.unpack(name, tmp_path)
    shutil.rmtree(root / "timerlog")
    layout = Layout.open(root, BrokerConfig({k: str(v) for k, v in stores.config(name, root).items()}))
    found = loss_of(simulate(Snapshot.of(layout), profile_of("5.3.3")), SOON_MS)
    assert found is not None and found.never_fired == found.pending == 12


@pytest.mark.parametrize("kind", ["check_missing", "check_master_zero"])
def test_a_lost_timercheck(kind: str, tmp_path: Path) -> None:
    """B34: the whole queue is read again on top of a good wheel. A message that is cancelled stays so."""
    found = after_a_start(kind, tmp_path)
    assert 40 < found.fired_twice <= found.pending + 1 and found.bugs == ["B34"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Stopped in order, with messages that wait."""
    return Layout.open(stores.unpack("5.3.3-timer-clean", tmp_path_factory.mktemp("whole")))


def with_time_read(whole: Layout, read_ms: int, now_ms: int, work: Path, version: str = "5.3.3") -> TimerLoss:
    """What a start does where timercheck says that the timer has read up to a time."""
    root = work / f"read {read_ms}"
    shutil.copytree(whole.root, root)
    path = root / "config" / TIMER_CHECK
    check = read_timer_check(path)
    assert check is not None
    with path.open("r+b") as file:
        file.write(check._replace(last_read_time_ms=read_ms).to_bytes())
    found = loss_of(simulate(Snapshot.of(Layout.open(root)), profile_of(version)), now_ms)
    assert found is not None
    return found


def test_a_time_read_that_is_still_to_come(whole: Layout, tmp_path: Path) -> None:
    """What is due before it never fires, what is due later does. Nothing is said of what has fired before. Where a
    clock was set back, all that waits fires, but not what is sent then.
    """
    check = read_timer_check(whole.config / TIMER_CHECK)
    assert check is not None
    read_ms = check.last_read_time_ms
    in_order = with_time_read(whole, read_ms, read_ms, tmp_path)
    assert in_order.harmless and in_order.pending > 20
    now_ms = read_ms + 60_000
    for ahead_ms in (now_ms + 1_000_000_000_000, (1 << 63) - 1):
        found = with_time_read(whole, ahead_ms, now_ms, tmp_path)
        assert found.pending == found.never_fired == in_order.pending and found.unfired_text
        without = with_time_read(whole, ahead_ms - 1, now_ms, tmp_path, "4.9")
        assert without.pending == without.never_fired == in_order.pending
    soon = with_time_read(whole, now_ms + 86_400_000, now_ms, tmp_path)
    assert soon.pending == in_order.pending and 0 < soon.never_fired < soon.pending
    shutil.rmtree(tmp_path / f"read {read_ms}")
    set_back = with_time_read(whole, read_ms, read_ms - 86_400_000, tmp_path)
    assert (set_back.never_fired, set_back.read_timestamp, set_back.unfired) == (0, read_ms, 1)
    assert set_back.unfired_text.startswith("fire no timed message before 20")


@pytest.mark.parametrize("read_ms", [0, 1, -1, 1000, -(1 << 63)])
def test_a_time_read_that_is_long_past(read_ms: int, whole: Layout, tmp_path: Path) -> None:
    """A start goes back seven days at most, and delivers again what is due since then."""
    found = with_time_read(whole, read_ms, SOON_MS, tmp_path)
    assert not found.unfired and found.fired_twice == 12


def test_a_time_that_is_no_number(tmp_path: Path) -> None:
    """B35: nothing behind it is read any more."""
    found = after_a_start("record_out_ms_garbage", tmp_path)
    assert found.stuck_at is not None and found.bugs == ["B35"]


@pytest.mark.parametrize("kind", ["log_torn_last", "log_torn_last_size"])
def test_a_torn_entry(kind: str, tmp_path: Path) -> None:
    """B36: taken for good, the message is lost."""
    found = after_a_start(kind, tmp_path)
    assert found.never_fired == 1 and found.bugs == ["B36"]


def test_where_nobody_used_it(tmp_path: Path) -> None:
    base = recovery_cases.base("5.3.3-clean-1", tmp_path)
    for version in ("5.3", "4.9"):
        outcome = simulate(Snapshot.of(Layout.open(base, CONFIG)), profile_of(version))
        assert loss_of(outcome, SOON_MS) is None


@pytest.mark.parametrize("name", ["5.1.4-timer-killed", "5.3.3-timer-clean"])
def test_a_broker_without_a_timer(name: str, tmp_path: Path) -> None:
    """Nothing that waits is delivered by 4.9: what a broker with one would deliver, read already or not."""
    layout = Layout.open(stores.unpack(name, tmp_path))
    outcome = simulate(Snapshot.of(layout), profile_of("5.1"))
    delivers = loss_of(outcome, SOON_MS)
    assert delivers is not None and outcome.timer is not None
    unread = outcome.read_queues[TIMER_QUEUE].max_offset - outcome.timer.queue_offset
    lost = loss_of(simulate(Snapshot.of(layout), profile_of("4.9")), SOON_MS)
    assert lost is not None and lost.never_fired == lost.pending > 20 and not lost.harmless
    assert delivers.pending <= lost.pending <= delivers.pending + unread
    assert lost.unfired_text.endswith("unfired: this version has no timer") and not lost.in_files
    os.truncate(layout.timer_wheel, 100)  # no broker with a timer would start
    by_queue = loss_of(simulate(Snapshot.of(layout), profile_of("4.9")), SOON_MS)
    assert by_queue is not None and by_queue.never_fired >= 19  # without those that are cancelled


@pytest.mark.parametrize("name", [n for n in ("5.1.4-timer-killed", "5.3.3-timer-killed") if n in stores.NAMES])
def test_what_a_killed_broker_fires_twice(name: str, tmp_path: Path) -> None:
    """After a real restart the wheel leads to two entries for as many messages as was said, besides one that had been
    delivered.
    """
    root = stores.unpack(name, tmp_path)
    outcome = simulate(Snapshot.of(Layout.open(root)), profile_of(name[:3]))
    found = loss_of(outcome, SOON_MS)
    slots = stores.truth(f"{name}-restarted")["timer_files"]["slots"]
    entries = Counter(e["offset_py"] for slot in slots for e in slot["chain"])
    assert found is not None
    assert found.fired_twice - 1 == sum(count > 1 for count in entries.values()) > 0


def test_who_is_elected_after_the_start_reads_the_queue_twice(tmp_path: Path) -> None:
    """B45: what the wheel lacks comes twice, too. A start as a slave reads as far as the master has, and no further."""
    root = stores.unpack("5.3.3-timer-killed", tmp_path)

    def after(options: dict[str, str]) -> tuple[TimerLoss, Outcome, int]:
        layout = Layout.open(root, BrokerConfig.of(options))
        outcome = simulate(Snapshot.of(layout), profile_of("5.3"), now_ms=SOON_MS)
        found = loss_of(outcome, SOON_MS)
        with StoreReader(layout) as store:
            told = timers(store, SOON_MS, silent, started=outcome)
        assert found is not None and told.if_elected == bool(found.if_elected)
        return found, outcome, sum(row.again for row in told.rows)

    alone, _, _ = after({})
    assert alone.bugs == ["B34"] and alone.twice_text.endswith("twice")
    assert after({"enableControllerMode": "true", "brokerRole": "SLAVE"})[0] == alone
    found, outcome, told = after({"enableControllerMode": "true"})
    state, queue = outcome.timer, outcome.read_queues[TIMER_QUEUE]
    assert state is not None and state.elected_offset == state.check.master_timer_queue_offset
    twice = queue.max_offset - state.queue_offset + 1  # and one that was delivered since timercheck was written
    assert alone.fired_twice < found.fired_twice == twice == told
    assert found.twice_text == f"up to {twice} timed messages (B34, B45) twice, if it is elected"
    at_end = state.check._replace(last_timer_queue_offset=queue.max_offset, master_timer_queue_offset=queue.max_offset)
    (root / "config" / TIMER_CHECK).write_bytes(at_end.to_bytes())
    assert "B45" not in after({"enableControllerMode": "true"})[0].bugs


@pytest.mark.parametrize("name", [n for n in stores.NAMES if "-timer-" in n and "rocks" not in n])
def test_inspect_counts_the_same(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig({key: str(value) for key, value in stores.config(name, root).items()})
    layout = Layout.open(root, config)
    outcome = simulate(Snapshot.of(layout), profile_of(name[:3]), now_ms=SOON_MS)
    found = loss_of(outcome, SOON_MS)
    with StoreReader(layout) as store:
        told = timers(store, SOON_MS, silent, started=outcome)
    assert found is not None and found.fired_twice == sum(row.again for row in told.rows)


def test_what_an_earlier_life_delivered_is_no_sign(whole: Layout) -> None:
    """Nor is a record inside of a body: such a time would pass over messages that wait."""
    with StoreReader(whole) as store:
        delivered = DeliveredTimers(store)
        newest_ms = delivered.newest_ms(SOON_MS)
    assert 0 < delivered.newest_ms(newest_ms - 1) < newest_ms  # a clock was ahead
    log = commit_log_of(whole)
    for mark in (Mark.EARLIER_LIFE, Mark.DEAD_TAIL, Mark.EMBEDDED):
        items = [Batch(item.columns, item.position, mark, None) for item in log.scan() if isinstance(item, Batch)]
        marked = SimpleNamespace(log=SimpleNamespace(scan=lambda items=items, **_: items))
        assert DeliveredTimers(cast(StoreReader, marked)).newest_ms(SOON_MS) == 0, mark


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[CommitLog, int | None]]:
    """The scans of logs, and where each begins."""
    scan, found = CommitLog.scan, list[tuple[CommitLog, int | None]]()

    def noting(log: CommitLog, start: int | None = None, *args: Any, **options: Any) -> Iterator[Batch | Extent]:
        found.append((log, start))
        return scan(log, start, *args, **options)

    monkeypatch.setattr(CommitLog, "scan", noting)
    return found


def test_the_log_is_read_once(whole: Layout, scans: list[tuple[CommitLog, int | None]]) -> None:
    """For what was delivered, for what waits, and for what a start delivers again."""
    with StoreReader(whole) as store:
        delivered = DeliveredTimers(store)
        wheel = wheel_of(store, SOON_MS, silent)
        chained = entries_of(store, wheel)
        scans.clear()
        assert delivered.recent(wheel, chained, 0).requested
        assert delivered.newest_ms(SOON_MS) and delivered.waiting is delivered.waiting is not None
        assert scans == [(store.log, None)]


def test_of_a_log_of_several_files_the_last_is_read(tmp_path: Path, scans: list[tuple[CommitLog, int | None]]) -> None:
    """In a DLedger log a file begins with the head of an entry. What has been read is not read again."""
    with StoreReader(stores.unpack("5.3.3-dledger", tmp_path)) as store:
        delivered, last = DeliveredTimers(store), store.log.files[-1]
        wheel = WheelPosition(delivered.ticks, read_ms=SOON_MS)
        chained = entries_of(store, wheel)
        scans.clear()
        assert len(store.log.files) == 3 and delivered.recent(wheel, chained, last.end) is not delivered.scanned
        assert delivered.recent(wheel, chained, last.end) is delivered.scanned
        assert scans == [(store.log, last.start), (store.log, None)]


ON = {"timerRocksDBEnable": "true"}
DAYS_LATER_MS = 1_796_000_000_000


def in_rocksdb(root: Path, changes: dict[bytes, bytes | None]) -> TimerLoss:
    """What a start of 5.5 does to the timers of `root`, with these rows of its RocksDB changed."""
    if changes:
        put(root / "rocksdbstore", {rocksdb_store.TIMER: changes})
    layout = Layout.open(root, BrokerConfig.of(ON))
    outcome = simulate(Snapshot.of(layout), profile_of("5.5"))
    found = loss_of(outcome, DAYS_LATER_MS)
    assert found is not None
    return found


def position(value: int) -> bytes:
    return rocksdb_store.POSITION.build({"value": value})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, ("", "")),
        ({rocksdb_store.TIMER_DELIVERED: None}, ("leave 19 of 19 timed messages unfired", "")),
        ({rocksdb_store.TIMER_DELIVERED: position(0)}, ("leave 19 of 19 timed messages unfired", "")),
        ({rocksdb_store.TIMER_DELIVERED: position(1_995_564_415_000)}, ("leave 19 of 19 timed", "")),
        ({rocksdb_store.TIMER_QUEUE_OFFSET: position(1000)}, ("", "")),
        ({rocksdb_store.TIMER_QUEUE_OFFSET: position(0)}, ("", "32 timed messages twice, and 5 that were cancelled")),
        ({rocksdb_store.TIMER_QUEUE_OFFSET: None}, ("", "32 timed messages twice, and 5 that were cancelled")),
    ],
)
def test_timers_in_a_rocksdb(changes: dict[bytes, bytes | None], told: tuple[str, str], tmp_path: Path) -> None:
    """As a real 5.5.1 did: 14 delivered before, 19 that wait, 5 cancelled (tests/stores, 5.5.1-rocks-timer)."""
    pytest.importorskip("rocksdict")
    found = in_rocksdb(stores.unpack("5.5.1-rocks-timer", tmp_path), changes)
    assert found.unfired_text.startswith(told[0]) and bool(found.unfired_text) == bool(told[0])
    assert found.twice_text == told[1] and not found.in_files


@pytest.mark.parametrize("said", ["", "true"])
@pytest.mark.parametrize(("version", "told"), [("4.9", (19, 0)), ("5.3", (0, 13)), ("5.5.1", (0, 0))])
def test_timers_in_a_rocksdb_that_the_version_does_not_know(
    version: str, told: tuple[int, int], said: str, tmp_path: Path
) -> None:
    """Whatever the option says. A real 4.9.7 delivered none of the 19 that wait, a real 5.3.3 delivered again what had
    been delivered.
    """
    pytest.importorskip("rocksdict")
    root = stores.unpack("5.5.1-rocks-timer", tmp_path)
    layout = Layout.open(root, BrokerConfig.of({"timerRocksDBEnable": said} if said else {}))
    check = read_timer_check(root / "config" / TIMER_CHECK)
    assert check is not None
    found = loss_of(simulate(Snapshot.of(layout), profile_of(version)), check.last_read_time_ms + 1000)
    assert found is not None and found.in_files is (version == "5.3")
    assert (found.never_fired, found.fired_twice) == told


def test_timers_without_their_row(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    root = stores.unpack("5.5.1-rocks-timer", tmp_path)
    with RocksDb.open(root / "rocksdbstore") as database:
        waiting = [key for key, _ in database.items(rocksdb_store.TIMER)][-6:-2]
    found = in_rocksdb(root, dict.fromkeys(waiting))
    assert (found.never_fired, found.pending) == (4, 19)


def test_timers_in_a_rocksdb_after_a_kill(tmp_path: Path) -> None:
    """Nothing was flushed: all of the queue is read again. What had been read before the next stop never fires: a real
    5.5.1 delivered none of it, since no row says up to when it had.
    """
    pytest.importorskip("rocksdict")
    killed = in_rocksdb(stores.unpack("5.5.1-rocks-timer-killed", tmp_path / "1"), {})
    assert not killed.never_fired and killed.pending > 170 and killed.fired_twice
    again = in_rocksdb(stores.unpack("5.5.1-rocks-timer-killed-restarted", tmp_path / "2"), {})
    assert again.never_fired == again.pending == 168
