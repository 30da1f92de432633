"""Units into consume queue files, without Spark: gaps, duplicates, parts of any size."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.consume_queue import UNIT
from mqstore.pipeline.log_part import LogPart, SavedPart
from mqstore.store.disk.files import Files
from mqstore.store.errors import NoSpace

from ..store.put.faults import FailingFiles
from .queue_parts import EMPTY_UNIT, PRE_FILL_UNIT, UNITS_PER_FILE, part, units, write


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


def test_in_a_gap_the_unit_before_stands_again_and_it_is_counted(tmp_path: Path) -> None:
    """Pre-fill would hide the messages before it."""
    (file,) = write(tmp_path, part([0, 3]), part([5], first=2))
    assert (file.units, file.missing, file.end) == (3, 3, 6)
    found = units(tmp_path / file.path)
    assert [unit[0] for unit in found[:6]] == [1000, 1000, 1000, 1001, 1001, 1002]


@given(st.data())
def test_any_parts_give_the_same_files(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Against a plain model: unit k of the stream, first record wins, where none is the unit before, or pre-fill."""
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
        wanted, before = [], 0
        for k in range(number, file.end):
            before = first_with.get(k, before)
            wanted.append(before)
        found = units(folder / file.path)
        assert [unit[0] for unit in found] == wanted + [0] * (UNITS_PER_FILE - len(wanted))
        assert all(unit == PRE_FILL_UNIT for unit, at in zip(found, wanted, strict=False) if not at)
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
