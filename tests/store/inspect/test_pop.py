"""`inspect --pop`: check points, acknowledgements and what came back, as real brokers left them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from mqstore.formats import pop as formats
from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.message_properties import RETRY_PREFIX
from mqstore.formats.timer_check import PAGE_BYTES
from mqstore.store.broker.system_topics import TIMER_TOPIC
from mqstore.store.broker.topics import json_bytes, read_json
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import read_timer_check
from mqstore.store.disk.layout import Layout
from mqstore.store.inspect.pop import (
    CheckPoint,
    Pop,
    Popped,
    PoppedMessage,
    PopRecords,
    PopState,
    _add,
    _is_read,
    given_out,
    pop,
    pop_records,
)
from mqstore.store.inspect.timers import timers
from mqstore.store.recover.recovery import analyze
from mqstore.store.search.store import StoreReader
from mqstore.store.settings.read import read_progress
from mqstore.store.start.config_load import TIMER_CHECK
from mqstore.store.trace.answer import By, DeliveryVerdict
from mqstore.store.trace.locate import TraceTarget
from mqstore.store.trace.trace import TraceQuestion, trace

from ...archives import extract
from ...cli.datadriven import run_here
from ...stores import NAMES, messages, truth, unpack

STORES = tuple(name for name in NAMES if name.endswith("-pop"))
POP = Path(__file__).parents[2] / "pop"
"""Stores of a real 5.5.1 that was stopped while messages that POP consumers refused were in retry topics; -v1: with
enableRetryTopicV2=false, where groups g and g_a have one retry topic."""
RETRIES_LEFT_MS = 1_795_899_960_000
MORE_THAN_A_DAY_MS = 100_000_000


class Given(NamedTuple):
    """A message that a group was given, as the name of its check point's record tells."""

    topic: str
    queue_id: int
    queue_offset: int
    group: str
    time_ms: int


class Known(NamedTuple):
    """What Java's reading of the records up to a position tells, by names and properties alone."""

    given: dict[Given, int]
    acked: set[Given]
    returned: set[tuple[str, str, str]]
    keys: dict[tuple[str, int, int], str]


def name_of(message: dict[str, Any]) -> Given:
    topic, queue_id, offset, group, time_ms, _, _ = message["properties"]["UNIQ_KEY"].split("@")
    return Given(topic, int(queue_id), int(offset), group, int(time_ms))


def known(name: str, end: int) -> Known:
    found = Known({}, set(), set(), {})
    for message in messages(name):
        if message["physical_offset"] >= end:
            break
        properties, topic = message["properties"], message["topic"]
        real = properties.get("REAL_TOPIC", "") if topic == TIMER_TOPIC else topic
        if real.startswith(formats.REVIVE_TOPIC):
            if properties["TAGS"] == formats.CHECK_POINT_TAG:
                found.given[name_of(message)] = message["physical_offset"]
            else:
                found.acked.add(name_of(message))
            continue
        key = properties.get("UNIQ_KEY", "")
        found.keys[topic, message["queue_id"], message["queue_offset"]] = key
        if formats.FIRST_POP_TIME in properties:
            found.returned.add((topic, key, properties[formats.FIRST_POP_TIME]))
    return found


def view(root: Path, now_ms: int) -> Pop:
    with StoreReader(root) as store:
        return pop(store, now_ms, lambda _: None)


def given_of(row: Popped) -> Given:
    return Given(row.topic, row.queue_id, row.queue_offset, row.group, row.pop_timestamp)


def last_time(name: str) -> int:
    return max(int(message["store_timestamp"]) for message in messages(name))


KEY = {"topic": "T", "group": "g", "queue_id": 0, "start_offset": 7, "pop_time": 5}


@pytest.mark.parametrize("tag", [formats.ACK_TAG, formats.BATCH_ACK_TAG])
def test_an_acknowledgement_in_front_of_its_check_point_counts_for_nothing(tag: str) -> None:
    """A broker passes over one whose check point it has not read yet, in that queue of the revive topic."""
    acked = {"ack_offset": 8} if tag == formats.ACK_TAG else {"ack_offsets": [8]}
    fields = KEY | {"broker_name": "b"}
    key = formats.key_of(fields)

    def counts(*places: tuple[int, int] | None, at: tuple[int, int] | None = (0, 5)) -> bool:
        found = PopRecords()
        point = fields | {"re_put_times": ""}
        _add(found, formats.CHECK_POINT_TAG, CheckPoint(point, 9, at and ("r", *at)))
        for place in places:
            _add(found, tag, CheckPoint(fields | acked, 9, place and ("r", *place)))
        assert found.stray_acks == 0
        return found.acked(key) == {8}

    assert counts((0, 6)) and counts(None) and counts(None, at=None) and counts(None, (0, 6)) and counts((0, 6), (0, 4))
    assert not (counts((0, 4)) or counts((1, 6)) or counts((0, 4), None) or counts())
    assert counts((0, 6), (1, 2)) and counts((1, 2), (0, 6))  # each place counts
    assert counts((0, 4), at=None)  # its record in the revive topic is lost: who knows where it stood


@pytest.mark.parametrize("name", ["", " "])
def test_an_acknowledgement_without_a_broker_is_of_this_one(name: str) -> None:
    """5.3.3 and 5.5.1 take their own name for it, 5.1.4 asks for none."""
    for own, of_point, wanted in ((None, "b", {8}), ("b", "b", {8}), ("b", "c", set[int]())):
        found, point = PopRecords(broker_name=own), KEY | {"broker_name": of_point}
        _add(found, formats.CHECK_POINT_TAG, CheckPoint(point | {"re_put_times": ""}, 9))
        _add(found, formats.ACK_TAG, CheckPoint(KEY | {"broker_name": name, "ack_offset": 8}, 9))
        assert found.acked(formats.key_of(point)) == wanted
        assert found.stray_acks == 0
    _add(found, formats.ACK_TAG, CheckPoint(KEY | {"queue_id": 1, "broker_name": name, "ack_offset": 8}, 9))
    assert found.stray_acks == 1


@pytest.mark.parametrize("name", STORES)
def test_what_was_not_acknowledged_came_back(name: str, tmp_path: Path) -> None:
    found = view(unpack(name, tmp_path), last_time(name) + MORE_THAN_A_DAY_MS)
    facts = known(name, 1 << 62)
    assert found.check_points == len(facts.given)
    assert {given_of(row) for row in found.rows} == set(facts.given) - facts.acked
    assert {row.state for row in found.rows} == {PopState.RETURNED}
    assert len(found.rows) == len(facts.returned)
    places = {message["physical_offset"]: message for message in messages(name)}
    for row in found.rows:
        assert row.position is not None and row.returned is not None
        before, after = places[row.position], places[row.returned]
        assert (before["topic"], before["queue_id"]) == (row.topic, row.queue_id)
        assert before["queue_offset"] == row.queue_offset
        assert after["topic"] == f"%RETRY%{row.group}_{row.topic}"
        assert after["body_sha1"] == before["body_sha1"]
        assert int(after["properties"][formats.FIRST_POP_TIME]) == row.pop_timestamp
    acked = sum(states[PopState.ACKED] for states in found.groups.values())
    assert acked == len(facts.acked)
    assert (found.stray_acks, found.wrong) == (0, 0)


def cut(root: Path, end: int) -> None:
    """The store as if its broker had been killed when the log ended there, its progress not noted."""
    times = (m["store_timestamp"] for m in messages(root.name) if m["physical_offset"] < end)
    path = root / "config" / TIMER_CHECK
    check = read_timer_check(path)
    assert check is not None
    check = check._replace(last_read_time_ms=(max(times) - 3_000) // 1000 * 1000)
    path.write_bytes(check.to_bytes().ljust(PAGE_BYTES, b"\0"))
    for path in sorted((root / "commitlog").iterdir()):
        start, size = int(path.name), path.stat().st_size
        kept = min(max(end - start, 0), size)
        with path.open("r+b") as file:
            file.truncate(kept)
            file.truncate(size)
    (root / "abort").touch()
    for path in (root / "config").glob("consumerOffset.json*"):
        path.unlink()


def positions(name: str) -> list[int]:
    """Some ends: behind check points, behind acknowledgements, behind what came back."""
    ends = [message["physical_offset"] for message in messages(name)]
    return ends[len(ends) // 9 :: len(ends) // 9]


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_a_broker_that_was_killed_at_any_time(name: str, tmp_path: Path) -> None:
    """Half of it: what was given out is invisible until its time, and due then."""
    root = unpack(name, tmp_path)
    seen = set()
    for end in reversed(positions(name)):
        cut(root, end)
        facts = known(name, end)
        times = [g.time_ms for g in facts.given]
        for now_ms in (min(times), sum(times) // len(times) + 5000, max(times) + 60_000):
            found = view(root, now_ms)
            rows = {given_of(row): row for row in found.rows}
            assert set(facts.given) - facts.acked <= set(rows), end
            assert not set(rows) & facts.acked, end
            for what in set(facts.given) - facts.acked:
                row = rows[what]
                assert row.visible_timestamp == what.time_ms + 10_000
                assert row.state is expected(row, what, facts, now_ms), (end, row)
                seen.add(row.state)
    assert seen == {PopState.RETURNED, PopState.INVISIBLE, PopState.DUE}


def expected(row: Popped, what: Given, facts: Known, now_ms: int) -> PopState:
    key = facts.keys[what.topic, what.queue_id, what.queue_offset]
    topics = formats.retry_topics(what.topic, what.group)
    if any((topic, key, str(what.time_ms)) in facts.returned for topic in topics):
        return PopState.RETURNED
    if now_ms < row.visible_timestamp:
        return PopState.INVISIBLE
    return PopState.DUE


def test_a_revive_queue_is_read_on_behind_the_position_of_its_group(tmp_path: Path) -> None:
    """That is the check point read last: one there is dealt with, the next one is not."""
    root = unpack("5.5.0-pop", tmp_path)
    path = root / "config" / "consumerOffset.json"
    content = read_json(path) or {}
    row = content["offsetTable"][f"{formats.REVIVE_TOPIC}TestCluster@{formats.REVIVE_GROUP}"]
    with StoreReader(root) as store:
        points = pop_records(store, lambda _: None).check_points.values()
    offsets = sorted(point.revived[2] for point in points if point.revived and point.revived[1] == 1)
    found = []
    for row[1] in (offsets[3], offsets[3] - 1):
        path.write_bytes(json_bytes(content))
        queue = next(one for one in view(root, last_time("5.5.0-pop")).revive if one.queue_id == 1)
        progress = read_progress(root / "config")
        read = [p for p in points if p.revived and p.revived[1] == 1 and _is_read(p, progress)]
        found.append((queue.reached, len(read)))
    assert found == [(offsets[3] + 1, 4), (offsets[3], 3)]


def test_what_came_back_comes_again_where_the_position_is_older(tmp_path: Path) -> None:
    """Of two queues the last check point, whose message came back, is read again; no slave reads it."""
    root = unpack("5.5.0-pop", tmp_path)
    assert analyze(Layout.open(root), "5.5").prediction.again.popped_again == 0
    path = root / "config" / "consumerOffset.json"
    content = read_json(path) or {}
    row = content["offsetTable"][f"{formats.REVIVE_TOPIC}TestCluster@{formats.REVIVE_GROUP}"]
    row[0], row[2] = row[0] - 1, row[2] - 1
    path.write_bytes(json_bytes(content))
    assert analyze(Layout.open(root), "5.5").prediction.again.popped_again == 2
    for option in ({"brokerRole": "SLAVE"}, {"timerWheelEnable": "false"}):
        assert analyze(Layout.open(root, BrokerConfig(option)), "5.5").prediction.again.popped_again == 0


def test_what_the_position_of_a_group_is_not_past_is_given_again(tmp_path: Path) -> None:
    """A real 5.3.3 that was killed gave such messages again, acknowledged or not."""
    root, name = unpack("5.3.3-pop", tmp_path), "5.3.3-pop"
    assert view(root, 0).to_json()["again"] == 0
    path = root / "config" / "consumerOffset.json"
    content = read_json(path) or {}
    content["offsetTable"]["work@pop_a"][0] -= 5
    first = content["offsetTable"]["work@pop_a"][0]
    path.write_bytes(json_bytes(content))
    given = {each[:4] for each in known(name, 1 << 62).given}
    mine = [one for one in given if one[::3] == ("work", "pop_a") and one[1] == 0 and one[2] >= first]
    assert mine and view(root, 0).groups["pop_a", "work"]["again"] == len(mine) == view(root, 0).to_json()["again"]
    assert analyze(Layout.open(root), "5.3").prediction.again.popped_again == len(mine)
    bare = Path(shutil.copytree(root, tmp_path / "bare"))
    units = bare / "consumequeue" / "work" / "0" / f"{0:020d}"
    (bare / "abort").touch()
    with units.open("r+b") as file:  # as after a power failure
        file.seek(first * UNIT_BYTES)
        file.write(bytes(units.stat().st_size - first * UNIT_BYTES))
    assert analyze(Layout.open(bare), "5.3").prediction.again.popped_again == len(mine)
    shutil.rmtree(bare / "consumequeue")  # a start makes it again
    assert analyze(Layout.open(bare), "5.3").prediction.again.popped_again == len(mine)
    verdicts = set()
    with StoreReader(root) as store:
        for _, queue_id, offset, group in mine:
            asked = TraceTarget(f"work/{queue_id}/{offset}", By.QUEUE)
            [row] = next(trace(store, TraceQuestion(asked, 0, group), lambda _: None)).groups
            verdicts.add(row.judgement.verdict)
            assert "a start gives it again" in row.judgement.reason or row.judgement.verdict is DeliveryVerdict.RETRY
    assert DeliveryVerdict.WAITING in verdicts and DeliveryVerdict.PASSED not in verdicts
    with StoreReader(root, {"brokerRole": "SLAVE"}) as store:
        assert pop(store, 0, lambda _: None).to_json()["again"] == 0


def test_records_of_pop_that_recover_replaced_are_told(tmp_path: Path) -> None:
    """A check point that was lost is a tombstone in the timer topic: what it gave out is in no count."""
    root = unpack("5.3.3-pop", tmp_path)
    with StoreReader(root) as store:
        notes: list[str] = []
        point = max(pop_records(store, notes.append).check_points.values(), key=lambda point: point.position)
        assert not notes
    path = max(path for path in (root / "commitlog").iterdir() if int(path.name) <= point.position)
    with path.open("r+b") as file:
        file.seek(point.position - int(path.name))
        file.write(bytes(100))
    assert run_here(["recover", str(root), "--apply", "--yes"]).stdout.startswith("Done")
    with StoreReader(root) as store:
        pop(store, 0, notes.append)
    assert any("1 record of the log, where POP notes" in note for note in notes)


def test_without_retry_topics_nothing_is_known(tmp_path: Path) -> None:
    """A broker has read past all check points: what should have come back did not."""
    root = unpack("5.3.3-pop", tmp_path)
    for directory in (root / "consumequeue").iterdir():
        if directory.name.startswith(RETRY_PREFIX):
            shutil.rmtree(directory)
    for path in (root / "config").glob("consumerOffset.json*"):
        content = read_json(path) or {}
        content["offsetTable"] = {k: v for k, v in content["offsetTable"].items() if not k.startswith(RETRY_PREFIX)}
        path.write_bytes(json_bytes(content))
    for path in (root / "commitlog").iterdir():  # what came back was something else
        path.write_bytes(path.read_bytes().replace(b"%RETRY%pop_", b"another_pop"))
    found = view(root, last_time("5.3.3-pop") + MORE_THAN_A_DAY_MS)
    assert {row.state for row in found.rows} == {PopState.UNKNOWN}
    assert all("read past" in row.reason for row in found.rows)


KEPT = {
    "groupId": "shoppers",
    "topicId": "orders",
    "queueId": 0,
    "offset": 3,
    "popTime": 1_000,
    "invisibleTime": 60_000,
    "retryFlag": 0,
    "attemptTimes": 0,
    "attemptId": None,
    "suspend": False,
}
KEPT_KEY = (61_000).to_bytes(8) + b"shoppers@orders@" + bytes(4) + b"@" + (3).to_bytes(8)


def given_out_by(root: Path, key: bytes, value: bytes) -> None:
    """A database of POP with one entry, as popConsumerKVServiceEnable leaves it."""
    path = str(root / "kvStore")
    database = Rdict(path, Options(raw_mode=True))
    family = database.create_column_family("popState", Options(raw_mode=True))
    family[key] = value
    del family
    database.close()


@pytest.mark.parametrize(("now_ms", "state"), [(60_999, PopState.INVISIBLE), (61_000, PopState.DUE)])
def test_what_its_database_has(now_ms: int, state: PopState, tmp_path: Path) -> None:
    root = unpack("5.5.0-clean", tmp_path)
    given_out_by(root, KEPT_KEY, json.dumps(KEPT).encode())
    (row,) = view(root, now_ms).rows
    assert (row.group, row.topic, row.queue_id, row.queue_offset) == ("shoppers", "orders", 0, 3)
    assert (row.state, row.check_point, row.visible_timestamp) == (state, None, 61_000)
    with StoreReader(root) as store, store.queues.open("orders", 0) as queue:
        unit = queue.unit(3)
    assert unit is not None and row.position == unit.physical_offset


@pytest.mark.parametrize(("role", "state"), [("ASYNC_MASTER", PopState.NEVER), ("SLAVE", PopState.DUE)])
def test_what_its_database_has_and_no_broker_reads(role: str, state: PopState, tmp_path: Path) -> None:
    """A slave gives nothing out, and loses nothing by that."""
    root = unpack("5.5.0-clean", tmp_path)
    given_out_by(root, KEPT_KEY, json.dumps(KEPT).encode())
    options = BrokerConfig({"popConsumerKVServiceInit": "false", "brokerRole": role})
    with StoreReader(root, options) as store:
        assert [row.state for row in pop(store, 61_000, lambda _: None).rows] == [state]


@pytest.mark.parametrize("value", [b"", b"null", b"[]", b"{}", b'{"offset": "x"}', b"\xff" * 9])
def test_what_is_no_entry_of_it_is_passed_over(value: bytes, tmp_path: Path) -> None:
    root = unpack("5.5.0-clean", tmp_path)
    given_out_by(root, b"short", value)
    assert view(root, 0).rows == []


def test_a_database_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    root = unpack("5.5.0-clean", tmp_path)
    (root / "kvStore").mkdir()
    (root / "kvStore" / "CURRENT").write_text("MANIFEST-000009\n")
    notes: list[str] = []
    with StoreReader(root) as store:
        pop(store, 0, notes.append)
    assert any("kvStore cannot be read" in note for note in notes)


def test_a_database_that_is_missing_is_told_where_the_options_have_one(tmp_path: Path) -> None:
    root = unpack("5.5.0-clean", tmp_path)
    for keeps, told in (("false", False), ("true", True)):
        notes: list[str] = []
        with StoreReader(root, BrokerConfig({"popConsumerKVServiceInit": keeps})) as store:
            pop(store, 0, notes.append)
        assert any("kvStore is missing" in note for note in notes) is told


def test_a_store_without_pop(tmp_path: Path) -> None:
    assert view(unpack("4.9.7-clean", tmp_path), 0) == Pop(0)
    assert truth("4.9.7-clean")["exit"] == "clean"


CHECK_POINT = json.loads(
    '{"bm":0,"bn":"broker-a","c":"g","d":[0],"it":10000,"n":1,"pt":1,"q":0,"reviveTime":2,"ro":0,"so":7,"t":"work"}'
)


def parsed(**changes: Any) -> dict[str, Any] | None:
    body = json.dumps({**CHECK_POINT, **changes}).encode()
    return formats.parse(formats.CHECK_POINT_TAG, body)


def offsets(**changes: Any) -> list[tuple[int, bool]]:
    fields = parsed(**changes)
    assert fields is not None
    return list(formats.offsets_of(fields))


def test_the_messages_of_a_check_point() -> None:
    assert offsets() == [(7, False)]
    assert offsets(n=3, d=[0, 2, 5], bm=0b101) == [(7, True), (9, False), (12, True)]
    assert offsets(n=3, d=None, bm=2) == [(7, False), (8, True), (9, False)]
    assert offsets(n=1 << 30, d=[]) == [(7 + k, False) for k in range(32)]
    assert len(offsets(n=1 << 30, d=list(range(100)))) == 32
    assert offsets(n=0) == []


@pytest.mark.parametrize(
    "changes",
    [{"t": None}, {"t": 1}, {"q": "0"}, {"so": -1}, {"pt": 1 << 63}, {"n": True}, {"n": 1 << 31}, {"d": ["0"]}],
)
def test_bodies_that_are_none(changes: dict[str, Any]) -> None:
    assert parsed(**changes) is None


NOISE = (b"", b"{}", b"[]", b"null", b"[" * 100_000, b"1" * 10_000, b'{"t":', b"\xff\xfe")


@pytest.mark.parametrize("body", NOISE, ids=lambda body: repr(body[:8]))
@pytest.mark.parametrize("tag", [*formats.BODIES, "", "other"])
def test_noise_is_no_body(tag: str, body: bytes) -> None:
    assert formats.parse(tag, body) is None


@given(
    st.sampled_from(sorted(formats.BODIES)),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*CHECK_POINT, "ao", "aol"]), inner, max_size=14)
        ),
    ),
)
def test_any_json_is_a_body_or_none(tag: str, value: Any) -> None:
    fields = formats.parse(tag, json.dumps(value).encode())
    if fields is not None:
        assert all(field.fits(fields[field.column]) for field in formats.BODIES[tag])
        assert hash(formats.key_of(fields))


NO_JSON = "5.5.1-no-json"
"""What a real 5.5.1 never got behind: the check point 1 of revive queue 0, of group gA, is no JSON."""


def told(root: Path, **options: str) -> tuple[Pop, dict[str, set[str]]]:
    with StoreReader(root, options) as store:
        found = pop(store, RETRIES_LEFT_MS, lambda _: None)
    reasons: dict[str, set[str]] = {}
    for row in found.rows:
        reasons.setdefault(row.group, set()).add(row.reason)
    return found, reasons


def test_a_check_point_that_is_no_json_stops_its_revive_queue(tmp_path: Path) -> None:
    extract(POP / f"{NO_JSON}.tar.gz", tmp_path)
    found, reasons = told(tmp_path)
    assert [(queue.stopped_at, queue.stopping) for queue in found.revive] == [(1, 3317), *[(None, None)] * 4]
    assert reasons["gA"] == {
        (
            "it does not come back: a broker cannot read the body of record 1 of "
            "rmq_sys_REVIVE_LOG_interop/0, and stops there"
        )
    }
    assert reasons["gC"] == {"it comes back as soon as a broker reads its check point"}
    log = tmp_path / "commitlog" / ("0" * 20)
    data = log.read_bytes()
    tag = data.index(b"TAGS", 3317)
    log.write_bytes(data[:tag] + b"SAGT" + data[tag + 4 :])  # as in a tombstone: a broker passes over it
    found, reasons = told(tmp_path)
    assert found.wrong == 0 and reasons["gA"] == reasons["gC"]


def test_a_message_waits_behind_a_stop_in_front_of_it(tmp_path: Path) -> None:
    """As a check point does that is written after the queue has stopped: its message, at 3854, is behind 3317."""
    extract(POP / f"{NO_JSON}.tar.gz", tmp_path)
    with StoreReader(tmp_path) as store:
        ((row,), records) = given_out(store, [PoppedMessage("orders", 1, 3, 3854)], [], RETRIES_LEFT_MS, lambda _: None)
        assert not records.lost
    assert "the body of record 1 of rmq_sys_REVIVE_LOG_interop/0" in row.reason


def test_a_check_point_that_was_written_again_is_of_one_message(tmp_path: Path) -> None:
    """A real 5.5.1 could not ask broker-b for message 0, and wrote its check point again: 1 and 2 are acknowledged."""
    extract(POP / "5.5.1-again.tar.gz", tmp_path)
    found, _ = told(tmp_path)
    assert found.groups["gB", "ordB"] == Counter({"acked": 2, "returned": 1, "invisible": 1})
    assert found.check_points == 2 and [row.queue_offset for row in found.rows] == [4, 0]


def test_a_check_point_of_another_broker_is_about_its_message(tmp_path: Path) -> None:
    """That a broker acted for: what it has itself in that place was not given out, as far as that tells."""
    extract(POP / f"{NO_JSON}.tar.gz", tmp_path)
    found, reasons = told(tmp_path, brokerName="interop")
    of_others = [(row.queue_offset, row.position, row.broker_name) for row in found.rows if row.broker_name]
    assert of_others == [(0, None, "broker-b")] and "a broker asks that broker for the message" in reasons["gB"]
    assert not any(row.broker_name for row in told(tmp_path)[0].rows)  # nothing there tells its own name
    with StoreReader(tmp_path, {"brokerName": "interop"}) as store:
        about = PoppedMessage("ordB", 1, 0, 780)
        assert not given_out(store, [about], [], RETRIES_LEFT_MS, lambda _: None)[0]


def test_without_the_timer_wheel_nothing_comes_back(tmp_path: Path) -> None:
    extract(POP / f"{NO_JSON}.tar.gz", tmp_path)
    _, reasons = told(tmp_path, timerWheelEnable="false")
    why = "it does not come back: with timerWheelEnable=false no broker reads the revive topic"
    assert reasons["gA"] == reasons["gC"] == {why}


@pytest.mark.parametrize("days", [0, 8])
def test_check_points_that_stay_in_the_timer(days: int, tmp_path: Path) -> None:
    """Those that no start reads any more, as a real 5.5.1 showed with its timer log gone: nothing came back."""
    root, now_ms = unpack("5.5.0-pop", tmp_path), last_time("5.5.0-pop") + 60_000
    cut(root, positions("5.5.0-pop")[4])
    assert PopState.NEVER not in {row.state for row in view(root, now_ms).rows}
    for path in (root / "timerlog").iterdir() if not days else ():
        path.unlink()
    now_ms += days * 86_400_000
    with StoreReader(root) as store:
        points = pop_records(store, lambda _: None).check_points.values()
        waiting = {point.position for point in points if point.revived is None}
        never = {row.positions[-1] for row in timers(store, now_ms, lambda _: None).rows if row.state == "never"}
    rows = [row for row in view(root, now_ms).rows if row.check_point in waiting & never]
    assert rows and {row.state for row in rows} == {PopState.NEVER}
    assert all("stays in the timer" in row.reason for row in rows)
    row = rows[0]
    with StoreReader(root) as store:
        about = PoppedMessage(row.topic, row.queue_id, row.queue_offset, row.position or 0)
        assert given_out(store, [about], [], now_ms, lambda _: None)[0][-1].state is PopState.NEVER
