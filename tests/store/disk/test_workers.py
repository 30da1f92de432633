"""Work in a copy of this process: its result comes back, and nothing of it stays."""

from __future__ import annotations

import ctypes
import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from mqstore.store.disk.temporary import TemporaryBytes
from mqstore.store.disk.workers import Forked
from mqstore.store.errors import NoSpace

_FREED_BYTES = 64 << 20
_PIECE_BYTES = 100_000


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, empty."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def made() -> str:
    """A directory for temporary files that nobody removes."""
    return tempfile.mkdtemp(prefix="of-the-child-")


def waiting() -> None:
    """Never done."""
    made()
    signal.pause()


def test_the_result_comes_back_and_its_temporary_files_go(temporary: Path) -> None:
    with Forked(made) as child:
        found = child.result()
    assert found is not None and Path(found).parent.parent == temporary
    assert [*temporary.iterdir()] == []


def test_nothing_stays_of_a_child_that_is_not_waited_for(temporary: Path) -> None:
    with Forked(waiting) as child:
        while not [*temporary.glob("*/*")]:
            os.sched_yield()
        assert not child.ready(0)
    assert [*temporary.iterdir()] == []


def own_bytes() -> int:
    """Anonymous memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="of the GNU C library")
def test_what_was_freed_is_not_the_childs(temporary: Path) -> None:
    """Pieces that malloc keeps in its heap, with one in use behind them all."""
    before = own_bytes()
    pieces = [bytearray(b"x" * _PIECE_BYTES) for _ in range(_FREED_BYTES // _PIECE_BYTES)]
    last = pieces.pop()
    pieces.clear()
    with Forked(own_bytes) as child:
        found = child.result()
    assert found is not None and last
    assert found - before < _FREED_BYTES // 4, f"{(found - before) >> 20} MiB came along"


def test_without_room_for_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with Forked(lambda: 5) as child:
        assert child.result() == 5


def arrays() -> list[npt.NDArray[np.int64]]:
    """Large and small ones, and an empty one."""
    return [np.arange(size) for size in (LARGE, 3, 0, LARGE + 1)]


LARGE = 1 << 20


def test_large_arrays_of_a_result_stay_out_of_the_memory(temporary: Path) -> None:
    before = own_bytes()
    with Forked(arrays) as child:
        found = child.result()
    assert found is not None
    assert own_bytes() - before < LARGE, "they are mapped"
    assert [np.array_equal(one, other) for one, other in zip(found, arrays(), strict=True)] == [True] * 4
    found[0][0] = 7  # what is written there is this process's own
    assert [*temporary.iterdir()] == []


def test_large_arrays_come_back_where_a_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise NoSpace("full")

    monkeypatch.setattr(TemporaryBytes, "append", full)
    with Forked(arrays) as child:
        found = child.result()
    assert found is not None
    assert [np.array_equal(one, other) for one, other in zip(found, arrays(), strict=True)] == [True] * 4
