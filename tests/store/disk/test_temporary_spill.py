"""Arrays that go to a temporary file are the same from there; without room for it they stay."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from mqstore.store.disk import temporary
from mqstore.store.disk.temporary import Spill

DTYPE = np.dtype([("position", ">i8"), ("size", ">i4")])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of some pages, from the first bytes on."""
    monkeypatch.setattr(temporary, "_IN_MEMORY_BYTES", 100)
    monkeypatch.setattr(temporary, "_PIECE_BYTES", 1 << 14)


def test_what_was_kept_is_what_comes_back() -> None:
    random, kept, given = np.random.default_rng(5), [], []
    own = Spill()
    for size in [0, 3, 1, 0, 500, 17, 3000, 5000, 2, 1300]:
        for dtype in (np.dtype(np.int64), np.dtype(np.int32), DTYPE):
            array = np.frombuffer(random.bytes(size * dtype.itemsize), dtype)
            given.append(array)
            kept.append(own.keep(array[::-1]))
    for array, found in zip(given, kept, strict=True):
        assert found.dtype == array.dtype and found.tobytes() == array[::-1].tobytes()
    assert not kept[-1].flags.writeable


def test_it_takes_no_memory() -> None:
    own, number, size = Spill(), 200, 50_000
    tracemalloc.start()
    kept = [own.keep(np.full(size, each, np.int64)) for each in range(number)]
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert [int(array[-1]) for array in kept] == list(range(number))
    assert held < 8 * size * number // 20, f"{held:,} bytes for {8 * size * number:,}"


def test_a_small_view_does_not_keep_the_array_that_it_is_of() -> None:
    own, number, size = Spill(), 200, 50_000
    tracemalloc.start()
    kept = [own.keep(np.full(size, each, np.int64)[-2:]) for each in range(number)]
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert [int(array[-1]) for array in kept] == list(range(number))
    assert held < 2 * 8 * size, f"{held:,} bytes for {number} small arrays"


def test_without_room_arrays_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    own = Spill()
    first = own.keep(np.arange(100))
    monkeypatch.setattr(os, "pwrite", full)
    kept = [own.keep(np.arange(each, each + 1000)) for each in range(9)]
    assert [int(array[-1]) for array in kept] == list(range(999, 1008))
    assert first.tolist() == list(range(100))


def test_the_directory_has_nothing_of_it_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = Spill().keep(np.arange(1 << 12))
    assert not [*tmp_path.iterdir()]
    assert kept.sum() == sum(range(1 << 12))
