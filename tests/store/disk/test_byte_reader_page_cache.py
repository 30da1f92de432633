"""Reading at a rate leaves the page cache as it was: which pages are in it, the kernel tells.

Opening a store looks at the first bytes of its files, before there is a rate: what it brings to the
cache stays. Nothing that was there is lost.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from mqstore.store.disk.byte_reader import read_keeping_cache
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.run import verify
from tests import stores

PIECE = 1 << 16
RATE_BYTES = 1 << 40


def cached(path: Path) -> npt.NDArray[np.bool_]:
    """bool[n]: which pages of a file are in the page cache."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        content = np.frombuffer(mapped, np.uint8)
        flags = np.zeros(-(-len(content) // mmap.PAGESIZE), np.uint8)
        address, size = ctypes.c_void_p(content.ctypes.data), ctypes.c_size_t(len(content))
        failed = ctypes.CDLL(None).mincore(address, size, flags.ctypes.data_as(ctypes.c_void_p))
        del content  # or the map cannot be closed
    assert not failed
    found: npt.NDArray[np.bool_] = flags & 1 != 0
    return found


def leave(path: Path, *pieces: int) -> None:
    """Only these pieces of a file are in the page cache, where its file system can forget."""
    with path.open("rb") as file:
        descriptor = file.fileno()
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for piece in pieces:
            os.pread(descriptor, PIECE, piece * PIECE)


@pytest.mark.parametrize("offset", [0, 5, PIECE - 1, 3 * PIECE + 4097])
@pytest.mark.parametrize("size", [1, 100, 5 * PIECE, 20 * PIECE])
def test_read(tmp_path: Path, offset: int, size: int) -> None:
    data = np.random.default_rng(7).bytes(16 * PIECE - 77)
    path = tmp_path / "file"
    path.write_bytes(data)
    leave(path, 1, 4, 5, 9)
    before, buffer = cached(path), bytearray(size)
    with path.open("rb") as file:
        got = read_keeping_cache(file.fileno(), memoryview(buffer), offset)
    assert buffer[:got] == data[offset : offset + size]
    assert (cached(path) == before).all()


@pytest.mark.parametrize("told", [True, False])
def test_read_of_a_file_of_another_user(
    told: bool, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mincore does not tell such a reader. Where its file system does not, either, all pages stay."""
    path = tmp_path_factory.mktemp("disk") / "file"
    path.write_bytes(bytes(16 * PIECE - 77))
    leave(path, 1, 4, 5, 9)
    before, owner = cached(path), path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with path.open("rb") as file:
        try:
            os.preadv(file.fileno(), [bytearray(1)], PIECE, os.RWF_NOWAIT)
        except OSError:
            told = False
        if not told:
            monkeypatch.setattr(os, "RWF_NOWAIT", 1 << 30)
        assert read_keeping_cache(file.fileno(), memoryview(bytearray(16 * PIECE)), 0) == 16 * PIECE - 77
    after = cached(path)
    assert not (before & ~after).any()
    assert not after.all() or not told  # a fast disk may have a page that is asked for at once: such a page stays


def test_verify(tmp_path: Path) -> None:
    """What of log, queues and index was in memory for a broker is when they have been checked."""
    root = stores.unpack("5.3.3-killed-page", tmp_path)
    parts = ("commitlog", "consumequeue", "index")
    paths = [p for part in parts for p in sorted((root / part).rglob("*")) if p.is_file()]
    for number, path in enumerate(paths):
        leave(path, number % 2, 2)
    before = {path: cached(path) for path in paths}
    with StoreReader(root, rate_bytes=RATE_BYTES) as store:
        verdict = verify(store)
    assert verdict.records
    assert not verdict.unread
    lost = [p.relative_to(root).as_posix() for p in paths if (before[p] & ~cached(p)).any()]
    assert not lost
