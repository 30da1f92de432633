"""Rows of the commit log, without Spark: what they say, and that cuts anywhere lose nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.arrow.ask import Ask
from mqstore.store.arrow.log_columns import COLUMNS
from mqstore.store.arrow.log_rows import LogPart, Pushed, fields_of, parts_of, rows_of
from mqstore.store.commit_log import Batch, CommitLog, Extent, ExtentKind
from mqstore.store.errors import InvalidInput, Missing, Unreadable
from mqstore.store.layout import Layout
from mqstore.store.mark import Mark
from mqstore.store.message import messages
from mqstore.store.split import Split
from mqstore.store.time_range import TimeRange

from ..slices import pick
from ..stores import NAMES, unpack

DAMAGED = ("4.9.7-killed-page", "4.9.7-killed-bit", "4.9.7-killed-torn", "4.9.7-killed-hole")
FAST = (*DAMAGED, "4.9.7-multipath", "5.3.3-dledger", "5.3.3-v2", "5.3.3-killed-page-restarted")
EVERYTHING = ",".join(COLUMNS)


def ask_of(root: Path, **options: str) -> Ask:
    """What the options of a read ask, with the columns made out as Spark hands them back."""
    ask = Ask.of({"path": str(root), "fields": EVERYTHING, **options})
    return replace(ask, fields=fields_of(ask))


def rows(ask: Ask, parts: list[LogPart] | None = None) -> list[dict[str, Any]]:
    """All rows, damage behind the messages, in log order."""
    found = [
        row
        for part in parts or parts_of(ask)
        for batch in rows_of(ask, part, Pushed())
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: (row["damage"] is not None, place(row)))


def place(row: dict[str, Any]) -> int:
    """Position in the log."""
    found = row["damage"]["position"] if row["damage"] else row["position"]
    return -1 if found is None else int(found)


def walk(root: Path) -> tuple[list[dict[str, Any]], list[Extent]]:
    """The messages as JSON, and the damage, of one walk over the whole log."""
    found, damage = [], []
    log = CommitLog.open(Layout.open(root))
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
    """The contract's JSON and the columns say the same of every message."""
    root = unpack(name, tmp_path)
    wanted, damage = walk(root)
    found = rows(ask_of(root, body="plain"))
    given = [row for row in found if row["damage"] is None]
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
    assert [place(row) for row in found if row["damage"]] == [one.position for one in damage]


def cut_anywhere(root: Path, seed: str) -> None:
    """Random splits of a log give the rows of all of it, each once."""
    ask = ask_of(root, fields="position,physical_offset,topic,queue_id,queue_offset,damage")
    whole = rows(ask)
    log = CommitLog.open(Layout.open(root))
    with log.queue:
        start, end = log.min_offset, max(log.end().position, log.min_offset)
    rng = random.Random(seed)
    for count in (1, 3, 17):
        cuts = sorted([start, *(rng.randint(start, end) for _ in range(count)), end])
        parts = [LogPart(str(root), Split(*cut)) for cut in pairwise(cuts)]
        found = rows(ask, parts)
        kept = [row for row in whole if place(row) < end]
        assert found == kept, f"cut at {cuts}"


def planned(root: Path) -> None:
    """Splits as a job makes them, small ones, give the rows of all of a log, damage at its end too."""
    ask = ask_of(root, fields="position,topic,queue_id,queue_offset,damage")
    assert rows(ask, parts_of(replace(ask, split_bytes=20_000))) == rows(ask)


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
    assert fields_of(replace(plain, body="plain"))[-5:] == ("body", *notes, "damage")
    assert fields_of(replace(plain, body="stored"))[-4:] == ("body", "body_crc_ok", "raw", "damage")
    stored = [row["body"] for row in rows(ask_of(root, body="stored"))]
    sizes = [row["body_length"] for row in rows(ask_of(root))]
    assert [len(body) for body in stored] == sizes


def test_a_store_that_cannot_be_read_is_a_row(tmp_path: Path) -> None:
    root = unpack("5.3.3-v2", tmp_path)
    ask = Ask.of({"paths": f'["{tmp_path}/none", "{root}"]', "fields": "store,damage"})
    found = rows_of_all(ask)
    (lost,) = [row for row in found if row["damage"]]
    assert lost["store"] == f"{tmp_path}/none"
    assert lost["damage"]["reason"].startswith("no such directory")
    assert len(found) > 1
    with pytest.raises(Missing):
        parts_of(replace(ask, on_damage="fail"))


def rows_of_all(ask: Ask) -> list[dict[str, Any]]:
    """All rows in the order of the splits."""
    batches = (b for part in parts_of(ask) for b in rows_of(ask, part, Pushed()))
    return [row for batch in batches for row in batch.to_pylist()]


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
