"""Ranges of consumequeue_ext that are no units: whatever lies there, units follow one another again."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqstore.formats.consume_queue_ext import END, END_MARK, UNIT, UNIT_BYTES_MAX, UNIT_BYTES_MIN
from mqstore.store.disk.file_queue import MappedFileQueue, file_name
from mqstore.store.disk.files import Edit
from mqstore.store.queues.ext import ext_unit, ext_units_at
from mqstore.store.queues.start import units_end
from mqstore.store.repair.ext import ExpectedExt, damaged_ranges, repair_range

from ...slices import rng, share

FILE_BYTES = 2000
WAYS = 400
TIME_MS = 1_700_000_000_000


def unit(number: int, bit_map: bytes = b"") -> bytes:
    """A unit as a broker writes it."""
    fields = {"tags_code": number, "msg_store_time": TIME_MS + number, "bit_map": bit_map}
    data: bytes = UNIT.build(fields)
    return data


def wanted(number: int) -> ExpectedExt:
    return ExpectedExt(number, TIME_MS + number)


def write(folder: Path, *contents: bytes, size: int = FILE_BYTES) -> None:
    """Files of units, the newest last; each but the newest ends with the mark."""
    folder.mkdir(exist_ok=True)
    for number, content in enumerate(contents):
        ending = END_MARK if number + 1 < len(contents) and len(content) < size else b""
        (folder / file_name(number * size)).write_bytes((content + ending).ljust(size, b"\0"))


def mend(folder: Path, named: dict[int, ExpectedExt]) -> tuple[list[Edit], set[int]]:
    """Carry out the edits of every range; they do not overlap."""
    edits: list[Edit] = []
    places: set[int] = set()
    with MappedFileQueue.open(folder) as files:
        for part in damaged_ranges(files):
            inside = range(part.position, part.position + part.size)
            for place, edit in repair_range(files, part, {p: named[p] for p in named if p in inside}):
                edits.append(edit)
                places |= set() if place is None else {place}
    spans = sorted((edit.path, edit.offset, edit.offset + edit.length) for edit in edits)
    for one, other in pairwise(spans):
        assert one[0] != other[0] or one[2] <= other[1], "edits overlap"
    for edit in edits:
        with Path(edit.path).open("r+b") as file:
            file.seek(edit.offset)
            file.write(edit.data or bytes(edit.length))
    return edits, places


def left(folder: Path) -> list[int]:
    """Sizes of the ranges that are damaged still."""
    with MappedFileQueue.open(folder) as files:
        return [part.size for part in damaged_ranges(files)]


def check_a_broker_reads(folder: Path) -> None:
    """It goes by the sizes alone, and fails at one that leads to the end of the file or behind it."""
    for path in folder.iterdir():
        units_end(np.frombuffer(path.read_bytes(), np.uint8), str(path))


def units_at(folder: Path, places: set[int]) -> dict[int, ExpectedExt]:
    with MappedFileQueue.open(folder) as files:
        found = {place: ext_unit(files, place) for place in places}
    return {p: ExpectedExt(u.tags_code, u.msg_store_time) for p, u in found.items() if u is not None}


def spoilt(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def test_a_size_too_large_for_a_unit(tmp_path: Path) -> None:
    """32767 bytes of bit map and a head make no size that a unit can have."""
    data = unit(1) + unit(2, bytes(9)) + unit(3)
    huge = b"\x7f\xff"
    data = spoilt(spoilt(data, 20, huge), 38, huge)
    write(tmp_path / "q", data, size=100_000)
    mend(tmp_path / "q", {20: wanted(2)})
    assert left(tmp_path / "q") == []
    assert units_at(tmp_path / "q", {20}) == {20: wanted(2)}


def test_places_that_overlap(tmp_path: Path) -> None:
    """Of two units that are named closer than one has room, the one that is there is mended."""
    data = b"".join(unit(number) for number in range(1, 9))
    write(tmp_path / "q", spoilt(data, 40, b"\0\0"))
    edits, places = mend(tmp_path / "q", {33: wanted(7), 40: wanted(3), 52: wanted(9)})
    assert places == {40} and len(edits) == 1
    assert (tmp_path / "q" / file_name(0)).read_bytes()[: len(data)] == data


@pytest.mark.parametrize("newest", [False, True])
def test_a_range_that_no_queue_names_is_spanned(newest: bool, tmp_path: Path) -> None:
    """Good units follow it in the file: they stay within reach."""
    data = b"".join(unit(number) for number in range(1, 12))
    broken = spoilt(data, 60, b"\xee" * 45)
    write(tmp_path / "q", *([broken] if newest else [broken, data]))
    mend(tmp_path / "q", {})
    assert left(tmp_path / "q") == []
    behind = {place: wanted(place // 20 + 1) for place in range(120, 220, 20)}
    assert units_at(tmp_path / "q", set(behind)) == behind
    with MappedFileQueue.open(tmp_path / "q") as files:
        assert not files.read(220, 1800 * newest).strip(b"\0")


def test_a_range_longer_than_a_unit_can_be(tmp_path: Path) -> None:
    data = b"".join(unit(number) for number in range(3000))
    at, size = 4000, 2 * UNIT_BYTES_MAX - UNIT_BYTES_MAX % 20 + 40
    write(tmp_path / "q", spoilt(data, at, b"\xee" * size), size=len(data))
    mend(tmp_path / "q", {at: wanted(at // 20)})
    assert left(tmp_path / "q") == []
    assert units_at(tmp_path / "q", {at}) == {at: wanted(at // 20)}


class Counted(bytes):
    """Bytes that count how many of them are copied."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        Counted.copied += len(found) if isinstance(key, slice) else 1
        return found


def test_a_long_range_is_read_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once more for each of its units."""
    size = len(unit(1, bytes(280)))
    data = b"".join(unit(number, bytes(280)) for number in range(400))
    for at in range(0, len(data), 2 * size):
        data = spoilt(data, at, b"\0\0")
    write(tmp_path / "q", data + b"\x07" * 6, size=len(data) + 100)
    read_file = MappedFileQueue.read_file
    monkeypatch.setattr(MappedFileQueue, "read_file", lambda *args: Counted(read_file(*args)))
    with MappedFileQueue.open(tmp_path / "q") as files:
        (part,) = damaged_ranges(files)
        Counted.copied = 0
        assert sum(1 for _ in repair_range(files, part, {0: wanted(0)})) > 200
    assert 0 < Counted.copied < 4 * len(data)


def test_the_last_unit_leaves_room_for_the_end(tmp_path: Path) -> None:
    """A broker that finds a unit up to the last byte of a file does not start."""
    data = b"".join(unit(number) for number in range(FILE_BYTES // 20 - 1))
    for ending in (b"", b"\xee" * 15, b"\xee" * 20):
        folder = tmp_path / f"{len(ending)}"
        write(folder, spoilt(data, 1900, b"\0\0") + ending)
        mend(folder, {1900: wanted(95)})
        assert left(folder) == []
        check_a_broker_reads(folder)


def test_no_room_for_a_unit(tmp_path: Path) -> None:
    """Less than a head before good units, and a named place at the end of a file."""
    data = b"".join(unit(number) for number in range(1, 8))
    write(tmp_path / "q", unit(0) + b"\xee" * 7 + data)
    assert mend(tmp_path / "q", {20: wanted(9)})[1] == set()
    assert left(tmp_path / "q") == [7]
    full = b"".join(unit(number) for number in range(FILE_BYTES // 20))[:-15] + b"\xee" * 15
    write(tmp_path / "r", full[:-5] + b"\xee" * 5)
    assert mend(tmp_path / "r", {FILE_BYTES - 10: wanted(9)})[1] == set()
    assert left(tmp_path / "r") == []


@pytest.mark.parametrize("count", [5, pytest.param(WAYS, marks=pytest.mark.slow)])
def test_seeded_damage(count: int, tmp_path: Path) -> None:
    """What is named and had room is there, what lay outside is as it was, all of it is units."""
    generator = rng("ext units")
    for number in range(share(count)):
        folder = tmp_path / f"{number}"
        known = damage(folder, generator)
        with MappedFileQueue.open(folder) as files:
            before = set(ext_units_at(files, np.array(sorted(known), np.int64)))
            parts = damaged_ranges(files)
        damaged = [range(part.position, part.position + part.size) for part in parts]
        _, places = mend(folder, known)
        assert all(size < UNIT_BYTES_MIN for size in left(folder)), number
        found = units_at(folder, places)
        assert found == {place: known[place] for place in places}, number
        assert set(units_at(folder, before)) == before, number
        assert with_room(known, damaged) <= places | before, number
        if not left(folder):
            check_a_broker_reads(folder)


def with_room(known: dict[int, ExpectedExt], damaged: list[range]) -> set[int]:
    """The named places in damaged ranges that are a unit away from other places and from the ends."""
    found = set()
    for part in damaged:
        inside = [place for place in known if place in part]
        mark = END.sizeof() if part.stop % FILE_BYTES == 0 else 0
        for place in inside:
            apart = all(abs(place - o) >= UNIT_BYTES_MIN for o in [part.start, *inside] if o != place)
            if apart and place + UNIT_BYTES_MIN + mark <= part.stop:
                found.add(place)
    return found


def damage(folder: Path, generator: random.Random) -> dict[int, ExpectedExt]:
    """Files of units with noise in them; which units are named, some of them wrongly."""
    contents, known, total = [], dict[int, ExpectedExt](), 0
    for start in range(0, 3 * FILE_BYTES, FILE_BYTES):
        data, most = b"", FILE_BYTES - generator.randrange(4, 200)
        while len(new := unit(total, bytes(generator.choice([0, 0, 4, 60])))) + len(data) <= most:
            if generator.random() < 0.7:
                known[start + len(data)] = wanted(total)
            data, total = data + new, total + 1
        for _ in range(generator.randrange(4)):
            at = generator.randrange(len(data))
            noise = generator.randbytes(generator.choice([1, 2, 40, 300]))
            data = spoilt(data, at, noise)[: len(data)]
        contents.append(data)
    for place in generator.sample(sorted(known), 5):
        known[place + generator.randrange(-30, 30)] = wanted(total)
    write(folder, *contents)
    return {place: it for place, it in known.items() if place >= 0}
