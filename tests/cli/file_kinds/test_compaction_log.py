"""Compaction logs: what `inspect` counts in them, of damaged and of empty ones, too."""

from __future__ import annotations

from pathlib import Path

from ...stores import unpack
from .told import summary


def test_a_record_without_its_head_is_damage_and_in_no_count(tmp_path: Path) -> None:
    log = unpack("5.3.3-compaction", tmp_path) / "compaction" / "compactionLog" / "state" / "0"
    whole = summary(log)
    path = min(log.iterdir())
    data = path.read_bytes()
    size = int.from_bytes(data[:4], "big")
    path.write_bytes(data[:size] + b"\xff" * 8 + data[size + 8 :])
    found = summary(log)
    assert (found["messages"], found["log_end"]) == (whole["messages"] - 1, whole["log_end"])
    assert found["damaged_bytes"] == int.from_bytes(data[size : size + 4], "big") > 0
    every = summary(log.parents[1])
    assert every["logs"] == 2 and "log_start" not in every
    assert every["messages"] > found["messages"] and every["damaged_bytes"] == found["damaged_bytes"]


def test_a_log_that_was_never_written_has_no_times(tmp_path: Path) -> None:
    log = unpack("5.3.3-compaction", tmp_path) / "compaction" / "compactionLog" / "state" / "0"
    for path in log.iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    found = summary(log)
    assert (found["messages"], found["damaged_bytes"], found["log_end"]) == (0, 0, 0)
    assert found["first_store_timestamp"] is found["last_store_timestamp"] is None
