"""`mqstore pipeline stats` where no session is to be started."""

from __future__ import annotations

from pathlib import Path

from .datadriven import run_here


def test_units_need_no_spark(tmp_path: Path) -> None:
    """It is said what counts them, and no help lists what is refused."""
    done = run_here(["pipeline", "stats", str(tmp_path), "--quick"])
    assert (done.code, "mqstore stats --quick" in done.stderr) == (2, True)
    assert "--quick" not in run_here(["pipeline", "stats", "--help"]).stdout
    assert "--quick" in run_here(["stats", "--help"]).stdout
