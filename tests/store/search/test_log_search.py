"""Searches by queue, key and scan against plain filters over the truth; both ways of each agree."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mqstore.store.broker.filter import Where
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import NotFound
from mqstore.store.inspect.own_topics import delays_passed
from mqstore.store.log.batch import messages as messages_of
from mqstore.store.log.commit_log import Batch, RecordPlaces, batches, merged
from mqstore.store.log.message import read_message
from mqstore.store.search.find import Finder, find, parse_address, read_queue
from mqstore.store.search.key_search import search_key
from mqstore.store.search.log_search import log_offset_at, never_delivered, search_log, search_log_queue
from mqstore.store.search.queue_search import search_queues
from mqstore.store.search.selection import Selection, Slice, TimeRange
from mqstore.store.search.store import StoreReader

from ...stores import NAMES, config, messages, truth, unpack
from ..choices import clean_where, stores_where
from ..recover.recovered import recover
from .searched import NAME, Notes, Record, has_key, in_topic, positions, wanted

SELECTIONS: list[tuple[Selection, Callable[[Record], bool]]] = [
    (Selection(), lambda r: True),
    (Selection(topic="orders"), lambda r: r["topic"] == "orders"),
    (Selection(topic="T%a|b_c-D", queue_id=1), lambda r: (r["topic"], r["queue_id"]) == ("T%a|b_c-D", 1)),
    (Selection(tag="标签"), lambda r: r["properties"].get("TAGS") == "标签"),
    (Selection(topic="logs", tag="Aa"), lambda r: r["topic"] == "logs" and r["properties"].get("TAGS") == "Aa"),
    (Selection(key="key28"), lambda r: has_key(r, "key28")),
    (Selection(key="订单-42"), lambda r: has_key(r, "订单-42")),
    (Selection(key=""), lambda r: False),
    (
        Selection(times=TimeRange(1795210635090, 1795210636000)),
        lambda r: 1795210635090 <= r["store_timestamp"] < 1795210636000,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("selection", "condition"), SELECTIONS)
@pytest.mark.parametrize("reverse", [False, True])
def test_scanning_finds_what_a_filter_finds(
    opened: StoreReader, known: list[Record], selection: Selection, condition: Callable[[Record], bool], reverse: bool
) -> None:
    expected = wanted(known, condition)
    notes = Notes()
    found = positions(search_log(opened, selection, reverse=reverse, note=notes))
    assert found == (expected[::-1] if reverse else expected)
    assert notes == []
    first = positions(search_log(opened, selection, most=3, reverse=reverse, note=notes))
    assert first == (expected[:3][::-1] if reverse else expected[:3])


@pytest.mark.parametrize("reverse", [False, True])
def test_a_topic_is_its_queues_in_log_order(opened: StoreReader, known: list[Record], reverse: bool) -> None:
    notes = Notes()
    for topic in opened.topics:
        expected = wanted(known, in_topic(topic))
        found = positions(search_queues(opened, Selection(topic=topic), Slice(reverse=reverse), notes))
        assert found == (expected[::-1] if reverse else expected), topic
    assert notes == []


def test_conditions_in_queues_are_those_of_a_scan(opened: StoreReader) -> None:
    notes = Notes()
    middle = 1795210635500
    for extra in (
        {"tag": "TagA"},
        {"times": TimeRange(middle, middle + 400)},
        {"times": TimeRange(0, middle)},
        {"grep": re.compile("emoji|#2[0-9]$")},
        {"key": "AaAa"},
    ):
        for topic in ("orders", "logs", "SCHEDULE_TOPIC_XXXX"):
            for queue_id in (None, 0):
                selection = Selection(topic=topic, queue_id=queue_id, **extra)
                in_queues = positions(search_queues(opened, selection, Slice(), notes))
                assert in_queues == positions(search_log(opened, selection, note=notes))
                assert len(in_queues) > 0 or topic != "orders" or queue_id is not None or extra


@pytest.mark.parametrize(("offset", "count"), [(0, 1), (3, 5), (20, 64), (None, 4), (5, None)])
def test_a_few_by_queue_offset_are_the_same_every_way(
    opened: StoreReader, offset: int | None, count: int | None
) -> None:
    selection = Selection(topic="orders", queue_id=1)
    notes = Notes()
    in_queue = positions(search_queues(opened, selection, Slice(offset, count), notes))
    in_log = positions(search_log_queue(opened, selection, Slice(offset, count), notes))
    assert in_queue == in_log
    assert in_queue
    if offset is not None and count is not None:
        few = read_queue(opened, "orders", 1, offset, count, notes)
        assert positions(few) == in_queue


@pytest.mark.parametrize("name", clean_where(lambda t: t.get("get_queries")))
def test_gets_are_the_broker_s(name: str, store: Callable[[str], Path]) -> None:
    notes = Notes()
    with StoreReader(store(name)) as opened:
        for query in truth(name)["get_queries"]:
            topic, queue_id = query["topic"], query["queue_id"]
            if "compaction" in name or query["status"] != "FOUND":
                continue
            selection = Selection(topic=topic, queue_id=queue_id, whole=True)
            search = search_log_queue if opened.topic_unread(topic) else search_queues
            found = positions(search(opened, selection, Slice(query["offset"], query["max"]), notes))
            # a broker's answer ends at the end of a queue file, ours does not
            expected = query["physical_offsets"]
            assert found[: len(expected)] == expected, query
    assert notes == []


@pytest.mark.parametrize("reverse", [False, True])
def test_the_checksum_of_what_is_found_is_computed(
    store: Callable[[str], Path], known: list[Record], reverse: bool
) -> None:
    root = store(NAME)
    victim = next(r for r in known if r["topic"] == "orders" and r["body_length"])
    path = root / "commitlog" / ("0" * 20)
    data = bytearray(path.read_bytes())
    with StoreReader(root) as opened:
        body = read_message(opened.log_files, victim["physical_offset"]).stored_body
    data[data.index(body, victim["physical_offset"])] ^= 1
    path.write_bytes(data)
    with StoreReader(root) as opened:
        for text in ("TAGS IS NOT NULL OR TAGS IS NULL", "@body_crc_ok = FALSE"):
            selection = Selection(where=Where(text))
            found = list(search_log(opened, selection, reverse=reverse, note=Notes()))
            states = {one.message.position: one.message.body_crc_ok for one in found}
            assert states[victim["physical_offset"]] is False
            assert list(states.values()).count(False) == 1
            assert len(states) == (1 if "@" in text else len(known))


def test_damage_in_the_log_is_told_once(store: Callable[[str], Path], known: list[Record]) -> None:
    root = store(NAME)
    victim = next(r for r in known if r["topic"] == "orders" and r["queue_id"] == 0)
    with (root / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(victim["physical_offset"])
        file.write(bytes(8))
    notes = Notes()
    with StoreReader(root) as opened:
        every = positions(search_log(opened, Selection(), note=notes))
        assert every == wanted(known, lambda r: r is not victim)
        assert len(notes) == 1 and str(victim["physical_offset"]) in notes[0]
        notes.clear()
        selection = Selection(topic="orders", queue_id=0)
        in_queue = positions(search_queues(opened, selection, Slice(), notes))
        assert in_queue == wanted(known, lambda r: (r["topic"], r["queue_id"]) == ("orders", 0) and r is not victim)
        assert len(notes) == 1 and str(victim["physical_offset"]) in notes[0]
        notes.clear()
        few = positions(read_queue(opened, "orders", 0, victim["queue_offset"], 3, notes))
        assert few == in_queue[victim["queue_offset"] : victim["queue_offset"] + 2]
        assert len(notes) == 1 and str(victim["physical_offset"]) in notes[0]


def test_a_unit_that_points_elsewhere_is_left_out(store: Callable[[str], Path]) -> None:
    root = store(NAME)
    queues = root / "consumequeue"
    first = queues / "orders" / "0" / ("0" * 20)
    first.write_bytes((queues / "logs" / "0" / ("0" * 20)).read_bytes())
    notes = Notes()
    with StoreReader(root) as opened:
        selection = Selection(topic="orders", queue_id=0)
        assert positions(search_queues(opened, selection, Slice(), notes)) == []
        assert len(notes) == 1 and "other topics" in notes[0]
        assert positions(read_queue(opened, "orders", 0, 0, 1, notes)) == []
        assert "logs/0" in notes[1]


def test_a_queue_that_ends_says_what_it_has(opened: StoreReader) -> None:
    with pytest.raises(NotFound, match=r"orders/0 has no message 1000.*it has 0 to \d+"):
        list(read_queue(opened, "orders", 0, 1000, 1, Notes()))
    with pytest.raises(NotFound, match="no such topic"):
        search_queues(opened, Selection(topic="none"), Slice(), Notes())


@pytest.mark.parametrize("name", ["4.9.7-lmq", "5.3.3-lmq"])
def test_light_queues_hold_messages_of_other_topics(name: str, store: Callable[[str], Path]) -> None:
    if name not in NAMES:
        name = next(n for n in NAMES if "lmq" in n and "poison" not in n)
    notes = Notes()
    with StoreReader(store(name)) as opened:
        found = list(search_queues(opened, Selection(topic="%LMQ%a", queue_id=0), Slice(), notes))
        assert len(found) == truth(name)["queues"]["%LMQ%a/0"]["max_offset"]
        assert "%LMQ%a" not in {one.message.topic for one in found}
        few = read_queue(opened, "%LMQ%a", 0, 0, 5, notes)
        assert positions(few) == positions(iter(found[:5]))
    assert notes == []


@pytest.mark.parametrize("kind", ["rocksdb", "batchcq"])
def test_times_of_queues_that_are_not_read(
    kind: str, store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)  # the extra is not installed
    names = [n for n in NAMES if kind in n and truth(n)["expected_verdict"] == "clean"]
    notes = Notes()
    for name in names:
        with StoreReader(store(name)) as opened:
            for query in truth(name)["time_queries"]:
                topic, queue_id = query["topic"], query["queue_id"]
                if not opened.topic_unread(topic) and not opened.has_batch_queues(topic):
                    continue
                found = log_offset_at(opened, topic, queue_id, query["timestamp"], notes)
                assert found == query["offset"], query


@pytest.mark.few(12)
@pytest.mark.parametrize("name", stores_where(lambda t: t["name"] != "5.3.3-large"))
def test_one_record_is_read_as_many_are(name: str, store: Callable[[str], Path]) -> None:
    with StoreReader(store(name)) as opened:
        known = [record.get("position", record["physical_offset"]) for record in messages(name)]
        places = [*known[::5], *(p + 1 for p in known[:50:5])]
        for position in places:
            many = list(messages_of(opened.log.records(np.array([position], np.int64))))
            try:
                one = [read_message(opened.log_files, position)]
            except NotFound:
                one = []
            assert one == many, position


def test_a_condition_is_the_same_for_one_and_for_many(opened: StoreReader) -> None:
    selections = [selection for selection, _ in SELECTIONS]
    selections += [Selection(grep=re.compile("(?i)LOREM.*#7")), Selection(unique_key="nope")]
    for item in opened.log.scan():
        if not isinstance(item, Batch):
            continue
        for selection in selections:
            one_by_one = [selection.takes(message) for message in messages_of(item)]
            assert selection.mask(item).tolist() == one_by_one, selection


def test_streams_merge_by_position() -> None:
    rng = np.random.default_rng(5)
    for reverse in (False, True):
        values = rng.permutation(1000).astype(np.int64)
        streams = []
        for part in np.array_split(values, 7):
            part = np.sort(part)[::-1] if reverse else np.sort(part)
            cuts = np.array_split(part, rng.integers(1, 9))
            streams.append(iter([RecordPlaces(cut, cut) for cut in cuts if len(cut)]))
        found = [p for window in merged(streams, reverse=reverse) for p in window.position.tolist()]
        assert found == sorted(values.tolist(), reverse=reverse)


def test_batches_are_bounded(opened: StoreReader, known: list[Record]) -> None:
    places = RecordPlaces(
        np.array([r["physical_offset"] for r in known], np.int64), np.full(len(known), 4 << 20, np.int64)
    )
    parts = list(batches(opened.log, places))
    assert max(len(part) for part, _ in parts) <= 4
    assert np.concatenate([part.position for part, _ in parts]).tolist() == places.position.tolist()


@pytest.mark.few(2)
@pytest.mark.parametrize("name", stores_where(lambda t: t["name"].endswith("-restarted") and "after_load" in t["load"]))
def test_no_way_leads_to_what_a_broker_has_cut_off(name: str, store: Callable[[str], Path]) -> None:
    """Units behind the end of the log point at whole records, dead ones (spec 2.5, B21)."""
    end = truth(name)["load"]["after_load"]["max_phy_offset"]
    live = {record["physical_offset"] for record in messages(name) if record["physical_offset"] < end}
    notes = Notes()
    with StoreReader(store(name)) as opened:
        if opened.queues_unread:
            return
        for topic, queue_id, _ in opened.queues:
            selection = Selection(topic=topic, queue_id=queue_id)
            found = positions(search_queues(opened, selection, Slice(), notes))
            assert live.issuperset(found)
            with opened.queues.open(topic, queue_id) as queue:
                last = queue.summary().max_offset
            for offset in range(max(0, last - 12), last):
                try:
                    few = positions(read_queue(opened, topic, queue_id, offset, 1, notes))
                except NotFound:
                    few = []
                assert live.issuperset(few), (topic, queue_id, offset)
        every = {r["properties"].get("UNIQ_KEY") for r in messages(name)} - {None}
        for key in sorted(every)[::20]:
            found = positions(search_key(opened, Selection(unique_key=key), note=notes))
            assert live.issuperset(found)
    assert not [note for note in notes if "at no record" in note]


def test_a_topic_that_lost_its_queues_is_scanned_for(store: Callable[[str], Path], known: list[Record]) -> None:
    root = store(NAME)
    shutil.rmtree(root / "consumequeue" / "orders")
    notes = Notes()
    with StoreReader(root) as opened:
        found = positions(find(opened, Selection(topic="orders"), note=notes))
        assert found == wanted(known, in_topic("orders"))
        assert len(notes) == 1 and "topics.json" in notes[0]
        queue = Selection(topic="orders", queue_id=1)
        one = positions(find(opened, queue, offset=3, count=1, note=notes))
        assert one == wanted(known, lambda r: (r["topic"], r["queue_id"], r["queue_offset"]) == ("orders", 1, 3))
        (root / "config" / "topics.json").write_text("{")
        (root / "config" / "topics.json.bak").unlink()
    with StoreReader(root) as opened, pytest.raises(NotFound, match="no such topic: orders"):
        find(opened, Selection(topic="orders"), note=notes)


@pytest.mark.parametrize("time", [-5, 1, 1 << 41, (1 << 63) - 1])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_first_record_with_a_damaged_time_leaves_out_no_others(
    known: list[Record], tmp_path: Path, number: int, time: int
) -> None:
    root = unpack(NAME, tmp_path)
    file = sorted((root / "commitlog").iterdir())[number]
    first = next(r for r in known if r["physical_offset"] == int(file.name))
    data = file.read_bytes()
    stored = first["store_timestamp"].to_bytes(8, "big")
    at = data.rindex(stored, 0, first["total_size"])  # behind that of the birth, which may be the same
    file.write_bytes(data[:at] + time.to_bytes(8, "big", signed=True) + data[at + 8 :])
    times = TimeRange(known[0]["store_timestamp"], known[-1]["store_timestamp"] + 1)
    expected = wanted(known, lambda r: r["physical_offset"] != int(file.name) and r["store_timestamp"] in times)
    with StoreReader(root) as store:
        assert positions(search_log(store, Selection(times=times), note=Notes())) == expected


@pytest.fixture
def four(tmp_path: Path) -> Path:
    return unpack("4.9.7-clean", tmp_path)


def test_units_that_are_missing_or_damaged_are_counted(four: Path) -> None:
    """What a unit does not name is left out, and said; by its offset it is found all the same."""
    records = [r for r in messages("4.9.7-clean") if (r["topic"], r["queue_id"]) == ("orders", 1)]
    with (four / "consumequeue" / "orders" / "1" / ("0" * 20)).open("r+b") as file:
        file.seek(5 * 20)
        file.write(bytes(2 * 20))
    one = Selection(topic="orders", queue_id=1)
    notes = Notes()
    with StoreReader(four) as opened:
        left = [r["physical_offset"] for r in records if r["queue_offset"] not in (5, 6)]
        assert positions(find(opened, one, note=notes)) == left
        assert len(notes) == 1 and notes[0].startswith("2 units of orders are missing or damaged")
        notes.clear()
        assert positions(find(opened, one, offset=3, count=6, note=notes)) == left[3:7]
        assert [text for text in notes if "has no unit" in text] == [
            "orders/1 has no unit 5: left out",
            "orders/1 has no unit 6: left out",
        ]
        notes.clear()
        assert positions(find(opened, one, offset=6, count=1, note=notes)) == [records[6]["physical_offset"]]
        assert notes == ["orders/1 has no message 6: found by scanning the log"]


def test_a_queue_of_a_topic_that_is_lost(four: Path) -> None:
    records = [r for r in messages("4.9.7-clean") if r["topic"] == "orders"]
    lost = [r["physical_offset"] for r in records if r["queue_id"] == 1]
    shutil.rmtree(four / "consumequeue" / "orders" / "1")
    notes = Notes()
    with StoreReader(four) as opened:
        rest = [r["physical_offset"] for r in records if r["queue_id"] != 1]
        assert positions(find(opened, Selection(topic="orders"), note=notes)) == rest
        assert len(notes) == 1 and notes[0].startswith("orders has no queue 1, but groups have consumed from it")
        one = Selection(topic="orders", queue_id=1)
        for place, expected in (((None, None), lost), ((3, 1), lost[3:4]), ((3, None), lost[3:])):
            notes.clear()
            found = positions(find(opened, one, offset=place[0], count=place[1], note=notes))
            assert (found, notes) == (expected, ["no queue 1 of topic orders: found by scanning the log"])
        with pytest.raises(NotFound, match="no queue 1 of topic orders"):
            list(find(opened, one, offset=1000, count=1, note=notes))


def test_positions_that_name_no_queue(four: Path) -> None:
    text = '{"offsetTable":{"orders@g":{"-1":4,"0":0,"9":0},"\\ud800@g":{0:5},"@g":{1:2},"later@g":{7:2}}}'
    (four / "config" / "consumerOffset.json").write_text(text)
    with StoreReader(four) as opened:
        assert (opened.lost_queues("orders"), opened.lost_queues("later")) == ([], [7])
        notes = Notes()
        list(find(opened, Selection(topic="orders"), note=notes))
        assert notes == []


@pytest.mark.parametrize("name", ["4.9.7-killed", "4.9.7-clean", "5.3.3-clean"])
def test_what_lies_behind_the_queues(name: str, tmp_path: Path) -> None:
    """A killed broker had not dispatched its last messages; a broker that was stopped had."""
    records = list(messages(name))
    last = max(records, key=lambda r: r["physical_offset"] if not r["topic"].startswith("RMQ_SYS") else 0)
    one = Selection(topic=last["topic"], queue_id=last["queue_id"])
    notes = Notes()
    with StoreReader(unpack(name, tmp_path)) as opened:
        for selection in (one, one._replace(queue_id=None)):
            for offset, count in ((None, None), (max(0, last["queue_offset"] - 1), 5)):
                if offset is None or selection is one:
                    list(find(opened, selection, offset=offset, count=count, note=notes))
        behind = [text for text in notes if "behind the log" in text]
        assert (len(behind), len(notes)) == ((3, 3) if "killed" in name else (0, 0))
        found = find(opened, one, offset=last["queue_offset"], count=1, note=notes)
        assert positions(found) == [last["physical_offset"]]


@pytest.mark.parametrize("other", ["0", "1"])
def test_a_unit_that_points_at_another_message_of_its_topic(four: Path, other: str) -> None:
    queues = four / "consumequeue" / "orders"
    data = (queues / other / ("0" * 20)).read_bytes()[5 * 20 : 6 * 20]
    with (queues / "0" / ("0" * 20)).open("r+b") as file:
        file.seek(10 * 20)
        file.write(data)
    records = [r for r in messages("4.9.7-clean") if (r["topic"], r["queue_id"]) == ("orders", 0)]
    mine = [r["physical_offset"] for r in records]
    notes = Notes()
    one = Selection(topic="orders", queue_id=0)
    with StoreReader(four) as opened:
        assert positions(find(opened, one, offset=10, count=1, note=notes)) == [mine[10]]
        assert notes == [
            f"unit 10 of orders/0 points at message 5 of orders/{other}: left out",
            "unit 10 of orders/0 names no message: found by scanning the log",
        ]
        assert positions(find(opened, one, offset=9, count=3)) == [mine[9], mine[11]]
        notes.clear()
        assert positions(find(opened, one, offset=2, count=100, note=notes)) == mine[2:10] + mine[11:]
        assert notes == ["1 unit of orders points at messages of other numbers: left out"]
        for selection in (one, Selection(topic="orders")):
            notes.clear()
            found = positions(find(opened, selection, note=notes))
            assert set(mine) - set(found) == {mine[10]}
            assert notes == ["1 unit of orders points at messages of other numbers"]
        with Finder(opened, notes) as finder:
            [answer] = finder.find([parse_address("orders/0/10")])
            assert isinstance(answer, NotFound)


@pytest.mark.parametrize("name", ["4.9.7-killed", "5.3.3-clean", "5.3.3-killed-restarted", "5.5.0-clean"])
def test_what_no_broker_can_have_delivered(name: str, tmp_path: Path) -> None:
    """It is what the broker had not delivered when it stopped, of levels that wait longer than it ran."""
    with StoreReader(unpack(name, tmp_path)) as store:
        noted, all_passed = delays_passed(store) or {}, dict.fromkeys(range(1, 19), 10**6)
        found = never_delivered(store, all_passed)
        assert not never_delivered(store, noted)
        ends = {
            q.queue_id + 1: store.queue_summary(store.queues.open(*q[:2]))
            for q in store.queues.of_topic(SCHEDULE_TOPIC)
        }
    assert 18 in found and found == {
        level: noted.get(level, 0) for level, ends in ends.items() if noted.get(level, 0) < ends.max_offset
    }


def test_a_level_that_waits_less_by_now_has_delivered_what_waits_longer(tmp_path: Path) -> None:
    root = unpack(NAME, tmp_path)
    for levels, there in (("1s " * 18, False), ("1s " * 17 + "3h", True), ("soon", False)):
        with StoreReader(root, BrokerConfig({"messageDelayLevel": levels})) as store:
            assert (18 in never_delivered(store, {18: 10**6})) is there, levels


def test_a_due_time_in_consumequeue_ext_counts(tmp_path: Path) -> None:
    """The unit has only the address of the due time, which is below all times."""
    with StoreReader(unpack("4.9.7-cqext", tmp_path)) as store:
        assert 18 in never_delivered(store, {18: 10**6})


@pytest.mark.parametrize("damage", ["zeros", "torn", "stale"])
def test_a_log_that_lost_its_end_proves_no_delivery_wrong(damage: str, tmp_path: Path) -> None:
    root = unpack(NAME, tmp_path)
    with StoreReader(root) as store:
        last, _ = store.near_the_end(store.queue_summaries)
        end = store.log_end.position
        assert last is not None and never_delivered(store, {18: 10**6})
        file = store.log_files.file_at(last)
    assert file is not None
    with Path(file.path).open("r+b") as log:
        begin = last - file.start
        log.seek({"zeros": begin, "torn": begin + 84, "stale": begin + 4}[damage])
        log.write(b"\xff" * 9 if damage == "stale" else bytes(end - last))
    with StoreReader(root) as store:
        assert never_delivered(store, {18: 10**6}) == {}


def test_after_a_clock_that_went_back_the_last_record_is_not_the_newest_one(tmp_path: Path) -> None:
    """What was delivered in between is in the log, and newer than what ends it."""
    root = unpack(NAME, tmp_path)
    with StoreReader(root) as store:
        first = never_delivered(store, {18: 10**6})[18]
        unit = store.queues.open(SCHEDULE_TOPIC, 17).unit(first)
        assert unit is not None
        parts = store.good_records(unit.physical_offset)
        columns = ((part.columns.ints("store_timestamp").tolist(), part.position.tolist()) for part in parts)
        times = [row for both in columns for row in zip(*both, strict=True)]
        (stored_ms, place), end = times[-2], times[-1][1]
        file = store.log_files.file_at(place)
    assert file is not None
    with Path(file.path).open("r+b") as log:
        log.seek(place - file.start)
        record = log.read(end - place).rpartition(stored_ms.to_bytes(8, "big"))
        log.seek(place - file.start)
        log.write(record[0] + (unit.tags_code + 5).to_bytes(8, "big") + record[2])
    with StoreReader(root) as store:
        assert never_delivered(store, {18: first + 1}) == {}


def test_a_session_silences_the_proof_only_where_it_changed_log_or_queues(tmp_path: Path) -> None:
    root = unpack(NAME, tmp_path)
    paths = (
        ("index/20261120213714829", False, True),
        ("config/topics.json", False, True),
        ("commitlog/00000000000000000000", True, True),
        ("consumequeue/orders/0/00000000000000000000", False, False),
    )
    for number, (path, taken_back, told) in enumerate(paths):
        folder = root / ".mqstore" / f"20261129T12000{number}.000000Z"
        folder.mkdir(parents=True)
        (folder / "journal.json").write_text(f'{{"steps":[{{"path":"{path}"}}]}}')
        if taken_back:
            (folder / "undone").touch()
        with StoreReader(root) as store:
            assert bool(never_delivered(store, {18: 10**6})) is told, path


def test_a_recovery_that_takes_only_zeros_leaves_the_proof(tmp_path: Path) -> None:
    """A killed broker leaves an empty log file, and queues without their last units."""
    root, passed = unpack("4.9.7-killed", tmp_path), dict.fromkeys(range(1, 19), 10**6)
    options = BrokerConfig(config("4.9.7-killed", root))
    with StoreReader(root, options) as store:
        before = never_delivered(store, passed)
    recover(root, options, "4.9")
    with StoreReader(root, options) as store:
        assert never_delivered(store, passed) == before != {}
