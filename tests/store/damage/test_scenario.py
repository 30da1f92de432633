"""What a scenario sees of a store: whole records, or that there is nothing to damage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.formats.message import MESSAGE
from mqstore.store.damage import scenario as register
from mqstore.store.damage.scenario import ISSUES, Scene, replace, scenario
from mqstore.store.damage.scenarios import scenario_of
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.files import Edit
from mqstore.store.errors import NotFound
from mqstore.store.put.new_message import NewMessage
from mqstore.store.search.store import StoreReader
from tests.stores import messages, unpack

from ..put.writing import put

NAME = "4.9.7-killed"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    with StoreReader(unpack(NAME, tmp_path_factory.mktemp("scene"))) as found:
        yield found


def test_records_are_whole_and_the_last_one_is_left_alone(store: StoreReader) -> None:
    known = {message["physical_offset"]: message["total_size"] for message in messages(NAME)}
    last = Scene(store, random.Random(0)).last_record()
    assert last.file.start + last.offset == max(known)
    for seed in range(20):
        scene = Scene(store, random.Random(seed))
        place = scene.record()
        assert known[place.file.start + place.offset] == place.size
        assert MESSAGE.parse(scene.bytes_of(place)).physical_offset == place.file.start + place.offset
        assert place == Scene(store, random.Random(seed)).record()
        assert place.file != last.file or place.offset < last.offset


@pytest.mark.parametrize("count", [1, 2])
def test_the_last_record_is_taken_only_where_there_is_no_other(count: int, tmp_path: Path) -> None:
    put(tmp_path, [NewMessage(b"T", b"x")] * count)
    with StoreReader(tmp_path) as found:
        places = [Scene(found, random.Random(seed)).record() for seed in range(9)]
    assert {place.offset for place in places} == {0}


def test_a_queue_of_so_many_units_or_none(store: StoreReader) -> None:
    scene = Scene(store, random.Random(1))
    _, first, end = scene.queue(5)
    assert end - first >= 5
    with pytest.raises(NotFound, match="no consume queue of 1000000 units"):
        scene.queue(1_000_000)
    with pytest.raises(NotFound, match="the store has no wheel"):
        scene.file_of("no*such", "wheel")


def test_there_is_nothing_to_damage_in_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / file_name(0)).write_bytes(bytes(4096))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text("{")
    with StoreReader(tmp_path) as empty:
        scene = Scene(empty, random.Random(1))
        for ask in (lambda: scene.log, scene.record, scene.last_record):
            with pytest.raises(NotFound, match="the log has no record"):
                ask()
        with pytest.raises(NotFound, match="no topicConfigTable"):
            scene.table_of("topics", "topicConfigTable")
        assert [edit.path for edit in register.plan(empty, scenario_of("killed"), 1)] == [str(tmp_path / "abort")]
        (tmp_path / "abort").touch()
        assert register.plan(empty, scenario_of("killed"), 1) == []


def test_a_scenario_is_known_by_its_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "REGISTER", {})

    @scenario("lost", 12, 7)
    def plan(scene: Scene) -> Iterator[Edit]:
        """All of it is lost.

        Nobody knows why.
        """
        yield from replace(Path("file"), b"new", "because")

    (found,) = register.REGISTER.values()
    assert (found.name, found.summary, found.plan) == ("lost", "All of it is lost.", plan)
    assert found.links == (f"{ISSUES}12", f"{ISSUES}7")
    cut, written = replace(Path("file"), b"new", "because")
    assert (cut.kind, cut.length, written.kind, written.offset, written.data) == ("truncate", 0, "write", 0, b"new")
