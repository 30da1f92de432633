"""The newest index file may have no item: messages without a key came behind a full one (spec 3.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.formats.index_file import HEADER, HEADER_BYTES

from .datadriven import run_here

SIZES = {"maxHashSlotNum": 7, "maxIndexNum": 5, "mappedFileSizeCommitLog": 4096, "mappedFileSizeConsumeQueue": 200}
OPTIONS = [word for name, value in SIZES.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A store whose only index file is full."""
    for number in range(4):
        assert run_here(["put", str(tmp_path / "s"), "t", f"b{number}", *OPTIONS]).code == 0
    return tmp_path / "s"


def begin_file(root: Path, count: int, further: int = 0) -> None:
    """The next index file, preset as a broker does, with so many items counted, and none put.

    further: by so many bytes the preset position lies behind that of the full file.
    """
    (older,) = (root / "index").iterdir()
    data = older.read_bytes()
    header = HEADER.parse(data[:HEADER_BYTES])
    assert header.index_count == SIZES["maxIndexNum"]
    position, time_ms = header.end_physical_offset + further, header.end_timestamp
    preset = {
        "begin_timestamp": time_ms,
        "end_timestamp": time_ms,
        "begin_physical_offset": position,
        "end_physical_offset": position,
        "hash_slot_count": 0,
        "index_count": count,
    }
    made = older.with_name(str(int(older.name) + 1))
    made.write_bytes(HEADER.build(preset).ljust(len(data), b"\0"))


@pytest.mark.parametrize("count", [0, 1])
def test_it_is_no_damage(full: Path, count: int) -> None:
    """Nothing is to be done; the next message goes into it."""
    begin_file(full, count)
    for command in ("verify", "recover", "repair"):
        result = run_here([command, str(full), *OPTIONS])
        assert result.code == 0 and "Safe to start" in result.stdout, command
        assert "The plan" not in result.stdout, command
    assert run_here(["put", str(full), "t", "next", *OPTIONS]).code == 0
    assert len(list((full / "index").iterdir())) == 2
    assert run_here(["verify", str(full), *OPTIONS]).code == 0


def test_one_that_begins_elsewhere_is_made_anew(full: Path) -> None:
    """Records up to its preset position would not be indexed (B30)."""
    begin_file(full, 1, further=1000)
    assert "rebuild  index" in run_here(["recover", str(full), *OPTIONS]).stdout
    assert run_here(["recover", str(full), *OPTIONS, "--apply", "--yes"]).code == 0
    assert run_here(["verify", str(full), *OPTIONS]).code == 0
