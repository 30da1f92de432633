"""Which items each index file of a store has, and what the files are called."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.pipeline.index_files import IndexPart, index_times, make_index_file, named, slices_of
from mqstore.pipeline.log_part import ITEM, LogPart, PartRows
from mqstore.pipeline.plan import JobPlan
from mqstore.pipeline.queue_files import AttemptFolder
from mqstore.store.disk.files import Files
from mqstore.store.index.read import Geometry, IndexFile

from .queue_parts import STORE

STORES = (replace(STORE, root="a", folder="a"), replace(STORE, root="b", folder="b"))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 12))
def test_each_item_is_in_one_file_and_the_last_one_heads_the_next(counts: list[int], per_file: int) -> None:
    """However the log was cut into parts, empty ones among them."""
    every = [(part, item) for part, count in enumerate(counts) for item in range(count)]
    files = [
        [(part, item) for part, first, end in slices for item in range(first, end)]
        for slices in slices_of(counts, per_file)
    ]
    assert [item for number, file in enumerate(files) for item in file[bool(number) :]] == every
    assert all(after[0] == before[-1] for before, after in pairwise(files))
    assert [len(file) - bool(number) for number, file in enumerate(files)] == [
        min(per_file, len(every) - begin) for begin in range(0, len(every), per_file)
    ]


def part_of(*times: int) -> LogPart:
    """Items at these times, whose hashes and positions count from their times."""
    items = np.zeros(len(times), ITEM)
    items["store_timestamp"] = times
    items["key_hash"] = items["physical_offset"] = np.array(times) // 1000
    made = PartRows(10)
    made.add_items(items)
    return made.part()


def test_a_file_goes_on_behind_the_one_before(tmp_path: Path) -> None:
    """The item that heads it is not there twice: its header begins with its own first one."""
    store = replace(STORE, index_slots=5, index_items=4)
    place = AttemptFolder(store, 0, tmp_path, "attempt", Files())
    parts = [part_of(1000, 2000), part_of(), part_of(3000, 4000)]
    made = [make_index_file(place, number, some, parts) for number, some in enumerate(slices_of([2, 0, 2], 3))]
    assert [(one.items, one.begin_timestamp) for one in made] == [(3, 1000), (1, 4000)]
    assert [one.full_end_timestamp for one in made] == [3000, 0]
    begins = []
    for one, wanted in zip(made, ([1, 2, 3], [4]), strict=True):
        with IndexFile(tmp_path / one.path, Geometry(5, 4)) as file:
            header = file.read_header()
            begins.append(header.begin_physical_offset)
            assert [h for _, rows in file.columns() for h in rows["key_hash"].tolist()] == wanted
            assert header.end_physical_offset == wanted[-1]
    assert begins == [1, 4]


def test_names_follow_one_another_whatever_the_times_say() -> None:
    """Of one store, in the order of its files; a time that no calendar has counts as the first one."""
    times = (1_700_000_000_000, 1_700_000_000_000, 5_000, 1 << 62, -(1 << 62))
    parts = [IndexPart("x", f"{store}-{n}", store, n, time) for store in (1, 0) for n, time in enumerate(times)]
    found = named(parts, JobPlan(STORES))
    assert sorted(part.path for part, _ in found) == sorted(part.path for part in parts)
    for number, folder in enumerate("ab"):
        names = [path for part, path in found if part.store == number]
        assert names == sorted(set(names)) and len(names) == len(times)
        assert all(Path(name).parent == Path(folder, "index") for name in names)
        assert [part.file for part, _ in found if part.store == number] == list(range(len(times)))


@pytest.mark.parametrize(("ends", "wanted"), [((5, 7, 0), {0: 7}), ((7, 5), {0: 5}), ((0,), {}), ((), {})])
def test_the_newest_full_file_tells_the_time_of_the_index(ends: tuple[int, ...], wanted: dict[int, int]) -> None:
    """The newest is the last one, whatever its time; one that is not full tells none."""
    parts = [IndexPart("x", "", 0, n, 0, full_end_timestamp=end) for n, end in enumerate(ends)]
    assert index_times(reversed(parts)) == wanted
