"""Options of `put` that make no sense together."""

from __future__ import annotations

from pathlib import Path

import pytest

from .datadriven import run_here


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--transaction", "commit"], 2, "needs --half"),
        (["--half", "A"], 2, "needs --half"),
        (["--transaction", "commit", "--half", "A", "--tag", "x"], 2, "decide a stored half message"),
        (["T", "x", "--half", "A"], 2, "decide a stored half message"),
        (["T", "x", "--transaction", "half", "--delay-level", "1"], 2, "cannot be delayed"),
        (["--from", "-", "--transaction", "half"], 2, "give no TOPIC, BODY"),
        (["--transaction", "rollback", "--half", "A"], 5, "no such directory"),
    ],
)
def test_transactions_without_sense(words: list[str], code: int, message: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    said = run_here(["put", str(root), *words])
    assert message in said.stderr
    assert said.code == code, said.stderr
    assert not (root / "commitlog").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--keep-times"], "--keep-times needs --from"),
        (["--resume"], "--resume needs --from"),
        (["--no-answers"], "--no-answers needs --from"),
        (["--on-damage", "skip"], "--on-damage needs --from"),
        (["--from-format", "csv"], "--from-format needs --from"),
        (["--compress-over", "10"], "--compress-over needs --compress"),
    ],
)
def test_options_without_effect_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    said = run_here(["put", str(root), "T", "x", *words])
    assert message in said.stderr
    assert said.code == 2
    assert not root.exists()
