"""Index files: one item or many, in one file or over several, by the words of the specification."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import construct as c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.index_file import HEADER, ITEM, SLOT, file_size
from mqstore.store.broker.dispatch import IndexItems
from mqstore.store.disk.files import Files
from mqstore.store.errors import InvalidInput
from mqstore.store.index.read import Geometry
from mqstore.store.index.write import IndexWriter, file_name

from ..put.faults import CountingFiles

SMALL = Geometry(slots=7, items=12)
Item = tuple[int, int, int, int]
"""record, key hash, position, time"""


def index_file(slots: int, items: int) -> c.Construct[Any, Any]:
    """The schema of a whole file with so many slots and items."""
    return c.Struct("header" / HEADER, "slots" / c.Array(slots, SLOT), "items" / c.Array(items, ITEM))


class Broker:
    """Puts items one by one into plain lists, as spec 3.3 says."""

    def __init__(self, geometry: Geometry, count_every_put: bool) -> None:
        self.geometry, self.count_every_put = geometry, count_every_put
        self.files: list[dict[str, Any]] = []

    def record(self, position: int, items: list[Item]) -> None:
        self.current()
        for _, key_hash, _, time in items:
            if position < self.files[-1]["header"]["end_physical_offset"]:
                return
            self.put(self.current(), key_hash, position, time)

    def current(self) -> dict[str, Any]:
        last = self.files[-1] if self.files else None
        if last is not None and last["header"]["index_count"] < self.geometry.items:
            return last
        time = last["header"]["end_timestamp"] if last else 0
        position = last["header"]["end_physical_offset"] if last else 0
        header = {
            "begin_timestamp": time,
            "end_timestamp": time,
            "begin_physical_offset": position,
            "end_physical_offset": position,
            "hash_slot_count": 0,
            "index_count": 1,
        }
        unused = {"key_hash": 0, "physical_offset": 0, "time_diff": 0, "previous": 0}
        self.files.append(
            {
                "header": header,
                "slots": [{"item": 0} for _ in range(self.geometry.slots)],
                "items": [dict(unused) for _ in range(self.geometry.items)],
            }
        )
        return self.files[-1]

    def put(self, file: dict[str, Any], key_hash: int, position: int, time: int) -> None:
        header = file["header"]
        slot = file["slots"][key_hash % self.geometry.slots]
        old = slot["item"]
        begin = header["begin_timestamp"]
        seconds = 0 if begin <= 0 else min(max(int((time - begin) / 1000), 0), 2**31 - 1)
        number = header["index_count"]
        file["items"][number] = {
            "key_hash": key_hash,
            "physical_offset": position,
            "time_diff": seconds,
            "previous": old,
        }
        slot["item"] = number
        if number <= 1:
            header["begin_timestamp"], header["begin_physical_offset"] = time, position
        if old == 0 or self.count_every_put:
            header["hash_slot_count"] += 1
        header["index_count"] += 1
        header["end_timestamp"], header["end_physical_offset"] = time, position

    def bytes(self) -> list[bytes]:
        schema = index_file(*self.geometry)
        return [schema.build(file) for file in self.files]


def written(directory: Path) -> list[bytes]:
    if not directory.exists():
        return []
    return [path.read_bytes() for path in sorted(directory.iterdir())]


def columns(items: list[Item]) -> IndexItems:
    table = np.array(items, np.int64).reshape(len(items), 4)
    return IndexItems(*(np.ascontiguousarray(column) for column in table.T))


@st.composite
def records(draw: st.DrawFn) -> list[list[Item]]:
    """Records with 0 to 4 items each, at growing positions, at times that may step back."""
    counts = draw(st.lists(st.integers(0, 4), max_size=30))
    found: list[list[Item]] = []
    for row, count in enumerate(counts):
        time = draw(st.sampled_from([0, 5, 1_000, 1_999, 60_000, 2**43]))
        hashes = [draw(st.integers(0, 30)) for _ in range(count)]
        found.append([(row, h, 100 * row, time) for h in hashes])
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("every_put", [False, True])
@given(found=records(), cuts=st.lists(st.integers(0, 30), max_size=4), columnar=st.booleans())
def test_any_batches_give_the_brokers_bytes(
    every_put: bool, found: list[list[Item]], cuts: list[int], columnar: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("index") / "index"
    broker = Broker(SMALL, every_put)
    for row, record in enumerate(found):
        broker.record(100 * row, record)
    edges = sorted({0, len(found), *(cut for cut in cuts if cut < len(found))})
    for begin, end in pairwise(edges):
        # every batch by a writer of its own: it must take up what the one before left
        writer = IndexWriter(Files(), directory, SMALL, count_every_put=every_put)
        part = found[begin:end]
        if columnar:
            rows = [(i, *item[1:]) for i, record in enumerate(part) for item in record]
            writer.append(columns(rows), len(part))
        else:
            for record in part:
                writer.append_record([item[1:] for item in record])
        writer.sync()
        writer.close()
    assert written(directory) == broker.bytes()


@pytest.mark.slow
def test_many_slots_and_pages(tmp_path: Path) -> None:
    geometry = Geometry(slots=5_003, items=9_000)
    rng = np.random.default_rng(5)
    rows = [(i, int(h), 10 * i, 1_000 * i) for i, h in enumerate(rng.integers(0, 2**31, 20_000))]
    broker = Broker(geometry, False)
    for row in rows:
        broker.record(row[2], [row])
    writer = IndexWriter(Files(), tmp_path, geometry)
    for begin in range(0, len(rows), 3_000):
        part = [(i, *row[1:]) for i, row in enumerate(rows[begin : begin + 3_000])]
        writer.append(columns(part), len(part))
        if begin % 2:
            writer.flush()
    writer.sync()
    assert writer.full_end_timestamp == broker.files[1]["header"]["end_timestamp"]
    assert written(tmp_path) == broker.bytes()


def test_records_before_the_end_are_indexed_already(tmp_path: Path) -> None:
    writer = IndexWriter(Files(), tmp_path, SMALL)
    writer.append(columns([(0, 1, 500, 1)]), 1)
    writer.append(columns([(0, 2, 400, 2), (1, 3, 500, 3), (2, 4, 600, 4)]), 3)
    writer.append_record([(5, 599, 9)])
    writer.append_record([(6, 600, 9)])
    writer.sync()
    [data] = written(tmp_path)
    parsed = index_file(*SMALL).parse(data)
    assert [item.key_hash for item in parsed["items"][1 : parsed.header.index_count]] == [*(1, 3, 4, 6)]


def test_a_file_is_what_it_was_until_it_is_flushed(tmp_path: Path) -> None:
    writer = IndexWriter(Files(), tmp_path, SMALL)
    writer.append(columns([(0, 1, 500, 1)]), 1)
    [data] = written(tmp_path)
    parsed = index_file(*SMALL).parse(data)
    assert (parsed.header.index_count, sum(slot.item for slot in parsed.slots)) == (1, 0)
    assert len(data) == file_size(*SMALL)
    writer.flush()
    assert index_file(*SMALL).parse(written(tmp_path)[0]).header.index_count == 2


def test_damaged_slots_make_no_loop(tmp_path: Path) -> None:
    path = tmp_path / "20260101000000000"
    file = {
        "header": dict.fromkeys(("begin_timestamp", "end_timestamp", "begin_physical_offset", "end_physical_offset"), 0)
        | {"hash_slot_count": 0, "index_count": 3},
        "slots": [{"item": n} for n in (3, -1, 2**31 - 1, 2, 0, 9, 1)],
        "items": [dict.fromkeys(("key_hash", "physical_offset", "time_diff", "previous"), 0)] * 12,
    }
    for columnar in (False, True):
        path.write_bytes(index_file(*SMALL).build(file))
        writer = IndexWriter(Files(), tmp_path, SMALL)
        if columnar:
            writer.append(columns([(0, slot, 100, 1) for slot in range(7)]), 1)
        else:
            writer.append_record([(slot, 100, 1) for slot in range(7)])
        writer.sync()
        writer.close()
        parsed = index_file(*SMALL).parse(path.read_bytes())
        assert [item.previous for item in parsed["items"][3:10]] == [0, 0, 0, 2, 0, 0, 1]


def test_names_grow(tmp_path: Path) -> None:
    now = datetime(2026, 11, 20, 23, 59, 59, 999_900)
    first = file_name(now)
    assert first == "20261120235959999"
    assert file_name(now, first) == "20261121000000000"
    assert file_name(now, "20251231000000000") == first
    assert file_name(now, "29991231235959999") == "30000101000000000"
    assert file_name(now, "99999999999999990") == "99999999999999991"


def test_steps_of_one_record(tmp_path: Path) -> None:
    IndexWriter(Files(), tmp_path, SMALL).append(columns([(0, 1, 5, 1)]), 1)
    files = CountingFiles()
    writer = IndexWriter(files, tmp_path, SMALL)
    writer.append_record([(8, 9, 1)])
    writer.sync()
    assert [change for change, _ in files.steps] == [*("open", "write", "write", "write", "open", "sync")]


def test_an_index_without_room_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        IndexWriter(Files(), tmp_path, Geometry(slots=0, items=10))
    with pytest.raises(InvalidInput):
        IndexWriter(Files(), tmp_path, Geometry(slots=10, items=1))
