"""consumequeue_ext: every unit that a real broker wrote, and files that are damaged."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.consume_queue_ext import END, END_OF_FILE, UNIT, UNIT_BYTES_MIN
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.queues.ext import WINDOW_BYTES, ExtRange, ExtUnit, ExtUnits, ext_unit, ext_units, ext_units_at
from mqstore.store.search.store import StoreReader

from ...stores import unpack
from ..choices import stores_where

WITH_EXT = stores_where(lambda t: t["config"].get("enableConsumeQueueExt") == "true")
Row = tuple[int, ExtUnit]


def unit(tags_code: int, time: int, bit_map: bytes = b"") -> bytes:
    """One unit as a broker writes it."""
    return UNIT.build({"tags_code": tags_code, "msg_store_time": time, "bit_map": bit_map})


def opened(folder: Path, *files: bytes) -> MappedFileQueue:
    """A stream of files of one size."""
    folder.mkdir(exist_ok=True)
    size = max(map(len, files))
    for number, data in enumerate(files):
        (folder / f"{number * size:020d}").write_bytes(data.ljust(size, b"\0"))
    return MappedFileQueue.open(folder)


def rows(files: MappedFileQueue, start: int | None = None) -> list[Row]:
    """All units, one by one."""
    found = []
    for part in ext_units(files, start):
        if isinstance(part, ExtUnits):
            columns = part.columns
            for i, position in enumerate(part.position.tolist()):
                found.append(
                    (
                        position,
                        ExtUnit(
                            int(columns.ints("tags_code")[i]),
                            int(columns.ints("msg_store_time")[i]),
                            columns.ragged("bit_map")[i],
                        ),
                    )
                )
    return found


def ranges(files: MappedFileQueue) -> list[ExtRange]:
    """What is no unit."""
    return [part for part in ext_units(files) if isinstance(part, ExtRange)]


@pytest.mark.parametrize("name", WITH_EXT)
def test_every_unit_of_a_real_broker(name: str, tmp_path: Path) -> None:
    """Each address in a queue leads to a unit, and each unit is named: times are the records'."""
    root = unpack(name, tmp_path)
    with StoreReader(root) as store:
        for summary in store.queue_summaries:
            folder = root / "consumequeue_ext" / summary.topic / str(summary.queue_id)
            if not folder.is_dir():
                continue
            known = dict(rows(MappedFileQueue.open(folder)))
            named = set()
            with store.queues.open(summary.topic, summary.queue_id) as queue:
                for offset in range(summary.min_offset, summary.max_offset):
                    found = queue.unit(offset)
                    assert found is not None and found.ext_address is not None
                    message = store.message_at(found.physical_offset)
                    assert known[found.ext_address].msg_store_time == message.store_timestamp
                    one = ext_unit(MappedFileQueue.open(folder), found.ext_address)
                    assert one == known[found.ext_address]
                    named.add(found.ext_address)
            assert named == set(known)


UNITS = st.lists(
    st.builds(
        unit, st.integers(-(2**63), 2**63 - 1), st.integers(1, 2**42), st.binary(max_size=40) | st.just(bytes(8))
    ),
    max_size=60,
)


@given(UNITS, UNITS)
def test_any_units_in_two_files(
    tmp_path_factory: pytest.TempPathFactory, first: list[bytes], second: list[bytes]
) -> None:
    """All of them, in order, each at its place; also from any of them on."""
    end = END.build({"size": END_OF_FILE})
    data = (b"".join(first) + end, b"".join(second) + bytes(UNIT_BYTES_MIN))
    files = opened(tmp_path_factory.mktemp("ext"), *data)
    size = max(map(len, data))
    expected, position = [], 0
    for base, units in ((0, first), (size, second)):
        position = base
        for each in units:
            parsed = UNIT.parse(each)
            values = (parsed.tags_code, parsed.msg_store_time, parsed.bit_map)
            expected.append((position, ExtUnit(*values)))
            position += len(each)
    assert rows(files) == expected
    assert not [part for part in ranges(files) if part.kind == "damage"]
    for number in range(0, len(expected), 7):
        assert rows(files, expected[number][0]) == expected[number:]
        assert ext_unit(files, expected[number][0]) == expected[number][1]


@pytest.mark.slow
def test_windows(tmp_path: Path) -> None:
    """More units than one window holds, of changing sizes."""
    units = [unit(i, 1 + i, bytes([i % 256]) * (i % 3 * 8)) for i in range(60_000)]
    files = opened(tmp_path / "ext", b"".join(units) + bytes(100))
    assert files.files[0].size > WINDOW_BYTES
    found = rows(files)
    assert [row[1].tags_code for row in found] == list(range(60_000))
    sizes = np.cumsum([0, *map(len, units)])[:-1]
    assert [row[0] for row in found] == sizes.tolist()


@pytest.mark.parametrize("noise", [b"\x00\x05", b"\x7f\xff", b"\xff\xfe", b"\x00\x14"])
def test_damage_costs_what_it_covers(tmp_path: Path, noise: bytes) -> None:
    units = [unit(i, 1_700_000_000_000 + i, bytes(8)) for i in range(50)]
    data = bytearray(b"".join(units))
    at = 20 * len(units[0])
    data[at : at + 2] = noise
    data[at + 18 : at + 20] = b"\x12\x34"
    files = opened(tmp_path / "ext", bytes(data) + bytes(64))
    assert [row[1].tags_code for row in rows(files)] == [*range(20), *range(21, 50)]
    damage = [part for part in ranges(files) if part.kind == "damage"]
    assert damage == [ExtRange("damage", at, len(units[0]))]
    assert ext_unit(files, at) is None


def test_a_size_beyond_the_file(tmp_path: Path) -> None:
    """A broker refuses to load such a store (B37); nothing is read beyond."""
    files = opened(tmp_path / "ext", unit(1, 2) + b"\x7f\xff" + bytes(16) + b"\x7f\xeb" + b"x")
    assert len(rows(files)) == 1
    assert [part.kind for part in ranges(files)] == ["damage"]


def test_places_where_nothing_is(tmp_path: Path) -> None:
    files = opened(tmp_path / "ext", unit(1, 2) + bytes(30))
    assert ext_unit(files, 10**15) is None
    assert ext_unit(files, len(unit(1, 2))) is None


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=60), st.randoms())
def test_many_at_once_are_those_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, bit_maps: list[bytes], chance: Random
) -> None:
    """At any positions, also where no unit is, over damage and several files."""
    data = bytearray(b"".join(unit(n, 1000 + n, bits) for n, bits in enumerate(bit_maps)))
    if chance.random() < 0.5:
        at = chance.randrange(len(data))
        data[at : at + 30] = chance.randbytes(len(data[at : at + 30]))
    files = opened(tmp_path_factory.mktemp("ext"), bytes(data), bytes(data))
    known = [position for position, _ in rows(files)]
    some = chance.sample(known, len(known) // 2)
    wanted = np.array([*some, -1, 1 << 62, chance.randrange(files.end)], np.int64)
    found = ext_units_at(files, wanted)
    assert set(some) <= set(found) <= set(wanted.tolist())
    assert all(ext_unit(files, position) == one for position, one in found.items())
    files.close()
