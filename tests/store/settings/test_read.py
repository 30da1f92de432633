"""Files of config/: entries of real brokers' files, damage, and which of file and .bak counts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats.json_table import JsonTable
from mqstore.formats.kinds import KINDS
from mqstore.formats.pop import CHECK_POINT_TAG
from mqstore.store.errors import Missing, Unreadable
from mqstore.store.settings import read
from mqstore.store.settings.parse import Grammar, entries
from mqstore.store.settings.read import FILES, config_files, read_config_file, read_pop, summaries_of

from ...slices import examples
from ...stores import ALL, NAMES, unpack

TABLES = [(name, table) for name, kind in KINDS.items() for table in kind.tables]
LEFT = {"groupTopicMap", "orderInfoCount", "orderedConsumptionLevel"}
"""Members of real files that are no table: derived, or a single setting."""


def read_all(config: Path) -> list[dict[str, Any]]:
    """Every record of every file, which must be whole."""
    records: list[dict[str, Any]] = []
    for kind, path, _ in config_files(config):
        file = read_config_file(path, kind)
        assert file.problem is None, path
        records += file.records()
    return records


@pytest.mark.few(20)
@pytest.mark.parametrize("name", NAMES)
def test_all_that_brokers_wrote_is_known(name: str, tmp_path: Path) -> None:
    for record in read_all(unpack(name, tmp_path) / "config"):
        if record["type"] == "config_value":
            assert record["name"] in LEFT, record
        assert "more" not in record, record
        assert "problem" not in record, record


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_all_that_brokers_wrote_in_all_stores(name: str, tmp_path: Path) -> None:
    test_all_that_brokers_wrote_is_known(name, tmp_path)


def test_entries_are_those_of_a_plain_reading(store: Callable[[str], Path]) -> None:
    """A file without numbers for keys, by Python's own reader."""
    config = store("5.3.3-clean") / "config"
    raw = json.loads((config / "topics.json").read_text("utf-8"))["topicConfigTable"]
    records = list(read_config_file(config / "topics.json", "topics").records())
    found = {r["topic"]: r for r in records if r["type"] == "topic_config"}
    assert found.keys() == raw.keys()
    for topic, entry in raw.items():
        assert found[topic]["read_queue_nums"] == entry["readQueueNums"]
        assert found[topic]["attributes"] == entry["attributes"]


def test_offsets_are_one_record_each(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text('{"offsetTable":{"a@b@g":{0:12,1:3}},"pullOffsetTable":{"t@g":{"7":1}}}')
    found = list(read_config_file(path, "consumer-offset").records())
    assert [(r["table"], r["topic"], r["group"], r["queue_id"], r["offset"]) for r in found] == [
        ("offsetTable", "a@b", "g", 0, 12),
        ("offsetTable", "a@b", "g", 1, 3),
        ("pullOffsetTable", "t", "g", 7, 1),
    ]


def test_what_is_unknown_or_of_another_type_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_text('{"topicConfigTable":{"a":{"perm":"6","order":1,"new":[1]},"b":7},"stranger":{"x":1}}')
    first, second, third = read_config_file(path, "topics").records()
    assert first["more"] == {"perm": "6", "order": 1, "new": [1]}
    assert (second["name"], second["value"]) == ("topicConfigTable.b", 7)
    assert second["problem"] == "no topic config"
    assert (third["type"], third["name"], third["value"]) == ("config_value", "stranger", {"x": 1})


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a@g", "0", "-1", "t", "groupFilterData", "perm", "topic", "x" * 30]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "table"), TABLES)
@settings(max_examples=examples(25))
@given(value=JUNK)
def test_any_value_gives_records(kind: str, table: JsonTable, value: Any) -> None:
    known = {column.column for column in table.columns} | {"type", "file", "table", "more"}
    for record in entries(table, value, {"file": "f"}):
        if record["type"] == "config_value":
            assert record["name"].startswith(table.member)
        else:
            assert set(record) <= known
            for column in table.columns:
                assert column.column not in record or column.fits(record[column.column])


def damaged(config: Path, name: str, how: str) -> None:
    """Damage as power cuts leave it (RocketMQ issues 3401, 5905, 6096)."""
    path = config / name
    data = path.read_bytes()
    if how == "empty":
        path.write_bytes(b"")
    elif how == "zeros":
        path.write_bytes(bytes(len(data)))
    elif how == "half":
        path.write_bytes(data[: len(data) // 2])
    elif how == "half zeros":
        path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
    elif how == "garbage behind":
        path.write_bytes(data + data[-30:])
    elif how == "missing":
        path.unlink()


@pytest.mark.parametrize("how", ["empty", "zeros", "half", "half zeros", "garbage behind", "missing"])
def test_damage_and_the_backup(how: str, tmp_path: Path) -> None:
    config = unpack("5.3.3-clean", tmp_path) / "config"
    whole = {one.file: one for one in summaries_of(config)}
    assert all(one.state == "whole" for one in whole.values())
    damaged(config, "topics.json", how)
    found = {one.file: one for one in summaries_of(config)}
    topics = found.pop("topics.json")
    assert topics.state == ("missing" if how == "missing" else "broken")
    assert "a broker reads topics.json.bak, which is whole" in topics.text
    assert found == {name: one for name, one in whole.items() if name != "topics.json"}
    damaged(config, "topics.json.bak", "half")
    (again,) = (one for one in summaries_of(config) if one.file == "topics.json")
    assert "topics.json.bak is broken too" in again.text
    damaged(config, "topics.json.bak", "empty")
    (again,) = (one for one in summaries_of(config) if one.file == "topics.json")
    assert "topics.json.bak is empty: a broker begins with an empty table" in again.text
    damaged(config, "topics.json.bak", "missing")
    left = [one for one in summaries_of(config) if one.file == "topics.json"]
    assert [("there is no topics.json.bak" in one.text) for one in left] == [True] * len(left)
    assert len(left) == (how != "missing")


def test_a_half_file_gives_its_first_half(tmp_path: Path) -> None:
    config = unpack("5.3.3-clean", tmp_path) / "config"
    path = config / "topics.json"
    whole = [r["topic"] for r in read_config_file(path, "topics").records() if "topic" in r]
    size = path.stat().st_size
    os.truncate(path, size * 2 // 3)
    file = read_config_file(path, "topics")
    part = [r["topic"] for r in file.records() if "topic" in r]
    assert len(whole) // 4 < len(part) < len(whole)
    assert part == whole[: len(part)]
    assert file.problem is not None
    assert file.problem.position + file.problem.size == size * 2 // 3


def test_a_file_that_is_too_large_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "LARGEST_BYTES", 1000)
    path = tmp_path / "delayOffset.json"
    path.write_text('{"offsetTable":{' + ",".join(f"{n}:1" for n in range(1000)) + "}}")
    file = read_config_file(path, "delay-offset")
    assert file.problem is not None and "more than 1000 bytes" in file.problem.reason
    assert 100 < len(list(file.records())) < 1000
    assert file.problem.position == 1000


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(Missing):
        read_config_file(tmp_path / "topics.json", "topics")
    os.mkfifo(tmp_path / "topics.json")
    with pytest.raises(Unreadable):
        read_config_file(tmp_path / "topics.json", "topics")
    assert list(config_files(tmp_path)) == []


def test_every_file_of_the_specification_has_a_kind() -> None:
    assert set(FILES) == {
        *("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"),
        *("consumerFilter.json", "lmqConsumerOffset.json", "consumerOrderInfo.json"),
        *("topicQueueMapping.json", "messageRequestMode.json", "transactionMetrics"),
        *("timermetrics", "tieredStoreMetadata.json", "broker.properties"),
        *("position-checkpoint", "epochFileCheckpoint", "brokerIdentity"),
    }


GOOD = b'{"bm":0,"bn":"b","c":"g","d":[],"it":1000,"n":1,"pt":5,"q":0,"so":0,"t":"T"}'
TAKEN = [(b'"T"', b'"\xd4"'), (b'"T"', b'"T\x01"'), (b'"T"', b"'T'"), (b'"T"}', b'"T",}')]
"""What PopCheckPoint is still read from by the fastjson of 5.1.4 and the fastjson2 of 5.4.0 to 5.5.1."""


@pytest.mark.parametrize("body", [GOOD.replace(*change) for change in TAKEN])
@pytest.mark.parametrize("grammar", [Grammar.FASTJSON, Grammar.FASTJSON_2])
def test_a_body_is_json_where_a_broker_takes_it_for_that(body: bytes, grammar: Grammar) -> None:
    fields, why = read_pop(CHECK_POINT_TAG, body, grammar)
    assert fields is not None and fields["group"] == "g" and not why


@pytest.mark.parametrize("body", [b"", b"x", b"null", b"[]", GOOD + b"x", GOOD[:-1]])
def test_a_body_that_is_no_object_stops_its_queue(body: bytes) -> None:
    assert read_pop(CHECK_POINT_TAG, body, Grammar.FASTJSON_2) == (None, "it is no JSON")
    assert read_pop("", body, Grammar.FASTJSON_2) == (None, "")


def test_fastjson2_reads_no_body_with_a_name_without_quotes() -> None:
    """Measured with 5.3.3 and 5.5.1."""
    body = GOOD.replace(b'"so"', b"so")
    assert read_pop(CHECK_POINT_TAG, body, Grammar.FASTJSON)[0] is not None
    assert read_pop(CHECK_POINT_TAG, body, Grammar.FASTJSON_2)[1]
    assert read_pop(CHECK_POINT_TAG, GOOD.replace(b"{", b"{/*x:*/"), Grammar.FASTJSON_2)[0] is not None


@pytest.mark.parametrize("grammar", [Grammar.FASTJSON, Grammar.FASTJSON_2])
def test_a_member_of_another_type_stops_its_queue(grammar: Grammar) -> None:
    """Measured with 5.1.4, 5.3.3, 5.4.0, 5.5.0 and 5.5.1: what some of them take is wrong, and is no stop."""
    refused = {b"so": (b'"x"', b'" 5"', b"{}", b"[]", b"1" + b"0" * 19), b"q": (b'"x"', b"[]", b"3000000000")}
    refused |= {b"d": (b'"x"', b'["x"]', b'"[1]"')}
    taken = {b"so": (b'"5"', b'"+5"', b'""', b'"null"', b'"1.5"', b"true"), b"q": (b"1.5",)}
    taken |= {b"d": (b"5", b"{}", b'["5"]', b"[null]"), b"t": (b"5", b"{}")}
    by_one = {b"so": (b"[1]",), b"q": (b"{}",), b"d": (b"[3000000000]", b'["3000000000"]')}  # some fastjson2 takes it
    for name, values in (*refused.items(), *taken.items(), *by_one.items()):
        stops = values in refused.values() or (values in by_one.values() and grammar is Grammar.FASTJSON)
        why = f"its member {name.decode()} has a value of another type" if stops else ""
        assert {read_pop(CHECK_POINT_TAG, _with(name, value), grammar) for value in values} == {(None, why)}


@pytest.mark.parametrize(
    ("number", "left"), [(10**19, False), (12345678901234567890123, True), (1 << 63, False), ((1 << 64) + 4, True)]
)
def test_a_number_that_runs_over_is_taken_by_fastjson(number: int, left: bool) -> None:
    """Where what its 64 bits hold is not negative: 5.1.4 and 5.3.3; fastjson2 refuses each. left: it is not."""
    for name in (b"so", b"pt", b"it"):
        for value in (b"%d", b'"%d"', b"-%d"):
            body = _with(name, value % number)
            taken = left or (number == 1 << 63 and value == b"-%d")
            assert bool(read_pop(CHECK_POINT_TAG, body, Grammar.FASTJSON)[1]) != taken
            assert bool(read_pop(CHECK_POINT_TAG, body, Grammar.FASTJSON_2)[1]) == (
                value != b"-%d" or number != 1 << 63
            )
    assert read_pop(CHECK_POINT_TAG, _with(b"q", b"%d" % number), Grammar.FASTJSON)[1]
    assert read_pop(CHECK_POINT_TAG, _with(b"so", b'"%s"' % (b"3" * 5000)), Grammar.FASTJSON)[0] is None


def _with(name: bytes, value: bytes) -> bytes:
    """A good body with another value of a member."""
    return re.sub(rb'"%s":[^,}]*' % name, lambda _: b'"%s":%s' % (name, value), GOOD)
