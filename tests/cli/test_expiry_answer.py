"""`stats --expires`."""

from __future__ import annotations

from pathlib import Path

import pytest

from .datadriven import run_here


@pytest.mark.parametrize(
    "words",
    [
        ("--expires", "--quick"),
        ("--within", "1d"),
        ("--now", "now"),
        ("--expires", "--master", "local[1]"),
    ],
    ids=" ".join,
)
def test_what_does_not_go_with_expiry(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run_here(["stats", str(tmp_path), *words])
    assert done.code == 2
    assert "--expires" in done.stderr
