"""Answers of `stats` as lines."""

from __future__ import annotations

from mqstore.cli.stats_answer import with_bar


def test_bars_are_drawn_to_the_width() -> None:
    """All on one scale, behind the longest line; none where there is no room."""
    assert with_bar("12 B", 0.5, 6, 30) == "12 B    ██████████▌"
    assert with_bar("12 B", 1, 4, 30) == "12 B  " + "█" * 23
    assert with_bar("12 B", 0, 4, 30) == "12 B"
    assert with_bar("12 B", 1, 20, 30) == "12 B"
