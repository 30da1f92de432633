"""Temporary files without a name: what has no room is named, and takes none."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from mqstore.store.disk.temporary import Spill, TemporaryBytes, mapped, temporary_files
from mqstore.store.errors import NoSpace


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for 6000 bytes of each file."""
    write = os.pwrite

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        if offset >= 6000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: 6000 - offset], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)


def test_bytes_come_back() -> None:
    assert bytes(mapped([])) == b""
    assert bytes(mapped([b"ab", b"", b"c"])) == b"abc"
    there = TemporaryBytes(100)
    assert (there.append(b"abc"), there.append(b"de"), there.end) == (0, 3, 5)
    assert there.read(2, 3) == b"cde"
    assert bytes(there.mapped()) == b"abcde" + bytes(95)


@pytest.mark.usefixtures("full_disk")
def test_what_has_no_room_takes_none() -> None:
    there = TemporaryBytes()
    there.append(bytes(5000))
    with pytest.raises(NoSpace, match="No space left") as found:
        there.append(bytes(2000))
    assert "TMPDIR" in found.value.hint
    assert (there.end, len(there.mapped())) == (5000, 5000)
    with pytest.raises(NoSpace):
        mapped([bytes(7000)])


@pytest.mark.usefixtures("full_disk")
def test_arrays_that_have_no_room_stay_in_memory() -> None:
    spill = Spill()
    spill._memory_left = 0
    arrays = [np.full(600, number, np.int64) for number in range(3)]
    kept = [spill.keep(array) for array in arrays]
    assert kept[0] is not arrays[0] and kept[1] is arrays[1] and kept[2] is arrays[2]
    assert [each.tolist() for each in kept] == [each.tolist() for each in arrays]


@pytest.mark.parametrize("error", [OSError(27, "File too large"), Exception("IO error: full")])
def test_a_full_directory_for_temporary_files_is_named(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(tmp_path))
    with pytest.raises(NoSpace, match="temporary files") as found, temporary_files():
        raise error
    assert found.value.path == os.fspath(tmp_path)
    assert "TMPDIR" in found.value.hint
