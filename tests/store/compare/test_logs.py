"""Ranges of two logs: the same as bytes one by one tell, whichever files each side has."""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.epoch_file import FILE as EPOCH_FILE
from mqstore.store.compare import logs
from mqstore.store.compare.logs import LogsCompared, PositionRange, compare_logs, differing_fields, with_logs_compared
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.layout import Layout
from mqstore.store.log.batch import Batch, messages
from mqstore.store.log.commit_log import in_step
from mqstore.store.recover.predict import slave_cut
from mqstore.store.search.store import StoreReader

from ...stores import messages as truth_messages
from ...stores import unpack


def compared(a: Path, b: Path, *, quick: bool = False) -> LogsCompared:
    with StoreReader(a) as one, StoreReader(b) as other:
        return compare_logs(one, other, quick=quick, note=lambda size: None)


def ranges(numbers: set[int]) -> list[PositionRange]:
    """Numbers as ranges of neighbours."""
    found: list[PositionRange] = []
    for number in sorted(numbers):
        if found and found[-1].stop == number:
            found[-1] = PositionRange(found[-1].start, number + 1)
        else:
            found.append(PositionRange(number, number + 1))
    return found


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_ranges_are_sets(a: set[int], b: set[int]) -> None:
    assert logs._common(ranges(a), ranges(b)) == ranges(a & b)
    assert logs._without(ranges(a), ranges(b)) == ranges(a - b)


@given(st.binary(min_size=1, max_size=300), st.data())
def test_bytes_that_differ_are_in_a_range(data: bytes, drawn: st.DataObject) -> None:
    other = bytearray(data)
    places = drawn.draw(st.sets(st.integers(0, len(data) - 1)))
    for place in places:
        other[place] ^= 0xFF
    one, two = (np.frombuffer(bytearray(each), np.uint8) for each in (data, other))
    assert logs._are_equal(one, two) == (not places)
    found = list(logs._ranges(one, two, 1000))
    assert all(any(r.start <= 1000 + p < r.stop for r in found) for p in places)
    assert bool(found) == bool(places)
    if places:
        assert (found[0].start, found[-1].stop) == (1000 + min(places), 1001 + max(places))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A store of two log files, and its copy."""
    root = unpack("5.3.3-killed-page", tmp_path)
    shutil.copytree(root, tmp_path / "copy")
    return root, tmp_path / "copy"


def test_a_copy_is_the_same(pair: tuple[Path, Path]) -> None:
    found = compared(*pair)
    assert found.same and found.first is None and found.apart == []
    assert found.a == found.b == PositionRange(0, found.compared)


def test_each_byte_that_differs_is_found(pair: tuple[Path, Path]) -> None:
    rng = random.Random(4)
    end = compared(*pair).compared
    places = sorted(rng.sample(range(64, end), 20))
    for place in places:
        with (pair[1] / "commitlog" / f"{place // 262144 * 262144:020d}").open("r+b") as file:
            file.seek(place % 262144)
            (old,) = file.read(1)
            file.seek(place % 262144)
            file.write(bytes([old ^ 0x10]))
    found = compared(*pair)
    assert found.same and found.first == places[0]
    assert all(any(r.start <= place < r.stop for r in found.differing) for place in places)
    assert len(found.differing) == len(logs._joined([PositionRange(p, p + 1) for p in places]))


def test_the_whole_of_a_record_larger_than_is_looked_back(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What differs lies at its end: it is looked at from its beginning on."""
    monkeypatch.setattr(logs, "in_step", partial(in_step, look_back_bytes=16))
    with StoreReader(pair[0]) as one:
        batch = next(item for item in one.log.scan(crc=False) if isinstance(item, Batch))
        message = list(messages(batch))[len(batch) // 2]
    last = message.position + message.total_size - 1
    with (pair[1] / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(last)
        file.write(b"\xaa")
    found = compared(*pair)
    assert found.apart is not None
    assert [each.start <= message.position and each.stop == last + 1 for each in found.apart] == [True]
    with StoreReader(pair[0]) as one, StoreReader(pair[1]) as other:
        assert {each.position for each in differing_fields(one, other, found.differing)} == {message.position}


def test_files_that_one_side_lacks(pair: tuple[Path, Path]) -> None:
    """In the middle and behind it is only in A; in front it has expired."""
    files = sorted((pair[1] / "commitlog").iterdir())
    files[1].unlink()
    found = compared(*pair)
    assert found.same and found.b == PositionRange(0, 262136), "the last record, not the rest"
    assert found.only_a == [PositionRange(262136, 396044)] and found.expired_a == []
    shutil.copy(pair[0] / "commitlog" / files[1].name, files[1])
    files[0].unlink()
    found = compared(*pair)
    assert found.same and found.expired_a == [PositionRange(0, 262144)] and found.only_a == []
    assert found.first is None and found.apart == []


def test_another_log_is_told_at_once(tmp_path: Path) -> None:
    a, b = unpack("5.3.3-clean", tmp_path), unpack("5.3.3-killed", tmp_path)
    found = compared(a, b)
    assert found.same is False and found.compared == 0 and found.apart is None


def test_quick_says_how_much_it_has_looked_at(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SAMPLES", 4)
    monkeypatch.setattr(logs, "SAMPLE_BYTES", 512)
    found = compared(*pair, quick=True)
    whole = compared(*pair)
    assert found.samples is not None and whole.samples is None
    assert 4 * 512 <= found.compared < whole.compared / 10


def test_what_a_slave_keeps_is_compared_with_its_masters_log(tmp_path: Path) -> None:
    """A former master that got the new one's epochs cuts nothing; no broker looks at what lies before."""
    slave = unpack("5.3.3-v2", tmp_path)
    master = Path(shutil.copytree(slave, tmp_path / "master"))
    for root in (slave, master):
        (root / EPOCH_FILE).write_text("1\n0\n1-0\n")

    def cut() -> tuple[str, bool, int | None]:
        found = with_logs_compared(slave_cut(Layout.open(slave), master), Layout.open(master), lambda _: None)
        return found.outcome, found.compared, found.differs_at

    assert cut() == ("same", True, None)
    row = list(truth_messages("5.3.3-v2"))[-5]
    last = row["physical_offset"] + row["total_size"] - 1
    with (master / "commitlog" / file_name(0)).open("r+b") as file:
        file.seek(last)
        file.write(b"\0")
    assert cut() == ("same", True, last)
    (master / EPOCH_FILE).write_text(f"2\n0\n1-0\n2-{row['physical_offset']}\n")
    assert cut() == ("cuts", True, None), "what differs is cut off"
