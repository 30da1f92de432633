"""Dispatch against a plain reading of the specification, on the records of real brokers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.derive import Columns, Ragged
from mqstore.formats.hashing import index_hash, java_string, tags_code
from mqstore.formats.message_properties import parse
from mqstore.store.broker.dispatch import Dispatched, dispatch_columns, split_keys
from mqstore.store.broker.dispatch_record import Dispatching
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC, parse_levels
from mqstore.store.columns import dictionary

from ...stores import NAMES
from ..choices import few
from ..real_log import columns_of, layout_of, records_of

Row = tuple[Any, ...]
READABLE = [n for n in NAMES if "hole" not in n and "dledger" not in n]


def expected_units(record: Any, row: int) -> list[Row]:
    """(row, topic, queue, queue offset, position, size, tags code, time) by the spec's words."""
    if record.sys_flag & 0xC in (0x4, 0xC):
        return []
    properties = parse(record.properties)
    topic = java_string(record.topic)
    hashed = tags_code(properties.get("TAGS"))
    code = hashed
    if topic == SCHEDULE_TOPIC and "DELAY" in properties:
        level = min(int(properties["DELAY"]), 18)
        if level > 0:
            code = record.store_timestamp + parse_levels()[level - 1]
    rest = (record.physical_offset, record.total_size)
    own = (row, topic, record.queue_id, record.queue_offset, *rest, code, record.store_timestamp)
    names = properties.get("INNER_MULTI_DISPATCH", "").rstrip(",").split(",")
    offsets = properties.get("INNER_MULTI_QUEUE_OFFSET", "").rstrip(",").split(",")
    named: list[Row] = []
    if len(names) == len(offsets) and names != [""]:
        for name, offset in zip(names, offsets, strict=True):
            if offset and "/" not in name:
                queue = 0 if name.startswith("%LMQ%") else record.queue_id
                unit = (row, name, queue, int(offset), *rest, hashed, record.store_timestamp)
                named.append(unit)
    return [own, *named]


def expected_items(record: Any, row: int, tags: bool) -> list[Row]:
    """(row, key hash, position, time)."""
    if record.sys_flag & 0xC == 0xC:
        return []
    properties = parse(record.properties)
    topic = java_string(record.topic)
    texts = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
    if tags and "TAGS" in properties:
        texts.append("T#" + properties["TAGS"])
    rest = (record.physical_offset, record.store_timestamp)
    return [(row, index_hash(topic, text), *rest) for text in texts if text]


def rows_of(found: Dispatched) -> tuple[list[Row], list[Row]]:
    units, items = found.units, found.items
    columns = [getattr(units, name).tolist() for name in units.FIELDS]
    columns[1] = [found.topics[i] for i in columns[1]]
    item_columns = [getattr(items, name).tolist() for name in items.FIELDS]
    return list(zip(*columns, strict=True)), list(zip(*item_columns, strict=True))


@pytest.mark.few(6)
@pytest.mark.parametrize("name", few(READABLE))
def test_every_record_of_a_real_store(name: str, store: Callable[[str], Path]) -> None:
    layout = layout_of(name, store(name))
    columns, records = columns_of(layout), records_of(layout)
    for tags in (False, True):
        units, items = rows_of(dispatch_columns(columns, Dispatching(index_tags=tags)))
        assert units == [u for i, r in enumerate(records) for u in expected_units(r, i)]
        assert items == [x for i, r in enumerate(records) for x in expected_items(r, i, tags)]
    assert len(records) == len(columns)


def columns_for(rows: list[dict[str, Any]]) -> Columns:
    """Columns with the fields that dispatch needs; what is not given is a plain value."""
    columns = Columns(np.zeros(len(rows), np.int64))
    for name in ("topic", "properties"):
        columns.set(name, Ragged.of([row.get(name, b"T") for row in rows]))
    for number, name in enumerate(
        ("queue_id", "queue_offset", "physical_offset", "total_size", "sys_flag", "store_timestamp")
    ):
        default = 0 if name == "sys_flag" else number
        columns.set(name, np.array([row.get(name, default) for row in rows], np.int64))
    return columns


def properties(**items: str) -> bytes:
    return b"".join(f"{k}\1{v}\2".encode() for k, v in items.items())


def test_transaction_states() -> None:
    rows = [
        {"sys_flag": flag, "properties": properties(UNIQ_KEY="u", KEYS="k", TAGS="t")}
        for flag in (0x0, 0x4, 0x8, 0xC, 0x30D)
    ]
    found = dispatch_columns(columns_for(rows), Dispatching(index_tags=True))
    assert found.units.record.tolist() == [0, 2]
    assert np.bincount(found.items.record, minlength=5).tolist() == [3, 3, 3, 0, 0]
    assert found.count == 5


@pytest.mark.parametrize(
    ("delay", "code"),
    [
        ("3", 5 + 10_000),
        ("18", 5 + 7_200_000),
        ("99", 5 + 7_200_000),
        ("0", tags_code("t")),
        ("-1", tags_code("t")),
        ("x", tags_code("t")),
        ("", tags_code("t")),
    ],
)
def test_delay_in_the_schedule_topic_only(delay: str, code: int) -> None:
    text = properties(TAGS="t", DELAY=delay)
    rows = [{"topic": SCHEDULE_TOPIC.encode(), "properties": text}, {"properties": text}]
    units = dispatch_columns(columns_for(rows), Dispatching(index_tags=False)).units
    assert units.tags_code.tolist() == [code, tags_code("t")]


def test_configured_delay_levels() -> None:
    rows = [{"topic": SCHEDULE_TOPIC.encode(), "properties": properties(DELAY=d)} for d in "129"]
    levels = parse_levels("7s 2d")
    units = dispatch_columns(columns_for(rows), Dispatching(index_tags=False, delay_levels=levels)).units
    assert units.tags_code.tolist() == [5 + 7_000, 5 + 172_800_000, 5 + 172_800_000]


def test_light_queues() -> None:
    def message(names: str, offsets: str, topic: str = "T") -> dict[str, Any]:
        text = properties(INNER_MULTI_DISPATCH=names, INNER_MULTI_QUEUE_OFFSET=offsets, TAGS="t")
        return {"topic": topic.encode(), "properties": text, "queue_id": 7}

    rows = [
        message("%LMQ%a,other,%LMQ%b", "4,5,6"),
        message("%LMQ%a,copy,%LMQ%b", "0,,2"),
        message("%LMQ%a,%LMQ%b", "1"),
        message("%LMQ%a,%LMQ%b", "1,"),
        message("%LMQ%a", "9", "%RETRY%g"),
        message("%LMQ%a", "9", "rmq_sys_x"),
        message("%LMQ%x/y", "3"),
        message("%LMQ%a", "x"),
        message("%LMQ%x/y", "x"),
    ]
    found = dispatch_columns(columns_for(rows), Dispatching(index_tags=False))
    units, _ = rows_of(found)
    named = [unit[:4] for unit in units if unit[1] not in ("T", "%RETRY%g", "rmq_sys_x")]
    assert named == [
        *((0, "%LMQ%a", 0, 4), (0, "other", 7, 5), (0, "%LMQ%b", 0, 6)),
        *((1, "%LMQ%a", 0, 0), (1, "%LMQ%b", 0, 2)),
    ]
    assert [unit[0] for unit in units] == [0, 0, 0, 0, 1, 1, 1, *range(2, 9)]
    assert {unit[6] for unit in units} == {tags_code("t")}
    assert found.undispatchable.tolist() == [1, 7]
    slashed = dispatch_columns(columns_for(rows), Dispatching(index_tags=False, slash_names=True))
    assert "%LMQ%x/y" in slashed.topics and slashed.undispatchable.tolist() == [1, 7, 8]
    plain = dispatch_columns(columns_for(rows), Dispatching(index_tags=False, multi_dispatch=False))
    assert len(plain.units) == len(rows)


def test_nothing_in_nothing_out() -> None:
    found = dispatch_columns(columns_for([]), Dispatching(index_tags=True))
    assert (len(found.units), len(found.items), found.topics, found.count) == (0, 0, [], 0)


texts = st.text(st.sampled_from("abc#é😀 \t"), max_size=9)


@given(st.lists(st.fixed_dictionaries({"UNIQ_KEY": texts, "KEYS": texts, "TAGS": texts})))
def test_items_of_any_keys(found: list[dict[str, str]]) -> None:
    rows = [{"topic": f"T{i % 3}é".encode(), "properties": properties(**p)} for i, p in enumerate(found)]
    _, items = rows_of(dispatch_columns(columns_for(rows), Dispatching(index_tags=True)))
    expected = []
    for i, p in enumerate(found):
        keys = [p["UNIQ_KEY"], *p["KEYS"].split(" "), f"T#{p['TAGS']}" if p["TAGS"] else ""]
        expected += [(i, index_hash(f"T{i % 3}é", key)) for key in keys if key]
    assert [item[:2] for item in items] == expected


@given(st.lists(st.binary(max_size=20) | st.none(), max_size=40), st.integers(0, 9))
def test_dictionary_of_any_strings(strings: list[bytes | None], repeats: int) -> None:
    strings = strings * repeats
    found = dictionary(Ragged.of(strings))
    plain = [string or b"" for string in strings]
    assert [found.values[i] for i in found.ids.tolist()] == plain
    assert found.values == list(dict.fromkeys(plain))


def test_dictionary_survives_shared_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_alike(strings: Ragged) -> Any:
        return np.zeros(len(strings), np.int64)

    monkeypatch.setattr("mqstore.store.columns._slots", all_alike)
    strings = [b"a", b"bb", b"a", b"c" * 30, b"bb", b"c" * 30, b""]
    found = dictionary(Ragged.of(strings))
    assert [found.values[i] for i in found.ids.tolist()] == strings
    assert len(found.values) == 4


@given(st.lists(st.text(st.sampled_from("ab "), max_size=6) | st.none(), max_size=20))
def test_split_keys_as_java_does(keys: list[str | None]) -> None:
    rows, parts = split_keys(Ragged.of([None if k is None else k.encode() for k in keys]))
    expected = [(i, p) for i, k in enumerate(keys) for p in re.split(" ", k or "") if p]
    assert list(zip(rows.tolist(), parts.tolist(), strict=True)) == [(i, p.encode()) for i, p in expected]
