"""The stores themselves: what is unpacked is what the truth describes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from .stores import NAMES, messages, sent, truth, unpack


@pytest.mark.few(12)
@pytest.mark.parametrize("name", NAMES)
def test_unpacked_files_are_those_of_the_truth(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    expected = truth(name)["files"]
    found = {str(p.relative_to(root)): p for p in root.rglob("*") if p.is_file()}
    assert found.keys() == expected.keys()
    for path, known in expected.items():
        assert found[path].stat().st_size == known["size"], path
        if known["size"] < 1 << 20:  # the timer wheel is 38 MB of zeros
            assert hashlib.sha256(found[path].read_bytes()).hexdigest() == known["sha256"], path


@pytest.mark.few(12)
@pytest.mark.parametrize("name", NAMES)
def test_lists_are_complete(name: str) -> None:
    assert sum(1 for _ in messages(name)) == truth(name)["message_count"]
    assert all("topic" in row for row in sent(name))


def test_modification_times_are_kept(tmp_path: Path) -> None:
    root = unpack("4.3.1-clean", tmp_path)
    made_1_hour_ms = 3_600_000
    log = root / "commitlog"
    last = max(row["store_timestamp"] for row in messages("4.3.1-clean"))
    assert all(abs(p.stat().st_mtime * 1000 - last) < made_1_hour_ms for p in log.iterdir())
