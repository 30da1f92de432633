"""Searches for keys: by the index, by a scan of what it lacks, and what a broker finds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.index_file import HEADER, HEADER_BYTES, ITEM, ITEM_BYTES, items_offset
from mqstore.formats.message_properties import TAGS, UNIQ_KEY, format_properties
from mqstore.store.log.message import is_batch_record
from mqstore.store.put.new_message import NewMessage
from mqstore.store.search.key_search import places_of_keys, search_key, uncovered
from mqstore.store.search.log_search import search_log
from mqstore.store.search.selection import Selection
from mqstore.store.search.store import StoreReader, Via

from ...stores import messages, truth, unpack
from ..choices import clean_where
from ..put.writing import NOW, TINY, writer
from .searched import NAME, Notes, Record, has_key, positions, wanted, with_key

pytestmark = pytest.mark.long

LONG_MAX = (1 << 63) - 1


@pytest.mark.few(8)
@pytest.mark.parametrize("name", clean_where(lambda t: t.get("index_queries")))
def test_keys_are_found_as_the_broker_finds_them(name: str, store: Callable[[str], Path]) -> None:
    by_position = {record["physical_offset"]: record for record in messages(name)}
    notes = Notes()
    with StoreReader(store(name)) as opened:
        for query in truth(name)["index_queries"]:
            if query.get("type"):
                continue
            topic, key = query["topic"], query["key"]
            selection = Selection(topic=topic, key=key, whole=True)
            every = list(search_key(opened, selection, note=notes))
            # a broker does not look for keys inside of batch records
            found = [one for one in every if Selection(key=key).takes(one.message)]
            assert all(is_batch_record(one.message.sys_flag) for one in every if one not in found)
            expected = [
                position
                for position, record in by_position.items()
                if record["topic"] == topic and has_key(record, key)
            ]
            assert positions(iter(found)) == expected, query
            of_the_broker = {p for p in query["offsets"] if p in expected}
            through = {one.message.position for one in found if one.via is Via.INDEX}
            unbounded = query["begin"] == 0 and len(query["offsets"]) < query["max"]
            assert not unbounded or of_the_broker == through, query


def test_a_key_without_a_topic(opened: StoreReader, known: list[Record]) -> None:
    notes = Notes()
    for key in ("AaAa", "key28", "订单-42"):
        expected = wanted(known, with_key(key))
        found = list(search_key(opened, Selection(key=key), note=notes))
        assert positions(iter(found)) == expected
        assert {one.via for one in found} <= {Via.INDEX}
        back = search_key(opened, Selection(key=key), reverse=True, note=notes)
        assert positions(back) == expected[::-1]
    unique = known[3]["properties"]["UNIQ_KEY"]
    assert known[3]["physical_offset"] in positions(search_key(opened, Selection(unique_key=unique), note=notes))
    assert positions(search_key(opened, Selection(unique_key="key28"), note=notes)) == []
    assert notes and "scanning" in notes[-1]


def test_a_key_is_found_by_scanning_what_the_index_lacks(store: Callable[[str], Path], known: list[Record]) -> None:
    root = store(NAME)
    files = sorted((root / "index").iterdir())
    files[0].unlink()
    notes = Notes()
    with StoreReader(root) as opened:
        for key in ("AaAa", "key28", "key263"):
            found = list(search_key(opened, Selection(key=key), note=notes))
            assert positions(iter(found)) == wanted(known, with_key(key))
            first = opened.index.files[0].header.begin_physical_offset
            assert {one.via for one in found if one.message.position < first} <= {Via.SCAN}
            assert {one.via for one in found if one.message.position >= first} <= {Via.INDEX}


@pytest.mark.parametrize("times", [(-5, None), (None, -5), (-100_000, -5), (0, 0), (LONG_MAX, LONG_MAX)])
@pytest.mark.parametrize("which", [0, 1])
def test_times_of_an_index_file_hide_nothing(
    which: int, times: tuple[int | None, int | None], store: Callable[[str], Path], known: list[Record]
) -> None:
    root = store(NAME)
    path = sorted((root / "index").iterdir())[which]
    data = path.read_bytes()
    header: dict[str, Any] = dict(HEADER.parse(data))
    header |= {name: at for name, at in zip(("begin_timestamp", "end_timestamp"), times, strict=True) if at is not None}
    path.write_bytes(HEADER.build(header) + data[HEADER_BYTES:])
    with StoreReader(root) as opened:
        for key in ("AaAa", "key28", "订单-42"):
            assert positions(search_key(opened, Selection(key=key), note=Notes())) == wanted(known, with_key(key))


@pytest.mark.parametrize("moved", [1, -(1 << 63), 1 << 40])
def test_items_that_lead_to_no_record_hide_nothing(
    moved: int, store: Callable[[str], Path], known: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range of their file is scanned. All items of one record in the middle of a file are moved."""
    root = store(NAME)
    with StoreReader(root) as opened:
        file = opened.index.files[0]
        hit = next(h for h in opened.index.query("orders", "订单-42").hits[::-1] if h.file is file)
        at, slots = hit.physical_offset, file.slots
        numbers = [number for number in range(2, file.last) if file.item(number).physical_offset == at]
    data = bytearray(Path(file.path).read_bytes())
    for number in numbers:
        begin = items_offset(slots) + number * ITEM_BYTES
        item: dict[str, Any] = dict(ITEM.parse(data[begin : begin + ITEM_BYTES]))
        item["physical_offset"] += moved
        data[begin : begin + ITEM_BYTES] = ITEM.build(item)
    Path(file.path).write_bytes(data)
    with StoreReader(root) as opened:
        found = list(search_key(opened, Selection(key="订单-42"), note=Notes()))
        assert positions(iter(found)) == wanted(known, with_key("订单-42"))
        assert [one.via for one in found if one.message.position == at] == [Via.SCAN]
        monkeypatch.setattr("mqstore.store.search.key_search._CHECKED", 0)
        notes = Notes()
        found = list(search_key(opened, Selection(key="订单-42"), note=notes))
        assert len(notes) == 1 or positions(iter(found)) == wanted(known, with_key("订单-42"))


@pytest.mark.parametrize("name", ["4.9.7-clean-index", "4.9.7-clean-no-queues"])
def test_damaged_stores_answer_all_the_same(name: str, store: Callable[[str], Path]) -> None:
    records = list(messages(name))
    notes = Notes()
    with StoreReader(store(name)) as opened:
        for key in ("AaAa", "key28", "key5"):
            expected = wanted(records, with_key(key))
            assert positions(search_key(opened, Selection(key=key), note=notes)) == expected
        expected = wanted(records, lambda r: r["topic"] == "orders")
        assert positions(search_log(opened, Selection(topic="orders"), note=notes)) == expected


@pytest.mark.parametrize(
    ("name", "lost", "scanned"),
    [
        ("5.5.0-rocksdb-killed", (), True),
        ("4.9.7-clean-no-queues", (), True),
        ("4.9.7-clean", ("consumequeue/payments", "consumequeue/orders"), False),
    ],
)
def test_messages_of_topics_without_queues(name: str, lost: tuple[str, ...], scanned: bool, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    for each in lost:
        shutil.rmtree(root / each)
    records = list(messages(name))
    keys = {key for r in records for key in r["properties"].get("KEYS", "").split(" ") if key}
    assert {"order", "tx-open"} & keys
    for key in sorted(keys)[::25] + sorted({"order", "tx-open", "tx-commit-commit-0"} & keys):
        notes = Notes()
        with StoreReader(root) as opened:
            found = list(search_key(opened, Selection(key=key), note=notes))
            assert positions(iter(found)) == wanted(records, with_key(key)), key
            assert any("scanning" in text for text in notes) is scanned
            assert scanned or {one.via for one in found} == {Via.INDEX}
    unique = [r["properties"]["UNIQ_KEY"] for r in records if "UNIQ_KEY" in r["properties"]][::20]
    first = {key: wanted(records, with_key(key))[0] for key in unique}
    with StoreReader(root) as opened:
        places = places_of_keys(opened, [(key, None) for key in unique], Notes())
    assert {key: place[0] for (key, _), place in places.items()} == first


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_first_message_with_a_unique_key(lost: int, tmp_path: Path) -> None:
    """Also where the index lacks the first, but has a later one."""
    with writer(tmp_path, config=TINY) as out:
        for number in range(100):
            own = b"UNIQ_KEY\1%032X\2" % (3 if number == 90 else number)
            out.append(NewMessage(b"T", b"", properties=own, store_timestamp=NOW))
    with StoreReader(tmp_path, TINY) as opened:
        first = next(iter(search_log(opened, Selection(unique_key=f"{3:032X}"), note=Notes()))).message.position
        files = [file.path for file in opened.index.files]
    assert len(files) > 3
    for path in files[:lost]:
        Path(path).unlink()
    for topic in ("T", None):
        notes, key = Notes(), (f"{3:032X}", topic)
        with StoreReader(tmp_path, TINY) as opened:
            found = places_of_keys(opened, [key], notes)
        assert (found[key][0], found[key][2], notes) == (first, Via.SCAN if lost else Via.INDEX, [])


def test_an_id_of_a_message_of_a_batch(tmp_path: Path) -> None:
    """Brokers 5.1 and 5.3 store it in front of the id of the batch, which the index has."""
    own, batch = [f"{number:032X}" for number in range(3)], "B" * 32
    with writer(tmp_path, config=TINY) as out:
        for key in own:
            text = format_properties({UNIQ_KEY: key, TAGS: "a"}) + format_properties({UNIQ_KEY: batch})
            out.append(NewMessage(b"T", b"", properties=text, store_timestamp=NOW))
    with StoreReader(tmp_path, TINY) as opened:
        log = [one.message for one in search_log(opened, Selection(), note=Notes())]
        every = [one.position for one in log]
        for key, expected in [*zip(own, [[at] for at in every], strict=True), (batch, every), ("C" * 32, [])]:
            for selection in (Selection(topic="T", unique_key=key), Selection(topic="T", key=key)):
                assert [one.message.position for one in search_key(opened, selection, note=Notes())] == expected
                assert [one.position for one in log if selection.takes(one)] == expected
        found = places_of_keys(opened, [(key, None) for key in (*own, batch)], Notes())
    first = {key: (at, -1, Via.SCAN) for key, at in zip(own, every, strict=True)} | {batch: (every[0], -1, Via.INDEX)}
    assert {key: place for (key, _), place in found.items()} == first


def test_uncovered_ranges() -> None:
    assert uncovered(0, 100, []) == [(0, 100)]
    assert uncovered(0, 100, [(0, 100)]) == []
    assert uncovered(10, 100, [(20, 30), (25, 60), (0, 12)]) == [(12, 20), (60, 100)]
    assert uncovered(10, 100, [(90, 200)]) == [(10, 90)]
    assert uncovered(10, 100, [(110, 200)]) == [(10, 100)]
