"""Units into consume queue files, without Spark: gaps, duplicates, parts of any size."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.consume_queue import PRE_FILL, UNIT
from mqstore.formats.derive import dtype_of
from mqstore.pipeline.log_part import ITEM, ROW, LogPart, PartRows, SavedPart, keys_of
from mqstore.pipeline.plan import Plan, StorePlan
from mqstore.pipeline.queue_files import Place, QueueFile, make_queue_file
from mqstore.pipeline.rebuild_steps import Made, complete
from mqstore.store.disk.files import Files
from mqstore.store.errors import NoSpace, Unreadable
from mqstore.store.output.stage import Stage

from ..store.put.faults import FailingFiles

UNITS_PER_FILE = 10
STORE = StorePlan("s", "", 0, 1000, UNITS_PER_FILE, "5.5", {})
PRE_FILL_UNIT = tuple(PRE_FILL.values())
EMPTY_UNIT = (0, 0, 0)


def part(offsets: list[int], queue_id: int = 0, first: int = 0) -> LogPart:
    """Units of one queue; the physical offset tells which row, from `first` on, a unit came from."""
    count = len(offsets)
    rows = np.zeros(count, ROW)
    rows["queue_offset"] = offsets
    rows["physical_offset"] = 1000 + first + np.arange(count)
    rows["size"] = 100
    rows["tags_code"] = -np.arange(count)
    made = PartRows(UNITS_PER_FILE)
    made.add(["orders"], np.zeros(count, np.int64), np.full(count, queue_id), rows)
    return made.part()


def write(folder: Path, *parts: LogPart | SavedPart, files: Files | None = None) -> list[QueueFile]:
    place = Place(STORE, 0, folder, "1", files or Files())
    return [make_queue_file(place, key, parts) for key in keys_of(parts)]


def units(path: Path) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = np.fromfile(path, dtype_of(UNIT)).tolist()
    assert len(found) == UNITS_PER_FILE, "a file has its full size"
    return found


def test_a_queue_that_does_not_begin_at_0_is_pre_filled(tmp_path: Path) -> None:
    (file,) = write(tmp_path, part([13, 14]))
    assert file.path == "consumequeue/orders/0/00000000000000000200"
    assert (file.first, file.end, file.units, file.missing) == (13, 15, 2, 0)
    found = units(tmp_path / file.path)
    assert found == [PRE_FILL_UNIT] * 3 + [(1000, 100, 0), (1001, 100, -1)] + [EMPTY_UNIT] * 5


def test_of_two_records_with_one_offset_the_first_counts(tmp_path: Path) -> None:
    (file,) = write(tmp_path, part([0, 1, 1, 1, 2]))
    assert (file.units, file.duplicates) == (3, 2)
    assert [unit[0] for unit in units(tmp_path / file.path)[:3]] == [1000, 1001, 1004]


def test_an_offset_repeated_in_the_next_part(tmp_path: Path) -> None:
    (file,) = write(tmp_path, part([0, 1]), part([1, 2], first=2))
    assert (file.units, file.duplicates, file.end) == (3, 1, 3)


def test_a_gap_is_pre_filled_and_counted(tmp_path: Path) -> None:
    (file,) = write(tmp_path, part([0, 3]), part([5], first=2))
    assert (file.units, file.missing, file.end) == (3, 3, 6)
    found = units(tmp_path / file.path)
    assert [unit == PRE_FILL_UNIT for unit in found[:6]] == [False, True, True, False, True, False]


def test_a_gap_across_files_ends_no_queue(tmp_path: Path) -> None:
    """An empty unit would end the queue for a broker: the front file is filled up."""
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    plan = Plan((StorePlan(str(tmp_path / "s"), "", 0, 1000, UNITS_PER_FILE, "5.5", {}),))
    stage = Stage.begin(tmp_path, Files())
    written = write(stage.attempt("1"), part([0, 7, 12]))
    complete(stage, plan, Made(queues=written))
    assert stage.manifest()["queues"][0]["missing"] == 6 + 2 + 2
    front = units(stage.tree / written[0].path)
    assert front[8:] == [PRE_FILL_UNIT] * 2
    assert units(stage.tree / written[1].path)[:2] == [PRE_FILL_UNIT] * 2


@given(st.data())
def test_any_parts_give_the_same_files(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Against a plain model: unit k of the stream, first record wins, pre-fill where none is."""
    offsets = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=60))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(offsets)), max_size=5)))
    bounds = zip([0, *cuts], [*cuts, len(offsets)], strict=True)
    folder = tmp_path_factory.mktemp("queue")
    parts: list[LogPart | SavedPart] = [part(offsets[begin:end], first=begin) for begin, end in bounds]
    saved: list[LogPart | SavedPart] = []
    for number, one in enumerate(parts):
        assert isinstance(one, LogPart)
        one.save(Files(), folder / f"part-{number}")
        saved.append(SavedPart.open(folder / f"part-{number}"))
    written = write(folder, *(saved if data.draw(st.booleans()) else parts))
    first_with = {offset: 1000 + i for i, offset in reversed(list(enumerate(offsets)))}
    for file in written:
        number = file.start // UNIT.sizeof()
        wanted = [first_with.get(k) for k in range(number, file.end)]
        found = units(folder / file.path)
        assert [unit[0] or None for unit in found] == wanted + [None] * (UNITS_PER_FILE - len(wanted))
        assert all(unit == PRE_FILL_UNIT for unit, at in zip(found, wanted, strict=False) if at is None)
    assert sum(file.units for file in written) == len(first_with)
    assert sum(file.duplicates for file in written) == len(offsets) - len(first_with)


def test_queues_of_one_task_stay_apart(tmp_path: Path) -> None:
    written = write(tmp_path, part([0, 1], queue_id=0), part([0, 1], queue_id=1))
    assert [file.path.split("/")[2] for file in written] == ["0", "1"]
    assert [file.units for file in written] == [2, 2]


def test_a_full_disk_is_told_with_the_path(tmp_path: Path) -> None:
    counted = FailingFiles(1 << 30, 0)
    write(tmp_path / "counted", part([0, 3, 12]), files=counted)
    for at in range(len(counted.steps)):
        with pytest.raises(NoSpace):
            write(tmp_path / str(at), part([0, 3, 12]), files=FailingFiles(at, errno.ENOSPC))


def test_a_part_that_was_cut_short_is_told(tmp_path: Path) -> None:
    made = PartRows(UNITS_PER_FILE)
    made.add_items(np.zeros(3, ITEM))
    made.part().save(Files(), tmp_path / "part")
    saved = SavedPart.open(tmp_path / "part")
    assert len(saved.items_from(1, 3)) == 2
    with pytest.raises(Unreadable, match=r"shorter than it was written: .*/items"):
        saved.items_from(1, 4)
    with pytest.raises(Unreadable):
        SavedPart.open(tmp_path / "part" / "rows")
