"""The native kernel and numpy find the same records, and neither reads a log many times over."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats import kernel
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.layout import Layout
from mqstore.store.log import scan as scan_module
from mqstore.store.log.batch import Batch
from mqstore.store.queues.references import commit_log_of

from ..made_log import record

FILE_BYTES = 1 << 20


@cache
def log_with_odd_records(every: int) -> tuple[bytes, list[int]]:
    """A file of the log, and where its records are; of `every` so many one names another position."""
    data, positions = bytearray(), list[int]()
    while len(data) < FILE_BYTES - (1 << 12):
        at = len(data)
        odd = len(positions) % every == every - 1
        positions.append(at)
        data += record(at, b"x" * 300, physical_offset=at + odd, queue_offset=len(positions))
    return bytes(data).ljust(FILE_BYTES, b"\0"), positions


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("every", [2, 300])
def test_records_that_name_another_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int, native: bool
) -> None:
    """They are odd, and belong to the log where the next one is in its place: small windows judge them."""
    if native and not kernel.is_wanted():
        pytest.skip(kernel.describe())
    if not native:
        monkeypatch.setattr(kernel, "is_wanted", lambda rows=0: False)
    data, positions = log_with_odd_records(every)
    folder = tmp_path / "commitlog"
    folder.mkdir()
    (folder / file_name(0)).write_bytes(data)
    read, window = 0, scan_module.LogScan._window

    def counted(self: Any, *arguments: Any) -> Any:
        nonlocal read
        found = window(self, *arguments)
        read += found.size
        return found

    monkeypatch.setattr(scan_module.LogScan, "_window", counted)
    found = []
    for item in commit_log_of(Layout.open(tmp_path)).scan():
        if isinstance(item, Batch):
            found += item.position.tolist()
    assert found == positions
    assert read < 5 * FILE_BYTES


def test_a_file_whose_name_is_beyond_every_position(tmp_path: Path) -> None:
    """It holds no record of this log."""
    data, _ = log_with_odd_records(300)
    folder = tmp_path / "commitlog"
    folder.mkdir()
    (folder / ("9" * 20)).write_bytes(data)
    items = list(commit_log_of(Layout.open(tmp_path)).scan())
    assert not any(isinstance(item, Batch) for item in items)
