"""Positions of groups as lines."""

from __future__ import annotations

import json
from pathlib import Path

from .. import stores
from .datadriven import run_here


def test_every_position_of_a_broken_table_is_one_line(tmp_path: Path) -> None:
    """Bad entries are told, and the good ones too."""
    store = stores.unpack("5.3.3-clean", tmp_path)
    rows = {"T@g": {"0": 5, "x": 1, "1": "no", "2": -1}, "no group": {"0": 1}, "U@g": 7}
    path = store / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": rows}))
    path.with_name(path.name + ".bak").unlink()
    done = run_here(["offsets", str(store), "--by", "queue", "--group", "g", "--quick"])
    assert done.code == 0
    assert "T/0" in done.stdout
    assert "internal error" not in done.stderr
