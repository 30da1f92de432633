"""Queue files: pre-fill, roll, stale units; the bytes of a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.consume_queue import PRE_FILL, UNIT, UNIT_BYTES
from mqstore.store.disk.files import Files
from mqstore.store.errors import InvalidInput, Refused
from mqstore.store.queues.write import QueueWriter, pieces, unit_bytes

from ..put.faults import CountingFiles

FILE = 5 * UNIT_BYTES


def units(first: int, count: int) -> bytes:
    return b"".join(unit_bytes(1000 + k, 100, -k) for k in range(first, first + count))


def stream(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def expected(first: int, count: int) -> dict[str, bytes]:
    """The same by the definition: unit k at byte 20·k, files of full size."""
    if not count:
        return {}
    start = first * UNIT_BYTES // FILE * FILE
    data = UNIT.build(PRE_FILL) * (first - start // UNIT_BYTES) + units(first, count)
    data += bytes(-len(data) % FILE)
    return {f"{start + at:020d}": data[at : at + FILE] for at in range(0, len(data), FILE)}


@given(st.integers(0, 23), st.lists(st.integers(0, 12), max_size=5))
def test_any_split_gives_the_same_files(first: int, counts: list[int]) -> None:
    found: dict[int, bytearray] = {}
    at, begins = first, True
    for count in counts:
        for start, offset, data in pieces(at, units(at, count), FILE, begins=begins):
            file = found.setdefault(start, bytearray(FILE))
            file[offset : offset + len(bytes(data))] = bytes(data)
            begins = False
        at += count
    assert {f"{k:020d}": bytes(v) for k, v in found.items()} == expected(first, sum(counts))


@pytest.mark.parametrize("first", [0, 3, 5, 12])
def test_appending_to_files(tmp_path: Path, first: int) -> None:
    directory = tmp_path / "T" / "0"
    writer = QueueWriter(Files(), directory, FILE, None)
    writer.append(first, units(first, 1))
    writer.append(first + 1, units(first + 1, 6))
    writer.sync()
    again = QueueWriter(Files(), directory, FILE, first + 7)
    again.append(first + 7, units(first + 7, 2))
    assert again.next_offset == first + 9
    assert stream(directory) == expected(first, 9)


def test_a_unit_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    writer = QueueWriter(Files(), tmp_path / "0", FILE, 4)
    with pytest.raises(Refused, match=r"unit 5 does not follow.*next is 4"):
        writer.append(5, units(5, 1))
    assert not (tmp_path / "0").exists()


def test_stale_units_are_zeroed(tmp_path: Path) -> None:
    writer = QueueWriter(Files(), tmp_path, FILE, None)
    writer.append(0, units(0, 5))
    QueueWriter(Files(), tmp_path, FILE, 1).append(1, units(1, 1))
    assert stream(tmp_path) == expected(0, 2)


def test_what_is_flushed(tmp_path: Path) -> None:
    files = CountingFiles()
    writer = QueueWriter(files, tmp_path / "0", FILE, None)
    writer.append(0, units(0, 6))
    writer.sync()
    changes = [change for change, _ in files.steps]
    assert changes[-5:] == ["open", "sync", "open", "sync", "sync_directory"]
    files.steps.clear()
    writer.sync()
    assert files.steps == []


def test_files_of_no_multiple_of_a_unit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="multiple"):
        QueueWriter(Files(), tmp_path, 101, None)
