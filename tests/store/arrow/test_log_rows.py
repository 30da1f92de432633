"""Rows of the commit log, without Spark: what they say, and that cuts anywhere lose nothing."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.arrow.log_rows import LogSplit, damage_of, parts_of
from mqstore.store.arrow.stores import ReadOptions
from mqstore.store.arrow.views import damage_parts, damage_rows
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Missing, NotAStore, Unreadable
from mqstore.store.log.commit_log import Split
from mqstore.store.put.new_message import NewMessage
from mqstore.store.queues.references import commit_log_of
from mqstore.store.search.log_search import search_log, selected
from mqstore.store.search.selection import Selection, TimeRange
from mqstore.store.search.store import StoreReader

from ...damage import ALL_KINDS, Victim
from ...mishaps import Mishap
from ...slices import pick, rng
from ...stores import NAMES, unpack
from ..put.writing import NOW, TINY, writer
from .rows import FAST, ask_of, damage, rows


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
        parts = [LogSplit(str(root), Split(*cut)) for cut in pairwise(cuts)]
        kept = [row for row in whole if row["position"] < end]
        assert rows(ask, parts) == kept, f"cut at {cuts}"
        inside = [one for one in lost if (one.position or 0) < end]
        assert damage(ask, parts) == inside, f"cut at {cuts}"


def test_times_in_no_order(tmp_path: Path) -> None:
    """Whatever the times at which files begin: rows are asked for by time in all of a log."""
    times = [NOW + n * 7919 % 300 * 3_600_000 for n in range(300)]
    with writer(tmp_path, config=TINY) as out:
        for time_ms in times:
            out.append(NewMessage(b"T", b"x" * 120, store_timestamp=time_ms))
    wanted = TimeRange(NOW, NOW + 48 * 3_600_000)
    ask = replace(ask_of(tmp_path, fields="store_timestamp"), times=wanted, split_bytes=8192)
    parts = parts_of(ask)
    assert len(parts) > 4 and len(rows(ask, parts)) == 48
    with StoreReader(tmp_path) as store:
        assert sum(map(len, selected(store, since=wanted.since_ms, until=wanted.until_ms))) == 48


def planned(root: Path) -> None:
    """Splits as a job makes them, small ones, give the rows of all of a log, damage at its end too."""
    ask = ask_of(root, fields="position,topic,queue_id,queue_offset")
    whole = rows(ask), damage(ask)
    for size in (20_000, 1 << 16, 1 << 18):  # the last is a file's, of most stores
        parts = parts_of(replace(ask, split_bytes=size))
        assert (rows(ask, parts), damage(ask, parts)) == whole, f"{root}, parts of {size}"


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


@pytest.mark.slow
@pytest.mark.parametrize("name", pick(NAMES, "damaged split points"))
def test_planned_splits_of_any_damaged_store(name: str, tmp_path: Path) -> None:
    """Some mishaps of a log, and parts that end where its files do."""
    for number in range(4):
        chance, root = rng(f"damaged split points {name} {number}"), tmp_path / str(number)
        victim = Victim.of(name, unpack(name, root))
        for _ in range(8):
            mishap = Mishap.of(victim, chance)
            if mishap.where == "log" and (mishap.what in ALL_KINDS or mishap.what in ("resize", "torn_tail")):
                mishap.befall(victim, chance)
        planned(victim.root)
        shutil.rmtree(root)


@pytest.mark.parametrize("noise", [True, False], ids=["noise", "zeros"])
@pytest.mark.parametrize("lost", ["end", "next"])
def test_a_part_that_ends_with_a_damaged_file(lost: str, noise: bool, tmp_path: Path) -> None:
    """Records go on in a file of the next part: it is no end of the log, and no part is silent about it."""
    root = unpack("5.3.3-killed-restarted", tmp_path)
    first, second, *_ = sorted((root / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    data[-40_000:] = random.Random(38).randbytes(40_000) if noise else bytes(40_000)
    first.write_bytes(data)
    if lost == "next":
        second.unlink()
    ask = ask_of(root, fields="position")
    whole = damage(ask)
    assert sum(one.size or 0 for one in whole) >= 40_000
    for size in (len(data), len(data) // 4, 20_000):
        parts = replace(ask, split_bytes=size)
        assert damage(parts, parts_of(parts)) == whole, size


@pytest.mark.parametrize("name", ["4.9.7-killed-bit-restarted", "5.3.3-killed-page-restarted"])
def test_what_a_start_has_cut_is_no_damage_beside_messages(name: str, tmp_path: Path) -> None:
    """The rest of the record at which it did: it lies behind the end, however the log is read."""
    root = unpack(name, tmp_path)
    ask = ask_of(root, fields="position")
    for size in (None, 1 << 16):
        some = replace(ask, split_bytes=size)
        assert [one for part in parts_of(some) for one in damage_of(replace(some, tails=False), part)] == []
        assert [one for part in parts_of(some) for one in damage_of(some, part)] != []
    assert rows(replace(ask, on_damage="fail")) == rows(ask)
    with StoreReader(root) as store:
        assert sum(map(len, selected(store, on_damage="raise"))) == len(rows(ask))
        notes = list[str]()
        assert sum(1 for _ in search_log(store, Selection(), note=notes.append)) == len(rows(ask))
        assert not notes


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


def test_a_store_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Of a read of messages; among damage it is a row without a place."""
    root = unpack("4.9.7-killed-page", tmp_path)
    (tmp_path / "empty").mkdir()
    for name, kind in (("none", Missing), ("empty", NotAStore)):
        ask = ReadOptions.of({"paths": f'["{tmp_path}/{name}", "{root}"]'})
        with pytest.raises(kind):
            parts_of(ask)
        lost, page = damage_rows_of(ask)
        assert lost["store"] == f"{tmp_path}/{name}"
        assert (lost["position"], lost["size"]) == (None, None) and lost["reason"]
        assert page["store"] == str(root) and page["size"] > 0
        with pytest.raises(kind):
            damage_rows_of(replace(ask, on_damage="fail"))


def damage_rows_of(ask: ReadOptions) -> list[dict[str, Any]]:
    """All rows of `rocketmq-damage` in the order of the parts."""
    names = ("store", "position", "size", "reason")
    parts = damage_parts(ask)
    return [row for p in parts for batch in damage_rows(ask, names, p) for row in batch.to_pylist()]


def test_damage_ends_the_query_where_that_is_asked(tmp_path: Path) -> None:
    ask = ask_of(unpack("4.9.7-killed-page", tmp_path), on_damage="fail")
    with pytest.raises(Unreadable, match=r"4\.9\.7-killed-page at "):
        rows(ask)
