"""`dump` of tiered segments that have lost their place, or their names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from mqstore.formats.derive import offset_of
from mqstore.formats.tiered_index import HEADER, HEADER_BYTES

from .. import tiered
from .datadriven import run_here


def offsets(path: Path, *options: str) -> list[int]:
    """Queue offsets of what is printed."""
    result = run_here(["dump", str(path), "--format", "ndjson", *options])
    assert (result.code, result.stderr) == (0, "")
    return [json.loads(line)["queue_offset"] for line in result.stdout.splitlines()]


def test_a_log_elsewhere(tmp_path: Path) -> None:
    """The directory under another name, one segment, a segment under another name."""
    root = tiered.unpack("5.3.3", tmp_path)
    path = tiered.queue_path(root, 0, "COMMIT_LOG")
    whole = offsets(path)
    moved = tmp_path / "copy"
    shutil.copytree(path, moved)
    assert offsets(moved, "--as", "tiered-commit-log") == whole
    segment = max(moved.iterdir(), key=lambda one: one.name[8:])
    last = offsets(segment, "--as", "tiered-commit-log")
    assert whole[-len(last) :] == last
    segment.rename(tmp_path / "segment.bin")
    assert offsets(tmp_path / "segment.bin", "--as", "tiered-commit-log") == last
    assert offsets(tmp_path / "segment.bin") == last


def test_a_queue_elsewhere(tmp_path: Path) -> None:
    root = tiered.unpack("5.5.0", tmp_path)
    path = tiered.queue_path(root, 0, "CONSUME_QUEUE")
    whole = offsets(path)
    assert whole == list(range(len(whole))) != []
    moved = tmp_path / "copy"
    shutil.copytree(path, moved)
    assert offsets(moved, "--as", "tiered-consume-queue") == whole


def test_an_end_that_is_not_that_of_the_items(tmp_path: Path) -> None:
    """#10656: a segment that ends too early is passed by; the header is compared with the items."""
    root = tiered.unpack("5.5.0", tmp_path)
    path = min((root / tiered.INDEX).iterdir(), key=lambda one: one.name[8:])
    whole = path.read_bytes()
    header = HEADER.parse(whole)
    for late_ms, said in ((-2000, "before"), (2000, "")):
        end = HEADER.end_timestamp.build(header.end_timestamp + late_ms)
        at = offset_of(HEADER, "end_timestamp")
        path.write_bytes(whole[:at] + end + whole[at + len(end) :])
        dumped = run_here(["dump", str(path), "--format", "ndjson"])
        reasons = [row["reason"] for row in map(json.loads, dumped.stdout.splitlines()) if row["type"] == "damage"]
        assert [said in reason for reason in reasons] == [True] * bool(said)
        shown = json.loads(run_here(["inspect", str(path), "--format", "json"]).stdout)
        assert shown["damaged_bytes"] == (HEADER_BYTES if said else 0), shown
