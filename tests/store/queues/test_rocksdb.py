"""RocksDB: every entry as the real classes list it, nothing written, and queues that lie in one."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rocksdict

from mqstore.formats.rocksdb import LOG_PART, RECYCLED_TYPES
from mqstore.store.errors import Missing, NotFound, StoreError, Unreadable, Unsupported
from mqstore.store.library import Store
from mqstore.store.queues import rocksdb
from mqstore.store.queues.rocksdb import RocksDb, RocksdbConsumeQueues
from mqstore.store.search.find import find
from mqstore.store.search.selection import Selection
from mqstore.store.search.store import Via

from ...stores import ALL, NAMES, truth, unpack

STORES = [name for name in NAMES if "rocksdb" in truth(name)]
WITH_QUEUES = [n for n in STORES if truth(n)["rocksdb"].get("consumequeue", {}).get("default")]


def state(root: Path) -> dict[str, Any]:
    """Name, bytes, size and times of everything below a directory."""
    return {
        str(p.relative_to(root)): (
            p.stat().st_mtime_ns,
            p.stat().st_ctime_ns,
            p.stat().st_nlink,
            hashlib.sha1(p.read_bytes()).hexdigest() if p.is_file() else "",
        )
        for p in sorted(root.rglob("*"))
    }


@pytest.mark.few(2)
@pytest.mark.parametrize("name", STORES)
def test_entries_are_those_of_the_real_library(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    before = state(root)
    for folder, families in truth(name)["rocksdb"].items():
        with RocksDb.open(root / folder) as database:
            found = {
                family: [[key.hex(), value.hex()] for key, value in database.items(family)]
                for family in database.column_families
            }
            assert found == families, folder
            for family, rows in families.items():
                for key, value in rows[::7]:
                    assert database.get(family, bytes.fromhex(key)) == bytes.fromhex(value)
                backwards = [key.hex() for key, _ in database.items(family, backwards=True)]
                assert backwards == [key for key, _ in reversed(rows)]
    assert state(root) == before, "nothing is written, not even a time changes"


def test_no_links_stay_behind(store: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(links))
    path = store(WITH_QUEUES[0]) / "consumequeue"
    with RocksDb.open(path) as database:
        assert next(database.items("default"))
        assert list(links.iterdir())
    left = RocksDb.open(path)
    del left
    assert list(links.iterdir()) == []


def broken(path: Path, damage: str) -> None:
    """Make a RocksDB one that cannot be read, or not wholly."""
    if damage == "no manifest":
        for file in path.glob("MANIFEST-*"):
            file.unlink()
    elif damage == "empty CURRENT":
        os.truncate(path / "CURRENT", 0)
    elif damage == "CURRENT with a NUL":
        (path / "CURRENT").write_bytes((path / "CURRENT").read_bytes().strip() + b"\0")
    elif damage == "tables cut":
        for file in path.glob("*.sst"):
            os.truncate(file, file.stat().st_size // 2)
    elif damage == "tables zeroed":
        for file in path.glob("*.sst"):
            file.write_bytes(bytes(file.stat().st_size))
    elif damage == "manifest of noise":
        for file in path.glob("MANIFEST-*"):
            file.write_bytes(b"\xff" * 4096)


OPENING = ("no manifest", "empty CURRENT", "CURRENT with a NUL", "manifest of noise")


@pytest.mark.parametrize("damage", [*OPENING, "tables cut", "tables zeroed"])
def test_damage_is_an_error_with_the_path(damage: str, tmp_path: Path) -> None:
    path = unpack(WITH_QUEUES[0], tmp_path) / "consumequeue"
    if damage.startswith("tables") and not list(path.glob("*.sst")):
        pytest.fail("the store has no tables to damage")
    broken(path, damage)
    with pytest.raises(Unreadable, match="RocksDB") as caught, RocksDb.open(path) as database:
        for family in database.column_families:
            list(database.items(family))
    assert caught.value.path == str(path)
    assert "mqstore-rocksdb-" not in str(caught.value)


def test_notes_of_the_library_are_left_alone(tmp_path: Path) -> None:
    """Whoever wrote into a database with the library left its notes; reading does not touch them."""
    path = tmp_path / "db"
    rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True)).close()
    notes = path / "rocksdict-config.json"
    os.utime(notes, ns=(1, 1))
    with RocksDb.open(path) as database:
        assert list(database.items(rocksdb.DEFAULT)) == []
    assert notes.stat().st_mtime_ns == 1


def test_what_is_no_rocksdb(tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        RocksDb.open(tmp_path)
    with pytest.raises(Missing):
        RocksDb.open(tmp_path / "none")
    os.mkfifo(tmp_path / "CURRENT")
    assert not rocksdb.is_rocksdb(tmp_path)
    with pytest.raises(StoreError):
        RocksDb.open(tmp_path)


def test_without_the_extra_one_line_says_what_to_install(
    store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    root = store(WITH_QUEUES[0])
    with pytest.raises(Unsupported, match=r"pip install 'mqstore\[rocksdb\]'"):
        RocksDb.open(root / "consumequeue")
    notes: list[str] = []
    with Store(root) as opened:
        selection = Selection(topic="TopicA", queue_id=0)
        found = list(find(opened, selection, offset=3, count=1, note=notes.append))
    assert [(one.message.queue_offset, one.via) for one in found] == [(3, Via.SCAN)]
    assert len(notes) == 1 and "pip install" in notes[0] and "scanning the log" in notes[0]


@pytest.mark.parametrize("name", WITH_QUEUES)
def test_queues_answer_as_the_broker(name: str, store: Callable[[str], Path]) -> None:
    with Store(store(name)) as opened:
        assert isinstance(opened.queues, RocksdbConsumeQueues)
        for query in truth(name)["get_queries"]:
            topic, queue_id = query["topic"], query["queue_id"]
            offsets = query.get("queue_offsets", [])
            if not offsets:
                continue
            selection = Selection(topic=topic, queue_id=queue_id)
            for count in (len(offsets), 100):  # unit by unit, and in columns
                found = list(find(opened, selection, offset=offsets[0], count=count))
                assert {one.via for one in found} == {Via.QUEUE}
                numbers = [one.message.queue_offset for one in found[: len(offsets)]]
                assert numbers == offsets, query


@pytest.mark.parametrize("name", WITH_QUEUES)
def test_units_are_the_same_one_by_one_and_in_columns(name: str, store: Callable[[str], Path]) -> None:
    with Store(store(name)) as opened:
        for topic, queue_id, _ in opened.queues:
            queue = opened.queues.open(topic, queue_id)
            summary = queue.summary()
            many = [
                (first + at, *unit.tolist()[:3])
                for first, units in queue.units(0, 1 << 60)
                for at, unit in enumerate(units)
            ]
            numbers = range(summary.min_offset, summary.max_offset)
            assert many == [tuple(queue.unit(number) or ()) for number in numbers]
            part = [n for n, units in queue.units(3, 7) for n in range(n, n + len(units))]
            assert part == [number for number in numbers if 3 <= number < 7]


def test_queues_that_are_not_there(store: Callable[[str], Path]) -> None:
    with Store(store(WITH_QUEUES[0])) as opened:
        for topic, queue_id in (("TopicA", 99), ("none", 0), ("", 0), ("\udcff", -1)):
            with pytest.raises(NotFound):
                opened.queues.open(topic, queue_id)
        queue = opened.queues.open("TopicA", 0)
        assert [queue.unit(n) for n in (-1, 10**6, 1 << 63, 1 << 70)] == [None] * 4


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in ALL if "rocksdb" in n])
def test_all_stores_that_have_one(name: str, tmp_path: Path) -> None:
    """Entries, queues, times and what a consumer pulls; before a recovery there may be no queues."""
    test_entries_are_those_of_the_real_library(name, tmp_path)
    facts = truth(name)
    with Store(tmp_path / name) as opened:
        if opened.queues_unread:
            assert facts["exit"] == "killed"
            return
        found = {
            f"{q.topic}/{q.queue_id}": {"min_offset": q.min_offset, "max_offset": q.max_offset}
            for q in opened.queue_summaries
        }
        assert found == facts["queues"]
        for query in facts["time_queries"]:
            offset = opened.offset_at(query["topic"], query["queue_id"], query["timestamp"])
            assert offset == query["offset"], query
        for query in facts["get_queries"]:
            if query["status"] == "FOUND":
                selection = Selection(topic=query["topic"], queue_id=query["queue_id"])
                count = len(query["queue_offsets"])
                got = list(find(opened, selection, offset=query["queue_offsets"][0], count=count))
                positions = [one.message.physical_offset for one in got]
                assert positions == query["physical_offsets"], query


@pytest.mark.parametrize("kind", sorted(RECYCLED_TYPES))
def test_a_manifest_that_the_library_would_read_for_ever(kind: int, tmp_path: Path) -> None:
    """A part of a recycled log in it: the library goes round, and no signal ends it."""
    root = unpack("5.3.3-rocksdb", tmp_path)
    (manifest,) = (root / "consumequeue").glob("MANIFEST-*")
    end = manifest.stat().st_size
    part = {"crc": 1, "length": 20, "type": kind}
    with manifest.open("ab") as file:
        file.write(LOG_PART.build(part) + bytes(20))
    with pytest.raises(Unreadable, match=f"{manifest.name} is damaged at {end}"):
        RocksDb.open(root / "consumequeue")
