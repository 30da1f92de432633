"""Rows of the commit log, without Spark: what they say, and that cuts anywhere lose nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mqstore.pipeline.sources.log import LogReader
from mqstore.store.arrow.log_columns import COLUMNS
from mqstore.store.arrow.log_rows import Damage, LogPart, damage_of, fields_of, parts_of, rows_of
from mqstore.store.arrow.stores import Ask
from mqstore.store.arrow.views import damage_parts, damage_rows
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput, Missing, NotAStore, Unreadable
from mqstore.store.log.batch import messages
from mqstore.store.log.commit_log import Batch, Extent, ExtentKind, Split
from mqstore.store.log.message import Mark
from mqstore.store.queues.references import commit_log_of
from mqstore.store.search.log_search import DamageWarning
from mqstore.store.search.selection import TimeRange

from ...slices import pick
from ...stores import NAMES, unpack

DAMAGED = ("4.9.7-killed-page", "4.9.7-killed-bit", "4.9.7-killed-torn", "4.9.7-killed-hole")
FAST = (*DAMAGED, "4.9.7-multipath", "5.3.3-dledger", "5.3.3-v2", "5.3.3-killed-page-restarted")
EVERYTHING = ",".join(COLUMNS)


def ask_of(root: Path, **options: str) -> Ask:
    """What the options of a read ask, with the columns made out as Spark hands them back."""
    ask = Ask.of({"path": str(root), "fields": EVERYTHING, **options})
    return replace(ask, fields=fields_of(ask))


def rows(ask: Ask, parts: list[LogPart] | None = None) -> list[dict[str, Any]]:
    """All rows in log order, as far as they have positions."""
    found = [
        row
        for part in parts or parts_of(ask)
        for batch in rows_of(ask, part, lambda damage: None)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: int(row.get("position", 0)))


def damage(ask: Ask, parts: list[LogPart] | None = None) -> list[Damage]:
    """All that cannot be read, in log order; a read of messages is told the same."""
    found, told = list[Damage](), list[Damage]()
    for part in parts or parts_of(ask):
        found += damage_of(ask, part)
        for _ in rows_of(ask, part, told.append):
            pass
    assert found == told
    return sorted(found, key=lambda one: one.position or 0)


def walk(root: Path) -> tuple[list[dict[str, Any]], list[Extent]]:
    """The messages as JSON, and the damage, of one walk over the whole log."""
    found, damage = [], []
    log = commit_log_of(Layout.open(root))
    end = log.end().position
    with log.queue:
        for item in log.scan():
            if isinstance(item, Batch):
                if item.mark <= Mark.AFTER_DAMAGE:
                    for message in messages(item):
                        row = message.to_json() | {"position": message.position}
                        found += [row] if message.position < end else []
            elif item.kind in (ExtentKind.DAMAGE, ExtentKind.MISSING):
                damage.append(item)
    return found, damage


@pytest.mark.parametrize("name", FAST)
def test_rows_are_the_json_of_messages(name: str, tmp_path: Path) -> None:
    """The JSON and the columns say the same of every message."""
    root = unpack(name, tmp_path)
    wanted, lost = walk(root)
    ask = ask_of(root, body="plain")
    given = rows(ask)
    assert len(given) == len(wanted)
    for row, message in zip(given, wanted, strict=True):
        assert row["store"] == str(root)
        for column, value in row.items():
            if column == "properties":
                assert dict(value) == message[column]
            elif column == "body" and "body" in message:
                assert value.decode() == message["body"]
            elif column in message:
                assert value == message[column], f"{column} of the record at {row['position']}"
    told = [(one.store, one.position, one.size) for one in damage(ask)]
    assert told == [(str(root), one.position, one.size) for one in lost]


def cut_anywhere(root: Path, seed: str) -> None:
    """Random splits of a log give the rows of all of it, each once."""
    ask = ask_of(root, fields="position,physical_offset,topic,queue_id,queue_offset")
    whole, lost = rows(ask), damage(ask)
    log = commit_log_of(Layout.open(root))
    with log.queue:
        start, end = log.min_offset, max(log.end().position, log.min_offset)
    rng = random.Random(seed)
    for count in (1, 3, 17):
        cuts = sorted([start, *(rng.randint(start, end) for _ in range(count)), end])
        parts = [LogPart(str(root), Split(*cut)) for cut in pairwise(cuts)]
        kept = [row for row in whole if row["position"] < end]
        assert rows(ask, parts) == kept, f"cut at {cuts}"
        inside = [one for one in lost if (one.position or 0) < end]
        assert damage(ask, parts) == inside, f"cut at {cuts}"


def planned(root: Path) -> None:
    """Splits as a job makes them, small ones, give the rows of all of a log, damage at its end too."""
    ask = ask_of(root, fields="position,topic,queue_id,queue_offset")
    parts = parts_of(replace(ask, split_bytes=20_000))
    assert rows(ask, parts) == rows(ask) and damage(ask, parts) == damage(ask)


@pytest.mark.parametrize("name", FAST)
def test_random_splits_are_the_whole_walk(name: str, tmp_path: Path) -> None:
    cut_anywhere(unpack(name, tmp_path), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", pick(NAMES, "split points"))
def test_random_splits_of_any_store(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    cut_anywhere(root, name)
    planned(root)


@pytest.mark.parametrize("name", ["4.9.7-killed-page", "4.9.7-killed-hole"])
def test_planned_splits_are_the_whole_walk(name: str, tmp_path: Path) -> None:
    planned(unpack(name, tmp_path))


def test_times_topics_and_queues(tmp_path: Path) -> None:
    root = unpack("4.9.7-multipath", tmp_path)
    whole = rows(ask_of(root))
    times = sorted(row["store_timestamp"] for row in whole)
    since, until = times[len(times) // 4], times[3 * len(times) // 4]
    topics = sorted({row["topic"] for row in whole})
    pattern = f"{topics[0][:-1]}*,{topics[-1]}"
    ask = ask_of(root, since=str(since), until=str(until), topics=pattern, queue_id="1")
    wanted = [
        row
        for row in whole
        if since <= row["store_timestamp"] < until
        and (row["topic"].startswith(topics[0][:-1]) or row["topic"] == topics[-1])
        and row["queue_id"] == 1
    ]
    assert rows(ask) == wanted
    assert wanted, "the test asks for nothing"
    assert ask.times == TimeRange(since, until)


def test_bodies_are_there_when_asked_for(tmp_path: Path) -> None:
    root = unpack("5.3.3-v2", tmp_path)
    plain = Ask.of({"path": str(root)})
    assert "body" not in fields_of(plain)
    notes = ("body_crc_ok", "body_compression", "body_error")
    assert fields_of(replace(plain, body="plain"))[-4:] == ("body", *notes)
    assert fields_of(replace(plain, body="stored"))[-3:] == ("body", "body_crc_ok", "raw")
    stored = [row["body"] for row in rows(ask_of(root, body="stored"))]
    sizes = [row["body_length"] for row in rows(ask_of(root))]
    assert [len(body) for body in stored] == sizes


def test_a_store_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Of a read of messages; among damage it is a row without a place."""
    root = unpack("4.9.7-killed-page", tmp_path)
    (tmp_path / "empty").mkdir()
    for name, kind in (("none", Missing), ("empty", NotAStore)):
        ask = Ask.of({"paths": f'["{tmp_path}/{name}", "{root}"]'})
        with pytest.raises(kind):
            parts_of(ask)
        lost, page = damage_rows_of(ask)
        assert lost["store"] == f"{tmp_path}/{name}"
        assert (lost["position"], lost["size"]) == (None, None) and lost["reason"]
        assert page["store"] == str(root) and page["size"] > 0
        with pytest.raises(kind):
            damage_rows_of(replace(ask, on_damage="fail"))


def damage_rows_of(ask: Ask) -> list[dict[str, Any]]:
    """All rows of `rocketmq-damage` in the order of the parts."""
    names = ("store", "position", "size", "reason")
    parts = damage_parts(ask)
    return [row for p in parts for batch in damage_rows(ask, names, p) for row in batch.to_pylist()]


def test_damage_ends_the_query_where_that_is_asked(tmp_path: Path) -> None:
    ask = ask_of(unpack("4.9.7-killed-page", tmp_path), on_damage="fail")
    with pytest.raises(Unreadable, match=r"4\.9\.7-killed-page at "):
        rows(ask)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topcs": "a"}, "no option 'topcs'"),
        ({"fields": "topic,nothing"}, "no column 'nothing'"),
        ({"since": "tomorrow-ish"}, "tomorrow-ish"),
        ({"body": "yes"}, "not one of none, plain, stored"),
        ({"split_bytes": "-1"}, "split_bytes"),
        ({"broker_config": "[1]"}, "not a JSON object"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=reason):
        fields_of(Ask.of({"path": str(tmp_path), **options}))


def test_a_task_says_what_it_has_passed_over(tmp_path: Path) -> None:
    """In one warning, which leads to the rows of the damage."""
    ask = ask_of(unpack("4.9.7-killed-page", tmp_path), fields="position")
    (lost,) = damage(ask)
    reader = LogReader(ask)
    with pytest.warns(DamageWarning, match="rocketmq-damage has all of them") as told:
        found = [rows.num_rows for part in reader.partitions() for rows in reader.read(part)]
    (warning,) = told
    assert f"{lost.size} bytes in 1 place passed over, from {lost.position}" in str(warning.message)
    assert sum(found) == len(rows(ask))
