"""Searches for keys: by the index, by a scan of what it lacks, and what a broker finds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.log.message import is_batch_record
from mqstore.store.search.key_search import places_of_keys, search_key, uncovered
from mqstore.store.search.log_search import search_log
from mqstore.store.search.selection import Selection
from mqstore.store.search.store import StoreReader, Via

from ...stores import messages, truth, unpack
from ..choices import clean_where
from .searched import NAME, Notes, Record, has_key, positions, wanted, with_key

pytestmark = pytest.mark.long


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


def test_uncovered_ranges() -> None:
    assert uncovered(0, 100, []) == [(0, 100)]
    assert uncovered(0, 100, [(0, 100)]) == []
    assert uncovered(10, 100, [(20, 30), (25, 60), (0, 12)]) == [(12, 20), (60, 100)]
    assert uncovered(10, 100, [(90, 200)]) == [(10, 90)]
    assert uncovered(10, 100, [(110, 200)]) == [(10, 100)]
