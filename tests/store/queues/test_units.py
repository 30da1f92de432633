"""The one reader of units as arrays, and the one idea of which are valid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import batch_consume_queue
from mqstore.formats.consume_queue import PRE_FILL, UNIT_BYTES
from mqstore.formats.derive import dtype_of
from mqstore.store.disk.byte_reader import Unread, noting
from mqstore.store.disk.file_queue import MappedFile, MappedFileQueue, file_name
from mqstore.store.errors import UnreadableRange
from mqstore.store.queues.read import Unit, is_valid_batch
from mqstore.store.queues.units import (
    LARGEST_OFFSET,
    UNIT_DTYPE,
    FileUnits,
    RowUnits,
    Units,
    is_pre_fill,
    is_used,
    is_valid,
    pre_fill,
    reaches_beyond,
)

FILE_UNITS = 5000
FILE_BYTES = FILE_UNITS * UNIT_BYTES


def units_of(first: int, count: int) -> Units:
    """Units that name `number · 100`, each."""
    units = np.zeros(count, UNIT_DTYPE)
    units["physical_offset"] = np.arange(first, first + count) * 100
    units["size"] = 100
    return units


@pytest.fixture
def files(tmp_path: Path) -> MappedFileQueue:
    """Two files, and between them one that is missing; the second has a hole in its middle."""
    (tmp_path / file_name(FILE_BYTES)).write_bytes(units_of(FILE_UNITS, FILE_UNITS).tobytes())
    path = tmp_path / file_name(3 * FILE_BYTES)
    with path.open("wb") as file:
        file.write(units_of(3 * FILE_UNITS, 10).tobytes())
        file.seek(FILE_BYTES - 10 * UNIT_BYTES)
        file.write(units_of(4 * FILE_UNITS - 10, 10).tobytes())
    return MappedFileQueue.open(tmp_path)


class BadDisk(MappedFileQueue):
    """Bytes [begin, end) of each file cannot be read."""

    bad = range(0)

    def fill(self, file: MappedFile, offset: int, buffer: memoryview) -> tuple[int, list[Unread]]:
        got, unread = super().fill(file, offset, buffer)
        begin, end = max(offset, self.bad.start), min(offset + got, self.bad.stop)
        if begin < end:
            buffer[begin - offset : end - offset] = bytes(end - begin)
            unread = [Unread(file.path, begin, end - begin, "bad")]
        return got, unread


def numbers_of(parts: Iterator[tuple[int, Units]]) -> list[int]:
    """The numbers of all units, which name what they should."""
    found = []
    for first, units in parts:
        used = np.flatnonzero(is_used(units))
        assert (units["physical_offset"][used] == (first + used) * 100).all()
        found += (first + used).tolist()
    return found


def test_units_are_found_wherever_they_are_asked_for(files: MappedFileQueue) -> None:
    stream = FileUnits(files)
    assert (stream.first, stream.stop) == (FILE_UNITS, 4 * FILE_UNITS)
    there = [*range(FILE_UNITS, 2 * FILE_UNITS), *range(3 * FILE_UNITS, 3 * FILE_UNITS + 10)]
    there += range(4 * FILE_UNITS - 10, 4 * FILE_UNITS)
    assert numbers_of(stream.windows()) == numbers_of(stream.written()) == there
    assert sorted(numbers_of(stream.windows(reverse=True, most=7))) == there
    everything = stream.read(0, 5 * FILE_UNITS)
    assert np.flatnonzero(is_used(everything)).tolist() == there
    asked = np.array([LARGEST_OFFSET + 9, 7777, -3, 4 * FILE_UNITS - 1, 7777, 12000, 5000], np.int64)
    assert stream.lookup(asked)["physical_offset"].tolist() == [0, 777700, 0, 1999900, 777700, 0, 500000]
    assert not files._descriptors


def test_holes_are_told(files: MappedFileQueue) -> None:
    stream = FileUnits(files)
    told = np.zeros(4 * FILE_UNITS, np.bool_)
    for first, units in stream.written():
        told[first : first + len(units)] = True
    reach, holes = stream.first, []
    for first, units in stream.written():
        holes += list(stream.unwritten(reach, first))
        reach = first + len(units)
    assert holes and all(not told[begin:end].any() for begin, end in holes)
    inside = np.zeros_like(told)
    for begin, end in stream.ranges(0, LARGEST_OFFSET, 1000):
        inside[begin : begin + end] = True
    assert sum(end - begin for begin, end in holes) == int((inside & ~told).sum())


def test_what_the_disk_does_not_give_is_an_error_or_left_out(files: MappedFileQueue) -> None:
    bad = BadDisk(files.directories, files.files, files.file_size, [])
    bad.bad = range(1010, 1030)  # units 50 and 51 of each file
    stream, lost = FileUnits(bad), [50, 51]
    with noting(around=True), pytest.raises(UnreadableRange):
        stream.read(FILE_UNITS, 60)
    with pytest.raises(UnreadableRange):
        stream.read(FILE_UNITS, 60, around=True)
    with noting(around=True):
        units = stream.lookup(np.arange(FILE_UNITS, FILE_UNITS + 60), around=True)
        assert np.flatnonzero(~is_used(units)).tolist() == lost
        numbers = np.arange(FILE_UNITS, FILE_UNITS + 60)
        assert np.flatnonzero(stream.unread(numbers)).tolist() == lost
        found = numbers_of(stream.windows(FILE_UNITS, FILE_UNITS + 60))
        assert found == [n for n in numbers.tolist() if n - FILE_UNITS not in lost]
        unwritten = list(stream.unwritten(FILE_UNITS + 40, FILE_UNITS + 60))
        assert unwritten == [(FILE_UNITS + 40, FILE_UNITS + 50), (FILE_UNITS + 52, FILE_UNITS + 60)]


def test_rows_are_read_as_files_are() -> None:
    there = np.dtype([*((n, UNIT_DTYPE[n]) for n in UNIT_DTYPE.names or ()), ("more", ">i8")])

    def rows(first: int, stop: int) -> Iterator[tuple[int, bytes]]:
        for begin, end in ((max(first, 4), min(stop, 6)), (max(first, 8), min(stop, 12))):
            if begin < end:
                units = np.zeros(end - begin, there)
                units["physical_offset"], units["size"] = np.arange(begin, end) * 100, 100
                yield begin, units.tobytes()

    stream = RowUnits(rows, there, 4, 12)
    assert numbers_of(stream.windows()) == numbers_of(stream.written()) == [4, 5, 8, 9, 10, 11]
    assert numbers_of(stream.windows(5, 10, most=2)) == [5, 8, 9]
    found = stream.lookup(np.array([11, 6, 4], np.int64))
    assert found.dtype == UNIT_DTYPE
    assert found["physical_offset"].tolist() == [1100, 0, 400]


@given(
    st.sets(st.integers(0, 40) | st.integers(1 << 40, (1 << 40) + 40), min_size=1),
    st.integers(0, 50),
    st.integers(1, 9),
)
def test_rows_come_backwards_however_far_apart(numbers: set[int], first: int, most: int) -> None:
    """A step at a time would not end between two numbers 2^40 apart."""
    there = sorted(numbers)

    def rows(first: int, stop: int) -> Iterator[tuple[int, bytes]]:
        for number in there:
            if first <= number < stop:
                yield number, np.zeros(1, UNIT_DTYPE).tobytes()

    stream = RowUnits(rows, UNIT_DTYPE, there[0], there[-1] + 1)
    found = [number for number, _ in stream.windows(first, reverse=True, most=most)]
    assert found == [number for number in reversed(there) if number >= first]


@given(
    st.tuples(
        st.sampled_from([-1, 0, 1, 1 << 40]) | st.integers(-(1 << 63), (1 << 63) - 1),
        st.sampled_from([-1, 0, 1, PRE_FILL["size"]]) | st.integers(-(1 << 31), (1 << 31) - 1),
        st.sampled_from([0, 1]) | st.integers(-(1 << 63), (1 << 63) - 1),
    )
)
def test_one_unit_and_many_are_valid_alike(values: tuple[int, int, int]) -> None:
    unit, units = Unit(0, *values), np.array([values], UNIT_DTYPE)
    assert is_valid(units).tolist() == [unit.valid]
    assert is_pre_fill(units).tolist() == [unit.pre_fill]
    assert is_used(units).tolist() == [unit.valid and not unit.pre_fill]


@given(*[st.integers(-1, 2)] * 4)
def test_one_unit_of_a_batch_and_many_are_valid_alike(
    physical_offset: int, size: int, msg_base_offset: int, batch_size: int
) -> None:
    units = np.zeros(1, dtype_of(batch_consume_queue.UNIT))
    fields = ("physical_offset", "size", "msg_base_offset", "batch_size")
    unit = dict(zip(fields, (physical_offset, size, msg_base_offset, batch_size), strict=True))
    for name, value in unit.items():
        units[name] = value
    assert is_valid(units).tolist() == [is_valid_batch(unit)]


def test_pre_fill_is_valid_and_names_nothing() -> None:
    assert is_valid(pre_fill(3)).all() and is_pre_fill(pre_fill(3)).all()
    assert not is_used(pre_fill(3)).any()


@given(st.integers(0, (1 << 63) - 1), st.integers(1, (1 << 31) - 1), st.integers(0, 1 << 63))
def test_what_reaches_beyond_a_log_of_any_length(position: int, size: int, log_end: int) -> None:
    for end in (log_end, position + size, position + size - 1):
        assert reaches_beyond(np.array([(position, size, 0)], UNIT_DTYPE), end).tolist() == [position + size > end]
