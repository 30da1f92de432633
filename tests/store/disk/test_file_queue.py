"""MappedFileQueue: orderly directories and all the others."""

from __future__ import annotations

import copy
import gzip
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.formats.message import MAGIC_V1, MESSAGE
from mqstore.store.disk.file_queue import (
    OPEN_FILES,
    MappedFileQueue,
    StreamGap,
    file_name,
    is_zero,
    size_of_log,
    start_of,
)
from mqstore.store.errors import Unreadable

_NUMBERS = ("body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born_timestamp")
RECORD = {
    **dict.fromkeys((*_NUMBERS, "store_timestamp", "reconsume_times", "prepared_transaction_offset"), 0),
    **{host: {"ip": bytes(4), "port": 0} for host in ("born_host", "store_host")},
    **dict.fromkeys(("body", "topic", "properties"), b""),
    "magic_code": MAGIC_V1,
}


def make(directory: Path, files: dict[int, bytes]) -> None:
    directory.mkdir(exist_ok=True)
    for start, content in files.items():
        (directory / file_name(start)).write_bytes(content)


def test_reads_across_files_by_position(tmp_path: Path) -> None:
    make(tmp_path, {16: b"ABCDEFGH", 8: b"01234567", 24: bytes(8)})
    with MappedFileQueue.open(tmp_path) as queue:
        assert (queue.start, queue.end, queue.file_size) == (8, 32, 8)
        assert queue.gaps == [] and queue.foreign == []
        assert queue.read(10, 3) == b"234"
        assert queue.read(14, 100) == b"67"
        assert queue.read(16, 2) == b"AB"
        assert queue.read(7, 1) == queue.read(32, 1) == queue.read(10, 0) == b""
        assert queue.read(10, -5) == queue.read(-1, 5) == b""


def test_no_directory_is_an_empty_queue(tmp_path: Path) -> None:
    queue = MappedFileQueue.open(tmp_path / "none")
    assert (queue.files, queue.start, queue.end, queue.file_size) == ([], 0, 0, 0)
    assert queue.file_at(0) is None
    assert not (tmp_path / "none").exists()


def test_several_directories_are_one_stream(tmp_path: Path) -> None:
    make(tmp_path / "a", {0: b"aaaa", 8: b"cccc"})
    make(tmp_path / "b", {4: b"bbbb"})
    queue = MappedFileQueue.open([tmp_path / "a", tmp_path / "b"])
    assert [queue.read(at, 1) for at in (3, 4, 8)] == [b"a", b"b", b"c"]


def test_of_two_files_of_one_name_one_is_foreign(tmp_path: Path) -> None:
    make(tmp_path / "a", {0: b"aaaa"})
    make(tmp_path / "b", {0: b"bbbb", 4: b"cccc"})
    queue = MappedFileQueue.open([tmp_path / "a", tmp_path / "b"])
    assert queue.read(0, 4) == b"aaaa"
    assert [Path(f.path) for f in queue.foreign] == [tmp_path / "b" / file_name(0)]


def test_what_is_no_file_of_the_stream_is_foreign(tmp_path: Path) -> None:
    make(tmp_path, {0: b"12345678", 8: b"abcdefgh"})
    (tmp_path / "foo").write_bytes(b"12345678")
    (tmp_path / "123").write_bytes(b"ABCDEFGH")
    (tmp_path / "3").write_bytes(b"ABCDEFGH")
    (tmp_path / "٣").write_bytes(b"x")
    (tmp_path / file_name(16)).mkdir()
    (tmp_path / file_name(24)).symlink_to(tmp_path / file_name(24))
    (tmp_path / ("9" * 20)).write_bytes(b"12345678")
    (tmp_path / ("9" * 5000)[:200]).write_bytes(b"12345678")
    queue = MappedFileQueue.open(tmp_path)
    reasons = {Path(f.path).name: f.reason for f in queue.foreign}
    assert set(reasons) == {*("foo", "3", "٣", file_name(16), file_name(24)), *("9" * 20, "9" * 200)}
    assert "lies inside" in reasons["3"]
    assert [file.start for file in queue.files] == [0, 8, 123]
    assert queue.gaps == [StreamGap(16, 107)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({0: 8, 8: 8, 16: 8}, 8),
        ({0: 8, 8: 0}, 8),
        ({0: 0, 8: 0}, 0),
        ({0: 5, 8: 8}, 8),
        ({0: 8, 8: 5}, 8),
        ({0: 8, 16: 8}, 8),
        ({0: 5, 8: 5, 16: 8}, 8),
        ({0: 9, 8: 8}, 8),
        ({80: 5}, 5),
    ],
)
def test_the_files_tell_the_size(tmp_path: Path, sizes: dict[int, int], expected: int) -> None:
    make(tmp_path, {start: bytes(size) for start, size in sizes.items()})
    queue = MappedFileQueue.open(tmp_path)
    assert queue.file_size == expected
    assert [file.start for file in queue.files] == list(sizes)
    assert MappedFileQueue.open(tmp_path, 4096).file_size == 4096


def test_a_file_that_is_too_long_or_too_short_is_read_as_far_as_it_is_one(tmp_path: Path) -> None:
    make(tmp_path, {0: b"01234567--", 8: b"abc", 16: b"ABCDEFGH"})
    queue = MappedFileQueue.open(tmp_path)
    assert queue.read(8, 8) == b"abc"
    assert queue.read(11, 8) == b""
    assert queue.gaps == [StreamGap(11, 5)]


def test_few_files_stay_open(tmp_path: Path) -> None:
    make(tmp_path, {8 * n: b"%8d" % n for n in range(3 * OPEN_FILES)})
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    queue = MappedFileQueue.open(tmp_path)
    for turn in range(2):
        for n in range(turn, 3 * OPEN_FILES):
            assert queue.read(8 * n, 8) == b"%8d" % n
    assert len(list(descriptors.iterdir())) <= before + OPEN_FILES
    queue.close()
    assert len(list(descriptors.iterdir())) == before


COPIES = [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))]


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_opens_its_own_files(copied: Callable[[MappedFileQueue], MappedFileQueue], tmp_path: Path) -> None:
    """And closes no file of others."""
    make(tmp_path, {0: b"01234567"})
    (tmp_path / f"{file_name(8)}.gz").write_bytes(gzip.compress(b"abcdefgh"))
    make(tmp_path / "other", {0: b"ABCDEFGH", 8: b"ABCDEFGH"})
    queue, other = MappedFileQueue.open(tmp_path), MappedFileQueue.open(tmp_path / "other")
    for position in (0, 8):
        queue.read(position, 1)
    mine = copied(queue)
    queue.close()
    for position, own in ((0, b"01"), (8, b"ab")):
        assert other.read(position, 2) == b"AB"  # its descriptors have the numbers that were given back
        assert mine.read(position, 2) == own
    del mine
    assert other.read(0, 2) == other.read(8, 2) == b"AB"


def test_a_file_that_went_away_is_said(tmp_path: Path) -> None:
    make(tmp_path, {0: b"01234567"})
    queue = MappedFileQueue.open(tmp_path)
    (tmp_path / file_name(0)).unlink()
    with pytest.raises(Exception, match=file_name(0)):
        queue.read(0, 4)


def test_a_file_in_place_of_the_directory_is_said(tmp_path: Path) -> None:
    path = tmp_path / "commitlog"
    path.write_bytes(b"")
    with pytest.raises(Unreadable, match="commitlog"):
        MappedFileQueue.open(path)


def test_names_are_positions() -> None:
    assert file_name(262144) == "00000000000000262144"
    assert start_of(file_name(2**63 - 1)) == 2**63 - 1
    assert start_of("123") == 123
    assert [start_of(name) for name in ("", "x", "-1", "+1", " 1", "1_0", str(2**63))] == [None] * 7


@pytest.mark.parametrize("size", [0, 1, 1 << 16, (1 << 17) + 3])
def test_zeros_all_over(size: int) -> None:
    data = bytearray(size)
    assert is_zero(data) and is_zero(bytes(data)) and is_zero(memoryview(data))
    for at in {0, size // 2, size - 1} if size else ():
        data[at] = 1
        assert not is_zero(data)
        data[at] = 0


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({0: 90, 100: 70, 200: 5}, 100),
        ({0: 300, 100: 300, 200: 300}, 100),
        ({0: 90, 100: 70, 130: 5}, 90),  # one of them is of no such log: nothing tells
        ({0: 100, 200: 100}, 100),
        ({100: 90}, 90),
    ],
)
def test_of_a_log_the_places_of_records_tell_the_size(files: dict[int, int], wanted: int, tmp_path: Path) -> None:
    """Where all files have a wrong length."""
    unit = len(MESSAGE.build(RECORD))
    for start, size in files.items():
        record = MESSAGE.build({**RECORD, "physical_offset": start * unit})
        (tmp_path / file_name(start * unit)).write_bytes(record.ljust(size * unit, b"\0"))
    assert MappedFileQueue.open(tmp_path, learn=size_of_log).file_size == wanted * unit
