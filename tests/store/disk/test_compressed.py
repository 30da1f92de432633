"""Compressed files among those of a stream: found, listed, read, kept, refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqstore.store.disk import compressed
from mqstore.store.disk.compressed import (
    claimed_size,
    is_compressed,
    open_any,
    open_plain,
    plain_name,
    plain_of,
    whole_size,
)
from mqstore.store.disk.file_queue import OPEN_PLAIN, MappedFileQueue, file_name
from mqstore.store.disk.layout import Layout, refuse_compressed
from mqstore.store.errors import LimitExceeded, Missing, NoSpace, Unreadable, Unsupported
from mqstore.store.log.commit_log import Batch, CommitLog
from mqstore.store.queues.references import commit_log_of

from ...packing import PACKERS, gz, gz_members, pack, zst
from ...stores import unpack

SIZE = 1 << 16


def content(number: int) -> bytes:
    """What one file of the stream holds: nothing like another one's."""
    return b"".join(b"%d:%d\n" % (number, line) for line in range(10_000))[:SIZE]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stream of six files."""
    folder = tmp_path / "stream"
    folder.mkdir()
    for number in range(6):
        (folder / file_name(number * SIZE)).write_bytes(content(number))
    return folder


def test_names() -> None:
    assert [plain_name(name) for name in ("0.gz", "1.zst", "2", "3.gz.zst", "a.b", ".gz")] == [
        *("0", "1", "2", "3.gz", "a.b", "")
    ]


@pytest.mark.parametrize("how", PACKERS)
@pytest.mark.parametrize("which", [(0,), (0, 1, 2), (5,), (0, 2, 4), range(6)], ids=str)
def test_a_stream_of_plain_and_compressed_files(folder: Path, how: str, which: tuple[int, ...]) -> None:
    for number in which:
        pack(folder / file_name(number * SIZE), how)
    whole = b"".join(map(content, range(6)))
    with MappedFileQueue.open(folder) as queue:
        assert (queue.start, queue.end, queue.file_size) == (0, 6 * SIZE, SIZE)
        assert (queue.gaps, queue.foreign) == ([], [])
        for file in queue.files:
            assert queue.content(file) == (SIZE, "")
        for position in (0, 5, SIZE - 1, SIZE, 2 * SIZE + 77, 6 * SIZE - 1, 6 * SIZE):
            end = min(position + 100, (position // SIZE + 1) * SIZE)
            assert queue.read(position, 100) == whole[position:end]
        buffer, queue.aside = bytearray(SIZE), True
        for file in queue.files:
            assert queue.read_into(file, 0, memoryview(buffer)) == SIZE
            assert buffer == whole[file.start : file.end]


def test_what_the_files_say_of_their_size_spares_unpacking(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is the distance to the next one; the last file has none, and is unpacked."""
    for number in range(6):
        pack(folder / file_name(number * SIZE), ("gzip", "zstd")[number % 2])
    seen: list[str] = []

    def unpacked(path: str) -> int:
        seen.append(Path(path).name)
        return whole_size(path)

    monkeypatch.setattr("mqstore.store.disk.file_queue.whole_size", unpacked)
    assert [file.size for file in MappedFileQueue.open(folder).files] == [SIZE] * 6
    assert seen == [file_name(5 * SIZE) + ".zst"]


def test_what_they_say_is_not_trusted(folder: Path) -> None:
    """A size that fits by chance, with less and with more behind it."""
    short = gz(content(0)[:1000])
    (folder / file_name(0)).unlink()
    (folder / (file_name(0) + ".gz")).write_bytes(short[:-4] + SIZE.to_bytes(4, "little"))
    (folder / file_name(SIZE)).unlink()
    (folder / (file_name(SIZE) + ".gz")).write_bytes(gz(b"in front") + gz(content(1)))
    with MappedFileQueue.open(folder) as queue:
        first, second = queue.files[:2]
        assert (first.size, second.size) == (SIZE, SIZE)
        assert queue.content(first).size == 1000
        assert "length check" in queue.content(first).problem
        assert queue.read(0, 2000) == content(0)[:1000]
        assert queue.content(second) == (SIZE, f"it has {SIZE + 8} bytes, but the compressed file says {SIZE}")


def test_a_plain_file_wins(folder: Path) -> None:
    for number, how in ((0, "gzip"), (1, "zstd")):
        path = folder / file_name(number * SIZE)
        pack(path, how)
        path.write_bytes(b"plain".ljust(SIZE, b"."))
    pack(folder / file_name(2 * SIZE), "gzip")
    (folder / (file_name(2 * SIZE) + ".zst")).write_bytes(zst(b"second"))
    with MappedFileQueue.open(folder) as queue:
        assert queue.read(0, 5) == queue.read(SIZE, 5) == b"plain"
        assert queue.read(2 * SIZE, 5) == content(2)[:5]
        names = [Path(foreign.path).name for foreign in queue.foreign]
        assert names == [f"{file_name(0)}.gz", f"{file_name(SIZE)}.zst", f"{file_name(2 * SIZE)}.zst"]
        assert queue.foreign[0].reason == f"the same position as {folder / file_name(0)}"


def test_nothing_is_left_behind(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is unpacked has no name; a stream keeps few of them open."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    for number in range(6):
        pack(folder / file_name(number * SIZE))
    before = open_files()
    with MappedFileQueue.open(folder) as queue:
        for number in range(6):
            queue.read(number * SIZE, 1)
        assert not list(temporary.iterdir())
        assert open_files() - before <= 6 + OPEN_PLAIN
    assert open_files() - before <= 6


def open_files() -> int:
    """Descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_little_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By number and by size; an old one is unpacked again."""
    paths = [pack(folder / file_name(number * SIZE)) for number in range(6)]
    for name, value in (("KEPT_FILES", 2), ("KEPT_BYTES", SIZE // 2)):
        monkeypatch.setattr(compressed, name, value)
        for _ in range(2):
            for number, path in enumerate(paths):
                descriptor = open_plain(path)
                assert os.read(descriptor, SIZE) == content(number)
                os.close(descriptor)
                assert len(compressed._kept) <= 2
    assert len(compressed._kept) == 1


def test_a_file_that_changes_is_unpacked_again(folder: Path) -> None:
    path = pack(folder / file_name(0))
    assert plain_of(path).size == SIZE
    path.write_bytes(gz(b"other"))
    assert plain_of(path) == (5, "")


def test_bombs_and_full_disks_end_with_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pack(folder / file_name(5 * SIZE))
    with monkeypatch.context() as patch:
        patch.setattr("mqstore.store.disk.compressed.LARGEST_BYTES", SIZE - 1)
        with pytest.raises(LimitExceeded, match=r"more than 65535 bytes.*\.gz"):
            MappedFileQueue.open(folder)
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr("mqstore.store.disk.compressed.UnpackedSink.write", full)
        with pytest.raises(NoSpace, match="TMPDIR"):
            MappedFileQueue.open(folder)
    assert plain_of(path) == (SIZE, "")


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.gz")
    for call in (plain_of, open_plain, open_any, is_compressed, claimed_size, whole_size):
        with pytest.raises(Missing):
            call(tmp_path / "none.gz")
        with pytest.raises(Unreadable, match="FIFO"):
            call(tmp_path / "fifo.gz")


def test_claims(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data, claimed in (
        (gz(bytes(1234)), 1234),
        (zst(bytes(1234)), 1234),
        (gz_members(b"abc"), 0),
        (zst(bytes(1234))[:4], None),
        (b"plain", None),
    ):
        path.write_bytes(data)
        assert claimed_size(path) == claimed


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index", "timerlog", "consumequeue_ext"])
def test_stores_with_compressed_files_are_not_written_to(tmp_path: Path, part: str) -> None:
    name = "5.3.3-timer-clean" if part == "timerlog" else "4.9.7-cqext"
    root = unpack(name, tmp_path)
    refuse_compressed(Layout.open(root))
    path = next(p for p in sorted((root / part).rglob("*")) if p.is_file() and p.name.isdecimal())
    packed = pack(path, "zstd")
    with pytest.raises(Unsupported, match="compressed") as raised:
        refuse_compressed(Layout.open(root))
    assert raised.value.path == str(packed)


@pytest.mark.parametrize("share", [0.1, 0.4])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_scan_tells_where_it_does_not_unpack(tmp_path: Path, number: int, share: float) -> None:
    """Whichever file it is: the records in front and behind are all there."""
    root = unpack("5.3.3-killed", tmp_path)
    Path(commit_log_of(Layout.open(root)).files[-1].path).unlink()  # made ahead, and empty
    log = commit_log_of(Layout.open(root))
    plain = positions(log)
    file = log.files[number]
    path = pack(Path(file.path))
    packed = path.read_bytes()
    path.write_bytes(packed[: int(len(packed) * share)])
    cut = file.start + plain_of(path).size
    log = commit_log_of(Layout.open(root))
    found = positions(log)
    gone = [position for position in plain if position not in found]
    assert gone and gone == [p for p in plain if gone[0] <= p < file.end]
    assert gone[0] <= cut
    [lost] = [i for i in log.scan() if not isinstance(i, Batch) and "decompress" in i.reason]
    assert (lost.position, lost.end) == (cut, file.end)
    assert lost.reason == f"{path.name} does not decompress: it is cut off"


def positions(log: CommitLog) -> list[int]:
    """Of all records that a scan finds."""
    return [int(p) for item in log.scan() if isinstance(item, Batch) for p in item.position]
