"""What salvage made of the pieces of a log is loaded and served by the real broker, and left alone."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.damage import damage

from .conftest import Judge
from .served import DATA, SIZES, Row, changed, ends, loaded, message, mqstore, settings, victim

pytestmark = pytest.mark.interop


def image_of(root: Path, target: Path, chance: random.Random) -> Path:
    """The files of a log in no order, under no name, other bytes between them."""
    files = sorted((root / "commitlog").iterdir())
    chance.shuffle(files)
    parts = [chance.randbytes(chance.randrange(5000)) + path.read_bytes() for path in files]
    target.write_bytes(b"".join(parts))
    return target


@pytest.mark.parametrize("layout", ["original", pytest.param("compact", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["drop_file", pytest.param("zero_page", marks=pytest.mark.slow)])
def test_what_is_left_of_a_log_is_served(judge: Judge, version: str, kind: str, layout: str, tmp_path: Path) -> None:
    root, new = tmp_path / "store", tmp_path / "new"
    messages = [message(number) for number in range(150)]
    answer = loaded(judge, root, SIZES, {"do": "put", "messages": messages})
    rows: list[Row] = answer["steps"][0]
    hurt = victim(root, rows)
    files = hurt.log_files()
    spoiled = damage(hurt, random.Random(kind), kind=kind, path=files[len(files) // 2]).spoiled
    image = image_of(root, tmp_path / "image", random.Random(version))
    options = ["--layout", layout, "--broker-version", version, "--format", "json"]
    told = json.loads(mqstore("salvage", image, "--to", new, *options, *settings(SIZES), codes=(0, 1)))
    assert told["whole"] == len(rows) - len(spoiled)
    kept = [row for row in rows if row["physical_offset"] not in spoiled]
    check(judge, new, told, kept, layout)


def check(judge: Judge, new: Path, told: Row, kept: list[Row], layout: str) -> None:
    """Loaded, nothing changed, every message that was left is served; at its place, or in order."""
    answer = loaded(judge, new, SIZES, {"do": "get"})
    wrong = changed(answer, *DATA)
    assert not wrong, wrong
    got = [row for row in answer["steps"][0] if row.get("look_ok")]
    if layout == "compact":
        assert len(got) == told["stored"] == len(kept)
        return
    places: dict[int, Any] = {row["physical_offset"]: row for row in got}
    for row in kept:
        served = places[row["physical_offset"]]
        assert served["unit"] == row["queue_offset"]
    maxima = ends(answer["after_start"]["queues"], "max")
    assert sum(maxima.values()) == len(got)
    assert len(got) == len(kept) + told["tombstones"]
