"""`dump` of consume queues with addresses in consumequeue_ext: what stands there, or what is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.hashing import tags_code

from ... import stores
from ..datadriven import run_here


def units(path: Path) -> list[dict[str, Any]]:
    """The units of queues."""
    result = run_here(["dump", str(path), "--format", "ndjson"])
    assert (result.code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("name", ["4.9.7-cqext", "5.3.3-cqext"])
def test_every_unit_has_its_ext_unit(name: str, tmp_path: Path) -> None:
    """The tags code is that of the message's tag; the bit map that of the ext file."""
    root = stores.unpack(name, tmp_path)
    tags = {m["physical_offset"]: m["properties"].get("TAGS") for m in stores.messages(name)}
    bit_maps = {
        (unit["topic"], unit["queue_id"], unit["address"]): unit["bit_map"] for unit in units(root / "consumequeue_ext")
    }
    seen = 0
    for unit in units(root / "consumequeue"):
        place = (unit["topic"], unit["queue_id"], unit["ext_address"])
        assert unit["ext_address"] == unit["tags_code"]
        assert unit["ext_bit_map"] == bit_maps.pop(place)
        if unit["topic"] != "SCHEDULE_TOPIC_XXXX":
            assert unit["ext_tags_code"] == tags_code(tags[unit["physical_offset"]] or "")
            seen += 1
    assert seen > 100
    assert bit_maps == {}
    text = run_here(["dump", str(root / "consumequeue" / "sql" / "0"), "--count", "1"]).stdout
    assert "(ext: tags_code=" in text


def test_what_is_missing(tmp_path: Path) -> None:
    """A place without a unit, a queue without the directory, a copy without its place."""
    root = stores.unpack("5.3.3-cqext", tmp_path)
    queue, ext = root / "consumequeue" / "sql" / "0", root / "consumequeue_ext" / "sql" / "0"
    count = len(units(queue))
    for path in sorted(ext.iterdir()):
        path.write_bytes(bytes(30) + path.read_bytes()[30:])
    found = units(queue)
    assert found[0]["ext_problem"] == "no unit there"
    assert "ext_problem" not in found[-1]
    copy = tmp_path / "copy"
    shutil.copy(next(queue.iterdir()), copy)
    assert "no consumequeue_ext" in units(copy)[0]["ext_problem"]
    shutil.rmtree(ext)
    found = units(queue)
    assert len(found) == count
    assert all("no consumequeue_ext" in unit["ext_problem"] for unit in found)
