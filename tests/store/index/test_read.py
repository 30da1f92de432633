"""The index against the broker's answers; broken chains, odd files, files of unknown geometry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import hashing
from mqstore.formats.hashing import index_hash
from mqstore.formats.index_file import HEADER, ITEM, SLOT, file_size, items_offset, slots_offset
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import OPEN_FILES
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Unreadable
from mqstore.store.index.read import Answer, Geometry, Index, IndexFile, open_index_file, sizes_of

from ...stores import truth
from ..choices import clean_where
from ..disk.test_file_queue import COPIES

CLEAN = clean_where(lambda t: t.get("index_queries"))
SLOTS, ITEMS = 7, 20
NAME = "20260101000000000"


def write_index(directory: Path, keys: list[tuple[int, int]], slots: int = SLOTS, items: int = ITEMS) -> Path:
    """An index file of (key hash, physical offset) items, a second apart, named `NAME`."""
    directory.mkdir(exist_ok=True)
    content = bytearray(file_size(slots, items))
    heads = [0] * slots
    for number, (key_hash, physical_offset) in enumerate(keys, 1):
        item = {
            "key_hash": key_hash,
            "physical_offset": physical_offset,
            "time_diff": number - 1,
            "previous": heads[key_hash % slots],
        }
        heads[key_hash % slots] = number
        at = items_offset(slots) + number * ITEM.sizeof()
        content[at : at + ITEM.sizeof()] = ITEM.build(item)
    at = slots_offset()
    content[at : items_offset(slots)] = b"".join(SLOT.build({"item": head}) for head in heads)
    header = {
        "begin_timestamp": 1_000_000,
        "end_timestamp": 1_000_000 + 1000 * max(len(keys) - 1, 0),
        "begin_physical_offset": keys[0][1] if keys else 0,
        "end_physical_offset": keys[-1][1] if keys else 0,
        "hash_slot_count": sum(head > 0 for head in heads),
        "index_count": len(keys) + 1,
    }
    content[:at] = HEADER.build(header)
    path = directory / NAME
    path.write_bytes(content)
    return path


def put_item(path: Path, number: int, **fields: int) -> None:
    """Change fields of one item."""
    at = items_offset(SLOTS) + number * ITEM.sizeof()
    content = bytearray(path.read_bytes())
    item = dict(ITEM.parse(content[at:])) | fields
    content[at : at + ITEM.sizeof()] = ITEM.build(item)
    path.write_bytes(content)


@pytest.mark.few(10)
@pytest.mark.parametrize("name", CLEAN)
def test_answers_as_the_broker_does(name: str, store: Callable[[str], Path]) -> None:
    with Index.open(Layout.open(store(name)).index) as index:
        for query in truth(name)["index_queries"]:
            answer = index.query(
                query["topic"],
                query["key"],
                begin_ms=query["begin"],
                end_ms=query["end"],
                limit=query["max"],
                index_type=query.get("type") or "",
            )
            found = [hit.physical_offset for hit in answer.hits]
            assert found == query["index_service_offsets"], query
            assert answer.damaged == []


@pytest.mark.parametrize("name", CLEAN)
def test_finds_the_geometry_in_the_files(name: str, store: Callable[[str], Path]) -> None:
    config = truth(name)["config"]
    sizes = sizes_of(Layout.open(store(name)))
    assert sizes.index_slots == (int(config["maxHashSlotNum"]), "files")
    assert sizes.index_items == (int(config["maxIndexNum"]), "files")


@given(
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(1, 99), st.integers(0, 1 << 40)), min_size=2, max_size=20),
    st.integers(0, 9),
)
def test_finds_any_geometry(
    tmp_path_factory: pytest.TempPathFactory, slots: int, keys: list[tuple[int, int]], room: int
) -> None:
    geometry = Geometry(slots, len(keys) + 1 + room)
    path = write_index(tmp_path_factory.mktemp("index"), keys, *geometry)
    with IndexFile(path, Geometry(1, 1)) as file:
        found = file.find_geometry()
    assert found is not None
    with IndexFile(path, found) as file:
        assert file.consistent
        assert [file.item(n).physical_offset for n in (1, len(keys))] == [keys[0][1], keys[-1][1]]


def test_a_loop_ends(tmp_path: Path) -> None:
    path = write_index(tmp_path, [(1, 10), (8, 20), (15, 30)])
    put_item(path, 1, previous=3)
    hashed = {8: [20], 1: [10], 15: [30], 22: []}
    for key_hash, expected in hashed.items():
        answer = _query_hash(tmp_path, key_hash)
        assert [hit.physical_offset for hit in answer.hits] == expected
        assert [Path(file.path) for file in answer.damaged] == [path]


def _query_hash(directory: Path, key_hash: int) -> Answer:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "index_hash", lambda topic, key: key_hash)
        with Index.open(directory) as index:
            return index.query("T", "k")


@pytest.mark.parametrize(
    "change",
    [{"previous": 2}, {"previous": -1}, {"previous": 99}, {"time_diff": -1}, {"key_hash": -1}, {"key_hash": 2}],
)
def test_a_broken_chain_is_noted(tmp_path: Path, change: dict[str, int]) -> None:
    path = write_index(tmp_path, [(1, 10), (8, 20), (15, 30)])
    put_item(path, 2, **change)
    answer = _query_hash(tmp_path, 1)
    assert len(answer.damaged) == 1


def test_times_and_limit_bound_a_query(tmp_path: Path) -> None:
    key_hash = index_hash("T", "k")
    write_index(tmp_path, [(key_hash, offset) for offset in range(10)])

    def ask(**bounds: Any) -> list[int]:
        with Index.open(tmp_path) as index:
            return [hit.physical_offset for hit in index.query("T", "k", **bounds).hits]

    assert ask() == list(range(9, -1, -1))
    assert ask(limit=3) == [9, 8, 7]
    assert ask(begin_ms=1_003_000, end_ms=1_005_000) == [5, 4, 3]
    assert ask(begin_ms=2_000_000) == ask(end_ms=1) == []


def test_what_is_no_index_file(tmp_path: Path) -> None:
    write_index(tmp_path, [(1, 10)])
    (tmp_path / "20260101000000001").write_bytes(b"")
    (tmp_path / "20260101000000002").write_bytes(bytes(10))
    (tmp_path / "notes.txt").write_bytes(b"")
    (tmp_path / "20260101000000003").mkdir()
    with Index.open(tmp_path) as index:
        assert [file.last for file in index.files] == [1, 0, 0]
        assert len(index.foreign) == 2
    assert Index.open(tmp_path / "none").files == []
    with pytest.raises(Unreadable):
        Index.open(tmp_path / "notes.txt")


@given(st.binary(max_size=700))
def test_noise_is_no_trouble(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    directory = tmp_path_factory.mktemp("index")
    (directory / NAME).write_bytes(noise)
    for config in (None, BrokerConfig({"maxHashSlotNum": "7", "maxIndexNum": "20"})):
        with Index.open(directory, config) as index:
            index.query("T", "k")
            for file in index.files:
                assert sum(len(window) for _, window in file.columns()) == file.last


def test_columns_are_the_items(store: Callable[[str], Path]) -> None:
    with Index.open(Layout.open(store("4.3.1-clean")).index) as index:
        for file in index.files:
            rows = [tuple(row) for _, window in file.columns() for row in window.tolist()]
            assert rows == [file.item(number) for number in range(1, file.last + 1)]


def test_few_slots_are_not_taken_for_fewer(tmp_path: Path) -> None:
    """Two items for each record, and the first at position 0: they fit 2 slots, too, as far as only the
    ends are looked at. A broker of 5.5.0 with maxHashSlotNum=7 left such a file.
    """
    for salt in range(40):
        keys = [(13 * n + salt, n // 2 * 100) for n in range(60)]
        path = write_index(tmp_path, keys, 7, 5000)
        with IndexFile(path, Geometry(1, 1)) as file:
            assert file.find_geometry() == Geometry(7, 5000), salt


def test_the_last_item_may_have_the_hash_0(tmp_path: Path) -> None:
    path = write_index(tmp_path, [(5, 100), (8, 200), (0, 300)], SLOTS, ITEMS)
    with IndexFile(path, Geometry(1, 1)) as file:
        assert file.find_geometry() == (SLOTS, ITEMS)


def test_a_file_that_does_not_tell_is_as_those_beside_it(tmp_path: Path) -> None:
    """All of its slots are lost; a file of another length has its own geometry."""
    path = write_index(tmp_path, [(5, 100), (8, 200)], SLOTS, ITEMS)
    other = path.rename(path.with_name("20260101000000001"))
    broken = write_index(tmp_path, [(5, 300), (8, 400)], SLOTS, ITEMS)
    with broken.open("r+b") as file:
        file.seek(slots_offset())
        file.write(bytes(SLOTS * SLOT.sizeof()))
    with open_index_file(broken) as opened:
        assert (opened.slots, opened.items) == (SLOTS, ITEMS)
    other.unlink()
    with open_index_file(broken) as opened:
        assert opened.slots != SLOTS


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_opens_its_own_file(copied: Callable[[IndexFile], IndexFile], tmp_path: Path) -> None:
    """And closes no file of others."""
    one = IndexFile(write_index(tmp_path / "one", [(1, 100)]), Geometry(SLOTS, ITEMS))
    other = IndexFile(write_index(tmp_path / "other", [(2, 200)]), Geometry(SLOTS, ITEMS))
    assert one.item(1).physical_offset == 100
    mine = copied(one)
    one.close()
    assert other.item(1).physical_offset == 200  # its descriptor has the number that was given back
    assert mine.item(1).physical_offset == 100
    del mine
    assert other.item(1).physical_offset == 200


def test_an_index_of_many_files_keeps_few_open(tmp_path: Path) -> None:
    """A process may not open as many files as an index can have."""
    for number in range(2 * OPEN_FILES):
        write_index(tmp_path, [(1, number)]).rename(tmp_path / f"{number:017d}")
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    with Index.open(tmp_path, BrokerConfig({"maxHashSlotNum": str(SLOTS), "maxIndexNum": str(ITEMS)})) as index:
        for _ in range(2):
            assert [file.item(1).physical_offset for file in index.files] == list(range(2 * OPEN_FILES))
        assert len(list(descriptors.iterdir())) <= before + OPEN_FILES
    assert len(list(descriptors.iterdir())) == before
