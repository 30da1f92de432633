"""`mqstore pipeline stats` where no session is to be started."""

from __future__ import annotations

from pathlib import Path

from .datadriven import run_here


def test_units_need_no_spark(tmp_path: Path) -> None:
    done = run_here(["pipeline", "stats", str(tmp_path), "--quick"])
    assert (done.code, "mqstore stats --quick" in done.stderr) == (2, True)
