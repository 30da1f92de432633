"""Sorted rows into consume queue files, without Spark: gaps, duplicates, batches of any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.consume_queue import PRE_FILL, UNIT
from mqstore.formats.derive import dtype_of
from mqstore.pipeline.plan import Plan, StorePlan
from mqstore.pipeline.queue_files import QueueFile, QueueFiles
from mqstore.pipeline.rebuild_rows import UNITS
from mqstore.pipeline.rebuild_steps import finish_queues
from mqstore.pipeline.stage import Stage
from mqstore.store.errors import NoSpace
from mqstore.store.write.files import Files

from ..store.write.faults import FailingFiles

UNITS_PER_FILE = 10
PLAN = Plan((StorePlan("s", "", 0, 1000, UNITS_PER_FILE, "5.5", {}),))
PRE_FILL_UNIT = tuple(PRE_FILL.values())
EMPTY_UNIT = (0, 0, 0)


def rows(offsets: list[int], queue_id: int = 0) -> pa.RecordBatch:
    """Units of one queue; the physical offset tells which row a unit came from."""
    count = len(offsets)
    columns = {
        "store": np.zeros(count),
        "topic": ["orders"] * count,
        "queue_id": np.full(count, queue_id),
        "file": np.array(offsets, np.int64) // UNITS_PER_FILE,
        "queue_offset": offsets,
        "physical_offset": 1000 + np.arange(count),
        "size": np.full(count, 100),
        "tags_code": -np.arange(count),
        **dict.fromkeys(("more", "damage", "tally"), pa.nulls(count)),
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in UNITS]
    return pa.RecordBatch.from_arrays(arrays, schema=UNITS)


def write(folder: Path, *batches: pa.RecordBatch, files: Files | None = None) -> list[QueueFile]:
    queues = QueueFiles(folder, "1", PLAN, files or Files())
    for batch in batches:
        queues.add(batch)
    queues.close()
    return queues.written


def units(path: Path) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = np.fromfile(path, dtype_of(UNIT)).tolist()
    assert len(found) == UNITS_PER_FILE, "a file has its full size"
    return found


def test_a_queue_that_does_not_begin_at_0_is_pre_filled(tmp_path: Path) -> None:
    (file,) = write(tmp_path, rows([13, 14]))
    assert file.path == "consumequeue/orders/0/00000000000000000200"
    assert (file.first, file.end, file.units, file.missing) == (13, 15, 2, 0)
    found = units(tmp_path / file.path)
    assert found == [PRE_FILL_UNIT] * 3 + [(1000, 100, 0), (1001, 100, -1)] + [EMPTY_UNIT] * 5


def test_of_two_records_with_one_offset_the_first_counts(tmp_path: Path) -> None:
    (file,) = write(tmp_path, rows([0, 1, 1, 1, 2]))
    assert (file.units, file.duplicates) == (3, 2)
    assert [unit[0] for unit in units(tmp_path / file.path)[:3]] == [1000, 1001, 1004]


def test_an_offset_repeated_in_the_next_batch(tmp_path: Path) -> None:
    (file,) = write(tmp_path, rows([0, 1]), rows([1, 2]))
    assert (file.units, file.duplicates, file.end) == (3, 1, 3)


def test_a_gap_is_pre_filled_and_counted(tmp_path: Path) -> None:
    (file,) = write(tmp_path, rows([0, 3]), rows([5]))
    assert (file.units, file.missing, file.end) == (3, 3, 6)
    found = units(tmp_path / file.path)
    assert [unit == PRE_FILL_UNIT for unit in found[:6]] == [False, True, True, False, True, False]


def test_a_gap_across_files_ends_no_queue(tmp_path: Path) -> None:
    """An empty unit would end the queue for a broker: the front file is filled up."""
    stage = Stage.begin(tmp_path, Files())
    written = write(stage.attempt("1"), rows([0, 7, 12]))
    finish_queues(stage, PLAN, written, [], [], [])
    assert stage.left("queues")["queues"][0]["missing"] == 6 + 2 + 2
    front = units(stage.tree / written[0].path)
    assert front[8:] == [PRE_FILL_UNIT] * 2
    assert units(stage.tree / written[1].path)[:2] == [PRE_FILL_UNIT] * 2


@given(st.data())
def test_any_batches_give_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Against a plain model: unit k of the stream, first record wins, pre-fill where none is."""
    offsets = sorted(data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=60)))
    whole = rows(offsets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(offsets)), max_size=5)))
    bounds = zip([0, *cuts], [*cuts, len(offsets)], strict=True)
    folder = tmp_path_factory.mktemp("queue")
    written = write(folder, *(whole.slice(begin, end - begin) for begin, end in bounds))
    first_with = {offset: 1000 + i for i, offset in reversed(list(enumerate(offsets)))}
    for file in written:
        number = file.start // UNIT.sizeof()
        wanted = [first_with.get(k) for k in range(number, file.end)]
        found = units(folder / file.path)
        assert [unit[0] or None for unit in found] == wanted + [None] * (
            UNITS_PER_FILE - len(wanted)
        )
        assert all(
            unit == PRE_FILL_UNIT for unit, at in zip(found, wanted, strict=False) if at is None
        )
    assert sum(file.units for file in written) == len(first_with)
    assert sum(file.duplicates for file in written) == len(offsets) - len(first_with)


def test_queues_of_one_task_stay_apart(tmp_path: Path) -> None:
    written = write(tmp_path, rows([0, 1], queue_id=0), rows([0, 1], queue_id=1))
    assert [file.path.split("/")[2] for file in written] == ["0", "1"]
    assert [file.units for file in written] == [2, 2]


def test_a_full_disk_is_told_with_the_path(tmp_path: Path) -> None:
    import errno

    counted = FailingFiles(1 << 30, 0)
    write(tmp_path / "counted", rows([0, 3, 12]), files=counted)
    for at in range(len(counted.steps)):
        with pytest.raises(NoSpace):
            write(tmp_path / str(at), rows([0, 3, 12]), files=FailingFiles(at, errno.ENOSPC))
