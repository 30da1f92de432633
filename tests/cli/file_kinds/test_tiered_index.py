"""Segments of the tiered index whose header and items do not say the same."""

from __future__ import annotations

import json
from pathlib import Path

from mqstore.formats.derive import offset_of
from mqstore.formats.tiered_index import HEADER, HEADER_BYTES

from ... import tiered
from ..datadriven import run_here


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
