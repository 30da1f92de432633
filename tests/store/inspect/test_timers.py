"""`inspect --timers`: what real brokers did and would do with every timer message of their stores."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.timer_log import MAGIC_DELETE, MAGIC_ROLL, UNIT, UNIT_BYTES
from mqstore.formats.timer_wheel import FILE_BYTES
from mqstore.store.broker.system_topics import TIMER_TOPIC
from mqstore.store.disk.checkpoint import read_timer_check
from mqstore.store.inspect.timer_records import timer_records
from mqstore.store.inspect.timers import HOUR_MS, WAITING, Timer, TimerMessageState, Timers, timers
from mqstore.store.search.store import StoreReader
from mqstore.store.settings.generation import Generation
from mqstore.store.settings.read import read_config_file

from ... import stores
from ...stores import messages, truth, unpack

STORES = tuple(name for name in stores.NAMES if "-timer-" in name)
ALL = tuple(name for name in stores.ALL if "-timer-" in name)
PAIRS = tuple(name for name in STORES if f"{name}-restarted" in STORES)
HERE = "5.3.3-timer-clean"


def view(root: Path, now_ms: int | None = None, notes: list[str] | None = None) -> Timers:
    """The view of a store, one second after its broker went down."""
    if now_ms is None:
        check = read_timer_check(root / "config/timercheck")
        assert check is not None
        now_ms = check.last_read_time_ms + 1000
    with StoreReader(root) as store:
        return timers(store, now_ms, (notes if notes is not None else []).append)


def by_key(found: Timers) -> dict[str, Timer]:
    rows = {row.unique_key: row for row in found.rows}
    assert len(rows) == len(found.rows)
    return rows


def plain(name: str) -> dict[str, list[dict[str, Any]]]:
    """Unique key → records of the timer topic as Java reads them, cancel messages left out."""
    found: dict[str, list[dict[str, Any]]] = {}
    for message in messages(name):
        properties = message["properties"]
        if message["topic"] == TIMER_TOPIC and "TIMER_DEL_UNIQKEY" not in properties:
            found.setdefault(properties["UNIQ_KEY"], []).append(message)
    return found


def in_real_topics(name: str) -> dict[str, list[int]]:
    """Unique key → where the message was delivered to."""
    found: dict[str, list[int]] = {}
    for message in messages(name):
        if message["topic"] != TIMER_TOPIC and "TIMER" in str(message["properties"]):
            key = message["properties"]["UNIQ_KEY"]
            found.setdefault(key, []).append(message["physical_offset"])
    return found


def check_a_store(name: str, tmp_path: Path) -> None:
    """The truth of `timer`, of `messages` and of `timer_files` against the view."""
    found = view(unpack(name, tmp_path))
    rows, known = by_key(found), truth(name)["timer"]
    sent, out = plain(name), in_real_topics(name)
    assert {one["msg_id"] for one in known["requested"]} <= set(rows)
    assert set(rows) == {*sent, *out}
    for key, row in rows.items():
        assert row.delivered == out.get(key, []), key
        assert row.positions == [m["physical_offset"] for m in sent.get(key, [])], key
        assert (row.state is TimerMessageState.DELIVERED) == (key in out), key
    for one in known["requested"]:
        row = rows[one["msg_id"]]
        assert row.topic == one["topic"], one
        if (asked := one.get("TIMER_DELIVER_MS")) is not None:
            assert row.deliver_timestamp is not None
            assert 0 <= row.deliver_timestamp - int(asked) < 1000, one
    gone = {*known["cancelled"], *known["recalled"]}
    assert {key for key, row in rows.items() if row.state is TimerMessageState.CANCELLED} == gone
    assert all(cancel.effective for cancel in found.cancels)
    assert set(known["delivered_to_consumer"]) <= set(out)
    assert (
        not set(known["not_delivered"]) - gone - set(out) - {key for key, row in rows.items() if row.state in WAITING}
    )
    assert not any(row.state in (TimerMessageState.NEVER, TimerMessageState.UNKNOWN) for row in found.rows)
    check_the_wheel(name, found)


def check_the_wheel(name: str, found: Timers) -> None:
    """What waits in the wheel is what the chains have that Java follows, at the same times."""
    files = truth(name)["timer_files"]
    expected = {
        (slot["time_ms"], entry["offset_py"], bool(entry["magic"] & MAGIC_ROLL))
        for slot in files["slots"]
        for entry in slot["chain"]
        if slot["time_ms"] >= found.read_timestamp and not entry["magic"] & MAGIC_DELETE
    }
    waits = [row for row in found.rows if row.next_timestamp is not None]
    new = {row.positions[-1] for row in waits} - {offset for _, offset, _ in expected}
    assert not new or truth(name)["exit"] == "killed"  # its start puts entries into the wheel
    states = {
        (row.next_timestamp, row.positions[-1], row.state is TimerMessageState.ROLLED)
        for row in waits
        if row.positions[-1] not in new and row.state in WAITING
    }
    assert states <= expected
    missing = {offset for _, offset, _ in expected - states}
    others = {p for row in found.rows if row.state not in WAITING for p in row.positions}
    assert missing <= others


@pytest.mark.parametrize("name", STORES)
def test_every_timer_message(name: str, tmp_path: Path) -> None:
    check_a_store(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_every_timer_message_of_all_stores(name: str, tmp_path: Path) -> None:
    check_a_store(name, tmp_path)


@pytest.mark.parametrize("name", PAIRS)
def test_what_a_broker_did_that_started_again(name: str, tmp_path: Path) -> None:
    """Nothing but what was pending was delivered then, twice only what was said to come again."""
    before = by_key(view(unpack(name, tmp_path)))
    out = in_real_topics(f"{name}-restarted")
    for key, places in out.items():
        if key not in before:
            continue
        row = before[key]
        assert row.state in (TimerMessageState.PENDING, TimerMessageState.DELIVERED), key
        assert len(places) == (2 if row.again else 1), key


@pytest.mark.parametrize("name", [name for name in STORES if name.endswith("-timer-clean")])
def test_a_broker_counts_the_same(name: str, tmp_path: Path) -> None:
    """Its statistics have for each topic what waits; only after a restart they may be wrong."""
    root = unpack(name, tmp_path)
    counts = {
        row["topic"]: row["count"]
        for row in read_config_file(root / "config/timermetrics", "timer-metrics").records()
        if row["type"] == "timer_count"
    }
    waits = Counter(row.topic for row in view(root).rows if row.state in WAITING)
    assert counts == dict(waits)


def test_the_hours_are_those_of_what_waits(tmp_path: Path) -> None:
    found = view(unpack(HERE, tmp_path))
    due = [row.deliver_timestamp or 0 for row in found.rows if row.state in WAITING]
    assert found.hours() == dict(sorted(Counter(d // HOUR_MS * HOUR_MS for d in due).items()))


def test_overdue(tmp_path: Path) -> None:
    root = unpack(HERE, tmp_path)
    first = view(root)
    assert not any(row.overdue for row in first.rows)
    due = sorted(row.deliver_timestamp or 0 for row in first.rows if row.state in WAITING)
    later = view(root, due[4])
    assert sum(row.overdue for row in later.rows) == sum(d <= due[4] for d in due)


def test_a_broker_that_was_down_for_more_than_a_week(tmp_path: Path) -> None:
    """It begins to read the wheel seven days ago: what was due before is never delivered."""
    root = unpack(HERE, tmp_path)
    first = view(root)
    week_ms = 7 * 24 * HOUR_MS
    later = view(root, first.read_timestamp + week_ms + 24 * HOUR_MS)
    waited = {r.unique_key: r for r in first.rows if r.state in WAITING}
    for row in later.rows:
        if row.unique_key in waited:
            next_ms = waited[row.unique_key].next_timestamp or 0
            lost = next_ms < later.read_timestamp
            assert (row.state is TimerMessageState.NEVER) == lost, row
            assert ("too long ago" in row.reason) == lost
    assert any(row.state is TimerMessageState.NEVER for row in later.rows)


def states(found: Timers) -> Counter[str]:
    return Counter(row.state.value for row in found.rows)


def test_a_lost_timer_log(tmp_path: Path) -> None:
    """Nothing that waited is ever delivered; what was cancelled or delivered stays so."""
    root = unpack(HERE, tmp_path)
    before = view(root)
    shutil.rmtree(root / "timerlog")
    after = view(root, before.now_ms)
    lost = [row for row in after.rows if row.state is TimerMessageState.NEVER]
    assert len(lost) >= sum(row.state in WAITING for row in before.rows)
    assert {row.reason for row in lost} == {
        "no timer log entry names this message, and no broker reads it from the queue again"
    }
    assert states(after)["delivered"] == states(before)["delivered"]


def test_a_lost_wheel(tmp_path: Path) -> None:
    """Only the entries of the last files of the timer log come back into it (B33)."""
    root = unpack(HERE, tmp_path)
    before = view(root)
    (root / "timerwheel").unlink()
    after = view(root, before.now_ms)
    came_back = {row.unique_key for row in after.rows if row.state in WAITING}
    lost = [row for row in after.rows if row.state is TimerMessageState.NEVER]
    assert came_back and lost
    assert came_back | {r.unique_key for r in lost} >= {row.unique_key for row in before.rows if row.state in WAITING}
    assert {row.reason for row in lost} == {"no chain of the wheel leads to its timer log entry"}


def test_all_of_the_timer_lost_is_read_again(tmp_path: Path) -> None:
    """The queue tells it all: nothing is lost, what was delivered comes again (spec 4.9)."""
    root = unpack(HERE, tmp_path)
    before = view(root)
    shutil.rmtree(root / "timerlog")
    for name in ("timerwheel", "config/timercheck"):
        (root / name).unlink()
    after = view(root, before.now_ms)
    assert after.queue_offset == 0
    assert states(after)["never"] == 0
    again = [row for row in after.rows if row.again]
    assert len(again) == sum(bool(row.positions and row.delivered) for row in before.rows)


def test_a_running_broker_files_messages_after_the_log_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of messages that were stored meanwhile are left out; of a store at rest they are shown."""
    with StoreReader(unpack(HERE, tmp_path)) as store:
        scanned = timer_records(store.log)
        assert scanned.requested is not None
        scanned.requested = scanned.requested.take(slice(0, len(scanned.requested) // 2))
        for in_use in (False, True):
            monkeypatch.setattr(StoreReader, "in_use", in_use)
            found = timers(store, 0, lambda _: None, scanned)
            assert ("" in {row.unique_key for row in found.rows}) != in_use


def test_what_is_read_from_the_queue_too_late(tmp_path: Path) -> None:
    """A start files it before the ticks that it comes to, or has come to it already: whole brokers 5.3.3 delivered
    what is pending here each time, and of the others none or all.
    """
    root = unpack(HERE, tmp_path)
    now_ms = view(root).now_ms + 8 * 24 * HOUR_MS
    for name in ("timerlog", "timerwheel", "config/timercheck"):
        shutil.rmtree(path) if (path := root / name).is_dir() else path.unlink()
    found = view(root, now_ms)
    pending = [row for row in found.rows if row.state in WAITING]
    unknown = [row for row in found.rows if row.state is TimerMessageState.UNKNOWN]
    assert pending and all((row.deliver_timestamp or 0) >= found.read_timestamp for row in pending)
    assert len(unknown) > 15 and all("chance" in row.reason for row in unknown)
    assert not any(row.again for row in found.rows if (row.deliver_timestamp or 0) < found.read_timestamp)


def edit_entry(root: Path, number: int, **changes: int) -> None:
    """Change fields of an entry of the timer log, counted over all files."""
    for path in sorted((root / "timerlog").iterdir()):
        data = bytearray(path.read_bytes())
        for at in range(0, len(data) - UNIT_BYTES + 1, UNIT_BYTES):
            unit = UNIT.parse(bytes(data[at : at + UNIT_BYTES]))
            if unit.size != UNIT_BYTES or unit.magic > MAGIC_ROLL + MAGIC_DELETE + 1:
                break
            if number == 0:
                data[at : at + UNIT_BYTES] = UNIT.build({**unit, **changes})
                path.write_bytes(bytes(data))
                return
            number -= 1
    raise AssertionError("no such entry")


def test_an_entry_that_leads_nowhere(tmp_path: Path) -> None:
    root = unpack(HERE, tmp_path)
    before = view(root)
    waiting = next(row for row in before.rows if row.state is TimerMessageState.PENDING)
    numbers = [m["physical_offset"] for m in messages(HERE) if m["topic"] == TIMER_TOPIC]
    edit_entry(root, numbers.index(waiting.positions[0]), offset_py=1 << 40)
    after = view(root, before.now_ms)
    stranger = next(row for row in after.rows if row.positions == [1 << 40])
    assert stranger.state is TimerMessageState.NEVER and "no message begins" in stranger.reason
    assert by_key(Timers(0, rows=[r for r in after.rows if r.unique_key]))[waiting.unique_key].state in (
        TimerMessageState.NEVER,
        TimerMessageState.UNKNOWN,
    )


def test_a_chain_with_a_loop(tmp_path: Path) -> None:
    """A broker follows it for ever (B31): what is due from then on is uncertain."""
    root, notes = unpack(HERE, tmp_path), list[str]()
    before = view(root)
    first = min((row for row in before.rows if row.state in WAITING), key=lambda r: r.next_timestamp or 0)
    positions = [m["physical_offset"] for m in messages(HERE) if m["topic"] == TIMER_TOPIC]
    number = positions.index(first.positions[0])
    place = next(
        entry["pos"]
        for slot in truth(HERE)["timer_files"]["slots"]
        for entry in slot["chain"]
        if entry["offset_py"] == first.positions[0]
    )
    edit_entry(root, number, prev_pos=place)
    after = view(root, before.now_ms, notes)
    assert any("loop" in note for note in notes)
    assert states(after)["unknown"] == sum(row.state in WAITING for row in before.rows)


def test_wheels_and_logs_of_noise(tmp_path: Path) -> None:
    """Whatever stands in the timer's files, the messages of the log are all told of."""
    root = unpack(HERE, tmp_path)
    before = view(root)
    good = {path: path.read_bytes() for path in sorted((root / "timerlog").iterdir())}
    wheel = root / "timerwheel"
    for junk in (b"\xff", b"\x7f", b"\x00\x00\x00\x34"):
        for path, data in good.items():
            path.write_bytes((junk * len(data))[: len(data)])
        with wheel.open("r+b") as file:
            file.write(junk * 4096)
        found = view(root, before.now_ms)
        assert {r.unique_key for r in before.rows} <= {r.unique_key for r in found.rows}
    for size in (0, 31, FILE_BYTES - 1):
        with wheel.open("r+b") as file:
            file.truncate(size)
        assert len(view(root, before.now_ms).rows) >= len(before.rows)


def test_cancel_messages_of_the_wrong_form(tmp_path: Path) -> None:
    """A 5.1 broker compares unique keys: those that name topic and key have no effect there."""
    root = unpack(HERE, tmp_path)
    cancelled = {row.unique_key for row in view(root).rows if row.state is TimerMessageState.CANCELLED}
    with StoreReader(root) as store:
        store.generation = Generation("5.1", "the test", ("5.1",))
        found = timers(store, view(root).now_ms, lambda _: None)
    assert {cancel.effective for cancel in found.cancels} == {False}
    rows = by_key(found)
    for key in cancelled:
        row = rows[key]
        if row.state is TimerMessageState.PENDING:
            assert "a 5.1 broker compares the unique key, not the topic" in row.reason
        else:  # its time had come already
            assert (row.state, row.reason) == (
                TimerMessageState.NEVER,
                "a broker has read its tick, but not delivered it",
            )
    assert len({rows[key].state for key in cancelled}) == 2


def test_a_store_without_timer(tmp_path: Path) -> None:
    with StoreReader(unpack("4.9.7-clean", tmp_path)) as store:
        assert timers(store, 0, lambda _: None) == Timers(0)


def test_where_a_broker_does_not_start(tmp_path: Path) -> None:
    """A stray file in the timer log: the files are taken as they are now, and it is said."""
    root, notes = unpack(HERE, tmp_path), list[str]()
    before = view(root)
    (root / "timerlog" / "stray").write_bytes(b"x")
    after = view(root, before.now_ms, notes)
    assert any("as they are now" in note for note in notes)
    assert replace(after, rows=[]) == replace(before, rows=[])
    assert after.rows == before.rows
