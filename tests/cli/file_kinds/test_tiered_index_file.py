"""Index files of a tiered store that were never compacted, as `dump` and `inspect` show them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.inspect.recognise import recognise

from ... import tiered
from ..datadriven import run_here

SLOTS = 7
"""Of the files that the real classes wrote."""


@pytest.fixture(params=tiered.VERSIONS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tiered.unpack_killed(request.param, tmp_path)


def rows(*words: str | Path, code: int = 0) -> list[dict[str, Any]]:
    result = run_here([*map(str, words), "--format", "ndjson"])
    assert (result.code, result.stderr) == (code, ""), result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_dump(root: Path, tmp_path: Path) -> None:
    """Headers and items; a part of them; what is not told by the file is asked for."""
    directory = root / tiered.INDEX_FILES
    found = rows("dump", directory)
    assert {row["type"] for row in found} == {"tiered_index_file_header", "tiered_index_file_item"}
    newest = max(directory.iterdir())
    (header, *items) = rows("dump", newest)
    assert header["slots"] == SLOTS and len(items) == header["item_count"] > 1
    assert rows("dump", newest, "--at", "2")[1:] == items[1:]
    (shown,) = rows("inspect", directory)
    assert shown["index_items"] == len(found) - shown["files"] and shown["damaged_files"] == 0


def test_compacted_beside(root: Path) -> None:
    """What `compacting/` has is laid out as a segment."""
    version = root.name.removesuffix("-tiered-killed")
    segment = min((tiered.unpack(version, root.parent) / tiered.INDEX).iterdir(), key=lambda one: one.name[8:])
    place = root / tiered.INDEX_FILES / "compacting"
    place.mkdir()
    shutil.copy(segment, place / max((root / tiered.INDEX_FILES).glob("1*")).name)
    assert recognise(place).kind == "tiered-index"
    found = rows("dump", place)
    assert [row["type"] for row in found[:2]] == ["tiered_index_header", "tiered_index_item"]
    assert "damage" not in {row["type"] for row in rows("dump", root / tiered.INDEX_FILES)}
